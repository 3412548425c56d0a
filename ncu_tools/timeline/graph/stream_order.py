"""The operations of a recording ordered by stream, with the time at which each was launched."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from ncu_parsers.timelines.activity.activity import GpuOperations

from ncu_tools.timeline.graph.step_graph import Integers, Numbers, graph_facts

NEVER = -np.inf


@dataclass(frozen=True)
class StreamOrder:
    """Operations sorted by stream and start: `row` are their rows in the recording, `bounds` the first of each stream.

    A stream belongs to a context of a GPU. Operations that overlap on one stream, such as nodes of a graph, are put
    into lanes, each a stream here. `launched` is the start of an operation's call; if unknown, that of the last known
    one before on its stream; -inf for work in flight at the start.
    """

    row: Integers
    bounds: Integers
    start: Numbers
    end: Numbers
    launched: Numbers

    @classmethod
    def of(cls, operations: GpuOperations, called: Numbers) -> StreamOrder:
        """Order all operations; `called` is the start of the call of each, NaN if unknown."""
        keys = np.stack([operations.process, operations.device, operations.context, operations.stream])
        order = np.lexsort((operations.start, *keys[::-1]))
        changed = (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)
        stream = np.concatenate([[0], np.cumsum(changed)]).astype(np.int64)[: len(order)]
        start, end = operations.start[order].astype(np.float64), operations.end[order].astype(np.float64)
        lane = _lanes(stream, start, end)
        if lane.any():
            by_lane = np.lexsort((np.arange(len(order)), lane, stream))
            order, stream, lane = order[by_lane], stream[by_lane], lane[by_lane]
            start, end = start[by_lane], end[by_lane]
        begins = np.concatenate([[True], (np.diff(stream) != 0) | (np.diff(lane) != 0)])[: len(order)]
        bounds = np.append(np.flatnonzero(begins), len(order))
        launched = np.where(np.isnan(called[order]), NEVER, called[order])
        for first, behind in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            np.maximum.accumulate(launched[first:behind], out=launched[first:behind])
        return cls(order, bounds, start, end, launched)

    def __len__(self) -> int:
        return len(self.row)

    @property
    def streams(self) -> list[tuple[int, int]]:
        """First place, and the one behind the last, of every stream."""
        return list(zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True))


def _lanes(stream: Integers, start: Numbers, end: Numbers) -> Integers:
    """The lane of each operation on its stream (int64): 0, or 1, 2 ... while it overlaps with others."""
    lane, allowed = np.zeros(len(stream), np.int64), graph_facts()["stream"]["overlap_ns"]
    if len(stream) < 2:
        return lane
    beyond = end.max() - start.min() + 2 * allowed + 1
    reached = np.maximum.accumulate(end + stream * beyond)[:-1] - stream[1:] * beyond
    beside = (reached - start[1:] > allowed) | (end[1:] < reached)
    beside &= (stream[1:] == stream[:-1]) & (reached > start[1:])
    for one in np.unique(stream[1:][beside]).tolist():
        rows = np.flatnonzero(stream == one)
        lane[rows] = _lanes_of(start[rows].tolist(), end[rows].tolist(), allowed)
    return lane


def _lanes_of(start: list[float], end: list[float], allowed: float) -> list[int]:
    """The lane of each operation of one stream: of the free lanes the one used last."""
    free, lanes = list[float](), list[int]()  # when each lane becomes free, ascending, and its number
    found = []
    for begun, ended in zip(start, end, strict=True):
        at = bisect_right(free, min(begun + allowed, ended)) - 1
        lane = lanes.pop(at) if at >= 0 else len(lanes)
        if at >= 0:
            del free[at]
        place = bisect_right(free, ended)
        free.insert(place, ended)
        lanes.insert(place, lane)
        found.append(lane)
    return found
