"""Read an SQLite export of nsys as what happened: the columns of operations, API calls and ranges that times need.

Schema: "SQLite Export Schema Reference" in NVIDIA's Nsight Systems documentation. Kinds of memory and of copies are
CUPTI's numbers (CUpti_ActivityMemoryKind, CUpti_ActivityMemcpyKind), overheads those of CUpti_ActivityOverheadKind.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
from ncu_launch.errors import NcuBenchError

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
    GpuOperations,
    HostRanges,
    Integers,
    Numbered,
    Overheads,
    are_times,
    columns_of,
    empty,
)
from ncu_parsers.timelines.nsys.tables.database import Database, opened

TOOL = "nsys"

ACTIVITIES = {
    KERNEL: "CUPTI_ACTIVITY_KIND_KERNEL",
    MEMCPY: "CUPTI_ACTIVITY_KIND_MEMCPY",
    MEMSET: "CUPTI_ACTIVITY_KIND_MEMSET",
    GRAPH: "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
}
COMMON = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "graphNodeId")
OWN = {
    KERNEL: ("demangledName", "shortName", "mangledName"),
    MEMCPY: ("bytes", "copyKind", "srcKind", "dstKind", "srcDeviceId", "dstDeviceId"),
    MEMSET: ("bytes",),
    GRAPH: ("graphId",),
}

CALLS = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
RANGES, OS_CALLS, OVERHEADS = "NVTX_EVENTS", "OSRT_API", "CUPTI_ACTIVITY_KIND_OVERHEAD"
EVENT_TYPES = "ENUM_NSYS_EVENT_TYPE"
RANGE_TYPES = {"NvtxPushPopRange": 59, "NvtxStartEndRange": 60}

DIRECTION_OF = {
    1: activity.HOST_TO_DEVICE, 2: activity.DEVICE_TO_HOST, 3: activity.HOST_TO_DEVICE, 4: activity.DEVICE_TO_HOST,
    5: activity.DEVICE_TO_DEVICE, 6: activity.DEVICE_TO_DEVICE, 7: activity.DEVICE_TO_DEVICE,
    8: activity.DEVICE_TO_DEVICE, 9: activity.HOST_TO_HOST, 10: activity.PEER_TO_PEER,
    11: activity.HOST_TO_DEVICE, 12: activity.DEVICE_TO_HOST, 13: activity.DEVICE_TO_DEVICE,
}  # fmt: skip
"""CUPTI's copyKind -> direction; 11 to 13 are migrations of unified memory."""
MEMORY_OF = {
    0: activity.PAGEABLE, 1: activity.PINNED, 2: activity.DEVICE_MEMORY, 3: activity.ARRAY, 4: activity.MANAGED,
    5: activity.DEVICE_MEMORY, 6: activity.MANAGED,
}  # fmt: skip
"""nsys's number of a kind of memory, as its table ENUM_CUDA_MEM_KIND says it."""
OVERHEAD_OF = {
    2: activity.MODULE_LOADING, 6: activity.MODULE_LOADING, 7: activity.MODULE_LOADING,
    3: activity.PROFILER, 4: activity.PROFILER, 5: activity.PROFILER, 8: activity.QUEUE_FULL,
}  # fmt: skip

_VERSION = re.compile(r"_v\d+$")
"""nsys appends the CUDA version of a call's signature: cudaLaunchKernel_v7000. cudaStreamGetCaptureInfo_v2_v11030 is
the call cudaStreamGetCaptureInfo_v2."""

THREAD_BITS, PROCESS_MASK = 24, 0xFFFFFF


def read_sqlite(source: Source, name: str | None = None) -> Activity:
    """Read one export, called `name` in messages.

    Raises `NotAReport` if it is no export of nsys, `NcuBenchError` if it cannot be read.
    """
    with opened(source, name or source.name) as database:
        return _activity(database, name or source.name)


