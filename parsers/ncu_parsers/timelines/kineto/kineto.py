"""Traces of the PyTorch profiler (Kineto): what ran on the GPU, and which operator launched it.

A trace is a timeline: it holds times, shapes of launches and of tensors, and counts nothing; FLOPs and least bytes are
estimates from the shapes of operators (`derived.operators.work_from_shapes`). A kernel and the call that launched it
share a correlation id; the operator and the ranges are those open on the calling thread at that moment. The backward
pass runs on threads of autograd's own, so ranges of the main thread are not around its kernels. Without any GPU work
the rows are the operators themselves, each with the time it did not spend in operators that it called.

Times are in microseconds, with a fraction since PyTorch 2.2 and whole before. Fields: libkineto's `output_json.cpp`
and `MetadataFieldCatalog.h`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ncu_parsers.derived.operators import graph_captures, work_from_shapes
from ncu_parsers.derived.operators.forward_operators import ForwardOperators
from ncu_parsers.derived.operators.work_from_shapes import LaunchingOperator, RecordedInputs, WorkOfLaunches
from ncu_parsers.report_data import report
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Report
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import COLUMNS, contract_fields, field_metadata, short_name
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.gpu_busy_time import UNKNOWN, busy_notes
from ncu_parsers.timelines.host_ranges import (
    ANNOTATION,
    DEEPEST,
    MODULE,
    OPERATOR,
    HostPlace,
    HostRange,
    ThreadRanges,
    iterations_of,
    steps_of,
)
from ncu_parsers.timelines.kineto.chrome_trace import (
    NS_PER_US,
    UNKNOWN_DEVICE,
    Thread,
    TraceEvents,
    event_mapping,
    event_number,
    event_shape,
    event_thread,
    event_whole,
    traced_devices,
)
from ncu_parsers.timelines.python_frames import PythonFrames, location_columns_of

DIALECT = "kineto"
OTHER_EVENT = "event of another kind"

OPERATIONS = {
    "kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset",
    "Kernel": "kernel", "Memcpy": "memcpy", "Memset": "memset",
}  # fmt: skip
"""Categories of GPU work, those of PyTorch 1.8 to 1.12 in the second line -> what the column `operation` says."""
HOST_KINDS = {"cpu_op": OPERATOR, "Operator": OPERATOR, "user_annotation": ANNOTATION, "python_function": MODULE}
CALLS = {"cuda_runtime", "cuda_driver", "Runtime"}
CPU_OPERATION = "cpu_op"
INPUTS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
GRAPH_LAUNCH = "GraphLaunch"
"""In the names of calls that launch a whole graph: cudaGraphLaunch, hipGraphLaunch."""

MODULE_PREFIX = "nn.Module: "


class TracedWork(NamedTuple):
    """One row to be. Times in microseconds; None is what the trace does not say."""

    operation: str
    name: str
    start: float
    duration: float
    correlation: int | None = None
    device: int | None = None
    context: int | None = None
    stream: str | None = None
    grid: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
    size: int | None = None
    registers: int | None = None
    shared_memory: int | None = None
    occupancy: float = math.nan
    graph_node: int | None = None
    whole: float = math.nan


@dataclass
class _Trace:
    """What a trace holds, by what it is for."""

    work: list[TracedWork] = field(default_factory=list)
    host: dict[Thread, list[HostRange]] = field(default_factory=dict)
    forward: ForwardOperators = field(default_factory=ForwardOperators)
    frames: PythonFrames = field(default_factory=PythonFrames)
    calls: dict[int, tuple[Thread, float]] = field(default_factory=dict)
    graph_launches: set[int] = field(default_factory=set)
    named_launches: dict[int, graph_captures.Kernel] = field(default_factory=dict)
    host_events: int = 0
    broken: int = 0
    others: int = 0
    too_deep: int = 0
    captured: set[int] = field(default_factory=set)

    def take(self, event: dict[str, Any]) -> None:
        """Sort in one event."""
        category = event.get("cat")
        if event.get("ph") != "X" or not isinstance(category, str):
            self.others += 1
        elif category in OPERATIONS:
            self._take_work(OPERATIONS[category], event)
        elif category in HOST_KINDS:
            self._take_range(HOST_KINDS[category], event)
        elif category in CALLS:
            self._take_call(event)
        else:
            self.others += 1

    def _take_work(self, operation: str, event: dict[str, Any]) -> None:
        name, start, duration = event.get("name"), event_number(event.get("ts")), event_number(event.get("dur"))
        if not isinstance(name, str) or math.isnan(start) or not duration >= 0:
            self.broken += 1
            return
        args = event_mapping(event.get("args"))
        stream = event_whole(args.get("stream"))
        self.work.append(
            TracedWork(
                operation,
                name,
                start,
                duration,
                correlation=event_whole(args.get("correlation")),
                device=event_whole(args.get("device"), bits=31),
                context=event_whole(args.get("context")),
                stream=None if stream is None else str(stream),
                grid=event_shape(args.get("grid")),
                block=event_shape(args.get("block")),
                size=event_whole(args.get("bytes")),
                registers=event_whole(args.get("registers per thread")),
                shared_memory=event_whole(args.get("shared memory")),
                occupancy=event_number(args.get("est. achieved occupancy %")),
                graph_node=event_whole(args.get("graph node id")),
            )
        )

    def _take_range(self, kind: str, event: dict[str, Any]) -> None:
        name, thread = event.get("name"), event_thread(event)
        start, duration = event_number(event.get("ts")), event_number(event.get("dur"))
        if not isinstance(name, str) or thread is None or math.isnan(start) or not duration >= 0:
            self.broken += 1
            return
        what = None
        if kind == MODULE:
            if not name.startswith(MODULE_PREFIX):
                is_kept = self.frames.take(thread, start, duration, name)
                self.host_events += is_kept
                self.others += not is_kept
                return
            name = name.removeprefix(MODULE_PREFIX)
        elif kind == OPERATOR:
            args = event_mapping(event.get("args"))
            number = event_whole(args.get("Sequence number"))
            is_node = bool(args.get("Fwd thread id"))
            shapes, types, strides, values = map(args.get, INPUTS)
            what = RecordedInputs(shapes, types, strides, values, number if is_node else None)
            if number is not None and not is_node:
                self.forward.take(number, thread, start, name, what)
        self.host.setdefault(thread, []).append(HostRange(start, duration, kind, name, what))
        self.host_events += 1

    def _take_call(self, event: dict[str, Any]) -> None:
        args = event_mapping(event.get("args"))
        correlation = event_whole(args.get("correlation"))
        thread, start = event_thread(event), event_number(event.get("ts"))
        if correlation is None:
            self.others += 1
        elif thread is None or math.isnan(start):
            self.broken += 1
        else:
            self.calls.setdefault(correlation, (thread, start))
            if GRAPH_LAUNCH in str(event.get("name")):
                self.graph_launches.add(correlation)
            kernel = args.get("kernel")  # HIP's calls name it, also while a graph is captured and nothing runs
            if isinstance(kernel, str):
                self.named_launches[correlation] = graph_captures.Kernel(kernel, event_shape(args.get("grid")))
            self.host_events += 1


def read_report(source: Source) -> Report:
    """Read one trace.

    Raises `NotAReport` when it holds neither GPU work nor operators, `NcuBenchError` when it cannot be opened.
    """
    trace, events = _traced(source)
    correlations = [row.correlation for row in trace.work]
    work, places = (trace.work, _places(trace, correlations)) if trace.work else _operators(trace)
    if not work:
        raise _refusal(source, trace, events)
    result = Report(source.name, dialects=[DIALECT], origin=DIALECT)
    located = location_columns_of(trace.frames, places, trace.forward)
    trace.captured = _take_captured(trace, places)
    done = _work_done(trace, work, places)
    steps = steps_of(one for ranges in trace.host.values() for one in ranges)
    extras = [*_extras(work, places), *done.operator_columns(), *located]
    result.table = _table(source.name, work, places, steps, events.header, done, extras)
    host = trace.host_events if trace.work else trace.host_events - len(work)
    result.lines.update(
        {report.METRICS: len(work), report.HOST: host, report.BROKEN: trace.broken, OTHER_EVENT: trace.others}
    )
    result.lines = +result.lines  # drops kinds that did not occur
    result.session = {key: str(value) for key, value in events.header.items() if isinstance(value, str | int | float)}
    result.notes = _notes(trace, work, places, events)
    return result


def _traced(source: Source) -> tuple[_Trace, TraceEvents]:
    trace = _Trace()
    with source.open() as stream:
        events = TraceEvents(stream, source.name)
        for event in events:
            trace.take(event)
    trace.broken += events.broken
    return trace, events


# ------------------------------------------------------------------------------------------------ where rows come from


def _places(trace: _Trace, correlations: Sequence[int | None]) -> list[HostPlace | None]:
    """For each correlation id the place of its call; None where the trace lacks the call."""
    places: list[HostPlace | None] = [None] * len(correlations)
    launched: dict[Thread, dict[int, float]] = {}
    for row, correlation in enumerate(correlations):
        call = None if correlation is None else trace.calls.get(correlation)
        if call is not None:
            launched.setdefault(call[0], {})[row] = call[1]
    for thread, moments in launched.items():
        nested = ThreadRanges(trace.host.get(thread, []))
        around = nested.around(list(moments.values()))
        for (row, moment), ranges in zip(moments.items(), around, strict=True):
            places[row] = HostPlace(thread, moment, ranges)
        trace.too_deep += nested.too_deep
    return places


def _operators(trace: _Trace) -> tuple[list[TracedWork], list[HostPlace | None]]:
    """The operators of a trace without GPU work as rows, each with its own time, and the ranges they stand in."""
    found: list[tuple[TracedWork, HostPlace]] = []
    for thread, ranges in trace.host.items():
        nested = ThreadRanges(ranges)
        own_times = nested.own_times(OPERATOR)
        for place, one in enumerate(nested.ranges):
            if one.kind == OPERATOR:
                row = TracedWork(CPU_OPERATION, one.name, one.start, own_times[place], whole=one.duration)
                found.append((row, HostPlace(thread, one.start, nested.path_to(place))))
        trace.too_deep += nested.too_deep
    found.sort(key=lambda pair: pair[0].start)
    return [row for row, _ in found], [place for _, place in found]


def _take_captured(trace: _Trace, places: list[HostPlace | None]) -> set[int]:
    """Give kernels of replayed graphs the operators and modules of the capture that the user named; their rows."""
    path = os.environ.get(graph_captures.SETTING)
    graphs: dict[int, list[int]] = {}
    for row, work in enumerate(trace.work if path else []):
        if work.operation == "kernel" and work.correlation is not None and _is_replayed(trace, work):
            graphs.setdefault(work.correlation, []).append(row)
    captured = set()
    for rows in graphs.values():
        rows.sort(key=lambda row: trace.work[row].start)
        capture = _captured(path or "")
        kernels = [graph_captures.Kernel(trace.work[row].name, trace.work[row].grid) for row in rows]
        for row, found in zip(rows, capture.places_of(kernels), strict=False):
            here, there = places[row], [place for one in found if (place := capture.where[one])]
            if here and there:
                kept = {OPERATOR, MODULE} if len({one.path(MODULE) for one in there}) == 1 else {OPERATOR}
                around = [one for one in here.ranges if one.kind == ANNOTATION]
                around += [one for one in there[0].ranges if one.kind in kept]
                places[row] = here._replace(ranges=around)
                captured.add(row)
    return captured


class _Captured(graph_captures.Capture):
    """The launches of a capture's trace; `where` are their places."""

    def __init__(self, trace: _Trace) -> None:
        names = {
            row.correlation: graph_captures.Kernel(row.name, row.grid)
            for row in trace.work
            if row.operation == "kernel" and row.correlation is not None and not _is_replayed(trace, row)
        }
        names = {**names, **trace.named_launches}
        ordered = sorted((one for one in names if one in trace.calls), key=lambda one: trace.calls[one][1])
        self.where = _places(trace, ordered)
        found = [place.innermost(OPERATOR) if place else None for place in self.where]
        super().__init__([names[one] for one in ordered], [one and (one.name, one.what) for one in found])


