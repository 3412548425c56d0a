"""Each kind of edge of a step's graph, on a recording made for it: what a what-if loses without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import Activity, EventWaits, columns_of

from ncu_tools.timeline.graph import step_graph as kinds
from ncu_tools.timeline.graph.build import expected, step_graph
from ncu_tools.timeline.graph.critical_path import WAITS, critical_path
from ncu_tools.timeline.graph.evidence import REFUSED, SOUND, evidence
from ncu_tools.timeline.graph.replay import replay, unchanged
from ncu_tools.timeline.graph.step_graph import StepGraph
from ncu_tools.timeline.graph.what_if import WhatIf, api_calls, savings, scaled, without
from tests.support.activities import PROCESS, Call, Operation, copy, recording

US, MS = 1_000, 1_000_000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def launch(start: int, number: int, thread: int = 70) -> Call:
    """A launch of 3 us."""
    return Call(start, start + 3 * US, correlation=number, thread=thread)


def chosen(found: Activity, name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.flatnonzero([name in found.operations.names[one] for one in found.operations.name.tolist()])


def saved(found: Activity, name: str, factor: float) -> tuple[float, float]:
    """What a recording saves, in us, if the kernels of a name take `factor` of their time."""
    graph = step_graph(found)
    one = savings(graph, [WhatIf.of("", scaled(graph, chosen(found, name), factor))])[0]
    return one.low_ns / US, one.high_ns / US


def edges_of(graph: StepGraph, kind: int) -> list[tuple[int, int]]:
    rows = graph.edges.kind == kind
    return list(zip(graph.edges.source[rows].tolist(), graph.edges.target[rows].tolist(), strict=True))


def test_kernels_of_a_stream_run_one_behind_the_other() -> None:
    found = recording(
        [Operation(10 * US, 110 * US, "a", 1), Operation(111 * US, 211 * US, "b", 2)],
        [launch(0, 1), launch(5 * US, 2)],
    )
    assert saved(found, "a", 0.5) == (50, 50)


def test_a_kernel_that_the_host_launches_late_gains_nothing_from_the_one_before_it() -> None:
    found = recording(
        [Operation(10 * US, 60 * US, "a", 1), Operation(210 * US, 260 * US, "b", 2)],
        [launch(0, 1), launch(200 * US, 2)],
    )
    assert saved(found, "a", 0.5) == (0, 0)
    assert saved(found, "b", 0.5) == (25, 25)


class TestALaunchThatTakesLong:
    """Five launches of 10 us set the latency; the sixth, of 500 us as it compiles, launches as it returns."""

    def compiling(self) -> Activity:
        starts = [at * 100 * US for at in range(5)]
        return recording(
            [*(Operation(at + 10 * US, at + 20 * US, "a", at) for at in starts),
             Operation(1001 * US, 1101 * US, "late", 9)],
            [*(launch(at, at) for at in starts), Call(500 * US, 1000 * US, correlation=9)],
        )  # fmt: skip

    def test_launches_its_operation_as_it_returns(self) -> None:
        graph = step_graph(self.compiling(), constants_only=True)
        assert graph.time[-1] - expected(graph)[-1] == 0
        assert graph.is_end[graph.launch[-1]]

    def test_takes_the_operation_with_it_where_calls_take_no_time(self) -> None:
        found = self.compiling()
        graph = step_graph(found)
        one = savings(graph, [WhatIf.of("", api_calls(graph, 0.0))])[0]
        assert (one.low_ns, one.high_ns) == (515 * US, 515 * US)  # its own 500 us, and 3 us of each call before it

    def test_goes_with_the_operation_that_is_gone(self) -> None:
        found = self.compiling()
        graph = step_graph(found)
        late = chosen(found, "late")
        assert graph.row[graph.launching_node(late)].tolist() == [5]
        assert not graph.is_end[graph.launching_node(late)].any()
        gone = savings(graph, [WhatIf.of("", without(graph, late))])[0]
        assert gone.low_ns == 600 * US

    def test_that_began_its_operation_before_does_not(self) -> None:
        found = self.compiling()
        found.operations.start[-1] = 600 * US
        assert not step_graph(found).is_end.any()


def test_a_kernel_in_line_gains_until_its_own_launch_binds() -> None:
    found = recording(
        [Operation(10 * US, 110 * US, "a", 1), Operation(111 * US, 211 * US, "b", 2)],
        [launch(0, 1), launch(60 * US, 2)],
    )
    assert saved(found, "a", 0) == (41, 41)  # b starts 10 us after its call, as on an idle stream


class TestCallsThatBlock:
    def waiting(self, wait: Call, offset: int = 0) -> Activity:
        """A kernel of 1 ms, a wait for it, and what the host launches then; `offset`: how far clocks are apart."""
        return recording(
            [
                Operation(30 * US + offset, 1010 * US + offset, "long", 1),
                Operation(1060 * US + offset, 1100 * US + offset, "next", 2),
            ],
            [launch(0, 1), wait, launch(1030 * US, 2)],
        )

    @pytest.mark.parametrize(
        "name", ["cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "hipDeviceSynchronize"]
    )
    @pytest.mark.parametrize("offset", [0, -20 * US, 9 * US])
    def test_end_with_what_they_wait_for_whatever_the_clocks(self, name: str, offset: int) -> None:
        found = self.waiting(Call(20 * US, 1015 * US, name), offset)
        graph = step_graph(found)
        assert len(edges_of(graph, kinds.SYNC)) == 1
        assert not len(graph.unmatched)
        low, high = saved(found, "long", 0.5)
        assert low == high == 490

    def test_without_their_edge_a_kernel_gains_nothing_and_the_wait_is_one_for_something_unknown(self) -> None:
        found = self.waiting(Call(20 * US, 1015 * US, "cudaDeviceSynchronize"))
        graph = step_graph(found, without={kinds.SYNC})
        assert savings(graph, [WhatIf.of("", scaled(graph, chosen(found, "long"), 0.5))])[0].high_ns == 0
        assert graph.unmatched.tolist() == [1]

    def test_a_wait_that_no_operation_ends_is_one_for_something_unknown(self) -> None:
        graph = step_graph(self.waiting(Call(20 * US, 700 * US, "cudaStreamSynchronize")))
        assert graph.unmatched.tolist() == [1]

    @pytest.mark.parametrize(
        ("memory", "direction", "name", "blocks"),
        [
            (activity.PAGEABLE, activity.DEVICE_TO_HOST, "cudaMemcpyAsync", True),
            (activity.PAGEABLE, activity.HOST_TO_DEVICE, "cudaMemcpyAsync", True),
            (activity.PINNED, activity.DEVICE_TO_HOST, "cudaMemcpyAsync", False),
            (activity.PINNED, activity.DEVICE_TO_HOST, "cudaMemcpy", True),
            (activity.UNKNOWN_MEMORY, activity.DEVICE_TO_HOST, "hipMemcpyWithStream", True),
        ],
    )
    def test_a_copy_blocks_by_its_call_and_memory(self, memory: int, direction: int, name: str, blocks: bool) -> None:
        found = recording(
            [
                Operation(10 * US, 1010 * US, "long", 1),
                copy(1012 * US, 1020 * US, 100_000, 2, direction=direction, source_memory=memory,
                     destination_memory=activity.DEVICE_MEMORY),
                Operation(1040 * US, 1100 * US, "next", 3),
            ],
            [launch(0, 1), Call(20 * US, 1022 * US, name, 2), launch(1030 * US, 3)],
        )  # fmt: skip
        graph = step_graph(found)
        assert len(edges_of(graph, kinds.COPY)) == int(blocks)
        assert saved(found, "long", 0.5)[0] == (500 if blocks else 0)

    def to_device(self, size: int, returned: int, name: str = "cudaMemcpyAsync") -> Activity:
        """A copy of so many pageable bytes behind a kernel of 1 ms, and what the host launches when its call returned."""
        return recording(
            [
                Operation(10 * US, 1010 * US, "long", 1),
                copy(1012 * US, 1512 * US, size, 2, source_memory=activity.PAGEABLE,
                     destination_memory=activity.DEVICE_MEMORY),
                Operation(1540 * US, 1600 * US, "next", 3),
            ],
            [launch(0, 1), Call(20 * US, returned, name, 2), launch(1530 * US, 3)],
        )  # fmt: skip

    def test_a_copy_to_the_device_returns_before_its_last_part_is_there(self) -> None:
        found = self.to_device(50_000_000, 1400 * US)
        assert len(edges_of(step_graph(found), kinds.COPY)) == 1
        assert saved(found, "long", 0.5)[0] == 500

    @pytest.mark.parametrize(("name", "waits"), [("cudaMemcpyAsync", False), ("hipMemcpyWithStream", True)])
    def test_a_small_copy_to_the_device_holds_no_host_of_cuda(self, name: str, waits: bool) -> None:
        graph = step_graph(self.to_device(65_536, 1510 * US, name))
        assert len(edges_of(graph, kinds.COPY)) == int(waits)

    def test_a_copy_that_the_host_stages_on_an_idle_stream_begins_when_its_first_part_is_staged(self) -> None:
        found = recording(
            [
                Operation(10 * US, 20 * US, "a", 1),
                *(
                    copy(at + staged, at + staged + 100 * US, 1_000_000, number, source_memory=activity.PAGEABLE,
                         destination_memory=activity.DEVICE_MEMORY)
                    for number, (at, staged) in enumerate([(1 * MS, 200 * US), (2 * MS, 900 * US)], start=2)
                ),
            ],
            [launch(0, 1), Call(1 * MS, 1280 * US, "cudaMemcpyAsync", 2), Call(2 * MS, 2980 * US, "cudaMemcpyAsync", 3)],
        )  # fmt: skip
        graph = step_graph(found)
        assert not graph.lag.any()
        assert replay(graph, [unchanged], lags=False).end[0] == graph.length


class TestPolling:
    def asking(self, *ends: int) -> Activity:
        """Launches of 5 ms kernels, and 5 ms later the next call; each kernel ends so many us behind that."""
        operations, calls, at = list[Operation](), list[Call](), 0
        for number, end in enumerate(ends):
            operations.append(Operation(at + 10 * US, at + 5 * MS + end * US, "notify", number))
            calls += [launch(at, number), Call(at + 5 * MS, at + 5 * MS + US, "cudaEventQuery")]
            at += 6 * MS
        return recording(operations, calls)

    def test_ends_with_what_the_thread_launched_last(self) -> None:
        found = self.asking(20, 60, 8)
        graph = step_graph(found)
        assert len(edges_of(graph, kinds.SYNC)) == 3
        assert replay(graph, [unchanged], lags=False).end[0] == graph.length
        assert saved(found, "notify", 0.5)[0] == pytest.approx(3 * 2_500, rel=0.01)

    @pytest.mark.parametrize("ends", [(20, 60), (20, 60, 8, -1_000)])
    def test_is_not_assumed_by_chance(self, ends: Sequence[int]) -> None:
        assert not edges_of(step_graph(self.asking(*ends)), kinds.SYNC)


def test_a_wait_that_finds_everything_done_takes_its_own_time() -> None:
    found = recording(
        [Operation(10 * US, 20 * US, "a", 1), Operation(310 * US, 320 * US, "b", 2)],
        [launch(0, 1), Call(100 * US, 160 * US, "hipDeviceSynchronize"), launch(300 * US, 2)],
    )
    graph = step_graph(found)
    assert replay(graph, [unchanged], lags=False).end[0] == graph.length


class TestThreads:
    def forward_and_backward(self) -> Activity:
        """A thread launches a kernel, waits 1 ms while another launches, and goes on; each shares the GPU."""
        return recording(
            [
                Operation(10 * US, 20 * US, "forward", 1), Operation(500 * US, 520 * US, "backward", 2, stream=7),
                Operation(1210 * US, 1220 * US, "step", 3),
            ],
            [launch(0, 1), launch(490 * US, 2, thread=71), Call(1000 * US, 1002 * US, "cudaEventQuery", thread=71),
             launch(1200 * US, 3)],
        )  # fmt: skip

    def test_hand_over_to_each_other_in_their_gaps(self) -> None:
        graph = step_graph(self.forward_and_backward())
        assert len(edges_of(graph, kinds.HAND_OVER)) == 2
        assert replay(graph, [unchanged], lags=True).end[0] == graph.length

    def test_that_use_different_gpus_hand_nothing_over(self) -> None:
        found = self.forward_and_backward()
        found.operations.device[chosen(found, "backward")] = 1
        assert not edges_of(step_graph(found), kinds.HAND_OVER)

    def test_that_launch_nothing_pin_no_step(self) -> None:
        found = recording(
            [Operation(10 * US, 910 * US, "a", 1)],
            [launch(0, 1), Call(900 * US, 901 * US, "cudaEventQuery", thread=99)],
        )
        graph = step_graph(found)
        assert [one.thread for one in graph.chains if one.is_host] == [70]
        assert saved(found, "a", 0.5) == (450, 450)


def test_a_launch_into_a_full_queue_returns_when_an_operation_starts() -> None:
    count, depth, length = 1500, 1000, 100 * US
    operations, calls, at = [], [], 0
    for number in range(count):
        begun, started = at, 10 * US + (number - depth) * length
        at = max(at + 3 * US, started)
        operations.append(Operation(10 * US + number * length, 10 * US + (number + 1) * length, "k", number))
        calls.append(Call(begun, at, correlation=number))
        at += 2 * US
    graph = step_graph(recording(operations, calls))
    found = edges_of(graph, kinds.FULL_QUEUE)
    assert found
    assert all(graph.is_host[target] and not graph.is_host[source] for source, target in found)
    assert saved(recording(operations, calls), "k", 0.5)[0] > 0.45 * graph.length / US


class TestEvents:
    def two_streams(self, *waits: Call) -> Activity:
        return recording(
            [Operation(10 * US, 510 * US, "first", 1, stream=7), Operation(513 * US, 600 * US, "second", 2, stream=8)],
            [launch(0, 1), *waits, launch(20 * US, 2)],
        )

    def test_a_stream_behind_a_wait_starts_as_another_one_ends(self) -> None:
        found = self.two_streams(Call(10 * US, 11 * US, "cudaStreamWaitEvent"))
        graph = step_graph(found)
        assert len(edges_of(graph, kinds.EVENT)) == graph.inferred == 1
        assert saved(found, "first", 0.5) == (250, 250)

    @pytest.mark.parametrize(("end", "inferred"), [(511, 1), (515, 1), (489, 1), (485, 0), (517, 0)])
    def test_it_may_end_a_little_behind_the_start_as_times_are_rounded(self, end: int, inferred: int) -> None:
        found = self.two_streams(Call(10 * US, 11 * US, "hipStreamWaitEvent"))
        found.operations.end[0] = end * US
        assert step_graph(found).inferred == inferred

    def test_it_is_the_last_one_before_an_event_was_recorded(self) -> None:
        """What another stream is given behind the record is not waited for, however near it ends."""
        found = recording(
            [Operation(10 * US, 505 * US, "first", 1, stream=7), Operation(506 * US, 512 * US, "behind", 3, stream=7),
             Operation(513 * US, 600 * US, "second", 2, stream=8)],
            [launch(0, 1), Call(5 * US, 6 * US, "cudaEventRecord"), launch(8 * US, 3),
             Call(15 * US, 16 * US, "cudaStreamWaitEvent"), launch(20 * US, 2)],
        )  # fmt: skip
        graph = step_graph(found)
        assert edges_of(graph, kinds.EVENT) == [
            (graph.operation_node[chosen(found, "first")[0]], graph.operation_node[chosen(found, "second")[0]])
        ]

    def test_a_wait_holds_what_another_thread_of_the_process_launches_next(self) -> None:
        """As autograd's thread waits for the last reduction, and the main thread launches the optimizer."""
        found = self.two_streams(Call(10 * US, 11 * US, "cudaStreamWaitEvent", thread=71))
        assert step_graph(found).inferred == 1

    def test_operations_after_a_graph_wait_for_its_nodes_on_other_streams(self) -> None:
        found = recording(
            [Operation(10 * US, 20 * US, "before", 1, stream=7), Operation(40 * US, 510 * US, "node", 2, stream=164),
             Operation(513 * US, 600 * US, "behind", 3, stream=7)],
            [launch(0, 1), Call(25 * US, 60 * US, "cudaGraphLaunch", 2), Call(61 * US, 62 * US, "cudaEventRecord"),
             launch(70 * US, 3)],
        )  # fmt: skip
        graph = step_graph(found)
        assert graph.inferred == 1
        assert saved(found, "node", 0.5) == (235, 235)

    def recorded(self, record: int | None, at: int) -> Activity:
        """Two kernels on stream 7, and a wait of stream 8 for the event that call `record` recorded at a moment."""
        waits = columns_of(
            EventWaits,
            {"start": [15 * US], "process": [PROCESS], "context": [1], "stream": [8], "correlation": [21],
             "source": [7], **({} if record is None else {"record": [record]})},
        )  # fmt: skip
        found = recording(
            [Operation(10 * US, 300 * US, "first", 1, stream=7), Operation(301 * US, 505 * US, "behind", 3, stream=7),
             Operation(520 * US, 600 * US, "second", 2, stream=8)],
            [launch(0, 1), Call(at, at + 1, "cudaEventRecord", 20), launch(8 * US, 3),
             Call(15 * US, 16 * US, "cudaStreamWaitEvent", 21), launch(20 * US, 2)],
            event_waits=waits,
        )  # fmt: skip
        return replace(found, operations=replace(found.operations, context=np.ones(3, np.int64)))

    def test_a_recorded_event_is_from_the_last_operation_before_its_record(self) -> None:
        """Though another kernel ends 15 us before the start."""
        found = self.recorded(20, 5 * US)
        graph = step_graph(found)
        assert edges_of(graph, kinds.EVENT) == [
            (graph.operation_node[chosen(found, "first")[0]], graph.operation_node[chosen(found, "second")[0]])
        ]
        assert graph.inferred == 0
        assert graph.edges.offset[graph.edges.kind == kinds.EVENT].max() == 1 * US
        assert replay(graph, [unchanged], lags=True).end[0] == graph.length

    def test_of_a_wait_without_a_record_the_stream_is_known(self) -> None:
        """A kernel on a third stream, launched by the thread that waited, did not wait for it."""
        found = self.recorded(None, 12 * US)
        assert step_graph(found).inferred == 1
        found.operations.stream[chosen(found, "second")] = 9
        assert step_graph(found).inferred == 0

    def test_without_a_wait_nothing_is_inferred_and_the_interval_shows_it(self) -> None:
        found = self.two_streams()
        assert not edges_of(step_graph(found), kinds.EVENT)
        low, high = saved(found, "first", 0.5)
        assert low == 0  # the wait is kept
        assert high == 250  # and dropped

    def test_an_unexplained_wait_is_a_lag(self) -> None:
        graph = step_graph(self.two_streams())
        assert graph.lag.max() == 483 * US
        assert (graph.lag >= 0).all()


