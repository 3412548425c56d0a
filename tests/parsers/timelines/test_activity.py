"""nsys and PyTorch's profiler are read as the same tables of what happened, to the nanosecond."""

from __future__ import annotations

import gzip
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError
from ncu_parsers.launches.launches_activity import read_launches_activity
from ncu_parsers.launches.nsys import nsys_rep
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import MISSING, Activity, FilledColumns, narrow, order_of
from ncu_parsers.timelines.kineto.chrome_trace import whole_nanoseconds
from ncu_parsers.timelines.kineto.kineto import read_activity
from ncu_parsers.timelines.nsys.nsys_activity import read_sqlite

from tests.support.timelines import CALLS, KERNELS, PROCESS, RANGES, call, database, domain, global_id, kernel, pushed

COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"


def recorded(path: Path, tables: dict[str, Any], strings: tuple[str, ...] = ("void gemm<1>(int)",)) -> Activity:
    return read_sqlite(Source(str(database(path / "t.sqlite", tables, strings))))


def test_a_kernel_of_nsys_with_its_call_and_the_range_around_it(tmp_path: Path) -> None:
    made = recorded(
        tmp_path,
        {KERNELS: [kernel(50, 1)], CALLS: [{**call(20, 1), "nameId": 2}], RANGES: [pushed("step", 0, 90)]},
        ("void gemm<1>(int)", "cudaLaunchKernel_v7000"),
    )
    operations, calls, ranges = made.operations, made.calls, made.ranges
    assert operations.names == ["void gemm<1>(int)"]
    assert (int(operations.start[0]), int(operations.end[0]), int(operations.stream[0])) == (50, 60, 7)
    assert (int(operations.process[0]), int(operations.device[0]), int(operations.bytes[0])) == (PROCESS, 0, MISSING)
    assert (calls.names, int(calls.start[0]), int(calls.correlation[0])) == (["cudaLaunchKernel"], 20, 1)
    assert (ranges.names, int(ranges.start[0]), int(ranges.end[0])) == (["step"], 0, 90)
    assert int(ranges.thread[0]) == int(calls.thread[0]) == global_id(PROCESS, PROCESS)
    assert made.missing == []


def test_a_copy_of_nsys_has_its_direction_and_the_memory_at_both_ends(tmp_path: Path) -> None:
    rows = [
        {**kernel(0, 1), "bytes": 64, "copyKind": 1, "srcKind": 0, "dstKind": 2},
        {**kernel(20, 2), "bytes": 32, "copyKind": 2, "srcKind": 2, "dstKind": 1},
        {**kernel(40, 3), "bytes": 16, "copyKind": 8, "srcKind": 2, "dstKind": 2, "srcDeviceId": 0, "dstDeviceId": 1},
    ]
    found = recorded(tmp_path, {COPIES: rows, "ANALYSIS_DETAILS": []}).operations
    assert [activity.DIRECTIONS[code] for code in found.direction] == [
        "host to device", "device to host", "peer to peer",
    ]  # fmt: skip
    assert [activity.MEMORIES[code] for code in found.source_memory] == ["pageable", "device", "device"]
    assert [activity.MEMORIES[code] for code in found.destination_memory] == ["device", "pinned", "device"]
    assert found.bytes.tolist() == [64, 32, 16]


def test_pages_of_nsys_that_move_are_managed_memory_and_prefetched_ones_reach_the_device(tmp_path: Path) -> None:
    rows = [
        {**kernel(20 * at, 0), "bytes": 64, "copyKind": kind, "srcKind": 7, "dstKind": 7, "migrationCause": cause}
        for at, (kind, cause) in enumerate(((11, 2), (12, 3), (11, 1), (12, 1)))
    ]
    found = recorded(tmp_path, {COPIES: rows, "ANALYSIS_DETAILS": []}).operations
    assert [activity.MEMORIES[code] for code in found.source_memory] == ["managed", "managed", "managed", "device"]
    assert [activity.MEMORIES[code] for code in found.destination_memory] == ["managed", "managed", "device", "managed"]


def test_overheads_of_nsys_are_what_the_driver_and_the_profiler_took(tmp_path: Path) -> None:
    overhead = {"start": 5, "end": 9, "globalTid": global_id(PROCESS, PROCESS)}
    rows = [{**overhead, "overheadType": kind} for kind in (7, 3, 8, 1)]
    made = recorded(tmp_path, {KERNELS: [kernel(0, 1)], "CUPTI_ACTIVITY_KIND_OVERHEAD": rows, RANGES: []})
    assert sorted(made.overheads.kind.tolist()) == [activity.MODULE_LOADING, activity.PROFILER, activity.QUEUE_FULL]


