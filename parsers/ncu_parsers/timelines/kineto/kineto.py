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

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
from ncu_launch.notes import Note, NoteKind
from ncu_launch.operators.calls import Formula
from ncu_launch.operators.user_formulas import formulas_in

from ncu_parsers.derived.operators import graph_captures
from ncu_parsers.derived.operators.python_locations import BY_FORWARD, BY_STACK, Location, location_columns
from ncu_parsers.derived.operators.work_from_shapes import WorkOfLaunches
from ncu_parsers.report_data import report
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Report, StreamedReport
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.host_ranges import DEEPEST, OPERATOR
from ncu_parsers.timelines.kineto.chrome_trace import EXACT_UNTIL, NS_PER_US, SINCE_1970
from ncu_parsers.timelines.kineto.host_threads import NestedRanges
from ncu_parsers.timelines.kineto.launch_work import work_of_launches, work_of_operators
from ncu_parsers.timelines.kineto.launching_calls import ambiguous_note, launching_calls
from ncu_parsers.timelines.kineto.places import Places, places_of_calls, places_of_operators
from ncu_parsers.timelines.kineto.replayed_graphs import Captured, replayed, take_captured
from ncu_parsers.timelines.kineto.trace_table import CPU_OPERATION, DIALECT, TraceRows, TraceTable
from ncu_parsers.timelines.kineto.traced_events import KERNEL, MISSING, Columns, Launched, TracedEvents
from ncu_parsers.timelines.operation_times import BusyAccount, broken_note, impossible_notes, lost_note
from ncu_parsers.timelines.python_frames import PythonFrames

OTHER_EVENT = "event of another kind"


def read_report(source: Source) -> Report:
    """Read one trace.

    Raises `NotAReport` when it holds neither GPU work nor operators, `NcuBenchError` when it cannot be opened.
    """
    result = Report(source.name)
    table = _read(source, result)
    result.table = table.part(0, table.rows)
    return result


def stream_report(source: Source, write: Callable[[pa.Table], None]) -> StreamedReport:
    """Read one trace, and give its rows to `write` in tables that follow each other. Raises what `read_report` does."""
    result = StreamedReport(source.name)
    table = _read(source, result)
    result.streamed_rows = table.rows
    for part in table.parts():
        memory.require_memory(source.name)
        write(part)
    return result


def _read(source: Source, result: Report) -> TraceTable:
    """The rows of a trace; what is known of it beside these is put into `result`."""
    events = TracedEvents(source)
    ranges = events.host.nested(source.name)
    captured: Captured = {}
    launching, settings = None, source.settings
    own = formulas_in(settings.formulas)
    if events.has_work:
        launching = launching_calls(events)
        places = places_of_calls(events.calls, ranges, events.work["correlation"], launching.places)
        rows = TraceRows(events.work, list(events.launched), places)
        captured = take_captured(events, ranges, places, settings.capture)
        done = work_of_launches(events, ranges, places, captured, own)
    else:
        rows, done = _operators(ranges, own)
    if not len(rows):
        raise _refusal(source, events)
    result.dialects, result.origin = [DIALECT], DIALECT
    host = events.host_events if events.has_work else events.host_events - len(rows)
    result.lines.update(
        {report.METRICS: len(rows), report.HOST: host, report.BROKEN: events.broken, OTHER_EVENT: events.others}
    )
    result.lines = +result.lines  # drops kinds that did not occur
    result.session = {key: str(value) for key, value in events.header.items() if isinstance(value, str | int | float)}
    result.notes = _notes(events, rows, ranges, captured, settings.capture)
    if launching is not None and launching.ambiguous:
        result.notes.append(ambiguous_note(launching.ambiguous))
    located = location_columns_of(events.frames, rows.places, ranges)
    return TraceTable(source.name, rows, ranges, events.header, done, located)


def _operators(ranges: NestedRanges, own: Mapping[str, Formula]) -> tuple[TraceRows, WorkOfLaunches]:
    """The operators of a trace without GPU work as rows, each with its own time, and their work."""
    operators = np.flatnonzero(ranges.is_kind(OPERATOR))
    operators = operators[np.argsort(ranges.start[operators], kind="stable")]
    columns = {
        "launched": ranges.call[operators], "start": ranges.start[operators],
        "duration": ranges.own_times()[operators], "whole": ranges.duration[operators],
    }  # fmt: skip
    launched = [Launched(CPU_OPERATION, call.name) for call in ranges.calls]
    return TraceRows(columns, launched, places_of_operators(ranges, operators)), work_of_operators(
        ranges, operators, own
    )


# --------------------------------------------------------------------------------------------------- what was odd


