"""A replay of random graphs equals a schedule worked out node by node: a test of the solver, not of any saving."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import Activity

from ncu_tools.timeline.graph.build import step_graph
from ncu_tools.timeline.graph.critical_path import critical_path
from ncu_tools.timeline.graph.replay import ReplayTimes, replay, unchanged
from ncu_tools.timeline.graph.step_graph import Numbers, StepGraph
from tests.support.activities import Call, Operation, recording

NAMES = ("cudaLaunchKernel", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaStreamWaitEvent", "cudaMemcpyAsync")


@st.composite
def recordings(draw: st.DrawFn) -> Activity:
    """Calls of up to three threads, and kernels and copies of up to three streams on two GPUs, some of one graph."""
    operations, calls = list[Operation](), list[Call]()
    for thread in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, 50_000))
        for _ in range(draw(st.integers(1, 12))):
            name, lasts = draw(st.sampled_from(NAMES)), draw(st.integers(0, 300_000))
            number = len(calls)
            calls.append(Call(at, at + lasts, name, number, thread=thread))
            for _ in range(draw(st.integers(0, 2)) if name in ("cudaLaunchKernel", "cudaMemcpyAsync") else 0):
                start = at + draw(st.integers(-5_000, 200_000))
                kind = activity.MEMCPY if name == "cudaMemcpyAsync" else activity.KERNEL
                operations.append(
                    Operation(start, start + draw(st.integers(0, 400_000)), draw(st.sampled_from("ab")),
                              draw(st.sampled_from([number, number, None])), stream=draw(st.integers(1, 3)),
                              device=draw(st.integers(0, 1)), kind=kind, direction=activity.DEVICE_TO_HOST,
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


@given(recordings())
def test_the_critical_path_is_as_long_as_the_recording(found: Activity) -> None:
    graph = step_graph(found)
    path = critical_path(graph, found)
    assert np.isclose(path.length_ns, replay(graph, [unchanged], lags=True).end[0], rtol=0, atol=0.01)
    assert (path.by_kind >= -30_000).all()  # offsets of clocks may make a kind negative by as much


@given(recordings())
def test_nothing_is_gained_by_longer_operations(found: Activity) -> None:
    graph = step_graph(found)

    def longer(times: ReplayTimes) -> None:
        times.work *= 1.5

    for lags in (True, False):
        before, after = replay(graph, [unchanged, longer], lags=lags).end
        assert after >= before - 0.01
