"""A table as CSV for spreadsheets: units in the headings, and no text that would run as a formula."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

import pyarrow as pa
from ncu_parsers.schema.tables import field_entries

from ncu_tools.report.table import no_formula, printable

BYTE_ORDER_MARK = "\ufeff"
"""Without it, Excel reads UTF-8 in the code page of the country."""


def to_spreadsheet(table: pa.Table) -> str:
    """Every column of `table` except rules, one line per row. Null and non-finite values are empty cells."""
    columns = [field for field in table.schema if not pa.types.is_list(field.type) or _is_plain(field.type)]
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([_safe(_heading(field)) for field in columns])
    values = [table.column(field.name).to_pylist() for field in columns]
    for row in zip(*values, strict=True):
        writer.writerow([_cell(value) for value in row])
    return BYTE_ORDER_MARK + out.getvalue()


def _is_plain(kind: pa.DataType) -> bool:
    return not pa.types.is_struct(kind.value_type)


def _heading(field: pa.Field) -> str:
    """The column name, with the unit for metrics and columns of a page; our own columns have it in the name."""
    unit, is_own = field_entries(field).get("unit", ""), field.name.isidentifier() and "__" not in field.name
    return field.name if is_own or not unit else f"{field.name} [{unit}]"


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, list):
        words = all(isinstance(item, str) for item in value)
        return _safe(" / ".join(value)) if words else json.dumps(value)
    return _safe(value) if isinstance(value, str) else value


def _safe(text: str) -> str:
    return "\t".join(map(printable, no_formula(text).split("\t")))
