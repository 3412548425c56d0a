"""Find the source line at which each range begins: the first line with the range's name in quotes.

No format stores the line of a range, but programs write its name as a string where it begins, as in range_push("load").
Call stacks of Proton name the files; others are searched in a folder that the user names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = frozenset({".py", ".cu", ".cuh", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".inl", ".mojo"})
MOST_FILES, LARGEST = 5000, 4 << 20
"""Most files searched below a folder, and the largest size of a file in bytes."""


@dataclass(frozen=True)
class RangeLine:
    """The place where a range begins: file, line (from 1), and the text of the line."""

    file: str
    line: int
    text: str


def range_lines(
    names: Sequence[str], files: Iterable[str], root: Path | None
) -> tuple[dict[str, RangeLine], list[str]]:
    """The line of each name found, in `files` that exist and below `root`; and a note on names that were not found."""
    wanted = {name: re.compile("[\"']" + re.escape(name) + "[\"']") for name in names}
    found: dict[str, RangeLine] = {}
    searched = 0
    for path in _files(files, root):
        searched += 1
        try:
            lines = path.read_text("utf-8", "replace").splitlines() if path.stat().st_size <= LARGEST else []
        except OSError:
            continue
        for number, text in enumerate(lines, 1):
            for name in [name for name, pattern in wanted.items() if pattern.search(text)]:
                found[name] = RangeLine(str(path), number, text.strip())
                del wanted[name]
        if not wanted:
            break
    notes = []
    if wanted and searched:
        notes.append(
            f"{len(wanted)} of {len(names)} names of ranges are in none of {searched:,} files: {', '.join(wanted)}"
        )
    return found, notes


def _files(files: Iterable[str], root: Path | None) -> Iterator[Path]:
    """The files that the trace names, then all source files below the folder, first those named like the former."""
    named = [Path(one) for one in files]
    yield from (one for one in named if one.is_file())
    if root is None:
        return
    below = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        below += [Path(folder) / one for one in sorted(names) if Path(one).suffix in SUFFIXES]
        if len(below) > MOST_FILES:
            break
    last = {one.name for one in named}
    yield from sorted(below[:MOST_FILES], key=lambda one: one.name not in last)
