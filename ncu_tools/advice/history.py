"""A log of changes in a Markdown table with a row per change, for people and for this program.

The first line names the version. A damaged row is kept as it is, and reported.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ncu_launch.errors import NcuBenchError
from ncu_launch.files.atomic_files import lock_beside, write_whole

VERSION = "<!-- ncu-bench advise --log, version 1 -->"
_OTHER_VERSION = re.compile(r"<!-- ncu-bench advise --log, version (\d+) -->")
OTHER_FILE = "Name another file with --log."


_MARKS = re.compile(r"([|<])")
"""Characters that would end a cell of a Markdown table or be read as HTML."""
_ESCAPED, _BETWEEN = re.compile(r"\\([|<])"), re.compile(r"(?<!\\)\|")


class LoggedChange(NamedTuple):
    """A change of a kernel: its date and runs, the levers pulled, their predicted and measured saving, the next."""

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
        return "| " + " | ".join(_MARKS.sub(r"\\\1", " ".join(cell.split())) for cell in self) + " |"

    @classmethod
    def of_line(cls, line: str) -> LoggedChange | None:
        """The change in a row of the table; None for any other line."""
        cells = [_ESCAPED.sub(r"\1", cell).strip() for cell in _BETWEEN.split(line.strip())[1:-1]]
        return cls(*cells) if len(cells) == len(cls._fields) == _cells(line) else None


HEAD = (VERSION, "", LoggedChange(*LoggedChange._fields).line, "|" + " --- |" * len(LoggedChange._fields))
_HEAD_TEXT = "\n".join(HEAD)


def is_log(path: Path) -> bool:
    """True for a file that `--log` wrote."""
    try:
        with path.open("rb") as file:
            return path.suffix == ".md" and file.read(len(VERSION)) == VERSION.encode()
    except OSError:
        return False


def logged_changes(path: Path) -> list[LoggedChange]:
    """The changes in a log, in order; other lines are skipped. Raises `NcuBenchError` for a log cut off."""
    text = _text(path)
    _require_whole(path, text)
    return [change for line in text.splitlines()[len(HEAD) :] if (change := LoggedChange.of_line(line)) is not None]


def append(path: Path, changes: Sequence[LoggedChange]) -> list[str]:
    """Append changes to a history, all or none; returns a note for each damaged line, which stays.

    Raises `NcuBenchError`, and writes nothing, if the folder is missing, if the file is of another kind or version or
    was cut off, or if it cannot be read or written.
    """
    if not path.parent.is_dir():
        raise NcuBenchError(
            f"The folder of {path} does not exist.",
            "--log makes a file, but no folder.",
            f"mkdir -p {shlex.quote(str(path.parent))}",
        )
    with lock_beside(path):
        text = _text(path) if path.exists() else ""
        _require_whole(path, text)
        lines = text.splitlines() or list(HEAD)
        notes = [
            f"line {number} of {path} is no change, and was kept: {line[:60]}"
            for number, line in enumerate(lines[len(HEAD) :], len(HEAD) + 1)
            if line.strip() and _cells(line) != len(LoggedChange._fields)
        ]
        try:
            write_whole(path, ("\n".join([*lines, *(change.line for change in changes)]) + "\n").encode())
        except OSError as error:
            raise NcuBenchError(f"{path} cannot be written.", error.strerror or str(error), OTHER_FILE) from error
    return notes


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NcuBenchError(
            f"{path} cannot be read as a history.", "It is no text that --log wrote.", OTHER_FILE
        ) from error


def _require_whole(path: Path, text: str) -> None:
    """Raise `NcuBenchError` unless a text is a complete log of this version; "" is an empty log."""
    if not text:
        return
    first, *_ = text.splitlines() or [""]
    other = _OTHER_VERSION.fullmatch(first)
    if other is not None and first != VERSION:
        raise NcuBenchError(
            f"{path} is a history of version {other[1]}, and this program writes version 1.",
            "A newer ncu-bench wrote it.",
            "Update ncu-bench, or name another file with --log.",
        )
    if first != VERSION:
        raise NcuBenchError(
            f"{path} is no history of ncu-bench advise.", "Its first line is not the one that --log writes.", OTHER_FILE
        )
    if tuple(text.splitlines()[: len(HEAD)]) != HEAD or not text.endswith("\n"):
        raise NcuBenchError(
            f"{path} is a damaged history: its {'end' if text.startswith(_HEAD_TEXT) else 'head'} is missing.",
            "Writing it was cut off, or somebody edited it.",
            "Mend it by hand, or name another file with --log.",
        )


def _cells(line: str) -> int:
    """The number of cells of a table row; 0 for other lines."""
    whole = line.strip()
    return whole.replace("\\|", "").count("|") - 1 if whole.startswith("|") and whole.endswith("|") else 0
