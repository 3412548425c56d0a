"""A table of results and its output as text, JSON, CSV and Markdown. Every command that shows a table makes one.

Text is complete for pipes and files, and fitted to the width of a terminal: columns are dropped, the least important
first, before names get too short to distinguish.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from ncu_tools.numbers.number_format import FORMATS
from ncu_tools.report.cell_styles import painted, style_of

JSON_SCHEMA_VERSION = 1

NARROWEST = 24
"""Least width of names while another column can be dropped instead."""

NARROWEST_OF_ALL, NARROWEST_PROSE = 12, 30
GAP, NARROW_GAP = 3, 2

_ACTS = r"\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROL = rf"[\x00-\x1f{_ACTS}\ufffe\uffff]"
"""The last two are not characters, and XML forbids them."""

_CONTROL_IN_JSON = rf"[{_ACTS}]"
"""Characters that JSON allows unescaped, but a terminal may act on."""

_FORMULA = r"(?:^|(?<=[;\t\r\n]))(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n])"
"""Start of a cell that a spreadsheet evaluates, also behind separators of other countries (OWASP, CSV Injection)."""


class Column(NamedTuple):
    """One column: name and unit in machine-readable forms, title and kind of number in text.

    `lower_bound_if` names a column that, where true, makes the value a lower bound, shown with "≥" in front.

    On a terminal, names in `wide` columns may be cut, and sentences in `prose` are wrapped. `spare` ranks columns to
    drop if there is no room: 0 never, else the highest number first and equal ones together; columns without it go
    last, from the right, and `wide` and `prose` ones stay.
    """

    name: str
    title: str
    kind: str = "text"
    unit: str = ""
    wide: bool = False
    lower_bound_if: str = ""
    prose: bool = False
    spare: int | None = None

    @property
    def is_number(self) -> bool:
        """True if values are set flush right."""
        return self.kind != "text"


def columns_of_arguments(
    names: Iterable[str], rows: Sequence[dict[str, Any]], beside: Iterable[Column], spare: int | None = None
) -> list[Column]:
    """A column for each argument, titled by its name; flush right where its values are numbers.

    A name that is the title of a column `beside` it has "argument" in front.
    """
    titles = {column.title for column in beside}
    kinds = {name: {type(row.get(name)) for row in rows} - {type(None)} for name in names}
    return [
        Column(
            name,
            f"argument {name}" if name in titles else name,
            "count" if kind and kind <= {int, float} else "text",
            spare=spare,
        )
        for name, kind in kinds.items()
    ]


def raw_column(name: str, of_type: str, unit: str) -> Column:
    """A column of a file as it is, titled by its name; `of_type` is its Arrow type, as "int64"."""
    return Column(name, name, "number" if of_type.startswith(("int", "float", "double")) else "text", unit)


@dataclass
class Table:
    """Rows of one command's result. None is unknown and shown as an empty cell.

    `more` are further columns for JSON and CSV only, and `extra` further results for JSON only. Columns
    with only None are left out of text and Markdown.
    """

    command: str
    columns: Sequence[Column]
    rows: Sequence[dict[str, Any]]
    notes: Sequence[str] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    more: Sequence[Column] = ()

    def shown_columns(self) -> list[Column]:
        """The columns with any value, and the first one."""
        return [
            column
            for index, column in enumerate(self.columns)
            if index == 0 or any(row.get(column.name) is not None for row in self.rows)
        ]


def printable(text: str) -> str:
    """Text with control characters escaped, so that a kernel name cannot act on a terminal or break XML."""
    return re.sub(_CONTROL, lambda match: f"\\x{ord(match[0]):02x}", text)


def no_formula(text: str) -> str:
    """Text with an apostrophe in front where a spreadsheet would evaluate it."""
    return re.sub(_FORMULA, "'", text)


def cell(column: Column, row: dict[str, Any]) -> str:
    """A value formatted for people."""
    value = _finite(row.get(column.name))
    if value is None:
        return ""
    return ("≥ " if row.get(column.lower_bound_if) else "") + printable(FORMATS[column.kind](value))


def to_json(table: Table) -> Iterator[str]:
    """The JSON envelope in pieces, one per row: schema version, command, columns with units, rows, notes."""
    columns = [*table.columns, *table.more]
    head = {
        "schema_version": JSON_SCHEMA_VERSION,
        "command": table.command,
        "columns": {column.name: column.unit for column in columns},
    }
    yield _json(head).removesuffix("\n}") + ',\n "rows": ['
    before = "\n  "
    for row in table.rows:
        cells = _json({column.name: _finite(row.get(column.name)) for column in columns})
        yield before + cells.replace("\n", "\n  ")
        before = ",\n  "
    yield "\n ]," if table.rows else "],"
    yield _json({**table.extra, "notes": list(table.notes)}).removeprefix("{")


def _json(part: dict[str, Any]) -> str:
    text = json.dumps(part, ensure_ascii=False, allow_nan=False, indent=1)
    return re.sub(_CONTROL_IN_JSON, lambda match: f"\\u{ord(match[0]):04x}", text)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_csv(table: Table) -> Iterator[str]:
    """Plain values under the column names, line by line; an empty cell is unknown.

    Texts can act on no terminal and no spreadsheet.
    """
    columns = [*table.columns, *table.more]
    yield _csv_line([column.name for column in columns])
    for row in table.rows:
        yield "\n" + _csv_line([_plain(row.get(column.name)) for column in columns])


def _csv_line(values: list[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()


def _plain(value: Any) -> Any:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return no_formula(printable(value)) if isinstance(value, str) else value


def to_markdown(table: Table) -> str:
    """A Markdown table with the numbers of the text form, and the notes below."""
    columns = table.shown_columns()
    lines = [
        "| " + " | ".join(column.title for column in columns) + " |",
        "|" + "|".join(" ---: " if column.is_number else " --- " for column in columns) + "|",
    ]
    for row in table.rows:
        lines.append("| " + " | ".join(_indented(_escaped(cell(column, row))) for column in columns) + " |")
    lines += ["", *(f"* {_escaped(printable(note))}" for note in table.notes)] if table.notes else []
    return "\n".join(lines)


def _indented(text: str) -> str:
    """Text with leading spaces kept, which Markdown strips from a cell: they show the tree."""
    bare = text.lstrip(" ")
    return "&nbsp;" * (len(text) - len(bare)) + bare


def markdown_text(text: str) -> str:
    """Lines of text as they are, in Markdown a paragraph each."""
    return "\n\n".join(map(_escaped, text.splitlines()))


def _escaped(text: str) -> str:
    return re.sub(r"([|<>*_`\\\[\]])", r"\\\1", text)


# ---------------------------------------------------------------------------------------------------------------- text


def to_text(table: Table, width: int | None, *, full_names: bool = False, colours: bool = False) -> str:
    """The table as text at most `width` columns wide; unlimited if None.

    Names are cut if there is no room for them; with `full_names` they are wrapped instead, as sentences are.
    With `colours`, cells have those of `cell_styles`, for a terminal.
    """
    columns, sizes, gap = _layout(table, width)
    if gap == GAP:
        return _padded(table, columns, sizes, colours=colours)
    return _fitted(table, columns, sizes, full_names=full_names, colours=colours)


def _padded(table: Table, columns: list[Column], sizes: dict[str, int], *, colours: bool) -> str:
    """The table if every cell fits."""
    titles = [_aligned(column.title, column, sizes) for column in columns]
    rows = (
        [_aligned(cell(column, row), column, sizes, _style(column, row) if colours else "") for column in columns]
        for row in table.rows
    )
    rule = "─" * (_width(columns, sizes, GAP) - GAP)
    lines = [(" " * GAP).join(cells).rstrip() for cells in (titles, [rule], *rows)]
    return "\n".join(f" {line}" for line in lines if line)


def _aligned(text: str, column: Column, sizes: dict[str, int], style: str = "") -> str:
    room = " " * (sizes[column.name] - text_width(text))
    text = painted(text, style)
    return room + text if column.is_number else text + room


def _style(column: Column, row: dict[str, Any]) -> str:
    return style_of(column.name, row.get(column.name))


def _fitted(table: Table, columns: list[Column], sizes: dict[str, int], *, full_names: bool, colours: bool) -> str:
    """The table if cells may be longer than their column."""
    from rich import box  # slow to import, and most tables do not need it
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="", padding=(0, 1, 0, 0))
    for column in columns:
        wraps = column.prose or (column.wide and full_names)
        size = sizes[column.name]
        shown.add_column(
            Text(column.title), justify="right" if column.is_number else "left", no_wrap=not wraps,
            overflow="fold" if wraps else "ellipsis", min_width=size, max_width=size,
        )  # fmt: skip
    for row in table.rows:
        shown.add_row(*(Text(cell(column, row), _style(column, row) if colours else "") for column in columns))
    console = Console(
        width=_width(columns, sizes, GAP), color_system="standard" if colours else None, force_terminal=colours
    )
    with console.capture() as captured:
        console.print(shown)
    return "\n".join(line.rstrip() for line in captured.get().splitlines() if line.strip())


def text_width(text: str) -> int:
    """The width of a text in columns of a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _layout(table: Table, width: int | None) -> tuple[list[Column], dict[str, int], int]:
    """The columns that fit, the width of each by name, and the gap between them."""
    columns = table.shown_columns()
    sizes = {
        column.name: max([text_width(column.title), *(text_width(cell(column, row)) for row in table.rows)])
        for column in columns
    }
    if width is None or _width(columns, sizes, GAP) <= width:
        return columns, sizes, GAP
    kept = _kept(columns, sizes, width)
    return kept, sizes | _shared(kept, sizes, width), NARROW_GAP


