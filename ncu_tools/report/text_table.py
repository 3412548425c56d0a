"""A table of results as text: complete for pipes and files, fitted to the width of a terminal.

On a narrow terminal, columns are dropped, the least important first, before names get too short to distinguish.
"""

from __future__ import annotations

from itertools import groupby

from ncu_tools.report.table import Column, Table, cell

NARROWEST = 24
"""Least width of names while another column can be dropped instead."""

NARROWEST_OF_ALL, NARROWEST_PROSE = 12, 30
GAP, NARROW_GAP = 3, 2


def to_text(table: Table, width: int | None, *, full_names: bool = False) -> str:
    """The table as text at most `width` columns wide; unlimited if None.

    Names are cut if there is no room for them; with `full_names` they are wrapped instead, as sentences are.
    """
    columns, sizes, gap = _layout(table, width)
    if gap == GAP:
        return _padded(table, columns, sizes)
    return _fitted(table, columns, sizes, full_names=full_names)


def _padded(table: Table, columns: list[Column], sizes: dict[str, int]) -> str:
    """The table if every cell fits."""
    titles = [_aligned(column.title, column, sizes) for column in columns]
    rows = ([_aligned(cell(column, row), column, sizes) for column in columns] for row in table.rows)
    rule = "─" * (_width(columns, sizes, GAP) - GAP)
    lines = [(" " * GAP).join(cells).rstrip() for cells in (titles, [rule], *rows)]
    return "\n".join(f" {line}" for line in lines if line)


def _aligned(text: str, column: Column, sizes: dict[str, int]) -> str:
    room = " " * (sizes[column.name] - cells(text))
    return room + text if column.is_number else text + room


def _fitted(table: Table, columns: list[Column], sizes: dict[str, int], *, full_names: bool) -> str:
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
        shown.add_row(*(Text(cell(column, row)) for column in columns))
    console = Console(width=_width(columns, sizes, GAP), color_system=None)
    with console.capture() as captured:
        console.print(shown)
    return "\n".join(line.rstrip() for line in captured.get().splitlines() if line.strip())


def cells(text: str) -> int:
    """The width of a text in columns of a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def left_out(table: Table, width: int | None) -> list[Column]:
    """The columns that do not fit a terminal of `width` columns."""
    kept, _, _ = _layout(table, width)
    return [column for column in table.shown_columns() if column not in kept]


def _layout(table: Table, width: int | None) -> tuple[list[Column], dict[str, int], int]:
    """The columns that fit, the width of each by name, and the gap between them."""
    columns = table.shown_columns()
    sizes = {
        column.name: max([cells(column.title), *(cells(cell(column, row)) for row in table.rows)]) for column in columns
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
