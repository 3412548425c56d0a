"""A table of results and its four forms. Every command that shows a table makes one of these."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ncu_tools.report.units import FORMATS

JSON_SCHEMA_VERSION = 1

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Column:
    """One column: its name and unit in machine-readable forms, its title and kind of number in text.

    `lower_bound_if` names a column that, where true, makes the value a lower bound: people see it with "≥" in front.
    """

    name: str
    title: str
    kind: str = "text"
    unit: str = ""
    wide: bool = False
    lower_bound_if: str = ""

    @property
    def is_number(self) -> bool:
        """Whether it is set flush right."""
        return self.kind != "text"


@dataclass
class Table:
    """Rows of one command's result. A value of None is unknown and shown as nothing.

    `extra` holds further results for JSON only. Columns whose every value is None are left out of text and Markdown.
    """

    command: str
    columns: Sequence[Column]
    rows: Sequence[dict[str, Any]]
    notes: Sequence[str] = ()
    extra: dict[str, Any] = field(default_factory=dict)

    def shown_columns(self) -> list[Column]:
        """The columns that hold anything, and the first one."""
        return [
            column
            for index, column in enumerate(self.columns)
            if index == 0 or any(row.get(column.name) is not None for row in self.rows)
        ]


def printable(text: str) -> str:
    """Text with control characters spelled out, so that a kernel name cannot act on a terminal."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def cell(column: Column, row: dict[str, Any]) -> str:
    """A value as people read it."""
    value = row.get(column.name)
    if value is None:
        return ""
    return ("≥ " if row.get(column.lower_bound_if) else "") + printable(FORMATS[column.kind](value))


def to_json(table: Table) -> str:
    """The JSON envelope: schema version, command, columns with units, rows, notes."""
    document = {
        "schema_version": JSON_SCHEMA_VERSION,
        "command": table.command,
        "columns": {column.name: column.unit for column in table.columns},
        "rows": [{column.name: _finite(row.get(column.name)) for column in table.columns} for row in table.rows],
        **table.extra,
        "notes": list(table.notes),
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_csv(table: Table) -> str:
    """Plain values under the column names; an empty cell is unknown."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    for row in table.rows:
        writer.writerow(["" if row.get(column.name) is None else row[column.name] for column in table.columns])
    return out.getvalue().removesuffix("\n")


def to_markdown(table: Table) -> str:
    """A Markdown table with the numbers of the text form, and the notes below."""
    columns = table.shown_columns()
    lines = [
        "| " + " | ".join(column.title for column in columns) + " |",
        "|" + "|".join(" ---: " if column.is_number else " --- " for column in columns) + "|",
    ]
    for row in table.rows:
        lines.append("| " + " | ".join(_escaped(cell(column, row)) for column in columns) + " |")
    lines += ["", *(f"* {_escaped(note)}" for note in table.notes)] if table.notes else []
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return re.sub(r"([|<>*_`\\\[\]])", r"\\\1", text)