def _width(columns: list[Column], sizes: dict[str, int], gap: int) -> int:
    """The total width of the columns, with a gap behind each; that of the last one stands for the edges."""
    return sum(sizes[column.name] + gap for column in columns)


def _least(column: Column, size: int) -> int:
    """The least width of a column."""
    return min(size, NARROWEST_PROSE if column.prose else NARROWEST) if column.prose or column.wide else size


def _kept(columns: list[Column], sizes: dict[str, int], width: int) -> list[Column]:
    """The columns that fit `width`, after dropping the least important ones."""
    kept = list(columns)
    least = {column.name: _least(column, sizes[column.name]) for column in columns}
    for group in _droppable(columns):
        if _width(kept, least, NARROW_GAP) - NARROW_GAP <= width:
            break
        kept = [column for column in kept if column not in group]
    return kept


def _droppable(columns: list[Column]) -> list[list[Column]]:
    """The columns that may be dropped, in order: see `Column.spare`."""
    ranked = sorted((one for one in columns[1:] if one.spare), key=lambda one: -(one.spare or 0))
    groups = [list(group) for _, group in groupby(ranked, key=lambda one: one.spare)]
    others = [[one] for one in reversed(columns[1:]) if one.spare is None and not one.wide and not one.prose]
    return [*groups, *others]


def _shared(columns: list[Column], sizes: dict[str, int], width: int) -> dict[str, int]:
    """The widths of names and sentences: equal shares of the room that the other columns leave."""
    flexible = sorted((one for one in columns if one.wide or one.prose), key=lambda one: sizes[one.name])
    others = [column for column in columns if column not in flexible]
    room = width - _width(others, sizes, NARROW_GAP) - NARROW_GAP * (len(flexible) - 1)
    shares = {}
    for place, column in enumerate(flexible):
        share = max(room // (len(flexible) - place), NARROWEST_OF_ALL)
        shares[column.name] = min(sizes[column.name], share)
        room -= shares[column.name]
    return shares