def read_native(source: Source) -> Activity:
    """Read a native report (.nsys-rep, .qdrep) by exporting it to a temporary file with the installed nsys.

    Raises `NcuBenchError` if nsys is missing or cannot export it.
    """
    from ncu_launch.profilers.installed_tools import export_timeline, find_tool

    from ncu_parsers.timelines.nsys.tables.database import on_disk

    nsys = find_tool("nsys")
    advice = "Where it was recorded, run nsys export --type sqlite REPORT.nsys-rep, then name the .sqlite file here."
    if nsys is None:
        raise NcuBenchError(
            f"{source.name} is a report of Nsight Systems, which only nsys can open.", "No nsys was found on PATH.",
            f"Install Nsight Systems. {advice}",
        )  # fmt: skip
    with TemporaryDirectory(prefix="ncu-bench-") as folder, on_disk(source) as report:
        exported = Path(folder) / "timeline.sqlite"
        if not export_timeline(nsys, report, exported, Path(folder) / "log.txt") or not exported.is_file():
            raise NcuBenchError(
                f"{source.name} could not be exported by nsys {nsys.version_text}.",
                "The file is damaged, or was made by a newer nsys.", advice,
            )  # fmt: skip
        return read_sqlite(Source(str(exported)), source.name)


def _activity(database: Database, name: str) -> Activity:
    strings = _strings(database)
    calls = _calls(database, strings)
    operations = _of_one_process(_operations(database, strings), calls)
    last = max((int(table.end.max()) for table in (operations, calls) if len(table)), default=0)
    ranges, overheads = _ranges(database, strings, last), _overheads(database)
    missing = []
    if not len(calls):
        missing.append("no API calls were recorded, so the causes of gaps are not known (nsys profile --trace cuda)")
    if not len(ranges):
        missing.append("no ranges were recorded, so what the host did is not named (nsys profile --trace cuda,nvtx)")
    if operations.names and bool((operations.kind == GRAPH).any()):
        missing.append(
            "CUDA graphs were recorded as a whole, without their kernels (nsys profile --cuda-graph-trace=node)"
        )
    return Activity(name, TOOL, operations, calls, ranges, overheads, devices=_devices(database, operations),
                    missing=missing)  # fmt: skip


def _of_one_process(operations: GpuOperations, calls: ApiCalls) -> GpuOperations:
    """Operations without a process, as in old schemas, belong to the only one that called the API."""
    processes = np.unique(calls.process)
    if len(processes) != 1:
        return operations
    return replace(operations, process=np.where(operations.process == MISSING, processes[0], operations.process))


def _strings(database: Database) -> dict[int, str]:
    numbers, texts = database.integers("StringIds", "id")["id"].tolist(), database.texts("StringIds", "value")
    return {number: text for number, text in zip(numbers, texts, strict=False) if text is not None}


def _process(serialised: Integers) -> Integers:
    """The process id in nsys's serialised ids of processes and threads."""
    return np.where(serialised == MISSING, MISSING, serialised >> THREAD_BITS & PROCESS_MASK)


