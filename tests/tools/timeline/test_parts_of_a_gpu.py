"""Copies, collectives, streams, waits and kinds of calls, as sums of one GPU or process."""

from __future__ import annotations

import pytest
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import CollectiveArguments

from ncu_tools.ceilings.machine_files import find_machine, problems
from ncu_tools.timeline.call_kinds import kind_of_call, names_that_load_data
from ncu_tools.timeline.communication import is_communication
from ncu_tools.timeline.intervals import IntervalSet
from ncu_tools.timeline.streams import streams_on
from ncu_tools.timeline.timeline import timeline
from tests.support.activities import Call, Operation, Range, copy, recording

REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@pytest.mark.parametrize(
    ("name", "communicates"),
    [
        (REDUCE, True), ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", True),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", True),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<4>()", True),
        ("void at::native::reduce_kernel<512, 1>()", False), ("nvjet_tst_192x192_64x4", False),
        ("void gather_kernel()", False), ("[CUDA memcpy device to device]", False),
    ],
)  # fmt: skip
def test_kernels_that_communicate_are_known_by_their_names(name: str, communicates: bool) -> None:
    assert is_communication(name) is communicates


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaLaunchKernelExC", "launch"), ("cuLaunchKernelEx", "launch"), ("hipGraphLaunch", "launch"),
        ("cudaMemsetAsync", "launch"), ("cuMemcpyHtoDAsync_v2", "launch"), ("hipExtModuleLaunchKernel", "launch"),
        ("block_until_ready", "synchronisation"),
        ("cudaMemcpyAsync", "launch"), ("cuMemcpyHtoD_v2", "synchronisation"), ("cudaMemcpy2D", "synchronisation"),
        ("cuCtxSynchronize", "synchronisation"), ("cudaEventQuery", "other"), ("cudaFreeHost", "allocator"),
        ("cudaMallocAsync", "allocator"), ("cuMemMap", "allocator"), ("cudaStreamIsCapturing", "other"),
        ("cudaGetFuncBySymbol", "other"), ("cuModuleLoadDataEx", "module loading"), ("hipModuleLoad", "module loading"),
    ],
)  # fmt: skip
def test_api_calls_are_sorted_by_what_they_do(name: str, kind: str) -> None:
    assert kind_of_call(name) == kind


@pytest.mark.parametrize(
    "name", ["cudaMemcpyPeer", "cudaMemcpy3DPeer", "cuMemcpyDtoD_v2", "hipMemcpyDtoD", "cuMemcpyAtoD"]
)
def test_a_copy_within_or_between_devices_is_no_wait(name: str) -> None:
    assert kind_of_call(name) == "other"


def test_ranges_that_load_data_are_known_by_their_names() -> None:
    names = [
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "torch/utils/data/dataloader.py(630): __next__",
        "## data_load ##", "forward", "aten::to", "cuModuleLoadData",
    ]  # fmt: skip
    assert names_that_load_data(names).tolist() == [True, True, True, False, False, False]


def test_a_bandwidth_is_bytes_over_the_time_in_which_one_ran() -> None:
    copies = [copy(0, 100, 1000), copy(50, 150, 2000, stream=8)]
    (one,) = timeline(recording(copies)).gpus[0].copies
    assert (one.count, one.bytes, one.busy_ns, one.exposed_ns) == (2, 3000, 150, 150)
    assert one.bytes_per_s == pytest.approx(20e9)
    assert one.link_share is None


def test_a_copy_that_fills_a_trimmed_time_is_its_evidence_at_the_rate_of_the_whole_copy() -> None:
    """It begins before that time and ends behind it."""
    made = recording([Operation(0, 100), copy(100, 1100, 4000), Operation(1100, 1200)])
    (gpu,) = timeline(made, trim=activity.Window(300, 800)).gpus
    (one,) = gpu.copies
    assert (gpu.whole.verdict.bound, gpu.whole.exposed_copies_ns) == ("copy", 500)
    assert (one.count, one.busy_ns, one.exposed_ns) == (1, 500, 500)
    assert (one.bytes, one.bytes_per_s) == (4000, pytest.approx(4e9))
    assert gpu.whole.verdict.evidence[0].endswith("1 copy of 4 KB at 4 GB/s; 500 ns that no kernel hides")


def test_one_copy_without_a_size_makes_the_sum_unknown() -> None:
    (one,) = timeline(recording([copy(0, 100, 1000), copy(200, 300, None)])).gpus[0].copies
    assert one.bytes is None
    assert one.bytes_per_s is None


def test_directions_are_apart_and_stand_against_the_link_of_the_machine() -> None:
    made = recording([copy(0, 100, 3200), copy(200, 300, 10, direction=activity.DEVICE_TO_DEVICE)])
    copies = {one.direction: one for one in timeline(made, machine=find_machine("h100-sxm")).gpus[0].copies}
    assert copies["host to device"].link_share == pytest.approx(0.5)
    assert copies["device to device"].link_share is None


