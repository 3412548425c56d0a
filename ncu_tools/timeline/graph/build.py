"""Build the graph of a recording: nodes of threads and streams, edges between them, and unexplained lags."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import numpy as np
from ncu_parsers.timelines.activity.activity import KERNEL, MISSING, Activity, Codes, Integers

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
    STREAM_ORDER,
    SYNC,
    Chain,
    Edges,
    Mask,
    Numbers,
    StepGraph,
    graph_facts,
    numbered,
)
from ncu_tools.timeline.graph.stream_order import StreamOrder
from ncu_tools.timeline.graph.stream_waits import StreamWaits
from ncu_tools.timeline.graph.waits import CallWaits, call_waits, freeing_calls, polling_calls, staged_copies
from ncu_tools.timeline.intervals import grouped
from ncu_tools.timeline.launch_links import launching_calls

NOTHING_LEFT_OUT: frozenset[int] = frozenset()


def step_graph(
    activity: Activity,
    call: Integers | None = None,
    *,
    without: AbstractSet[int] = NOTHING_LEFT_OUT,
    constants_only: bool = False,
    at_ends: Mask | None = None,
) -> StepGraph:
    """The graph of a recording with operations; `call` is the row of the call of each operation, -1 for none.

    The remaining arguments are for tests. `without` are kinds of edges to leave out. `at_ends` masks the calls that
    launch as they return, which are otherwise found by their times. With `constants_only`, every launch, gap and return
    of a call takes the recording's constant even if it was recorded to be shorter, and lags may be negative.
    """
    call = launching_calls(activity) if call is None else call
    return _Builder(activity, call, without, at_ends, constants_only=constants_only).graph()


@dataclass(frozen=True)
class _Delays:
    """Constants of the recording per operation: `latency` from a call to an idle stream, `gap` to a queued operation.

    For a copy that is staged on an idle stream the latency is the recorded one: the host stages the first part in the
    call. If a call takes longer than `longest`, its operation starts `from_end` after the call's end, negative if
    before it. `longest` is the latency, or 0 on a GPU on which starts follow the ends of calls more evenly than their
    begins.
    """

    latency: Numbers
    longest: Numbers
    from_end: Numbers
    gap: Numbers


class _Builder:
    """The parts of a graph while it is built: nodes of threads come first, then those of streams."""

    def __init__(
        self, activity: Activity, call: Integers, without: AbstractSet[int], at_ends: Mask | None, *,
        constants_only: bool,
    ) -> None:  # fmt: skip
        self.activity, self.without, self.at_ends, self.constants_only = activity, without, at_ends, constants_only
        operations, calls = activity.operations, activity.calls
        called = np.where(call >= 0, np.append(calls.start, 0)[call], np.nan).astype(np.float64)
        self.order = StreamOrder.of(operations, called)
        self.call = call[self.order.row]
        self.called = called[self.order.row]
        self.returned = np.where(self.call >= 0, np.append(calls.end, 0)[self.call], np.nan).astype(np.float64)
        tables = (operations, calls, activity.ranges)
        self.origin = min(int(table.start.min()) for table in tables if len(table))
        self.waits = self._kept(call_waits(activity, call, self.order))
        self.streams = StreamWaits.of(activity, self.call, self.order)
        nothing = np.zeros(0, np.int64)
        self.across_lanes = (nothing, nothing) if STREAM_ORDER in without else self.streams.across_lanes()
        self.delays = self._delays()
        self.at_end = self._launched_at_the_end()
        ends = np.unique(np.concatenate([self.waits.call, self.waits.unmatched, self.call[self.at_end]]))
        self.host = HostOrder.of(activity, np.unique(call[call >= 0]), ends.astype(np.int64))
        self.together = self._collectives()
        self._place_nodes()

    def _kept(self, waits: CallWaits) -> CallWaits:
        """The waits without the kinds to leave out; long calls that lose their wait become unmatched."""
        kept = ~np.isin(waits.kind, list(self.without))
        calls = self.activity.calls
        lost = np.setdiff1d(waits.call[~kept & (waits.kind != FULL_QUEUE)], waits.call[kept])
        lost = lost[(calls.end - calls.start)[lost] > graph_facts()["blocking"]["unexplained_ns"]]
        return CallWaits(
            waits.kind[kept], waits.call[kept], waits.place[kept], np.union1d(waits.unmatched, lost).astype(np.int64)
        )

    def _collectives(self) -> list[Integers]:
        """Groups of kernels (places in stream order) that are one collective on several GPUs, with a common end."""
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
        """Assign a node to every moment of a thread and every operation; two to a collective on several GPUs.

        Its first node is the arrival, its second the begin of the transfer: its end minus the shortest duration over
        ranks.
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
        """Build the graph."""
        order, host, size = self.order, self.host, self.size
        hosts, rest_of_hosts = host.in_calls(self.activity, self.origin)
        time, work, call, rest, lag = (np.zeros(size) for _ in range(5))
        row = np.full(size, NONE, np.int32)
        time[: len(host)], call[: len(host)], rest[: len(host)] = host.time, hosts, rest_of_hosts
        time[self.entry] = order.start
        time[self.node] = order.end - self.shortest
        work[self.node] = self.shortest
        row[: len(host)] = host.row
        row[self.entry] = row[self.node] = order.row
        rest[self.entry] = self._gaps()
        is_end = np.zeros(size, np.bool_)
        is_end[: len(host)] = host.is_end
        launch, latency = self._launches()
        chains, chain = self._chains()
        operation_node, entry_node = np.empty(len(order), np.int32), np.empty(len(order), np.int32)
        operation_node[order.row], entry_node[order.row] = self.node, self.entry
        found = StepGraph(
            self.origin, max(int(order.end.max()), int(host.time.max(initial=0))), chains, chain, time - self.origin,
            work, call, rest, lag, row, is_end, launch, latency, _no_edges(), np.zeros((0, 3), np.int32),
            operation_node, entry_node, self.waits.unmatched, int((self.call < 0).sum()), 0, 0,
        )  # fmt: skip
        edges = _sorted(
            [
                self._blocking(found),
                self._polling(found),
                self._handing_over(found),
                self._of_collectives(found),
                self._between_streams(STREAM_ORDER, *self.across_lanes, self.delays.gap[self.across_lanes[1]]),
                self._recorded_events(),
                self._edges_of_graphs(found),
            ]
        )
        found = replace(found, edges=edges)
        inferred = self._events(found)
        found = replace(found, edges=_sorted([edges, inferred]), inferred=len(inferred))
        self._release(found)
        found = scheduled(found)
        late = found.time - expected(found)
        return replace(found, lag=late if self.constants_only else np.maximum(late, 0.0))

    def _delays(self) -> _Delays:
        """The constants of the recording by GPU; defaults from graph.toml if it has no such launches."""
        order, limits = self.order, graph_facts()["stream"]
        _, gpu = numbered(self.activity.operations.process, self.activity.operations.device)
        first = np.zeros(len(order), np.bool_)
        first[order.bounds[:-1]] = True
        ended = np.concatenate([[-np.inf], order.end[:-1]])
        ended[first] = -np.inf
        delay, gap = order.start - self.called, order.start - ended
        behind, lasts = order.start - self.returned, self.returned - self.called
        ended[self.across_lanes[1]] = np.inf  # it waits for another lane, so it is neither queued here nor idle
        idle = ~np.isnan(self.called) & (self.called >= ended)
        staged = staged_copies(self.activity.operations)[order.row]
        latency, longest, from_end, queued_gap = (np.zeros(len(order)) for _ in range(4))
        for mine in grouped(gpu[order.row]):
            launched = mine[idle[mine] & ~staged[mine]]
            own = limits["latency_ns"]
            if len(launched):
                own = np.quantile(delay[launched], limits["latency_quantile"], method="lower")
                own = min(float(own), facts()["stretch"]["starting_ns"])
            by_end = len(launched) > 0 and _spread(behind[launched]) < limits["evener"] * _spread(delay[launched])
            longest[mine] = 0.0 if by_end else own
            late = behind[launched[lasts[launched] > longest[launched]]]
            late = late[np.abs(late) <= limits["from_end_ns"]]
            behind_one = mine[np.isfinite(ended[mine]) & ~staged[mine] & ~np.isnan(self.called[mine])]
            is_queued = self.called[behind_one] + own <= ended[behind_one]
            latency[mine] = own
            if len(alone := mine[idle[mine] & staged[mine]]):
                latency[mine[staged[mine]]] = np.quantile(delay[alone], limits["latency_quantile"], method="lower")
                if not self.constants_only:
                    in_call = alone[order.start[alone] <= self.returned[alone]]
                    latency[in_call] = delay[in_call]
            from_end[mine] = float(np.median(late)) if len(late) else 0.0
            queued_gap[mine] = _gap_of_queued(gap[behind_one[is_queued]], gap[behind_one[~is_queued]])
        return _Delays(latency, longest, from_end, queued_gap)

    def _launched_at_the_end(self) -> Mask:
        """Mask of the operations (by place) that were launched as their call returned, after more than `longest`.

        Not so for calls that wait for what they launched, which did so earlier, and launches of graphs, which run
        meanwhile.
        """
        calls, known = self.activity.calls, self.call >= 0
        if self.at_ends is None:
            at_ends = self.returned - self.called > self.delays.longest
            at_ends &= self.order.start >= self.returned - graph_facts()["stream"]["from_end_ns"]
        else:
            at_ends = np.append(self.at_ends, False)[self.call]
        before = np.zeros(len(calls), np.bool_)
        before[self.waits.call[self.waits.kind != FULL_QUEUE]] = True
        before |= calls_named(calls, facts()["impossible"]["graph_launch"])
        found: Mask = known & at_ends
        found[known] &= ~before[self.call[known]]
        return found

    def _gaps(self) -> Numbers:
        """The gap before each operation that is due to its stream; 0 for the first operation of a stream.

        It is negative by at most the length of the previous operation, since operations of a stream start in order.
        """
        order = self.order
        gap: Numbers = np.maximum(self.delays.gap, np.concatenate([[0], order.start[:-1] - order.end[:-1]]))
        if not self.constants_only:
            gap = np.minimum(gap, order.start - np.concatenate([[0], order.end[:-1]]))
        gap[order.bounds[:-1]] = 0
        return gap

    def _launches(self) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], Numbers]:
        """The node that launched each operation (begin or end of its call), and the latency until it can start."""
        launch, latency = np.full(self.size, NONE, np.int32), np.zeros(self.size)
        if LAUNCH not in self.without:
            known, at_end = self.call >= 0, self.at_end
            launch[self.entry[known]] = self.host.start_of[self.call[known]]
            launch[self.entry[at_end]] = self.host.end_of[self.call[at_end]]
            delay = np.where(at_end, self.delays.from_end, self.delays.latency)
            if not self.constants_only:
                delay = np.minimum(delay, self.order.start - np.where(at_end, self.returned, self.called))
            latency[self.entry[known]] = delay[known]
        return launch, latency

    def _chains(self) -> tuple[tuple[Chain, ...], np.ndarray[tuple[int], np.dtype[np.int32]]]:
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
        chain = np.repeat(np.arange(len(found), dtype=np.int32), [one.behind - one.first for one in found])
        return tuple(found), chain

    def _blocking(self, found: StepGraph) -> Edges:
        """Edges to the ends of calls that wait; the recorded time of such a call is reduced to its own overhead."""
        waits, limits = self.waits, graph_facts()["blocking"]
        target = self.host.end_of[waits.call]
        kept = target >= 0
        kind, place, target = waits.kind[kept], waits.place[kept], target[kept]
        whole = found.call + found.rest
        source = self.node[place]
        from_end = kind != FULL_QUEUE
        ready = found.time[source] + np.where(from_end, found.work[source], 0)
        own = np.where(kind == COPY, limits["copy_ns"], limits["call_ns"])
        # A call that found everything done took all of its time itself.
        own = np.where(ready <= found.time[self.host.start_of[waits.call[kept]]], whole[target], own)
        left = whole.copy()
        np.minimum.at(left, target, own)
        # a call that waits for several streams has one end, which is cut once
        found.call[target], found.rest[target] = left[target], 0.0
        began = found.time[self.host.start_of[waits.call[kept]]]
        tail = self._tails(kind, waits.call[kept], place, ready - began, found.time[target] - ready)
        return Edges(kind, source.astype(np.int32), target.astype(np.int32), tail, from_end)

    def _tails(self, kind: Codes, call: Integers, place: Integers, waited: Numbers, recorded: Numbers) -> Numbers:
        """The time of calls that wait from the end of an operation (at `place`) to their return.

        `waited` is for how long each waited for the operation.
        """
        tail = np.minimum(self._longest_tails(kind, call, waited, recorded), recorded)
        if self.constants_only and len(tail):
            staged = staged_copies(self.activity.operations)[self.order.row[place]]
            for alike in grouped(kind * 2 + staged):
                tail[alike] = np.median(tail[alike])
        # what the host takes to free memory, once the GPU is idle
        return np.where(freeing_calls(self.activity)[call], recorded, tail)

    def _longest_tails(self, kind: Codes, call: Integers, waited: Numbers, recorded: Numbers) -> Numbers:
        """How long after the end of what it waited for a call may return: longer if all calls of its name agree on it.

        Drivers that sleep instead of polling return 40 to 140 us late, each time.
        """
        limits = graph_facts()["blocking"]
        found = np.full(len(call), float(limits["tail_ns"]))
        shortest = np.full(len(self.activity.calls), np.inf)
        np.minimum.at(shortest, call, recorded)
        held = np.flatnonzero((kind == SYNC) & (waited > 0) & (recorded == shortest[call]))
        name = self.activity.calls.name[call]
        for rows in grouped(name[held]):
            alike = recorded[held[rows]]
            usual = float(np.median(alike))
            if len(rows) >= limits["least_alike"] and _spread(alike) <= limits["alike"] * usual:
                found[name == name[held[rows[0]]]] = max(usual, limits["tail_ns"])
        return found

    def _polling(self, found: StepGraph) -> Edges:
        """Edges to the call after a gap in which its thread polled a flag; the gap itself is removed."""
        if SYNC in self.without:
            return _no_edges()
        row, place = polling_calls(self.activity, self.call, self.order)
        target = self.host.start_of[row]
        place, target = place[target >= 0], target[target >= 0]
        source = self.node[place]
        found.call[target] = found.rest[target] = 0.0
        offset = found.time[target] - found.time[source] - found.work[source]
        if self.constants_only and len(offset):
            offset = np.full(len(offset), np.median(offset))
        return Edges(np.full(len(target), SYNC, np.int8), source.astype(np.int32), target.astype(np.int32), offset,
                     np.ones(len(target), np.bool_))  # fmt: skip

    def _handing_over(self, found: StepGraph) -> Edges:
        """Edges from the last call of a burst to the thread that waited for it; the waiting gap itself is removed."""
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
        """Edges from the arrival of each rank at a collective to the begin of the transfer on every other rank."""
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
        """Inferred edges to operations that start late after their stream waited for an event."""
        if EVENT in self.without:
            return _no_edges()
        late = found.time[self.entry] - expected(found)[self.entry] > graph_facts()["event"]["least_ns"]
        before, place = self.streams.inferred(np.flatnonzero(late))
        offset = self.order.start[place] - self.order.end[before]
        usual = np.full(len(place), np.median(offset) if self.constants_only and len(place) else np.inf)
        return self._between_streams(EVENT, before, place, usual)

    def _recorded_events(self) -> Edges:
        """Edges of recorded events; the delay is a low quantile of the delays of waits that held a stream."""
        if EVENT in self.without:
            return _no_edges()
        before, place = self.streams.by_recorded_events()
        limits = graph_facts()
        offset = self.order.start[place] - self.order.end[before]
        held = offset[offset <= limits["event"]["within_ns"]]
        usual = np.quantile(held, limits["stream"]["latency_quantile"]) if len(held) else limits["stream"]["gap_ns"]
        return self._between_streams(EVENT, before, place, np.full(len(place), usual))

    def _edges_of_graphs(self, found: StepGraph) -> Edges:
        """Edges between the nodes of a recorded CUDA graph, whose times may overlap slightly."""
        if EVENT in self.without:
            return _no_edges()
        places = np.empty(len(self.order), np.int64)
        places[self.order.row] = np.arange(len(self.order))
        before, place = (places[rows] for rows in self.activity.dependencies)
        kept = self.order.end[before] <= self.order.start[place] + graph_facts()["event"]["ahead_ns"]
        kept &= found.chain[self.node[before]] != found.chain[self.entry[place]]
        before, place = before[kept], place[kept]
        offset = self.order.start[place] - self.order.end[before]
        usual = np.full(len(place), np.median(offset) if self.constants_only and len(place) else np.inf)
        return self._between_streams(EVENT, before, place, usual)

    def _between_streams(self, kind: int, before: Integers, place: Integers, usual: Numbers) -> Edges:
        """Edges from ends of operations to starts of others, with the usual delay or the recorded one if shorter."""
        recorded = self.order.start[place] - self.order.end[before]
        offset = usual if self.constants_only else np.minimum(recorded, usual)
        return Edges(np.full(len(place), kind, np.int8), self.node[before].astype(np.int32),
                     self.entry[place].astype(np.int32), offset, np.ones(len(place), np.bool_))  # fmt: skip

    def _release(self, found: StepGraph) -> None:
        """Hold streams that ran work from before the recording until their first operation starts.

        A stream did so if nothing recorded ran on its GPU since that operation was launched, and no call had waited for
        all streams before.
        """
        order, operations, least = self.order, self.activity.operations, facts()["in_flight"]["least_ns"]
        first = order.bounds[:-1]
        late = found.time[self.entry[first]] - expected(found)[self.entry[first]]
        unknown = np.isnan(self.called[first])
        waited = (order.start[first] - self.returned[first] >= least) & (late >= least)
        first = first[(unknown & (late > 0)) | waited]
        calls = self.activity.calls
        waits = calls_named(calls, graph_facts()["blocking"]["waits_for_device"]) | freeing_calls(self.activity)
        waited_for_all, process = calls.end[waits], calls.process[waits]
        _, gpu = numbered(operations.process, operations.device)
        on_gpu = grouped(gpu) if len(first) else []
        for place in first.tolist():
            rows = on_gpu[gpu[order.row[place]]]
            begun = int(np.searchsorted(operations.start[rows], order.start[place]))
            called = -np.inf if np.isnan(self.called[place]) else self.called[place]
            idle = (waited_for_all <= called) & (process == operations.process[order.row[place]])
            if not (operations.end[rows[:begun]] > called).any() and not idle.any():
                found.rest[self.entry[place]] = found.time[self.entry[place]]


