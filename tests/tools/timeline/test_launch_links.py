"""Records that cannot be right: they are not believed, and a note names them."""

from __future__ import annotations

from ncu_parsers.timelines.activity import activity

from ncu_tools.timeline.timeline import timeline
from tests.support.activities import Call, Operation, Range, recording

US, MS = 1_000, 1_000_000


def launches(count: int, pause: int = 50 * US, first: int = 0) -> list[Call]:
    """Calls of 5 µs that launch one kernel each, numbered."""
    return [Call(pause * at, pause * at + 5 * US, correlation=first + at) for at in range(count)]


def kernels(calls: list[Call], late: int = 10 * US, length: int = 30 * US) -> list[Operation]:
    return [Operation(one.start + late, one.start + late + length, calls=one.correlation) for one in calls]


class TestLaunchesOfACapture:
    def captured(self, begin: str, end: str) -> activity.Activity:
        """A kernel, 200 launches into a graph in 10 ms, and a kernel."""
        inside = [one._replace(start=one.start + MS, end=one.end + MS) for one in launches(200, first=100)]
        first, last = Call(0, 5 * US, correlation=1), Call(12 * MS, 12 * MS + 5 * US, correlation=2)
        bounds = [Call(MS - 10 * US, MS - 5 * US, begin), Call(11 * MS, 11 * MS + 5 * US, end)]
        return recording(kernels([first, last]), [first, *inside, *bounds, last])

    def test_run_nothing_and_the_time_is_the_hosts(self) -> None:
        for begin, end in (
            ("cudaStreamBeginCapture", "cudaStreamEndCapture"), ("cuStreamBeginCapture_v2", "cuStreamEndCapture"),
            ("hipStreamBeginCapture", "hipStreamEndCapture"),
        ):  # fmt: skip
            found = timeline(self.captured(begin, end))
            whole = found.gpus[0].whole
            assert whole.causes["graph capture"] == 10 * MS + 15 * US
            assert whole.verdict.bound == "host"
            assert not any("no record" in note for note in found.notes)

    def test_that_never_ends_is_no_capture(self) -> None:
        found = timeline(self.captured("cudaStreamBeginCapture", "cudaStreamIsCapturing"))
        assert "graph capture" not in found.gpus[0].whole.causes


class TestLaunchesWithoutARecord:
    def test_leave_no_cause_for_the_gap_behind_them(self) -> None:
        calls = launches(40)
        found = timeline(recording(kernels([*calls[:10], *calls[30:]]), calls))
        whole = found.gpus[0].whole
        assert whole.causes["unknown"] == 21 * 50 * US - 30 * US
        assert whole.verdict.bound is None
        assert any(note.startswith("20 of 40 launches have no record of what ran on the GPU") for note in found.notes)

    def test_behind_the_last_one_with_a_record_may_still_be_in_the_queue(self) -> None:
        calls = launches(40)
        found = timeline(recording(kernels(calls[:20]), calls))
        assert "unknown" not in found.gpus[0].whole.causes
        assert not any("no record" in note for note in found.notes)

    def test_may_be_in_the_queue_of_another_stream_that_is_as_long_as_the_longest_wait(self) -> None:
        """One stream is 1 ms behind at the end; what was launched there in the last ms has no record yet."""
        calls = launches(40)
        run = kernels(calls[0:20:2], late=MS) + [one._replace(stream=8) for one in kernels(calls[1::2])]
        found = timeline(recording(run, calls))
        assert not any("no record" in note for note in found.notes)

    def test_are_looked_for_among_calls_that_launch_kernels_or_graphs(self) -> None:
        calls = launches(40)
        some = [one._replace(name="cudaMemcpyAsync") for one in calls[10:30]]  # of no bytes, say
        found = timeline(recording(kernels([*calls[:10], *calls[30:]]), [*calls[:10], *some, *calls[30:]]))
        assert "unknown" not in found.gpus[0].whole.causes

    def test_of_steps_are_steps_without_operations_which_are_counted(self) -> None:
        calls = launches(40)
        ranges = [
            Range(at * 500 * US, at * 500 * US + 499 * US, f"ProfilerStep#{at}", activity.ANNOTATION) for at in range(4)
        ]
        found = timeline(recording(kernels([*calls[:10], *calls[30:]]), calls, ranges))
        assert "GPU 0: 2 of 4 steps have no operation in the recording, and are left out" in found.notes
        assert [step.name for step in found.gpus[0].steps] == ["ProfilerStep#0", "ProfilerStep#3"]


