"""Read GPU operations from an export of Nsight Systems: kernels, copies, memsets and CUDA graphs, as columns.

Rows are usually, but not always, ordered by start; some files order them by process. Blocks of rows are read in the
order of their smallest start, and an operation is emitted once no later block can contain an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ncu_parsers.timelines.activity.activity import (
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    MISSING,
    Codes,
    GpuOperations,
    Integers,
    columns_of,
    narrow,
)
from ncu_parsers.timelines.activity.operation_times import ImpossibleEnd, Overlaps, cut, impossible_ends_of, named
from ncu_parsers.timelines.nsys.database import ROWID, Database, RowBlock
from ncu_parsers.timelines.nsys.nsys_activity import ACTIVITIES, COPY_KINDS, KERNEL_NAMES, UNNAMED, kernel_names
from ncu_parsers.timelines.nsys.nsys_ranges import process_of

OF_TIMES = {
    "start": "start", "end": "end", "device": "deviceId", "context": "contextId", "stream": "streamId",
    "correlation": "correlationId", "process": "globalPid", "graph_node": "graphNodeId",
}  # fmt: skip
TITLES = {
    **OF_TIMES, "bytes": "bytes", "registers": "registersPerThread", "static_shared_memory": "staticSharedMemory",
    "dynamic_shared_memory": "dynamicSharedMemory", "grid_x": "gridX", "grid_y": "gridY", "grid_z": "gridZ",
    "block_x": "blockX", "block_y": "blockY", "block_z": "blockZ",
}  # fmt: skip
"""Column of `TracedOperations` -> nsys's name of it."""
FIELDS = (ROWID, *TITLES.values(), "graphId", "copyKind", *KERNEL_NAMES)


@dataclass(frozen=True)
class TracedOperations(GpuOperations):
    """Operations, whose end may be missing or before the start, with the shapes and resources of kernels."""

    registers: Integers
    static_shared_memory: Integers
    dynamic_shared_memory: Integers
    grid_x: Integers
    grid_y: Integers
    grid_z: Integers
    block_x: Integers
    block_y: Integers
    block_z: Integers


