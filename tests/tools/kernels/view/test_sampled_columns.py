"""`hotspots --columns sampled`: activity that nsys sampled while kernels ran, never as a count. The timeline is made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.timelines.activity.samples import sampled_columns

from ncu_tools.kernels.view.columns.column_names import sets, short_names
from tests.support.ran import ran
from tests.support.timelines import CALLS, KERNELS, call, database, gpu_metric_names, gpu_metric_samples, kernel

US = 1000
TIMES = list(range(0, 4_000 * US, 100 * US))
METRICS = ("SMs Active [Throughput %]", "DRAM Read Bandwidth [Throughput %]")


@pytest.fixture
def timeline(tmp_path: Path) -> str:
    """Two launches of gemm, of 1 ms at 80 % and 2 ms at 50 % of the bandwidth, and one of 50 µs."""
    kernels = [
        kernel(0, 1, end=1_000 * US), kernel(1_000 * US, 2, end=3_000 * US), kernel(3_500 * US, 3, end=3_550 * US),
        kernel(3_600 * US, 4, end=3_650 * US, name=2),
    ]  # fmt: skip
    samples = gpu_metric_samples(TIMES, [90] * 40, [80] * 10 + [50] * 20 + [0] * 10)
    tables: dict[str, Any] = {
        KERNELS: kernels, CALLS: [call(number, number) for number in range(1, 5)],
        "TARGET_INFO_GPU": [{"id": 0, "cuDevice": 0, "name": "NVIDIA H100"}],
        "TARGET_INFO_GPU_METRICS": gpu_metric_names(*METRICS), "GPU_METRICS": samples,
    }  # fmt: skip
    return str(database(tmp_path / "sampled.sqlite", tables, ("gemm(int)", "tiny(int)")))


def shown(*arguments: str) -> dict[str, Any]:
    done = ran("hotspots", *arguments, "--format", "json")
    assert done.exit_code == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_launches_of_a_kernel_are_combined_by_the_time_for_which_they_have_samples(timeline: str) -> None:
    gemm, tiny = shown(timeline, "--columns", "sampled")["rows"]
    assert gemm["sampled_dram_read"] == pytest.approx((80 * 1 + 50 * 2) / 3)
    assert (gemm["sampled_sm"], gemm["sampled_samples"]) == (90, 30)
    assert (tiny["sampled_dram_read"], tiny["sampled_samples"]) == (None, 0)


def test_sampled_bandwidth_is_no_dram_bytes_and_bounds_no_kernel(timeline: str) -> None:
    gemm, _ = shown(timeline, "--columns", "sampled")["rows"]
    assert (gemm["dram_bytes"], gemm["dram_bytes_per_s"], gemm["bound"]) == (None, None, None)


def test_the_rate_and_the_time_of_the_samples_are_said_beside_the_table(timeline: str) -> None:
    notes = "\n".join(shown(timeline, "--columns", "sampled")["notes"])
    assert "sampled by nsys at 10 kHz: 40 samples over 0.004 s" in notes
    assert (
        "empty, since sampled_issue or sampled_tensor or sampled_dram or sampled_dram_write is not among the samples, or "
        in notes
    )
    assert "ncu --set full" not in notes


def test_a_report_that_sampled_nothing_says_what_does(tmp_path: Path) -> None:
    tables: dict[str, Any] = {KERNELS: [kernel(1, 1)], CALLS: [call(1, 1)]}
    path = database(tmp_path / "plain.sqlite", tables)
    notes = "\n".join(shown(str(path), "--columns", "sampled_tensor,l1_hit")["notes"])
    assert "so empty: sampled_tensor; collect with: ncu-bench profile --tool nsys --gpu-metrics PROGRAM" in notes
    assert "so empty: l1_hit; collect with: ncu --section" in notes


def test_sampled_values_survive_parse(timeline: str, tmp_path: Path) -> None:
    parsed = tmp_path / "launches.parquet"
    assert ran("parse", timeline, "-o", str(parsed)).exit_code == 0
    whole, read = shown(timeline, "--columns", "sampled"), shown(str(parsed), "--columns", "sampled")
    assert [row["sampled_dram_read"] for row in whole["rows"]] == [row["sampled_dram_read"] for row in read["rows"]]


def test_every_sampled_column_of_a_timeline_has_a_short_name_in_a_set() -> None:
    in_sets = {name for group in ("sampled", "sampled_links") for name in sets()[group]}
    metrics = {short_names()[name].metrics[0] for name in in_sets}
    assert metrics == {*sampled_columns(), "sampled_samples"}
