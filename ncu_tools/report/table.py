"""A table of results and its output as text, JSON, CSV and Markdown. Every command that shows a table makes one.

Text is fitted to a width: columns are dropped, the least important first, before names get short, and names are cut
where they do not differ.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from ncu_tools.kernels.names.distinct_names import cut_end, distinct_names, fitted_names
from ncu_tools.numbers.number_format import FORMATS
from ncu_tools.numbers.text_width import text_width
from ncu_tools.report.cell_styles import painted, style_of
from ncu_tools.report.columns.column import KERNEL as KERNEL
from ncu_tools.report.columns.column import Column as Column

JSON_SCHEMA_VERSION = 1

TOTAL = "is_total"
"""The cell that is true in rows of sums, which are not kernels."""

NARROWEST = 24
"""Least width of names while another column can be dropped instead."""

WIDEST_NAME, WIDEST_PROSE = 60, 240
"""Width of names and sentences in the cells of Markdown."""

NARROWEST_OF_ALL, NARROWEST_PROSE = 10, 30
GAP, NARROW_GAP = 3, 2
GLUE = "\ue000"
"""Stands for the space of "5 %" while lines are broken; a no-break space is one like others to that."""

_ACTS = r"\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROL = rf"[\x00-\x1f{_ACTS}\ufffe\uffff]"
"""Control characters, and two noncharacters that XML forbids."""

_CONTROL_IN_JSON = rf"[{_ACTS}]"
"""Characters that JSON allows unescaped, but a terminal may act on."""

_FORMULA = r"(?:^|(?<=[;\t\r\n]))(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n])"
"""Start of a cell that a spreadsheet evaluates, also after separators of other countries (OWASP, CSV Injection)."""


def columns_of_arguments(
    names: Iterable[str], rows: Sequence[dict[str, Any]], beside: Iterable[Column], spare: int | None = None
) -> list[Column]:
    """A column for each argument, titled by its name; right-aligned if its values are numbers.

    A name that is the title of a column `beside` it gets the prefix "argument".
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
    """A column of a file as it is, titled by its name; `of_type` is its Arrow type, such as "int64"."""
    return Column(name, name, "number" if of_type.startswith(("int", "float", "double")) else "text", unit)