@lru_cache(maxsize=2)
def _captured(path: str) -> _Captured:
    """Raises `NcuBenchError` where the file cannot be read."""
    return _Captured(_traced(Source(path))[0])


def _work_done(trace: _Trace, work: Sequence[TracedWork], places: Sequence[HostPlace | None]) -> WorkOfLaunches:
    """FLOPs and least bytes of the rows, from the shapes of the operators that launched them or that they are."""
    operators: list[LaunchingOperator | None] = []
    numbers: dict[tuple[int | None, int], int] = {}
    for place_of_row, (row, place) in enumerate(zip(work, places, strict=True)):
        around = [one for one in place.ranges if one.kind == OPERATOR] if place else []
        is_captured = place_of_row in trace.captured
        if not around or (not is_captured and _is_replayed(trace, row)):
            operators.append(None)
            continue
        replay = row.correlation if is_captured else None  # every replay calls the operators of its capture again
        *above, number = [numbers.setdefault((replay, id(one)), len(numbers)) for one in around]
        one, kernel = around[-1], row.name if row.operation == "kernel" else ""
        lacks_shapes = not one.what.shapes and not is_captured
        forward = trace.forward.behind(range_.what for range_ in around) if lacks_shapes else None
        operators.append(LaunchingOperator(number, one.name, one.what, tuple(above), kernel, forward))
    of = work_from_shapes.work_of_kernels if trace.work else work_from_shapes.work_of_cpu_operators
    return of(operators)


