"""Sets of moments in whole nanoseconds, as sorted intervals that do not touch: unions, differences, exact lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

FIRST, LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
AT_ONCE = 1 << 15
"""Number of intervals combined at once, since intermediate arrays take several times their memory."""


def grouped(number: npt.NDArray[Any]) -> list[npt.NDArray[np.int32]]:
    """The row numbers of each distinct value in a column, in ascending order of the values."""
    rows = np.argsort(number, kind="stable").astype(np.int32)
    return np.split(rows, np.flatnonzero(np.diff(number[rows])) + 1) if len(rows) else []


@dataclass(frozen=True)
class IntervalSet:
    """A set of moments as half-open intervals [start, end) in int64 ns: sorted, at least 1 ns long, not touching."""

    start: Integers
    end: Integers

    @classmethod
    def union_of(cls, start: Integers, end: Integers) -> IntervalSet:
        """The union of intervals, which may overlap; empty intervals are left out."""
        blocks = in_blocks(start, end)
        if (start[1:] < start[:-1]).any():
            order = np.argsort(start, kind="stable").astype(np.int32)
            blocks = ((start[rows], end[rows]) for (rows,) in in_blocks(order))
        return cls._united(blocks, len(start))

    @classmethod
    def _united(cls, blocks: Iterable[tuple[Integers, Integers]], most: int) -> IntervalSet:
        """The union of blocks of intervals, at most so many, in order of their starts through all blocks."""
        starts, ends = np.empty(most, np.int64), np.empty(most + 1, np.int64)
        count, reached = 0, FIRST
        for start, end in blocks:
            some = end > start
            if not some.all():
                start, end = start[some], end[some]
            until = np.maximum.accumulate(np.append(reached, end))
            begins = start > until[:-1]
            first, count, reached = count, count + int(begins.sum()), until[-1]
            starts[first:count], ends[first:count] = start[begins], until[:-1][begins]
        ends[count] = reached  # each interval ends where all were over when the next one begins
        found = cls(starts[:count], ends[1 : count + 1])
        return found if 2 * count > most else cls(found.start.copy(), found.end.copy())

    @classmethod
    def union_at(cls, start: Integers, end: Integers, rows: npt.NDArray[Any], *, longest_gap: int = 0) -> IntervalSet:
        """The union of the intervals in some rows, which are in the order of their starts.

        Gaps of at most `longest_gap` ns belong to it.
        """
        lasting = (block[end[block] > start[block]] for (block,) in in_blocks(rows))
        found = cls._united(((start[block], end[block] + longest_gap) for block in lasting), len(rows))
        return cls(found.start, found.end - longest_gap) if longest_gap else found

    @classmethod
    def chained(cls, sets: Sequence[IntervalSet]) -> IntervalSet:
        """The union of sets, each of which begins where the one before ends or later."""
        return cls._united(((one.start, one.end) for one in sets), sum(map(len, sets)))

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
        if len(sets) < 2:
            return sets[0] if sets else NOTHING
        most = sum(map(len, sets))
        longest = max(sets, key=len).start
        cuts = [FIRST, *longest[AT_ONCE::AT_ONCE].tolist(), LAST]
        spans = ([one.split(start, end)[0] for one in sets] for start, end in pairwise(cuts))
        return cls._united(map(_in_one, spans), most + len(cuts))

    def __len__(self) -> int:
        return len(self.start)

    def split(self, start: int, end: int) -> tuple[IntervalSet, IntervalSet]:
        """The moments in [start, end) that belong to the set, and the others; both share their arrays."""
        if end <= start:
            return NOTHING, NOTHING
        here = self._near(start, end)
        starts = np.append(np.maximum(here.start, start), end)
        ends = np.append(start, np.minimum(here.end, end))
        others = slice(int(starts[0] == start), len(starts) - int(ends[-1] == end))
        return IntervalSet(starts[:-1], ends[1:]), IntervalSet(ends[others], starts[others])

    @property
    def total(self) -> int:
        """The length of all intervals in ns."""
        return int((self.end - self.start).sum())

    def __and__(self, other: IntervalSet) -> IntervalSet:
        if len(other) == 1 and len(self) and other.start[0] <= self.start[0] and self.end[-1] <= other.end[0]:
            return self  # all of it lies in a window
        return self._where(other, lambda here, there: here & there)

    def __or__(self, other: IntervalSet) -> IntervalSet:
        return self._joined([self, other])

    def __sub__(self, other: IntervalSet) -> IntervalSet:
        return self._where(other, lambda here, there: here & ~there)

    def within(self, start: Integers, end: Integers) -> Integers:
        """The length in ns of the set within each interval [start, end) (int64, one per interval).

        Many intervals in order take the least time, as those of a block need only what of the set is near them.
        """
        found = np.zeros(len(start), np.int64)
        for begin, until, those in in_blocks(start, end, found):
            near = self._near(int(begin.min()), int(until.max()))
            those[:] = near.before(until) - near.before(begin)
        return found

    def shared_with(self, other: IntervalSet) -> int:
        """The length in ns of the moments that belong to both sets."""
        return sum(int(self.within(start, end).sum()) for start, end in in_blocks(other.start, other.end))

    def _near(self, start: int, end: int) -> IntervalSet:
        """The intervals of the set that begin before `end` and end after `start`."""
        here = slice(int(np.searchsorted(self.end, start, side="right")), int(np.searchsorted(self.start, end)))
        return IntervalSet(self.start[here], self.end[here])

    def before(self, moments: Integers) -> Integers:
        """The length in ns of the set before each moment (int64, one per moment)."""
        if not len(self):
            return np.zeros(len(moments), np.int64)
        passed = np.append(0, np.cumsum(self.end - self.start))
        place = np.searchsorted(self.start, moments, side="right")
        inside = np.maximum(self.end[np.maximum(place, 1) - 1] - moments, 0)
        return np.where(place > 0, passed[place] - inside, 0)

    def holds(self, moments: Integers) -> Mask:
        """Mask of the moments that belong to the set (bool, one per moment)."""
        found = np.zeros(len(moments), np.bool_)
        for some, those in in_blocks(moments, found) if len(self) else ():
            place = np.searchsorted(self.start, some, side="right")
            those[:] = (place > 0) & (some < self.end[np.maximum(place, 1) - 1])
        return found

    def touches(self, start: Integers, end: Integers) -> Mask:
        """Mask of the spans from `start` to `end` that begin in the set or reach into it (bool, one per span)."""
        found = self.holds(start)
        for begin, until, those in in_blocks(start, end, found):
            those |= np.searchsorted(self.start, until) > np.searchsorted(self.start, begin, side="right")
        return found

    def _where(self, other: IntervalSet, rule: Callable[[Mask, Mask], Mask]) -> IntervalSet:
        """The moments of this set at which `rule` is true of being in this set and in the other set."""

        def parts() -> Iterator[tuple[Integers, Integers]]:
            for start, end in in_blocks(self.start, self.end):
                yield _all_where(IntervalSet(start, end), other._near(int(start[0]), int(end[-1])), rule)

        return self._united(parts(), len(self) + len(other))


def in_blocks(*columns: npt.NDArray[Any]) -> Iterator[Any]:
    """The rows of columns, `AT_ONCE` at a time."""
    for first in range(0, len(columns[0]), AT_ONCE):
        yield tuple(column[first : first + AT_ONCE] for column in columns)


def _all_where(mine: IntervalSet, other: IntervalSet, rule: Callable[[Mask, Mask], Mask]) -> tuple[Integers, Integers]:
    """The intervals, which may touch, in which `rule` is true of being in one set and in the other."""
    edges = np.concatenate([mine.start, mine.end, other.start, other.end])
    edges.sort(kind="stable")  # four sorted runs, which a stable sort merges
    chosen = rule(mine.holds(edges), other.holds(edges))[:-1]
    return edges[:-1][chosen], edges[1:][chosen]


def _in_one(sets: Sequence[IntervalSet]) -> tuple[Integers, Integers]:
    """The intervals, which may touch, that belong to exactly one of the sets."""
    edges = np.concatenate([*(one.start for one in sets), *(one.end for one in sets)])
    order = np.argsort(edges, kind="stable")
    is_one = np.cumsum(np.where(order < len(edges) // 2, np.int32(1), np.int32(-1)), dtype=np.int32)[:-1] == 1
    edges = edges[order]
    return edges[:-1][is_one], edges[1:][is_one]


NOTHING = IntervalSet(np.zeros(0, np.int64), np.zeros(0, np.int64))
