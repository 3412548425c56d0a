"""Reports -> a dataset: each is read on its own, by whom an engine chooses, into the one file that its path names.

The file of a report depends on the report alone, and appears whole or not at all. So a report that two workers read,
because the first was lost on the way, is in the dataset once.
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
from ncu_launch.files.run_files import NODES, RANKS, REPORTS

from ncu_parsers.datasets import dataset_layout
from ncu_parsers.datasets.dataset_layout import LOG, READ, REFUSED, RUN, LogLine, folders_of, log_bytes, read_log
from ncu_parsers.datasets.engine import Engine, InOrder
from ncu_parsers.datasets.remote_files import File, RemoteFile, file_at, move
from ncu_parsers.parquet.atomic_output import bytes_replaced, folder_beside, held
from ncu_parsers.parquet.reader import one_value, spans_of_ids
from ncu_parsers.parse.parallel_parse import without_launches
from ncu_parsers.parse.parse import Parsed, parse_into, share_ids
from ncu_parsers.parse.rank_origin import origin_of
from ncu_parsers.report_data.report import Report
from ncu_parsers.sources.sources import STANDARD_INPUT, Source

Ids = Mapping[int | None, tuple[int, int]]


@dataclass(frozen=True)
class ReportToRead:
    """One report to read into a dataset: under which names, and where on disk to write until it is whole."""

    report: str
    run: str
    name: str
    root: str
    scratch: str | None

    def __str__(self) -> str:
        return self.report


@dataclass
class Written:
    """What reading one report gave: all that is known of it but its launches, and where these are in its run.

    `ids` are those of launches that may stand in another report too.
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
    """Read every source into its own file of the dataset `root`, a folder or URL; files that are there are replaced.

    `run` is the run of all of them; without, it is that of the folder that each lies in. Sources that cannot be read
    are lines of the log of their run. Raises `NcuBenchError` when the dataset cannot be written.
    """
    result = Parsed(None)
    log: dict[str, list[LogLine]] = {}
    ids: dict[tuple[str, int | None], list[tuple[str, Ids]]] = {}
    with _scratch(root) as scratch:
        works = works_of(root, sources, run, scratch)
        for source, work, written in zip(sources, works, (engine or InOrder()).map(write_report, works), strict=True):
            reading(source)
            lines = log.setdefault(work.run, [])
            if isinstance(written, NcuBenchError):
                result.refused[source.name] = written
                lines.append(LogLine(work.report, REFUSED, reason=written.paragraph))
                continue
            result.reports.append(written.report)
            lines.append(LogLine(work.report, READ, written.file, written.report.rows, written.bytes))
            ids.setdefault((work.run, written.rank), []).append((source.name, written.ids))
    for name, lines in log.items():
        _write_log(file_at(root).joinpath(f"{RUN}={dataset_layout.encoded(name)}"), lines)
    result.notes += [note for each in ids.values() for note in _shared(each)]
    result.written = bool(result.reports)
    return result


@contextmanager
def _scratch(root: str) -> Iterator[str | None]:
    """A folder in a dataset on disk for files that are not whole yet; for a URL, none."""
    place = file_at(root)
    if isinstance(place, RemoteFile):
        place.below()  # what cannot be reached is said before any report is read
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


def works_of(root: str, sources: Sequence[Source], run: str, scratch: str | None) -> list[ReportToRead]:
    """The reports by absolute paths, as every worker can read them, each under a name that no other of its run has."""
    place = file_at(root)
    target = str(place) if isinstance(place, RemoteFile) else str(place.absolute())
    paths = [source.path if source.path == STANDARD_INPUT else str(Path(source.path).absolute()) for source in sources]
    runs = [run or run_of(path) for path in paths]
    names = _told_apart(paths, [(one, _rank_of(path)) for one, path in zip(runs, paths, strict=True)])
    return [ReportToRead(path, one, name, target, scratch) for path, one, name in zip(paths, runs, names, strict=True)]


def run_of(path: str) -> str:
    """What the run of a report is called: as its run folder, or else as the folder that it lies in."""
    folder = Path(path).absolute().parent
    if folder.name == REPORTS:
        folder = folder.parent
    if folder.parent.name in (RANKS, NODES):
        folder = folder.parent.parent
    return folder.name or "run"


def _rank_of(path: str) -> int | None:
    origin = origin_of(path)
    return origin.rank if origin is not None else None


def _told_apart(paths: Sequence[str], places: Sequence[tuple[str, int | None]]) -> list[str]:
    """File names, behind as many folders as it takes to tell those apart that go to the same place."""
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


def write_report(work: ReportToRead) -> Written:
    """Read one report into its file. Raises `NcuBenchError` when it cannot be read, or the file not be written."""
    with TemporaryDirectory(dir=work.scratch, prefix="ncu-bench-" if work.scratch is None else "") as folder:
        file = Path(folder) / dataset_layout.LAUNCHES
        report = _read_into(file, work.report)
        rank = one_value(file, "rank")
        ids = spans_of_ids(file) if report.table is None else {}
        run, *inner = folders_of(work.run, rank, work.name)
        size = file.stat().st_size
        move(file, file_at(work.root).joinpath(run, *inner, dataset_layout.LAUNCHES))
    return Written(without_launches(report), rank, "/".join([*inner, dataset_layout.LAUNCHES]), size, ids)


def _read_into(file: Path, path: str) -> Report:
    try:
        parsed = parse_into(file, [Source(path)])
    except NcuBenchError:
        raise
    except Exception as error:  # one report of many that stumbles on a defect here is no reason to lose the others
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
    """Add what became of some reports to the log of their run.

    What a report left elsewhere in the run when it was read before is removed. What it left is kept where it cannot be
    read any more. On disk processes do so one after the other; a store has no locks, and keeps what was written last.
    """
    log = run.joinpath(LOG)
    if isinstance(log, RemoteFile):
        log.write_bytes(_log_with(lines, log, run))
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with held(log):
        bytes_replaced(log, _log_with(lines, log, run))


def _log_with(lines: Sequence[LogLine], log: File, run: File) -> bytes:
    known = read_log(log)
    for line in lines:
        before = known.get(line.report)
        if before is not None and before.outcome == READ and before.file is not None:
            if line.outcome == REFUSED:
                line = LogLine(**{**vars(before), "reason": f"kept as it was read before; now: {line.reason}"})
            elif line.file != before.file:
                _remove(run.joinpath(*before.file.split("/")))
        known[line.report] = line
    return log_bytes(sorted(known.values(), key=lambda line: line.report))


def _remove(file: File) -> None:
    if isinstance(file, RemoteFile):
        if file.is_file():
            file.remove()
        return
    file.unlink(missing_ok=True)


def _shared(reports: Sequence[tuple[str, Ids]]) -> list[str]:
    """A note where two reports of one run and rank may hold the same launches: a dataset joins none."""
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
