"""The hottest places inside a kernel in a notebook: a table with bars, text at a prompt."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from ncu_tools.report.source_table import COLUMNS
from ncu_tools.report.table import Column, Table, cell, to_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import pandas

TEXT_WIDTH = 120
BAR = "#56B4E966"
BARS = ("share", "stall_share")


class SourceView:
    """Places inside one kernel, the `top` hottest shown; `table` has all of them in pandas."""

    def __init__(self, table: pandas.DataFrame, rows: Sequence[dict[str, Any]], notes: Sequence[str]) -> None:
        self.table = table
        self._shown = Table("source", COLUMNS, rows, notes)

    def __repr__(self) -> str:
        notes = [f"note: {note}" for note in self._shown.notes]
        return "\n".join([to_text(self._shown, TEXT_WIDTH), *notes])

    def _repr_html_(self) -> str:
        """A table in HTML. Every text of the report is escaped: names and source lines can contain anything."""
        columns = self._shown.shown_columns()
        heads = "".join(f"<th{_style(column)}>{html.escape(column.title)}</th>" for column in columns)
        body = "".join(f"<tr>{''.join(_cell(column, row) for column in columns)}</tr>" for row in self._shown.rows)
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self._shown.notes)
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table><ul>{notes}</ul>"


def _cell(column: Column, row: dict[str, Any]) -> str:
    return f"<td{_style(column, row.get(column.name))}>{html.escape(cell(column, row))}</td>"


def _style(column: Column, value: object = None) -> str:
    """Numbers flush right, shares with a bar of their length, code in letters of one width."""
    style = f"text-align:{'right' if column.is_number else 'left'}"
    if column.name in ("text", "waits_for"):
        style += ";font-family:monospace;white-space:pre"
    if column.name in BARS and isinstance(value, float):
        width = f"{100 * min(max(value, 0.0), 1.0):.1f}%"
        style += f";background:linear-gradient(to right,{BAR} {width},transparent {width})"
    return f' style="{style}"'
