"""Matrix kernels beside the operators they computed: FLOPs of whole tiles against the counters.

A kernel and an operator of one phase and module belong together if the FLOPs of the kernel's tile for the operator's
shapes equal the counted ones. Counts of tensor instructions are exact; counts of CUDA cores include up to one extra
multiply-add per result, for its scaling.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from typing import NamedTuple

import numpy as np
from ncu_parsers.schema import tables

from ncu_tools.model.expected.both_sides import MeasuredLaunches, Operators, Place
from ncu_tools.model.expected.kernel_tiles import Tile, direction_of, tile_of
from ncu_tools.model.expected.tile_padding import ATTENTION, MatrixProducts, products_of, ways

Call = tuple[str, str, float]
"""An operator's name, shapes and FLOPs."""

EXACT = 0.001
"""Largest relative difference of measured FLOPs from the FLOPs of the right tile."""

MOST_SCALING = 0.01
"""Largest additional share on CUDA cores, for scaled results."""

FEW = 8
"""Most different operators of one phase and module for which a kernel's operator is found by FLOPs, not by chance."""

FUSED_ATTENTION = re.compile(r"flash|fmha|sdpa|attention", re.IGNORECASE)


class PaddedKernel(NamedTuple):
    """A launch: its tile, the FLOPs that its operator needs, the FLOPs of whole tiles, and the measured ones.

    `matches` tells whether the latter two are equal; if not, they are those of the nearest operator.
    """

    launch: int
    tile: Tile
    direction: str
    words: str
    expected: float
    padded: float
    measured: float
    matches: bool

    @property
    def skips(self) -> bool:
        """True if it skipped some of its operator's nominal work, as attention under a causal mask does."""
        return self.matches and self.padded < self.expected


class PaddedKernels:
    """The launches whose kernel names have a tile, with their operators."""

    def __init__(self, launches: MeasuredLaunches, operators: Operators, iterations: int) -> None:
        self._launches, self._operators, self._iterations = launches, operators, iterations
        self._found: dict[Place, list[PaddedKernel]] = {}

    def at(self, place: Place) -> list[PaddedKernel]:
        """The launches of a phase and module; [] if it has no matrix products, or too many different ones."""
        if place not in self._found:
            self._found[place] = self._matched(self._rows.get(place, []), self._calls.get(place, Counter()))
        return self._found[place]

    @cached_property
    def _tiles(self) -> list[Tile | None]:
        tiles = {name: tile_of(name) for name in set(self._names)}
        return [tiles[name] for name in self._names]

    @cached_property
    def _names(self) -> list[str]:
        return [name or "" for name in tables.words(self._launches.table, "kernel_name")]

    @cached_property
    def _rows(self) -> dict[Place, list[int]]:
        """The launches with a tile and measured products, by place."""
        found: dict[Place, list[int]] = {}
        for row, (place, tile) in enumerate(zip(self._launches.places, self._tiles, strict=True)):
            if tile and self._launches.product_flops[row] > 0:
                found.setdefault(place, []).append(row)
        return found

    @cached_property
    def _calls(self) -> dict[Place, Counter[Call]]:
        """The operators with FLOPs by place, and how often each runs."""
        operators, found = self._operators, dict[Place, Counter[Call]]()
        for row in np.flatnonzero(np.nan_to_num(operators.flops) > 0).tolist():
            call = operators.names[row], operators.shapes[row], float(operators.flops[row])
            found.setdefault(operators.places[row], Counter())[call] += 1
        return found

    def _matched(self, rows: list[int], calls: Counter[Call]) -> list[PaddedKernel]:
        """Match launches with products, each of which is computed once per iteration and call."""
        if len(calls) > FEW:
            return []
        products = [(call, product) for call in calls for product in products_of(*call)]
        left = {(call, product.direction): product.flops * calls[call] * self._iterations for call, product in products}
        found = []
        for launch in rows:
            possible = [
                (abs(kernel.measured / kernel.padded - 1), kernel, (call, product.direction))
                for call, product in products
                for kernel in self._kernels(launch, product)
                if kernel.expected <= (1 + EXACT) * left[call, product.direction]
            ]
            if not possible:
                continue
            _, kernel, computed = min(possible, key=lambda one: round(one[0], 6))
            found.append(kernel)
            left[computed] -= kernel.expected * kernel.matches
        return found

    def _kernels(self, launch: int, product: MatrixProducts) -> list[PaddedKernel]:
        """A launch if it computes this product, its whole batch or one of it, in each possible way."""
        name, tile = self._names[launch], self._tiles[launch]
        direction = ATTENTION if FUSED_ATTENTION.search(name) else direction_of(name)
        is_any = not direction and product.direction != ATTENTION  # 1x1 convolutions may be plain products
        if tile is None or not (is_any or direction == product.direction):
            return []
        measured = float(self._launches.product_flops[launch])
        scaling = 0.0 if self._launches.on_tensor_cores[launch] else min(1 / product.k, MOST_SCALING)
        found = []
        for way in ways(product, name, tile, self._cluster(launch), self._grid[launch][2]):
            for number in dict.fromkeys((product.number, 1)):
                padded, expected = number * way.flops, product.flops * number / product.number
                matches = -EXACT < measured / padded - 1 < EXACT + scaling
                found.append(PaddedKernel(launch, tile, direction, way.words, expected, padded, measured, matches))
        return found

    @cached_property
    def _grid(self) -> list[list[int]]:
        return [grid or [1, 1, 1] for grid in self._launches.table.column("grid").to_pylist()]

    def _cluster(self, launch: int) -> tuple[int, int]:
        x, y = (self._clusters[axis][launch] for axis in (0, 1))
        return max(int(x), 1), max(int(y), 1)

    @cached_property
    def _clusters(self) -> list[list[float]]:
        """Blocks of a cluster along x and y, 0 if unknown."""
        names = ("launch__cluster_dim_x", "launch__cluster_dim_y")
        return [np.nan_to_num(tables.floats(self._launches.table, name)).tolist() for name in names]
