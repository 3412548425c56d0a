"""How tables say what their times are: of the operator collector self CPU or self GPU times, of kernels GPU times."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ncu_tools.report.table import Column, Table

TIME = "time"
TIMES_RATIO = "time ratio"


def said_of_operators(clocks: Collection[str]) -> list[str]:
    """The note on times, FLOPs and bytes of operators, where there are any."""
    from ncu_tools.kernels.operator_times import operators_note

    note = operators_note(frozenset(clocks))
    return [note] if note else []


def titled_times(table: Table, clocks: Collection[str]) -> Table:
    """The table with its columns of times called by the only clock they are of; in JSON, a key `time` says which."""
    from ncu_tools.kernels.operator_times import time_title

    return with_time_title(table, time_title(clocks))


def with_time_title(table: Table, title: str) -> Table:
    """The table with "time" called `title`, which JSON has under the key `time` where it is another word."""
    if title == TIME:
        return table
    columns = with_titles(table.columns, title)
    return Table(table.command, columns, table.rows, table.notes, {TIME: title, **table.extra})


def with_titles(columns: Sequence[Column], title: str) -> list[Column]:
    """The columns, those called "time" and "time ratio" by what the times are."""
    titles = {TIME: title, TIMES_RATIO: f"{title} ratio"}
    return [column._replace(title=titles.get(column.title, column.title)) for column in columns]