def _operations(database: Database, strings: dict[int, str]) -> GpuOperations:
    parts = []
    for kind, table in ACTIVITIES.items():
        columns = database.integers(table, *COMMON, *OWN[kind])
        keep = are_times(columns["start"], columns["end"])
        parts.append((kind, {name: values[keep] for name, values in columns.items()}))
    lengths = [len(columns["start"]) for _, columns in parts]

    def joined(column: str) -> Integers:
        found = [
            columns.get(column, np.full(length, MISSING)) for (_, columns), length in zip(parts, lengths, strict=True)
        ]
        return np.concatenate(found)

    names = Numbered()
    kinds = np.repeat(np.array([kind for kind, _ in parts], np.int64), lengths)
    node = joined("graphNodeId")
    direction = _mapped(joined("copyKind"), DIRECTION_OF, activity.OTHER_DIRECTION)
    source, destination = joined("srcDeviceId"), joined("dstDeviceId")
    between = (direction == activity.DEVICE_TO_DEVICE) & (source != destination) & (source != MISSING)
    direction = np.where(between & (destination != MISSING), activity.PEER_TO_PEER, direction)
    is_copy = kinds == MEMCPY
    return columns_of(
        GpuOperations,
        {
            "kind": kinds,
            "name": np.concatenate([_operation_names(kind, columns, strings, names) for kind, columns in parts]),
            "process": _process(joined("globalPid")),
            "device": joined("deviceId"),
            "context": joined("contextId"),
            "stream": joined("streamId"),
            "start": joined("start"),
            "end": joined("end"),
            "bytes": joined("bytes"),
            "direction": np.where(is_copy, direction, MISSING),
            "source_memory": np.where(is_copy, _mapped(joined("srcKind"), MEMORY_OF, activity.UNKNOWN_MEMORY), MISSING),
            "destination_memory": np.where(
                is_copy, _mapped(joined("dstKind"), MEMORY_OF, activity.UNKNOWN_MEMORY), MISSING
            ),
            "correlation": joined("correlationId"),
            "graph_node": np.where(node == 0, MISSING, node),  # old schemas write 0 for null
        },
        names.texts,
    ).by_start()


def _operation_names(kind: int, columns: dict[str, Integers], strings: dict[int, str], names: Numbered) -> Integers:
    if kind == KERNEL:
        text = columns["demangledName"]
        for other in ("shortName", "mangledName"):
            text = np.where(text == MISSING, columns[other], text)
        return _numbered(text, strings, names, "(kernel without a name)")
    if kind == MEMCPY:
        words = {number: f"[CUDA memcpy {activity.DIRECTIONS[code]}]" for number, code in DIRECTION_OF.items()}
        return _numbered(columns["copyKind"], words, names, "[CUDA memcpy]")
    if kind == MEMSET:
        return _numbered(np.zeros(len(columns["start"]), np.int64), {}, names, "[CUDA memset]")
    graphs = {number: f"[CUDA graph {number}]" for number in np.unique(columns["graphId"]).tolist() if number >= 0}
    return _numbered(columns["graphId"], graphs, names, "[CUDA graph]")


def _numbered(values: Integers, words: dict[int, str], names: Numbered, unknown: str) -> Integers:
    """Per value the number in `names` of its word."""
    distinct, code = np.unique(values, return_inverse=True)
    numbers = np.array([names.number(words.get(one, unknown)) for one in distinct.tolist()], np.int64)
    return numbers[code.reshape(-1)] if len(values) else np.zeros(0, np.int64)


def _mapped(values: Integers, table: dict[int, int], other: int) -> Integers:
    distinct, code = np.unique(values, return_inverse=True)
    found = np.array([table.get(one, other) for one in distinct.tolist()], np.int64)
    return found[code.reshape(-1)] if len(values) else np.zeros(0, np.int64)


def _calls(database: Database, strings: dict[int, str]) -> ApiCalls:
    parts = [database.integers(table, "start", "end", "globalTid", "correlationId", "nameId") for table in CALLS]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    keep = are_times(columns["start"], columns["end"])
    columns = {name: values[keep] for name, values in columns.items()}
    names, plain = Numbered(), {}
    for number in np.unique(columns["nameId"]).tolist():
        plain[number] = _VERSION.sub("", strings.get(number, "(call without a name)"))
    return columns_of(
        ApiCalls,
        {
            "name": _numbered(columns["nameId"], plain, names, "(call without a name)"),
            "process": _process(columns["globalTid"]),
            "thread": columns["globalTid"],
            "start": columns["start"],
            "end": columns["end"],
            "correlation": columns["correlationId"],
        },
        names.texts,
    ).by_start()


