"""A replay of random graphs equals a schedule worked out node by node: a test of the solver, not of any saving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import Activity

from ncu_tools.timeline.graph.build import step_graph
from ncu_tools.timeline.graph.critical_path import PATH_KINDS, CriticalPath, Stretch, critical_path
from ncu_tools.timeline.graph.replay import ReplayTimes, replay, unchanged
from ncu_tools.timeline.graph.step_graph import EDGE_KINDS, Numbers, StepGraph
from tests.support.activities import Call, Operation, recording

NAMES = ("cudaLaunchKernel", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaStreamWaitEvent", "cudaMemcpyAsync")


COLLECTIVE = "ncclDevKernel_AllReduce"


@st.composite
def recordings(draw: st.DrawFn, kernels: Sequence[str] = ("a", "b")) -> Activity:
    """Calls of up to three threads, and kernels and copies of up to three streams on two GPUs, some of one graph."""
    operations, calls = list[Operation](), list[Call]()
    for thread in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, 50_000))
        for _ in range(draw(st.integers(1, 12))):
            name, lasts = draw(st.sampled_from(NAMES)), draw(st.integers(0, 300_000))
            number = len(calls)
            calls.append(Call(at, at + lasts, name, number, thread=thread))
            for _ in range(draw(st.integers(0, 2)) if name in ("cudaLaunchKernel", "cudaMemcpyAsync") else 0):
                start, runs = at + draw(st.integers(-5_000, 200_000)), draw(st.integers(0, 400_000))
                device, stream = draw(st.integers(0, 1)), draw(st.integers(1, 3))
                kind = activity.MEMCPY if name == "cudaMemcpyAsync" else activity.KERNEL
                operations.append(
                    Operation(start, start + runs, draw(st.sampled_from(kernels)),
                              draw(st.sampled_from([number, number, None])), stream=stream,
                              device=device, kind=kind, direction=activity.DEVICE_TO_HOST,
                              source_memory=activity.PAGEABLE)
                )  # fmt: skip
            at += lasts + draw(st.sampled_from([0, 1_000, 50_000, 400_000]))
    operations.append(Operation(0, 1_000, "a"))
    return recording(operations, calls)


def brute_force(graph: StepGraph, times: ReplayTimes, *, lags: bool) -> Numbers:
    """Every node by the rule of the graph, in the order of its segments, one after the other."""
    found = np.zeros(len(graph))
    rest = np.where(graph.rest < 0, np.maximum(times.rest, -times.work), times.rest)
    for chain, first, behind in graph.segments.tolist():
        for node in range(first, behind):
            is_first = node == graph.chains[chain].first
            ways = [(0.0 if is_first else found[node - 1] + times.work[node - 1]) + times.call[node] + rest[node]]
            if graph.launch[node] >= 0:
                ways.append(found[graph.launch[node]] + graph.latency[node] * times.latency_factor)
            for edge in np.flatnonzero(graph.edges.target == node).tolist():
                source = int(graph.edges.source[edge])
                work = times.work[source] if graph.edges.from_end[edge] else 0.0
                ways.append(found[source] + work + times.offset[edge])
            found[node] = max(ways) + (graph.lag[node] if lags else 0.0)
    return found


@given(recordings(), st.floats(0, 2), st.floats(0, 2), st.booleans())
def test_a_replay_is_the_schedule_of_its_nodes(found: Activity, work: float, host: float, lags: bool) -> None:
    graph = step_graph(found)

    def change(times: ReplayTimes) -> None:
        times.work *= work
        times.call *= host
        times.latency_factor = host

    own = ReplayTimes(graph.work * work, graph.call * host, graph.rest.copy(), host, graph.edges.offset.copy())
    replayed = replay(graph, [change, unchanged], lags=lags, keep_times=True)
    wanted = brute_force(graph, own, lags=lags)
    assert np.allclose(replayed.reached[0], wanted, rtol=0, atol=0.01)
    lasts = [one.behind - 1 for one in graph.chains]
    assert np.isclose(replayed.end[0], (wanted + own.work)[lasts].max(), rtol=0, atol=0.01)


@given(recordings())
def test_an_unchanged_replay_with_all_lags_is_the_recording(found: Activity) -> None:
    graph = step_graph(found)
    assume(
        (graph.rest >= -graph.work).all()
    )  # what ends before the one before it on its stream is replayed with its end
    replayed = replay(graph, [unchanged], lags=True, keep_times=True)
    assert np.abs(replayed.reached[0] - graph.time).max() <= 1.0  # medians of a few times may be half a nanosecond
    assert replayed.end[0] >= found.operations.end.max() - graph.origin


@given(recordings())
def test_every_node_is_replayed_once_behind_what_it_waits_for(found: Activity) -> None:
    graph = step_graph(found)
    done = np.zeros(len(graph), np.bool_)
    for _, first, behind in graph.segments.tolist():
        assert not done[first:behind].any()
        nodes = np.arange(first, behind)
        sources = [
            graph.launch[nodes][graph.launch[nodes] >= 0],
            graph.edges.source[np.isin(graph.edges.target, nodes)],
        ]
        assert done[np.concatenate(sources)].all()
        done[first:behind] = True
    assert done.all()


def plain_path(graph: StepGraph, found: Activity, time: Numbers, lag: Numbers) -> tuple[CriticalPath, list[Numbers]]:
    """The critical path, one node after the other, each by the last way that it waited for; and each stretch's time."""
    kinds, work, waited = (
        dict.fromkeys(PATH_KINDS, 0.0),
        np.zeros(len(found.operations)),
        np.zeros(len(found.operations)),
    )
    ends = [time[one.behind - 1] + graph.work[one.behind - 1] for one in graph.chains]
    node, from_end, stretches = graph.chains[int(np.argmax(ends))].behind - 1, True, []
    spent = list[Numbers]()
    while True:
        chain, row = graph.chains[graph.chain[node]], int(graph.row[node])
        reached, before = float(time[node] + (graph.work[node] if from_end else 0)), dict(kinds)
        while True:
            if not chain.is_host:
                name = found.operations.names[found.operations.name[row]]
                copies = found.operations.kind[row] == activity.MEMCPY
                kind = "copies" if copies else "communication" if name == COLLECTIVE else "kernels"
                kinds[kind] += graph.work[node] if from_end else 0
                work[row] += graph.work[node] if from_end else 0
                waited[row] += lag[node]
            kinds["unexplained"] += lag[node]
            is_first = node == chain.first
            own = (0.0 if is_first else time[node - 1] + graph.work[node - 1]) + graph.call[node] + graph.rest[node]
            ways = [(-np.inf, "", -1, False)]
            if graph.launch[node] >= 0:
                source = int(graph.launch[node])
                ways = [(time[source] + graph.latency[node], "launch and gaps", source, False)]
            for edge in np.flatnonzero(graph.edges.target == node).tolist():
                source, at_end = int(graph.edges.source[edge]), bool(graph.edges.from_end[edge])
                arrives = time[source] + (graph.work[source] if at_end else 0) + graph.edges.offset[edge]
                ways.append((arrives, OF_EDGES[EDGE_KINDS[graph.edges.kind[edge]]], source, at_end))
            arrives, kind, source, at_end = max(ways, key=lambda way: way[0])
            if arrives > own:
                kinds[kind] += time[node] - lag[node] - time[source] - (graph.work[source] if at_end else 0)
                break
            if chain.is_host:
                kinds["API calls"] += graph.call[node]
                kinds["host code"] += graph.rest[node]
            elif is_first:
                kinds["unexplained"] += graph.rest[node]
                waited[row] += graph.rest[node]
            else:
                kinds["launch and gaps"] += graph.rest[node]
            if is_first:
                source = -1
                break
            node, from_end, row = node - 1, True, int(graph.row[node - 1])
        spent.append(np.array([kinds[name] - before[name] for name in PATH_KINDS]))
        stretches.append(Stretch(int(graph.chain[node]), float(time[node]), reached, int(spent[-1].argmax())))
        if source < 0:
            by_kind = np.array(list(kinds.values()))
            return CriticalPath(by_kind, work, waited, tuple(reversed(stretches))), spent[::-1]
        node, from_end = source, at_end


