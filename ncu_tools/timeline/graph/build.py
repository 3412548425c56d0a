"""Build the graph of a recording: nodes of threads and streams, edges between them, and what neither explains."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import numpy as np
from ncu_parsers.timelines.activity.activity import KERNEL, MISSING, Activity, Integers

from ncu_tools.timeline.call_kinds import calls_named, facts
from ncu_tools.timeline.communication import is_communication
from ncu_tools.timeline.graph.host_order import HostOrder, hand_overs
from ncu_tools.timeline.graph.schedule import scheduled
from ncu_tools.timeline.graph.step_graph import (
    COLLECTIVE,
    COPY,
    EVENT,
    FULL_QUEUE,
    HAND_OVER,
    LAUNCH,
    NONE,
    Chain,
    Edges,
    Mask,
    Numbers,
    StepGraph,
    graph_facts,
    numbered,
)
from ncu_tools.timeline.graph.stream_order import StreamOrder
from ncu_tools.timeline.graph.waits import CallWaits, call_waits
from ncu_tools.timeline.launch_links import launching_calls

NOTHING_LEFT_OUT: frozenset[int] = frozenset()


def step_graph(
    activity: Activity,
    call: Integers | None = None,
    *,
    without: AbstractSet[int] = NOTHING_LEFT_OUT,
    constants_only: bool = False,
) -> StepGraph:
    """The graph of a recording with operations; `call` is the row of the call of each operation, -1 for none.

    Kinds of edges in `without` are left out. With `constants_only` every launch, gap and return of a call takes the
    recording's constant, also where it was recorded to be shorter, and lags may be negative. Tests of the graph want
    both.
    """
    call = launching_calls(activity) if call is None else call
    return _Builder(activity, call, without, constants_only=constants_only).graph()


@dataclass(frozen=True)
class _Delays:
    """What a recording's own launches take, by stream: from a call to an idle stream, and between queued operations."""

    latency: Numbers
    gap: Numbers


