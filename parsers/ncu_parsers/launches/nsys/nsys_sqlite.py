"""Read SQLite exports of Nsight Systems as tables of GPU operations: kernels, copies, memsets, CUDA graphs.

Times are from an undisturbed program: nothing was replayed, serialised or flushed. A kernel gets the NVTX ranges open
at the time of the API call that launched it, on the calling thread; both are matched by process and correlation id. A
kernel of a CUDA graph also gets the ranges in which the graph was captured, if nsys recorded them; its phase and module
come from the capture if the graph was launched outside any range. nsys packs ids as
<hardware:8><VM:8><process:24><thread:24> bits ("Serialized process and thread identifiers" in NVIDIA's Nsight Systems
documentation).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from ncu_launch.notes import Note, NoteKind
from ncu_launch.operators.user_formulas import formulas_in

from ncu_parsers.launches.host_ranges import OPERATOR
from ncu_parsers.launches.nsys import cuda_graphs, python_backtraces
from ncu_parsers.launches.nsys.api_calls import ApiCallIndex, LaunchingCalls
from ncu_parsers.launches.nsys.call_sites import CallSites, nested, open_paths
from ncu_parsers.launches.nsys.launch_table import CAPTURED_IN, SOURCE, launch_table
from ncu_parsers.launches.nsys.nvtx import NvtxRanges, read_ranges, sampled_operators
from ncu_parsers.launches.nsys.operations import OperationReader, TracedOperations
from ncu_parsers.launches.operation_columns import column
from ncu_parsers.launches.sampled_columns import SampledColumns
from ncu_parsers.report_data import report
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Report, StreamedReport
from ncu_parsers.schema import arrays
from ncu_parsers.sources import memory
from ncu_parsers.sources.memory import one_heap
from ncu_parsers.sources.reading_ahead import one_ahead
from ncu_parsers.sources.settings import Settings
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity.activity import (
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    MISSING,
    OPERATION_KINDS,
    HostRanges,
    Integers,
    elapsed,
)
from ncu_parsers.timelines.activity.operation_times import BusyAccount, impossible_notes, lost_note
from ncu_parsers.timelines.activity.samples import SampledActivity
from ncu_parsers.timelines.nsys.database import Database, opened
from ncu_parsers.timelines.nsys.devices import TABLE as DEVICES
from ncu_parsers.timelines.nsys.devices import Devices, read_devices
from ncu_parsers.timelines.nsys.gpu_metrics import read_gpu_metrics
from ncu_parsers.timelines.nsys.nsys_activity import ACTIVITIES, CALLS
from ncu_parsers.timelines.nsys.nsys_ranges import RANGES

DIALECT = "nsys sqlite"
DIAGNOSTICS = "DIAGNOSTIC_EVENT"

ROWS_OF_A_TABLE = 48 * 1024

WITHOUT_SIZES = (
    "operators have no sizes; torch.autograd.profiler.emit_nvtx(record_shapes=True) puts them into their ranges"
)

OF_GPU_WORK = (
    "source", "report", "device_id", "device_name", "chip", "compute_capability", "kernel_name", "kernel_short", "grid",
    "block", "failed", "duration_ns", "operation",
)  # fmt: skip
"""Columns of launches that are known without host ranges and ids; writing more takes as long as reading these."""

AT_ONCE = (
    "That is the limit for this program. Ranges hold the sizes of operators, and FLOPs from these are worked out over "
    "all launches at once; other timelines are read in parts."
)


class NoGpuWork(NotAReport):
    """The timeline contains no kernel, copy or memset."""


def read_report(source: Source) -> Report:
    """Read one export.

    Raises `NoGpuWork` if it contains no GPU operation, `NotAReport` if it is not an export of nsys, `NcuBenchError` if
    it cannot be read.
    """
    return read_export(source, source.name)


def read_export(source: Source, name: str) -> Report:
    """Read the export at `source` as a report called `name`. Raises as `read_report`."""
    with opened(source, name) as database:
        timeline = _Timeline(database, source.settings)
        with timeline.explaining_the_limit():
            (table,) = timeline.tables(name, None)
        result = Report(name, table=table)
        timeline.describe(result)
        return result


def stream_report(source: Source, write: Callable[[pa.Table], None]) -> StreamedReport:
    """Read one export and pass its launches to `write` in consecutive tables. Raises as `read_report`."""
    return stream_export(source, source.name, write)


def stream_gpu_work(source: Source, write: Callable[[pa.Table], None]) -> StreamedReport:
    """Like `stream_report`, but only how long which kernel ran on which GPU, and its shape; other columns are absent.

    Ranges that hold operator sizes are read all the same, because sizes give FLOPs, and then nothing is left out.
    """
    return stream_export(source, source.name, write, ranges=False)


def stream_export(
    source: Source, name: str, write: Callable[[pa.Table], None], *, ranges: bool = True
) -> StreamedReport:
    """Read the export at `source` as a report called `name`, like `stream_report`, or like `stream_gpu_work`."""
    with opened(source, name) as database:
        timeline = _Timeline(database, source.settings, ranges=ranges)
        with one_heap(), timeline.explaining_the_limit():
            database.in_parts = not timeline.has_sizes
            for table in timeline.tables(name, ROWS_OF_A_TABLE if database.in_parts else None):
                write(table)
        result = StreamedReport(name)
        timeline.describe(result)
        result.streamed_rows = timeline.account.rows
        return result


@dataclass
class _Account:
    """Totals over all operations so far."""

    kinds: dict[int, int] = field(default_factory=lambda: dict.fromkeys(ACTIVITIES, 0))
    nodes: int = 0
    captured: int = 0
    without_call: int = 0
    without_time: int = 0
    cut_to: int | None = None
    """Number of innermost ranges that are kept if a path is longer."""
    has_operators: bool = False
    has_sizes: bool = False
    first: Integers | None = None
    busy: BusyAccount = field(default_factory=BusyAccount)

    @property
    def rows(self) -> int:
        """Number of operations."""
        return sum(self.kinds.values())

    def add(self, operations: TracedOperations, calls: LaunchingCalls, sites: CallSites | None) -> None:
        """Add operations that start later than the added ones, with their calls and ranges."""
        for kind in self.kinds:
            self.kinds[kind] += int((operations.kind == kind).sum())
        self.nodes += int((operations.graph_node != MISSING).sum())
        self.without_call += int((calls.call < 0).sum())
        if sites is not None:
            self.captured += sites.captures
            self.cut_to = min(filter(None, (self.cut_to, sites.launched.cut_to)), default=None)
            operators = [call for call in sites.ranges.calls if call.kind == OPERATOR]
            self.has_operators |= bool(operators)
            self.has_sizes |= any(call.inputs.shapes for call in operators)
        self._add_times(operations)

    def _add_times(self, operations: TracedOperations) -> None:
        is_timed = operations.end >= operations.start
        timed = operations if is_timed.all() else operations.at(is_timed)
        self.without_time += len(operations) - len(timed)
        if self.first is None:
            self.first = timed.start[:1] if len(timed) else None
        if self.first is not None:
            since_first = elapsed(self.first, timed.start)  # exact in float64 for a hundred days
            self.busy.add(timed.process, timed.device, since_first, timed.durations)


class _Batch(NamedTuple):
    """Operations with their calls, the origins of their graph nodes, and the ranges open at both; None without NVTX."""

    operations: TracedOperations
    calls: LaunchingCalls
    made: cuda_graphs.Origins
    ranges: HostRanges | None


class _Timeline:
    """The tables of one export while they are read."""

    def __init__(self, database: Database, settings: Settings, *, ranges: bool = True) -> None:
        self.account = _Account()
        self._database, self._own = database, formulas_in(settings.formulas)
        strings = database.strings()
        operators = sampled_operators(database, strings)
        self._kept = ("operator",) if operators else ()
        self.has_sizes = any(call.inputs.shapes for call in operators)
        """Sizes give FLOPs. The FLOPs of a call are computed from all its launches, which two tables may hold."""
        self._with_ranges = ranges or self.has_sizes
        self._operations = OperationReader(database, strings, gpu_work=not self._with_ranges)
        self._ranges = read_ranges(database, strings) if self._with_ranges else None
        self.has_sizes |= self._ranges is not None and self._ranges.has_sizes
        self._nodes = cuda_graphs.GraphNodes(database)
        self._devices = read_devices(database)
        self._samples = SampledColumns(read_gpu_metrics(database) if ranges else SampledActivity())
        self._locations = python_backtraces.locations_of_backtraces(database, strings) if ranges else {}

    @contextmanager
    def explaining_the_limit(self) -> Iterator[None]:
        """If the block exceeds the memory limit while the whole timeline is read at once, explain why in the error."""
        try:
            yield
        except memory.TooBig as error:
            raise memory.TooBig(error.what, AT_ONCE, error.advice) if self.has_sizes else error from None

    def tables(self, name: str, rows: int | None) -> Iterator[pa.Table]:
        """The launches of a report called `name` in tables of about `rows`, or in one table if that is None.

        Raises `NoGpuWork` if there is none.
        """
        kept = () if rows is None else self._kept
        for batch in one_ahead(self._batches(rows)):
            operations, calls = batch.operations, batch.calls
            sites = None if batch.ranges is None else _sites(batch, batch.ranges)
            self.account.add(operations, calls, sites)
            gpu = self._devices.of(operations.process, operations.device)
            table = launch_table(name, operations, calls.thread, sites, gpu, kept, self._own)
            if not self._with_ranges:
                table = table.select(OF_GPU_WORK)
            for own, unit, values in self._beside(operations, calls):
                table = table.append_column(*column(own, values, unit))
            yield self._samples.beside(table, operations.start, operations.end, gpu.place)
        if not self.account.rows:
            raise _no_gpu_work(self._database, name, self._ranges)

    def _beside(self, operations: TracedOperations, calls: LaunchingCalls) -> Iterator[tuple[str, str, pa.Array]]:
        """Name, unit and values of columns: times alone, if any overlap, and lines of Python, if known."""
        overlaps = self._operations.overlaps
        if overlaps:
            overlapped, is_timed = overlaps.during(operations), operations.end >= operations.start
            yield "exclusive_ns", "ns", arrays.whole(operations.end - operations.start - overlapped, is_timed)
            yield "overlapped_ns", "ns", arrays.whole(overlapped, is_timed)
        if self._locations:
            yield from python_backtraces.location_columns_of(self._locations, calls.backtrace)

    def _batches(self, rows: int | None) -> Iterator[_Batch]:
        index = None
        for operations in self._operations.batches(rows):
            index = index or ApiCallIndex(
                self._database, CALLS if self._with_ranges else (), backtraces=bool(self._locations)
            )
            calls = index.of(operations.process, operations.correlation)
            made = self._nodes.origins(operations.process, operations.graph_node)
            times = np.concatenate([calls.start[calls.call >= 0], made.moment[made.is_known]])
            threads = np.concatenate([calls.thread[calls.call >= 0], made.thread[made.is_known]])
            ranges = None if self._ranges is None else self._ranges.around(times, threads)
            yield _Batch(operations, calls, made, ranges)

    def describe(self, result: Report) -> None:
        """Fill a report's fields other than its launches."""
        database, account = self._database, self.account
        exported = {**database.attributes("EXPORT_META_DATA"), **database.attributes("META_DATA_EXPORT")}
        version, schema = (exported.get(f"EXPORT_{key}_VERSION") for key in ("PRODUCT", "SCHEMA"))
        startless = self._operations.startless
        result.dialects, result.origin = [DIALECT], SOURCE
        result.tool_version = f"nsys {version}" if version else None
        result.era = f"schema {schema}" if schema else "schema of 2021 or older"
        result.lines[report.METRICS] = account.rows
        if startless:
            result.lines[report.BROKEN] = startless
        lost = self._operations.lost
        if lost:
            result.lines[report.BROKEN] += lost
        result.notes = [
            *_absences(database, account, self._devices),
            *(_call_notes(database, account) if self._with_ranges else [WITHOUT_SIZES] if self._kept else []),
            *_graph_notes(database, account, has_ranges=self._with_ranges),
            *impossible_notes(sorted(self._operations.impossible, key=lambda one: -one[1].overlap_ns)),
            *_remarks(account, startless, lost),
            *_omissions(database),
            *self._samples.notes(),
        ]


