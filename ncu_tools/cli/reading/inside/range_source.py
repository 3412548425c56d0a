"""ncu-bench source WARP_TRACE: the source lines at which ranges inside a kernel begin."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import NcuBenchError
from ncu_launch.notes import Note, NoteKind

from ncu_tools.cli.option_kinds.warp_trace_options import warp_trace_options
from ncu_tools.cli.options import first_rows, format_option, progress, show, source_root_option, top_option
from ncu_tools.cli.reading.inside.in_time import head_of_inside, inside_of_trace, other_launches
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    from ncu_tools.cli.option_kinds.warp_trace_options import WarpTraceOptions

COLUMNS = columns(
    "warps.file~2 warps.line warps.range warps.role warps.kind~4 warps.count~5 warps.share warps.whole_share~3 "
    "warps.waits_for~1 warps.text"
)


@click.command()
@source_root_option("Look for the source of the kernel below this folder.")
@top_option("ranges")
@warp_trace_options
@format_option
def command(
    trace: str, source_root: Path | None, top: int | None, output_format: str, options: WarpTraceOptions
) -> None:
    """Show the lines of source where the ranges of a kernel begin, with their share of the lives of warps.

    WARP_TRACE and options are as for kernel --part inside. No format says lines: the first line with the name of a
    range as a text is taken, in the files that Proton's call stacks name, and below --source-root. Parquet files that
    hold lines keep them.

    \b
    Example:
      ncu-bench source iket.trace.json --source-root kernels
      ncu-bench source trace.chrome_trace
    """
    from ncu_tools.kernels.warp_ranges.range_lines import RangeLine, range_lines

    with progress("Reading"):
        read, kept = options.read(trace)
        found = inside_of_trace(read, options)
        lines, notes = range_lines(found.ranges.names, read.files, source_root)
        lines = {name: RangeLine(file, line, "") for name, (file, line) in kept.items()} | lines
    if not lines:
        raise NcuBenchError(
            f"No line of source is known for the ranges of {trace}.",
            "The trace does not say any, and no file at hand has their names as texts.",
            f"Name the folder of the kernel's source: ncu-bench source {trace} --source-root DIR",
        )
    waits = {(one.role, one.range): one.waits_for for one in reversed(found.waits)}
    rows: list[dict[str, Any]] = []
    for one in found.times:
        line = lines.get(one.range)
        rows.append({
            "file": line and line.file, "line": line and line.line, "text": (line and line.text) or None,
            "range": one.range, "role": one.role, "kind": one.kind.value, "count": one.count, "share": one.share,
            "whole_share": one.whole_share, "waits_for": waits.get((one.role, one.range)),
        })  # fmt: skip
    said = Note("lines are the first ones with the names of ranges as texts", NoteKind.METHOD)
    extra = {"kernel": found.ranges.launch.kernel, "launch": found.ranges.number}
    rows, hidden = first_rows(rows, top, output_format, "range")
    notes = [*hidden, said, *notes, *other_launches(read, found), *found.notes]
    show(Table("range_lines", COLUMNS, rows, notes, extra), output_format, head=head_of_inside(trace, found))
