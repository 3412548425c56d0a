"""Read GPU operations from an export of Nsight Systems: kernels, copies, memsets and CUDA graphs, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncu_parsers.timelines.nsys.database import MISSING, Database, Integers
from ncu_parsers.timelines.nsys.nvtx import Codes, process_of

KERNEL, MEMCPY, MEMSET, GRAPH = "kernel", "memcpy", "memset", "graph"
ACTIVITIES = {
    KERNEL: "CUPTI_ACTIVITY_KIND_KERNEL",
    MEMCPY: "CUPTI_ACTIVITY_KIND_MEMCPY",
    MEMSET: "CUPTI_ACTIVITY_KIND_MEMSET",
    GRAPH: "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
}

SHAPES = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
NAMES = ("demangledName", "mangledName", "shortName")
FIELDS = (
    "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "graphNodeId", "graphId",
    "bytes", "copyKind", "registersPerThread", "staticSharedMemory", "dynamicSharedMemory", *NAMES, *SHAPES,
)  # fmt: skip

COPY_KINDS = (
    "Unknown", "Host-to-Device", "Device-to-Host", "Host-to-Array", "Array-to-Host", "Array-to-Array",
    "Array-to-Device", "Device-to-Array", "Device-to-Device", "Host-to-Host", "Peer-to-Peer", "Unified Host-to-Device",
    "Unified Device-to-Host", "Unified Device-to-Device",
)  # fmt: skip
"""copyKind by CUPTI's number, in nsys's words, for files without a table of names."""

UNNAMED = "(kernel without a name)"


@dataclass
class Operations:
    """GPU operations sorted by start: one int64 array per field of nsys, with `MISSING` for null.

    `kind` and `name` index `kinds` and `names`. `startless` counts rows without a start, which are dropped.
    """

    columns: dict[str, Integers]
    kind: Codes
    name: Codes
    names: list[str]
    startless: int = 0
    kinds: tuple[str, ...] = tuple(ACTIVITIES)

    def __len__(self) -> int:
        return len(self.kind)

    def count(self, kind: str) -> int:
        """The number of operations of a kind."""
        return int((self.kind == self.kinds.index(kind)).sum())

    @property
    def processes(self) -> Integers:
        """The process id of each operation (int64, one per operation); `MISSING` if unknown."""
        process = self.columns["globalPid"]
        return np.where(process == MISSING, MISSING, process_of(process) & 0xFFFFFF)

    @property
    def durations(self) -> npt.NDArray[np.float64]:
        """end - start in ns (float64, one per operation); NaN if the end is missing or before the start."""
        start, end = self.columns["start"], self.columns["end"]
        known = (end != MISSING) & (end >= start)
        return np.where(known, elapsed(start, end), np.nan)


def elapsed(start: Integers, end: Integers) -> npt.NDArray[np.float64]:
    """end - start as float64, computed without overflow of 64-bit integers."""
    return (end.view(np.uint64) - start.view(np.uint64)).astype(np.float64)


def read_operations(database: Database, strings: dict[int, str]) -> Operations:
    """Read every kernel, copy, memset and graph launch of a timeline that has a start."""
    parts = [database.integers(table, *FIELDS) for table in ACTIVITIES.values()]
    kind = np.repeat(np.arange(len(parts)), [len(part["start"]) for part in parts])
    columns = {name: np.concatenate([part[name] for part in parts]) for name in FIELDS}
    order = np.argsort(columns["start"], kind="stable")
    order = order[columns["start"][order] != MISSING]
    startless = len(kind) - len(order)
    columns = {name: values[order] for name, values in columns.items()}
    columns["graphNodeId"][columns["graphNodeId"] == 0] = MISSING  # old schemas write 0 for null
    kind = kind[order]
    name, names = _names(kind, columns, _copy_kinds(database), strings)
    return Operations(columns, kind, name, names, startless)


def _names(
    kind: Codes, columns: dict[str, Integers], copies: dict[int, str], strings: dict[int, str]
) -> tuple[Codes, list[str]]:
    """The names of operations, as `nsys stats` prints them; graphs by number."""
    number = columns[NAMES[0]].copy()
    for other in NAMES[1:]:
        number = np.where(number == MISSING, columns[other], number)
    kinds = tuple(ACTIVITIES)
    for of_kind, own in ((MEMCPY, "copyKind"), (GRAPH, "graphId")):
        number = np.where(kind == kinds.index(of_kind), columns[own], number)
    pairs, code = np.unique(np.stack([kind, number]), axis=1, return_inverse=True)
    names = []
    for what, one in pairs.T.tolist():
        if kinds[what] == KERNEL:
            names.append(strings.get(one, UNNAMED))
        elif kinds[what] == MEMCPY:
            names.append(f"[CUDA memcpy {copies.get(one, 'Unknown')}]")
        elif kinds[what] == MEMSET:
            names.append("[CUDA memset]")
        else:
            names.append(f"[CUDA graph{'' if one == MISSING else f' {one}'}]")
    return code.reshape(-1).astype(np.int64), names


def _copy_kinds(database: Database) -> dict[int, str]:
    numbers = database.integers("ENUM_CUDA_MEMCPY_OPER", "id")["id"].tolist()
    labels = database.texts("ENUM_CUDA_MEMCPY_OPER", "label")
    named = {number: label for number, label in zip(numbers, labels, strict=False) if label is not None}
    return {**dict(enumerate(COPY_KINDS)), **named}
