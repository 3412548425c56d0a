"""JSON of rocprofv3 is read as what happened on AMD's GPUs, and as launches."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError
from ncu_parsers.parse.file_kinds import read_artefact
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.report_data.report import Report
from ncu_parsers.schema.vendors import Vendor, vendors_in
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import MISSING, Activity
from ncu_parsers.timelines.formats.rocprofv3 import read_activity

from tests.support.other_timelines import (
    AGENT,
    CPU_AGENT,
    PROCESS,
    SECOND_AGENT,
    THREAD,
    copy,
    dispatch,
    hip,
    marker,
    rocprof,
    rocprof_json,
)
from tests.support.reports import assert_read_or_refused, needs_shared_reports, shared_reports

STEP, LAYER = 50, 51


def recorded(path: Path, *processes: dict[str, Any]) -> Activity:
    return read_activity(written(path, rocprof_json(*processes)))


def written(path: Path, data: bytes, name: str = "results.json") -> Source:
    (path / name).write_bytes(data)
    return Source(str(path / name))


def report_of(path: Path, *processes: dict[str, Any]) -> Report:
    return read_artefact(written(path, rocprof_json(*processes)))


def table_of(path: Path, *processes: dict[str, Any]) -> pa.Table:
    table = report_of(path, *processes).table
    assert table is not None
    return table


def launched() -> dict[str, Any]:
    """Two kernels in a range of ROCTx, each with its call, and a copy."""
    return rocprof(
        [dispatch(200, 300, 0, correlation=1), dispatch(320, 350, 1, correlation=2, agent=SECOND_AGENT)],
        copies=[copy(400, 480, 2, CPU_AGENT, AGENT)],
        calls=[hip(100, 110, 0, 1), hip(120, 130, 0, 2), hip(500, 900, 2, 3)],
        markers=[marker(90, 1000, STEP), marker(115, 140, LAYER)],
        texts={STEP: "step", LAYER: "layer"},
    )


def test_a_kernel_has_its_name_times_device_stream_and_shape_in_blocks(tmp_path: Path) -> None:
    found = recorded(tmp_path, launched())
    operations = found.operations
    assert (operations.names[operations.name[0]], int(operations.start[0]), int(operations.end[0])) == (
        "gemm",
        200,
        300,
    )
    assert (int(operations.process[0]), int(operations.device[1]), int(operations.stream[0])) == (PROCESS, 1, 1)
    assert found.fact is not None
    facts = found.facts[found.fact[0]]
    assert (facts.grid, facts.block, facts.registers, facts.shared_memory) == ((4, 2, 1), (256, 1, 1), 32, 512)
    assert found.devices[PROCESS, 0] == "AMD Instinct MI300X"
    assert found.vendors[PROCESS, 1] is Vendor.AMD


def test_a_kernel_without_ids_is_not_taken_for_kernel_0_on_stream_0(tmp_path: Path) -> None:
    one = dispatch(0, 10, 0)
    del one["dispatch_info"]["kernel_id"]
    one["stream_id"] = {}
    found = recorded(tmp_path, rocprof([one])).operations
    assert [found.names[code] for code in found.name] == ["(kernel without a name)"]
    assert found.stream.tolist() == [MISSING]


def test_shared_memory_beyond_64_bits_is_unknown(tmp_path: Path) -> None:
    large, small = dispatch(0, 10, 0), dispatch(20, 30, 0)
    large["dispatch_info"]["group_segment_size"] = 2**70
    assert table_of(tmp_path, rocprof([large, small]))["shared_memory_bytes"].to_pylist() == [None, 512]


def test_a_copy_has_its_direction_bytes_and_the_gpu_at_its_end(tmp_path: Path) -> None:
    copies = [
        copy(0, 10, 2, CPU_AGENT, AGENT), copy(20, 30, 3, SECOND_AGENT, CPU_AGENT), copy(40, 50, 4, AGENT, AGENT),
        copy(60, 70, 4, AGENT, SECOND_AGENT), copy(80, 90, 1, CPU_AGENT, CPU_AGENT), copy(100, 110, 77, AGENT, AGENT),
    ]  # fmt: skip
    found = recorded(tmp_path, rocprof(copies=copies)).operations
    assert [found.names[code] for code in found.name] == [
        "Memcpy HtoD", "Memcpy DtoH", "Memcpy DtoD", "Memcpy PtoP", "Memcpy HtoH", "Memcpy",
    ]  # fmt: skip
    assert [activity.DIRECTIONS[code] for code in found.direction] == [
        "host to device", "device to host", "device to device", "peer to peer", "host to host", "other",
    ]  # fmt: skip
    assert found.device.tolist() == [0, 1, 0, 1, MISSING, 0]
    assert found.bytes.tolist() == [64] * 6


def test_calls_have_names_by_kind_and_operation_and_ranges_their_texts(tmp_path: Path) -> None:
    found = recorded(tmp_path, launched())
    assert [found.calls.names[code] for code in found.calls.name] == [
        "hipLaunchKernel", "hipLaunchKernel", "hipDeviceSynchronize",
    ]  # fmt: skip
    assert set(found.calls.thread.tolist()) == {THREAD}
    assert [found.ranges.names[code] for code in found.ranges.name] == ["step", "layer"]


def test_launches_have_the_ranges_around_their_calls(tmp_path: Path) -> None:
    table = table_of(tmp_path, launched())
    assert table["nvtx_path"].to_pylist() == [["step"], ["step", "layer"], None]
    assert table["source"].to_pylist() == ["rocprofv3"] * 3
    assert table["kernel_name"].to_pylist() == ["gemm", "softmax", "Memcpy HtoD"]
    assert table["grid"].to_pylist() == [[4, 2, 1], [4, 2, 1], None]
    assert table["duration_ns"].to_pylist() == [100.0, 30.0, 80.0]
    assert table["operation"].to_pylist() == ["kernel", "kernel", "memcpy"]
    assert vendors_in(table) == {Vendor.AMD}


def test_processes_of_one_file_do_not_share_their_correlation_ids(tmp_path: Path) -> None:
    first = rocprof([dispatch(200, 300, 0, correlation=1)], calls=[hip(100, 110, 0, 1)],
                    markers=[marker(90, 120, STEP)], texts={STEP: "first"})  # fmt: skip
    second = rocprof([dispatch(210, 310, 0, correlation=1)], calls=[hip(105, 110, 0, 1)], process=99)
    table = table_of(tmp_path, first, second)
    assert table["process_id"].to_pylist() == [PROCESS, 99]
    assert table["nvtx_path"].to_pylist() == [["first"], []]


def test_what_was_not_recorded_is_said_with_the_option_that_records_it(tmp_path: Path) -> None:
    missing = recorded(tmp_path, rocprof([dispatch(0, 10, 0)])).missing
    assert [
        one for one in missing if "--sys-trace" in one or "--marker-trace" in one or "--memory-copy" in one
    ] == missing
    assert len(missing) == 3
    assert recorded(tmp_path, launched()).missing == []


def test_a_recording_without_gpu_work_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    with pytest.raises(NcuBenchError, match="holds neither GPU work nor operators") as refused:
        report_of(tmp_path, rocprof(calls=[hip(0, 5, 0, 1)]))
    assert "API calls: 1;" in refused.value.cause


def test_an_event_without_a_time_is_counted_and_costs_no_other(tmp_path: Path) -> None:
    kernels = [dispatch(0, 10, 0), {"kind": 4}, dispatch(30, 20, 0), "text", dispatch(40, 60, 0)]
    result = report_of(tmp_path, rocprof(kernels))
    assert result.table is not None
    assert result.table["duration_ns"].to_pylist() == [10.0, 20.0]
    assert result.lines["broken row"] == 3
    assert "3 events could not be read and were left out" in result.notes


@pytest.mark.parametrize("cut", [0.75, 0.9])
def test_a_file_that_ends_early_is_read_up_to_there_and_says_so(tmp_path: Path, cut: float) -> None:
    whole = rocprof_json(rocprof([dispatch(at * 100, at * 100 + 50, 0) for at in range(40)]))
    result = read_artefact(written(tmp_path, whole[: int(len(whole) * cut)]))
    assert 0 < result.rows < 40
    assert any("cut off or damaged, and was read up to there" in note for note in result.notes)


@pytest.mark.slow
def test_a_compressed_file_is_read_up_to_its_damage(tmp_path: Path) -> None:
    packed = gzip.compress(rocprof_json(rocprof([dispatch(at * 100, at * 100 + at, 0) for at in range(4000)])))
    result = read_artefact(written(tmp_path, packed[: len(packed) * 9 // 10], "results.json.gz"))
    assert 0 < result.rows < 4000


@pytest.mark.parametrize(
    "text", ['{"rocprofiler-sdk-tool": [', '{"rocprofiler-sdk-tool": 7}', '{"rocprofiler-sdk-tool": [{']
)
def test_a_file_with_nothing_readable_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(NcuBenchError) as refused:
        read_artefact(written(tmp_path, text.encode()))
    assert refused.value.cause
    assert refused.value.advice


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["metadata", "agents", "strings", "kernel_symbols", "buffer_records"]), JSON, st.data())
def test_any_json_in_any_part_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, part: str, value: Any, data: st.DataObject) -> None:  # fmt: skip
    made = launched()
    where: Any = made
    key: Any = part
    while isinstance(where[key], (dict, list)) and where[key] and data.draw(st.booleans()):
        where = where[key]
        key = data.draw(st.sampled_from(list(where) if isinstance(where, dict) else range(len(where))))
    where[key] = value
    source = written(tmp_path_factory.getbasetemp(), rocprof_json(made))
    assert_read_or_refused(source)


@given(st.lists(st.tuples(st.integers(0, 2**50), st.integers(0, 2**40), st.integers(0, 1)), min_size=1, max_size=30))
def test_sums_are_those_of_the_events(tmp_path_factory: pytest.TempPathFactory, events: list[tuple[int, int, int]]) -> None:  # fmt: skip
    kernels = [dispatch(start, start + duration, name) for start, duration, name in events]
    table = table_of(tmp_path_factory.getbasetemp(), rocprof(kernels))
    assert sum(table["duration_ns"].to_pylist()) == sum(duration for _, duration, _ in events)
    assert table["start_ns"].to_pylist() == sorted(start for start, *_ in events)


@given(st.data())
def test_a_file_cut_anywhere_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = rocprof_json(launched())
    cut = data.draw(st.integers(30, len(whole) - 1))
    try:
        result = read_artefact(written(tmp_path_factory.getbasetemp(), whole[:cut]))
    except NcuBenchError:
        return
    assert result.rows <= 3


@pytest.mark.slow
@needs_shared_reports
@pytest.mark.nightly
def test_a_real_training_of_an_mi350x_has_its_golden_sums() -> None:
    (path,) = (one for one in shared_reports("other") if one.name.endswith("908_results.json.gz"))
    result = read_artefact(Source(str(path)))
    assert result.table is not None
    assert result.rows == 43_915
    assert sum(result.table["duration_ns"].to_pylist()) == 4_441_741_378
    assert set(result.table["device_name"].to_pylist()) == {"AMD Instinct MI350X"}
    assert len(set(result.table["kernel_name"].to_pylist())) == 80
    slowest = [row["duration_ns"] for row in result.table.to_pylist() if "ncclDevKernel" in row["kernel_name"]]
    assert (len(slowest), sum(slowest)) == (1310, 4_158_756_678)


def test_only_json_files_of_rocprofv3_in_a_folder_are_reports(tmp_path: Path) -> None:
    written(tmp_path, rocprof_json(launched()), "908_results.json")
    written(tmp_path, json.dumps({"settings": 1}).encode(), "settings.json")
    assert [Path(one.path).name for one in find_sources([str(tmp_path)])] == ["908_results.json"]