def _spread(times: Numbers) -> float:
    """The median absolute deviation from the median."""
    return float(np.median(np.abs(times - np.median(times))))


def _gap_of_queued(queued: Numbers, others: Numbers) -> float:
    """The gap before a queued operation, from those before queued operations and before others of the streams.

    It is no longer than what a quarter of the others kept to, which also waited for their launches: one or two queued
    copies of a recording may be 25 us apart where thousands of kernels start 2 us after the operation before.
    """
    limits = graph_facts()["stream"]
    typical = _typical(queued) if len(queued) else float(limits["gap_ns"])
    return min(typical, float(np.quantile(others, limits["latency_quantile"]))) if len(others) else typical


def _typical(gaps: Numbers) -> float:
    """The mean of values near the median: thousands of gaps add up, and a median may be off by a tenth."""
    median = float(np.median(gaps))
    near = gaps[np.abs(gaps - median) <= graph_facts()["evidence"]["explained_ns"]]
    return float(near.mean()) if len(near) else median


def expected(graph: StepGraph) -> Numbers:
    """When the edges would let each node go if everything before it happened at its recorded time."""
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
    """All edges in the order of their targets."""
    joined = Edges(
        np.concatenate([one.kind for one in parts]), np.concatenate([one.source for one in parts]),
        np.concatenate([one.target for one in parts]), np.concatenate([one.offset for one in parts]),
        np.concatenate([one.from_end for one in parts]),
    )  # fmt: skip
    return joined.at(np.argsort(joined.target, kind="stable"))
