"""What moved in a history: counts at their runs, times beside them, and the median of all kernels; by values alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from ncu_parsers.schema.tables import Floats

from ncu_tools.history import changes
from ncu_tools.history.change_points import Shift
from ncu_tools.history.changes import moves_in
from ncu_tools.history.run_summary import RunFacts
from ncu_tools.history.series import EVERY, LAYER, History
from tests.support.histories import history_of_values

NAN = np.nan


def around(*parts: tuple[float, int], w: float = 0.005) -> Floats:
    """Runs around levels that go round in threes: at the level, above and below, with a spread of 1.4826 w."""
    return np.concatenate([level * np.exp(np.resize([0, w, -w], runs)) for level, runs in parts])


def shifts(found: History, quantity: str = "time") -> list[Shift]:
    return [one.shift for one in moves_in(found).found if one.quantity == quantity]


def begins(found: History, quantity: str = "time") -> list[int]:
    return [one.begin for one in shifts(found, quantity)]


class TestBesideACountThatMoved:
    """Three standard errors suffice there, in runs that are too few for a change by times alone."""

    W = 0.005

    @pytest.mark.parametrize(("before", "after"), [(9, 2), (6, 1), (30, 2)])
    def test_a_time_has_changed_from_three_standard_errors_on(self, before: int, after: int) -> None:
        size = 3 * 1.4826 * self.W * math.sqrt(1 / min(before, 20) + 1 / after)
        registers = np.repeat([32.0, 40], [before, after])
        for factor, number in ((0.99, 0), (1.01, 1)):
            times = around((100e3, before), w=self.W).tolist() + [100e3 * math.exp(factor * size)] * after
            found = shifts(history_of_values(registers=registers, time=np.array(times)))
            assert len(found) == number
        (one,) = found
        assert (one.series, one.begin, one.end, one.drift) == (0, before, before, False)
        assert (one.before, one.after) == (pytest.approx(100e3), pytest.approx(100e3 * math.exp(1.01 * size)))
        assert one.spread == pytest.approx(1.4826 * self.W)

    @pytest.mark.parametrize("before", [1, 5])
    def test_of_fewer_than_six_runs_the_spread_is_that_of_all_kernels(self, before: int) -> None:
        others = np.array([100e3, 102e3] * 6)[: before + 1]  # each step is 2 %, over the root of two
        spread = 1.4826 * math.log(1.02) / math.sqrt(2)
        size = 3 * spread * math.sqrt(1 / before + 1)
        registers = np.full((before + 1, 13), 32.0)
        registers[before, 0] = 40
        for factor, number in ((0.99, 0), (1.01, 1)):
            times = np.tile(others[:, None], 13)
            times[:, 0] = 100e3
            times[before, 0] *= math.exp(factor * size)
            found = shifts(history_of_values(registers=registers, time=times))
            assert [one.begin for one in found if one.series == 0] == [before] * number

    def test_a_time_is_held_against_the_runs_up_to_the_next_count_that_moved(self) -> None:
        registers = np.repeat([32.0, 40, 48, 56], [9, 3, 3, 3])
        times = np.repeat([100e3, 150e3, 100e3, 100e3], [9, 3, 3, 3])
        found = shifts(history_of_values(registers=registers, time=times * around((1, 18))))
        assert [(one.begin, round(one.before), round(one.after)) for one in found] == [
            (9, 100000, 150000), (12, 150000, 100000),
        ]  # fmt: skip

    def test_a_time_that_is_not_known_on_one_side_has_not_changed(self) -> None:
        registers = np.repeat([32.0, 40], 3)
        for unknown in (slice(0, 3), slice(3, 6)):
            times = np.array([100e3, 100e3, 100e3, 200e3, 200e3, 200e3])
            times[unknown] = NAN
            assert begins(history_of_values(registers=registers, time=times)) == []

    @pytest.mark.parametrize(("off", "begin"), [(-3, 9), (-2, 12), (-1, 12), (2, 12), (3, 15)])
    def test_a_change_that_times_show_is_placed_there_within_two_runs(self, off: int, begin: int) -> None:
        times, registers = around((100e3, 12 + off), (150e3, 12 - off)), np.repeat([32.0, 40], 12)
        assert begins(history_of_values(registers=registers, time=times)) == [begin]

    @pytest.mark.parametrize(("at", "begin"), [(12, 11), (13, 14)])
    def test_a_change_is_placed_at_the_nearer_of_two(self, at: int, begin: int) -> None:
        times, registers = around((100e3, at), (150e3, 24 - at)), np.repeat([32.0, 40, 48], [11, 3, 10])
        assert begins(history_of_values(registers=registers, time=times)) == [begin]

    @pytest.mark.parametrize(("apart", "found"), [(2, [12]), (3, [12, 15])])
    def test_two_changes_within_two_runs_are_one(self, apart: int, found: list[int]) -> None:
        times = around((100e3, 12), (130e3, apart), (150e3, 12 - apart))
        registers = np.repeat([32.0, 40, 48], [12, apart, 12 - apart])
        assert begins(history_of_values(registers=registers, time=times)) == found

    def test_a_drift_stays_where_it_is(self) -> None:
        times = 100e3 * np.exp(0.004 * np.clip(np.arange(60) - 20, 0, 20)) * around((1, 60), w=0.003)
        (drift,) = shifts(history_of_values(time=times))
        assert drift.drift
        registers = np.repeat([32.0, 40], [drift.begin - 1, 61 - drift.begin])
        assert shifts(history_of_values(registers=registers, time=times)) == [drift]


class TestAnotherCondition:
    def test_is_told_from_the_last_run_that_knew_it(self) -> None:
        known: Sequence[dict[str, str]] = [{"GPU": "a"}, {}, {"GPU": "a", "torch": "1"}, {"GPU": "b"}, {"torch": "2"}]
        moved = moves_in(history_of_values([RunFacts(conditions=one) for one in known], time=np.full(5, 1e5)))
        assert moved.conditions == {3: {"GPU": ("a", "b")}, 4: {"torch": ("1", "2")}}

    def test_lets_times_of_every_kernel_change_there(self) -> None:
        facts = [RunFacts(conditions={"torch": one}) for one in "1112"]
        times = np.array([[100e3, 50e3], [100e3, 50e3], [100e3, 50e3], [150e3, 50e3]])
        assert [(one.series, one.begin) for one in shifts(history_of_values(facts, time=times))] == [(0, 3)]

    def test_of_the_mix_of_launches_is_one_of_its_kernel(self) -> None:
        times, shapes = np.tile([[100e3], [100e3], [150e3]], 2), np.array([[0.5, 0.5], [0.5, 0.5], [0.5, 0.500012]])
        found = history_of_values(time=times, shapes=shapes)
        assert moves_in(found).mixes == {(1, 2)}
        assert [(one.series, one.begin) for one in shifts(found)] == [(1, 2)]


class TestCounts:
    def test_of_one_kernel_may_be_noisy_and_of_another_exact(self) -> None:
        counts = np.stack([np.resize([1000.0, 1100], 24), np.repeat([1000.0, 1100], 12)], axis=1)
        (one,) = shifts(history_of_values(instructions=counts), "instructions")
        assert (one.series, one.begin, one.spread) == (1, 12, 0)

    def test_that_are_noisy_change_as_times_do(self) -> None:
        counts = np.resize([1000.0, 1100], 24) * np.repeat([1, 2], 12)
        (one,) = shifts(history_of_values(instructions=counts), "instructions")
        assert one.begin == 12
        assert one.spread > 0

    def test_of_registers_are_exact_to_and_fro(self) -> None:
        assert begins(history_of_values(registers=np.resize([32.0, 40], 8)), "registers") == [1, 2, 3, 4, 5, 6, 7]


class TestAsOneOfHowManyASeriesIsWatched:
    def test_follows_half_from_its_time_and_half_from_the_number_that_is_asked_for(self) -> None:
        found = history_of_values(time=np.array([[100.0, 100, 50]] * 3), launches=np.array([[1.0, 3, 8]] * 3))
        assert 1 / changes._watched_as(found, np.array([True, True, True])) == pytest.approx(
            [(1 / 3 + 1 / 8) / 2, (1 / 3 + 3 / 8) / 2, (1 / 3 + 4 / 8) / 2]
        )
        assert 1 / changes._watched_as(found, np.array([True, True, False])) == pytest.approx([3 / 8, 5 / 8, 1 / 3])
        assert changes._watched_as(found, np.array([False, True, False]))[1] == 1
        layers = history_of_values(noun=LAYER, time=found.values("time"), launches=found.values("launches"))
        assert changes._watched_as(layers, np.ones(3, bool))[0] == pytest.approx(2 / (1 / 3 + 100 / 250))
        assert changes._watched_as(history_of_values(cycles=np.ones((3, 4))), np.ones(4, bool)).tolist() == [4] * 4

    def test_counts_no_kernel_that_lacks_the_quantity(self) -> None:
        deviations = 0.01 * np.random.default_rng(4).standard_normal((25, 300))
        deviations[20:, 0] += 0.025
        cycles, times = 1e5 * np.exp(deviations), np.full((25, 300), 1e5)
        assert 20 not in begins(history_of_values(time=times, cycles=cycles), "cycles")
        cycles[:, 1:] = NAN
        assert begins(history_of_values(time=times, cycles=cycles), "cycles") == [20]


def test_the_middle_of_a_series_is_that_of_its_last_two_hundred_runs() -> None:
    values = np.stack(
        [np.arange(300.0), np.full(300, NAN), np.where(np.arange(300) % 2, np.arange(300.0), NAN)], axis=1
    )
    assert changes._middle(values) == pytest.approx([199.5, NAN, 200], nan_ok=True)


class TestTheMedianOverKernels:
    @staticmethod
    def every(times: Floats) -> list[Shift]:
        return [one for one in shifts(history_of_values(time=times)) if one.series == EVERY]

    @pytest.mark.parametrize(("kernels", "size", "number"), [(10, 1.0102, 1), (10, 1.0098, 0), (9, 2, 0)])
    def test_moves_by_one_per_cent_of_ten_kernels(self, kernels: int, size: float, number: int) -> None:
        for sizes in (size, 1 / size):
            times = np.array([[100e3], [100e3], [100e3 * sizes]]) * np.linspace(1, 3, kernels)
            found = self.every(times)
            assert len(found) == number
            assert all((one.begin, one.end, one.spread) == (2, 2, pytest.approx(0.01 / 3)) for one in found)
            assert all((one.before, one.after) == pytest.approx((200e3, 200e3 * sizes)) for one in found)

    def test_moves_if_it_is_beyond_three_errors_of_its_own(self) -> None:
        scatter = np.linspace(-0.05, 0.05, 11)  # half of them beyond 0.03 on either side
        error = 1.2533 * 1.4826 * 0.03 / math.sqrt(11)
        for factor, number in ((0.99, 0), (1.01, 1)):
            steps = 3 * factor * error + scatter
            found = self.every(np.stack([np.full(11, 1e5), 1e5 * np.exp(steps)]))
            assert len(found) == number
        assert (found[0].begin, found[0].spread) == (1, pytest.approx(error))

    def test_is_that_of_ratios_to_the_last_known_time_of_each(self) -> None:
        times = np.repeat([[100e3], [NAN], [100e3], [110e3]], 12, axis=1) * np.linspace(1, 2, 12)
        times[2, :6] = NAN
        (one,) = self.every(times)
        assert (one.begin, one.after / one.before) == (3, pytest.approx(1.1))
        assert one.before == pytest.approx(float(np.median(times[2, 6:])))
        (gap,) = self.every(np.delete(times, 2, axis=0))
        assert (gap.begin, gap.before) == (2, pytest.approx(150e3))

    def test_adds_up_from_run_to_run(self) -> None:
        found = self.every(np.repeat([[100e3], [110e3], [110e3], [121e3]], 12, axis=1))
        assert [(one.begin, round(one.before), round(one.after)) for one in found] == [
            (1, 100000, 110000), (3, 110000, 121000),
        ]  # fmt: skip

    @pytest.mark.parametrize(("runs", "number"), [(11, 1), (12, 0)])
    def test_moves_in_one_run_of_fewer_than_twelve(self, runs: int, number: int) -> None:
        times = np.repeat(100e3 * np.repeat([1, 1.2], [runs - 1, 1])[:, None], 12, axis=1)
        assert len(self.every(times)) == number

    def test_is_a_series_like_any_other_in_a_long_history(self) -> None:
        scatter = np.exp(0.01 * np.random.default_rng(0).standard_normal((24, 11)))
        for size, number in ((1.004, 0), (1.03, 1)):
            level = np.repeat([100e3, 100e3 * size], 12)
            assert len(self.every(level[:, None] * scatter)) == number

    def test_does_not_wander_off_where_nothing_changes(self) -> None:
        assert self.every(100e3 * np.exp(0.01 * np.random.default_rng(0).standard_normal((1000, 20)))) == []
