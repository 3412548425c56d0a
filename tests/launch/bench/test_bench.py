"""Sweeps: points, statistics, and real processes that succeed, run out of memory, crash, hang or are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ncu_launch.bench.gpu.gpu_clocks import GpuState, parsed_state
from ncu_launch.bench.latency_statistics import _STUDENT_975, Effort, half_width, summed_up
from ncu_launch.bench.memory_and_self_times import peak_of
from ncu_launch.bench.point_process import for_inference
from ncu_launch.bench.sweep import Sweep, joined, measured, points, rows_of
from ncu_launch.errors import WrongUsage
from ncu_launch.targets.user_functions import accepted_sizes
from ncu_launch.workload.workload import Step, prepared
from ncu_launch.workload_spec import Workload
from ncu_parsers.parquet.reader import read_bench
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.bench_table import appended, bench_table, with_row

from ncu_tools.cli import run
from ncu_tools.numbers.statistics import student_quantile
from tests.support.installed import WITHOUT_TORCH, needs_torch
from tests.support.models.models_here import models_run_here
from tests.support.nightly import by_day

pytestmark = pytest.mark.slow

QUICK = Effort(precision=0.5, least=5, least_s=0.0, max_s=5.0, warmup=2, warm_s=0.0)
PATIENCE_S = 60.0

TARGETS = """
import os, signal, time
from pathlib import Path
import torch
from torch import nn

def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)), torch.randn(4, 16)
def sized(batch_size, input_size=16, seq_len=3):
    return nn.Linear(input_size, 8), torch.randn(seq_len, batch_size, input_size)
def convolution(batch_size=1):
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), torch.randn(batch_size, 3, 16, 16)
def memory_of_a_cpu():
    return nn.Linear(1 << 24, 1 << 24), torch.randn(1, 1 << 24)
def memory_of_a_gpu():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
def memory_of_python():
    raise MemoryError
def crashes():
    os.abort()
def killed():
    os.kill(os.getpid(), signal.SIGKILL)
def exits():
    raise SystemExit(0)
def wrong():
    raise ValueError("no such thing")
def hangs():
    Path(__file__).with_name("pid").write_text(str(os.getpid()))
    while Path(__file__).with_name("hang").exists():
        time.sleep(0.05)
    return mlp()
"""


@pytest.fixture
def targets(tmp_path: Path) -> Path:
    file = tmp_path / "targets.py"
    file.write_text(TARGETS, encoding="utf-8")
    return file


def measured_row(target: str, folder: Path, timeout: float = PATIENCE_S, **axes: Any) -> dict[str, Any]:
    (point,) = points(Sweep((target,), devices=("cpu",), **axes))
    return measured(point, QUICK, timeout, folder / "log.txt")


class TestPoints:
    def test_batch_size_varies_fastest_and_point_names_are_unique(self) -> None:
        found = points(Sweep(("resnet18", "vgg16"), (1, 8), dtypes=("fp32", "bf16"), phases=("forward", "step")))
        assert [point.workload.batch_size for point in found[:4]] == [1, 8, 1, 8]
        assert len({point.name for point in found}) == len(found) == 16

    def test_an_image_model_has_no_sequence_and_a_text_model_no_image(self) -> None:
        found = points(Sweep(("resnet18", "hf:bert-base"), input_sizes=(64, 128), sequence_lengths=(16, 32, 64)))
        assert [point.workload.target for point in found] == ["resnet18"] * 2 + ["hf:bert-base"] * 3

    def test_a_gemm_target_is_measured_once_whatever_sizes_are_asked(self) -> None:
        found = points(Sweep(("gemm:64,64,64,fp32",), (1, 8), (32, 64)))
        assert [point.name for point in found] == ["gemm:64,64,64,fp32 fp32 eager forward auto"]


class TestFunctions:
    """Sizes that a sweep varies for a user's functions, read from their source without importing it."""

    SOURCE = """
raise ImportError("nothing of this file runs")
def sized(batch_size, image_size=32, *, sequence_length=8): ...
def batched(batch=4): ...
def fixed(width=3): ...
@cached
def decorated(): ...
class Model: ...
"""

    @pytest.fixture
    def own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "own_models").mkdir()
        (tmp_path / "own_models" / "__init__.py").touch()
        (tmp_path / "own_models" / "here.py").write_text(self.SOURCE, encoding="utf-8")
        return tmp_path / "own_models" / "here.py"

    @pytest.mark.parametrize("place", ["own_models/here.py", "own_models.here"])
    def test_accept_the_sizes_for_which_they_have_arguments(self, place: str, own: Path) -> None:
        assert accepted_sizes(f"{place}:sized") == {"batch", "input", "sequence"}
        assert accepted_sizes(f"{place}:batched") == {"batch"}
        assert accepted_sizes(f"{place}:fixed") == frozenset()

    @pytest.mark.parametrize("name", ["decorated", "Model", "unheard_of"])
    def test_whose_source_does_not_tell_their_arguments_give_none(self, name: str, own: Path) -> None:
        assert accepted_sizes(f"{own}:{name}") is None
        assert accepted_sizes(f"{own.parent / 'none.py'}:{name}") is None
        assert accepted_sizes(f"no_such_package_at_all.here:{name}") is None

    def test_are_varied_only_over_sizes_that_they_accept(self, own: Path) -> None:
        found = points(Sweep((f"{own}:sized",), (1, 8), (32, 64), (16,)))
        assert [(at.batch_size, at.input_size, at.sequence_length) for at in (point.workload for point in found)] == [
            (1, 32, 16), (8, 32, 16), (1, 64, 16), (8, 64, 16)
        ]  # fmt: skip

    def test_without_an_argument_for_a_requested_size_are_refused(self, own: Path) -> None:
        with pytest.raises(WrongUsage, match="takes no --batch-size: it has no argument called batch_size or batch"):
            points(Sweep(("resnet18", f"{own}:fixed"), (1, 8)))
        with pytest.raises(WrongUsage, match="takes no --input-size"):
            points(Sweep((f"{own}:batched",), input_sizes=(32,)))

    def test_are_not_refused_for_an_image_size_that_another_target_accepts(self, own: Path) -> None:
        found = points(Sweep(("resnet18", f"{own}:batched"), (1, 2), (32, 64)))
        assert [point.workload.input_size for point in found] == [32, 32, 64, 64, None, None]


