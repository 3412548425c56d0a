"""ncu-bench roofline: kernels under the ceilings of their machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import WrongUsage

from ncu_tools.cli.options import format_option, group_option, machine_option, progress, show
from ncu_tools.report.table import Column, Table

if TYPE_CHECKING:
    from ncu_tools.ceilings import Ceiling
    from ncu_tools.roofline import Roofline

LOWER = "flops_lower_bound"
COLUMNS = (
    Column("kernel", "kernel", wide=True),
    Column("run", "run", wide=True),
    Column("launches", "launches", "count"),
    Column("time_total_ns", "time", "time", "ns"),
    Column("time_share", "share", "fraction"),
    Column("arithmetic_intensity", "FLOP/B", "flop/byte", "FLOP/byte", lower_bound_if=LOWER),
    Column("flops_per_s", "FLOP/s", "flop/s", "FLOP/s", lower_bound_if=LOWER),
    Column("unit", "unit"),
    Column("bound", "bound"),
    Column("bound_fraction", "of bound", "fraction"),
)
MACHINE_READABLE = (
    Column("dram_bytes_per_s", "DRAM B/s", "byte/s", "byte/s"),
    Column(LOWER, "lower bound"),
    Column("flag", "flag"),
)
PICTURES = ("svg", "png", "pdf")


@click.command()
@click.argument("runs", nargs=-1, metavar="RUN...")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Draw to this .svg, .png or .pdf file."
)
@click.option(
    "--top", type=click.IntRange(min=1), default=20, show_default=True, help="How many kernels the table shows."
)
@click.option("--title", default="", help="A title for the picture.")
@group_option
@machine_option
@format_option
def command(
    runs: tuple[str, ...],
    output: Path | None,
    top: int,
    title: str,
    group: str,
    machine_name: str | None,
    output_format: str,
) -> None:
    """Put every kernel on a roofline, and draw it.

    The table names each point; with --format json every point, ceiling and ridge point. Ceilings come from the report
    itself where it holds them, else from the machine file of its device, else from --machine. Without a RUN the bare
    roofline of --machine is drawn.

    \b
    Example:
      ncu-bench roofline report.csv -o roofline.svg
      ncu-bench roofline before.csv after.csv --machine a100-sxm4-80gb -o both.png
    """
    from ncu_tools import roofline as model
    from ncu_tools.load import load
    from ncu_tools.machine import find_machine

    if output is not None and output.suffix.lstrip(".").lower() not in PICTURES:
        raise WrongUsage(f"{output} has no suffix of a picture.", advice="Name a file ending in .svg, .png or .pdf.")
    machine = find_machine(machine_name) if machine_name else None
    if not runs and machine is None:
        raise WrongUsage(
            "No run was named.", advice="Name a report, or a machine with --machine NAME for its bare roofline."
        )
    notes: list[str] = []
    if runs:
        with progress("Reading") as reading:
            loaded = [load(run, reading=reading) for run in runs]
        notes = [note for run in loaded for note in run.notes]
        result = model.roofline({run.name: run.table for run in loaded}, machine, group=group)
    elif machine is not None:
        result = model.of_machine(machine)
    if output is not None:
        _write_picture(result, output, title)
        notes.append(f"the picture is {output}")
    show(_table(result, notes, top, output_format), output_format)


def _table(result: Roofline, notes: list[str], top: int, output_format: str) -> Table:
    points = sorted(result.points, key=lambda point: -(point.hotspot.time_total_ns or 0.0))
    if output_format == "text":
        points = points[:top]
    several = len({point.run for point in points}) > 1
    shown = (lambda run: run) if output_format == "json" else (lambda run: PurePath(run).name)
    rows = [
        {**asdict(point.hotspot), "run": shown(point.run) if several or output_format == "json" else None}
        for point in points
    ]
    columns = (*COLUMNS, *MACHINE_READABLE) if output_format in ("json", "csv") else COLUMNS
    return Table(
        "roofline", columns, rows, [*result.notes, *_ceiling_notes(result, output_format), *notes], _extra(result)
    )


def _extra(result: Roofline) -> dict[str, Any]:
    return {
        "ceilings": [
            {**asdict(ceiling), "value_unit": ceiling.value_unit, "drawn": drawn}
            for drawn, ceilings in ((True, result.ceilings), (False, result.others))
            for ceiling in ceilings
        ],
        "ridge_points": [asdict(ridge) for ridge in result.ridges],
    }


def _ceiling_notes(result: Roofline, output_format: str) -> list[str]:
    """The ceilings in words, for the forms that have no other place for them."""
    from ncu_tools.ceilings import unit_title
    from ncu_tools.report.units import digits
    from ncu_tools.roofline import others_beside

    if output_format == "json":
        return []
    ridge_of = {(ridge.device, ridge.unit): ridge.intensity for ridge in result.ridges}
    notes = []
    for ceiling in result.ceilings:
        intensity = ridge_of.get((ceiling.device, ceiling.unit))
        ridge = f", ridge at {digits(intensity)} FLOP/B" if intensity is not None else ""
        title = f"{unit_title(ceiling.unit)} {ceiling.instruction}".strip()
        others = "".join(f"; {apart} {_amount(other)}" for apart, other in others_beside(ceiling, result.others))
        notes.append(f"{ceiling.device}: {title} {_amount(ceiling)}{ridge} ({ceiling.source}){others}")
    return notes


def _amount(ceiling: Ceiling) -> str:
    from ncu_tools.report.units import scaled

    return scaled(ceiling.value, "B/s" if ceiling.is_bandwidth else ceiling.value_unit)


def _write_picture(result: Roofline, output: Path, title: str) -> None:
    from ncu_parsers.parquet import replacing

    from ncu_tools.report.roofline_plot import draw

    picture = draw(result, output.suffix.lstrip(".").lower(), title=title)
    with replacing(output) as temporary:
        temporary.write_bytes(picture)
