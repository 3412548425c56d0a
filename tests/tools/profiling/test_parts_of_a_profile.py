"""Parts of a profile by themselves: what the command refuses first, what a run kept, and why it gave nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ncu_launch.counters.metrics import counts_bytes, counts_flops
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.manifest import Manifest, ToolRun
from ncu_launch.profile.launch_count import LaunchCounts
from ncu_launch.profile.plan import Plan, Request
from ncu_launch.profilers.installed_tools import Gpu
from ncu_launch.workload_spec import Workload
from ncu_parsers.parquet.reader import read_launches
from ncu_parsers.parse.parse import Parsed
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.kernel_cache import hotspots_of
from ncu_tools.profiling.budgeted_profile import plan_timeline, timeline_folder
from ncu_tools.profiling.collected_profile import keep_profile, nothing_collected, parsed_reports, why_no_gpu_work
from ncu_tools.profiling.from_python import _with_arguments, profile
from ncu_tools.profiling.listener import Listener
from ncu_tools.profiling.planned_run import launches_when_warm
from ncu_tools.runs.loading import load
from tests.conftest import SAMPLES
from tests.support.launches import launch, table


def manifest(**more: Any) -> Manifest:
    return Manifest(**{"asked": ["ncu-bench"], "source": "ncu", "started": "2026-11-24T10:00:00+00:00", **more})


def ran(report: str) -> ToolRun:
    return ToolRun(["ncu"], 0, 1.0, report=report)


class TestWhatABudgetRefuses:
    @pytest.mark.parametrize("steering", [{"kernel": "gemm"}, {"launch_skip": 1}, {"launch_count": 5}])
    def test_options_that_choose_kernels_as_the_budget_does(self, tmp_path: Path, steering: dict[str, Any]) -> None:
        with pytest.raises(WrongUsage, match="--budget chooses the kernels itself"):
            plan_timeline(Request(("x",), ("flops",), program=("./a",), **steering), tmp_path, dry=True)

    def test_a_tool_that_cannot_count(self, tmp_path: Path) -> None:
        with pytest.raises(WrongUsage, match="--budget uses nsys and then ncu, not operators"):
            plan_timeline(Request(("x",), ("flops",), program=("./a",), tool="operators"), tmp_path, dry=True)

    def test_a_group_without_counters_before_the_timeline_is_recorded(self, tmp_path: Path) -> None:
        with pytest.raises(WrongUsage, match=r"^nvlink: sampled by PyTorch's profiler.* Here ncu runs\."):
            plan_timeline(Request(("x",), ("flops", "nvlink"), program=("./a",)), tmp_path, dry=True)

    def test_the_timeline_has_a_run_folder_inside_the_runs(self, tmp_path: Path) -> None:
        assert timeline_folder(tmp_path).parent == tmp_path


class TestWhatARunKept:
    def test_are_its_launches_and_kernels_beside_each_other_and_every_note(self, tmp_path: Path) -> None:
        launches = with_metadata(
            table(launch("gemm", ns=10.0, module="model.fc"), launch("add", ns=5.0)), {"schema_version": SCHEMA_VERSION}
        )
        found = manifest(notes=["heard", "a note"], facts={"unknown_operators": {"my_op": 2}})
        result = keep_profile(launches, ["read"], found, tmp_path, announced=["heard"])
        assert read_launches(tmp_path / "launches.parquet").num_rows == 2
        assert (tmp_path / "kernels.parquet").is_file()
        assert (result.announced, result.failure) == (("heard",), None)
        assert result.notes == (
            "a note", "FLOPs of these operators are not known, and are left empty: my_op (2 calls)",
            "1 of 2 launches belong to no module (sums of gradients, the optimizer)", "read",
        )  # fmt: skip


class TestWhatWasNotAskedFor:
    """Neither the command that profiles nor a later one tells people to collect what they left out on purpose."""

    ASKED: ClassVar = {
        "FLOP counts": ["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"],
        "DRAM bytes": ["dram__bytes_read.sum", "dram__bytes_write.sum"],
    }

    @pytest.mark.parametrize("asked", [(), ("FLOP counts",), ("DRAM bytes",), ("FLOP counts", "DRAM bytes")])
    def test_is_not_said_to_be_missing(self, tmp_path: Path, asked: tuple[str, ...]) -> None:
        launches = with_metadata(table(launch("gemm", ns=10.0)), {"schema_version": SCHEMA_VERSION})
        metrics = ["gpu__time_duration.sum", *(metric for one in asked for metric in self.ASKED[one])]
        result = keep_profile(launches, [], manifest(metrics=metrics), tmp_path)
        assert result.table is not None
        for found in (hotspots(result.table, ceilings_of(result.table)), hotspots_of(load(str(tmp_path)))):
            advised = [note for note in found.notes if "ask ncu for" in note]
            assert [re.split("ha(?:ve|s) no ", note)[-1].partition(";")[0] for note in advised] == list(asked)

    @pytest.mark.parametrize(
        ("metric", "is_flops"),
        [
            ("sm__ops_path_tensor_src_tf32_dst_fp32.sum", True),
            ("sm__sass_thread_inst_executed_op_ffma_pred_on.sum", True),
            ("sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained", False),
            ("smsp__sass_thread_inst_executed_op_integer_pred_on.sum", False),
            ("dram__bytes.sum", False),
        ],
    )
    def test_are_counts_and_not_their_peaks(self, metric: str, is_flops: bool) -> None:
        assert counts_flops(metric) == is_flops
        assert counts_bytes(metric, "dram") == (metric == "dram__bytes.sum")


class TestReportsOfARun:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "reports").mkdir()
        for name in ("first.csv", "second.csv", "third.csv"):
            (tmp_path / "reports" / name).write_bytes((SAMPLES / "d01-wide-raw.csv").read_bytes())
        (tmp_path / "reports" / "empty.csv").touch()
        return tmp_path

    def test_of_two_runs_hold_the_same_launches_and_are_joined(self, folder: Path) -> None:
        found = parsed_reports(manifest(tool_runs=[ran("first.csv"), ran("second.csv")]), folder)
        assert found is not None
        assert found.table is not None
        assert found.table.num_rows == 8
        assert "8 of 8 launches were collected in two runs" in found.notes[0]

    def test_of_any_other_number_the_last_one_counts(self, folder: Path) -> None:
        runs = [ran("first.csv"), ran("second.csv"), ran("third.csv")]
        found = parsed_reports(manifest(tool_runs=runs), folder)
        assert found is not None
        assert [Path(report.source).name for report in found.reports] == ["third.csv"]

    @pytest.mark.parametrize("report", ["", "missing.csv", "empty.csv"])
    def test_that_are_not_there_are_none(self, folder: Path, report: str) -> None:
        assert parsed_reports(manifest(tool_runs=[ran(report)]), folder) is None


class TestWhyThereIsNothing:
    FAILURE, REFUSED = NcuBenchError("ncu failed."), NcuBenchError("The report was cut.")

    def test_is_the_failure_of_the_tool_before_that_of_reading(self, tmp_path: Path) -> None:
        parsed = Parsed(None, refused={"a.csv": self.REFUSED})
        assert nothing_collected(parsed, self.FAILURE, tmp_path) is self.FAILURE
        assert nothing_collected(parsed, None, tmp_path) is self.REFUSED

    def test_without_either_names_the_folder_of_the_logs(self, tmp_path: Path) -> None:
        error = nothing_collected(None, None, tmp_path)
        assert (error.what, str(tmp_path / "logs") in error.cause) == ("The run collected nothing.", True)

    def test_is_no_idle_gpu_unless_a_timeline_says_so(self) -> None:
        assert why_no_gpu_work(None) is None
        assert why_no_gpu_work(Parsed(None, refused={"a.csv": self.REFUSED})) is None


class TestWhatPythonRefuses:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ({"tool": "gprof"}, "tool='gprof' is not known"),
            ({"dtype": "fp12"}, "dtype='fp12' is not known"),
            ({"phases": ["sideways"]}, "phases='sideways' is not known"),
            ({"device": "tpu"}, "device='tpu' is not known"),
            ({"batch_size": 0}, "batch_size=0 is too small"),
            ({"metrics": "flopz"}, "flopz is neither a group of metrics nor a metric name"),
            ({"machine": "abacus"}, "abacus"),
        ],
    )
    def test_is_what_the_command_line_would_before_anything_runs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], says: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(NcuBenchError, match=says):
            profile("resnet18", **arguments)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ({"budget": "x"}, "x is no time. Write seconds or minutes, as budget='60s' or budget='5m'."),
            ({"budget": "5s", "tool": "operators"}, "budget uses nsys and then ncu, not operators. Leave out tool."),
            ({"phases": "decode"}, "Name one of them, or use phases='forward'."),
        ],
    )
    def test_is_told_by_the_names_of_arguments(self, arguments: dict[str, Any], says: str) -> None:
        with pytest.raises(WrongUsage) as told:
            profile("resnet18", **arguments)
        assert says in str(told.value)
        assert told.value.paragraph == str(told.value)

    @pytest.mark.parametrize("command", ["ncu-bench profile x --tool nsys", "nsys profile -o timeline PROGRAM"])
    def test_is_told_with_whole_commands_as_they_are_typed(self, command: str) -> None:
        assert _with_arguments(f"Use --batch-size 8. Type: {command}") == f"Use batch_size=8. Type: {command}"

    def test_is_a_rank_of_a_launcher(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")):
            monkeypatch.setenv(name, value)
        with pytest.raises(WrongUsage, match="is for one process"):
            profile("resnet18")

    def test_is_an_empty_program(self) -> None:
        with pytest.raises(WrongUsage, match="No target was named"):
            profile([])


class TestIterationsWithDifferentNumbersOfLaunches:
    TUNED = [launch("trial", iteration=0)] * 3 + [launch("work", iteration=0), launch("work", iteration=1)]

    def noted(self, folder: Path, launches: list[Any], warm: LaunchCounts | None = None, **more: Any) -> list[str]:
        made = with_metadata(table(*launches), {"schema_version": SCHEMA_VERSION, "reports": []})
        kept = keep_profile(made, [], manifest(**more), folder, warm=warm)
        return [note for note in kept.notes if "different numbers" in note]

    def test_are_noted_as_something_chosen_inside_the_profiled_range(self, tmp_path: Path) -> None:
        (note,) = self.noted(tmp_path, self.TUNED)
        assert "(4 in iteration 0, 1 in iteration 1)" in note
        assert "--warmup" in note

    def test_are_compared_with_the_last_warm_up_step_where_that_was_counted(self, tmp_path: Path) -> None:
        (note,) = self.noted(tmp_path, self.TUNED[:4], LaunchCounts({"work": 1}, ({"work": 1},)))
        assert "(1 in the last warm-up step, counted outside of ncu, 4 in iteration 0)" in note
        assert self.noted(tmp_path, self.TUNED[3:4], LaunchCounts({"work": 1}, ({"work": 1},))) == []

    def test_copies_of_a_timeline_are_no_launches_of_kernels(self, tmp_path: Path) -> None:
        timeline = table(launch("[CUDA memcpy host to device]", iteration=0), *self.TUNED[3:])
        timeline = timeline.append_column("operation", arrays.dictionary(["memcpy", "kernel", "kernel"]))
        made = with_metadata(timeline, {"schema_version": SCHEMA_VERSION, "reports": []})
        warm = LaunchCounts({"work": 1}, ({"work": 1},))
        kept = keep_profile(made, [], manifest(source="nsys"), tmp_path, warm=warm)
        assert not any("different numbers" in note for note in kept.notes)
        assert self.noted(tmp_path, [*self.TUNED[2:]], warm) != [], "a kernel more is told"

    def test_of_a_filtered_or_cut_run_say_nothing(self, tmp_path: Path) -> None:
        filtered = ToolRun(["ncu", "--launch-count", "5", "python"], 0, 1.0, report="ncu.csv")
        assert self.noted(tmp_path, self.TUNED, tool_runs=[filtered]) == []
        assert self.noted(tmp_path, self.TUNED, partial=True) == []

    def test_are_not_noted_where_they_are_alike_or_unknown(self, tmp_path: Path) -> None:
        assert self.noted(tmp_path, self.TUNED[3:]) == []
        assert self.noted(tmp_path, [launch("work"), launch("work"), launch("work", iteration=0)]) == []


class Heard(Listener):
    """A listener that keeps the notes."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def notes(self, notes: Sequence[str]) -> None:
        self.kept += notes


