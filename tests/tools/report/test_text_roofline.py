"""Rooflines as text: what stands where, and what goes to a terminal, a pipe and a file.

The golden file tests/pictures/terminal.txt is written by python -m tests.tools.report.test_text_roofline. Look at it then.
"""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from ncu_tools.ceilings.machine_files import find_machine, machines
from ncu_tools.cli import run
from ncu_tools.report.plot.text_roofline import SYMBOLS, WIDEST, TextStyle, text_picture
from ncu_tools.roofline.density import DENSE_FROM
from ncu_tools.roofline.roofline import Look, of_machines, roofline
from ncu_tools.roofline.scene import DrawnCeiling, LevelPlace, Mark, Scene, SceneRun
from ncu_tools.roofline.scene_builder import scene_of
from ncu_tools.runs.loading import load
from tests.conftest import ROOT, SAMPLES
from tests.support.ran import below_head
from tests.tools.cli.test_cli import PYTHONPATH
from tests.whole.test_profile_with_a_stand_in import MAIN

RAW = str(SAMPLES / "d01-wide-raw.csv")
GOLDEN = ROOT / "tests" / "pictures" / "terminal.txt"
BRAILLE = re.compile("[\u2800-\u28ff]")
COLOURED = re.compile(r"\x1b\[[\d;]*m")
PLAIN = TextStyle(plain=True)


def scene(levels: tuple[str, ...] = ("dram",)) -> Scene:
    return scene_of(roofline({RAW: load(RAW).table}, look=Look(levels=levels)))


def golden() -> str:
    both = [text_picture(scene(), TextStyle()), text_picture(scene(), PLAIN)]
    return "\n\n".join([*both, text_picture(scene_of(of_machines([find_machine("h100-sxm")])), TextStyle())]) + "\n"


def ceiling(unit: str, value: float, label: str, value_unit: str = "FLOP/s", **others: Any) -> DrawnCeiling:
    return DrawnCeiling("X", unit, value, value_unit, label, "data sheet", "", **others)


def mark(name: str, x: float, y: float, **others: Any) -> Mark:
    return Mark(name, name, 0, y, (LevelPlace("dram", x),), 0.1, time_share=0.25, unit="fp32", **others)


ROOFS = [ceiling("dram", 1e10, "slope", "byte/s"), ceiling("fp32", 1e12, "peak")]
MADE = Scene(runs=[SceneRun("run", "run")], roofs=ROOFS, marks=[mark("low", 1.0, 1e10), mark("high", 1000.0, 1e12)])


def place_of(letter: str, picture: str) -> tuple[int, int]:
    """The line and column of a letter in the plot."""
    lines = picture.splitlines()
    (found,) = [(at, line.index(letter, 8)) for at, line in enumerate(lines[:20]) if letter in line[8:]]
    return found


