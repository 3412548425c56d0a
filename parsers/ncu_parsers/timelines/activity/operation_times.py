"""Checks on the times of a timeline's operations: overlaps, impossible ends, and lost times.

Overlapping operations count once. `ncu_tools.timeline` explains idle time of the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from ncu_launch.notes import Note, NoteKind

from ncu_parsers.timelines.activity.activity import GRAPH, MISSING, GpuOperations

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Rows = TypeVar("Rows", bound=GpuOperations)

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
        for gpu, mine in _by_gpu(process, device, start):
            self._gpus.setdefault(gpu, _Running(float(start[mine[0]]))).add(start[mine], duration[mine])
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


def _by_gpu(
    process: Integers, device: Integers, start: npt.NDArray[Any]
) -> Iterator[tuple[tuple[int, int], npt.NDArray[np.intp]]]:
    """Process and device of each GPU, and its operations in order of their starts."""
    order = np.lexsort((start, device, process))
    changes = (np.diff(device[order]) != 0) | (np.diff(process[order]) != 0)
    for mine in np.split(order, np.flatnonzero(changes) + 1) if len(order) else []:
        yield (int(process[mine[0]]), int(device[mine[0]])), mine


class Overlaps:
    """The intervals in which two or more of these operations ran on a GPU. Every operation must have an end."""

    def __init__(self, operations: GpuOperations) -> None:
        self._gpus: dict[tuple[int, int], tuple[Integers, Integers]] = {}
        for gpu, mine in _by_gpu(operations.process, operations.device, operations.start):
            found = _moments_of_two(operations.start[mine], operations.end[mine])
            if len(found[0]):
                self._gpus[gpu] = found

    def __bool__(self) -> bool:
        return bool(self._gpus)

    def during(self, operations: GpuOperations) -> Integers:
        """Time of each operation during which two or more ran on its GPU, in ns (int64)."""
        found = np.zeros(len(operations), np.int64)
        for (process, device), moments in self._gpus.items():
            mine = (operations.process == process) & (operations.device == device)
            found[mine] = _before(*moments, operations.end[mine]) - _before(*moments, operations.start[mine])
        return found


def _moments_of_two(start: Integers, end: Integers) -> tuple[Integers, Integers]:
    """Begins and ends of the intervals in which two or more operations, ordered by start, ran."""
    reached = np.maximum.accumulate(end)
    begins, ends = start[1:], np.minimum(end[1:], reached[:-1])
    some = ends > begins
    begins, ends = begins[some], np.maximum.accumulate(ends[some])
    new = np.concatenate([[True], begins[1:] > ends[:-1]])[: len(begins)]
    return begins[new], ends[np.append(new[1:], True)[: len(ends)]]


def _before(begins: Integers, ends: Integers, moment: Integers) -> Integers:
    """How many ns of these intervals lie before each moment."""
    passed = np.concatenate([[0], np.cumsum(ends - begins)])
    place = np.searchsorted(begins, moment, side="right")
    return passed[place] - np.where(place > 0, np.maximum(ends[np.maximum(place, 1) - 1] - moment, 0), 0)


def exclusive_times(operations: GpuOperations) -> Integers:
    """Time that each operation ran alone on its GPU, in ns (int64, one per operation)."""
    return operations.end - operations.start - Overlaps(operations).during(operations)


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
    """An operation with an impossible end: row, recorded duration, overlap with the next one, and that start."""

    row: int
    lasts_ns: int
    overlap_ns: int
    cut_to: int


def impossible_ends(
    streams: Sequence[Integers], start: Integers, end: Integers, one_by_one: npt.NDArray[np.bool_]
) -> list[ImpossibleEnd]:
    """Operations that end over `IMPOSSIBLE_OVERLAP_NS` after a following one on their stream, largest overlap first.

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


def impossible_ends_of(operations: GpuOperations) -> list[ImpossibleEnd]:
    """Operations that end long after a following one on their stream; those of graphs may, and are not examined."""
    streams = (operations.process, operations.device, operations.context, operations.stream)
    one_by_one = (
        (operations.graph_node == MISSING)
        & (operations.stream != MISSING)
        & (operations.kind != GRAPH)
        & (operations.end >= operations.start)
    )
    found = impossible_ends(streams, operations.start, operations.end, one_by_one)
    if found:  # only now, as finding shared numbers takes longer, and excluding them only shortens the list
        one_by_one &= ~share_a_number(operations.correlation, MISSING)
        found = impossible_ends(streams, operations.start, operations.end, one_by_one)
    return found


def cut(operations: Rows, found: Sequence[ImpossibleEnd]) -> Rows:
    """The operations, with each impossible end that was `found` cut to the start of the next operation."""
    if not found:
        return operations
    end = operations.end.copy()
    end[[one.row for one in found]] = [one.cut_to for one in found]
    return replace(operations, end=end)


def without_impossible_ends(operations: GpuOperations) -> tuple[GpuOperations, list[str]]:
    """The operations, with impossible ends cut to the start of the next one on the stream, and notes on them."""
    found = impossible_ends_of(operations)
    return cut(operations, found), impossible_notes(named(operations, found))


def named(operations: GpuOperations, found: Sequence[ImpossibleEnd]) -> list[tuple[str, ImpossibleEnd]]:
    """Impossible ends with the names of their operations."""
    return [(operations.names[int(operations.name[one.row])], one) for one in found]