class TestStatistics:
    def test_quantiles_are_those_of_students_t(self) -> None:
        assert pytest.approx([student_quantile(0.95, float(n)) for n in range(1, 20)], abs=6e-4) == _STUDENT_975

    def test_statistics_of_samples_equal_those_of_numpy(self) -> None:
        samples = list(np.random.default_rng(1).gamma(2.0, size=150))
        found = summed_up(samples)
        assert found.p95 == pytest.approx(np.percentile(samples, 95))
        assert found.p99 == pytest.approx(np.percentile(samples, 99))
        assert (found.mean, found.median) == pytest.approx((np.mean(samples), np.median(samples)))
        assert found.deviation == pytest.approx(np.std(samples, ddof=1))

    def test_up_to_twenty_samples_have_the_usual_interval(self) -> None:
        samples = [1.0, 2.0, 4.0, 5.0]
        assert half_width(samples) == pytest.approx(3.182 * np.std(samples, ddof=1) / 2)

    def test_statistics_that_need_more_samples_are_none(self) -> None:
        one, some = summed_up([5.0]), summed_up([float(n) for n in range(50)])
        assert (one.mean, one.median, one.deviation, one.low, one.high) == (5.0, 5.0, None, None, None)
        assert some.p95 is not None
        assert some.p99 is None

    def test_about_95_percent_of_intervals_contain_the_true_mean(self) -> None:
        random = np.random.default_rng(2)
        held = [abs(np.mean(some) - 1) <= (half_width(list(some)) or 0) for some in random.gamma(4, 0.25, (400, 200))]
        assert 0.92 < np.mean(held) < 0.98

    def test_correlated_samples_have_a_wider_interval(self) -> None:
        noise = np.random.default_rng(3).standard_normal(2000)
        resembling = [float(noise[max(0, n - 30) : n + 1].mean()) for n in range(2000)]
        usual = 1.96 * np.std(resembling) / 2000**0.5
        assert (half_width(resembling) or 0) > 2 * usual

    def test_warm_up_ends_after_enough_iterations_and_seconds_or_when_time_is_short(self) -> None:
        effort = Effort(warmup=10, warm_s=0.2, max_s=10)
        assert not effort.warm(10, 0.1)
        assert effort.warm(10, 0.2)
        assert not effort.warm(1, 100.0)
        assert effort.warm(2, 5.0)


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("1980, 2619, 41, 0x0000000000000000", GpuState(1.98e9, 2.619e9, 41.0, "none")),
        ("1200, 2619, 88, 0x0000000000000044", GpuState(1.2e9, 2.619e9, 88.0, "power cap, hardware thermal slowdown")),
        ("1980, [N/A], 41, 0x0000000000000001", GpuState(1.98e9, None, 41.0, "none")),
        ("1980, [N/A], 41, [Not Supported]", GpuState(1.98e9, None, 41.0, None)),
        ("No devices were found", None),
    ],
)
def test_the_line_of_nvidia_smi_is_parsed(line: str, state: GpuState | None) -> None:
    assert parsed_state(line) == state


