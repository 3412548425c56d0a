"""The timelines of other people's GPUs: sums to the nanosecond, and verdicts that stand where peers' do not.

Times of busy GPUs are also in the index of ../shared/reports, from other programs: 9.773 of 473.750 ms (SGLang), 99.76 %
of 10.743 ms (vLLM), 11.596 of 84.487 ms (B200), 547.7 and 580.0 ms (HTA). TraceLens calls 10.772 ms of the B200's time
compute and 0.022 ms communication: it does not count vLLM's own all-reduce. The sum of both is the same.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from ncu_tools.timeline.load_activity import load_activity
from ncu_tools.timeline.timeline import GpuTimeline, Timeline, timeline
from tests.support.nightly import one_in
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, shared_reports

pytestmark = needs_shared_reports

# Part of the file's name, GPU -> span from the first thing that the process did, compute, exposed communication, exposed copies, idle (ns); verdict.
EXPECTED: dict[tuple[str, int], tuple[tuple[int, int, int, int, int], str | None]] = {
    ("h100_2gpu_1s", 0): ((969_447_605, 22_399_947, 0, 940_490_300, 6_557_358), "copy"),
    ("h100_2gpu_1s", 1): ((969_258_578, 22_458_791, 0, 940_351_914, 6_447_873), "copy"),
    ("mfu_2gpu_after", 0): ((299_251_215, 227_580_608, 9_989_016, 2_539_125, 59_142_466), "kernels"),
    ("mfu_2gpu_after", 1): ((299_269_422, 227_700_120, 23_753_085, 2_547_549, 45_268_668), "kernels"),
    ("mfu_2gpu_before", 0): ((299_848_812, 253_800_656, 17_172_652, 2_844_479, 26_031_025), "kernels"),
    ("mfu_2gpu_before", 1): ((298_744_328, 256_199_208, 8_229_100, 2_847_608, 31_468_412), "kernels"),
    ("power_iteration", 0): ((1_790_997_867, 1_131_742_684, 0, 322_040, 658_933_143), "kernels"),
    ("b200", 0): ((87_128_842, 8_652_137, 2_141_501, 802_844, 75_532_360), "host"),
    ("Qwen1.5", 0): ((49_710_329, 45_644_932, 0, 2_368, 4_063_029), "kernels"),
    ("sglang_decode", 9): ((473_830_532, 9_759_749, 0, 13_177, 464_057_606), None),
    ("vllm_decode", 2): ((19_114_059, 10_674_517, 0, 43_191, 8_396_351), "kernels"),
    ("torch_compile_triton", 2): ((12_795_994, 12_549_021, 0, 0, 246_973), "kernels"),
    ("sampled_rank-0", 0): ((1_230_289_000, 210_348_000, 336_981_000, 327_000, 682_633_000), None),
    ("sampled_rank-1", 1): ((1_238_593_000, 272_004_000, 303_520_000, 4_526_000, 658_543_000), None),
}


def recordings() -> list[Path]:
    return [*(path for path in shared_reports("nsys") if path.suffix == ".sqlite"), *shared_reports("kineto")]


@cache
def analysed(path: Path) -> Timeline:
    return timeline(load_activity(str(path)))


def gpu_of(part: str, device: int) -> GpuTimeline:
    (path,) = [one for one in recordings() if part in one.name]
    return next(gpu for gpu in analysed(path).gpus if gpu.device == device)


@pytest.mark.parametrize(("part", "device"), EXPECTED)
def test_sums_of_a_gpu(part: str, device: int) -> None:
    whole = gpu_of(part, device).whole
    found = (
        whole.span_ns, whole.compute_ns, whole.exposed_communication_ns, whole.exposed_copies_ns, whole.idle_ns,
    )  # fmt: skip
    assert (found, whole.verdict.bound) == EXPECTED[part, device]


@pytest.mark.parametrize("path", recordings(), ids=lambda path: path.name[:60])
def test_busy_and_gaps_are_the_span_in_every_step(path: Path) -> None:
    for gpu in analysed(path).gpus:
        for step in (gpu.whole, *gpu.steps):
            assert step.busy_ns + step.idle_ns == step.span_ns
            assert step.compute_ns + step.exposed_communication_ns + step.exposed_copies_ns == step.busy_ns
            assert sum(step.causes.values()) == step.idle_ns


@pytest.mark.parametrize("path", one_in(3, recordings()), ids=lambda path: path.name[:60])
def test_a_table_of_launches_has_the_same_sums_as_the_recording_itself(path: Path, tmp_path: Path) -> None:
    assert ran("parse", str(path), "-o", str(tmp_path / "launches.parquet")).exit_code == 0
    for gpu, from_table in zip(analysed(path).gpus, analysed(tmp_path / "launches.parquet").gpus, strict=True):
        for name in ("compute_ns", "exposed_communication_ns", "exposed_copies_ns"):
            # parse keeps times since 1970 to 256 ns; all others are the same to the nanosecond
            exact = gpu.whole.start_ns < 2**53
            expected = getattr(gpu.whole, name)
            assert getattr(from_table.whole, name) == (expected if exact else pytest.approx(expected, rel=1e-5))
        assert from_table.whole.span_ns <= gpu.whole.span_ns  # a table does not hold what the host did before
        assert from_table.whole.causes.get("unknown", 0) == from_table.whole.idle_ns


def test_the_second_that_a_peer_calls_cpu_bound_is_bound_by_copies_from_the_host() -> None:
    for device in (0, 1):
        gpu = gpu_of("h100_2gpu_1s", device)
        assert gpu.whole.verdict.bound == "copy"
        copies = gpu.copies[0]
        assert (copies.direction, copies.source_memory, copies.count) == ("host to device", "pinned", 223)
        assert copies.bytes == 25_475_252_224
        assert copies.bytes_per_s == pytest.approx(27.7e9, rel=0.002)
        assert copies.exposed_ns / gpu.whole.span_ns == pytest.approx(0.95, abs=0.002)
        assert "25.48 GB" in gpu.whole.verdict.evidence[0]


def test_a_queue_that_waits_for_what_is_not_recorded_gets_no_verdict() -> None:
    whole = gpu_of("sglang_decode", 9).whole
    assert whole.verdict.bound is None
    assert whole.causes["dependency"] / whole.span_ns > 0.97


def test_steps_of_a_training_are_those_of_its_profiler() -> None:
    gpu = gpu_of("sampled_rank-0", 0)
    assert [step.name for step in gpu.steps] == ["ProfilerStep#551", "ProfilerStep#552"]
    assert gpu.steps[1].causes["data loading"] == 3_657_000


def test_operations_launched_before_the_recording_have_unknown_gaps_not_none() -> None:
    gpu = gpu_of("Qwen1.5", 0)
    assert 0 < gpu.whole.causes["unknown"] < 1_000_000
    assert gpu.launches is not None
    assert gpu.launches.kernels == 1029


def test_a_collective_of_a_real_trace_has_bytes_and_bandwidth() -> None:
    found = {one.name: one for one in gpu_of("b200", 0).collectives}
    assert (found["all-gather"].bytes, found["all-gather"].ranks) == (402_176, 8)
    assert found["all-gather"].bus_bytes_per_s == pytest.approx(402_176 * 7 / 8 / 21.953e-6)
    assert found["all-reduce"].bytes is None