class OperationReader:
    """Every kernel, copy, memset and graph launch of a timeline that has a start.

    `startless` counts operations without a start, `lost` operations whose start and end are 0: their measurement was
    lost. The times of all operations are read first, for their `overlaps`. `impossible` are operations that were cut at
    the start of the next operation on their stream, with their names.
    """

    def __init__(self, database: Database, strings: dict[int, str]) -> None:
        self.startless = self.lost = 0
        self.impossible: list[tuple[str, ImpossibleEnd]] = []
        self._database, self._strings = database, strings
        self._copies = _copy_kinds(database)
        self._names: dict[str, int] = {}
        self._blocks: list[tuple[int, int, RowBlock]] = []
        self._cuts: dict[tuple[int, int], ImpossibleEnd] = {}
        self.overlaps = Overlaps(self._times())

    def batches(self, rows: int | None = None) -> Iterator[TracedOperations]:
        """Operations ordered by start, in batches of about `rows`; in one batch if that is None."""
        blocks = sorted(self._blocks, key=lambda one: one[0])
        waiting = self._read([])
        begun = 0
        for place in range(1, len(blocks) + 1):
            following = blocks[place][0] if place < len(blocks) else None
            held = len(waiting["start"]) + sum(block.rows for _, _, block in blocks[begun:place])
            if following is not None and (rows is None or held < rows):
                continue
            waiting = _stacked(waiting, self._read(blocks[begun:place]))
            begun = place
            order = np.lexsort((waiting[ROWID], waiting["kind"], waiting["start"]))
            ready = len(order)
            if following is not None:
                ready = int(np.searchsorted(waiting["start"][order], following))
            if ready:
                yield self._operations({name: values[order[:ready]] for name, values in waiting.items()})
            waiting = {name: values[order[ready:]] for name, values in waiting.items()}

    def _times(self) -> GpuOperations:
        """When all operations ran.

        Notes the smallest start, kind and rows of each block that has any, and, by kind and row, what ends impossibly.
        """
        parts = []
        for kind, table in ACTIVITIES.items():
            for block, part in self._database.integer_blocks(table, *OF_TIMES.values()):
                has_start = part["start"] != MISSING
                if has_start.any():
                    self._blocks.append((int(part["start"][has_start].min()), kind, block))
                else:
                    self.startless += block.rows
                timed = np.flatnonzero(has_start & (part["end"] >= part["start"]) & (part["end"] != 0))
                if len(timed):
                    known = {**_renamed(part, OF_TIMES), "kind": np.full(block.rows, kind), ROWID: part[ROWID]}
                    parts.append({name: narrow(values[timed]) for name, values in known.items()})
        none = np.zeros(0, np.int8)
        names = ("kind", ROWID, *OF_TIMES)
        columns = {name: np.concatenate([none, *(part.pop(name) for part in parts)]) for name in names}
        operations = columns_of(GpuOperations, columns)
        found = impossible_ends_of(operations)
        self._cuts = {(int(columns["kind"][one.row]), int(columns[ROWID][one.row])): one for one in found}
        return cut(operations, found)

    def _read(self, blocks: list[tuple[int, int, RowBlock]]) -> dict[str, Integers]:
        """The fields of all rows in `blocks` that have a start, with their `kind` and their `row` in its table."""
        parts = []
        for _, kind, block in blocks:
            part = self._database.integers(ACTIVITIES[kind], *FIELDS, block=block)
            part["kind"] = np.full(len(part["start"]), kind)
            has_start = part["start"] != MISSING
            self.startless += len(has_start) - int(has_start.sum())
            is_lost = (part["start"] == 0) & (part["end"] == 0)
            self.lost += int(is_lost.sum())
            kept = has_start & ~is_lost
            parts.append(part if kept.all() else {name: values[kept] for name, values in part.items()})
        return _stacked(*parts) if parts else dict.fromkeys((*FIELDS, "kind"), np.empty(0, np.int64))

    def _operations(self, columns: dict[str, Integers]) -> TracedOperations:
        known = {**_renamed(columns, TITLES), "kind": columns["kind"], "name": self._name_codes(columns)}
        found = columns_of(TracedOperations, known, list(self._names))
        impossible = self._impossible_among(columns)
        self.impossible += named(found, impossible)
        return cut(found, impossible)

    def _impossible_among(self, columns: dict[str, Integers]) -> list[ImpossibleEnd]:
        """The operations among these that end impossibly, with their rows here."""
        rows = np.flatnonzero(np.isin(columns[ROWID], [row for _, row in self._cuts])).tolist() if self._cuts else []
        cuts = [(row, self._cuts.get((int(columns["kind"][row]), int(columns[ROWID][row])))) for row in rows]
        return [one._replace(row=row) for row, one in cuts if one is not None]

    def _name_codes(self, columns: dict[str, Integers]) -> Codes:
        """Index of each operation's name into all names, spelled as by `nsys stats`."""
        number, own = kernel_names(columns), {MEMCPY: columns["copyKind"], GRAPH: columns["graphId"]}
        code = np.empty(len(number), np.int64)
        for kind in ACTIVITIES:
            mine = np.flatnonzero(columns["kind"] == kind)
            found, inverse = np.unique(own.get(kind, number)[mine], return_inverse=True)
            names = [self._name(kind, one) for one in found.tolist()]
            code[mine] = np.array([self._names.setdefault(name, len(self._names)) for name in names], np.int64)[inverse]
        return code

    def _name(self, kind: int, number: int) -> str:
        if kind == KERNEL:
            return self._strings.get(number, UNNAMED)
        if kind == MEMCPY:
            return f"[CUDA memcpy {self._copies.get(number, 'Unknown')}]"
        if kind == MEMSET:
            return "[CUDA memset]"
        return f"[CUDA graph{'' if number == MISSING else f' {number}'}]"


def _renamed(columns: dict[str, Integers], titles: dict[str, str]) -> dict[str, Integers]:
    """The columns of operations, with the ids of processes, and null for the node 0 that old schemas write for it."""
    found = {own: columns[title] for own, title in titles.items()}
    node = found["graph_node"]
    return {**found, "process": process_of(found["process"]), "graph_node": np.where(node == 0, MISSING, node)}


def _stacked(*parts: dict[str, Integers]) -> dict[str, Integers]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _copy_kinds(database: Database) -> dict[int, str]:
    numbers = database.integers("ENUM_CUDA_MEMCPY_OPER", "id")["id"].tolist()
    labels = database.texts("ENUM_CUDA_MEMCPY_OPER", "label")
    named = {number: label for number, label in zip(numbers, labels, strict=False) if label is not None}
    return {**dict(enumerate(COPY_KINDS)), **named}
