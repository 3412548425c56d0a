"""The ranges of a trace's host threads as columns, and which of them are around each other and around a moment.

A range takes some 50 bytes: what it is, its name and inputs, is stored once for all ranges alike.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from ncu_launch.nvtx_ranges import RUN_PHASES

from ncu_parsers.derived.operators.forward_operators import ForwardOperators
from ncu_parsers.derived.operators.work_from_shapes import RecordedInputs
from ncu_parsers.sources import memory
from ncu_parsers.timelines.host_ranges import ANNOTATION, DEEPEST, MODULE, OPERATOR
from ncu_parsers.timelines.kineto.chrome_trace import Thread

OPTIMIZER_PREFIX = "Optimizer.step#"
BACKWARD_PREFIX = "autograd::engine::evaluate_function"
STEP_PREFIX = "ProfilerStep#"

OUTSIDE, CUT = 0, -2
"""Codes of contexts: around nothing, and one that is not that of all ranges above, since only `DEEPEST` are kept."""

PART = 1 << 16
"""Ranges that are Python's objects at a time."""

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer]


class HostCall(NamedTuple):
    """What a range is: an operator, with its inputs, an annotation of the user's or a module."""

    kind: str
    name: str
    inputs: RecordedInputs = RecordedInputs()


class Context(NamedTuple):
    """What the ranges around a row say of its place in the program, outermost first."""

    annotations: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    is_backward: bool = False

    def within(self, call: HostCall) -> Context:
        """The context inside a range."""
        if call.kind == ANNOTATION:
            return self._replace(annotations=(*self.annotations, call.name))
        if call.kind == MODULE:
            return self._replace(modules=(*self.modules, call.name))
        return self._replace(is_backward=self.is_backward or call.name.startswith(BACKWARD_PREFIX))

    def phase(self) -> str | None:
        """Forward, backward or optimizer, where a range says so; modules that the backward pass recomputes are its."""
        if any(name.startswith(OPTIMIZER_PREFIX) for name in self.annotations):
            return "optimizer"
        if self.is_backward:
            return "backward"
        named = [name for name in self.annotations if name in RUN_PHASES]
        if named:
            return named[-1]
        return "forward" if self.modules else None


class Contexts:
    """Every context once; its code is its place in `known`."""

    def __init__(self) -> None:
        self.known = [Context()]
        self._codes = {Context(): OUTSIDE}

    def code(self, context: Context) -> int:
        """The code of a context, a new one if need be."""
        found = self._codes.setdefault(context, len(self.known))
        if found == len(self.known):
            self.known.append(context)
        return found


@dataclass
class _Thread:
    """Columns of a thread's ranges, in the order of the file."""

    start: array[float] = field(default_factory=lambda: array("d"))
    duration: array[float] = field(default_factory=lambda: array("d"))
    call: array[int] = field(default_factory=lambda: array("i"))
    number: array[int] = field(default_factory=lambda: array("q"))


class HostThreads:
    """Ranges while they come in. `calls` are the distinct ones, by their code."""

    def __init__(self) -> None:
        self.threads: dict[Thread, int] = {}
        self.calls: list[HostCall] = []
        self._columns: list[_Thread] = []

    def thread(self, thread: Thread) -> int:
        """The number of a thread."""
        return self.threads.setdefault(thread, len(self.threads))

    def take(self, thread: int, start: float, duration: float, call: int, number: int = -1) -> None:
        """Add a range. `number`: the sequence number of an operator; of a node of the backward pass, -2 minus it."""
        while thread >= len(self._columns):
            self._columns.append(_Thread())
        columns = self._columns[thread]
        columns.start.append(start)
        columns.duration.append(duration)
        columns.call.append(call)
        columns.number.append(number)

    def nested(self, name: str = "the trace") -> NestedRanges:
        """All ranges, sorted within each thread so that those around others are in front of them.

        Raises `memory.TooBig`, naming the trace `name`, if the process exceeds its memory limit.
        """
        return NestedRanges(self, name)

    def columns(self) -> Iterator[tuple[Floats, Floats, npt.NDArray[np.int32], npt.NDArray[np.int64]]]:
        """Start, duration, call and sequence number of the ranges of each thread; they are given away."""
        for place, one in enumerate(self._columns):
            yield (
                np.array(one.start, np.float64), np.array(one.duration, np.float64), np.array(one.call, np.int32),
                np.array(one.number, np.int64),
            )  # fmt: skip
            self._columns[place] = _Thread()


