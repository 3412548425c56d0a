"""The critical path of a graph: from its end back to its begin along what each node waited for, by kind of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from ncu_parsers.timelines.activity.activity import GRAPH, KERNEL, MEMCPY, Activity

from ncu_tools.timeline.communication import is_communication
from ncu_tools.timeline.graph.step_graph import (
    COLLECTIVE,
    EVENT,
    HAND_OVER,
    STREAM_ORDER,
    Integers,
    Numbers,
    StepGraph,
)

Kinds = npt.NDArray[np.int8]

KERNELS, COPIES, COMMUNICATION, HOST_CODE, CALLS, LAUNCHES, HAND_OVERS, WAITS = range(8)
PATH_KINDS = (
    "kernels", "copies", "communication", "host code", "API calls", "launch and gaps", "hand-over", "unexplained",
)  # fmt: skip
"""Kinds of time on a critical path. "launch and gaps": from a call to its operation, and between queued operations."""


@dataclass(frozen=True)
class Stretch:
    """A part of the path on one chain, in ns since the origin; `kind` is the kind with most of its time."""

    chain: int
    start_ns: float
    end_ns: float
    kind: int


@dataclass(frozen=True)
class CriticalPath:
    """The time of each kind on the path in ns (one per `PATH_KINDS`); they add up to the recording without `before_ns`.

    `before_ns` is the time in which the GPU ran work from before the steps. `work` is the time of each operation on the
    path, by its row in the recording, `waited` the unexplained time on it before the operation. `stretches` are in
    order.
    """

    by_kind: Numbers
    work: Numbers
    waited: Numbers
    stretches: tuple[Stretch, ...]
    before_ns: float = 0.0

    @property
    def length_ns(self) -> float:
        """The sum of all kinds."""
        return float(self.by_kind.sum())

    def share(self, kind: int) -> float:
        """The share of a kind in the length of the path."""
        return float(self.by_kind[kind]) / self.length_ns if self.length_ns else 0.0


def operation_kinds(activity: Activity) -> Kinds:
    """The kind of time of each operation: kernels (with memsets and whole graphs), copies or communication."""
    operations = activity.operations
    talks = np.array([is_communication(name) for name in operations.names], np.bool_)
    found = np.full(len(operations), KERNELS, np.int8)
    found[operations.kind == MEMCPY] = COPIES
    found[talks[operations.name] & np.isin(operations.kind, (KERNEL, GRAPH))] = COMMUNICATION
    return found


def critical_path(
    graph: StepGraph, activity: Activity, reached: Numbers | None = None, *, since_ns: float = 0.0
) -> CriticalPath:
    """The critical path of the recording, or of a replay without lags that `reached` its nodes at these times.

    Until `since_ns` after the origin, the GPU is known to have run earlier work: waiting for it is not part of the
    path.
    """
    walk = _Walk(graph, graph.time if reached is None else reached, graph.lag if reached is None else None)
    by_kind = np.zeros(len(PATH_KINDS))
    kinds = operation_kinds(activity)
    work, waited_before = np.zeros(len(activity.operations)), np.zeros(len(activity.operations))
    stretches = []
    node, is_end = walk.last, True
    while True:
        first, source, edge, from_end = walk.stretch(node)
        nodes = np.arange(first, node + 1)
        spent = _spent(graph, kinds, nodes, walk, is_end=is_end, whole=source is None)
        if source is not None:
            kind = _edge_kind(graph, edge)
            waited = walk.lag[first]
            spent[kind] += walk.time[first] - waited - walk.time[source] - (graph.work[source] if from_end else 0)
            spent[WAITS] += waited
        by_kind += spent
        worked = nodes if is_end else nodes[:-1]
        if not graph.chains[graph.chain[node]].is_host:
            np.add.at(work, graph.row[worked], graph.work[worked])
            np.add.at(waited_before, graph.row[nodes], walk.lag[nodes])
            waited_before[graph.row[first]] += graph.rest[first] if source is None else 0.0
        end = walk.time[node] + (graph.work[node] if is_end else 0)
        stretches.append(Stretch(int(graph.chain[node]), float(walk.time[first]), float(end), int(spent.argmax())))
        if source is None:
            before = 0.0
            if not graph.chains[graph.chain[node]].is_host:
                before = min(float(graph.rest[first]), since_ns)
                by_kind[WAITS] -= before
                waited_before[graph.row[first]] -= before
            return CriticalPath(by_kind, work, waited_before, tuple(reversed(stretches)), before)
        node, is_end = source, from_end


class _Walk:
    """Which predecessor let each node go last: the node before it on its chain, or an edge."""

    def __init__(self, graph: StepGraph, time: Numbers, lag: Numbers | None) -> None:
        self.graph, self.time = graph, time
        self.lag = np.zeros(len(graph)) if lag is None else lag
        ends = [time[one.behind - 1] + graph.work[one.behind - 1] for one in graph.chains]
        self.last = graph.chains[int(np.argmax(ends))].behind - 1
        ready = np.full(len(graph), -np.inf)
        launched = np.flatnonzero(graph.launch >= 0)
        ready[launched] = time[graph.launch[launched]] + graph.latency[launched]
        edges = graph.edges
        arrives = time[edges.source] + np.where(edges.from_end, graph.work[edges.source], 0) + edges.offset
        np.maximum.at(ready, edges.target, arrives)
        before = np.concatenate([[0.0], (time + graph.work)[:-1]])
        before[[one.first for one in graph.chains]] = 0.0
        by_edge = (ready > before + graph.call + graph.rest) & (ready > -np.inf)
        first = np.zeros(len(graph), np.bool_)
        first[[one.first for one in graph.chains]] = True
        stops = np.where(by_edge | first, np.arange(len(graph)), 0)
        self._stop = np.maximum.accumulate(stops)
        self._by_edge, self._arrives = by_edge, arrives

    def stretch(self, node: int) -> tuple[int, int | None, int | None, bool]:
        """First node of the stretch of a chain that ends at `node`; its source, edge, and whether that leaves an end.

        The edge is None for a launch; the source is None at the begin of the recording.
        """
        graph, first = self.graph, int(self._stop[node])
        if not self._by_edge[first]:
            return first, None, None, False
        low, high = np.searchsorted(graph.edges.target, [first, first + 1]).tolist()
        launch = int(graph.launch[first])
        released = self.time[launch] + graph.latency[first] if launch >= 0 else -np.inf
        if low == high or released >= self._arrives[low:high].max():
            return first, launch, None, False
        best = low + int(np.argmax(self._arrives[low:high]))
        return first, int(graph.edges.source[best]), best, bool(graph.edges.from_end[best])


def _spent(graph: StepGraph, kinds: Kinds, nodes: Integers, walk: _Walk, *, is_end: bool, whole: bool) -> Numbers:
    """The time of each kind along nodes of one chain, from the first to the last one, or to its end.

    With `whole`, this includes the time from the begin of the recording to the first node; else an edge leads to it.
    """
    spent = np.zeros(len(PATH_KINDS))
    behind = nodes if whole else nodes[1:]
    spent[WAITS] += walk.lag[behind].sum()
    if graph.chains[graph.chain[nodes[0]]].is_host:
        spent[CALLS] += graph.call[behind].sum()
        spent[HOST_CODE] += graph.rest[behind].sum()
    else:
        worked = nodes if is_end else nodes[:-1]
        spent += np.bincount(kinds[graph.row[worked]], graph.work[worked], len(PATH_KINDS))
        before = graph.rest[nodes[0]] if whole else 0.0  # of work from before the recording
        spent[LAUNCHES] += graph.rest[behind].sum() - before
        spent[WAITS] += before
    return spent


def _edge_kind(graph: StepGraph, edge: int | None) -> int:
    if edge is None or graph.edges.kind[edge] in (EVENT, STREAM_ORDER):
        return LAUNCHES
    kind = graph.edges.kind[edge]
    return HAND_OVERS if kind == HAND_OVER else COMMUNICATION if kind == COLLECTIVE else CALLS
