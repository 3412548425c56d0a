"""Read SQLite exports of Nsight Systems as a table of GPU operations: kernels, copies, memsets, CUDA graphs.

Times are those of an undisturbed program: nothing was replayed, serialised or flushed. A kernel gets the NVTX ranges
open at the time of the API call that launched it, on the calling thread; both are matched by process and correlation
id. A kernel of a CUDA graph also has the ranges in which the graph was captured, if nsys recorded that; its phase and
module come from there if the graph was launched outside any. nsys packs ids as
<hardware:8><VM:8><process:24><thread:24> bits ("Serialized process and thread identifiers" in NVIDIA's documentation).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.nvtx_ranges import DOMAIN

from ncu_parsers.derived.operators.work_from_shapes import LaunchingOperator, WorkOfLaunches, work_of_kernels
from ncu_parsers.report_data import report
from ncu_parsers.report_data.nvtx_path import place
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Launch, Report
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.tables import COLUMNS, contract_fields, field_metadata
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.gpu_busy_time import busy_notes
from ncu_parsers.timelines.host_ranges import HostRange
from ncu_parsers.timelines.nsys import cuda_graphs, nvtx, python_backtraces
from ncu_parsers.timelines.nsys.database import MISSING, Database, Integers, opened
from ncu_parsers.timelines.nsys.devices import Devices, read_devices
from ncu_parsers.timelines.nsys.gpu_metrics import read_gpu_metrics, with_sampled_activity
from ncu_parsers.timelines.nsys.nvtx import Codes, Label, TracedRanges, process_of, read_ranges
from ncu_parsers.timelines.nsys.operations import (
    ACTIVITIES,
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    SHAPES,
    Operations,
    elapsed,
    read_operations,
)

DIALECT = "nsys sqlite"
SOURCE = "nsys"

CALLS = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
DIAGNOSTICS = "DIAGNOSTIC_EVENT"

CAPTURED_IN = "capture_nvtx_path"


class NoGpuWork(NotAReport):
    """The timeline contains no kernel, copy or memset."""


@dataclass
class Calls:
    """The API call of each operation: `thread` and index `path` into `paths` (int64, one per operation; -1: none).

    `operators`: those of PyTorch open around each call, outermost first, and around its capture for a node of a graph;
    [] for all where no range is one.
    """

    thread: Integers
    path: Codes
    paths: list[tuple[Label, ...]]
    notes: list[str] = field(default_factory=list)
    operators: list[list[HostRange]] = field(default_factory=list)


@dataclass
class Captures:
    """The ranges in which each operation's graph node was captured: `path` indexes `paths` (int64; -1: unknown)."""

    path: Codes
    paths: list[tuple[Label, ...]]

    @property
    def known(self) -> int:
        """Number of operations with such ranges."""
        return int((self.path >= 0).sum())


def read_report(source: Source) -> Report:
    """Read one export.

    Raises `NoGpuWork` if it contains no GPU operation, `NotAReport` if it is not an export of nsys, `NcuBenchError` if
    it cannot be read.
    """
    return read_export(source, source.name)


def read_export(source: Source, name: str) -> Report:
    """Read the export at `source` as a report called `name`. Raises what `read_report` raises."""
    with opened(source, name) as database:
        return _report_of(database, name)


def _report_of(database: Database, name: str) -> Report:
    strings = database.strings()
    operations = read_operations(database, strings)
    ranges = read_ranges(database, strings)
    if not len(operations):
        raise _no_gpu_work(database, name, ranges)
    calls = _launching_calls(database, operations, ranges)
    captures = _captures(database, operations, ranges, calls)
    devices = read_devices(database)
    exported = {**database.attributes("EXPORT_META_DATA"), **database.attributes("META_DATA_EXPORT")}
    version, schema = (exported.get(f"EXPORT_{key}_VERSION") for key in ("PRODUCT", "SCHEMA"))
    result = Report(name, [DIALECT], origin=SOURCE)
    result.tool_version = f"nsys {version}" if version else None
    result.era = f"schema {schema}" if schema else "schema of 2021 or older"
    result.lines[report.METRICS] = len(operations)
    if operations.startless:
        result.lines[report.BROKEN] = operations.startless
    located = python_backtraces.location_columns_of(database, strings, operations, CALLS)
    table = _with_columns(_table(name, operations, calls, captures, devices, ranges), located)
    result.table, on_samples = with_sampled_activity(table, read_gpu_metrics(database), operations, devices)
    result.notes = [
        *_absences(database, operations, devices), *calls.notes, *_without_sizes(calls),
        *_graph_notes(database, operations, captures),
        *_remarks(operations), *_omissions(database), *on_samples,
    ]  # fmt: skip
    return result


