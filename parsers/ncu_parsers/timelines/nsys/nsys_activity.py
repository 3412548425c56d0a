"""Read an SQLite export of nsys as an `Activity`: operations, API calls and ranges with their times.

Schema: "SQLite Export Schema Reference" in NVIDIA's Nsight Systems documentation. Kinds of memory and of copies are
CUPTI's numbers (CUpti_ActivityMemoryKind, CUpti_ActivityMemcpyKind), as are overheads (CUpti_ActivityOverheadKind).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
from ncu_launch.notes import Note, NoteKind

from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import (
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    MISSING,
    Activity,
    ApiCalls,
    Codes,
    EventWaits,
    FilledColumns,
    GpuOperations,
    HostRanges,
    HostTime,
    Integers,
    Numbered,
    Overheads,
    Window,
    are_times,
    columns_of,
    empty,
    in_order,
    narrow,
)
from ncu_parsers.timelines.activity.names_to_hold import NamesToHold
from ncu_parsers.timelines.activity.recording import called_as, launching_call
from ncu_parsers.timelines.nsys.database import Database, opened
from ncu_parsers.timelines.nsys.devices import read_devices
from ncu_parsers.timelines.nsys.gpu_metrics import read_gpu_metrics
from ncu_parsers.timelines.nsys.nsys_ranges import (
    OS_CALLS,
    RANGES,
    has_ranges,
    open_in,
    owners_of,
    process_of,
    ranges_over,
    read_ranges,
)

TOOL = "nsys"
RECORDED_WITH = "nsys profile --trace cuda,nvtx PROGRAM"

ACTIVITIES = {
    KERNEL: "CUPTI_ACTIVITY_KIND_KERNEL",
    MEMCPY: "CUPTI_ACTIVITY_KIND_MEMCPY",
    MEMSET: "CUPTI_ACTIVITY_KIND_MEMSET",
    GRAPH: "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
}
COMMON = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "graphNodeId")
KERNEL_NAMES = ("demangledName", "mangledName", "shortName")
UNNAMED = "(kernel without a name)"
OWN = {
    KERNEL: KERNEL_NAMES,
    MEMCPY: ("bytes", "copyKind", "srcKind", "dstKind", "srcDeviceId", "dstDeviceId", "migrationCause"),
    MEMSET: ("bytes",),
    GRAPH: ("graphId",),
}

SESSION = "TARGET_INFO_SESSION_START_TIME"
CALLS = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
SYNCHRONISATIONS, EVENTS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
STREAM_WAIT, NO_EVENT = 2, 0xFFFFFFFF
"""CUPTI's number of a stream that waits for an event (CUpti_ActivitySynchronizationType); nsys writes it for
cudaStreamSynchronize too, then without an event."""
OVERHEADS, OWN_OVERHEADS = "CUPTI_ACTIVITY_KIND_OVERHEAD", "PROFILER_OVERHEAD"

COPY_KINDS = (
    "Unknown", "Host-to-Device", "Device-to-Host", "Host-to-Array", "Array-to-Host", "Array-to-Array",
    "Array-to-Device", "Device-to-Array", "Device-to-Device", "Host-to-Host", "Peer-to-Peer", "Unified Host-to-Device",
    "Unified Device-to-Host", "Unified Device-to-Device",
)  # fmt: skip
"""nsys's word for each CUPTI copyKind, for files without a table of names."""
DIRECTION_OF = {
    1: activity.HOST_TO_DEVICE, 2: activity.DEVICE_TO_HOST, 3: activity.HOST_TO_DEVICE, 4: activity.DEVICE_TO_HOST,
    5: activity.DEVICE_TO_DEVICE, 6: activity.DEVICE_TO_DEVICE, 7: activity.DEVICE_TO_DEVICE,
    8: activity.DEVICE_TO_DEVICE, 9: activity.HOST_TO_HOST, 10: activity.PEER_TO_PEER,
    11: activity.HOST_TO_DEVICE, 12: activity.DEVICE_TO_HOST, 13: activity.DEVICE_TO_DEVICE,
}  # fmt: skip
"""CUPTI's copyKind -> direction; 11 to 13 are migrations of unified memory."""
MIGRATIONS, PREFETCH = (11, 12, 13), 1
"""CUPTI's copyKinds of migrations of managed memory, and the migrationCause of migrations that a call requested."""
MEMORY_OF = {
    0: activity.PAGEABLE, 1: activity.PINNED, 2: activity.DEVICE_MEMORY, 3: activity.ARRAY, 4: activity.MANAGED,
    5: activity.DEVICE_MEMORY, 6: activity.MANAGED,
}  # fmt: skip
"""Number of a kind of memory in nsys's table ENUM_CUDA_MEM_KIND -> memory."""
OVERHEAD_OF = {
    2: activity.MODULE_LOADING, 6: activity.MODULE_LOADING, 7: activity.MODULE_LOADING,
    3: activity.PROFILER, 4: activity.PROFILER, 5: activity.PROFILER, 8: activity.QUEUE_FULL,
}  # fmt: skip

