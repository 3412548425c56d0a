"""Means of sampled activity over times: by overlap, only where the time is long enough and covered by samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.timelines.activity.samples import LEAST_PERIODS, GpuSamples, merged, rate_text, time_within

PERIOD = 100


def samples(*values: float, times: list[int] | None = None) -> GpuSamples:
    """Samples of one metric, every 100 ns from 0 on."""
    moments = np.array(times if times is not None else np.arange(len(values)) * PERIOD, np.int64)
    return GpuSamples(moments, {"dram": np.array(values, np.float64)})


def mean(of: GpuSamples, start: int, end: int) -> float | None:
    value = float(of.means(np.array([start]), np.array([end])).values["dram"][0])
    return None if np.isnan(value) else value


def count(of: GpuSamples, start: int, end: int) -> int:
    return int(of.means(np.array([start]), np.array([end])).samples[0])


def test_a_mean_weights_each_sample_by_its_overlap() -> None:
    of = samples(0, 100, 100, 100, 100, 100, 0, 0)
    assert mean(of, 100, 600) == 100
    assert mean(of, 50, 600) == pytest.approx(100 * 500 / 550)  # half a period of 0 before
    assert mean(of, 100, 700) == pytest.approx(100 * 500 / 600)


def test_a_sample_holds_until_the_next_one() -> None:
    of = samples(10, 20, times=[0, 100])
    assert (of.ends.tolist(), of.covered_ns, of.lost_ns) == ([100, 200], 200, 0)


def test_a_time_of_fewer_than_five_periods_has_no_mean() -> None:
    of = samples(*[50] * 10)
    assert LEAST_PERIODS == 5
    assert (mean(of, 100, 599), count(of, 100, 599)) == (None, 0)
    assert (mean(of, 100, 600), count(of, 100, 600)) == (50, 5)


@given(inside=st.floats(0, 100), outside=st.floats(0, 100), offset=st.integers(0, 99), periods=st.integers(5, 20))
def test_what_runs_before_and_after_moves_a_mean_by_a_tenth_of_the_difference_at_most(
    inside: float, outside: float, offset: int, periods: int
) -> None:
    start, end = 1000 + offset, 1000 + offset + periods * PERIOD
    edges = np.arange(0, 4001, PERIOD)
    share = np.clip(np.minimum(end, edges[1:]) - np.maximum(start, edges[:-1]), 0, None) / PERIOD
    of = GpuSamples(edges[:-1], {"dram": share * inside + (1 - share) * outside})
    found = mean(of, start, end)
    assert found is not None
    assert abs(found - inside) <= abs(inside - outside) / (2 * periods) + 1e-9


@given(
    values=st.lists(st.integers(0, 100), min_size=6, max_size=30),
    start=st.integers(0, 1500), lasts=st.integers(500, 1500),
)  # fmt: skip
def test_a_mean_equals_that_of_every_nanosecond(values: list[int], start: int, lasts: int) -> None:
    each = np.repeat(np.array(values, float), PERIOD)[start : start + lasts]
    found = mean(samples(*values), start, start + lasts)
    assert found == (pytest.approx(each.mean()) if len(each) >= 0.9 * lasts else None)


def test_where_samples_were_lost_there_is_no_mean() -> None:
    of = samples(*[50] * 20, times=[*range(0, 1000, 100), *range(5000, 6000, 100)])
    assert of.lost_ns == 4000
    assert mean(of, 200, 900) == 50
    assert mean(of, 500, 5500) is None
    assert mean(of, 0, 1050) == 50  # 95 % of it are covered


def test_a_value_that_is_not_known_counts_as_not_covered() -> None:
    of = samples(40, 40, float("nan"), 40, 40, 40, 40, 40, 40, 40, 40, 40)
    assert mean(of, 0, 1200) == 40
    assert mean(of, 0, 600) is None


def test_one_sample_has_no_period_and_gives_no_mean() -> None:
    of = samples(50)
    assert np.isnan(of.period_ns)
    assert mean(of, 0, 10_000) is None


def test_times_that_overlap_or_nearly_touch_become_one() -> None:
    start, end = merged(np.array([50, 0, 300, 120]), np.array([100, 200, 400, 130]), gap_ns=99)
    assert (start.tolist(), end.tolist()) == ([0, 300], [200, 400])
    start, end = merged(np.array([0, 300]), np.array([200, 400]), gap_ns=100)
    assert (start.tolist(), end.tolist()) == ([0], [400])
    assert [len(one) for one in merged(np.array([], np.int64), np.array([], np.int64), 1)] == [0, 0]


def test_the_time_of_others_within_a_time_is_their_overlap_with_it() -> None:
    of = (np.array([0, 100]), np.array([50, 200]))
    start, end = np.array([0, 25, 60, 150, 300]), np.array([200, 125, 90, 400, 400])
    assert time_within(of, start, end).tolist() == [150, 50, 0, 50, 0]
    assert time_within((np.array([], np.int64), np.array([], np.int64)), start, end).tolist() == [0] * 5


def test_rates_are_in_the_unit_that_they_are_asked_for_in() -> None:
    assert [rate_text(period) for period in (100_000, 5_000_000, 24_192)] == ["10 kHz", "200 Hz", "41.3 kHz"]
