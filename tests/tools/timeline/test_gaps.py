"""Every nanosecond of a gap has a cause, by the API call that ended it and by what its thread did before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.timelines.activity import activity

from ncu_tools.timeline.gaps import CAUSES, ThreadsOfCalls
from ncu_tools.timeline.launch_links import launching_calls
from ncu_tools.timeline.timeline import timeline
from tests.support.activities import Call, Operation, Overhead, Range, recording

MS = 1_000_000


def causes(*arguments: object) -> dict[str, int]:
    (gpu,) = timeline(recording(*arguments)).gpus  # type: ignore[arg-type]
    assert sum(gpu.whole.causes.values()) == gpu.whole.idle_ns
    return gpu.whole.causes


def test_a_launch_that_began_in_the_gap_takes_the_time_from_its_call_on() -> None:
    found = causes([Operation(0, 100), Operation(300, 400, calls=1)], [Call(250, 260, correlation=1)])
    assert found == {"host code": 150, "launch": 50}


def test_a_short_pause_between_two_calls_is_the_price_of_launching() -> None:
    calls = [Call(50, 60, correlation=9), Call(250, 260, correlation=1)]
    assert causes([Operation(0, 100), Operation(300, 400, calls=1)], calls) == {"launch": 200}


def test_a_long_pause_between_two_calls_is_not() -> None:
    calls = [Call(50, 60, correlation=9), Call(5 * MS, 5 * MS + 10, correlation=1)]
    found = causes([Operation(0, 100), Operation(5 * MS + 20, 6 * MS, calls=1)], calls)
    assert found == {"host code": 5 * MS - 100, "launch": 20}


def test_the_time_in_a_call_that_waits_is_synchronisation() -> None:
    calls = [Call(50, 180, "cudaStreamSynchronize"), Call(250, 260, correlation=1)]
    found = causes([Operation(0, 100), Operation(300, 400, calls=1)], calls)
    assert found == {"synchronisation": 80, "launch": 120}


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("cudaMalloc", "allocator"), ("cuMemAlloc_v2", "allocator"), ("hipFree", "allocator"),
        ("cuModuleLoadData", "module loading"), ("cuLibraryLoadData", "module loading"),
        ("cudaDeviceSynchronize", "synchronisation"), ("hipMemcpyWithStream", "synchronisation"),
        ("cudaMemcpy", "synchronisation"), ("cudaEventRecord", "launch"), ("cudaMemcpyAsync", "launch"),
    ],
)  # fmt: skip
def test_calls_that_fill_a_gap_are_named_by_what_they_do(name: str, cause: str) -> None:
    calls = [Call(100, 290, name), Call(290, 295, correlation=1)]
    found = causes([Operation(0, 100), Operation(300, 400, calls=1)], calls)
    expected = {"launch": 200} if cause == "launch" else {cause: 190, "launch": 10}
    assert found == expected


def test_loading_code_within_a_launch_is_module_loading() -> None:
    loading = [Overhead(260, 290, activity.MODULE_LOADING)]
    calls = [Call(250, 295, correlation=1)]
    found = causes([Operation(0, 100), Operation(300, 400, calls=1)], calls, [], loading)
    assert found == {"host code": 150, "launch": 20, "module loading": 30}


def test_ranges_say_what_the_host_did_before_the_call() -> None:
    ranges = [
        Range(0, 9 * MS, "train.py(12): step", activity.PYTHON),
        Range(1 * MS, 3 * MS, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", activity.ANNOTATION),
        Range(4 * MS, 5 * MS, "aten::sort", activity.OPERATOR),
    ]
    calls = [Call(50, 60, correlation=9), Call(6 * MS, 6 * MS + 10, correlation=1)]
    found = causes([Operation(0, 100), Operation(6 * MS + 20, 7 * MS, calls=1)], calls, ranges)
    assert found == {"data loading": 2 * MS, "host code": MS, "python": 3 * MS - 100, "launch": 20}


def test_an_operation_that_was_queued_before_the_gap_is_no_fault_of_the_host() -> None:
    calls = [Call(10, 20, correlation=1)]
    assert causes([Operation(0, 100), Operation(103, 200, calls=1)], calls) == {"queued": 3}


def test_one_that_starts_much_later_than_it_was_queued_waits_for_something_else() -> None:
    calls = [Call(10, 20, correlation=1)]
    found = causes([Operation(0, 100), Operation(5 * MS, 6 * MS, calls=1)], calls)
    assert found == {"dependency": 5 * MS - 100}


def test_so_does_one_whose_call_returned_long_before_it_started() -> None:
    calls = [Call(90, 150, correlation=1)]
    found = causes([Operation(0, 100), Operation(5 * MS, 6 * MS, calls=1)], calls)
    assert found == {"launch": 50, "dependency": 5 * MS - 150}


def test_a_gap_before_an_operation_without_a_call_is_unknown() -> None:
    assert causes([Operation(0, 100), Operation(300, 400)], [Call(0, 5, correlation=44)]) == {"unknown": 200}


def test_the_calls_of_another_thread_are_not_blamed() -> None:
    calls = [Call(100, 290, "cudaMalloc", thread=71), Call(290, 295, correlation=1)]
    found = causes([Operation(0, 100), Operation(300, 400, calls=1)], calls)
    assert found == {"host code": 190, "launch": 10}


def test_the_longest_gaps_say_what_the_host_did_and_which_call_ended_them() -> None:
    ranges = [Range(0, 9 * MS, "step"), Range(50, 6 * MS + 30, "aten::item, seq = 4, op_id = 12")]
    calls = [Call(50, 150, "cudaStreamSynchronize"), Call(6 * MS, 6 * MS + 10, correlation=1)]
    found = timeline(recording([Operation(0, 100), Operation(6 * MS + 20, 7 * MS, calls=1)], calls, ranges))
    (gap,) = found.gpus[0].longest
    assert (gap.start_ns, gap.duration_ns) == (100, 6 * MS - 80)
    assert gap.cause == "host code"
    assert gap.host_range == "aten::item"
    assert gap.covered == 1.0
    assert gap.after_wait == "cudaStreamSynchronize"
    assert (gap.call, gap.call_ns, gap.late_ns) == ("cudaLaunchKernel", 10, 6 * MS - 100)
    assert gap.next_operation == "void gemm()"


def test_the_range_named_is_the_innermost_over_half_of_the_time_or_none() -> None:
    ranges = [Range(0, 100, "step"), Range(10, 70, "load"), Range(20, 40, "decode"), Range(200, 230, "short")]
    made = recording([Operation(0, 9)], [], ranges)
    host = ThreadsOfCalls(made, launching_calls(made)).of(70)
    assert host.range_over(0, 100) == ("load", 0.6)
    assert host.range_over(20, 50) == ("decode", 2 / 3)
    assert host.range_over(70, 90) == ("step", 1.0)
    assert host.range_over(150, 300) is None
    assert host.range_over(50, 50) is None


def test_an_operation_belongs_to_the_earliest_call_with_its_number() -> None:
    made = recording([Operation(0, 100, calls=3)], [Call(5, 6, correlation=3), Call(1, 2, correlation=3)])
    assert made.calls.start[launching_calls(made)].tolist() == [1]


def test_a_range_is_looked_up_on_the_thread_that_is_asked_for() -> None:
    made = recording([Operation(0, 9)], [], [Range(0, 100, "here"), Range(0, 100, "there", thread=71)])
    assert ThreadsOfCalls(made, launching_calls(made)).of(71).range_over(10, 20) == ("there", 1.0)
    assert ThreadsOfCalls(made, launching_calls(made)).of(72).range_over(10, 20) is None


times = st.integers(0, 400)
lengths = st.integers(0, 60)
some_calls = st.sampled_from(["cudaLaunchKernel", "cudaMalloc", "cudaDeviceSynchronize", "cuModuleLoadData", "cudaFoo"])


@st.composite
def recordings(draw: st.DrawFn) -> activity.Activity:
    operations = [
        Operation(start, start + length, name, calls, stream, kind=kind)
        for start, length, name, calls, stream, kind in draw(
            st.lists(
                st.tuples(times, lengths, st.sampled_from(["gemm", "ncclDevKernel_AllReduce"]),
                          st.none() | st.integers(0, 9), st.integers(0, 2), st.sampled_from([0, 1, 2])),
                min_size=1, max_size=12,
            )
        )
    ]  # fmt: skip
    calls = [
        Call(start, start + length, name, number, thread)
        for start, length, name, number, thread in draw(
            st.lists(st.tuples(times, lengths, some_calls, st.integers(0, 9), st.integers(70, 71)), max_size=10)
        )
    ]
    ranges = [
        Range(start, start + length, name, kind, thread)
        for start, length, name, kind, thread in draw(
            st.lists(
                st.tuples(times, lengths, st.sampled_from(["ProfilerStep#1", "ProfilerStep#2", "data_load", "f"]),
                          st.integers(0, 4), st.integers(70, 71)), max_size=8,
            )
        )
    ]  # fmt: skip
    overheads = [
        Overhead(start, start + length, kind)
        for start, length, kind in draw(st.lists(st.tuples(times, lengths, st.integers(0, 2)), max_size=4))
    ]
    return recording(operations, calls, ranges, overheads)


@given(recordings())
def test_busy_and_gaps_are_the_span_to_the_nanosecond_and_every_gap_has_causes(made: activity.Activity) -> None:
    for gpu in timeline(made).gpus:
        for step in (gpu.whole, *gpu.steps):
            assert step.busy_ns + step.idle_ns == step.span_ns
            assert step.compute_ns + step.exposed_communication_ns + step.exposed_copies_ns == step.busy_ns
            assert sum(step.causes.values()) == step.idle_ns
            assert sum(part.time_ns for part in step.verdict.parts) == step.span_ns
        assert gpu.gaps.by_cause.sum(axis=0).tolist() == (gpu.gaps.idle.end - gpu.gaps.idle.start).tolist()
        assert sum(gpu.gaps.causes[cause].total for cause in CAUSES) == gpu.gaps.idle.total


@given(recordings(), st.integers(0, 300), st.integers(1, 200))
def test_so_they_are_of_any_part_that_is_looked_at(made: activity.Activity, start: int, length: int) -> None:
    first = min(int(table.start.min()) for table in (made.operations, made.calls) if len(table))
    last = max(int(table.end.max()) for table in (made.operations, made.calls) if len(table))
    if first + start >= last:
        return
    for gpu in timeline(made, trim=activity.Window(start, start + length)).gpus:
        assert gpu.whole.span_ns == min(first + start + length, last) - (first + start)
        for step in (gpu.whole, *gpu.steps):
            assert step.busy_ns + step.idle_ns == step.span_ns
            assert sum(step.causes.values()) == step.idle_ns
