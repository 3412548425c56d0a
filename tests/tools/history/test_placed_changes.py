"""Where a change is placed after its alarm, whether it is a step or a drift, and from what level to what level.

The logarithms here go round in threes, 0, +w and -w, so that three runs in a row have their level as median, and a
part has a spread of 1.4826 w.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from ncu_parsers.schema.tables import Floats

from ncu_tools.history import change_points
from ncu_tools.history.change_points import Shift, ramp_in

FLOOR, LIMIT, W = 1e-5, 3.7, 0.001
SPREAD = 1.4826 * W


def part(level: float, runs: int, w: float = W) -> Floats:
    return np.resize([level, level + w, level - w], runs)


def placed(*parts: Floats, alarms: list[int], floor: float = FLOOR) -> list[Shift]:
    return change_points._placed(4, np.concatenate(parts), alarms, floor, LIMIT)


def step(begin: int, before: float, after: float, spread: float = SPREAD) -> object:
    return pytest.approx(Shift(4, begin, begin, math.exp(before), math.exp(after), spread).__dict__)


def drift(begin: int, end: int, before: float, after: float, spread: float = SPREAD) -> object:
    return pytest.approx(Shift(4, begin, end, math.exp(before), math.exp(after), spread, True).__dict__)


class TestAStep:
    @pytest.mark.parametrize("alarm", [11, 26, 30, 44])
    def test_is_placed_where_two_levels_leave_the_least(self, alarm: int) -> None:
        (one,) = placed(part(0, 30), part(0.1, 30), alarms=[alarm])
        assert one.__dict__ == step(30, 0, 0.1)

    def test_goes_to_the_run_nearest_to_its_alarm_of_several_that_fit_as_well(self) -> None:
        gap = np.full(9, np.nan)
        for alarm in (22, 25, 28):
            (one,) = placed(part(0, 20), gap, part(0.1, 20), alarms=[alarm])
            assert one.__dict__ == step(alarm, 0, 0.1)

    def test_has_the_medians_of_the_twenty_runs_on_either_side_and_the_spread_before(self) -> None:
        (one,) = placed(part(0.01, 9), part(0, 20), part(0.1, 8), part(0.11, 20, W / 2), alarms=[29])
        assert one.__dict__ == step(29, 0, 0.11)
        (back,) = placed(part(0, 20, 2 * W), part(-0.1, 8), alarms=[20])
        assert back.__dict__ == step(20, 0, -0.1, 2 * SPREAD)

    def test_has_the_floor_as_spread_before_a_third_run(self) -> None:
        for runs, spread in ((2, FLOOR), (3, SPREAD)):
            (one,) = placed(part(0, runs), part(1, 20), alarms=[runs])
            assert one.spread == pytest.approx(spread)


class TestTwoAlarms:
    @pytest.mark.parametrize(("before", "after"), [(12, 30), (30, 12), (9, 16), (21, 21)])
    def test_are_of_two_changes_if_both_are_beyond_the_limit_in_standard_errors(self, before: int, after: int) -> None:
        error = SPREAD * math.sqrt(1 / min(before, 20) + 1 / min(after, 20))  # by the spread of the longer part
        calm, wild = (W, 1.5 * W) if before >= after else (1.5 * W, W)
        for size, number in ((0.99, 1), (1.01, 2)):
            up = size * LIMIT * error
            found = placed(part(0, before, calm), part(up, after, wild), part(1, 30), alarms=[before, before + after])
            assert [one.begin for one in found] == [before, before + after][-number:]

    def test_of_one_change_are_one_wherever_the_other_lies(self) -> None:
        for alarms in ([10, 30], [28, 33], [30, 50]):
            (one,) = placed(part(0, 30), part(0.1, 30), alarms=alarms)
            assert one.__dict__ == step(30, 0, 0.1)

    def test_of_no_change_are_none(self) -> None:
        assert placed(part(0, 60), alarms=[20, 40]) == []

    def test_of_steps_to_and_fro_are_two_changes(self) -> None:
        up, down = placed(part(0, 30), part(0.1, 12), part(0, 30), alarms=[29, 43])
        assert (up.__dict__, down.__dict__) == (step(30, 0, 0.1), step(42, 0.1, 0))


class TestSmallStepsInOneDirection:
    @pytest.mark.parametrize("sign", [1, -1])
    @pytest.mark.parametrize(("apart", "is_one"), [(12, True), (20, True), (21, False)])
    def test_are_one_drift_within_twenty_runs(self, sign: int, apart: int, is_one: bool) -> None:
        up = sign * 5 * SPREAD
        found = placed(part(0, 24), part(up, apart), part(2 * up, 24), alarms=[24, 24 + apart])
        steps = [step(24, 0, up), step(24 + apart, up, 2 * up)]
        assert [one.__dict__ for one in found] == ([drift(24, 24 + apart, 0, 2 * up)] if is_one else steps)

    def test_of_three_make_a_drift_to_the_last_of_them(self) -> None:
        up = 5 * SPREAD
        (one,) = placed(*(part(at * up, 15) for at in range(4)), alarms=[15, 30, 45])
        assert one.__dict__ == drift(15, 45, 0, 3 * up)

    def test_are_steps_where_one_goes_back(self) -> None:
        up = 5 * SPREAD
        found = placed(part(0, 24), part(up, 12), part(0, 24), alarms=[24, 36])
        assert [one.__dict__ for one in found] == [step(24, 0, up), step(36, up, 0)]

    @pytest.mark.parametrize(("first", "second"), [(5.9, 5.9), (6.1, 5.9), (5.9, 6.1)])
    def test_are_no_drift_with_a_jump_of_more_than_six_spreads(self, first: float, second: float) -> None:
        levels = 0, first * SPREAD, (first + second) * SPREAD
        for middle in (W, 0.0):  # a calm stretch between them does not make the second a jump
            runs = part(0, 24), part(levels[1], 12, middle), part(levels[2], 24)
            found = placed(*runs, alarms=[24, 36])
            if first < 6 and second < 6:
                assert [one.__dict__ for one in found] == [drift(24, 36, 0, levels[2])]
            else:
                assert [(one.begin, one.drift) for one in found] == [(24, False), (36, False)]

    def test_are_a_drift_if_the_first_of_three_jumped(self) -> None:
        levels = [at * SPREAD for at in (0, 7, 12, 17)]
        found = placed(*(part(level, 15) for level in levels), alarms=[15, 30, 45])
        assert [one.__dict__ for one in found] == [step(15, 0, levels[1]), drift(30, 45, levels[1], levels[3])]


class TestARamp:
    FLAT, UP = np.zeros(60), np.linspace(0.003, 0.06, 20)

    def test_of_one_alarm_goes_from_its_first_run_to_its_last(self) -> None:
        (one,) = placed(self.FLAT, self.UP, np.full(30, 0.06), alarms=[70], floor=0.003)
        assert one.__dict__ == drift(60, 79, 0, 0.06, 0.003)

    def test_that_still_goes_on_has_come_to_the_middle_of_its_last_two_runs(self) -> None:
        (one,) = placed(self.FLAT, self.UP, alarms=[70], floor=0.003)
        assert one.__dict__ == drift(60, 79, 0, (0.06 + 0.057) / 2, 0.003)

    def test_is_looked_for_forty_runs_on_both_sides_of_the_split(self) -> None:
        logs = np.concatenate([np.zeros(60), 0.003 * np.arange(1, 61), np.full(60, 0.18)])
        (one,) = placed(logs, alarms=[90], floor=0.002)
        assert (one.begin, one.end) == (60, 119)
        assert (one.before, one.after) == (1, pytest.approx(math.exp(0.18)))

    def test_behind_a_step_is_a_drift_of_its_own(self) -> None:
        found = placed(np.zeros(30), np.full(25, 0.1), 0.1 + self.UP, np.full(30, 0.16), alarms=[30, 65], floor=0.003)
        assert [(one.begin, one.drift) for one in found] == [(30, False), (55, True)]
        assert found[1].__dict__ == drift(55, 74, 0.1, 0.16, 0.003)

    def test_ends_where_the_ramp_of_its_last_alarm_ends(self) -> None:
        found = placed(self.FLAT, self.UP, np.full(30, 0.06), alarms=[64, 74], floor=0.002)
        assert [(one.begin, one.end, one.drift) for one in found] == [(60, 79, True)]

    def test_fits_as_least_squares_say_of_every_step_and_ramp(self) -> None:
        random, ramps = np.random.default_rng(1), 0
        for _ in range(60):
            runs = int(random.integers(7, 15))
            low, high = sorted(random.choice(runs, 2, replace=False).tolist())
            logs = np.interp(np.arange(runs), [low, high], [0, 1]) + 0.2 * random.standard_normal(runs)
            logs[random.random(runs) < 0.05] = np.nan
            expected = ramp_by_least_squares(logs)
            assert ramp_in(logs) == expected
            ramps += expected is not None
        assert 20 <= ramps <= 40


def ramp_by_least_squares(logs: Floats) -> tuple[int, int] | None:
    """The best ramp of five runs or more, if it leaves less than 0.8 of the squares that the best step leaves."""
    known = np.flatnonzero(~np.isnan(logs))
    values, places = logs[known], np.arange(len(known))
    if len(known) < 7:
        return None

    def left(shape: Floats) -> float:
        fit, *_ = np.linalg.lstsq(np.stack([np.ones(len(known)), shape], axis=1), values, rcond=None)
        return float(((values - fit[0] - fit[1] * shape) ** 2).sum())

    step = min(left((places >= at).astype(float)) for at in places[1:])
    ramps = {
        (low, high): left(np.interp(places, [low, high], [0.0, 1.0]))
        for low in places.tolist() for high in places[low + 5 :].tolist()
    }  # fmt: skip
    low, high = min(ramps, key=lambda ends: ramps[ends])
    return (int(known[low]) + 1, int(known[high])) if ramps[low, high] < 0.8 * step else None
