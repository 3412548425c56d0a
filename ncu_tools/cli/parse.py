"""ncu-bench parse: any reports -> one Parquet file of launches."""

from __future__ import annotations

import os
from pathlib import Path, PurePath
from typing import Any

import click
from ncu_launch.errors import NcuBenchError
from ncu_parsers.parse import Parsed, parse_into
from ncu_parsers.report import Report
from ncu_parsers.sources import find_sources

from ncu_tools.cli.options import format_option, progress, show
from ncu_tools.kernels import keep_kernels
from ncu_tools.loading import LAUNCHES
from ncu_tools.report.table import Column, Table, printable
from ncu_tools.report.units import counted

COLUMNS = (
    Column("report", "report", wide=True),
    Column("dialect", "dialect"),
    Column("tool_version", "ncu"),
    Column("launches", "launches", "count"),
    Column("metrics", "metrics", "count"),
    Column("lines", "lines", "count"),
    Column("skipped", "skipped", wide=True),
)


@click.command()
@click.argument("reports", nargs=-1, required=True, metavar="REPORT...")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The Parquet file to write.",
)  # fmt: skip
@click.option("--separate", is_flag=True, help="Keep a launch that stands in several files as several rows.")
@format_option
def command(reports: tuple[str, ...], output: Path, separate: bool, output_format: str) -> None:
    """Turn ncu reports of any dialect into one Parquet file, a row per launch.

    REPORT is a .ncu-rep, or a CSV or text file of any ncu version and page, also .gz or .zst, a folder of them, a
    pattern, or - for standard input. What cannot be read is named with the reason; what can be is written.
    Beside a file called launches.parquet, its kernels are written as kernels.parquet.

    \b
    Example:
      ncu-bench parse report.csv -o launches.parquet
      ncu-bench parse report.ncu-rep -o launches.parquet
      ncu --csv --page raw -k gemm ./app | ncu-bench parse - -o launches.parquet
    """
    with progress("Reading") as reading:
        parsed = parse_into(output, find_sources(list(reports)), join=not separate, processes=_cores(), reading=reading)
    if parsed.written and output.name == LAUNCHES:
        keep_kernels(output)
    rows = [_row(report) for report in parsed.reports]
    if output_format == "text":
        rows = [{**row, "report": PurePath(row["report"]).name} for row in rows]
    table = Table("parse", COLUMNS, rows, _notes(parsed), _extra(parsed, output))
    if parsed.reports:
        show(table, output_format)
    _say_refusals(parsed)


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _row(report: Report) -> dict[str, Any]:
    skipped = ", ".join(f"{count} {kind}" for kind, count in sorted(report.skipped.items(), key=lambda item: -item[1]))
    return {
        "report": report.source,
        "dialect": " + ".join(report.dialects),
        "tool_version": report.tool_version or report.era,
        "launches": report.rows,
        "metrics": len(report.metric_names),
        "lines": report.lines.total(),
        "skipped": skipped or None,
    }


def _notes(parsed: Parsed) -> list[str]:
    notes = list(parsed.notes)
    several = len(parsed.reports) > 1
    for report in parsed.reports:
        where = f"{report.source}: " if several else ""
        notes += [where + note for note in report.notes]
        for kind, (number, text) in report.examples.items():
            if kind.startswith(("broken", "row cut")):
                notes.append(f"{where}{report.lines[kind]} {kind}, the first in line {number}: {text[:100]}")
        failed = report.failures
        if failed:
            notes.append(
                f"{where}{counted(failed, 'launch', 'launches')} failed while profiled: kept, and marked failed"
            )
    return notes


def _extra(parsed: Parsed, output: Path) -> dict[str, Any]:
    return {
        "output": str(output) if parsed.written else None,
        "refused": [{"report": name, "reason": error.paragraph} for name, error in parsed.refused.items()],
    }


def _say_refusals(parsed: Parsed) -> None:
    """Name what was refused, and fail: also when everything else was read and written."""
    if not parsed.refused:
        return
    *others, last = parsed.refused.values()
    for error in others:
        click.echo(f"Error: {printable(error.paragraph)}", err=True)
    raise NcuBenchError(last.paragraph)
