"""The work of an operator call as the collector records it, by the table of formulas in `ncu_launch.operators`.

Two counts of FLOPs are kept and never added. `flops` includes everything that the operator computes: element-wise
arithmetic, norms, pooling and biases too, but not what a causal mask skips. `contraction_flops` covers products,
convolutions and attention, as PyTorch's counter and published figures do, and is 0 for other operators. Each is None if
unknown, never 0: an operator without a formula has no `flops` unless it only moves data or takes integers, and no
`contraction_flops` unless it is known to contain no contraction.

Two errors of the stock counter are avoided: the weights of grouped convolutions in the backward pass (counted there
once for every group) and attention on the CPU (not counted there at all).
"""

from __future__ import annotations

from typing import NamedTuple

from ncu_launch.files.toml_tables import table_beside
from ncu_launch.operators.calls import Call
from ncu_launch.operators.table import (
    UNUSABLE,
    contraction_flops,
    formula_of,
    is_contraction,
    is_integer_product,
    moved_bytes,
    work_of,
)

_NAMES = table_beside(__file__, "collected_work")
FREE_OF_CONTRACTIONS = frozenset(f"aten::{name}" for name in _NAMES["free_of_contractions"].split())
"""Operators without contractions that PyTorch does not tag as pointwise or as reductions."""
MOVES = frozenset(f"aten::{name}" for name in _NAMES["moves"].split())
"""Operators without a formula that fill, copy or rearrange memory, or draw random numbers: 0 FLOPs."""


class CollectedWork(NamedTuple):
    """FLOPs and bytes of one call; None if unknown.

    `flops` covers everything that the operator computes, `contraction_flops` its products, convolutions and attention,
    `integer_operations` integer products (None for other operators), a multiply-add as 2 in each. `moved`: the least
    bytes read and written, None without a formula.
    """

    flops: float | None
    contraction_flops: float | None
    integer_operations: float | None
    moved: tuple[float, float] | None


def work_of_call(call: Call, *, is_elementwise: bool) -> CollectedWork:
    """The work of a call. `is_elementwise`: PyTorch tags it as pointwise or a reduction."""
    is_free = is_elementwise or call.name in FREE_OF_CONTRACTIONS
    formula = formula_of(call.name)
    moved = moved_bytes(formula, call) if formula is not None else None
    if is_integer_product(call):
        return CollectedWork(0.0, 0.0, _integer_operations(call), moved)
    return CollectedWork(_flops(call, is_free=is_free), _contraction_flops(call, is_free=is_free), None, moved)


def _integer_operations(call: Call) -> float | None:
    try:
        return contraction_flops(call)
    except UNUSABLE:
        return None


def _contraction_flops(call: Call, *, is_free: bool) -> float | None:
    if is_contraction(call.name):
        try:
            return contraction_flops(call)
        except UNUSABLE:
            return None
    return 0.0 if is_free or formula_of(call.name) is not None else None


def _flops(call: Call, *, is_free: bool) -> float | None:
    """All FLOPs. Without a formula, 0 for operators that only move data and for contraction-free work on integers."""
    work = work_of(call)
    if work is not None:
        return work.flops
    is_of_floats = any(one.is_float for one in call.every_tensor())
    return 0.0 if call.name in MOVES or (is_free and not is_of_floats) else None