def test_work_in_flight_at_the_start_is_in_line_and_released_at_once() -> None:
    found = recording([Operation(0, 500 * US, "early"), Operation(501 * US, 700 * US, "late", 1)], [launch(50 * US, 1)])
    graph = step_graph(found)
    assert graph.no_launch == 1
    assert saved(found, "early", 0.5) == (250, 250)


class TestWorkFromBeforeTheRecording:
    def serving(self) -> Activity:
        """The stream begins what was launched at once only when 50 ms of unrecorded work are done."""
        return recording(
            [Operation(50 * MS, 51 * MS, "first", 1), Operation(51 * MS + 1000, 52 * MS, "second", 2)],
            [launch(0, 1), launch(50 * US, 2)],
        )

    def test_holds_its_stream(self) -> None:
        found = self.serving()
        graph = step_graph(found)
        assert replay(graph, [unchanged], lags=False).end[0] == graph.length
        assert saved(found, "first", 0.5) == (500, 500)
        gone = savings(graph, [WhatIf.of("", without(graph, chosen(found, "first")))])[0]
        assert gone.high_ns == 1 * MS

    def test_holds_its_stream_whose_first_launch_is_not_recorded(self) -> None:
        found = recording(
            [Operation(50 * MS, 51 * MS, "first"), Operation(51 * MS + 1000, 52 * MS, "second", 2)],
            [Call(0, 3 * US, "cudaEventQuery", thread=70), launch(50 * US, 2)],
        )
        graph = step_graph(found, constants_only=True)
        assert replay(graph, [unchanged], lags=False).end[0] == graph.length

    def test_is_unexplained_time_and_no_saving_is_given(self) -> None:
        found = self.serving()
        graph = step_graph(found)
        path = critical_path(graph, found)
        assert path.by_kind[WAITS] == 50 * MS
        assert evidence(graph, found, path).level == REFUSED

    def test_is_no_part_of_the_path_of_steps_that_begin_behind_it(self) -> None:
        found = self.serving()
        graph = step_graph(found)
        path = critical_path(graph, found, since_ns=49 * MS)
        assert (path.by_kind[WAITS], path.before_ns, path.length_ns) == (1 * MS, 49 * MS, graph.length - 49 * MS)
        assert path.waited.max() == 1 * MS
        within = critical_path(graph, found, since_ns=50 * MS)
        assert evidence(graph, found, within).level == SOUND

    def test_is_not_assumed_where_its_gpu_was_busy(self) -> None:
        other = recording(
            [Operation(1 * MS, 49 * MS, "other", 3, stream=9), Operation(50 * MS, 51 * MS, "first", 1)],
            [launch(0, 1), launch(990 * US, 3)],
        )
        graph = step_graph(other)
        assert (graph.rest[graph.first_of_streams] == 0).all()


