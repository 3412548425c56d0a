"""FLOPs and least bytes of a trace's rows, from the shapes of the launching operator, or of the row's own operator."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from ncu_launch.operators.calls import Formula

from ncu_parsers.derived.operators.work_from_shapes import (
    LaunchingOperator,
    RecordedInputs,
    WorkOfLaunches,
    work_of_cpu_operators,
    work_of_kernels,
)
from ncu_parsers.launches.nested_ranges import Captured, HostCall, NestedRanges
from ncu_parsers.launches.places import Places
from ncu_parsers.timelines.activity.activity import KERNEL, MISSING, GpuOperations, Integers


def work_of_operators(ranges: NestedRanges, operators: Integers, own: Mapping[str, Formula]) -> WorkOfLaunches:
    """The work of CPU operators, one per row. `own` are the user's formulas."""
    calls = ranges.call[operators].astype(np.int64)
    has_shapes = np.array([bool(call.inputs.shapes) for call in ranges.calls], np.bool_)[calls]
    nodes = np.where(has_shapes, -1, ranges.node_around(operators))
    forward = np.full(len(operators), -1)
    of_backward = np.flatnonzero(nodes >= 0)
    found = ranges.forward_of(-2 - ranges.number[nodes[of_backward]])
    forward[of_backward] = np.where(found >= 0, ranges.call[found], -1)
    pairs, code = np.unique(calls * (len(ranges.calls) + 1) + forward + 1, return_inverse=True)
    known_as = []
    for number, pair in enumerate(pairs.tolist()):
        call, with_forward = divmod(pair, len(ranges.calls) + 1)
        one, of = ranges.calls[call], ranges.calls[with_forward - 1] if with_forward else None
        known_as.append(LaunchingOperator(number, one.name, one.inputs, forward=of and (of.name, of.inputs)))
    row_of = np.full(len(ranges), -1)
    row_of[operators] = np.arange(len(operators))
    above = ranges.operator_above()[operators]
    return work_of_cpu_operators(known_as, code, np.where(above >= 0, row_of[above], -1), own)


def work_of_launches(
    operations: GpuOperations, replayed: npt.NDArray[np.bool_], ranges: NestedRanges, places: Places,
    captured: Captured, own: Mapping[str, Formula],
) -> WorkOfLaunches:  # fmt: skip
    """The work of GPU operations. A kernel of a graph that was `replayed` has work only if its capture is known."""
    names, numbers = operations.names, _CallNumbers(ranges, places)
    rows: list[LaunchingOperator | None] = [None] * places.rows
    columns = (operations.kind, operations.name, replayed, operations.correlation, places.operator)
    for row, (kind, name, is_of_graph, correlation, operator) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        kernel = names[name] if kind == KERNEL else ""
        if row in captured:
            rows[row] = numbers.of_capture(correlation, captured[row], kernel)
        elif not is_of_graph and operator >= 0:
            rows[row] = numbers.of_row(row, kernel)
    return work_of_kernels(rows, own)


class _CallNumbers:
    """Numbers of operator calls, in order of first use; each replay of a capture gets new numbers."""

    def __init__(self, ranges: NestedRanges, places: Places) -> None:
        self._ranges, self._places = ranges, places
        self._count = 0
        self._numbers = array("i", [-1]) * len(ranges)
        self._of_captures: dict[tuple[int, int], int] = {}
        self._known: dict[int, LaunchingOperator] = {}

    def of_capture(self, correlation: int, around: list[tuple[int, HostCall]], kernel: str) -> LaunchingOperator | None:
        """The captured call that launched a kernel of a replayed graph; None if no operator was around it."""
        if not around:
            return None
        for place, _ in around:
            if (correlation, place) not in self._of_captures:
                self._of_captures[correlation, place] = self._next()
        *above, number = (self._of_captures[correlation, place] for place, _ in around)
        call = around[-1][1]
        return LaunchingOperator(number, call.name, call.inputs, tuple(above), kernel)

    def of_row(self, row: int, kernel: str) -> LaunchingOperator:
        """The innermost operator around a row's call; rows of the same operator share the object."""
        place = int(self._places.operator[row])
        found = None if row in self._places.paths else self._known.get(place)
        if found is None:
            around = self._places.operators_around(row, self._ranges)
            for one in around:
                if self._numbers[one] < 0:
                    self._numbers[one] = self._next()
            above = tuple(self._numbers[one] for one in around[:-1])
            call = self._ranges.calls[self._ranges.call[place]]
            forward = None if call.inputs.shapes else self._forward(around)
            found = LaunchingOperator(self._numbers[place], call.name, call.inputs, above, kernel, forward)
            if row not in self._places.paths:
                self._known[place] = found
        return found if found.kernel == kernel else found._replace(kernel=kernel)

    def _next(self) -> int:
        self._count += 1
        return self._count - 1

    def _forward(self, around: list[int]) -> tuple[str, RecordedInputs] | None:
        """Name and inputs of the forward operator that belongs to the innermost backward node in `around`."""
        nodes = [place for place in around if MISSING < self._ranges.number[place] < -1]
        found = int(self._ranges.forward_of(-2 - self._ranges.number[nodes[-1:]])[0]) if nodes else -1
        if found < 0:
            return None
        call = self._ranges.calls[self._ranges.call[found]]
        return call.name, call.inputs
