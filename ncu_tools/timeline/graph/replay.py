"""Replay a graph with changed times: when every node is reached, for several what-ifs at once.

Let x be the time of a node, and D the running sum, over all nodes, of the time from each node to the next. Within a
chain x - D never falls: it is constant where the chain itself decides, and rises to `ready` - D where an edge does,
with `ready` the time at which the edge lets the node go. So x - D is a running maximum, which numpy computes over a
whole segment and for all what-ifs in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ncu_tools.timeline.graph.step_graph import Mask, Numbers, StepGraph

MEMORY = 80_000_000
"""Bytes for the nodes of the what-ifs that are replayed together; larger graphs are replayed in several rounds."""


@dataclass
class ReplayTimes:
    """The times of a replay for each node and edge: initially the graph's own, changed by a what-if.

    `latency_factor` scales the latencies of launches; an `offset` of -inf removes the edge.
    """

    work: Numbers
    call: Numbers
    rest: Numbers
    latency_factor: float
    offset: Numbers


Change = Callable[[ReplayTimes], None]
"""A what-if, as a function that changes the times in place."""


@dataclass(frozen=True)
class Replayed:
    """The end of each what-if in ns since the origin, and with `keep_times` when each node was reached (a row each)."""

    end: Numbers
    reached: Numbers


def unchanged(times: ReplayTimes) -> None:
    """The what-if that changes nothing."""


def replay(graph: StepGraph, changes: Sequence[Change], *, lags: bool, keep_times: bool = False) -> Replayed:
    """Replay every what-if; with `lags`, the unexplained lags of the recording are kept.

    With `keep_times`, the times of all nodes are returned (float64, one row per what-if, one column per node).
    """
    together = max(1, MEMORY // (8 * max(len(graph), 1)))
    ends, reached = [np.zeros(0)], []
    for at in range(0, len(changes), together):
        one = _Rows(graph, changes[at : at + together], lags=lags, keep_times=keep_times)
        one.run()
        ends.append(one.end())
        if one.sums is not None:
            reached.append(one.above + one.sums)
    return Replayed(np.concatenate(ends), np.concatenate(reached) if reached else np.zeros((0, len(graph))))


class _Rows:
    """What-ifs that are replayed together, one row each.

    `above` is x - D of each node; before its replay, what its launch adds to the x - D of the launching call. `edge` is
    the same for other edges. `begin` is -D before the first node of each chain, `last` the end of its last node minus x
    - D.
    """

    def __init__(self, graph: StepGraph, changes: Sequence[Change], *, lags: bool, keep_times: bool) -> None:
        rows, chains = len(changes), len(graph.chains)
        self._graph = graph
        self.above = np.empty((rows, len(graph)))
        self._edge = np.empty((rows, len(graph.edges)))
        self._begin, self._last = np.empty((rows, chains)), np.empty((rows, chains))
        self.sums = np.empty((rows, len(graph))) if keep_times else None
        ahead = np.flatnonzero(graph.rest < 0)  # kernels that overlapped with the one before them
        not_launched = graph.launch < 0
        for row, change in enumerate(changes):
            times = ReplayTimes(graph.work.copy(), graph.call.copy(), graph.rest.copy(), 1.0, graph.edges.offset.copy())
            change(times)
            # such a kernel may start early, but does not end before its predecessor
            times.rest[ahead] = np.maximum(times.rest[ahead], -times.work[ahead])
            self._fill(row, times, not_launched, lags=lags)

    def _fill(self, row: int, times: ReplayTimes, not_launched: Mask, *, lags: bool) -> None:
        graph, edges = self._graph, self._graph.edges
        firsts = np.array([one.first for one in graph.chains], np.int64)
        lasts = np.array([one.behind for one in graph.chains], np.int64) - 1
        sums = times.call
        sums += times.rest
        sums[1:] += times.work[:-1]
        later = firsts[firsts > 0]
        sums[later] -= times.work[later - 1]
        if lags:
            sums += graph.lag
        np.cumsum(sums, out=sums)
        self._begin[row] = np.where(firsts > 0, -sums[firsts - 1], 0.0)
        self._last[row] = sums[lasts] + times.work[lasts]
        edge = sums[edges.source] - sums[edges.target] + times.offset
        edge += np.where(edges.from_end, times.work[edges.source], 0.0)
        above = sums[graph.launch] - sums
        above += graph.latency * times.latency_factor
        if lags:
            edge += graph.lag[edges.target]
            above += graph.lag
        above[not_launched] = -np.inf
        self._edge[row], self.above[row] = edge, above
        if self.sums is not None:
            self.sums[row] = sums

    def run(self) -> None:
        """Replay segment by segment."""
        graph, above, edge, launch = self._graph, self.above, self._edge, self._graph.launch
        source, target = graph.edges.source.tolist(), graph.edges.target.tolist()
        firsts, is_host = [one.first for one in graph.chains], [one.is_host for one in graph.chains]
        bounds = np.searchsorted(graph.edges.target, graph.segments[:, 1:]).tolist()
        for (chain, low, high), (one, behind) in zip(graph.segments.tolist(), bounds, strict=True):
            before = self._begin[:, chain] if low == firsts[chain] else above[:, low - 1]
            if is_host[chain]:
                above[:, low:high] = before[:, None]  # no launch leads to a call
                rises = one < behind
            else:
                above[:, low:high] += above[:, launch[low:high]]
                np.maximum(above[:, low], before, out=above[:, low])
                rises = True
            for at in range(one, behind):
                node = above[:, target[at]]
                np.maximum(node, above[:, source[at]] + edge[:, at], out=node)
            if rises:
                np.maximum.accumulate(above[:, low:high], axis=1, out=above[:, low:high])

    def end(self) -> Numbers:
        """When the last chain of each row ends."""
        lasts = np.array([one.behind for one in self._graph.chains], np.int64) - 1
        found: Numbers = (self.above[:, lasts] + self._last).max(axis=1, initial=0.0)
        return found
