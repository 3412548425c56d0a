"""Where a series changed: counts at each step, noisy values after a few runs and never by one."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from ncu_parsers.schema.tables import Floats

from ncu_tools.history.change_points import (
    LIMIT,
    WINDOW,
    Shift,
    are_noisy,
    first_alarms,
    limit_for,
    normal_deviates,
    ramp_in,
    runs_needed,
    shifts_of_counts,
    shifts_of_values,
    spread_of,
)

RNG = np.random.default_rng(7)
NAN = np.nan


def noisy(level: float, count: int, spread: float = 0.01) -> Floats:
    """Values around a level, by their relative spread."""
    return level * np.exp(spread * np.random.default_rng(count).standard_normal(count))


def found(*parts: Floats, of_others: float = 0.01, floor: float = 1e-4, series: int = 1) -> list[Shift]:
    """The shifts of one series that is made of parts."""
    values = np.concatenate(parts)[:, None]
    return shifts_of_values(values, np.array([of_others]), np.array([floor]), np.array([series], float))


class TestCounts:
    def test_change_at_every_step_and_keep_their_value_over_runs_that_lack_them(self) -> None:
        values = np.array([[5.0, 1], [5, 1], [NAN, 1], [6, 1], [6, NAN], [5, 1]])
        assert shifts_of_counts(values, 0.0) == [Shift(0, 3, 3, 5, 6, 0), Shift(0, 5, 5, 6, 5, 0)]

    def test_within_their_tolerance_are_the_same(self) -> None:
        values = np.array([[1000.0], [1004], [1006.1]])
        assert shifts_of_counts(values, 0.005) == []
        assert len(shifts_of_counts(values, 0.001)) == 2

    def test_from_nothing_are_a_change(self) -> None:
        assert [one.after for one in shifts_of_counts(np.array([[0.0], [3]]), 0.5)] == [3]

    def test_that_move_to_and_fro_in_most_runs_are_noisy_and_of_few_runs_are_not(self) -> None:
        moving = np.array([[1.0, 1], [2, 1], [1, 1], [2, 2], [1, 2]])
        assert are_noisy(moving, 0.0).tolist() == [True, False]
        assert not are_noisy(moving[:4], 0.0).any()

    def test_that_move_in_more_than_a_third_of_the_runs_that_know_them_are_noisy(self) -> None:
        third, more = [100.0, 100, 100, 101, 101, 101, 100], [100.0, 100, 100, 101, 100, 101, 101]
        gap = [one for value in more for one in (value, NAN)]
        few = [NAN, 1, NAN, 2, NAN, 1, NAN, 2, NAN, NAN, NAN, NAN, NAN, NAN]
        assert are_noisy(np.array([third, more]).T, 0.0).tolist() == [False, True]
        assert not are_noisy(np.array([[1000.0, 1001, 1001, 1001, 1001, 1001, 1001]]).T, 0.0).any()
        assert are_noisy(np.array([gap, few]).T, 0.0).tolist() == [True, False]

    def test_go_to_and_fro_where_their_way_is_more_than_two_and_a_half_times_their_span(self) -> None:
        back = [[1.0, 1, 4, 1, last] for last in (1.99, 2.01)]  # log 4 up and down, and half of it up again
        assert are_noisy(np.array(back).T, 0.0).tolist() == [False, True]

    def test_are_noisy_too_where_they_are_nothing_in_some_runs(self) -> None:
        assert are_noisy(np.array([[0.0, 1, 0, 1, 0, 1.0]]).T, 0.0).all()

    def test_that_move_by_less_than_two_percent_in_most_runs_are_noisy(self) -> None:
        assert are_noisy(np.array([[1000.0], [1001], [1002], [1010], [1019]]), 0.0).all()
        assert not are_noisy(np.array([[1000.0], [1001], [1002], [1010], [1021]]), 0.0).any()

    def test_of_a_kernel_that_is_rewritten_for_every_run_are_exact(self) -> None:
        flops = np.array([[4.3e12], [2.6e12], [2.3e12], [1.09e12], [1.11e12], [1.1e12]])
        assert not are_noisy(flops, 0.0).any()


class TestNoisyValues:
    def test_show_a_step_where_it_is_with_both_levels(self) -> None:
        (one,) = found(noisy(100, 30), noisy(105, 12))
        assert one.begin == 30
        assert (one.before, one.after) == (pytest.approx(100, rel=0.01), pytest.approx(105, rel=0.01))
        assert not one.drift
        assert one.spread == pytest.approx(0.01, rel=0.5)

    def test_do_not_change_by_one_wild_run_however_wild(self) -> None:
        assert found(noisy(100, 25), np.array([900.0]), noisy(100, 26)) == []
        assert found(noisy(100, 25), np.array([900.0])) == []

    def test_show_two_steps_and_the_way_back(self) -> None:
        shifts = found(noisy(100, 25), noisy(110, 26), noisy(100, 27))
        assert [one.begin for one in shifts] == [25, 51]
        assert shifts[1].after == pytest.approx(100, rel=0.01)

    def test_add_a_slow_drift_up_to_one_change(self) -> None:
        drift = noisy(100, 60) * np.exp(0.002 * np.maximum(np.arange(60) - 20, 0))
        (one,) = found(drift)
        assert one.drift
        assert 15 <= one.begin <= 35
        assert 50 <= one.end <= 59
        assert one.after / one.before == pytest.approx(1.075, abs=0.03)

    def test_tell_a_step_from_the_drift_behind_it_which_ends_where_it_levels_off(self) -> None:
        drift = np.exp(0.005 * np.clip(np.arange(80) - 40, 0, 20) + 0.1 * (np.arange(80) >= 30))
        step, rest = found(noisy(100, 80) * drift)
        assert (step.begin, step.drift) == (30, False)
        assert step.after / step.before == pytest.approx(1.105, abs=0.02)
        assert rest.drift
        assert abs(rest.begin - 41) <= 5
        assert abs(rest.end - 60) <= 5
        assert rest.after / rest.before == pytest.approx(1.105, abs=0.02)

    def test_of_few_runs_are_judged_by_the_spread_of_other_series(self) -> None:
        few = np.array([100.0, 100.1, 100, 105, 105.1, 105, 105.1])
        assert len(found(few, of_others=0.01)) == 1
        assert found(few, of_others=0.05) == []

    def test_need_more_than_some_wild_runs_among_the_last(self) -> None:
        calm = noisy(100, 40)
        calm[[33, 36, 38]] *= 1.3
        assert found(calm) == []

    def test_are_found_sooner_the_larger_the_step(self) -> None:
        logs = np.log(np.stack([np.append(noisy(100, 30), noisy(100 * size, 15)) for size in (1.02, 1.2)], axis=1))
        alarms = first_alarms(logs, np.full(2, 0.01), np.full(2, 1e-4), np.full(2, 100.0))
        assert [series for series, _, _ in alarms] == [1, 0]
        assert alarms[0][2] <= 35

    @pytest.mark.parametrize("series", [1, 9, 257])
    def test_of_many_spreads_are_found_in_as_few_runs_as_may_show_them(self, series: int) -> None:
        """Values that are clipped as wild ones move the level little, and the spread much."""
        after = math.ceil(3 + math.log(series, 4))
        before = runs_needed(series) - after
        for step in (1.3, 20.0):
            (one,) = found(noisy(100, before, 0.002), noisy(100 * step, after, 0.002), floor=0.005, series=series)
            assert one.begin == before
            (late,) = found(np.full(9, NAN), noisy(100, before), noisy(100 * step, after), floor=0.005, series=series)
            assert late.begin == 9 + before
        assert found(noisy(100, before, 0.002), noisy(130, after - 1, 0.002), floor=0.005, series=series) == []

    def test_that_do_not_scatter_have_at_least_the_floor_as_spread(self) -> None:
        steady = [np.full(20, 100.0), np.full(10, 100.1)]
        assert len(found(*steady, floor=1e-4)) == 1
        assert found(*steady, floor=0.01) == []

    def test_may_be_missing_in_runs(self) -> None:
        values = np.concatenate([noisy(100, 30), noisy(110, 30)])
        values[::3] = NAN
        (one,) = found(values)
        assert abs(one.begin - 30) <= 1

    def test_are_judged_each_alone(self) -> None:
        values = np.stack([noisy(100, 40), np.concatenate([noisy(5, 20), noisy(6, 20)])], axis=1)
        shifts = shifts_of_values(values, np.full(2, 0.01), np.full(2, 1e-4), np.full(2, 2.0))
        assert [(one.series, one.begin) for one in shifts] == [(1, 20)]

    def test_begin_where_all_runs_say_and_not_where_the_alarm_took_them_to(self) -> None:
        (one,) = found(noisy(100, 40, 0.02), noisy(103, 40, 0.02))
        assert abs(one.begin - 40) <= 3


class TestTheLimit:
    def test_is_higher_the_more_series_are_watched(self) -> None:
        assert limit_for(1) == pytest.approx(LIMIT) == pytest.approx(3.42)
        one, all_of_them = (1 - NormalDist().cdf(limit_for(series)) for series in (1, 500))
        assert 500 * all_of_them == pytest.approx(one)

    def test_of_students_t_is_that_of_a_normal_deviate(self) -> None:
        # Abramowitz and Stegun, table 26.10: P(|T| > t) = 0.01 and 0.002, of the normal deviates 2.5758 and 3.0902.
        assert normal_deviates(np.array([3.169, 2.750]), np.array([10.0, 30.0])) == pytest.approx(
            [2.5758] * 2, abs=0.02
        )
        assert normal_deviates(np.array([-4.144]), np.array([10.0])) == pytest.approx([-3.0902], abs=0.02)
        # By Wallace (8 n + 1) / (8 n + 3) * sqrt(n log(1 + t^2 / n)), here 81 / 83 * sqrt(10 log 2) and 9 / 11 * sqrt(log 10)
        exact = normal_deviates(np.array([math.sqrt(10), -3.0]), np.array([10.0, 1.0]))
        assert exact == pytest.approx([2.56933, -1.24153], abs=1e-5)


class TestARamp:
    def test_needs_enough_runs(self) -> None:
        assert ramp_in(np.linspace(0, 1, 6)) is None
        assert ramp_in(np.linspace(0, 1, 7)) == (1, 6)


def test_the_spread_is_that_of_the_last_runs_by_the_median_deviation() -> None:
    logs = np.concatenate([np.array([0.0, 50.0] * 10), np.array([1.0, 2.0, 3.0, 4.0] * (WINDOW // 4))])
    assert spread_of(logs) == pytest.approx(1.4826)
    assert spread_of(np.array([1.0, 9.0]), 0.5) == 0.5
