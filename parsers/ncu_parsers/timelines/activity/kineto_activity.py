"""Read a trace of PyTorch's profiler (Kineto) as what happened: operations, API calls and ranges of the host.

Times are printed in microseconds, with three decimals since PyTorch 2.2. `nanoseconds` converts them: the whole
microseconds as an integer, the fraction apart from them, so that no product is rounded. A JSON number is a double, so
up to 2^43 microseconds (101 days) every printed nanosecond is exact. Beyond that a trace without a base time holds
times since 1970, whose fractions the double itself has lost; whole microseconds stay exact.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np
from ncu_launch.notes import Note, NoteKind

from ncu_parsers.schema.vendors import Vendor
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import (
    FARTHEST,
    KERNEL,
    MEMCPY,
    MEMSET,
    MISSING,
    Activity,
    ApiCalls,
    CollectiveArguments,
    GpuOperations,
    HostRanges,
    Integers,
    Numbered,
    Overheads,
    columns_of,
)
from ncu_parsers.timelines.kineto.chrome_trace import (
    EXACT_UNTIL,
    NS_PER_US,
    SINCE_1970,
    TracedDevice,
    TraceEvents,
    event_mapping,
    event_whole,
    is_call,
    lost_times,
    traced_devices,
    vendor_of_runtime,
)
from ncu_parsers.timelines.kineto.launching_calls import Calls, OperatorIds, Work, ambiguous_note, calls_that_launched
from ncu_parsers.timelines.kineto.traced_events import EXTERNAL
from ncu_parsers.timelines.operation_times import broken_note, lost_note

TOOL = "kineto"

KINDS = {
    "kernel": KERNEL, "gpu_memcpy": MEMCPY, "gpu_memset": MEMSET,
    "Kernel": KERNEL, "Memcpy": MEMCPY, "Memset": MEMSET,
}  # fmt: skip
"""Categories of GPU work, those of PyTorch 1.8 to 1.12 in the second line."""
RANGES = {
    "cpu_op": activity.OPERATOR, "Operator": activity.OPERATOR, "user_annotation": activity.ANNOTATION,
    "python_function": activity.PYTHON,
}  # fmt: skip
MODULE_LOADING_OVERHEADS = ("Lazy Function Loading", "Runtime Triggered Module Loading", "Driver Compiler")
QUEUE_FULL_OVERHEAD = "Command Buffer Full"

COPY_WORDS = {
    "HtoD": activity.HOST_TO_DEVICE, "DtoH": activity.DEVICE_TO_HOST, "DtoD": activity.DEVICE_TO_DEVICE,
    "PtoP": activity.PEER_TO_PEER, "HtoH": activity.HOST_TO_HOST, "HtoA": activity.HOST_TO_DEVICE,
    "AtoH": activity.DEVICE_TO_HOST, "AtoA": activity.DEVICE_TO_DEVICE, "AtoD": activity.DEVICE_TO_DEVICE,
    "DtoA": activity.DEVICE_TO_DEVICE,
}  # fmt: skip
MEMORY_WORDS = {
    "Pageable": activity.PAGEABLE, "Pinned": activity.PINNED, "Device": activity.DEVICE_MEMORY,
    "Array": activity.ARRAY, "Managed": activity.MANAGED, "Managed Static": activity.MANAGED,
    "Device Static": activity.DEVICE_MEMORY,
}  # fmt: skip
"""Kineto's words for CUPTI's kinds of memory. HIP's traces say "Host", which may be either kind."""

_COPY = re.compile(r"Memcpy (\w+)(?: \((.*?) -> (.*?)\))?")

TYPE_BYTES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Float8_e4m3fnuz": 1, "Float8_e5m2fnuz": 1,
    "Short": 2, "Half": 2, "BFloat16": 2, "Int": 4, "Float": 4, "Long": 8, "Double": 8, "ComplexFloat": 8,
    "ComplexDouble": 16,
}  # fmt: skip
"""Bytes of an element, by PyTorch's names of scalar types (c10/core/ScalarType.h)."""


def nanoseconds(microseconds: Any) -> int | None:
    """A printed time in ns, exactly; None for what is no finite number or has no place in 64 bits."""
    if isinstance(microseconds, bool) or not isinstance(microseconds, int | float):
        return None
    if isinstance(microseconds, float) and not math.isfinite(microseconds):
        return None
    whole = math.floor(microseconds)
    found = whole * 1000 + round((microseconds - whole) * 1000)
    return found if abs(found) < FARTHEST // 2 else None


