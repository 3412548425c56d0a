"""Read GPU operations from an export of Nsight Systems: kernels, copies, memsets and CUDA graphs, as columns.

Times of all operations are read first and held, because an operation that overlaps an early one may stand at the end.
Rows are usually, but not always, ordered by start; some files order them by process. So the other columns are read by
blocks of rows in the order of their smallest start, and an operation is emitted once no later block can contain an
earlier one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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
from ncu_parsers.timelines.nsys.database import Database, RowBlock
from ncu_parsers.timelines.nsys.nsys_activity import ACTIVITIES, COPY_KINDS, KERNEL_NAMES, UNNAMED, kernel_names
from ncu_parsers.timelines.nsys.nsys_ranges import process_of

OF_TIMES = {
    "start": "start", "end": "end", "device": "deviceId", "context": "contextId", "stream": "streamId",
    "correlation": "correlationId", "process": "globalPid", "graph_node": "graphNodeId",
}  # fmt: skip
OF_SHAPES = {
    "grid_x": "gridX", "grid_y": "gridY", "grid_z": "gridZ", "block_x": "blockX", "block_y": "blockY",
    "block_z": "blockZ",
}  # fmt: skip
OF_RESOURCES = {
    "bytes": "bytes", "registers": "registersPerThread", "static_shared_memory": "staticSharedMemory",
    "dynamic_shared_memory": "dynamicSharedMemory",
}  # fmt: skip
"""Column of `TracedOperations` -> column of nsys's table."""
OF_NAMES = ("graphId", "copyKind", *KERNEL_NAMES)
OF_GPU_WORK = ("kind", "start", "end", "device", "process")
"""Held columns that say when an operation ran and on which GPU; the others say what launched it."""
NOTHING = np.empty(0, np.int64)
PLACE = "place"
"""Index of an operation among all, by kind and row."""


