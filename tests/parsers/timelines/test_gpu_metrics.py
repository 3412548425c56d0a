"""GPU metrics that nsys sampled, beside the kernels that ran meanwhile. The tables are made up, in nsys's schema.

No real recording with GPU metrics was at hand: the columns are those of NVIDIA's "SQLite Export Schema Reference", the
names those of GpuMetrics.config of nsys 2022.4 and of public queries against newer exports.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.launches.nsys.nsys_sqlite import read_export
from ncu_parsers.schema.tables import field_entries
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity.samples import sampled_columns
from ncu_parsers.timelines.nsys import gpu_metrics
from ncu_parsers.timelines.nsys.gpu_metrics import read_samples

from tests.support.timelines import (
    CALLS,
    GPU_METRICS_TYPE,
    KERNELS,
    Row,
    call,
    database,
    gpu_metric_names,
    gpu_metric_samples,
    kernel,
    read,
)  # fmt: skip

US = 1000
EVERY_100_US = list(range(0, 2_000 * US, 100 * US))
NEW, OLD = "DRAM Read Bandwidth [Throughput %]", "DRAM Read Throughput"
GPUS = [{"id": 0, "cuDevice": 0, "name": "NVIDIA H100"}, {"id": 1, "cuDevice": 1, "name": "NVIDIA H100"}]
LONG, SHORT = kernel(500 * US, 1, end=1500 * US), kernel(1600 * US, 2, end=1650 * US)
READ = [10] * 5 + [80] * 10 + [10] * 5


def export(
    path: Path, names: list[Row], samples: list[Row], *, kernels: tuple[Row, ...] = (LONG, SHORT), **more: list[Row]
) -> Path:
    tables: dict[str, Any] = {
        KERNELS: list(kernels), CALLS: [call(1, 1), call(2, 2)], "TARGET_INFO_GPU": GPUS,
        "TARGET_INFO_GPU_METRICS": names, "GPU_METRICS": samples, **more,
    }  # fmt: skip
    return database(path / "sampled.sqlite", tables)


def rows(path: Path) -> list[dict[str, Any]]:
    table = read(path).table
    assert table is not None
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def notes(path: Path) -> str:
    return "\n".join(read(path).notes)


@pytest.mark.parametrize("name", [NEW, OLD, "dram read bandwidth"])
def test_a_kernel_has_the_mean_of_the_samples_over_its_time(tmp_path: Path, name: str) -> None:
    path = export(tmp_path, gpu_metric_names(name), gpu_metric_samples(EVERY_100_US, READ))
    long, short = rows(path)
    assert (long["sampled_dram_read_pct"], long["sampled_samples"]) == (80.0, 10)
    assert (short["sampled_dram_read_pct"], short["sampled_samples"]) == (None, 0)


def test_a_column_says_that_it_was_sampled_and_in_which_unit(tmp_path: Path) -> None:
    path = export(tmp_path, gpu_metric_names(NEW), gpu_metric_samples(EVERY_100_US, READ))
    table = read(path).table
    assert table is not None
    entries = field_entries(table.schema.field("sampled_dram_read_pct"))
    assert entries["unit"] == "%"
    assert entries["meaning"].startswith("sampled on the whole GPU while it ran, not counted")
    assert "sampled_tensor_active_pct" not in table.column_names


def test_the_notes_say_rate_number_and_time_of_the_samples(tmp_path: Path) -> None:
    path = export(tmp_path, gpu_metric_names(NEW), gpu_metric_samples(EVERY_100_US, READ))
    assert "activity of GPU 0 was sampled by nsys at 10 kHz: 20 samples over 0.002 s; a sampled value is" in notes(path)
    assert "1 of 2 operations have no sampled values: they take fewer than 5 samples" in notes(path)


def test_the_parts_of_nvlink_are_added_up_only_if_all_are_there(tmp_path: Path) -> None:
    parts = sampled_columns()["sampled_nvlink_rx_pct"]["parts"]
    names = gpu_metric_names(*(f"{name} [Throughput %]" for name in parts))
    samples = gpu_metric_samples(EVERY_100_US, *([share] * 20 for share in (40, 5, 8, 2)))
    assert rows(export(tmp_path, names, samples))[0]["sampled_nvlink_rx_pct"] == 55
    (tmp_path / "less").mkdir()
    fewer = export(tmp_path / "less", [*names[:3], *gpu_metric_names(NEW, first=3)], samples)
    assert "sampled_nvlink_rx_pct" not in rows(fewer)[0]


def test_a_metric_in_another_unit_is_another_metric(tmp_path: Path) -> None:
    names = gpu_metric_names("Tensor Active [Cycles Active]", "SMs Active [Throughput %]")
    found = rows(export(tmp_path, names, gpu_metric_samples(EVERY_100_US, [9999] * 20, READ)))[0]
    assert found["sampled_sm_active_pct"] == 80
    assert "sampled_tensor_active_pct" not in found


def test_each_gpu_numbers_its_metrics_itself(tmp_path: Path) -> None:
    names = [*gpu_metric_names(NEW, "SM Issue"), *gpu_metric_names("SM Issue", NEW, gpu=1)]
    samples = [
        *gpu_metric_samples(EVERY_100_US, READ, [1] * 20), *gpu_metric_samples(EVERY_100_US, [2] * 20, [30] * 20, gpu=1)
    ]  # fmt: skip
    other = {**LONG, "deviceId": 1, "correlationId": 2}
    first, second = rows(export(tmp_path, names, samples, kernels=(LONG, other)))
    assert [first["sampled_dram_read_pct"], first["sampled_sm_issue_pct"]] == [80, 1]
    assert [second["sampled_dram_read_pct"], second["sampled_sm_issue_pct"]] == [30, 2]


def test_a_kernel_of_a_gpu_that_was_not_sampled_has_nothing(tmp_path: Path) -> None:
    other = {**LONG, "deviceId": 1, "correlationId": 2}
    path = export(tmp_path, gpu_metric_names(NEW), gpu_metric_samples(EVERY_100_US, READ), kernels=(LONG, other))
    assert [row["sampled_samples"] for row in rows(path)] == [10, None]
    assert "1 operations have no sampled values, because their GPU or time is not known or sampled" in notes(path)


def test_the_gpu_behind_a_number_is_that_of_the_process(tmp_path: Path) -> None:
    shown = [{"pid": 7, "cudaId": 0, "gpuId": 1}]
    names, samples = gpu_metric_names(NEW, gpu=1), gpu_metric_samples(EVERY_100_US, READ, gpu=1)
    path = export(tmp_path, names, samples, TARGET_INFO_CUDA_DEVICE=shown)
    assert rows(path)[0]["sampled_dram_read_pct"] == 80


def test_a_kernel_without_an_end_has_no_sampled_values(tmp_path: Path) -> None:
    endless = {**LONG, "end": None}
    path = export(tmp_path, gpu_metric_names(NEW), gpu_metric_samples(EVERY_100_US, READ), kernels=(endless,))
    assert (rows(path)[0]["sampled_dram_read_pct"], rows(path)[0]["sampled_samples"]) == (None, None)


def test_lost_samples_are_said(tmp_path: Path) -> None:
    times = [*EVERY_100_US, *range(5_000 * US, 6_000 * US, 100 * US)]
    path = export(tmp_path, gpu_metric_names(NEW), gpu_metric_samples(times, [*READ, *[5] * 10]))
    assert "30 samples over 0.003 s; 0.003 s between them have none" in notes(path)


def test_metrics_that_are_not_known_are_named(tmp_path: Path) -> None:
    path = export(tmp_path, gpu_metric_names("Draw Started", "L2 Hit Rate"), gpu_metric_samples([1, 2], [1, 1], [2, 2]))
    assert "no metric that is known here (it has draw started, l2 hit rate)" in notes(path)
    assert "sampled_samples" not in rows(path)[0]


def test_rows_without_a_time_are_left_out_and_counted(tmp_path: Path) -> None:
    broken = [{"timestamp": None, "typeId": GPU_METRICS_TYPE, "metricId": 0, "value": 7}]
    path = export(tmp_path, gpu_metric_names(NEW), [*gpu_metric_samples(EVERY_100_US, READ), *broken])
    assert "1 rows of GPU_METRICS have no time, or a value that is no integer" in notes(path)
    assert rows(path)[0]["sampled_dram_read_pct"] == 80


def test_a_table_without_timestamps_is_not_read(tmp_path: Path) -> None:
    path = export(tmp_path, gpu_metric_names(NEW), [{"rawTimestamp": 1, "typeId": 1, "metricId": 0, "value": 1}])
    assert "GPU_METRICS has no column timestamp, so no sampled activity is shown" in notes(path)


def test_more_rows_than_are_read_leave_the_timeline_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = export(tmp_path, gpu_metric_names(NEW), gpu_metric_samples(EVERY_100_US, READ))
    monkeypatch.setattr(gpu_metrics, "MOST_ROWS", 19)
    report = read_export(Source(str(path)), "t")
    assert any("GPU_METRICS has 20 rows, and at most 19 are read" in note for note in report.notes)
    assert report.table is not None
    assert len(report.table) == 2


def test_samples_that_an_old_nsys_exported_as_events_are_named_as_not_read(tmp_path: Path) -> None:
    kinds = [{"typeId": 1, "sourceId": 1, "data": '{"Name": "GPU", "Fields": [{"Name": "SM Active"}]}'}]
    path = database(tmp_path / "old.sqlite", {KERNELS: [LONG], CALLS: [call(1, 1)], "GENERIC_EVENT_TYPES": kinds})
    assert "GPU metrics are in the file as generic events" in notes(path)


def test_a_timeline_without_gpu_metrics_has_no_column_and_no_note_of_them(tmp_path: Path) -> None:
    path = database(tmp_path / "plain.sqlite", {KERNELS: [LONG], CALLS: [call(1, 1)], "GPU_METRICS": []})
    assert not any("sampled" in name for name in rows(path)[0])
    assert "sampled" not in notes(path)


def test_samples_are_read_without_any_kernel(tmp_path: Path) -> None:
    path = export(tmp_path, gpu_metric_names(NEW), gpu_metric_samples(EVERY_100_US, READ), kernels=())
    found = read_samples(Source(str(path)), "t").gpus[0]
    assert (len(found), found.period_ns) == (20, 100_000)
