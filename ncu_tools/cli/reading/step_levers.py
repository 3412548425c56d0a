"""ncu-bench timeline --part levers: levers on a step's time with their savings, and what-ifs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ncu_tools.cli.option_kinds.list_option import list_option
from ncu_tools.cli.options import (
    MACHINE_FORMATS,
    echo_page,
    first_rows,
    format_option,
    machine_option,
    page_width,
    progress,
    show,
    top_option,
)

if TYPE_CHECKING:
    from ncu_parsers.timelines.activity.activity import Activity

    from ncu_tools.ceilings.machine_files import Machine
    from ncu_tools.timeline.levers.step_advice import StepAdvice

SHOWN, WIDEST = 6, 100
PART_NAMES = ("levers", "path")


@click.command()
@click.argument("run")
@list_option("--part", "parts", type=click.Choice(PART_NAMES), metavar="PART", help="Of levers, path.")
@click.option(
    "--what-if", "asked", metavar="NAME=TIME", multiple=True,
    help="What a step saves then: aten::mm=0.7x, softmax=10us, copies=0, gap:launch=0. May be repeated.",
)  # fmt: skip
@click.option("--explain", metavar="LEVER", help="Explain a lever of steps, and show it alone.")
@top_option("levers", SHOWN)
@machine_option
@format_option
def command(
    run: str, parts: tuple[str, ...], asked: tuple[str, ...], explain: str | None, top: int | None,
    machine: Machine | None, output_format: str,
) -> None:  # fmt: skip
    """Say what can be done about the time of a step, and what the step gains: its graph is replayed for each lever.

    RUN is a recording as for timeline. A saving is an interval: unexplained waits are kept and dropped, and questions
    that the recording leaves open are answered both ways. A name of --what-if is kernels, copies, memsets,
    communication, part of the name of a kernel or operator, gap:launch (from a call to its kernel, and between queued
    ones), gap:call (in API calls) or gap:host (between calls); the time is a factor, the time of each, or 0 for gone.

    \b
    Example:
      ncu-bench advise trace.json.gz
      ncu-bench timeline trace.json.gz --part levers
      ncu-bench timeline trace.json.gz --part path
      ncu-bench timeline trace.json.gz --what-if "aten::bmm=0.5x" --what-if "gap:launch=0"
    """
    from ncu_tools.timeline.levers.step_advice import advice_on_recording
    from ncu_tools.timeline.load_activity import load_activity

    if explain is not None:
        _explain(explain, run, output_format)
    with progress("Reading") as reading:
        activity = load_activity(run, reading)
        found = advice_on_recording(activity, machine, asked)
    if explain is not None:
        found = replace(found, levers=[one for one in found.levers if one.lever == explain], pairs=[])
    show_step_advice(found, activity, run, parts or PART_NAMES[:1], top, output_format, only=explain)


def _explain(name: str, run: str, output_format: str) -> None:
    """Explain a lever as text. Raises `WrongUsage` if it is none on steps, and for machine formats."""
    from ncu_launch.errors import WrongUsage

    from ncu_tools.cli.tables.advice.explained_lever import explained
    from ncu_tools.timeline.levers.situation import step_lever_texts

    lines = list(explained(name, page_width(WIDEST)))
    if name not in step_lever_texts():
        raise WrongUsage(
            f"{name} is a lever of kernels, and {run} is a recording, which has no counters of them.",
            advice=f"Name a report of ncu, or type: ncu-bench advise --explain {name}",
        )
    if output_format not in MACHINE_FORMATS:
        click.echo("\n".join(lines) + "\n")


def show_step_advice(
    found: StepAdvice,
    activity: Activity,
    run: str,
    parts: tuple[str, ...],
    top: int | None,
    output_format: str,
    only: str | None = None,
) -> None:
    """Write the levers, or only the critical path if that was requested; `only` is the requested lever."""

    from ncu_tools.cli.tables.step_text import path_lines, step_lines
    from ncu_tools.report import step_advice_table as tables
    from ncu_tools.report.head import head_of
    from ncu_tools.report.table import Table
    from ncu_tools.timeline.headline import recorded_by

    every = tables.lever_rows(found, run, _model_of(run))
    rows, hidden = first_rows(every, top, output_format, "lever", max(SHOWN, len(found.asked)))
    head = head_of([activity.name], devices=tuple(sorted({one for one in activity.devices.values() if one})),
                   more=(recorded_by(activity.tool),))  # fmt: skip
    notes = [*found.notes, *activity.notes]
    if parts == ("path",):
        path = Table("levers", tables.PATH, tables.path_rows(found), notes)
        if output_format == "text":
            echo_page(path_lines(found, page_width(WIDEST)), notes, head, widest=WIDEST)
        else:
            show(path, output_format, head=head)
        return
    if output_format in MACHINE_FORMATS:
        extra = tables.extra_of_advice(found)
        show(Table("levers", tables.LEVERS, rows, notes, extra), output_format, head=head)
    elif output_format == "markdown":
        show(Table("levers", tables.SHOWN, rows, [*hidden, *notes]), output_format, head=head)
    else:
        echo_page(step_lines(found, rows, page_width(WIDEST), only), [*hidden, *notes], head, widest=WIDEST)


def _model_of(run: str) -> str | None:
    """The model of a run folder; None if it has no named model."""
    from ncu_launch.errors import NcuBenchError

    from ncu_tools.timeline.levers.model_modes import model_of

    try:
        model = model_of(run)
    except NcuBenchError:
        return None
    return model if model != run else None
