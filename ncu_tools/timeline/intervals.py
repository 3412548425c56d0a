"""Sets of moments in whole nanoseconds, as sorted intervals that do not touch: unions, differences, exact lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

AT_ONCE = 1 << 17
"""Number of intervals combined at once, since intermediate arrays take several times their memory."""


def grouped(number: npt.NDArray[Any]) -> list[Integers]:
    """The row numbers of each distinct value in a column, in ascending order of the values."""
    rows = np.argsort(number, kind="stable")
    return np.split(rows, np.flatnonzero(np.diff(number[rows])) + 1) if len(rows) else []


@dataclass(frozen=True)
class IntervalSet:
    """A set of moments as half-open intervals [start, end) in int64 ns: sorted, at least 1 ns long, not touching."""

    start: Integers
    end: Integers

    @classmethod
    def union_of(cls, start: Integers, end: Integers) -> IntervalSet:
        """The union of intervals, which may overlap; empty intervals are left out."""
        some = end > start
        if not some.all():
            start, end = start[some], end[some]
        if not len(start):
            return NOTHING
        if (start[1:] < start[:-1]).any():
            order = np.argsort(start, kind="stable")
            start, end = start[order], end[order]
        reached = np.maximum.accumulate(end)
        begins = np.concatenate([[True], start[1:] > reached[:-1]])
        lasts = np.concatenate([begins[1:], [True]])
        return cls(start[begins], reached[lasts])

    @classmethod
    def union_at(cls, start: Integers, end: Integers, rows: npt.NDArray[Any]) -> IntervalSet:
        """The union of the intervals in some rows, in blocks, since there may be millions."""
        blocks = [rows[first : first + AT_ONCE] for first in range(0, len(rows), AT_ONCE)]
        return cls._joined([cls.union_of(start[block], end[block]) for block in blocks])

    @classmethod
    def _joined(cls, parts: Sequence[IntervalSet]) -> IntervalSet:
        """The union of a few sets."""
        parts = [one for one in parts if len(one)]
        if len(parts) < 2:
            return parts[0] if parts else NOTHING
        return cls.union_of(np.concatenate([one.start for one in parts]), np.concatenate([one.end for one in parts]))

    @classmethod
    def between(cls, start: int, end: int) -> IntervalSet:
        """The set of one interval."""
        return cls.union_of(np.array([start], np.int64), np.array([end], np.int64))

    @classmethod
    def only_in_one(cls, sets: Sequence[IntervalSet]) -> IntervalSet:
        """The moments that belong to exactly one of the sets."""
        edges = np.concatenate([*(one.start for one in sets), *(one.end for one in sets)] or [NOTHING.start])
        order = np.argsort(edges, kind="stable")
        is_one = np.cumsum(np.where(order < len(edges) // 2, np.int32(1), np.int32(-1)), dtype=np.int32)[:-1] == 1
        edges = edges[order]
        return cls.union_of(edges[:-1][is_one], edges[1:][is_one])

    def __len__(self) -> int:
        return len(self.start)

    @property
    def total(self) -> int:
        """The length of all intervals in ns."""
        return int((self.end - self.start).sum())

    def __and__(self, other: IntervalSet) -> IntervalSet:
        return self._where(other, lambda here, there: here & there)

    def __or__(self, other: IntervalSet) -> IntervalSet:
        return self._joined([self, other])

    def __sub__(self, other: IntervalSet) -> IntervalSet:
        return self._where(other, lambda here, there: here & ~there)

    def within(self, start: Integers, end: Integers) -> Integers:
        """The length in ns of the set within each interval [start, end) (int64, one per interval)."""
        return self.before(end) - self.before(start)

    def before(self, moments: Integers) -> Integers:
        """The length in ns of the set before each moment (int64, one per moment)."""
        if not len(self):
            return np.zeros(len(moments), np.int64)
        lengths = self.end - self.start
        passed = np.concatenate([[0], np.cumsum(lengths)])
        place = np.searchsorted(self.start, moments, side="right")
        inside = np.maximum(self.end[np.maximum(place, 1) - 1] - moments, 0)
        return np.where(place > 0, passed[place] - inside, 0)

    def holds(self, moments: Integers) -> Mask:
        """Mask of the moments that belong to the set (bool, one per moment)."""
        if not len(self):
            return np.zeros(len(moments), np.bool_)
        place = np.searchsorted(self.start, moments, side="right")
        inside: Mask = (place > 0) & (moments < self.end[np.maximum(place, 1) - 1])
        return inside

    def touches(self, start: Integers, end: Integers) -> Mask:
        """Mask of the spans from `start` to `end` that begin in the set or reach into it (bool, one per span)."""
        reaches: Mask = np.searchsorted(self.start, end) > np.searchsorted(self.start, start, side="right")
        return self.holds(start) | reaches

    def _where(self, other: IntervalSet, rule: Callable[[Mask, Mask], Mask]) -> IntervalSet:
        """The moments of this set at which `rule` is true of being in this set and in the other set."""
        parts = []
        for first in range(0, len(self), AT_ONCE):
            mine = IntervalSet(self.start[first : first + AT_ONCE], self.end[first : first + AT_ONCE])
            near = slice(
                int(np.searchsorted(other.end, mine.start[0], side="right")),
                int(np.searchsorted(other.start, mine.end[-1])),
            )
            parts.append(mine._all_where(IntervalSet(other.start[near], other.end[near]), rule))
        return self._joined(parts)

    def _all_where(self, other: IntervalSet, rule: Callable[[Mask, Mask], Mask]) -> IntervalSet:
        edges = np.concatenate([self.start, self.end, other.start, other.end])
        edges.sort(kind="stable")  # four sorted runs, which a stable sort merges
        edges = edges[np.concatenate([[True], edges[1:] != edges[:-1]])]
        chosen = rule(self.holds(edges), other.holds(edges))[:-1]
        return IntervalSet.union_of(edges[:-1][chosen], edges[1:][chosen])


NOTHING = IntervalSet(np.zeros(0, np.int64), np.zeros(0, np.int64))
