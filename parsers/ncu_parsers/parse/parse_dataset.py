"""Parse reports into a dataset: each independently, by an engine's worker, into the file that its path determines.

The content of a file depends only on its report, and files are written atomically. So a report that two workers read,
because the first was lost, is in the dataset once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory

from ncu_launch.errors import NcuBenchError
from ncu_launch.files.atomic_files import folder_beside, lock_beside, write_bytes_atomically
from ncu_launch.files.run_files import NODES, RANKS, REPORTS

from ncu_parsers.datasets import dataset_layout
from ncu_parsers.datasets.dataset_layout import LOG, READ, REFUSED, RUN, LogLine, folders_of, log_bytes, read_log
from ncu_parsers.datasets.engine import Engine, InOrder
from ncu_parsers.datasets.remote_files import File, RemoteFile, file_at, move
from ncu_parsers.parquet.reader import one_value, spans_of_ids
from ncu_parsers.parse.parallel_parse import drop_launches
from ncu_parsers.parse.parse import Parsed, origin_of, parse_into, share_ids
from ncu_parsers.report_data.report import Report
from ncu_parsers.sources.settings import NOT_SET, Settings
from ncu_parsers.sources.sources import STANDARD_INPUT, Source

Ids = Mapping[int | None, tuple[int, int]]


@dataclass(frozen=True)
class ReportToRead:
    """One report to read into the dataset `root`: its path, its run and its name there, unique in the run and rank.

    `scratch` is a folder on the dataset's disk for the incomplete file; None if the dataset is at a URL.
    """

    report: str
    run: str
    name: str
    root: str
    scratch: str | None
    settings: Settings = NOT_SET

    def __str__(self) -> str:
        return self.report


@dataclass
class Written:
    """Result of reading one report: the report without launches, its rank, and its file, relative to the run.

    `ids` are the smallest and largest launch id per process, to find launches that are in another report too. `bytes`
    is the size of the file.
    """

    report: Report
    rank: int | None
    file: str
    bytes: int
    ids: Ids = field(default_factory=dict)


def parse_into_dataset(
    root: str,
    sources: Sequence[Source],
    *,
    run: str = "",
    engine: Engine | None = None,
    reading: Callable[[Source], None] = lambda source: None,
) -> Parsed:
    """Read every source into its own file of the dataset `root` (folder or URL); existing files are replaced.

    `run` is the run of all sources; by default, each source's folder names its run. The log of the run records sources
    that cannot be read. Raises `NcuBenchError` if the dataset cannot be written.
    """
    result = Parsed(None)
    log: dict[str, list[LogLine]] = {}
    ids: dict[tuple[str, int | None], list[tuple[str, Ids]]] = {}
    with _scratch(root) as scratch:
        tasks = reports_to_read(root, sources, run, scratch)
        for source, task, written in zip(sources, tasks, (engine or InOrder()).map(write_report, tasks), strict=True):
            reading(source)
            lines = log.setdefault(task.run, [])
            if isinstance(written, NcuBenchError):
                result.refused[source.name] = written
                lines.append(LogLine(task.report, REFUSED, reason=written.paragraph))
                continue
            result.reports.append(written.report)
            lines.append(LogLine(task.report, READ, written.file, written.report.rows, written.bytes))
            ids.setdefault((task.run, written.rank), []).append((source.name, written.ids))
    for name, lines in log.items():
        _write_log(file_at(root).joinpath(f"{RUN}={dataset_layout.encoded(name)}"), lines)
    result.notes += [note for each in ids.values() for note in _shared(each)]
    result.written = bool(result.reports)
    return result


@contextmanager
def _scratch(root: str) -> Iterator[str | None]:
    """A scratch folder in a dataset on disk, for the block; None for a URL."""
    place = file_at(root)
    if isinstance(place, RemoteFile):
        place.below()  # raises already here if the URL cannot be reached
        yield None
        return
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NcuBenchError(
            f"The dataset {root} could not be made: {error.strerror or error}.",
            advice="Choose another folder with -o.",
        ) from error
    with folder_beside(place.absolute() / "reading") as folder:
        yield str(folder)


def reports_to_read(root: str, sources: Sequence[Source], run: str, scratch: str | None) -> list[ReportToRead]:
    """The reports, by absolute paths that every worker can read, with names that are unique per run and rank."""
    place = file_at(root)
    target = str(place.absolute())
    paths = [source.path if source.path == STANDARD_INPUT else str(Path(source.path).absolute()) for source in sources]
    runs = [run or run_of(path) for path in paths]
    names = _unique_names(paths, [(one, _rank_of(path)) for one, path in zip(runs, paths, strict=True)])
    return [
        ReportToRead(path, one, name, target, scratch, source.settings)
        for source, path, one, name in zip(sources, paths, runs, names, strict=True)
    ]


def run_of(path: str) -> str:
    """The run of a report: the name of its run folder, or else of its folder."""
    folder = Path(path).absolute().parent
    if folder.name == REPORTS:
        folder = folder.parent
    if folder.parent.name in (RANKS, NODES):
        folder = folder.parent.parent
    return folder.name or "run"


def _rank_of(path: str) -> int | None:
    origin = origin_of(path)
    return origin.rank if origin is not None else None


def _unique_names(paths: Sequence[str], places: Sequence[tuple[str, int | None]]) -> list[str]:
    """File names, preceded by as many folders as needed to be unique within the same place."""
    depths = [1] * len(paths)
    while True:
        names = ["/".join(PurePath(path).parts[-depth:]) for path, depth in zip(paths, depths, strict=True)]
        counts = Counter(zip(places, names, strict=True))
        again = [
            at
            for at, key in enumerate(zip(places, names, strict=True))
            if counts[key] > 1 and depths[at] < len(PurePath(paths[at]).parts)
        ]
        if not again:
            return names
        for at in again:
            depths[at] += 1


# ------------------------------------------------------------------------------------------------------- one report


def write_report(task: ReportToRead) -> Written:
    """Read one report into its file. Raises `NcuBenchError` if it cannot be read or the file cannot be written."""
    with TemporaryDirectory(dir=task.scratch, prefix="ncu-bench-" if task.scratch is None else "") as folder:
        file = Path(folder) / dataset_layout.LAUNCHES
        report = _read_into(file, Source(task.report, settings=task.settings))
        rank = one_value(file, "rank")
        ids = spans_of_ids(file) if report.table is None else {}
        run, *inner = folders_of(task.run, rank, task.name)
        size = file.stat().st_size
        move(file, file_at(task.root).joinpath(run, *inner, dataset_layout.LAUNCHES))
    return Written(drop_launches(report), rank, "/".join([*inner, dataset_layout.LAUNCHES]), size, ids)


def _read_into(file: Path, source: Source) -> Report:
    path = source.path
    try:
        parsed = parse_into(file, [source])
    except NcuBenchError:
        raise
    except Exception as error:  # a defect here must not stop the other reports
        raise NcuBenchError(
            f"{path} could not be read: {type(error).__name__}: {error}.",
            "This is a defect of ncu-bench, or memory ran out.",
            f"To see where it happened: ncu-bench --debug parse {path} -o launches.parquet",
        ) from error
    for refusal in parsed.refused.values():
        raise refusal
    if not parsed.written:
        raise NcuBenchError(f"{path} holds no launch.")
    (report,) = parsed.reports
    return report


# -------------------------------------------------------------------------------------------------- the whole dataset


def _write_log(run: File, lines: Sequence[LogLine]) -> None:
    """Add outcomes to the log of a run.

    The file of an earlier reading is deleted if the report now has another file; it is kept if the report can no longer
    be read. On disk, processes take turns by a lock; object stores have no locks, and the last writer wins.
    """
    log = run.joinpath(LOG)
    if isinstance(log, RemoteFile):
        log.write_bytes(_log_with(lines, log, run))
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with lock_beside(log):
        write_bytes_atomically(log, _log_with(lines, log, run))


def _log_with(lines: Sequence[LogLine], log: File, run: File) -> bytes:
    known = read_log(log)
    for line in lines:
        before = known.get(line.report)
        if before is not None and before.outcome == READ and before.file is not None:
            if line.outcome == REFUSED:
                line = LogLine(**{**vars(before), "reason": f"kept as it was read before; now: {line.reason}"})
            elif line.file != before.file:
                run.joinpath(*before.file.split("/")).unlink(missing_ok=True)
        known[line.report] = line
    return log_bytes(sorted(known.values(), key=lambda line: line.report))


def _shared(reports: Sequence[tuple[str, Ids]]) -> list[str]:
    """A note if two reports of one run and rank may contain the same launches; a dataset does not join them."""
    pair = next(
        ((one, other) for (one, ours), (other, theirs) in combinations(reports[:50], 2) if share_ids([ours, theirs])),
        None,
    )
    if pair is None:
        return []
    return [
        f"{pair[0]} and {pair[1]} hold launches of one process id with the same ids, and count twice if they are the "
        "same launches; sections of one run are joined by: ncu-bench parse REPORT REPORT -o launches.parquet"
    ]