_VERSION = re.compile(r"_v\d+$")
"""nsys appends the CUDA version of a call's signature: cudaLaunchKernel_v7000. cudaStreamGetCaptureInfo_v2_v11030 is
the call cudaStreamGetCaptureInfo_v2."""

UNNAMED_CALL = "(call without a name)"
AROUND_NS = 1_000_000
"""Calls this close to a window are read too: a pause between two calls may extend into it."""


def read_sqlite(
    source: Source, name: str | None = None, *, trim: Window | None = None, whole_names: bool = False,
    named: NamesToHold | None = None,
) -> Activity:  # fmt: skip
    """Read one export, called `name` in messages.

    With `trim` (ns since the first operation or API call), only that time is read, and what it needs: the next
    operation on either side, the calls that launched the operations, and the ranges since then. With `whole_names`,
    ranges keep the numbers that PyTorch's `emit_nvtx` puts into their names. With `named` and without `trim`, only
    NVTX ranges with these names are held, and each thread's first one before the GPU's work; `ranges_over` looks up
    others in the file. Raises `NotAReport` if it is no export of nsys, `NcuBenchError` if it cannot be read.
    """
    name, named = name or source.name, named if trim is None else None
    with memory.one_heap(), opened(source, name) as database:
        found = _activity(database, name, trim, named, whole_names=whole_names)
    if named is None:
        return found
    return replace(found, ranges_over=partial(_ranges_over, source, name, _last(found.operations, found.calls)))


def _ranges_over(source: Source, name: str, last: int, times: Sequence[HostTime]) -> HostRanges:
    with memory.one_heap(), opened(source, name) as database:
        return ranges_over(database, database.strings(), last, times)


def _last(operations: GpuOperations, calls: ApiCalls) -> int:
    """The end of the last operation or call; 0 without any."""
    return max((int(table.end.max()) for table in (operations, calls) if len(table)), default=0)


def _activity(
    database: Database, name: str, trim: Window | None, named: NamesToHold | None, *, whole_names: bool
) -> Activity:
    database.in_parts = True  # derived data is smaller than the tables
    strings = database.strings()
    whole = _recorded_time(database) if trim is not None else None
    window = None if whole is None or trim is None else Window(whole.start + trim.start, whole.start + trim.end)
    operations, notes = _operations(database, strings, window)
    calls = _calls(database, strings, window, operations.correlation)
    operations = _of_one_process(operations, calls)
    if window is not None:
        calls = _launching_here(database, operations, calls)
    last = _last(operations, calls)
    if window is not None and whole is not None:
        last = whole.end
        # A step is a range in which an operation was launched, perhaps before the window.
        if len(calls):
            window = Window(min(window.start, int(calls.start.min())), max(window.end, int(calls.end.max())))
    named = named if len(operations) else None  # without operations, only the number of ranges is used
    gpus = operations.gpus()
    until = max((_first_on(operations, gpu) for gpu in gpus), default=0)
    ranges = read_ranges(database, strings, last, window, whole_names=whole_names, named=named, until=until)
    any_range = len(ranges) > 0 or (named is not None and has_ranges(database))
    overheads = _overheads(database, window)
    every = read_devices(database)
    known = every.of(*np.array(gpus, np.int64).reshape(-1, 2).T)
    codes = known.code.tolist()
    return Activity(
        name, TOOL, operations, calls, ranges, overheads,
        devices={gpu: name_of for gpu, code in zip(gpus, codes, strict=True) if (name_of := known.names[code])},
        uuids={gpu: uuid for gpu, code in zip(gpus, codes, strict=True) if (uuid := known.uuids[code])},
        missing=_missing(database, operations, calls, any_range=any_range, is_part=window is not None), whole=whole,
        utc_ns=_began(database), notes=notes, recorded_with=RECORDED_WITH,
        sampled=replace(read_gpu_metrics(database), numbers=every.numbers(gpus)),
        event_waits=_event_waits(database, window),
    )  # fmt: skip


