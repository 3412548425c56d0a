"""Thread blocks over time: fill, drain, copies that overlap with computing, tiles, and their spread over SMs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from ncu_parsers.warp_ranges.warp_trace import MISSING, Integers

from ncu_tools.kernels.warp_ranges.launch_ranges import LaunchRanges, Mask, Numbers
from ncu_tools.kernels.warp_ranges.range_kinds import RangeKind, is_tile
from ncu_tools.kernels.warp_ranges.releases import Order, Release

ROWS = 1_000_000
"""About how many ranges are processed at once, to bound memory."""


@dataclass(frozen=True)
class BlockPhases:
    """Times of a block, as means over blocks in the clock of the launch; None if no range is a copy, or none computes.

    `fill` is the time from a block's begin to its first computing, `drain` from its last copy to its end. `copying`,
    `computing` and `both` are shares of a block's time; `overlap` is `both` over the shorter of the two. With
    `in_flight`, a copy lasts until the wait that it ends, not only until its range ends.
    """

    block: float
    fill: float | None
    drain: float | None
    copying: float | None
    computing: float | None
    both: float | None
    overlap: float | None
    in_flight: bool


@dataclass(frozen=True)
class Tiles:
    """Number of ranges with a tile's name: per block, and per SM (None if SMs are unknown)."""

    range: str
    least: int
    median: float
    most: int
    sm_least: int | None
    sm_most: int | None


@dataclass(frozen=True)
class UnitSpread:
    """Spread of blocks over SMs, TPCs or GPCs: their number, first starts, last ends and work.

    `start_skew` and `end_skew` are the times between the first and the last unit, `idle_end` is the mean share of the
    launch after a unit's last block; None if blocks have no common clock. `work_most` is the work of the busiest unit
    over the mean. `last` is the unit that ends last.
    """

    level: str
    units: int
    blocks_least: int
    blocks_most: int
    start_skew: int | None
    end_skew: int | None
    idle_end: float | None
    work_most: float | None
    last: int | None


def block_phases(ranges: LaunchRanges, releases: Sequence[Release]) -> BlockPhases:
    """Compute fill, drain and overlap from innermost work: ranges that mostly contain others are left out."""
    length = ranges.block_end - ranges.block_begin
    flight = np.zeros(len(ranges.names), np.int64)
    for one in releases:
        if one.order is Order.IN_TURN and one.by >= 0 and ranges.kinds[one.by] is RangeKind.COPY:
            flight[one.by] = max(flight[one.by], round(one.lag))
    first = np.full(len(length), np.iinfo(np.int64).max)
    last = np.full(len(length), np.iinfo(np.int64).min)
    together = np.zeros(3)
    is_copy, is_computing = (_works(ranges, kind) for kind in (RangeKind.COPY, RangeKind.COMPUTE))
    for rows in _whole_blocks(ranges):
        name, start, stop = ranges.name[rows], ranges.start[rows], ranges.stop[rows]
        block = ranges.block_row[ranges.lane[rows]]
        landed = np.minimum(stop + flight[name], ranges.block_end[block])
        copies, computes = (one[name] & (stop > start) for one in (is_copy, is_computing))
        np.minimum.at(first, block[computes], start[computes])
        np.maximum.at(last, block[copies], landed[copies])
        base = block * (ranges.duration + 1)
        together += _together(
            (base[copies] + start[copies], base[copies] + landed[copies]),
            (base[computes] + start[computes], base[computes] + stop[computes]),
        )
    fill, drain = (
        float(some[known].mean()) if known.any() else None
        for some, known in (
            (first - ranges.block_begin, first != np.iinfo(np.int64).max),
            (ranges.block_end - last, last != np.iinfo(np.int64).min),
        )
    )
    if fill is None or drain is None:
        return BlockPhases(float(length.mean()), fill, drain, None, None, None, None, bool(flight.any()))
    copying, computing, both = together.tolist()
    whole = float(max(length.sum(), 1))
    shorter = min(copying, computing)
    return BlockPhases(
        float(length.mean()), fill, drain, copying / whole, computing / whole, both / whole,
        both / shorter if shorter else None, bool(flight.any()),
    )  # fmt: skip


