"""The text of source lines: from a folder of the user's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path, PurePosixPath

from ncu_tools.numbers.number_format import counted

COLLECT = "ncu --set full --import-source yes -o REPORT PROGRAM"
"""Options that collect everything shown here; lines also need the compiler's -lineinfo."""
LARGEST_FILE = 16 << 20
"""Bytes; a larger file is not handwritten source."""


@dataclass
class SourceText:
    """Lines of source files, and notes on files that were not found."""

    lines: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def of(self, file: str | None, line: int | None) -> str | None:
        """The stripped text of a line, tabs as spaces; None if unknown."""
        found = self.lines.get(file or "")
        if found is None or line is None or not 0 < line <= len(found):
            return None
        return found[line - 1].expandtabs(4).strip() or None


def source_text(
    files: Iterable[str], imported: Mapping[str, str], root: Path | None, sizes: Mapping[str, int] | None = None
) -> SourceText:
    """The lines of these files: from the report, else from below `root`.

    A file is searched below the root by its whole path, then by ever shorter ends of it. A file in which a line differs
    from the report is not used, and a note says so; a file whose size differs from `sizes` (bytes when compiled) is
    used with a note.
    """
    result, missing = SourceText(), []
    for file in sorted(set(files)):
        below = None if root is None else _below(root, file)
        if file in imported:
            result.lines[file] = imported[file].splitlines()
            if below is not None and _differs(_lines(below), result.lines[file]):
                result.notes.append(f"{file} below --source-root differs from what was compiled; the report's is shown")
        elif below is not None:
            result.lines[file] = _lines(below)
            compiled = (sizes or {}).get(file)
            if compiled is not None and compiled != len(below):
                result.notes.append(
                    f"{file} below --source-root differs from what was compiled: it has {len(below):,} bytes and had "
                    f"{compiled:,}, so that its lines may be others"
                )
        else:
            missing.append(file)
    if missing and root is not None:
        result.notes.append(
            f"{counted(len(missing), 'source file is', 'source files are')} not below {root}: {missing[0]}"
        )
    return result


def _lines(content: bytes) -> list[str]:
    return content.decode("utf-8", "replace").splitlines()


def _differs(below: list[str], held: list[str]) -> bool:
    """True if a line in the report differs from the file below the folder; reports need not hold every line."""
    return any(line.strip() and line.strip() != other.strip() for line, other in zip_longest(held, below, fillvalue=""))


def _below(root: Path, file: str) -> bytes | None:
    """The content of a file below a folder; None if missing. Nothing outside the folder is read."""
    parts = [part for part in PurePosixPath(file.replace("\\", "/")).parts if part not in ("/", "..", ".")]
    inside = root.resolve()
    for start in range(len(parts)):
        path = inside.joinpath(*parts[start:])
        try:
            if path.is_file() and path.resolve().is_relative_to(inside) and path.stat().st_size <= LARGEST_FILE:
                return path.read_bytes()
        except (OSError, ValueError):
            continue
    return None
