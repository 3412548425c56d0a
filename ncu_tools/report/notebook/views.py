"""Views that render themselves in a notebook, by the methods that IPython looks for; IPython itself is not needed."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ncu_launch.errors import WrongUsage
from ncu_launch.files.atomic_files import write_bytes_atomically
from ncu_launch.notes import shown_notes

from ncu_tools.kernels.kernel_row import GROUPS, names_shown
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.pictures import FORMATS
from ncu_tools.report.source_table import COLUMNS
from ncu_tools.report.table import Column, Table, cell, to_text
from ncu_tools.report.timeline_parts import PARTS_OF_TIMELINE
from ncu_tools.timeline.headline import headline
from ncu_tools.timeline.timeline import Timeline

if TYPE_CHECKING:
    import pandas

    from ncu_tools.kernels.kernel_row import Hotspots


KERNEL_COLUMNS = columns(
    "launches time_total_ns time_share flops_per_s dram_bytes_per_s arithmetic_intensity bound bound_fraction "
    "headroom_share"
)
BARS = {
    "time_share": "#56B4E9", "bound_fraction": "#009E73", "headroom_share": "#E69F00",
    "share": "#56B4E9", "stall_share": "#56B4E9",
}  # fmt: skip
"""Columns of shares with a bar of their length, and its colour."""
KERNELS = ("kernel", "next_operation")
"""Columns of full names of kernels."""
CODE = ("text", "waits_for")
"""Columns in a monospaced font."""
NAME_LENGTH = 80
TEXT_WIDTH, ROWS_SHOWN = 120, 20


class Picture:
    """A picture with the pandas table behind it. It is drawn when shown or saved, once per format."""

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
    found: Hotspots,
    table: pandas.DataFrame,
    top: int,
    sentences: Mapping[str, str],
    notes: Sequence[str],
    group: str = "name",
) -> Listing:
    """A listing of kernels by `group` that shows the first `top`, with sentences if given.

    The `notes` come before the notes on the kernels.
    """
    left = max(0, len(found.rows) - top)
    more = [f"{left:,} more kernel{'s' * (left > 1)} in .table"] if left else []
    below = [*more, *shown_notes([*notes, *found.notes])]
    shown = html_of_kernels(found, top, sentences, group)
    return Listing(table, shown + (f"<ul>{_items(below)}</ul>" if below else ""))


def html_of_kernels(
    found: Hotspots, top: int, sentences: Mapping[str, str] = MappingProxyType({}), group: str = "name"
) -> str:
    """The first `top` kernels by `group` as a table with bars, with sentences if given."""
    names = names_shown([one.kernel for one in found.rows], group, NAME_LENGTH)
    shown = [{**asdict(kernel), "diagnosis": sentences.get(kernel.key)} for kernel in found.rows[:top]]
    every = [*_kernel_columns(found), *([column("diagnosis")] if sentences else [])]
    used = [one for one in every if any(row[one.name] is not None for row in shown)]
    return _table([column("kernel", title=GROUPS[group], kind="text"), *used], shown, names)


def _kernel_columns(found: Hotspots) -> list[Column]:
    """The columns of kernels, with the device if there are several."""
    several = len({row.device for row in found.rows}) > 1
    timed = [one._replace(title=found.time_title) if one.title == "time" else one for one in KERNEL_COLUMNS]
    return [*([column("device")] if several else []), *timed]


class TableView:
    """A table for people, and the pandas `table` of all `rows`, of which some may be shown."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], shown: Table) -> None:
        self._rows = rows
        self._shown = shown

    @cached_property
    def table(self) -> pandas.DataFrame:
        """All rows in pandas, integers with missing values as nullable integers."""
        import pandas

        return pandas.DataFrame(self._rows).convert_dtypes()

    def __repr__(self) -> str:
        notes = [f"note: {note}" for note in self._shown.notes]
        return "\n".join([to_text(self._shown, TEXT_WIDTH), *notes])

    def _repr_html_(self) -> str:
        return _table(self._shown.shown_columns(), self._shown.rows) + f"<ul>{_items(self._shown.notes)}</ul>"