def test_calls_of_the_system_are_ranges_of_their_own_kind(tmp_path: Path) -> None:
    row = {"start": 3, "end": 8, "globalTid": global_id(PROCESS, PROCESS), "nameId": 1}
    made = recorded(tmp_path, {KERNELS: [kernel(0, 1)], "OSRT_API": [row], RANGES: []}, ("poll",))
    assert (made.ranges.names, made.ranges.kind.tolist()) == (["poll"], [activity.OS_CALL])


def test_a_range_that_never_ended_lasts_to_the_end_and_domains_are_no_ranges(tmp_path: Path) -> None:
    rows = [pushed("open", 5, None), domain("NCCL", 1)]
    made = recorded(tmp_path, {KERNELS: [kernel(50, 1)], RANGES: rows})
    assert made.ranges.names == ["open"]
    assert made.ranges.end.tolist() == [60]


def test_what_was_not_recorded_is_said(tmp_path: Path) -> None:
    missing = recorded(tmp_path, {KERNELS: [kernel(0, 1)]}).missing
    assert any("no API calls were recorded" in one for one in missing)
    assert any("no ranges were recorded" in one for one in missing)
    graphs = {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [{**kernel(0, 1), "graphId": 4}], RANGES: []}
    (tmp_path / "graphs").mkdir()
    made = recorded(tmp_path / "graphs", graphs)
    assert made.operations.names == ["[CUDA graph 4]"]
    assert any("as a whole" in one for one in made.missing)


def test_operations_without_an_end_are_left_out_and_large_times_keep_every_nanosecond(tmp_path: Path) -> None:
    begin = 1_682_725_898_082_228_001
    rows = [kernel(begin, 1, end=begin + 3), {**kernel(begin, 2), "end": None}]
    found = recorded(tmp_path, {KERNELS: rows}).operations
    assert found.start.tolist() == [begin]
    assert (found.end - found.start).tolist() == [3]


def test_operations_that_are_left_out_for_their_times_are_counted_in_a_note(tmp_path: Path) -> None:
    copied = {**kernel(90, 3, end=80), "bytes": 64, "copyKind": 1}
    rows = [kernel(50, 1), {**kernel(70, 2), "end": None}, {**kernel(0, 4), "end": 0}]
    said = "3 GPU operations have no start or end, both 0, or an end that is before the start, and were left out"
    assert recorded(tmp_path, {KERNELS: rows, COPIES: [copied]}).notes == [said]


def test_a_recording_whose_operations_all_have_times_has_no_note_on_them(tmp_path: Path) -> None:
    assert recorded(tmp_path, {KERNELS: [kernel(50, 1), kernel(70, 2, end=70)]}).notes == []


@pytest.mark.parametrize(("start", "end"), [(-(2**62), 2**62), (5, 4), (2**62, 2**62 + 1)])
def test_times_that_no_recording_has_are_left_out(tmp_path: Path, start: int, end: int) -> None:
    rows = [kernel(50, 1), {**kernel(0, 2), "start": start, "end": end}]
    made = recorded(tmp_path, {KERNELS: rows, CALLS: [{**call(0, 2), "start": start, "end": end}], RANGES: []})
    assert made.operations.start.tolist() == [50]
    assert any(note.startswith("1 GPU operation has no start or end") for note in made.notes)
    assert len(made.calls) == 0


def test_operations_of_an_old_schema_belong_to_the_only_process_that_called_the_api(tmp_path: Path) -> None:
    row = {name: value for name, value in kernel(50, 1).items() if name != "globalPid"}
    made = recorded(tmp_path, {KERNELS: [row], CALLS: [call(20, 1)], RANGES: []})
    assert made.operations.process.tolist() == [PROCESS]


def test_a_native_report_without_nsys_is_refused_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NcuBenchError, match="only nsys can open"):
        nsys_rep.read_activity(Source(str(report)))


# ------------------------------------------------------------------------------------------------------------- Kineto


def trace(path: Path, *events: dict[str, Any], **header: Any) -> Activity:
    file = path / "trace.json.gz"
    file.write_bytes(gzip.compress(json.dumps({**header, "traceEvents": list(events)}).encode()))
    return read_activity(Source(str(file)))


def event(category: str, name: str, start: float, lasts: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 11, "tid": 12, "ts": start, "dur": lasts, "args": args}


