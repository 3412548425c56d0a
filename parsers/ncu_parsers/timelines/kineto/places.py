"""Where on the host the rows of a trace come from: the ranges open around the call that launched each, or around it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ncu_parsers.timelines.host_ranges import DEEPEST
from ncu_parsers.timelines.kineto.host_threads import CUT, OUTSIDE, Integers, NestedRanges
from ncu_parsers.timelines.kineto.traced_events import MISSING, Columns


@dataclass
class Places:
    """A value per row: thread and moment of its call (-1 and NaN where the trace lacks it), and the context there.

    `operator` is the place of the innermost operator among the ranges, `call` what that is; -1 for none. `paths` lists
    the ranges around rows around which not all ranges above the innermost are meant.
    """

    rows: int
    thread: npt.NDArray[np.int64] = field(init=False)
    moment: npt.NDArray[np.float64] = field(init=False)
    context: npt.NDArray[np.int32] = field(init=False)
    operator: npt.NDArray[np.int64] = field(init=False)
    call: npt.NDArray[np.int32] = field(init=False)
    paths: dict[int, list[int]] = field(default_factory=dict)
    too_deep: int = 0

    def __post_init__(self) -> None:
        self.thread, self.operator = np.full((2, self.rows), MISSING)
        self.context, self.call = np.full((2, self.rows), MISSING, np.int32)
        self.moment = np.full(self.rows, np.nan)

    def put_path(self, row: int, path: list[int], ranges: NestedRanges) -> None:
        """Say that the ranges around a row are these, outermost first, of which the innermost `DEEPEST` are kept."""
        self.too_deep += len(path) > DEEPEST
        self.paths[row] = path = path[-DEEPEST:]
        self.context[row] = ranges.context_of(path)
        operators = [place for place in path if ranges.operator[place] == place]
        self.operator[row] = operators[-1] if operators else MISSING

    def operators_around(self, row: int, ranges: NestedRanges) -> list[int]:
        """The places of the operators around a row, outermost first."""
        if row in self.paths:
            return [place for place in self.paths[row] if ranges.operator[place] == place]
        found = []
        place = int(self.operator[row])
        while place >= 0:
            found.append(place)
            above = ranges.above[place]
            place = int(ranges.operator[above]) if above >= 0 else MISSING
        return found[::-1]


def places_of_calls(
    calls: Columns, ranges: NestedRanges, correlation: Integers, first: Integers | None = None
) -> Places:
    """For each correlation id the place of its call: of `first`, else the first in the file that has it."""
    places = Places(len(correlation))
    if first is None:
        first = first_calls(calls["correlation"], correlation)
    there = np.flatnonzero(first >= 0)
    places.thread[there] = calls["thread"][first[there]]
    places.moment[there] = calls["start"][first[there]]
    order = there[np.lexsort((places.moment[there], places.thread[there]))]
    for rows in np.split(order, np.flatnonzero(np.diff(places.thread[order])) + 1):
        if len(rows):
            opened = ranges.open_at(int(places.thread[rows[0]]), places.moment[rows])
            for row, (place, path) in zip(rows.tolist(), opened, strict=True):
                if path is not None:
                    places.put_path(row, path, ranges)
                elif place >= 0:
                    places.context[row], places.operator[row] = ranges.context[place], ranges.operator[place]
                else:
                    places.context[row] = OUTSIDE
    return _with_calls(places, ranges)


def first_calls(known: Integers, wanted: Integers) -> npt.NDArray[np.int64]:
    """For each wanted id its first place among the known ones; -1 for none, and for ids that are `MISSING`."""
    if not len(known):
        return np.full(len(wanted), MISSING)
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    found = order[at]
    return np.where((known[found] == wanted) & (wanted != MISSING), found, MISSING)


def places_of_operators(ranges: NestedRanges, operators: Integers) -> Places:
    """The places of operators that are rows themselves: each stands in the ranges around it, and in itself."""
    places = Places(len(operators))
    places.thread, places.moment = ranges.thread_of(operators), ranges.start[operators]
    places.context, places.operator[:] = ranges.context[operators], operators
    for row in np.flatnonzero(places.context == CUT).tolist():
        places.put_path(row, ranges.path_to(int(operators[row])), ranges)
        places.too_deep += 1
    return _with_calls(places, ranges)


def _with_calls(places: Places, ranges: NestedRanges) -> Places:
    inside = places.operator >= 0
    places.call[inside] = ranges.call[places.operator[inside]]
    return places
