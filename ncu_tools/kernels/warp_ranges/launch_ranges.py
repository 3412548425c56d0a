"""The ranges of one launch as a tree per warp: parents, exclusive times, and the roles of warps.

A range that crosses another one instead of nesting in it, such as one that begins in one iteration and ends in the
next, is taken as asynchronous: its time is reported, but it is no part of its warp's life.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_parsers.warp_ranges.warp_trace import MISSING, Clock, Codes, Integers, TracedLaunch, WarpTrace

from ncu_tools.kernels.warp_ranges.range_kinds import NAMED, RangeKind, kind_of_range

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.float64]
NO_PARENT = -1
CHEAPEST = 64
"""Most time of a wait that is already released: testing a completed mbarrier costs a few tens of ns."""
NO_ROLES: Mapping[int, str] = {}
_ROLE = re.compile(r"([\d+\-\s]+)=\s*(.+)")


@dataclass(frozen=True)
class LaunchRanges:
    """Ranges sorted by lane and start, the longer one first; a lane is a warp, sorted by block and warp.

    Times count from `origin`, the begin of the first warp: ns since 1970, as run-iket writes them, are not exact as
    doubles. `parent` is the row of the innermost enclosing range, `own` the time without inner ranges; an asynchronous
    range has no parent and no own time. `begin` and `end` of a lane are the warp's life with `has_lives`, else its
    first and last record. `role` is the index of each lane's role. Blocks without a range are left out.
    """

    launch: TracedLaunch
    number: int
    origin: int
    clock: Clock
    is_aligned: bool
    lane_word: str
    block: Integers
    warp: Integers
    sm: Integers
    tpc: Integers
    gpc: Integers
    begin: Integers
    end: Integers
    has_lives: bool
    role: Codes
    roles: tuple[str, ...]
    names: tuple[str, ...]
    kinds: tuple[RangeKind, ...]
    lane: Codes
    name: Codes
    start: Integers
    stop: Integers
    parent: Integers
    own: Integers
    is_async: Mask
    markers: int
    crossing: tuple[str, ...]
    blocks_left_out: int

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def kind(self) -> Codes:
        """The kind of each range, as its index in `RangeKind`."""
        order = list(RangeKind)
        return np.array([order.index(one) for one in self.kinds], np.int32)[self.name]

    @cached_property
    def length(self) -> Integers:
        """The time that each range took."""
        return self.stop - self.start

    @cached_property
    def is_leaf(self) -> Mask:
        """Mask of the ranges that contain no other range."""
        found = np.ones(len(self), np.bool_)
        found[self.parent[self.parent >= 0]] = False
        return found

    @cached_property
    def waits(self) -> Mask:
        """Mask of the ranges in which a warp waits: waits and barriers, not asynchronous, that contain no range."""
        order = list(RangeKind)
        waiting = np.isin(self.kind, [order.index(one) for one in RangeKind if one.is_waiting])
        return waiting & self.is_leaf & ~self.is_async

    @cached_property
    def least_wait(self) -> int:
        """The time of a wait that is already released: the shortest wait of the launch, at most `CHEAPEST`."""
        return min(int(self.length[self.waits].min(initial=CHEAPEST)), CHEAPEST)

    @cached_property
    def containers(self) -> frozenset[int]:
        """The names whose ranges spend most of their time in inner ranges, so that they are no work of their own."""
        inner = np.bincount(self.name, self.own, len(self.names))
        whole = np.bincount(self.name, np.where(self.is_async, 0, self.length), len(self.names))
        return frozenset(np.flatnonzero((whole > 0) & (inner < 0.5 * whole)).tolist())

    @cached_property
    def first_block(self) -> Integers:
        """The first lane of each block."""
        return np.flatnonzero(np.diff(self.block, prepend=-1))

    @cached_property
    def block_row(self) -> Integers:
        """The index of each lane's block among the blocks of the trace."""
        return np.cumsum(np.diff(self.block, prepend=-1) != 0) - 1

    @cached_property
    def block_begin(self) -> Integers:
        """When the first warp of each block begins."""
        return np.minimum.reduceat(self.begin, self.first_block)

    @cached_property
    def block_end(self) -> Integers:
        """When the last warp of each block ends."""
        return np.maximum.reduceat(self.end, self.first_block)

    @cached_property
    def block_sm(self) -> Integers:
        """The SM of each block; `MISSING` where the trace does not say."""
        return self.sm[self.first_block]

    @property
    def duration(self) -> int:
        """The time from the begin of the first warp to the end of the last."""
        return int(self.end.max())

    @property
    def blocks_of_launch(self) -> int:
        """The number of blocks of the grid; if the trace lacks the grid, the blocks with ranges."""
        return max(prod(self.launch.grid), len(self.first_block)) if self.launch.grid else len(self.first_block)

    @property
    def is_sample(self) -> bool:
        """True if most blocks of the grid have no ranges, so that nothing is known of all starts and ends."""
        return 2 * len(self.first_block) < self.blocks_of_launch

    @cached_property
    def step(self) -> int:
        """The granularity of the clock: the greatest common divisor of its times, at most 64."""
        some = np.concatenate([self.start[:4096], self.stop[:4096]])
        found = int(np.gcd.reduce(some - some.min())) if len(some) else 1
        return min(max(found, 1), 64)