def test_a_kernel_of_kineto_with_its_call_and_ranges(tmp_path: Path) -> None:
    made = trace(
        tmp_path,
        event("kernel", "gemm", 1365627866520.196, 2.08, device=0, stream=7, correlation=5),
        event("cuda_runtime", "cudaLaunchKernel", 1365627866500.001, 4.5, correlation=5),
        event("cpu_op", "aten::mm", 1365627866490.0, 30),
        event("python_function", "train.py(3): step", 1365627866480, 60),
        event("user_annotation", "ProfilerStep#2", 1365627866470, 80),
        deviceProperties=[{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
    )
    assert made.operations.start.tolist() == [1365627866520196]
    assert (made.operations.end - made.operations.start).tolist() == [2080]
    assert made.operations.process.tolist() == [11]
    assert made.calls.start.tolist() == [1365627866500001]
    assert [made.ranges.names[number] for number in made.ranges.name] == [
        "ProfilerStep#2",
        "train.py(3): step",
        "aten::mm",
    ]
    assert made.ranges.kind.tolist() == [activity.ANNOTATION, activity.PYTHON, activity.OPERATOR]
    assert made.devices == {(11, 0): "NVIDIA H100 80GB HBM3"}


def test_a_copy_of_kineto_says_its_direction_and_memory_in_its_name(tmp_path: Path) -> None:
    found = trace(
        tmp_path,
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1, 2, bytes=64),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Host)", 4, 2, bytes=32),
    ).operations
    assert found.direction.tolist() == [activity.HOST_TO_DEVICE, activity.DEVICE_TO_HOST]
    assert found.source_memory.tolist() == [activity.PAGEABLE, activity.DEVICE_MEMORY]
    assert found.destination_memory.tolist() == [activity.DEVICE_MEMORY, activity.UNKNOWN_MEMORY]


def test_collectives_of_kineto_have_bytes_and_ranks_at_the_row_of_their_kernel(tmp_path: Path) -> None:
    arguments = {
        "Collective name": "_allgather_base", "In msg nelems": 10, "Out msg nelems": 80, "Group size": 8,
        "dtype": "BFloat16",
    }  # fmt: skip
    made = trace(
        tmp_path, event("kernel", "ncclDevKernel_AllGather", 50, 2, **arguments), event("kernel", "gemm", 1, 2)
    )
    (row,) = made.collectives
    assert made.operations.names[int(made.operations.name[row])] == "ncclDevKernel_AllGather"
    assert made.collectives[row] == ("_allgather_base", 20, 160, 8)


def test_broken_events_are_counted_and_rounded_times_are_noted(tmp_path: Path) -> None:
    made = trace(tmp_path, event("kernel", "gemm", 1682725898082228.25, 2), {**event("kernel", "x", 0, 0), "dur": -1})
    assert len(made.operations) == 1
    assert any("1 event could not be read" in note for note in made.notes)
    assert any("quarter of a microsecond" in note for note in made.notes)


@pytest.mark.parametrize(("base", "zero"), [(None, 0.0), (1_700_000_000_000_000_000, -1_700_000_000_000_000.0)])
def test_gpu_work_whose_times_the_profiler_lost_is_left_out_and_counted(
    tmp_path: Path, base: int | None, zero: float
) -> None:
    """Kineto writes 0 for a start and an end that it does not know, counted from its base like every time."""
    header = {} if base is None else {"baseTimeNanoseconds": base}
    lost = event("kernel", "gemm", zero, 0.0, correlation=2, device=0)
    made = trace(tmp_path, event("kernel", "gemm", 5.0, 3.0, correlation=1, device=0), lost, **header)
    assert made.operations.start.tolist() == [5000]
    assert "1 GPU operation was recorded without times (start and end are 0)" in made.notes[0]


@pytest.mark.parametrize(
    "category", ["xpu_runtime", "mtia_runtime", "privateuse1_runtime", "hip_runtime", "xpu_driver"]
)
def test_calls_of_every_runtime_launch_their_kernels(tmp_path: Path, category: str) -> None:
    launched = event(category, "launch", 1.0, 1.0, correlation=1)
    made = trace(tmp_path, launched, event("kernel", "gemm", 5.0, 3.0, correlation=1, device=0))
    assert made.calls.correlation.tolist() == made.operations.correlation.tolist() == [1]


def test_a_trace_that_was_cut_is_read_up_to_there(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [event("kernel", "gemm", 5, 2), event("kernel", "late", 9, 2)]})
    file = tmp_path / "trace.json"
    file.write_text(text[:-40])
    made = read_activity(Source(str(file)))
    assert made.operations.names == ["gemm"]
    assert any("ends early" in note for note in made.notes)


def nanoseconds(microseconds: float) -> int:
    return int(whole_nanoseconds(np.array([microseconds], np.float64))[0])


@given(st.integers(0, 2**43 * 1000))
def test_a_printed_time_is_converted_to_the_nanosecond(time: int) -> None:
    printed = f"{time // 1000}.{time % 1000:03d}"
    assert nanoseconds(json.loads(printed)) == time