def _sites(batch: _Batch, around: HostRanges) -> CallSites:
    """Ranges around each operation's call, and around its graph node's capture."""
    ranges = nested(around)
    launched = open_paths(ranges, batch.calls.start, batch.calls.thread)
    captured = open_paths(ranges, batch.made.moment, batch.made.thread)
    return CallSites(ranges, launched, captured, batch.operations.graph_node != MISSING)


def _absences(database: Database, account: _Account, devices: Devices) -> list[str]:
    """Notes on missing tables and the consequences. nsys creates a table only when it has a row for it."""
    notes: list[str] = []
    if not account.kinds[KERNEL]:
        notes.append(f"no {ACTIVITIES[KERNEL]} table or rows: no single kernel was recorded")
    nothing = [kind for kind in (MEMCPY, MEMSET) if not account.kinds[kind]]
    if nothing:
        listed = " and ".join(ACTIVITIES[kind] for kind in nothing)
        lacking = " and no ".join(OPERATION_KINDS[kind] for kind in nothing)
        words = f"no {listed} table or rows: no {lacking} was recorded"
        notes.append(Note(words, NoteKind.NOT_MEASURED))
    if not any(database.has_rows(table) for table in CALLS):
        notes.append(f"no {CALLS[0]} table: which thread launched what, and so NVTX ranges, are not known")
    elif not database.has_rows(RANGES):
        notes.append(f"no {RANGES} table or rows: no NVTX was recorded, so there are no phases and modules")
    if not devices.table:
        notes.append(Note("no TARGET_INFO_GPU table: the GPU is unknown", NoteKind.NOT_KNOWN))
    return notes


