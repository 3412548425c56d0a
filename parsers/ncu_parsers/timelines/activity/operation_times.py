"""Checks on the times of a timeline's operations: overlaps, impossible ends, and lost times.

Overlapping operations count once. `ncu_tools.timeline` explains idle time of the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from ncu_launch.notes import Note, NoteKind

from ncu_parsers.timelines.activity.activity import MISSING, GpuOperations

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

OVERLAP_NOTED = 1.01
IMPOSSIBLE_OVERLAP_NS = 1_000_000
"""Operations of a stream run one after another. In 13 public recordings overlaps, as by programmatic dependent launch,
are 12 us at most; an operation that ends this much later than a following one is a damaged record."""
RECORDS_NAMED, LONGEST_NAME = 3, 80


@dataclass
class _Running:
    """A GPU while operations are added in order of start: the end of its busy time so far, and sums in ns."""

    reached: float
    busy: float = 0.0

    def add(self, start: Floats, duration: Floats) -> None:
        """Add later operations; times in ns."""
        reached = np.maximum.accumulate(np.concatenate([[self.reached], start + duration]))
        self.busy += float(np.maximum(reached[1:] - np.maximum(start, reached[:-1]), 0).sum())
        self.reached = float(reached[-1])


class BusyAccount:
    """Busy time of GPUs, from operations that come in parts, ordered by start.

    Each process numbers its GPUs, so a GPU is a process and a device.
    """

    def __init__(self) -> None:
        self._gpus: dict[tuple[int, int], _Running] = {}
        self._total = 0.0

    def add(self, process: Integers, device: Integers, start: Floats, duration: Floats) -> None:
        """Add operations. Arrays: int64 ids, float64 times in ns from any common origin, one entry per operation."""
        order = np.lexsort((start, device, process))
        changes = (np.diff(device[order]) != 0) | (np.diff(process[order]) != 0)
        for mine in np.split(order, np.flatnonzero(changes) + 1) if len(order) else []:
            key = (int(process[mine[0]]), int(device[mine[0]]))
            self._gpus.setdefault(key, _Running(float(start[mine[0]]))).add(start[mine], duration[mine])
        self._total += float(duration.sum())

    def busy(self) -> dict[tuple[int, int], float]:
        """The busy time in ns of each GPU, by process and device."""
        return {key: gpu.busy for key, gpu in sorted(self._gpus.items())}

    def notes(self) -> list[str]:
        """The note on overlapping operations, whose times add up to more than elapsed time."""
        busy = sum(self.busy().values())
        if self._total <= busy * OVERLAP_NOTED:
            return []
        return [
            f"operations overlap: their times add up to {self._total / 1e6:,.1f} ms, in which the GPUs were busy for "
            f"{busy / 1e6:,.1f} ms"
        ]


def exclusive_times(operations: GpuOperations) -> Integers:
    """Time that each operation ran alone on its GPU, in ns (int64, one per operation)."""
    found = np.zeros(len(operations), np.int64)
    process, device = operations.process, operations.device
    for one, number in operations.gpus():
        rows = np.flatnonzero((process == one) & (device == number))
        start, end = operations.start[rows], operations.end[rows]
        moments = np.concatenate([start, end])
        order = np.argsort(moments, kind="stable")
        moments, running = moments[order], np.cumsum(np.repeat([1, -1], len(rows))[order])
        alone = np.concatenate([[0], np.cumsum(np.where(running[:-1] == 1, np.diff(moments), 0))])
        found[rows] = alone[np.searchsorted(moments, end)] - alone[np.searchsorted(moments, start)]
    return found


def lost_note(operations: int) -> Note:
    """The note on operations whose times were lost."""
    were, their = ("was", "its") if operations == 1 else ("were", "their")
    return Note(
        f"{operations:,} GPU operation{'s' * (operations > 1)} {were} recorded without times (start and end are 0), "
        f"and {were} left out: the profiler lost {their} measurement",
        NoteKind.LOST,
    )


def broken_note(events: int) -> Note:
    """The note on events that could not be read."""
    some = "1 event could not be read and was" if events == 1 else f"{events:,} events could not be read and were"
    return Note(f"{some} left out", NoteKind.LOST)


class ImpossibleEnd(NamedTuple):
    """An operation with an impossible end: its `row`, its recorded duration, and the start of the next one."""

    row: int
    lasts_ns: int
    overlap_ns: int
    cut_to: int


def impossible_ends(
    streams: Sequence[Integers], start: Integers, end: Integers, one_by_one: npt.NDArray[np.bool_]
) -> list[ImpossibleEnd]:
    """Operations that end long after a following one on their stream, longest first.

    `streams` are the numbers that identify each operation's stream; times in ns. Only operations marked `one_by_one`
    are examined: nodes of graphs may overlap.
    """
    rows = np.flatnonzero(one_by_one)
    rows = rows[np.lexsort((start[rows], *(of_each[rows] for of_each in streams)))]
    other = np.zeros(max(len(rows) - 1, 0), np.bool_)
    for of_each in streams:
        other |= np.diff(of_each[rows]) != 0
    found = []
    for mine in np.split(rows, np.flatnonzero(other) + 1):
        ends = end[mine]
        earliest = np.minimum.accumulate(ends[::-1])[::-1][1:]  # the earliest end among all following operations
        for place in np.flatnonzero(ends[:-1] - earliest > IMPOSSIBLE_OVERLAP_NS).tolist():
            row, following = int(mine[place]), int(start[mine[place + 1]])
            found.append(ImpossibleEnd(row, int(end[row]) - int(start[row]), int(end[row]) - following, following))
    return sorted(found, key=lambda one: -one.overlap_ns)


def share_a_number(correlation: Integers, missing: int) -> npt.NDArray[np.bool_]:
    """Mask of operations that share their launch number with others, as those of a graph do."""
    _, place, count = np.unique(correlation, return_inverse=True, return_counts=True)
    found: npt.NDArray[np.bool_] = (count[place.reshape(-1)] > 1) & (correlation != missing)
    return found


def impossible_notes(named: Sequence[tuple[str, ImpossibleEnd]]) -> list[str]:
    """Notes on operations with impossible ends, each with its name."""
    notes = [
        f"the record of {name[:LONGEST_NAME]} is impossible: it lasts {one.lasts_ns / 1e6:,.1f} ms, and "
        f"{one.overlap_ns / 1e6:,.1f} ms of that after the next operation of its stream began; it is taken to end there"
        for name, one in named[:RECORDS_NAMED]
    ]
    more = len(named) - RECORDS_NAMED
    return notes if more <= 0 else [*notes, f"{more:,} more record{'s are' if more > 1 else ' is'} impossible alike"]


def without_impossible_ends(operations: GpuOperations) -> tuple[GpuOperations, list[str]]:
    """Operations, where any that outlasts a following one on its stream is cut at the start of that one; and notes."""
    streams = (operations.process, operations.device, operations.context, operations.stream)
    one_by_one = (
        (operations.graph_node == MISSING)
        & (operations.stream != MISSING)
        & ~share_a_number(operations.correlation, MISSING)
    )
    found = impossible_ends(streams, operations.start, operations.end, one_by_one)
    if not found:
        return operations, []
    end = operations.end.copy()
    for one in found:
        end[one.row] = one.cut_to
    names = [operations.names[int(operations.name[one.row])] for one in found]
    return replace(operations, end=end), impossible_notes(list(zip(names, found, strict=True)))
