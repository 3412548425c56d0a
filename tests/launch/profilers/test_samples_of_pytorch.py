"""Samples of GPU metrics by PyTorch's profiler: what it is asked for, with a stand-in, since none here can sample.

The classes and their parameters are those of pytorch/pytorch#196065 and #196066.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ncu_launch.errors import WrongUsage
from ncu_launch.profile.plan import SAMPLED_BY_PYTORCH, TRACED_PROGRAM, Request, make_plan
from ncu_launch.profilers.traced_program import _sampling

CPU, CUDA = "cpu", "cuda"
NAMED = "dram__read_throughput.avg.pct_of_peak_sustained_elapsed"


@dataclass(frozen=True)
class PerformanceMetricsConfig:
    metric_names: list[str]
    sampling_interval_ms: float = 1.0


@dataclass(frozen=True)
class OlderConfig:
    metric_names: list[str]


@dataclass(frozen=True)
class ProfilerActivityConfig:
    profiler_configs: list[Any]


def profiler(**instead: Any) -> SimpleNamespace:
    """What of torch.profiler is used."""
    return SimpleNamespace(**{
        "PerformanceMetricsConfig": PerformanceMetricsConfig, "ProfilerActivityConfig": ProfilerActivityConfig,
        "ProfilerActivity": SimpleNamespace(CUDA=CUDA), "supported_activities": lambda: [CPU, CUDA], **instead,
    })  # fmt: skip


def test_metrics_are_asked_for_beside_everything_else_that_is_recorded() -> None:
    asked = _sampling(profiler(), 0.5, ["a", "b"])
    assert asked == [CPU, {CUDA: ProfilerActivityConfig([PerformanceMetricsConfig(["a", "b"], 0.5)])}]


def test_a_pytorch_without_a_choice_of_the_interval_takes_its_own() -> None:
    asked = _sampling(profiler(PerformanceMetricsConfig=OlderConfig), 0.5, ["a"])
    assert asked[1][CUDA].profiler_configs == [OlderConfig(["a"])]


def test_what_is_missing_is_said() -> None:
    without = profiler()
    del without.PerformanceMetricsConfig
    with pytest.raises(LookupError, match=r"has no torch\.profiler\.PerformanceMetricsConfig"):
        _sampling(without, 1, ["a"])
    with pytest.raises(LookupError, match="sees no CUDA GPU"):
        _sampling(profiler(supported_activities=lambda: [CPU]), 1, ["a"])


@pytest.mark.parametrize(
    ("metrics", "names"), [(("flops", "dram"), SAMPLED_BY_PYTORCH), (("dram", NAMED), (NAMED,))], ids=["usual", "named"]
)
def test_the_rate_and_the_metrics_go_to_the_program_that_traces(
    tmp_path: Path, metrics: tuple[str, ...], names: tuple[str, ...]
) -> None:
    asked = Request((), metrics, program=("python", "train.py"), tool="pytorch", gpu_metrics=2_000)
    plan = make_plan(asked, tmp_path)
    at = plan.command.index(str(TRACED_PROGRAM))
    assert plan.command[at + 2 :] == ("--sample", "0.5", ",".join(names), "train.py")
    assert not any("--metrics" in note for note in plan.notes)


def test_a_tool_that_does_not_sample_names_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="sampled by nsys, and by PyTorch's profiler since September 2026"):
        make_plan(Request((), ("dram",), program=("python", "x.py"), tool="operators", gpu_metrics=9_000), tmp_path)
