"""`samples` of a timeline: what nsys sampled on a GPU, over the recording and by NVTX range. The timelines are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.parse.sampled_timeline import is_timeline, read_sampled_timeline
from ncu_parsers.sources.sources import Source

from ncu_tools.kernels.source.spread.sampled_gpus import (
    BY_KERNEL,
    BY_RANGE,
    EVERYTHING,
    SampledGroup,
    groups,
    metrics_over_time,
)
from tests.conftest import SAMPLES
from tests.support.ran import ran
from tests.support.timelines import (
    CALLS,
    KERNELS,
    RANGES,
    Row,
    call,
    database,
    gpu_metric_names,
    gpu_metric_samples,
    kernel,
    pushed,
)  # fmt: skip

US = 1000
TIMES = list(range(0, 4_000 * US, 100 * US))
NAMES = gpu_metric_names("DRAM Read Bandwidth [Throughput %]", "Tensor Active [Throughput %]")
DRAM, TENSOR = "sampled_dram_read_pct", "sampled_tensor_active_pct"
READ = [0] * 10 + [80] * 10 + [20] * 10 + [0] * 10


def small_kernels(start: int, end: int, first: int, lasts: int = 30) -> list[Row]:
    """Kernels of 30 µs, 20 µs apart: each far shorter than a sample, together without a gap."""
    begins = range(start, end, 50)
    return [kernel(at * US, first + place, end=(at + lasts) * US) for place, at in enumerate(begins)]


def timeline(folder: Path, **more: list[Row]) -> Path:
    """A step of 2 ms: 1 ms of small kernels in "attention", then 1 ms in "mlp", 3 ms of idleness, one lonely kernel."""
    attention, mlp = small_kernels(1_000, 2_000, 0), small_kernels(2_000, 3_000, 20)
    lonely = [kernel(3_900 * US, 99, end=3_950 * US)]
    kernels = [*attention, *mlp, *lonely]
    calls = [call(number, one["correlationId"]) for number, one in enumerate(kernels)]
    nvtx = [pushed("step", 0, 40), pushed("attention", 0, 20), pushed("mlp", 20, 40), pushed("late", 40, 60)]
    tables: dict[str, Any] = {
        KERNELS: kernels, CALLS: calls, RANGES: nvtx, "TARGET_INFO_GPU": [{"id": 0, "cuDevice": 0, "name": "H100"}],
        "TARGET_INFO_GPU_METRICS": NAMES, "GPU_METRICS": gpu_metric_samples(TIMES, READ, [50] * 40), **more,
    }  # fmt: skip
    return database(folder / "sampled.sqlite", tables)


def found(path: Path, by: str = BY_RANGE) -> dict[str, SampledGroup]:
    return {one.group: one for one in groups(read_sampled_timeline(Source(str(path))), by)}


class TestRanges:
    def test_of_many_small_kernels_have_the_mean_of_their_time_together(self, tmp_path: Path) -> None:
        by_name = found(timeline(tmp_path))
        attention, mlp, step = by_name["attention"], by_name["mlp"], by_name["step"]
        assert attention.means[DRAM] == pytest.approx(80)
        assert mlp.means[DRAM] == pytest.approx(20)
        assert step.means[DRAM] == pytest.approx(50, abs=1)
        assert step.means[TENSOR] == 50
        assert (attention.operations, attention.busy_ns, attention.samples) == (20, 600 * US, 10)

    def test_too_short_for_five_samples_have_no_mean(self, tmp_path: Path) -> None:
        late = found(timeline(tmp_path))["late"]
        assert (late.means[DRAM], late.samples, late.sampled_ns, late.operations) == (None, 0, 0, 1)

    def test_stand_behind_a_row_of_all_operations(self, tmp_path: Path) -> None:
        assert list(found(timeline(tmp_path)))[:2] == [EVERYTHING, "step"]

    def test_without_any_are_one_row(self, tmp_path: Path) -> None:
        assert list(found(timeline(tmp_path, **{RANGES: []}))) == [EVERYTHING]

    def test_of_a_timeline_without_gpu_work_are_none(self, tmp_path: Path) -> None:
        read = read_sampled_timeline(Source(str(timeline(tmp_path, **{KERNELS: []}))))
        assert groups(read, BY_RANGE) == []
        assert [one.metric for one in metrics_over_time(read)] == [TENSOR, DRAM]

    def test_between_whose_operations_others_run_have_no_mean(self, tmp_path: Path) -> None:
        """Two ranges take turns every 30 µs: each sample is a mean over both."""
        kernels = [kernel(at * US, place, end=(at + 30) * US) for place, at in enumerate(range(1_000, 3_000, 30))]
        calls = [call(place, place) for place in range(len(kernels))]
        nvtx = [pushed(f"turn {place % 2}", place, place + 1) for place in range(len(kernels))]
        by_name = found(timeline(tmp_path, **{KERNELS: kernels, CALLS: calls, RANGES: nvtx}))
        assert [by_name[name].means[DRAM] for name in ("turn 0", "turn 1")] == [None, None]
        assert by_name[EVERYTHING].means[DRAM] == pytest.approx(50, abs=1)


class TestKernels:
    def test_launched_one_behind_the_other_have_the_mean_of_their_time_together(self, tmp_path: Path) -> None:
        own = timeline(tmp_path)
        gemm = found(own, BY_KERNEL)["void gemm<1>(int)"]
        assert gemm.means[DRAM] == pytest.approx(50, abs=1)
        assert (gemm.operations, gemm.samples) == (41, 20)

    def test_that_take_turns_have_none(self, tmp_path: Path) -> None:
        kernels = [
            kernel(at * US, place, end=(at + 30) * US, name=1 + place % 2)
            for place, at in enumerate(range(1_000, 3_000, 30))
        ]
        calls = [call(place, place) for place in range(len(kernels))]
        strings = {"StringIds": [{"id": 1, "value": "a()"}, {"id": 2, "value": "b()"}]}
        by_name = found(timeline(tmp_path, **{KERNELS: kernels, CALLS: calls, **strings}), BY_KERNEL)
        assert [by_name[name].means[DRAM] for name in ("a()", "b()")] == [None, None]


class TestTheRecording:
    def test_has_each_metric_with_mean_peak_and_course(self, tmp_path: Path) -> None:
        tensor, dram = metrics_over_time(read_sampled_timeline(Source(str(timeline(tmp_path)))), width=4)
        assert (dram.metric, dram.mean, dram.peak, dram.samples) == (DRAM, 25, 80, 40)
        assert dram.sparkline == "▁█▂▁"
        assert (tensor.title, tensor.sparkline) == ("tensor active", "████")


class TestTheCommand:
    def test_shows_metrics_over_the_recording_with_rate_and_time(self, tmp_path: Path) -> None:
        done = ran("timeline", "--part", "samples", str(timeline(tmp_path)))
        assert done.exit_code == 0, done.stderr
        assert "dram read" in done.stdout
        assert "GPU 0: 40 samples at 10 kHz, 0.004 s" in done.stderr
        assert "never counts" in done.stderr

    def test_shows_ranges(self, tmp_path: Path) -> None:
        done = ran("timeline", "--part", "samples", str(timeline(tmp_path)), "--by", "nvtx", "--format", "json")
        assert done.exit_code == 0, done.stderr
        rows = {row["group"]: row for row in json.loads(done.stdout)["rows"]}
        assert rows["attention"][DRAM] == pytest.approx(80)
        assert rows["late"][DRAM] is None

    def test_of_a_timeline_that_sampled_nothing_says_what_does(self, tmp_path: Path) -> None:
        path = database(tmp_path / "plain.sqlite", {KERNELS: [kernel(1, 1)], CALLS: [call(1, 1)]})
        done = ran("timeline", "--part", "samples", str(path))
        assert done.exit_code == 1
        assert "holds no sampled GPU metrics" in done.stderr
        assert "ncu-bench profile --tool nsys --gpu-metrics PROGRAM" in done.stderr

    def test_refuses_options_of_the_other_kind_of_file(self, tmp_path: Path) -> None:
        done = ran("kernel", "--part", "balance", str(timeline(tmp_path)))
        assert (done.exit_code, "--part samples" in done.stderr) == (2, True)
        done = ran("timeline", "--part", "samples", str(SAMPLES / "d02-long-rules.csv"), "--by", "nvtx")
        assert (done.exit_code, "is no recording" in done.stderr) == (1, True)


def test_a_timeline_is_known_by_its_first_bytes_or_its_name(tmp_path: Path) -> None:
    assert is_timeline(Source(str(timeline(tmp_path))))
    (tmp_path / "t.bin").write_bytes(b"NVIDIA Tegra Profiler Report 1.")
    assert is_timeline(Source(str(tmp_path / "t.bin")))
    (tmp_path / "t.nsys-rep").write_bytes(b"")
    assert is_timeline(Source(str(tmp_path / "t.nsys-rep")))
    assert not is_timeline(Source(str(SAMPLES / "d02-long-rules.csv")))
