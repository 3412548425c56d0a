"""The waits of a launch as a graph that is replayed with other times: what a block would take if a range were shorter.

A node is the end of a wait. Between two nodes a warp takes its recorded time, less what a what-if removes. A wait ends
when it has taken its least time, and its release has ended and the lag has passed. The lag is the recorded one if the
wait took time, so that a replay without changes reproduces the recorded times. A wait with an unknown release takes its
recorded time; for the lower bound of a saving, it does not end before its recorded end.

All nodes whose predecessors are known are replayed at once, over all blocks (`_levels`). The predecessors of a node are
the node before it on its warp and the last node before each of its releases. The rows of a replay are what-ifs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from ncu_parsers.warp_ranges.warp_trace import Integers

from ncu_tools.kernels.warp_ranges.launch_ranges import LaunchRanges, Mask, Numbers
from ncu_tools.kernels.warp_ranges.releases import Instances, Order, Release, has_waited, release_number

NO_NODE = -1
MOST_NODES = 400_000
"""Most waits in a graph; of a larger launch some blocks are replayed, which stand for the others."""


@dataclass(frozen=True)
class ShorterRanges:
    """A what-if: ranges with these names take `factor` of their own time; waits, of their waiting time."""

    names: frozenset[int]
    factor: float


@dataclass(frozen=True)
class WaitGraph:
    """Nodes sorted by lane and time; `edge_*` are releases: the node that each ends, its lane, time and lag.

    `row` is the range of each node. `release` is the index of the rule for its release, -1 without one. `is_free` marks
    nodes that need no release any more, as with a deeper pipeline. `blocks` are the rows of the replayed blocks, in
    order.
    """

    ranges: LaunchRanges
    blocks: Integers
    row: Integers
    release: Integers
    is_free: Mask
    edge_node: Integers
    edge_lane: Integers
    edge_time: Integers
    edge_lag: Numbers

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def lane(self) -> Integers:
        """The lane of each node."""
        return self.ranges.lane[self.row].astype(np.int64)

    @cached_property
    def begin(self) -> Integers:
        """When each wait began."""
        return self.ranges.start[self.row]

    @cached_property
    def end(self) -> Integers:
        """When each wait ended."""
        return self.ranges.stop[self.row]

    @cached_property
    def before(self) -> Integers:
        """The previous node on the lane of each node; `NO_NODE` for the first."""
        same = np.diff(self.lane, prepend=-1) == 0
        return np.where(same, np.arange(len(self)) - 1, NO_NODE)

    @cached_property
    def least(self) -> Integers:
        """The least time of each wait: what it took if it did not wait, else the shortest wait of the launch."""
        took = self.end - self.begin
        return np.where(has_waited(self.ranges, took), self.ranges.least_wait, took)

    @cached_property
    def edge_source(self) -> Integers:
        """The last node on a release's lane at or before the release; `NO_NODE` if there is none."""
        return self.last_node(self.edge_lane, self.edge_time)

    def last_node(self, lane: Integers, time: Integers) -> Integers:
        """The last node on each lane at or before a time; `NO_NODE` if there is none."""
        span, keys = self._keys
        at = np.searchsorted(keys, lane * span + time, side="right") - 1
        return np.where((at >= 0) & (self.lane[np.maximum(at, 0)] == lane), at, NO_NODE) if len(self) else at

    @cached_property
    def _keys(self) -> tuple[int, Integers]:
        """A span larger than the launch's duration, and lane x span + time of each node, in ascending order."""
        span = self.ranges.duration + self.ranges.step + 2
        return span, self.lane * span + self.end

    @cached_property
    def levels(self) -> tuple[list[Integers], Mask]:
        """Nodes in the order of a replay, and the mask of edges used: those in a cycle are left out."""
        return _levels(self)

    @property
    def explained(self) -> Mask:
        """Mask of the nodes with a known release."""
        found = np.zeros(len(self), np.bool_)
        found[self.edge_node[self.levels[1]]] = True
        return found

    @property
    def has_waits(self) -> bool:
        """False if no range is a wait though blocks have several warps, which must then wait in other ranges."""
        return len(self) > 0 or len(self.ranges.block) == len(self.ranges.first_block)

    @property
    def explained_share(self) -> float:
        """The share of waiting time (beyond the least) whose release is known; 1 if nothing waits."""
        if not self.has_waits:
            return 0.0
        took = (self.end - self.begin - self.least).astype(np.float64)
        return float(took[self.explained].sum() / took.sum()) if took.sum() > 0 else 1.0


