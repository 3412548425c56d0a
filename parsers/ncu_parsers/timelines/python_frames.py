"""Python functions on the threads of a trace, and which of them was innermost when something was launched.

Frames of one thread nest like calls. Only those that can be a location are kept: of a trace with stacks most events are
frames, and most of those are of PyTorch or built-in functions.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from ncu_parsers.derived.operators.python_locations import Location, location_in

Moment = tuple[Hashable, float]
"""A thread, and a time on it in the unit of the trace."""

_MOST_NAMES = 1 << 20
"""Names of frames whose location is remembered; a program has fewer functions."""


class _Frame(NamedTuple):
    start: float
    location: Location


class PythonFrames:
    """The frames of a trace that can be a location. `seen` counts all frames that were given."""

    def __init__(self) -> None:
        self.seen = 0
        self._locations: list[Location] = []
        self._known: dict[str, int] = {}
        self._threads: dict[Hashable, tuple[array[float], array[float], array[int]]] = {}

    def take(self, thread: Hashable, start: float, duration: float, name: str) -> bool:
        """Add a frame as the profiler names it, in any order; False for one that cannot be a location."""
        self.seen += 1
        number = -1 if name.startswith("<") else self._known.get(name)
        if number is None:
            number = self._number_of(name)
        if number < 0:
            return False
        starts, ends, numbers = self._threads.setdefault(thread, (array("d"), array("d"), array("l")))
        starts.append(start)
        ends.append(start + duration)
        numbers.append(number)
        return True

    def _number_of(self, name: str) -> int:
        location = location_in(name)
        number = -1
        if location is not None:
            number = len(self._locations)
            self._locations.append(location)
        if len(self._known) < _MOST_NAMES:
            self._known[name] = number
        return number

    def innermost(self, moments: Sequence[Moment | None]) -> list[_Frame | None]:
        """For each moment the innermost frame that is open then, first and last instant included; None without one."""
        found: list[_Frame | None] = [None] * len(moments)
        by_thread: dict[Hashable, list[int]] = {}
        for place, moment in enumerate(moments):
            if moment is not None and moment[0] in self._threads:
                by_thread.setdefault(moment[0], []).append(place)
        for thread, places in by_thread.items():
            starts, ends, numbers = self._sorted(thread)
            parents = _parents(starts, ends)
            for place in places:
                time = moments[place][1]  # type: ignore[index]  # places of None are left out above
                at = bisect_right(starts, time) - 1
                while at >= 0 and ends[at] < time:
                    at = parents[at]
                if at >= 0:
                    found[place] = _Frame(starts[at], self._locations[numbers[at]])
        return found

    def _sorted(self, thread: Hashable) -> tuple[list[float], list[float], list[int]]:
        """Starts, ends and numbers of a thread's frames by start, of equal starts the longest first."""
        starts, ends, numbers = (np.array(column) for column in self._threads[thread])
        order = np.lexsort((-ends, starts))
        return starts[order].tolist(), ends[order].tolist(), numbers[order].tolist()


def _parents(starts: Sequence[float], ends: Sequence[float]) -> list[int]:
    """For each frame, sorted by start, the index of the innermost one that it starts in; -1 for none."""
    parents: list[int] = []
    at = -1
    for place, start in enumerate(starts):
        at = place - 1
        while at >= 0 and ends[at] <= start:
            at = parents[at]
        parents.append(at)
    return parents
