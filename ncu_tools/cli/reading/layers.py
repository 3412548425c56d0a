"""ncu-bench hotspots --by layer: the layers of a model as a tree, with their time, FLOPs and bytes."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.notes import Note, NoteKind

from ncu_tools.cli.option_kinds.rows_and_order import Words, rows_and_order
from ncu_tools.cli.option_kinds.selection_options import selection_options
from ncu_tools.cli.options import (
    FILE,
    MACHINE_FORMATS,
    echo_notes,
    first_rows,
    format_option,
    progress,
    settings_options,
    show,
    top_option,
)
from ncu_tools.cli.tables.time_titles import with_time_title
from ncu_tools.cli.terminal_notes import picture_written
from ncu_tools.numbers.number_format import percent
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.pictures import format_of, note_on_boxes
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    from ncu_parsers.sources.settings import Settings

    from ncu_tools.model.layers.layers import Layer, Layers
    from ncu_tools.report.head import Head
    from ncu_tools.runs.run import Run
    from ncu_tools.runs.selection import Selection

LOWER = "flops_lower_bound"
OF_DEVICES = ("device_name", "compute_capability")
COLUMNS = (
    column("layer"),
    column("launches", spare=4, kind="number"),
    *columns(
        "kernels~5 time_ns~0 time_share~0 forward_ns backward_ns optimizer_ns prefill_ns decode_ns flops~1 "
        "dram_bytes~3 arithmetic_intensity~2"
    ),
)
MACHINE_READABLE = columns("module depth is_leaf flops_lower_bound")
FORWARD_BACKWARD = (
    COLUMNS[0],
    *columns(
        "forward_ns backward_ns time_ratio interval forward_flops~2 backward_flops~2 flops_ratio "
        "forward_bytes~3 backward_bytes~3 bytes_ratio~1"
    ),
)
INTERVAL = FORWARD_BACKWARD[4]
ENDS = columns("time_ratio_low time_ratio_high")
SHARE_WORTH_SAYING = 0.0005
SORTED_BY = {"time": "time_ns", "flops": "flops", "dram": "dram_bytes"}
ORDER = Words((*SORTED_BY, "name"), "List the layers that nothing is below, ordered by this, instead of the tree.")


@click.command()
@click.argument("run")
@click.option("--depth", type=click.IntRange(min=0), help="How many levels below the model to show; all if not given.")
@click.option("-o", "--output", type=FILE, help="Draw bars to this .svg, .png or .pdf file.")
@click.option("--title", default="", help="A title for the picture.")
@rows_and_order(orders=ORDER)
@top_option("layers of a list, by time unless --sort says otherwise,")
@click.option("--forward-backward", is_flag=True, help="Show backward against forward: the ratios of time and FLOPs.")
@settings_options
@selection_options
@format_option
def command(
    run: str,
    depth: int | None,
    output: Path | None,
    title: str,
    order: str | None,
    top: int | None,
    forward_backward: bool,
    output_format: str,
    only: Selection | None,
    settings: Settings,
) -> None:
    """Show the layers of a model as a tree: time forward and backward, FLOPs, bytes, their ratio, launches, kernels.

    Numbers of a layer include everything below it, and are means over the iterations. RUN is a run folder of a model
    target, or any report whose launches have NVTX ranges of modules. The picture has a bar for each layer without
    sublayers, or with --depth for each layer at that depth; --sort and --top list the same layers, so that their shares
    add up.

    \b
    Example:
      ncu-bench hotspots run --by layer --depth 1
      ncu-bench hotspots run --by layer --sort time --top 10
      ncu-bench hotspots run --by layer -o layers.svg
      ncu-bench hotspots run --by layer --forward-backward --depth 1
    """
    from ncu_tools.kernels.operator_times import operator_notes, time_title
    from ncu_tools.model.layers.layers import NEEDED, layers, why_no_layers
    from ncu_tools.report.first_sentences import first_layer
    from ncu_tools.runs.loading import load_only, points_summed

    if format_of(output) and forward_backward:
        raise WrongUsage("--forward-backward has no picture.", advice="Leave -o out, or --forward-backward.")
    if forward_backward and (order or top):
        raise WrongUsage("--forward-backward is a tree.", advice="Leave out --sort and --top, or --forward-backward.")
    with progress("Reading") as reading:
        loaded = load_only(run, only, reading=reading, columns=(*NEEDED, *OF_DEVICES), settings=settings)
    loaded.notes = [*points_summed(run, only), *loaded.notes]
    if forward_backward:
        _show_ratios(run, loaded, depth, only, output_format)
        return
    result = layers(loaded.table, depth=depth)
    notes = [*loaded.notes, *result.notes, *operator_notes(result.clocks)]
    if result.iterations > 1:
        notes.append(Note(f"means over {result.iterations} iterations", NoteKind.IN_HEAD))
    if not result.rows:
        echo_notes(loaded.notes)
        hint = f"Its kernels: ncu-bench hotspots {shlex.quote(run)}"
        raise NcuBenchError(f"{run} has no layers to show.", why_no_layers(result.notes), hint)
    if output is not None:
        notes += [picture_written(_picture(result, format_of(output), title), output), *note_on_boxes([title])]
        if result.share_above is not None and result.share_above >= SHARE_WORTH_SAYING:
            notes.append(
                f"the bars leave out {percent(result.share_above)} of the time: launches of layers that have others "
                "below them; the table has it"
            )
    if order or top:
        found, hidden = first_rows(_ordered(result.deepest, order or "time"), top, output_format, "layer")
        notes += hidden
        rows = [{**asdict(row), "layer": row.module} for row in found]
    else:
        indent = output_format in ("text", "markdown")
        rows = [{**asdict(row), "layer": "  " * row.depth * indent + row.name} for row in result.rows]
    table = with_time_title(Table("layers", COLUMNS, rows, notes, more=MACHINE_READABLE), time_title(result.clocks))
    head = _head(run, loaded, result.clocks, only, result.iterations)
    show(table, output_format, head=replace(head, first=first_layer(result.rows)))


def _ordered(layers: Sequence[Layer], order: str) -> list[Layer]:
    """The layers from most to least, those with unknown amounts last, or by name."""
    if order == "name":
        return sorted(layers, key=lambda row: row.module)
    return sorted(layers, key=lambda row: (-(getattr(row, SORTED_BY[order]) or 0.0), row.module))


def _head(run: str, loaded: Run, clocks: Collection[str], only: Selection | None, iterations: int) -> Head:
    """The line above the table, with the number of iterations in the means."""
    from ncu_tools.kernels.operator_times import operator_notes, time_title
    from ncu_tools.report.head import head_of

    means = (f"means over {iterations} iterations",) if iterations > 1 else ()
    notes = [*loaded.notes, *operator_notes(clocks)]
    return head_of([run], loaded.table, notes, only=only, time_title=time_title(clocks), more=means)


def _show_ratios(name: str, run: Run, depth: int | None, only: Selection | None, output_format: str) -> None:
    from ncu_tools.kernels.operator_times import operator_notes, time_title
    from ncu_tools.model.layers.forward_backward import forward_backward

    result = forward_backward(run.table, depth=depth)
    head = _head(name, run, result.clocks, only, 0)
    notes = [*run.notes, *result.notes, *operator_notes(result.clocks)]
    indent = output_format in ("text", "markdown")
    rows = []
    for row in (*result.rows, result.whole):
        low, high = row.time_ratio_low, row.time_ratio_high
        interval = None if low is None or high is None else f"[{low:.3g} - {high:.3g}]"
        rows.append({**asdict(row), "layer": "  " * row.depth * indent + row.name, "interval": interval})
    if output_format in MACHINE_FORMATS:
        columns = [*(one for one in FORWARD_BACKWARD if one is not INTERVAL), *ENDS, *MACHINE_READABLE[:2]]
    else:
        columns = list(FORWARD_BACKWARD)
    table = with_time_title(Table("layers", columns, rows, notes), time_title(result.clocks))
    show(table, output_format, head=head)


def _picture(result: Layers, picture_format: str, title: str) -> bytes:
    from ncu_tools.kernels.operator_times import time_title
    from ncu_tools.report.plot.layer_bars import draw_bars

    return draw_bars(
        result.deepest,
        picture_format,
        title=title,
        bytes_title=result.bytes_title,
        time_title=time_title(result.clocks),
    )
