"""Infer what ends a wait: which range on warps of which role releases it, and how many rounds before.

Traces say when a wait ends, not why. A pipeline releases in order: the k-th wait of a warp ends when the (k - d)-th
range of some other role has ended, plus a time that hardly varies, such as that of a copy. So for each candidate range
and each distance d, the lag is the time from the candidate's end to the wait's end. No lag may be negative, and the
releasing range is the candidate with the smallest 90th percentile of lags, over waits that took time. For the wait for
a free stage, d is the depth of the pipeline. If counts fit no such order, the last candidate that ended before the
wait's end releases it. At a barrier all wait for the last warp that arrives. Only `BLOCKS` blocks are examined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from ncu_parsers.warp_ranges.warp_trace import Integers

from ncu_tools.kernels.warp_ranges.launch_ranges import LaunchRanges, Mask
from ncu_tools.kernels.warp_ranges.range_kinds import RangeKind

BLOCKS = 24
"""Number of blocks, spread evenly, that are examined to find what releases a wait."""
DEEPEST = 16
"""Most rounds between a release and the wait that it ends."""
IN_ORDER = 0.98
"""Smallest share of waits that end after their release, for a candidate in order."""
NEAR, NEAR_STEPS = 0.1, 3
"""Without an order, the lag must be at most this share of the median wait, or this many steps of the clock."""
LEAST_WAITS = 4
"""Fewest waits that took time, for their release to be inferred."""
NEAR_WAITS = 0.9
"""Without an order, the smallest share of waits that must be released while they wait."""


class Order(Enum):
    """How waits are paired with releases: in turn, `depth` rounds apart; the last before; or the last at a barrier."""

    IN_TURN = "in turn"
    LAST_BEFORE = "last before"
    ARRIVAL = "arrival"


@dataclass(frozen=True)
class Release:
    """What ends the waits named `wait` of a role: ranges `by` (-1 at a barrier) of `by_role` (-1 for any); as indices.

    The k-th wait is ended by the range with index ((k - depth)

    shared * per_wait + per_wait - 1) on each of its warps. `lag` is the median time from there to the end of the wait.
    """

    role: int
    wait: int
    order: Order
    by_role: int
    by: int
    depth: int = 0
    per_wait: int = 1
    shared: int = 1
    lag: float = 0.0


@dataclass(frozen=True)
class Instances:
    """Index of a launch's ranges by lane and name: the n-th range of a name on a lane is in row `row[first + n]`."""

    row: Integers
    keys: Integers
    firsts: Integers
    counts: Integers
    names: int

    def of(self, lane: int, name: int) -> Integers:
        """The rows of a lane's ranges with this name, in order."""
        key = lane * self.names + name
        at = int(np.searchsorted(self.keys, key))
        if at == len(self.keys) or self.keys[at] != key:
            return self.row[:0]
        return self.row[self.firsts[at] : self.firsts[at] + self.counts[at]]


def instances_of(ranges: LaunchRanges) -> Instances:
    """Index the ranges of a launch by lane, name and time."""
    keys = ranges.lane.astype(np.int64) * len(ranges.names) + ranges.name
    row = np.argsort(keys, kind="stable")
    found, firsts, counts = np.unique(keys[row], return_index=True, return_counts=True)
    return Instances(row, found, firsts, counts, len(ranges.names))


def has_waited(ranges: LaunchRanges, took: Integers) -> Mask:
    """Mask of the waits that took longer than one that is already released."""
    found: Mask = took > ranges.least_wait + ranges.step
    return found


def releases_of(ranges: LaunchRanges, instances: Instances) -> list[Release]:
    """What ends the waits of each role and name; waits with an unknown release are absent."""
    blocks = _some_blocks(ranges)
    found: list[Release] = []
    pairs = np.unique(ranges.role[ranges.lane[ranges.waits]].astype(np.int64) * len(ranges.names)
                      + ranges.name[ranges.waits])  # fmt: skip
    for role, wait in (divmod(int(one), len(ranges.names)) for one in pairs.tolist()):
        barrier = ranges.kinds[wait] is RangeKind.BARRIER
        one = _arrival(ranges, instances, blocks, role, wait) if barrier else None
        one = one or _released(ranges, instances, blocks, role, wait)
        found += [one] if one is not None else []
    return found


def _some_blocks(ranges: LaunchRanges) -> list[Integers]:
    """The lanes of some blocks, spread evenly."""
    firsts = ranges.first_block
    chosen = np.unique(np.linspace(0, len(firsts) - 1, BLOCKS).astype(np.int64))
    behind = np.append(firsts[1:], len(ranges.block))
    return [np.arange(firsts[one], behind[one]) for one in chosen.tolist()]


def _arrival(
    ranges: LaunchRanges, instances: Instances, blocks: Sequence[Integers], role: int, wait: int
) -> Release | None:
    """A barrier's release, if its n-th waits of a block end after the last of them began; else None."""
    early = total = 0
    lags = []
    for lanes in blocks:
        rows = [some for lane in lanes.tolist() if len(some := instances.of(lane, wait))]
        if len(rows) < 2 or len({len(some) for some in rows}) > 1:
            continue
        last = np.max([ranges.start[some] for some in rows], axis=0)
        lag = np.array([ranges.stop[some] for some in rows]) - last
        early, total = early + int((lag < -ranges.step).sum()), total + lag.size
        lags.append(lag.ravel())
    if not total or early > (1 - IN_ORDER) * total:
        return None
    return Release(role, wait, Order.ARRIVAL, -1, -1, lag=float(np.median(np.concatenate(lags))))


