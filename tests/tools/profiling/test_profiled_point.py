"""What a profiled run counted, as columns of a point: sums of launches, and null where one lacks a counter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from ncu_parsers.schema.operator_columns import DIALECT
from ncu_parsers.schema.tables import floats

from ncu_tools.profiling.profiled_point import counted
from ncu_tools.runs.loading import load
from tests.conftest import SAMPLES


@pytest.fixture(scope="module")
def launches() -> Any:
    return load(str(SAMPLES / "d01-wide-raw.csv")).table


def test_flops_bytes_and_time_are_sums_over_launches(launches: Any) -> None:
    found = counted(launches, ("flops", "dram"))
    assert found["profiled_by"] == "ncu"
    assert found["profiled_launches"] == len(launches)
    assert found["profiled_time_ns"] == pytest.approx(floats(launches, "duration_ns").sum())
    assert found["profiled_dram_bytes"] == pytest.approx(floats(launches, "dram_bytes").sum())
    assert found["profiled_operator_bytes"] is None
    assert 0 < found["profiled_dram_fraction"] < 1
    assert found["metric_values"] == {}


def test_sums_of_several_iterations_are_means_of_one(launches: Any) -> None:
    whole, half = (counted(launches, ("dram", "dram__bytes.sum"), iterations) for iterations in (1, 2))
    for name in ("profiled_launches", "profiled_time_ns", "profiled_dram_bytes"):
        assert half[name] == pytest.approx(whole[name] / 2)
    assert half["profiled_dram_fraction"] == whole["profiled_dram_fraction"]
    assert half["metric_values"]["dram__bytes.sum"] == pytest.approx(whole["metric_values"]["dram__bytes.sum"] / 2)
    assert counted(launches, ("dram",), 3)["profiled_launches"] is None


def test_a_launch_that_failed_leaves_nothing_to_sum(launches: Any) -> None:
    at = launches.column_names.index("failed")
    failed = pa.array([True] + [False] * (len(launches) - 1))
    found = counted(launches.set_column(at, launches.schema.field(at), failed), ("dram",))
    assert found == {"profiled_by": "ncu", "profiled_why_not": f"1 of {len(launches)} launches failed"}


def test_a_launch_without_a_counter_makes_the_sum_unknown(launches: Any) -> None:
    at = launches.column_names.index("dram_bytes")
    values = floats(launches, "dram_bytes").copy().tolist()
    values[0] = None
    found = counted(launches.set_column(at, launches.schema.field(at), pa.array(values, pa.float64())), ("dram",))
    assert found["profiled_dram_bytes"] is None
    assert found["profiled_dram_fraction"] is None


def test_counters_asked_for_by_name_or_pattern_are_kept_with_their_unit(launches: Any) -> None:
    name = "dram__bytes.sum"
    assert name in launches.column_names
    found = counted(launches, (name,))
    assert found["metric_values"] == {name: pytest.approx(floats(launches, name).sum())}
    assert found["metric_units"] == {name: "byte"}
    assert name in counted(launches, ("dram__bytes*",))["metric_values"]


def test_quantities_that_do_not_add_up_are_means_weighted_by_time(launches: Any) -> None:
    name = "sm__cycles_elapsed.avg.per_second"
    times, values = floats(launches, "duration_ns"), floats(launches, name)
    assert counted(launches, (name,))["metric_values"][name] == pytest.approx(np.average(values, weights=times))


def test_bytes_of_operators_are_not_called_dram(launches: Any) -> None:
    source = launches.column_names.index("source")
    of_operators = launches.set_column(source, "source", pa.array([DIALECT] * len(launches)))
    found = counted(of_operators, ("flops",))
    assert found["profiled_by"] == "operators"
    assert (found["profiled_dram_bytes"], found["profiled_dram_fraction"]) == (None, None)
    assert found["profiled_operator_bytes"] == pytest.approx(floats(launches, "dram_bytes").sum())