class TestKernelsBeforeTheirCall:
    def test_say_that_the_clocks_disagree_and_leave_no_cause(self) -> None:
        calls = launches(7)
        found = timeline(recording(kernels(calls, late=-3 * MS), calls))
        gpu = found.gpus[0]
        assert gpu.whole.causes == {"unknown": gpu.whole.idle_ns}
        assert gpu.launches is None
        assert (
            "7 of 7 operations begin before the call that launched them, by 3 ms: the clocks of GPU and host disagree, "
            "and causes of gaps are not known"
        ) in found.notes

    def test_if_few_have_unknown_calls_alone(self) -> None:
        calls = launches(7)
        late = kernels(calls)
        late[3] = late[3]._replace(start=late[3].start - 14 * US, end=late[3].end - 14 * US)
        found = timeline(recording(late, calls))
        assert set(found.gpus[0].whole.causes) == {"launch", "unknown"}
        assert any(note.startswith("1 of 7 operations begin before the call") for note in found.notes)

    def test_by_the_rounding_of_a_trace_are_right(self) -> None:
        calls = launches(7)
        assert "unknown" not in timeline(recording(kernels(calls, late=-US), calls)).gpus[0].whole.causes


class TestOneNumberForSeveralKernels:
    def test_of_a_call_that_launches_one_leaves_their_gaps_without_a_cause(self) -> None:
        calls = [one._replace(name="hipLaunchKernel") for one in launches(6)]
        run = [one._replace(calls=0 if at < 4 else at) for at, one in enumerate(kernels(calls))]
        found = timeline(recording(run, calls))
        assert "dependency" not in found.gpus[0].whole.causes
        assert found.gpus[0].whole.causes["unknown"] == 10 * US + 3 * 20 * US
        (note,) = [note for note in found.notes if "correlation id" in note]
        assert note.startswith("4 kernels have the correlation id of 1 launch, which runs one")
        assert not any("no record" in one for one in found.notes)

    def test_of_a_graphs_launch_is_right(self) -> None:
        calls = [one._replace(name="hipGraphLaunch") for one in launches(6)]
        run = [one._replace(calls=0) for one in kernels(calls)]
        assert not any("correlation id" in note for note in timeline(recording(run, calls)).notes)


class TestOperationsThatOverlapOnTheirStream:
    def overlapping(self, stream: int = 7) -> activity.Activity:
        calls = launches(40)
        run = kernels(calls)
        run[5] = run[5]._replace(name="fmha_bwd", end=run[5].start + 1_600 * MS, stream=stream)
        return recording(run, calls)

    def test_are_named_and_cut_where_the_next_one_begins(self) -> None:
        found = timeline(self.overlapping())
        assert found.gpus[0].whole.span_ns == 39 * 50 * US + 40 * US
        assert found.notes[0] == (
            "the record of fmha_bwd is impossible: it lasts 1,600.0 ms, and 1,600.0 ms of that after the next operation "
            "of its stream began; it is taken to end there"
        )

    def test_on_two_streams_are_possible(self) -> None:
        assert timeline(self.overlapping(stream=8)).gpus[0].whole.span_ns > 1_600 * MS

    def test_for_as_long_as_a_dependent_launch_does_are_possible(self) -> None:
        found = timeline(recording([Operation(0, 100 * US), Operation(90 * US, 2 * MS), Operation(1_990 * US, 3 * MS)]))
        assert not any("impossible" in note for note in found.notes)
