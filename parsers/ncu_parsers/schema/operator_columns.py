"""Columns of launches that know the operator they are of, and what `source` and `flops_basis` say of such rows."""

from __future__ import annotations

DIALECT, ESTIMATE_DIALECT = "operators", "estimate"
"""`source` of what the operator collector measured and of what was counted without running; also their dialects."""

SWEEP = "bench"
"""`source` of the points of a sweep, which are never stored as launches."""

TRACE = "kineto"
"""`source` of traces, whose FLOPs and bytes are estimates from the shapes of operators."""

BY_OPERATOR = frozenset({DIALECT, ESTIMATE_DIALECT, SWEEP})
"""Values of `source` whose FLOPs and bytes come from formulas per operator."""

BASIS = "operator formulas"
CONTRACTIONS_BASIS = "operator formulas, contractions only"
"""What `flops_basis` says of all FLOPs of operators, and of those of products, convolutions and attention alone."""
EXPECTED = "expected: "
"""In front of these where the operators are those of an estimate."""
CONTRACTIONS_ONLY = frozenset({CONTRACTIONS_BASIS, EXPECTED + CONTRACTIONS_BASIS})

CONTRACTION_FLOPS = "contraction_flops"
"""Column of the FLOPs of products, convolutions and attention as PyTorch's counter has them; 0 of other operators."""

BYTES_BASIS = "bytes_basis"
"""Column that says what the bytes of an operator are: the least by its formula, or the sum over its tensors."""

INTEGER_OPERATIONS = "integer_operations"
"""Column of integer operations of products, which are not FLOPs."""

THREADS = "threads"
"""Column of the threads that a CPU operator may use; its ceilings depend on them."""

OPERATOR_DEVICE = "operator_device"
"""Column of the device of an operator (cpu or cuda), which determines the clock of its time."""

OPERATOR_CALL, OPERATOR_FLOPS, OPERATOR_BYTES, OPERATOR_UNIT = (
    "operator_call", "operator_flops", "operator_least_bytes", "operator_unit",
)  # fmt: skip
"""Columns of the call that a launch belongs to: its number in the trace, and its work, which stands on its first kernel
alone; on its other launches it is 0, so that sums hold it once."""

UNIT_COLUMN = {"fp64": "flops_fp64", "fp32": "flops_fp32"}
"""The columns of units that are not tensor cores."""
