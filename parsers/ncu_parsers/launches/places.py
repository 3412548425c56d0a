"""Host origin of a trace's rows: the ranges open around the launching call, or around the operator that is the row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ncu_parsers.launches.host_ranges import DEEPEST
from ncu_parsers.launches.nested_ranges import CUT, OUTSIDE, NestedRanges
from ncu_parsers.timelines.activity.activity import MISSING, ApiCalls, Codes, Integers, Owner


@dataclass
class Places:
    """One value per row: thread and time in ns of its call (-1 and `MISSING` if unknown), and the context there.

    Threads are indices into the owners of ranges; a thread without ranges has a higher number. `operator` is the index
    of the innermost operator among the ranges, `call` its call; -1 for none. `paths` lists the open operators of rows
    for which the open ranges are not all ancestors of the innermost one. `too_deep` is the number of rows with more
    than `DEEPEST` open ranges.
    """

    rows: int
    thread: npt.NDArray[np.int64] = field(init=False)
    moment: npt.NDArray[np.int64] = field(init=False)
    context: npt.NDArray[np.int32] = field(init=False)
    operator: npt.NDArray[np.int64] = field(init=False)
    call: npt.NDArray[np.int32] = field(init=False)
    paths: dict[int, list[int]] = field(default_factory=dict)
    too_deep: int = 0

    def __post_init__(self) -> None:
        self.thread, self.operator = np.full((2, self.rows), -1)
        self.context, self.call = np.full((2, self.rows), -1, np.int32)
        self.moment = np.full(self.rows, MISSING)

    def put_path(self, row: int, path: list[int], ranges: NestedRanges) -> None:
        """Set the ranges around a row, outermost first; the innermost `DEEPEST` are kept."""
        self.too_deep += len(path) > DEEPEST
        path = path[-DEEPEST:]
        self.context[row] = ranges.context_of(path)
        operators = [place for place, inner in zip(path, ranges.operator[path].tolist(), strict=True) if inner == place]
        self.paths[row], self.operator[row] = operators, operators[-1] if operators else -1

    def operators_around(self, row: int, ranges: NestedRanges) -> list[int]:
        """Indices of the operators around a row, outermost first."""
        if row in self.paths:
            return self.paths[row]
        found = []
        place = int(self.operator[row])
        while place >= 0:
            found.append(place)
            above = ranges.above[place]
            place = int(ranges.operator[above]) if above >= 0 else -1
        return found[::-1]


def places_of_calls(calls: ApiCalls, ranges: NestedRanges, call: Integers) -> Places:
    """The places of the calls that launched each row; `call` is the index of a row's call, -1 for none."""
    owner, start = np.append(calls.owner, -1), np.append(calls.start, MISSING)
    return places_at(calls.owners, owner[call], start[call], ranges)


def places_at(owners: Sequence[Owner], owner: Codes, moment: Integers, ranges: NestedRanges) -> Places:
    """The places of moments on threads: `owner` indexes `owners`, -1 if unknown."""
    places = Places(len(owner))
    numbers = {one: number for number, one in enumerate(ranges.owners)}
    number_of = np.array([numbers.setdefault(one, len(numbers)) for one in owners], np.int64)
    there = np.flatnonzero(owner >= 0)
    places.thread[there], places.moment[there] = number_of[owner[there]], moment[there]
    places.context[there] = OUTSIDE
    order = there[np.lexsort((places.moment[there], places.thread[there]))]
    for rows in np.split(order, np.flatnonzero(np.diff(places.thread[order])) + 1):
        if len(rows) and places.thread[rows[0]] < len(ranges.owners):
            found, paths = ranges.open_at(int(places.thread[rows[0]]), places.moment[rows])
            inside = found >= 0
            places.context[rows[inside]] = ranges.context[found[inside]]
            places.operator[rows[inside]] = ranges.operator[found[inside]]
            for at, path in paths:
                places.put_path(int(rows[at]), path, ranges)
    return _with_calls(places, ranges)


def places_of_operators(ranges: NestedRanges, operators: Integers) -> Places:
    """The places of operators that are rows themselves; an operator counts as open around itself."""
    places = Places(len(operators))
    places.thread, places.moment = ranges.owner_of(operators), ranges.start[operators]
    places.context, places.operator[:] = ranges.context[operators], operators
    for row in np.flatnonzero(places.context == CUT).tolist():
        places.put_path(row, ranges.path_to(int(operators[row])), ranges)
        places.too_deep += 1
    return _with_calls(places, ranges)


def _with_calls(places: Places, ranges: NestedRanges) -> Places:
    inside = places.operator >= 0
    places.call[inside] = ranges.call[places.operator[inside]]
    return places