def _released(
    ranges: LaunchRanges, instances: Instances, blocks: Sequence[Integers], role: int, wait: int
) -> Release | None:
    """The release with the smallest lags: of candidates in order, else of the last ones before; None if none fits."""
    waiting = role, wait
    candidates = [
        (by, [one for lanes in blocks for one in _of_block(ranges, instances, lanes, waiting, by)])
        for by in _candidates(ranges)
    ]  # fmt: skip
    for paired in (_in_turn, _last_before):
        best: tuple[float, int, Release] | None = None
        for by, looked in candidates:
            if paired is _in_turn and by[0] == role:
                continue  # warps of one role act at the same times, whatever releases them
            for far, release in paired(ranges, looked, waiting, by):
                inner = int(by[1] in ranges.containers)  # an inner range is more specific than one around it
                if best is None or (far, inner) < best[:2]:
                    best = far, inner, release
        if best is not None:
            return best[2]
    return None


def _candidates(ranges: LaunchRanges) -> Iterator[tuple[int, int]]:
    """The role and name of every range that is work, not waiting."""
    keys = np.unique(ranges.role[ranges.lane].astype(np.int64) * len(ranges.names) + ranges.name)
    for key in keys.tolist():
        by_role, by = divmod(key, len(ranges.names))
        if not ranges.kinds[by].is_waiting:
            yield by_role, by


@dataclass(frozen=True)
class _Looked:
    """The waits of one warp, and the ends of a candidate range on each of the other warps of the block."""

    begin: Integers
    end: Integers
    ends: list[Integers]

    @property
    def in_turn(self) -> Integers | None:
        """When the n-th candidate range has ended on all of its warps; None if their counts differ."""
        return np.max(self.ends, axis=0) if len({len(one) for one in self.ends}) == 1 else None


def _of_block(
    ranges: LaunchRanges, instances: Instances, lanes: Integers, waiting: tuple[int, int], by: tuple[int, int]
) -> Iterator[_Looked]:
    releasing = [
        (lane, ranges.stop[some]) for lane in lanes[ranges.role[lanes] == by[0]].tolist()
        if len(some := instances.of(lane, by[1]))
    ]  # fmt: skip
    for lane in lanes[ranges.role[lanes] == waiting[0]].tolist():
        rows = instances.of(lane, waiting[1])
        ends = [some for other, some in releasing if other != lane]
        if len(rows) and ends:
            yield _Looked(ranges.start[rows], ranges.stop[rows], ends)


def _in_turn(
    ranges: LaunchRanges, looked: Sequence[_Looked], waiting: tuple[int, int], by: tuple[int, int]
) -> Iterator[tuple[float, Release]]:
    paired = [(one, ends) for one in looked if (ends := one.in_turn) is not None]
    if not paired or len(paired) < len(looked):
        return
    shapes = {_shape(len(one.end), len(ends)) for one, ends in paired}
    if len(shapes) != 1 or (shape := shapes.pop()) is None:
        return
    per_wait, shared = shape
    for depth in range(DEEPEST + 1):
        lags, lasted = [], []
        for one, ends in paired:
            at = release_number(np.arange(len(one.end)), depth, per_wait, shared)
            known = (at >= 0) & (at < len(ends))
            lags.append(one.end[known] - ends[at[known]])
            lasted.append((one.end - one.begin)[known])
        lag, took = np.concatenate(lags), np.concatenate(lasted)
        real = has_waited(ranges, took)
        if real.sum() < LEAST_WAITS or np.mean(lag >= -ranges.step) < IN_ORDER:
            continue
        far = float(np.percentile(lag[real], 90))
        yield far, Release(*waiting, Order.IN_TURN, *by, depth, per_wait, shared, float(np.median(lag[real])))
        return  # a larger depth is farther


def _shape(waits: int, releases: int) -> tuple[int, int] | None:
    """Releases per wait, and waits per release; None if neither count is a multiple of the other."""
    if abs(waits - releases) <= 1:
        return 1, 1
    if releases % waits == 0:
        return releases // waits, 1
    return (1, waits // releases) if waits % releases == 0 else None


def release_number(wait: Integers, depth: int, per_wait: int, shared: int) -> Integers:
    """The index of the range that ends each wait; negative before the first one."""
    return (wait - depth) // shared * per_wait + per_wait - 1


def _last_before(
    ranges: LaunchRanges, looked: Sequence[_Looked], waiting: tuple[int, int], by: tuple[int, int]
) -> Iterator[tuple[float, Release]]:
    lags, lasted = [], []
    for one in looked:
        ends = np.sort(np.concatenate(one.ends))
        at = np.searchsorted(ends, one.end + ranges.step, side="right") - 1
        known = at >= 0
        lags.append(np.where(known, one.end - ends[at], np.iinfo(np.int64).max))
        lasted.append(one.end - one.begin)
    if not lags:
        return
    lag, took = np.concatenate(lags), np.concatenate(lasted)
    real = has_waited(ranges, took)
    if real.sum() < LEAST_WAITS or np.mean(lag[real] <= took[real]) < NEAR_WAITS:
        return
    far = float(np.percentile(lag[real], 90))
    if far <= max(NEAR_STEPS * ranges.step, NEAR * float(np.median(took[real]))):
        yield far, Release(*waiting, Order.LAST_BEFORE, *by, lag=float(np.median(lag[real])))
