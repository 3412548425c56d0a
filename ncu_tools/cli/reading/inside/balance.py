"""ncu-bench kernel --part balance: counters of one launch over the units of the chip."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from ncu_launch.notes import Note, NoteKind

from ncu_tools.cli.options import format_option, progress, show
from ncu_tools.cli.reading.inside.samples import launch_options
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.numbers.number_format import duration
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    from ncu_tools.runs.selection import Selection

COLUMNS = columns("metric of count~4 least~0 median~2 mean~1 most~0 value.unit~3 slowest_cost~0")
SLOWEST = (
    "slowest costs: what an even spread would take off the unit with the most, 1 - mean / most. Of active cycles it is "
    "the part of the slowest unit's time in which the average one does not work"
)


@click.command()
@launch_options
@format_option
def command(run: str, launch: int | None, output_format: str, only: Selection | None) -> None:
    """Show how evenly SMs, L2 slices and other units did the work of one launch.

    RUN is any run that has the least, mean and most of a counter over all units of a kind, or a binary report with the
    value of each unit, which also has a median.

    \b
    Example:
      ncu-bench kernel report.csv --part balance
      ncu-bench kernel report.ncu-rep gemm --part balance --launch 12
    """
    from ncu_tools.kernels.source.spread.launch_balance import launch_balance
    from ncu_tools.report.head import head_of

    with progress("Reading") as reading:
        found = launch_balance(run, only, launch, reading)
    lasted = [] if found.duration_ns is None else [duration(found.duration_ns)]
    facts = [f"launch {found.launch_id}", *lasted]
    name = readable_name(found.kernel_name)
    notes = [Note(f"{name}: {', '.join(facts)}", NoteKind.IN_HEAD), Note(SLOWEST, NoteKind.METHOD), *found.notes]
    extra = {"kernel": found.kernel_name, "launch_id": found.launch_id}
    head = head_of([run], more=(name, *facts), only=only)
    show(Table("samples", COLUMNS, [asdict(row) for row in found.rows], notes, extra), output_format, head=head)
