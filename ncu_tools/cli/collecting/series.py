"""ncu-bench bench SWEEP -x COLUMN: quantities of points against one of them, as a table and a picture."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ncu_tools.cli.option_kinds.list_option import list_option
from ncu_tools.cli.options import FILE, MACHINE_FORMATS, format_option, show
from ncu_tools.cli.terminal_notes import picture_written
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.pictures import format_of
from ncu_tools.report.table import Column, Table, columns_of_arguments

if TYPE_CHECKING:
    from ncu_tools.bench.point_series import PointSeries

INTERVAL = columns("latency_low_ns latency_high_ns")
OUTCOME = columns("outcome reason")


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="SWEEP...")
@click.option(
    "-x", "--x", "across", required=True, metavar="COLUMN", help="What the horizontal axis is: n, batch, tokens ..."
)
@list_option(
    "-y", "--y", "up", default=("time",), metavar="COLUMN,...",
    help="What is shown over it: time, flops, bytes, dram, dram_pct, memory, flops_per_s, bytes_per_s, or any column.  "
    "[default: time]",
)  # fmt: skip
@list_option("--by", metavar="COLUMN,...", help="A series for each value of these; if not given, of all that differs.")
@click.option("-o", "--output", type=FILE, help="Draw to this .svg, .png or .pdf file.")
@click.option(
    "--title",
    help="Title of the picture; by default model, batch, phase and device of all points; an empty one leaves it out.",
)
@click.option(
    "--size", metavar="SIZE",
    help="Size of the picture, as of roofline: column (of a paper), page, slide, WIDTHxHEIGHT in inches, 18x12cm.",
)  # fmt: skip
@format_option
def command(
    runs: tuple[str, ...],
    across: str,
    up: tuple[str, ...],
    by: tuple[str, ...],
    output: Path | None,
    title: str | None,
    size: str | None,
    output_format: str,
) -> None:
    """Show quantities of points against one of them: any columns of a sweep, or of a profile of several points.

    SWEEP is a run folder of ncu-bench bench or of ncu-bench profile --vary, or its Parquet file. The columns are those
    of docs/bench.md, the arguments of your function, and the counters that were asked for by name. An axis is
    logarithmic where its values span decades, and bars show 95 % intervals of mean times.

    \b
    Example:
      ncu-bench bench sweep/ -x n -y time,flops_per_s --by dtype -o sizes.svg
      ncu-bench bench run/ -x n -y dram_pct --format csv
    """
    from ncu_tools.bench.point_series import point_series
    from ncu_tools.report.head import Head
    from ncu_tools.report.plot.page_size import size_of

    format_of(output)
    inches = size_of(size) if size is not None else None
    found = point_series(runs, across, up, by)
    notes = [*found.notes, *(_drawn(found, output, title, inches) if output is not None else [])]
    head = Head(runs, more=(counted(len(found.rows), "point", "points"),))
    show(_table(found, notes, output_format), output_format, head=head)


def _table(found: PointSeries, notes: list[str], output_format: str) -> Table:
    quantities = [
        Column(one.name, one.name if one.name == one.column else f"{one.name} ({one.column})", one.kind, one.unit)
        for one in (found.x, *found.ys)
    ]
    by = columns_of_arguments(found.by, found.rows, (*quantities, *OUTCOME), spare=0)
    has_times = any(one.column == "latency_mean_ns" for one in found.ys)
    interval = INTERVAL if has_times and output_format in MACHINE_FORMATS else ()
    drawn = {"x": asdict(found.x), "y": [asdict(one) for one in found.ys], "by": found.by}
    return Table("series", (*by, *quantities, *interval, *OUTCOME), found.rows, notes, drawn)


def _drawn(found: PointSeries, output: Path, title: str | None, size: tuple[float, float] | None) -> list[str]:
    """Draw the picture; returns notes."""
    from ncu_tools.report.plot.series_plot import draw_series

    picture = draw_series(found, format_of(output), title=title, size=size)
    return ["there is nothing to draw" if picture is None else picture_written(picture, output)]
