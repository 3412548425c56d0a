"""A timeline in a notebook: its parts as pandas tables, and a page of them."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from ncu_launch.errors import WrongUsage

from ncu_tools.report.table import Table, cell
from ncu_tools.report.timeline_parts import PARTS_OF_TIMELINE

if TYPE_CHECKING:
    import pandas

    from ncu_tools.timeline.timeline import Timeline

ROWS_SHOWN = 20


class TimelineView:
    """Where a recording's time goes. `table` has the steps, `part(name)` every other part; `found` is all of it."""

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
        verdicts = "; ".join(f"{gpu.title}: {gpu.whole.verdict.bound or 'no verdict'}" for gpu in self.found.gpus)
        return f"<timeline of {self.found.name!r}: {verdicts}; .table holds its steps, .part(name) the rest>"

    def _repr_html_(self) -> str:
        verdicts = "".join(
            f"<li>{html.escape(gpu.title)}: {html.escape(gpu.whole.verdict.bound or 'no verdict')} "
            f"({html.escape(gpu.whole.verdict.why)})</li>"
            for gpu in self.found.gpus
        )
        tables = [(part.heading, part.table(self.found, whole=False)) for part in PARTS_OF_TIMELINE.values()]
        return f"<ul>{verdicts}</ul>" + "".join(_page(heading, table) for heading, table in tables if table.rows)


def _page(heading: str, table: Table) -> str:
    """A heading with a table in HTML. Every text of the recording is escaped: names can contain anything."""
    columns = table.shown_columns()
    heads = "".join(f"<th>{html.escape(column.title)}</th>" for column in columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell(column, row))}</td>" for column in columns) + "</tr>"
        for row in table.rows[:ROWS_SHOWN]
    )
    return f"<h4>{html.escape(heading)}</h4><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
