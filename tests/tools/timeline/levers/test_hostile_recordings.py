"""Recordings that are damaged or made to harm: advice on them takes time in proportion to their size, and no traceback.

Each of these took minutes, or gigabytes, where a search went over all threads or streams for each of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ncu_launch.errors import NcuBenchError
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import Activity

from ncu_tools.timeline.graph.build import step_graph
from ncu_tools.timeline.graph.operators import OperatorsAround
from ncu_tools.timeline.graph.replay import replay, unchanged
from ncu_tools.timeline.levers.step_advice import advice_on_recording
from ncu_tools.timeline.timeline import timeline
from tests.support.activities import Call, Operation, Range, recording

MANY = 1_000
LONGEST_S = 5.0
"""Processor seconds; each takes under one."""

Recorded = Callable[[], Activity]


def launches(change: Callable[[int], tuple[Operation, Sequence[Call]]], ranges: Sequence[Range] = ()) -> Activity:
    rows = [change(at) for at in range(MANY)]
    return recording([one for one, _ in rows], [call for _, calls in rows for call in calls], ranges)


def kernel(at: int, **more: Any) -> Operation:
    return Operation(10 * at + 5, 10 * at + 13, "k", at)._replace(**more)


def call(at: int, **more: Any) -> Call:
    return Call(10 * at, 10 * at + 1, correlation=at)._replace(**more)


def a_thread_for_each_launch() -> Activity:
    return launches(lambda at: (kernel(at), [call(at, thread=at)]), [Range(1, 9, "r", thread=at) for at in range(MANY)])


def a_stream_for_each_launch() -> Activity:
    names = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaStreamWaitEvent")
    return launches(
        lambda at: (kernel(at, stream=at), [call(at), Call(10 * at + 2, 10 * at + 9, names[at % 4])])
    )  # fmt: skip


def a_gpu_for_each_launch() -> Activity:
    return launches(lambda at: (kernel(at, device=at), [call(at)]))


def operations_that_all_overlap() -> Activity:
    return launches(lambda at: (kernel(at, end=20 * MANY), [call(at)]))


def ranges_nested_ten_thousand_deep() -> Activity:
    nested = [Range(at, 30_000 - at, "aten::op", activity.OPERATOR) for at in range(10_000)]
    return launches(lambda at: (kernel(at), [call(at)]), nested)


def ranges_that_never_end() -> Activity:
    unending = [Range(10 * at, 20 * MANY, "aten::op", activity.OPERATOR) for at in range(MANY)]
    return launches(lambda at: (kernel(at), [call(at)]), unending)


def operations_without_length() -> Activity:
    return launches(lambda at: (kernel(at, end=10 * at + 5), [call(at, end=10 * at)]))


def one_correlation_id_for_all() -> Activity:
    return launches(lambda at: (kernel(at, calls=1), [call(at, correlation=1)]))


def launches_behind_what_they_launch() -> Activity:
    return launches(lambda at: (kernel(at), [call(at, start=10 * at + 40, end=10 * at + 41)]))


def negative_durations() -> Activity:
    """Readers leave these out; a table that holds them all the same is no traceback."""
    found = a_thread_for_each_launch()
    return replace(found, operations=replace(found.operations, end=found.operations.start - 3))


HOSTILE = [
    a_thread_for_each_launch, a_stream_for_each_launch, a_gpu_for_each_launch, operations_that_all_overlap,
    ranges_nested_ten_thousand_deep, ranges_that_never_end, operations_without_length, one_correlation_id_for_all,
    launches_behind_what_they_launch, negative_durations,
]  # fmt: skip


@pytest.mark.parametrize("made", HOSTILE, ids=lambda made: made.__name__)
def test_advice_takes_time_in_proportion(made: Recorded) -> None:
    found = made()
    began = time.process_time()
    with suppress(NcuBenchError):
        advice_on_recording(found, None, ["k=0.5x", "gap:call=0"])
    assert time.process_time() - began < LONGEST_S


def test_streams_are_summed_in_time_in_proportion() -> None:
    found = a_stream_for_each_launch()
    began = time.process_time()
    (gpu,) = timeline(found).gpus
    assert time.process_time() - began < LONGEST_S
    assert len(gpu.streams) == MANY
    assert {one.alone_ns for one in gpu.streams} == {8}


def test_a_waiting_call_is_explained_by_the_one_stream_of_many() -> None:
    graph = step_graph(a_stream_for_each_launch())
    assert len(graph.edges) < 3 * MANY
    assert replay(graph, [unchanged], lags=True).end[0] == graph.length


def test_the_operator_around_a_call_is_found_behind_thousands_that_ended() -> None:
    inner = [Range(1 + at, 20_002 - at, "aten::inner", activity.OPERATOR) for at in range(10_000)]
    found = recording(
        [Operation(30_010, 30_020, "k", 1)], [Call(30_000, 30_001, correlation=1)],
        [Range(0, 40_000, "aten::outer", activity.OPERATOR), *inner],
    )  # fmt: skip
    operators = OperatorsAround(found)
    outer = operators.around(np.array([0]))
    assert found.ranges.names[found.ranges.name[outer[0]]] == "aten::outer"
    deepest = np.array([len(found.ranges) - 1])
    assert operators.outermost(deepest).tolist() == outer.tolist()
    names = np.array([name == "aten::outer" for name in found.ranges.names])
    assert operators.within(deepest, names).tolist() == [True]
