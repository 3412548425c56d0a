"""FLOPs of operators whose matrix products are padded to whole tiles, from shapes and tiles.

Matrix kernels compute whole tiles of the result, and whole slices of the inner dimension. A convolution is computed as
a matrix product: its rows are positions of the result, its inner dimension positions of the filter times channels. If
the kernel's name gives the tile, `ways` are the possible FLOPs with padding; else `padded_flops` gives a range from
usual tiles, not a prediction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

from ncu_tools.model.expected.kernel_tiles import Tile, channels_of, group_width

Shape = tuple[int, ...]

TILES = (64, 128)
"""Rows and columns of the tiles of most matrix kernels in cuBLAS, cuDNN and CUTLASS."""

SLICE = 32
"""Padding of the inner dimension: the usual depth of a tile's slice (tensor16 instructions, CUTLASS's 32)."""

FPROP, DGRAD, WGRAD, ATTENTION = "fprop", "dgrad", "wgrad", "attention"


class MatrixProducts(NamedTuple):
    """`number` matrix products [m, k] x [k, n] of an operator, which needs `flops` for all of them.

    `direction` is that of a convolution, or attention. m are positions in all `images`, k are `taps` positions of a
    filter times channels. `words` name a way to compute the product, such as " over the zeros of the stride".
    """

    flops: float
    number: float
    m: float
    n: float
    k: float
    direction: str = ""
    taps: float = 1
    images: float = 1
    words: str = ""

    def padded(self, tile: int) -> float:
        """FLOPs with m and n padded to `tile` and k to `SLICE`; products with a vector are not tiled."""
        if min(self.m, self.n) <= 1:
            return 2.0 * self.number * self.m * self.n * self.k
        return 2.0 * self.number * _up(self.m, tile) * _up(self.n, tile) * _up(self.k, SLICE)


class Way(NamedTuple):
    """FLOPs of one of an operator's products, and the peculiarity of computing it this way."""

    flops: float
    words: str


