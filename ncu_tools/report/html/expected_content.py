"""Measured against expected as rows of the HTML report: the model, its phases, and the layers with the most work."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pyarrow as pa
from ncu_launch.files.manifest import Manifest

from ncu_tools.model.expected.both_sides import Collection, collection_of
from ncu_tools.model.expected.measured_vs_expected import (
    LAYER,
    OPERATOR,
    ExpectedComparison,
    compare,
    compare_by_shapes,
)
from ncu_tools.model.expected.operators_of_layers import has_work_by_shapes
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.columns.registry import column, columns

EXPECTED_LAYERS_SHOWN = 200
LOWER, ALL_LOWER = "flops_lower_bound", "all_flops_lower_bound"
EXPECTED_COLUMNS = (
    *columns("scope phase~0 module operator measured_flops expected_flops"),
    column("flops_ratio", spare=0, lower_bound_if="flops_lower_bound"),
    *columns(
        "all_flops all_ratio measured_integers expected_integers integers_ratio measured_bytes expected_bytes "
        "bytes_ratio launches"
    ),
)
"""The columns of the command; units as in its output for programs."""
PAGE_COLUMNS = (*EXPECTED_COLUMNS, *columns("causes flops_lower_bound all_flops_lower_bound"))


def expected_rows(
    launches: pa.Table, expected: pa.Table | None, manifest: Manifest | None
) -> tuple[list[dict[str, Any]], list[str]] | None:
    """The rows of a run and notes on them; None if nothing is expected of it.

    `expected` are the operators of one iteration. A trace joined with counts has both sides itself.
    """
    if expected is not None:
        collection = collection_of(manifest) if manifest else Collection()
        comparison = compare(launches, expected, collection=collection)
    elif has_work_by_shapes(launches):
        comparison = compare_by_shapes(launches)
    else:
        return None
    rows, notes = _most_work(comparison)
    return [{**asdict(row), "causes": " ".join(row.causes) or None} for row in rows], notes


def _most_work(comparison: ExpectedComparison) -> tuple[list[Any], list[str]]:
    """The model, its phases, and the layers and operators with the most work, with a note on the others."""
    heads = [row for row in comparison.rows if row.scope not in (LAYER, OPERATOR)]
    found = [row for row in comparison.rows if row.scope in (LAYER, OPERATOR)]
    left_out = len(found) - EXPECTED_LAYERS_SHOWN
    others = counted(left_out, "more row has less work", "more rows have less work")
    more = [f"{others}; ncu-bench compare RUN --with formulas shows all"] if left_out > 0 else []
    return [*heads, *found[:EXPECTED_LAYERS_SHOWN]], [*comparison.notes, *more]