class TestThePicture:
    def test_looks_as_it_did(self) -> None:
        assert golden() == GOLDEN.read_text("utf-8")

    def test_has_marks_on_the_ceilings_that_they_reach(self) -> None:
        lines = text_picture(MADE, PLAIN).splitlines()
        for letter, line in (("1", "/"), ("2", "-")):
            row, column = place_of(letter, "\n".join(lines))
            assert line in (lines[row][column - 1], lines[row][column + 1])

    def test_has_marks_at_their_values_of_both_axes(self) -> None:
        lines = text_picture(MADE, PLAIN).splitlines()
        axis = next(at for at, line in enumerate(lines) if re.search(r"\+-+\+", line))
        row, column = place_of("2", "\n".join(lines))
        assert lines[row].startswith("   1 T +")
        assert lines[axis][column] == "+"
        assert lines[axis + 1][column - 2 : column + 3] == "1,000"

    def test_names_every_ceiling_in_its_line_or_below(self) -> None:
        for machine in machines().values():
            drawn = scene_of(of_machines([machine]))
            for width in (40, 80, 120):
                picture = text_picture(drawn, TextStyle(width))
                assert all(roof.label[: width - 8] in picture for roof in drawn.roofs), machine.id

    def test_has_dotted_sparse_peaks(self) -> None:
        dots = []
        for sparse in (False, True):
            alone = replace(MADE, roofs=[ceiling("fp32", 1e12, "peak", sparse=sparse)], marks=[])
            letters = BRAILLE.findall(text_picture(alone, TextStyle()))
            dots.append(sum((ord(letter) - 0x2800).bit_count() for letter in letters))
        assert 0 < dots[1] < 0.5 * dots[0]

    @pytest.mark.parametrize("width", [20, 40, 80, 100, 120, 300])
    def test_is_as_wide_as_the_terminal_at_most(self, width: int) -> None:
        for one in (MADE, scene(("dram", "l2")), scene_of(of_machines([find_machine("h100-sxm")]))):
            lines = text_picture(one, TextStyle(width)).splitlines()
            assert max(map(cell_len, lines)) <= min(max(width, 40), WIDEST)

    def test_in_ascii_has_no_other_letter(self) -> None:
        odd = replace(MADE, title="行列", roofs=[*ROOFS, ceiling("fp64", 1e11, "Ω")], marks=[mark("über", 1.0, 1e10)])
        assert text_picture(odd, PLAIN).isascii()
        assert text_picture(odd, replace(PLAIN, legend=False)).isascii()

    def test_has_no_letter_that_acts_on_a_terminal(self) -> None:
        hostile = replace(
            MADE, title="\x1b[31m", roofs=[*ROOFS, ceiling("fp64", 1e11, "\x1b[2J")], marks=[mark("\x07", 1.0, 1e10)]
        )
        assert "\x1b" not in text_picture(hostile, TextStyle())
        assert "\x07" not in text_picture(hostile, TextStyle())


class TestMarks:
    def test_that_share_a_place_stand_beside_each_other_and_the_rest_is_named(self) -> None:
        crowd = replace(MADE, marks=[mark(str(number), 10.0, 1e11) for number in range(7)])
        lines = text_picture(crowd, PLAIN).splitlines()
        assert {letter for line in lines[:20] for letter in line[8:] if letter in SYMBOLS[:7]} >= set("12345")
        assert "under other marks: 6, 7" in lines

    def test_beyond_those_asked_for_are_points(self) -> None:
        marks = [mark(f"m{number}", 10.0 ** (number / 10), 1e10) for number in range(40)]
        picture = text_picture(replace(MADE, marks=marks), replace(PLAIN, numbered=2))
        assert picture.count(".") > 10
        assert "38 more marks are points" in picture
        assert "5 more marks are points" in text_picture(replace(MADE, marks=marks), PLAIN)

    def test_are_named_below_with_their_share_and_run(self) -> None:
        runs = [SceneRun("a", "before"), SceneRun("b", "after")]
        two = replace(MADE, runs=runs, marks=[mark("mm", 1.0, 1e10), replace(mark("mm", 2.0, 2e10), run=1)])
        assert text_picture(two, PLAIN).splitlines()[-2:] == ["1   25.0 %  mm, before", "2   25.0 %  mm, after"]

    def test_of_several_levels_stand_at_each(self) -> None:
        picture = text_picture(scene(("dram", "l2", "l1")), TextStyle(colour=True, legend=False))
        assert len(re.findall(r"\x1b\[1m3\x1b", picture)) == 3
        assert "once for each level: DRAM, L2, L1" in picture

    def test_have_the_colour_of_their_unit_or_run_where_colours_are_wanted(self) -> None:
        runs = [SceneRun("a", "before"), SceneRun("b", "after")]
        two = replace(MADE, runs=runs, marks=[mark("mm", 1.0, 1e10), replace(mark("mm", 20.0, 2e10), run=1)])
        coloured = text_picture(two, TextStyle(colour=True))
        assert len(set(re.findall(r"(\x1b\[3\dm)\x1b\[1m[12]", coloured))) == 2
        assert COLOURED.sub("", coloured) == text_picture(two, TextStyle())


def test_many_launches_are_shades(tmp_path: Path) -> None:
    from benchmarks.pictures import launches

    result = roofline({"run": launches(DENSE_FROM)}, look=Look("launches"))
    assert result.density is not None
    picture = text_picture(scene_of(result), TextStyle())
    assert len(re.findall("[░▒▓█]", picture)) > 5


def test_a_roofline_without_ceilings_or_without_marks_is_drawn() -> None:
    for one in (replace(MADE, roofs=[]), replace(MADE, marks=[]), Scene()):
        assert len(text_picture(one, TextStyle()).splitlines()) >= 22


