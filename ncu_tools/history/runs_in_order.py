"""Find the runs of a history, and their order.

A history is a folder of run folders, of reports or of both, a dataset, a URL of run folders or of a dataset, or several
of these. A log of `advise --log` lists its runs in order. Otherwise runs are ordered by the dates of their commits,
else by their own dates, else by the times of their files, which a note says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.run_files import BENCH_FILE, LAUNCHES, MANIFEST
from ncu_launch.notes import Note, NoteKind
from ncu_launch.profilers.commits import dates_of
from ncu_parsers.datasets.dataset_layout import find_dataset
from ncu_parsers.datasets.engine import Engine, InOrder, attempted, cores
from ncu_parsers.datasets.process_engine import child_processes
from ncu_parsers.datasets.remote_files import RemoteFile, file_at
from ncu_parsers.parse.report_files import reports_among
from ncu_parsers.point_files import is_point_file
from ncu_parsers.sources.reading_ahead import beside_others

from ncu_tools.advice.history import is_log, logged_changes
from ncu_tools.history.run_summary import BY_FILE, KEPT, FoundRun, RunSummary, summarised
from ncu_tools.numbers.number_format import counted
from ncu_tools.runs.run import PartInFile

OTHER_TABLES = frozenset({KEPT, "kernels.parquet", "instructions.parquet", "instances.parquet", "points.parquet"})
"""Parquet files in a run folder that are not runs."""
FOLDERS_DEEP = 8
MOST_NAMED = 3
MOST_ALONE = 1000
"""Most runs that one process sums: below this, starting others takes longer than it saves."""
UNDATED = float("-inf")


@dataclass
class OrderedRuns:
    """The runs of a history in order, reasons for runs left out, and notes."""

    runs: list[RunSummary]
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def ordered_runs(paths: Sequence[str], commits: Sequence[str] = (), engine: Engine | None = None) -> OrderedRuns:
    """The runs at paths and URLs, summed and in order; `commits` are texts "RUN=COMMIT".

    Raises `NcuBenchError` if no run can be read, `WrongUsage` for a commit of an unknown run.
    """
    found = [run for path in paths for run in found_runs(path)]
    found = list({run.name: run for run in found}.values())
    if not found:
        raise NcuBenchError(
            f"{', '.join(paths)} holds no runs.",
            "A history is made of run folders, Parquet files, reports or a dataset.",
            "Measure into it, run by run: ncu-bench profile TARGET -o FOLDER/NAME",
        )
    result = OrderedRuns([])
    named = _commits_named(commits, found)
    dates = dates_of(set(named.values()))
    first_error: NcuBenchError | None = None
    shared: dict[str, pa.Table] = {}
    for run, summary in zip(found, _summaries(found, engine), strict=True):
        if isinstance(summary, NcuBenchError):
            first_error = first_error or summary
            result.left_out[run.name] = summary.what
            continue
        if run.name in named:
            commit = named[run.name]
            facts = replace(summary.facts, commit=commit, committed=dates.get(commit, summary.facts.committed))
            summary.facts = facts
        summary.titles = shared.setdefault(summary.facts.identity, summary.titles)
        result.runs.append(summary)
    if not result.runs and first_error is not None:
        raise first_error
    logs = [Path(path) for path in paths if is_log(Path(path))]
    if len(logs) < len(paths):
        result.runs.sort(key=_sort_key)
        result.notes = _notes_on_order(result.runs)
    result.notes += [*_notes_on_losses(result.left_out), *(note for log in logs for note in _notes_of_log(log))]
    return result


def _summaries(found: Sequence[FoundRun], engine: Engine | None) -> Iterator[RunSummary | NcuBenchError]:
    """The summary of each run, or the error if it cannot be read.

    If many runs have no kept sums, child processes make and keep them for this process to read.
    """
    unknown = [run for run in found if run.kept is not None and not run.kept.is_file()]
    if engine is not None or len(unknown) <= MOST_ALONE:
        yield from (engine or InOrder()).map(summarised, found)
        return
    names, rest = {run.name for run in unknown}, iter(found)
    with child_processes(cores()) as children:
        kept = children.map(_keep, unknown)
        for run in rest:
            is_closed = run.name in names and next(kept) is False
            yield attempted(summarised, run)
            if is_closed:  # sums cannot be kept in this folder, so more work of the child processes would be lost
                break
    yield from InOrder().map(summarised, list(rest))


def _keep(run: FoundRun) -> bool:
    """Summarise a run; True if its sums are now kept. Raises `NcuBenchError` if it cannot be read."""
    with beside_others():
        summarised(run)
    return run.kept is not None and run.kept.is_file()


# -------------------------------------------------------------------------------------------------------------- found


def found_runs(path: str) -> list[FoundRun]:
    """The runs at a path or URL, in the order of their names.

    Raises `NcuBenchError` if there is nothing at the path.
    """
    if not path:
        raise WrongUsage("A history without a name was asked for.", "A variable of the shell may be empty.")
    place = file_at(path)
    if isinstance(place, RemoteFile):
        return _of_dataset(path) or _remote(place)
    if not place.exists():
        raise NcuBenchError(f"{path} does not exist.", advice="Check the path.")
    if is_log(place):
        return _of_log(place)
    if place.is_file():
        return [FoundRun(place.name, str(place), files=(place,))]
    if run := _run_folder(place, place.absolute().name):
        return [run]
    return _of_dataset(path) or sorted(_below(place, place, FOLDERS_DEEP), key=_name)


def _run_folder(folder: Path, name: str) -> FoundRun | None:
    """A run folder as a run, also if it has only a manifest; None for another folder."""
    for table in (LAUNCHES, BENCH_FILE):
        if (folder / table).is_file():
            files = tuple(file for file in (folder / table, folder / MANIFEST) if file.is_file())
            return FoundRun(name, str(folder), files=files)
    return FoundRun(name, str(folder), files=(folder / MANIFEST,)) if (folder / MANIFEST).is_file() else None


def _of_log(log: Path) -> list[FoundRun]:
    """The runs listed in a log of `advise --log`, in its order, including deleted ones."""
    names = dict.fromkeys(name for change in logged_changes(log) for name in (change.base, change.new))
    return [_named_in(log, name) for name in names]


def _named_in(log: Path, name: str) -> FoundRun:
    """A run listed in a log, found from the current folder, else from the log's folder."""
    place = Path(name) if Path(name).exists() else log.parent / name
    if place.is_dir():
        return _run_folder(place, name) or FoundRun(name, str(place))
    return FoundRun(name, str(place), files=(place,) if place.is_file() else ())


