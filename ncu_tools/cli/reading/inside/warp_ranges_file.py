"""ncu-bench parse WARP_TRACE: ranges of warps inside kernels as one Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from ncu_launch.errors import WrongUsage
from ncu_launch.notes import Note, NoteKind

from ncu_tools.cli.option_kinds.warp_trace_options import buffer_options, roles_option
from ncu_tools.cli.options import (
    FILE,
    format_option,
    progress,
    require_other_output,
    require_parquet_output,
    show,
    source_root_option,
)
from ncu_tools.cli.terminal_notes import WrittenFile
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    from ncu_parsers.sources.settings import Settings

COLUMNS = columns("warps.launch warps.kernel warps.blocks warps.warps warps.ranges warps.markers warps.time_ns")


@click.command()
@click.argument("traces", nargs=-1, required=True, metavar="WARP_TRACE")
@click.option("-o", "--output", type=FILE, required=True, help="The Parquet file to write.")
@source_root_option("Write the lines of ranges too: of the source below this folder.")
@buffer_options
@roles_option
@format_option
def command(
    traces: tuple[str, ...], output: Path, source_root: Path | None, settings: Settings, roles: str, output_format: str
) -> None:
    """Turn a trace from inside kernels into one Parquet file: a row for each range of a warp.

    WARP_TRACE is run-iket's JSON, a Chrome trace or tree of Proton's instrumentation, or a buffer of 64-bit records of
    flashinfer, TIRx, warpscope, Mirage or Triton-distributed (raw, from numpy.save or torch.save). What cannot be read
    is counted. The table has launch, block, warp, role, range, start, end and sm, and more columns (docs/inside.md).

    \b
    Example:
      ncu-bench parse iket.trace.json -o ranges.parquet
      ncu-bench parse buffer.npy --event-names load,mma,store -o ranges.parquet
      ncu-bench parse iket.trace.json -o ranges.parquet --source-root kernels
    """
    from ncu_parsers.parse.warp_trace_files import read_warp_trace, write_warp_trace

    from ncu_tools.kernels.warp_ranges.launch_ranges import roles_in
    from ncu_tools.kernels.warp_ranges.overview import rows_of_launches
    from ncu_tools.kernels.warp_ranges.range_lines import range_lines

    if len(traces) > 1:
        raise WrongUsage(
            f"{len(traces)} files were named, and one is a trace from inside kernels.",
            "A file holds the ranges of one trace, as clocks of two do not compare.", "Name one.",
        )  # fmt: skip
    require_other_output(output, traces)
    require_parquet_output(output)
    with progress("Reading"):
        named = roles_in(roles)
        trace, lines = read_warp_trace(traces[0], settings)
        trace = trace.with_roles(named)
        known, unread = range_lines(trace.names, trace.files, source_root) if source_root is not None else ({}, [])
        lines = {**lines, **{name: (one.file, one.line) for name, one in known.items()}}
        rows = write_warp_trace(output, trace, traces[0], lines)
    notes = [
        *(Note(one, NoteKind.LOST) for one in trace.damage), *trace.notes, *unread,
        WrittenFile(f"{rows:,} rows are in {output}"),
    ]  # fmt: skip
    extra = {"output": str(output), "tool": trace.tool, "clock": trace.clock.value}
    show(Table("warp_ranges", COLUMNS, rows_of_launches(trace), notes, extra), output_format)