def wait_graph(
    ranges: LaunchRanges, instances: Instances, releases: Sequence[Release],
    depths: Mapping[int, int] | None = None, most: int = MOST_NODES,
) -> WaitGraph:  # fmt: skip
    """The graph of a launch, or of as many of its blocks, spread evenly, as have at most `most` waits.

    `depths` replaces the depth of some releases, by their indices: the what-if of a deeper pipeline.
    """
    waiting = ranges.waits
    block_of = ranges.block_row[ranges.lane]
    blocks = np.arange(len(ranges.first_block))
    per_block = np.bincount(block_of[waiting], minlength=len(blocks))
    if per_block.sum() > most:
        keep = max(int(len(blocks) * most / per_block.sum()), 1)
        blocks = np.unique(np.linspace(0, len(blocks) - 1, keep).astype(np.int64))
        chosen = np.zeros(len(per_block), np.bool_)
        chosen[blocks] = True
        waiting &= chosen[block_of]
    row = np.flatnonzero(waiting)
    row = row[np.lexsort((ranges.stop[row], ranges.lane[row]))]
    release = np.full(len(row), -1)
    node_of = np.full(len(ranges), NO_NODE)
    node_of[row] = np.arange(len(row))
    is_free = np.zeros(len(row), np.bool_)
    edges = []
    for number, one in enumerate(releases):
        deeper = replace(one, depth=(depths or {}).get(number, one.depth))
        nodes, lanes, times, lags = _edges(ranges, instances, deeper, row, node_of, is_changed=deeper != one)
        release[nodes] = number
        if deeper != one:
            mine = (ranges.name[row] == one.wait) & (ranges.role[ranges.lane[row]] == one.role)
            is_free |= mine & ~np.isin(np.arange(len(row)), nodes)
        edges.append((nodes, lanes, times, lags))
    parts = [np.concatenate(one) for one in zip(*edges, strict=True)] if edges else [np.zeros(0, np.int64)] * 4
    return WaitGraph(ranges, blocks, row, release, is_free, *parts)


def _edges(
    ranges: LaunchRanges, instances: Instances, one: Release, row: Integers, node_of: Integers, *, is_changed: bool
) -> tuple[Integers, Integers, Integers, Numbers]:
    """The edges of one rule's waits: node, lane, time and lag of each release.

    The lag is the recorded one if the wait took time, else at most the median, so that a wait can begin to take time in
    a what-if. If the rule's depth is changed, every lag is the median.
    """
    mine = row[(ranges.name[row] == one.wait) & (ranges.role[ranges.lane[row]] == one.role)]
    if one.order is Order.LAST_BEFORE:
        node, lane, time = _last_ends(ranges, one, mine, node_of)
    else:
        node, lane, time = _ordered_ends(ranges, instances, one, mine, node_of)
    if is_changed:
        return node, lane, time, np.full(len(node), one.lag)
    begin, end = ranges.start[row[node]], ranges.stop[row[node]]
    last = np.full(len(row), np.iinfo(np.int64).min)  # of several releasing warps, the last one counts
    np.maximum.at(last, node, np.maximum(time, begin) if one.order is Order.ARRIVAL else time)
    own = end - last[node]
    lag = np.where(has_waited(ranges, end - begin), own, np.minimum(own, one.lag)).astype(np.float64)
    return node, lane, time, lag


def _ordered_ends(
    ranges: LaunchRanges, instances: Instances, one: Release, mine: Integers, node_of: Integers
) -> tuple[Integers, Integers, Integers]:
    """The ends of the ranges that release waits in order, on every warp that has them; the begins at a barrier."""
    is_barrier = one.order is Order.ARRIVAL
    name = one.wait if is_barrier else one.by
    position = np.empty(len(instances.row), np.int64)
    group = np.repeat(np.arange(len(instances.keys)), instances.counts)
    position[instances.row] = np.arange(len(instances.row)) - instances.firsts[group]
    number = position[mine] if is_barrier else release_number(position[mine], one.depth, one.per_wait, one.shared)
    block = ranges.block_row[ranges.lane[mine]]
    lanes = np.flatnonzero(np.isin(np.arange(len(ranges.block)), ranges.lane[ranges.name == name]))
    lanes = lanes if is_barrier else lanes[ranges.role[lanes] == one.by_role]
    firsts = np.searchsorted(ranges.block_row[lanes], block)
    behind = np.searchsorted(ranges.block_row[lanes], block, side="right")
    each = np.repeat(np.arange(len(mine)), behind - firsts)
    offset = np.arange(len(each)) - np.repeat(np.cumsum(behind - firsts) - (behind - firsts), behind - firsts)
    lane = lanes[np.repeat(firsts, behind - firsts) + offset] if len(each) else each
    key = np.searchsorted(instances.keys, lane * instances.names + name)
    key = np.minimum(key, len(instances.keys) - 1)
    wanted = number[each]
    known = (wanted >= 0) & (wanted < instances.counts[key]) & (lane != ranges.lane[mine[each]])
    rows = instances.row[(instances.firsts[key] + wanted)[known]]
    node = node_of[mine[each[known]]]
    time = ranges.start[rows] if is_barrier else ranges.stop[rows]
    early = time <= ranges.stop[mine[each[known]]] + ranges.step
    return node[early], lane[known][early], time[early]


