"""The reports named by command-line arguments: files, folders, globs and standard input."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from ncu_launch.errors import NcuBenchError, WrongUsage, near_names
from ncu_launch.files.run_files import AGAINST, EXPECTED, LOGS, MANIFEST, NODES, POWER, RANKS, USER_RANGES

from ncu_parsers.parse.file_kinds import KINDS
from ncu_parsers.sources.nsys_siblings import drop_repeats
from ncu_parsers.sources.settings import NOT_SET, Settings
from ncu_parsers.sources.sources import STANDARD_INPUT, TIMELINE, Source, is_url

DESCRIPTORS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""Prefixes of paths to a process's open files."""

REPORT_SUFFIXES = {
    ".csv", ".txt", ".log", ".out", ".tsv", ".jsonl", ".ncu-rep", ".ncu-repz", ".nsight-cuprof-report", ".sqlite",
    *(suffix for kind in KINDS for suffix in kind.suffixes),
}  # fmt: skip
"""Name endings of reports in a folder."""
COMPRESSED = ("", ".gz", ".zst", ".xz", ".bz2")
"""Endings of compressed reports; files compressed by xz and bzip2 are found so that they are refused, not skipped."""
MOST_COMPARED = 10_000
"""Most names of a folder that a missing name is compared with."""


def find_sources(arguments: list[str], settings: Settings = NOT_SET) -> list[Source]:
    """The reports named by command-line `arguments`, each once, in order, to be read with `settings`.

    A folder stands for every report below it, by suffix; of files of one nsys timeline, only the most detailed is read.
    Globs that the shell left unexpanded are expanded. Raises `NcuBenchError` if an argument is empty, matches nothing,
    or is a URL, device or socket.
    """
    found: dict[str, None] = {}
    for argument in arguments:
        if not argument:
            raise WrongUsage("A report without a name was asked for.", "A variable of the shell may be empty.")
        paths = [argument] if argument == STANDARD_INPUT else _paths(argument)
        if not paths:
            raise NcuBenchError(
                f"{argument} names no report.",
                "A folder is searched for "
                + " ".join(sorted(REPORT_SUFFIXES))
                + " files, also with .gz or .zst behind.",
                "Name the file itself, whatever its suffix.",
            )
        for path in paths:
            found.setdefault(path)
    return [Source(path, number, len(found), settings) for number, path in enumerate(found, 1)]


def _paths(argument: str) -> list[str]:
    path = Path(argument)
    if is_url(argument) and not path.exists():
        raise is_remote(argument)
    if path.is_dir():
        return reports_among(file for file in path.rglob("*") if file.is_file())
    if path.exists():
        if path.is_file():
            return [_resolve_descriptor(argument)]
        if _is_standard_input(path):
            return [STANDARD_INPUT]
        if not path.is_fifo():
            raise NcuBenchError(
                f"{argument} is a device or socket.",
                "Reports are read from files and pipes.",
                "Give it as standard input, which is -, as in: COMMAND | ncu-bench hotspots -",
            )
        return [argument]
    matches = sorted(glob.glob(argument, recursive=True))
    if not matches:
        raise _missing(argument)
    return [match for match in matches if Path(match).is_file()]


def is_remote(url: str) -> NcuBenchError:
    """The error for a report at a URL."""
    return NcuBenchError(
        f"{url} is a URL, and behind one only Parquet that ncu-bench parse wrote is read.",
        advice="Fetch it, and name the file.",
    )


def _missing(argument: str) -> NcuBenchError:
    """The error for a missing path, with similar existing names, or with the folder that is missing too."""
    path = Path(argument)
    advice = "Check the path; relative paths start at the current folder."
    above = next((folder for folder in reversed(path.parents) if not folder.is_dir()), None)
    if above is not None:
        cause = f"{above} is a file, not a folder." if above.exists() else f"There is no folder {above} either."
        return NcuBenchError(f"{argument} does not exist.", cause, advice)
    with suppress(OSError):
        near = near_names(path.name, islice((entry.name for entry in os.scandir(path.parent)), MOST_COMPARED))
        if near:
            found = ", ".join(str(path.with_name(name)) for name in near)
            return NcuBenchError(f"{argument} does not exist.", f"Near names: {found}.", advice)
    return NcuBenchError(f"{argument} does not exist.", advice=advice)


def _resolve_descriptor(path: str) -> str:
    """The file that a path like /dev/stdin refers to, since another process would open another file."""
    if not path.startswith(DESCRIPTORS):
        return path
    own = os.path.realpath(path)
    try:
        return own if Path(own).samefile(path) else path
    except OSError:  # the file was deleted
        return path


def _is_standard_input(path: Path) -> bool:
    """True for /dev/stdin and other names of standard input."""
    try:
        return os.path.samestat(path.stat(), os.fstat(sys.stdin.fileno()))
    except (OSError, ValueError, AttributeError):  # closed, or replaced by a stream without a descriptor
        return False


def has_report_suffix(file: Path) -> bool:
    """True for a file whose name ends like a report's, compressed or not."""
    return (
        file.name.lower().lstrip(".").endswith(tuple(end + packed for end in REPORT_SUFFIXES for packed in COMPRESSED))
    )


def reports_among(files: Iterable[Path]) -> list[str]:
    """The reports among some files, sorted; of files of one nsys timeline, the most detailed."""
    return drop_repeats(sorted(str(file) for file in files if _is_report(file)))


def _is_report(file: Path) -> bool:
    if file.name in (EXPECTED, USER_RANGES, AGAINST, POWER) or _is_beside_reports(file):
        return False
    return has_report_suffix(file) and is_what_its_name_says(file)


def _is_beside_reports(file: Path) -> bool:
    """True for logs of a run folder, and for the timeline recorded only to choose what to count."""
    return any(folder.name in (LOGS, TIMELINE) and _is_run(folder.parent) for folder in file.parents)


def _is_run(folder: Path) -> bool:
    return folder.parent.name in (RANKS, NODES) or (folder / MANIFEST).is_file()


def is_what_its_name_says(file: Path) -> bool:
    """False for a file whose name fits a kind with `words`, such as .json, but whose beginning has none of them."""
    if not any(kind.words and kind.fits_name(file.name) for kind in KINDS):
        return True
    try:
        head = Source(str(file)).head(1 << 16)
    except NcuBenchError:
        return True  # the reader reports files that cannot be opened
    fitting = (kind for kind in KINDS if head.startswith(kind.magic) or kind.fits_name(file.name))
    return any(kind.has_words(head) for kind in fitting)
