"""Corrections of the physical formulas by region of sizes: multilinear interpolation on grids, whose results are added.

A correction is the logarithm of measured / computed time. Ridge regression finds the values at corners: with few
measured times in a region they stay near 0, and physics alone decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ncu_tools.model.expected_time.physics import Floats, robust

MOST = 1.0
"""Largest correction to learn from, a factor e: what deviates more is another program."""

Axes = Mapping[str, Sequence[float]]
"""One grid: name of a coordinate -> its knots."""
Grids = Sequence[Axes]
"""Grids whose corrections are added, each over some coordinates."""


def size_of(grids: Grids) -> int:
    """The total number of corners of the grids."""
    return sum(int(np.prod([len(knots) for knots in axes.values()])) for axes in grids)


def corners(grids: Grids, coordinates: dict[str, Floats]) -> tuple[NDArray[np.intp], Floats]:
    """The corners around each point in each grid, and their weights, both of shape (points, sum of 2 ** axes).

    Points outside a grid are moved to its edge. The weights of a point add up to 1 in each grid.
    """
    found, weights, begin = [], [], 0
    for axes in grids:
        index, weight = _corners_of_one(axes, coordinates)
        found.append(index + begin)
        weights.append(weight)
        begin += size_of([axes])
    return np.concatenate(found, 1), np.concatenate(weights, 1)


def _corners_of_one(axes: Axes, coordinates: dict[str, Floats]) -> tuple[NDArray[np.intp], Floats]:
    places, shares = [], []
    for name, knots in axes.items():
        edges = np.asarray(knots, np.float64)
        values = np.clip(np.asarray(coordinates[name], np.float64), edges[0], edges[-1])
        below = np.clip(np.searchsorted(edges, values, "right") - 1, 0, len(edges) - 2)
        places.append(below)
        shares.append((values - edges[below]) / (edges[below + 1] - edges[below]))
    found, weights = [], []
    for sides in product((0, 1), repeat=len(axes)):
        index = np.zeros(len(places[0]), np.intp)
        weight = np.ones(len(places[0]))
        for side, below, share, knots in zip(sides, places, shares, axes.values(), strict=True):
            index = index * len(knots) + below + side
            weight = weight * (share if side else 1 - share)
        found.append(index)
        weights.append(weight)
    return np.stack(found, 1), np.stack(weights, 1)


def corrections_at(grids: Grids, coordinates: dict[str, Floats], table: Floats) -> Floats:
    """The correction at each point, from the values at corners in `table`."""
    index, weights = corners(grids, coordinates)
    return np.asarray((table[index] * weights).sum(1))


def learnt(grids: Grids, coordinates: dict[str, Floats], off: Floats, ridge: float) -> Floats:
    """Fit the values at corners to `off`, the logarithms of measured / computed times."""
    index, weights = corners(grids, coordinates)
    used, index = np.unique(index, return_inverse=True)
    matrix = np.zeros((len(off), len(used)), np.float32)
    np.put_along_axis(matrix, index.reshape(weights.shape), weights.astype(np.float32), 1)
    target = np.clip(off, -MOST, MOST).astype(np.float32)
    found: Floats = np.zeros(len(used))
    each = np.ones(len(off), np.float32)
    for _ in range(3):
        heavy = matrix * each[:, None]
        squares, sums = (heavy.T @ matrix).astype(np.float64), (heavy.T @ target).astype(np.float64)
        found = np.linalg.solve(squares + ridge * np.eye(len(found)), sums)
        each = robust(target - matrix @ found.astype(np.float32)).astype(np.float32)
    table = np.zeros(size_of(grids))
    table[used] = found
    return table