def _ranges(database: Database, strings: dict[int, str], last: int) -> HostRanges:
    """NVTX ranges and calls of the OS's library."""
    event = database.integers(RANGES, "start", "end", "eventType", "globalTid", "textId")
    wanted = (event["start"] != MISSING) & _is_range(database, event["eventType"])
    texts = database.texts(RANGES, "text")
    names = Numbered()
    rows = np.flatnonzero(wanted)
    found = _text_names(rows, texts, event["textId"], strings, names)
    rows, found = rows[found >= 0], found[found >= 0]
    ends = event["end"][rows]
    ends = np.where((ends == MISSING) | (ends == 0), np.maximum(last, event["start"][rows]), ends)
    os_calls = database.integers(OS_CALLS, "start", "end", "globalTid", "nameId")
    keep = are_times(os_calls["start"], os_calls["end"])
    os_calls = {name: values[keep] for name, values in os_calls.items()}
    thread = np.concatenate([event["globalTid"][rows], os_calls["globalTid"]])
    table = columns_of(
        HostRanges,
        {
            "kind": np.repeat(np.array([activity.NVTX, activity.OS_CALL]), [len(rows), len(os_calls["start"])]),
            "name": np.concatenate([found, _numbered(os_calls["nameId"], strings, names, "(call without a name)")]),
            "process": _process(thread),
            "thread": thread,
            "start": np.concatenate([event["start"][rows], os_calls["start"]]),
            "end": np.concatenate([ends, os_calls["end"]]),
        },
        names.texts,
    )
    return table.at(are_times(table.start, table.end)).by_start()


def _is_range(database: Database, kinds: Integers) -> npt.NDArray[np.bool_]:
    """Whether events are push/pop or start/end ranges; old schemas have no type, and only ranges with an end."""
    numbers = database.integers(EVENT_TYPES, "id")["id"].tolist()
    named = dict(zip(database.texts(EVENT_TYPES, "name"), numbers, strict=False))
    return np.isin(kinds, [MISSING, *(named.get(name, number) for name, number in RANGE_TYPES.items())])


def _text_names(
    rows: npt.NDArray[np.intp], texts: list[str | None], numbers: Integers, strings: dict[int, str], names: Numbered
) -> Integers:
    """The number in `names` of each event's own text or registered string; -1 for events without a name."""
    found = []
    for row, number in zip(rows.tolist(), numbers[rows].tolist(), strict=True):
        text = (texts[row] if texts else None) or strings.get(number)
        found.append(-1 if text is None else names.number(text))
    return np.array(found, np.int64)


def _overheads(database: Database) -> Overheads:
    columns = database.integers(OVERHEADS, "start", "end", "globalTid", "overheadType")
    own = database.integers("PROFILER_OVERHEAD", "start", "end", "globalTid")
    own["overheadType"] = np.full(len(own["start"]), 4)  # CUPTI's number of the profiler's instrumentation
    columns = {name: np.concatenate([values, own[name]]) for name, values in columns.items()}
    kind = _mapped(columns["overheadType"], OVERHEAD_OF, MISSING)
    keep = (kind != MISSING) & are_times(columns["start"], columns["end"])
    if not keep.any():
        return empty(Overheads)
    thread = columns["globalTid"][keep]
    return columns_of(
        Overheads,
        {
            "kind": kind[keep],
            "process": _process(thread),
            "thread": thread,
            "start": columns["start"][keep],
            "end": columns["end"][keep],
        },
    ).by_start()


def _devices(database: Database, operations: GpuOperations) -> dict[tuple[int, int], str]:
    """The names of the GPUs that operations ran on, where the file describes them."""
    from ncu_parsers.timelines.nsys.tables.devices import read_devices

    pairs = np.unique(np.stack([operations.process, operations.device]), axis=1)
    known = read_devices(database).of(pairs[0], pairs[1])
    names = {}
    for code, process, device in zip(known.code.tolist(), *pairs.tolist(), strict=True):
        if known.names[code] is not None:
            names[process, device] = str(known.names[code])
    return names
