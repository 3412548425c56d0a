"""Levers on the host's part of a step: data loading, launches, batches."""

from __future__ import annotations

import numpy as np
from ncu_parsers.timelines.activity.activity import OS_CALL, Integers

from ncu_tools.numbers.number_format import counted, duration, percent
from ncu_tools.timeline.call_kinds import (
    ALLOCATOR,
    LAUNCH,
    MODULE_LOADING,
    calls_named,
    calls_of_kind,
    facts,
    names_that_load_data,
)
from ncu_tools.timeline.gaps import ThreadsOfCalls
from ncu_tools.timeline.graph.replay import Change, ReplayTimes, replay, unchanged
from ncu_tools.timeline.graph.step_graph import COPY, FULL_QUEUE, HAND_OVER, SYNC, Mask, StepGraph
from ncu_tools.timeline.graph.what_if import WhatIf, all_of, scaled, without_host, without_host_time
from ncu_tools.timeline.intervals import IntervalSet
from ncu_tools.timeline.levers.lever import StepLever, step_lever
from ncu_tools.timeline.levers.situation import StepSituation, lever_facts

NO_ROWS = np.zeros(0, np.int64)


@step_lever("input-pipeline")
def input_pipeline(step: StepSituation) -> StepLever | None:
    """Load data ahead: ranges of launching threads that load or prepare data."""
    ranges, graph = step.activity.ranges, step.graph
    if not len(ranges):
        return None
    loads = names_that_load_data(ranges.names)[ranges.name] & (ranges.kind != OS_CALL)
    spans, loading = [], 0
    for thread in {one.thread for one in graph.chains if one.thread is not None}:
        rows = np.flatnonzero(loads & (ranges.thread == thread))
        if len(rows):
            spans.append((thread, IntervalSet.union_of(ranges.start[rows], ranges.end[rows])))
            loading += spans[-1][1].total
    if not loading:
        return None
    gone = without_host_time(graph, step.activity, spans)
    hidden = min(1.0, max(graph.length - loading, 0) / loading)
    least, likely = (_part_of(gone, share * hidden) for share in lever_facts()["input_pipeline"]["hidden"])
    rows = np.flatnonzero(loads)
    longest = ranges.names[int(ranges.name[rows[np.argmax((ranges.end - ranges.start)[rows])]])]
    return StepLever(
        WhatIf("load data ahead", least, likely, gone),
        (f"{duration(loading)} in ranges that load or prepare data, as {longest}",), NO_ROWS,
    )  # fmt: skip


def _part_of(gone: Change, share: float) -> Change:
    """The change, with only a share of its reduction of host times."""

    def change(times: ReplayTimes) -> None:
        call, rest = times.call.copy(), times.rest.copy()
        gone(times)
        times.call[:] = call + share * (times.call - call)
        times.rest[:] = rest + share * (times.rest - rest)

    return change


@step_lever("host-code")
def host_code(step: StepSituation) -> StepLever | None:
    """Shorten long gaps between calls of launching threads, except loading of data, and long hand-overs."""
    graph, ranges, least = step.graph, step.activity.ranges, lever_facts()["host_code"]["least_gap_ns"]
    nodes = np.flatnonzero(graph.is_host & (graph.rest >= least))
    if len(ranges):
        loads = names_that_load_data(ranges.names)[ranges.name] & (ranges.kind != OS_CALL)
        loading = IntervalSet.union_of(ranges.start[loads], ranges.end[loads])
        end = graph.time[nodes].astype(np.int64) + graph.origin
        gap = graph.rest[nodes].astype(np.int64)
        nodes = nodes[2 * loading.within(end - gap, end) < gap]
    handed = np.flatnonzero((graph.edges.kind == HAND_OVER) & (graph.edges.offset >= least))
    if not len(nodes) and not len(handed):
        return None

    def gone(times: ReplayTimes) -> None:
        times.rest[nodes] = 0.0
        times.offset[handed] = 0.0

    evidence = []
    if len(nodes):
        longest = nodes[int(np.argmax(graph.rest[nodes]))]
        where = _range_over(step, int(longest))
        evidence.append(
            f"{counted(len(nodes), 'gap', 'gaps')} of over 1 ms between calls, "
            f"{duration(float(graph.rest[nodes].sum()))}; the longest, {duration(float(graph.rest[longest]))}"
            f"{f', in {where}' if where else ''}"
        )
    if len(handed):
        evidence.append(
            f"{counted(len(handed), 'time', 'times')} a thread launches over 1 ms behind the last launch of another, "
            f"{duration(float(graph.edges.offset[handed].sum()))}"
        )
    return StepLever(
        WhatIf("shorten what the host does between launches", unchanged, None, gone), tuple(evidence), NO_ROWS
    )


