"""Ranges of host threads in an export of nsys: their names, and which of them a window takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import HostRanges, Window
from ncu_parsers.timelines.nsys.database import ROWS_OF_A_BLOCK, opened
from ncu_parsers.timelines.nsys.nsys_ranges import process_of, read_ranges

from tests.support.timelines import KERNELS, PROCESS, RANGES, database, domain, global_id, kernel, pushed, started

OS_CALLS = "OSRT_API"


def ranges(folder: Path, rows: list[Any], window: Window | None = None, **more: Any) -> HostRanges:
    strings = more.pop("strings", ("registered, seq = 3", "poll"))
    path = database(folder / "t.sqlite", {KERNELS: [kernel(0, 1)], RANGES: rows, **more.pop("tables", {})}, strings)
    whole_names = more.pop("whole_names", False)
    with opened(Source(str(path)), "t.sqlite") as opened_file:
        return read_ranges(opened_file, opened_file.strings(), 1000, window, whole_names=whole_names)


def names(found: HostRanges) -> list[str]:
    return [found.names[number] for number in found.name.tolist()]


def test_operators_are_named_without_the_numbers_of_their_calls_unless_whole_names_are_asked_for(
    tmp_path: Path,
) -> None:
    called: list[str | int] = [
        "aten::add, seq = 4, op_id = 7",
        "aten::add, op_id = 8, sizes = [[2, 3],\n []]",
        "step, part 2",
        1,
    ]
    rows = [pushed(name, at, at + 1) for at, name in enumerate(called)]
    (tmp_path / "whole").mkdir()
    assert names(ranges(tmp_path, rows)) == ["aten::add", "aten::add", "step, part 2", "registered"]
    assert names(ranges(tmp_path / "whole", rows, whole_names=True)) == [*called[:3], "registered, seq = 3"]


def test_an_event_without_a_name_is_no_range_and_neither_is_a_domain(tmp_path: Path) -> None:
    rows = [pushed("", 0, 5), pushed(99, 1, 5), domain("NCCL", 1), started("kept", 2, 5)]
    found = ranges(tmp_path, rows)
    assert names(found) == ["kept"]
    assert process_of(found.thread).tolist() == found.process.tolist() == [PROCESS]


@pytest.mark.parametrize(
    ("window", "kept"),
    [
        (Window(20, 30), ["around", "open"]), (Window(0, 5), ["around", "first"]), (Window(12, 13), ["around", "open"]),
        (Window(10, 12), ["around", "first", "open"]), (Window(2000, 3000), ["open"]),
    ],
)  # fmt: skip
def test_a_window_takes_what_is_open_in_it_or_at_its_edges(tmp_path: Path, window: Window, kept: list[str]) -> None:
    rows = [pushed("around", 0, 100), pushed("first", 1, 10), pushed("open", 11, None)]
    assert names(ranges(tmp_path, rows, window)) == kept


def test_calls_of_the_system_follow_the_window_too(tmp_path: Path) -> None:
    calls = [{"start": at, "end": at + 5, "globalTid": global_id(PROCESS, PROCESS), "nameId": 2} for at in (0, 50)]
    found = ranges(tmp_path, [], Window(40, 52), tables={OS_CALLS: calls})
    assert (names(found), found.start.tolist(), found.kind.tolist()) == (["poll"], [50], [activity.OS_CALL])


def test_ranges_of_more_than_a_block_are_all_read_in_order(tmp_path: Path) -> None:
    count = ROWS_OF_A_BLOCK + 10
    found = ranges(tmp_path, [pushed(f"aten::op, op_id = {at}", count - at, 10**6) for at in range(count)])
    assert len(found) == count
    assert found.names == ["aten::op"]
    assert found.start.tolist() == sorted(found.start.tolist())
