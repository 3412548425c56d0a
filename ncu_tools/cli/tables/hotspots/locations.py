"""Rows that are places in a Python program."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

LOCATION = "location"
"""The grouping, and the title of its rows."""
OF_LOCATIONS = columns("kernels~0 hottest_kernel")
"""The additional columns of rows by location."""

_FOLDERS = re.compile(r"[^\s,()]*/(?=[^/\s,()]+\.py\b)")


def with_short_paths(table: Table, width: int | None) -> Table:
    """The table for a terminal of `width` columns, with file names without folders if rows stay distinct.

    A name that is too long is cut before the line number. None for `width` changes nothing.
    """
    if width is None:
        return table
    titles = [str(row["kernel"]) for row in table.rows]
    return replace(
        table, rows=[{**row, "kernel": title} for row, title in zip(table.rows, _short(titles), strict=True)]
    )


def _short(titles: Sequence[str]) -> list[str]:
    short = [_FOLDERS.sub("…/", title) for title in titles]
    times = Counter(short)
    return [one if times[one] == 1 else title for one, title in zip(short, titles, strict=True)]