@given(st.floats(min_value=-1e15, max_value=1e15) | st.integers(-(10**15), 10**15))
def test_no_conversion_is_further_off_than_half_a_nanosecond(microseconds: float) -> None:
    """But for the last bit of a product of doubles: 0.0005 is a little more than its digits, and half when multiplied."""
    found = nanoseconds(microseconds)
    assert abs(Fraction(microseconds) * 1000 - found) <= Fraction(1, 2) + Fraction(1, 10**12)


def test_half_a_nanosecond_is_rounded_to_an_even_number() -> None:
    assert [nanoseconds(text) for text in (0.0005, 0.0015, 0.0025)] == [0, 2, 2]


# ---------------------------------------------------------------------------------------------------- tables of launches


def test_a_table_of_launches_gives_operations_and_says_what_it_lacks() -> None:
    table = pa.table(
        {
            "kernel_name": ["gemm", "[CUDA memcpy Host-to-Device]", "Memcpy DtoD (Device -> Device)", "later"],
            "operation": ["kernel", "memcpy", "memcpy", "kernel"],
            "start_ns": pa.array([100, 200, 300, None], pa.int64()), "duration_ns": [10.0, 20.0, 30.0, 1.0],
            "process_id": pa.array([3, None, 3, 3], pa.int64()), "device_id": [0, 0, 0, 0], "device_name": ["L4", "L4", "L4", "L4"],
            "stream": ["7", "13", "7", "7"], "bytes": pa.array([None, 64, 32, None], pa.int64()),
        }
    )  # fmt: skip
    made = read_launches_activity("run", table)
    assert made.operations.end.tolist() == [110, 220, 330]
    assert made.operations.stream.tolist() == [7, 13, 7]
    assert made.operations.direction.tolist() == [MISSING, activity.HOST_TO_DEVICE, activity.DEVICE_TO_DEVICE]
    assert made.devices == {(3, 0): "L4"}
    assert "operations alone" in made.missing[0]


@pytest.mark.parametrize(("source", "cause"), [
    ("ncu", "Reports of ncu have none"), ("operators", "It says how long each launch took, and not when it began."),
])  # fmt: skip
def test_a_table_without_times_is_refused(source: str, cause: str) -> None:
    table = pa.table({"source": [source], "kernel_name": ["gemm"], "duration_ns": [1.0]})
    with pytest.raises(NcuBenchError, match="no times of a timeline") as refused:
        read_launches_activity("counts", table)
    assert cause in refused.value.paragraph


def test_rows_are_in_order_of_their_starts_the_longer_first() -> None:
    table = activity.columns_of(activity.Overheads, {"start": [5, 1, 1], "end": [6, 2, 9]})
    assert table.by_start().end.tolist() == [9, 2, 6]
    assert len(table.at(np.array([True, False, True]))) == 2


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 4)), max_size=30))
def test_rows_are_ordered_by_start_and_the_longer_of_a_tie_is_first(pairs: list[tuple[int, int]]) -> None:
    start = np.array([begin for begin, _ in pairs], np.int64)
    end = start + np.array([lasts for _, lasts in pairs], np.int64)
    order, wanted = order_of(start, end), np.lexsort((-end, start))
    assert (np.arange(len(pairs)) if order is None else order).tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("values", "kind"),
    [([-1, 7], "int8"), ([0, 128], "int16"), ([70_000], "int32"), ([5, MISSING], "int64"), ([1 << 40], "int64")],
)
def test_a_narrow_column_holds_its_values_in_the_narrowest_type(values: list[int], kind: str) -> None:
    found = narrow(np.array(values, np.int64))
    assert (found.tolist(), found.dtype) == (values, kind)


def test_a_column_with_one_value_in_every_row_takes_the_memory_of_one() -> None:
    found = narrow(np.full(5, 300))
    assert (found.tolist(), found.dtype, found.strides) == ([300] * 5, "int16", (0,))


@pytest.mark.parametrize(
    ("values", "kind"),
    [([127, 1], "int8"), ([128, 1], "int16"), ([32_768, 1], "int32"), ([1 << 31, 1], "int64"), ([MISSING, 1], "int64")],
)
def test_values_beyond_a_column_make_it_wider_and_keep_those_before(values: list[int], kind: str) -> None:
    filled = FilledColumns(3, {"label": "i1"})
    filled.add({"label": np.array([127])}, np.array([True]))
    filled.add({"label": np.array(values)}, np.array([True, True]))
    assert (filled.columns["label"].tolist(), filled.columns["label"].dtype) == ([127, *values], kind)


def test_one_number_for_all_rows_of_a_block_makes_a_column_wider_too() -> None:
    filled = FilledColumns(2, {"kind": "i1"})
    filled.add({"kind": -129}, np.array([True, True]))
    assert filled.columns["kind"].tolist() == [-129, -129]
