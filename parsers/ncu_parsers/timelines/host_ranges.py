"""Ranges of a host thread, and which of them are open at a given time, outermost first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from ncu_launch.nvtx_ranges import RUN_PHASES

DEEPEST = 100
"""Of more open ranges only the innermost are kept: a program that never ends its ranges has no useful path. Used for
timelines of every tool."""

OPERATOR, ANNOTATION, MODULE = "operator", "annotation", "module"
"""Kinds of ranges in traces of PyTorch's profiler."""

OPTIMIZER_PREFIX = "Optimizer.step#"
BACKWARD_PREFIX = "autograd::engine::evaluate_function"
STEP_PREFIX = "ProfilerStep#"


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


class HostPlace(NamedTuple):
    """Where on the host a row comes from."""

    thread: tuple[Any, Any]
    moment: float
    ranges: Sequence[HostRange]

    def innermost(self, kind: str) -> HostRange | None:
        """The innermost range of a kind, if there is one."""
        return next((one for one in reversed(self.ranges) if one.kind == kind), None)

    def path(self, kind: str) -> tuple[str, ...]:
        """The names of the ranges of a kind, outermost first."""
        return tuple(one.name for one in self.ranges if one.kind == kind)

    def phase(self) -> str | None:
        """Forward, backward or optimizer, where a range says so; modules that the backward pass recomputes are its."""
        annotations = self.path(ANNOTATION)
        if any(name.startswith(OPTIMIZER_PREFIX) for name in annotations):
            return "optimizer"
        if any(name.startswith(BACKWARD_PREFIX) for name in self.path(OPERATOR)):
            return "backward"
        named = [name for name in annotations if name in RUN_PHASES]
        if named:
            return named[-1]
        return "forward" if self.innermost(MODULE) else None


class ThreadRanges:
    """The ranges of one thread, which nest like calls. `too_deep` counts results cut to `DEEPEST` ranges."""

    def __init__(self, ranges: Sequence[HostRange]) -> None:
        self.ranges = sorted(ranges, key=lambda one: (one.start, -one.duration))
        self.too_deep = 0
        self._parents = _parents(self.ranges)

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

    def path_to(self, place: int) -> list[HostRange]:
        """The ranges around the one at index `place`, and itself, outermost first; only the innermost `DEEPEST`."""
        found: list[HostRange] = []
        while place >= 0 and len(found) <= DEEPEST:
            found.append(self.ranges[place])
            place = self._parents[place]
        return self._kept(found[::-1])

    def own_times(self, kind: str) -> list[float]:
        """Duration of each range minus ranges of `kind` that it directly encloses, at least 0, in the input's unit."""
        left = [one.duration for one in self.ranges]
        enclosing: list[int] = []
        for one, parent in zip(self.ranges, self._parents, strict=True):
            above = parent if parent < 0 or self.ranges[parent].kind == kind else enclosing[parent]
            enclosing.append(above)
            if one.kind == kind and above >= 0:
                left[above] -= one.duration - max(one.end - self.ranges[above].end, 0.0)
        return [max(time, 0.0) for time in left]

    def _kept(self, path: list[HostRange]) -> list[HostRange]:
        self.too_deep += len(path) > DEEPEST
        return path[-DEEPEST:]


def _parents(ranges: Sequence[HostRange]) -> list[int]:
    """For each range, sorted by start, the index of the innermost range that it starts in; -1 for none."""
    parents: list[int] = []
    open_ranges: list[int] = []
    for place, one in enumerate(ranges):
        while open_ranges and ranges[open_ranges[-1]].end <= one.start:
            open_ranges.pop()
        parents.append(open_ranges[-1] if open_ranges else -1)
        open_ranges.append(place)
    return parents


def steps_of(ranges: Iterable[HostRange]) -> list[tuple[float, float, int]]:
    """Start, end and number of every step that the profiler was told of. Steps hold for all threads."""
    steps = []
    for one in ranges:
        number = one.name.removeprefix(STEP_PREFIX)
        if one.kind == ANNOTATION and number != one.name and number.isdecimal() and len(number) < 10:
            steps.append((one.start, one.end, int(number)))
    return sorted(steps)


def iterations_of(places: Sequence[HostPlace | None], steps: Sequence[tuple[float, float, int]]) -> list[int | None]:
    """The step in which each place lies, None outside of all."""
    starts = np.array([start for start, _, _ in steps])
    moments = np.array([math.nan if place is None else place.moment for place in places])
    at = np.searchsorted(starts, moments, side="right") - 1
    found: list[int | None] = []
    for moment, step in zip(moments.tolist(), at.tolist(), strict=True):
        inside = step >= 0 and moment <= steps[step][1]  # False where the moment is not known
        found.append(steps[step][2] if inside else None)
    return found
