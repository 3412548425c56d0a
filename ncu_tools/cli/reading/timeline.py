"""ncu-bench timeline: where the time of a recording goes, and what bounds its steps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
from ncu_launch.errors import WrongUsage

from ncu_tools.cli.option_kinds.list_option import list_option
from ncu_tools.cli.options import format_option, machine_option, progress
from ncu_tools.cli.views import Verb

if TYPE_CHECKING:
    from ncu_parsers.timelines.activity.activity import Window

    from ncu_tools.ceilings.machine_files import Machine

PART_NAMES = ("steps", "verdicts", "gaps", "longest", "copies", "collectives", "waits", "streams", "launches")

_MOMENT = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(s|ms|us|µs|ns)?\s*", re.IGNORECASE)
_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "µs": 10**3, "ns": 1}


@click.command(cls=Verb)
@click.argument("run")
@click.option("--step", "pattern", metavar="REGEX", help="Ranges whose names match are the steps.")
@click.option("--trim", metavar="START,END", help="Only this time: 0.5,1.5 in seconds, or 100ms,250ms.")
@list_option(
    "--part",
    "parts",
    type=click.Choice(PART_NAMES),
    metavar="PART,...",
    help=f"Of {', '.join(PART_NAMES)}; or samples alone.",
)
@click.option(
    "--top", type=click.IntRange(min=1),
    help="How many rows of each part to show.  [default: 6 to 16 by part; JSON, CSV: all]",
)  # fmt: skip
@machine_option
@format_option
def command(
    run: str,
    pattern: str | None,
    trim: str | None,
    parts: tuple[str, ...],
    top: int | None,
    machine: Machine | None,
    output_format: str,
) -> None:
    """Show where the time of a recording goes on each GPU: kernels, copies, communication, gaps by cause; and a
    verdict on each step.

    RUN is a recording of nsys (.sqlite, .nsys-rep), a trace of PyTorch's profiler, or a run folder; a table of launches
    (from parse) shows the parts that it has data for. Steps are the ranges that --step names, PyTorch's ProfilerStep,
    iterations of ncu-bench's launcher, or sequences of kernels that repeat. Busy time and gaps add up to the span, to
    the nanosecond. Steps of a run of profile --power have their energy. JSON has every part; CSV one.

    \b
    Example:
      ncu-bench timeline recording.sqlite
      ncu-bench timeline trace.json.gz --part gaps,longest --top 30
      ncu-bench timeline recording.sqlite --step "^train_step" --part verdicts
      ncu-bench timeline recording.nsys-rep --step "^train_step" --format json
      ncu-bench timeline recording.sqlite --trim 200ms,450ms --part copies --format csv
    """
    from ncu_tools.cli.tables.timeline_output import show_timeline
    from ncu_tools.runs.selection import pattern_of
    from ncu_tools.timeline.load_activity import load_activity, load_power
    from ncu_tools.timeline.steps import names_to_hold
    from ncu_tools.timeline.timeline import timeline

    wanted, between = (
        None if pattern is None else pattern_of(pattern, "--step"),
        None if trim is None else _moments(trim),
    )
    with progress("Reading") as reading:
        activity = load_activity(run, reading, trim=between, named=names_to_hold(wanted))
        found = timeline(
            activity, step=wanted, trim=between, machine=machine, longest=max(top or 0, 10), power=load_power(run)
        )
    show_timeline(found, parts, top, output_format)


def _moments(text: str) -> Window:
    """Start and end in ns. Raises `WrongUsage` for other texts."""
    from ncu_parsers.timelines.activity.activity import Window

    found = [_MOMENT.fullmatch(part) for part in text.split(",")]
    if len(found) != 2 or None in found:
        raise WrongUsage(
            f"--trim {text} is no start and end.", "Two times belong there, in seconds or with s, ms, us or ns.",
            "As in: --trim 100ms,250ms",
        )  # fmt: skip
    start, end = (_nanoseconds(*one.groups()) for one in found if one is not None)
    return Window(start, end)


def _nanoseconds(number: str, unit: str | None) -> int:
    from decimal import Decimal

    return int(Decimal(number) * _NS[(unit or "s").lower()])