def _first_on(operations: GpuOperations, gpu: tuple[int, int]) -> int:
    """The start of the first operation on a GPU, which has one."""
    return int(operations.start[np.argmax((operations.process == gpu[0]) & (operations.device == gpu[1]))])


def _missing(
    database: Database, operations: GpuOperations, calls: ApiCalls, *, any_range: bool, is_part: bool
) -> list[str]:
    """Sentences on what was not recorded; a time window may lack what the rest of the recording has."""
    missing = []
    if not len(calls) and not (is_part and any(map(database.has_rows, CALLS))):
        missing.append("no API calls were recorded, so the causes of gaps are not known (nsys profile --trace cuda)")
    if not any_range and not (is_part and any(map(database.has_rows, (RANGES, OS_CALLS)))):
        missing.append("no ranges were recorded, so what the host did is not named (nsys profile --trace cuda,nvtx)")
    if operations.names and bool((operations.kind == GRAPH).any()):
        missing.append(
            "CUDA graphs were recorded as a whole, without their kernels (nsys profile --cuda-graph-trace=node)"
        )
    return missing


def _recorded_time(database: Database) -> Window | None:
    """From the first operation or API call to the end of the last one; None without either."""
    near = f"{-activity.FARTHEST} AND {activity.FARTHEST}"
    edges = []
    for table in (*ACTIVITIES.values(), *CALLS):
        if {"start", "end"} <= database.columns(table):
            times = f'"end" >= start AND (start <> 0 OR "end" <> 0) AND start BETWEEN {near} AND "end" BETWEEN {near}'
            (start,), (end,) = database.numbers('min(start), max("end")', table, times)
            edges += [(start, end)] if start is not None and end is not None else []
    return Window(min(start for start, _ in edges), max(end for _, end in edges)) if edges else None


def _of_one_process(operations: GpuOperations, calls: ApiCalls) -> GpuOperations:
    """Assign operations without a process, as in old schemas, to the only process that called the API."""
    processes = {calls.owners[owner][0] for owner in np.unique(calls.owner).tolist()}
    unknown = operations.process == MISSING
    if len(processes) != 1 or not unknown.any():
        return operations
    return replace(operations, process=np.where(unknown, processes.pop(), operations.process))


def _operations(database: Database, strings: dict[int, str], window: Window | None) -> tuple[GpuOperations, list[str]]:
    """The operations in order, and a note on operations with impossible times."""
    parts, broken = [], 0
    for kind, table in ACTIVITIES.items():
        found = _timed(database, table, (*COMMON, *OWN[kind]), _in_or_next_to(database, table, window))
        parts.append((kind, found.columns))
        broken += found.left_out
    return _joined(parts, strings), [_without_time(broken)] if broken else []


def _without_time(broken: int) -> Note:
    have, were = ("operation has", "was") if broken == 1 else ("operations have", "were")
    lost = f"{broken:,} GPU {have} no start or end, both 0, or an end that is before the start, and {were} left out"
    return Note(lost, NoteKind.LOST)


