"""The ranges of the host around calls: the innermost operator of each, and how ranges nest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ncu_parsers.timelines.activity.activity import OPERATOR, Activity, HostRanges, Integers

from ncu_tools.timeline.graph.step_graph import NONE, Mask


class OperatorsAround:
    """Operators of threads, nested: `parent` is the row of the range around each range, -1 for none or no operator."""

    def __init__(self, activity: Activity) -> None:
        self._ranges: HostRanges = activity.ranges
        self._calls = activity.calls
        self.parent = np.full(len(activity.ranges), NONE)
        self._rows: dict[int, Integers] = {}
        is_operator = activity.ranges.kind == OPERATOR
        for thread in np.unique(activity.ranges.thread[is_operator]).tolist():
            rows = np.flatnonzero(is_operator & (activity.ranges.thread == thread))
            self._rows[thread] = rows
            self.parent[rows] = _parents(rows.tolist(), activity.ranges.end[rows].tolist(),
                                         activity.ranges.start[rows].tolist())  # fmt: skip

    def around(self, calls: Integers) -> Integers:
        """The row of the innermost operator around the begin of each call (row; -1 for none); -1 for none."""
        found = np.full(len(calls), NONE)
        table, ranges = self._calls, self._ranges
        for thread, rows in self._rows.items():
            mine = np.flatnonzero((calls >= 0) & (np.append(table.thread, 0)[calls] == thread))
            moment = table.start[calls[mine]]
            at = np.searchsorted(ranges.start[rows], moment, side="right") - 1
            place = np.where(at >= 0, rows[at], NONE)
            while (over := (place >= 0) & (ranges.end[place] < moment)).any():
                place[over] = self.parent[place[over]]
            found[mine] = place
        return found

    def outermost(self, operator: Integers) -> Integers:
        """The outermost operator around each operator; -1 for -1."""
        found = operator.copy()
        while (inner := (found >= 0) & (np.append(self.parent, NONE)[found] >= 0)).any():
            found[inner] = self.parent[found[inner]]
        return found

    def within(self, operator: Integers, named: Mask) -> Mask:
        """Which operators (rows, -1 for none) are of a name that `named` marks, or within one that is."""
        ranges, found = self._ranges, np.zeros(len(operator), np.bool_)
        place = operator.copy()
        while (known := place >= 0).any():
            found[known] |= named[ranges.name[place[known]]]
            place[known] = self.parent[place[known]]
        return found


def _parents(rows: Sequence[int], ends: Sequence[int], starts: Sequence[int]) -> list[int]:
    """The row of the range around each range of one thread, in order of starts, the longer first; -1 for none."""
    found, around = [], list[tuple[int, int]]()
    for row, start, end in zip(rows, starts, ends, strict=True):
        while around and around[-1][1] <= start:
            around.pop()
        found.append(around[-1][0] if around else NONE)
        around.append((row, end))
    return found
