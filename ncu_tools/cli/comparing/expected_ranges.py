"""The table of `compare --with formulas` for a program with user ranges."""

from __future__ import annotations

from dataclasses import asdict

import pyarrow as pa
from ncu_parsers.schema import tables
from ncu_parsers.schema.operator_columns import BY_OPERATOR

from ncu_tools.cli.options import show
from ncu_tools.model.expected.user_ranges import Pass, compare_ranges
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.head import Head
from ncu_tools.report.table import Table

LOWER = "flops_lower_bound"
COLUMNS = (
    *columns("range passes launches time_ns wall_ns~1 measured_flops expected_flops"),
    column("flops_ratio", lower_bound_if="flops_lower_bound"),
    *columns("measured_bytes expected_bytes bytes_ratio"),
)
PER_PASS = "every value is for one pass; expected is your own formula, given to ncu_tools.range"  # noqa: S105
BY_COUNTERS = "FLOPs and bytes were counted by hardware: bytes are DRAM traffic, which caches make smaller"
BY_SHAPES = "FLOPs and bytes were not measured: they follow from the shapes of operators"


def show_ranges(table: pa.Table, passes: list[Pass], notes: list[str], output_format: str, head: Head) -> None:
    """Print the measurements of every range beside its formula, below the head of the run."""
    rows = [asdict(row) for row in compare_ranges(table, passes)]
    by_operators = set(tables.words(table, "source")) <= BY_OPERATOR
    if by_operators:
        columns = [one._replace(title="operators") if one.name == "launches" else one for one in COLUMNS]
    else:
        columns = list(COLUMNS)
    basis = BY_SHAPES if by_operators else BY_COUNTERS
    empty = [row["range"] for row in rows if not row["launches"]]
    if empty:
        notes = [f"nothing was collected inside of {', '.join(empty)}", *notes]
    show(Table("expected", columns, rows, [PER_PASS, basis, *notes]), output_format, head=head)