def _joined(parts: Sequence[tuple[int, dict[str, Integers]]], strings: dict[int, str]) -> GpuOperations:
    """The operations of all kinds in one table, ordered by start."""
    lengths = [len(columns["start"]) for _, columns in parts]
    names = Numbered()
    name = np.concatenate([_operation_names(kind, columns, strings, names) for kind, columns in parts])

    def joined(column: str) -> Integers:
        """A column of all kinds; removes it from `parts`."""
        found = [
            columns.pop(column, np.broadcast_to(np.array(MISSING), length))
            for (_, columns), length in zip(parts, lengths, strict=True)
        ]
        if all(not len(one) or not one.strides[0] or (one == MISSING).all() for one in found):
            return np.broadcast_to(np.array(MISSING), sum(lengths))
        return np.concatenate(found)

    kinds = np.repeat(np.array([kind for kind, _ in parts], np.int8), lengths)
    node = joined("graphNodeId")
    copy_kind = joined("copyKind")
    direction = _mapped(copy_kind, DIRECTION_OF, activity.OTHER_DIRECTION)
    source, destination = joined("srcDeviceId"), joined("dstDeviceId")
    between = (direction == activity.DEVICE_TO_DEVICE) & (source != destination) & (source != MISSING)
    direction = np.where(between & (destination != MISSING), activity.PEER_TO_PEER, direction)
    is_copy = kinds == MEMCPY
    ends = _managed(
        copy_kind, joined("migrationCause"),
        *(_mapped(joined(one), MEMORY_OF, activity.UNKNOWN_MEMORY) for one in ("srcKind", "dstKind")),
    )  # fmt: skip
    columns = in_order(
        {
            "kind": kinds,
            "name": name,
            "process": narrow(process_of(joined("globalPid"))),
            "device": narrow(joined("deviceId")),
            "context": narrow(joined("contextId")),
            "stream": narrow(joined("streamId")),
            "start": joined("start"),
            "end": joined("end"),
            "bytes": joined("bytes"),
            "direction": narrow(np.where(is_copy, direction, -1)),
            "source_memory": narrow(np.where(is_copy, ends[0], -1)),
            "destination_memory": narrow(np.where(is_copy, ends[1], -1)),
            "correlation": narrow(joined("correlationId")),
            "graph_node": np.where(node == 0, MISSING, node) if node.strides[0] else node,  # old schemas: 0 for null
        }
    )
    return columns_of(GpuOperations, columns, names.texts)


def _managed(
    copy_kind: Integers, cause: Integers, source: Integers, destination: Integers
) -> tuple[Integers, Integers]:
    """Source and destination of each copy, with those of pages of managed memory, which nsys leaves unknown.

    Pages that a call prefetches go from managed memory to the device or back; ones that move at a fault are managed
    memory on both sides.
    """
    moves = np.isin(copy_kind, MIGRATIONS)
    asked = moves & (cause == PREFETCH)
    back = DIRECTION_OF[MIGRATIONS[1]] == _mapped(copy_kind, DIRECTION_OF, activity.OTHER_DIRECTION)
    device, managed = activity.DEVICE_MEMORY, activity.MANAGED
    return (np.where(moves, np.where(asked & back, device, managed), source),
            np.where(moves, np.where(asked & ~back, device, managed), destination))  # fmt: skip


def _timed(database: Database, table: str, names: Sequence[str], condition: str) -> FilledColumns:
    """Columns of the rows that meet a condition and have a start and an end."""
    found = FilledColumns(database.rows(table), dict.fromkeys(names, "i8"))
    for columns, _ in database.rows_in_blocks(table, *names, condition=condition):
        found.add(columns, _are_timed(columns))
    return found


def _are_timed(columns: dict[str, Integers]) -> npt.NDArray[np.bool_]:
    """Mask of rows with a start and an end that are not both 0."""
    start, end = columns["start"], columns["end"]
    found: npt.NDArray[np.bool_] = are_times(start, end) & ((start != 0) | (end != 0))
    return found


def _in_or_next_to(database: Database, table: str, window: Window | None) -> str:
    """SQL condition for operations in a window, the next ones of each GPU on both sides, and copies launched in it."""
    needed = {"start", "end", "deviceId"}
    if window is None or not needed <= database.columns(table):
        return "1"
    gpu = "deviceId, globalPid" if "globalPid" in database.columns(table) else "deviceId"
    # SQLite takes the other columns from the row with the minimum or maximum ("bare columns in an aggregate query").
    earlier, later = f'"end" < {window.start}', f'start > {window.end} AND "end" > start'
    before, _ = database.numbers("rowid, max(start)", table, f"{earlier} GROUP BY {gpu}")
    behind, _ = database.numbers("rowid, min(start)", table, f"{later} GROUP BY {gpu}")
    rows = ", ".join(str(row) for row in (*before, *behind) if row is not None)
    asked = _launched_within(database, window) if table == ACTIVITIES[MEMCPY] else "0"
    return f"({open_in(database, table, window)} OR rowid IN ({rows}) OR {asked})"