def launches_in(trace: WarpTrace) -> list[tuple[int, int]]:
    """The number and the time of each launch with warps, in order."""
    begin, end = _lives(trace)
    known = begin != MISSING
    found = []
    for number in np.unique(trace.warps.launch[known]).tolist():
        mine = known & (trace.warps.launch == number)
        found.append((number, int(end[mine].max() - begin[mine].min())))
    return found


def chosen_launch(trace: WarpTrace, launch: int | None, pattern: re.Pattern[str] | None) -> int:
    """The launch with this number, else the one of median time of the kernel with the most time.

    Raises `NcuBenchError` if no launch with ranges has this number or matches the pattern.
    """
    found = [(number, time) for number, time in launches_in(trace)
             if pattern is None or pattern.search(trace.launches[number].kernel)]  # fmt: skip
    if launch is not None:
        found = [one for one in found if one[0] == launch]
    if not found:
        there = ", ".join(f"{number} ({trace.launches[number].kernel})" for number, _ in launches_in(trace)[:5])
        raise NcuBenchError("No such launch has ranges in this trace.", f"There are: {there or 'none'}.")
    totals: dict[str, int] = {}
    for number, time in found:
        totals[trace.launches[number].kernel] = totals.get(trace.launches[number].kernel, 0) + time
    kernel = max(totals, key=totals.__getitem__)
    mine = sorted((time, number) for number, time in found if trace.launches[number].kernel == kernel)
    return mine[(len(mine) - 1) // 2][1]


def launch_ranges(
    trace: WarpTrace, number: int, roles: Mapping[int, str] = NO_ROLES, kinds: Mapping[str, RangeKind] = NAMED
) -> LaunchRanges:
    """The ranges of one launch; `roles` maps numbers of warps to roles, `kinds` names of ranges to kinds."""
    warps = trace.warps
    rows = np.flatnonzero(warps.launch == number)
    begin, end = _lives(trace)
    alive = rows[begin[rows] != MISSING]
    rows = _of_recorded_blocks(trace, alive)
    rows = rows[np.lexsort((warps.warp[rows], warps.block[rows]))]
    lane_of = np.full(len(warps), -1, np.int32)
    lane_of[rows] = np.arange(len(rows), dtype=np.int32)
    lane = lane_of[trace.ranges.warp]
    timed = (lane >= 0) & (trace.ranges.end != MISSING)
    lane, name = lane[timed], trace.ranges.name[timed]
    origin = int(begin[rows].min(initial=np.iinfo(np.int64).max))
    start, stop = trace.ranges.start[timed] - origin, trace.ranges.end[timed] - origin
    order = np.lexsort((-stop, start, lane))
    lane, name, start, stop = lane[order], name[order], start[order], stop[order]
    parent, own, is_async, crossing = _nested(lane, name, start, stop, len(trace.names))
    role, named = _roles(trace, rows, lane, name, own, roles)
    return LaunchRanges(
        trace.launches[number], number, origin, trace.clock, trace.is_aligned, trace.lane,
        warps.block[rows], warps.warp[rows], warps.sm[rows], warps.tpc[rows], warps.gpc[rows],
        begin[rows] - origin, end[rows] - origin,
        bool((warps.start[rows] != MISSING).all()), role, named, tuple(trace.names),
        tuple(kind_of_range(one, kinds) for one in trace.names), lane, name, start, stop, parent, own, is_async,
        int(np.count_nonzero((lane_of[trace.ranges.warp] >= 0) & (trace.ranges.end == MISSING))),
        tuple(trace.names[one] for one in crossing),
        len(np.unique(warps.block[alive])) - len(np.unique(warps.block[rows])),
    )  # fmt: skip


def _of_recorded_blocks(trace: WarpTrace, rows: Integers) -> Integers:
    """The warps of blocks that recorded ranges, since kernels may record in some blocks only; all warps if none did."""
    has_range = np.zeros(len(trace.warps), np.bool_)
    has_range[trace.ranges.warp[trace.ranges.end != MISSING]] = True
    block = trace.warps.block[rows]
    kept = np.isin(block, block[has_range[rows]])
    return rows[kept] if kept.any() else rows


def _lives(trace: WarpTrace) -> tuple[Integers, Integers]:
    """Begin and end of each warp, from its life and all its records; begin is `MISSING` for a warp without either."""
    warps, ranges = trace.warps, trace.ranges
    never = np.iinfo(np.int64).max
    begin = np.where(warps.start == MISSING, never, warps.start)
    end = np.where(warps.end == MISSING, -never, warps.end)
    np.minimum.at(begin, ranges.warp, ranges.start)
    np.maximum.at(end, ranges.warp, np.where(ranges.end == MISSING, ranges.start, ranges.end))
    return np.where(begin == never, MISSING, begin), end


# ---------------------------------------------------------------------------------------------------------- nesting


def _nested(
    lane: Codes, name: Codes, start: Integers, stop: Integers, names: int
) -> tuple[Integers, Integers, Mask, list[int]]:
    """The parent and own time of each range, the mask of asynchronous ranges, and the names that cross others.

    Of two names that cross, the one whose ranges cross more often is asynchronous; repeated until none crosses.
    """
    is_async = np.zeros(len(start), np.bool_)
    crossing: list[int] = []
    while True:
        rows = np.flatnonzero(~is_async & (stop > start))  # a range of no length contains nothing
        parent, crosses, crossed = _parents(lane[rows], start[rows], stop[rows])
        if not len(crosses):
            break
        votes = np.bincount(name[rows[np.concatenate([crosses, crossed])]], minlength=names)
        share = votes / np.maximum(np.bincount(name[rows], minlength=names), 1)
        worst = int(share.argmax())
        if share[worst] < 0.01:  # damage: only these ranges are asynchronous, not all of their name
            is_async[rows[crosses]] = True
            continue
        crossing.append(worst)
        is_async |= name == worst
    whole = np.full(len(start), NO_PARENT)
    whole[rows] = np.where(parent >= 0, rows[parent], NO_PARENT)
    length = stop - start
    own = np.where(is_async, 0, length)
    inner = whole >= 0
    own -= np.bincount(whole[inner], length[inner], len(start)).astype(np.int64)
    return whole, own, is_async, crossing


def _parents(lane: Codes, start: Integers, stop: Integers) -> tuple[Integers, Integers, Integers]:
    """The innermost enclosing range of each range, the ranges that outlast it, and the enclosing range of these.

    A range's depth is the number of earlier ranges that have not ended when it starts.
    """
    rows = np.arange(len(start))
    if not len(rows):
        return rows, rows, rows
    span = int(stop.max()) + 1
    lane = lane.astype(np.int64)
    ends = lane * span + stop
    ends.sort()
    depth = rows - np.searchsorted(ends, lane * span + start, side="right")
    parent = np.full(len(rows), NO_PARENT)
    above = rows[depth == 0]
    for level in range(1, int(depth.max()) + 1):
        mine = rows[depth == level]
        parent[mine] = above[np.searchsorted(above, mine) - 1]
        above = mine
    inner = rows[parent >= 0]
    around = parent[inner]
    wrong = (stop[inner] > stop[around]) | (lane[inner] != lane[around])
    begun = wrong & (start[inner] < stop[around]) & (lane[inner] == lane[around])
    wrong = begun if begun.any() else wrong  # after a crossing, enclosing ranges of later ones are wrong
    return parent, inner[wrong], around[wrong]


# ------------------------------------------------------------------------------------------------------------ roles


def _roles(
    trace: WarpTrace, rows: Integers, lane: Codes, name: Codes, own: Integers, given: Mapping[int, str]
) -> tuple[Codes, tuple[str, ...]]:
    """The role of each lane: as given, else as the trace names it, else one per set of range names that a warp uses."""
    warp = trace.warps.warp[rows]
    numbers, at = np.unique(warp, return_inverse=True)
    at = at.reshape(-1)
    pairs = np.unique(at[lane].astype(np.int64) * len(trace.names) + name)
    time = np.bincount(at[lane].astype(np.int64) * len(trace.names) + name, own,
                       len(numbers) * len(trace.names)).reshape(len(numbers), -1)  # fmt: skip
    used = [frozenset[int]()] * len(numbers)
    for one in range(len(numbers)):
        low, high = np.searchsorted(pairs, [one * len(trace.names), (one + 1) * len(trace.names)])
        used[one] = frozenset((pairs[low:high] - one * len(trace.names)).tolist())
    told = trace.warps.role[rows]
    title: dict[object, str] = {}
    taken: dict[str, object] = {}
    role_of: list[str] = []
    for one, number in enumerate(numbers.tolist()):
        own_role = told[np.flatnonzero(at == one)[0]]
        if number in given:
            role_of.append(given[number])
        elif own_role >= 0:
            role_of.append(trace.roles[own_role])
        else:
            if used[one] not in title:
                wanted = _title(trace, used[one], time[one])
                if wanted in taken:
                    wanted = f"{wanted} ({trace.lane} {number})"
                taken[wanted] = used[one]
                title[used[one]] = wanted
            role_of.append(title[used[one]])
    named = tuple(dict.fromkeys(role_of))
    return np.array([named.index(one) for one in role_of], np.int32)[at], named


def _title(trace: WarpTrace, used: frozenset[int], time: Numbers) -> str:
    """The title of a role: the first word of most of its names by time, else its longest range; or "no range"."""
    if not used:
        return "no range"
    words: dict[str, float] = {}
    for one in used:
        first = re.match(r"[A-Za-z0-9]+(?=[^A-Za-z0-9])", trace.names[one])
        if first is not None and len(first[0]) > 1:
            words[first[0]] = words.get(first[0], 0.0) + time[one]
    total = sum(time[one] for one in used)
    if words and max(words.values()) > 0.5 * total:
        return max(words, key=words.__getitem__)
    worked = [one for one in used if not kind_of_range(trace.names[one]).is_waiting] or list(used)
    return trace.names[max(worked, key=lambda one: (time[one], -one))]


def roles_in(text: str) -> dict[int, str]:
    """Parse the value of --roles, such as "0-3=softmax,12+14=mma". Raises `WrongUsage` if it has another form."""
    found: dict[int, str] = {}
    for part in filter(str.strip, text.split(",")):
        match = _ROLE.fullmatch(part.strip())
        spans = [] if match is None else [one.strip().split("-") for one in match[1].split("+")]
        if match is None or not all(
            1 <= len(one) <= 2 and all(end.strip().isdecimal() for end in one) for one in spans
        ):
            raise WrongUsage(
                f'--roles "{part.strip()}" is no role.', "A role is numbers of warps, =, and a name.",
                "Write it as in: --roles 0-3=softmax,12+14=mma",
            )  # fmt: skip
        for one in spans:
            for number in range(int(one[0]), min(int(one[-1]), int(one[0]) + 4095) + 1):
                found[number] = match[2].strip()
    return found
