"""Rebuild calls of backward operators from the calls of their forward operators, if only these have recorded shapes.

A gradient has the shape and type of its variable. Not rebuilt are convolutions, whose forward call does not show which
gradients are wanted, and operators without a formula. Argument positions follow PyTorch's schemas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ncu_launch.operators.calls import Call, Tensor

Arguments = Callable[[Call], tuple[Any, ...]]
"""The arguments of a backward call, from its forward call. Raises one of `table.UNUSABLE` if it is incomplete."""


def backward_call(name: str, forward: Call) -> Call | None:
    """The call of a backward operator, such as "aten::gelu_backward"; None for an unknown pair of operators.

    Raises one of `table.UNUSABLE`, such as `UnknownWork`, if the forward call is incomplete.
    """
    arguments = _ARGUMENTS.get((name, forward.name))
    return Call(name, arguments(forward)) if arguments else None


def _of_product(first: int) -> Arguments:
    """[m, n] x [n, k] for the gradient of the left matrix; the right gradient has the same three sizes."""

    def arguments(forward: Call) -> tuple[Any, ...]:
        left, right = forward.tensor(first), forward.tensor(first + 1)
        *batch, rows, _ = left.shape
        return (
            Tensor((*batch, rows, right.shape[-1]), left.dtype),
            Tensor((*right.shape[:-2], right.shape[-1], right.shape[-2]), right.dtype),
        )

    return arguments


def _same_twice(forward: Call) -> tuple[Any, ...]:
    """The gradient, and the input or the result; both have the same shape."""
    return forward.tensor(0), forward.tensor(0)


def _of_attention(bias: int | None, causal: int, between: tuple[Any, ...]) -> Arguments:
    """Gradient, Q, K, V, a bias if the operator takes one, result, `between`, and the flag of the causal mask."""

    def arguments(forward: Call) -> tuple[Any, ...]:
        query, key, value = (forward.tensor(place) for place in range(3))
        result = Tensor((*query.shape[:-1], value.shape[-1]), query.dtype)
        biases = () if bias is None else (forward.arguments[bias],)
        return (result, query, key, value, *biases, result, *between, forward.value(causal, False))

    return arguments


_SDPA = "aten::_scaled_dot_product_"
_PAIRS: dict[str, tuple[Arguments, tuple[str, ...]]] = {
    "aten::mm": (_of_product(0), ("aten::mm",)),
    "aten::bmm": (_of_product(0), ("aten::bmm",)),
    **{f"aten::{name}_backward": (_same_twice, (f"aten::{name}", f"aten::{name}_"))
       for name in ("gelu", "silu", "tanh", "sigmoid", "hardtanh", "leaky_relu", "hardswish", "hardsigmoid")},
    "aten::threshold_backward": (_same_twice, ("aten::relu", "aten::relu_", "aten::threshold")),
    "aten::_softmax_backward_data": (_same_twice, ("aten::_softmax",)),
    "aten::_log_softmax_backward_data": (_same_twice, ("aten::_log_softmax",)),
    f"{_SDPA}flash_attention_for_cpu_backward": (
        _of_attention(None, 4, (None, 0.0)), (f"{_SDPA}flash_attention_for_cpu",)
    ),
    f"{_SDPA}flash_attention_backward": (
        _of_attention(None, 4, (None, None, None, None, None, 0.0)), (f"{_SDPA}flash_attention",)
    ),
    f"{_SDPA}efficient_attention_backward": (
        _of_attention(3, 6, (None, None, None, 0.0, None)), (f"{_SDPA}efficient_attention",)
    ),
}  # fmt: skip
_ARGUMENTS: dict[tuple[str, str], Arguments] = {
    (name, forward): arguments for name, (arguments, forwards) in _PAIRS.items() for forward in forwards
}
_ARGUMENTS["aten::mm", "aten::addmm"] = _of_product(1)
_ARGUMENTS["aten::bmm", "aten::baddbmm"] = _of_product(1)
