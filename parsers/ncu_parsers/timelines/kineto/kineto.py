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
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ncu_parsers.derived.operators import graph_captures
from ncu_parsers.derived.operators.work_from_shapes import WorkOfLaunches
from ncu_parsers.report_data import report
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Report
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import COLUMNS, contract_fields, field_metadata, short_name
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.gpu_busy_time import busy_notes
from ncu_parsers.timelines.host_ranges import DEEPEST, OPERATOR
from ncu_parsers.timelines.kineto.chrome_trace import (
    NS_PER_US,
    UNKNOWN_DEVICE,
    event_mapping,
    event_whole,
    traced_devices,
)
from ncu_parsers.timelines.kineto.host_threads import Floats, Integers, NestedRanges
from ncu_parsers.timelines.kineto.launch_work import work_of_launches, work_of_operators
from ncu_parsers.timelines.kineto.places import Places, places_of_calls, places_of_operators
from ncu_parsers.timelines.kineto.replayed_graphs import Captured, replayed, take_captured
from ncu_parsers.timelines.kineto.traced_events import KERNEL, MISSING, Columns, Launched, TracedEvents

DIALECT = "kineto"
OTHER_EVENT = "event of another kind"
CPU_OPERATION = "cpu_op"

NUMBERS = (
    ("bytes", "byte", "bytes"), ("registers_per_thread", "register/thread", "registers"),
    ("shared_memory_bytes", "byte", "shared_memory"), ("estimated_occupancy_percent", "%", "occupancy"),
    ("graph_node_id", "", "graph_node"),
)  # fmt: skip
"""Columns beyond the contract: name, unit, and where they come from."""


@dataclass
class _Rows:
    """The rows to be: columns of numbers with `MISSING`, distinct `launched` by their places, and where each is from.

    `whole`: durations of operators with what they called, in microseconds; None for GPU work.
    """

    columns: Columns
    launched: list[Launched]
    places: Places
    whole: Floats | None = None

    def __len__(self) -> int:
        return self.places.rows


def read_report(source: Source) -> Report:
    """Read one trace.

    Raises `NotAReport` when it holds neither GPU work nor operators, `NcuBenchError` when it cannot be opened.
    """
    events = TracedEvents(source)
    ranges = events.host.nested()
    captured: Captured = {}
    if events.has_work:
        rows = _Rows(events.work, list(events.launched), places_of_calls(events.calls, ranges, events.work["correlation"]))
        captured = take_captured(events, ranges, rows.places)
        done = work_of_launches(events, ranges, rows.places, captured)
    else:
        operators = np.flatnonzero(ranges.is_kind(OPERATOR))
        operators = operators[np.argsort(ranges.start[operators], kind="stable")]
        rows = _operators(ranges, operators)
        done = work_of_operators(ranges, operators)
    if not len(rows):
        raise _refusal(source, events)
    result = Report(source.name, dialects=[DIALECT], origin=DIALECT)
    result.table = _table(source.name, rows, ranges, events.header, done)
    host = events.host_events if events.has_work else events.host_events - len(rows)
    result.lines.update(
        {report.METRICS: len(rows), report.HOST: host, report.BROKEN: events.broken, OTHER_EVENT: events.others}
    )
    result.lines = +result.lines  # drops kinds that did not occur
    result.session = {key: str(value) for key, value in events.header.items() if isinstance(value, str | int | float)}
    result.notes = _notes(events, rows, ranges, captured)
    return result


def _operators(ranges: NestedRanges, operators: Integers) -> _Rows:
    """The operators of a trace without GPU work as rows, each with its own time, and the ranges they stand in."""
    calls = ranges.call[operators]
    columns = {"launched": calls, "start": ranges.start[operators], "duration": ranges.own_times()[operators]}
    launched = [Launched(CPU_OPERATION, call.name) for call in ranges.calls]
    return _Rows(columns, launched, places_of_operators(ranges, operators), ranges.duration[operators])


# --------------------------------------------------------------------------------------------------------- the table


