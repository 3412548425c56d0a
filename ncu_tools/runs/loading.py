"""Load the table of launches of a run that the user names.

A run is a run folder, a Parquet file of ncu-bench, a dataset, a report file, a folder of reports, or standard input;
Parquet files and datasets may be behind a URL. A report of more than a few megabytes is parsed once and cached as
Parquet in the user's cache folder, under a key of its path, size, time and the release.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.run_files import LOGS, REPORTS
from ncu_launch.notes import Note, NoteKind
from ncu_launch.version import VERSION
from ncu_parsers.datasets.dataset_layout import LAUNCHES as LAUNCHES
from ncu_parsers.datasets.dataset_layout import find_dataset
from ncu_parsers.datasets.engine import Engine
from ncu_parsers.datasets.remote_files import RemoteFile, file_at
from ncu_parsers.parquet.footer import is_parquet
from ncu_parsers.parquet.reader import Columns, read_launches
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.bench_table import BENCH_FILE
from ncu_parsers.schema.tables import SCHEMA_VERSION, table_metadata
from ncu_parsers.schema.vendors import VENDOR_COLUMN, why_no_ncu_for
from ncu_parsers.sources.settings import NOT_SET, Settings

from ncu_tools.runs.run import Run, notes_in
from ncu_tools.runs.selection import Selection
from ncu_tools.runs.varied_run import by_point, in_words, is_varied

if TYPE_CHECKING:
    from ncu_parsers.parse.parse import Parsed
    from ncu_parsers.sources.sources import Source

CACHED_FROM_BYTES = 4_000_000
ENDED_EARLY = Note("the run ended early; this is what it had collected until then", NoteKind.LOST)
NO_TABLES = Note(
    "the run wrote no tables: it still runs, or was stopped before its end; this is what its reports hold",
    NoteKind.LOST,
)


def why_no_ncu_in(path: str) -> str:
    """Why ncu cannot profile the run that `path` names, if its GPU is another vendor's; "" if it can."""
    try:
        return why_no_ncu_for(load(path).read([VENDOR_COLUMN]))
    except NcuBenchError:
        return ""


def load(
    path: str,
    *,
    reading: Callable[[Source], None] = lambda source: None,
    engine: Engine | None = None,
    ranges: bool = True,
    settings: Settings = NOT_SET,
) -> Run:
    """Find the run that `path` names: columns of Parquet are read on demand, reports are parsed now with `settings`.

    With `ranges=False`, big timelines are read without NVTX ranges, threads, phases and modules. Raises `NcuBenchError`
    if nothing can be read; partial failures are in the notes. Raises `WrongUsage` for a report with an `engine`, which
    reads Parquet only.
    """
    found = on_disk(path, engine)
    if found is not None:
        return found
    if engine is not None:
        from ncu_parsers.parse.report_files import find_sources  # slow to import, as the readers are

        find_sources([path])  # raises if nothing exists
        raise WrongUsage(
            f"{path} is a report, and --dask shares out the work on datasets.",
            advice=f"Make one with: ncu-bench parse {path} -o dataset/",
        )
    run = _parsed(path, reading, settings, ranges=ranges)
    ended_early = (Path(path) / REPORTS).is_dir() and (Path(path) / LOGS).is_dir()
    return replace(run, told=[NO_TABLES, *run.notes]) if ended_early else run


def load_only(
    path: str,
    only: Selection | None,
    *,
    reading: Callable[[Source], None] = lambda source: None,
    columns: Columns = None,
    settings: Settings = NOT_SET,
) -> Run:
    """Load the run that `path` names: `columns` of it, or with `only` the selected launches with all columns.

    Raises `NcuBenchError` as `loading.load` and `Selection.of` do.
    """
    run = load(path, reading=reading, settings=settings)
    return run.only(columns) if only is None else only.of(run)


def points_summed(path: str, only: Selection | None) -> list[str]:
    """The note of a view that sums the launches of several points of the run that `path` names; [] for one point.

    Raises `NcuBenchError` if its file is damaged.
    """
    if not is_varied(path):
        return []
    run = load(path)
    points = [in_words(values) for values, _ in by_point(run if only is None else only.of(run))]
    if len(points) < 2:
        return []
    typed = points[0].replace(", ", ",")
    return [f"{len(points)} points of the profile are taken together here; --point {typed} shows one alone"]


def on_disk(path: str, engine: Engine | None = None) -> Run | None:
    """The run that `path` names if it is a run folder, a Parquet file or a dataset; None if reports must be parsed.

    Raises `NcuBenchError` for a URL that cannot be reached or holds none of these.
    """
    if path == "-":  # standard input; the readers that detect it are slow to import
        return None
    if not path:
        raise WrongUsage(
            "A run without a name was asked for.", "A variable of the shell may be empty.", "Name the run."
        )
    file = file_at(path)
    if isinstance(file, RemoteFile):
        return _remote(path, file, engine)
    if (file / LAUNCHES).is_file():
        return Run.in_file(path, file / LAUNCHES, _notes_of_an_early_end(file), engine)
    if (file / BENCH_FILE).is_file():  # reading it raises an error with advice
        return Run.in_file(path, file / BENCH_FILE, engine=engine)
    if file.is_dir():
        dataset = find_dataset(path, engine)
        return Run.of_dataset(dataset) if dataset is not None else None
    if not (file.is_file() and is_parquet(file)):
        return None
    return Run.in_file(path, file, engine=engine)


def _notes_of_an_early_end(folder: Path) -> list[str]:
    """Notes of a run folder whose run was cut off, and of its file; [] for every other folder."""
    from ncu_launch.files.manifest import manifest_in

    manifest = manifest_in(folder)
    if manifest is None or not manifest.partial:
        return []
    return [ENDED_EARLY, *notes_in(read_launches(folder / LAUNCHES, ()))]


