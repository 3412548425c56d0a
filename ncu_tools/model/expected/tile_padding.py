"""FLOPs of operators if every matrix product were padded to whole tiles: an estimate from shapes alone.

Tensor-core kernels compute whole tiles of the result, and whole slices of the inner dimension. A convolution is treated
as an implicit matrix product. Kernels choose their tiles themselves, so this gives a range, not a prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

Shape = tuple[int, ...]

TILES = (64, 128)
"""Rows and columns of the tiles of most matrix kernels in cuBLAS, cuDNN and CUTLASS."""

SLICE = 32
"""Padding of the inner dimension: the usual depth of a tile's slice (tensor16 instructions, CUTLASS's 32)."""


class Product(NamedTuple):
    """`number` matrix products [m, k] x [k, n]."""

    number: float
    m: float
    n: float
    k: float

    def padded(self, tile: int) -> float:
        """FLOPs with m and n padded to `tile` and k to `SLICE`; products with a vector are not tiled."""
        if min(self.m, self.n) <= 1:
            return 2.0 * self.number * self.m * self.n * self.k
        return 2.0 * self.number * _up(self.m, tile) * _up(self.n, tile) * _up(self.k, SLICE)


def _up(size: float, multiple: int) -> float:
    return -(-size // multiple) * multiple


def padded_flops(operator: str, shapes: str, flops: float, tile: int) -> float:
    """FLOPs of one operator call, padded to tiles of `tile` x `tile`; `flops` itself if it is no matrix product.

    `operator` is as "bmm", `shapes` those of its first tensors as the operator collector writes them ("64x3x7x7 64").
    """
    try:
        products = _products(operator, _parsed(shapes), flops)
    except (IndexError, ValueError, ZeroDivisionError):  # the shapes do not fit the operator
        return flops
    return sum(product.padded(tile) for product in products) if products else flops


def _parsed(shapes: str) -> list[Shape]:
    return [() if text == "()" else tuple(int(size) for size in text.split("x")) for text in shapes.split()]


def _products(operator: str, shapes: Sequence[Shape], flops: float) -> list[Product]:
    """The matrix products of an operator, [] if it has none."""
    if operator in ("mm", "addmm", "_scaled_mm", "bmm", "baddbmm"):
        first = 1 if operator in ("addmm", "baddbmm") else 0
        left, right = shapes[first : first + 2]
        return [Product(prod(left[:-2]), left[-2], right[-1], left[-1])]
    if operator in ("convolution", "_convolution", "cudnn_convolution"):
        return [_convolution(shapes[0], shapes[1], flops)]
    if operator == "convolution_backward":
        return _convolution_backward(shapes[0], shapes[1], shapes[2], flops)
    if operator.startswith("_scaled_dot_product"):
        return _attention(shapes[1:3] if operator.endswith("_backward") else shapes[:2], flops)
    return []


def _groups(source: Shape, weight: Shape) -> int:
    return max(source[1] // weight[1], 1) if source[1] % weight[1] == 0 else 1


def _convolution(source: Shape, weight: Shape, flops: float) -> Product:
    """A convolution as a product: rows are output positions, columns output channels; weight [out, in, *kernel]."""
    groups = _groups(source, weight)
    return Product(groups, flops / 2.0 / prod(weight), weight[0] / groups, prod(weight[1:]))


def _convolution_backward(gradient: Shape, source: Shape, weight: Shape, flops: float) -> list[Product]:
    """The product for the gradient of the weight, and that of the input if `flops` includes both."""
    groups = _groups(source, weight)
    places = gradient[0] * prod(gradient[2:])
    channels, depth = weight[0] / groups, prod(weight[1:])
    of_weight = Product(groups, channels, depth, places)
    of_input = Product(groups, places, weight[1], channels * prod(weight[2:]))
    return [of_weight, of_input] if flops > 3.0 * places * prod(weight) else [of_weight]


def _attention(shapes: Sequence[Shape], flops: float) -> list[Product]:
    """All products of fused attention as one of the same FLOPs: rows and columns of the scores are padded only."""
    query, key = shapes
    rows, columns = query[-2], key[-2]
    depth = flops / 2.0 / (rows * columns)
    return [Product(depth / SLICE, rows, columns, SLICE)]