class _Block(NamedTuple):
    """Operations of a kind in a block of rows: the smallest start, and the place of the first."""

    start: int
    kind: int
    place: int
    rows: RowBlock


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
    lost. `overlaps` gives the time that operations overlap others. `impossible` lists operations that were cut at the
    start of the next operation on their stream, with their names. With `gpu_work`, only times, GPUs, names and shapes
    are read; the rest is `MISSING`.
    """

    def __init__(self, database: Database, strings: dict[int, str], *, gpu_work: bool = False) -> None:
        self.startless = self.lost = 0
        self.impossible: list[tuple[str, ImpossibleEnd]] = []
        self._database, self._strings = database, strings
        self._copies = _copy_kinds(database)
        self._names: dict[str, int] = {}
        self._blocks: list[_Block] = []
        self._titles = OF_SHAPES if gpu_work else {**OF_SHAPES, **OF_RESOURCES}
        held = self._times()
        operations, self._cuts = _possible(held)
        self.overlaps = Overlaps(operations)
        self._held = {name: held[name] for name in OF_GPU_WORK} if gpu_work else held

    def batches(self, rows: int | None = None) -> Iterator[TracedOperations]:
        """Operations ordered by start, in batches of about `rows`; in one batch if that is None."""
        blocks = sorted(self._blocks, key=lambda one: one.start)
        waiting = self._read([])
        begun = 0
        for number in range(1, len(blocks) + 1):
            following = blocks[number].start if number < len(blocks) else None
            coming = len(waiting["start"]) + sum(block.rows.rows for block in blocks[begun:number])
            if following is not None and (rows is None or coming < rows):
                continue
            waiting = _stacked(waiting, self._read(blocks[begun:number]))
            begun = number
            order = np.lexsort((waiting[PLACE], waiting["start"]))
            ready = len(order)
            if following is not None:
                ready = int(np.searchsorted(waiting["start"][order], following))
            if ready:
                yield self._operations({name: values[order[:ready]] for name, values in waiting.items()})
            waiting = {name: values[order[ready:]] for name, values in waiting.items()}

    def _times(self) -> dict[str, Integers]:
        """The columns `OF_TIMES` and `kind` of all rows, as small integers; stores the blocks with a start."""
        parts: list[dict[str, Integers]] = []
        place = 0
        for kind, table in ACTIVITIES.items():
            for block, part in self._database.integer_blocks(table, *OF_TIMES.values()):
                known = {**_renamed(part), "kind": np.full(block.rows, kind)}
                has_start = known["start"] != MISSING
                self.startless += block.rows - int(has_start.sum())
                self.lost += int(_are_lost(known).sum())
                if has_start.any():
                    self._blocks.append(_Block(int(known["start"][has_start].min()), kind, place, block))
                parts.append({name: narrow(values) for name, values in known.items()})
                place += block.rows
        none = np.zeros(0, np.int8)
        return {name: np.concatenate([none, *(part.pop(name) for part in parts)]) for name in ("kind", *OF_TIMES)}

    def _read(self, blocks: list[_Block]) -> dict[str, Integers]:
        """The fields of all rows in `blocks` that have times, with their `PLACE`."""
        fields = (*self._titles.values(), *OF_NAMES)
        parts = [{name: values[:0] for name, values in self._held.items()} | dict.fromkeys((*fields, PLACE), NOTHING)]
        for block in blocks:
            rows = slice(block.place, block.place + block.rows.rows)
            part = self._database.integers(ACTIVITIES[block.kind], *fields, block=block.rows)
            if len(part[fields[0]]) != block.rows.rows:
                raise sqlite3.DatabaseError("the numbers of rows do not increase")
            part |= {name: values[rows] for name, values in self._held.items()}
            part[PLACE] = np.arange(rows.start, rows.stop)
            kept = (part["start"] != MISSING) & ~_are_lost(part)
            parts.append(part if kept.all() else {name: values[kept] for name, values in part.items()})
        return _stacked(*parts)

    def _operations(self, columns: dict[str, Integers]) -> TracedOperations:
        titles = {**dict(zip(self._held, self._held, strict=True)), **self._titles}
        known = {own: columns[title].astype(np.int64, copy=False) for own, title in titles.items()}
        found = columns_of(TracedOperations, {**known, "name": self._name_codes(columns)}, list(self._names))
        rows = np.flatnonzero(np.isin(columns[PLACE], list(self._cuts))).tolist() if self._cuts else []
        impossible = [self._cuts[int(columns[PLACE][row])]._replace(row=row) for row in rows]
        self.impossible += named(found, impossible)
        return cut(found, impossible)

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


def _renamed(columns: dict[str, Integers]) -> dict[str, Integers]:
    """The columns `OF_TIMES` with process ids, and `MISSING` for graph node 0, which old schemas write for none."""
    found = {own: columns[title] for own, title in OF_TIMES.items()}
    node = found["graph_node"]
    return {**found, "process": process_of(found["process"]), "graph_node": np.where(node == 0, MISSING, node)}


def _are_lost(columns: dict[str, Integers]) -> npt.NDArray[np.bool_]:
    are_lost: npt.NDArray[np.bool_] = (columns["start"] == 0) & (columns["end"] == 0)
    return are_lost


def _possible(columns: dict[str, Integers]) -> tuple[GpuOperations, dict[int, ImpossibleEnd]]:
    """Operations with times, their impossible ends cut; and those cuts by the operation's index among all."""
    start, end = columns["start"], columns["end"]
    timed = np.flatnonzero((start != MISSING) & (end >= start) & (end != 0))
    operations = columns_of(GpuOperations, columns)
    operations = operations if len(timed) == len(start) else operations.at(timed)
    found = impossible_ends_of(operations)
    return cut(operations, found), {int(timed[one.row]): one for one in found}


def _stacked(*parts: dict[str, Integers]) -> dict[str, Integers]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _copy_kinds(database: Database) -> dict[int, str]:
    numbers = database.integers("ENUM_CUDA_MEMCPY_OPER", "id")["id"].tolist()
    labels = database.texts("ENUM_CUDA_MEMCPY_OPER", "label")
    named = {number: label for number, label in zip(numbers, labels, strict=False) if label is not None}
    return {**dict(enumerate(COPY_KINDS)), **named}
