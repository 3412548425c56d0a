"""Notes on results: sentences that know what they are about, so that the weightiest is said first, and each once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, TypeVar

AnyNote = TypeVar("AnyNote", bound="Note")


class NoteKind(IntEnum):
    """What a note is about, in the order in which notes are shown."""

    ASKED = 0
    """What an option asked for and the run cannot give, and what is shown in its place."""
    LOST = 1
    """Launches, events or files that are damaged or were left out: the numbers are of less than what ran."""
    NO_TIME = 2
    """Times that are not known."""
    PLAIN = 3
    """Anything else."""
    NOT_KNOWN = 4
    """FLOPs, bytes, ceilings and ranges that are not known, and what collects them."""
    ESTIMATE = 5
    """Numbers that are estimates or lower bounds."""
    METHOD = 6
    """How numbers came about: clocks, sources, what steps are."""
    NOT_MEASURED = 7
    """Metrics that came back n/a, and tables that a recording lacks."""
    MORE = 8
    """What else could be shown, as rows beyond --top."""
    IN_HEAD = 9
    """What the head line of the table says in short: `subject` is that. Only JSON has the sentence."""
    WRITTEN = 10
    """A file or folder that the command wrote. It is always shown, and last."""


class Note(str):
    """A sentence with its kind and its subject; of several notes on one subject the first is shown."""

    __slots__ = ("kind", "subject")
    kind: NoteKind
    subject: str

    def __new__(cls: type[AnyNote], text: str, kind: NoteKind = NoteKind.PLAIN, subject: str = "") -> AnyNote:
        """The note `text`."""
        self = super().__new__(cls, text)
        self.kind, self.subject = kind, subject
        return self

    def __reduce__(self) -> tuple[type[Note], tuple[str, NoteKind, str]]:
        """What other processes make it of."""
        return Note, (str(self), self.kind, self.subject)


def kind_of(note: str) -> NoteKind:
    """The kind of a note; `PLAIN` for a text."""
    return note.kind if isinstance(note, Note) else NoteKind.PLAIN


def subject_of(note: str) -> str:
    """The subject of a note; "" for a text."""
    return note.subject if isinstance(note, Note) else ""


def reworded(text: str, note: str) -> Note:
    """`text` in the place of a note, of the same kind, as the name of a run before it."""
    return Note(text, kind_of(note))


def shown_notes(notes: Iterable[str]) -> list[str]:
    """The notes that people are shown: the weightiest kind first, each text and each subject once."""
    subjects: set[str] = set()
    found = []
    for note in sorted(dict.fromkeys(notes), key=kind_of):
        subject = subject_of(note)
        if kind_of(note) != NoteKind.IN_HEAD and subject not in subjects:
            found.append(note)
            subjects |= {subject} - {""}
    return found


def in_head(notes: Iterable[str]) -> list[str]:
    """What the head line says in short of these notes."""
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
    """`values` with the texts that `kinds_in` found as notes again; kinds of a newer release are left out."""
    if isinstance(values, dict):
        return {key: with_kinds(value, kinds) for key, value in values.items()}
    if isinstance(values, list):
        return [with_kinds(value, kinds) for value in values]
    match kinds.get(values) if isinstance(values, str) else None:
        case [str(kind), str(subject)] if kind in NoteKind.__members__:
            return Note(values, NoteKind[kind], subject)
    return values