def test_the_machine_is_that_of_the_recorded_gpu_if_none_is_named() -> None:
    made = recording([copy(0, 100, 1600)], devices={(7, 0): "Tesla T4"})
    assert timeline(made).gpus[0].copies[0].link_share == pytest.approx(1.0)


def test_a_link_to_nowhere_is_no_link_of_a_machine_file() -> None:
    text = '[[link]]\nto = "moon"\nvalue = 1e10\n'
    assert any("moon is no to" in one for one in problems(text))


def collective(*sizes: tuple[int, int]) -> activity.Activity:
    operations = [Operation(1000 * at, 1000 * at + length, REDUCE) for at, (length, _) in enumerate(sizes)]
    arguments = {at: CollectiveArguments("allreduce", size, size, 8) for at, (_, size) in enumerate(sizes)}
    return recording(operations, collectives=arguments)


def test_a_bus_bandwidth_follows_the_convention_of_nccl_tests() -> None:
    (one,) = timeline(collective((100, 4000), (200, 4000), (300, 4000))).gpus[0].collectives
    assert (one.name, one.ranks, one.bytes, one.count, one.median_ns) == ("all-reduce", 8, 4000, 3, 200)
    assert one.bus_bytes_per_s == pytest.approx(4000 * 2 * 7 / 8 / 200e-9)


def test_a_collective_that_covers_a_trimmed_time_takes_that_time_at_the_rate_of_the_whole_one() -> None:
    made = recording([Operation(0, 1000, REDUCE)], collectives={0: CollectiveArguments("allreduce", 4000, 4000, 8)})
    (gpu,) = timeline(made, trim=activity.Window(300, 800)).gpus
    (one,) = gpu.collectives
    assert (one.count, one.time_ns, one.median_ns, one.longest_ns) == (1, 500, 1000, 1000)
    assert one.bus_bytes_per_s == pytest.approx(4000 * 2 * 7 / 8 / 1000e-9)
    assert gpu.whole.verdict.evidence[0].startswith("1 x all-reduce: 500 ns, median 1 µs")


def test_operations_that_cover_a_trimmed_time_are_counted_in_it_and_those_at_its_edges_are_not() -> None:
    made = recording([
        Operation(0, 300), Operation(100, 900), copy(200, 1000, 1, stream=8), Operation(300, 300), Operation(800, 950),
        Operation(290, 310, kind=activity.MEMSET), Operation(0, 1000, REDUCE, stream=9),
    ])  # fmt: skip
    whole = timeline(made, trim=activity.Window(300, 800)).gpus[0].whole
    assert (whole.kernels, whole.computing_kernels, whole.collectives) == (3, 2, 1)
    assert (whole.copies, whole.memsets, whole.graphs) == (1, 1, 0)


def test_collectives_of_other_sizes_are_apart_and_unusually_long_ones_are_counted() -> None:
    found = timeline(collective((100, 8), (100, 8), (110, 8), (250, 8), (30, 4))).gpus[0].collectives
    assert [(one.bytes, one.count, one.outliers, one.longest_ns) for one in found] == [(8, 4, 1, 250), (4, 1, 0, 30)]
    assert found[0].longest_start_ns == 3000


def test_without_arguments_no_bandwidth_is_made_up() -> None:
    (one,) = timeline(recording([Operation(0, 100, REDUCE)])).gpus[0].collectives
    assert (one.name, one.bytes, one.ranks, one.bus_bytes_per_s) == ("all-reduce", None, None, None)


@pytest.mark.parametrize(
    ("called", "title", "factor"),
    [
        ("allreduce", "all-reduce", 2 * 3 / 4), ("_allgather_base", "all-gather", 3 / 4),
        ("_reduce_scatter_base", "reduce-scatter", 3 / 4), ("all_to_allv", "all-to-all", 3 / 4),
        ("send", "send/receive", 1), ("broadcast", "broadcast", 1), ("reduce", "reduce", 1),
        ("gather", "communication", None),
    ],
)  # fmt: skip
def test_the_bus_carries_what_the_convention_says_of_each_collective(
    called: str, title: str, factor: float | None
) -> None:
    made = recording([Operation(0, 100, "ncclDevKernel_Generic")],
                     collectives={0: CollectiveArguments(called, 1000, 4000, 4)})  # fmt: skip
    (one,) = timeline(made).gpus[0].collectives
    expected = None if factor is None else pytest.approx(4000 * factor / 100e-9)
    assert (one.name, one.bus_bytes_per_s) == (title, expected)


def test_without_sizes_a_long_collective_is_no_outlier_but_unknown() -> None:
    times = (100, 100, 110, 5000)
    (one,) = (
        timeline(recording([Operation(10**4 * at, 10**4 * at + one, REDUCE) for at, one in enumerate(times)]))
        .gpus[0]
        .collectives
    )
    assert (one.count, one.longest_ns, one.outliers) == (4, 5000, None)


