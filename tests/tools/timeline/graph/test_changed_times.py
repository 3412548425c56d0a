"""What each what-if changes of a graph: the nodes and edges that it names, by a slow definition, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.timelines.activity.activity import Activity

from ncu_tools.timeline.graph import what_if
from ncu_tools.timeline.graph.build import step_graph
from ncu_tools.timeline.graph.replay import Change, ReplayTimes, replay, unchanged
from ncu_tools.timeline.graph.schedule import scheduled
from ncu_tools.timeline.graph.step_graph import HAND_OVER, Edges, StepGraph
from ncu_tools.timeline.graph.what_if import WhatIf, ends, savings
from ncu_tools.timeline.intervals import IntervalSet
from tests.support.activities import Call, Operation, recording
from tests.tools.timeline.graph.test_replay import recordings

US = 1_000


def own_times(graph: StepGraph) -> ReplayTimes:
    return ReplayTimes(graph.work.copy(), graph.call.copy(), graph.rest.copy(), 1.0, graph.edges.offset.copy())


def assert_changed(graph: StepGraph, change: Change, expected: ReplayTimes) -> None:
    times = own_times(graph)
    change(times)
    for name in ("work", "call", "rest", "offset"):
        assert getattr(times, name) == pytest.approx(getattr(expected, name)), name
    assert times.latency_factor == expected.latency_factor


@given(recordings(), st.floats(0, 2))
def test_a_factor_on_a_kind_of_time_scales_all_of_it_and_nothing_else(found: Activity, factor: float) -> None:
    graph = step_graph(found)
    graph.rest[graph.first_of_streams] = 7 * US  # work from before the recording
    for node in range(len(graph)):
        assert graph.is_host[node] or graph.call[node] == 0
    wanted = own_times(graph)
    wanted.call *= factor
    assert_changed(graph, what_if.api_calls(graph, factor), wanted)

    wanted = own_times(graph)
    wanted.rest[graph.is_host] *= factor
    wanted.offset[graph.edges.kind == HAND_OVER] *= factor
    assert_changed(graph, what_if.host_code(graph, factor), wanted)

    wanted = own_times(graph)
    wanted.latency_factor = factor
    for number, chain in enumerate(graph.chains):
        for node in range(chain.first + 1, chain.behind) if not chain.is_host else ():
            assert graph.chain[node] == number
            wanted.rest[node] *= factor if graph.rest[node] > 0 else 1
    assert_changed(graph, what_if.launch_gaps(graph, factor), wanted)

    wanted = own_times(graph)
    wanted.call[:] = 0
    wanted.rest[graph.is_host] = 0
    wanted.offset[graph.edges.kind == HAND_OVER] = 0
    assert_changed(graph, what_if.without_host(graph), wanted)


@given(recordings(), st.lists(st.integers(0, 80), max_size=20), st.sampled_from([10 * US, 60 * US, 500 * US]))
def test_operations_that_are_gone_take_their_gaps_and_calls_with_them(
    found: Activity, places: list[int], shorter: int
) -> None:
    graph = step_graph(found)
    rows = np.unique([place % len(found.operations) for place in places]).astype(np.int64)
    launching = graph.launching_node(np.arange(len(found.operations))).tolist()
    wanted, gapless = own_times(graph), own_times(graph)
    for row in rows.tolist():
        node, entry = int(graph.operation_node[row]), int(graph.entry_node[row])
        wanted.work[node] = 0
        if entry not in graph.first_of_streams:
            wanted.rest[entry] = 0
        for edge in np.flatnonzero((graph.edges.target == node) | (graph.edges.target == entry)).tolist():
            wanted.offset[edge] = -np.inf
        begin = launching[row]
        launched = [one for one, by in enumerate(launching) if by == begin]
        if begin >= 0 and set(launched) <= set(rows.tolist()) and begin + 1 < graph.chains[graph.chain[begin]].behind:
            wanted.call[begin + 1] = 0
        if begin >= 0 and graph.call[begin] + graph.rest[begin] < shorter:
            gapless.call[begin] = gapless.rest[begin] = 0
    assert_changed(graph, what_if.without(graph, rows), wanted)
    mask = np.isin(np.arange(len(found.operations)), rows)
    assert_changed(graph, what_if.without(graph, mask), wanted)
    assert_changed(graph, what_if.without_gaps_before(graph, rows, shorter), gapless)
    wanted = own_times(graph)
    wanted.work[graph.operation_node[rows]] *= 0.25
    assert_changed(graph, what_if.scaled(graph, rows, 0.25), wanted)


def covered(low: float, high: float, spans: list[tuple[int, int]]) -> int:
    """How much of an interval some spans cover, which do not overlap."""
    return sum(max(0, min(int(high), end) - max(int(low), start)) for start, end in spans)


@given(recordings(), st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), min_size=1, max_size=4))
def test_host_time_in_moments_of_a_thread_is_gone_by_its_share(found: Activity, parts: list[tuple[int, int]]) -> None:
    graph = step_graph(found)
    moments, at = list[tuple[int, int]](), graph.origin
    for gap, lasts in parts:
        moments.append((at + 20 * US * gap, at + 20 * US * (gap + lasts)))
        at = moments[-1][1] + 1
    threads = [one for one in graph.chains if one.is_host]
    if not threads:
        return
    thread, wanted = threads[0], own_times(graph)
    mine = found.calls.thread == thread.thread
    calls = IntervalSet.union_of(found.calls.start[mine], found.calls.end[mine])
    in_calls = [
        (max(low, start), min(high, end))
        for low, high in moments
        for start, end in zip(calls.start.tolist(), calls.end.tolist(), strict=True) if min(high, end) > max(low, start)
    ]  # fmt: skip
    for node in range(thread.first, thread.behind):
        high = graph.time[node].astype(np.int64) + graph.origin
        low = graph.origin if node == thread.first else graph.time[node - 1].astype(np.int64) + graph.origin
        inside, calling = covered(low, high, moments), covered(low, high, in_calls)
        if graph.call[node] > 0:
            wanted.call[node] *= 1 - min(calling / max(graph.call[node], 1), 1)
        if graph.rest[node] > 0:
            wanted.rest[node] *= 1 - min((inside - calling) / max(graph.rest[node], 1), 1)
    starts, stops = (np.array(column, np.int64) for column in zip(*moments, strict=True))
    spans = [(thread.thread or 0, IntervalSet.union_of(starts, stops))]
    assert_changed(graph, what_if.without_host_time(graph, found, spans), wanted)
    assert_changed(graph, what_if.without_host_time(graph, found, []), own_times(graph))


class TestSavings:
    """A kernel of 100 us, then one of 60 us that begins 40 us late for no known reason."""

    GRAPH = step_graph(recording([Operation(0, 100 * US, "a"), Operation(141 * US, 201 * US, "b")]))

    @staticmethod
    def shorter(ns: float) -> Change:
        def change(times: ReplayTimes) -> None:
            times.work[0] -= ns

        return change

    def test_are_an_interval_over_readings_and_waits_with_the_middle_of_the_likely_one(self) -> None:
        least, likely, most = (self.shorter(us * US) for us in (5, 10, 30))
        kept, dropped = ends(self.GRAPH, [likely])
        assert (kept[0], dropped[0]) == (201 * US, 161 * US)
        assert (kept[1], dropped[1]) == (191 * US, 151 * US)
        three, two, none = savings(
            self.GRAPH,
            [WhatIf("three", least, likely, most), WhatIf.of("two", likely), WhatIf("none", least, None, most)],
        )
        assert (three.low_ns, three.likely_ns, three.high_ns) == (5 * US, 10 * US, 30 * US)
        assert (two.low_ns, two.likely_ns, two.high_ns) == (10 * US, 10 * US, 10 * US)
        assert (none.low_ns, none.likely_ns, none.high_ns) == (5 * US, None, 30 * US)
        assert WhatIf("", least, least, most).readings == [least, most]

    def test_of_a_step_that_does_the_work_of_two_are_given_per_old_step(self) -> None:
        (one,) = savings(self.GRAPH, [replace(WhatIf.of("", unchanged), times=2.0)])
        assert (one.low_ns, one.likely_ns, one.high_ns) == (80.5 * US, (80.5 + 100.5) / 2 * US, 100.5 * US)
        both = replace(WhatIf.of("a", self.shorter(20 * US)), times=2.0) & replace(WhatIf.of("b", unchanged), times=1.5)
        (two,) = savings(self.GRAPH, [both])
        assert (both.title, both.times) == ("a, b", 3)
        assert two.high_ns == pytest.approx(201 * US - 181 / 3 * US)

    def test_of_several_changes_at_once_equal_one_change_after_the_other(self) -> None:
        ten, twenty = WhatIf.of("", self.shorter(10 * US)), WhatIf("", unchanged, None, self.shorter(20 * US))
        (one,) = savings(self.GRAPH, [ten & twenty])
        assert (one.low_ns, one.likely_ns, one.high_ns) == (10 * US, None, 30 * US)
        (one,) = savings(self.GRAPH, [ten & WhatIf.of("", self.shorter(20 * US))])
        assert one.likely_ns == 30 * US


def with_edges(graph: StepGraph, pairs: list[tuple[int, int]]) -> StepGraph:
    """The graph with more edges, from one node to another."""
    edges, count = graph.edges, len(pairs)
    source, target = (np.array([pair[side] for pair in pairs], np.int32) for side in (0, 1))
    columns = [
        np.concatenate([edges.kind, np.zeros(count, np.int8)]), np.concatenate([edges.source, source]),
        np.concatenate([edges.target, target]), np.concatenate([edges.offset, np.zeros(count)]),
        np.concatenate([edges.from_end, np.zeros(count, np.bool_)]),
    ]  # fmt: skip
    return replace(graph, edges=Edges(*columns).at(np.argsort(columns[2], kind="stable")))


def needs_of(graph: StepGraph) -> set[tuple[int, int]]:
    launched = np.flatnonzero(graph.launch >= 0)
    return {
        *zip(graph.launch[launched].tolist(), launched.tolist(), strict=True),
        *zip(graph.edges.source.tolist(), graph.edges.target.tolist(), strict=True),
    }


PAIRS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=40)


@given(recordings(), PAIRS, st.booleans())
def test_edges_are_dropped_only_where_they_go_round_and_all_others_are_kept(
    found: Activity, pairs: list[tuple[int, int]], in_order: bool
) -> None:
    graph = replace(step_graph(found), dropped=0)
    nodes = [(one % len(graph), other % len(graph)) for one, other in pairs]
    more = [(one, other) for one, other in nodes if graph.chain[one] != graph.chain[other]]
    if in_order:
        more = [pair for pair in more if graph.time[pair[0]] < graph.time[pair[1]]]
    given_edges = with_edges(graph, more)
    result = scheduled(given_edges)
    done = np.zeros(len(graph), np.bool_)
    kept = needs_of(result)
    for chain, first, behind in result.segments.tolist():
        assert (graph.chain[first:behind] == chain).all()
        assert first == graph.chains[chain].first or done[first - 1]
        assert not done[first:behind].any()
        assert all(done[source] for source, target in kept if first <= target < behind)
        done[first:behind] = True
    assert done.all()
    lost = needs_of(given_edges) - kept
    assert kept <= needs_of(given_edges)
    between = {(graph.chain[source], target) for source, target in lost}
    assert between == {(graph.chain[source], target) for source, target in dropped_of(given_edges)}
    assert result.dropped == len(between)


def dropped_of(graph: StepGraph) -> set[tuple[int, int]]:
    """The needs that are given up: where no chain can go on, those of the earliest node that is next on its chain."""
    needs, dropped = needs_of(graph), set[tuple[int, int]]()
    reached, behind = [one.first for one in graph.chains], [one.behind for one in graph.chains]

    def lacks(node: int) -> set[tuple[int, int]]:
        return {one for one in needs - dropped if one[1] == node and one[0] >= reached[graph.chain[one[0]]]}

    while waiting := [number for number, node in enumerate(reached) if node < behind[number]]:
        free = [number for number in waiting if not lacks(reached[number])]
        if not free:
            earliest = min(waiting, key=lambda number: (graph.time[reached[number]], number))
            dropped |= lacks(reached[earliest])
        for number in free:
            reached[number] += 1
    return dropped


def test_of_edges_that_go_round_the_earliest_is_dropped() -> None:
    calls = [Call(at * US, (at + 1) * US, thread=70 + at % 2, correlation=at) for at in (0, 11, 20, 31)]
    starts = ((40, 0), (60, 11), (80, 20), (100, 31))
    kernels = [Operation(at * US, (at + 10) * US, "k", by, stream=at % 7) for at, by in starts]
    graph = step_graph(recording(kernels, calls))
    host = [one for one in graph.chains if one.is_host]
    first, second = ([node for node in range(one.first, one.behind) if not graph.is_end[node]] for one in host)
    round_ = with_edges(
        replace(graph, edges=graph.edges.at(np.zeros(0, np.int64))), [(second[1], first[0]), (first[1], second[0])]
    )
    result = scheduled(round_)
    assert result.dropped == 1
    assert needs_of(round_) - needs_of(result) == {(second[1], first[0])}
    assert replay(result, [unchanged], lags=True).end[0] >= graph.length