def _launched_within(database: Database, window: Window) -> str:
    """SQL condition for operations with correlation ids between those of a window's calls; may hold for others."""
    conditions = ["0"]
    for table in CALLS:
        if {"start", "end", "correlationId"} <= database.columns(table):
            chosen = "min(correlationId), max(correlationId)"
            (first,), (last,) = database.numbers(chosen, table, open_in(database, table, window))
            conditions += [f"correlationId BETWEEN {first} AND {last}"] if first is not None else []
    return f"({' OR '.join(conditions)})"


def _operation_names(kind: int, columns: dict[str, Integers], strings: dict[int, str], names: Numbered) -> Codes:
    if kind == KERNEL:
        return _numbered(kernel_names(columns), strings, names, UNNAMED)
    if kind == MEMCPY:
        words = {number: f"[CUDA memcpy {activity.DIRECTIONS[code]}]" for number, code in DIRECTION_OF.items()}
        return _numbered(columns["copyKind"], words, names, "[CUDA memcpy]")
    if kind == MEMSET:
        return _numbered(np.zeros(len(columns["start"]), np.int64), {}, names, "[CUDA memset]")
    graphs = {number: f"[CUDA graph {number}]" for number in np.unique(columns["graphId"]).tolist() if number >= 0}
    return _numbered(columns["graphId"], graphs, names, "[CUDA graph]")


def kernel_names(columns: dict[str, Integers]) -> Integers:
    """The number of each kernel's first known name in the table of strings."""
    found = columns[KERNEL_NAMES[0]]
    for other in KERNEL_NAMES[1:]:
        found = np.where(found == MISSING, columns[other], found)
    return found


def _numbered(values: Integers, words: dict[int, str], names: Numbered, unknown: str) -> Codes:
    """Index in `names` of each value's word."""
    distinct, code = np.unique(values, return_inverse=True)
    numbers = np.array([names.number(words.get(one, unknown)) for one in distinct.tolist()], np.int32)
    return numbers[code.reshape(-1)]


def _mapped(values: Integers, table: dict[int, int], other: int) -> Integers:
    distinct, code = np.unique(values, return_inverse=True)
    found = np.array([table.get(one, other) for one in distinct.tolist()], np.int64)
    return found[code.reshape(-1)] if len(values) else np.zeros(0, np.int64)


def _calls(database: Database, strings: dict[int, str], window: Window | None, correlation: Integers) -> ApiCalls:
    """All calls, or the calls in or close to a window and those with the `correlation` of an operation."""
    close = None if window is None else Window(window.start - AROUND_NS, window.end + AROUND_NS)
    launching = np.unique(correlation[correlation != MISSING]) if window is not None else np.zeros(0, np.int64)
    names, threads = Numbered(), Numbered()
    kinds = {"name": "i1", "owner": "i1", "start": "i8", "end": "i8", "correlationId": "i4"}
    found = FilledColumns(sum(map(database.rows, CALLS)), kinds)
    for table in CALLS:
        condition = open_in(database, table, close)
        if len(launching) and "correlationId" in database.columns(table):
            condition = f"({condition} OR correlationId BETWEEN {launching[0]} AND {launching[-1]})"
        for columns, _ in database.rows_in_blocks(
            table, "start", "end", "globalTid", "correlationId", "nameId", condition=condition
        ):
            kept = _are_timed(columns)
            if close is not None:
                inside = (columns["start"] <= close.end) & (columns["end"] >= close.start)
                kept &= inside | np.isin(columns["correlationId"], launching)
            plain = {one: _VERSION.sub("", strings.get(one, UNNAMED_CALL)) for one in np.unique(columns["nameId"])}
            name = _numbered(columns["nameId"], plain, names, UNNAMED_CALL)
            found.add({**columns, "name": name, "owner": threads.numbers(columns["globalTid"])}, kept)
    columns = in_order(found.columns)
    columns["correlation"] = columns.pop("correlationId")
    return columns_of(ApiCalls, {**columns, "owners": owners_of(threads)}, names.texts)


