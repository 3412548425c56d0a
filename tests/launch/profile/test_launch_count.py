"""Launches of a warm step, counted outside of ncu: which profiles ask for it, what is counted, and what failed.

No GPU is here: what PyTorch's profiler records on a CPU, its operators, stands in for the kernels of a GPU.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.errors import NcuBenchError
from ncu_launch.profile.launch_count import LaunchCounts, _names_of, can_be_counted, count, launch_counts_of
from ncu_launch.profile.plan import Plan, Request
from ncu_launch.profilers.installed_tools import Gpu
from ncu_launch.workload_spec import Workload
from ncu_parsers.parse.parse import parse
from ncu_parsers.parse.report_files import find_sources

from tests.support.installed import WITHOUT_TORCH
from tests.support.reports import needs_shared_reports, shared_reports

PREPARES = '''
import torch

calls = 0

def make_inputs():
    return torch.ones(8)

def tunes(x):
    """Tries three ways on its third call, as an autotuner does that meets a new shape."""
    global calls
    calls += 1
    for trial in range(3 if calls == 3 else 0):
        x.mul(trial)
    return x.add(1)
'''
FUNCTION = Request(("profile",), ("flops",), Workload("k.py:tunes"))


def plan(tool: str = "ncu", gpus: int = 1) -> Plan:
    return Plan(tool, (), (), "2025.1", tuple(Gpu(at, "NVIDIA H100 80GB HBM3", "9.0", "580.95") for at in range(gpus)))


class TestCanBeCounted:
    @pytest.mark.parametrize("tool", ["ncu", "nsys"])
    def test_a_function_that_a_tool_profiles_whole_on_a_gpu(self, tool: str) -> None:
        assert can_be_counted(FUNCTION, plan(tool))

    @pytest.mark.parametrize("more", [
        {"workload": None, "program": ("./a",)},
        {"ranks": 2},
        {"kernel": "gemm"},
        {"launch_skip": 3},
        {"launch_count": 3},
        {"nvtx_include": ("forward/",)},
        {"workload": Workload("k.py:tunes", device="cpu")},
        {"workload": Workload("k.py:tunes", mode="cudagraph")},
        {"workload": Workload("k.py:tunes", warmup=0)},
    ])  # fmt: skip
    def test_nothing_whose_launches_would_not_be_those_of_the_range(self, more: dict[str, Any]) -> None:
        assert not can_be_counted(replace(FUNCTION, **more), plan())

    @pytest.mark.parametrize(("target", "mode", "may"), [
        ("hf:bert-base", "eager", True), ("resnet18", "compile", True), ("resnet18", "eager", False),
        ("timm:vit_tiny_patch16_224", "jit", False), ("gemm:8,8,8,fp32", "eager", False),
    ])  # fmt: skip
    def test_only_what_may_choose_kernels_by_trial(self, target: str, mode: str, may: bool) -> None:
        assert can_be_counted(replace(FUNCTION, workload=Workload(target, mode=mode)), plan()) is may

    def test_nothing_without_a_gpu_or_under_the_operator_collector(self) -> None:
        assert not can_be_counted(FUNCTION, plan(gpus=0))
        assert not can_be_counted(FUNCTION, plan("operators"))


class TestCounted:
    """With two warm-up steps, the third call of the function is the first iteration."""

    def of(self, folder: Path, **options: Any) -> LaunchCounts:
        torch = pytest.importorskip("torch", reason=WITHOUT_TORCH)
        from ncu_launch.workload.workload import prepared

        (folder / "k.py").write_text(PREPARES)
        step = prepared(Workload(f"{folder / 'k.py'}:tunes", device="cpu", phases_are_defaults=True, **options))
        return count(step, torch.profiler.ProfilerActivity.CPU, "cpu_op")

    def test_are_the_last_warm_up_step_and_each_iteration_by_name(self, tmp_path: Path) -> None:
        counts = self.of(tmp_path, iterations=2)
        work = [
            {name: one.get(name, 0) for name in ("aten::mul", "aten::add")} for one in (counts.warm, *counts.iterations)
        ]
        assert work == [
            {"aten::mul": 0, "aten::add": 1}, {"aten::mul": 3, "aten::add": 1}, {"aten::mul": 0, "aten::add": 1},
        ]  # fmt: skip

    def test_are_alike_where_more_warm_up_lets_it_settle(self, tmp_path: Path) -> None:
        counts = self.of(tmp_path, warmup=4)
        assert counts.iterations == (counts.warm,)

    def test_are_of_the_profiled_phases_alone(self) -> None:
        torch = pytest.importorskip("torch", reason=WITHOUT_TORCH)
        from ncu_launch.workload.workload import prepared

        of = {
            phases: count(
                prepared(Workload("gemm:8,8,8,fp32", device="cpu", phases=phases)),
                torch.profiler.ProfilerActivity.CPU, "cpu_op",
            ).warm
            for phases in (("forward",), ("backward",), ("forward", "backward"))
        }  # fmt: skip
        forward, backward, both = (sum(of[phases].values()) for phases in of)
        assert 0 < forward < both
        assert forward + backward == both

    def test_nothing_at_all_is_refused(self, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch", reason=WITHOUT_TORCH)
        from ncu_launch.workload.workload import prepared

        (tmp_path / "k.py").write_text(PREPARES)
        step = prepared(Workload(f"{tmp_path / 'k.py'}:tunes", device="cpu", phases_are_defaults=True))
        with pytest.raises(NcuBenchError, match="saw no kernel"):
            count(step, torch.profiler.ProfilerActivity.CPU, "kernel")


class OfATrace:
    """A profiler that exports a trace of another run."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_bytes(gzip.decompress(self.trace.read_bytes()))


@needs_shared_reports
def test_kernels_of_a_real_trace_are_its_launches_without_copies_and_ranges() -> None:
    (trace,) = (path for path in shared_reports("kineto") if "Qwen1.5" in path.name)
    names: Iterator[str] = _names_of(OfATrace(trace), "kernel")
    parsed = parse(find_sources([str(trace)]))
    assert parsed.table is not None
    launched = [name for name in parsed.table.column("kernel_name").to_pylist() if not name.startswith("Mem")]
    assert sorted(names) == sorted(launched)


class TestAProcess:
    @pytest.mark.slow
    def test_says_why_a_model_on_the_cpu_has_no_launches(self) -> None:
        pytest.importorskip("torch", reason=WITHOUT_TORCH)
        found = launch_counts_of(Workload("gemm:8,8,8,fp32", device="cpu"))
        assert found == "The model runs on the CPU, where no kernel is launched."

    def test_that_takes_too_long_says_so(self) -> None:
        found = launch_counts_of(Workload("gemm:8,8,8,fp32", device="cpu"), timeout=0.01)
        assert found == "counting it took more than 0.01 s"

    def test_gives_what_it_wrote(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A program that writes counts stands in for Python with a GPU."""
        writes = "import sys; open(sys.argv[-1], 'w').write(" + repr(json.dumps({"warm": {"a": 2}, "iterations": [{}]}))
        monkeypatch.setattr("ncu_launch.profile.launch_count.OWN_PYTHON", (sys.executable, "-c", writes + ")"))
        assert launch_counts_of(Workload("resnet18")) == LaunchCounts({"a": 2}, ({},))
