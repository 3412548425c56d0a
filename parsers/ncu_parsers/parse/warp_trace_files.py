"""Traces from inside kernels (ranges of warps): read from files of any tool or Parquet, and written to Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ncu_launch.errors import NcuBenchError

from ncu_parsers.parquet.reader import is_warp_ranges, warp_range_parts
from ncu_parsers.parquet.writer import writing_row_groups
from ncu_parsers.parse.file_kinds import warps_reader_of
from ncu_parsers.schema.warp_range_table import file_metadata, schema
from ncu_parsers.sources import memory
from ncu_parsers.sources.settings import NOT_SET, Settings
from ncu_parsers.sources.sources import Source, is_url
from ncu_parsers.warp_ranges.trace_table import NO_LINES, Lines, facts_of, tables_of, trace_of
from ncu_parsers.warp_ranges.warp_trace import WarpTrace


def is_warp_trace(path: str) -> bool:
    """True if a file holds ranges of warps inside kernels, by its first bytes or, for Parquet, its metadata.

    False for a URL and for a file that cannot be read.
    """
    if is_url(path) or not Path(path).is_file():
        return False
    try:
        return is_warp_ranges(Path(path)) or warps_reader_of(Source(path)) is not None
    except (NcuBenchError, OSError):
        return False


def read_warp_trace(path: str, settings: Settings = NOT_SET) -> tuple[WarpTrace, Lines]:
    """A trace, and the source lines of its ranges, `NO_LINES` if the file has none.

    Raises `NcuBenchError` if the file is damaged beyond reading, of an unknown version, or no such trace.
    """
    with memory.limited():
        if is_warp_ranges(Path(path)):
            facts, parts = warp_range_parts(Path(path))
            return trace_of(facts, parts)
        source = Source(path, settings=settings)
        read = warps_reader_of(source)
        if read is None and settings.layout:
            from ncu_parsers.warp_ranges.profiler_buffer import read_trace as read
        if read is None:
            raise NcuBenchError(
                f"{path} holds no ranges of warps inside kernels.",
                "They come from run-iket (JSON), Proton (Chrome trace or tree of its instrumentation), or a buffer of "
                "flashinfer's profiler, TIRx or the like.",
                "For a raw buffer that is not recognised, name its layout: --layout wide",
            )
        return read(source), NO_LINES


def write_warp_trace(path: Path, trace: WarpTrace, report: str, lines: Lines = NO_LINES) -> int:
    """Write a trace as Parquet, atomically; returns the number of rows.

    Raises `NcuBenchError` if the file cannot be written.
    """
    rows = 0
    with writing_row_groups(path) as groups:
        for table in tables_of(trace, lines):
            groups.write(table)
            rows += len(table)
        groups.write(schema().empty_table())  # a file without rows has columns too
        facts: dict[str, Any] = facts_of(trace)
        groups.finish(file_metadata(reports=[{"report": report}], **facts))
    return rows
