"""What --trim reads of an nsys database gives the figures that the whole database gives of that time."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity.activity import Activity, Window
from ncu_parsers.timelines.nsys.nsys_activity import read_sqlite

from ncu_tools.report.timeline_parts import PARTS_OF_TIMELINE
from ncu_tools.timeline.launch_links import launch_links
from ncu_tools.timeline.timeline import timeline
from tests.support.nightly import one_in
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, shared_reports
from tests.support.timelines import CALLS, KERNELS, RANGES, call, database, kernel, pushed

MS = 1_000_000


def read(path: Path, trim: Window | None = None, **more: Any) -> Activity:
    return read_sqlite(Source(str(path)), trim=trim, **more)


def parts(activity: Activity, trim: Window) -> dict[str, Any]:
    """Every part; of the steps those of whole GPUs: repetition is looked for in what was read."""
    found = timeline(activity, trim=trim)
    rows: dict[str, Any] = {name: part.table(found, whole=True).rows for name, part in PARTS_OF_TIMELINE.items()}
    return {**rows, **{name: [row for row in rows[name] if row["is_whole"]] for name in ("steps", "verdicts")}}


@needs_shared_reports
@pytest.mark.parametrize(
    ("begins", "share"), one_in(4, [(begins, share) for begins in (0.0, 0.37, 0.8) for share in (0.2, 0.01, 0.0003)])
)
@pytest.mark.parametrize(
    "path", [one for one in shared_reports("nsys") if one.suffix == ".sqlite"], ids=lambda one: one.name[-28:]
)
def test_a_time_of_a_real_recording_has_the_same_figures_read_alone(path: Path, begins: float, share: float) -> None:
    whole = read(path)
    lasts = int(whole.operations.end.max()) - min(int(whole.operations.start.min()), int(whole.calls.start.min()))
    trim = Window(int(begins * lasts), int((begins + share) * lasts))
    part = read(path, trim)
    assert len(part.ranges) < len(whole.ranges)
    assert len(part.operations) < len(whole.operations)
    assert parts(part, trim) == parts(whole, trim)
    assert launch_links(part).lost == launch_links(whole).lost == {}


def recorded(folder: Path) -> Path:
    """A kernel every 10 ms, launched 2 ms before in a step of its own; origin at 8 ms, where the first call begins."""
    steps = range(1, 11)
    tables = {
        KERNELS: [kernel(10 * step * MS, step, end=(10 * step + 5) * MS) for step in steps],
        CALLS: [{**call((10 * step - 2) * MS, step), "nameId": 2} for step in steps],
        RANGES: [pushed(f"step {step}", (10 * step - 3) * MS, (10 * step - 1) * MS) for step in steps],
    }
    return database(folder / "t.sqlite", tables, ("void gemm<1>(int)", "cudaLaunchKernel_v7000"))


def test_a_step_is_found_by_the_call_that_launched_it_before_the_time(tmp_path: Path) -> None:
    trim = Window(43 * MS, 44 * MS)  # in the kernel that began at 50 ms, whose call and range are over
    part = read(recorded(tmp_path), trim)
    found = timeline(part, trim=trim, step=re.compile("^step"))
    (gpu,) = found.gpus
    assert [step.name for step in gpu.steps] == ["step 5"]
    assert found.origin_ns == 8 * MS
    assert (gpu.whole.span_ns, gpu.whole.busy_ns, gpu.whole.kernels) == (MS, MS, 1)


def test_the_gap_at_the_edge_has_the_cause_of_the_operation_behind_it(tmp_path: Path) -> None:
    path, trim = recorded(tmp_path), Window(48 * MS, 51 * MS)  # 56 to 59 ms; the next kernel is at 60 ms
    (gpu,) = timeline(read(path, trim), trim=trim).gpus
    assert gpu.whole.idle_ns == 3 * MS
    assert gpu.whole.causes == timeline(read(path), trim=trim).gpus[0].whole.causes


def test_a_recording_beyond_the_memory_limit_is_refused_with_the_way_to_read_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recorded(tmp_path)
    monkeypatch.setattr(memory, "resident", lambda: 10**12)
    monkeypatch.setattr(memory, "LIBRARIES", 10**12)
    monkeypatch.setattr(memory, "gc", SimpleNamespace(collect=int))  # that of all tests takes long to collect
    refused = ran("timeline", str(path))
    assert refused.exit_code == 1
    assert "more memory than 2GB" in refused.stderr
    assert "--trim 10s,20s. Or give it more memory: --memory-limit 8GB" in refused.stderr
    assert "--trim" not in ran("timeline", str(path), "--trim", "1ms,2ms").stderr


def test_steps_that_the_time_cuts_are_left_out_where_others_are_whole(tmp_path: Path) -> None:
    path, step = recorded(tmp_path), re.compile("^step")
    for trim, names, said in (
        (Window(13 * MS, 46 * MS), ["step 3", "step 4"], "GPU 0: 2 of 4 steps are cut by --trim, and left out"),
        (Window(13 * MS, 16 * MS), ["step 2"], "GPU 0: --trim cuts every step: numbers are of what is left of them"),
        (Window(9 * MS, 30 * MS), ["step 2", "step 3"], "GPU 0: 1 of 3 steps is cut by --trim, and left out"),
        (Window(9 * MS, 28 * MS), ["step 2", "step 3"], None),
    ):
        found = timeline(read(path, trim), trim=trim, step=step)
        assert [one.name for one in found.gpus[0].steps] == names
        assert [note for note in found.notes if "--trim" in note] == ([said] if said else [])


def test_a_launch_that_ran_at_another_time_has_a_record_and_others_have_none(tmp_path: Path) -> None:
    """Kernels of another stream, launched with those of the time, run 1 s later; no kernel is known of one launch."""
    calls = [call(1000 * step, step) for step in range(1, 41)]
    kernels = [kernel(1000 * step + 500, step, end=1000 * step + 900) for step in range(1, 41, 2)]
    later = [{**kernel(1_000_000_000 + step, step), "streamId": 9} for step in range(2, 41, 2) if step != 20]
    path = database(tmp_path / "t.sqlite", {KERNELS: [*kernels, *later], CALLS: [{**one, "nameId": 2} for one in calls]},
                    ("void gemm<1>(int)", "cudaLaunchKernel_v7000"))  # fmt: skip
    found = launch_links(read(path, Window(5_000, 35_000)))
    assert {process: moments.tolist() for process, moments in found.lost.items()} == {7: [20_000]}


def test_a_time_without_a_step_of_that_name_says_so(tmp_path: Path) -> None:
    trim = Window(42 * MS, 44 * MS)
    found = timeline(read(recorded(tmp_path), trim), trim=trim, step=re.compile("^step 9"))
    assert found.gpus[0].steps == []
    assert any("none of them launched GPU work in the time of --trim" in note for note in found.notes)
