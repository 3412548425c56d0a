"""Pooling and resampling, forward and backward: operations per window or result, and bytes of input and output once.

A window of n numbers takes n operations: n - 1 additions and a division; a maximum takes n - 1 comparisons. A weighted
mean of n numbers takes 2 n - 1. Computing the weights is left out. Source: documentation of torch.nn.AvgPool2d,
MaxPool2d, AdaptiveAvgPool2d and Upsample.
"""

from __future__ import annotations

from math import prod

from ncu_launch.operators.calls import Call, Formula, Shape, Tensor, UnknownWork, bytes_at, of_floats

WINDOW = "operations per window of the definition in PyTorch's documentation"
INDEX_BYTES = 8


# ------------------------------------------------------------------------------------------------------------- pooling


def _windows(size: int, kernel: int, stride: int, padding: int, dilation: int, *, rounds_up: bool) -> int:
    """Windows along one dimension. If rounded up, one may extend beyond the padding, but none starts after the input.

    Source: documentation of `torch.nn.AvgPool2d`, `ceil_mode`.
    """
    last = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (last + (stride - 1) * rounds_up) // stride + 1
    return count - (rounds_up and (count - 1) * stride >= size + padding)


def _dimensions(call: Call) -> int:
    """Number of spatial dimensions in the operator's name: 1 to 3."""
    return next(count for count in (1, 2, 3) if f"{count}d" in call.name)


def _pooled(call: Call) -> tuple[float, float]:
    """Number of elements of the result of a pooling with a kernel, and of each window."""
    source = call.tensor(0)
    dims = _dimensions(call)
    kernel = call.numbers(1, dims)
    stride = call.numbers(2, dims) if call.value(2) else kernel
    padding = call.numbers(3, dims) if len(call.arguments) > 3 else (0,) * dims
    dilates = "max" in call.name
    dilation = call.numbers(4, dims) if dilates and len(call.arguments) > 4 else (1,) * dims
    up = bool(call.value(5 if dilates else 4, False))
    sides = zip(source.shape[-dims:], kernel, stride, padding, dilation, strict=True)
    sizes = [_windows(*side, rounds_up=up) for side in sides]
    return float(prod(source.shape[:-dims]) * prod(sizes)), float(prod(kernel))


def _pooling(*, with_indices: bool) -> Formula:
    def flops(call: Call) -> float:
        results, window = _pooled(call)
        return of_floats(call, results * (window - with_indices))

    def written(call: Call) -> float:
        element = Tensor((), call.tensor(0).dtype).bytes
        return _pooled(call)[0] * (element + INDEX_BYTES * with_indices)

    return Formula(flops, bytes_at(0), written, False, WINDOW)


def _average_backward() -> Formula:
    """Every element of the gradient is divided and added to each element of its window."""

    def flops(call: Call) -> float:
        window = prod(call.numbers(2, _dimensions(call)))
        return of_floats(call, call.tensor(0).elements * (window + 1.0))

    return Formula(flops, bytes_at(0), bytes_at(1), False, WINDOW)


def _largest_backward(indices: int) -> Formula:
    """Every element of the gradient is added to the element at its index."""
    return Formula(
        lambda call: of_floats(call, float(call.tensor(0).elements)), bytes_at(0, indices), bytes_at(1), False, WINDOW
    )


def _resized(call: Call) -> Tensor:
    """The input with its last dimensions resized as requested."""
    source, size = call.tensor(0), call.value(1)
    if not isinstance(size, (list, tuple)) or len(size) >= len(source.shape):
        raise UnknownWork("the size of the result")
    return Tensor((*source.shape[: -len(size)], *size), source.dtype)


def _adaptive(*, with_indices: bool) -> Formula:
    """Windows that cover the input: one operation per input element."""

    def written(call: Call) -> float:
        result = _resized(call)
        return float(result.bytes + INDEX_BYTES * with_indices * result.elements)

    return Formula(
        lambda call: of_floats(call, float(call.tensor(0).elements)), bytes_at(0), written, False, WINDOW
    )  # fmt: skip


_ADAPTIVE_BACKWARD = Formula(
    lambda call: of_floats(call, float(call.tensor(1).elements)), bytes_at(0), bytes_at(1), False, WINDOW
)  # fmt: skip


# --------------------------------------------------------------------------------------------------------- resampling


def _upsampling(neighbours: int) -> Formula:
    """Each result is a weighted mean of `neighbours` input elements; with one it is a copy of it."""
    each = 2 * neighbours - 1 if neighbours > 1 else 0

    def read(call: Call) -> float:
        return float(min(call.tensor(0).bytes, _resized(call).bytes * neighbours))

    return Formula(
        lambda call: of_floats(call, float(each * _resized(call).elements)),
        read,
        lambda call: float(_resized(call).bytes),
        False,
        WINDOW,
    )


def _upsampling_backward(neighbours: int) -> Formula:
    """Each element of the gradient is added to `neighbours` elements, with weights if there are several."""
    each = 2 * neighbours if neighbours > 1 else 1

    def written(call: Call) -> float:
        size: Shape | None = call.value(2)
        if not isinstance(size, (list, tuple)):
            raise UnknownWork("the size of the input")
        return float(Tensor(tuple(size), call.tensor(0).dtype).bytes)

    return Formula(
        lambda call: of_floats(call, float(each * call.tensor(0).elements)), bytes_at(0), written, False, WINDOW
    )


_NEIGHBOURS = {
    "upsample_nearest1d": 1, "upsample_nearest2d": 1, "upsample_nearest3d": 1, "_upsample_nearest_exact1d": 1,
    "_upsample_nearest_exact2d": 1, "_upsample_nearest_exact3d": 1, "upsample_linear1d": 2, "upsample_bilinear2d": 4,
    "upsample_trilinear3d": 8, "upsample_bicubic2d": 16,
}  # fmt: skip
"""Number of input elements that each result averages."""

SAMPLING: dict[str, Formula] = {
    **{f"aten::{name}": _upsampling(count) for name, count in _NEIGHBOURS.items()},
    **{f"aten::{name}_backward": _upsampling_backward(count) for name, count in _NEIGHBOURS.items()},
    **{f"aten::max_pool{dims}d_with_indices": _pooling(with_indices=True) for dims in (2, 3)},
    **{f"aten::max_pool{dims}d_with_indices_backward": _largest_backward(7) for dims in (2, 3)},
    **{f"aten::avg_pool{dims}d": _pooling(with_indices=False) for dims in (2, 3)},
    **{f"aten::avg_pool{dims}d_backward": _average_backward() for dims in (2, 3)},
    **{f"aten::_adaptive_avg_pool{dims}d": _adaptive(with_indices=False) for dims in (2, 3)},
    **{f"aten::_adaptive_avg_pool{dims}d_backward": _ADAPTIVE_BACKWARD for dims in (2, 3)},
    **{f"aten::adaptive_max_pool{dims}d": _adaptive(with_indices=True) for dims in (2, 3)},
    **{f"aten::adaptive_max_pool{dims}d_backward": _largest_backward(2) for dims in (2, 3)},
}  # fmt: skip
"""Operator -> its formula."""
