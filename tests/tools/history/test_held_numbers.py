"""The two sides of a gate on a history, by values alone: which runs they have, their medians, and the interval."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ncu_tools.history.held import held
from ncu_tools.history.run_summary import RunFacts
from ncu_tools.history.series import KERNEL, LAYER, POINT, STEP, Renamed
from ncu_tools.numbers.change import Change, Refusal, Subjects
from ncu_tools.numbers.statistics import student_quantile
from tests.support.histories import history_of_values

NAN = np.nan


def on(*devices: str) -> list[RunFacts]:
    return [RunFacts(conditions={"GPU": one} if one else {}) for one in devices]


def whole(found: Subjects, measure: str) -> Change:
    assert found.whole is not None
    return found.whole.changes[measure]


class TestTheRunsOfBothSides:
    @pytest.mark.parametrize(
        ("runs", "window", "drift", "base", "newest"),
        [
            (2, 20, False, [0], [1]), (9, 3, False, [5, 6, 7], [8]), (9, 8, False, range(8), [8]),
            (2, 20, True, [0], [1]), (7, 20, True, [0, 1, 2, 3], [4, 5, 6]), (10, 20, True, range(5), range(5, 10)),
            (13, 20, True, range(8), range(8, 13)), (13, 3, True, [0, 1, 2], range(8, 13)),
        ],
    )  # fmt: skip
    def test_are_the_window_before_the_newest_or_of_a_drift_the_first_and_the_last_five(
        self, runs: int, window: int, drift: bool, base: list[int], newest: list[int]
    ) -> None:
        values = np.random.default_rng(runs).permutation(100)[:runs].astype(float)
        found = whole(held(history_of_values(launches=values), "launches", window, drift=drift), "launches")
        assert (found.base, found.new) == (np.median(values[list(base)]), np.median(values[list(newest)]))
        assert found.compares == ("of 1 run" if len(base) == 1 else f"of {len(base)} runs")

    def test_ran_on_the_device_of_the_newest(self) -> None:
        values = np.array([5.0, 1, 2, 3, 4])
        facts = on("A", "B", "A", "B", "A")
        assert whole(held(history_of_values(facts, launches=values), "launches", 9), "launches").base == 3.5
        drift = whole(held(history_of_values(facts, launches=values), "launches", 9, drift=True), "launches")
        assert (drift.base, drift.new) == (3.5, 4)

    def test_are_none_without_another_run_on_its_device_which_the_reason_says(self) -> None:
        def lacking(*devices: str) -> str:
            return held(history_of_values(on(*devices), time=np.ones(len(devices))), "time", 9).lacks["time"]

        assert lacking("A") == "there is only one run, and none before it to compare with"
        assert lacking("A", "B", "A", "C") == "r3 ran on C, and the runs before it on A, B"
        assert lacking("A", "") == "r1 ran on a device that is not known, and the runs before it on A"
        assert lacking("", "A") == "r1 ran on A, and the runs before it on a device that is not known"
        unknown = held(history_of_values(time=np.ones(3)), "spills", 9)
        assert (unknown.every, unknown.lacks) == ([], {"spills": "no run of this history knows spills"})


class TestTheInterval:
    W = 0.01

    @pytest.mark.parametrize("series", [1, 4])
    def test_is_students_of_both_medians_by_the_spread_of_the_base(self, series: int) -> None:
        base = 100 * np.exp(np.resize([0, self.W, -self.W], 9))
        values = np.repeat(np.append(base, [110.0] * 5)[:, None], series, axis=1)
        change = held(history_of_values(time=values), "time", 9, drift=True).every[0].changes["time"]
        error = 1.4826 * self.W * math.sqrt(1 / 9 + 1 / 5)
        reach, wide = (math.exp(student_quantile(one, 8.0) * error) for one in (0.95, 1 - 0.05 / series))
        assert (change.base, change.new) == pytest.approx((100, 110))
        assert (change.low, change.high, change.low_of_many) == pytest.approx((1.1 / reach, 1.1 * reach, 1.1 / wide))

    def test_has_at_least_the_floor_of_the_measure_as_spread(self) -> None:
        change = held(history_of_values(time=np.full(4, 100.0)), "time", 9).every[0].changes["time"]
        assert change.high == pytest.approx(math.exp(student_quantile(0.95, 2.0) * 0.001 * math.sqrt(1 / 3 + 1)))

    @pytest.mark.parametrize("values", [[1, 1, 1], [NAN, 1, 1, 1], [0, 0, 0, 1], [1, 1, 1, 0]])
    def test_is_not_known_of_fewer_than_three_runs_before_or_of_nothing(self, values: list[float]) -> None:
        change = held(history_of_values(time=np.array(values, float)), "time", 9).every[0].changes["time"]
        assert (change.low, change.high) == (None, None)
        assert (change.base, change.new) == (np.nanmedian(values[:-1]), values[-1])


class TestASeries:
    def test_is_new_or_missing_or_left_out_where_no_side_has_it(self) -> None:
        values = np.array([[9.0, 1, NAN, NAN], [NAN, 1, NAN, 1], [NAN, 1, 1, 1], [NAN, NAN, 3, 1]])
        found = held(history_of_values(None, [Renamed(3, 2, "old", "")], time=values), "time", 2)
        assert [one.names for one in found.every] == [("k1",), ("k2",), ("k3", "old")]
        gone, grown, same = found.every
        assert "is not in the newest run" in gone.missing
        assert (grown.missing, grown.changes["time"].base, same.changes["time"].base) == ("", 1, 1)
        (new,) = held(history_of_values(time=np.array([NAN, 5])), "time", 2).every
        assert new.changes == {"time": Change("time", 0, 5), "launches": Change("launches", 0, 1)}

    def test_has_the_clock_of_its_times_by_the_medians_that_are_known(self) -> None:
        facts = [RunFacts(clock=one) for one in (1e9, None, 3e9, 1.5e9)]
        found = held(history_of_values(facts, time=np.ones(4), cycles=np.ones(4)), "time", 9)
        assert found.every[0].changes["time"].clock == 0.75
        assert held(history_of_values(facts, cycles=np.ones(4)), "cycles", 9).every[0].changes["cycles"].clock == 1
        unknown = [*facts[:3], RunFacts()]
        assert held(history_of_values(unknown, time=np.ones(4)), "time", 9).every[0].changes["time"].clock == 1


class TestTheRun:
    def test_is_the_time_of_all_launches_of_kernels_and_the_sum_of_others(self) -> None:
        values = {"time": np.array([[10.0, 5], [20, 5]]), "launches": np.array([[2.0, 1], [2, 1]])}
        kernels = whole(held(history_of_values(None, (), KERNEL, **values), "time", 9), "time")
        assert (kernels.base, kernels.new) == (25, 45)
        layers = whole(held(history_of_values(None, (), LAYER, **values), "time", 9), "time")
        assert (layers.base, layers.new) == (15, 25)
        launches = whole(held(history_of_values(None, (), KERNEL, **values), "launches", 9), "launches")
        assert (launches.base, launches.new) == (3, 3)

    def test_is_not_known_where_a_kernel_that_ran_is_not(self) -> None:
        def of(launches: float) -> Change:
            values = np.array([[10.0, 5], [20, NAN]])
            ran = np.array([[1.0, launches], [1, launches]])
            return whole(held(history_of_values(time=values, launches=ran), "time", 9), "time")

        assert (of(1).base, of(1).new) == (15, None)
        assert (of(NAN).base, of(NAN).new) == (10, 20)

    def test_is_held_against_the_runs_of_the_same_work(self) -> None:
        launches, shapes = np.ones((4, 2)), np.zeros((4, 2))
        launches[0, 0], shapes[2, 1] = 2, 0.5
        times = np.array([[1.0, 0], [2, 0], [3, 0], [4, 0]])
        found = whole(held(history_of_values(time=times, launches=launches, shapes=shapes), "time", 9), "time")
        assert (found.base, found.compares) == (2, "of 1 run")

    def test_is_refused_where_no_run_did_the_same_work_which_the_reason_says_of_the_last(self) -> None:
        launches = np.array([[NAN, 1, 1, 1, 1], [1, 1, 1, 2000, 1], [NAN, 1, 1, 1, 1]])
        shapes = np.array([[NAN, 0, 0, 0, 0], [0, 0, 0, 0, 0], [NAN, 0, 1, 0, 1]])
        renamed = [Renamed(4, 1, "old", ""), Renamed(4, 2, "older", "")]
        values = {"time": np.ones((3, 5)), "launches": launches, "shapes": shapes}
        found = held(history_of_values(None, renamed, KERNEL, **values), "time", 9)
        assert found.whole is not None
        words = "1 -> 0 launches of k0, 2,000 -> 1 launches of k3, another grid, block or range of k2"
        assert found.whole.refusal == Refusal(f"not the same work: {words}", "kernel:NAME:")
        early = held(history_of_values(None, renamed[:1], KERNEL, **values), "time", 9)  # renamed before: another grid
        assert early.whole is not None
        assert early.whole.refusal is not None
        assert early.whole.refusal.reason.endswith("k2, and 1 more")
        steps = held(history_of_values(None, (), STEP, **values), "time", 9).whole
        assert steps is not None
        assert steps.refusal is None

    def test_is_none_of_points_and_has_no_sum_of_registers(self) -> None:
        assert held(history_of_values(noun=POINT, time=np.ones(3)), "time", 9).whole is None
        found = whole(held(history_of_values(registers=np.ones(3)), "registers", 9), "registers")
        assert found.unlike == "registers have no sum over kernels: gate any:registers or kernel:NAME:registers"
