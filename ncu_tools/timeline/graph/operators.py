"""The operators around API calls: the innermost one of each call, and how operators nest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ncu_parsers.timelines.activity.activity import OPERATOR, Activity, HostRanges, Integers

from ncu_tools.timeline.graph.step_graph import NONE, Mask
from ncu_tools.timeline.intervals import grouped

SHALLOW = 32
"""Depth of nesting that is searched for all calls at once; deeper ranges are searched call by call."""


class OperatorsAround:
    """The nesting of a recording's operators: `parent` is the row of the operator around each range, -1 for none."""

    def __init__(self, activity: Activity) -> None:
        self._ranges: HostRanges = activity.ranges
        self._calls = activity.calls
        self.parent = np.full(len(activity.ranges), NONE)
        self._rows: dict[int, Integers] = {}
        operators = np.flatnonzero(activity.ranges.kind == OPERATOR)
        thread = activity.ranges.thread[operators]
        for mine in grouped(thread):
            rows = operators[mine]
            self._rows[int(activity.ranges.thread[rows[0]])] = rows
            self.parent[rows] = _parents(rows.tolist(), activity.ranges.end[rows].tolist(),
                                         activity.ranges.start[rows].tolist())  # fmt: skip

    def around(self, calls: Integers) -> Integers:
        """The row of the innermost operator around the begin of each call (rows; -1 for none); -1 for none."""
        found = np.full(len(calls), NONE)
        table, ranges = self._calls, self._ranges
        known = np.flatnonzero(calls >= 0)
        thread = table.thread[calls[known]]
        for of_thread in grouped(thread):
            mine = known[of_thread]
            rows = self._rows.get(int(table.thread[calls[mine[0]]]))
            if rows is not None:
                moment = table.start[calls[mine]]
                at = np.searchsorted(ranges.start[rows], moment, side="right") - 1
                found[mine] = self._open_at(np.where(at >= 0, rows[at], NONE), moment)
        return found

    def _open_at(self, place: Integers, moment: Integers) -> Integers:
        """The innermost of each range and its parents that has not ended before a moment; -1 for none."""
        end, parent = self._ranges.end, self.parent
        for _ in range(SHALLOW):
            over = (place >= 0) & (end[place] < moment)
            if not over.any():
                return place
            place[over] = parent[place[over]]
        # deep ranges in order of time: a range that has ended stays ended, and is skipped from then on
        around = dict[int, int]()
        for at in np.argsort(moment, kind="stable").tolist():
            one, passed = int(place[at]), list[int]()
            while one >= 0 and end[one] < moment[at]:
                passed.append(one)
                one = around.get(one, int(parent[one]))
            around.update(dict.fromkeys(passed, one))
            place[at] = one
        return place

    def outermost(self, operator: Integers) -> Integers:
        """The outermost operator around each operator; -1 for -1."""
        around = np.where(self.parent >= 0, self.parent, np.arange(len(self.parent)))
        while (further := around[around] != around).any():
            around[further] = around[around[further]]
        return np.where(operator >= 0, np.append(around, NONE)[operator], NONE)

    def within(self, operator: Integers, named: Mask) -> Mask:
        """Mask of the operators (rows, -1 for none) that have a name marked by `named`, or lie in one that has."""
        found, around = named[self._ranges.name], self.parent.copy()
        while (known := np.flatnonzero(around >= 0)).size:  # doubles the distance outward each time
            found[known] |= found[around[known]]
            around[known] = around[around[known]]
        inside: Mask = (operator >= 0) & np.append(found, False)[operator]
        return inside


def numbers_of_names(ranges: HostRanges) -> Integers:
    """For each range the first index in `names` of its name, which stands there once for each of its inputs."""
    first = dict[str, int]()
    return np.array([first.setdefault(name, at) for at, name in enumerate(ranges.names)], np.int64)[ranges.name]


def _parents(rows: Sequence[int], ends: Sequence[int], starts: Sequence[int]) -> list[int]:
    """The row of the range around each range of one thread, ordered by start, longer first; -1 for none."""
    found, around = [], list[tuple[int, int]]()
    for row, start, end in zip(rows, starts, ends, strict=True):
        while around and around[-1][1] <= start:
            around.pop()
        found.append(around[-1][0] if around else NONE)
        around.append((row, end))
    return found
