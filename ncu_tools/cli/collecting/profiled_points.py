"""The points of `profile --vary`, and of `bench --metrics`: collected and shown, a row for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ncu_launch.bench.point_outcomes import OK
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.targets.varied_arguments import variants_of

from ncu_tools.cli.options import MACHINE_FORMATS, echo_notes, first_rows, show
from ncu_tools.cli.terminal_notes import WrittenFile
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table, columns_of_arguments, raw_column

if TYPE_CHECKING:
    from ncu_tools.profiling.listener import Listener
    from ncu_tools.profiling.profile_request import ProfileRequest

COUNTERS = columns(
    "profiled_launches~3 profiled_time_ns~1 profiled_flops~0 profiled_dram_bytes~0 profiled_dram_fraction~2 "
    "profiled_operator_bytes~0 profiled_by~1"
)
IDENTITY = columns("target device~4 dtype~3 mode~5 phase~4 batch_size~0 input_size~0 sequence_length~0")
OUTCOME = columns("failure~0 reason")
BY_FORMULA = "FLOPs and bytes counted by operators are formulas for each operator, not measured by hardware"

Row = dict[str, Any]


def profile_varied(
    request: ProfileRequest,
    texts: tuple[str, ...],
    listener: Listener,
    *,
    resume: bool,
    retry_failed: bool,
    top: int | None,
    output_format: str,
    dry_run: bool,
) -> None:
    """Profile a target at every point of --vary and show a row per point; with `dry_run` print the commands.

    Raises `WrongUsage` for a program or ranks, which have no points, and `NcuBenchError` if no point gave a result.
    """
    import shlex

    import click

    from ncu_tools.profiling.varied_profile import (
        plan_points,
        points_to_keep,
        profile_points,
        varied_points,
    )

    if request.run.workload is None:
        raise WrongUsage("--vary is for model targets and functions.", advice="A program takes its arguments itself.")
    if request.nproc is not None:
        raise WrongUsage("--vary is for one process, not for ranks.", advice="Leave out --vary, or --nproc.")
    points = varied_points(request.run.workload, variants_of(texts))
    if dry_run:
        planned = plan_points(request, points, listener)
        for command in planned.commands:
            click.echo(shlex.join(command))
        echo_notes(planned.notes)
        return
    kept = points_to_keep(request, points, retry_failed=retry_failed) if resume else None
    if kept is not None:
        done = len(kept)
        click.echo(
            f"{done} of {counted(len(points), 'point', 'points')} {'is' if done == 1 else 'are'} there.", err=True
        )
    found = profile_points(request, points, listener, kept)
    rows: list[Row] = found.table.drop_columns(["samples_ns"]).to_pylist()
    shown, hidden = first_rows(rows, top, output_format, "point")
    notes = [*found.notes, *hidden, *counting_notes(rows)]
    notes.append(WrittenFile(f"the points are in {found.folder}, each also as a run folder of its own"))
    show(_table(found.table.column_names, shown, notes, output_format), output_format)
    if not any(row["outcome"] == OK for row in rows):
        raise NcuBenchError("No point could be profiled.", f"The first: {rows[0]['reason']}", "See its row and log.")


def counting_notes(rows: list[Row]) -> list[str]:
    """Notes on the source of counter columns, and why some are empty; [] if nothing was profiled."""
    notes = [BY_FORMULA] if any(row["profiled_by"] == "operators" for row in rows) else []
    if any(row["profiled_by"] for row in rows):
        notes.append("columns profiled_* (counted, profiled) are of a run under the profiler; all others are not")
    lacking = [row for row in rows if row["outcome"] == OK and row["profiled_why_not"]]
    return [*notes, *(f"{row['point']}: not counted: {row['profiled_why_not']}" for row in lacking)]


def _table(names: list[str], rows: list[Row], notes: list[str], output_format: str) -> Table:
    from ncu_parsers.schema.bench_table import COLUMN_NAMES
    from ncu_parsers.schema.bench_table import COLUMNS as ALL

    own = columns_of_arguments(
        [name for name in names if name not in COLUMN_NAMES], rows, (*IDENTITY, *COUNTERS, *OUTCOME), spare=0
    )
    if output_format in MACHINE_FORMATS:
        every = [raw_column(one.name, str(one.type), one.unit) for one in ALL if not one.name.startswith(NOT_PROFILED)]
        return Table("profile", [*every, *own], rows, notes)
    rows = [{**row, "failure": None if row["outcome"] == OK else row["outcome"]} for row in rows]
    return Table("profile", (*IDENTITY, *own, *COUNTERS, *OUTCOME), rows, notes)


NOT_PROFILED = (
    "latency_", "iterations", "warmup_", "samples_ns", "process_", "throughput", "memory_", "parameter", "self_",
    "expected_", "gpu_", "throttling", "host", "notes",
)  # fmt: skip
"""Prefixes of sweep columns that a profile does not fill."""
