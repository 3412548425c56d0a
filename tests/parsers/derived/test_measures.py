"""Ceilings contained in a report: peak per cycle x clock, with sparse and dense tensor peaks separated."""

from __future__ import annotations

import numpy as np
import pytest
from ncu_parsers.derived.measures import tensor_peaks

from tests.support.launches import launch, metric, row

BF16 = "sm__ops_path_tensor_src_bf16_dst_fp32"
PEAK = "sum.peak_sustained"


def peaks(name: str, capability: str | None, *values: float) -> list[tuple[str, str, bool, list[float]]]:
    found = tensor_peaks({f"{name}.{PEAK}": np.array(values)}, [capability] * len(values))
    return [(peak.precision, peak.instruction, peak.sparse, peak.per_cycle.tolist()) for peak in found]


def test_a_total_is_the_sparse_peak_on_chips_with_structured_sparsity() -> None:
    assert peaks(BF16, "8.0", 2048.0) == [("bf16", "", True, [2048.0])]


def test_a_total_is_the_dense_peak_on_chips_without() -> None:
    assert peaks(BF16, "7.0", 2048.0) == [("bf16", "", False, [2048.0])]


def test_a_total_on_an_unknown_chip_is_no_peak() -> None:
    assert peaks(BF16, None, 2048.0) == []


@pytest.mark.parametrize(("suffix", "is_sparse"), [("_sparsity_off", False), ("_sparsity_on", True)])
def test_a_counter_that_names_its_sparsity_is_that_peak_on_every_chip(suffix: str, is_sparse: bool) -> None:
    for capability in ("8.0", None):
        assert peaks(BF16 + suffix, capability, 1024.0) == [("bf16", "", is_sparse, [1024.0])]


def test_a_total_is_the_peak_that_the_chip_of_its_launch_has() -> None:
    found = tensor_peaks({f"{BF16}.{PEAK}": np.array([100.0, 200.0, 300.0])}, ["7.0", "8.0", None])
    assert [(peak.sparse, np.nan_to_num(peak.per_cycle, nan=-1).tolist()) for peak in found] == [
        (False, [100.0, -1.0, -1.0]), (True, [-1.0, 200.0, -1.0]),
    ]  # fmt: skip


def test_a_counter_of_one_instruction_is_the_peak_of_that_instruction() -> None:
    name = "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off"
    assert peaks(name, "9.0", 4096.0) == [("bf16", "hgmma", False, [4096.0])]


def test_fp64_has_no_sparse_operations_on_any_chip() -> None:
    assert peaks("sm__ops_path_tensor_src_fp64", "8.0", 128.0) == [("fp64", "", False, [128.0])]


def test_other_metrics_give_no_tensor_peak() -> None:
    assert tensor_peaks({f"{BF16}.sum": np.ones(1), f"dram__bytes.{PEAK}": np.ones(1)}, ["8.0"]) == []


def test_a_ceiling_is_the_peak_per_cycle_times_the_clock_of_the_launch() -> None:
    found = row(
        launch(
            metrics={
                "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": metric(6912.0),
                "dram__bytes.sum.peak_sustained": metric(1024.0, "byte"),
                "smsp__cycles_elapsed.avg.per_second": metric(1.0e9, "hz"),
                "dram__cycles_elapsed.avg.per_second": metric(1.5e9, "hz"),
                f"{BF16}_sparsity_off.{PEAK}": metric(1024.0 * 108),
            }
        )
    )
    assert found["peak_flops_fp32"] == 2 * 6912.0 * 1.0e9
    assert found["peak_dram_bytes"] == 1024.0 * 1.5e9
    assert found["peak_tensor_flops_bf16"] == 1024.0 * 108 * 1.0e9
    assert found["peak_tensor_flops_fp16"] is None


def test_a_time_is_the_printed_nanoseconds() -> None:
    assert row(launch(ns=61632.0))["duration_ns"] == 61632.0  # / 1e9 x 1e9 is a bit less
