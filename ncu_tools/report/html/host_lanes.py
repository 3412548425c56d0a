"""The lanes of host threads in a step: nested ranges and operators, and API calls below them.

Functions of Python and calls of the operating system are left out: they are too many, and nested too deeply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from ncu_parsers.timelines.activity.activity import (
    ANNOTATION,
    NVTX,
    OPERATOR,
    Activity,
    ApiCalls,
    HostRanges,
    Owner,
    plain_name,
)

from ncu_tools.numbers.number_format import counted
from ncu_tools.report.html.lane_boxes import Integers, LanePieces
from ncu_tools.timeline.range_depths import nested_depths

MOST_THREADS, MOST_DEPTH = 4, 6
"""Most threads with lanes (those with most calls), and most lanes of ranges per thread (the outermost)."""
MOST_ROWS = 200_000
"""Most ranges and calls of a thread with lanes in a step: nesting more would take seconds."""
CALLS = "API calls"

Rows = TypeVar("Rows", ApiCalls, HostRanges)


@dataclass(frozen=True)
class HostLane:
    """One lane of a thread: pieces whose names are indices into `names`."""

    title: str
    pieces: LanePieces
    names: Sequence[str]

    @property
    def total(self) -> int:
        """The time in ns in which any piece was open."""
        return int(self.pieces.own.sum())


@dataclass(frozen=True)
class LanesOfThread:
    """The lanes of one host thread in a step, and a phrase on what was left out."""

    owner: Owner
    lanes: list[HostLane]
    left_out: str | None = None


def host_lanes(
    activity: Activity, processes: Sequence[int | None], start: int, end: int, kinds: tuple[int, int, int]
) -> list[LanesOfThread]:
    """The lanes of the busiest threads of some processes (None: of all) between two times, in ns of the recording.

    Times of pieces count from `start`; `kinds` are the kinds of a range, an operator and a call.
    """
    ranges = _within(activity.ranges, start, end)
    ranges = ranges.at(np.isin(ranges.kind, (NVTX, OPERATOR, ANNOTATION)))
    calls = _within(activity.calls, start, end)
    threads: dict[Owner, list[int]] = {}
    for place, table in enumerate((calls, ranges)):
        for number, many in enumerate(np.bincount(table.owner, minlength=len(table.owners)).tolist()):
            threads.setdefault(table.owners[number], [0, 0])[place] += many
    wanted = sorted(
        (one for one, rows in threads.items() if any(rows) and (None in processes or one[0] in processes)),
        key=lambda one: [-rows for rows in threads[one]],
    )
    found = []
    for owner in wanted[:MOST_THREADS]:
        if sum(threads[owner]) > MOST_ROWS:
            found.append(LanesOfThread(owner, [], f"{sum(threads[owner]):,} ranges and calls, too many to draw"))
            continue
        mine = ranges.at(ranges.of_process(owner[0]) & ranges.of_thread(owner[1]))
        lanes, deeper = _of_ranges(mine, start, end, kinds)
        called = calls.at(calls.of_process(owner[0]) & calls.of_thread(owner[1]))
        if len(called):
            pieces = _pieces(called, np.full(len(called), kinds[2]), start, end)
            lanes.append(HostLane(CALLS, pieces, calls.names))
        left_out = f"{counted(deeper, 'deeper range is', 'deeper ranges are')} left out" if deeper else None
        found.append(LanesOfThread(owner, lanes, left_out))
    return found


def _of_ranges(ranges: HostRanges, start: int, end: int, kinds: tuple[int, int, int]) -> tuple[list[HostLane], int]:
    """A lane for each depth of a thread's ranges, and the number of deeper ranges."""
    depth = np.array(nested_depths(ranges.start.tolist(), ranges.end.tolist()), np.int64)
    kind = np.where(ranges.kind == OPERATOR, kinds[1], kinds[0])
    names = [plain_name(name) for name in ranges.names]
    lanes = []
    for level in range(min(int(depth.max(initial=-1)) + 1, MOST_DEPTH)):
        mine = depth == level
        title = "ranges" if level == 0 else f"ranges ({level + 1})"
        lanes.append(HostLane(title, _pieces(ranges.at(mine), kind[mine], start, end), names))
    return lanes, int(np.count_nonzero(depth >= MOST_DEPTH))


def _within(table: Rows, start: int, end: int) -> Rows:
    """The rows that overlap the time from `start` to `end`."""
    return table.at((table.start < end) & (table.end > start))


def _pieces(table: ApiCalls | HostRanges, kind: Integers, start: int, end: int) -> LanePieces:
    """The rows as pieces, cut at both ends, with times from `start`."""
    begin = np.maximum(table.start, start) - start
    return LanePieces(begin, np.minimum(table.end, end) - start, kind, table.name.astype(np.int64))