def read_trace(source: Source) -> Activity:
    """Read one trace. Raises `NcuBenchError` when it cannot be opened."""
    trace = _TracedActivity()
    with source.open() as stream:
        events = TraceEvents(stream, source.name)
        for event in events:
            trace.take(event)
    found = trace.result(source.name, events.header, events.broken)
    if events.cut:
        early = f"the file ends early and was read up to there ({events.damage or 'within an event'})"
        found.notes.append(Note(early, NoteKind.LOST))
    return found


class _Table:
    """Rows of integers, by column."""

    def __init__(self, *names: str) -> None:
        self.columns = {name: array("q") for name in names}

    def add(self, *values: int | None) -> None:
        for column, value in zip(self.columns.values(), values, strict=True):
            column.append(MISSING if value is None else value)

    def arrays(self) -> dict[str, Integers]:
        return {name: np.array(column, np.int64) for name, column in self.columns.items()}


class _TracedActivity:
    """The tables while events come in."""

    def __init__(self) -> None:
        self._operations = _Table(
            "kind", "name", "device", "context", "stream", "start", "end", "bytes", "direction", "source_memory",
            "destination_memory", "correlation", "graph_node", "row",
        )  # fmt: skip
        self._calls = _Table("name", "process", "thread", "start", "end", "correlation")
        self._externals = {"work": array("q"), "calls": array("q")}
        self._operators = _Table("process", "external")
        self._ranges = _Table("kind", "name", "process", "thread", "start", "end")
        self._overheads = _Table("kind", "process", "thread", "start", "end")
        self._names = {table: Numbered() for table in ("operations", "calls", "ranges")}
        self._threads: dict[Any, int] = {}
        self._copies: dict[str, tuple[int, int, int]] = {}
        self._collectives: dict[int, CollectiveArguments] = {}
        self._rows = self._broken = self._ambiguous = self._lost = 0
        self._rounded = False

    def take(self, event: dict[str, Any]) -> None:
        """Sort in one event; events of other kinds are left out."""
        category, name = event.get("cat"), event.get("name")
        if event.get("ph") != "X" or not isinstance(category, str) or not isinstance(name, str):
            return
        if not (category in KINDS or is_call(category) or category in RANGES or category == "overhead"):
            return
        start, duration = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
        if start is None or duration is None or duration < 0:
            self._broken += 1
            return
        self._rounded = self._rounded or (start > EXACT_UNTIL * 1000 and start % 1000 != 0)
        if category in KINDS:
            self._take_operation(KINDS[category], name, start, start + duration, event_mapping(event.get("args")))
            return
        process, thread = self._host_thread(event)
        if is_call(category):
            args = event_mapping(event.get("args"))
            correlation = event_whole(args.get("correlation"))
            self._add_external("calls", args)
            number = self._names["calls"].number(name)
            self._calls.add(number, process, thread, start, start + duration, correlation)
        elif category in RANGES:
            number = self._names["ranges"].number(name)
            self._ranges.add(RANGES[category], number, process, thread, start, start + duration)
            external = event_whole(event_mapping(event.get("args")).get(EXTERNAL))
            if external is not None and RANGES[category] == activity.OPERATOR:
                self._operators.add(process, external)
        else:
            self._overheads.add(_overhead_kind(name), process, thread, start, start + duration)

    def _add_external(self, table: str, args: Mapping[str, Any]) -> None:
        external = event_whole(args.get(EXTERNAL))
        self._externals[table].append(MISSING if external is None else external)

    def _take_operation(self, kind: int, name: str, start: int, end: int, args: Mapping[str, Any]) -> None:
        direction, source, destination = self._copied(name) if kind == MEMCPY else (MISSING, MISSING, MISSING)
        self._operations.add(
            kind, self._names["operations"].number(name), event_whole(args.get("device"), bits=31),
            event_whole(args.get("context")), event_whole(args.get("stream")), start, end,
            event_whole(args.get("bytes")), direction, source, destination, event_whole(args.get("correlation")),
            event_whole(args.get("graph node id")), self._rows,
        )  # fmt: skip
        self._add_external("work", args)
        if "Collective name" in args:
            self._collectives[self._rows] = _collective(args)
        self._rows += 1

    def _host_thread(self, event: dict[str, Any]) -> tuple[int, int]:
        """Numbers of an event's process and thread; texts get negative ones."""
        numbers = []
        for key in (event.get("pid"), event.get("tid")):
            whole = event_whole(key)
            numbers.append(self._threads.setdefault(str(key), -2 - len(self._threads)) if whole is None else whole)
        return numbers[0], numbers[1]

    def _copied(self, name: str) -> tuple[int, int, int]:
        """Direction, source and destination of a copy, which its name says."""
        if name not in self._copies:
            found = _COPY.match(name)
            word, source, destination = found.groups() if found else ("", None, None)
            self._copies[name] = (
                COPY_WORDS.get(word, activity.OTHER_DIRECTION),
                MEMORY_WORDS.get(source or "", activity.UNKNOWN_MEMORY),
                MEMORY_WORDS.get(destination or "", activity.UNKNOWN_MEMORY),
            )
        return self._copies[name]

    def result(self, name: str, header: dict[str, Any], broken: int) -> Activity:
        """The tables in order of time."""
        calls = columns_of(ApiCalls, self._calls.arrays(), self._names["calls"].texts).by_start()
        ranges = columns_of(HostRanges, self._ranges.arrays(), self._names["ranges"].texts).by_start()
        columns = self._operations.arrays()
        start, lasts = columns["start"] / NS_PER_US, (columns["end"] - columns["start"]) / NS_PER_US
        lost = lost_times(start, lasts, header)
        self._lost = int(lost.sum())
        columns["process"] = self._launching_processes(columns, calls, ranges)
        table = columns_of(GpuOperations, columns, self._names["operations"].texts)
        order = np.lexsort((-table.end, table.start))
        order = order[~lost[order]]
        place = {row: at for at, row in enumerate(order.tolist())} if self._collectives else {}
        operations = table.at(order)
        known = traced_devices(header)
        return Activity(
            name, TOOL, operations, calls, ranges,
            columns_of(Overheads, self._overheads.arrays()).by_start(),
            {place[row]: arguments for row, arguments in self._collectives.items() if row in place},
            {gpu: str(known[gpu[1]].name) for gpu in operations.gpus() if gpu[1] in known and known[gpu[1]].name},
            self._notes(broken),
            _missing(calls, ranges),
            vendors={gpu: vendor for gpu in operations.gpus() if (vendor := _vendor(known, gpu[1], header))},
        )  # fmt: skip

    def _launching_processes(self, work: dict[str, Integers], calls: ApiCalls, ranges: HostRanges) -> Integers:
        """The process whose call launched each operation; of a trace of one process that one for all."""
        alone = np.unique(calls.process if len(calls) else ranges.process[ranges.kind != activity.PYTHON])
        if len(alone) <= 1 or not len(calls):
            return np.full(len(work["correlation"]), alone[0] if len(alone) == 1 else MISSING)
        own, operators = self._calls.arrays(), self._operators.arrays()
        of_work, of_calls = (np.array(self._externals[table], np.int64) for table in ("work", "calls"))
        found = calls_that_launched(
            Work(_or_none(work["correlation"]), _or_none(of_work), _or_none(work["device"])),
            Calls(_or_none(own["correlation"]), _or_none(of_calls), own["process"]),
            OperatorIds(operators["process"], operators["external"]),
        )
        self._ambiguous = found.ambiguous
        return np.where(found.places >= 0, own["process"][found.places], MISSING)

    def _notes(self, broken: int) -> list[str]:
        notes: list[str] = [lost_note(self._lost)] if self._lost else []
        if self._broken + broken:
            notes.append(broken_note(self._broken + broken))
        if self._ambiguous:
            notes.append(ambiguous_note(self._ambiguous))
        if self._rounded:
            notes.append(SINCE_1970)
        return notes


