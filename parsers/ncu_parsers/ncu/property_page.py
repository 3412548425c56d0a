"""The raw page as Nsight Compute's window exports it: a row for each property and metric, a column for each launch.

    ID,0,1
    Function Name,gemm,relu
    Grid Size,"   64,   64,    1","  128,    1,    1"
    gpu__time_duration.sum [us],296.74,4.02

It is the transposed wide page: once all rows are there, it is transposed and read as one.
"""

from __future__ import annotations

import re

from ncu_parsers.ncu.csv_pages import WidePage
from ncu_parsers.report_data import report
from ncu_parsers.report_data.cell_text import DELIMITERS, split_row, whole
from ncu_parsers.report_data.report import Launch, Page

may_open_property_page = re.compile('\ufeff?"?ID"?[,;\t]"?\\d').match
"""Whether a line may be the row of launch ids that begins a page."""

_PROCESS = re.compile(r"\[(\d+)\] (.+)")
_INSTANCES_ALONE = re.compile(r"\{[\d.,]+\}")
"""Cell of a metric without a value: only the number of its instances."""


class PropertyPage:
    """Rows of properties and metrics, by title; `launches` transposes them."""

    dialect = "raw page of the user interface, a column for each launch"

    def __init__(self, ids: list[str], delimiter: str) -> None:
        self._delimiter = delimiter
        self._cells = {"ID": ids}

    def feed(self, line: str) -> str:
        """Take in one line: a property or metric with a cell for each launch, or something else."""
        if not line.strip():
            return report.BLANK
        cells = split_row(line, self._delimiter)
        if cells is None or len(cells) != len(self._cells["ID"]) + 1 or not cells[0]:
            return report.BROKEN
        of_launches = ["" if _INSTANCES_ALONE.fullmatch(cell) else cell for cell in cells[1:]]
        return report.METRICS if self._cells.setdefault(cells[0], of_launches) == of_launches else report.BROKEN

    def launches(self) -> list[Launch]:
        """The launches, in column order; [] if no row names their kernels."""
        cells = self._with_processes()
        if not {"Function Name", "Kernel Name"} & cells.keys():
            return []
        page = WidePage([*cells], self._delimiter, quoted=False)
        for row in zip(*cells.values(), strict=True):
            page.take([*row])
        return page.launches()

    def _with_processes(self) -> dict[str, list[str]]:
        """The rows by title, with `Process` cells such as `[4711] app` split into id and name."""
        found = [_PROCESS.fullmatch(cell) for cell in self._cells.get("Process", ())]
        if not found or None in found:
            return self._cells
        numbers, names = zip(*(match.groups() for match in found if match), strict=True)
        kept = {title: cells for title, cells in self._cells.items() if title != "Process"}
        return {**kept, "Process ID": [*numbers], "Process Name": [*names]}


def open_property_page(line: str, current: Page | None) -> Page | None:
    """The page that begins with a line of launch ids; only at the beginning of a file, or below another such page."""
    for delimiter in DELIMITERS if current is None or isinstance(current, PropertyPage) else ():
        cells = split_row(line.lstrip("\ufeff"), delimiter)
        if cells and len(cells) > 1 and cells[0] == "ID" and all(whole(cell) is not None for cell in cells[1:]):
            return PropertyPage(cells[1:], delimiter)
    return None
