"""What the table `metrics` says of metrics: from this project's tables, and from how their names read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from ncu_parsers.schema.tables import field_metadata

from ncu_tools.kernels.view.columns.metric_table import metrics_table


def told(name: str, unit: str = "", *, filled: bool = True) -> dict[str, Any]:
    """The row of a metric that a run has as a column."""
    schema = pa.schema([pa.field(name, pa.float64(), metadata=field_metadata(unit=unit))])
    rows: list[dict[str, Any]] = metrics_table(schema, [name] if filled else []).to_pylist()
    (row,) = (row for row in rows if row["metric"] == name)
    return row


@pytest.mark.parametrize(
    ("metric", "counted_on", "calculation"),
    [
        ("lts__t_sectors.sum", "slices of the L2 cache", "sum over all instances of the unit"),
        ("dram__bytes.sum.per_second", "device memory", "sum over all instances of the unit, per second"),
        ("launch__grid_size", "launch, as it was configured", None),
        ("smsp__inst_executed.sum.per_cycle_somewhere", "quarters of the SMs, each with a scheduler", None),
        ("xyz__new.sum", None, "sum over all instances of the unit"),
        ("Host Name", None, None),
    ],
)
def test_the_name_of_a_metric_is_read_as_far_as_its_parts_are_known(
    metric: str, counted_on: str | None, calculation: str | None
) -> None:
    row = told(metric)
    assert (row["counted_on"], row["calculation"]) == (counted_on, calculation)


def test_a_metric_that_no_table_describes_has_no_description() -> None:
    row = told("xyz__new.sum", "sector")
    assert (row["description"], row["description_source"], row["short_name"]) == (None, None, None)
    assert (row["unit"], row["combined"], row["in_run"]) == ("sector", "sum", True)


def test_a_column_without_values_is_not_in_the_run() -> None:
    assert told("xyz__new.sum", filled=False)["in_run"] is False


def test_whatever_has_a_description_says_where_it_is_from() -> None:
    rows = metrics_table(pa.schema([]), ()).to_pylist()
    assert len(rows) == len({row["metric"] for row in rows}) > 200
    assert all((row["description"] is None) == (row["description_source"] is None) for row in rows)
    assert sum(row["description"] is not None for row in rows) > 150
