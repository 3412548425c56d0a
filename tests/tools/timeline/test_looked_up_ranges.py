"""Timelines whose ranges are looked up in the database of nsys have the figures and names of all ranges held at once."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity.activity import Activity, HostTime, Window
from ncu_parsers.timelines.activity.names_to_hold import NamesToHold
from ncu_parsers.timelines.nsys import nsys_ranges
from ncu_parsers.timelines.nsys.nsys_activity import read_sqlite

from ncu_tools.report.timeline_parts import PARTS_OF_TIMELINE
from ncu_tools.timeline.call_kinds import facts
from ncu_tools.timeline.gaps import ThreadsOfCalls
from ncu_tools.timeline.launch_links import launching_calls
from ncu_tools.timeline.steps import names_to_hold
from ncu_tools.timeline.timeline import timeline
from tests.support.reports import needs_shared_reports, shared_reports
from tests.support.timelines import CALLS, KERNELS, PROCESS, RANGES, call, database, global_id, kernel, pushed

THREAD = global_id(PROCESS, PROCESS)
STRINGS = ("void gemm<1>(int)", "cudaLaunchKernel_v7000", "cudaStreamSynchronize_v3020", "poll")


def read(path: Path, **more: Any) -> Activity:
    return read_sqlite(Source(str(path)), **more)


def parts(activity: Activity, step: re.Pattern[str] | None = None) -> dict[str, Any]:
    found = timeline(activity, step=step)
    tables = {name: part.table(found, whole=True).rows for name, part in PARTS_OF_TIMELINE.items()}
    return {**tables, "notes": found.notes, "missing": activity.missing}


@needs_shared_reports
@pytest.mark.parametrize("step", [None, re.compile("(?i)step|forward|mm")], ids=["steps that are found", "named steps"])
@pytest.mark.parametrize(
    "path", [one for one in shared_reports("nsys") if one.suffix == ".sqlite"], ids=lambda one: one.name[-28:]
)
def test_a_real_recording_has_the_same_figures(path: Path, step: re.Pattern[str] | None) -> None:
    whole, part = read(path), read(path, named=names_to_hold(step))
    assert len(part.ranges) < len(whole.ranges) or not len(whole.ranges)
    assert parts(part, step) == parts(whole, step)


def recorded(path: Path, ranges: list[Any], **more: Any) -> Path:
    """Kernels of 10 ns every 100 ns, each launched 10 ns before, and a wait behind every other launch."""
    launches = [{**call(100 * at, at), "nameId": 2} for at in range(1, 11)]
    waits = [{**call(100 * at + 20, 100 + at), "end": 100 * at + 70, "nameId": 3} for at in range(1, 11, 2)]
    kernels = [kernel(100 * at + 10, at) for at in range(1, 11)]
    path.unlink(missing_ok=True)
    return database(path, {KERNELS: kernels, CALLS: [*launches, *waits], RANGES: ranges, **more}, STRINGS)


DRAWN = st.lists(
    st.builds(
        lambda name, start, lasts, thread: pushed(name, start, None if lasts is None else start + lasts, thread=thread),
        st.sampled_from(
            ["aten::mm, seq = 4", "data_load", "ProfilerStep#1", "ProfilerStep#2, seq = 3", "iteration 4", "f", "g", ""]
        ),
        st.integers(0, 1200),
        st.one_of(st.none(), st.integers(0, 90), st.integers(0, 1200)),
        st.sampled_from([PROCESS, PROCESS + 1]),
    ),
    max_size=30,
)


@given(DRAWN)
def test_drawn_ranges_give_the_same_figures(tmp_path_factory: pytest.TempPathFactory, ranges: list[Any]) -> None:
    calls = [{**pushed("x", 130, 160), "nameId": 4}] if len(ranges) % 2 else []
    path = recorded(tmp_path_factory.mktemp("drawn") / "t.sqlite", ranges, OSRT_API=calls)
    assert parts(read(path, named=names_to_hold(None))) == parts(read(path))


def test_held_are_steps_what_loads_data_and_the_first_of_each_thread_before_the_work(tmp_path: Path) -> None:
    names = ("a", "ProfilerStep#7", "iteration 3", "DataLoader.next", "b")
    rows = [pushed(name, 10 * at, 10 * at + 5) for at, name in enumerate(names)]
    rows += [pushed("c", 7, 8, thread=1), pushed("d", 3, 9, thread=1), pushed("late", 1500, 1900, thread=2)]
    rows += [pushed(name, 1600, 1700) for name in ("late", "/image_processing_vit.py(3): f", "step#8 of ProfilerStep")]
    path = recorded(tmp_path / "t.sqlite", rows)
    found = read(path, named=names_to_hold(None)).ranges
    assert [found.names[one] for one in found.name] == ["a", "d", *names[1:4], "/image_processing_vit.py(3): f"]
    assert "late" not in found.names, "names that no step has are not returned by the database"
    steps = read(path, named=names_to_hold(re.compile("^b"))).ranges
    assert [steps.names[one] for one in steps.name] == [
        "a",
        "d",
        "DataLoader.next",
        "b",
        "late",
        "/image_processing_vit.py(3): f",
    ]


@given(st.from_regex(re.compile(facts()["data_loading"]["pattern"], re.ASCII)))
def test_every_name_that_loads_data_is_like_a_pattern_of_the_database(name: str) -> None:
    like = names_to_hold(None).like
    with closing(sqlite3.connect(":memory:")) as empty:
        assert any(empty.execute("SELECT ? LIKE ?", (name.replace("\0", " "), one)).fetchone()[0] for one in like)


def test_registered_names_are_held_too(tmp_path: Path) -> None:
    rows = [{**pushed("x", 40, 60), "text": None, "textId": at} for at in (5, 6)]
    path = database(
        tmp_path / "t.sqlite", {KERNELS: [kernel(10, 1)], RANGES: rows}, (*STRINGS, "ProfilerStep#4", "forward")
    )
    found = read(path, named=names_to_hold(None)).ranges
    assert [found.names[one] for one in found.name] == ["ProfilerStep#4"]


def test_ranges_that_are_left_in_the_file_are_not_said_to_be_missing(tmp_path: Path) -> None:
    def missing(*ranges: Any) -> list[str]:
        path = recorded(tmp_path / "t.sqlite", list(ranges))
        return [one for one in read(path, named=names_to_hold(None)).missing if "ranges" in one]

    assert (len(missing()), missing(pushed("f", 1500, 1600))) == (1, [])


def test_a_time_of_trim_and_a_recording_without_gpu_work_hold_all_ranges(tmp_path: Path) -> None:
    rows = [pushed(name, 100, 400) for name in "abc"]
    part = read(recorded(tmp_path / "t.sqlite", rows), trim=Window(0, 200), named=names_to_hold(None))
    assert (len(part.ranges), part.ranges_over) == (3, None)
    path = database(tmp_path / "none.sqlite", {RANGES: rows}, STRINGS)
    assert len(read(path, named=names_to_hold(None)).ranges) == 3


@pytest.mark.parametrize("stretches", [1, 2, 7, 1 << 16])
def test_every_range_over_half_of_a_time_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stretches: int
) -> None:
    monkeypatch.setattr(nsys_ranges, "STRETCHES", stretches)
    draw = np.random.default_rng(stretches)
    starts, lasts = draw.integers(0, 5000, 300), draw.choice([1, 5, 20, 300, 4000], 300)
    rows = [
        pushed(f"{at}", int(start), int(start + long), thread=PROCESS + at % 2)
        for at, (start, long) in enumerate(zip(starts, lasts, strict=True))
    ]
    path = recorded(tmp_path / "t.sqlite", [*rows, pushed("open", 900, None), pushed("old", 950, 0)])
    whole, part = read(path), read(path, named=NamesToHold(lambda name: False))
    times = [HostTime(THREAD + at % 2, at, at + 1 + at % 40) for at in range(0, 5000, 25)]
    every, looked_up = (ThreadsOfCalls(one, launching_calls(one)) for one in (whole, part))
    looked_up.look_up(times)
    for thread, start, end in times:
        assert looked_up.of(thread).range_over(start, end) == every.of(thread).range_over(start, end)


def test_no_time_needs_no_range(tmp_path: Path) -> None:
    part = read(recorded(tmp_path / "t.sqlite", [pushed("a", 0, 10)]), named=NamesToHold(lambda name: False))
    assert part.ranges_over is not None
    assert len(part.ranges_over([])) == 0
