"""What a thread of the host was doing at a moment: the ranges around it, outermost first."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple


class HostRange(NamedTuple):
    """A stretch of a thread's time, in any one unit. `kind` and `what` are the maker's own."""

    start: float
    duration: float
    kind: str
    name: str
    what: Any = None

    @property
    def end(self) -> float:
        """Its last instant."""
        return self.start + self.duration


class ThreadRanges:
    """The ranges of one thread, which nest as calls do."""

    def __init__(self, ranges: Sequence[HostRange]) -> None:
        self.ranges = sorted(ranges, key=lambda one: (one.start, -one.duration))
        self._starts = [one.start for one in self.ranges]
        self._parents = _parents(self.ranges)

    def around(self, moment: float) -> list[HostRange]:
        """The ranges that are open at `moment`, their first and last instant included, outermost first."""
        return [one for one in self._outwards(bisect_right(self._starts, moment) - 1) if one.end >= moment][::-1]

    def above(self, place: int) -> list[HostRange]:
        """The ranges that the one at `place` stands in, outermost first."""
        return self._outwards(self._parents[place])[::-1]

    def own_times(self, kind: str) -> list[float]:
        """What is left of each range without the ranges of `kind` that it directly encloses, and never less than 0."""
        left = [one.duration for one in self.ranges]
        for place, one in enumerate(self.ranges):
            parent = self._parents[place]
            while parent >= 0 and self.ranges[parent].kind != kind:
                parent = self._parents[parent]
            if one.kind == kind and parent >= 0:
                left[parent] -= one.duration - max(one.end - self.ranges[parent].end, 0.0)
        return [max(time, 0.0) for time in left]

    def _outwards(self, place: int) -> list[HostRange]:
        found = []
        while place >= 0:
            found.append(self.ranges[place])
            place = self._parents[place]
        return found


def _parents(ranges: Sequence[HostRange]) -> list[int]:
    """For each range, in order of their starts, the place of the innermost one that it begins in; -1 for none."""
    parents: list[int] = []
    open_ranges: list[int] = []
    for place, one in enumerate(ranges):
        while open_ranges and ranges[open_ranges[-1]].end <= one.start:
            open_ranges.pop()
        parents.append(open_ranges[-1] if open_ranges else -1)
        open_ranges.append(place)
    return parents
