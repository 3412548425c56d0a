"""Columns of launches with a known operator, and the values of `source` and `flops_basis` in such rows."""

from __future__ import annotations

DIALECT, ESTIMATE_DIALECT = "operators", "estimate"
"""`source` of rows that the operator collector measured, and of rows counted without running; also their dialects."""

SWEEP = "bench"
"""`source` of the points of a sweep, which are never stored as launches."""

TRACE = "kineto"
"""`source` of traces, whose FLOPs and bytes are estimates from the shapes of operators."""

BY_OPERATOR = frozenset({DIALECT, ESTIMATE_DIALECT, SWEEP})
"""Values of `source` whose FLOPs and bytes come from formulas per operator."""

BASIS = "operator formulas"
CONTRACTIONS_BASIS = "operator formulas, contractions only"
"""`flops_basis` for all FLOPs of operators, and for FLOPs of products, convolutions and attention only."""
EXPECTED = "expected: "
"""Prefix of these values for an estimate's operators."""
CONTRACTIONS_ONLY = frozenset({CONTRACTIONS_BASIS, EXPECTED + CONTRACTIONS_BASIS})

CONTRACTION_FLOPS = "contraction_flops"
"""Column of the FLOPs of products, convolutions and attention, counted as by PyTorch's counter; 0 for others."""

BYTES_BASIS = "bytes_basis"
"""Column with the meaning of an operator's bytes: the least by its formula, or the sum over its tensors."""

INTEGER_OPERATIONS = "integer_operations"
"""Column of integer operations of products, which are not FLOPs."""

THREADS = "threads"
"""Column of the number of threads that a CPU operator may use; its ceilings depend on it."""

OPERATOR_DEVICE = "operator_device"
"""Column of the device of an operator (cpu or cuda), which determines the clock of its time."""

OPERATOR_CALL, OPERATOR_FLOPS, OPERATOR_BYTES, OPERATOR_UNIT = (
    "operator_call", "operator_flops", "operator_least_bytes", "operator_unit",
)  # fmt: skip
"""Columns of a launch's operator call: its number in the trace, and its work, stored on its first kernel; work is 0
on the call's other launches, so that sums include it once."""

UNIT_COLUMN = {"fp64": "flops_fp64", "fp32": "flops_fp32"}
"""Column of FLOPs by unit, for units other than tensor cores."""
