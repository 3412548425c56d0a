"""A table of results as text for a terminal."""

from __future__ import annotations

from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from ncu_tools.report.table import Column, Table, cell

NARROWEST = 24
GAP = 2


def to_text(table: Table, width: int, *, full_names: bool = False) -> str:
    """The table as text at most `width` columns wide; wide columns lose the end of long texts unless `full_names`."""
    columns = table.shown_columns()
    cells = [[cell(column, row) for column in columns] for row in table.rows]
    widths = _fitted(columns, cells, width) if not full_names else _natural(columns, cells)
    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="")
    for column, size in zip(columns, widths, strict=True):
        justify: JustifyMethod = "right" if column.is_number else "left"
        shown.add_column(
            Text(column.title), justify=justify, no_wrap=True, overflow="ellipsis", min_width=size, max_width=size
        )
    for row in cells:
        shown.add_row(*map(Text, row))
    console = Console(width=sum(widths) + (GAP + 2) * len(widths), color_system=None)
    with console.capture() as captured:
        console.print(shown)
    return "\n".join(line.rstrip() for line in captured.get().splitlines() if line.strip())


def _natural(columns: list[Column], cells: list[list[str]]) -> list[int]:
    return [
        max([cell_len(column.title), *(cell_len(row[index]) for row in cells)]) for index, column in enumerate(columns)
    ]


def _fitted(columns: list[Column], cells: list[list[str]], width: int) -> list[int]:
    """Widths that fit the page: wide columns share what the others leave, none below `NARROWEST`."""
    sizes = _natural(columns, cells)
    wide = sorted((index for index, column in enumerate(columns) if column.wide), key=lambda index: sizes[index])
    room = (
        width
        - sum(size for size, column in zip(sizes, columns, strict=True) if not column.wide)
        - GAP * (len(sizes) + 1)
    )
    for place, index in enumerate(wide):
        share = max(room // (len(wide) - place), NARROWEST)
        sizes[index] = min(sizes[index], share)
        room -= sizes[index]
    return sizes
