"""Measured against expected as rows of the HTML report."""

from __future__ import annotations

import pyarrow as pa

from ncu_tools.report.html.expected_content import EXPECTED_COLUMNS, expected_rows
from ncu_tools.report.table import cell
from tests.support.launches import launch, sass, table


def joined(*operators: str) -> pa.Table:
    """Launches with counted FLOPs, and the FLOPs of their operators by shapes."""
    counted = table(*(launch(f"k{name}", metrics=sass(ffma=50)) for name in operators))
    for name, values in (
        ("operator", list(operators)), ("flops_by_shapes", [100.0] * len(operators)),
        ("bytes_by_shapes", [8.0] * len(operators)), ("operator_call", list(range(len(operators)))),
    ):  # fmt: skip
        counted = counted.append_column(name, pa.array(values))
    return counted


def test_a_run_of_which_nothing_is_expected_has_no_rows() -> None:
    assert expected_rows(table(launch(metrics=sass(ffma=50))), None, None) is None


def test_a_trace_joined_with_counts_is_compared_by_operator() -> None:
    found = expected_rows(joined("aten::mm", "aten::relu"), None, None)
    assert found is not None
    rows, _ = found
    by_operator = {row["operator"]: row for row in rows if row["operator"]}
    assert by_operator.keys() == {"aten::mm", "aten::relu"}
    assert (by_operator["aten::mm"]["measured_flops"], by_operator["aten::mm"]["all_flops"]) == (100, 100)


def test_a_ratio_of_flops_that_are_a_lower_bound_is_one_too() -> None:
    row = {"measured_flops": 90.0, "flops_ratio": 0.9, "all_ratio": 0.75, "flops_lower_bound": True}
    shown = {column.name: cell(column, row) for column in EXPECTED_COLUMNS if column.name in row}
    assert shown == {"measured_flops": "≥ 90 FLOP", "flops_ratio": "≥ 0.9", "all_ratio": "≥ 0.75"}
