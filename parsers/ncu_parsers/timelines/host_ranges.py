"""Ranges of a host thread, and which of them are open at a given time, outermost first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

DEEPEST = 100
"""Of more open ranges only the innermost are kept: a program that never ends its ranges has no useful path. Used for
timelines of every tool."""

OPERATOR, ANNOTATION, MODULE = "operator", "annotation", "module"
"""Kinds of ranges in traces of PyTorch's profiler."""


class HostRange(NamedTuple):
    """A time range of a thread; times in any single unit. `kind` and `what` are set by the creator."""

    start: float
    duration: float
    kind: str
    name: str
    what: Any = None

    @property
    def end(self) -> float:
        """The end time."""
        return self.start + self.duration


class ThreadRanges:
    """The ranges of one thread, which nest like calls. `too_deep` counts results cut to `DEEPEST` ranges."""

    def __init__(self, ranges: Sequence[HostRange]) -> None:
        self.ranges = sorted(ranges, key=lambda one: (one.start, -one.duration))
        self.too_deep = 0

    def around(self, moments: Sequence[float]) -> list[list[HostRange]]:
        """For each moment, the ranges open then (first and last instant included), outermost first.

        Only the innermost `DEEPEST` are kept. One pass over all ranges and moments in order.
        """
        found: list[list[HostRange]] = [[] for _ in moments]
        begun = 0
        open_ranges: list[HostRange] = []
        for place in sorted(range(len(moments)), key=moments.__getitem__):
            moment = moments[place]
            while begun < len(self.ranges) and self.ranges[begun].start <= moment:
                while open_ranges and open_ranges[-1].end <= self.ranges[begun].start:
                    open_ranges.pop()
                open_ranges.append(self.ranges[begun])
                begun += 1
            innermost: list[HostRange] = []
            while open_ranges and len(innermost) <= DEEPEST:
                one = open_ranges.pop()
                if one.end >= moment:
                    innermost.append(one)
            innermost.reverse()
            open_ranges += innermost
            found[place] = self._kept(innermost)
        return found

    def _kept(self, path: list[HostRange]) -> list[HostRange]:
        self.too_deep += len(path) > DEEPEST
        return path[-DEEPEST:]
