"""What a report says of its own attributes: bandwidths from device attributes, peaks per cycle, sparse shares."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ncu_tools.ceilings.device_attributes import (
    DRAM_PEAK,
    bus_bytes,
    device_attributes_of,
    dram_limit,
    l2_size,
    peaks,
    sparse_shares,
)
from tests.support.launches import launch, metric, table

TENSOR = "sm__ops_path_tensor_src_bf16_dst_fp32"


def attributes(**values: float) -> dict[str, Any]:
    return {f"device__attribute_{name}": metric(value) for name, value in values.items()}


def test_a_bus_moves_two_transfers_of_its_width_in_a_cycle() -> None:
    found = table(launch(metrics=attributes(global_memory_bus_width=5120)), launch())
    assert bus_bytes(found)[0] == 1280.0
    assert math.isnan(bus_bytes(found)[1])


def test_what_the_bus_of_an_integrated_gpu_moves_is_not_known() -> None:
    found = table(launch(metrics=attributes(global_memory_bus_width=256, integrated=1)))
    assert np.isnan(bus_bytes(found)).all()


@pytest.mark.parametrize("clock", ["max_mem_frequency_khz", "memory_clock_rate"])
def test_the_dram_limit_is_the_bus_at_the_highest_memory_clock(clock: str) -> None:
    found = table(launch(metrics=attributes(global_memory_bus_width=5120, **{clock: 1.215e6})))
    assert dram_limit(found).tolist() == [1280 * 1.215e9]


def test_without_a_clock_there_is_no_dram_limit() -> None:
    for clock in ("max_mem_frequency_khz", "memory_clock_rate"):
        found = table(launch(metrics=attributes(global_memory_bus_width=5120, **{clock: 0})))
        assert np.isnan(dram_limit(found)).all()
    both = attributes(global_memory_bus_width=5120, max_mem_frequency_khz=0, memory_clock_rate=1.215e6)
    assert dram_limit(table(launch(metrics=both))).tolist() == [1280 * 1.215e9]


def test_the_counters_peak_stands_in_only_where_the_bus_is_not_known() -> None:
    counted = {DRAM_PEAK: metric(1024.0)}
    found = device_attributes_of(
        table(launch(metrics={**counted, **attributes(global_memory_bus_width=5120)}), launch(metrics=counted))
    )
    assert found.dram_per_cycle.tolist() == [1280.0, 1024.0]
    assert found.counted_dram.tolist() == [1024.0, 1024.0]


def test_only_long_launches_are_steady() -> None:
    times = table(launch(ns=1e6), launch(ns=1e5), launch(ns=0.99e5), launch())
    assert device_attributes_of(times).steady.tolist() == [True, True, False, False]


def test_the_l2_size_is_in_bytes_and_unknown_without_the_attribute() -> None:
    found = l2_size(table(launch(metrics=attributes(l2_cache_size=41_943_040)), launch()))
    assert found[0] == 41_943_040
    assert math.isnan(found[1])


def test_peaks_are_operations_per_cycle_of_each_unit_with_an_fma_as_two() -> None:
    name = "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained"
    dense = f"{TENSOR}_sparsity_off.sum.peak_sustained"
    found = peaks(table(launch(metrics={name: metric(6912.0), dense: metric(110_592.0)})))
    assert {(peak.unit, peak.is_plain): peak.per_cycle.tolist() for peak in found} == {
        ("fp32", True): [13_824.0], ("tensor_bf16", True): [110_592.0],
    }  # fmt: skip


def test_the_peak_of_a_unit_is_of_the_first_metric_that_a_launch_has() -> None:
    name = "sm__sass_thread_inst_executed_op_ffma_pred_on"
    plain, doubled = {f"{name}.sum.peak_sustained": metric(6912.0)}, {f"derived__{name}_x2": metric(13_000.0)}
    (found,) = peaks(table(launch(metrics=plain | doubled), launch(metrics=doubled)))
    assert found.per_cycle.tolist() == [13_824.0, 13_000.0]


def test_the_share_of_sparse_operations_is_of_all_that_were_counted() -> None:
    counts = {f"{TENSOR}_sparsity_on.sum": metric(30.0), f"{TENSOR}_sparsity_off.sum": metric(90.0)}
    none = {f"{TENSOR}_sparsity_on.sum": metric(0.0), f"{TENSOR}_sparsity_off.sum": metric(0.0)}
    shares = sparse_shares(table(launch(metrics=counts), launch(metrics=none)))["tensor_bf16"]
    assert shares[0] == 0.25
    assert math.isnan(shares[1])
    assert sparse_shares(table(launch())) == {}


def test_the_share_of_sparse_operations_is_of_counts_by_sparsity_alone() -> None:
    counts = {f"{TENSOR}_sparsity_on.sum": metric(30.0), f"{TENSOR}_sparsity_off.sum": metric(90.0)}
    total = {f"{TENSOR}.sum": metric(120.0), f"{TENSOR}_realtime.sum": metric(120.0)}
    others = {f"{name}.peak_sustained": metric(7.0) for name in counts}
    assert sparse_shares(table(launch(metrics=counts | total | others)))["tensor_bf16"].tolist() == [0.25]
