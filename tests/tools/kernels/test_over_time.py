"""Counters over the time of a kernel: sparklines, ramp-up and tail; on real reports too."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hypothesis_numpy
from ncu_parsers.ncu_rep.instructions.time_series import TimeSeries, time_series
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import Floats
from ncu_parsers.sources.sources import Source

from ncu_tools.kernels.source.spread.over_time import BARS, counter_over_time, sparkline
from tests.conftest import SAMPLES, SHARED
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, table_of

REPORT = SHARED / "reports" / "ncu_rep_full" / "AlpriElse__cs599k__silu_triton_silu-2025-04-18-v7.ncu-rep"


def series(values: list[float], metric: str = "sm__cycles_active.avg") -> TimeSeries:
    """A counter with a sample every microsecond, of a kernel as long as its samples."""
    times = np.arange(len(values), dtype=np.float64) * 1000.0
    return TimeSeries(0, "k", "k", metric, times, np.array(values, np.float64), 1000.0 * len(values), 0)


def test_ramp_up_ends_where_the_counter_first_comes_near_its_plateau() -> None:
    found = counter_over_time(series([0, 50, 100, 100, 100, 100, 100, 100, 10, 0]))
    assert (found.ramp_up_ns, found.tail_ns) == (2000, 3000)
    assert (found.mean, found.peak) == (66, 100)


def test_a_counter_that_stays_at_zero_has_no_plateau() -> None:
    found = counter_over_time(series([0, 0, 0]))
    assert (found.ramp_up_ns, found.tail_ns, found.peak) == (None, None, 0)


def test_each_counter_has_its_unit() -> None:
    units = {"sm__cycles_active.avg": "cycle", "sm__ctas_launched.sum": "block", "l1tex__t_sector_hit_rate.pct": "%"}
    assert {name: counter_over_time(series([1], name)).unit for name in units} == units


def test_samples_without_a_value_are_unknown_and_not_zero() -> None:
    found = counter_over_time(series([float("nan"), 4, 4]))
    assert (found.mean, found.samples) == (4, 2)
    assert found.values == [None, 4, 4]
    assert counter_over_time(series([float("nan")])).mean is None


def test_bars_go_from_nothing_to_the_greatest_value() -> None:
    assert sparkline(np.array([0.0, 1000, 2000, 3000]), np.array([0.0, 1, 4, 8]), 4000, 4) == "▁▁▄█"


def test_a_stretch_of_time_without_samples_is_a_space() -> None:
    assert sparkline(np.array([0.0, 3000]), np.array([8.0, 8]), 4000, 4) == "█  █"


@given(hypothesis_numpy.arrays(np.float64, st.integers(1, 50), elements=st.floats(0, 1e12)))
def test_a_sparkline_has_its_width_whatever_the_values(values: Floats) -> None:
    found = sparkline(np.arange(len(values), dtype=np.float64) * 10.0, values, 10.0 * len(values), 20)
    assert len(found) == 20
    assert set(found) <= {*BARS, " "}


@needs_shared_reports
def test_a_real_kernel_is_sampled_for_about_the_time_it_was_measured_to_take() -> None:
    found = time_series(Source(str(REPORT)))
    launches = table_of(REPORT)
    assert launches is not None
    lasted = dict(zip(launches["launch_id"].to_pylist(), tables.floats(launches, "duration_ns").tolist(), strict=True))
    assert {one.launch_id for one in found} == set(lasted)
    for one in found:
        assert one.duration_ns == pytest.approx(lasted[one.launch_id], rel=0.05)
        assert one.times_ns[0] >= 0
        assert one.times_ns[-1] <= one.duration_ns
        assert one.dropped == 0


@needs_shared_reports
def test_blocks_launched_over_time_are_those_of_the_grid() -> None:
    launches = table_of(REPORT)
    assert launches is not None
    blocks = tables.floats(launches, "launch__grid_size").tolist()
    for one in time_series(Source(str(REPORT))):
        if one.metric == "sm__ctas_launched.sum":
            assert np.nansum(one.values) == blocks[one.launch_id]


@needs_shared_reports
def test_samples_on_the_command_line_show_the_longest_launch() -> None:
    result = ran("kernel", "--part", "samples", str(REPORT))
    assert result.exit_code == 0, result.stderr
    assert "silu_kernel_non_strided, launch 1, sampled over 151.6 µs\n" in result.stdout  # its duration is 153.1 µs
    assert "SM active cycles" in result.stdout
    found = json.loads(ran("kernel", "--part", "samples", str(REPORT), "--launch", "0", "--format", "json").stdout)
    assert found["launch_id"] == 0
    assert len(found["rows"][0]["times_ns"]) == len(found["rows"][0]["values"]) > 50


def test_a_report_without_samples_says_how_to_collect_them() -> None:
    result = ran("kernel", "--part", "samples", str(SAMPLES / "d01-wide-raw.csv"))
    assert result.exit_code == 1
    assert "PmSampling" in result.stderr


@needs_shared_reports
def test_a_launch_without_samples_is_refused_with_those_that_have_them() -> None:
    result = ran("kernel", "--part", "samples", str(REPORT), "--launch", "9")
    assert result.exit_code == 1
    assert "silu_kernel_non_strided (launch 1)" in result.stderr
