"""Notes on a terminal: a few lines, the most important notes first, and how many there are besides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ncu_tools.numbers.number_format import counted
from ncu_tools.numbers.text_width import text_width
from ncu_tools.report.table import printable

LINES = 5
"""Most lines of a terminal that notes take."""
BEFORE = "note: "
TWO_LINES = 2


class MoreToSee(str):
    """A note on what else could be shown, as rows beyond --top: less important than what the numbers are."""

    __slots__ = ()


class WrittenFile(str):
    """A note on a file or folder that the command wrote. It is always shown, and last."""

    __slots__ = ()


def picture_written(picture: bytes, output: Path) -> WrittenFile:
    """Write a picture to a file, whole or not at all; returns the note on it."""
    from ncu_launch.files.atomic_files import write_bytes_atomically

    write_bytes_atomically(output, picture)
    return WrittenFile(f"the picture is {output}")


def fitted_notes(notes: Sequence[str], width: int | None) -> list[str]:
    """The lines to print, as "note: ...": all notes if `width` is None, else what fits in `LINES` lines of that width.

    Notes keep their order, but for `MoreToSee` and `WrittenFile`, which come last. A note that does not fit gives way
    to shorter ones behind it; the first one is cut instead.
    """
    ordered = sorted(notes, key=lambda note: 2 * isinstance(note, WrittenFile) + isinstance(note, MoreToSee))
    texts = [BEFORE + printable(note) for note in ordered]
    if width is None or sum(_lines(text, width) for text in texts) <= LINES:
        return texts
    always = [text for text, note in zip(texts, ordered, strict=True) if isinstance(note, WrittenFile)]
    room = max(LINES - 1 - sum(_lines(text, width) for text in always), TWO_LINES)
    shown: list[str] = []
    others = texts[: len(texts) - len(always)]
    for text in others:
        if _lines(text, width) <= room:
            shown.append(text)
        elif not shown:
            shown.append(text[: room * width - 1] + "…")
        else:
            continue
        room -= _lines(shown[-1], width)
    left = len(others) - len(shown)
    more = [f"{BEFORE}{counted(left, 'more note', 'more notes')}; --notes shows all"] if left else []
    return [*shown, *more, *always]


def _lines(text: str, width: int) -> int:
    """How many lines of a terminal a text takes."""
    return max(1, -(-text_width(text) // width))