def test_a_wait_holds_for_work_launched_before_the_recording() -> None:
    found = recording(
        [Operation(0, 500 * US, "early"), Operation(520 * US, 700 * US, "late", 1)],
        [Call(1 * US, 505 * US, "cudaDeviceSynchronize"), launch(510 * US, 1)],
    )
    assert saved(found, "early", 0.5)[0] == 250


def test_nodes_of_a_graph_follow_its_launch_and_each_other() -> None:
    nodes = [
        Operation(10 * US + at * 20 * US, 29 * US + at * 20 * US, f"node{at}", 1)._replace(stream=7) for at in range(4)
    ]
    found = recording(nodes, [Call(0, 8 * US, "cudaGraphLaunch", 1)])
    graph = step_graph(found)
    assert (graph.launch[graph.operation_node] == graph.launch[graph.operation_node[0]]).all()
    low, high = saved(found, "node1", 0.0)
    assert low == high == 19


def test_nodes_that_run_beside_each_other_on_one_stream_are_lanes() -> None:
    found = recording(
        [Operation(10 * US, 300 * US, "long", 1), Operation(12 * US, 40 * US, "beside", 1)],
        [Call(0, 8 * US, "cudaGraphLaunch", 1)],
    )
    graph = step_graph(found)
    assert sum(not one.is_host for one in graph.chains) == 2
    assert saved(found, "long", 0.5) == (145, 145)


