"""What a kernel saves if ranges were shorter: blocks are replayed, and placed one after another on their SMs again.

A saving is an interval. For its lower bound, waits with an unknown release end no earlier than recorded; for its upper
bound, every moment in which a block was in the range becomes shorter. If every wait is explained, both equal the
replay's result; if no range is a wait, the lower bound is 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from ncu_launch.errors import WrongUsage, near_names
from ncu_parsers.warp_ranges.warp_trace import MISSING, Integers

from ncu_tools.kernels.warp_ranges.launch_ranges import LaunchRanges, Numbers
from ncu_tools.kernels.warp_ranges.wait_graph import ReplayedWaits, ShorterRanges, WaitGraph, replay

EXPLAINED = 0.99
"""From this share of explained waiting on, the replay itself is the upper bound of a saving."""
_FACTOR = re.compile(r"(.+)=(?:(\d+(?:\.\d+)?)x?|0)")


@dataclass(frozen=True)
class LaunchSaving:
    """The share of the launch's time that a change saves: likely, lower and upper bound."""

    likely: float
    low: float
    high: float


@dataclass(frozen=True)
class AskedShorter:
    """A what-if as the user typed it, and its saving."""

    text: str
    saving: LaunchSaving


def shorter_in(text: str, ranges: LaunchRanges) -> ShorterRanges:
    """Parse a what-if such as "mma_issue=0.5x" or "wait*=0". Raises `WrongUsage` for an unknown range or other form."""
    match = _FACTOR.fullmatch(text.strip())
    if match is None:
        raise WrongUsage(
            f'--what-if "{text}" cannot be read.', "A what-if is the name of a range, =, and a factor.",
            'Write it as in: --what-if "mma_issue=0.5x", or "tma_acquire=0" for none at all',
        )  # fmt: skip
    names = frozenset(at for at, one in enumerate(ranges.names) if fnmatchcase(one, match[1]))
    if not names:
        near = near_names(match[1], ranges.names)
        there = ", ".join(near or ranges.names[:8])
        raise WrongUsage(f"No range is called {match[1]}.", f"There are: {there}.", "A * in it stands for any text.")
    return ShorterRanges(names, min(float(match[2] or 0), 1.0))


def savings(graph: WaitGraph, changes: Sequence[ShorterRanges]) -> list[LaunchSaving]:
    """The saving of each change."""
    ranges = graph.ranges
    likely, least = (replay(graph, [NOTHING, *changes], holds=holds) for holds in (False, True))
    whole = [kernel_times(graph, one) for one in (likely, least)]
    found = []
    for at, change in enumerate(changes, start=1):
        now, low = (1 - times[at] / times[0] for times in whole)
        high = now
        if graph.explained_share < EXPLAINED:
            high = max(now, _bound(ranges, change) / max(ranges.duration, 1))
        low = min(low, now) if graph.has_waits else 0.0
        found.append(LaunchSaving(float(now), float(low), float(high)))
    return found


NOTHING = ShorterRanges(frozenset(), 1.0)
"""The what-if that changes nothing."""


def kernel_times(graph: WaitGraph, replayed: ReplayedWaits) -> Numbers:
    """The time of the launch in each what-if: blocks take their new times, each after the block before it on its SM.

    Blocks that are not in the graph become shorter by the mean ratio of the others.
    """
    ranges = graph.ranges
    old = (ranges.block_end - ranges.block_begin).astype(np.float64)
    ends = np.maximum.reduceat(replayed.lane_end, ranges.first_block, axis=1)
    new = ends - ranges.block_begin
    if len(graph.blocks) < len(old):
        ratio = new[:, graph.blocks].sum(axis=1) / max(old[graph.blocks].sum(), 1)
        others = np.ones(len(old), np.bool_)
        others[graph.blocks] = False
        new[:, others] = old[others] * ratio[:, None]
    begin = np.repeat(ranges.block_begin[None, :].astype(np.float64), len(new), 0)
    before = blocks_before(ranges)
    for one in np.argsort(ranges.block_begin, kind="stable").tolist():
        if before[one] >= 0:
            gap = ranges.block_begin[one] - ranges.block_end[before[one]]
            begin[:, one] = begin[:, before[one]] + new[:, before[one]] + gap
    found: Numbers = (begin + new).max(axis=1)
    return found


def blocks_before(ranges: LaunchRanges) -> Integers:
    """The block whose end freed the place of each block on its SM; -1 for blocks of the first wave.

    If SMs are unknown, all blocks are treated as on one SM, which pairs ends and begins alike.
    """
    sm = np.where(ranges.block_sm == MISSING, -1, ranges.block_sm)
    before = np.full(len(sm), -1)
    begins = np.lexsort((ranges.block_begin, sm))
    ends = np.lexsort((ranges.block_end, sm))
    waiting: list[int] = []
    at = 0
    for one in begins.tolist():
        while at < len(ends) and (sm[ends[at]] < sm[one] or (sm[ends[at]] == sm[one] and
                                  ranges.block_end[ends[at]] <= ranges.block_begin[one])):  # fmt: skip
            waiting.append(int(ends[at]))
            at += 1
        while waiting and sm[waiting[-1]] != sm[one]:
            waiting.pop()
        if waiting:
            before[one] = waiting.pop()
    return before


def _bound(ranges: LaunchRanges, change: ShorterRanges) -> float:
    """The upper bound of a saving: the time in which blocks are in the ranges at all, on the SM with the longest such
    chain."""
    mine = np.flatnonzero(np.isin(ranges.name, list(change.names)) & (ranges.length > 0))
    block = ranges.block_row[ranges.lane[mine]]
    span = ranges.duration + 1
    start, stop = block * span + ranges.start[mine], block * span + ranges.stop[mine]
    order = np.argsort(start, kind="stable")
    reached = np.maximum.accumulate(np.concatenate([[-1], stop[order]]))
    own = np.maximum(stop[order] - np.maximum(start[order], reached[:-1]), 0)
    per_block = np.bincount(block[order], own, len(ranges.first_block))
    before = blocks_before(ranges)
    total = per_block.copy()
    for one in np.argsort(ranges.block_begin, kind="stable").tolist():
        if before[one] >= 0:
            total[one] += total[before[one]]
    return float((1 - change.factor) * total.max(initial=0))