# ------------------------------------------------------------------------------------------------- launching calls


def _launching_calls(database: Database, operations: Operations, ranges: TracedRanges | None) -> Calls:
    """Match each operation with the API call that launched it, and with the ranges open around the call."""
    parts = [database.integers(table, "start", "globalTid", "correlationId") for table in CALLS]
    start, thread, correlation = (
        np.concatenate([part[name] for part in parts]) for name in ("start", "globalTid", "correlationId")
    )
    process = process_of(thread)
    wanted = process_of(operations.columns["globalPid"])
    alone = np.unique(process)
    if len(alone) == 1:
        wanted = np.where(operations.columns["globalPid"] == MISSING, alone[0], wanted)
    row = _first_match(process, correlation, start, wanted, operations.columns["correlationId"])
    found = np.flatnonzero(row >= 0)
    result = Calls(np.full(len(row), MISSING), np.full(len(row), -1), [])
    result.thread[found] = thread[row[found]]
    lost = len(row) - len(found)
    if lost and len(start):
        result.notes.append(
            f"{lost} of {len(row)} GPU operations have no API call in the file: launched before the recording, or cut "
            "off; their NVTX ranges are not known"
        )
    if ranges is not None:
        places = nvtx.paths(ranges, start[row[found]], result.thread[found])
        result.path[found], result.paths, deepest = places
        if ranges.operators:
            result.operators = [[] for _ in row]
            _put(result.operators, found, nvtx.operators_at(ranges, start[row[found]], result.thread[found]))
        if any(len(path) >= deepest for path in result.paths):
            result.notes.append(
                f"more than {deepest} NVTX ranges are open at once: some never end; the innermost are kept"
            )
    return result


def _first_match(
    process: Integers, correlation: Integers, start: Integers, wanted_process: Integers, wanted_correlation: Integers
) -> Codes:
    """Per wanted pair, the row of the earliest call with that process and correlation id (int64; -1: none)."""
    if not len(process):
        return np.full(len(wanted_process), -1, np.int64)
    _, process_code = np.unique(np.concatenate([process, wanted_process]), return_inverse=True)
    known, correlation_code = np.unique(np.concatenate([correlation, wanted_correlation]), return_inverse=True)
    keys = process_code.astype(np.int64) * len(known) + correlation_code
    of_calls, wanted = keys[: len(process)], keys[len(process) :]
    order = np.lexsort((start, of_calls))
    at = np.minimum(np.searchsorted(of_calls[order], wanted), len(order) - 1)
    matches = (of_calls[order][at] == wanted) & (wanted_correlation != MISSING)
    return np.where(matches, order[at], -1)


def _put(operators: list[list[HostRange]], rows: npt.NDArray[np.intp], found: list[list[HostRange]]) -> None:
    for row, around in zip(rows.tolist(), found, strict=True):
        operators[row] = around


def _captures(database: Database, operations: Operations, ranges: TracedRanges | None, calls: Calls) -> Captures:
    """The ranges in which each operation's graph node was captured, if the file contains them.

    The operators of such nodes in `calls` become those of the capture.
    """
    result = Captures(np.full(len(operations), -1), [])
    if ranges is None:
        return result
    process, node = process_of(operations.columns["globalPid"]), operations.columns["graphNodeId"]
    origins = cuda_graphs.read_origins(database, process, node)
    found = np.flatnonzero(origins.moment != MISSING)
    result.path[found], result.paths, _ = nvtx.paths(ranges, origins.moment[found], origins.thread[found])
    if calls.operators:
        _put(calls.operators, np.flatnonzero(node != MISSING), [[]] * int((node != MISSING).sum()))
        _put(calls.operators, found, nvtx.operators_at(ranges, origins.moment[found], origins.thread[found]))
    return result


# ----------------------------------------------------------------------------------------------------------- table


