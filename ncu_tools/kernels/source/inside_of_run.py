"""Per-instruction and over-time data of a run's kernels, for pages about whole runs; read only if present."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ncu_launch.errors import NcuBenchError
from ncu_parsers.ncu.session_and_source_pages import opens_source_page

from ncu_tools.kernels.source.source_text import SourceText, source_text

if TYPE_CHECKING:
    import pyarrow as pa
    from ncu_parsers.ncu_rep.instructions.time_series import TimeSeries
    from ncu_parsers.sources.sources import Source

    from ncu_tools.kernels.source.load_instructions import RunInstructions

OVER_TIME = "pmsampling:"
"""Prefix of metrics sampled over the time of a kernel."""
PER_INSTRUCTION = ("inst_executed", "smsp__pcsamp_sample_count")
"""Metrics of launches that exist if the binary report has counts or samples per instruction."""
AS_TEXT = re.compile(r"^-{3,}(?: -+)+\s*\n(?:Kernel Name|Address|Line No|#) ", re.MULTILINE)
"""Beginning of a source page's table as text."""
HEAD_BYTES = 65_536
"""A source page begins within these bytes, after output of the profiled program."""


def may_hold_instructions(metric: str) -> bool:
    """True if a run with this column of launches can hold instructions or counters over time."""
    return metric in PER_INSTRUCTION or metric.startswith(OVER_TIME)


@dataclass
class Inside:
    """The instructions of a run, counters over the time of its launches, and notes on what could not be read.

    `instructions` is None if the run has none.
    """

    instructions: RunInstructions | None = None
    series: list[TimeSeries] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def table_of_instructions(self) -> pa.Table | None:
        """The instructions as a table; None if the run has none."""
        return None if self.instructions is None else self.instructions.table

    def source_text(self, root: Path | None) -> SourceText:
        """The text of the instructions' source files: from the reports, else from below `root`."""
        if self.instructions is None:
            return SourceText()
        files = self.instructions.table["file"].unique().to_pylist()
        return source_text([file for file in files if file], self.instructions.files, root, self.instructions.sizes)


def inside_of(path: str, columns: Iterable[str], reading: Callable[[Source], None] = lambda source: None) -> Inside:
    """The inside of the kernels of the run that `path` names, whose launches have these columns.

    A report that cannot be read gives a note. Runs behind a URL have no inside.
    """
    from ncu_parsers.sources.sources import is_here

    found, columns = Inside(), list(columns)
    if not is_here(path):
        return found
    try:
        if has_instructions(path, columns):
            from ncu_tools.kernels.source.load_instructions import load_instructions

            found.instructions = load_instructions(path, reading)
        if any(name.startswith(OVER_TIME) for name in columns):
            found.series = _series(path)
    except NcuBenchError as error:
        found.notes.append(f"not shown inside kernels: {error.what}")
    return found


def has_instructions(path: str, columns: list[str]) -> bool:
    """True if the run has a file of instructions beside its launches, or a report that can hold some."""
    from ncu_parsers.schema.instructions_table import INSTRUCTIONS_FILE, instructions_beside

    named = Path(path)
    if named.suffix == ".parquet":
        return instructions_beside(named).is_file()
    if named.is_dir() and (named / INSTRUCTIONS_FILE).is_file():
        return True
    counted = any(name in PER_INSTRUCTION for name in columns)
    return any((counted and _is_binary(source)) or _is_source_page(source) for source in _sources(path))


def _series(path: str) -> list[TimeSeries]:
    from ncu_parsers.ncu_rep.instructions.time_series import time_series

    return [series for source in _sources(path) if _is_binary(source) for series in time_series(source)]


def _sources(path: str) -> list[Source]:
    """The reports that a path names; [] for Parquet files and folders without reports."""
    from ncu_parsers.parse.report_files import find_sources

    if Path(path).suffix == ".parquet":
        return []
    try:
        return list(find_sources([path]))
    except NcuBenchError:
        return []


def _is_binary(source: Source) -> bool:
    from ncu_parsers.ncu_rep import MAGIC

    return source.head(len(MAGIC)) == MAGIC


def _is_source_page(source: Source) -> bool:
    head = source.head(HEAD_BYTES)
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    text = head.decode(encoding, "replace")
    return AS_TEXT.search(text) is not None or any(opens_source_page(line) for line in io.StringIO(text))