def test_peak_memory_is_the_largest_running_sum_of_allocations() -> None:
    assert peak_of([100, 50, -100, 20, -70]) == 150
    assert peak_of([-10, 5]) == 0


class TestTorchScript:
    """The model that --mode jit runs, in this process."""

    @pytest.fixture
    def step(self, targets: Path) -> Callable[..., Step]:
        torch = pytest.importorskip("torch", reason=WITHOUT_TORCH)

        def made(**changes: Any) -> Step:
            workload = Workload(f"{targets}:convolution", mode="jit", phases=("forward",), device="cpu")
            with torch.no_grad():
                return prepared(replace(workload, **changes))

        return made

    def test_is_frozen_and_returns_the_output_of_the_eager_model(self, step: Callable[..., Step]) -> None:
        torch = pytest.importorskip("torch", reason=WITHOUT_TORCH)
        made = step()
        frozen, notes = for_inference(made)
        assert notes == []
        assert not list(frozen.parameters())
        assert torch.allclose(frozen(*made.arguments), made.watched(*made.arguments), atol=1e-5)

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [({"phases": ("backward",)}, "gradients need"), ({"autocast": True, "dtype": "bf16"}, "autocast does not")],
    )
    def test_is_only_traced_if_freezing_would_change_its_results(
        self, changes: dict[str, Any], reason: str, step: Callable[..., Step]
    ) -> None:
        made = step(**changes)
        model, notes = for_inference(made)
        assert model is made.model
        assert reason in notes[0]


@pytest.fixture
def _models_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    models_run_here(monkeypatch)


@pytest.mark.usefixtures("_models_run_here")
class TestAPoint:
    """What its process finds, run in this one."""

    @pytest.mark.parametrize("phase", ["forward", "backward", "step"])
    def test_a_model_is_measured(self, phase: str, targets: Path, tmp_path: Path) -> None:
        row = measured_row(f"{targets}:mlp", tmp_path, phases=(phase,))
        assert row["outcome"] == "ok", row
        assert row["iterations"] == len(row["samples_ns"]) >= 5
        assert row["latency_low_ns"] < row["latency_mean_ns"] < row["latency_high_ns"]
        assert min(row["samples_ns"]) <= row["latency_median_ns"] <= max(row["samples_ns"])
        assert row["throughput"] == pytest.approx(4 / row["latency_median_ns"] * 1e9)
        assert row["parameters"] == 16 * 32 + 32 + 32 * 8 + 8
        forward = 2 * 4 * (16 * 32 + 32 * 8)
        gradients = forward + 2 * 4 * 32 * 8  # of both weights, and of the second layer's input
        assert row["expected_flops"] == {"forward": forward, "backward": gradients, "step": forward + gradients}[phase]
        assert row["expected_flops_basis"] == "contractions"
        assert row["memory_peak_bytes"] > row["memory_allocated_bytes"] == 4 * (row["parameters"] + 4 * 16)
        assert row["self_cpu_time_ns"] > 0
        assert row["self_gpu_time_ns"] is None

    @pytest.mark.parametrize(
        ("name", "outcome", "reason"),
        [
            ("memory_of_a_gpu", "out of memory", "20.00 GiB"),
            ("memory_of_a_cpu", "out of memory", "can't allocate memory"),
            ("memory_of_python", "out of memory", "MemoryError"),
            ("exits", "failed", "the target exits"),
            ("wrong", "failed", "ValueError: no such thing"),
            ("unheard_of", "failed", "no function called unheard_of"),
        ],
    )
    def test_a_failed_point_is_a_row_with_its_outcome_and_reason(
        self, name: str, outcome: str, reason: str, targets: Path, tmp_path: Path
    ) -> None:
        row = measured_row(f"{targets}:{name}", tmp_path)
        assert (row["outcome"], "latency_mean_ns" in row) == (outcome, False)
        assert reason in row["reason"]

    def test_the_row_has_the_sizes_passed_to_a_function_whatever_its_tensors_look_like(
        self, targets: Path, tmp_path: Path
    ) -> None:
        row = measured_row(f"{targets}:sized", tmp_path, batch_sizes=(5,), input_sizes=(32,))
        assert (row["batch_size"], row["input_size"], row["sequence_length"]) == (5, 32, None)
        assert (row["parameters"], row["throughput_unit"]) == (32 * 8 + 8, "sample/s")
        assert row["throughput"] == pytest.approx(5 / row["latency_median_ns"] * 1e9)
        assert row["expected_flops"] == 2 * 3 * 5 * 32 * 8

    def test_torchscript_is_frozen_for_inference_or_a_note_says_why_not(self, targets: Path, tmp_path: Path) -> None:
        forward = measured_row(f"{targets}:convolution", tmp_path, modes=("jit",))
        step = measured_row(f"{targets}:convolution", tmp_path, modes=("jit",), phases=("step",), batch_sizes=(2,))
        assert (forward["outcome"], step["outcome"]) == ("ok", "ok"), (forward, step)
        assert forward["notes"] == []
        assert "traced and not frozen: gradients need parameters" in step["notes"][0]

    def test_a_cuda_graph_on_a_cpu_is_a_row_with_the_reason_of_its_failure(self, targets: Path, tmp_path: Path) -> None:
        row = measured_row(f"{targets}:convolution", tmp_path, modes=("cudagraph",))
        assert row["outcome"] == "failed"
        assert "CUDA graphs need a CUDA device" in row["reason"]


