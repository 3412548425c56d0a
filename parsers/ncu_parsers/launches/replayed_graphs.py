"""Give kernels of replayed graphs the operators and modules of the capture whose trace the user named."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ncu_parsers.derived.operators import graph_captures
from ncu_parsers.launches.nested_ranges import Captured, HostCall, NestedRanges
from ncu_parsers.launches.places import Places, places_of_calls
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity.activity import KERNEL, MISSING, Activity, GpuOperations

GRAPH_LAUNCH = "GraphLaunch"
"""Part of the names of calls that launch a whole graph: cudaGraphLaunch, hipGraphLaunch."""

Mask = npt.NDArray[np.bool_]


def replayed(found: Activity, operations: GpuOperations) -> Mask:
    """Mask of operations that ran as part of a previously captured graph."""
    is_graph = np.array([GRAPH_LAUNCH in name for name in found.calls.names], np.bool_)
    graphs = found.calls.correlation[is_graph[found.calls.name]]
    by_number = np.isin(operations.correlation, graphs[graphs != MISSING])
    found_there: Mask = (operations.graph_node != MISSING) | by_number
    return found_there


def take_captured(
    operations: GpuOperations, grids: Callable[[int], graph_captures.Grid], is_replayed: Mask, ranges: NestedRanges,
    places: Places, capture: Callable[[], CapturedLaunches],
) -> Captured:  # fmt: skip
    """Give kernels of replayed graphs the operators and modules of their capture; returns the operators found.

    `grids` returns the grid of an operation. Raises `NcuBenchError` if the capture cannot be read.
    """
    captured: Captured = {}
    graphs: dict[int, list[int]] = {}
    is_kernel = is_replayed & (operations.correlation != MISSING) & (operations.kind == KERNEL)
    for row in np.flatnonzero(is_kernel).tolist():
        graphs.setdefault(int(operations.correlation[row]), []).append(row)
    for rows in graphs.values():
        rows.sort(key=operations.start.__getitem__)
        known = capture()
        kernels = [graph_captures.Kernel(operations.names[operations.name[row]], grids(row)) for row in rows]
        for row, found in zip(rows, known.places_of(kernels), strict=False):
            there = [one for one in found if known.where.context[one] >= 0]
            if there and places.context[row] >= 0:
                captured[row] = known.give(there, row, places, ranges)
    return captured


class CapturedLaunches(graph_captures.Capture):
    """The launches in a capture's trace with the operator of each; `where` has their places on the host."""

    def __init__(self, found: Activity) -> None:
        operations, calls = found.operations, found.calls
        fact = np.zeros(len(operations), np.int64) if found.fact is None else found.fact
        names: dict[int, graph_captures.Kernel] = {}
        own = ~replayed(found, operations) & (operations.correlation != MISSING) & (operations.kind == KERNEL)
        for row in np.flatnonzero(own).tolist():
            name = operations.names[operations.name[row]]
            names[int(operations.correlation[row])] = graph_captures.Kernel(name, found.facts[fact[row]].grid)
        for row in np.flatnonzero((calls.kernel != MISSING) & (calls.correlation != MISSING)).tolist():
            names[int(calls.correlation[row])] = graph_captures.Kernel(*calls.kernels[calls.kernel[row]])
        first: dict[int, int] = {}
        for row in np.flatnonzero(np.isin(calls.correlation, list(names))).tolist():
            first.setdefault(int(calls.correlation[row]), row)
        self._ranges = NestedRanges(found.ranges)
        self.where = places_of_calls(calls, self._ranges, np.array(list(first.values()), np.int64))
        super().__init__([names[one] for one in first], [self._text(one) for one in range(len(first))])

    def _text(self, launch: int) -> object:
        """The operator of a launch, without details that differ between repeated layers."""
        place = int(self.where.operator[launch])
        if place < 0:
            return None
        call = self._ranges.calls[self._ranges.call[place]]
        number = int(self._ranges.number[place])
        return call.name, call.inputs, number if MISSING < number < -1 else None

    def give(self, launches: list[int], row: int, places: Places, ranges: NestedRanges) -> list[tuple[int, HostCall]]:
        """Place a row at its kernel's launch in the capture, with the replay's annotations; returns the operators."""
        mine, contexts = self._ranges, self._ranges.contexts.known
        codes = [int(self.where.context[one]) for one in launches]
        there = contexts[codes[0]]
        alike = len({contexts[code].modules for code in codes}) == 1
        here = ranges.contexts.known[places.context[row]]
        context = there._replace(annotations=here.annotations, modules=there.modules if alike else ())
        places.context[row] = ranges.contexts.code(context)
        around = self.where.operators_around(launches[0], mine)
        operators = [(place, mine.calls[mine.call[place]]) for place in around]
        places.call[row] = ranges.call_code(operators[-1][1]) if operators else -1
        return operators


@lru_cache(maxsize=2)
def captured_launches(path: str, read: Callable[[Source], Activity]) -> CapturedLaunches:
    """The launches of a capture. Raises `NcuBenchError` if the file cannot be read."""
    return CapturedLaunches(read(Source(path)))