def test_operations_after_a_graph_wait_for_all_of_its_lanes() -> None:
    """The next launch of the stream starts on the lane that is free first, and still waits for the other one."""
    found = recording(
        [Operation(10 * US, 300 * US, "long", 1), Operation(12 * US, 40 * US, "beside", 1),
         Operation(302 * US, 330 * US, "next", 2), Operation(302 * US, 329 * US, "next to it", 2)],
        [Call(0, 8 * US, "cudaGraphLaunch", 1), Call(20 * US, 28 * US, "cudaGraphLaunch", 2)],
    )  # fmt: skip
    graph = step_graph(found)
    assert len(edges_of(graph, kinds.STREAM_ORDER)) == 1
    assert saved(found, "long", 0.5) == (145, 145)
    assert saved(found, "beside", 0.5) == (0, 0)


class TestCollectives:
    def late_rank(self) -> Activity:
        """GPU 1 arrives 400 us behind GPU 0 at a collective that transfers for 100 us."""
        return recording(
            [
                Operation(10 * US, 100 * US, "short", 1, device=0), Operation(10 * US, 500 * US, "long", 2, device=1),
                Operation(101 * US, 601 * US, NCCL, 3, device=0), Operation(501 * US, 601 * US, NCCL, 4, device=1),
            ],
            [launch(0, 1), launch(0, 2, thread=71), launch(5 * US, 3), launch(5 * US, 4, thread=71)],
        )  # fmt: skip

    def test_wait_for_the_last_rank_to_arrive(self) -> None:
        found = self.late_rank()
        graph = step_graph(found)
        assert len(edges_of(graph, kinds.COLLECTIVE)) == 2
        assert sorted(graph.work[graph.operation_node[chosen(found, "nccl")]].tolist()) == [100 * US, 100 * US]
        assert saved(found, "long", 0.5) == (245, 245)
        assert saved(found, "short", 0.5) == (0, 0)

    def test_without_them_only_the_transfer_and_the_wait_for_each_other_are_gone(self) -> None:
        found = self.late_rank()
        graph = step_graph(found)
        gone = savings(graph, [WhatIf.of("", without(graph, chosen(found, "nccl")))])[0]
        assert gone.low_ns == pytest.approx(101 * US)

    def test_on_clocks_that_are_apart_are_still_one(self) -> None:
        found = self.late_rank()
        for column in (found.operations.start, found.operations.end):
            column[found.operations.device == 1] -= 20 * US
        graph = step_graph(found)
        assert len(edges_of(graph, kinds.COLLECTIVE)) == 2
        assert replay(graph, [unchanged], lags=True).end[0] == graph.length


