"""FLOPs of each launch by unit: CUDA cores by precision, tensor cores by input type.

Integer tensor operations are listed too and are not FLOPs. Constant moves that are counted as FP16 are not work.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.counters.metrics import CUDA_CORE_PRECISIONS, TENSOR_FLOAT_PRECISIONS, TENSOR_INTEGER_PRECISIONS
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import Floats

FLOAT_UNITS: dict[str, str] = {
    **{precision: f"flops_{precision}" for precision in CUDA_CORE_PRECISIONS},
    **{f"tensor_{precision}": f"tensor_flops_{precision}" for precision in TENSOR_FLOAT_PRECISIONS},
}
INTEGER_UNITS: dict[str, str] = {
    f"tensor_{precision}": f"tensor_ops_{precision}" for precision in TENSOR_INTEGER_PRECISIONS
}
UNIT_COLUMNS: dict[str, str] = {**FLOAT_UNITS, **INTEGER_UNITS}
"""Unit -> the column of its operations."""

SAME = 1e-6
"""Relative difference up to which the sum over units equals the total FLOPs."""


def work_by_unit(
    table: pa.Table, flops: Floats, left_out: npt.NDArray[np.bool_], partial: npt.NDArray[np.bool_]
) -> dict[str, Floats]:
    """Operations of each unit (float64, one per launch) in FLOP, OP for integers; NaN where unknown.

    A unit that was not collected gets 0 if `flops` is complete (not `partial`) and equals the sum of the others.
    `left_out` marks launches whose FP16 counts are constant moves.
    """
    counted = {
        unit: tables.floats(table, column) for unit, column in FLOAT_UNITS.items() if tables.has_column(table, column)
    }
    if left_out.any():
        counted["fp16"] = np.where(left_out, 0.0, counted.get("fp16", tables.unknown(len(table))))
    complete = ~partial & (np.abs(flops - total_of(counted, len(table))) <= SAME * np.abs(flops))
    idle = np.where(complete, 0.0, np.nan)
    work = {unit: np.where(np.isnan(amount), idle, amount) for unit, amount in counted.items()}
    work = {unit: work.get(unit, idle) for unit in FLOAT_UNITS}
    return work | {unit: tables.floats(table, column) for unit, column in INTEGER_UNITS.items()}


def total_of(work: dict[str, Floats], launches: int) -> Floats:
    """The sum over units for each launch; unknown values count as 0."""
    return sum((tables.or_zero(amount) for amount in work.values()), np.zeros(launches))
