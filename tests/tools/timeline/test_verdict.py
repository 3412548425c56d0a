"""One verdict a step, and none where the time whose cause is unknown could change it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import Window

from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.report.timeline_parts import by_cost
from ncu_tools.timeline.gaps import CAUSES, LongGap
from ncu_tools.timeline.timeline import GpuTimeline, timeline
from ncu_tools.timeline.verdict import (
    WAITS_TOO,
    bound_words,
    communication_evidence,
    copy_evidence,
    gap_evidence,
    metrics_of,
    step_evidence,
    verdict_of,
)
from tests.support.activities import Call, Operation, Range, copy, recording

MS = 1_000_000


def gpu_of(made: activity.Activity) -> GpuTimeline:
    return timeline(made).gpus[0]


def test_the_gpu_is_busy_where_kernels_fill_the_time() -> None:
    gpu = gpu_of(recording([Operation(0, 90 * MS), Operation(95 * MS, 100 * MS)]))
    assert gpu.whole.verdict.bound == "kernels"
    assert gpu.whole.verdict.saving_ns is None
    assert "advise" in gpu.whole.verdict.evidence[0]


def test_copy_bound_where_copies_do_though_kernels_say_that_the_gpu_is_idle() -> None:
    gpu = gpu_of(recording([Operation(0, 3 * MS), copy(3 * MS, 98 * MS, 2_600_000_000), Operation(98 * MS, 100 * MS)]))
    assert gpu.whole.verdict.bound == "copy"
    assert gpu.whole.verdict.saving_ns == 95 * MS
    assert "2.6 GB at 27.37 GB/s" in gpu.whole.verdict.evidence[0]


def test_a_recording_of_copies_alone_says_that_no_kernel_was_recorded() -> None:
    copies = [copy(0, 10 * MS, 1), copy(12 * MS, 20 * MS, 1)]
    said = "GPU 0: no kernel was recorded, so nothing is known to run beside its copies"
    assert said in timeline(recording(copies)).notes
    assert said in timeline(recording([*copies, Operation(10 * MS, 12 * MS, kind=activity.MEMSET)])).notes
    assert said not in timeline(recording([*copies, Operation(20 * MS, 21 * MS)])).notes
    assert said not in timeline(recording([*copies, Operation(20 * MS, 21 * MS)]), trim=Window(0, 15 * MS)).notes


def test_a_recording_without_a_kernel_has_no_verdict_as_its_idle_time_may_not_be_idle() -> None:
    """Some recordings hold the copies of a program and not its kernels."""
    copies = [copy(0, 1 * MS, 1), copy(90 * MS, 91 * MS, 1)]
    verdict = gpu_of(recording(copies)).whole.verdict
    assert (verdict.bound, verdict.saving_ns) == (None, None)
    assert verdict.why == "no kernel was recorded, so it is not known when kernels ran"
    assert gpu_of(recording([*copies, Operation(2 * MS, 3 * MS)])).whole.verdict.why != verdict.why


def test_copies_that_a_kernel_hides_bound_nothing() -> None:
    gpu = gpu_of(recording([Operation(0, 100 * MS), copy(1 * MS, 98 * MS, 10, stream=8)]))
    assert gpu.whole.verdict.bound == "kernels"
    assert gpu.copies[0].exposed_ns == 0


def test_communication_bound_where_no_kernel_hides_the_collectives() -> None:
    reduce = Operation(20 * MS, 100 * MS, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    gpu = gpu_of(recording([Operation(0, 20 * MS), reduce]))
    assert gpu.whole.verdict.bound == "communication"
    assert gpu.whole.verdict.saving_ns == 80 * MS
    assert "all-reduce" in gpu.whole.verdict.evidence[0]
    assert "includes waiting for the slowest rank" in gpu.whole.verdict.evidence[-1]


@pytest.mark.parametrize(("second", "named"), [(100, 2), (99, 1)])
def test_evidence_names_collectives_and_copies_that_take_a_tenth_of_the_time(second: int, named: int) -> None:
    begins = [1000 - second, second]
    of_collectives = [
        Operation(0, begins[0], "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        Operation(1000, 1000 + begins[1], "ncclDevKernel_AllGather_RING_LL"),
    ]
    kernel = Operation(1100, 1101)
    evidence = gpu_of(recording([*of_collectives, kernel])).whole.verdict.evidence
    assert [one.partition(":")[0] for one in evidence[:-1]] == ["1 x all-reduce", "1 x all-gather"][:named]
    of_copies = [
        copy(0, begins[0], 8), copy(1000, 1000 + begins[1], 8, direction=activity.DEVICE_TO_HOST),
        copy(1100, 1101, 8, direction=activity.DEVICE_TO_DEVICE, stream=8), kernel,
    ]  # fmt: skip
    evidence = gpu_of(recording(of_copies)).whole.verdict.evidence
    assert [one.partition(",")[0] for one in evidence] == ["host to device", "device to host"][:named]


def test_evidence_says_of_copies_what_is_known_of_them() -> None:
    pinned, pageable = activity.PINNED, activity.PAGEABLE
    to_host = {"direction": activity.DEVICE_TO_HOST, "source_memory": activity.DEVICE_MEMORY}
    copies = [
        copy(0, 100, 3200, source_memory=pageable), copy(200, 300, None, destination_memory=pinned, **to_host),
        copy(400, 500, 1000, direction=activity.DEVICE_TO_DEVICE, source_memory=activity.DEVICE_MEMORY),
    ]  # fmt: skip
    gpu = timeline(recording([*copies, Operation(600, 601)]), machine=find_machine("h100-sxm")).gpus[0]
    hidden = "100 ns that no kernel hides"
    assert set(copy_evidence(gpu.copies)) == {
        f"host to device, pageable memory: 1 copy of 3.2 KB at 32 GB/s, 50.0 % of the link; {hidden}",
        f"device to host, pinned memory: 1 copy; {hidden}",
        f"device to device, unknown memory: 1 copy of 1 KB at 10 GB/s; {hidden}",
    }
    behind = gpu_of(recording([copy(10, 20, 8), Operation(0, 30, stream=8)]))
    assert copy_evidence(behind.copies) == ()


def test_evidence_has_the_bus_bandwidth_of_collectives_whose_sizes_are_known() -> None:
    reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    known = {0: activity.CollectiveArguments("allreduce", 4000, 4000, 8)}
    sentence, waits = communication_evidence(
        gpu_of(recording([Operation(0, 1000, reduce)], collectives=known)).collectives
    )
    assert sentence == "1 x all-reduce: 1 µs, median 1 µs, bus bandwidth at least 7 GB/s"
    assert waits == WAITS_TOO
    assert communication_evidence(gpu_of(recording([Operation(0, 1000, reduce)])).collectives)[0].endswith(
        "median 1 µs"
    )


def test_evidence_of_gaps_ranks_their_causes_and_names_the_longest_gap_of_one_of_these() -> None:
    def gap(cause: str, host_range: str | None, after_wait: str | None, ns: int = 30) -> LongGap:
        return LongGap(0, ns, cause, ns, None, None, None, None, host_range, None, after_wait)

    causes = {"python": 10, "data loading": 40, "launch": 90, "allocator": 0}
    ranked = "data loading 40 ns, python 10 ns"
    launch = gap("launch", "f", "cudaMalloc", 90)
    for longest, said in (
        ([launch, gap("python", "f", "cudaFree"), gap("python", "g", None)], ["longest: 30 ns of python in f, after cudaFree"]),
        ([launch, gap("python", None, None)], ["longest: 30 ns of python"]),
        ([launch], []), ([], []),
    ):  # fmt: skip
        assert gap_evidence("host", causes, longest) == (ranked, *said)


def test_the_longest_wait_is_no_longer_than_all_time_of_its_cause() -> None:
    """A gap of 10 ms is data loading for 8 ms, and then the call that launches."""
    gpu = gpu_of(
        recording(
            [Operation(0, MS, calls=0), Operation(11 * MS, 12 * MS, calls=1)],
            [Call(0, 1000, correlation=0), Call(9 * MS, 11 * MS, correlation=1)],
            [Range(0, 9 * MS, "data_load")],
        )
    )
    assert gpu.whole.verdict.evidence == ("data loading 8 ms", "longest: 8 ms of data loading in data_load")


def test_launch_bound_where_short_kernels_wait_for_their_calls() -> None:
    operations = [Operation(10_000 * at + 9_000, 10_000 * at + 10_000, calls=at) for at in range(100)]
    calls = [Call(10_000 * at + 1_000, 10_000 * at + 7_000, correlation=at) for at in range(100)]
    gpu = gpu_of(recording(operations, calls))
    assert gpu.whole.verdict.bound == "launch"
    assert gpu.launches is not None
    assert gpu.launches.shorter == 1.0
    assert gpu.launches.call_ns == 6_000
    assert any("100.0 % of the calls take longer than the kernels" in one for one in gpu.whole.verdict.evidence)
    assert gpu.whole.verdict.why.endswith("launches kernels, in API calls and between two of them")
    # In each of 100 gaps of 9 us the host is in a call for 6 us.
    assert any(one.startswith("of launch, 600 µs is in API calls") for one in gpu.whole.verdict.evidence)


def test_kernels_of_a_graph_are_set_together_beside_the_one_call_that_launched_them() -> None:
    """Each is shorter than the call, which says nothing: all of them keep the GPU busy for much longer."""
    graph = [Operation(10_000 * at, 10_000 * (at + 1), calls=1) for at in range(1, 101)]
    gpu = gpu_of(recording(graph, [Call(0, 9_000 + 5_000, "cudaGraphLaunch", correlation=1)]))
    assert gpu.launches is not None
    assert (gpu.launches.kernels, gpu.launches.calls, gpu.launches.shorter) == (100, 1, 0.0)
    assert gpu.launches.delay_ns == 10_000  # to the first of them


def test_where_launch_is_close_to_host_the_sentence_says_that_the_gpu_waits_for_the_host_in_both() -> None:
    causes = {"launch": 42, "host code": 45}
    verdict = verdict_of(100, compute=13, exposed_copies=0, exposed_communication=0, causes=causes)
    assert verdict.bound == "host"
    assert verdict.why.endswith("closely followed by launch, 42.0 %: the GPU waits for the host in both, 87.0 %")
    verdict = verdict_of(100, compute=45, exposed_copies=42, exposed_communication=0, causes={"launch": 13})
    assert "waits for the host" not in verdict.why


@pytest.mark.parametrize(
    ("uuids", "is_bound"), [(("one", "one"), False), (("one", "other"), True), ((None, None), True)]
)
def test_idle_time_of_a_gpu_that_two_processes_share_is_no_verdict(
    uuids: tuple[str | None, str | None], is_bound: bool
) -> None:
    """What looks idle to one of them may be the work of the other, as with several workers of a server."""
    calls = [Call(0, 5, correlation=1), Call(80 * MS, 80 * MS + 10, correlation=2)]
    operations = [
        Operation(10, MS, calls=1), Operation(80 * MS + 20, 85 * MS, calls=2),
        Operation(MS, 80 * MS, process=8),
    ]  # fmt: skip
    known = {(process, 0): uuid for process, uuid in zip((7, 8), uuids, strict=True) if uuid is not None}
    first, second = timeline(recording(operations, calls, uuids=known)).gpus
    assert (first.whole.verdict.bound == "host") == is_bound
    assert ("process 8 ran on the same GPU" in first.whole.verdict.why) != is_bound
    assert second.whole.verdict.bound == "kernels"


def test_host_bound_where_the_host_loads_data() -> None:
    calls = [Call(0, 5, correlation=1), Call(80 * MS, 80 * MS + 10, correlation=2)]
    operations = [Operation(10, MS, calls=1), Operation(80 * MS + 20, 85 * MS, calls=2)]
    gpu = gpu_of(recording(operations, calls, [Range(MS, 80 * MS, "DataLoader.__next__")]))
    assert gpu.whole.verdict.bound == "host"
    assert gpu.whole.verdict.evidence[0].startswith("data loading 79 ms")
    assert "DataLoader.__next__" in gpu.whole.verdict.evidence[1]


def steps_of_every_kind() -> activity.Activity:
    """Five steps of 10 ms: kernels, copies, communication, launches, loading of data."""
    reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    operations = [
        Operation(0, 10 * MS, calls=0),
        copy(10 * MS, 19 * MS, 10, calls=1), Operation(19 * MS, 20 * MS, calls=2),
        Operation(20 * MS, 28 * MS, reduce, calls=3), Operation(28 * MS, 30 * MS, calls=4),
        *(Operation(30 * MS + 100_000 * at + 90_000, 30 * MS + 100_000 * (at + 1), calls=10 + at) for at in range(100)),
        Operation(49 * MS, 50 * MS, calls=200),
    ]  # fmt: skip
    calls = [
        *(Call(at * 1000, at * 1000 + 500, correlation=at) for at in range(1)),
        *(Call(10 * MS + at * 1000, 10 * MS + at * 1000 + 500, correlation=at) for at in (1, 2)),
        *(Call(20 * MS + at * 100, 20 * MS + at * 100 + 50, correlation=at) for at in (3, 4)),
        *(Call(30 * MS + 100_000 * at, 30 * MS + 100_000 * at + 80_000, correlation=10 + at) for at in range(100)),
        Call(49 * MS - 1000, 49 * MS - 500, correlation=200),
    ]
    ranges = [Range(10 * MS * at, 10 * MS * (at + 1), f"step {at}") for at in range(5)]
    return recording(operations, calls, [*ranges, Range(40 * MS + 10, 49 * MS - 2000, "load_batch")])


def test_every_step_has_a_verdict_with_its_evidence_and_the_numbers_behind_it() -> None:
    (gpu,) = timeline(steps_of_every_kind(), step=re.compile("^step")).gpus
    found = {step.verdict.bound: step for step in gpu.steps}
    assert [step.verdict.bound for step in gpu.steps] == ["kernels", "copy", "communication", "launch", "host"]
    assert found["copy"].verdict.evidence == ("1 copy, 9 ms; 9 ms that no kernel hides",)
    assert found["communication"].verdict.evidence == ("1 collective, 8 ms; 8 ms that no kernel hides",)
    assert found["kernels"].verdict.evidence == ("1 kernel, 10 ms",)
    assert "100 kernels" in found["launch"].verdict.evidence[0]
    assert "data loading 8.998 ms" in found["host"].verdict.evidence[0]
    assert any("load_batch" in one for one in found["host"].verdict.evidence)
    for step in gpu.steps:
        row = {**vars(step), **{f"{cause.replace(' ', '_')}_ns": time for cause, time in step.causes.items()}}
        assert step.verdict.metrics
        assert all(row[name] == value for name, value in step.verdict.metrics.items())


def test_the_evidence_for_compute_counts_what_computed_and_no_collective() -> None:
    reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    operations = [
        Operation(0, 10 * MS, calls=1), Operation(10 * MS, 11 * MS, kind=activity.MEMSET, calls=1),
        Operation(11 * MS, 12 * MS, reduce, calls=2), Operation(12 * MS, 13 * MS, calls=1, kind=activity.GRAPH),
    ]  # fmt: skip
    calls = [Call(-10, -5, correlation=1), Call(-5, -2, correlation=2)]
    made = recording(operations, calls, [Range(-20, 0, "step 1")])
    (gpu,) = timeline(made, step=re.compile("^step")).gpus
    counted = "1 kernel, 1 memset, 1 graph recorded as a whole"
    assert gpu.steps[0].verdict.evidence == (f"{counted}, 12 ms",)
    assert gpu.whole.verdict.evidence == (f"{counted}; what to change: ncu-bench advise",)
    metrics = {"computing_kernels": 1, "memsets": 1, "graphs": 1, "compute_ns": 12 * MS}
    assert gpu.steps[0].verdict.metrics == metrics


def test_a_collective_that_began_before_a_step_is_in_the_evidence_of_the_step() -> None:
    reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    operations = [Operation(0, 50 * MS, reduce, calls=1, stream=8), Operation(20 * MS, 21 * MS, calls=2)]
    calls = [Call(-30, -20, correlation=1), Call(-10, -5, correlation=2)]
    (gpu,) = timeline(recording(operations, calls, [Range(-15, 40 * MS, "step 1")]), step=re.compile("^step")).gpus
    assert gpu.steps[0].verdict.evidence == ("1 collective, 20 ms; 19 ms that no kernel hides",)


def test_the_alternatives_of_a_step_are_ranked_by_what_they_could_save() -> None:
    (gpu,) = timeline(steps_of_every_kind(), step=re.compile("^step")).gpus
    copying = gpu.steps[1].verdict
    assert [(part.kind, part.time_ns) for part in copying.parts] == [("copy", 9 * MS), ("kernels", MS)]
    assert copying.saving_ns == copying.bound_ns == 9 * MS
    assert [step.name for step in by_cost(gpu)] == ["step 1", "step 3", "step 4", "step 2", "step 0"]


def test_a_step_without_a_verdict_has_the_numbers_of_all_parts_and_no_evidence() -> None:
    (gpu,) = timeline(recording([Operation(0, 50), Operation(100, 150), copy(150, 200, 1)])).gpus
    assert gpu.whole.verdict.bound is None
    assert gpu.whole.verdict.evidence == ()
    assert {"compute_ns", "exposed_copies_ns", "idle_ns"} <= set(gpu.whole.verdict.metrics)
    assert gpu.whole.verdict.bound_ns == 0


def test_no_verdict_where_the_recording_lacks_the_calls() -> None:
    gpu = gpu_of(recording([Operation(0, 3 * MS), Operation(97 * MS, 100 * MS)]))
    assert gpu.whole.verdict.bound is None
    assert gpu.whole.verdict.why == "the cause of 94.0 % is not known, which could change this: kernels 6.0 %"


def test_graphs_recorded_as_a_whole_are_not_taken_for_kernels_that_compute() -> None:
    graphs = [Operation(10 * MS * at, 10 * MS * at + 9 * MS, "[CUDA graph 1]", kind=activity.GRAPH) for at in range(5)]
    verdict = gpu_of(recording(graphs)).whole.verdict
    assert verdict.bound is None
    assert "91.8 % is graphs that were recorded as a whole, and what ran in them is not known" in verdict.why
    beside = gpu_of(recording([*graphs, *(Operation(one.start, one.end, stream=8) for one in graphs[:4])])).whole
    assert beside.verdict.bound == "kernels"  # kernels ran for most of that time, whatever the graphs held
    assert sum(part.time_ns for part in beside.verdict.parts) == beside.span_ns


def test_no_verdict_where_unknown_time_could_change_it() -> None:
    found = verdict_of(100, compute=45, exposed_copies=25, exposed_communication=0, causes={"unknown": 30})
    assert found.bound is None
    assert "30.0 % is not known, which could change this: kernels 45.0 %, copy 25.0 %" in found.why


def test_a_close_second_is_named_and_no_reason_against_a_verdict_as_nothing_unknown_could_change_the_order() -> None:
    found = verdict_of(100, compute=49, exposed_copies=0, exposed_communication=0, causes={"python": 51})
    assert found.bound == "host"
    assert found.why == "51.0 % is idle while the host does something else; closely followed by kernels, 49.0 %"
    found = verdict_of(100, compute=48, exposed_copies=0, exposed_communication=0, causes={"python": 50, "unknown": 2})
    assert found.bound is None
    assert found.why == "the cause of 2.0 % is not known, which could change this: host 50.0 %, kernels 48.0 %"


def test_waiting_for_a_dependency_is_no_fault_of_the_host() -> None:
    found = verdict_of(100, compute=10, exposed_copies=0, exposed_communication=0, causes={"dependency": 90})
    assert found.bound is None


@pytest.mark.parametrize(
    ("bound", "causes", "words"),
    [
        (None, {}, "no verdict"), ("kernels", {}, "GPU busy (kernels)"), ("copy", {}, "copy-bound"),
        ("launch", {"launch": 5}, "launch-bound"), ("host", {}, "host-bound"),
        ("host", {"python": 1}, "host-bound (python)"), ("host", {"python": 4, "data loading": 3}, "host-bound (python)"),
        ("host", {"python": 50, "allocator": 30, "host code": 20, "launch": 90}, "host-bound (python)"),
        ("host", {"python": 49, "allocator": 31, "host code": 20}, "host-bound"),
    ],
)  # fmt: skip
def test_the_host_is_named_with_the_cause_that_takes_half_of_its_time(
    bound: str | None, causes: dict[str, int], words: str
) -> None:
    assert bound_words(bound, causes) == words


@pytest.mark.parametrize(("second", "is_named"), [(45, False), (46, True)])
def test_a_second_part_is_close_within_a_twentieth_of_the_step(second: int, is_named: bool) -> None:
    parts = {"compute": 100 - 50 - second, "exposed_copies": 50, "exposed_communication": second}
    assert ("closely followed by communication" in verdict_of(100, causes={}, **parts).why) == is_named


def test_without_a_verdict_the_causes_of_gaps_are_among_the_numbers() -> None:
    columns = {"compute_ns": 1, "exposed_copies_ns": 2, "exposed_communication_ns": 3, "idle_ns": 9, "gaps": 4}
    causes = {"unknown": 5, "python": 4, "launch": 0}
    expected = {"compute_ns": 1, "exposed_copies_ns": 2, "exposed_communication_ns": 3, "idle_ns": 9}
    assert metrics_of(None, columns, causes) == expected | {"unknown_ns": 5, "python_ns": 4}
    assert step_evidence(None, columns, causes, []) == ()
    assert metrics_of("host", columns, causes) == {"gaps": 4, "idle_ns": 9, "python_ns": 4}


parts = st.integers(0, 1000)


@given(parts, parts, parts, st.dictionaries(st.sampled_from(CAUSES), parts))
def test_a_verdict_stands_wherever_the_unknown_time_belongs(
    compute: int, copies: int, communication: int, causes: dict[str, int]
) -> None:
    span = compute + copies + communication + sum(causes.values())
    found = verdict_of(span, compute, copies, communication, causes)
    assert sum(part.time_ns for part in found.parts) == span
    assert [part.share for part in found.parts] == [part.time_ns / span for part in found.parts]
    assert [part.time_ns for part in found.parts] == sorted((part.time_ns for part in found.parts), reverse=True)
    unknown = sum(causes.get(one, 0) for one in ("unknown", "dependency", "profiler"))
    known = {part.kind: part.time_ns for part in found.parts if part.kind != "unknown"}
    if found.bound is not None:
        others = [time for kind, time in known.items() if kind != found.bound]
        assert known[found.bound] >= max(others, default=0) + unknown
        assert found.saving_ns == (None if found.bound == "kernels" else known[found.bound])


@pytest.mark.parametrize("span", [0, 7])
def test_a_step_in_which_nothing_ran_has_none(span: int) -> None:
    assert verdict_of(span, 0, 0, 0, {"unknown": span} if span else {}).bound is None