def _notes(events: TracedEvents, rows: TraceRows, ranges: NestedRanges, captured: Captured, capture: str) -> list[str]:
    notes, places, replays = list[str](), rows.places, 0
    if events.has_work:
        is_kernel = np.array([one.operation == KERNEL for one in rows.launched])[rows.columns["launched"]]
        notes += [*impossible_notes(events.impossible), *_overlap(rows.columns)]
        replays = int((is_kernel & replayed(events)).sum())
    else:
        readable = " that could be read" if events.broken or events.lost else ""
        notes.append(
            f"the trace holds no GPU work{readable}: rows are operators on the CPU, each with its own time, without "
            "that of the operators it called; whole_duration_ns has both"
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
        without_shapes = "operators have no shapes; the profiler records them with record_shapes=True"
        notes.append(Note(without_shapes, NoteKind.NOT_KNOWN, "FLOPs"))
    if np.any((rows.columns["start"] > EXACT_UNTIL) & (rows.columns["start"] % 1 != 0)):
        notes.append(Note(SINCE_1970, NoteKind.METHOD))
    notes += graph_captures.replay_notes(len(rows), replays, len(captured), capture)
    if events.lost:
        notes.append(lost_note(events.lost))
    if events.broken:
        notes.append(broken_note(events.broken))
    if events.is_cut:
        damage = events.damage or "in the middle of an event"
        notes.append(Note(f"the file ends early and was read up to there ({damage})", NoteKind.LOST))
    return notes


def _overlap(columns: Columns) -> list[str]:
    device, start = columns["device"].astype(np.int64), (columns["start"] - columns["start"].min()) * NS_PER_US
    process = np.full_like(device, MISSING)
    account = BusyAccount()
    account.add(process, device, start, columns["duration"] * NS_PER_US)
    return account.notes()


def _refusal(source: Source, events: TracedEvents) -> NotAReport:
    if events.host_events:
        return NotAReport(
            f"{source.name} is a trace of the PyTorch profiler that holds neither GPU work nor operators.",
            "Nothing ran while it recorded, or only Python was recorded.",
            "Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], around the work itself.",
        )
    if events.others or events.broken or "traceEvents" in events.header:
        return NotAReport(
            f"{source.name} is a trace, and none of its {events.others + events.broken} events are GPU work or "
            "operators of PyTorch.",
            "It may be of another program, or cut before its first event.",
            "Write one with torch.profiler: profile(...) and export_chrome_trace(FILE).",
        )
    return NotAReport(
        f"{source.name} is JSON without the events of a trace.",
        "Of JSON, traces of PyTorch's profiler and results of rocprofv3 are read.",
        "Write one with torch.profiler: profile(...) and export_chrome_trace(FILE).",
    )


def location_columns_of(frames: PythonFrames, places: Places, ranges: NestedRanges) -> list[tuple[str, str, pa.Array]]:
    """Name, unit and values of the columns of locations (`LOCATION_COLUMNS`); [] for a trace without stacks."""
    return location_columns(*locations_of(frames, places, ranges)) if frames.seen else []


def locations_of(
    frames: PythonFrames, places: Places, ranges: NestedRanges
) -> tuple[list[Location | None], list[str | None]]:
    """The location of each row by its place on the host, and what it is that of (`LOCATION_BASIS`).

    A row of the backward pass has the location of its forward operator, where that is known; but where Python ran
    within the node of the backward pass, as a function of the user's or a recomputed forward, the location is there.
    """
    calls = zip(places.thread.tolist(), places.moment.tolist(), strict=True)
    own = frames.innermost([(ranges.threads[thread], moment) if thread >= 0 else None for thread, moment in calls])
    nodes = ranges.node_around(places.operator)
    forward = np.full(len(nodes), -1)
    of_backward = np.flatnonzero(nodes >= 0)
    forward[of_backward] = ranges.forward_of(-2 - ranges.number[nodes[of_backward]])
    threads = ranges.thread_of(forward).tolist()
    behind = frames.innermost(
        [
            (ranges.threads[thread], float(ranges.start[place])) if place >= 0 else None
            for thread, place in zip(threads, forward.tolist(), strict=True)
        ]
    )
    locations: list[Location | None] = []
    bases: list[str | None] = []
    for frame, node, of_forward in zip(own, nodes.tolist(), behind, strict=True):
        ran_within = frame is not None and node >= 0 and frame.start >= ranges.start[node]
        is_forward = of_forward is not None and not ran_within
        taken = of_forward if is_forward else frame
        locations.append(None if taken is None else taken.location)
        bases.append(None if taken is None else BY_FORWARD if is_forward else BY_STACK)
    return locations, bases
