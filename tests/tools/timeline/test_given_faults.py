"""Traces and tables that were once judged wrongly, as they were given: each has its right result."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ncu_tools.runs.loading import load
from ncu_tools.timeline.load_activity import load_activity
from ncu_tools.timeline.timeline import Timeline, timeline
from tests.support.ran import ran
from tests.support.reports import given_fault


def found_in(name: str) -> Timeline:
    return timeline(load_activity(given_fault(name)))


def said_of(name: str) -> str:
    """All notes on a recording."""
    return "\n".join(found_in(name).notes)


def rows_of(name: str) -> list[dict[str, Any]]:
    result = ran("hotspots", given_fault(name), "--format", "json")
    rows: list[dict[str, Any]] = json.loads(result.stdout)["rows"]
    return rows


def test_02a_a_table_that_stands_twice_counts_once() -> None:
    (row,) = rows_of("02a_same_nsys_table_twice.md")
    assert (row["launches"], row["time_total_ns"]) == (1000, 1_250_000)


def test_02b_two_runs_in_one_row_are_noted() -> None:
    notes = load(given_fault("02b_two_runs_one_row.md")).notes
    assert any("as of 2 runs" in note and "1.25 µs and 380 µs" in note for note in notes)


def test_03a_launches_of_a_capture_run_nothing() -> None:
    whole = found_in("03a_graph_capture.json").gpus[0].whole
    assert whole.verdict.bound == "host"
    assert whole.causes["graph capture"] > 0.9 * whole.span_ns


def test_03b_steps_without_records_are_unknown_and_not_idle() -> None:
    found = found_in("03b_steps_without_records.json")
    assert found.gpus[0].whole.verdict.bound is None
    assert "120 of 160 launches have no record of what ran on the GPU" in said_of("03b_steps_without_records.json")
    assert "6 of 8 steps have no operation in the recording" in said_of("03b_steps_without_records.json")


@pytest.mark.parametrize(
    ("name", "lost", "left", "most_ms"),
    [("04a_zero_timestamps.json", 5, 10, 1), ("04b_zero_timestamps.sqlite", 10, 40, 3)],
)
def test_04_operations_without_times_are_left_out_and_counted(name: str, lost: int, left: int, most_ms: int) -> None:
    found = found_in(name)
    assert len(found.activity.operations) == left
    assert found.gpus[0].whole.span_ns < most_ms * 1_000_000
    assert f"{lost} GPU operations" in "\n".join(found.notes)
    assert sum(row["launches"] for row in rows_of(name)) == left
    notes = "\n".join(load(given_fault(name)).notes)
    assert f"{lost} GPU operations were recorded without times" in notes


def test_05_a_call_of_xpu_launches_its_kernel() -> None:
    (row,) = rows_of("05_xpu_runtime.json")
    assert row["flops"] == pytest.approx(6.44e9, rel=1e-3)
    assert not any("no launching call" in note for note in load(given_fault("05_xpu_runtime.json")).notes)
    assert "unknown" not in found_in("05_xpu_runtime.json").gpus[0].whole.causes


def test_10_kernels_with_words_that_are_no_json_are_read() -> None:
    (row,) = rows_of("10_unreadable_kernels.json")
    assert (row["kernel"], row["launches"]) == ("vec_mul", 10)
    notes = "\n".join(load(given_fault("10_unreadable_kernels.json")).notes)
    assert "no GPU work" not in notes
    assert "ends early" not in notes


def test_11_disagreeing_clocks_are_noted_and_gaps_have_no_cause() -> None:
    whole = found_in("11_kernels_before_launch.json").gpus[0].whole
    assert set(whole.causes) == {"unknown"}
    assert "the clocks of GPU and host disagree" in said_of("11_kernels_before_launch.json")


def test_12_a_record_that_overlaps_its_own_stream_is_named() -> None:
    assert "the record of fmha_bwd is impossible" in said_of("12_same_stream_overlap.json")
    assert found_in("12_same_stream_overlap.json").gpus[0].whole.span_ns < 3_000_000
    times = {row["kernel"]: row["time_total_ns"] for row in rows_of("12_same_stream_overlap.json")}
    assert times["fmha_bwd"] == 50_000


def test_15_kernels_that_share_a_number_have_no_cause_before_them() -> None:
    found = found_in("15_rocm_shared_correlation.json")
    assert "dependency" not in found.gpus[0].whole.causes
    assert "4 kernels have the correlation id of 1 launch" in "\n".join(found.notes)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("a_nsys_skipped.txt", 'says: "SKIPPED: report1.sqlite does not contain CUDA kernel data"'),
        ("c_nsys_columns_elided.md", "columns were left out"),
        ("d_proton.hatchet", "is a profile of Proton"),
        ("e_trtexec_profile.json", "is a profile of TensorRT (trtexec --exportProfile)"),
        ("f_jax_trace.json", "is a Chrome trace of JAX"),
    ],
)
def test_what_is_refused_is_refused_for_its_own_reason_with_what_to_type(name: str, what: str) -> None:
    for command in ("hotspots", "timeline"):
        result = ran(command, given_fault(f"refused/{name}"))
        assert result.exit_code == 1
        assert what in result.stderr
        assert "nsys " in result.stderr or "ncu-bench profile" in result.stderr
