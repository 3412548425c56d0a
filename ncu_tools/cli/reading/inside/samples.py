"""ncu-bench samples: counters over the time of one kernel, over the units of the chip, or over a timeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.notes import Note, NoteKind

from ncu_tools.cli.option_kinds.selection_options import selection_options
from ncu_tools.cli.options import format_option, progress, show
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.numbers.number_format import counted, duration
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    from ncu_parsers.ncu_rep.instructions.time_series import TimeSeries
    from ncu_parsers.sources.sources import Source

    from ncu_tools.report.head import Head
    from ncu_tools.runs.selection import Selection

COLLECT = "ncu --set full, or --section PmSampling, from ncu 2024.1 on"
COLUMNS = columns("title sparkline mean~1 peak~0 value.unit~3 ramp_up_ns~2 tail_ns~2")
MACHINE_READABLE = columns("metric samples duration_ns")
BALANCE = columns("metric of count~4 least~0 median~2 mean~1 most~0 value.unit~3 slowest_cost~0")
SLOWEST = (
    "slowest costs: what an even spread would take off the unit with the most, 1 - mean / most. Of active cycles it is "
    "the part of the slowest unit's time in which the average one does not work"
)
OTHER_PASSES = "counters of other passes are of other runs of it"
SERIES = columns("times_ns values")


class _Series(NamedTuple):
    """Every series of a run, those of the launches that are left by phase, layer, device and rank, and notes on it."""

    every: list[TimeSeries]
    left: list[TimeSeries]
    notes: list[str]


@click.command()
@click.argument("run")
@selection_options
@click.option("--launch", type=click.IntRange(min=0), help="This launch.  [default: the longest]")
@click.option("--balance", is_flag=True, help="Show how evenly SMs, L2 slices and other units did the work instead.")
@click.option(
    "--by", type=click.Choice(("nvtx", "name")), help="Of a timeline of nsys: a row per NVTX range, or per kernel."
)
@format_option
def command(
    run: str, launch: int | None, balance: bool, by: str | None, output_format: str, only: Selection | None
) -> None:
    """Show how counters go over the time of a kernel: how it ramps up, what it reaches, how it ends.

    RUN is a binary report with samples over time (PM sampling). A row is a counter, its bars go from 0 to its peak.
    Ramp-up is the time until it first is near its plateau, tail the time after it last was. JSON has every sample.
    With --balance a row is a counter over all units of a kind, of any run that has its least, mean and most, or of
    binary reports with the value of each unit, which also have a median. Of a timeline with GPU metrics that nsys
    sampled, a row is a metric over the recording, or with --by what the GPU did while a range or kernel ran.

    \b
    Example:
      ncu-bench samples report.ncu-rep
      ncu-bench samples report.ncu-rep --kernel gemm --format json
      ncu-bench samples report.csv --balance
      ncu-bench samples timeline.sqlite --by nvtx
    """
    timeline = _timeline(run)
    if timeline is not None:
        _show_timeline(timeline, only, launch, balance, by, output_format)
        return
    if by is not None:
        raise WrongUsage("--by is for timelines of nsys.", f"{run} is none.", "Leave it out.")
    if balance:
        _show_balance(run, only, launch, output_format)
        return
    from ncu_tools.kernels.source.spread.over_time import counter_over_time

    with progress("Reading") as reading:
        series = _series(run, only, reading)
    chosen = _chosen(series, only, launch, run)
    rows: list[dict[str, Any]] = [asdict(counter_over_time(one)) for one in chosen]
    more = (*MACHINE_READABLE, *SERIES) if output_format == "json" else MACHINE_READABLE
    extra = {"kernel": chosen[0].kernel_name, "launch_id": chosen[0].launch_id}
    first = chosen[0]
    lasted = max(one.duration_ns for one in chosen)
    name = readable_name(first.kernel_name)
    head = _head(run, (name, f"launch {first.launch_id}", f"sampled over {duration(lasted)}"), only)
    notes = [*_notes(series.left, chosen), *series.notes]
    show(Table("samples", COLUMNS, rows, notes, extra, more), output_format, head=head)


def _head(run: str, launch: Sequence[str], only: Selection | None) -> Head:
    """The line above the table: the run, the kernel and what is known of the launch."""
    from ncu_tools.report.head import head_of

    kernel, *facts = launch
    return head_of([run], more=(kernel, *facts), only=only.title if only is not None else "")


def _series(run: str, only: Selection | None, reading: Callable[[Source], None]) -> _Series:
    """The series of a run, and those of the launches that a selection leaves, whatever their kernel."""
    from ncu_parsers.ncu_rep.instructions.time_series import time_series
    from ncu_parsers.parse.report_files import find_sources

    named = None
    if only is not None and only.needs_launches:
        from ncu_tools.kernels.source.launches_named import launches_named

        named = launches_named(run, only, reading)
    found = _Series([], [], [] if named is None else [named.note])
    for source in find_sources([run]):
        reading(source)
        series = time_series(source)
        found.every.extend(series)
        found.left.extend(one for one in series if named is None or (source.name, one.launch_id) in named.numbers)
    return found


def _timeline(run: str) -> Source | None:
    """The timeline of nsys that a file is, or that is in a run folder; None if it is anything else."""
    from ncu_launch.profile.run_outcome import timelines
    from ncu_parsers.sources.sources import Source
    from ncu_parsers.timelines.nsys.sampled_timeline import is_timeline

    files = [Path(run)] if Path(run).is_file() else timelines(Path(run))
    source = Source(str(files[0])) if len(files) == 1 else None
    return source if source is not None and is_timeline(source) else None


def _show_timeline(
    source: Source, only: Selection | None, launch: int | None, balance: bool, by: str | None, output_format: str
) -> None:
    from ncu_tools.cli.tables.sampled_gpus import sampled_table
    from ncu_tools.report.head import head_of

    if only is not None or launch is not None or balance:
        raise WrongUsage(
            "--launch, --balance and the selection of launches are for reports of ncu.",
            f"{source.name} is a timeline.",
            "Use --by nvtx or --by name, or: ncu-bench hotspots TIMELINE --columns sampled",
        )
    with progress("Reading") as reading:
        reading(source)
        table = sampled_table(source, output_format, by)
    show(table, output_format, head=head_of([source.path]))


def _show_balance(run: str, only: Selection | None, launch: int | None, output_format: str) -> None:
    from ncu_tools.kernels.source.spread.launch_balance import launch_balance

    with progress("Reading") as reading:
        found = launch_balance(run, only, launch, reading)
    lasted = [] if found.duration_ns is None else [duration(found.duration_ns)]
    facts = [f"launch {found.launch_id}", *lasted]
    name = readable_name(found.kernel_name)
    notes = [Note(f"{name}: {', '.join(facts)}", NoteKind.IN_HEAD), Note(SLOWEST, NoteKind.METHOD), *found.notes]
    extra = {"kernel": found.kernel_name, "launch_id": found.launch_id}
    head = _head(run, [name, *facts], only)
    show(Table("samples", BALANCE, [asdict(row) for row in found.rows], notes, extra), output_format, head=head)


def _chosen(series: _Series, only: Selection | None, launch: int | None, run: str) -> list[TimeSeries]:
    """The series of one launch: the longest of those that are left by name and number."""
    if not series.every:
        from ncu_tools.runs.loading import why_no_ncu_in

        raise NcuBenchError(
            f"{run} holds no samples over time.",
            "They are collected by PM sampling, and only binary reports hold them.",
            why_no_ncu_in(run)
            or f"Collect them with: {COLLECT}. How evenly SMs and L2 slices worked is shown by --balance.",
        )
    left = [
        one
        for one in series.left
        if (launch is None or one.launch_id == launch) and (only is None or only.names_kernel(one.kernel_name))
    ]
    if not left:
        names = ", ".join(dict.fromkeys(f"{one.kernel_short} (launch {one.launch_id})" for one in series.every))
        raise NcuBenchError("No launch that was named has samples over time.", f"There are: {names}.")
    longest = max(left, key=lambda one: one.duration_ns).launch_id
    return [one for one in left if one.launch_id == longest]


def _notes(series: list[TimeSeries], chosen: list[TimeSeries]) -> list[str]:
    first = chosen[0]
    lasted = duration(max(one.duration_ns for one in chosen))
    whole = f"{readable_name(first.kernel_name)}: launch {first.launch_id}, sampled over {lasted}; {OTHER_PASSES}"
    notes: list[str] = [Note(whole, NoteKind.IN_HEAD)]
    others = len({one.launch_id for one in series}) - 1
    if others:
        notes.append(
            f"{counted(others, 'more launch has', 'more launches have')} samples; --kernel and --launch show it"
        )
    if first.dropped:
        notes.append(f"the sampler lost {counted(first.dropped, 'sample', 'samples')} of this launch")
    return notes