def _table(
    name: str, operations: Operations, calls: Calls, captures: Captures, devices: Devices, ranges: TracedRanges | None
) -> pa.Table:
    """Build the table of operations: the contract's columns, then those that only timelines have."""
    rows, columns = len(operations), operations.columns
    device = _numbers(columns["deviceId"], pa.int32())
    process = operations.processes
    known = devices.of(process, columns["deviceId"])
    shorts = [tables.short_name(one) if not one.startswith("[") else one for one in operations.names]
    launch_id = _numbers(columns["correlationId"], pa.int64())
    done = _work_done(operations, calls)
    filled = {
        **(done.contract_columns() if done else {}),
        "source": _constant(SOURCE, rows),
        "report": _constant(name, rows),
        "launch_id": launch_id,
        "process_id": _numbers(process, pa.int64()),
        "device_id": device,
        "device_name": _named(known.code, known.names),
        "chip": _named(known.code, known.chips),
        "compute_capability": _named(known.code, known.compute_capabilities),
        "context": _numbers(columns["contextId"], pa.int64()),
        "stream": _printed(columns["streamId"]),
        "kernel_name": _named(operations.name, operations.names),
        "kernel_short": _named(operations.name, shorts),
        "grid": _triples([columns[axis] for axis in SHAPES[:3]]),
        "block": _triples([columns[axis] for axis in SHAPES[3:]]),
        "failed": arrays.booleans([False] * rows),
        "duration_ns": arrays.floats(operations.durations),
        **_attribution(calls, captures, ranges),
    }
    fields = list(contract_fields())
    data = [filled.get(column.name) for column in COLUMNS]
    data = [pa.nulls(rows, column.type) if one is None else one for one, column in zip(data, COLUMNS, strict=True)]
    for own, values, unit, meaning in _own_columns(operations, calls, captures):
        fields.append(pa.field(own, values.type, metadata=field_metadata(unit=unit, meaning=meaning)))
        data.append(values)
    for own, unit, values in [*_operator_names(calls), *(done.operator_columns() if done else [])]:
        if values.null_count < rows:
            fields.append(pa.field(own, values.type, metadata=field_metadata(unit=unit)))
            data.append(values)
    return pa.Table.from_arrays(data, schema=pa.schema(fields))


def _with_columns(table: pa.Table, columns: list[tuple[str, str, pa.Array]]) -> pa.Table:
    for own, unit, values in columns:
        if values.null_count < len(values):
            table = table.append_column(pa.field(own, values.type, metadata=field_metadata(unit=unit)), values)
    return table


def _work_done(operations: Operations, calls: Calls) -> WorkOfLaunches | None:
    """FLOPs of the operations, from the sizes in the names of ranges around them; None where no range has one.

    A graph's node calls its operator again at every launch of the graph.
    """
    if not any(one.what.inputs.shapes for around in calls.operators for one in around[-1:]):
        return None
    kernels = (operations.kind == operations.kinds.index(KERNEL)).tolist()
    correlations = np.where(operations.columns["graphNodeId"] == MISSING, MISSING, operations.columns["correlationId"])
    numbers: dict[tuple[int, int], int] = {}
    found: list[LaunchingOperator | None] = []
    for row, (around, replay) in enumerate(zip(calls.operators, correlations.tolist(), strict=True)):
        if not around:
            found.append(None)
            continue
        *above, number = [numbers.setdefault((replay, id(one)), len(numbers)) for one in around]
        kernel = operations.names[operations.name[row]] if kernels[row] else ""
        found.append(LaunchingOperator(number, around[-1].name, around[-1].what.inputs, tuple(above), kernel))
    return work_of_kernels(found)


def _operator_names(calls: Calls) -> list[tuple[str, str, pa.Array]]:
    """Name, unit and values of the columns of the innermost operator and the shapes of its arguments as JSON."""
    if not calls.operators:
        return []
    innermost = [around[-1].what if around else None for around in calls.operators]
    shapes = [json.dumps(one.inputs.shapes, separators=(",", ":")) if one and one.inputs.shapes else None
              for one in innermost]  # fmt: skip
    return [
        ("operator", "", arrays.dictionary([one.name if one else None for one in innermost])),
        ("shapes", "", arrays.dictionary(shapes)),
    ]


def _own_columns(operations: Operations, calls: Calls, captures: Captures) -> list[tuple[str, pa.Array, str, str]]:
    columns = operations.columns
    thread = np.where(calls.thread == MISSING, MISSING, calls.thread & 0xFFFFFF)
    whole = pa.int64()
    meaning = "NVTX ranges in which a CUDA graph's node was captured, outermost first"
    captured = [(CAPTURED_IN, _path_lists(captures.path, captures.paths), "", meaning)] if captures.known else []
    return [
        *captured,
        (
            "operation",
            _named(operations.kind, list(operations.kinds)),
            "",
            "kernel, memcpy, memset, or graph as a whole",
        ),
        ("start_ns", _numbers(columns["start"], whole), "ns", "since the time zero of the timeline"),
        ("end_ns", _numbers(columns["end"], whole), "ns", "since the time zero of the timeline"),
        ("bytes", _numbers(columns["bytes"], whole), "byte", "copied or set"),
        (
            "correlation_id",
            _numbers(columns["correlationId"], whole),
            "",
            "shared with the API call, within the process",
        ),
        ("graph_node_id", _numbers(columns["graphNodeId"], whole), "", "node of a CUDA graph"),
        ("thread_id", _numbers(thread, whole), "", "the thread whose API call launched it"),
        ("registers_per_thread", _numbers(columns["registersPerThread"], whole), "register/thread", ""),
        ("static_shared_memory_bytes", _numbers(columns["staticSharedMemory"], whole), "byte", "per block"),
        ("dynamic_shared_memory_bytes", _numbers(columns["dynamicSharedMemory"], whole), "byte", "per block"),
    ]


