"""Work on a lane as boxes: neighbours too short to be distinguished are merged into one box with their count.

Merging keeps sums: a box holds the time of each kind; a moment counts once, for the first piece that ran in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

FINEST = 20_000
"""If boxes are merged at all, the shortest visible time is this fraction of the shown time."""


@dataclass(frozen=True)
class LanePieces:
    """Pieces of work on a lane, ordered by start: int64 columns, times in ns from 0 on, kinds and names as numbers."""

    start: Integers
    end: Integers
    kind: Integers
    name: Integers

    def __len__(self) -> int:
        return len(self.start)

    @property
    def own(self) -> Integers:
        """The time of each piece in which no earlier one ran, in ns: their sum is the busy time."""
        if not len(self):
            return np.zeros(0, np.int64)
        reached = np.maximum.accumulate(self.end)
        before = np.concatenate([self.start[:1], reached[:-1]])
        own: Integers = np.maximum(self.end - np.maximum(self.start, before), 0)
        return own


@dataclass(frozen=True)
class LaneBox:
    """One piece, or `count` merged ones (`name` is None then), from `start` to `end` in ns.

    `times` are the ns of each kind; the rest of the box's length was idle.
    """

    start: int
    end: int
    count: int
    name: int | None
    times: dict[int, int]


def resolution_of(lanes: Sequence[LanePieces], span: int, most: int) -> int:
    """The shortest visible time in ns, so that the boxes of all lanes are at most `most`; 0 merges nothing.

    At least two boxes are left for each lane, whatever `most` is.
    """
    if sum(map(len, lanes)) <= most:
        return 0
    middles = [np.sort(_columns(lane, 1)) for lane in lanes if len(lane)]
    lengths = [np.sort(lane.end - lane.start) for lane in lanes if len(lane)]
    resolution = max(span // FINEST, 1)
    while resolution < span:
        long = sum(len(one) - int(np.searchsorted(one, resolution)) for one in lengths)
        short = sum(1 + int(np.count_nonzero(np.diff(one // resolution))) for one in middles)
        if long + short <= most:
            break
        resolution = resolution * 3 // 2 + 1
    return resolution


def boxes_of(pieces: LanePieces, resolution: int) -> list[LaneBox]:
    """The pieces as boxes ordered by start: pieces shorter than `resolution` are merged by columns, unless it is 0.

    A column is as wide as `resolution`; a piece belongs to the column of its middle.
    """
    if not len(pieces):
        return []
    column = np.arange(len(pieces))
    if resolution:
        short = pieces.end - pieces.start < resolution
        column = np.where(short, _columns(pieces, resolution), -1 - column)
    _, first, group = np.unique(column, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    count = np.bincount(group)
    start = np.full(len(count), np.iinfo(np.int64).max)
    end = np.full(len(count), np.iinfo(np.int64).min)
    np.minimum.at(start, group, pieces.start)
    np.maximum.at(end, group, pieces.end)
    times: list[dict[int, int]] = [{} for _ in count]
    for kind in np.unique(pieces.kind).tolist():
        mine = pieces.kind == kind
        sums = np.zeros(len(count), np.int64)
        np.add.at(sums, group[mine], pieces.own[mine])
        for place in np.unique(group[mine]).tolist():
            times[place][kind] = int(sums[place])
    return [
        LaneBox(int(start[one]), int(end[one]), int(count[one]),
                int(pieces.name[first[one]]) if count[one] == 1 else None, times[one])
        for one in np.argsort(start, kind="stable").tolist()
    ]  # fmt: skip


def _columns(pieces: LanePieces, width: int) -> Integers:
    """The column, `width` ns wide, that contains the middle of each piece."""
    return ((pieces.start + pieces.end) // 2) // width
