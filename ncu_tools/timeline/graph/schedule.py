"""The order in which stretches of chains can be replayed: each only behind all that its edges come from."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from ncu_tools.timeline.graph.step_graph import NONE, Integers, StepGraph


@dataclass
class _Needs:
    """What one chain needs of another: `source[i]` of it before its own node `target[i]`, in order of targets."""

    other: int
    target: Integers
    source: Integers

    def __post_init__(self) -> None:
        self.upto = np.maximum.accumulate(self.source + 1)

    def first_without(self, done: int) -> int | None:
        """The first node whose sources are not all before `done`; None if there is none."""
        at = int(np.searchsorted(self.upto, done, side="right"))
        return int(self.target[at]) if at < len(self.target) else None


def scheduled(graph: StepGraph) -> StepGraph:
    """The graph with its `segments`, rows of (chain, first node, behind the last).

    Edges that would have to be replayed before their source, as damaged recordings have them, are dropped and counted.
    """
    needs = _needs(graph)
    done = [one.first for one in graph.chains]
    behind = [one.behind for one in graph.chains]
    dependents: list[list[int]] = [[] for _ in graph.chains]
    for chain, some in enumerate(needs):
        for one in some:
            dependents[one.other].append(chain)
    waiting = deque(range(len(done)))
    queued = [True] * len(done)
    segments: list[tuple[int, int, int]] = []
    dropped: list[tuple[int, int]] = []
    while True:
        while waiting:
            chain = waiting.popleft()
            queued[chain] = False
            reach = behind[chain]
            for one in needs[chain]:
                first = one.first_without(done[one.other])
                reach = reach if first is None else min(reach, first)
            if reach > done[chain]:
                segments.append((chain, done[chain], reach))
                done[chain] = reach
                for other in dependents[chain]:
                    if not queued[other]:
                        queued[other] = True
                        waiting.append(other)
        stuck = [chain for chain, until in enumerate(behind) if done[chain] < until]
        if not stuck:
            break
        earliest = min(stuck, key=lambda chain: float(graph.time[done[chain]]))
        dropped += _release(needs[earliest], done, done[earliest])
        waiting.append(earliest)
        queued[earliest] = True
    found = replace(graph, segments=np.array(segments, np.int32).reshape(-1, 3))
    return _without(found, dropped) if dropped else found


def _needs(graph: StepGraph) -> list[list[_Needs]]:
    """What each chain needs of each other one."""
    launched = np.flatnonzero(graph.launch >= 0)
    target = np.concatenate([launched, graph.edges.target]).astype(np.int64)
    source = np.concatenate([graph.launch[launched], graph.edges.source]).astype(np.int64)
    chain, other = graph.chain[target].astype(np.int64), graph.chain[source].astype(np.int64)
    pair = chain * len(graph.chains) + other
    order = np.lexsort((target, pair))
    cuts = np.flatnonzero(np.diff(pair[order])) + 1
    found: list[list[_Needs]] = [[] for _ in graph.chains]
    for rows in np.split(order, cuts) if len(order) else []:
        found[int(chain[rows[0]])].append(_Needs(int(other[rows[0]]), target[rows], source[rows]))
    return found


def _release(needs: list[_Needs], done: list[int], node: int) -> list[tuple[int, int]]:
    """Forget what keeps a node from being replayed; the pairs of chain and node whose edges are dropped."""
    dropped = []
    for at, one in enumerate(needs):
        blocking = (one.target == node) & (one.source >= done[one.other])
        if blocking.any():
            dropped.append((one.other, node))
            needs[at] = _Needs(one.other, one.target[~blocking], one.source[~blocking])
    return dropped


def _without(graph: StepGraph, dropped: list[tuple[int, int]]) -> StepGraph:
    """The graph without the edges from a chain to a node."""
    launch, keep = graph.launch.copy(), np.ones(len(graph.edges), np.bool_)
    for chain, node in dropped:
        if launch[node] >= 0 and graph.chain[launch[node]] == chain:
            launch[node] = NONE
        keep &= ~((graph.edges.target == node) & (graph.chain[graph.edges.source] == chain))
    return replace(graph, launch=launch, edges=graph.edges.at(keep), dropped=len(dropped))