def _attribution(calls: Calls, captures: Captures, ranges: TracedRanges | None) -> dict[str, pa.Array]:
    """The NVTX path of each operation, and the phase, module and iteration that ranges of our launcher name."""
    if ranges is None or not (calls.paths or captures.paths):
        return {}
    launched = [_placed(path) for path in calls.paths]
    captured = [_placed(path) for path in captures.paths]
    iterations = np.array([MISSING if one.iteration is None else one.iteration for one in launched] or [MISSING])
    iteration = np.where(calls.path >= 0, iterations[np.maximum(calls.path, 0)], MISSING)
    sides = (calls.path, captures.path)
    return {
        "nvtx_path": _path_lists(calls.path, calls.paths),
        "phase": _first_named(sides, [one.phase for one in launched], [one.phase for one in captured]),
        "module": _first_named(sides, [one.module for one in launched], [one.module for one in captured]),
        "iteration": _numbers(iteration, pa.int32()),
    }


def _path_lists(code: Codes, paths: list[tuple[Label, ...]]) -> pa.Array:
    """The range names of each operation's path; null without a path."""
    listed = arrays.text_lists([tuple(name for _, name in path) for path in paths])
    return arrays.taken(listed, _numbers(np.where(code >= 0, code, MISSING), pa.int64()))


def _first_named(codes: tuple[Codes, Codes], names: list[str | None], others: list[str | None]) -> pa.Array:
    """Texts by the first index if that has a text, else by the second."""
    first, second = codes
    named = np.array([name is not None for name in names] or [False])
    has_first = (first >= 0) & named[np.maximum(first, 0)]
    return _named(np.where(has_first, first, np.where(second >= 0, second + len(names), -1)), [*names, *others])


def _placed(path: tuple[Label, ...]) -> Launch:
    """A launch with this path, and with phase, module and iteration if the path has ranges of our launcher."""
    launch = Launch("", nvtx_path=tuple(name for _, name in path))
    if any(domain == DOMAIN for domain, _ in path):
        place(launch, list(path))
    return launch


# ------------------------------------------------------------------------------------------------ numpy into Arrow


