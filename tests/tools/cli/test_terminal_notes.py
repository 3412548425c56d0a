"""Notes: five lines, the weightiest first, on a terminal and in a pipe; all of them with --notes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from fcntl import ioctl
from pathlib import Path
from struct import pack
from termios import TIOCSWINSZ

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.notes import Note, NoteKind

from ncu_tools.cli.terminal_notes import LINES, MoreToSee, WrittenFile, fitted_notes
from tests.conftest import ROOT, SAMPLES
from tests.support.ran import ran

SHORT, LONG = "a" * 20, "b" * 150


def lines_of(texts: list[str], width: int) -> int:
    return sum(max(1, -(-len(text) // width)) for text in texts)


def test_notes_that_fit_are_all_shown_in_their_order() -> None:
    assert fitted_notes([SHORT, LONG], 80) == [f"note: {SHORT}", f"note: {LONG}"]


def test_the_number_of_notes_that_do_not_fit_is_told_with_the_option_that_shows_them() -> None:
    found = fitted_notes([SHORT, *(f"{LONG} {number}" for number in range(4))], 80)
    assert found[-1] == "note: 3 more notes; --notes shows all"
    assert lines_of(found, 80) <= LINES


def test_a_note_that_does_not_fit_gives_way_to_a_shorter_one_behind_it() -> None:
    found = fitted_notes([LONG, "c" * 220, SHORT], 80)
    assert found == [f"note: {LONG}", f"note: {SHORT}", "note: 1 more note; --notes shows all"]


def test_a_first_note_longer_than_all_room_is_cut() -> None:
    found = fitted_notes(["d" * 1000], 80)
    assert (len(found[0]), found[0][-1]) == (320, "…")


def test_files_written_are_always_told_and_last_and_what_else_there_is_before_them() -> None:
    notes = [WrittenFile("the run is in run"), MoreToSee("5 more kernels; --top shows more"), SHORT]
    assert fitted_notes(notes, 80) == [
        f"note: {SHORT}", "note: 5 more kernels; --top shows more", "note: the run is in run",
    ]  # fmt: skip
    assert fitted_notes([*[LONG] * 4, WrittenFile("the run is in run")], 80)[-1] == "note: the run is in run"


def test_without_a_limit_every_note_is_whole() -> None:
    notes = [f"{LONG} {number}" for number in range(20)]
    assert fitted_notes(notes, None) == [f"note: {note}" for note in notes]


def test_a_missing_time_is_told_before_a_metric_that_came_back_na() -> None:
    notes = [
        Note("1 metric came back n/a: m", NoteKind.NOT_MEASURED),
        SHORT,
        Note("1 of 1 have no times", NoteKind.NO_TIME),
    ]
    assert fitted_notes(notes, 80) == [
        "note: 1 of 1 have no times", f"note: {SHORT}", "note: 1 metric came back n/a: m",
    ]  # fmt: skip


def test_a_pipe_gets_as_few_notes_as_a_terminal_and_json_all_of_them() -> None:
    lacking = str(SAMPLES / "d05-legacy-long.csv")
    few, every = (ran("hotspots", lacking, "--top", "1", *more).stderr.splitlines() for more in ([], ["--notes"]))
    assert few[-1].endswith("--notes shows all")
    assert lines_of(few, 120) <= LINES < lines_of(every, 120)
    told = json.loads(ran("hotspots", lacking, "--format", "json").stdout)["notes"]
    assert [line for line in every if line.removeprefix("note: ") not in told] == [every[-1]]
    assert "--top shows more" in every[-1]


def test_control_characters_of_a_note_do_not_reach_the_terminal() -> None:
    assert fitted_notes(["\x1b[2J"], 80) == ["note: \\x1b[2J"]


@given(st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=700), max_size=20))
def test_notes_never_take_more_lines_than_allowed(notes: list[str]) -> None:
    assert lines_of(fitted_notes(notes, 80), 80) <= LINES


def printed_on_a_terminal(*arguments: str) -> str:
    """What a command prints on standard error, where that is a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, pack("HHHH", 24, 80, 0, 0))
    command = [str(Path(sys.executable).with_name("ncu-bench")), *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, cwd=ROOT, env=environment) as process:
        os.close(theirs)
        printed = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the end, on Linux
                break
            if not piece:
                break
            printed += piece
    os.close(ours)
    assert process.returncode == 0
    return printed.decode()


@pytest.mark.slow
def test_a_real_terminal_shows_few_notes_and_all_of_them_if_asked() -> None:
    lacking = str(SAMPLES / "d17-section-occupancy.csv")
    few = printed_on_a_terminal("hotspots", lacking, "--top", "1")
    every = printed_on_a_terminal("hotspots", lacking, "--top", "1", "--notes")
    assert "1 more note; --notes shows all" in few
    assert "shows all" not in every
    assert every.count("note: ") == few.count("note: ") == 4
