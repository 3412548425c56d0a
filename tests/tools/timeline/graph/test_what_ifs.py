"""What users ask of a step, and what is said of how far the answer can be believed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ncu_launch.errors import WrongUsage
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import Activity

from ncu_tools.timeline.graph.asked import AskedWhatIfs
from ncu_tools.timeline.graph.build import step_graph
from ncu_tools.timeline.graph.critical_path import COMMUNICATION, HOST_CODE, KERNELS, WAITS, critical_path
from ncu_tools.timeline.graph.evidence import BOUNDS_ONLY, REFUSED, SOUND, evidence
from ncu_tools.timeline.graph.operators import OperatorsAround
from ncu_tools.timeline.graph.what_if import Saving, savings
from ncu_tools.timeline.launch_links import launching_calls
from tests.support.activities import Call, Operation, Range, recording

US, MS = 1_000, 1_000_000


def step() -> Activity:
    """Two operators on the host, 100 us each, with a kernel of 60 us each, in a step that the host bounds."""
    calls = [Call(80 * US, 90 * US, correlation=1), Call(190 * US, 200 * US, correlation=2)]
    operators = [
        Range(10 * US, 95 * US, "aten::linear", activity.OPERATOR), Range(20 * US, 92 * US, "aten::mm", activity.OPERATOR),
        Range(110 * US, 205 * US, "aten::add", activity.OPERATOR),
    ]  # fmt: skip
    return recording(
        [Operation(100 * US, 160 * US, "gemm", 1), Operation(210 * US, 270 * US, "vectorized_add", 2)],
        [Call(0, 0, "cudaGetDevice"), *calls], operators,
    )  # fmt: skip


def asked(found: Activity, *texts: str) -> list[Saving]:
    call = launching_calls(found)
    graph = step_graph(found, call)
    reader = AskedWhatIfs(found, graph, call, OperatorsAround(found))
    return savings(graph, [reader.what_if(one) for one in texts])


class TestWhatIfs:
    def test_name_kernels_operators_and_kinds(self) -> None:
        found = step()
        add, linear, kernels = asked(found, "vectorized_add=0.5x", "aten::linear=0.5x", "kernels=0.5x")
        assert (add.low_ns, linear.low_ns, kernels.low_ns) == (30 * US, 0, 30 * US)

    def test_name_a_kernel_as_tables_do_where_nothing_has_that_in_its_full_name(self) -> None:
        found = step()
        found.operations.names[:] = ["ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", "vectorized_add"]
        in_full, of_table = asked(found, "ampere=10us", "gemm bf16 128x256=10us")
        assert of_table == in_full

    def test_that_name_nothing_are_answered_with_what_takes_most_time_by_its_short_name(self) -> None:
        found = step()
        found.operations.names[:] = ["ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", "short"]
        found.operations.end[0] += 20 * US
        with pytest.raises(WrongUsage, match=r"the longest are: gemm bf16 128x256\S* tn, short\."):
            asked(found, "no_such=0.5x")

    def test_give_every_operation_a_time(self) -> None:
        (one,) = asked(step(), "kernels=10us")
        assert one.low_ns == one.high_ns == 50 * US

    def test_that_remove_a_call_are_bounded_by_the_call_and_its_operator(self) -> None:
        (one,) = asked(step(), "aten::mm=0")
        assert one.low_ns == 10 * US  # the call
        assert one.high_ns == 72 * US  # its operator

    def test_name_gaps_of_three_kinds(self) -> None:
        launch, call, host = asked(step(), "gap:launch=0", "gap:call=0", "gap:host=0")
        assert launch.high_ns == 20 * US
        assert call.high_ns == 10 * US
        assert host.high_ns == 129 * US  # then the kernels run one behind the other

    def test_may_be_asked_together(self) -> None:
        found = step()
        call = launching_calls(found)
        graph = step_graph(found, call)
        reader = AskedWhatIfs(found, graph, call, OperatorsAround(found))
        host, kernels = reader.what_if("gap:host=0"), reader.what_if("kernels=0.5x")
        alone = [one.high_ns for one in savings(graph, [host, kernels])]
        (both,) = savings(graph, [host & kernels])
        assert (host & kernels).title == "gap:host=0, kernels=0.5x"
        assert both.high_ns > max(alone)

    @pytest.mark.parametrize(
        "text", ["aten::mm", "aten::mm=", "=0", "aten::mm=fast", "aten::mm=3", "gap:host=3us", "no_such_kernel=0.5x"]
    )
    def test_that_say_nothing_are_refused_with_an_example(self, text: str) -> None:
        with pytest.raises(WrongUsage) as error:
            asked(step(), text)
        assert "=" in str(error.value)

    def test_take_a_name_that_is_no_pattern_as_text(self) -> None:
        found = recording([Operation(0, 10 * US, "void f(int")])
        assert asked(found, "f(int=0.5x")[0].high_ns == 5 * US


class TestCriticalPath:
    def test_goes_through_the_host_where_it_binds(self) -> None:
        found = step()
        path = critical_path(step_graph(found), found)
        assert path.by_kind[HOST_CODE] == 180 * US
        assert path.by_kind[KERNELS] == 60 * US
        assert path.work.tolist() == [0, 60 * US]
        assert [one.chain for one in path.stretches] == [0, 1]

    def test_stays_on_a_stream_whose_operations_wait_in_line(self) -> None:
        found = recording(
            [Operation(10 * US, 110 * US, "a", 1), Operation(111 * US, 211 * US, "b", 2)],
            [Call(0, 3 * US, correlation=1), Call(60 * US, 63 * US, correlation=2)],
        )
        path = critical_path(step_graph(found), found)
        assert path.work.tolist() == [100 * US, 100 * US]
        assert path.share(KERNELS) == pytest.approx(200 / 211)
        assert replace(path, by_kind=np.zeros(8)).share(KERNELS) == 0

    def test_counts_communication_apart(self) -> None:
        found = recording([Operation(0, 9 * US, "ncclKernel_AllReduce")])
        assert critical_path(step_graph(found), found).by_kind[COMMUNICATION] == 9 * US

    def test_shows_waits_that_nothing_explains(self) -> None:
        found = recording([Operation(0, 10 * US, "a"), Operation(90 * US, 100 * US, "b")])
        assert critical_path(step_graph(found), found).by_kind[WAITS] == 79 * US


class TestEvidence:
    def of(self, found: Activity) -> tuple[str, str]:
        graph = step_graph(found)
        one = evidence(graph, found, critical_path(graph, found))
        return one.level, one.why

    def test_of_a_recording_that_explains_itself_says_nothing(self) -> None:
        assert self.of(step()) == (SOUND, "")

    def test_with_much_unexplained_time_refuses_and_names_what_is_missing(self) -> None:
        level, why = self.of(recording([Operation(0, 10 * US, "a"), Operation(90 * US, 100 * US, "b")]))
        assert level == REFUSED
        assert "the recording lacks the calls that launched 2 of 2 operations" in why
        assert "no saving is given" in why

    def test_with_a_little_gives_bounds_only(self) -> None:
        level, why = self.of(recording([Operation(0, 89 * US, "a"), Operation(100 * US, 110 * US, "b")]))
        assert level == BOUNDS_ONLY
        assert "10 µs of the critical path, 9.1 %, wait for something unknown" in why

    def test_counts_a_wait_that_no_operation_ends(self) -> None:
        found = recording(
            [Operation(10 * US, 100 * US, "a", 1), Operation(1010 * US, 1100 * US, "b", 2)],
            [Call(0, 3 * US, correlation=1), Call(5 * US, 900 * US, "cudaEventSynchronize"),
             Call(1000 * US, 1003 * US, correlation=2)],
        )  # fmt: skip
        level, why = self.of(found)
        assert level == REFUSED
        assert "what 1 waiting call waited for" in why

    def test_names_a_filtered_trace_by_its_operations_in_line(self) -> None:
        starts = [(10 + 60 * at + 6 * at * at) * US for at in range(24)]
        found = recording(
            [Operation(start, start + 20 * US, "a", at) for at, start in enumerate(starts)],
            [Call(at, at + 1, correlation=at) for at in range(24)],
        )
        assert "operations in line, which are" in self.of(found)[1]

    def test_names_what_the_gpu_draws(self) -> None:
        starts = [(10 + 100 * at + 30 * at * at) * US for at in range(24)]
        found = recording(
            [Operation(start, start + 20 * US, "a", at) for at, start in enumerate(starts)],
            [one for at, start in enumerate(starts)
             for one in (Call(start - 9 * US - 9 * at * US, start - 8 * US - 9 * at * US, correlation=at),
                         Call(start + US, start + 2 * US, "cudaGraphicsMapResources"))],
        )  # fmt: skip
        assert "the recording lacks what the GPU drew" in self.of(found)[1]

    def test_names_what_may_have_held_a_stream(self) -> None:
        """Beside a kernel of another stream, or with its GPU idle."""
        starts = [10, 31, 52, 73, 300]
        kernels = [Operation(start * US, (start + 20) * US, "a", at) for at, start in enumerate(starts)]
        calls = [Call(at * US, (at + 1) * US, correlation=at) for at in range(5)]
        idle = self.of(recording(kernels, calls))[1]
        assert "lacks events that streams wait for, or other programs on the GPU (206 µs)" in idle
        other = Operation(20 * US, 310 * US, "other", 9, stream=9)
        beside = recording([*kernels, other], [*calls, Call(10 * US, 12 * US, correlation=9)])
        assert "lacks when kernels of other streams left room on the GPU" in self.of(beside)[1]