class NestedRanges:
    """Columns of all ranges, thread after thread, each in order of start, those around others first.

    `above` is the place of the innermost range that one starts in, `operator` that of the innermost operator that it
    is or starts in, -1 for none; `context` is the code of what is around it, itself included; `reach` the time at which
    the first of it and those above ends. `begins` are the places where threads begin, and the end of the last one.
    """

    def __init__(self, host: HostThreads, name: str) -> None:
        self._name = name
        self.calls, self.contexts, self.threads = host.calls, Contexts(), list(host.threads)
        self._within: dict[tuple[int, int], int] = {}
        self._given: dict[int, int] = {}
        self._kinds = [_Kind(call) for call in self.calls]
        self._above, self._operator, self._context, self._reach = array("i"), array("i"), array("i"), array("d")
        sorted_columns = []
        begins, origins = [0], []
        for start, duration, call, number in host.columns():
            order = np.lexsort((-duration, start))
            sorted_columns.append((start[order], duration[order], call[order], number[order]))
            self._nest(begins[-1], *sorted_columns[-1])
            origins.append(order + begins[-1])
            begins.append(begins[-1] + len(order))
        self.begins = np.array(begins)
        empty = (np.empty(0), np.empty(0), np.empty(0, np.int32), np.empty(0, np.int64))
        parts = zip(*(sorted_columns or [empty]), strict=True)
        self.start, self.duration, self.call, self.number = map(np.concatenate, parts)
        self.end = self.start + self.duration
        self.above, self.operator, self.context = (
            np.frombuffer(column, np.int32) if column else np.empty(0, np.int32)
            for column in (self._above, self._operator, self._context)
        )
        self.reach = np.frombuffer(self._reach, np.float64) if self._reach else np.empty(0)
        self._forward: tuple[npt.NDArray[np.int64], ForwardOperators] | None = None
        self._origin = np.concatenate([np.empty(0, np.int64), *origins])

    def __len__(self) -> int:
        return len(self.start)

    def call_code(self, call: HostCall) -> int:
        """The code of a call that another trace has, for as long as that is in memory."""
        found = self._given.setdefault(id(call), len(self.calls))
        if found == len(self.calls):
            self.calls.append(call)
        return found

    def thread_of(self, places: Integers) -> npt.NDArray[np.int64]:
        """The numbers of the threads of ranges."""
        return np.searchsorted(self.begins, places, side="right") - 1

    def is_kind(self, kind: str) -> npt.NDArray[np.bool_]:
        """Which ranges are of a kind."""
        found: npt.NDArray[np.bool_] = np.array([call.kind == kind for call in self.calls], np.bool_)[self.call]
        return found

    def forward_of(self, numbers: Integers) -> npt.NDArray[np.int64]:
        """For the sequence numbers of nodes of the backward pass the places of their forward operators; -1: unknown."""
        if self._forward is None:
            in_file = np.argsort(self._origin)
            threads = self.thread_of(in_file)
            self._forward = in_file, ForwardOperators(self.number[in_file], threads, self.start[in_file])
        in_file, forward = self._forward
        found = forward.behind(numbers)
        return np.where(found >= 0, in_file[found], -1) if len(in_file) else found

    def node_around(self, places: Integers) -> npt.NDArray[np.int64]:
        """The innermost node of the backward pass that each range is or starts in, within `DEEPEST`; -1 for none."""
        found, at = np.full(len(places), -1), places.astype(np.int64)
        for _ in range(DEEPEST):
            looking = np.flatnonzero((at >= 0) & (found < 0))
            if not len(looking):
                break
            is_node = self.number[at[looking]] < -1
            found[looking[is_node]] = at[looking[is_node]]
            at[looking] = self.above[at[looking]]
        return found

    def operator_above(self) -> npt.NDArray[np.int32]:
        """The place of the innermost operator around each range, not itself; -1 for none."""
        return np.where(self.above >= 0, self.operator[self.above], -1) if len(self) else self.above

    def own_times(self) -> Floats:
        """Duration of each range minus operators that it directly encloses, at least 0, in the trace's unit."""
        left = self.duration.copy()
        around = self.operator_above()
        inner = np.flatnonzero(self.is_kind(OPERATOR) & (around >= 0))
        outer = around[inner]
        np.subtract.at(left, outer, self.duration[inner] - np.maximum(self.end[inner] - self.end[outer], 0.0))
        left[left < 0] = 0.0
        return left

    def path_to(self, place: int) -> list[int]:
        """The places of the ranges around one, and its own, outermost first; only the innermost `DEEPEST`."""
        found: list[int] = []
        while place >= 0 and len(found) < DEEPEST:
            found.append(place)
            place = int(self.above[place])
        return found[::-1]

    def context_of(self, path: Sequence[int]) -> int:
        """The code of the context within ranges, outermost first."""
        context = Context()
        for place in path:
            context = context.within(self.calls[self.call[place]])
        return self.contexts.code(context)

    def steps(self) -> list[tuple[float, float, int]]:
        """Start, end and number of every step that the profiler was told of. Steps hold for all threads."""
        numbers = {}
        for code, (kind, name, _) in enumerate(self.calls):
            number = name.removeprefix(STEP_PREFIX)
            if kind == ANNOTATION and number != name and number.isdecimal() and len(number) < 10:
                numbers[code] = int(number)
        places = np.flatnonzero(np.isin(self.call, list(numbers))).tolist() if numbers else []
        return sorted((float(self.start[at]), float(self.end[at]), numbers[self.call[at]]) for at in places)

    def open_at(self, thread: int, moments: Floats) -> Iterator[tuple[int, list[int] | None]]:
        """For each moment, in ascending order, the innermost range open then (first and last instant included), or -1.

        Where not all ranges above it are open as well, or more than `DEEPEST`, the open ones are listed, outermost
        first, and one more than `DEEPEST` at most. One pass over all ranges and moments.
        """
        begin, finish = (int(self.begins[min(at, len(self.begins) - 1)]) for at in (thread, thread + 1))
        begun = begin
        ends = self.end
        upto = (np.searchsorted(self.start[begin:finish], moments, side="right") + begin).tolist()
        opened: list[int] = []
        for moment, last in zip(moments.tolist(), upto, strict=True):
            for place in range(begun, last):
                while opened and ends[opened[-1]] <= self.start[place]:
                    opened.pop()
                opened.append(place)
            begun = max(begun, last)
            while opened and ends[opened[-1]] < moment:
                opened.pop()
            if not opened:
                yield -1, None
            elif self.reach[opened[-1]] >= moment and self.context[opened[-1]] != CUT:
                yield opened[-1], None
            else:
                innermost: list[int] = []
                while opened and len(innermost) <= DEEPEST:
                    place = opened.pop()
                    if ends[place] >= moment:
                        innermost.append(place)
                innermost.reverse()
                opened += innermost
                yield innermost[-1], innermost

    def _nest(self, base: int, start: Floats, duration: Floats, call: Integers, number: Integers) -> None:
        """Append the columns on nesting for a thread whose ranges begin at place `base`."""
        open_ranges: list[tuple[float, int, int, int, float]] = []
        end = start + duration
        for part in range(0, len(start), PART):
            memory.require_memory(self._name)
            rows = slice(part, part + PART)
            columns = (column[rows].tolist() for column in (start, end, call))
            for place, (begin, finish, code) in enumerate(zip(*columns, strict=True), base + part):
                while open_ranges and open_ranges[-1][0] <= begin:
                    open_ranges.pop()
                _, above, operator, context, reach = open_ranges[-1] if open_ranges else _NOTHING
                kind = self._kinds[code]
                if kind.is_operator:
                    operator = place
                if len(open_ranges) >= DEEPEST:
                    context = CUT
                elif kind.changes_context:
                    context = self._context_within(context, code)
                reach = min(reach, finish)
                self._above.append(above)
                self._operator.append(operator)
                self._context.append(context)
                self._reach.append(reach)
                open_ranges.append((finish, place, operator, context, reach))

    def _context_within(self, context: int, code: int) -> int:
        found = self._within.get((context, code))
        if found is None:
            found = self.contexts.code(self.contexts.known[context].within(self.calls[code]))
            self._within[context, code] = found
        return found


_NOTHING = (0.0, -1, -1, OUTSIDE, math.inf)


class _Kind:
    """What nesting asks of a range."""

    def __init__(self, call: HostCall) -> None:
        self.is_operator = call.kind == OPERATOR
        self.changes_context = not self.is_operator or call.name.startswith(BACKWARD_PREFIX)
