"""Views that render themselves in a notebook, by the methods that IPython looks for; IPython itself is not needed."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ncu_launch.errors import WrongUsage
from ncu_launch.files.atomic_files import write_bytes_atomically

from ncu_tools.report.pictures import FORMATS
from ncu_tools.report.table import Column, cell

if TYPE_CHECKING:
    import pandas

    from ncu_tools.kernels.hotspots import Hotspots


KERNEL_COLUMNS = (
    Column("launches", "launches", "count"),
    Column("time_total_ns", "time", "time"),
    Column("time_share", "share", "fraction"),
    Column("flops_per_s", "FLOP/s", "flop/s", lower_bound_if="flops_lower_bound"),
    Column("dram_bytes_per_s", "DRAM B/s", "byte/s"),
    Column("arithmetic_intensity", "FLOP/B", "number", lower_bound_if="flops_lower_bound"),
    Column("bound", "bound"),
    Column("bound_fraction", "of bound", "fraction"),
    Column("headroom_share", "could save at most", "fraction"),
)
BARS = {"time_share": "#56B4E9", "bound_fraction": "#009E73", "headroom_share": "#E69F00"}
NAME_LENGTH = 80


class Picture:
    """A picture with the pandas table that it shows. It is drawn when shown or saved, once per format."""

    def __init__(
        self, what: str, table: pandas.DataFrame, draw: Callable[[str], bytes], notes: Sequence[str] = ()
    ) -> None:
        self.table = table
        self.notes = list(notes)
        self._what = what
        self._draw = draw
        self._drawn: dict[str, bytes] = {}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture to a .svg, .png or .pdf file. Raises `WrongUsage` for any other suffix."""
        target = Path(path)
        kind = target.suffix.lstrip(".").lower()
        if kind not in FORMATS:
            raise WrongUsage(f"{target} is no picture.", advice="Name a file ending in .svg, .png or .pdf.")
        write_bytes_atomically(target, self._as(kind))
        return target

    def __repr__(self) -> str:
        return f"<{self._what} of {len(self.table)} rows: .table holds them, .save(path) draws them to a file>"

    def _repr_svg_(self) -> str:
        return self._as("svg").decode()

    def _as(self, kind: str) -> bytes:
        if kind not in self._drawn:
            self._drawn[kind] = self._draw(kind)
        return self._drawn[kind]


class Listing:
    """A table for people, with bars, and the pandas `table` of all rows."""

    def __init__(self, table: pandas.DataFrame, page: str) -> None:
        self.table = table
        self._page = page

    def __repr__(self) -> str:
        return f"<hotspots of {len(self.table)} kernels: .table holds them>"

    def _repr_html_(self) -> str:
        return self._page


def listing_of_kernels(
    found: Hotspots, table: pandas.DataFrame, top: int, sentences: Mapping[str, str], notes: Sequence[str]
) -> Listing:
    """A listing of kernels that shows the first `top`, with sentences where given.

    The `notes` come before those on the kernels.
    """
    kernels = found.rows
    shown = [{**asdict(kernel), "diagnosis": sentences.get(kernel.kernel)} for kernel in kernels[:top]]
    columns = [one._replace(title=found.time_title) if one.title == "time" else one for one in KERNEL_COLUMNS]
    columns += [Column("diagnosis", "diagnosis")] if sentences else []
    used = [column for column in columns if any(row[column.name] is not None for row in shown)]
    left = len(kernels) - len(shown)
    more = [f"{left:,} more kernel{'s' * (left > 1)} in .table"] if left else []
    return Listing(table, _page(used, shown, [*more, *dict.fromkeys([*notes, *found.notes])]))


def _page(columns: Sequence[Column], rows: Sequence[dict[str, object]], notes: Sequence[str]) -> str:
    """A table in HTML. Every text of the report is escaped: kernel names can contain anything."""
    heads = "".join(f"<th{_side(column)}>{html.escape(column.title)}</th>" for column in columns)
    body = "".join(
        f"<tr>{_name(str(row['kernel']))}{''.join(_cell(column, row) for column in columns)}</tr>" for row in rows
    )
    below = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    return (
        f'<table><thead><tr><th style="text-align:left">kernel</th>{heads}</tr></thead><tbody>{body}</tbody></table>'
        + (f"<ul>{below}</ul>" if below else "")
    )


def _name(name: str) -> str:
    short = name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 1] + "…"
    label = cell(Column("kernel", "kernel"), {"kernel": short})
    return f'<td style="text-align:left" title="{html.escape(name)}">{html.escape(label)}</td>'


def _cell(column: Column, row: dict[str, object]) -> str:
    return f"<td{_side(column, row.get(column.name))}>{html.escape(cell(column, row))}</td>"


def _side(column: Column, value: object = None) -> str:
    """Style of a cell: numbers flush right; shares with a bar of their length from the left."""
    style = f"text-align:{'right' if column.is_number else 'left'}"
    if column.name in BARS and isinstance(value, float):
        width = f"{100 * min(max(value, 0.0), 1.0):.1f}%"
        style += f";background:linear-gradient(to right,{BARS[column.name]}66 {width},transparent {width})"
    return f' style="{style}"'