def _is_replayed(trace: _Trace, row: TracedWork) -> bool:
    """Whether a row ran as part of a graph that was captured before."""
    return row.graph_node is not None or row.correlation in trace.graph_launches


# --------------------------------------------------------------------------------------------------------- the table


def _table(
    name: str,
    work: Sequence[TracedWork],
    places: Sequence[HostPlace | None],
    steps: Sequence[tuple[float, float, int]],
    header: dict[str, Any],
    done: WorkOfLaunches,
    extras: Sequence[tuple[str, str, pa.Array]],
) -> pa.Table:
    identity = {**_identity(work, header), **_position(places, steps), **done.contract_columns()}
    identity["source"] = arrays.dictionary([DIALECT] * len(work))
    identity["report"] = arrays.dictionary([name] * len(work))
    identity["duration_ns"] = _nanoseconds(row.duration for row in work)
    columns = [identity.get(column.name, pa.nulls(len(work), column.type)) for column in COLUMNS]
    fields = list(contract_fields())
    for title, unit, values in extras:
        if values.null_count < len(values):
            columns.append(values)
            fields.append(pa.field(title, values.type, metadata=field_metadata(unit=unit)))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _identity(work: Sequence[TracedWork], header: dict[str, Any]) -> dict[str, pa.Array]:
    """The columns that say what ran, and on which device."""
    devices = traced_devices(header)
    rank = event_whole(event_mapping(header.get("distributedInfo")).get("rank"), bits=31)
    known = [devices.get(row.device, UNKNOWN_DEVICE) if row.device is not None else UNKNOWN_DEVICE for row in work]
    return {
        "launch_id": arrays.integers([row.correlation for row in work], pa.int64()),
        "rank": arrays.integers([rank] * len(work), pa.int32()),
        "device_id": arrays.integers([row.device for row in work], pa.int32()),
        "device_name": arrays.dictionary([device.name for device in known]),
        "compute_capability": arrays.dictionary([device.compute_capability for device in known]),
        "context": arrays.integers([row.context for row in work], pa.int64()),
        "stream": arrays.dictionary([row.stream for row in work]),
        "kernel_name": arrays.dictionary([row.name for row in work]),
        "kernel_short": arrays.dictionary([_short(row) for row in work]),
        "grid": arrays.integer_lists([row.grid for row in work]),
        "block": arrays.integer_lists([row.block for row in work]),
        "failed": arrays.booleans([False] * len(work)),
    }