def _table(
    name: str, rows: _Rows, ranges: NestedRanges, header: dict[str, Any], done: WorkOfLaunches
) -> pa.Table:
    count = len(rows)
    known = {**_identity(rows, header), **_position(rows.places, ranges), **done.contract_columns()}
    known["source"], known["report"] = arrays.repeated(DIALECT, count), arrays.repeated(name, count)
    known["duration_ns"] = arrays.floats(rows.columns["duration"] * NS_PER_US)
    nothing = {kind: pa.nulls(count, kind) for kind in {column.type for column in COLUMNS}}  # one for all of a type
    columns = [known.get(column.name, nothing[column.type]) for column in COLUMNS]
    fields = list(contract_fields())
    for title, unit, values in (*_extras(rows, ranges), *done.operator_columns()):
        if values.null_count < count:
            columns.append(values)
            fields.append(pa.field(title, values.type, metadata=field_metadata(unit=unit)))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _identity(rows: _Rows, header: dict[str, Any]) -> dict[str, pa.Array]:
    """The columns that say what ran, and on which device."""
    devices = traced_devices(header)
    rank = event_whole(event_mapping(header.get("distributedInfo")).get("rank"), bits=31)
    launched = rows.columns["launched"]
    found = {
        "rank": arrays.wholes(np.full(len(rows), MISSING if rank is None else rank), pa.int32()),
        "kernel_name": arrays.recoded(launched, [one.name for one in rows.launched]),
        "kernel_short": arrays.recoded(launched, [_short(one) for one in rows.launched]),
        "grid": _triples(launched, [one.grid for one in rows.launched]),
        "block": _triples(launched, [one.block for one in rows.launched]),
        "failed": arrays.booleans(np.zeros(len(rows), np.bool_)),
    }
    if "device" in rows.columns:
        number, of_row = np.unique(rows.columns["device"], return_inverse=True)
        known = [devices.get(one, UNKNOWN_DEVICE) for one in number.tolist()]
        stream, of_stream = np.unique(rows.columns["stream"], return_inverse=True)
        found |= {
            "launch_id": arrays.wholes(rows.columns["correlation"], pa.int64()),
            "device_id": arrays.wholes(rows.columns["device"], pa.int32()),
            "device_name": arrays.recoded(of_row, [device.name for device in known]),
            "compute_capability": arrays.recoded(of_row, [device.compute_capability for device in known]),
            "context": arrays.wholes(rows.columns["context"], pa.int64()),
            "stream": arrays.recoded(of_stream, [None if one == MISSING else str(one) for one in stream.tolist()]),
        }
    return found


def _position(places: Places, ranges: NestedRanges) -> dict[str, pa.Array]:
    """The columns that say which part of the program a row belongs to."""
    processes = [event_whole(process) for process, _ in ranges.threads]
    process_of = np.array([MISSING if process is None else process for process in (*processes, None)], np.int64)
    contexts = ranges.contexts.known
    return {
        "process_id": arrays.wholes(process_of[places.thread], pa.int64()),
        "nvtx_path": arrays.taken(arrays.text_lists([one.annotations for one in contexts]), arrays.indices(places.context)),
        "phase": arrays.recoded(places.context, [one.phase() for one in contexts]),
        "module": arrays.recoded(places.context, [".".join(one.modules) or None for one in contexts]),
        "iteration": arrays.wholes(_iterations(places.moment, ranges.steps()), pa.int32()),
    }


def _iterations(moments: Floats, steps: list[tuple[float, float, int]]) -> Integers:
    """The step in which each moment lies, `MISSING` outside of all."""
    if not steps:
        return np.full(len(moments), MISSING)
    starts, ends, numbers = (np.array(column) for column in zip(*steps, strict=True))
    at = np.searchsorted(starts, moments, side="right") - 1
    return np.where((at >= 0) & (moments <= ends[at]), numbers[at], MISSING)  # False where a moment is not known


def _extras(rows: _Rows, ranges: NestedRanges) -> list[tuple[str, str, pa.Array]]:
    """Columns beyond the contract: name, unit, values. Shapes and types are JSON lists, one entry per argument."""
    calls, of_call, launched = ranges.calls, rows.places.call, rows.columns["launched"]
    whole = [] if rows.whole is None else [("whole_duration_ns", "ns", arrays.floats(rows.whole * NS_PER_US))]
    start = np.rint(rows.columns["start"] * NS_PER_US).astype(np.int64)
    return [
        ("start_ns", "ns", arrays.whole(start)),
        ("operation", "", arrays.recoded(launched, [one.operation for one in rows.launched])),
        ("operator", "", arrays.recoded(of_call, [one.name for one in calls])),
        ("shapes", "", arrays.recoded(of_call, [_as_text(one.inputs.shapes) for one in calls])),
        ("dtype", "", arrays.recoded(of_call, [_as_text(one.inputs.types) for one in calls])),
        *whole,
        *((title, unit, _numbers(rows, column)) for title, unit, column in NUMBERS),
    ]


