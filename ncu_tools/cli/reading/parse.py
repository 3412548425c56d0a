"""ncu-bench parse: any reports -> one Parquet file of launches, or a dataset with a file for each."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.run_files import MANIFEST
from ncu_parsers.datasets.dataset_layout import LAUNCHES
from ncu_parsers.datasets.engine import cores
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.report_data.report import Report
from ncu_parsers.schema.instance_table import INSTANCES_FILE
from ncu_parsers.sources.sources import Source, is_url

from ncu_tools.cli.options import (
    dask_option,
    engine_of,
    format_option,
    progress,
    require_other_output,
    require_parquet_output,
    settings_options,
    show,
)
from ncu_tools.cli.views import Verb
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.table import Table, printable

if TYPE_CHECKING:
    from ncu_parsers.parse.parse import Parsed
    from ncu_parsers.sources.settings import Settings

COLUMNS = (column("report", wide=True), *columns("dialect tool_version launches metrics lines skipped"))
REPORTS_SHOWN = 40
"""The most reports of a dataset that text output shows."""


@click.command(cls=Verb)
@click.argument("reports", nargs=-1, required=True, metavar="REPORT...")
@click.option(
    "-o", "--output", metavar="PATH",
    help="The Parquet file to write; a folder/ or a URL is a dataset with a file for each report.",
)  # fmt: skip
@click.option("--separate", is_flag=True, help="Keep a row per file for a launch that several files contain.")
@click.option("--dataset", is_flag=True, help="Write a dataset, whatever the output is called.")
@click.option(
    "--run", default="", metavar="NAME", help="Run name for all reports of a dataset; default: each folder's run."
)
@click.option("--instructions", is_flag=True, help="Also write the instructions of kernels, as instructions.parquet.")
@click.option(
    "--instances", is_flag=True, help="Write the values per instruction, opcode, time and unit beside the output."
)
@click.option("--contents", is_flag=True, help="Say what binary reports hold, and write nothing.")
@dask_option
@settings_options
@format_option
def command(
    reports: tuple[str, ...],
    output: str | None,
    separate: bool,
    instructions: bool,
    dataset: bool,
    run: str,
    instances: bool,
    contents: bool,
    dask: str | None,
    output_format: str,
    settings: Settings,
) -> None:
    """Turn reports of any tool into one Parquet file, a row per launch, or into a dataset of such files.

    REPORT is a .ncu-rep, a CSV or text file of any ncu version and page, a recording of nsys or a trace, also .gz or
    .zst, a folder of them, a pattern, or - for standard input. Unreadable reports are listed with the reason, and all
    others are written. Beside a file called launches.parquet, its kernels are written as kernels.parquet. In a dataset
    a report is the file run=NAME/rank=N/report=NAME/launches.parquet; reports of the same name there are replaced,
    others stay. For binary reports, --instances writes instances.parquet beside the output.

    \b
    Example:
      ncu-bench parse report.csv -o launches.parquet
      ncu-bench parse report.ncu-rep -o launches.parquet --instances
      ncu-bench parse report.ncu-rep --contents
      ncu --csv --page raw -k gemm ./app | ncu-bench parse - -o launches.parquet
      ncu-bench parse runs/*/reports -o s3://bucket/fleet --dask local
    """
    if contents:
        _look(reports, output, output_format)
        return
    if output is None:
        raise WrongUsage(
            "No output file was given.",
            advice="Name a Parquet file: -o launches.parquet; or a folder/ for a dataset with a file for each report.",
        )
    as_dataset = dataset or output.endswith("/") or is_url(output)
    _check(output, as_dataset, run, dask)
    if (instances or instructions) and as_dataset:
        raise WrongUsage(
            f"{'--instances' if instances else '--instructions'} is for one file, and a dataset has a file for each "
            "report.",
            advice="Write the launches of the reports that you need it of to a file: -o launches.parquet",
        )
    sources = find_sources(list(reports), settings)
    if not as_dataset:
        require_other_output(Path(output), (source.path for source in sources))
        require_parquet_output(Path(output))
    parsed = _into_dataset(output, sources, run, dask) if as_dataset else _into_file(Path(output), sources, separate)
    if instructions:
        parsed.notes += _write_instructions(Path(output), sources, parsed)
    rows = [_row(report) for report in parsed.reports]
    notes = _notes(parsed)
    if instances and parsed.written:
        notes += _write_instances(Path(output), sources)
    if output_format == "text":
        shown = 2 if as_dataset else 1
        rows = [{**row, "report": "/".join(PurePath(row["report"]).parts[-shown:])} for row in rows]
        if as_dataset and len(rows) > REPORTS_SHOWN:
            notes.insert(0, f"{len(rows) - REPORTS_SHOWN} more reports were read; --format json shows all of them")
            rows = rows[:REPORTS_SHOWN]
    if parsed.reports or parsed.notes:
        show(Table("parse", COLUMNS, rows, notes, _extra(parsed, output)), output_format)
    _raise_refusals(parsed)


def _look(reports: tuple[str, ...], output: str | None, output_format: str) -> None:
    """Show the contents of binary reports."""
    from ncu_tools.cli.tables.binary_report import contents_table

    if output is not None:
        raise WrongUsage("--contents only looks at reports.", advice="Leave out -o.")
    sources = find_sources(list(reports))
    for source in sources:
        if len(sources) > 1 and output_format == "text":
            click.echo(printable(source.name))
        show(contents_table(source, output_format), output_format)


def _write_instances(output: Path, sources: list[Source]) -> list[str]:
    from ncu_parsers.parse.instances_output import write_instances

    path = output.with_name(INSTANCES_FILE)
    rows, notes = write_instances(path, sources)
    return [*notes, f"{rows:,} instances were written to {path}"] if rows else notes


def _check(output: str, as_dataset: bool, run: str, dask: str | None) -> None:
    """Raise `WrongUsage` for conflicting options, and for invalid outputs."""
    if not as_dataset:
        if run or dask:
            raise WrongUsage(
                f"{'--run' if run else '--dask'} is for a dataset, and {output} is one file.",
                advice="Name a folder with a slash at the end, or a URL, or add --dataset",
            )
        if Path(output).is_dir():
            raise WrongUsage(
                f"{output} is a folder.", advice=f"For a dataset in it, say -o {output}/; for one file, name a file."
            )
        return
    if output.endswith(".parquet") or (not is_url(output) and Path(output).is_file()):
        raise WrongUsage(
            f"{output} is called as one file, and a dataset is a folder of files.",
            advice="Name a folder, or for one file a path on disk without --dataset.",
        )
    if not is_url(output) and (Path(output) / MANIFEST).is_file():
        raise WrongUsage(
            f"{output} is a run folder, and a dataset is a folder of its own.", advice="Name another folder."
        )
    if dask and output.startswith("memory://"):
        raise WrongUsage(
            "memory:// is the memory of one process.", advice="Workers need a folder or a store they share."
        )


def _into_file(output: Path, sources: list[Source], separate: bool) -> Parsed:
    with progress("Reading") as reading:
        from ncu_parsers.parse.parse import parse_into

        from ncu_tools.kernels.kernel_cache import cache_kernels

        processes = cores() if len(sources) > 1 else 1
        parsed = parse_into(output, sources, join=not separate, processes=processes, reading=reading)
    if parsed.written and output.name == LAUNCHES:
        cache_kernels(output)
    return parsed


def _into_dataset(output: str, sources: list[Source], run: str, dask: str | None) -> Parsed:
    from ncu_parsers.parse.parse_dataset import parse_into_dataset

    if dask and any(source.is_piped for source in sources):
        raise WrongUsage("Workers cannot read standard input.", advice="Name files, or leave out --dask.")
    with engine_of(dask) as engine, progress("Reading") as reading:
        return parse_into_dataset(output, sources, run=run, engine=engine, reading=reading)


def _write_instructions(output: Path, sources: list[Source], parsed: Parsed) -> list[str]:
    """Write the instructions in the reports beside the launches; returns the note on it.

    A report that was refused for having instructions but no launches is no longer refused.
    """
    from ncu_parsers.ncu.instructions.read import read_instructions
    from ncu_parsers.parquet.writer import write_table
    from ncu_parsers.schema.instructions_table import instructions_beside, joined_instructions

    parts = []
    with progress("Reading instructions of") as reading:
        for source in sources:
            reading(source)
            found = read_instructions(source)
            if found is not None:
                parts.append(found)
                parsed.refused.pop(source.name, None)
    if not parts:
        return ["the reports hold no counts of single instructions; --set full collects them"]
    path = instructions_beside(output)
    write_table(joined_instructions(parts), path)
    return [f"{counted(sum(map(len, parts)), 'instruction', 'instructions')} of kernels written to {path}"]


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
        notes += [where + loss for loss in report.losses]
        failed = report.failures
        if failed:
            notes.append(
                f"{where}{counted(failed, 'launch', 'launches')} failed while profiled: kept, and marked failed"
            )
    return notes


def _extra(parsed: Parsed, output: str) -> dict[str, Any]:
    return {
        "output": str(output) if parsed.written else None,
        "refused": [{"report": name, "reason": error.paragraph} for name, error in parsed.refused.items()],
    }


def _raise_refusals(parsed: Parsed) -> None:
    """Name the refused reports and fail, even if all other reports were read and written."""
    if not parsed.refused:
        return
    *others, last = parsed.refused.values()
    for error in others:
        click.echo(f"Error: {printable(error.paragraph)}", err=True)
    raise NcuBenchError(last.paragraph)
