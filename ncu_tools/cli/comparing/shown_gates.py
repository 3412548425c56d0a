"""Output of the gates of `compare` and `history`: in JSON, below text, above Markdown, beside CSV, as JUnit XML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import WrongUsage

from ncu_tools.cli.options import MACHINE_FORMATS, echo_markdown, echo_text, require_other_output
from ncu_tools.cli.tables.compare.shared import RUN
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table, printable

if TYPE_CHECKING:
    from ncu_tools.compare.gate import Gate, GateOutcome

GATE_COLUMNS = (RUN, *columns("gate outcome~0 reason"))
Outcomes = Mapping[str, Sequence["GateOutcome"]]
"""New run -> the outcome of each gate on it."""


def require_gates(junit: Path | None, gates: Sequence[Gate], runs: Sequence[str]) -> None:
    """Raise `WrongUsage` for --junit without gates, or with a file that is an input."""
    if junit is None:
        return
    if not gates:
        raise WrongUsage("--junit has nothing to write.", "It writes how gates ended.", 'Add one: --fail-on "time>5%"')
    require_other_output(junit, runs)


def rows_of_gates(outcomes: Outcomes) -> list[dict[str, Any]]:
    """A row per new run and gate."""
    return [
        {RUN.name: run, "gate": one.gate.text, "outcome": one.outcome, "reason": one.reason}
        for run, ones in outcomes.items()
        for one in ones
    ]


def table_of_gates(outcomes: Outcomes) -> Table:
    """The outcomes as a table, with the run if there are several."""
    return Table("gates", GATE_COLUMNS if len(outcomes) > 1 else GATE_COLUMNS[1:], rows_of_gates(outcomes))


def show_gates(outcomes: Outcomes, output_format: str) -> None:
    """Write the outcomes after a table: as a table of their own; for machine formats on standard error."""
    table = table_of_gates(outcomes)
    if not table.rows:
        return
    if output_format in MACHINE_FORMATS:
        for row in table.rows:
            click.echo(printable(f"gate {row['gate']}: {row['outcome']}: {row['reason']} ({row[RUN.name]})"), err=True)
        return
    click.echo()
    if output_format == "markdown":
        echo_markdown(table)
    else:
        echo_text(table, full_names=True)


def write_junit(path: Path | None, outcomes: Outcomes) -> None:
    """Write the outcomes as JUnit XML, if a file was requested."""
    if path is None:
        return
    from ncu_launch.files.atomic_files import write_bytes_atomically

    from ncu_tools.report.export.junit import to_junit

    write_bytes_atomically(path, to_junit(outcomes, f"ncu-bench {click.get_current_context().info_name}"))
