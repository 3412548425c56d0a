"""Edges of CUDA graphs in a trace: which node waits for which.

PyTorch's newer profiler ("Cuspy") writes each edge as a flow with an id from 2^40 on: from the end of a node to the
start of the next, on their lanes. Nodes between operations that only record an event or call the host are skipped.
Facts: PyTorch's `torch/profiler/_cuspy`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ncu_parsers.timelines.activity.activity import MISSING, Dependencies, GpuOperations, Integers
from ncu_parsers.timelines.kineto.chrome_trace import LONGEST_TIME, TraceEvent, whole_nanoseconds

FIRST_EDGE = 1 << 40
"""Flow ids from here on are edges of graphs; lower ids are correlation ids."""
_DIGITS = len(str(FIRST_EDGE))

Moment = tuple[int, int, int]
"""Device, lane and time (ns) of the start or end of a node."""


class GraphFlows:
    """Collects both ends of each graph edge while a trace is read, and the nodes that are not operations."""

    def __init__(self) -> None:
        self._begin: dict[int, tuple[int, int, float]] = {}
        self._end: dict[int, tuple[int, int, float]] = {}
        self._between: list[tuple[int, int, float, float]] = []

    def take(self, event: TraceEvent) -> None:
        """Add one end of an edge; other flows are passed over."""
        number = bytes(event.id)
        if len(number) < _DIGITS or not number.isdigit() or not abs(event.ts) < LONGEST_TIME:
            return
        if int(number) < FIRST_EDGE or not isinstance(event.pid, int) or not isinstance(event.tid, int):
            return
        ends = self._begin if event.ph == "s" else self._end
        ends[int(number)] = event.pid, event.tid, event.ts

    def add_between(self, device: int, lane: int, start: float, duration: float) -> None:
        """Add a node that is not an operation; its successors wait for its predecessors instead."""
        self._between.append((device, lane, start, duration))

    def dependencies(self, operations: GpuOperations) -> Dependencies:
        """Pairs of operations (row numbers) where the second waits for the first."""
        found = sorted(set(self._edges(operations))) if self._end else []
        return Dependencies(*np.array(found, np.int64).reshape(-1, 2).T)

    def _edges(self, operations: GpuOperations) -> Iterator[tuple[int, int]]:
        nodes = np.flatnonzero(operations.graph_node != MISSING)
        at, lasts = np.array([one[2:] for one in self._between], np.float64).reshape(-1, 2).T
        begun, whole = whole_nanoseconds(at), whole_nanoseconds(lasts)
        place = np.array([one[:2] for one in self._between], np.int64).reshape(-1, 2).T
        start = np.concatenate([operations.start[nodes], begun])
        end = np.concatenate([operations.end[nodes], begun + whole])
        device = np.concatenate([operations.device[nodes], place[0]])
        lane = np.concatenate([np.abs(operations.stream[nodes]), place[1]])
        starts, ends = _by_moment(device, lane, start), _by_moment(device, lane, end)
        before: dict[int, list[int]] = {}
        for number, to in self._end.items():
            source = self._begin.get(number)
            one = None if source is None else ends.get(_moment(source))
            other = starts.get(_moment(to))
            if one is not None and other is not None and one != other:
                before.setdefault(other, []).append(one)
        return _between_operations(before, nodes)


def _moment(end: tuple[int, int, float]) -> Moment:
    device, lane, at = end
    return device, lane, int(whole_nanoseconds(np.array([at]))[0])


def _by_moment(device: Integers, lane: Integers, moment: Integers) -> dict[Moment, int]:
    """Node index by start or end on its lane; ambiguous moments are left out."""
    found: dict[Moment, int] = {}
    for place, key in enumerate(zip(device.tolist(), lane.tolist(), moment.tolist(), strict=True)):
        found[key] = -1 if key in found else place
    return {key: place for key, place in found.items() if place >= 0}


def _between_operations(before: Mapping[int, list[int]], nodes: Integers) -> Iterator[tuple[int, int]]:
    """Edges between operations; paths through other nodes become direct edges.

    Nodes are numbered with the operations first: `nodes` has the row of each.
    """
    for place in before:
        if place >= len(nodes):
            continue
        seen: set[int] = set()
        waiting = list(before[place])
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            if one < len(nodes):
                yield int(nodes[one]), int(nodes[place])
            else:
                waiting += before.get(one, [])
