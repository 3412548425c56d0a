"""How evenly units did the work of a launch (balance, launch_balance): from extremes, and from values of each unit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_tools.kernels.source.spread.launch_balance import balances, launch_balance, repeats_mean, unit_kind
from sample_reports import dialects
from sample_reports.dialects import Cell, Printed, Style
from tests.conftest import SAMPLES, SHARED
from tests.support.binary_reports import Kernel, report_of
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, table_of

REPORTS = SHARED / "reports"
TRITON = REPORTS / "ncu_rep_full" / "AlpriElse__cs599k__silu_triton_silu-2025-04-18-v7.ncu-rep"
PHYSICELL = REPORTS / "ncu_rep" / "strrules105__PhysiCell__profile.nsight-cuprof-report"
ACTIVE = "sm__cycles_active"


def launch(**columns: float | None) -> pa.Table:
    """A launch with these metrics; "__" before a rollup stands for a dot."""
    return pa.table({
        name.removesuffix(f"__{end}") + f".{end}": [value]
        for name, value in columns.items()
        for end in [name.rpartition("__")[2]]
    })  # fmt: skip


def test_minimum_mean_and_maximum_over_units_give_the_cost_of_the_slowest() -> None:
    (found,) = balances(
        launch(sm__cycles_active__min=50, sm__cycles_active__avg=75, sm__cycles_active__max=100, sm__inst__max=3)
    )
    assert (found.metric, found.of, found.unit) == (ACTIVE, "SM", "cycle")
    assert (found.least, found.mean, found.most, found.slowest_cost) == (50, 75, 100, 0.25)
    assert (found.count, found.median) == (None, None)


def test_values_of_each_unit_have_a_median_and_a_number_of_units() -> None:
    (found,) = balances(launch(), {f"{ACTIVE}.avg": np.array([10.0, 20, 20, 30, 120])})
    assert (found.metric, found.count, found.median, found.mean) == (ACTIVE, 5, 20, 40)
    assert found.slowest_cost == pytest.approx(2 / 3)


def test_a_mean_that_is_repeated_for_each_unit_is_no_balance() -> None:
    repeated = np.full(80, 10.5375)
    assert repeats_mean(repeated)
    assert balances(launch(), {f"{ACTIVE}.avg": repeated}) == []


def test_counters_that_were_not_collected_or_are_zero_everywhere_are_left_out() -> None:
    assert balances(launch(sm__a__min=0, sm__a__avg=0, sm__a__max=0)) == []
    assert balances(launch(sm__a__min=None, sm__a__avg=1, sm__a__max=2)) == []


@pytest.mark.parametrize(
    ("metric", "unit"),
    [
        ("lts__t_sectors.sum", "L2 slice"),
        ("sm__cycles_elapsed.max", ""),
        ("launch__occupancy_per_block_size", ""),
        ("gpu__time_duration.sum", ""),
    ],
)
def test_only_counters_of_units_and_not_of_passing_time_have_a_unit(metric: str, unit: str) -> None:
    assert unit_kind(metric) == unit


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=50))
def test_the_slowest_costs_between_nothing_and_everything(values: list[float]) -> None:
    for one in balances(launch(), {f"{ACTIVE}.avg": np.array(values)}):
        assert -1e-12 <= one.slowest_cost <= 1
        assert one.median is not None
        assert one.least <= one.median <= one.most


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A report of two launches: four SMs of the first, the longer one, were active unevenly."""
    kernels = [
        Kernel(name, {f"{ACTIVE}.avg": (mean, dict(enumerate(each))), "gpu__time_duration.sum": lasted})
        for name, mean, each, lasted in (
            ("gemm", 25.0, [10.0, 10.0, 30.0, 50.0], 900.0), ("copy", 5.0, [5.0, 5.0, 4.0, 6.0], 300.0),
        )
    ]  # fmt: skip
    path = tmp_path / "uneven.ncu-rep"
    path.write_bytes(report_of(kernels))
    return path


def test_the_longest_launch_is_shown_or_the_one_that_is_named(report: Path) -> None:
    found = json.loads(ran("kernel", "--part", "balance", str(report), "--format", "json").stdout)
    assert (found["kernel"], found["launch_id"]) == ("gemm", 0)
    (row,) = found["rows"]
    assert (row["least"], row["median"], row["mean"], row["most"], row["count"]) == (10, 20, 25, 50, 4)
    assert row["slowest_cost"] == 0.5
    (other,) = json.loads(
        ran("kernel", "--part", "balance", str(report), "--kernel", "copy", "--format", "json").stdout
    )["rows"]
    assert other["most"] == 6


def test_a_launch_that_is_not_there_is_refused(report: Path) -> None:
    result = ran("kernel", "--part", "balance", str(report), "--launch", "7")
    assert result.exit_code == 1
    assert "There are 2 launches." in result.stderr


def test_a_launch_of_a_text_page_is_named_by_its_place(tmp_path: Path) -> None:
    page = tmp_path / "page.txt"
    spread = [Cell(f"sm__cycles_active.{name}", count, "cycle") for name, count in (("min", 5), ("avg", 6), ("max", 9))]
    page.write_text(dialects.text([Printed(at, name, spread) for at, name in enumerate(("k", "m"))], Style()))
    found = json.loads(ran("kernel", "--part", "balance", str(page), "--launch", "1", "--format", "json").stdout)
    assert (found["kernel"], found["launch_id"], found["rows"][0]["most"]) == ("m", 1, 9)


def test_a_run_without_counters_of_units_says_what_to_collect() -> None:
    result = ran("kernel", "--part", "balance", str(SAMPLES / "d04-long-metrics.csv"))
    assert result.exit_code == 1
    assert "sm__cycles_active.min" in result.stderr


@needs_shared_reports
@pytest.mark.slow
def test_a_real_report_shows_the_least_mean_and_most_that_it_holds() -> None:
    found = {row.metric: row for row in launch_balance(str(TRITON)).rows}
    launches = table_of(TRITON)
    assert launches is not None
    held = {end: launches[f"{ACTIVE}.{end}"][1].as_py() for end in ("min", "avg", "max")}
    assert (found[ACTIVE].least, found[ACTIVE].mean, found[ACTIVE].most) == tuple(held.values())
    assert 0 < found[ACTIVE].slowest_cost < 0.05
    assert found["lts__t_sectors"].of == "L2 slice"


@needs_shared_reports
@pytest.mark.slow
def test_a_real_report_that_repeats_the_mean_for_every_unit_is_not_called_balanced() -> None:
    result = ran("kernel", "--part", "balance", str(PHYSICELL))
    assert result.exit_code == 1
    assert "counters have one value for all units, which tells nothing of balance" in result.stderr