def _call_notes(database: Database, account: _Account) -> list[str]:
    """Notes on API calls, and on the ranges around them."""
    notes: list[str] = []
    if account.without_call and any(database.has_rows(table) for table in CALLS):
        notes.append(
            f"{account.without_call} of {account.rows} GPU operations have no API call in the file: launched before "
            "the recording, or cut off; their NVTX ranges are not known"
        )
    if account.cut_to is not None:
        notes.append(f"more than {account.cut_to} NVTX ranges are open at once: some never end; the innermost are kept")
    if account.has_operators and not account.has_sizes:
        notes.append(Note(WITHOUT_SIZES, NoteKind.NOT_KNOWN, "FLOPs"))
    return notes


def _graph_notes(database: Database, account: _Account, *, has_ranges: bool) -> list[str]:
    """Notes on launches of CUDA graphs and their kernels."""
    notes = []
    graphs, nodes = account.kinds[GRAPH], account.nodes
    if graphs:
        notes.append(
            f"{graphs} launches of CUDA graphs were recorded as a whole, and their kernels are not known; "
            "nsys profile --cuda-graph-trace=node records them"
        )
    if not nodes or not has_ranges:
        return notes
    note = f"{nodes} operations are nodes of CUDA graphs: their NVTX ranges are those of the graph's launch"
    if account.captured:
        known = f"of {account.captured} the ranges of the capture are known too ({CAPTURED_IN})"
        note += f"; {known}, and give phase and module"
    elif not database.has_rows(cuda_graphs.TABLE):
        note += f"; where they were captured is not known, because there is no {cuda_graphs.TABLE} table or rows"
    else:
        note += "; where they were captured is not known, because the recording does not hold the capture or its ranges"
    return [*notes, note]


