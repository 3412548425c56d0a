"""ncu-bench parse --times: counts of ncu with the times of an undisturbed run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from ncu_tools.cli.options import (
    FILE,
    format_option,
    hidden_rows,
    progress,
    require_other_output,
    require_parquet_output,
    rows_shown,
    show,
    top_option,
)
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

COLUMNS = columns("outcome launches time_ns share kernel")

LACKING_SHOWN = 10


@click.command()
@click.argument("counts", metavar="COUNTS")
@click.option("--times", "timeline", metavar="TIMELINE", required=True, help="The run with the times.")
@click.option("-o", "--output", type=FILE, required=True, help="The Parquet file to write.")
@click.option(
    "--tolerance", type=click.FloatRange(min=0, max=1), default=0.01, show_default=True, metavar="SHARE",
    help="How far the counted launches of a signature may differ, and still be taken for the same work.",
)  # fmt: skip
@click.option("--anyway", is_flag=True, help="Join counts of one GPU with times of another too.")
@top_option("kernels without counts", LACKING_SHOWN, least=0)
@format_option
def command(
    counts: str, timeline: str, output: Path, tolerance: float, anyway: bool, top: int | None, output_format: str
) -> None:
    """Give each launch of a timeline the FLOPs and bytes that ncu counted for launches of the same signature.

    COUNTS is a run under ncu, TIMELINE one of the same program under nsys or PyTorch's profiler: reports, folders or
    Parquet files. A signature is kernel name, grid, block and NVTX range. The table says how much of the time found its
    counts, how much is ambiguous because counted launches differ, and which kernels lack theirs. Counts of one GPU are
    not joined with times of another, where both know theirs.

    \b
    Example:
      ncu-bench parse counts.csv --times timeline.sqlite -o joined.parquet
      ncu-bench hotspots joined.parquet
    """
    from ncu_parsers.parquet.writer import write_table

    from ncu_tools.kernels.matching.join import join
    from ncu_tools.runs.loading import load

    require_other_output(output, (counts, timeline))
    require_parquet_output(output)
    with progress("Reading") as reading:
        counted, timed = (load(path, reading=reading) for path in (counts, timeline))
    joined = join(counted.table, timed.table, tolerance=tolerance, other_gpus=anyway)
    write_table(joined.table, output)
    top = rows_shown(top, output_format, LACKING_SHOWN)
    rows = [asdict(share) for share in [*joined.outcomes, *joined.lacking[:top]]]
    hidden = hidden_rows(len(joined.lacking), top, "kernel", ("lacks counts", "lack counts"))
    notes = [*hidden, *joined.notes, *counted.notes, *timed.notes]
    show(Table("join", COLUMNS, rows, notes, {"output": str(output)}), output_format)
