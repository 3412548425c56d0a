"""The numbers behind a history, each against its formula worked out by hand."""

from __future__ import annotations

import math
from itertools import combinations
from statistics import NormalDist

import numpy as np
import pytest
from ncu_parsers.schema.tables import Floats

from ncu_tools.compare.gate import evaluate, parse_gate
from ncu_tools.history import change_points, changes
from ncu_tools.history.causes import changes_of
from ncu_tools.history.change_points import LENGTHS, chance, differ, limit_for
from ncu_tools.history.held import held
from ncu_tools.history.quantities import quantities
from ncu_tools.history.run_summary import VARIANCE
from ncu_tools.history.series import EVERY
from tests.support.histories import changes as changes_in
from tests.support.histories import counted, history, times
from tests.support.launches import launch, metric


def test_lengths_are_of_few_and_of_many_runs() -> None:
    assert LENGTHS.tolist() == [2, 3, 4, 5, 6, 8, 11, 15, 20]


class TestPermutations:
    @pytest.mark.parametrize("sign", [1.0, -1.0])
    def test_count_every_choice_of_runs_that_is_as_far_off_on_the_same_side(self, sign: float) -> None:
        before, after = sign * np.array([0.0, 3, 1, 2, 5, 4, 2]), sign * np.array([3.0, 6, 5])
        every = np.concatenate([before, after])
        sums = [sign * sum(one) for one in combinations(every.tolist(), 3)]
        expected = np.mean([one >= sign * after.sum() for one in sums])
        assert chance(before, after) == pytest.approx(expected)

    def test_of_runs_that_do_not_overlap_are_one_choice_of_all(self) -> None:
        assert chance(np.arange(6.0), np.arange(6.0, 10)) == pytest.approx(1 / math.comb(10, 4))
        assert chance(np.zeros(6), np.zeros(4)) == 1
        assert chance(np.zeros(10), np.ones(3)) == pytest.approx(1 / math.comb(13, 3))

    @pytest.mark.parametrize("seed", range(6))
    def test_take_values_in_forty_steps_up_to_five_median_deviations(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        before, after = random.standard_normal(8), random.standard_normal(4) + 0.5
        before[0], after[0] = 9.0, random.choice([-9.0, 9.0])
        every = np.concatenate([before, after])
        off = every - np.median(every)
        reach = 5 * np.median(np.abs(off))
        steps = np.clip(off, -reach, reach) - max(off.min(), -reach)
        down = steps[8:].mean() < steps[:8].mean()
        scores = np.rint(40 * (steps.max() - steps if down else steps) / steps.max())
        choices = [sum(one) for one in combinations(scores.tolist(), 4)]
        assert chance(before, after) == pytest.approx(np.mean([one >= scores[8:].sum() for one in choices]))

    def test_clip_a_wild_run_so_that_others_still_count(self) -> None:
        before, after = np.arange(20.0), np.array([15.0, 16, 17, 18])
        assert chance(before, np.append(after, 1e9)) == pytest.approx(chance(before, np.append(after, 60.0)))
        assert chance(np.append(before, 1e9), after) < 0.2

    def test_hold_at_the_odds_of_the_limit(self) -> None:
        before, after = np.arange(20.0), np.array([16.5, 17.5, 19.5, 20])
        limit = -NormalDist().inv_cdf(chance(before, after))
        assert differ(before, after, limit - 1e-6)
        assert not differ(before, after, limit + 1e-6)
        assert differ(np.append(before, np.nan), np.append(after, np.nan), limit - 1e-6)
        assert not differ(before, after[:0], 0.0)
        assert not differ(before[:0], after, 0.0)
        low, high = np.arange(4.0), np.arange(6.0, 10)
        one_of_all = -NormalDist().inv_cdf(1 / math.comb(8, 4))
        assert differ(low, high, one_of_all - 1e-6, 1000)
        assert not differ(low, high, one_of_all + 1e-6, 1000)

    def test_compare_no_more_than_the_last_runs_before(self) -> None:
        before = np.concatenate([np.full(100, 9.0), np.arange(60.0) / 60])
        after = np.array([0.9, 0.95, 1, 1.05, 1.1])
        limit = -NormalDist().inv_cdf(chance(before[-60:], after))
        assert differ(before, after, limit - 1e-6)
        assert not differ(before, after, limit + 1e-6)

    @pytest.mark.parametrize(("watched", "before", "after"), [(1, 3, 3), (11, 5, 5), (256, 6, 7), (1000, 6, 8)])
    def test_are_not_needed_of_enough_runs_without_overlap(self, watched: int, before: int, after: int) -> None:
        low, high = np.arange(20.0), np.arange(30.0, 50)
        for sign in (1, -1):
            assert differ(sign * low[:before], sign * high[:after], 9.0, watched)
            assert not differ(sign * low[: before - 1], sign * high[:after], 9.0, watched)
            assert not differ(sign * low[:before], sign * high[: after - 1], 9.0, watched)
            touching = np.append(high[: after - 1], low[before - 1])
            assert not differ(sign * low[:before], sign * touching, 9.0, watched)


class TestLimits:
    def test_are_least_where_likely_steps_reach_them(self) -> None:
        for series in (1, 257):
            least = limit_for(series)
            likely = [(least / 1.95) ** 2 < length < (least / 1.2) ** 2 for length in LENGTHS.tolist()]
            assert len(set(likely)) == 2
            limits = change_points._limits_for(np.full(2, series, float))
            assert limits[:, 1].tolist() == [least if one else least + 0.8 for one in likely]

    def test_are_lower_while_a_level_is_new(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def found(known: int) -> int:
            logs = 0.01 * np.random.default_rng(11).standard_normal((known + 5, 200))
            logs[known:] += 0.02
            return len(first_alarms(logs))

        of_a_new_level = found(30)
        monkeypatch.setattr(change_points, "EARLIER", 0.0)
        assert of_a_new_level > found(30)

    def test_are_lower_for_forty_runs(self) -> None:
        logs = np.tile(0.01 * np.random.default_rng(2).standard_normal((39, 1)), 400)
        logs[35:] += np.linspace(0.0, 0.05, 400)
        of_39, of_40, of_41 = (
            len(first_alarms(np.pad(logs, ((lead, 0), (0, 0)), constant_values=np.nan))) for lead in range(3)
        )
        assert of_39 == of_40 > of_41

    def test_are_lower_for_a_series_that_is_watched_as_one_of_fewer(self) -> None:
        logs = 0.01 * np.random.default_rng(3).standard_normal((26, 2))
        logs[20:] += 0.022
        logs[:, 1] = logs[:, 0]
        assert {series for series, _, _ in first_alarms(logs, np.array([2.0, 500.0]))} == {0}


def first_alarms(logs: Floats, watched: Floats | None = None) -> list[tuple[int, int, int]]:
    """The alarms of series with a spread of 1 %."""
    each = np.ones(logs.shape[1])
    return change_points.first_alarms(logs, 0.01 * each, 1e-4 * each, each if watched is None else watched)


def test_series_on_two_levels_do_not_alarm_however_many_there_are() -> None:
    random, each = np.random.default_rng(5), np.ones(100)
    logs = 0.01 * random.standard_normal((80, 100)) + 0.1 * (random.random((80, 100)) < 0.1)
    assert change_points.first_alarms(logs, 0.02 * each, 0.001 * each, 100 * each) == []
    assert len(change_points.first_alarms(logs, 0.02 * each, 0.001 * each, each)) < 16


class TestWhatRunsDifferBy:
    def test_is_the_median_difference_of_logarithms_over_root_two(self) -> None:
        values = np.exp(np.array([[0.0, 0], [0.01, 0.02], [0.0, 0.02], [0.03, 0.04], [0.03, 0.0], [0.02, 0.01]]))
        steps = np.abs(np.diff(np.log(values), axis=0))
        assert changes._spread_of_others(values) == pytest.approx(1.4826 * np.median(steps) / math.sqrt(2))
        assert changes._spread_of_others(values[:5]) == 0.02

    def test_is_at_least_what_ticks_of_the_clock_and_the_scatter_of_launches_say(self) -> None:
        found = history(counted("k", 10, 10, 10, 10), counted("k", 10, 10, 10, 10))
        time = quantities()["time"]
        assert changes._floors(found, time, found.values("time")) == pytest.approx([80 / 2 / 10e3])
        long = history(counted("k", 1000))
        assert changes._floors(long, time, long.values("time")) == pytest.approx([0.001])
        scattered = history(counted("k", 9, 11), counted("k", 9, 11))
        assert scattered.values(VARIANCE)[0, 0] == pytest.approx(1e6)
        assert changes._within_runs(scattered, time, scattered.values("time")) == pytest.approx([0.1])
        assert changes._within_runs(scattered, quantities()["cycles"], scattered.values("cycles")) == pytest.approx([0])


class TestAllKernels:
    @staticmethod
    def run(size: float, seed: int, count: int = 12) -> list:  # type: ignore[type-arg]
        random = np.random.default_rng(seed)
        scatter = np.exp(0.002 * random.standard_normal(count))
        return [one for at in range(count) for one in counted(f"k{at}", (50 + at) * size * scatter[at])]

    def test_move_from_one_per_cent_on(self) -> None:
        for size, found in ((1.005, 0), (1.02, 1)):
            rows = [one for one in changes_in(self.run(1, 1), self.run(1, 2), self.run(size, 3)) if one.series == EVERY]
            assert len(rows) == found
        (row,) = rows
        assert (row.run, row.change) == (2, pytest.approx(0.02, abs=0.004))
        assert row.before == pytest.approx(55.5e3, rel=0.01)

    def test_move_in_a_long_history_as_a_series_of_their_own(self) -> None:
        runs = [self.run(1 if at < 15 else 1.05, at) for at in range(25)]
        (row,) = [one for one in changes_in(*runs) if one.series == EVERY]
        assert (row.run, row.change) == (15, pytest.approx(0.05, abs=0.004))


class TestNoisyCounts:
    @staticmethod
    def with_dram(us: float, dram: float, registers: int = 32) -> list:  # type: ignore[type-arg]
        (one,) = counted("gemm", us, registers=registers)
        return [
            launch("gemm", {**one.metrics, "dram__bytes.sum": metric(dram, "byte")}, grid=(8, 1, 1), block=(128, 1, 1))
        ]

    def test_stand_beside_exact_ones_that_moved_in_the_same_run(self) -> None:
        scatter = times(24, 1000, 4, seed=4)
        before = [self.with_dram(us, dram) for us, dram in zip(times(12), scatter[:12], strict=True)]
        after = [self.with_dram(us, 1.3 * dram, 40) for us, dram in zip(times(12, 115), scatter[12:], strict=True)]
        (time,) = [one for one in changes_of(history(*before, *after)) if one.quantity == "time"]
        assert [phrase.split()[0] for phrase in time.evidence] == ["registers", "DRAM"]
        early = changes_of(history(*before[:4], *after[:4]))
        assert {one.run for one in early} == {4}


class TestTheWhole:
    def test_is_the_time_of_all_launches_and_of_layers_their_sum(self) -> None:
        runs = [[*counted("a", 10, 10), *counted("b", 5, grid=(3, 1, 1))]] * 4
        newest = [*counted("a", 12, 12), *counted("b", 5, grid=(3, 1, 1))]
        found = held(history(*runs, newest), "time", 20).whole
        assert found is not None
        assert (found.changes["time"].base, found.changes["time"].new) == (25e3, 29e3)
        layers = held(history(*runs, newest, by="layer"), "time", 20).whole
        assert layers is not None
        assert (layers.changes["time"].base, layers.changes["time"].new) == (25e3, 29e3)
        launches = held(history(*runs, newest), "launches", 20).whole
        assert launches is not None
        assert (launches.changes["launches"].base, launches.changes["launches"].new) == (3, 3)

    def test_of_a_renamed_kernel_with_another_grid_is_the_same_work(self) -> None:
        runs = [counted("norm_v1", 10), counted("norm_v1", 10), counted("norm_v2", 10, grid=(2, 1, 1))]
        gate = parse_gate("time>3%")
        assert evaluate(gate, held(history(*runs), "time", 20)).outcome == "passed"
        other = [counted("norm", 10), counted("norm", 10), counted("norm", 10, grid=(2, 1, 1))]
        judged = evaluate(gate, held(history(*other), "time", 20))
        assert (judged.outcome, "another grid, block or range of norm" in judged.reason) == ("refused", True)

    def test_of_several_series_is_one_more_test_the_more_there_are(self) -> None:
        names = [f"k{at}" for at in range(50)]
        runs = [[one for name in names for one in counted(name, us)] for us in (100, 101, 99, 100)]
        newest = [one for name in names for one in counted(name, 106)]
        change = held(history(*runs, newest), "time", 20).every[0].changes["time"]
        assert change.low is not None
        assert change.low_of_many is not None
        assert change.low_of_many < change.low < 1.06 < (change.high or 0)


class TestTheIntervalOfAGate:
    @pytest.mark.parametrize(("before", "known"), [(2, False), (3, True)])
    def test_needs_three_runs_before(self, before: int, known: bool) -> None:
        runs = [counted("a", us) for us in times(before + 1)]
        change = held(history(*runs), "time", 20).every[0].changes["time"]
        assert (change.low is not None) == known

    def test_is_none_of_a_count(self) -> None:
        runs = [counted("a", us) for us in times(5)]
        assert held(history(*runs), "instructions", 20).every[0].changes["instructions"].low is None

    def test_is_students_around_the_new_run_with_the_spread_of_the_window(self) -> None:
        level = times(9)
        change = held(history(*(counted("a", us) for us in level)), "time", 20).every[0].changes["time"]
        window = np.log(np.array(level[:8]))
        spread = 1.4826 * float(np.median(np.abs(window - np.median(window))))
        reach = math.exp(2.3646 * spread * math.sqrt(1 + 1 / 8))  # Student's t of 7 degrees of freedom, 95 %
        ratio = level[8] / float(np.median(level[:8]))
        assert (change.low, change.high) == (
            pytest.approx(ratio / reach, abs=1e-5),
            pytest.approx(ratio * reach, abs=1e-5),
        )


def test_the_common_index_has_the_error_of_a_median_over_series() -> None:
    steps = np.array([-0.03, -0.02, -0.01, 0.0, 0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.09])
    values = np.exp(np.stack([np.zeros(11), steps, steps]))
    index, error = changes._common_index(values)
    middle = float(np.median(steps))
    spread = 1.4826 * float(np.median(np.abs(steps - middle)))
    assert index == pytest.approx([0, middle, middle])
    assert error[:2] == pytest.approx([0, 1.2533 * spread / math.sqrt(11)])
    assert 0 < error[2] < 1e-300


def test_the_last_known_value_of_a_series_is_carried_on() -> None:
    values = np.array([[np.nan, 1], [2, np.nan], [np.nan, np.nan], [3, 4]])
    carried = change_points.last_known(values)
    assert carried == pytest.approx(np.array([[np.nan, 1], [2, 1], [2, 1], [3, 4]]), nan_ok=True)


class TestWhereManyAreWatched:
    def test_a_change_is_found_sooner_of_a_hot_kernel_and_of_one_that_is_asked_for(self) -> None:
        deviations = 0.01 * np.random.default_rng(4).standard_normal((25, 40))
        deviations[:, 1] = deviations[:, 0]
        deviations[20:, :2] += 0.025
        level = np.full(40, 100.0)
        level[0] = 10_000
        runs = [
            [launch for at, us in enumerate(row) for launch in counted(f"kernel_{at}", us)]
            for row in level * np.exp(deviations)
        ]
        watched = history(*runs)
        cold = watched.names.index("kernel_1")
        times_of = [
            {one.series for one in changes_of(watched, asked) if one.quantity == "time"}
            for asked in (None, np.arange(40) == cold)
        ]
        assert watched.names.index("kernel_0") in times_of[0]
        assert cold not in times_of[0]
        assert cold in times_of[1]
