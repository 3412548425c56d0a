"""Samples of GPU metrics by PyTorch's profiler: what it is asked for, with a stand-in, since none here can sample.

The classes and their parameters are those of pytorch/pytorch#196065 and #196066.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.profile.plan import NO_SAMPLES_OF_THE_CPU, TRACED_PROGRAM, Plan, Request, make_plan
from ncu_launch.profilers import traced_program
from ncu_launch.profilers.sampling.pytorch_groups import sampled_groups, sampled_metrics
from ncu_launch.profilers.subprocesses import OWN_PYTHON
from ncu_launch.profilers.traced_program import _sampling
from ncu_launch.workload.traced_iterations import Trace
from ncu_launch.workload_spec import Workload
from ncu_parsers.timelines.activity.samples import column_of_trace

CPU, CUDA = "cpu", "cuda"
DRAM, SM = (
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
)
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


def test_a_driver_that_refuses_is_quoted_and_the_run_is_recorded_without_samples(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started_with: list[list[Any]] = []

    def profile(*, activities: list[Any], record_shapes: bool) -> SimpleNamespace:
        def start() -> None:
            started_with.append(activities)
            if any(isinstance(one, dict) for one in activities):
                raise RuntimeError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")

        return SimpleNamespace(start=start, record_shapes=record_shapes)

    monkeypatch.setattr(traced_program, "_torch_profiler", lambda: profiler(profile=profile))
    assert traced_program.started(["0.1", f"{DRAM},{SM}"]).record_shapes
    sampled = ProfilerActivityConfig([PerformanceMetricsConfig([DRAM, SM], 0.1)])
    assert started_with == [[CPU, {CUDA: sampled}], [CPU, CUDA]]
    assert capsys.readouterr().err == "GPU metrics are not sampled: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES\n"


def test_what_is_missing_is_said() -> None:
    without = profiler()
    del without.PerformanceMetricsConfig
    with pytest.raises(LookupError, match=r"has no torch\.profiler\.PerformanceMetricsConfig"):
        _sampling(without, 1, ["a"])
    with pytest.raises(LookupError, match="sees no CUDA GPU"):
        _sampling(profiler(supported_activities=lambda: [CPU]), 1, ["a"])


@pytest.mark.parametrize(
    ("metrics", "names"),
    [(("flops", "dram"), (SM, DRAM)), ((NAMED,), (NAMED,)), (("dram", NAMED), (DRAM, NAMED))],
    ids=len,
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


def of_a_model(folder: Path, *metrics: str, tool: str = "torch", **others: Any) -> Plan:
    """The plan of `profile resnet18 --tool torch --metrics ...`."""
    workload = Workload("resnet18", device=others.pop("device", "auto"))
    return make_plan(Request((), metrics, workload, tool=tool, **others), folder)


def test_a_model_named_with_groups_is_recorded_with_their_samples(tmp_path: Path) -> None:
    plan = of_a_model(tmp_path, "dram", "sm")
    assert plan.command == (
        *OWN_PYTHON, "-m", "ncu_launch.workload.workload", str(tmp_path / "workload.json"), str(tmp_path / "facts.json"),
        "--trace", str(tmp_path / "reports" / "trace.json.gz"), "--sample", "0.1", f"{DRAM},{SM}",
    )  # fmt: skip
    assert (plan.tool, plan.commands[0].report, plan.notes) == ("pytorch", "trace.json.gz", ())
    at = plan.command.index("--trace")
    assert Trace.asked(list(plan.command[at:])) == Trace(
        tmp_path / "reports" / "trace.json.gz", ("0.1", f"{DRAM},{SM}")
    )


def test_without_metrics_named_a_model_is_recorded_without_samples(tmp_path: Path) -> None:
    plan = of_a_model(tmp_path, "flops", "dram")
    assert plan.command[-2:] == ("--trace", str(tmp_path / "reports" / "trace.json.gz"))
    assert Trace.asked(list(plan.command[-2:])) == Trace(tmp_path / "reports" / "trace.json.gz")
    assert of_a_model(tmp_path, "flops", "dram", gpu_metrics=500).command[-2:] == ("2", f"{SM},{DRAM}")


def test_groups_that_cannot_be_sampled_are_named(tmp_path: Path) -> None:
    plan = of_a_model(tmp_path, "flops", "dram", "l2", "sm__*")
    assert plan.command[-1] == DRAM
    said = "cannot sample l2, sm__*: it samples sm, dram, tensor, nvlink, pcie, and metrics by full name"
    assert plan.notes == (f"PyTorch's profiler {said}",)
    assert of_a_model(tmp_path, "stalls").command[-2] == "--trace"


def test_a_model_on_the_cpu_is_recorded_without_samples_and_this_is_said(tmp_path: Path) -> None:
    plan = of_a_model(tmp_path, "dram", "sm", device="cpu")
    assert (plan.command[-2], plan.notes) == ("--trace", (NO_SAMPLES_OF_THE_CPU,))


@pytest.mark.parametrize("tool", ["operators", "auto"])
def test_groups_without_counters_name_the_tool_that_samples_them(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ncu_launch.profile.plan.find_tool", lambda *_: None)
    with pytest.raises(
        WrongUsage, match=r"^sm: sampled by PyTorch's profiler, .* Here operators runs\. Add: --tool pyt"
    ):
        of_a_model(tmp_path, "dram", "sm", tool=tool)


def test_ranks_are_told_which_tools_record_them(tmp_path: Path) -> None:
    with pytest.raises(NcuBenchError, match=r"records one process here, and no ranks\. Run them on a machine with"):
        of_a_model(tmp_path, "dram", ranks=2)


def test_every_metric_of_a_group_is_a_column_of_launches() -> None:
    metrics, cannot = sampled_metrics(sampled_groups())
    assert not cannot
    assert len(metrics) == 7
    assert all(column_of_trace(metric).startswith("sampled_") for metric in metrics)