def _remarks(account: _Account, startless: int, lost: int) -> list[str]:
    """Notes on broken times and on operations that overlap."""
    notes: list[str] = []
    if account.without_time:
        words = f"{account.without_time} operations have no end, or one before their start: their time is not known"
        notes.append(Note(words, NoteKind.NO_TIME))
    if startless:
        notes.append(Note(f"{startless} operations have no start and were left out", NoteKind.LOST))
    if lost:
        notes.append(Note(lost_note(lost), NoteKind.LOST))
    return [*notes, *account.busy.notes()]


def _omissions(database: Database) -> list[str]:
    if not database.too_long:
        return []
    return [
        f"texts of more than {memory.longest_line():,} bytes were left out {database.too_long} times, so that "
        f"ranges or kernels lack a name; {memory.OPTION} raises this limit"
    ]


def _is_a_complaint(message: str) -> bool:
    """True if a message of nsys on CUDA is a complaint; most report success or a capability."""
    complaint = re.compile(r"no cuda|fail|unable|cannot|could not|not support|error|insufficient", re.IGNORECASE)
    return "CUDA" in message and "Unified Memory" not in message and complaint.search(message) is not None


def _no_gpu_work(database: Database, name: str, ranges: NvtxRanges | None) -> NoGpuWork:
    """The error for a timeline without GPU operations, with the likely reason."""
    held = f"{count} NVTX ranges" if ranges is not None and (count := ranges.count()) else "no NVTX range"
    message = next((text for text in database.texts(DIAGNOSTICS, "text") if text and _is_a_complaint(text)), None)
    gpu = next((title for title in database.texts(DEVICES, "name") if title), None)
    advice = "Record on a machine with a GPU"
    cause = "CUDA was not traced, could not be (as under older WSL), or the program launched nothing."
    if message:
        cause = f'nsys says: "{message.strip()[:200]}".'
    elif gpu is not None:
        cause = (
            f"It names {gpu}: an nsys older than the driver records no kernel there; else CUDA was not traced, or the "
            "program launched nothing."
        )
        advice = "Record with an nsys as new as the driver"
    return NoGpuWork(
        f"{name} is a timeline without GPU work: it holds {held}, and no {ACTIVITIES[KERNEL]} table or rows.",
        cause,
        f"{advice}: nsys profile --trace cuda,nvtx PROGRAM",
    )