def _up(size: float, multiple: float) -> float:
    return -(-size // multiple) * multiple


def padded_flops(operator: str, shapes: str, flops: float, tile: int) -> float:
    """FLOPs of one operator call, padded to tiles of `tile` x `tile`; `flops` itself if it is no matrix product.

    `operator` is a name such as "bmm", `shapes` the shapes of its first tensors as the operator collector writes them
    ("64x3x7x7 64").
    """
    products = [product for product in products_of(operator, shapes, flops) if not product.words]
    return sum(product.padded(tile) for product in products) if products else flops


def ways(product: MatrixProducts, kernel: str, tile: Tile, cluster: tuple[int, int], splits: int) -> Iterator[Way]:
    """The FLOPs of one of `number` products in a kernel with this tile, the plainest way first.

    Thread block clusters are whole: there is a multiple of them along each side. Which side of the result a kernel
    calls its rows is not known (cuBLAS swaps them), so both are tried.
    """
    width = group_width(kernel)
    if product.number > 1 and width > 1:
        depth = product.taps * max(width, product.k / product.taps)
        groups = f" with groups merged to {width} channels"
        yield Way(2.0 * _up(product.m, tile.rows) * product.n * depth, product.words + groups)
        return
    depths = list(_depths(product, channels_of(kernel), tile.depth, splits))
    for area, words in _areas(product, tile, cluster):
        for depth, more in depths:
            yield Way(2.0 * area * depth, product.words + words + more)


def _areas(product: MatrixProducts, tile: Tile, cluster: tuple[int, int]) -> Iterator[tuple[float, str]]:
    """Padded m times padded n, and the way of padding."""
    if product.direction == ATTENTION:  # `taps` query heads that share a key head may be rows of one product
        yield _up(product.m, tile.rows) * _up(product.n, tile.columns), ""
        yield (
            _up(product.m * product.taps, tile.rows) / product.taps * _up(product.n, tile.columns),
            " with the query heads of a key head together",
        )
        if product.m == product.n:  # a tile of rows needs the columns up to its last row
            starts = range(0, int(product.m), tile.rows)
            needed = sum(_up(min(start + tile.rows, product.n), tile.columns) for start in starts)
            yield tile.rows * needed, " under a causal mask"
        return
    for rows, columns in dict.fromkeys(((tile.rows, tile.columns), (tile.columns, tile.rows))):
        plain = _up(product.m, rows) * _up(product.n, columns)
        for x, y in dict.fromkeys((cluster, cluster[::-1])):
            across = _up(product.n, columns * y)
            whole = _up(product.m, rows * x) * across
            clustered = "" if whole == plain else f" in clusters of {cluster[0]}x{cluster[1]}"
            yield whole, clustered
            if product.images > 1:
                yield product.images * _up(product.m / product.images, rows * x) * across, " per image" + clustered


def _depths(product: MatrixProducts, channels: int, step: int, splits: int) -> Iterator[tuple[float, str]]:
    """Padded k, and the way of padding."""
    if product.direction == ATTENTION:
        yield product.k, ""
        return
    if channels:
        yield _up(product.taps * _up(product.k / product.taps, channels), step), f" with channels padded to {channels}"
        return
    yield _up(product.k, step), ""
    if product.taps > 1:
        yield product.taps * _up(product.k / product.taps, step), " with channels padded per filter position"
    if splits > 1:
        yield _up(product.k, step * splits), f" in {splits} parts of split-K"


def products_of(operator: str, shapes: str, flops: float) -> list[MatrixProducts]:
    """The matrix products of an operator call: [] if it has none, or its shapes do not fit."""
    try:
        return _products(operator, _parsed(shapes), flops)
    except (IndexError, ValueError, ZeroDivisionError):
        return []


def _parsed(shapes: str) -> list[Shape]:
    return [() if text == "()" else tuple(int(size) for size in text.split("x")) for text in shapes.split()]


def _products(operator: str, shapes: Sequence[Shape], flops: float) -> list[MatrixProducts]:
    if operator in ("mm", "addmm", "_scaled_mm", "bmm", "baddbmm"):
        first = 1 if operator in ("addmm", "baddbmm") else 0
        left, right = shapes[first : first + 2]
        return [MatrixProducts(flops, prod(left[:-2]), left[-2], right[-1], left[-1])]
    if operator in ("convolution", "_convolution", "cudnn_convolution"):
        return [_convolution(shapes[0], shapes[1], flops)]
    if operator == "convolution_backward":
        return _convolution_backward(shapes[0], shapes[1], shapes[2], flops)
    if operator.startswith("_scaled_dot_product"):
        return _attention(shapes[1:3] if operator.endswith("_backward") else shapes[:2], flops)
    return []


def _groups(source: Shape, weight: Shape) -> int:
    return max(source[1] // weight[1], 1) if source[1] % weight[1] == 0 else 1


def _convolution(source: Shape, weight: Shape, flops: float) -> MatrixProducts:
    """A convolution as a product: rows are output positions, columns output channels; weight [out, in, *kernel]."""
    groups = _groups(source, weight)
    places = flops / 2.0 / prod(weight)
    taps = prod(weight[2:])
    return MatrixProducts(flops, groups, places, weight[0] / groups, prod(weight[1:]), FPROP, taps, source[0])


def _convolution_backward(gradient: Shape, source: Shape, weight: Shape, flops: float) -> list[MatrixProducts]:
    """The product for the gradient of the weight, and for the input's if `flops` includes both.

    A kernel for the input's gradient may compute it at every input position, over zeros between stride positions.
    """
    groups = _groups(source, weight)
    images, taps = gradient[0], prod(weight[2:])
    places = images * prod(gradient[2:])
    channels, depth = weight[0] / groups, prod(weight[1:])
    each = 2.0 * places * prod(weight)
    of_weight = MatrixProducts(each, groups, channels, depth, places, WGRAD)
    if flops <= 1.5 * each:
        return [of_weight]
    of_input = MatrixProducts(each, groups, places, weight[1], channels * taps, DGRAD, taps, images)
    inputs = images * prod(source[2:])
    everywhere = of_input._replace(m=inputs, words=" over the zeros of the stride")
    return [of_weight, of_input] + [everywhere] * (inputs != places)


def _attention(shapes: Sequence[Shape], flops: float) -> list[MatrixProducts]:
    """All products of fused attention as one with the same FLOPs: only rows and columns of the scores are padded."""
    query, key = shapes
    rows, columns = query[-2], key[-2]
    sharing = query[-3] // key[-3] if len(query) == len(key) > 2 and query[-3] % key[-3] == 0 else 1
    return [MatrixProducts(flops, 1, rows, columns, flops / 2.0 / (rows * columns), ATTENTION, sharing)]