def _last_ends(
    ranges: LaunchRanges, one: Release, mine: Integers, node_of: Integers
) -> tuple[Integers, Integers, Integers]:
    """For each wait, the last end of a releasing range on another warp of the block before the wait's end."""
    rows = np.flatnonzero((ranges.name == one.by) & (ranges.role[ranges.lane] == one.by_role))
    block = ranges.block_row[ranges.lane[rows]]
    rows = rows[np.lexsort((ranges.stop[rows], block))]
    block = ranges.block_row[ranges.lane[rows]]
    span = ranges.duration + ranges.step + 1
    keys = block * span + ranges.stop[rows]
    own = ranges.block_row[ranges.lane[mine]]
    at = np.searchsorted(keys, own * span + ranges.stop[mine] + ranges.step, side="right") - 1
    for _ in range(8):  # skip ends on the waiting warp itself
        same = (at >= 0) & (ranges.lane[rows[np.maximum(at, 0)]] == ranges.lane[mine])
        if not same.any():
            break
        at = at - same
    known = (at >= 0) & (block[np.maximum(at, 0)] == own)
    known &= ranges.lane[rows[np.maximum(at, 0)]] != ranges.lane[mine]
    found = rows[at[known]]
    return node_of[mine[known]], ranges.lane[found].astype(np.int64), ranges.stop[found]


def _levels(graph: WaitGraph) -> tuple[list[Integers], Mask]:
    """Topological order by Kahn's algorithm, one level at a time. Cycles, as equal times can form, lose their edges."""
    edges = np.ones(len(graph.edge_node), np.bool_)
    edges &= graph.edge_source != graph.edge_node
    while True:
        levels = _in_order(graph, edges)
        left = np.ones(len(graph), np.bool_)
        for one in levels:
            left[one] = False
        circle = edges & left[graph.edge_node]
        circle &= np.where(graph.edge_source >= 0, left[np.maximum(graph.edge_source, 0)], False)
        if not circle.any():
            return levels, edges
        edges &= ~circle