class TestLaunchesOfTheWarmUpStep:
    PLAN = Plan("ncu", (), (), "2025.1", (Gpu(0, "NVIDIA H100 80GB HBM3", "9.0", None),))
    REQUEST = Request(("x",), ("flops",), Workload("resnet18", mode="compile"))

    def counted(self, monkeypatch: pytest.MonkeyPatch, counts: LaunchCounts | str) -> tuple[Any, list[str]]:
        monkeypatch.setattr("ncu_tools.profiling.planned_run.launch_counts_of", lambda workload, on_line: counts)
        heard = Heard()
        return launches_when_warm(self.REQUEST, self.PLAN, heard), heard.kept

    def test_that_iterations_repeat_are_kept_and_nothing_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        counts = LaunchCounts({"work": 2}, ({"work": 2},))
        assert self.counted(monkeypatch, counts) == (counts, [])

    def test_that_an_iteration_does_not_repeat_are_noted_before_the_profile(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, (note,) = self.counted(monkeypatch, LaunchCounts({"work": 2}, ({"work": 2, "trial": 100},)))
        assert note.startswith("the last warm-up step launched 2 kernels, and behind it iteration 0 102")
        assert "(trial 0 and then 100)" in note

    def test_that_could_not_be_counted_are_unknown_and_the_reason_is_noted(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        counts, (note,) = self.counted(monkeypatch, "no CUPTI")
        assert counts is None
        assert note == "the launches of the warm-up step are unknown, so nothing is compared with them: no CUPTI"

    def test_of_a_run_without_a_gpu_are_not_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(self, "PLAN", replace(self.PLAN, gpus=()), raising=False)
        assert self.counted(monkeypatch, "never asked") == (None, [])