def _works(ranges: LaunchRanges, kind: RangeKind) -> Mask:
    """Mask of the range names that are work of this kind and do not mostly contain other ranges."""
    return np.array([one is kind and name not in ranges.containers for name, one in enumerate(ranges.kinds)], np.bool_)


def _whole_blocks(ranges: LaunchRanges) -> Iterator[slice]:
    """Slices of rows that hold whole blocks, about `ROWS` rows each."""
    ends = np.searchsorted(ranges.lane, np.append(ranges.first_block[1:], len(ranges.block)))
    begin = 0
    while begin < len(ranges):
        end = int(ends[min(int(np.searchsorted(ends, begin + ROWS)), len(ends) - 1)])
        yield slice(begin, end)
        begin = end


def _together(one: tuple[Integers, Integers], other: tuple[Integers, Integers]) -> Numbers:
    """The time in which a range of the one kind runs, of the other kind, and of both; given as (starts, ends)."""
    keys = [*one, *other]
    kind = np.repeat(np.arange(4), [len(some) for some in keys])
    key = np.concatenate(keys)
    order = np.argsort(key, kind="stable")
    kind, length = kind[order], np.diff(key[order]).astype(np.float64)
    running = [np.cumsum((kind == at).astype(np.int8) - (kind == at + 1), dtype=np.int32)[:-1] > 0 for at in (0, 2)]
    return np.array([length[running[0]].sum(), length[running[1]].sum(), length[running[0] & running[1]].sum()])


def tiles_of(ranges: LaunchRanges) -> Tiles | None:
    """Tiles per block and per SM, for the tile name with the most ranges; None if no name is a tile's."""
    named = np.array([is_tile(one) for one in ranges.names], np.bool_)
    counts = np.bincount(ranges.name, minlength=len(ranges.names)) * named
    if not counts.any():
        return None
    name = int(counts.argmax())
    mine = ranges.name == name
    per_lane = np.bincount(ranges.lane[mine], minlength=len(ranges.block))
    per_block = np.maximum.reduceat(per_lane, ranges.first_block)
    known = ranges.block_sm != MISSING
    least = most = None
    if known.any():
        _, unit = np.unique(ranges.block_sm[known], return_inverse=True)
        per_sm = np.bincount(unit.reshape(-1), per_block[known])
        least, most = int(per_sm.min()), int(per_sm.max())
    return Tiles(
        ranges.names[name], int(per_block.min()), float(np.median(per_block)), int(per_block.max()), least, most
    )


def unit_spread(ranges: LaunchRanges) -> list[UnitSpread]:
    """The spread over SMs, TPCs and GPCs, for the levels that the trace records."""
    work = np.bincount(ranges.lane[~ranges.waits], ranges.own[~ranges.waits], len(ranges.block))
    found = []
    for level, of in (("SM", ranges.sm), ("TPC", ranges.tpc), ("GPC", ranges.gpc)):
        unit_of_block = of[ranges.first_block]
        known = unit_of_block != MISSING
        if not known.any():
            continue
        units, at = np.unique(unit_of_block[known], return_inverse=True)
        at = at.reshape(-1)
        blocks = np.bincount(at)
        begin, end = np.full(len(units), ranges.duration), np.zeros(len(units), np.int64)
        np.minimum.at(begin, at, ranges.block_begin[known])
        np.maximum.at(end, at, ranges.block_end[known])
        done = np.bincount(at, np.add.reduceat(work, ranges.first_block)[known])
        aligned = ranges.is_aligned
        idle = float((ranges.duration - end).mean() / max(ranges.duration, 1))
        found.append(UnitSpread(
            level, len(units), int(blocks.min()), int(blocks.max()), int(np.ptp(begin)) if aligned else None,
            int(np.ptp(end)) if aligned else None, idle if aligned else None,
            float(done.max() / done.mean()) if done.any() else None, int(units[end.argmax()]) if aligned else None,
        ))  # fmt: skip
    return found