def _in_order(graph: WaitGraph, edges: Mask) -> list[Integers]:
    from_node = np.concatenate([graph.before, np.where(edges, graph.edge_source, NO_NODE)])
    to_node = np.concatenate([np.arange(len(graph)), graph.edge_node])
    real = from_node >= 0
    from_node, to_node = from_node[real], to_node[real]
    missing = np.bincount(to_node, minlength=len(graph))
    order = np.argsort(from_node, kind="stable")
    behind = to_node[order]
    first = np.searchsorted(from_node[order], np.arange(len(graph) + 1))
    level = np.flatnonzero(missing == 0)
    levels = []
    while len(level):
        levels.append(level)
        counts = first[level + 1] - first[level]
        if not counts.sum():
            break
        at = np.repeat(first[level] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        reached, times = np.unique(behind[at], return_counts=True)
        missing[reached] -= times
        level = reached[missing[reached] == 0]
    return levels


# ----------------------------------------------------------------------------------------------------------- replayed


@dataclass(frozen=True)
class ReplayedWaits:
    """When each node is reached, and when each lane ends, per what-if (rows), in time since the launch began."""

    reached: Numbers
    lane_end: Numbers


def replay(graph: WaitGraph, changes: Sequence[ShorterRanges], *, holds: bool = False) -> ReplayedWaits:
    """Replay what-ifs; with `holds`, a wait with an unknown release does not end before its recorded end.

    A wait that a what-if shortens no longer depends on its release.
    """
    ranges, rows = graph.ranges, len(changes)
    levels, edges = graph.levels
    least = np.repeat(graph.least[None, :].astype(np.float64), rows, 0)
    took = (graph.end - graph.begin).astype(np.float64)
    least[:, graph.is_free] = np.minimum(took, ranges.least_wait)[graph.is_free]
    unknown = ~graph.explained & ~graph.is_free
    least[:, unknown] = took[unknown]
    hold = np.full((rows, len(graph)), -np.inf)
    if holds:
        held = unknown & has_waited(ranges, graph.end - graph.begin)
        least[:, held] = graph.least[held]
        hold[:, held] = graph.end[held]
    asked = np.zeros((rows, len(graph)), np.bool_)
    for at, one in enumerate(changes):
        asked[at] = np.isin(ranges.name[graph.row], list(one.names))
        least[at, asked[at]] = one.factor * took[asked[at]]
        hold[at, asked[at]] = -np.inf
    removed = _Removed(graph, changes)
    work = _work(graph, removed, graph.before, graph.lane, graph.begin)
    edge = _work(graph, removed, graph.edge_source, graph.edge_lane, graph.edge_time) + graph.edge_lag
    edge[:, ~edges] = -np.inf
    edge[asked[:, graph.edge_node]] = -np.inf
    order = np.argsort(graph.edge_node, kind="stable")
    first = np.searchsorted(graph.edge_node[order], np.arange(len(graph) + 1))
    reached = np.zeros((rows, len(graph) + 1))  # the last column is for `NO_NODE`
    for level in levels:
        begin = reached[:, graph.before[level]] + work[:, level]
        end = np.maximum(begin + least[:, level], hold[:, level])
        counts = first[level + 1] - first[level]
        having = np.flatnonzero(counts)
        if len(having):
            some = counts[having]
            starts = np.cumsum(some) - some
            at = order[np.repeat(first[level][having] - starts, some) + np.arange(some.sum())]
            released = reached[:, graph.edge_source[at]] + edge[:, at]
            ends = np.maximum.reduceat(released, starts, axis=1)
            end[:, having] = np.maximum(end[:, having], ends)
        reached[:, level] = end
    lanes = np.arange(len(ranges.block))
    last = graph.last_node(lanes, ranges.end)
    return ReplayedWaits(reached[:, :-1], reached[:, last] + _work(graph, removed, last, lanes, ranges.end))


def _work(graph: WaitGraph, removed: _Removed, node: Integers, lane: Integers, until: Integers) -> Numbers:
    """The time from a node to `until` on its lane, in each what-if; without a node, from the launch's begin."""
    begin = graph.ranges.begin
    since = np.where(node >= 0, graph.end[np.maximum(node, 0)] if len(graph) else 0, begin[lane])
    before = np.where(node >= 0, 0, begin[lane])
    kept = (until - since + before).astype(np.float64)
    found: Numbers = kept - (removed.until(lane, until) - removed.until(lane, since))
    return found


class _Removed:
    """The own time that each what-if removes from ranges of the replayed blocks, up to a time on a lane."""

    def __init__(self, graph: WaitGraph, changes: Sequence[ShorterRanges]) -> None:
        ranges = graph.ranges
        self._replayed = np.isin(ranges.block_row, graph.blocks)
        self._span = ranges.duration + 2
        self._steps = [self._of(ranges, one) for one in changes]

    def _of(self, ranges: LaunchRanges, change: ShorterRanges) -> tuple[Integers, Numbers, Numbers]:
        """Keys (lane and time) at which the rate of removal changes, the time removed until then, and the new rate."""
        mine = np.isin(ranges.name, list(change.names)) & self._replayed[ranges.lane]
        mine &= ~ranges.is_async & ~ranges.waits & (ranges.stop > ranges.start)
        inner = np.flatnonzero((ranges.parent >= 0) & (ranges.stop > ranges.start))
        inner = inner[mine[ranges.parent[inner]]]
        own = np.flatnonzero(mine)
        rows = np.concatenate([own, own, inner, inner])
        times = np.concatenate([ranges.start[own], ranges.stop[own], ranges.start[inner], ranges.stop[inner]])
        signs = np.repeat([1.0, -1.0, -1.0, 1.0], [len(own), len(own), len(inner), len(inner)])
        keys = ranges.lane[rows].astype(np.int64) * self._span + times
        order = np.argsort(keys, kind="stable")
        keys, rate = keys[order], np.cumsum(signs[order]) * (1 - change.factor)
        since = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(keys))]) if len(keys) else np.zeros(0)
        return keys, since, rate

    def until(self, lane: Integers, time: Integers) -> Numbers:
        """The time removed until `time` on each lane: a row per what-if."""
        key = lane * self._span + time
        found = np.zeros((len(self._steps), len(key)))
        for row, (keys, since, rate) in enumerate(self._steps):
            at = np.searchsorted(keys, key, side="right") - 1
            known = at >= 0
            at = np.maximum(at, 0)
            if len(keys):
                found[row] = np.where(known, since[at] + rate[at] * (key - keys[at]), 0.0)
        return found
