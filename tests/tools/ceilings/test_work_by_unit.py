"""Which unit did the FLOPs of a launch; a unit is idle only where the others make up a complete count."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ncu_tools.ceilings.work_by_unit import FLOAT_UNITS, total_of, work_by_unit


def counted(flops: float, *, partial: bool = False, left_out: bool = False, **columns: float) -> dict[str, float]:
    """What each unit did in one launch with these columns, NaN where that is not known."""
    found = pa.table({name: [value] for name, value in columns.items()})
    work = work_by_unit(found, np.array([flops]), np.array([left_out]), np.array([partial]))
    return {unit: amount.item() for unit, amount in work.items()}


def known(work: dict[str, float]) -> dict[str, float]:
    return {unit: amount for unit, amount in work.items() if not np.isnan(amount)}


def test_units_without_a_counter_did_nothing_where_the_others_make_up_the_count() -> None:
    work = counted(30.0, flops_fp32=10.0, tensor_flops_bf16=20.0)
    assert {unit: work[unit] for unit in FLOAT_UNITS} == {
        **dict.fromkeys(FLOAT_UNITS, 0.0), "fp32": 10.0, "tensor_bf16": 20.0,
    }  # fmt: skip


def test_where_flops_are_missing_what_the_other_units_did_is_not_known() -> None:
    assert known(counted(31.0, flops_fp32=10.0, tensor_flops_bf16=20.0)) == {"fp32": 10.0, "tensor_bf16": 20.0}


def test_a_partial_count_says_nothing_of_the_other_units() -> None:
    assert known(counted(10.0, partial=True, flops_fp32=10.0)) == {"fp32": 10.0}


def test_constant_moves_that_look_like_fp16_are_no_work() -> None:
    work = counted(10.0, left_out=True, flops_fp32=10.0, flops_fp16=99.0)
    assert (work["fp16"], work["fp32"]) == (0.0, 10.0)
    both = pa.table({"flops_fp32": [10.0, 10.0], "flops_fp16": [99.0, 5.0]})
    found = work_by_unit(both, np.array([10.0, 15.0]), np.array([True, False]), np.array([False, False]))
    assert found["fp16"].tolist() == [0.0, 5.0]


def test_integer_operations_are_counted_beside_flops() -> None:
    work = counted(10.0, flops_fp32=10.0, tensor_ops_int8=500.0)
    assert work["tensor_int8"] == 500.0
    assert np.isnan(work["tensor_int4"])


def test_a_total_takes_what_is_known() -> None:
    work = {"fp32": np.array([1.0, np.nan]), "fp64": np.array([2.0, 3.0])}
    assert total_of(work, 2).tolist() == [3.0, 3.0]
    assert total_of({}, 2).tolist() == [0.0, 0.0]
