"""What physics gets wrong in a region of sizes, on a grid: corrections at its corners, and linear between them.

A correction is the logarithm of measured / computed time. Ridge regression finds the corners: with few measured times
in a region it stays near 0, and physics alone decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ncu_tools.model.expected_time.physics import Floats, robust

MOST = 1.0
"""Corrections that are learnt from are at most a factor e: what is further off is another program."""

Axes = Mapping[str, Sequence[float]]
"""Name of a coordinate -> its knots."""


def size_of(axes: Axes) -> int:
    """The number of corners of a grid."""
    return int(np.prod([len(knots) for knots in axes.values()]))


def corners(axes: Axes, coordinates: dict[str, Floats]) -> tuple[NDArray[np.intp], Floats]:
    """The corners around each point, and their weights, both [points, 2 ** axes]; points outside are moved to the edge.

    Weights of a point add up to 1 (multilinear interpolation).
    """
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


def corrections_at(axes: Axes, coordinates: dict[str, Floats], table: Floats) -> Floats:
    """The correction of each point from those at the corners."""
    index, weights = corners(axes, coordinates)
    return np.asarray((table[index] * weights).sum(1))


def learnt(axes: Axes, coordinates: dict[str, Floats], off: Floats, ridge: float) -> Floats:
    """The corrections at the corners that explain `off`, the logarithms of measured / computed times."""
    index, weights = corners(axes, coordinates)
    matrix = np.zeros((len(off), size_of(axes)))
    np.put_along_axis(matrix, index, weights, 1)
    target = np.clip(off, -MOST, MOST)
    found = np.zeros(matrix.shape[1])
    each = np.ones(len(off))
    for _ in range(3):
        heavy = matrix * each[:, None]
        found = np.linalg.solve(heavy.T @ matrix + ridge * np.eye(len(found)), heavy.T @ target)
        each = robust(target - matrix @ found)
    return found