def _position(places: Sequence[HostPlace | None], steps: Sequence[tuple[float, float, int]]) -> dict[str, pa.Array]:
    """The columns that say which part of the program a row belongs to."""
    processes = [place.thread[0] if place else None for place in places]
    modules = [".".join(place.path(MODULE)) or None if place else None for place in places]
    return {
        "process_id": arrays.integers([event_whole(process) for process in processes], pa.int64()),
        "nvtx_path": arrays.text_lists([place.path(ANNOTATION) if place else None for place in places]),
        "phase": arrays.dictionary([place.phase() if place else None for place in places]),
        "module": arrays.dictionary(modules),
        "iteration": arrays.integers(iterations_of(places, steps), pa.int32()),
    }


def _extras(work: Sequence[TracedWork], places: Sequence[HostPlace | None]) -> list[tuple[str, str, pa.Array]]:
    """Columns beyond the contract: name, unit, values. Shapes and types are JSON lists, one entry per argument."""
    operators = [place.innermost(OPERATOR) if place else None for place in places]
    inputs = [one.what if one else RecordedInputs() for one in operators]
    return [
        ("start_ns", "ns", arrays.integers([round(row.start * NS_PER_US) for row in work], pa.int64())),
        ("operation", "", arrays.dictionary([row.operation for row in work])),
        ("operator", "", arrays.dictionary([one.name if one else None for one in operators])),
        ("shapes", "", arrays.dictionary([_as_text(one.shapes) for one in inputs])),
        ("dtype", "", arrays.dictionary([_as_text(one.types) for one in inputs])),
        ("whole_duration_ns", "ns", _nanoseconds(row.whole for row in work)),
        ("bytes", "byte", arrays.integers([row.size for row in work], pa.int64())),
        ("registers_per_thread", "register/thread", arrays.integers([row.registers for row in work], pa.int64())),
        ("shared_memory_bytes", "byte", arrays.integers([row.shared_memory for row in work], pa.int64())),
        ("estimated_occupancy_percent", "%", arrays.floats(np.array([row.occupancy for row in work]))),
        ("graph_node_id", "", arrays.integers([row.graph_node for row in work], pa.int64())),
    ]


