"""The time that a lever leaves: by the busiest resource, by waiting, and by what limits next."""

from __future__ import annotations

import pytest

from ncu_tools.advice.intervals import (
    CODE,
    FEW,
    KINDS,
    PERCENTAGES,
    Confidence,
    calibration,
    confidence,
    what_is_known,
    widened,
)
from ncu_tools.advice.situation.measured import MeasuredKernel
from ncu_tools.advice.situation.model import (
    ALL,
    Effect,
    Left,
    SavedShare,
    effects_overlapping,
    effects_together,
    next_limit,
    resources_that_count,
    saving,
    time_left,
)

HALF = Left.all(0.5)


def kernel(time_ns: float = 1e12, **busy: float) -> MeasuredKernel:
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


def test_the_start_of_a_short_kernel_is_saved_by_nothing_but_at_best() -> None:
    short = Effect({}, Left(0.5, 0.8, 0.9))
    left = [time_left(kernel(3200.0, dram=1e-6), short, case) for case in range(3)]
    assert left == pytest.approx([0.5, 0.5 + 0.5 * 0.8, 0.5 + 0.5 * 0.9])


def test_the_cases_are_ordered_whatever_order_they_come_in() -> None:
    found = saving(kernel(dram=0.5), Effect({}, Left(1.1, 0.8, 0.4)))
    assert found.low < 0 < found.middle < found.high


def test_the_throughput_of_a_whole_counts_only_where_no_part_is_as_busy() -> None:
    assert set(resources_that_count(kernel(memory=0.8, l2=0.79))) == {"l2"}
    assert set(resources_that_count(kernel(memory=0.8, l2=0.3))) == {"memory", "l2"}


def test_a_throughput_with_unknown_busiest_part_falls_with_the_most_relieved_part() -> None:
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


def test_a_kernel_follows_its_bound_by_the_square_of_how_busy_that_is() -> None:
    busy = kernel(dram=0.6, l2=0.3)
    effect = Effect({"dram": HALF}, Left.all(0.8))
    assert time_left(busy, effect, 1) == pytest.approx(0.36 * 0.3 / 0.6 + 0.64 * 0.8)
    assert time_left(busy, Effect({"dram": Left(0.5, 1.5, 1)}, Left(1, 0.8, 0.5)), 1) == pytest.approx(
        0.36 * 0.9 / 0.6 + 0.64 * 0.8
    )
    assert next_limit(busy, effect) == "dram"
    assert next_limit(kernel(), effect) == ""


def test_a_kernel_of_unknown_bound_follows_half_its_relieved_resource_and_half_its_waits() -> None:
    for relieved, waiting in ((0.9, 0.4), (0.3, 0.8)):
        effect = Effect({"dram": Left.all(relieved), "l2": Left.all(1.0)}, Left.all(waiting))
        expected = 0.5 * max(relieved, waiting) + 0.5 * waiting
        assert time_left(kernel(), effect, 1) == pytest.approx(expected)
        assert time_left(kernel(dram=0.0), effect, 1) == pytest.approx(expected)
    assert time_left(kernel(), Effect(waiting=HALF), 1) == pytest.approx(0.75)


def test_a_time_given_by_a_lever_is_no_less_than_the_floor_of_a_launch() -> None:
    effect = Effect(time=Left(0.1, 0.5, 0.9))
    assert [time_left(kernel(), effect, case) for case in range(3)] == [0.1, 0.5, 0.9]
    assert [time_left(kernel(3200.0), effect, case) for case in range(3)] == [0.5, 0.5, 0.9]
    assert time_left(kernel(800.0), effect, 0) == 1
    assert saving(kernel(), effect) == pytest.approx((0.1, 0.5, 0.9))


@pytest.mark.parametrize(("part", "counts"), [(0.781, False), (0.779, True)])
def test_a_whole_does_not_count_beside_a_part_that_is_as_busy_by_two_points(part: float, counts: bool) -> None:
    for whole, name in (("memory", "dram"), ("sm", "fma")):
        assert (whole in resources_that_count(kernel(**{whole: 0.8, name: part}))) == counts


def test_a_whole_falls_with_its_most_relieved_part_or_by_its_own_work() -> None:
    whole = kernel(sm=1.0)
    left = {"fma": Left.all(0.6), "alu": HALF, "dram": Left.all(0.1)}
    assert next_limit(kernel(sm=0.5, l2=0.3), Effect(left)) == "l2"
    assert time_left(whole, Effect({**left, "sm": Left.all(1.0)}), 1) == pytest.approx(1)
    assert time_left(whole, Effect({"dram": HALF}), 1) == pytest.approx(1)


def test_two_effects_multiply_or_the_stronger_one_counts() -> None:
    one = Effect({"dram": Left(0.5, 0.6, 0.7), "l2": HALF}, Left(0.4, 0.5, 0.6), Left(0.2, 0.3, 0.4))
    other = Effect({"dram": Left(0.4, 0.7, 0.8), "fma": HALF}, Left(0.5, 0.4, 0.9))
    both = effects_together(one, other)
    assert both.work == {"dram": pytest.approx((0.2, 0.42, 0.56)), "l2": HALF, "fma": HALF}
    assert (both.waiting, both.time) == (pytest.approx((0.2, 0.2, 0.54)), Left(0.2, 0.3, 0.4))
    stronger = effects_overlapping(one, other)
    assert stronger.work == {"dram": Left(0.4, 0.6, 0.7), "l2": HALF, "fma": HALF}
    assert (stronger.waiting, stronger.time) == (Left(0.4, 0.4, 0.6), Left(0.2, 0.3, 0.4))
    assert effects_together(other, other).time is effects_overlapping(other, other).time is None


class TestTheInterval:
    @pytest.mark.parametrize("known", KINDS)
    @pytest.mark.parametrize(
        ("middle", "nothing"), [(0.4, False), (0.9, False), (0.4, True), (-0.2, False), (1.0, True)]
    )
    def test_is_the_models_spread_and_a_margin_that_shrinks_near_all_of_the_time(
        self, known: str, middle: float, nothing: bool
    ) -> None:
        facts = calibration()[known]
        below, above = facts["nothing" if nothing else "widen"]
        found = widened(SavedShare(middle - 0.1, middle, middle + 0.2), known, brings_nothing=nothing)
        kept = max(0.0, middle)
        low = kept - facts["spread"] * (kept - middle + 0.1) - below
        high = kept + facts["spread"] * (middle + 0.2 - kept) + above * min(1, (1 - kept) / calibration()["room"])
        assert found == pytest.approx((max(0, min(low, kept)), min(kept, 0.995), min(0.995, max(high, kept))))

    def test_follows_from_the_kind_of_report_that_the_kernel_is_from(self) -> None:
        stalled = MeasuredKernel("k", None, "8.0", None, None, 1, 1.0, stalls={"wait": 0.1})
        eight = kernel(**dict.fromkeys("abcdefgh", 0.1))
        assert [what_is_known(stalled, has_code=one) for one in (True, False)] == [CODE, FEW]
        assert [what_is_known(eight, has_code=one) for one in (True, False)] == [PERCENTAGES, PERCENTAGES]
        assert what_is_known(kernel(**dict.fromkeys("abcdefg", 0.1)), has_code=False) == FEW
        for known in KINDS:
            facts = calibration()[known]
            assert confidence(known) == (Confidence(facts["held"], facts["histories"], facts["authors"]))