def _vendor(known: Mapping[int, TracedDevice], device: int, header: dict[str, Any]) -> Vendor | None:
    return known[device].vendor if device in known else vendor_of_runtime(header)


def _or_none(values: Integers) -> Integers:
    """Numbers with -1 for none, as the calls of a trace are found by."""
    return np.where(values == MISSING, -1, values)


def _overhead_kind(name: str) -> int:
    if name in MODULE_LOADING_OVERHEADS:
        return activity.MODULE_LOADING
    return activity.QUEUE_FULL if name == QUEUE_FULL_OVERHEAD else activity.PROFILER


def _collective(args: Mapping[str, Any]) -> CollectiveArguments:
    name, size = args.get("Collective name"), TYPE_BYTES.get(str(args.get("dtype")))
    elements = [event_whole(args.get(f"{side} msg nelems")) for side in ("In", "Out")]
    bytes_in, bytes_out = (None if count is None or size is None else count * size for count in elements)
    ranks = event_whole(args.get("Group size"), bits=31)
    return CollectiveArguments(str(name) if name else None, bytes_in, bytes_out, ranks or None)


def _missing(calls: ApiCalls, ranges: HostRanges) -> list[str]:
    missing = []
    if not len(calls):
        missing.append("no API calls were recorded, so the causes of gaps are not known (ProfilerActivity.CPU)")
    if not len(ranges):
        missing.append("no ranges of the host were recorded, so what it did is not named (ProfilerActivity.CPU)")
    return missing