def _nanoseconds(microseconds: Iterable[float]) -> pa.Array:
    return arrays.floats(np.array(list(microseconds)) * NS_PER_US)


def _as_text(value: object) -> str | None:
    """A list of shapes or types as JSON; None for anything that is no list."""
    return json.dumps(value, separators=(",", ":")) if isinstance(value, list) else None


def _short(row: TracedWork) -> str:
    """The function's name; a copy's name is whole as it is, and an operator's goes without its namespace."""
    if row.operation == "kernel":
        return short_name(row.name)
    return row.name.partition("::")[2] or row.name if row.operation == CPU_OPERATION else row.name


# --------------------------------------------------------------------------------------------------- what was odd


def _notes(
    trace: _Trace, work: Sequence[TracedWork], places: Sequence[HostPlace | None], events: TraceEvents
) -> list[str]:
    notes = []
    if not trace.work:
        notes.append(
            "the trace holds no GPU work: rows are operators on the CPU, each with its own time, without that of the "
            "operators it called; whole_duration_ns has both"
        )
    else:
        notes += _busy(work)
    unlinked = sum(place is None for place in places)
    if unlinked:
        notes.append(
            f"{unlinked} of {len(work)} rows have no launching call in the trace, so their operator and ranges are "
            "unknown"
        )
    if trace.too_deep:
        notes.append(
            f"more than {DEEPEST} ranges are open at once around {trace.too_deep} of {len(work)} rows; "
            "the innermost are kept"
        )
    operators = [one for place in places if place and (one := place.innermost(OPERATOR))]
    if operators and not any(one.what.shapes for one in operators):
        notes.append("operators have no shapes; the profiler records them with record_shapes=True")
    replayed = sum(row.operation == "kernel" and _is_replayed(trace, row) for row in work)
    notes += graph_captures.replay_notes(len(work), replayed, len(trace.captured))
    if trace.broken:
        notes.append(f"{trace.broken} events could not be read and were left out")
    if events.cut:
        notes.append(f"the file ends early and was read up to there ({events.damage or 'in the middle of an event'})")
    return notes


def _busy(work: Sequence[TracedWork]) -> list[str]:
    device = np.array([UNKNOWN if one.device is None else one.device for one in work], np.int64)
    times = np.array([(one.start, one.duration) for one in work]) * NS_PER_US
    start, duration = times.T
    is_kernel = np.array([one.operation == OPERATIONS["kernel"] for one in work])
    return busy_notes(np.full_like(device, UNKNOWN), device, start - start.min(), duration, is_kernel)


def _refusal(source: Source, trace: _Trace, events: TraceEvents) -> NotAReport:
    if trace.host or trace.calls:
        return NotAReport(
            f"{source.name} is a trace of the PyTorch profiler that holds neither GPU work nor operators.",
            "Nothing ran while it recorded, or only Python was recorded.",
            "Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], around the work itself.",
        )
    if trace.others or trace.broken or "traceEvents" in events.header:
        return NotAReport(
            f"{source.name} is a trace, and none of its {trace.others + trace.broken} events are GPU work or operators "
            "of PyTorch.",
            "It may be of another program, or cut before its first event.",
            "Write one with torch.profiler: profile(...) and export_chrome_trace(FILE).",
        )
    return NotAReport(
        f"{source.name} is JSON without the events of a trace.",
        "Only traces of the PyTorch profiler are read from JSON.",
        "Write one with torch.profiler: profile(...) and export_chrome_trace(FILE).",
    )
