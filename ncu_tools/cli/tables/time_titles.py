"""Titles of times in tables: self CPU or self GPU times of operators, GPU times of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ncu_tools.report.table import Column, Table

TIME = "time"
TIMES_RATIO = "time ratio"


def with_time_title(table: Table, title: str) -> Table:
    """The table with "time" replaced by `title`, which JSON has under the key `time` if it differs."""
    if title == TIME:
        return table
    columns, more = with_titles(table.columns, title), with_titles(table.more, title)
    return replace(table, columns=columns, more=more, extra={TIME: title, **table.extra})


def with_titles(columns: Sequence[Column], title: str) -> list[Column]:
    """The columns with "time" and "time ratio" replaced by the title of the times."""
    titles = {TIME: title, TIMES_RATIO: f"{title} ratio"}
    return [column._replace(title=titles.get(column.title, column.title)) for column in columns]