class SourceView(TableView):
    """Places inside one kernel, the `top` hottest shown; `table` has all of them in pandas."""

    def __init__(
        self, every: Sequence[Mapping[str, Any]], shown: Sequence[dict[str, Any]], notes: Sequence[str]
    ) -> None:
        super().__init__(every, Table("source", COLUMNS, shown, notes))


def text_of_kernels(found: Hotspots, top: int) -> str:
    """The first `top` kernels as a table of text."""
    name = column("kernel")
    columns = [name, *(one._replace(spare=place) for place, one in enumerate(_kernel_columns(found)))]
    return to_text(Table("hotspots", columns, [asdict(row) for row in found.rows[:top]]), TEXT_WIDTH)


class TimelineView:
    """Time analysis of a recording. `table` has the steps, `part(name)` every other part; `found` is all of it."""

    def __init__(self, found: Timeline) -> None:
        self.found = found
        self.notes = list(found.notes)

    @property
    def table(self) -> pandas.DataFrame:
        """A row for the whole time of each GPU, then one for each step."""
        return self.part("steps")

    def part(self, name: str) -> pandas.DataFrame:
        """One part as a table: steps, verdicts, gaps, longest, copies, collectives, waits, streams or launches.

        Raises `WrongUsage` for other names.
        """
        import pandas

        if name not in PARTS_OF_TIMELINE:
            raise WrongUsage(f"A timeline has no part {name!r}.", advice=f"Use one of: {', '.join(PARTS_OF_TIMELINE)}.")
        table = PARTS_OF_TIMELINE[name].table(self.found, whole=True)
        columns = [column.name for column in table.columns]
        rows = [{column: row.get(column) for column in columns} for row in table.rows]
        return pandas.DataFrame(rows, columns=columns).convert_dtypes()

    def __repr__(self) -> str:
        verdicts = "; ".join(headline(gpu).heading for gpu in self.found.gpus)
        return f"<timeline of {self.found.name!r}: {verdicts}; .table holds its steps, .part(name) the rest>"

    def _repr_html_(self) -> str:
        verdicts = "".join(
            f"<li>{html.escape(one.heading)}: {html.escape(one.text)}</li>" for one in map(headline, self.found.gpus)
        )
        tables = [(part.heading, part.table(self.found, whole=False)) for part in PARTS_OF_TIMELINE.values()]
        names = names_shown(self.found.activity.operations.names, width=NAME_LENGTH)
        return f"<ul>{verdicts}</ul>" + "".join(
            f"<h4>{html.escape(heading)}</h4>"
            + _table(table.shown_columns(), table.rows[:ROWS_SHOWN], names, styled=False)
            for heading, table in tables
            if table.rows
        )


def _items(notes: Iterable[str]) -> str:
    return "".join(f"<li>{html.escape(note)}</li>" for note in notes)


def _table(
    columns: Sequence[Column],
    rows: Sequence[dict[str, Any]],
    names: Mapping[str, str] | None = None,
    *,
    styled: bool = True,
) -> str:
    """A table in HTML. Kernels are shown by their `names`, and in full on hover.

    Every text is escaped: names of kernels and ranges, and source lines, can contain anything.
    """

    def style(column: Column, value: object = None) -> str:
        if styled:
            return _style(column, value)
        return ' style="white-space:nowrap"' if column.is_number else ""  # a number and its unit are one word

    heads = "".join(f"<th{style(column)}>{html.escape(column.title)}</th>" for column in columns)
    body = ""
    for row in rows:
        body += "<tr>"
        for one in columns:
            value = row.get(one.name)
            name = names.get(str(value)) if names and one.name in KERNELS else None
            whole = "" if name is None else f' title="{html.escape(str(value))}"'
            text = cell(one, row if name is None else {one.name: name})
            body += f"<td{style(one, value)}{whole}>{html.escape(text)}</td>"
        body += "</tr>"
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _style(column: Column, value: object) -> str:
    """Numbers right-aligned beside their units, shares with a bar of their length from the left, code monospaced."""
    style = "text-align:right;white-space:nowrap" if column.is_number else "text-align:left"
    if column.name in CODE:
        style += ";font-family:monospace;white-space:pre"
    if column.name in BARS and isinstance(value, float):
        width = f"{100 * min(max(value, 0.0), 1.0):.1f}%"
        style += f";background:linear-gradient(to right,{BARS[column.name]}66 {width},transparent {width})"
    return f' style="{style}"'