class _Builder:
    """The parts of a graph while they are found: nodes of threads come first, then those of streams."""

    def __init__(
        self, activity: Activity, call: Integers, without: AbstractSet[int], *, constants_only: bool
    ) -> None:  # fmt: skip
        self.activity, self.without, self.constants_only = activity, without, constants_only
        operations, calls = activity.operations, activity.calls
        called = np.where(call >= 0, np.append(calls.start, 0)[call], np.nan).astype(np.float64)
        self.order = StreamOrder.of(operations, called)
        self.call = call[self.order.row]
        self.called = called[self.order.row]
        tables = (operations, calls, activity.ranges)
        self.origin = min(int(table.start.min()) for table in tables if len(table))
        self.waits = self._kept(call_waits(activity, call, self.order))
        waiting = np.union1d(self.waits.call, self.waits.unmatched).astype(np.int64)
        self.host = HostOrder.of(activity, np.unique(call[call >= 0]), waiting)
        self.together = self._collectives()
        self._place_nodes()

    def _kept(self, waits: CallWaits) -> CallWaits:
        """The waits but those of kinds that are left out; whose call is then one that nothing explains."""
        kept = ~np.isin(waits.kind, list(self.without))
        calls = self.activity.calls
        lost = np.setdiff1d(waits.call[~kept & (waits.kind != FULL_QUEUE)], waits.call[kept])
        lost = lost[(calls.end - calls.start)[lost] > graph_facts()["blocking"]["unexplained_ns"]]
        return CallWaits(
            waits.kind[kept], waits.call[kept], waits.place[kept], np.union1d(waits.unmatched, lost).astype(np.int64)
        )

    def _collectives(self) -> list[Integers]:
        """Places of the kernels of one collective on several GPUs, which leave it together."""
        operations, order = self.activity.operations, self.order
        if COLLECTIVE in self.without or len(operations.gpus()) < 2:
            return []
        talks = np.array([is_communication(name) for name in operations.names], np.bool_)[operations.name[order.row]]
        place = np.flatnonzero(talks & (operations.kind[order.row] == KERNEL))
        row = order.row[place]
        by_end = np.lexsort((order.end[place], operations.name[row]))
        place, row = place[by_end], row[by_end]
        apart = np.diff(order.end[place]) > graph_facts()["collective"]["together_ns"]
        cuts = np.flatnonzero(apart | (np.diff(operations.name[row]) != 0)) + 1
        _, gpu = numbered(operations.process[row], operations.device[row])
        groups = []
        for rows in np.split(np.arange(len(place)), cuts):
            if len(rows) > 1 and len(np.unique(gpu[rows])) == len(rows):
                groups.append(place[rows])
        return groups

    def _place_nodes(self) -> None:
        """Give every moment of a thread and every operation its node; of a collective on several GPUs two.

        The first of these is its arrival, the second the begin of the transfer: its end less the shortest duration.
        """
        grouped = np.zeros(len(self.order), np.bool_)
        self.shortest = self.order.end - self.order.start
        for places in self.together:
            grouped[places] = True
            self.shortest[places] = self.shortest[places].min()
        nodes = 1 + grouped
        last = len(self.host) + np.cumsum(nodes) - 1
        self.node, self.entry = last, last - grouped
        self.size = len(self.host) + int(nodes.sum())

    def graph(self) -> StepGraph:
        """All of it."""
        order, host, size = self.order, self.host, self.size
        hosts, rest_of_hosts = host.in_calls(self.activity, self.origin)
        delays = self._delays()
        time, work, call, rest, lag = (np.zeros(size) for _ in range(5))
        row = np.full(size, NONE, np.int32)
        time[: len(host)], call[: len(host)], rest[: len(host)] = host.time, hosts, rest_of_hosts
        time[self.entry] = order.start
        time[self.node] = order.end - self.shortest
        work[self.node] = self.shortest
        row[: len(host)] = host.row
        row[self.entry] = row[self.node] = order.row
        rest[self.entry] = self._gaps(delays)
        is_end = np.zeros(size, np.bool_)
        is_end[: len(host)] = host.is_end
        launch, latency = self._launches(delays)
        chains, chain = self._chains()
        operation_node, entry_node = np.empty(len(order), np.int32), np.empty(len(order), np.int32)
        operation_node[order.row], entry_node[order.row] = self.node, self.entry
        found = StepGraph(
            self.origin, max(int(order.end.max()), int(host.time.max(initial=0))), chains, chain, time - self.origin,
            work, call, rest, lag, row, is_end, launch, latency, _no_edges(), np.zeros((0, 3), np.int32),
            operation_node, entry_node, self.waits.unmatched, int((self.call < 0).sum()), 0, 0,
        )  # fmt: skip
        edges = _sorted([self._blocking(found), self._handing_over(found), self._of_collectives(found)])
        found = replace(found, edges=edges)
        inferred = self._events(found)
        found = replace(found, edges=_sorted([edges, inferred]), inferred=len(inferred))
        found = scheduled(found)
        late = found.time - expected(found)
        return replace(found, lag=late if self.constants_only else np.maximum(late, 0.0))

    def _delays(self) -> _Delays:
        """The recording's own constants, by stream; of streams without any those of the recording."""
        order, limits = self.order, graph_facts()["stream"]
        gpus, of_row = numbered(self.activity.operations.process, self.activity.operations.device)
        gpu = of_row[order.row]
        first = np.zeros(len(order), np.bool_)
        first[order.bounds[:-1]] = True
        ended = np.concatenate([[-np.inf], order.end[:-1]])
        ended[first] = -np.inf
        delay, gap = order.start - self.called, order.start - ended
        idle = ~np.isnan(self.called) & (self.called >= ended)
        latency, queued_gap = np.full(len(order), np.nan), np.full(len(order), np.nan)
        for one in range(len(gpus)):
            mine = gpu == one
            latency[mine] = limits["latency_ns"]
            if (mine & idle).any():
                own = np.quantile(delay[mine & idle], limits["latency_quantile"], method="lower")
                latency[mine] = min(float(own), facts()["stretch"]["starting_ns"])
            queued = mine & ~first & (self.called + latency <= ended)
            gap_here = float(np.median(gap[queued])) if queued.any() else limits["gap_ns"]
            queued_gap[mine] = gap_here
        return _Delays(latency, queued_gap)

    def _gaps(self, delays: _Delays) -> Numbers:
        """The gap before each operation as far as it is the stream's own; 0 for the first one of a stream."""
        order = self.order
        gap = delays.gap.copy()
        if not self.constants_only:
            gap = np.minimum(gap, order.start - np.concatenate([[0], order.end[:-1]]))
        gap[order.bounds[:-1]] = 0
        return gap

    def _launches(self, delays: _Delays) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], Numbers]:
        """The node of the call that launched each operation, and how long after it that can start."""
        launch, latency = np.full(self.size, NONE, np.int32), np.zeros(self.size)
        if LAUNCH not in self.without:
            known = self.call >= 0
            launch[self.entry[known]] = self.host.start_of[self.call[known]]
            recorded = np.inf if self.constants_only else self.order.start - self.called
            latency[self.entry[known]] = np.minimum(delays.latency, recorded)[known]
        return launch, latency

    def _chains(self) -> tuple[tuple[Chain, ...], np.ndarray[tuple[int], np.dtype[np.int16]]]:
        operations, order = self.activity.operations, self.order
        found = [
            Chain(first, behind, process, thread=thread)
            for (process, thread), (first, behind) in zip(self.host.threads, self.host.spans, strict=True)
        ]
        for first, behind in order.streams:
            row = int(order.row[first])
            found.append(
                Chain(int(self.entry[first]), int(self.node[behind - 1]) + 1, int(operations.process[row]),
                      device=int(operations.device[row]), stream=int(operations.stream[row]))
            )  # fmt: skip
        chain = np.repeat(np.arange(len(found), dtype=np.int16), [one.behind - one.first for one in found])
        return tuple(found), chain

    def _blocking(self, found: StepGraph) -> Edges:
        """Edges to the ends of calls that wait; before these, only what the call takes itself is left of its time."""
        waits, limits = self.waits, graph_facts()["blocking"]
        target = self.host.end_of[waits.call]
        kept = target >= 0
        kind, place, target = waits.kind[kept], waits.place[kept], target[kept]
        whole = found.call + found.rest
        own = np.where(kind == COPY, limits["copy_ns"], limits["call_ns"])
        left = np.minimum(whole[target], own)
        # A call that waits for several streams has one end: it is cut once.
        found.call[target], found.rest[target] = left, 0.0
        source = self.node[place]
        from_end = kind != FULL_QUEUE
        ready = found.time[source] + np.where(from_end, found.work[source], 0)
        tail = np.minimum(limits["tail_ns"], found.time[target] - ready)
        if self.constants_only and len(tail):
            tail = np.full(len(tail), np.median(tail))
        return Edges(kind, source.astype(np.int32), target.astype(np.int32), tail, from_end)

    def _handing_over(self, found: StepGraph) -> Edges:
        """Edges from the last call of a burst to the thread that waited for it; nothing else is left of its gap."""
        if HAND_OVER in self.without or len(self.host.threads) < 2:
            return _no_edges()
        device = np.full(len(self.activity.calls), MISSING)
        known = self.call >= 0
        device[self.call[known]] = self.activity.operations.device[self.order.row[known]]
        target, source = hand_overs(self.host, device)
        found.call[target] = found.rest[target] = 0.0
        return Edges(np.full(len(target), HAND_OVER, np.int8), source.astype(np.int32), target.astype(np.int32),
                     found.time[target] - found.time[source], np.zeros(len(target), np.bool_))  # fmt: skip

    def _of_collectives(self, found: StepGraph) -> Edges:
        """Edges from the arrival of each rank to the begin of the transfer on every other one."""
        source, target = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for places in self.together:
            here, there = np.meshgrid(places, places)
            others = here != there
            source.append(self.entry[here[others]])
            target.append(self.node[there[others]])
        sources, targets = np.concatenate(source), np.concatenate(target)
        offset = np.minimum(0.0, found.time[targets] - found.time[sources])
        return Edges(np.full(len(sources), COLLECTIVE, np.int8), sources.astype(np.int32), targets.astype(np.int32),
                     offset, np.zeros(len(sources), np.bool_))  # fmt: skip

    def _events(self, found: StepGraph) -> Edges:
        """Edges that are inferred: an operation behind a wait for an event starts as one of another stream ends.

        Nodes of a graph wait for each other without a call. Recordings hold no events that all tools agree on.
        """
        order, limits = self.order, graph_facts()["event"]
        if EVENT in self.without:
            return _no_edges()
        late = np.flatnonzero(found.time[self.entry] - expected(found)[self.entry] > limits["within_ns"])
        late = late[self._behind_a_wait(late)]
        ends = np.argsort(order.end, kind="stable")
        at = np.searchsorted(order.end[ends], order.start[late], side="right") - 1
        late, before = late[at >= 0], ends[at[at >= 0]]
        near = order.start[late] - order.end[before] <= limits["within_ns"]
        operations = self.activity.operations
        near &= operations.process[order.row[late]] == operations.process[order.row[before]]
        near &= order.launched[before] <= order.launched[late]
        near &= found.chain[self.node[before]] != found.chain[self.entry[late]]
        source, target = self.node[before[near]], self.entry[late[near]]
        return Edges(np.full(len(source), EVENT, np.int8), source.astype(np.int32), target.astype(np.int32),
                     order.start[late[near]] - order.end[before[near]], np.ones(len(source), np.bool_))  # fmt: skip

    def _behind_a_wait(self, places: Integers) -> Mask:
        """Which operations were launched behind a wait for an event, or are nodes of a graph behind its first."""
        order, calls = self.order, self.activity.calls
        previous = np.concatenate([[NONE], self.call[:-1]])
        previous[order.bounds[:-1]] = NONE
        found: Mask = (self.call[places] >= 0) & (self.activity.operations.graph_node[order.row[places]] != MISSING)
        waits = np.flatnonzero(calls_named(calls, graph_facts()["event"]["wait"]))
        by = self.call[places]
        for thread in np.unique(calls.thread[waits]).tolist():
            moments = calls.start[waits[calls.thread[waits] == thread]]
            mine = (by >= 0) & (np.append(calls.thread, MISSING)[by] == thread)
            begun = np.append(calls.start, 0)[by]
            since = np.where(previous[places] >= 0, np.append(calls.start, 0)[previous[places]], self.origin)
            found |= mine & (np.searchsorted(moments, begun) > np.searchsorted(moments, since))
        return found


def expected(graph: StepGraph) -> Numbers:
    """When each node is reached by its edges if everything before it is at its recorded time."""
    found = np.zeros(len(graph))
    before = graph.time + graph.work
    found[1:] = before[:-1]
    for one in graph.chains:
        found[one.first] = 0.0
    found += graph.call + graph.rest
    launched = np.flatnonzero(graph.launch >= 0)
    found[launched] = np.maximum(found[launched], graph.time[graph.launch[launched]] + graph.latency[launched])
    edges = graph.edges
    ready = graph.time[edges.source] + np.where(edges.from_end, graph.work[edges.source], 0) + edges.offset
    np.maximum.at(found, edges.target, ready)
    return found


def _no_edges() -> Edges:
    return Edges(np.zeros(0, np.int8), np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0), np.zeros(0, np.bool_))


def _sorted(parts: list[Edges]) -> Edges:
    """All edges in order of their targets."""
    joined = Edges(
        np.concatenate([one.kind for one in parts]), np.concatenate([one.source for one in parts]),
        np.concatenate([one.target for one in parts]), np.concatenate([one.offset for one in parts]),
        np.concatenate([one.from_end for one in parts]),
    )  # fmt: skip
    return joined.at(np.argsort(joined.target, kind="stable"))
