"""Choose the FLOPs of a measured point: of its contractions, or without any, of all operators.

Published FLOPs of models count contractions. A workload without any, such as a softmax, computes all the same, so a sum
of 0 would be misleading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CONTRACTIONS, ALL_OPERATORS = "contractions", "all operators"
"""Values of the column `expected_flops_basis`: the operators whose FLOPs are summed."""
COLUMN = "expected_flops_basis"
NO_OPERATOR = "no operator of PyTorch ran, and of other work, as numpy's, FLOPs and bytes are not known"


def flops_columns(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The columns for FLOPs, the operators that they cover, and why they are unknown, from an estimate's summary."""
    unknown, uncounted = (", ".join(summary[name]) for name in ("unknown_operators", "uncounted_operators"))
    if unknown or summary["flops"] or summary["integer_contractions"]:
        return _columns(summary["flops"], CONTRACTIONS, unknown)
    return _columns(summary["flops_operators"], ALL_OPERATORS, uncounted)


def _columns(flops: float | None, basis: str, lacking: str) -> dict[str, Any]:
    return {
        "expected_flops": flops,
        COLUMN: None if flops is None else basis,
        "expected_why_not": f"no formula for {lacking}" if lacking else None,
    }
