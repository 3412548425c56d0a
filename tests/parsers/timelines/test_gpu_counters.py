"""Samples of GPUs in traces of PyTorch's profiler, in the forms of Kineto and of Cuspy. The samples are made up.

Names, the text as process, the empty key and the start without an end are those of PyTorch's own tests of August 2026.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ncu_parsers.launches.sampled_columns import SAMPLED_GPU, SAMPLES
from ncu_parsers.report_data.report import BROKEN, SAMPLE, Report
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity.samples import GpuSamples, SampledActivity
from ncu_parsers.timelines.kineto.kineto import read_activity

from ncu_tools.report.export.timeline_lanes import lane_events
from ncu_tools.report.html.step_lanes import SAMPLED, LanesOfTimeline, steps_by_saving
from ncu_tools.timeline.timeline import timeline
from tests.support.activities import Operation, recording
from tests.support.nightly import one_in
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, shared_reports
from tests.support.traces import read_report

Event = dict[str, Any]
SM, DRAM = (
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
)
LONG: Event = {"ph": "X", "cat": "kernel", "name": "long", "ts": 10_500.0, "dur": 8_000.0, "pid": 0, "tid": 7,
        "args": {"device": 0, "stream": 7, "correlation": 1}}  # fmt: skip


def sample(name: str, at_us: float, value: Any, gpu: int = 0, **more: Any) -> Event:
    return {"ph": "C", "cat": "hardware_counters", "name": name, "pid": f"GPU {gpu} Counters", "tid": 0, "ts": at_us,
            "args": {"": value}, **more}  # fmt: skip


def every_ms(name: str, *values: Any, start: float = 8_000.0, period: float = 1_000.0, **more: Any) -> list[Event]:
    return [sample(name, start + at * period, value, **more) for at, value in enumerate(values)]


def trace(folder: Path, *events: Event) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}))
    return path


def read(path: Path) -> tuple[list[dict[str, Any]], Report]:
    report = read_report(Source(str(path)))
    assert report.table is not None
    return report.table.to_pylist(), report


@pytest.mark.parametrize(
    ("name", "column"),
    [
        (SM, "sampled_sm_active_pct"),
        ("SM.TriageA.sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed", "sampled_sm_issue_pct"),
        ("SM Active (%)", "sampled_sm_active_pct"),
        ("HBM Read (%)", "sampled_dram_read_pct"),
        (DRAM, "sampled_dram_pct"),
    ],
)
def test_a_kernel_has_the_mean_of_the_samples_by_their_overlap_with_it(tmp_path: Path, name: str, column: str) -> None:
    values = [0, 0, 40, *[80] * 8, 0]  # the kernel begins and ends in the middle of a sample
    (row,), report = read(trace(tmp_path, LONG, *every_ms(name, *values)))
    assert row[column] == pytest.approx((0.5 * 40 + 7.5 * 80) / 8)
    assert (row[SAMPLES], row[SAMPLED_GPU]) == (8, 0)
    assert "sampled by PyTorch's profiler at 1 kHz" in "\n".join(report.notes)


def test_a_sample_lasts_until_the_next_one_begins(tmp_path: Path) -> None:
    (row,), report = read(trace(tmp_path, LONG, *every_ms(SM, *[50] * 6, period=2_000.0)))
    assert (row["sampled_sm_active_pct"], row[SAMPLES]) == (None, 0)  # four periods are too few
    assert "samples more often" in "\n".join(report.notes)


def test_samples_before_and_after_what_was_recorded_are_left_out(tmp_path: Path) -> None:
    found = read_activity(Source(str(trace(tmp_path, LONG, *every_ms(SM, *range(40), start=1_000.0)))))
    assert found.sampled.gpus[0].times.tolist() == [ms * 1_000_000 for ms in range(10, 19)]
    assert "31 samples of GPUs lie before or after what was recorded" in found.sampled.notes[0]


def test_a_metric_that_is_no_column_keeps_its_name_and_is_not_taken_for_a_count(tmp_path: Path) -> None:
    path = trace(tmp_path, LONG, *every_ms("dram__bytes_read.sum", *[7] * 12))
    (row,), report = read(path)
    assert row["dram_bytes"] is None
    assert "dram__bytes_read.sum" not in row
    assert "no column of launches: dram__bytes_read.sum" in "\n".join(report.notes)
    shown = json.loads(ran("timeline", str(path), "--part", "samples", "--format", "json").stdout)
    assert [(one["metric"], one["unit"], one["mean"]) for one in shown["rows"]] == [("dram__bytes_read.sum", "", 7)]


def test_what_has_no_number_is_counted_as_broken_and_counters_of_others_are_not(tmp_path: Path) -> None:
    others = sample("memory", 9_000, 1, pid=77)
    broken = [*every_ms(SM, None, "x", True), sample(SM, 9_000, 1, ts="no"), sample(SM, 9_000, 1, args={})]
    _, report = read(trace(tmp_path, LONG, *every_ms(SM, *[5] * 12), *broken, others))
    assert (report.lines[BROKEN], report.lines["event of another kind"]) == (5, 1)


def test_a_roofline_says_flops_by_shapes_per_byte_by_samples_of_a_kernel_that_ran_alone(tmp_path: Path) -> None:
    about = {"Input Dims": [[4096, 2048], [2048, 1024]], "Input type": ["float", "float"], "External id": 5}
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 10_000, "dur": 90, "pid": 1, "tid": 1, "args": about},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 10_010, "dur": 5, "pid": 1, "tid": 1,
         "args": {"correlation": 1, "External id": 5}},
        {**LONG, "args": {**LONG["args"], "External id": 5}},
        {**LONG, "name": "short", "ts": 19_000.0, "dur": 1_000.0, "args": {**LONG["args"], "correlation": 2}},
        *every_ms(DRAM, *[50] * 12),
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    gpu = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0}
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [gpu], "traceEvents": events}))
    shown = json.loads(ran("roofline", str(path), "--machine", "h100-sxm", "--format", "json").stdout)
    rates = {one["kernel"]: one["sampled_arithmetic_intensity"] for one in shown["rows"]}
    assert rates == {"long": pytest.approx(2 * 4096 * 2048 * 1024 / 0.008 / (0.5 * 3.35e12), rel=0.01), "short": None}


def test_a_derived_counter_of_each_kernel_is_no_sample(tmp_path: Path) -> None:
    cycles = sample("Cycles (Current Kernel)", 10_500, 5)
    assert read_activity(Source(str(trace(tmp_path, LONG, cycles)))).sampled.gpus == {}


def test_what_the_driver_said_gives_the_energy_of_a_step_and_no_column(tmp_path: Path) -> None:
    power = [sample("Power (W)", 10_000 + at * 1_000, 300 + 100 * (at % 2)) for at in range(9)]
    clock = [sample("SM Clock (MHz)", 10_000 + at * 1_000, 1500) for at in range(9)]
    path = trace(tmp_path, LONG, *power, *clock, sample("Temperature (C)", 12_000, 61))
    (row,), _ = read(path)
    assert not [name for name in row if name.startswith("sampled_")]
    answer = json.loads(ran("timeline", str(path), "--format", "json").stdout)
    step = answer["rows"][0]
    assert (step["power_w"], step["temperature_c"], step["sm_clock_hz"]) == (350, 61, 1.5e9)
    assert step["energy_j"] == pytest.approx(350 * 0.008)
    shown = ran("timeline", str(path), "--part", "samples").stdout
    assert [line.split()[1] for line in shown.splitlines() if "█" in line] == ["power", "sm", "temperature"]


def test_groups_of_operations_have_means_of_the_gpu_that_ran_them(tmp_path: Path) -> None:
    on_other = {**LONG, "name": "other", "args": {**LONG["args"], "device": 1}}
    events = [*every_ms(SM, *[30] * 12), *every_ms(SM, *[90] * 12, gpu=1)]
    path = trace(tmp_path, LONG, on_other, *events)
    shown = json.loads(ran("timeline", str(path), "--part", "samples", "--by", "name", "--format", "json").stdout)
    means = {row["group"]: row["sampled_sm_active_pct"] for row in shown["rows"] if row["group"] in ("long", "other")}
    assert means == pytest.approx({"long": 30, "other": 90})


def test_a_step_has_a_lane_as_high_as_its_samples_and_a_viewer_a_counter() -> None:
    samples = GpuSamples(np.arange(0, 1200, 120), {"sampled_sm_active_pct": np.array([50.0] * 9 + [20.0])})
    found = timeline(recording([Operation(0, 1200)], sampled=SampledActivity({0: samples})))
    lanes = LanesOfTimeline(found).gpus(steps_by_saving(found)[1][0])[0].lanes
    (lane,) = [lane for lane in lanes if lane.title == "~sm active"]
    assert [box.times for box in (lane.boxes[0], lane.boxes[-1])] == [{SAMPLED: 5}, {SAMPLED: 2}]
    assert lane.total == 108 * 5 + 12 * 2
    counters = [(one["ts"], one["args"]["%"]) for one in lane_events(found) if one["ph"] == "C"]
    assert counters == [(0.0, 50.0), (1.08, 20.0), (1.2, 0.0)]


@needs_shared_reports
@pytest.mark.parametrize("path", one_in(9, shared_reports("kineto")), ids=lambda path: path.name[:40])
def test_samples_change_no_other_column_of_a_real_trace(tmp_path: Path, path: Path) -> None:
    plain = read_report(Source(str(path)))
    whole = json.loads(gzip.decompress(path.read_bytes()))
    start = min(one["ts"] for one in whole["traceEvents"] if one.get("ph") == "X" and "dur" in one)
    whole["traceEvents"] += [*every_ms(SM, *range(100), start=start), *every_ms("HBM BW (%)", *range(9), start=start)]
    (tmp_path / path.name).write_bytes(gzip.compress(json.dumps(whole).encode(), 1))
    sampled = read_report(Source(str(tmp_path / path.name)))
    assert plain.table is not None
    assert sampled.table is not None
    own = [name for name in sampled.table.column_names if name.startswith("sampled_")]
    assert len(own) == 4
    assert sampled.table.drop_columns([*own, "report"]).equals(
        plain.table.drop_columns(["report"]), check_metadata=True
    )
    assert sampled.lines - plain.lines == {SAMPLE: 109}
