"""Steps are the ranges of the host that mark them, and have windows on the GPU by the launches in them."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import WrongUsage
from ncu_parsers.timelines.activity import activity

from ncu_tools.timeline.steps import windows_by_repetition
from ncu_tools.timeline.timeline import timeline
from tests.support.activities import Call, Operation, Range, recording


def steps(made: activity.Activity, pattern: str | None = None) -> list[tuple[str, int, int]]:
    (gpu,) = timeline(made, step=re.compile(pattern) if pattern else None).gpus
    return [(step.name, step.start_ns, step.start_ns + step.span_ns) for step in gpu.steps]


def asynchronous() -> activity.Activity:
    """Two steps of the host, whose operations run after the host has left them."""
    ranges = [Range(0, 100, "ProfilerStep#4"), Range(100, 200, "ProfilerStep#5")]
    calls = [Call(10, 12, correlation=1), Call(20, 22, correlation=2), Call(110, 112, correlation=3)]
    operations = [Operation(15, 90, calls=1), Operation(90, 180, calls=2), Operation(180, 290, calls=3)]
    return recording(operations, calls, ranges)


def test_an_operation_belongs_to_the_step_in_which_it_was_launched() -> None:
    assert steps(asynchronous()) == [("ProfilerStep#4", 0, 180), ("ProfilerStep#5", 180, 290)]


def test_a_step_without_queued_work_begins_with_its_range() -> None:
    ranges = [Range(0, 100, "ProfilerStep#4"), Range(105, 200, "ProfilerStep#5")]
    calls = [Call(10, 12, correlation=1), Call(150, 152, correlation=2)]
    made = recording([Operation(15, 60, calls=1), Operation(155, 190, calls=2)], calls, ranges)
    assert steps(made) == [("ProfilerStep#4", 0, 100), ("ProfilerStep#5", 105, 200)]


def test_a_step_begins_when_work_that_was_queued_before_it_is_done() -> None:
    """Warm-up before the first step, and an evaluation between two of them, are launched long before they run."""
    ranges = [Range(20, 40, "ProfilerStep#4"), Range(130, 140, "ProfilerStep#5")]
    calls = [Call(0, 2, correlation=1), Call(25, 27, correlation=2), Call(125, 127, correlation=3),
             Call(135, 137, correlation=4)]  # fmt: skip
    operations = [Operation(5, 90, calls=1), Operation(95, 100, calls=2), Operation(127, 200, calls=3),
                  Operation(203, 220, calls=4)]  # fmt: skip
    assert steps(recording(operations, calls, ranges)) == [("ProfilerStep#4", 90, 100), ("ProfilerStep#5", 200, 220)]


def test_a_step_begins_behind_operations_of_unknown_calls_that_ran_before_its_first() -> None:
    ranges, calls = [Range(20, 40, "ProfilerStep#4")], [Call(25, 27, correlation=2)]
    before, own, behind = Operation(5, 90), Operation(95, 100, calls=2), Operation(100, 130)
    assert steps(recording([before, own, behind], calls, ranges)) == [("ProfilerStep#4", 90, 100)]


def test_a_step_begins_with_its_first_operation_where_earlier_work_runs_on_beside_it() -> None:
    ranges, calls = [Range(20, 40, "ProfilerStep#4")], [Call(0, 2, correlation=1), Call(25, 27, correlation=2)]
    beside = [Operation(5, 300, calls=1, stream=8), Operation(95, 100, calls=2)]
    assert steps(recording(beside, calls, ranges)) == [("ProfilerStep#4", 95, 100)]


def test_steps_of_the_profiler_come_before_iterations_of_the_launcher() -> None:
    made = asynchronous()
    more = [Range(0, 50, "iteration 0")]
    assert steps(made) == steps(recording_with(made, more))
    ranges = [Range(0, 100, "iteration 0"), Range(100, 200, "iteration 1")]
    calls = [Call(10, 12, correlation=1), Call(110, 112, correlation=2)]
    found = steps(recording([Operation(15, 90, calls=1), Operation(115, 180, calls=2)], calls, ranges))
    assert [name for name, *_ in found] == ["iteration 0", "iteration 1"]


def recording_with(made: activity.Activity, more: list[Range]) -> activity.Activity:
    ranges = made.ranges
    kept = [
        Range(int(ranges.start[row]), int(ranges.end[row]), ranges.names[int(ranges.name[row])])
        for row in range(len(ranges))
    ]
    calls = [
        Call(int(start), int(end), correlation=int(number))
        for start, end, number in zip(made.calls.start, made.calls.end, made.calls.correlation, strict=True)
    ]
    operations = [
        Operation(int(start), int(end), calls=int(number))
        for start, end, number in zip(
            made.operations.start, made.operations.end, made.operations.correlation, strict=True
        )
    ]
    return recording(operations, calls, [*kept, *more])


def test_the_user_names_steps_and_a_range_within_a_step_is_none() -> None:
    ranges = [Range(0, 100, "train_step 1"), Range(10, 50, "train_step inner"), Range(100, 200, "train_step 2")]
    calls = [Call(20, 22, correlation=1), Call(110, 112, correlation=2)]
    made = recording([Operation(25, 90, calls=1), Operation(115, 180, calls=2)], calls, ranges)
    assert [name for name, *_ in steps(made, "^train_step")] == ["train_step 1", "train_step 2"]


def test_steps_that_overlap_the_next_a_little_are_all_shown_and_end_where_it_begins() -> None:
    ranges = [Range(0, 101, "step 1"), Range(100, 201, "step 2"), Range(200, 300, "step 3")]
    calls = [Call(100 * at + 10, 100 * at + 12, correlation=at) for at in range(3)]
    operations = [Operation(100 * at + 15, 100 * at + 90, calls=at) for at in range(3)]
    found = steps(recording(operations, calls, ranges), "^step")
    assert found == [("step 1", 0, 100), ("step 2", 100, 200), ("step 3", 200, 300)]


def requests(*, device_of_second: int, others: list[Call] | None = None) -> activity.Activity:
    """Two threads in a request each at once; every one launches an operation of its own."""
    ranges = [Range(0, 100, "request 1"), Range(50, 150, "request 2", thread=71)]
    calls = [Call(60, 62, correlation=1), Call(70, 72, correlation=2, thread=71), *(others or [])]
    operations = [
        Operation(65, 120, calls=1), Operation(75, 130, calls=2, stream=8, device=device_of_second),
        Operation(140, 200, calls=3), Operation(200, 210, calls=4),
    ]  # fmt: skip
    return recording(operations[: len(calls)], calls, ranges)


def test_an_operation_belongs_to_the_step_of_the_thread_that_launched_it() -> None:
    first, second = timeline(requests(device_of_second=1), step=re.compile("^request")).gpus
    assert [(step.name, step.start_ns, step.span_ns) for step in first.steps] == [("request 1", 0, 120)]
    assert [(step.name, step.start_ns, step.span_ns) for step in second.steps] == [("request 2", 50, 100)]


def test_steps_of_two_threads_overlap_on_a_gpu_and_a_note_says_how_many() -> None:
    made = requests(device_of_second=0)
    assert steps(made, "^request") == [("request 1", 0, 120), ("request 2", 50, 150)]
    notes = timeline(made, step=re.compile("^request")).notes
    assert any(note.startswith("GPU 0: 1 of 2 steps begin while one of another thread is not over") for note in notes)


def test_what_a_thread_outside_of_steps_launches_belongs_to_the_one_that_is_open_if_only_one_is() -> None:
    """As the backward pass, which has a thread of its own."""
    in_both, in_second = Call(80, 82, correlation=3, thread=72), Call(110, 112, correlation=4, thread=72)
    made = requests(device_of_second=0, others=[in_both, in_second])
    assert steps(made, "^request") == [("request 1", 0, 120), ("request 2", 50, 210)]


def test_steps_of_which_no_time_is_left_are_counted_in_a_note() -> None:
    """The second one overtakes the first on another stream."""
    ranges = [Range(0, 10, "step 1"), Range(10, 20, "step 2")]
    calls = [Call(5, 6, correlation=1), Call(15, 16, correlation=2)]
    operations = [Operation(40, 60, calls=1), Operation(30, 50, calls=2, stream=8)]
    early = recording([*operations, Operation(1, 39)], calls, ranges)
    assert steps(early, "^step") == [("step 2", 39, 50)]
    notes = timeline(early, step=re.compile("^step")).notes
    assert "GPU 0: 1 of 2 steps are left out: on the GPU they begin no earlier than the step that follows" in notes


def test_a_name_that_no_range_has_is_refused_with_some_that_there_are() -> None:
    with pytest.raises(WrongUsage, match="names no range") as raised:
        steps(asynchronous(), "evaluate")
    assert "ProfilerStep#4" in raised.value.paragraph


def repeated(period: list[str], times: int, first: list[str] | None = None) -> activity.Activity:
    names = [*(first or []), *period * times]
    operations = [Operation(10 * at, 10 * at + 5, name, calls=at) for at, name in enumerate(names)]
    calls = [Call(10 * at - 3, 10 * at - 2, correlation=at) for at in range(len(names))]
    return recording(operations, calls)


def test_a_sequence_of_kernels_that_repeats_is_a_step() -> None:
    found = steps(repeated(["embed", "layer", "norm", "layer", "norm", "head"], 5, ["warm", "up"]))
    assert found == [(f"repetition {at + 1}", 20 + 60 * at, 80 + 60 * at) for at in range(4)]


def test_layers_within_a_step_are_not_taken_for_steps() -> None:
    found = steps(repeated(["embed", *["layer", "norm"] * 12, "head"], 4))
    assert len(found) == 3


def test_how_steps_were_found_is_in_the_notes() -> None:
    notes = timeline(repeated(["a", "b", "c"], 5)).notes
    assert any("found by repetition" in note and "4 of 4 have the same 3 kernels" in note for note in notes)


def test_kernels_of_one_launched_graph_are_no_steps() -> None:
    names = ["a", "b", "c"] * 5
    operations = [Operation(10 * at, 10 * at + 5, name, calls=1) for at, name in enumerate(names)]
    made = recording(operations, [Call(-5, -1, "cudaGraphLaunch", correlation=1)])
    assert steps(made) == []
    assert any("no sequence of kernels repeats" in note for note in timeline(made).notes)


def test_iterations_that_a_table_names_are_steps() -> None:
    made = recording([Operation(0, 10), Operation(20, 30), Operation(40, 50), Operation(55, 60)])
    operations = replace(made.operations, iteration=np.array([0, 0, 1, 1]))
    made = replace(made, operations=operations)
    assert steps(made) == [("iteration 0", 0, 30), ("iteration 1", 40, 60)]


@given(st.lists(st.sampled_from("abc"), max_size=30))
def test_any_sequence_gives_steps_in_order_or_none(names: list[str]) -> None:
    made = recording([Operation(10 * at, 10 * at + 5, name) for at, name in enumerate(names)])
    found = windows_by_repetition(made.operations, made.operations.context)
    windows = found[0] if found else []
    assert all(one.start < one.end for one in windows)
    assert all(one.end <= other.start for one, other in pairwise(windows))
