"""The matrix product behind a PyTorch operator, from its shapes: "32x197x768 768x3072" -> m, n, k.

A convolution is a product of positions x filters over channels x taps (implicit GEMM); the number of positions follows
from its FLOPs, since shapes do not include its stride.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

Shape = tuple[int, ...]
SCALAR = "()"


class Product(NamedTuple):
    """`number` products C[m, n] = A[m, k] B[k, n]: the batch of a bmm, or the groups of a convolution.

    `distinct` is the share of distinct elements in A: in a convolution, each element of the image counts once.
    """

    number: int
    m: int
    n: int
    k: int
    is_convolution: bool = False
    distinct: float = 1.0


def shapes_in(text: str | None) -> list[Shape]:
    """The shapes of tensors in "32x3x224x224 64x3x7x7", or in a trace's "[[32,3,224,224],[]]"; [] for other texts.

    Arguments without sizes, such as a scale, are left out: "()" and [].
    """
    try:
        if text is not None and text.startswith("["):
            return [tuple(shape) for shape in json.loads(text) if _is_shape(shape)]
        return [tuple(int(size) for size in word.split("x")) for word in (text or "").split() if word != SCALAR]
    except (ValueError, TypeError, RecursionError):
        return []


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(size) is int for size in value)


def product_of(operator: str, shapes: Sequence[Shape], flops: float) -> Product | None:
    """The product of an operator named like "aten::addmm"; None if it is none, or its shapes do not fit."""
    name = operator.replace("::", ".").removeprefix("aten.").split(".")[0].strip("_")
    if name in ("mm", "addmm") and len(shapes) >= 2:
        return _of_matrices(shapes[-2:], 2)
    if name in ("scaled_mm", "int_mm") and len(shapes) >= 2:
        product = _of_matrices(shapes[:2], 2)
        is_packed = product is not None and flops > 2.0 * product.m * product.n * product.k  # two numbers a byte
        return None if is_packed else product
    if name in ("bmm", "baddbmm") and len(shapes) >= 2:
        return _of_matrices(shapes[-2:], 3)
    if name == "linear" and len(shapes) >= 2 and len(shapes[1]) == 2 and shapes[0]:
        (n, k), rows = shapes[1], prod(shapes[0][:-1])
        return Product(1, rows, n, k) if shapes[0][-1] == k else None
    if (
        name == "matmul"
        and len(shapes) == 2
        and len(shapes[0]) == len(shapes[1]) > 2
        and shapes[0][:-2] == shapes[1][:-2]
    ):
        batch = prod(shapes[0][:-2])
        return _of_matrices([(batch, *one[-2:]) for one in shapes], 3)
    if name == "matmul" and len(shapes) == 2 and len(shapes[0]) > 1 and len(shapes[1]) == 2:
        return _of_matrices([(prod(shapes[0][:-1]), shapes[0][-1]), shapes[1]], 2)
    if (
        "conv" in name
        and "backward" not in name
        and "transpose" not in name
        and len(shapes) >= 2
        and len(shapes[0]) == len(shapes[1]) > 2
    ):
        return _of_convolution(shapes[0], shapes[1], flops)
    return None


def _of_matrices(pair: Sequence[Shape], rank: int) -> Product | None:
    first, second = pair
    if len(first) != rank or len(second) != rank or first[-1] != second[-2] or min((*first, *second)) < 1:
        return None
    return Product(first[0] if rank == 3 else 1, first[-2], second[-1], first[-1])


def _of_convolution(image: Shape, weights: Shape, flops: float) -> Product | None:
    """The product of filters by (channels per group x taps); the groups follow from the channels."""
    filters, channels, *taps = weights
    if min((*image, *weights)) < 1 or image[1] % channels:
        return None
    groups = image[1] // channels
    depth = channels * prod(taps)
    if filters % groups or not flops > 0:
        return None
    positions = max(round(flops / (2 * filters * depth)), 1)
    distinct = min(1.0, prod(image) / (groups * positions * depth))
    return Product(groups, positions, filters // groups, depth, is_convolution=True, distinct=distinct)
