"""Read GPU operations from an export of Nsight Systems: kernels, copies, memsets and CUDA graphs, as columns.

Rows are usually, but not always, ordered by start; some files order them by process. Blocks of rows are read in the
order of their smallest start, and an operation is emitted once no later block can contain an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncu_parsers.launches.nsys.nvtx import Codes, process_of
from ncu_parsers.timelines.activity.operation_times import ImpossibleEnd, impossible_ends, share_a_number
from ncu_parsers.timelines.nsys.database import MISSING, Database, Integers, RowBlock

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
"""nsys's word for each CUPTI copyKind, for files without a table of names."""

UNNAMED = "(kernel without a name)"


@dataclass
class Operations:
    """GPU operations sorted by start: one int64 array per field of nsys, with `MISSING` for null.

    `kind` and `name` index `kinds` and `names`.
    """

    columns: dict[str, Integers]
    kind: Codes
    name: Codes
    names: list[str]
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


class OperationReader:
    """Every kernel, copy, memset and graph launch of a timeline that has a start.

    `startless` counts operations without a start, `lost` operations whose start and end are 0: their measurement was
    lost. `impossible` are operations cut at the start of the next operation on their stream, with their names.
    """

    def __init__(self, database: Database, strings: dict[int, str]) -> None:
        self.startless = self.lost = 0
        self.impossible: list[tuple[str, ImpossibleEnd]] = []
        self._database, self._strings = database, strings
        self._copies = _copy_kinds(database)
        self._names: dict[str, int] = {}

    def batches(self, rows: int | None = None) -> Iterator[Operations]:
        """Operations ordered by start, in batches of about `rows`; in one batch if that is None."""
        blocks = sorted(self._blocks(), key=lambda one: one[0])
        waiting = self._read([])
        begun = 0
        for place in range(1, len(blocks) + 1):
            following = blocks[place][0] if place < len(blocks) else None
            held = len(waiting["start"]) + sum(block.rows for _, _, block in blocks[begun:place])
            if following is not None and (rows is None or held < rows):
                continue
            waiting = _stacked(waiting, self._read(blocks[begun:place]))
            begun = place
            order = np.lexsort((waiting["row"], waiting["kind"], waiting["start"]))
            ready = len(order)
            if following is not None:
                ready = int(np.searchsorted(waiting["start"][order], following))
            if ready:
                yield self._operations({name: values[order[:ready]] for name, values in waiting.items()})
            waiting = {name: values[order[ready:]] for name, values in waiting.items()}

    def _blocks(self) -> Iterator[tuple[int, int, RowBlock]]:
        """The smallest start, the kind and the rows of each block; blocks without any start are only counted."""
        start = """CASE typeof("start") WHEN 'integer' THEN "start" END"""
        for kind, table in enumerate(ACTIVITIES.values()):
            value = start if "start" in self._database.columns(table) else "NULL"
            for block, least in self._database.blocks(table, value):
                if least is None:
                    self.startless += block.rows
                else:
                    yield least, kind, block

    def _read(self, blocks: list[tuple[int, int, RowBlock]]) -> dict[str, Integers]:
        """The fields of all rows in `blocks` that have a start, with their `kind` and their `row` in its table."""
        parts = []
        for _, kind, block in blocks:
            part = self._database.integers(tuple(ACTIVITIES.values())[kind], *FIELDS, block=block)
            part["kind"] = np.full(len(part["start"]), kind)
            part["row"] = block.after + np.arange(len(part["start"]))
            has_start = part["start"] != MISSING
            self.startless += len(has_start) - int(has_start.sum())
            is_lost = (part["start"] == 0) & (part["end"] == 0)
            self.lost += int(is_lost.sum())
            kept = has_start & ~is_lost
            parts.append(part if kept.all() else {name: values[kept] for name, values in part.items()})
        return _stacked(*parts) if parts else dict.fromkeys((*FIELDS, "kind", "row"), np.empty(0, np.int64))

    def _operations(self, columns: dict[str, Integers]) -> Operations:
        kind = columns.pop("kind")
        del columns["row"]
        node = columns["graphNodeId"]
        columns["graphNodeId"] = np.where(node == 0, MISSING, node)  # old schemas write 0 for null
        found = Operations(columns, kind, self._name_codes(kind, columns), list(self._names))
        self._cut_impossible_ends(found)
        return found

    def _cut_impossible_ends(self, found: Operations) -> None:
        """Cut operations of impossible duration where the next operation on their stream begins."""
        columns = found.columns
        streams = tuple(columns[name] for name in ("globalPid", "deviceId", "contextId", "streamId"))
        one_by_one = (
            (columns["graphNodeId"] == MISSING) & (columns["streamId"] != MISSING) & ~np.isnan(found.durations)
            & (found.kind != found.kinds.index(GRAPH)) & ~share_a_number(columns["correlationId"], MISSING)
        )  # fmt: skip
        for one in impossible_ends(streams, columns["start"], columns["end"], one_by_one):
            columns["end"][one.row] = one.cut_to
            self.impossible.append((found.names[int(found.name[one.row])], one))

    def _name_codes(self, kind: Codes, columns: dict[str, Integers]) -> Codes:
        """Index of each operation's name into all names, spelled as by `nsys stats`."""
        number = columns[NAMES[0]]
        for other in NAMES[1:]:
            number = np.where(number == MISSING, columns[other], number)
        own = {MEMCPY: columns["copyKind"], GRAPH: columns["graphId"]}
        code = np.empty(len(kind), np.int64)
        for place, what in enumerate(ACTIVITIES):
            mine = np.flatnonzero(kind == place)
            found, inverse = np.unique(own.get(what, number)[mine], return_inverse=True)
            names = [self._name(what, one) for one in found.tolist()]
            code[mine] = np.array([self._names.setdefault(name, len(self._names)) for name in names], np.int64)[inverse]
        return code

    def _name(self, what: str, number: int) -> str:
        if what == KERNEL:
            return self._strings.get(number, UNNAMED)
        if what == MEMCPY:
            return f"[CUDA memcpy {self._copies.get(number, 'Unknown')}]"
        if what == MEMSET:
            return "[CUDA memset]"
        return f"[CUDA graph{'' if number == MISSING else f' {number}'}]"


def _stacked(*parts: dict[str, Integers]) -> dict[str, Integers]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _copy_kinds(database: Database) -> dict[int, str]:
    numbers = database.integers("ENUM_CUDA_MEMCPY_OPER", "id")["id"].tolist()
    labels = database.texts("ENUM_CUDA_MEMCPY_OPER", "label")
    named = {number: label for number, label in zip(numbers, labels, strict=False) if label is not None}
    return {**dict(enumerate(COPY_KINDS)), **named}
