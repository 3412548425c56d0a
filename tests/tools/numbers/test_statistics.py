"""Intervals of ratios against numbers worked out by hand, tables of Student's t, and simulated noise."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_tools.numbers.statistics import (
    Moments,
    geometric_mean,
    mean_of,
    mean_ratio_interval,
    of_single_launches,
    paired_ratio_interval,
    ratio_interval,
    student_quantile,
    totals,
    totals_with_single_launches,
)
from tests.support.nightly import by_day, one_in

GROUPS = np.array([0, 0, 1, 1, 1])
VALUES = np.array([1.0, 3.0, 10.0, 20.0, 60.0])
NONE = np.nan


def of_values(values: np.ndarray, groups: np.ndarray, count: int) -> Moments:
    return Moments.of(np.asarray(values, float), np.asarray(groups), count)


class TestMoments:
    def test_are_size_sum_and_squared_distances_from_the_mean(self) -> None:
        moments = of_values(VALUES, GROUPS, 3)
        assert moments.size.tolist() == [2, 3, 0]
        assert moments.total.tolist() == [4, 90, 0]
        assert moments.squares.tolist() == [2, 20**2 + 10**2 + 30**2, 0]

    def test_of_a_group_with_an_unknown_value_are_unknown_and_the_others_known(self) -> None:
        moments = of_values(np.array([1.0, NONE, 10.0]), np.array([0, 0, 1]), 2)
        assert np.isnan(moments.total).tolist() == [True, False]
        assert np.isnan(moments.squares).tolist() == [True, False]

    @given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12), st.data())
    def test_of_merged_groups_equal_those_of_all_values_at_once(self, values: list[float], data: st.DataObject) -> None:
        groups = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(values), max_size=len(values))))
        into = np.array([0, 1, 0, 1])
        joined = of_values(np.array(values), groups, 4).joined(into, 2)
        at_once = of_values(np.array(values), into[groups], 2)
        assert joined.size.tolist() == at_once.size.tolist()
        assert joined.total == pytest.approx(at_once.total, abs=1e-9)
        assert joined.squares == pytest.approx(at_once.squares, rel=1e-9, abs=1e-6)

    def test_of_empty_groups_add_nothing(self) -> None:
        joined = of_values(VALUES, GROUPS, 3).joined(np.array([0, 1, 1]), 2)
        assert joined.squares.tolist() == [2, 1400]

    def test_limited_to_wanted_groups_empty_the_others(self) -> None:
        moments = of_values(VALUES, GROUPS, 2).only(np.array([False, True]))
        assert (moments.size.tolist(), moments.total.tolist(), moments.squares.tolist()) == ([0, 3], [0, 90], [0, 1400])

    def test_merged_with_others_equal_those_of_both_together(self) -> None:
        first, second = (
            of_values(np.array([1.0, 3.0]), np.array([0, 0]), 1),
            of_values(np.array([8.0, 5.0]), np.array([0, 1]), 2),
        )
        both = first.behind(second, np.array([0, 1]), 2)
        assert both.size.tolist() == [3, 1]
        assert both.total.tolist() == [12, 5]
        assert both.squares == pytest.approx([9 + 1 + 16, 0])


class TestTotals:
    def test_add_the_variances_of_their_strata(self) -> None:
        sums = totals(of_values(VALUES, GROUPS, 2), np.array([0, 0]), 1)
        small, large = 2 * 2 / 1, 3 * 1400 / 2
        assert sums.total.tolist() == [94]
        assert sums.variance.tolist() == [small + large]
        assert sums.freedom == pytest.approx([(small + large) ** 2 / (small**2 / 1 + large**2 / 2)])

    def test_are_weighted_by_stratum(self) -> None:
        sums = totals(of_values(VALUES, GROUPS, 3), np.array([0, 0, 0]), 1, np.array([10.0, 0.5, 7.0]))
        small, large = 100 * 2 * 2 / 1, 0.25 * 3 * 1400 / 2
        assert sums.total.tolist() == [40 + 45]
        assert sums.variance.tolist() == [small + large]
        assert sums.freedom == pytest.approx([(small + large) ** 2 / (small**2 / 1 + large**2 / 2)])

    def test_of_a_stratum_of_one_launch_have_no_variance(self) -> None:
        sums = totals(of_values(np.array([1.0, 2.0, 4.0]), np.array([0, 1, 1]), 2), np.array([0, 1]), 2)
        assert sums.total.tolist() == [1, 6]
        assert np.isnan(sums.variance).tolist() == [True, False]
        assert np.isnan(sums.freedom).tolist() == [True, False]


def test_launches_in_a_row_of_averages_have_no_scatter() -> None:
    table = pa.table({"invocations": pa.array([None, 1, 2], pa.int64()), "duration_ns": [5.0, 6.0, 7.0]})
    assert of_single_launches(table, "duration_ns").tolist()[:2] == [5, 6]
    assert math.isnan(of_single_launches(table, "duration_ns")[2])


@pytest.mark.filterwarnings("error")
class TestMean:
    def test_has_the_variance_of_a_mean_and_samples_minus_one_degrees_of_freedom(self) -> None:
        assert mean_of(np.array([1.0, 2.0, 6.0])) == (3.0, 7 / 3, 2.0)

    def test_of_one_sample_has_no_variance(self) -> None:
        mean, variance, freedom = mean_of(np.array([4.0]))
        assert (mean, freedom) == (4.0, 0.0)
        assert math.isnan(variance)

    def test_of_two_samples_has_a_variance(self) -> None:
        assert mean_of(np.array([1.0, 3.0])) == (2.0, 1.0, 1.0)

    def test_of_nothing_is_unknown(self) -> None:
        assert all(map(math.isnan, mean_of(np.array([]))[:2]))


@pytest.mark.parametrize(
    ("confidence", "freedom", "quantile"),
    [
        (0.95, 1, 12.7062047), (0.95, 2, 4.30265273), (0.95, 10, 2.22813885), (0.95, 1000, 1.96233908),
        (0.99, 1, 63.6567412), (0.99, 4, 4.60409487), (0.99, 30, 2.74999565), (0.90, 5, 2.01504837),
        (0.50, 3, 0.76489233), (0.95, 1e6, 1.95996635),
    ],
)  # fmt: skip
def test_quantiles_of_student_are_those_of_printed_tables(confidence: float, freedom: float, quantile: float) -> None:
    assert student_quantile(confidence, freedom) == pytest.approx(quantile, rel=2e-8)


def test_quantiles_of_very_many_degrees_of_freedom_are_those_of_the_normal_distribution() -> None:
    assert student_quantile(0.95, 1e8) == pytest.approx(1.95996398, rel=1e-6)


class TestInterval:
    def test_is_the_ratio_times_and_over_welchs_factor(self) -> None:
        base, new = (10.0, 0.04, 3.0), (20.0, 0.36, 5.0)
        parts = 0.04 / 100, 0.36 / 400
        freedom = sum(parts) ** 2 / (parts[0] ** 2 / 3 + parts[1] ** 2 / 5)
        reach = math.exp(student_quantile(0.95, round(freedom, 3)) * math.sqrt(sum(parts)))
        assert ratio_interval(base, new) == pytest.approx((2 / reach, 2 * reach), rel=1e-12)

    def test_is_wider_for_a_higher_confidence(self) -> None:
        base, new = (10.0, 0.04, 3.0), (20.0, 0.36, 5.0)
        narrow, usual, wide = (ratio_interval(base, new, confidence) for confidence in (0.5, 0.95, 0.99))
        assert narrow is not None
        assert usual is not None
        assert wide is not None
        assert wide[0] < usual[0] < narrow[0] < narrow[1] < usual[1] < wide[1]
        assert mean_ratio_interval([(base, new)], 0.99) == wide
        assert mean_ratio_interval([(base, new)]) == usual

    def test_is_wide_and_finite_where_two_samples_have_to_be_very_sure(self) -> None:
        low, high = ratio_interval((1.0, 0.5, 1.0), (2.0, 4.0, 1.0), 1 - 1e-6) or (1.0, 1.0)
        assert 0 < low < 1e-100
        assert 1e100 < high < math.inf

    def test_of_a_mean_has_the_noise_of_all_pairs_over_their_number(self) -> None:
        pairs = [((10.0, 0.04, 3.0), (20.0, 0.36, 5.0)), ((5.0, 0.01, 4.0), (2.5, 0.0, 2.0))]
        parts = [(0.04 / 100, 3), (0.36 / 400, 5), (0.01 / 25, 4)]
        whole = sum(part for part, _ in parts)
        freedom = whole**2 / sum(part**2 / degrees for part, degrees in parts)
        reach = math.exp(student_quantile(0.95, round(freedom, 3)) * math.sqrt(whole) / 2)
        assert mean_ratio_interval(pairs) == pytest.approx((1 / reach, reach), rel=1e-12)

    @pytest.mark.parametrize(
        ("base", "new"),
        [
            ((0.0, 1.0, 3.0), (1.0, 1.0, 3.0)),
            ((1.0, 1.0, 3.0), (0.0, 1.0, 3.0)),
            ((-1.0, 1.0, 3.0), (1.0, 1.0, 3.0)),
            ((1.0, NONE, 3.0), (1.0, 1.0, 3.0)),
            ((1.0, 1.0, 3.0), (1.0, NONE, 3.0)),
            ((NONE, 1.0, 3.0), (1.0, 1.0, 3.0)),
            ((1.0, 0.0, 3.0), (1.0, 0.0, 3.0)),
        ],
    )
    def test_of_nothing_positive_or_no_scatter_is_none(
        self, base: tuple[float, float, float], new: tuple[float, float, float]
    ) -> None:
        assert ratio_interval(base, new) is None
        assert mean_ratio_interval([((1.0, 1.0, 3.0), (1.0, 1.0, 3.0)), (base, new)]) is None

    def test_takes_no_degrees_of_freedom_from_a_side_without_scatter(self) -> None:
        quiet, other = (20.0, 0.0, NONE), (20.0, 0.0, 9.0)
        assert ratio_interval((10.0, 0.04, 3.0), quiet) == ratio_interval((10.0, 0.04, 3.0), other)

    def test_of_no_pair_is_none(self) -> None:
        assert mean_ratio_interval([]) is None

    def test_of_small_totals_exists(self) -> None:
        assert ratio_interval((0.5, 0.01, 3.0), (0.25, 0.0, 3.0)) is not None
        assert ratio_interval((0.5, 0.0, 3.0), (0.25, 0.01, 3.0)) is not None

    def test_covers_the_true_ratio_about_as_often_as_stated(self) -> None:
        random = np.random.default_rng(5)
        held = 0
        for _ in range(400):
            found = ratio_interval(mean_of(random.normal(100, 8, 6)), mean_of(random.normal(150, 8, 6)))
            assert found is not None
            held += found[0] <= 1.5 <= found[1]
        assert 0.91 <= held / 400 <= 0.985


def test_a_geometric_mean_is_the_root_of_the_product() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4)
    assert geometric_mean([1.0, 2.0, 4.0]) == pytest.approx(2)
    assert geometric_mean([3.0]) == 3.0, "to the last digit, which the exponential of a logarithm is not"


class TestPairedRatioInterval:
    """Sums of works of which each is held against itself in the other run."""

    def test_of_three_works_is_that_worked_out_by_hand(self) -> None:
        """Sums 30 and 33; shares of 10/30 and 11/33, 11/33, 11/33 of each; t = 4.3027 with two degrees of freedom.

        Residuals (after - before) are 1/30, 0 and -1/30 with the second run 11, 11, 11 and the first 9, 10, 11.
        """
        low, high = paired_ratio_interval(np.array([9.0, 10.0, 11.0]), np.array([11.0, 11.0, 11.0])) or (0, 0)
        shares = np.array([(9 / 30 + 1 / 3) / 2, 1 / 3, (11 / 30 + 1 / 3) / 2])
        spread = math.hypot(1 / 30 / (1 - shares[0]), 1 / 30 / (1 - shares[2]))
        reach = student_quantile(0.95, 1 / (shares**2).sum() - 1) * spread
        assert (low, high) == pytest.approx((1.1 * math.exp(-reach), 1.1 * math.exp(reach)), rel=1e-4)

    def test_is_as_wide_as_the_confidence_that_is_asked_for(self) -> None:
        """Of two works: with one degree of freedom half of all t are within 1, and 95 % within 12.706.

        Their shares are 1/2 and 1/2 before, 0.55 and 0.45 after, so 0.525 and 0.475 in the mean.
        """
        base, new = np.array([1.0, 1.0]), np.array([1.1, 0.9])
        spread = math.hypot(0.05 / 0.475, 0.05 / 0.525)
        for confidence, quantile in ((0.5, 1.0), (0.95, 12.7062)):
            reach = math.exp(quantile * spread)
            assert paired_ratio_interval(base, new, confidence) == pytest.approx((1 / reach, reach), rel=1e-4)

    def test_where_all_change_alike_is_that_change(self) -> None:
        times = np.array([1.0, 2.0, 4.0, 4.0])
        assert paired_ratio_interval(times, 2 * times) == (2, 2)

    @pytest.mark.parametrize(
        ("base", "new"),
        [
            ((1.0, 99.0), (2.0, 98.0)), ((1, 1, 98), (1, 1, 99)), ((1, NONE, 1), (1, 1, 1)), ((1, 1, 1), (1, NONE, 1)),
            ((0, 0, 0), (1, 1, 1)), ((1, 1, 1), (0, 0, 0)), ((1, -0.5, 1), (1, 1, 1)), ((1, 1, 1), (1, -0.5, 1)),
        ],
        ids=[
            "two works", "one that takes nearly all", "an unknown time before", "an unknown time after", "no time before",
            "no time after", "a negative time before", "a negative time after",
        ],
    )  # fmt: skip
    def test_is_unknown_of(self, base: tuple[float, ...], new: tuple[float, ...]) -> None:
        assert paired_ratio_interval(np.array(base, float), np.array(new, float)) is None

    def test_is_the_same_in_every_unit_of_time(self) -> None:
        base, new = np.array([9.0, 10.0, 11.0]), np.array([11.0, 11.0, 11.0])
        found = paired_ratio_interval(base, new)
        assert found is not None
        assert paired_ratio_interval(base / 1e6, new / 1e6) == pytest.approx(found)

    @pytest.mark.parametrize(("works", "decades"), one_in(4, [(12, 3), (3, 0), (6, 1), (40, 1), (2, 0.1)]))
    @pytest.mark.slow
    def test_about_95_of_100_hold_the_true_ratio_however_different_the_works_are(
        self, works: int, decades: float
    ) -> None:
        random, found = np.random.default_rng(3), []
        for _ in range(2000):
            times = 10 ** random.uniform(0, decades, works)
            base, new = (factor * times * (1 + 0.05 * random.standard_normal(works)) for factor in (1.0, 1.3))
            found.append(paired_ratio_interval(base, new))
        held = [one[0] <= 1.3 <= one[1] for one in found if one is not None]
        assert len(held) > 1900
        assert 0.94 <= sum(held) / len(held) <= 0.98


class TestTotalsWithSingleLaunches:
    """A stratum of one launch scatters as the others of its group, relative to its own time."""

    ONE = np.zeros(2, np.int64)

    def test_add_the_relative_scatter_of_the_others_to_that_within_them(self) -> None:
        strata = of_values(np.array([99.0, 101.0, 50.0]), np.array([0, 0, 1]), 2)
        found = totals_with_single_launches(strata, self.ONE, 1, np.ones(2))
        assert found.total.tolist() == [250]
        assert found.variance.tolist() == pytest.approx([2 * 2 + (2 / 100**2) * 50**2])
        assert found.freedom.tolist() == [1]

    def test_pool_the_relative_scatter_of_several_strata(self) -> None:
        """Squares of 2 around 100 and 8 around 200, so (2 / 100^2 + 8 / 200^2) / 2 relative to the square of a time."""
        strata = of_values(np.array([99.0, 101.0, 198.0, 202.0, 50.0]), np.array([0, 0, 1, 1, 2]), 3)
        found = totals_with_single_launches(strata, np.zeros(3, np.int64), 1, np.ones(3))
        of_single = (2 / 100**2 + 8 / 200**2) / 2 * 50**2
        assert found.total.tolist() == [650]
        assert found.variance.tolist() == pytest.approx([4 + 16 + of_single])
        parts = 4**2 / 1 + 16**2 / 1 + of_single**2 / 2
        assert found.freedom.tolist() == pytest.approx([(20 + of_single) ** 2 / parts])

    def test_are_known_where_single_launches_have_just_half_of_the_sum(self) -> None:
        strata = of_values(np.array([99.0, 101.0, 200.0]), np.array([0, 0, 1]), 2)
        assert not np.isnan(totals_with_single_launches(strata, self.ONE, 1, np.ones(2)).variance).any()

    def test_equal_totals_where_no_stratum_has_a_single_launch(self) -> None:
        strata, weights = of_values(VALUES, GROUPS, 2), np.array([1.0, 3.0])
        found, known = totals_with_single_launches(strata, self.ONE, 1, weights), totals(strata, self.ONE, 1, weights)
        assert (found.total, found.variance, found.freedom) == (
            known.total,
            known.variance,
            pytest.approx(known.freedom),
        )

    @pytest.mark.parametrize("single", [[201.0], [NONE]], ids=["most of the time", "of an unknown time"])
    def test_are_unknown_where_single_launches_have_most_of_the_sum(self, single: list[float]) -> None:
        strata = of_values(np.array([99.0, 101.0, *single]), np.array([0, 0, 1]), 2)
        assert np.isnan(totals_with_single_launches(strata, self.ONE, 1, np.ones(2)).variance).all()

    @pytest.mark.slow
    @pytest.mark.parametrize("sizes", by_day([[3, 3, 1, 1]], [[4, 1], [2, 1], [3, 3, 1, 1]]))
    def test_give_intervals_of_which_about_95_of_100_hold_the_true_ratio(self, sizes: list[int]) -> None:
        random, held, trials = np.random.default_rng(11), 0, 2000
        strata = np.repeat(np.arange(len(sizes)), sizes)
        means = np.array([100.0, 70.0, 30.0, 20.0])[strata]
        for _ in range(trials):
            sides = []
            for factor in (1.0, 1.2):
                values = factor * means * (1 + 0.02 * random.standard_normal(len(strata)))
                of = of_values(values, strata, len(sizes))
                found = totals_with_single_launches(of, np.zeros(len(sizes), np.int64), 1, np.ones(len(sizes)))
                sides.append((float(found.total[0]), float(found.variance[0]), float(found.freedom[0])))
            interval = ratio_interval(sides[0], sides[1])
            assert interval is not None
            held += interval[0] <= 1.2 <= interval[1]
        assert 0.93 <= held / trials <= 0.99