@dataclass
class Table:
    """Rows of one command's result. None is unknown and shown as an empty cell.

    `more` are further columns for JSON and CSV only, and `extra` further results for JSON only. Columns with only None
    are left out of text and Markdown.
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
    """A value formatted for people; words in place of a number, explaining its absence, unchanged."""
    value = _finite(row.get(column.name))
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) or column.kind == KERNEL:
        return printable(str(value))
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


def to_markdown(table: Table, *, full_names: bool = False, wide: bool = False) -> str:
    """A Markdown table with the texts of the text form, and the notes below.

    Names and sentences are cut where they are very long, unless the table is `wide`.
    """
    columns = table.shown_columns()
    cells = _cells(table, columns, full_names=full_names)
    for column in columns:
        if not wide and not _wraps(column, full_names=full_names) and column.is_wide:
            fitted = fitted_names(cells[column.name], WIDEST_NAME)
            cells[column.name] = [fitted[text] for text in cells[column.name]]
        elif not wide and column.prose:
            cells[column.name] = [cut_end(text, WIDEST_PROSE) for text in cells[column.name]]
    lines = [
        "| " + " | ".join(column.title for column in columns) + " |",
        "|" + "|".join(" ---: " if column.is_number else " --- " for column in columns) + "|",
    ]
    for row in zip(*(cells[column.name] for column in columns), strict=True):
        lines.append("| " + " | ".join(_indented(_escaped(text)) for text in row) + " |")
    lines += ["", *(f"* {_escaped(printable(note))}" for note in table.notes)] if table.notes else []
    return "\n".join(lines)


def _indented(text: str) -> str:
    """Text with leading spaces kept, which Markdown strips from a cell: they show the tree."""
    bare = text.lstrip(" ")
    return "&nbsp;" * (len(text) - len(bare)) + bare


def markdown_text(text: str) -> str:
    """Lines of text unchanged, in Markdown a paragraph each."""
    return "\n\n".join(map(_escaped, text.splitlines()))


def _escaped(text: str) -> str:
    return re.sub(r"([|<>*_`\\\[\]])", r"\\\1", text)


# ---------------------------------------------------------------------------------------------------------------- text


def to_text(table: Table, width: int | None, *, full_names: bool = False, colours: bool = False) -> str:
    """The table as text at most `width` columns wide; unlimited if None.

    Kernels have their readable names, all of them distinct. Names are cut in the middle if there is no room for them.
    With `full_names` they are not cut, but wrapped. With `colours`, cells have the colours of `cell_styles`, for a
    terminal.
    """
    columns, cells, sizes, gap = _layout(table, width, full_names=full_names)
    styles = {
        column.name: [style_of(column.name, row.get(column.name)) if colours else "" for row in table.rows]
        for column in columns
    }
    if gap == GAP or not any(_wraps(column, full_names=full_names) for column in columns):
        return _padded(columns, cells, styles, sizes, gap)
    return _wrapped(columns, cells, styles, sizes, full_names=full_names)


def left_out(table: Table, width: int | None) -> int:
    """How many columns have no room in a text of this width."""
    return len(table.shown_columns()) - len(_layout(table, width, full_names=False)[0])


def _wraps(column: Column, *, full_names: bool) -> bool:
    return column.prose or (column.is_wide and full_names)


def _padded(
    columns: list[Column], cells: dict[str, list[str]], styles: dict[str, list[str]], sizes: dict[str, int], gap: int
) -> str:
    """The table if every cell has one line."""
    titles = [
        _aligned(fitted_names([column.title], sizes[column.name])[column.title], column, sizes) for column in columns
    ]
    aligned = (
        [
            _aligned(text, column, sizes, style)
            for text, style in zip(cells[column.name], styles[column.name], strict=True)
        ]
        for column in columns
    )
    rule = "─" * (_width(columns, sizes, gap) - gap)
    lines = [(" " * gap).join(line).rstrip() for line in (titles, [rule], *zip(*aligned, strict=True))]
    edge = " " if gap == GAP else ""
    return "\n".join(edge + line for line in lines if line)


def _aligned(text: str, column: Column, sizes: dict[str, int], style: str = "") -> str:
    room = " " * (sizes[column.name] - text_width(text))
    text = painted(text, style)
    return room + text if column.is_number else text + room


def _wrapped(
    columns: list[Column], cells: dict[str, list[str]], styles: dict[str, list[str]], sizes: dict[str, int], *,
    full_names: bool,
) -> str:  # fmt: skip
    """The table if cells may have several lines."""
    from rich import box  # slow to import, and most tables do not need it
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="", padding=(0, 1, 0, 0))
    for column in columns:
        wraps = _wraps(column, full_names=full_names)
        size = sizes[column.name]
        shown.add_column(
            Text(column.title), justify="right" if column.is_number else "left", no_wrap=not wraps,
            overflow="fold" if wraps else "ellipsis", min_width=size, max_width=size,
        )  # fmt: skip
    for row in range(len(cells[columns[0].name])):
        shown.add_row(
            *(Text(cells[column.name][row].replace(" %", f"{GLUE}%"), styles[column.name][row]) for column in columns)
        )
    with_colours = any(map(any, styles.values()))
    console = Console(
        width=_width(columns, sizes, GAP),
        color_system="standard" if with_colours else None,
        force_terminal=with_colours,
    )
    with console.capture() as captured:
        console.print(shown)
    return "\n".join(line.rstrip() for line in captured.get().replace(GLUE, " ").splitlines() if line.strip())


def _layout(
    table: Table, width: int | None, *, full_names: bool
) -> tuple[list[Column], dict[str, list[str]], dict[str, int], int]:
    """The columns that fit, their cells and width by name, and the gap between them."""
    columns = table.shown_columns()
    cells = _cells(table, columns, full_names=full_names)
    sizes = {column.name: max(map(text_width, [column.title, *cells[column.name]])) for column in columns}
    if width is None or _width(columns, sizes, GAP) <= width:
        return columns, cells, sizes, GAP
    alike = {name for name, texts in cells.items() if len(set(texts)) == 1}
    kept = _kept(columns, sizes, width, alike)
    shares = _shared(kept, sizes, width)
    for column in kept:
        if column.is_wide and not full_names:
            fitted = fitted_names(cells[column.name], shares[column.name])
            cells[column.name] = [fitted[text] for text in cells[column.name]]
    return kept, cells, sizes | shares, NARROW_GAP


def _cells(table: Table, columns: Sequence[Column], *, full_names: bool) -> dict[str, list[str]]:
    """The texts of the cells of each column; kernels by readable names that are distinct in the whole table."""
    named = [column.name for column in table.columns if column.kind == KERNEL and not full_names]
    kernels = [row for row in table.rows if not row.get(TOTAL)]
    names = distinct_names(row[name] for name in named for row in kernels if row.get(name) is not None)

    def shown(column: Column, row: dict[str, Any]) -> str:
        is_named = column.name in named and row.get(column.name) in names
        return printable(names[row[column.name]]) if is_named else cell(column, row)

    return {column.name: [shown(column, row) for row in table.rows] for column in columns}


def _width(columns: list[Column], sizes: dict[str, int], gap: int) -> int:
    """The total width of the columns, with a gap after each; the last gap stands for the edges."""
    return sum(sizes[column.name] + gap for column in columns)


def _kept(columns: list[Column], sizes: dict[str, int], width: int, alike: Container[str]) -> list[Column]:
    """The columns that fit `width`, after dropping the least important ones.

    Ranked columns are dropped until names have half of the width; others only for the least that names need, from the
    right, those first in which all rows are `alike`.
    """
    kept = list(columns)
    others = [one for one in reversed(columns[1:]) if _may_go(one) and one.spare is None]
    several = sum(column.is_wide for column in columns) or 1
    for names, groups in (
        (max(NARROWEST, width // 2 // several), _ranked(columns)),
        (NARROWEST, [[one] for one in sorted(others, key=lambda one: one.name not in alike)]),
    ):
        least = {one.name: _least(one, sizes[one.name], names) for one in columns}
        for group in groups:
            if _width(kept, least, NARROW_GAP) - NARROW_GAP <= width:
                break
            kept = [column for column in kept if column not in group]
    return kept


def _least(column: Column, size: int, names: int) -> int:
    """The least width of a column, if names must have `names`."""
    if column.prose:
        return min(size, NARROWEST_PROSE)
    return min(size, names) if column.is_wide else size


def _ranked(columns: list[Column]) -> list[list[Column]]:
    """The columns with a positive rank, in drop order: see `Column.spare`."""
    ranked = sorted((one for one in columns[1:] if one.spare), key=lambda one: -(one.spare or 0))
    return [list(group) for _, group in groupby(ranked, key=lambda one: one.spare)]


def _may_go(column: Column) -> bool:
    return not column.is_wide and not column.prose


def _shared(columns: list[Column], sizes: dict[str, int], width: int) -> dict[str, int]:
    """The widths of names and sentences: equal shares of the room left by other columns."""
    flexible = sorted((one for one in columns if not _may_go(one)), key=lambda one: sizes[one.name])
    others = [column for column in columns if column not in flexible]
    room = width - _width(others, sizes, NARROW_GAP) - NARROW_GAP * (len(flexible) - 1)
    shares = {}
    for place, column in enumerate(flexible):
        share = max(room // (len(flexible) - place), NARROWEST_OF_ALL)
        shares[column.name] = min(sizes[column.name], share)
        room -= shares[column.name]
    return shares