def _bitmap(present: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little").tobytes())


def _numbers(values: Integers, kind: pa.DataType) -> pa.Array:
    """Convert integers to Arrow; null if `MISSING`, or if they do not fit into 32 bits for int32."""
    width = np.int32 if kind == pa.int32() else np.int64
    limits = np.iinfo(width)
    present = (values != MISSING) & (values >= limits.min) & (values <= limits.max)
    data = np.where(present, values, 0).astype(width)
    return pa.Array.from_buffers(kind, len(values), [_bitmap(present), pa.py_buffer(data.tobytes())])


def _named(code: Codes, names: list[str] | list[str | None]) -> pa.Array:
    """Texts by index (int64, one per row); null for a negative index or a None text."""
    kept = [name for name in names if name is not None]
    places: dict[str, int] = {name: place for place, name in enumerate(dict.fromkeys(kept))}
    to_place = np.array([MISSING if name is None else places[name] for name in names] or [MISSING], np.int64)
    indices = np.where(code >= 0, to_place[np.maximum(code, 0)], MISSING)
    return pa.DictionaryArray.from_arrays(_numbers(indices, pa.int32()), arrays.texts(list(places)))


def _constant(text: str, rows: int) -> pa.Array:
    return _named(np.zeros(rows, np.int64), [text])


def _printed(values: Integers) -> pa.Array:
    """Integers as texts; null if `MISSING`."""
    numbers, code = np.unique(values, return_inverse=True)
    return _named(code.astype(np.int64), [None if number == MISSING else str(number) for number in numbers.tolist()])


def _triples(axes: list[Integers]) -> pa.Array:
    """Lists of x, y and z; null unless all three are known."""
    shapes = np.stack(axes, axis=1)
    present = (shapes != MISSING).all(axis=1)
    offsets = np.concatenate([[0], np.cumsum(np.where(present, 3, 0))]).astype(np.int32)
    items = _numbers(shapes[present].reshape(-1), pa.int32())
    buffers = [_bitmap(present), pa.py_buffer(offsets.tobytes())]
    return pa.Array.from_buffers(pa.list_(pa.int32()), len(shapes), buffers, children=[items])


# ----------------------------------------------------------------------------------------------------------- notes


def _absences(database: Database, operations: Operations, devices: Devices) -> list[str]:
    """Notes on what the file lacks and what follows. nsys creates a table only when it has a row for it."""
    notes = []
    if not operations.count(KERNEL):
        notes.append(f"no {ACTIVITIES[KERNEL]} table or rows: no single kernel was recorded")
    nothing = [kind for kind in (MEMCPY, MEMSET) if not operations.count(kind)]
    if nothing:
        listed = " and ".join(ACTIVITIES[kind] for kind in nothing)
        notes.append(f"no {listed} table or rows: no {' and no '.join(nothing)} was recorded")
    if not any(database.has_rows(table) for table in CALLS):
        notes.append(f"no {CALLS[0]} table: which thread launched what, and so NVTX ranges, are not known")
    elif not database.has_rows(nvtx.TABLE):
        notes.append(f"no {nvtx.TABLE} table or rows: no NVTX was recorded, so there are no phases and modules")
    if not devices.table:
        notes.append("no TARGET_INFO_GPU table: the GPU is unknown; name it with --machine NAME")
    return notes


def _without_sizes(calls: Calls) -> list[str]:
    """How to record what FLOPs follow from, where ranges name operators alone."""
    if not calls.operators or any(one.what.inputs.shapes for around in calls.operators for one in around):
        return []
    return [
        "operators have no sizes; torch.autograd.profiler.emit_nvtx(record_shapes=True) puts them into their ranges"
    ]


def _graph_notes(database: Database, operations: Operations, captures: Captures) -> list[str]:
    """Notes on launches of CUDA graphs and their kernels."""
    notes = []
    graphs, nodes = operations.count(GRAPH), int((operations.columns["graphNodeId"] != MISSING).sum())
    if graphs:
        notes.append(
            f"{graphs} launches of CUDA graphs were recorded as a whole, and their kernels are not known; "
            "nsys profile --cuda-graph-trace=node records them"
        )
    if not nodes:
        return notes
    note = f"{nodes} operations are nodes of CUDA graphs: their NVTX ranges are those of the graph's launch"
    if captures.known:
        note += (
            f"; of {captures.known} the ranges of the capture are known too ({CAPTURED_IN}), and give phase and module"
        )
    elif not database.has_rows(cuda_graphs.TABLE):
        note += f"; where they were captured is not known, because there is no {cuda_graphs.TABLE} table or rows"
    else:
        note += "; where they were captured is not known, because the recording does not hold the capture or its ranges"
    return [*notes, note]


def _remarks(operations: Operations) -> list[str]:
    """Notes on broken times and on how busy the GPUs were."""
    notes = []
    durations = operations.durations
    broken = int(np.isnan(durations).sum())
    if broken:
        notes.append(f"{broken} operations have no end, or one before their start: their time is not known")
    if operations.startless:
        notes.append(f"{operations.startless} operations have no start and were left out")
    timed = ~np.isnan(durations)
    start, device = operations.columns["start"][timed], operations.columns["deviceId"][timed]
    since_first = elapsed(start[:1], start)  # sorted; exact in float64 for a hundred days
    is_kernel = np.isin(operations.kind[timed], [operations.kinds.index(kind) for kind in (KERNEL, GRAPH)])
    return [*notes, *busy_notes(operations.processes[timed], device, since_first, durations[timed], is_kernel)]


def _omissions(database: Database) -> list[str]:
    if not database.too_long:
        return []
    return [
        f"texts of more than {memory.longest_line():,} bytes were left out {database.too_long} times, so that "
        f"what they name has no name; {memory.OPTION} raises this limit"
    ]


def _no_gpu_work(database: Database, name: str, ranges: TracedRanges | None) -> NoGpuWork:
    """The error for a timeline without GPU operations, with the likely reason."""
    held = "no NVTX range" if ranges is None or not len(ranges) else f"{len(ranges)} NVTX ranges"
    message = next((text for text in database.texts(DIAGNOSTICS, "text") if text and "CUDA" in text), None)
    cause = f'nsys says: "{message.strip()[:200]}".' if message else (
        "CUDA was not traced, could not be (as under older WSL), or the program launched nothing."
    )  # fmt: skip
    return NoGpuWork(
        f"{name} is a timeline without GPU work: it holds {held}, and no {ACTIVITIES[KERNEL]} table or rows.",
        cause,
        "Record on a machine with a GPU: nsys profile --trace cuda,nvtx PROGRAM",
    )
