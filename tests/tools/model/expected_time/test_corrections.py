"""Corrections on a grid: interpolation, and what ridge regression learns from many and from few points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_tools.model.expected_time.corrections import corners, corrections_at, learnt, size_of

GRIDS = ({"x": (0.0, 1.0, 3.0), "y": (0.0, 2.0)},)
TABLE = np.array([0.0, 2.0, 1.0, 3.0, 3.0, 5.0])  # x + y at each corner


def at(x: float, y: float) -> float:
    return float(corrections_at(GRIDS, {"x": np.array([x]), "y": np.array([y])}, TABLE)[0])


def test_a_grid_has_a_corner_for_each_combination_of_knots() -> None:
    assert size_of(GRIDS) == 6


@given(st.floats(0, 3), st.floats(0, 2))
def test_a_plane_is_interpolated_exactly(x: float, y: float) -> None:
    assert at(x, y) == pytest.approx(x + y, abs=1e-9)


def test_corrections_of_two_grids_are_added() -> None:
    two = (*GRIDS, {"x": (0.0, 3.0)})
    where = {"x": np.array([1.5]), "y": np.array([1.0])}
    assert corrections_at(two, where, np.append(TABLE, [10.0, 20.0]))[0] == pytest.approx(2.5 + 15.0)


def test_points_outside_have_the_correction_of_the_edge() -> None:
    assert at(-5, 9) == at(0, 2)


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=1, max_size=5))
def test_weights_add_up_to_one_and_are_not_negative(points: list[tuple[float, float]]) -> None:
    x, y = (np.array(column) for column in zip(*points, strict=True))
    index, weights = corners(GRIDS, {"x": x, "y": y})
    assert weights.sum(1) == pytest.approx(1)
    assert (weights >= 0).all()
    assert ((index >= 0) & (index < size_of(GRIDS))).all()


def test_many_points_teach_the_table() -> None:
    drawn = np.random.default_rng(0)
    where = {"x": drawn.uniform(0, 3, 2000), "y": drawn.uniform(0, 2, 2000)}
    off = 0.1 * corrections_at(GRIDS, where, TABLE)
    assert learnt(GRIDS, where, off, 0.1) == pytest.approx(0.1 * TABLE, abs=0.005)


def test_a_region_without_points_is_not_corrected() -> None:
    where = {"x": np.zeros(50), "y": np.zeros(50)}
    found = learnt(GRIDS, where, np.full(50, 0.2), 1.0)
    assert found[0] == pytest.approx(0.2, abs=0.01)
    assert not found[1:].any()


def test_a_single_outlier_among_many_hardly_moves_the_table() -> None:
    where = {"x": np.zeros(51), "y": np.zeros(51)}
    off = np.append(np.zeros(50), 1.0)
    assert abs(learnt(GRIDS, where, off, 0.1)[0]) < 0.01


@pytest.mark.parametrize(("off", "learnt_from"), [(0.2, 0.2), (-0.2, -0.2), (5.0, 1.0), (-5.0, -1.0)])
def test_a_corner_learns_its_mean_shrunk_by_the_ridge_and_weighs_outliers_less(off: float, learnt_from: float) -> None:
    count, ridge, weight, found = 6, 2.0, 1.0, 0.0
    for _ in range(3):
        found = weight * count * learnt_from / (weight * count + ridge)
        weight = 1 / np.sqrt(1 + ((learnt_from - found) / 0.1) ** 2)
    where = {"x": np.full(count, 3.0), "y": np.full(count, 2.0)}
    table = learnt(GRIDS, where, np.full(count, off), ridge)
    assert table == pytest.approx([0, 0, 0, 0, 0, found], rel=1e-5)
