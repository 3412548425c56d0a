"""A history of changes in a file: a Markdown table with a row for each change, which people and this program read.

The first line names the version. A line that is damaged is kept as it is, and named.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ncu_launch.errors import NcuBenchError
from ncu_launch.files.atomic_files import lock_beside, write_whole

VERSION = "<!-- ncu-bench advise --log, version 1 -->"
STARTS_WITH = "<!-- ncu-bench advise --log, version "


class LoggedChange(NamedTuple):
    """A change: when it was looked at, its runs and kernel, what was pulled, said and brought, and what is next."""

    time: str
    base: str
    new: str
    kernel: str
    pulled: str
    said: str
    brought: str
    next: str

    @property
    def line(self) -> str:
        """The change as a row of the table."""
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in self) + " |"


HEAD = (VERSION, "", LoggedChange(*LoggedChange._fields).line, "|" + " --- |" * len(LoggedChange._fields))


def append(path: Path, changes: Sequence[LoggedChange]) -> list[str]:
    """Append changes to a history, all or none; returns a note for each damaged line, which stays.

    Raises `NcuBenchError` if the file is of another kind or version, or cannot be written.
    """
    with lock_beside(path):
        try:
            lines = path.read_text("utf-8").splitlines() if path.exists() else list(HEAD)
        except (OSError, UnicodeDecodeError) as error:
            raise NcuBenchError(f"{path} cannot be read as a history.", str(error), "Name another file.") from error
        lines = lines or list(HEAD)
        if lines[0] != VERSION:
            is_other = lines[0].startswith(STARTS_WITH)
            raise NcuBenchError(
                f"{path} is {'a history of another version' if is_other else 'no history of ncu-bench advise'}.",
                "Its first line is not the one that --log writes.",
                "Name another file with --log.",
            )
        notes = [
            f"line {number} of {path} is no change, and was kept: {line[:60]}"
            for number, line in enumerate(lines[len(HEAD) :], len(HEAD) + 1)
            if line.strip() and _cells(line) != len(LoggedChange._fields)
        ]
        write_whole(path, ("\n".join([*lines, *(change.line for change in changes)]) + "\n").encode())
    return notes


def _cells(line: str) -> int:
    """How many cells a row has; 0 for what is no row."""
    whole = line.strip()
    return whole.replace("\\|", "").count("|") - 1 if whole.startswith("|") and whole.endswith("|") else 0
