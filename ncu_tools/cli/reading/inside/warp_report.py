"""ncu-bench report WARP_TRACE: the timeline inside a kernel as a page, or its ranges as a trace for Perfetto."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from ncu_launch.errors import WrongUsage

from ncu_tools.cli.option_kinds.warp_trace_options import warp_trace_options
from ncu_tools.cli.options import FILE, echo_notes, progress, require_other_output
from ncu_tools.cli.reading.inside.in_time import head_of_inside, inside_of_trace, other_launches
from ncu_tools.cli.terminal_notes import WrittenFile

if TYPE_CHECKING:
    from ncu_tools.cli.option_kinds.warp_trace_options import WarpTraceOptions
    from ncu_tools.kernels.warp_ranges.inside_kernel import InsideKernel

PAGES, TRACES = (".html", ".htm"), (".perfetto.json", ".perfetto")


@click.command()
@click.option(
    "-o", "--output", type=FILE, required=True,
    help="The .html file to write, or a .perfetto.json that ui.perfetto.dev opens.",
)  # fmt: skip
@click.option("--block", type=click.IntRange(min=0), help="Draw or write this block alone.")
@warp_trace_options
def command(trace: str, output: Path, block: int | None, options: WarpTraceOptions) -> None:
    """Write what is inside a kernel, in time, as one HTML file with lanes of warps, or its ranges for Perfetto.

    WARP_TRACE and options are as for kernel --part inside. The page has the slowest and the median block, levers, and
    all tables; no script runs in it. In Perfetto a block is a process and a warp a thread.

    \b
    Example:
      ncu-bench report iket.trace.json -o inside.html
      ncu-bench report buffer.npy --event-names load,mma,store -o inside.perfetto.json
    """
    from ncu_launch.files.atomic_files import replacing_output, write_bytes_atomically

    ending = output.name.lower()
    if not ending.endswith((*PAGES, *TRACES)):
        raise WrongUsage(
            f"{output} has no ending that says what to write.",
            advice="End it in .html for a page, or .perfetto.json for Perfetto.",
        )
    require_other_output(output, [trace])
    with progress("Reading"):
        read, _ = options.read(trace)
        found = inside_of_trace(read, options)
        row = _row_of(found, block)
        if ending.endswith(PAGES):
            write_bytes_atomically(output, _page(trace, found, block).encode())
        else:
            from ncu_tools.report.export.warp_slices import write_warp_slices

            with replacing_output(output) as temporary, temporary.open("w", encoding="utf-8") as file:
                write_warp_slices(found.ranges, file, trace, row)
    opened = "" if ending.endswith(PAGES) else "; open https://ui.perfetto.dev and drop the file there"
    echo_notes([*other_launches(read, found), *found.notes, WrittenFile(f"{output} is written{opened}")])


def _row_of(found: InsideKernel, block: int | None) -> int | None:
    """The index of the block with this number. Raises `WrongUsage` if there is none."""
    from ncu_tools.kernels.warp_ranges.lanes import blocks_to_draw

    if block is None:
        return None
    try:
        return blocks_to_draw(found.ranges, block)[0][1]
    except ValueError:
        raise WrongUsage(f"There is no block {block} in this launch.", advice="Leave --block out.") from None


def _page(trace: str, found: InsideKernel, block: int | None) -> str:
    from ncu_tools.cli.reading.inside.warp_advice import NOT_CONFIRMED, SHOWN, row_of
    from ncu_tools.kernels.warp_ranges.lanes import blocks_to_draw
    from ncu_tools.kernels.warp_ranges.warp_levers import warp_levers
    from ncu_tools.report.html.still_page import still_page
    from ncu_tools.report.plot.warp_lanes_plot import warp_lanes_svg
    from ncu_tools.report.table import Table
    from ncu_tools.report.warp_tables import in_clock, phase_sentences, readable, sections

    ranges = found.ranges
    head = head_of_inside(trace, found)
    pictures = [
        (f"{title}: {in_clock(int(ranges.block_end[row] - ranges.block_begin[row]), ranges.clock)}",
         warp_lanes_svg(found, row))
        for title, row in blocks_to_draw(ranges, block)
    ]  # fmt: skip
    levers = [row_of(one) for one in warp_levers(found)]
    tables = [("levers", Table("inside", SHOWN, levers, [NOT_CONFIRMED] if levers else []))]
    for one in sections(found):
        shown = readable(one, ranges.clock)
        tables.append((one.title, Table("inside", shown.columns, shown.rows, [])))
    tables[-1][1].notes = [*phase_sentences(found), *found.notes]
    return still_page(f"Inside {ranges.launch.kernel}", f"{head.line()}. {head.first}.", tables, pictures)