def test_streams_have_busy_and_alone_times() -> None:
    made = recording([Operation(0, 100), copy(100, 150, 1), copy(20, 60, 1, stream=8), Operation(150, 200)])
    streams = {one.stream: one for one in timeline(made).gpus[0].streams}
    assert (streams[7].busy_ns, streams[7].alone_ns, streams[7].in_line_ns) == (200, 160, 50)
    assert (streams[8].busy_ns, streams[8].alone_ns, streams[8].in_line_ns) == (40, 0, 0)


def test_a_stream_counts_with_what_it_ran_in_a_window_whenever_that_began() -> None:
    operations = recording([Operation(0, 100), copy(100, 1000, 900), Operation(1000, 1100)]).operations
    computes, exposed = operations.kind == activity.KERNEL, IntervalSet.between(100, 1000)
    (stream,) = streams_on(operations, computes, IntervalSet.between(50, 200), exposed)
    assert (stream.operations, stream.busy_ns, stream.alone_ns, stream.in_line_ns) == (2, 150, 150, 100)
    (stream,) = streams_on(operations, computes, IntervalSet.between(200, 300), exposed)
    assert (stream.operations, stream.busy_ns, stream.alone_ns, stream.in_line_ns) == (1, 100, 100, 0)


def test_what_stands_in_line_with_kernels_is_noted() -> None:
    notes = timeline(recording([Operation(0, 100), copy(100, 150, 1), Operation(150, 200)])).notes
    assert any("stream 7: 50 ns of copies and communication stand in line" in note for note in notes)


def test_what_stands_in_line_could_hide_behind_kernels_for_as_long_as_these_run() -> None:
    notes = timeline(recording([Operation(0, 100), copy(100, 2000, 1)])).notes
    assert any("1.9 µs of copies" in note and "100 ns at most could hide behind kernels" in note for note in notes)


def test_no_note_says_that_copies_could_hide_behind_kernels_that_hardly_run() -> None:
    notes = timeline(recording([Operation(0, 10), copy(10, 2000, 1)])).notes
    assert not any("could hide" in note for note in notes)


def test_waits_are_summed_by_call_and_range_with_the_gaps_behind_them() -> None:
    calls = [
        Call(0, 5, correlation=1), Call(10, 120, "cudaStreamSynchronize"), Call(200, 205, correlation=2),
        Call(210, 330, "cudaStreamSynchronize"), Call(340, 360, "cudaMalloc"), Call(370, 375, correlation=3),
    ]  # fmt: skip
    operations = [Operation(6, 100, calls=1), Operation(206, 300, calls=2), Operation(376, 400, calls=3)]
    ranges = [Range(8, 125, "aten::item, seq = 1"), Range(208, 335, "aten::item, seq = 2")]
    waits = timeline(recording(operations, calls, ranges)).waits
    wait, allocation = waits
    assert (wait.call, wait.host_range, wait.count, wait.time_ns) == ("cudaStreamSynchronize", "aten::item", 2, 230)
    assert (wait.idle_ns, wait.behind_ns) == (50 + 4 - 4, 106 + 76)
    assert (allocation.kind, allocation.call, allocation.idle_ns, allocation.behind_ns) == (
        "allocator", "cudaMalloc", 20, None,
    )  # fmt: skip


def test_a_wait_that_reaches_beyond_a_trimmed_time_counts_with_its_part_within() -> None:
    calls = [Call(0, 5, correlation=1), Call(10, 120, "cudaStreamSynchronize"), Call(200, 205, correlation=2)]
    made = recording([Operation(6, 100, calls=1), Operation(206, 300, calls=2)], calls)
    (wait,) = timeline(made, trim=activity.Window(60, 110)).waits
    assert (wait.count, wait.time_ns, wait.idle_ns, wait.behind_ns) == (1, 50, 10, 10)


def test_an_asynchronous_copy_of_pageable_memory_holds_the_host() -> None:
    calls = [Call(0, 5, correlation=1), Call(10, 155, "cudaMemcpyAsync", 2), Call(300, 305, correlation=3)]
    operations = [
        Operation(6, 100, calls=1),
        copy(100, 150, 8, 2, source_memory=activity.PAGEABLE, destination_memory=activity.DEVICE_MEMORY),
        Operation(306, 400, calls=3),
    ]
    found = timeline(recording(operations, calls))
    (wait,) = found.waits
    assert (wait.kind, wait.call, wait.time_ns, wait.behind_ns) == ("pageable copy", "cudaMemcpyAsync", 145, 156)
    assert found.gpus[0].longest[0].after_wait == "cudaMemcpyAsync"
    pinned = [operations[0], copy(100, 150, 8, 2, source_memory=activity.PINNED), operations[2]]
    assert timeline(recording(pinned, calls)).waits == []


def test_gpus_of_one_process_are_apart() -> None:
    found = timeline(recording([Operation(0, 100), Operation(50, 300, device=1)]))
    assert [(gpu.device, gpu.whole.span_ns) for gpu in found.gpus] == [(0, 100), (1, 250)]
