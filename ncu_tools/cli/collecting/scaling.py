"""ncu-bench bench SWEEP: how latency and throughput of a sweep scale with its sizes, and correlations over models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.bench.point_outcomes import OK
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.run_files import BENCH_FILE

from ncu_tools.cli.options import (
    FILE,
    MACHINE_FORMATS,
    dask_option,
    echo_markdown,
    echo_text,
    engine_of,
    format_option,
    show,
)
from ncu_tools.cli.terminal_notes import picture_written
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.pictures import format_of, note_on_boxes
from ncu_tools.report.table import Column, Table, columns_of_arguments

if TYPE_CHECKING:
    from ncu_tools.bench.scaling import Correlation, Series

IDENTITY = (
    column("target"),
    column("device_name", wide=True),
    *columns("dtype mode phase varied~0 batch_size input_size sequence_length points smallest largest exponent~0"),
)
AT = 9
"""Position of argument columns: after the sizes."""
FOR_PEOPLE = columns("interval")
FOR_MACHINES = columns("exponent_low exponent_high r_squared weighted")
VERDICTS = columns(
    "median_exponent~0 last_exponent verdict~0 knee knee_why_not~2 best_batch best_throughput throughput_unit"
)
PAIR_COLUMNS = columns("group one other models spearman spearman_low spearman_high pearson pearson_low pearson_high")
MOST_SAID = 6
Row = dict[str, Any]


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="SWEEP...")
@click.option("-o", "--output", type=FILE, help="Draw to this .svg, .png or .pdf file.")
@click.option("--title", default="", help="A title for the picture.")
@click.option("--correlations", "only_correlations", is_flag=True, help="Write the pairs of quantities, not the fits.")
@dask_option
@format_option
def command(
    runs: tuple[str, ...],
    output: Path | None,
    title: str,
    only_correlations: bool,
    dask: str | None,
    output_format: str,
) -> None:
    """Fit how latency follows batch size, image size and sequence length, find the knee of throughput, and correlate.

    SWEEP is a run folder of ncu-bench bench, made anywhere, its bench.parquet, or a folder or URL of such folders. The
    exponent k of mean latency ~ size^k has a 95 % interval, in which noisy points count less; "of medians" is shown
    where outliers make it another, and "at the end" is the slope between the two largest sizes. The knee is the
    smallest batch with 90 % of the best throughput. Over five models or more, parameters, FLOPs, bytes and latencies
    are correlated.

    \b
    Example:
      ncu-bench bench sweep/ -o scaling.svg
      ncu-bench bench runs/jetson runs/server --format markdown
    """
    from ncu_tools.bench.scaling import correlations, series
    from ncu_tools.report.head import Head

    format_of(output)
    rows, arguments = _rows(runs, dask)
    fits, pairs = series(rows, arguments), correlations(rows)
    notes = _notes(rows, fits, pairs)
    if output is not None:
        notes += _drawn(rows, fits, pairs, output, title)
    head = Head(runs, more=(counted(len(rows), "point", "points"),))
    if only_correlations:
        show(Table("scaling", PAIR_COLUMNS, [asdict(pair) for pair in pairs], notes), output_format, head=head)
        return
    extra = {"correlations": [asdict(pair) for pair in pairs]}
    matrices = _matrices(pairs) if output_format in ("text", "markdown") else []
    if output_format == "markdown":
        for matrix in matrices:
            echo_markdown(matrix)
            click.echo()
    machine_readable = output_format in MACHINE_FORMATS
    others = columns_of_arguments(arguments, [one.same for one in fits], (*IDENTITY, *FOR_PEOPLE, *VERDICTS))
    columns = (*IDENTITY[:AT], *others, *IDENTITY[AT:], *(FOR_MACHINES if machine_readable else FOR_PEOPLE), *VERDICTS)
    rows = [_cells(one) for one in fits]
    if not machine_readable:
        for row, one in zip(rows, fits, strict=True):
            row["median_exponent"] = one.median_exponent if one.is_moved_by_outliers else None
    show(Table("scaling", columns, rows, notes, extra), output_format, head=head)
    if output_format == "text":
        for matrix in matrices:
            click.echo()
            echo_text(matrix)


def _rows(runs: Sequence[str], dask: str | None) -> tuple[list[Row], list[str]]:
    """The rows of all runs without their samples, and the columns of arguments. Raises `NcuBenchError` without rows."""
    from ncu_parsers.datasets.dataset_layout import tables_named
    from ncu_parsers.datasets.engine import InOrder
    from ncu_parsers.parquet.reader import read_bench
    from ncu_parsers.schema.own_columns import arguments_apart, own_names

    files = []
    for run in runs:
        found = tables_named(BENCH_FILE, run)
        if not found:
            raise NcuBenchError(
                f"{Path(run) / BENCH_FILE if Path(run).is_dir() else run} does not exist.",
                advice="Make one with: ncu-bench bench TARGET -o RUN",
            )
        files += found
    rows: list[Row] = []
    arguments: dict[str, None] = {}
    taken = {column.name for column in (*IDENTITY, *FOR_PEOPLE, *FOR_MACHINES, *VERDICTS)}
    with engine_of(dask) as engine:
        for table in (engine or InOrder()).map(read_bench, files):
            if isinstance(table, NcuBenchError):
                raise table
            table = arguments_apart(table.drop_columns(["samples_ns"]), taken)
            rows += table.to_pylist()
            arguments |= dict.fromkeys(own_names(table))
    return rows, list(arguments)


def _cells(one: Series) -> Row:
    cells: Row = dict(one.same)
    sizes = sorted(set(one.sizes))
    cells |= {"varied": one.title, "points": len(sizes), "smallest": sizes[0], "largest": sizes[-1]}
    cells |= {
        "last_exponent": one.last_exponent,
        "median_exponent": one.median_exponent,
        "verdict": one.verdict,
        "throughput_unit": None,
    }
    fit, knee = one.fit, one.knee
    if fit is not None:
        cells |= {"exponent": fit.exponent, "exponent_low": fit.low, "exponent_high": fit.high}
        cells |= {"interval": f"[{fit.low:.2f} - {fit.high:.2f}]", "r_squared": fit.r_squared}
        cells["weighted"] = fit.weighted
    if knee is not None:
        cells |= {"knee": knee.batch, "knee_why_not": knee.why_not, "best_throughput": knee.best}
        cells |= {"best_batch": knee.best_batch, "throughput_unit": one.throughput_unit}
    return cells


def _matrices(pairs: list[Correlation]) -> list[Table]:
    """Spearman's and Pearson's coefficients of each group as square tables; [] if no pair has one."""
    tables = []
    for group in dict.fromkeys(pair.group for pair in pairs if pair.spearman is not None):
        some = [pair for pair in pairs if pair.group == group]
        names = list(dict.fromkeys(name for pair in some for name in (pair.one, pair.other)))
        for kind in ("spearman", "pearson"):
            rows: list[Row] = [{"quantity": name, name: 1.0} for name in names]
            for pair in some:
                value = getattr(pair, kind)
                rows[names.index(pair.one)][pair.other] = rows[names.index(pair.other)][pair.one] = value
            quantity = column("quantity", title=f"{kind}: {group}")
            tables.append(Table("scaling", [quantity, *(Column(name, name, "number") for name in names)], rows))
    return tables


def _notes(rows: list[Row], fits: list[Series], pairs: list[Correlation]) -> list[str]:
    from ncu_tools.bench.expected_flops import notes_on_basis
    from ncu_tools.bench.scaling import LEAST_MODELS

    notes = []
    if not fits:
        notes.append("no size varies: sweep one, such as --batch-size 1,4,16,64")
    alike = sum(one.fit is not None and not one.fit.weighted for one in fits)
    if alike:
        notes.append(f"{alike} of {len(fits)} fits are unweighted: a point was timed once, or has no spread")
    moved = sum(one.is_moved_by_outliers for one in fits)
    if moved:
        notes.append(
            f"{moved} of {counted(len(fits), 'fit', 'fits')}: fitting medians gives another exponent, since outliers "
            "pull the means; measure again on an idle machine"
        )
    if all(pair.spearman is None for pair in pairs):
        models = len({row["target"] for row in rows if row["outcome"] == OK})
        notes.append(f"too few models for correlations: {models}, where at least {LEAST_MODELS} are needed")
    failed = [row for row in rows if row["outcome"] != OK]
    notes += [f"{row['point']}: {row['outcome']}" for row in failed[:MOST_SAID]]
    if len(failed) > MOST_SAID:
        notes.append(f"{len(failed) - MOST_SAID} more points are not ok")
    if any(row["expected_flops"] is not None for row in rows):
        notes.append("FLOPs and bytes are those of formulas for each operator, not measured")
        notes += notes_on_basis(rows)
    return notes


def _drawn(rows: list[Row], fits: list[Series], pairs: list[Correlation], output: Path, title: str) -> list[str]:
    """Draw the picture; returns notes."""
    from ncu_tools.bench.scaling import by_group
    from ncu_tools.report.plot.scaling_plot import draw_scaling

    picture = draw_scaling(fits, by_group(rows), pairs, format_of(output), title=title)
    if picture is None:
        return ["there is nothing to draw"]
    return [picture_written(picture, output), *note_on_boxes([title])]