@needs_torch
class TestRealProcesses:
    """Each imports PyTorch, which takes most of these seconds."""

    def test_one_measures_a_model_and_gives_its_row(self, targets: Path, tmp_path: Path) -> None:
        row = measured_row(f"{targets}:mlp", tmp_path)
        assert (row["outcome"], row["expected_flops"]) == ("ok", 2 * 4 * (16 * 32 + 32 * 8))
        assert row["seconds"] > row["latency_mean_ns"] / 1e9
        assert row["process_peak_bytes"] > row["memory_peak_bytes"] > 0

    @pytest.mark.parametrize(
        ("name", "outcome", "reason"),
        [
            ("crashes", "crashed", "SIGABRT"),
            pytest.param("killed", "crashed", "memory runs out", marks=pytest.mark.nightly),
        ],
    )
    def test_one_that_dies_is_a_row_that_says_so(
        self, name: str, outcome: str, reason: str, targets: Path, tmp_path: Path
    ) -> None:
        row = measured_row(f"{targets}:{name}", tmp_path)
        assert (row["outcome"], "latency_mean_ns" in row) == (outcome, False)
        assert reason in row["reason"]

    def test_a_point_that_hangs_is_ended_and_becomes_a_timed_out_row(self, targets: Path, tmp_path: Path) -> None:
        (tmp_path / "hang").touch()
        row = measured_row(f"{targets}:hangs", tmp_path, timeout=6.0)
        assert row["outcome"] == "timed out"
        assert not alive(int((tmp_path / "pid").read_text("utf-8")))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pid_in(path: Path) -> int:
    """Wait for the process id in a file; the file may exist a moment before its content."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if path.exists() and (written := path.read_text("utf-8")):
            return int(written)
        time.sleep(0.05)
    raise AssertionError(f"nothing was written to {path}")


@needs_torch
@pytest.mark.parametrize("number", by_day([signal.SIGKILL], [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]))
def test_an_interrupted_sweep_keeps_its_rows_leaves_no_process_and_resumes(
    number: signal.Signals, targets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hang").touch()
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a killed sweep leaves the folder of its point there
    arguments = ["bench", f"{targets}:mlp", f"{targets}:hangs", "--max-time", "0.1", "--warmup", "1"]
    arguments += ["--on", "cpu", "-o", str(tmp_path / "run")]
    process = subprocess.Popen([sys.executable, "-c", "from ncu_tools.cli import main; main()", *arguments])
    child = pid_in(tmp_path / "pid")
    os.kill(process.pid, number)
    assert process.wait(PATIENCE_S) == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(number, -number)
    deadline = time.monotonic() + PATIENCE_S
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)
    (first,) = read_bench(tmp_path / "run" / "bench.parquet").to_pylist()
    assert json.loads((tmp_path / "run" / "manifest.json").read_text("utf-8"))["partial"] is True

    (tmp_path / "hang").unlink()
    models_run_here(monkeypatch)
    assert run([*arguments, "--resume"]) == 0
    rows = read_bench(tmp_path / "run" / "bench.parquet").to_pylist()
    assert rows[0] == first
    assert [row["outcome"] for row in rows] == ["ok", "ok"]
    assert json.loads((tmp_path / "run" / "manifest.json").read_text("utf-8"))["partial"] is False


def row_of(samples: list[float], **changes: Any) -> dict[str, Any]:
    """The row of a point measured in one process, as returned by `measured`."""
    mean, median = float(np.mean(samples)), float(np.median(samples))
    return {
        "point": "a", "outcome": "ok", "samples_ns": samples, "process_means_ns": [mean], "latency_mean_ns": mean,
        "latency_median_ns": median, "iterations": len(samples), "warmup_iterations": 3, "throughput": 4 / median * 1e9, "device_name": "cpu",
        "torch": "2.6", "threads": 2, "seconds": 1.0, "log": "point-0001.txt", "notes": [], **changes,
    }  # fmt: skip


class TestSeveralProcesses:
    def test_their_samples_become_one_row_with_the_interval_of_their_means(self) -> None:
        row = joined(row_of([8.0, 10.0]), row_of([10.0, 14.0], throttling="power cap", process_peak_bytes=5))
        assert (row["samples_ns"], row["process_means_ns"]) == ([8.0, 10.0, 10.0, 14.0], [9.0, 12.0])
        assert (row["latency_mean_ns"], row["latency_median_ns"]) == (10.5, 10.0)
        assert row["latency_high_ns"] - 10.5 == pytest.approx(12.706 * np.std([9, 12], ddof=1) / 2**0.5)
        assert row["throughput"] == pytest.approx(4 / 10.0 * 1e9)
        assert (row["iterations"], row["warmup_iterations"], row["seconds"]) == (4, 6, 2.0)
        assert (row["throttling"], row["process_peak_bytes"], row["gpu_clock_hz"]) == ("power cap", 5, None)

    def test_a_failed_further_process_adds_only_a_note(self) -> None:
        crashed = {"outcome": "crashed", "reason": "ended by SIGABRT", "log": "point-0001-2.txt", "seconds": 1.0}
        row = joined(row_of([8.0, 10.0]), crashed)
        assert (row["outcome"], row["process_means_ns"]) == ("ok", [9.0])
        assert row["notes"] == ["a further process crashed (ended by SIGABRT): see point-0001-2.txt"]

    def test_a_process_with_another_pytorch_replaces_the_row_with_a_note(self) -> None:
        row = joined(row_of([8.0, 10.0]), row_of([5.0, 7.0], torch="2.7"))
        assert (row["samples_ns"], row["process_means_ns"]) == ([5.0, 7.0], [6.0])
        assert row["notes"] == ["measured anew: PyTorch was 2.6 before and is 2.7"]

    def test_a_file_without_process_means_counts_as_one_process(self) -> None:
        old = {**row_of([8.0, 10.0]), "process_means_ns": None}
        assert joined(old, row_of([10.0, 14.0]))["process_means_ns"] == [9.0, 12.0]

    def test_they_take_turns_over_the_points_and_a_failed_point_is_not_repeated(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = points(Sweep(("resnet18",), (1, 2, 3)))
        efforts: list[tuple[int, Effort]] = []

        def played(point: Any, effort: Effort, timeout: float, log: Path, on_stage: Any) -> dict[str, Any]:
            efforts.append((point.workload.batch_size, effort))
            log.touch()
            if point.workload.batch_size == 2:
                return {"point": point.name, "outcome": "crashed", "reason": "", "log": log.name, "seconds": 1.0}
            return row_of([8.0, 10.0, 12.0], point=point.name, log=log.name)

        monkeypatch.setattr("ncu_launch.bench.sweep.measured", played)
        rows = list(rows_of(asked, QUICK, 1.0, tmp_path, on_stage=lambda point, stage: None, processes=2))
        assert [batch for batch, _ in efforts] == [1, 2, 3, 1, 3]
        assert [(effort.least, effort.most) for _, effort in efforts[2:]] == [(5, 100_000), (3, 3), (3, 3)]
        assert [len(row.get("process_means_ns", [])) for row in rows] == [1, 0, 1, 2, 2]
        logs = ["point-0001-2.txt", "point-0001.txt", "point-0002.txt", "point-0003-2.txt", "point-0003.txt"]
        assert sorted(path.name for path in tmp_path.iterdir()) == logs

    @pytest.mark.usefixtures("_models_run_here")
    def test_resuming_a_real_sweep_with_two_adds_the_second_to_the_row_of_the_first(
        self, targets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        arguments = ["bench", f"{targets}:mlp", "--max-time", "0.1", "--warmup", "1", "--on", "cpu"]
        arguments += ["-o", str(tmp_path / "run")]
        assert run(arguments) == 0
        (one,) = read_bench(tmp_path / "run" / "bench.parquet").to_pylist()
        assert one["process_means_ns"] == [one["latency_mean_ns"]]
        assert run([*arguments, "--processes", "2", "--resume"]) == 0
        assert "1 by fewer than 2 processes" in capsys.readouterr().err
        (two,) = read_bench(tmp_path / "run" / "bench.parquet").to_pylist()
        first, second = two["process_means_ns"]
        assert first == one["latency_mean_ns"]
        assert two["samples_ns"][: one["iterations"]] == one["samples_ns"]
        assert second == pytest.approx(np.mean(two["samples_ns"][one["iterations"] :]))
        assert two["latency_mean_ns"] == pytest.approx(np.mean(two["samples_ns"]))
        reach = student_quantile(0.95, 1.0) * np.std([first, second], ddof=1) / 2**0.5
        assert two["latency_high_ns"] - two["latency_mean_ns"] == pytest.approx(reach, rel=1e-3)
        assert len(list((tmp_path / "run" / "logs").iterdir())) == 2


class TestTheCommand:
    @pytest.mark.usefixtures("_models_run_here")
    def test_a_sweep_without_a_measured_point_fails(
        self, targets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["bench", f"{targets}:wrong", "-o", str(tmp_path / "run")]) == 1
        captured = capsys.readouterr()
        assert "ValueError: no such thing" in captured.out
        assert "No point could be measured" in captured.err

    def test_a_folder_that_contains_a_run_is_not_overwritten(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "bench.parquet").touch()
        assert run(["bench", "resnet18", "-o", str(tmp_path)]) == 2
        assert "--resume" in capsys.readouterr().err

    @pytest.mark.parametrize("option", [["--batch-size", "0"], ["--dtype", "fp12"], ["--phase", "sideways"]])
    def test_invalid_sizes_and_names_are_refused(self, option: list[str], tmp_path: Path) -> None:
        assert run(["bench", "resnet18", "-o", str(tmp_path / "run"), *option]) == 2
        assert not (tmp_path / "run").exists()

    def test_a_malformed_gemm_target_is_refused(self) -> None:
        with pytest.raises(WrongUsage):
            points(Sweep(("gemm:1,2",)))


class TestTheTable:
    def test_rows_are_appended_and_read_back(self, tmp_path: Path) -> None:
        one = {"point": "a", "target": "a", "outcome": "ok", "samples_ns": [1.0, 2.0], "batch_size": 3}
        two = {"point": "b", "target": "b", "outcome": "crashed", "reason": "ended by SIGABRT"}
        table = appended(bench_table([one]), [two], asked=["bench"])
        write_table(table, tmp_path / "bench.parquet")
        rows = read_bench(tmp_path / "bench.parquet").to_pylist()
        assert [row["target"] for row in rows] == ["a", "b"]
        assert rows[0]["samples_ns"] == [1.0, 2.0]
        assert (rows[1]["samples_ns"], rows[1]["batch_size"], rows[1]["latency_mean_ns"]) == (None, None, None)

    def test_a_row_replaces_the_earlier_row_of_its_point(self) -> None:
        table = None
        for name, batch in (("a", 1), ("b", 1), ("c", 1), ("b", 2), ("d", 1)):
            table = with_row(table, {"point": name, "target": name, "batch_size": batch}, asked=["bench"])
        assert table is not None
        found = zip(*(table.column(name).to_pylist() for name in ("point", "batch_size")), strict=True)
        assert list(found) == [("a", 1), ("b", 2), ("c", 1), ("d", 1)]
        assert table.schema.metadata == bench_table([], asked=["bench"]).schema.metadata
