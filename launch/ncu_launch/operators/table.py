"""The one table of operator formulas: FLOPs and least bytes of an operator call, from shapes alone.

Used by the operator collector, `estimate` and traces of PyTorch's profiler. Without a formula, work is unknown: None.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, prod
from types import MappingProxyType
from typing import NamedTuple

from ncu_launch.operators.attention import ATTENTION
from ncu_launch.operators.calls import REAL_OF_COMPLEX, Call, Formula, Tensor, UnknownWork
from ncu_launch.operators.contractions import CONTRACTIONS, INTEGER_PRODUCTS_OF_TORCH
from ncu_launch.operators.custom_operators import CUSTOM, INTEGER_PRODUCTS
from ncu_launch.operators.elementwise import ELEMENTWISE
from ncu_launch.operators.movement import FREE, MOVEMENT
from ncu_launch.operators.packed_products import PACKED_PRODUCTS
from ncu_launch.operators.sampling import SAMPLING

FORMULAS: dict[str, Formula] = {
    **MOVEMENT, **ELEMENTWISE, **SAMPLING, **ATTENTION, **CONTRACTIONS, **PACKED_PRODUCTS, **CUSTOM
}  # fmt: skip
"""Operator, such as "aten::mm", -> its formula."""

INTEGER_CONTRACTIONS = INTEGER_PRODUCTS_OF_TORCH | INTEGER_PRODUCTS.keys()
"""Operators that multiply integers, whatever else they take, such as scales: their operations are not FLOPs."""


UNUSABLE = (UnknownWork, ArithmeticError, IndexError, TypeError, ValueError, RecursionError)
"""Exceptions that formulas raise for incomplete or malformed calls. Calls of a trace are untrusted: strides of 0,
shapes without dimensions, words in place of numbers."""


FUSED_PREFIX = "triton_"
"""Prefix of TorchInductor's fused kernels, which appear in traces as operators with their tensors."""


def _unknown(call: Call) -> float:
    raise UnknownWork("what a fused kernel computes")


def _every_tensor_once(call: Call) -> float:
    """Bytes of every tensor once, each with at most as many elements as the iteration space has: a slice may be used.

    The last arguments are the sizes of the iteration space; other positive integers in the call only raise that limit.
    Raises `UnknownWork` without tensors.
    """
    sizes = [one for one in call.arguments if isinstance(one, int) and not isinstance(one, bool) and one > 0]
    found = []
    for one in call.every_tensor():
        most = prod(sizes) * Tensor((), one.dtype).bytes if sizes else one.bytes
        found.append(min(one.bytes, most))
    if not found:
        raise UnknownWork("the tensors of the kernel")
    return float(sum(found))


FUSED = Formula(_unknown, _every_tensor_once, lambda call: 0.0, False, "every tensor that the kernel takes, once")
"""Formula of a fused kernel's bytes; its FLOPs are unknown: its name lists operators but not how often they run."""


class OperatorWork(NamedTuple):
    """FLOPs of a call, a multiply-add as 2, and its least bytes read and written; None if shapes do not determine them.

    `is_contraction`: the work is a product, convolution or attention.
    """

    flops: float | None
    least_bytes: float | None
    is_contraction: bool = False


NOTHING = OperatorWork(0.0, 0.0)
NONE_OWN: Mapping[str, Formula] = MappingProxyType({})
"""Default of `own`: no user's formulas, which would override this table."""


def work_of(call: Call, own: Mapping[str, Formula] = NONE_OWN) -> OperatorWork | None:
    """The work of a call, 0 for views and allocations; None for an operator with a formula neither in `own` nor here.

    An added bias counts, elements skipped by a causal mask do not. FLOPs and bytes are each None if an argument that
    their formula needs was not recorded; FLOPs also for a product of integers.
    """
    if call.name in FREE and call.name not in own:
        return NOTHING
    formula = formula_of(call.name, own)
    if formula is None:
        return None
    moved = moved_bytes(formula, call)
    return OperatorWork(_flops(formula, call), sum(moved) if moved else None, formula.is_contraction)


def formula_of(name: str, own: Mapping[str, Formula] = NONE_OWN) -> Formula | None:
    """The user's formula of an operator, such as "aten::mm", else this table's; None without one."""
    return own.get(name) or FORMULAS.get(name) or (FUSED if name.startswith(FUSED_PREFIX) else None)


def contraction_flops(call: Call) -> float | None:
    """FLOPs of a product, convolution or attention as in PyTorch's counter, without a formula's correction.

    None for other operators. Raises one of `UNUSABLE`, such as `UnknownWork`, if the call lacks an argument that the
    formula needs.
    """
    formula = formula_of(call.name)
    if formula is None or not formula.is_contraction:
        return None
    return float(formula.flops(call)) * _complex_factor(call)


def is_contraction(name: str, own: Mapping[str, Formula] = NONE_OWN) -> bool:
    """True if an operator's formula is a product, convolution or attention."""
    formula = formula_of(name, own)
    return formula is not None and formula.is_contraction


def is_integer_product(call: Call) -> bool:
    """True if a call multiplies integers, by its operator or because all tensors of a contraction are integers.

    False for any other contraction with a type that was not recorded.
    """
    return _multiplies_integers(call, contracts=is_contraction(call.name))


def _multiplies_integers(call: Call, *, contracts: bool) -> bool:
    if call.name in INTEGER_CONTRACTIONS:
        return True
    types = {one.dtype: one.is_float for one in call.every_tensor()} if contracts else {}
    return bool(types) and "" not in types and not any(types.values())


def _flops(formula: Formula, call: Call) -> float | None:
    if _multiplies_integers(call, contracts=formula.is_contraction):
        return None
    try:
        correction = formula.correction(call) if formula.correction else 0.0
        found = (float(formula.flops(call)) + correction) * (_complex_factor(call) if formula.is_contraction else 1)
    except UNUSABLE:
        return None
    return found if 0 <= found < inf else None


def moved_bytes(formula: Formula, call: Call) -> tuple[float, float] | None:
    """The least bytes that a call reads and writes; None if it lacks an argument that the formula needs."""
    try:
        read, written = float(formula.read(call)), float(formula.written(call))
    except UNUSABLE:
        return None
    return (read, written) if read >= 0 and written >= 0 and read + written < inf else None


def _complex_factor(call: Call) -> int:
    return REAL_OF_COMPLEX if any(one.dtype.startswith("complex") for one in call.every_tensor()) else 1
