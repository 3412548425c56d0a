"""Find the instructions of a run: in its instructions.parquet, or in its reports."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_parsers.parquet.footer import is_parquet
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.schema.instructions_table import INSTRUCTIONS_FILE, instructions_beside, joined_instructions
from ncu_parsers.schema.tables import table_metadata
from ncu_parsers.sources.sources import Source, is_url

from ncu_tools.kernels.source.source_text import COLLECT

_LAUNCHES = "launches.parquet"


@dataclass
class RunInstructions:
    """The instructions of a run, notes on reading them, and text or size of source files in the reports.

    `files` is the text by path, `sizes` are the bytes when compiled.
    """

    table: pa.Table
    notes: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)


def load_instructions(
    path: str, reading: Callable[[Source], None] = lambda source: None, wanted: Container[str] | None = None
) -> RunInstructions:
    """The instructions of the run that `path` names: a report, reports in a folder, or an output of `parse`.

    If only some columns of counts are `wanted`, others may be null, which saves time. Raises `NcuBenchError` if none
    can be read or the run has none, with advice on what to collect.
    """
    from ncu_parsers.ncu.instructions.read import read_instructions, source_files  # slow to import

    if is_url(path):
        raise NcuBenchError(f"{path} is a URL, whose instructions are not read.", advice="Fetch it, and name the file.")
    written = _written(Path(path))
    if written is not None:
        from ncu_parsers.parquet.reader import read_instructions_table  # imports Arrow's Parquet

        table = read_instructions_table(written)
        return RunInstructions(table, list(table_metadata(table).get("notes", ())))
    parts, files, sizes = [], dict[str, str](), dict[str, int]()
    for source in _reports(Path(path)):
        reading(source)
        found = read_instructions(source, files, wanted)
        if found is not None:
            parts.append(found)
            held = source_files(source)
            files |= held.texts if held is not None else {}
            sizes |= held.sizes if held is not None else {}
    if not parts:
        from ncu_tools.runs.loading import why_no_ncu_in  # slow to import

        raise NcuBenchError(
            f"{path} holds no counts of single instructions.",
            "They were not collected, or the report is a page without them (raw, details).",
            why_no_ncu_in(path)
            or f"Collect them with: {COLLECT} (compiled with -lineinfo, to see lines), or export the source page of a "
            "report: ncu --import REPORT --page source --csv > SOURCE.csv",
        )
    table = parts[0] if len(parts) == 1 else joined_instructions(parts)
    notes = [note for part in parts for note in table_metadata(part).get("notes", ())]
    return RunInstructions(table, notes, files, sizes)


def _reports(path: Path) -> list[Source]:
    """The reports that a path names; [] for a run folder that holds only its launches."""
    try:
        return find_sources([str(path)])
    except NcuBenchError:
        if (path / _LAUNCHES).is_file():
            return []
        raise


def _written(path: Path) -> Path | None:
    """The file of instructions named by a path, or in or beside the named folder or file; None if there is none."""
    if path.is_dir():
        inside = path / INSTRUCTIONS_FILE
        return inside if inside.is_file() else None
    beside = instructions_beside(path)
    if path.suffix == ".parquet" and beside.is_file():
        return beside
    return path if is_parquet(path) else None
