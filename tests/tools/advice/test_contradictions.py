"""Counters of one launch that contradict each other are found, with both numbers; those that agree are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_tools.advice.situation.contradictions import (
    APART,
    CLOCK,
    CYCLES,
    EXCESSIVE,
    IDEAL,
    LATENCY,
    SM_CYCLES,
    THEORETICAL,
    TIME,
    WHOLES,
    contradictions,
    metrics_of_contradictions,
)
from ncu_tools.advice.situation.largest_values import LARGEST, ROUNDING, largest_of
from ncu_tools.advice.situation.utilisation import STALLED
from tests.support.launches import launch, metric, table

SM, MEMORY = WHOLES
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
ACHIEVED, THEORETICAL_WARPS = (
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__maximum_warps_per_active_cycle_pct",
)
WAIT, BARRIER = STALLED.format("wait"), STALLED.format("barrier")


def told(*launches: dict[str, float]) -> list[str]:
    """What is said of the first launch that has each contradiction."""
    made = table(*(launch("k", metrics={name: metric(value) for name, value in one.items()}) for one in launches))
    return [one.told(int(one.launches.argmax())) for one in contradictions(made)]


@pytest.mark.parametrize(
    ("counters", "words"),
    [
        ({ACHIEVED: 90.0, THEORETICAL_WARPS: 50.0}, f"{ACHIEVED} (90) is above {THEORETICAL_WARPS} (50)"),
        ({"sm__cycles_active.avg": 10.0, "sm__cycles_active.max": 9.0}, "sm__cycles_active.avg (10) is above sm__cycles_active.max (9)"),
        ({"sm__cycles_active.min": 10.0, "sm__cycles_active.avg": 9.0}, "sm__cycles_active.min (10) is above sm__cycles_active.avg (9)"),
        ({DRAM: 80.0, SM: 10.0, MEMORY: 70.0}, f"{DRAM} (80) is above {SM} and {MEMORY} (70)"),
        ({CYCLES: 100.0, SM_CYCLES: 120.0}, f"{SM_CYCLES} (120) is not {CYCLES} (100)"),
        ({CYCLES: 100.0, TIME: 200.0, CLOCK: 1e9}, f"{CYCLES} (100) is not {TIME} x {CLOCK} (200)"),
        ({THEORETICAL: 50.0, IDEAL: 40.0, EXCESSIVE: 30.0}, f"{EXCESSIVE} (30) is not {THEORETICAL} - {IDEAL} (10)"),
        ({LATENCY: 5.0, WAIT: 4.0, BARRIER: 2.0}, f"{STALLED.format('*')} (6) add up to more than {LATENCY} (5)"),
    ],
)  # fmt: skip
def test_contradicting_counters_are_reported_with_both_numbers(counters: dict[str, float], words: str) -> None:
    assert told(counters) == [words]


@pytest.mark.parametrize(
    "counters",
    [
        {ACHIEVED: 50.0 * (1 + ROUNDING), THEORETICAL_WARPS: 50.0},
        {DRAM: 80.0, SM: 10.0},
        {DRAM: 80.0, SM: 80.0, MEMORY: 10.0},
        {CYCLES: 100.0, SM_CYCLES: 100.0 * (1 + APART)},
        {CYCLES: 100.0, TIME: 100.0, CLOCK: 1e9},
        {THEORETICAL: 50.0, IDEAL: 40.0, EXCESSIVE: 10.0},
        {LATENCY: 5.0, WAIT: 1.0},
        {LATENCY: 5.0},
        {},
    ],
)
def test_counters_that_agree_or_have_no_counterpart_are_not_reported(counters: dict[str, float]) -> None:
    assert told(counters) == []


@pytest.mark.parametrize(("off", "is_told"), [(0.079, False), (0.081, True)])
def test_contradictions_are_reported_from_eight_per_cent_on(off: float, is_told: bool) -> None:
    for sign in (1, -1):
        assert bool(told({CYCLES: 100.0, SM_CYCLES: 100 * (1 + sign * off)})) == is_told
        assert bool(told({CYCLES: 100.0, TIME: 100 * (1 + sign * off), CLOCK: 1e9})) == is_told
        assert bool(told({THEORETICAL: 50.0, IDEAL: 30.0, EXCESSIVE: 20 + sign * 50 * off})) == is_told
    assert bool(told({LATENCY: 5.0, WAIT: 5 * (1 + off)})) == is_told
    assert not told({LATENCY: 5.0, WAIT: 5 * (1 - off)})
    for off_share, is_above in ((0.9 * ROUNDING, False), (1.1 * ROUNDING, True)):
        assert bool(told({ACHIEVED: 50.0 * (1 + off_share), THEORETICAL_WARPS: 50.0})) == is_above


def test_a_share_that_cannot_be_contradicts_nothing() -> None:
    assert told({DRAM: 230.0, SM: 10.0, MEMORY: 70.0}) == []
    assert told({ACHIEVED: 100.0, THEORETICAL_WARPS: 50.0}) != []
    assert told({ACHIEVED: 106.0, THEORETICAL_WARPS: 50.0}) == []
    assert told({DRAM: 104.0, SM: 10.0, MEMORY: 70.0}) != []


def test_the_launch_that_contradicts_is_found_among_others() -> None:
    good, bad = {ACHIEVED: 40.0, THEORETICAL_WARPS: 50.0}, {ACHIEVED: 60.0, THEORETICAL_WARPS: 50.0}
    assert told(good, bad) == [f"{ACHIEVED} (60) is above {THEORETICAL_WARPS} (50)"]


@given(st.floats(0, 100), st.floats(0, 100))
def test_a_mean_between_minimum_and_maximum_is_no_contradiction(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert (
        told({"sm__cycles_active.min": low, "sm__cycles_active.avg": (low + high) / 2, "sm__cycles_active.max": high})
        == []
    )


def test_every_metric_that_a_rule_looks_at_is_read_from_files() -> None:
    assert {ACHIEVED, THEORETICAL_WARPS, DRAM, SM, MEMORY, CYCLES, SM_CYCLES, TIME, CLOCK, LATENCY, WAIT} <= (
        metrics_of_contradictions()
    )


class TestTheLargestValue:
    @pytest.mark.parametrize("name", ["lts__t_sector_hit_rate.pct", DRAM, THEORETICAL_WARPS, "derived__x_branch_pct"])
    def test_of_a_share_is_a_hundred_per_cent_and_a_few(self, name: str) -> None:
        assert largest_of(name) == pytest.approx(105)

    @pytest.mark.parametrize(("name", "most"), LARGEST.items())
    def test_of_threads_of_a_warp_and_the_like_is_that_of_the_hardware(self, name: str, most: float) -> None:
        assert largest_of(name) == pytest.approx(1.05 * most)

    def test_of_a_count_is_without_limit(self) -> None:
        assert largest_of("dram__bytes.sum") == float("inf")
