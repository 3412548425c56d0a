"""The output of ncu-bench alone: reports, runs and tables in this folder, and what to type next.

It examines this folder and its subfolders, by names and by the first bytes of files (for Parquet the last), and only
some hundred of them: the answer comes at once in any folder.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ncu_launch.errors import NcuBenchError
from ncu_launch.files.run_files import BENCH_FILE, EXPECTED, LAUNCHES, MANIFEST
from ncu_parsers.parse.file_kinds import PICTURES, SQLITE, kind_of
from ncu_parsers.parse.report_files import has_report_suffix
from ncu_parsers.sources.sources import Source, encoding_of

MOST_ENTRIES, MOST_FILES = 1000, 300
"""The most entries that are listed, and the most files whose beginning is read."""
HEAD = 1 << 16
LARGEST_FOOTER = 1 << 22
OF_LAUNCHES = (b"launch_id", b"duration_ns")
"""Columns that only tables of launches contain together."""
OF_WARPS = b"warp_ranges"
"""What only tables of ranges inside kernels have in their footer, beside `ncu_bench`."""
INSIDE_SUFFIXES = (".chrome_trace", ".hatchet")
NAMED = 3
"""Names shown per kind, newest first."""

RUN, SWEEP, DATASET, LAUNCHES_FILE = "run", "sweep", "dataset", "launches"
NCU, SOURCE, NSYS, TRACE, OPERATORS = "ncu", "source", "nsys", "trace", "operators"
OTHER_TIMELINE, INSIDE = "timeline", "inside"
TITLES = {
    RUN: ("run folder", "run folders"),
    SWEEP: ("sweep of measured points", "sweeps of measured points"),
    DATASET: ("dataset", "datasets"),
    LAUNCHES_FILE: ("Parquet file of launches", "Parquet files of launches"),
    NCU: ("report of ncu", "reports of ncu"),
    SOURCE: ("source page of ncu", "source pages of ncu"),
    NSYS: ("timeline of nsys", "timelines of nsys"),
    TRACE: ("trace in Chrome's format", "traces in Chrome's format"),
    OTHER_TIMELINE: ("recording of another profiler", "recordings of other profilers"),
    INSIDE: ("timeline inside a kernel", "timelines inside kernels"),
    OPERATORS: ("file of the operator collector", "files of the operator collector"),
}
"""Every kind, in the order in which they are listed."""
LAUNCHES_OF = (RUN, LAUNCHES_FILE, NCU, NSYS, TRACE, OTHER_TIMELINE, OPERATORS, DATASET)
"""The kinds that hold launches, in order of preference."""
RECORDINGS, TABLES = (NSYS, TRACE, OTHER_TIMELINE), (".csv", ".txt", ".tsv", ".log", ".out")
"""The kinds that are timelines, but for tables that nsys printed."""

BEGINNINGS = (
    ("ncu-bench profile resnet18", "a model, also without a GPU (pip install '.[models]')"),
    ("ncu-bench profile -- ./program", "a program of yours, under ncu or nsys"),
    ("ncu-bench hotspots path/to/report", "a report that ncu, nsys or PyTorch's profiler wrote anywhere"),
)


class Found(NamedTuple):
    """A report, run or table: its kind, one of `TITLES`, and when it was last changed."""

    kind: str
    path: Path
    changed: float


@dataclass
class FolderLook:
    """One look at a folder: what was found, how much may still be examined, and what could not be read."""

    found: list[Found] = field(default_factory=list)
    entries: int = MOST_ENTRIES
    files: int = MOST_FILES
    unreadable: list[Path] = field(default_factory=list)

    @property
    def is_cut(self) -> bool:
        """True if some entries were not examined."""
        return self.entries < 0 or self.files < 0

    def newest(self, *kinds: str) -> list[Path]:
        """The paths of some kinds, in their order, the newest of each first."""
        ordered = sorted(self.found, key=lambda one: (kinds.index(one.kind) if one.kind in kinds else 0, -one.changed))
        return [one.path for one in ordered if one.kind in kinds]


def overview(folder: Path) -> Iterator[str]:
    """The lines to print on a folder: its contents by kind, and two to four suitable commands."""
    look = looked_at(folder)
    if look.found:
        yield "Here and in the folders below:"
        for kind, (one, several) in TITLES.items():
            paths = [_shown(path) for path in look.newest(kind)]
            if paths:
                more = f" and {len(paths) - NAMED:,} more" if len(paths) > NAMED else ""
                title = f"{len(paths):,} {one if len(paths) == 1 else several}"
                yield f"  {title:<28}  {', '.join(paths[:NAMED])}{more}"
        yield ""
        yield "What to type next:"
        yield from _aligned(next_commands(look))
    else:
        yield "No report, run folder or table of ncu-bench is in this folder or in those below it. Three ways to begin:"
        yield from _aligned(BEGINNINGS)
    if look.is_cut:
        yield f"There is more: only some {MOST_ENTRIES:,} names and {MOST_FILES} files were looked at."
    if look.unreadable:
        yield f"Could not be read: {', '.join(map(_shown, look.unreadable[:NAMED]))}. Check the permissions."
    yield "ncu-bench --help lists every command."


def looked_at(folder: Path, look: FolderLook | None = None) -> FolderLook:
    """The contents of a folder and its subfolders, added to `look`."""
    look = look or FolderLook()
    for path in _listed(folder, look):
        if not path.is_dir():
            _take_file(path, look)
        elif not _take_folder(path, look) and not path.name.startswith("."):
            for inner in _listed(path, look):
                if inner.is_dir():
                    _take_folder(inner, look)
                else:
                    _take_file(inner, look)
    return look


def next_commands(look: FolderLook) -> list[tuple[str, str]]:
    """Two to four commands for the contents found, each with a description of its output."""
    commands = []
    runs, sweeps, launches = (look.newest(*kinds) for kinds in ((RUN,), (SWEEP,), LAUNCHES_OF))
    if launches:
        first = _quoted(launches[0])
        commands.append((f"ncu-bench hotspots {first}", "which kernels take the time"))
        if launches[0] in look.newest(*RECORDINGS) and launches[0].suffix not in TABLES:
            commands.append((f"ncu-bench timeline {first}", "where the time of its steps goes, and what bounds them"))
        else:
            commands.append((f"ncu-bench roofline {first} -o roofline.svg", "what bounds them, as a picture"))
    if sweeps:
        commands.append((f"ncu-bench bench {_quoted(sweeps[0])}", "how latency follows the sizes"))
    if len(runs) > 1:
        commands.append(
            (f"ncu-bench compare {_quoted(runs[1])} {_quoted(runs[0])}", "what changed between the last two")
        )
    counted, timed = look.newest(NCU), look.newest(NSYS, TRACE)
    if counted and timed:
        joined = f"ncu-bench parse {_quoted(counted[0])} --times {_quoted(timed[0])} -o joined.parquet"
        commands.append((joined, "join the times of the timeline with the counts of ncu"))
    if look.newest(SOURCE):
        page = _quoted(look.newest(SOURCE)[0])
        commands.append((f"ncu-bench source {page}", "the hottest lines of a kernel"))
        if not launches:
            commands.append((f"ncu-bench source {page} --sort executed", "where most instructions are executed"))
    if look.newest(INSIDE):
        trace = _quoted(look.newest(INSIDE)[0])
        commands.append((f"ncu-bench kernel {trace} --part inside", "who waits for whom inside a kernel"))
    if launches:
        commands.append((f"ncu-bench report {_quoted(launches[0])} -o report.html", "all of it as one page"))
    elif sweeps:
        commands.append((f"ncu-bench roofline {_quoted(sweeps[0])} -o roofline.svg", "its points under the ceilings"))
    return commands[:4]


def _listed(folder: Path, look: FolderLook) -> list[Path]:
    """The entries of a folder by name, as many as may still be examined."""
    names = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                look.entries -= 1
                if look.entries < 0:
                    break
                names.append(entry.name)
    except OSError:
        look.unreadable.append(folder)
    return [folder / name for name in sorted(names)]


def _take_folder(folder: Path, look: FolderLook) -> bool:
    """Add a run folder, a sweep or a dataset; False for any other folder."""
    kinds = {RUN: (folder / LAUNCHES,), SWEEP: (folder / BENCH_FILE,)}
    for kind, files in kinds.items():
        if any(file.is_file() for file in files):
            look.found.append(Found(kind, folder, _changed(files[0])))
            return True
    if folder.name.startswith("run="):
        if not any(one.kind == DATASET and one.path == folder.parent for one in look.found):
            look.found.append(Found(DATASET, folder.parent, _changed(folder)))
        return True
    return (folder / MANIFEST).is_file()  # a run without results so far


def _take_file(file: Path, look: FolderLook) -> None:
    """Add a file that commands read."""
    is_parquet = file.suffix.lower() == ".parquet"
    is_named = is_parquet or has_report_suffix(file) or file.suffix in INSIDE_SUFFIXES
    if file.name == EXPECTED or not is_named:
        return
    look.files -= 1
    if look.files < 0 or not file.is_file():
        return
    try:
        kind = _kind_of_parquet(file) if is_parquet else _kind_of_report(Source(str(file)))
    except (OSError, NcuBenchError):
        look.unreadable.append(file)
        return
    if kind is not None:
        look.found.append(Found(kind, file, _changed(file)))


def _kind_of_parquet(file: Path) -> str | None:
    """Launches, measured points or ranges of warps, by the footer of the file; None for a table of another program."""
    with file.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(size - 8, 0))
        length = int.from_bytes(stream.read(4), "little")
        if stream.read(4) != b"PAR1" or not 0 < length <= min(LARGEST_FOOTER, size - 8):
            return None
        stream.seek(size - 8 - length)
        footer = stream.read(length)
    if b"ncu_bench" not in footer:
        return None
    if all(name in footer for name in OF_LAUNCHES):
        return LAUNCHES_FILE
    return SWEEP if b"samples_ns" in footer else INSIDE if OF_WARPS in footer else None


def _kind_of_report(source: Source) -> str | None:
    """The kind of a file by its first bytes, or its first lines; None if no command reads it."""
    kind = kind_of(source)
    head = source.head(HEAD)
    if kind is None:
        return _kind_of_text(head)
    if kind.magic == (SQLITE,):
        return NSYS if b"StringIds" in head else None  # a table of every export
    if kind.words and not kind.has_words(head):
        return None  # another file with a name of this kind
    if kind.warps is not None:
        return None if kind.words == PICTURES else INSIDE
    return {"": NCU, "nsys": NSYS, "kineto": TRACE}.get(kind.origin, OTHER_TIMELINE)


def _kind_of_text(head: bytes) -> str | None:
    """The kind of the first page of launches or instructions at the beginning of a text."""
    from ncu_parsers.detect.text_reader import open_page
    from ncu_parsers.ncu.session_and_source_pages import SessionPage, SourcePage

    for line in head.decode(encoding_of(head), "replace").splitlines():
        page = open_page(line, None)
        if isinstance(page, SourcePage):
            return SOURCE
        if page is not None and not isinstance(page, SessionPage):  # a session page has no launches
            module = type(page).__module__.rpartition(".")[2]
            return {"nsys_stats": NSYS, "operator_records": OPERATORS}.get(module, NCU)
    return None


def _changed(path: Path) -> float:
    return path.stat().st_mtime


def _shown(path: Path) -> str:
    return path.as_posix()


def _quoted(path: Path) -> str:
    """A path quoted for a shell, and never parsed as an option."""
    text = _shown(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def _aligned(commands: list[tuple[str, str]] | tuple[tuple[str, str], ...]) -> Iterator[str]:
    width = max(len(command) for command, _ in commands)
    return (f"  {command:<{width}}   # {shows}" for command, shows in commands)