def _remote(path: str, file: RemoteFile, engine: Engine | None) -> Run:
    from ncu_parsers.parse.report_files import has_report_suffix, is_remote  # slow to import

    if has_report_suffix(Path(path)):
        raise is_remote(path)
    dataset = find_dataset(path, engine)
    if dataset is not None:
        return Run.of_dataset(dataset)
    for one in (file, file.joinpath(LAUNCHES)):
        if one.is_file():
            return Run.in_file(path, one, engine=engine)
    raise NcuBenchError(
        f"There is no dataset and no Parquet file at {path}.",
        "Reports are read from disk only.",
        f"Make a dataset there with: ncu-bench parse REPORT... -o {path}",
    )


def together(paths: Sequence[str], engine: Engine) -> Run:
    """Several runs as one dataset that `engine` reads; raises as `load` does."""
    found = [load(path, engine=engine) for path in paths]
    return replace(
        found[0],
        name=", ".join(paths),
        parts=[part for run in found for part in run.parts],
        refused=[line for run in found for line in run.refused],
        told=[],
    )


def with_compiled_lines(run: Run, inductor: str) -> Run:
    """The run in memory, with lines of generated kernels from the folder or file `inductor`."""
    from ncu_parsers.derived.operators import inductor_sources

    return Run.held(run.name, inductor_sources.with_compiled_lines(run.table, inductor), run.notes)


def _parsed(path: str, reading: Callable[[Source], None], settings: Settings, *, ranges: bool) -> Run:
    from ncu_parsers.parse.file_kinds import has_ranges_apart
    from ncu_parsers.parse.parse import parse
    from ncu_parsers.parse.report_files import find_sources

    sources = find_sources([path], settings)
    kept = _cache_file(sources)
    if kept is not None and kept.is_file():
        return _in_cache(path, kept)
    if kept is not None and not ranges and len(sources) == 1 and has_ranges_apart(sources[0]):
        kept = kept.with_stem(f"{kept.stem}-gpu-work")
        if kept.is_file():
            return _in_cache(path, kept)
    else:
        ranges = True
    if kept is not None and _streamed(sources, kept, reading, ranges=ranges) is not None:
        return _in_cache(path, kept)
    is_piped = sources[0].is_piped
    if is_piped and (read := _streamed_at_once(sources, reading)) is not None:
        return read
    parsed = parse(sources, reading=reading)
    if parsed.table is None:
        raise next(iter(parsed.refused.values()))
    left_out = (
        Note(f"{name} was left out: {_of(name, error.what)}", NoteKind.LOST, name)
        for name, error in parsed.refused.items()
    )
    notes = [*parsed.notes, *left_out, *_of_reports(parsed.table)]
    if kept is not None and not parsed.refused:
        _keep(parsed.table, kept)
    return Run.held(sources[0].name if is_piped else path, parsed.table, notes)


def _of(name: str, what: str) -> str:
    """What is wrong with a file, behind its name."""
    return f"it {rest}" if (rest := what.removeprefix(f"{name} ")) != what else what


def _streamed_at_once(sources: Sequence[Source], reading: Callable[[Source], None]) -> Run | None:
    """Read a large report that cannot be cached, by streaming; None if it is small or cannot be streamed."""
    if sum(source.size for source in sources) < CACHED_FROM_BYTES:
        return None
    with TemporaryDirectory() as folder:
        file = Path(folder) / LAUNCHES
        if _streamed(sources, file, reading) is None:
            return None
        table = read_launches(file)
        return Run.held(sources[0].name, table, _of_reports(table))


def _in_cache(path: str, kept: Path) -> Run:
    about = read_launches(kept, ())
    return Run.in_file(path, kept, [*notes_in(about), *_of_reports(about)])


def _of_reports(launches: pa.Table) -> list[str]:
    """Notes and losses of each report of the launches."""
    reports = table_metadata(launches).get("reports", [])
    return [note for report in reports for key in ("notes", "losses") for note in report.get(key, [])]


def _cache_file(sources: Sequence[Source]) -> Path | None:
    """The cache file of large reports; None for small ones and for pipes."""
    from ncu_parsers.parse.file_kinds import read_with

    from ncu_tools.ceilings.machine_files import own_place

    if any(source.is_piped for source in sources) or sum(source.size for source in sources) < CACHED_FROM_BYTES:
        return None
    beside = [name for name in astuple(sources[0].settings) if name]
    key = hashlib.sha256(f"{VERSION} {SCHEMA_VERSION} {read_with(sources)}".encode())
    for file in map(Path, (*(source.path for source in sources), *beside)):
        if not file.exists():  # reading it raises the error
            return None
        stat = file.stat()
        key.update(os.fsencode(file.resolve()) + f" {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return own_place("XDG_CACHE_HOME", ".cache") / f"{key.hexdigest()[:32]}.parquet"


def _streamed(
    sources: Sequence[Source], path: Path, reading: Callable[[Source], None], *, ranges: bool = True
) -> Parsed | None:
    """Stream large reports into `path`; None if they cannot be streamed or one was refused."""
    from ncu_parsers.parse.parse import stream_into
    from ncu_parsers.streaming.cells.rows import NotStreamed

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        streamed = stream_into(path, sources, reading=reading, ranges=ranges)
    except (OSError, NcuBenchError, NotStreamed):
        return None
    if streamed is not None and streamed.refused:
        path.unlink(missing_ok=True)
        return None
    return streamed


def _keep(table: pa.Table, path: Path) -> None:
    """Cache a table for the next command. Failing to write the cache is not an error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_table(table, path)
    except (OSError, NcuBenchError):
        return
