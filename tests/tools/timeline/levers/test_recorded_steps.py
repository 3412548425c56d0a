"""A recording is cut to its steps before it is advised: what came before them is no part of a step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ncu_parsers.timelines.activity.activity import Activity, CollectiveArguments, Dependencies

from ncu_tools.timeline.graph.evidence import SOUND
from ncu_tools.timeline.levers.recorded_steps import cut_to, recorded_steps
from ncu_tools.timeline.levers.step_advice import advice_on_recording
from ncu_tools.timeline.timeline import timeline
from tests.support.activities import Call, Operation, Range, recording

US, MS = 1_000, 1_000_000
COMPILED = 50 * MS


def after_compiling(marked: bool, ahead: bool = False) -> Activity:
    """One kernel, 50 ms of the host, then five times the same three kernels of 1 ms, 0.2 ms apart.

    If `ahead`, the first of these was launched 30 ms before, and another kernel behind it that ran on another stream.
    """
    operations, calls, ranges = [Operation(10 * US, 20 * US, "warm", 1)], [Call(0, 5 * US, correlation=1)], []
    for step in range(5):
        begin = COMPILED + 4 * MS * step
        for at, name in enumerate(("gemm", "softmax", "add")):
            start, number = begin + at * 1200 * US, 10 + 3 * step + at
            calls.append(Call(start - 8 * US, start - 3 * US, correlation=number))
            operations.append(Operation(start, start + MS, name, number))
        if marked:
            ranges.append(Range(begin - 10 * US, begin + 4 * MS - 20 * US, f"ProfilerStep#{step}"))
    if ahead:
        calls[1] = calls[1]._replace(start=20 * MS, end=20 * MS + 5 * US)
        calls.append(Call(25 * MS, 25 * MS + 5 * US, correlation=99))
        operations.append(Operation(25 * MS + 8 * US, 26 * MS, "other", 99, stream=8))
    return recording(operations, calls, ranges)


def test_marked_steps_are_counted_and_the_time_before_them_is_left_out() -> None:
    found = advice_on_recording(after_compiling(marked=True))
    assert (found.step, found.steps) == ("step", 5)
    assert found.step_ns == pytest.approx(4 * MS, rel=0.01)
    assert found.path.length_ns == pytest.approx(20 * MS, rel=0.05)


def test_kernels_that_repeat_are_one_part_since_they_may_be_layers() -> None:
    found = advice_on_recording(after_compiling(marked=False))
    assert (found.step, found.steps) == ("repeated part of the recording", 1)
    assert found.path.length_ns < COMPILED


def test_a_recording_that_is_nothing_but_steps_stays_as_it_is() -> None:
    whole = after_compiling(marked=True)
    rows = np.arange(1, len(whole.operations))
    alone = replace(whole, operations=whole.operations.at(rows), calls=whole.calls.at(rows))
    assert cut_to(alone, recorded_steps(alone)) is alone


def test_a_step_is_as_long_as_the_timeline_says_where_python_ran_long_before_its_first_call() -> None:
    """A range of the host begins 2 ms before the step; no API call does, so the recording's calls are all of the step."""
    operations = [Operation(MS, 2 * MS, "gemm", 1)]
    calls = [Call(990 * US, 995 * US, correlation=1)]
    found = recording(
        operations, calls, [Range(-2 * MS, 990 * US, "train.py"), Range(980 * US, 2 * MS, "ProfilerStep#1")]
    )
    (step,) = timeline(found).gpus[0].steps
    assert advice_on_recording(found).step_ns == step.span_ns


def test_what_names_operations_by_their_rows_still_does_after_the_cut() -> None:
    whole = replace(
        after_compiling(marked=True),
        collectives={0: CollectiveArguments("gone", 1, 1, 2), 3: CollectiveArguments("all_reduce", 8, 8, 2)},
        dependencies=Dependencies(np.array([0, 1]), np.array([1, 2])),
        fact=np.arange(16),
    )
    cut = cut_to(whole, recorded_steps(whole))
    assert [cut.operations.names[name] for name in cut.operations.name[:3].tolist()] == ["gemm", "softmax", "add"]
    assert {row: one.name for row, one in cut.collectives.items()} == {2: "all_reduce"}
    assert (cut.dependencies.before.tolist(), cut.dependencies.after.tolist()) == ([0], [1])
    assert cut.fact is not None
    assert cut.fact.tolist() == list(range(1, 16))


def test_a_launch_whose_kernel_ran_before_the_steps_is_none_without_a_record() -> None:
    """The first kernel that repeats was launched 30 ms ahead, and then another one that ran at once."""
    found = recorded_steps(after_compiling(marked=False, ahead=True))
    assert (found.start, found.end) == (COMPILED, COMPILED + 16 * MS)
    advice = advice_on_recording(after_compiling(marked=False, ahead=True))
    assert not any("no record" in note for note in advice.notes)


def behind_earlier_work(first_ends: int = 30 * US) -> Activity:
    """Two kernels that the host launches at once and the GPU starts 20 ms later, behind one of another stream."""
    operations = [
        Operation(20 * US, first_ends, "first", 1, stream=8),
        Operation(20 * MS, 21 * MS, "gemm", 2),
        Operation(21 * MS + US, 22 * MS, "softmax", 3),
    ]
    calls = [Call(10 * US, 12 * US, correlation=1), Call(40 * US, 45 * US, correlation=2),
             Call(50 * US, 55 * US, correlation=3)]  # fmt: skip
    return recording(operations, calls)


def test_time_in_which_the_gpu_ran_work_from_before_the_recording_is_left_out_with_its_calls() -> None:
    found = advice_on_recording(behind_earlier_work())
    assert found.step == "recording behind work from before it"
    assert found.step_ns == 2 * MS
    assert found.evidence.level == SOUND
    assert len(found.situation.activity.operations) == 2
    assert not len(found.situation.activity.calls)


def test_such_time_is_the_step_that_the_timeline_has_a_verdict_on() -> None:
    (gpu,) = timeline(behind_earlier_work()).gpus
    assert gpu.typical is not None
    assert (gpu.typical.name, gpu.typical.span_ns, gpu.typical.verdict.bound) == (
        "behind earlier work",
        2 * MS,
        "kernels",
    )


def test_a_stream_that_waited_while_its_gpu_ran_something_recorded_cuts_nothing() -> None:
    assert recorded_steps(behind_earlier_work(first_ends=15 * MS)).name == "recording"


def test_a_wait_of_one_gpu_cuts_nothing_where_another_works_meanwhile() -> None:
    waiting = behind_earlier_work()
    device = waiting.operations.device.copy()
    begin, end = waiting.operations.start.copy(), waiting.operations.end.copy()
    device[0], begin[0], end[0] = 1, 20 * US, 15 * MS
    operations = replace(waiting.operations, device=device, start=begin, end=end)
    assert recorded_steps(replace(waiting, operations=operations)).name == "recording"


def test_earlier_work_is_not_left_out_with_more_of_the_recording_than_a_twentieth() -> None:
    busy = behind_earlier_work()
    early = replace(busy.operations, start=busy.operations.start.copy(), end=busy.operations.end.copy())
    early.start[0], early.end[0] = -MS, 30 * US
    assert recorded_steps(replace(busy, operations=early)).name == "recording"
