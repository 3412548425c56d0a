"""Every nanosecond of a gap has a cause, by the API call that ended it and by what its thread did before."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.timelines.activity import activity

from ncu_tools.timeline import gaps as gaps_module
from ncu_tools.timeline.call_kinds import kind_of_call, names_that_load_data
from ncu_tools.timeline.gaps import CAUSES, Gaps, ThreadsOfCalls, copies_of_pageable_memory, gaps_within
from ncu_tools.timeline.intervals import IntervalSet
from ncu_tools.timeline.launch_links import launch_links, launching_calls
from ncu_tools.timeline.timeline import GpuTimeline, timeline
from tests.support.activities import Call, Operation, Overhead, Range, copy, recording

US, MS = 1_000, 1_000_000


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


def test_a_pause_as_long_as_the_limit_is_too() -> None:
    calls = [Call(50, 60, correlation=9), Call(60 + 100 * US, 70 + 100 * US, correlation=1)]
    found = causes([Operation(0, 100), Operation(80 + 100 * US, 200 * US, calls=1)], calls)
    assert found == {"launch": 100 * US - 20}


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


def test_the_profilers_own_work_before_a_call_is_that_and_no_loading_of_code() -> None:
    own = [
        Overhead(110, 140, activity.PROFILER),
        Overhead(150, 160, activity.MODULE_LOADING),
        Overhead(170, 200, 1, 71),
    ]
    found = causes([Operation(0, 100), Operation(300, 400, calls=1)], [Call(250, 295, correlation=1)], [], own)
    assert found == {"host code": 110, "launch": 50, "profiler": 30, "module loading": 10}


def test_a_call_that_takes_no_time_launches_from_its_moment_on() -> None:
    found = causes([Operation(0, 100), Operation(300, 400, calls=1)], [Call(250, 250, correlation=1)])
    assert found == {"host code": 150, "launch": 50}


def test_ranges_say_what_the_host_did_before_the_call() -> None:
    ranges = [
        Range(0, 9 * MS, "train.py(12): step", activity.PYTHON),
        Range(1 * MS, 3 * MS, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", activity.ANNOTATION),
        Range(4 * MS, 5 * MS, "aten::sort", activity.OPERATOR),
        Range(5 * MS, 5 * MS + 7, "poll", activity.OS_CALL),
    ]
    calls = [Call(50, 60, correlation=9), Call(6 * MS, 6 * MS + 10, correlation=1)]
    found = causes([Operation(0, 100), Operation(6 * MS + 20, 7 * MS, calls=1)], calls, ranges)
    assert found == {"data loading": 2 * MS, "host code": MS + 7, "python": 3 * MS - 107, "launch": 20}


def test_an_operation_that_was_queued_before_the_gap_is_no_fault_of_the_host() -> None:
    calls = [Call(10, 20, correlation=1)]
    assert causes([Operation(0, 100), Operation(103, 200, calls=1)], calls) == {"queued": 3}


def test_an_operation_that_starts_long_after_it_was_queued_waits_for_a_dependency() -> None:
    calls = [Call(10, 20, correlation=1)]
    found = causes([Operation(0, 100), Operation(5 * MS, 6 * MS, calls=1)], calls)
    assert found == {"dependency": 5 * MS - 100}


def test_an_operation_that_starts_long_after_its_call_returned_waits_for_a_dependency() -> None:
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


def test_the_longest_gaps_come_first_and_name_what_ended_them_if_anything_did() -> None:
    operations = [Operation(100, 200, "first", 1), Operation(500, 600, "second", 2), Operation(650, 650, "none")]
    calls = [Call(0, 10, correlation=1), Call(400, 450, correlation=2)]
    found = timeline(recording(operations, calls, [Range(0, 90, "a"), Range(230, 340, "b"), Range(400, 500, "c")]))
    said = [
        (gap.start_ns, gap.duration_ns, gap.next_operation, gap.late_ns, gap.host_range)
        for gap in found.gpus[0].longest
    ]
    assert said == [(200, 300, "second", 200, "b"), (0, 100, "first", 0, "a"), (600, 50, None, None, None)]


def test_a_gap_behind_the_last_operation_is_its_threads_and_unknown_where_no_call_is_known() -> None:
    behind = [Operation(0, 100), Operation(300, 300)]
    assert causes(behind) == {"unknown": 200}
    assert causes([behind[0]._replace(calls=1), behind[1]], [Call(0, 1, correlation=1)]) == {"host code": 200}


def test_operations_that_take_no_time_leave_one_gap() -> None:
    assert causes([Operation(0, 0), Operation(300, 300)]) == {"unknown": 300}


def test_gaps_in_a_window_are_those_that_reach_into_it_cut_to_it() -> None:
    idle = IntervalSet(np.array([0, 20, 40]), np.array([10, 30, 50]))
    gaps = Gaps(idle, dict.fromkeys(CAUSES, idle), np.array([5, 6, 7]), np.array([1, 2, 3]))
    for (start, end), expected in {
        (5, 45): [(5, 10, 5, 1), (20, 30, 6, 2), (40, 45, 7, 3)], (10, 40): [(20, 30, 6, 2)], (12, 18): [],
    }.items():  # fmt: skip
        found = gaps_within(gaps, start, end)
        columns = (found.idle.start, found.idle.end, found.next_operation, found.call)
        assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected


def test_the_main_cause_of_a_gap_takes_most_of_it_however_few_are_looked_at_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gaps_module, "AT_ONCE", 2)
    starts = 20 * np.arange(5)
    causes_of_gaps = {CAUSES[0]: IntervalSet(starts + 7, starts + 10)}
    for gap, cause in enumerate(CAUSES[1:6]):
        causes_of_gaps[cause] = IntervalSet(starts[[gap]], starts[[gap]] + 7)
    none = IntervalSet(starts[:0], starts[:0])
    idle, rows = IntervalSet(starts, starts + 10), np.zeros(5, np.int32)
    made = Gaps(idle, {cause: causes_of_gaps.get(cause, none) for cause in CAUSES}, rows, rows)
    assert made.main_causes.tolist() == [1, 2, 3, 4, 5]


def test_a_thread_waits_at_a_moment_from_the_beginning_of_a_call_that_waits_to_before_its_end() -> None:
    calls = [Call(0, 10, "cudaStreamSynchronize"), Call(10, 20, "cudaFoo"), Call(30, 40, "cudaMemcpy")]
    made = recording([Operation(0, 9)], calls)
    host = ThreadsOfCalls(made, launching_calls(made)).of(70)
    assert {moment: host.waiting_at(moment) for moment in (0, 9, 10, 15, 30, 40, 50)} == {
        0: "cudaStreamSynchronize", 9: "cudaStreamSynchronize", 10: None, 15: None, 30: "cudaMemcpy", 40: None, 50: None,
    }  # fmt: skip


def test_only_calls_that_launch_a_copy_of_pageable_memory_hold_the_host_as_one() -> None:
    pageable = activity.PAGEABLE
    operations = [
        copy(10, 20, 8, 1, source_memory=pageable), copy(30, 40, 8, 2, destination_memory=pageable),
        copy(50, 60, 8, 3, source_memory=activity.PINNED), copy(70, 80, 8, None, source_memory=pageable),
        Operation(90, 99, kind=activity.MEMSET, destination_memory=pageable, calls=4),
    ]  # fmt: skip
    calls = [Call(at, at + 1, "cudaMemcpyAsync", correlation=at) for at in range(1, 6)]
    made = recording(operations, calls)
    assert copies_of_pageable_memory(made, launching_calls(made)).tolist() == [True, True, False, False, False]


def test_the_range_named_is_the_innermost_over_half_of_the_time_or_none() -> None:
    ranges = [
        Range(0, 100, "step"), Range(10, 70, "load"), Range(20, 40, "decode"), Range(200, 230, "short"),
        Range(210, 233, "no half"),
    ]  # fmt: skip
    made = recording([Operation(0, 9)], [], ranges)
    host = ThreadsOfCalls(made, launching_calls(made)).of(70)
    assert host.range_over(0, 100) == ("load", 0.6)
    assert host.range_over(20, 50) == ("decode", 2 / 3)
    assert host.range_over(70, 90) == ("step", 1.0)
    assert host.range_over(140, 260) is None
    assert host.range_over(200, 260) == ("short", 0.5)
    assert host.range_over(50, 50) is None


def test_a_long_range_is_found_behind_more_short_ones_than_are_looked_at_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gaps_module, "LOOKED_AT_ONCE", 2)
    made = recording(
        [Operation(0, 9)], [], [Range(0, 100, "step"), *(Range(at, at + 1, "short") for at in range(1, 8))]
    )
    assert ThreadsOfCalls(made, launching_calls(made)).of(70).range_over(50, 60) == ("step", 1.0)


def test_an_operation_belongs_to_the_earliest_call_with_its_number() -> None:
    made = recording([Operation(0, 100, calls=3)], [Call(5, 6, correlation=3), Call(1, 2, correlation=3)])
    assert made.calls.start[launching_calls(made)].tolist() == [1]


def test_a_range_is_looked_up_on_the_thread_that_is_asked_for() -> None:
    made = recording([Operation(0, 9)], [], [Range(0, 100, "here"), Range(0, 100, "there", thread=71)])
    assert ThreadsOfCalls(made, launching_calls(made)).of(71).range_over(10, 20) == ("there", 1.0)
    assert ThreadsOfCalls(made, launching_calls(made)).of(72).range_over(10, 20) is None


UNIT = 10 * US
"""Times of drawn recordings are so many ns apart: the limits of timeline.toml are 1 and 10 of these."""
PAUSES = (0, 0, 1, 1, 2, 10, 11, 13)
SOME_CALLS = (
    "cudaMalloc", "cudaDeviceSynchronize", "cuModuleLoadData", "cudaFoo", "cudaLaunchKernel", "cudaStreamBeginCapture",
    "cudaStreamEndCapture",
)  # fmt: skip
SOME_RANGES = ("ProfilerStep#1", "ProfilerStep#2", "data_load", "f")


def recorded(random: Random) -> activity.Activity:
    """Calls one after the other, each with what it launches, of which some has no record; and other calls and ranges."""
    operations, calls, moment, free = [], [], 0, 0
    for number in range(random.randint(2, 8)):
        begin = moment + random.choice(PAUSES)
        moment = begin + random.choice(PAUSES)
        calls.append(Call(UNIT * begin, UNIT * moment, correlation=number, thread=random.choice((70, 70, 70, 71))))
        start = max(free, begin + random.choice(PAUSES))
        free = start + random.randint(0, 4)
        name, kind = random.choice(("gemm", "gemm", "ncclDevKernel_AllReduce")), random.choice((0, 0, 1, 2))
        called = None if random.random() < 0.06 else number
        if number == 0 or random.random() < 0.94:
            operations.append(Operation(UNIT * start, UNIT * free, name, called, kind=kind))

    def spans(most: int) -> list[tuple[int, int]]:
        starts = [random.randint(0, moment + 5) for _ in range(random.randint(0, most))]
        return [(UNIT * start, UNIT * (start + random.randint(0, 15))) for start in starts]

    operations += [Operation(*span, stream=8, kind=activity.MEMCPY) for span in spans(1)]
    calls += [Call(*span, random.choice(SOME_CALLS), thread=random.choice((70, 70, 71))) for span in spans(8)]
    ranges = [
        Range(*span, random.choice(SOME_RANGES), random.randint(0, 4), random.choice((70, 70, 71))) for span in spans(8)
    ]
    return recording(operations, calls, ranges, [Overhead(*span, random.randint(0, 2)) for span in spans(2)])


recordings = st.randoms(use_true_random=True).map(recorded)


Spans = list[tuple[int, int]]


class Thread:
    """What one thread did, as spans of moments: the rules of docs/timeline.md, written down a second time."""

    def __init__(self, made: activity.Activity, thread: int) -> None:
        self.made, self.thread = made, thread
        self.calls = [
            (start, end, kind_of_call(made.calls.names[name]))
            for start, end, name in self._own(made.calls, made.calls.name)
        ]

    def _own(self, table: object, kinds: object) -> list[tuple[int, int, int]]:
        every = zip(table.start.tolist(), table.end.tolist(), kinds.tolist(), table.thread.tolist(), strict=True)  # type: ignore[attr-defined]
        return [(start, end, kind) for start, end, kind, thread in every if thread == self.thread]

    def _in_calls(self, *kinds: str) -> Spans:
        return [(start, end) for start, end, kind in self.calls if kind in kinds]

    def _overheads(self, kind: int) -> Spans:
        return [
            (start, end) for start, end, one in self._own(self.made.overheads, self.made.overheads.kind) if one == kind
        ]

    def _ranges(self, *kinds: int) -> Spans:
        return [(start, end) for start, end, one in self._own(self.made.ranges, self.made.ranges.kind) if one in kinds]

    def _captures(self) -> Spans:
        ends = [(start, end) for start, end, kind in self.calls if kind == "end of capture"]
        begins = [start for start, _, kind in self.calls if kind == "begin of capture"]
        return [
            (begin, next(end for start, end in ends if start >= begin))
            for begin in begins
            if ends and begin <= ends[-1][0]
        ]

    def _launching(self) -> Spans:
        """Calls, and pauses of at most 100 us between one and the next."""
        spans = sorted((start, end) for start, end, _ in self.calls if end > start)
        reached = [max(end for _, end in spans[: place + 1]) for place in range(len(spans))]
        pauses = zip(reached[:-1], [start for start, _ in spans[1:]], strict=True)
        return spans + [(end, start) for end, start in pauses if 0 < start - end <= 100 * US]

    def _loads_data(self) -> Spans:
        loads = names_that_load_data(self.made.ranges.names).tolist()
        return [(start, end) for start, end, name in self._own(self.made.ranges, self.made.ranges.name) if loads[name]]

    def within_its_call(self, moment: int) -> str:
        """The cause of a moment in the call that launches."""
        return self._first(moment, [*self._of_calls(), ("profiler", self._overheads(activity.PROFILER))], "launch")

    def before_its_call(self, moment: int) -> str:
        """The cause of a moment before it."""
        layers = [
            *self._of_calls(), ("synchronisation", self._in_calls("synchronisation")),
            ("profiler", self._overheads(activity.PROFILER)), ("launch", self._launching()),
            ("data loading", self._loads_data()),
            ("host code", self._ranges(activity.OPERATOR, activity.OS_CALL)), ("python", self._ranges(activity.PYTHON)),
        ]  # fmt: skip
        return self._first(moment, layers, "host code")

    def _of_calls(self) -> list[tuple[str, Spans]]:
        loading = [*self._in_calls("module loading"), *self._overheads(activity.MODULE_LOADING)]
        return [
            ("module loading", loading),
            ("allocator", self._in_calls("allocator")),
            ("graph capture", self._captures()),
        ]

    def _first(self, moment: int, layers: list[tuple[str, Spans]], rest: str) -> str:
        return next((cause for cause, spans in layers if any(start <= moment < end for start, end in spans)), rest)


def cause_at(made: activity.Activity, gpu: GpuTimeline, moment: int) -> str | None:
    """The cause of the unit of time that begins at a moment; None where the GPU was busy."""
    calls, links = made.calls, launch_links(made)
    ran = [
        (start, end, call)
        for start, end, call in zip(
            made.operations.start.tolist(), made.operations.end.tolist(), links.call.tolist(), strict=True
        )
    ]
    if any(start <= moment < end for start, end, _ in ran):
        return None
    lasting = [one for one in ran if one[1] > one[0]]
    begun = max([gpu.whole.start_ns, *(end for _, end, _ in lasting if end <= moment)])
    behind = [one for one in lasting if one[0] > moment]
    known = [call for *_, call in ran if call >= 0]
    ended, call = (behind[0][0], behind[0][2]) if behind else (gpu.whole.start_ns + gpu.whole.span_ns, -1)
    before = [one[2] for one in lasting if one[0] < ended]
    earlier = min([begun, *(int(calls.start[one]) for one in before[-1:] if one >= 0)])
    later = int(calls.start[call]) if call >= 0 else ended
    lost = any(earlier <= one < later for one in links.lost_by(7).tolist())
    if not behind:
        return Thread(made, int(calls.thread[known[-1]])).before_its_call(moment) if known else "unknown"
    if call < 0 or lost:
        return "unknown"
    called, returned = int(calls.start[call]), int(calls.end[call])
    thread = Thread(made, int(calls.thread[call]))
    if returned <= begun:
        return "queued" if ended - begun <= 10 * US else "dependency"
    if moment < called:
        return thread.before_its_call(moment)
    return "dependency" if moment >= returned and ended - returned > 100 * US else thread.within_its_call(moment)


@given(recordings)
def test_every_moment_of_a_gap_has_the_cause_that_the_rules_give_it(made: activity.Activity) -> None:
    (gpu,) = timeline(made).gpus
    for moment in range(gpu.whole.start_ns, gpu.whole.start_ns + gpu.whole.span_ns, UNIT):
        expected = cause_at(made, gpu, moment)
        found = [cause for cause in CAUSES if gpu.gaps.causes[cause].holds(np.array([moment]))[0]]
        assert found == ([] if expected is None else [expected]), moment


@given(recordings)
def test_busy_and_gaps_are_the_span_to_the_nanosecond_and_every_gap_has_causes(made: activity.Activity) -> None:
    for gpu in timeline(made).gpus:
        for step in (gpu.whole, *gpu.steps):
            assert step.busy_ns + step.idle_ns == step.span_ns
            assert step.compute_ns + step.exposed_communication_ns + step.exposed_copies_ns == step.busy_ns
            assert sum(step.causes.values()) == step.idle_ns
            assert sum(part.time_ns for part in step.verdict.parts) == step.span_ns
        assert (
            gpu.gaps.causes_in(np.arange(len(gpu.gaps))).sum(axis=0).tolist()
            == (gpu.gaps.idle.end - gpu.gaps.idle.start).tolist()
        )
        assert sum(gpu.gaps.causes[cause].total for cause in CAUSES) == gpu.gaps.idle.total


@given(recordings, st.integers(0, 50 * UNIT), st.integers(1, 30 * UNIT))
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