# ------------------------------------------------------------------------------------------------- where it is written


def on_a_terminal(*arguments: str, **variables: str) -> str:
    """What the command prints on a terminal of 80 columns, its notes too."""
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "TERM")}
    environment |= {
        "PYTHONPATH": PYTHONPATH,
        "COLUMNS": "80",
        "TERM": "xterm",
        "PYTHONIOENCODING": "utf-8",
        **variables,
    }
    command = [*MAIN, *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(theirs)
        said = bytearray()
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            said += part
        assert process.wait(60) == 0
    os.close(ours)
    return said.decode().replace("\r\n", "\n")


@pytest.mark.slow
class TestOnATerminal:
    def test_the_picture_stands_above_a_table_with_its_numbers(self) -> None:
        coloured = on_a_terminal("roofline", RAW)
        assert COLOURED.search(coloured)
        said = COLOURED.sub("", coloured)
        picture, _, shown = below_head(said).partition("\n\n")
        assert picture == text_picture(scene(), TextStyle(legend=False))
        assert [line.split()[0] for line in shown.splitlines()[2:7]] == list("12345")
        assert not shown.splitlines()[7].startswith("6")  # it has no FLOPs, and no place
        assert max(map(cell_len, said.splitlines())) <= 80

    def test_colours_are_left_out_where_no_color_says_so(self) -> None:
        for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            assert not COLOURED.search(on_a_terminal("roofline", RAW, **variables))

    def test_an_encoding_without_braille_gets_ascii(self) -> None:
        said = COLOURED.sub("", on_a_terminal("roofline", RAW, PYTHONIOENCODING="ascii:replace"))
        assert below_head(said).startswith(text_picture(scene(), replace(PLAIN, legend=False)))

    def test_a_bare_roofline_and_one_of_instructions_are_drawn_too(self) -> None:
        assert BRAILLE.search(on_a_terminal("roofline", "--machine", "a100-sxm4-40gb,t4"))
        shared = SAMPLES / "d01-wide-raw.csv"
        assert BRAILLE.search(on_a_terminal("roofline", str(shared), "--points", "runs"))

    def test_a_file_or_another_format_is_not_drawn_again_as_text(self, tmp_path: Path) -> None:
        assert not BRAILLE.search(on_a_terminal("roofline", RAW, "-o", str(tmp_path / "x.svg")))
        assert not BRAILLE.search(on_a_terminal("roofline", RAW, "--format", "csv"))


@pytest.mark.slow
class TestInAPipeOrFile:
    def test_a_pipe_gets_the_table_alone(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["roofline", RAW]) == 0
        out = capsys.readouterr().out
        assert not BRAILLE.search(out)
        assert below_head(out).split()[0] == "kernel"

    def test_a_text_file_gets_the_picture_with_its_legend(self, tmp_path: Path) -> None:
        assert run(["roofline", RAW, "-o", str(tmp_path / "x.txt"), "--title", "A100"]) == 0
        written = (tmp_path / "x.txt").read_text("utf-8")
        assert written == text_picture(replace(scene(), title="A100"), TextStyle()) + "\n"
        assert written.startswith("A100\n")

    def test_json_is_drawn_again_to_a_pipe(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["roofline", RAW, "--format", "json"]) == 0
        text = capsys.readouterr().out
        assert json.loads(text)["scene"]
        (tmp_path / "plot.json").write_text(text)
        assert run(["roofline", str(tmp_path / "plot.json")]) == 0
        titled = replace(scene(), title="d01-wide-raw.csv, NVIDIA A100-PCIE-40GB")
        assert capsys.readouterr().out == text_picture(titled, TextStyle()) + "\n\n"

    def test_a_pipe_whose_encoding_is_unknown_gets_ascii(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from ncu_tools.cli.tables.roofline_pictures import style_of_output

        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
        assert style_of_output() == TextStyle(80, plain=True)


def test_the_page_on_rooflines_shows_the_golden_picture() -> None:
    shown = golden().split("\n\n")[0]
    assert shown in (ROOT / "docs" / "rooflines.md").read_text("utf-8")


if __name__ == "__main__":
    GOLDEN.write_text(golden(), "utf-8")