def test_a_kernel_launched_ahead_of_the_end_of_the_one_before_it_does_not_end_before_it() -> None:
    found = recording(
        [Operation(10 * US, 110 * US, "a", 1), Operation(108 * US, 111 * US, "b", 2)], [launch(0, 1), launch(5 * US, 2)]
    )
    graph = step_graph(found)
    assert replay(graph, [unchanged], lags=True).end[0] == 111 * US
    short = replay(graph, [scaled(graph, chosen(found, "b"), 0.1)], lags=True).end[0]
    assert short == 110 * US


def test_edges_that_go_round_are_dropped_and_counted() -> None:
    found = recording([Operation(10 * US, 110 * US, "a", 1)], [launch(0, 1)])
    graph = step_graph(found)
    from ncu_tools.timeline.graph.schedule import scheduled

    back = kinds.Edges(
        np.array([kinds.SYNC], np.int8), graph.operation_node.astype(np.int32), np.array([0], np.int32),
        np.zeros(1), np.ones(1, np.bool_),
    )  # fmt: skip
    round_ = scheduled(replace(graph, edges=back))
    assert round_.dropped == 1
    assert round_.segments[:, 2].max() == len(graph)
    assert np.isfinite(expected(round_)).all()


class TestConstantsOfARecording:
    def pairs(self, gap: int) -> Activity:
        """A queued copy 25 us behind another one, and ten pairs of kernels `gap` apart that the host launches late."""
        starts = [100 * US + at * 50 * US for at in range(10)]
        return recording(
            [copy(10 * US, 20 * US, 8, 0), copy(45 * US, 50 * US, 8, 1),
             *(Operation(at + begin, at + begin + 10 * US, "k", number)
               for place, at in enumerate(starts) for begin, number in ((0, 2 * place + 2), (10 * US + gap, 2 * place + 3)))],
            [Call(0, 2 * US, "cudaMemcpyAsync", 0), Call(3 * US, 5 * US, "cudaMemcpyAsync", 1),
             *(Call(at + begin, at + begin + US, correlation=number)
               for place, at in enumerate(starts) for begin, number in ((-10 * US, 2 * place + 2), (2 * US, 2 * place + 3)))],
        )  # fmt: skip

    def test_the_gap_is_no_longer_than_most_operations_kept_to(self) -> None:
        graph = step_graph(self.pairs(3 * US), constants_only=True)
        late = (graph.time - expected(graph))[graph.entry_node[2:]]
        assert np.abs(late).max() <= 1 * US

    def returning(self, late: Sequence[int]) -> StepGraph:
        """Kernels of 1 ms, each with a call that waits and returns so late."""
        starts = [at * 2 * MS for at in range(len(late))]
        return step_graph(
            recording(
                [Operation(at + 10 * US, at + MS, "k", number) for number, at in enumerate(starts)],
                [one for number, (at, by) in enumerate(zip(starts, late, strict=True))
                 for one in (launch(at, number), Call(at + 5 * US, at + MS + by, "cudaStreamSynchronize"))],
            )
        )  # fmt: skip

    def test_calls_that_all_return_as_late_take_that_time(self) -> None:
        assert self.returning([100 * US, 104 * US, 98 * US, 101 * US]).lag.max() <= 4 * US

    def test_one_that_returns_late_waited_for_something_else(self) -> None:
        assert self.returning([100 * US, 10 * US, 3 * US]).lag.max() == 85 * US


