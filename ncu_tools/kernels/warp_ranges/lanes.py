"""Which blocks to draw, and the range that each of their warps is in, by columns of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ncu_parsers.warp_ranges.warp_trace import Integers

from ncu_tools.kernels.warp_ranges.launch_ranges import LaunchRanges

NOTHING = -1


@dataclass(frozen=True)
class WarpLane:
    """A warp of a block: for each column, the index of the name of the range it is in longest; `NOTHING` for none."""

    role: str
    warp: int
    names: Integers


@dataclass(frozen=True)
class OwnPieces:
    """The intervals in which a range is the innermost of a lane: start, end and name of each, in order."""

    start: Integers
    end: Integers
    name: Integers


def blocks_to_draw(ranges: LaunchRanges, block: int | None = None) -> list[tuple[str, int]]:
    """Title and row of the slowest and of the median block, or of the block with this linear number.

    Raises `ValueError` if there is no such block.
    """
    numbers = ranges.block[ranges.first_block]
    length = ranges.block_end - ranges.block_begin
    if block is not None:
        found = np.flatnonzero(numbers == block)
        if not len(found):
            raise ValueError(block)
        return [(f"block {block}", int(found[0]))]
    order = np.argsort(length, kind="stable")
    slowest, median = int(order[-1]), int(order[(len(order) - 1) // 2])
    titled = [(f"slowest block, {numbers[slowest]}", slowest)]
    return titled if slowest == median else [*titled, (f"median block, {numbers[median]}", median)]


def lanes_of(ranges: LaunchRanges, block: int, columns: int) -> list[WarpLane]:
    """The warps of a block by role, each with `columns` equal intervals from the block's begin to its end."""
    behind = np.append(ranges.first_block, len(ranges.block))[block + 1]
    begin, end = int(ranges.block_begin[block]), int(ranges.block_end[block])
    found = []
    for lane in range(int(ranges.first_block[block]), int(behind)):
        pieces = own_pieces(ranges, lane)
        found.append(WarpLane(ranges.roles[ranges.role[lane]], int(ranges.warp[lane]),
                              _columns(pieces, begin, end, columns, len(ranges.names))))  # fmt: skip
    return sorted(found, key=lambda one: (ranges.roles.index(one.role), one.warp))


def own_pieces(ranges: LaunchRanges, lane: int) -> OwnPieces:
    """The intervals in which a lane is in a range, each with its innermost range."""
    low, high = np.searchsorted(ranges.lane, [lane, lane + 1])
    rows = np.arange(low, high)
    rows = rows[(ranges.length[rows] > 0) & ~ranges.is_async[rows]]
    times = np.concatenate([ranges.start[rows], ranges.stop[rows]])
    inner = np.concatenate([ranges.name[rows], np.where(
        ranges.parent[rows] >= 0, ranges.name[ranges.parent[rows]], NOTHING,
    )]).astype(np.int64)  # fmt: skip
    is_start = np.repeat([1, 0], len(rows))
    depth = np.concatenate([np.arange(len(rows)), -np.arange(len(rows))])  # inner ranges end first and begin last
    order = np.lexsort((depth, is_start, times))
    times, inner = times[order], inner[order]
    kept = (np.diff(times) > 0) & (inner[:-1] != NOTHING) if len(times) else np.zeros(0, np.bool_)
    return OwnPieces(times[:-1][kept], times[1:][kept], inner[:-1][kept])


def _columns(pieces: OwnPieces, begin: int, end: int, columns: int, names: int) -> Integers:
    """The name with the most time in each column; `NOTHING` where more time is in no range."""
    width = max(end - begin, 1) / columns
    time = np.zeros((columns, names + 1))
    time[:, names] = width
    for start, stop, name in zip(pieces.start.tolist(), pieces.end.tolist(), pieces.name.tolist(), strict=True):
        first, last = int((start - begin) / width), min(int((stop - begin) / width), columns - 1)
        for column in range(first, last + 1):
            inside = min(stop, begin + (column + 1) * width) - max(start, begin + column * width)
            time[column, name] += max(inside, 0)
            time[column, names] -= max(inside, 0)
    best = time.argmax(axis=1)
    found: Integers = np.where(best == names, NOTHING, best)
    return found