def _numbers(rows: _Rows, column: str) -> pa.Array:
    if column in rows.columns:
        return arrays.wholes(rows.columns[column], pa.int64())
    values = [getattr(one, column, None) for one in rows.launched]
    launched = rows.columns["launched"]
    if column == "occupancy":
        return arrays.floats(np.array(values, np.float64)[launched])
    return arrays.wholes(np.array([MISSING if one is None else one for one in values], np.int64)[launched], pa.int64())


def _triples(codes: Integers, values: list[tuple[int, ...] | None]) -> pa.Array:
    """Grids or blocks from the places of each."""
    return arrays.triples(np.array([one or (MISSING,) * 3 for one in values], np.int32)[codes])


def _as_text(value: object) -> str | None:
    """A list of shapes or types as JSON; None for anything that is no list."""
    return json.dumps(value, separators=(",", ":")) if isinstance(value, list) else None


def _short(one: Launched) -> str:
    """The function's name; a copy's name is whole as it is, and an operator's goes without its namespace."""
    if one.operation == KERNEL:
        return short_name(one.name)
    return one.name.partition("::")[2] or one.name if one.operation == CPU_OPERATION else one.name


# --------------------------------------------------------------------------------------------------- what was odd


def _notes(events: TracedEvents, rows: _Rows, ranges: NestedRanges, captured: Captured) -> list[str]:
    notes, places, replays = [], rows.places, 0
    if events.has_work:
        is_kernel = np.array([one.operation == KERNEL for one in rows.launched])[rows.columns["launched"]]
        notes += _busy(rows.columns, is_kernel)
        replays = int((is_kernel & replayed(events)).sum())
    else:
        notes.append(
            "the trace holds no GPU work: rows are operators on the CPU, each with its own time, without that of the "
            "operators it called; whole_duration_ns has both"
        )
    unlinked = int((places.context == MISSING).sum())
    if unlinked:
        notes.append(
            f"{unlinked} of {len(rows)} rows have no launching call in the trace, so their operator and ranges are "
            "unknown"
        )
    if places.too_deep:
        notes.append(
            f"more than {DEEPEST} ranges are open at once around {places.too_deep} of {len(rows)} rows; "
            "the innermost are kept"
        )
    operators = np.unique(places.call[places.call != MISSING]).tolist()
    if operators and not any(ranges.calls[call].inputs.shapes for call in operators):
        notes.append("operators have no shapes; the profiler records them with record_shapes=True")
    notes += graph_captures.replay_notes(len(rows), replays, len(captured))
    if events.broken:
        notes.append(f"{events.broken} events could not be read and were left out")
    if events.is_cut:
        notes.append(f"the file ends early and was read up to there ({events.damage or 'in the middle of an event'})")
    return notes


def _busy(columns: Columns, is_kernel: Any) -> list[str]:
    device, start = columns["device"].astype(np.int64), columns["start"] * NS_PER_US
    process = np.full_like(device, MISSING)
    return busy_notes(process, device, start - start.min(), columns["duration"] * NS_PER_US, is_kernel)


def _refusal(source: Source, events: TracedEvents) -> NotAReport:
    if events.host_events:
        return NotAReport(
            f"{source.name} is a trace of the PyTorch profiler that holds neither GPU work nor operators.",
            "Nothing ran while it recorded, or only Python was recorded.",
            "Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], around the work itself.",
        )
    if events.others or events.broken or "traceEvents" in events.header:
        return NotAReport(
            f"{source.name} is a trace, and none of its {events.others + events.broken} events are GPU work or operators "
            "of PyTorch.",
            "It may be of another program, or cut before its first event.",
            "Write one with torch.profiler: profile(...) and export_chrome_trace(FILE).",
        )
    return NotAReport(
        f"{source.name} is JSON without the events of a trace.",
        "Only traces of the PyTorch profiler are read from JSON.",
        "Write one with torch.profiler: profile(...) and export_chrome_trace(FILE).",
    )
