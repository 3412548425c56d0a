"""ncu-bench kernel: one kernel seen whole, in seven parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ncu_tools.cli.options import MACHINE_FORMATS, format_option, machine_option, progress, show
from ncu_tools.report.table import Column, Table

if TYPE_CHECKING:
    from ncu_tools.kernels.view.kernel_view import KernelView

COLUMNS = (
    Column("part", "part", spare=0),
    Column("value", "value", spare=0),
    Column("against", "against", spare=1),
    Column("spread", "least to most", spare=3),
    Column("title", "what", prose=True),
)
MACHINE_READABLE = (
    Column("part", "part"),
    Column("key", "key"),
    Column("title", "what"),
    Column("value", "value", "number"),
    Column("unit", "unit"),
    Column("low", "least", "number"),
    Column("high", "most", "number"),
    Column("of", "against", "number"),
    Column("share", "share", "fraction"),
    Column("metric", "metric"),
)

Row = dict[str, Any]


@click.command()
@click.argument("run")
@click.argument("name", required=False)
@click.option("--launch", type=click.IntRange(min=0), help="Only this launch; else the median of all of the kernel.")
@machine_option
@format_option
def command(run: str, name: str | None, launch: int | None, machine_name: str | None, output_format: str) -> None:
    """Show one kernel whole: what it is, what limits it, its occupancy, stalls, memory, pipes, and what to try first.

    RUN is a report, or what parse or profile made of one. NAME is searched in full kernel names; without it, the kernel
    is the hottest one. Values of several launches are medians. A part that the report lacks is named with what collects
    it. JSON has every value under its key with unit and metric, causes with their evidence, and NVIDIA's rules.

    \b
    Example:
      ncu-bench kernel report.ncu-rep
      ncu-bench kernel report.ncu-rep softmax --format markdown
    """
    from ncu_tools.ceilings.machine_files import find_machine
    from ncu_tools.kernels.view.kernel_view import kernel_view
    from ncu_tools.kernels.view.part_rows import view_notes
    from ncu_tools.runs.loading import load
    from ncu_tools.runs.selection import pattern_of

    machine = find_machine(machine_name) if machine_name else None
    with progress("Reading") as reading:
        loaded = load(run, reading=reading)
    view = kernel_view(loaded.table, () if name is None else (pattern_of(name),), launch, machine)
    notes = [*view_notes(view), *loaded.notes]
    if output_format in MACHINE_FORMATS:
        table = Table("kernel", MACHINE_READABLE, list(_values(view)), notes, _extra(view))
    else:
        table = Table("kernel", COLUMNS, list(_rows(view)), notes)
    show(table, output_format)


# --------------------------------------------------------------------------------------------------- for people


def _rows(view: KernelView) -> Iterator[Row]:
    """The rows of all parts; the name of a part stands in its first row."""
    from ncu_tools.kernels.view.part_rows import PARTS, rows_of_part

    for part, title in PARTS.items():
        for place, row in enumerate(rows_of_part(view, part)):
            yield {**row, "part": title if place == 0 else None}


# ------------------------------------------------------------------------------------------------- for programs


def _values(view: KernelView) -> Iterator[Row]:
    for fact in view.facts:
        yield {column.name: getattr(fact, column.name) for column in MACHINE_READABLE}
    for stall in view.stalls:
        key = f"stall_{stall.reason.replace(' ', '_')}"
        yield {
            "part": "scheduler", "key": key, "title": f"stalled: {stall.reason}", "value": stall.per_issue,
            "unit": "cycle/issue", "share": stall.share,
        }  # fmt: skip
    for kind, count in view.mix.by_kind.items() if view.mix else ():
        share = count / view.mix.total if view.mix else None
        yield {"part": "pipes", "key": f"mix_{kind}", "title": kind, "value": count, "unit": "inst", "share": share}


def _extra(view: KernelView) -> Row:
    from dataclasses import asdict

    calculated = view.occupancy.calculated
    return {
        "kernel": view.kernel_name,
        "launches": view.launches,
        "device": view.device,
        "hotspot": asdict(view.hotspot),
        "occupancy": {**asdict(view.occupancy), "limiters": calculated.limiters if calculated else None},
        "causes": view.diagnosis.as_json() if view.diagnosis else None,
        "rules": [asdict(rule) for rule in view.rules],
        "missing": view.missing,
    }
