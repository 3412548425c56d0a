"""Notes on results: sentences with a kind and a subject, so that the most important comes first, and each once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, TypeVar

AnyNote = TypeVar("AnyNote", bound="Note")


class NoteKind(IntEnum):
    """The kind of a note; notes are shown in this order."""

    ASKED = 0
    """A request by an option that the run cannot fulfil, and what is shown instead."""
    LOST = 1
    """Launches, events or files that are damaged or were left out: the numbers are incomplete."""
    NO_TIME = 2
    """Unknown times."""
    PLAIN = 3
    """Anything else."""
    NOT_KNOWN = 4
    """Unknown FLOPs, bytes, ceilings and ranges, and how to collect them."""
    ESTIMATE = 5
    """Numbers that are estimates or lower bounds."""
    METHOD = 6
    """The method behind numbers: clocks, sources, definition of steps."""
    NOT_MEASURED = 7
    """Metrics that came back n/a, and tables that a recording lacks."""
    MORE = 8
    """Further content that can be shown, such as rows beyond --top."""
    IN_HEAD = 9
    """Facts that the table's head line shows in short (`subject` is the short form). Only JSON has the sentence."""
    WRITTEN = 10
    """A file or folder that the command wrote. Always shown, and last."""


class Note(str):
    """A sentence with its kind and subject ("" for none); of several notes on one subject only the first is shown."""

    __slots__ = ("kind", "subject")
    kind: NoteKind
    subject: str

    def __new__(cls: type[AnyNote], text: str, kind: NoteKind = NoteKind.PLAIN, subject: str = "") -> AnyNote:
        """The note `text`."""
        self = super().__new__(cls, text)
        self.kind, self.subject = kind, subject
        return self

    def __reduce__(self) -> tuple[type[Note], tuple[str, NoteKind, str]]:
        """Pickle by the constructor's arguments."""
        return Note, (str(self), self.kind, self.subject)


def kind_of(note: str) -> NoteKind:
    """The kind of a note; `PLAIN` for a text."""
    return note.kind if isinstance(note, Note) else NoteKind.PLAIN


def subject_of(note: str) -> str:
    """The subject of a note; "" for a text."""
    return note.subject if isinstance(note, Note) else ""


def reworded(text: str, note: str) -> Note:
    """`text` as a note of another note's kind, for example with the name of a run in front. It has no subject."""
    return Note(text, kind_of(note))


def shown_notes(notes: Iterable[str]) -> list[str]:
    """The notes to show to people: the most important kind first, each text and each subject once."""
    subjects: set[str] = set()
    found = []
    for note in sorted(dict.fromkeys(notes), key=kind_of):
        subject = subject_of(note)
        if kind_of(note) != NoteKind.IN_HEAD and subject not in subjects:
            found.append(note)
            subjects |= {subject} - {""}
    return found


def in_head(notes: Iterable[str]) -> list[str]:
    """The short forms (subjects) of the `IN_HEAD` notes among `notes`, each once."""
    found = (subject_of(note) for note in notes if kind_of(note) == NoteKind.IN_HEAD)
    return list(dict.fromkeys(subject for subject in found if subject))


# ------------------------------------------------------------------------------------------------------------ in files


def kinds_in(values: Any) -> dict[str, tuple[str, str]]:
    """The kind and subject of every note within lists and dictionaries, by its text."""
    if isinstance(values, Note):
        return {str(values): (values.kind.name, values.subject)}
    parts = values.values() if isinstance(values, Mapping) else values if isinstance(values, list | tuple) else ()
    return {text: kind for part in parts for text, kind in kinds_in(part).items()}


def with_kinds(values: Any, kinds: Mapping[str, Any]) -> Any:
    """`values` with the texts that `kinds_in` found turned back into notes; kinds of a newer release are ignored."""
    if isinstance(values, dict):
        return {key: with_kinds(value, kinds) for key, value in values.items()}
    if isinstance(values, list):
        return [with_kinds(value, kinds) for value in values]
    match kinds.get(values) if isinstance(values, str) else None:
        case [str(kind), str(subject)] if kind in NoteKind.__members__:
            return Note(values, NoteKind[kind], subject)
    return values