OF_EDGES = {
    "sync": "API calls", "copy": "API calls", "full queue": "API calls", "hand-over": "hand-over",
    "event": "launch and gaps", "stream order": "launch and gaps", "collective": "communication", "launch": "API calls",
}  # fmt: skip
"""The kind of time on a path from each kind of edge."""


@given(recordings())
def test_the_critical_path_is_as_long_as_the_recording(found: Activity) -> None:
    graph = step_graph(found)
    path = critical_path(graph, found)
    assert np.isclose(path.length_ns, replay(graph, [unchanged], lags=True).end[0], rtol=0, atol=0.01)
    assert (path.by_kind >= -30_000).all()  # offsets of clocks may make a kind negative by as much


@given(recordings(("a", COLLECTIVE)), st.integers(0, 7), st.booleans())
def test_the_critical_path_is_what_each_node_waited_for_from_the_end_on(
    found: Activity, kind: int, is_replayed: bool
) -> None:
    graph = step_graph(found)
    edges = graph.edges  # of another kind, and half of them from the start of an operation, which takes as long
    starts = edges.from_end & (np.arange(len(edges)) % 2 == kind % 2)
    edges = replace(
        edges, kind=((edges.kind + kind) % 8).astype(np.int8), from_end=edges.from_end & ~starts,
        offset=edges.offset + np.where(starts, graph.work[edges.source], 0),
    )  # fmt: skip
    rest = graph.rest.copy()
    rest[graph.first_of_streams[: kind % 3]] += 90_000  # work from before the recording
    graph = replace(graph, edges=edges, rest=rest)
    graph = replace(graph, time=replay(graph, [unchanged], lags=True, keep_times=True).reached[0])
    reached = replay(graph, [unchanged], lags=False, keep_times=True).reached[0] if is_replayed else None
    time, lag = (graph.time, graph.lag) if reached is None else (reached, np.zeros(len(graph)))
    path, (plain, spent) = critical_path(graph, found, reached), plain_path(graph, found, time, lag)
    assert np.allclose(path.by_kind, plain.by_kind, rtol=0, atol=0.01)
    assert np.allclose(path.work, plain.work, rtol=0, atol=0.01)
    assert np.allclose(path.waited, plain.waited, rtol=0, atol=0.01)
    for ours, theirs, each in zip(path.stretches, plain.stretches, spent, strict=True):
        assert ours.chain == theirs.chain
        assert each[ours.kind] >= each.max() - 0.01
        assert (ours.start_ns, ours.end_ns) == pytest.approx((theirs.start_ns, theirs.end_ns), abs=0.01)


@given(recordings())
def test_nothing_is_gained_by_longer_operations(found: Activity) -> None:
    graph = step_graph(found)

    def longer(times: ReplayTimes) -> None:
        times.work *= 1.5

    for lags in (True, False):
        before, after = replay(graph, [unchanged, longer], lags=lags).end
        assert after >= before - 0.01
