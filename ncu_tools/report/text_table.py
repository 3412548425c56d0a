"""A table of results as text: whole for pipes and files, and for a terminal as it fits there.

Where a terminal is narrow, columns are left out, the least important first, before names get too short to tell apart.
"""

from __future__ import annotations

from itertools import groupby

from ncu_tools.report.table import Column, Table, cell

NARROWEST = 24
"""How many letters of names are left, as long as another column can be left out instead."""

NARROWEST_OF_ALL, NARROWEST_PROSE = 12, 30
GAP, NARROW_GAP = 3, 2


def to_text(table: Table, width: int | None, *, full_names: bool = False) -> str:
    """The table as text at most `width` columns wide, each line of it whole where that is None.

    Names lose their ends where there is no room for them; with `full_names`, and where texts are sentences, they go on
    below instead.
    """
    columns, sizes, gap = _layout(table, width)
    if gap == GAP:
        return _padded(table, columns, sizes)
    return _fitted(table, columns, sizes, full_names=full_names)


def _padded(table: Table, columns: list[Column], sizes: dict[str, int]) -> str:
    """The table where there is room for every cell."""
    titles = [_aligned(column.title, column, sizes) for column in columns]
    rows = ([_aligned(cell(column, row), column, sizes) for column in columns] for row in table.rows)
    rule = "─" * (_width(columns, sizes, GAP) - GAP)
    lines = [(" " * GAP).join(cells).rstrip() for cells in (titles, [rule], *rows)]
    return "\n".join(f" {line}" for line in lines if line)


def _aligned(text: str, column: Column, sizes: dict[str, int]) -> str:
    room = " " * (sizes[column.name] - _cells(text))
    return room + text if column.is_number else text + room


def _fitted(table: Table, columns: list[Column], sizes: dict[str, int], *, full_names: bool) -> str:
    """The table where cells may be longer than their column is wide."""
    from rich import box  # most tables do without: its imports take a twelfth of the time of a small command
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="", padding=(0, 1, 0, 0))
    for column in columns:
        goes_on = column.prose or (column.wide and full_names)
        size = sizes[column.name]
        shown.add_column(
            Text(column.title), justify="right" if column.is_number else "left", no_wrap=not goes_on,
            overflow="fold" if goes_on else "ellipsis", min_width=size, max_width=size,
        )  # fmt: skip
    for row in table.rows:
        shown.add_row(*(Text(cell(column, row)) for column in columns))
    console = Console(width=_width(columns, sizes, GAP), color_system=None)
    with console.capture() as captured:
        console.print(shown)
    return "\n".join(line.rstrip() for line in captured.get().splitlines() if line.strip())


def _cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def left_out(table: Table, width: int | None) -> list[Column]:
    """The columns that a terminal of `width` columns has no room for."""
    kept, _, _ = _layout(table, width)
    return [column for column in table.shown_columns() if column not in kept]


def _layout(table: Table, width: int | None) -> tuple[list[Column], dict[str, int], int]:
    """The columns that there is room for, how wide each is by its name, and how far they are apart."""
    columns = table.shown_columns()
    sizes = {
        column.name: max([_cells(column.title), *(_cells(cell(column, row)) for row in table.rows)])
        for column in columns
    }
    if width is None or _width(columns, sizes, GAP) <= width:
        return columns, sizes, GAP
    kept = _kept(columns, sizes, width)
    return kept, sizes | _shared(kept, sizes, width), NARROW_GAP


def _width(columns: list[Column], sizes: dict[str, int], gap: int) -> int:
    """How wide the columns are together, with a gap behind each; that of the last one stands for the edges."""
    return sum(sizes[column.name] + gap for column in columns)


def _least(column: Column, size: int) -> int:
    """How narrow a column may get."""
    return min(size, NARROWEST_PROSE if column.prose else NARROWEST) if column.prose or column.wide else size


def _kept(columns: list[Column], sizes: dict[str, int], width: int) -> list[Column]:
    """The columns that there is room for at `width`, those left out that are missed the least."""
    kept = list(columns)
    least = {column.name: _least(column, sizes[column.name]) for column in columns}
    for group in _leaving(columns):
        if _width(kept, least, NARROW_GAP) - NARROW_GAP <= width:
            break
        kept = [column for column in kept if column not in group]
    return kept


def _leaving(columns: list[Column]) -> list[list[Column]]:
    """The columns that may be left out, in the order in which they are: see `Column.spare`."""
    ranked = sorted((one for one in columns[1:] if one.spare), key=lambda one: -(one.spare or 0))
    groups = [list(group) for _, group in groupby(ranked, key=lambda one: one.spare)]
    others = [[one] for one in reversed(columns[1:]) if one.spare is None and not one.wide and not one.prose]
    return [*groups, *others]


def _shared(columns: list[Column], sizes: dict[str, int], width: int) -> dict[str, int]:
    """What names and sentences get of the room that the other columns leave them, the same for all that need it."""
    flexible = sorted((one for one in columns if one.wide or one.prose), key=lambda one: sizes[one.name])
    others = [column for column in columns if column not in flexible]
    room = width - _width(others, sizes, NARROW_GAP) - NARROW_GAP * (len(flexible) - 1)
    shares = {}
    for place, column in enumerate(flexible):
        share = max(room // (len(flexible) - place), NARROWEST_OF_ALL)
        shares[column.name] = min(sizes[column.name], share)
        room -= shares[column.name]
    return shares