def _range_over(step: StepSituation, node: int) -> str | None:
    """The innermost range of the thread over at least half of the time before a node; None if there is none."""
    thread = step.graph.chains[step.graph.chain[node]].thread
    end = int(step.graph.time[node]) + step.graph.origin
    threads = ThreadsOfCalls(step.activity, step.call)
    found = threads.of(thread).range_over(end - int(step.graph.rest[node]), end) if thread is not None else None
    return found[0] if found is not None else None


@step_lever("warm-up")
def warm_up(step: StepSituation) -> StepLever | None:
    """Warm up first: calls that load code or allocate memory, and launches so slow that they seem to load code."""
    graph, calls, least = step.graph, step.activity.calls, lever_facts()["warm_up"]["least_ns"]
    lasts = calls.end - calls.start
    launches = calls_of_kind(calls, LAUNCH) & ~calls_named(calls, facts()["impossible"]["graph_launch"])
    loads, allocates = calls_of_kind(calls, MODULE_LOADING), calls_of_kind(calls, ALLOCATOR)
    lazy = launches & (lasts >= least)
    waits = graph.row[graph.edges.target[np.isin(graph.edges.kind, (SYNC, COPY, FULL_QUEUE))]]
    lazy[waits] = allocates[waits] = False  # what frees memory may wait for the GPU, too
    creates = _creating_contexts(step, launches | loads | calls_of_kind(calls, ALLOCATOR))
    creates[waits] = False
    begins = np.flatnonzero(graph.is_host & ~graph.is_end & (graph.row >= 0))
    begins = begins[(loads | allocates | lazy | creates)[graph.row[begins]]]
    behind = begins + 1
    same = (behind < len(graph)) & (graph.chain[np.minimum(behind, len(graph) - 1)] == graph.chain[begins])
    begins, behind = begins[same], behind[same]
    if not len(begins):
        return None
    usual = float(np.median(lasts[launches])) if launches.any() else 0.0
    left = np.where(lazy[graph.row[begins]], usual, 0.0)
    excess = np.maximum(lasts[graph.row[begins]] - left, 0.0)

    def gone(times: ReplayTimes) -> None:
        times.call[behind] = np.maximum(times.call[behind] - excess, 0.0)

    evidence = tuple(
        f"{counted(int(mask.sum()), one, more)}{what}: {duration(float(lasts[mask].sum()))}"
        for mask, one, more, what in (
            (lazy, "launch", "launches", " of over 1 ms, as where code is loaded at its first use"),
            (creates, "first call", "first calls", " of a program of over 1 ms, as where the context is created"),
            (loads, "call that loads or unloads code", "calls that load or unload code", ""),
            (allocates, "call that allocates or frees memory", "calls that allocate or free memory", ""),
        )
        if mask.any()
    )
    return StepLever(WhatIf("warm up before the steps that count", unchanged, gone, gone), evidence, NO_ROWS)


def _creating_contexts(step: StepSituation, known: Mask) -> Mask:
    """Mask of the first call of each process that takes long, except those of `known` kinds.

    CUDA creates the context of a GPU in the first call that needs it.
    """
    calls, found = step.activity.calls, np.zeros(len(step.activity.calls), np.bool_)
    long = np.flatnonzero(calls.end - calls.start >= lever_facts()["warm_up"]["least_ns"])
    for process in np.unique(calls.process[long]).tolist():
        mine = long[calls.process[long] == process]
        found[mine[np.argmin(calls.start[mine])]] = True
    launched = step.call[step.call >= 0]
    found[calls.start > calls.start[launched].min(initial=np.iinfo(np.int64).max)] = False
    return found & ~known


