"""Build an `Activity` event by event; events without times are counted as broken and left out."""

from __future__ import annotations

from array import array
from dataclasses import replace

import numpy as np

from ncu_parsers.schema.vendors import Vendor
from ncu_parsers.timelines.activity.activity import (
    FARTHEST,
    MISSING,
    Activity,
    ApiCalls,
    Dependencies,
    GpuOperations,
    HostRanges,
    Integers,
    LaunchFacts,
    Numbered,
    OperatorInputs,
    Overheads,
    RangeLabel,
    columns_of,
    empty,
)
from ncu_parsers.timelines.activity.operation_times import broken_note
from ncu_parsers.timelines.activity.samples import SampledActivity

NOTHING_SAID = LaunchFacts()


class _Rows:
    """Rows of integers while they are added; None, and values from `FARTHEST` on, become `MISSING`."""

    def __init__(self, *names: str) -> None:
        self._columns = {name: array("q") for name in names}

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def add(self, *values: int | None) -> None:
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(MISSING if value is None or not -FARTHEST < value < FARTHEST else value)

    def arrays(self) -> dict[str, Integers]:
        return {name: np.array(column, np.int64) for name, column in self._columns.items()}


class Recording:
    """Content of a recording called `name`, made by `tool`, in any order. Times are ns since any zero.

    Process and thread ids are any numbers, None if not recorded. `devices`, `vendors` and `capabilities` are by process
    and device. Operations have the numbers that `operation` returned: `waits` are pairs of them, the second waiting for
    the first, and `graph_nodes` are ids of CUDA-graph nodes by operation.
    """

    def __init__(self, name: str, tool: str) -> None:
        self.notes: list[str] = []
        self.missing: list[str] = []
        self.devices: dict[tuple[int, int], str] = {}
        self.vendors: dict[tuple[int, int], Vendor] = {}
        self.capabilities: dict[tuple[int, int], str] = {}
        self.waits: list[tuple[int, int]] = []
        self.graph_nodes: dict[int, int] = {}
        self.sampled = SampledActivity()
        self.utc_ns: int | None = None
        self.others = 0
        self.session: dict[str, str] = {}
        self.broken = 0
        self._name, self._tool = name, tool
        self._operations = _Rows(
            "kind", "name", "process", "device", "stream", "start", "end", "bytes", "direction",
            "source_memory", "destination_memory", "correlation", "fact",
        )  # fmt: skip
        self._calls = _Rows("name", "process", "thread", "start", "end", "correlation")
        self._ranges = _Rows("label", "process", "thread", "start", "end", "sequence")
        self._labels: dict[tuple[int, str, str], RangeLabel] = {}
        self._label_numbers = Numbered()
        self._steps = _Rows("process", "start", "end", "number")
        self._names = {rows: Numbered() for rows in ("operations", "calls")}
        self._facts: dict[LaunchFacts, int] = {}

    def operation(
        self, kind: int, name: str, start: int | None, end: int | None, *, process: int | None = None,
        device: int | None = None, stream: int | None = None, size: int | None = None,
        copied: tuple[int, int, int] | None = None, correlation: int | None = None, facts: LaunchFacts = NOTHING_SAID,
    ) -> int:  # fmt: skip
        """Add a GPU operation. `size`: bytes copied or set. `copied`: direction, source and destination memory.

        Returns its number among all, -1 if it has no valid times.
        """
        if not self._is_timed(start, end):
            return -1
        number, fact = self._names["operations"].number(name), self._facts.setdefault(facts, len(self._facts))
        self._operations.add(
            kind, number, process, device, stream, start, end, size, *(copied or (None, None, None)), correlation,
            fact,
        )  # fmt: skip
        return len(self._operations) - 1

    def call(
        self, name: str, start: int | None, end: int | None, *, process: int | None, thread: int | None,
        correlation: int | None,
    ) -> None:  # fmt: skip
        """Add a call of the GPU's API."""
        if self._is_timed(start, end):
            self._calls.add(self._names["calls"].number(name), process, thread, start, end, correlation)

    def range(
        self, kind: int, name: str, start: int | None, end: int | None, *, process: int | None, thread: int | None,
        inputs: OperatorInputs | None = None, sequence: int | None = None,
    ) -> None:  # fmt: skip
        """Add a range of a host thread; an operator with its inputs, and `sequence` as in `HostRanges`."""
        if self._is_timed(start, end):
            key = kind, name, "" if inputs is None else repr(inputs)
            self._labels.setdefault(key, RangeLabel(kind, name, inputs))
            self._ranges.add(self._label_numbers.number(key), process, thread, start, end, sequence)

    def step(self, number: int | None, start: int | None, end: int | None, *, process: int | None) -> None:
        """Add a step of the program; its number is given to the operations that its process launched in this time."""
        if number is not None and 0 <= number < 1 << 31 and self._is_timed(start, end):
            self._steps.add(process, start, end, number)

    def activity(self) -> Activity:
        """The complete activity, ordered by time."""
        table = columns_of(GpuOperations, self._operations.arrays(), self._names["operations"].texts)
        order = np.lexsort((-table.end, table.start))
        operations, fact = table.at(order), self._operations.arrays()["fact"][order]
        calls = columns_of(ApiCalls, self._calls.arrays(), self._names["calls"].texts).by_start()
        labels = {"labels": list(self._labels.values())}
        ranges = columns_of(HostRanges, {**self._ranges.arrays(), **labels}).by_start()
        step = self._step_of(launching_call(operations, calls), operations.process, calls)
        operations = replace(operations, iteration=step, graph_node=self._nodes()[order])
        notes = [broken_note(self.broken)] if self.broken else []
        return Activity(
            self._name, self._tool, operations, calls, ranges, empty(Overheads), devices=self.devices,
            notes=[*notes, *self.notes], missing=list(dict.fromkeys(self.missing)), vendors=self.vendors,
            facts=list(self._facts), fact=fact, broken=self.broken, session=self.session, others=self.others,
            capabilities=self.capabilities, sampled=self.sampled, utc_ns=self.utc_ns,
            dependencies=self._dependencies(order),
        )  # fmt: skip

    def _nodes(self) -> Integers:
        """The id of the CUDA-graph node of each operation, in the order in which they were added; `MISSING` if none."""
        if not self.graph_nodes:
            return np.broadcast_to(np.array(MISSING), len(self._operations))
        found = np.full(len(self._operations), MISSING)
        found[list(self.graph_nodes)] = list(self.graph_nodes.values())
        return found

    def _dependencies(self, order: Integers) -> Dependencies:
        """The waits by rows of operations in their `order` of time."""
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return Dependencies(*place[np.array(self.waits, np.int64).reshape(-1, 2)].T)

    def _is_timed(self, start: int | None, end: int | None) -> bool:
        """True for a start and an end that is not before it; other events are counted as broken."""
        timed = start is not None and end is not None and -FARTHEST < start <= end < FARTHEST
        self.broken += not timed
        return timed

    def _step_of(self, call: Integers, process: Integers, calls: ApiCalls) -> Integers:
        """The number of the step in which each operation was launched, by the index of its call; `MISSING` for none."""
        found, steps = np.full(len(call), MISSING), self._steps.arrays()
        for one in np.unique(steps["process"]).tolist():
            mine = np.flatnonzero(steps["process"] == one)
            mine = mine[np.argsort(steps["start"][mine], kind="stable")]
            rows = np.flatnonzero((call >= 0) & (process == one))
            moment = calls.start[call[rows]]
            step = np.searchsorted(steps["start"][mine], moment, side="right") - 1
            inside = (step >= 0) & (moment < steps["end"][mine[step]])
            found[rows[inside]] = steps["number"][mine[step[inside]]]
        return found


def launching_call(operations: GpuOperations, calls: ApiCalls) -> Integers:
    """Index of the API call that launched each operation; -1 for none."""
    return called_as(operations.process, operations.correlation, calls)


def called_as(process: Integers, correlation: Integers, calls: ApiCalls) -> Integers:
    """Index of the earliest call with each row's process and correlation id; -1 for none.

    If a single process made all calls, rows without a process belong to it.
    """
    found: Integers = np.full(len(correlation), -1, "i4")
    processes = np.unique([calls.owners[owner][0] for owner in np.unique(calls.owner).tolist()]).astype(np.int64)
    for one in processes.tolist():
        called = np.flatnonzero(calls.of_process(one) & (calls.correlation != MISSING))
        called = called[np.argsort(calls.correlation[called], kind="stable")]
        numbers = calls.correlation[called]
        own = process == one
        if len(processes) == 1:
            own |= process == MISSING
        rows = np.flatnonzero(own & (correlation != MISSING))
        if len(called):
            wanted = correlation[rows]
            at = np.minimum(np.searchsorted(numbers, wanted), len(called) - 1)
            found[rows] = np.where(numbers[at] == wanted, called[at], -1)
    return found
