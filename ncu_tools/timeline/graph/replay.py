"""Replay a graph with other times: when every node is reached, for several what-ifs at once.

Let D be the running sum of what each node takes behind the one before it, over all nodes. Within a chain x - D never
falls: it stays where the chain itself says when a node is reached, and rises to `ready` - D where an edge does, with
`ready` the time at which the edge lets the node go. So x - D is a running maximum, which numpy takes over a whole
segment in one call for all what-ifs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ncu_tools.timeline.graph.step_graph import Mask, Numbers, StepGraph

MEMORY = 80_000_000
"""So many bytes the nodes of what-ifs that are replayed together take; a graph of more nodes is replayed in turns."""


@dataclass
class ReplayTimes:
    """What a replay takes for each node and edge, to be changed by a what-if; the graph's own at first.

    A `latency_factor` scales the time from launches to operations; an `offset` of -inf means that the edge is gone.
    """

    work: Numbers
    call: Numbers
    rest: Numbers
    latency_factor: float
    offset: Numbers


Change = Callable[[ReplayTimes], None]
"""A what-if: it changes the times in place."""


@dataclass(frozen=True)
class Replayed:
    """The ends of what-ifs in ns since the origin, and with `keep_times` when each node was reached, a row for each."""

    end: Numbers
    reached: Numbers


def unchanged(times: ReplayTimes) -> None:
    """The what-if in which nothing changes."""


def replay(graph: StepGraph, changes: Sequence[Change], *, lags: bool, keep_times: bool = False) -> Replayed:
    """Replay every what-if; with `lags`, what the recording does not explain is kept.

    With `keep_times` the times of all nodes are kept (float64, one row per what-if, one column per node).
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
    """What-ifs that are replayed together, a row for each.

    `above` are the nodes' x - D; before a node is replayed, what its launch adds to the x - D of the launching call.
    `edge` is the same of the other edges. `begin` and `last` are -D before the first node of each chain, and the end of
    the last one less its x - D.
    """

    def __init__(self, graph: StepGraph, changes: Sequence[Change], *, lags: bool, keep_times: bool) -> None:
        rows, chains = len(changes), len(graph.chains)
        self._graph = graph
        self.above = np.empty((rows, len(graph)))
        self._edge = np.empty((rows, len(graph.edges)))
        self._begin, self._last = np.empty((rows, chains)), np.empty((rows, chains))
        self.sums = np.empty((rows, len(graph))) if keep_times else None
        ahead = np.flatnonzero(graph.rest < 0)  # a kernel launched ahead of the end of the one before it
        not_launched = graph.launch < 0
        for row, change in enumerate(changes):
            times = ReplayTimes(graph.work.copy(), graph.call.copy(), graph.rest.copy(), 1.0, graph.edges.offset.copy())
            change(times)
            # It may start earlier, but does not end before that one.
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
                above[:, low:high] = before[:, None]  # nothing launches a call
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