class TestCallsThatFreeMemory:
    def freeing(self, until: int) -> Activity:
        """A kernel of 1 ms, and a call that frees memory from 20 us on."""
        return recording(
            [Operation(10 * US, MS, "k", 1)],
            [launch(0, 1), Call(20 * US, until, "cudaFree"), Call(3 * MS, 4 * MS, "next")],
        )

    def test_wait_for_the_gpu_and_take_the_rest_themselves(self) -> None:
        found = self.freeing(2 * MS)
        assert len(edges_of(step_graph(found), kinds.SYNC)) == 1
        assert step_graph(found).lag.max() == 0
        assert saved(found, "k", 0.5) == (495, 495)

    def test_do_not_where_one_returned_before(self) -> None:
        assert not edges_of(step_graph(self.freeing(500 * US)), kinds.SYNC)


@pytest.mark.parametrize(("pairs", "says"), [(5, False), (60, True)])
def test_a_trace_is_filtered_where_many_operations_in_line_are_far_apart(pairs: int, says: bool) -> None:
    """Queued kernels 40 us apart, and ones that start late by another time each."""
    starts = [at * MS for at in range(pairs)]
    found = recording(
        [one for at, begin in enumerate(starts)
         for one in (Operation(begin, begin + 500 * US, "k", 3 * at), Operation(begin + 540 * US, begin + 600 * US, "k", 3 * at + 1),
                     Operation(begin + (660 + 5 * (at % 40)) * US, begin + 900 * US, "k", 3 * at + 2))],
        [one for at, begin in enumerate(starts)
         for one in (launch(begin - 10 * US, 3 * at), launch(begin - 5 * US, 3 * at + 1), launch(begin, 3 * at + 2))],
    )  # fmt: skip
    graph = step_graph(found)
    why = evidence(graph, found, critical_path(graph, found)).why
    assert ("filtered trace" in why) == says


@pytest.mark.parametrize(("name", "held"), [("cudaStreamSynchronize", True), ("cudaDeviceSynchronize", False)])
def test_a_stream_ran_no_work_from_before_the_recording_once_a_call_waited_for_all(name: str, held: bool) -> None:
    found = recording(
        [Operation(50 * MS, 51 * MS, "late", 1, stream=9)], [Call(0, 10 * US, name), launch(20 * US, 1)],
    )  # fmt: skip
    graph = step_graph(found)
    assert (graph.rest[graph.entry_node[0]] == graph.time[graph.entry_node[0]]) == held