def _notes_of_log(log: Path) -> list[str]:
    """The lever applied in each change of a log, and its effect."""
    return [
        f"{one.new}, {one.kernel}: pulled {one.pulled} ({one.said}); it brought {one.brought}"
        for one in logged_changes(log)
    ]


def _below(folder: Path, root: Path, deep: int) -> Iterator[FoundRun]:
    """The runs in a folder and below it; folders inside of runs are not searched."""
    files: list[Path] = []
    try:
        entries = list(folder.iterdir())
    except OSError as error:
        raise NcuBenchError(
            f"{folder} could not be read: {error.strerror}.", advice="Check its permissions."
        ) from error
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_file():
            files.append(entry)
        elif deep and entry.is_dir():
            name = entry.relative_to(root).as_posix()
            run = _run_folder(entry, name)
            yield from [run] if run else _below(entry, root, deep - 1)
    tables = [file for file in files if file.suffix == ".parquet" and file.name not in OTHER_TABLES]
    points = [file for file in files if is_point_file(file)]
    for file in (*map(Path, reports_among(files)), *tables, *points):
        yield FoundRun(file.relative_to(root).as_posix(), str(file), files=(file,))


def _of_dataset(path: str) -> list[FoundRun]:
    """The runs of a dataset, each with the files of all its reports; [] if the path is no dataset."""
    dataset = find_dataset(path)
    of_run: dict[str, list[PartInFile]] = {}
    for one in dataset.partitions if dataset is not None else ():
        of_run.setdefault(one.run or "?", []).append(PartInFile(one.file, one.run))
    return [
        FoundRun(name, path, tuple(parts), tuple(part.file for part in parts if isinstance(part.file, Path)))
        for name, parts in sorted(of_run.items(), key=lambda item: _natural(item[0]))
    ]


def _remote(place: RemoteFile) -> list[FoundRun]:
    """The runs at a URL: launches named by their folder, other Parquet files by their name."""
    if place.is_file():
        return [FoundRun(place.name, place.url)]
    found = []
    for name in place.below():
        folder, _, file = name.rpartition("/")
        if file == LAUNCHES and folder:
            found.append(FoundRun(folder, place.joinpath(*name.split("/")).url))
        elif file.endswith(".parquet") and file not in (*OTHER_TABLES, LAUNCHES, BENCH_FILE):
            found.append(FoundRun(name, place.joinpath(*name.split("/")).url))
    return sorted(found, key=_name)


def _name(run: FoundRun) -> tuple[tuple[int, int, str], ...]:
    return _natural(run.name)


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key that places v9 before v10."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)


# -------------------------------------------------------------------------------------------------------------- order


def _commits_named(commits: Iterable[str], found: Sequence[FoundRun]) -> dict[str, str]:
    """Parse texts "RUN=COMMIT": run -> commit. Raises `WrongUsage` for another form or an unknown run."""
    names = {run.name for run in found}
    result = {}
    for text in commits:
        run, sign, commit = text.rpartition("=")
        if not sign or not commit or run not in names:
            raise WrongUsage(
                f"--commit {text} does not name a run and its commit.",
                f"Runs are {', '.join(sorted(names)[:MOST_NAMED])}{' ...' if len(names) > MOST_NAMED else ''}.",
                "Write it as --commit RUN=COMMIT.",
            )
        result[run] = commit
    return result


def _sort_key(run: RunSummary) -> tuple[float, float, tuple[tuple[int, int, str], ...]]:
    """Sort key of a run: the date of its commit, else its own; runs without a date come first, by name."""
    dates = [_seconds(run.facts.committed), _seconds(run.facts.started)]
    known = [date for date in dates if date is not None] or [UNDATED]
    return known[0], known[-1], _natural(run.name)


def _seconds(date: str | None) -> float | None:
    try:
        found = datetime.fromisoformat((date or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()


def _notes_on_order(runs: Sequence[RunSummary]) -> list[str]:
    by_file = [run for run in runs if run.facts.dated_by == BY_FILE and _seconds(run.facts.committed) is None]
    undated = [run for run in runs if _sort_key(run)[0] == UNDATED]
    notes = []
    if by_file:
        which = "all runs are" if len(by_file) == len(runs) else f"{counted(len(by_file), 'run is', 'runs are')}"
        notes.append(f"{which} ordered by the times of files, which a copy may have changed: nothing else dates them")
    if undated:
        notes.append(f"{counted(len(undated), 'run has', 'runs have')} no date, and come first, in the order of names")
    return notes


def _notes_on_losses(left_out: dict[str, str]) -> list[str]:
    return [Note(f"{name} was left out: {why}", NoteKind.LOST, name) for name, why in left_out.items()]