def _launching_here(database: Database, operations: GpuOperations, calls: ApiCalls) -> ApiCalls:
    """The calls of a window, without the correlation of those whose operations ran at another time.

    A launch that keeps its number and has no operation is one whose record was lost.
    """
    elsewhere = calls.correlation != MISSING
    here = launching_call(operations, calls)
    elsewhere[here[here >= 0]] = False
    numbers, correlation = calls.correlation[elsewhere], calls.correlation.astype(np.int64)
    for table in ACTIVITIES.values() if len(numbers) else ():
        if "correlationId" in database.columns(table):
            between = f"correlationId BETWEEN {numbers.min()} AND {numbers.max()}"
            names = ("start", "end", "globalPid", "correlationId")
            for columns, _ in database.rows_in_blocks(table, *names, condition=between):
                call = called_as(process_of(columns["globalPid"]), columns["correlationId"], calls)
                call = call[_are_timed(columns) & (call >= 0)]
                correlation[call[elsewhere[call]]] = MISSING
    return replace(calls, correlation=correlation)


def _overheads(database: Database, window: Window | None) -> Overheads:
    names = ("start", "end", "globalTid")
    columns = _timed(database, OVERHEADS, (*names, "overheadType"), open_in(database, OVERHEADS, window)).columns
    own = _timed(database, OWN_OVERHEADS, names, open_in(database, OWN_OVERHEADS, window)).columns
    own["overheadType"] = np.full(len(own["start"]), 4)  # CUPTI's number of the profiler's instrumentation
    columns = {name: np.concatenate([values, own[name]]) for name, values in columns.items()}
    kind = _mapped(columns["overheadType"], OVERHEAD_OF, MISSING)
    keep = kind != MISSING
    if not keep.any():
        return empty(Overheads)
    thread = columns["globalTid"][keep]
    return columns_of(
        Overheads,
        {
            "kind": kind[keep],
            "process": process_of(thread),
            "thread": thread,
            "start": columns["start"][keep],
            "end": columns["end"][keep],
        },
    ).by_start()


def _event_waits(database: Database, window: Window | None) -> EventWaits:
    """Waits of streams for events, each for the latest record of its event before it."""
    names = ("start", "end", "globalPid", "contextId", "streamId", "correlationId", "eventId")
    if not {"start", "end", "syncType", *names[3:]} <= database.columns(SYNCHRONISATIONS):
        return empty(EventWaits)
    condition = f"{open_in(database, SYNCHRONISATIONS, window)} AND syncType = {STREAM_WAIT} AND eventId <> {NO_EVENT}"
    found = in_order(_timed(database, SYNCHRONISATIONS, names, condition).columns)
    events = database.integers(EVENTS, "globalPid", "eventId", "correlationId", "streamId")
    keys = ("globalPid", "eventId", "correlationId")
    source, recorded = (np.full(len(found["start"]), MISSING) for _ in range(2))
    # Records and waits in one order, by process, event and correlation: before each wait is the record that it is for.
    order = np.lexsort([np.concatenate([events[key], found[key]]) for key in keys][::-1])
    first = len(events["eventId"])
    last = np.maximum.accumulate(np.where(order < first, np.arange(len(order)), -1)) if len(order) else order
    at = np.flatnonzero((order >= first) & (last >= 0))
    row, record = order[at] - first, order[last[at]]
    same = (events["eventId"][record] == found["eventId"][row]) & (
        events["globalPid"][record] == found["globalPid"][row]
    )
    source[row[same]], recorded[row[same]] = events["streamId"][record[same]], events["correlationId"][record[same]]
    return columns_of(EventWaits, {
        "start": found["start"], "process": process_of(found["globalPid"]), "context": found["contextId"],
        "stream": found["streamId"], "correlation": found["correlationId"], "source": source, "record": recorded,
    })  # fmt: skip


def _began(database: Database) -> int | None:
    """UTC time of the recording's zero, in ns since 1970."""
    if "utcEpochNs" not in database.columns(SESSION):
        return None
    (found,) = database.numbers("utcEpochNs", SESSION, "1")
    return found[0] if found else None