@step_lever("cuda-graphs")
def cuda_graphs(step: StepSituation) -> StepLever | None:
    """Launch by CUDA graphs: pieces of threads without a waiting call, with several launches that are no graphs yet."""
    graph, limits = step.graph, lever_facts()["graphs"]
    pieces = _pieces(step, limits["least_launches"])
    if not pieces:
        return None
    nodes = np.concatenate([np.arange(first + 1, last + 2) for first, last, _ in pieces])
    nodes = nodes[nodes < len(graph)]
    nodes = nodes[graph.chain[nodes] == graph.chain[nodes - 1]]
    first = np.array([one[0] for one in pieces], np.int64)
    launches = np.array([one[2] for one in pieces], np.int64)
    gaps = graph.call[nodes] + graph.rest[nodes]
    is_short = gaps < limits["short_gap_ns"]
    (cheap, dear), short = limits["node_ns"], nodes[is_short]
    middle = float(np.sqrt(cheap * dear))
    of_pieces = counted(len(pieces), "piece", "pieces")
    return StepLever(
        WhatIf(
            "launch by CUDA graphs",
            _captured(graph, short, first, launches, dear),
            _captured(graph, short, first, launches, middle),
            _captured(graph, nodes, first, launches, cheap),
        ),
        (
            f"{counted(int(launches.sum()), 'launch', 'launches')} in {of_pieces} between calls that wait; "
            f"{duration(float(gaps.sum()))} of host code and calls there, "
            f"{duration(float(gaps[is_short].sum()))} in gaps "
            f"under {duration(limits['short_gap_ns'])}",
        ),
        np.flatnonzero(step.call >= 0),
    )


def _pieces(step: StepSituation, least: int) -> list[tuple[int, int, int]]:
    """First launch, last launch (nodes) and number of launches of each piece of a thread without a waiting call."""
    graph, calls = step.graph, step.activity.calls
    launches = np.zeros(len(graph), np.bool_)
    launching = graph.launching_node(np.arange(len(step.call)))
    launches[launching[launching >= 0]] = True
    of_graphs = calls_named(calls, facts()["impossible"]["graph_launch"])
    cuts = np.zeros(len(graph), np.bool_)
    cuts[graph.edges.target[np.isin(graph.edges.kind, (SYNC, COPY))]] = True
    waiting = np.zeros(len(calls), np.bool_)
    waiting[graph.unmatched] = True
    found = []
    for chain in graph.chains:
        if not chain.is_host:
            continue
        nodes = np.arange(chain.first, chain.behind)
        row = graph.row[nodes]
        known = row >= 0
        cut = cuts[nodes] | (known & graph.is_end[nodes] & waiting[row])
        cut |= known & of_graphs[row]
        for piece in np.split(nodes, np.flatnonzero(cut)):
            own = piece[launches[piece] & ~graph.is_end[piece]]
            own = own[~of_graphs[graph.row[own]]]
            if len(own) >= least:
                found.append((int(own[0]), int(own[-1]), len(own)))
    return found


def _captured(graph: StepGraph, gone: Integers, first: Integers, launches: Integers, cost: float) -> Change:
    """Remove the host time before these nodes; the launch of each piece's graph costs `cost` ns per node.

    Operations of a graph do not wait one by one for room in the queue.
    """
    full = np.flatnonzero((graph.edges.kind == FULL_QUEUE) & np.isin(graph.edges.target, gone))

    def change(times: ReplayTimes) -> None:
        times.call[gone] = times.rest[gone] = 0.0
        times.call[first] += launches * cost
        times.offset[full] = -np.inf

    return change


@step_lever("batch")
def larger_batches(step: StepSituation) -> StepLever | None:
    """Work on twice the samples per step; only if the GPU alone would take less than half of the step.

    Host time outside of pieces with launches counts as time per sample, such as decoding an image.
    """
    graph = step.graph
    alone = float(replay(graph, [without_host(graph)], lags=False).end[0])
    if not graph.length or 2 * alone > graph.length:
        return None
    outside = graph.is_host
    for first, last, _ in _pieces(step, lever_facts()["graphs"]["least_launches"]):
        outside[first + 1 : last + 2] = False

    def twice_the_host(times: ReplayTimes) -> None:
        times.call[outside] *= 2.0
        times.rest[outside] *= 2.0

    twice = all_of(twice_the_host, scaled(graph, np.arange(len(step.call)), 2.0))
    return StepLever(
        WhatIf("work on larger batches", twice, None, twice_the_host, times=2.0),
        (f"without the host's time the GPU takes {duration(alone)}, {percent(alone / graph.length)} of the recording",),
        np.arange(len(step.call)),
    )
