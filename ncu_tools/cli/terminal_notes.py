"""Notes for people: a few lines, the most important notes first, and the number of the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ncu_launch.notes import Note, NoteKind, kind_of, shown_notes

from ncu_tools.numbers.number_format import counted
from ncu_tools.numbers.text_width import text_width
from ncu_tools.report.table import printable

LINES = 5
"""Most lines that notes take without --notes."""
BEFORE = "note: "
TWO_LINES = 2


class MoreToSee(Note):
    """A note on further content, such as rows beyond --top: less important than notes on the numbers."""

    __slots__ = ()

    def __new__(cls, text: str) -> MoreToSee:
        """The note `text`."""
        return super().__new__(cls, text, NoteKind.MORE)


class WrittenFile(Note):
    """A note on a file or folder that the command wrote. It is always shown, and last."""

    __slots__ = ()

    def __new__(cls, text: str) -> WrittenFile:
        """The note `text`."""
        return super().__new__(cls, text, NoteKind.WRITTEN)


def picture_written(picture: bytes, output: Path) -> WrittenFile:
    """Write a picture to a file, whole or not at all; returns the note on it."""
    from ncu_launch.files.atomic_files import write_bytes_atomically

    write_bytes_atomically(output, picture)
    return WrittenFile(f"the picture is {output}")


def fitted_notes(notes: Sequence[str], width: int | None) -> list[str]:
    """The lines to print, as "note: ...", by `shown_notes`: all if `width` is None, else `LINES` lines of that width.

    A note that does not fit is skipped for shorter ones after it; the first one is cut instead.
    """
    ordered = shown_notes(notes)
    texts = [BEFORE + printable(note) for note in ordered]
    if width is None or sum(_lines(text, width) for text in texts) <= LINES:
        return texts
    always = [text for text, note in zip(texts, ordered, strict=True) if kind_of(note) == NoteKind.WRITTEN]
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
    """The number of terminal lines that a text takes."""
    return max(1, -(-text_width(text) // width))
