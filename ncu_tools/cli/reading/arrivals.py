"""ncu-bench advise RANK...: the rank that arrives last at the collectives of a job, from a recording per rank."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any

import click

from ncu_tools.cli.options import format_option, progress, show
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

COLUMNS = columns(
    "arrival.rank arrival.collectives arrival.last arrival.late_ns arrival.waited_ns arrival.instead "
    "arrival.recording~0"
)


@click.command()
@click.argument("ranks", nargs=-1, required=True)
@format_option
def command(ranks: tuple[str, ...], output_format: str) -> None:
    """Say which rank of a job arrives last at its collectives, and what it did instead.

    RANKS are recordings of the same steps, one of each rank. Ranks leave a collective together, by which their clocks
    are set; the transfer takes the shortest time over ranks, and the rest is waiting for the last. JSON has every
    collective.

    \b
    Example:
      ncu-bench advise rank0.json.gz rank1.json.gz
    """
    from ncu_launch.errors import NcuBenchError

    from ncu_tools.report.head import head_of
    from ncu_tools.timeline.levers.arrivals import arrivals
    from ncu_tools.timeline.load_activity import load_activity

    try:
        with progress("Reading") as reading:
            found = arrivals([load_activity(one, reading) for one in ranks])
    except NcuBenchError as error:
        if len(ranks) != 2 or type(error) is not NcuBenchError:
            raise
        of_two = f"Of two reports of ncu: ncu-bench advise {shlex.join([ranks[0], '--against', ranks[1]])}"
        raise NcuBenchError(error.what, error.cause, f"{error.advice} {of_two}".lstrip()) from error
    rows: list[dict[str, Any]] = [{**asdict(one), "recording": one.name} for one in found.ranks]
    extra = {"collectives": [asdict(one) for one in found.collectives]} if output_format == "json" else {}
    show(Table("arrivals", COLUMNS, rows, list(found.notes), extra), output_format, head=head_of(list(ranks)))
