"""Kernels of replayed graphs with the operators and modules of the capture whose trace the user named."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ncu_parsers.derived.operators import graph_captures
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.kineto.host_threads import HostCall, NestedRanges
from ncu_parsers.timelines.kineto.places import Places, first_calls, places_of_calls
from ncu_parsers.timelines.kineto.traced_events import KERNEL, MISSING, TracedEvents

Captured = dict[int, list[tuple[int, HostCall]]]
"""Row of a kernel -> place in the capture's trace, and call, of each operator around its launch, outermost first."""


def replayed(events: TracedEvents) -> npt.NDArray[np.bool_]:
    """Which GPU work ran as part of a graph that was captured before."""
    graphs = events.calls["correlation"][events.calls["is_graph"] != 0]
    found: npt.NDArray[np.bool_] = (events.work["graph_node"] != MISSING) | np.isin(events.work["correlation"], graphs)
    return found


def take_captured(events: TracedEvents, ranges: NestedRanges, places: Places, path: str) -> Captured:
    """Give kernels of replayed graphs the operators and modules of the capture `path`; where these were found.

    {} if `path` is "". Raises `NcuBenchError` if the capture cannot be read.
    """
    captured: Captured = {}
    if not path:
        return captured
    graphs: dict[int, list[int]] = {}
    work, known = events.work, list(events.launched)
    for row in np.flatnonzero(replayed(events) & (work["correlation"] != MISSING)).tolist():
        if known[work["launched"][row]].operation == KERNEL:
            graphs.setdefault(int(work["correlation"][row]), []).append(row)
    for rows in graphs.values():
        rows.sort(key=work["start"].__getitem__)
        capture = _captured(path)
        launched = [known[work["launched"][row]] for row in rows]
        kernels = [graph_captures.Kernel(one.name, one.grid) for one in launched]
        for row, found in zip(rows, capture.places_of(kernels), strict=False):
            there = [one for one in found if capture.where.context[one] != MISSING]
            if there and places.context[row] != MISSING:
                captured[row] = capture.give(there, row, places, ranges)
    return captured


class _Captured(graph_captures.Capture):
    """The launches of a capture's trace; `where` are their places."""

    def __init__(self, events: TracedEvents) -> None:
        work, calls, launched = events.work, events.calls, list(events.launched)
        names: dict[int, graph_captures.Kernel] = {}
        for row in np.flatnonzero(~replayed(events) & (work["correlation"] != MISSING)).tolist():
            one = launched[work["launched"][row]]
            if one.operation == KERNEL:
                names[int(work["correlation"][row])] = graph_captures.Kernel(one.name, one.grid)
        named = list(events.kernels)
        for row in np.flatnonzero(calls["kernel"] != MISSING).tolist():
            names[int(calls["correlation"][row])] = named[calls["kernel"][row]]
        wanted = np.array(list(names), np.int64)
        first = first_calls(calls["correlation"], wanted)
        found = np.flatnonzero(first >= 0)
        ordered = found[np.argsort(calls["start"][first[found]], kind="stable")]
        self._ranges = events.host.nested()
        self.where = places_of_calls(calls, self._ranges, wanted[ordered])
        kernels = list(names.values())
        super().__init__([kernels[one] for one in ordered.tolist()], [self._text(one) for one in range(len(ordered))])

    def _text(self, launch: int) -> object:
        """The operator of a launch, as far as launches of other layers have the same."""
        place = int(self.where.operator[launch])
        if place < 0:
            return None
        call = self._ranges.calls[self._ranges.call[place]]
        number = int(self._ranges.number[place])
        return call.name, call.inputs, number if number < MISSING else None

    def give(self, launches: list[int], row: int, places: Places, ranges: NestedRanges) -> list[tuple[int, HostCall]]:
        """Put a row where its kernel was launched, with the annotations around its replay; the operators there."""
        mine, contexts = self._ranges, self._ranges.contexts.known
        codes = [int(self.where.context[one]) for one in launches]
        there = contexts[codes[0]]
        alike = len({contexts[code].modules for code in codes}) == 1
        here = ranges.contexts.known[places.context[row]]
        context = there._replace(annotations=here.annotations, modules=there.modules if alike else ())
        places.context[row] = ranges.contexts.code(context)
        around = self.where.operators_around(launches[0], mine)
        operators = [(place, mine.calls[mine.call[place]]) for place in around]
        places.call[row] = ranges.call_code(operators[-1][1]) if operators else MISSING
        return operators


@lru_cache(maxsize=2)
def _captured(path: str) -> _Captured:
    """Raises `NcuBenchError` where the file cannot be read."""
    return _Captured(TracedEvents(Source(path)))
