"""A run as users name it -> its table of launches.

A run is a run folder, a Parquet file of ours, a report file, a folder of reports, or standard input. A report of more
than a few megabytes is parsed once and kept as Parquet in the user's cache folder, under a key that changes with it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_launch.expectation import EXPECTED
from ncu_parsers.parquet import is_parquet, read_launches, write_table
from ncu_parsers.parse import Parsed, parse, stream_into
from ncu_parsers.sources import STANDARD_INPUT, Source, find_sources
from ncu_parsers.tables import SCHEMA_VERSION, concatenated, table_metadata

from ncu_tools import __version__

CACHED_FROM_BYTES = 4_000_000
LAUNCHES = "launches.parquet"
KERNELS = "kernels.parquet"


@dataclass
class Run:
    """One run: its name, its launches, and what was odd about reading it."""

    name: str
    table: pa.Table
    notes: list[str] = field(default_factory=list)


def load(path: str, *, reading: Callable[[Source], None] = lambda source: None) -> Run:
    """The run that `path` names.

    Raises `NcuBenchError` when nothing in it can be read; what can be read is kept, what cannot is in the notes.
    """
    file = Path(path)
    if path != STANDARD_INPUT and (file / LAUNCHES).is_file():
        file = file / LAUNCHES
    if path != STANDARD_INPUT and file.is_file() and is_parquet(file):
        table = read_launches(file)
        return Run(path, table, list(table_metadata(table).get("notes", [])))
    return _parsed(path, reading)


def load_all(paths: Sequence[str], *, reading: Callable[[Source], None] = lambda source: None) -> Run:
    """Several runs as one, for commands that look at all launches together."""
    runs = [load(path, reading=reading) for path in paths]
    if len(runs) == 1:
        return runs[0]
    return Run(
        ", ".join(run.name for run in runs),
        concatenated([run.table for run in runs]),
        [note for run in runs for note in run.notes],
    )


def expected_of(path: str) -> pa.Table:
    """The operators that a run folder expects in one iteration, as a table of launches.

    Raises `NcuBenchError` when the run has no such file, or one in which nothing can be read.
    """
    file = (Path(path) if Path(path).is_dir() else Path(path).parent) / EXPECTED
    if not file.is_file():
        raise NcuBenchError(
            f"{path} has no {EXPECTED}, so nothing is known to compare its numbers with.",
            "Only runs of a model target under ncu have one; reports and programs do not.",
            "Make such a run with: ncu-bench profile TARGET --tool ncu -o RUN",
        )
    return _parsed(str(file), lambda source: None).table


def _parsed(path: str, reading: Callable[[Source], None]) -> Run:
    sources = find_sources([path])
    kept = _cache_file(sources)
    if kept is not None and kept.is_file():
        table = read_launches(kept)
        return Run(path, table, list(table_metadata(table).get("notes", [])))
    streamed = _streamed(sources, kept, reading) if kept is not None else None
    if kept is not None and streamed is not None:
        return Run(path, read_launches(kept), [note for report in streamed.reports for note in report.notes])
    parsed = parse(sources, reading=reading)
    if parsed.table is None:
        raise next(iter(parsed.refused.values()))
    notes = [*parsed.notes, *(f"{name} was left out: {error.what}" for name, error in parsed.refused.items())]
    notes += [note for report in parsed.reports for note in report.notes]
    if kept is not None and not parsed.refused:
        _keep(parsed.table, kept)
    return Run(path, parsed.table, notes)


def _cache_file(sources: Sequence[Source]) -> Path | None:
    """Where a large report's table is kept between commands; None for small ones and for standard input."""
    if any(source.path == STANDARD_INPUT for source in sources):
        return None
    stats = [Path(source.path).stat() for source in sources]
    if sum(stat.st_size for stat in stats) < CACHED_FROM_BYTES:
        return None
    key = hashlib.sha256(f"{__version__} {SCHEMA_VERSION}".encode())
    for source, stat in zip(sources, stats, strict=True):
        key.update(f"{Path(source.path).resolve()} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "ncu-bench" / f"{key.hexdigest()[:32]}.parquet"


def _streamed(sources: Sequence[Source], path: Path, reading: Callable[[Source], None]) -> Parsed | None:
    """What streaming a large report into the cache gave; None where that cannot be done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return stream_into(path, sources, reading=reading)
    except (OSError, NcuBenchError):
        return None


def _keep(table: pa.Table, path: Path) -> None:
    """Keep a table for the next command. A cache that cannot be written is no reason to fail."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_table(table, path)
    except (OSError, NcuBenchError):
        return
