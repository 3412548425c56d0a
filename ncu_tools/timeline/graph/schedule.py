"""Find an order of segments of chains for a replay, in which each follows the sources of all its edges."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import count

import numpy as np

from ncu_tools.timeline.graph.step_graph import NONE, Integers, StepGraph


class _Needs:
    """The edges to a chain from another one: node `source[i]` must precede node `target[i]`, ordered by target.

    `first` is the first node that cannot be replayed yet, `NONE` if there is none.
    """

    def __init__(self, chain: int, other: int, target: Integers, source: Integers) -> None:
        self.chain, self.other = chain, other
        self.first = 0
        self._target, self._source = target, source
        self._upto = np.maximum.accumulate(source + 1)

    def look(self, done: int) -> int | None:
        """Update `first`, given that the other chain is done until `done`; returns until where it must be to continue.

        Returns None if no more is needed.
        """
        at = int(np.searchsorted(self._upto, done, side="right"))
        if at == len(self._target):
            self.first = NONE
            return None
        self.first = int(self._target[at])
        return int(self._upto[at])

    def drop(self, node: int, done: int) -> None:
        """Remove the edges that block a node."""
        kept = (self._target != node) | (self._source < done)
        self._target, self._source = self._target[kept], self._source[kept]
        self._upto = np.maximum.accumulate(self._source + 1)


def scheduled(graph: StepGraph) -> StepGraph:
    """The graph with its `segments`: rows of (chain, first node, node behind the last).

    Cyclic edges, as in damaged recordings, are dropped and counted.
    """
    order = _Order(graph)
    order.run()
    found = replace(graph, segments=np.array(order.segments, np.int32).reshape(-1, 3))
    return _without(found, order.dropped)


class _Order:
    """Replays chains in order: each continues when the sources that it needs next are done.

    `_blocks` has the needs of each chain in a heap, by the first node that each blocks; `_waiting` the needs of other
    chains, by the node for which they wait. A need in a heap is outdated if its `first` has changed.
    """

    def __init__(self, graph: StepGraph) -> None:
        self.segments: list[tuple[int, int, int]] = []
        self.dropped: list[tuple[int, int]] = []
        self._time = graph.time
        self._done = [one.first for one in graph.chains]
        self._behind = [one.behind for one in graph.chains]
        self._blocks: list[list[tuple[int, int, _Needs]]] = [[] for _ in graph.chains]
        self._waiting: list[list[tuple[int, int, _Needs]]] = [[] for _ in graph.chains]
        self._count = count()
        self._ready = deque(range(len(graph.chains)))
        self._next = [(float(graph.time[one.first]), number) for number, one in enumerate(graph.chains)]
        heapify(self._next)
        for one in _needs(graph):
            self._look(one)

    def run(self) -> None:
        """Order all segments; if every chain is blocked, the edges that block the earliest one are dropped."""
        while self._next:
            while self._ready:
                self._go_on(self._ready.popleft())
            time, chain = heappop(self._next)
            node = self._done[chain]
            if node < self._behind[chain]:
                if time == self._time[node]:
                    self._release(chain, node)
                else:
                    heappush(self._next, (float(self._time[node]), chain))

    def _go_on(self, chain: int) -> None:
        """Advance a chain to its next blocked node."""
        blocks = self._blocks[chain]
        while blocks and blocks[0][2].first != blocks[0][0]:
            heappop(blocks)
        reach = blocks[0][0] if blocks else self._behind[chain]
        if reach > self._done[chain]:
            self.segments.append((chain, self._done[chain], reach))
            self._done[chain] = reach
            waiting = self._waiting[chain]
            while waiting and waiting[0][0] <= reach:
                self._look(heappop(waiting)[2])

    def _look(self, one: _Needs) -> None:
        """Enter a need where it blocks and where it waits; its chain may continue."""
        upto = one.look(self._done[one.other])
        if upto is not None:
            heappush(self._blocks[one.chain], (one.first, next(self._count), one))
            heappush(self._waiting[one.other], (upto, next(self._count), one))
        self._ready.append(one.chain)

    def _release(self, chain: int, node: int) -> None:
        """Drop the edges that block a node."""
        blocks = self._blocks[chain]
        while blocks and blocks[0][0] <= node:
            one = heappop(blocks)[2]
            if one.first == node:
                self.dropped.append((one.other, node))
                one.drop(node, self._done[one.other])
                self._look(one)
        self._ready.append(chain)
        heappush(self._next, (float(self._time[node]), chain))


def _needs(graph: StepGraph) -> list[_Needs]:
    """The needs of each chain from each other chain."""
    launched = np.flatnonzero(graph.launch >= 0)
    target = np.concatenate([launched, graph.edges.target]).astype(np.int64)
    source = np.concatenate([graph.launch[launched], graph.edges.source]).astype(np.int64)
    chain, other = graph.chain[target].astype(np.int64), graph.chain[source].astype(np.int64)
    pair = chain * len(graph.chains) + other
    order = np.lexsort((target, pair))
    cuts = np.flatnonzero(np.diff(pair[order])) + 1
    return [
        _Needs(int(chain[rows[0]]), int(other[rows[0]]), target[rows], source[rows])
        for rows in (np.split(order, cuts) if len(order) else [])
    ]


def _without(graph: StepGraph, dropped: list[tuple[int, int]]) -> StepGraph:
    """The graph without the dropped edges, given as (source chain, target node)."""
    codes = np.array([node * len(graph.chains) + chain for chain, node in dropped], np.int64)
    launch, edges = graph.launch.copy(), graph.edges
    nodes = np.flatnonzero(launch >= 0)
    launch[nodes[np.isin(nodes * len(graph.chains) + graph.chain[launch[nodes]], codes)]] = NONE
    lost = np.isin(edges.target.astype(np.int64) * len(graph.chains) + graph.chain[edges.source], codes)
    return replace(graph, launch=launch, edges=edges.at(~lost), dropped=len(dropped))
