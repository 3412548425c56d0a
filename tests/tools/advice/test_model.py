"""The time that a lever leaves: by the busiest resource, by waiting, and by what limits next."""

from __future__ import annotations

import pytest

from ncu_tools.advice.situation.measured import MeasuredKernel
from ncu_tools.advice.situation.model import (
    ALL,
    Effect,
    Left,
    effects_overlapping,
    effects_together,
    next_limit,
    resources_that_count,
    saving,
    time_left,
)

HALF = Left.all(0.5)


def kernel(time_ns: float = 1e6, **busy: float) -> MeasuredKernel:
    return MeasuredKernel("kernel", None, "8.0", None, None, 1, time_ns, busy=busy)


def test_a_kernel_that_a_resource_keeps_busy_follows_that_resource() -> None:
    assert time_left(kernel(dram=1.0), Effect({"dram": HALF}), 1) == pytest.approx(
        0.5 / 0.9
    )  # DRAM is busy for 0.9 then


def test_a_kernel_that_nothing_keeps_busy_follows_its_waits() -> None:
    assert time_left(kernel(dram=0.1), Effect({}, HALF), 1) == pytest.approx(0.01 + 0.99 * 0.5)


def test_the_next_resource_limits_what_a_lever_saves() -> None:
    both = kernel(dram=1.0, l2=0.8)
    assert time_left(both, Effect({"dram": Left.all(0.1)}), 1) == pytest.approx(0.8)
    assert next_limit(both, Effect({"dram": Left.all(0.1)})) == "l2"


def test_a_short_kernel_keeps_the_floor_of_a_launch() -> None:
    assert time_left(kernel(2000.0, dram=1.0), Effect({"dram": Left.all(0.0)}), 1) == pytest.approx(0.8)
    assert time_left(kernel(2000.0), Effect(time=Left.all(0.1), has_floor=False), 1) == pytest.approx(0.1)


def test_the_cases_are_ordered_whatever_order_they_come_in() -> None:
    found = saving(kernel(dram=0.5), Effect({}, Left(1.1, 0.8, 0.4)))
    assert found.low < 0 < found.middle < found.high


def test_the_throughput_of_a_whole_counts_only_where_no_part_is_as_busy() -> None:
    assert set(resources_that_count(kernel(memory=0.8, l2=0.79))) == {"l2"}
    assert set(resources_that_count(kernel(memory=0.8, l2=0.3))) == {"memory", "l2"}


def test_a_whole_of_which_the_busiest_part_is_unknown_falls_with_the_most_relieved_part() -> None:
    assert time_left(kernel(memory=1.0), Effect({"l2": HALF}), 1) == pytest.approx(0.5 / 0.9)


def test_two_levers_bring_less_than_their_sum() -> None:
    one, other = Effect({"dram": HALF}, HALF), Effect({"dram": HALF, "l2": HALF}, HALF)
    busy = kernel(dram=0.9, l2=0.6)
    alone = [saving(busy, effect).middle for effect in (one, other)]
    least, most = (saving(busy, both(one, other)).middle for both in (effects_overlapping, effects_together))
    assert max(alone) <= least + 1e-9
    assert least < most < sum(alone)


def test_times_of_two_levers_multiply_where_each_follows_directly() -> None:
    together = effects_together(Effect(time=HALF), Effect(time=HALF))
    assert together.time == Left.all(0.25)
    assert effects_overlapping(Effect(time=HALF), Effect()).time == HALF
    assert effects_overlapping(Effect(waiting=HALF), Effect()).waiting == HALF
    assert ALL.times(HALF) == HALF
