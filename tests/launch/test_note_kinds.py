"""Notes know their kind and subject, in this process, in others and in files, and are shown by weight, each once."""

from __future__ import annotations

import pickle

import pytest
from ncu_launch.notes import Note, NoteKind, in_head, kind_of, kinds_in, reworded, shown_notes, with_kinds

FAILED = Note("1 failed launch", NoteKind.LOST)
NO_FLOPS = Note("2 launches have no FLOP counts", NoteKind.NOT_KNOWN, "FLOPs")
UNKNOWN_FLOPS = Note("FLOPs of 2 launches are not known", NoteKind.NOT_KNOWN, "FLOPs")
BUSY = Note("the GPU was busy for 12.0 %", NoteKind.IN_HEAD, "GPU busy 12.0 %")


def test_the_weightiest_kind_comes_first_and_a_text_counts_as_plain() -> None:
    assert shown_notes([NO_FLOPS, "plain", FAILED]) == [FAILED, "plain", NO_FLOPS]
    assert kind_of("plain") == NoteKind.PLAIN


def test_a_text_and_a_subject_are_shown_once() -> None:
    assert shown_notes([NO_FLOPS, UNKNOWN_FLOPS, "plain", "plain"]) == ["plain", NO_FLOPS]


def test_what_stands_in_the_head_line_is_no_note_below_the_table() -> None:
    assert shown_notes([BUSY, FAILED]) == [FAILED]
    assert in_head([BUSY, FAILED, BUSY, Note("a sentence alone", NoteKind.IN_HEAD)]) == ["GPU busy 12.0 %"]


def test_a_note_in_other_words_keeps_its_kind_and_says_nothing_of_the_same_subject() -> None:
    two = [reworded(f"{run}: {NO_FLOPS}", NO_FLOPS) for run in ("before", "after")]
    assert shown_notes(["plain", *two]) == ["plain", *two]


def test_other_processes_get_a_note_with_its_kind_and_subject() -> None:
    found = pickle.loads(pickle.dumps(NO_FLOPS))  # noqa: S301 - made here
    assert (found, found.kind, found.subject) == (NO_FLOPS, NoteKind.NOT_KNOWN, "FLOPs")


def test_what_a_file_says_of_notes_makes_notes_of_its_texts() -> None:
    values = {"notes": [FAILED, "plain"], "reports": [{"notes": [NO_FLOPS]}]}
    texts = {"notes": ["1 failed launch", "plain"], "reports": [{"notes": ["2 launches have no FLOP counts"]}]}
    found = with_kinds(texts, kinds_in(values))
    assert found == values
    assert [kind_of(one) for one in found["notes"]] == [NoteKind.LOST, NoteKind.PLAIN]
    assert found["reports"][0]["notes"][0].subject == "FLOPs"


@pytest.mark.parametrize("kind", [["OF_A_LATER_RELEASE", ""], ["LOST"], "LOST", None, [1, 2]])
def test_a_kind_that_this_release_does_not_know_leaves_a_text(kind: object) -> None:
    (found,) = with_kinds(["1 failed launch"], {"1 failed launch": kind})
    assert type(found) is str
