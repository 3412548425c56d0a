"""ncu-bench kernel --part samples: counters over the time of one kernel."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import wraps
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

    from ncu_tools.runs.selection import Selection

COLLECT = "ncu --set full, or --section PmSampling, from ncu 2024.1 on"
COLUMNS = columns("title sparkline mean~1 peak~0 value.unit~3 ramp_up_ns~2 tail_ns~2")
MACHINE_READABLE = columns("metric samples duration_ns")
OTHER_PASSES = "counters of different passes come from different runs of the kernel"
SERIES = columns("times_ns values")


class _Series(NamedTuple):
    """Every series of a run, the ones selected by phase, layer, device and rank, and notes on the run."""

    every: list[TimeSeries]
    left: list[TimeSeries]
    notes: list[str]


def launch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add RUN, NAME, --launch and the selection options; the command gets NAME as a further --kernel.

    Raises `WrongUsage` for a timeline, whose samples are of whole GPUs.
    """

    @wraps(command)
    def named(run: str, name: str | None, only: Selection | None, **others: Any) -> Any:
        from ncu_tools.timeline.load_activity import sampled_timeline_in

        if sampled_timeline_in(run) is not None:
            raise WrongUsage(
                f"{run} is a timeline, and holds no samples of one kernel.",
                advice=f"What was sampled of the whole GPU: ncu-bench timeline {shlex.quote(run)} --part samples",
            )
        if name is not None:
            from ncu_tools.runs.selection import Selection, pattern_of

            only = only or Selection()
            only = replace(only, kernels=(*only.kernels, pattern_of(name)))
        return command(run=run, only=only, **others)

    found = selection_options(named)
    launch = click.IntRange(min=0)
    found = click.option("--launch", type=launch, help="This launch.  [default: the longest]")(found)
    return click.argument("run")(click.argument("name", required=False)(found))


@click.command()
@launch_options
@format_option
def command(run: str, launch: int | None, output_format: str, only: Selection | None) -> None:
    """Show how counters go over the time of a kernel: how it ramps up, what it reaches, how it ends.

    RUN is a binary report with samples over time (PM sampling). A row is a counter, its bars go from 0 to its peak.
    Ramp-up is the time until it first is near its plateau, tail the time after it last was. JSON has every sample.

    \b
    Example:
      ncu-bench kernel report.ncu-rep --part samples
      ncu-bench kernel report.ncu-rep gemm --part samples --format json
    """
    from ncu_tools.kernels.source.spread.over_time import counter_over_time
    from ncu_tools.report.head import head_of

    with progress("Reading") as reading:
        series = _series(run, only, reading)
    chosen = _chosen(series, only, launch, run)
    rows: list[dict[str, Any]] = [asdict(counter_over_time(one)) for one in chosen]
    more = (*MACHINE_READABLE, *SERIES) if output_format == "json" else MACHINE_READABLE
    extra = {"kernel": chosen[0].kernel_name, "launch_id": chosen[0].launch_id}
    first = chosen[0]
    lasted = max(one.duration_ns for one in chosen)
    name = readable_name(first.kernel_name)
    head = head_of([run], more=(name, f"launch {first.launch_id}", f"sampled over {duration(lasted)}"), only=only)
    notes = [*_notes(series.left, chosen), *series.notes]
    show(Table("samples", COLUMNS, rows, notes, extra, more), output_format, head=head)


def _series(run: str, only: Selection | None, reading: Callable[[Source], None]) -> _Series:
    """The series of a run, and the ones of selected launches, whatever their kernel."""
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


def _chosen(series: _Series, only: Selection | None, launch: int | None, run: str) -> list[TimeSeries]:
    """The series of one launch: the longest of the launches that match name and number."""
    if not series.every:
        from ncu_tools.runs.loading import why_no_ncu_in

        raise NcuBenchError(
            f"{run} holds no samples over time.",
            "They are collected by PM sampling: of a kernel in binary reports of ncu, of the whole GPU in timelines.",
            why_no_ncu_in(run)
            or f"Collect them with: {COLLECT}. How evenly SMs and L2 slices worked is shown by --part balance.",
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
