"""Colours of cells: on a terminal alone, and without a change of any width."""

from __future__ import annotations

import re
from io import StringIO

import pytest

from ncu_tools.cli.options import has_colours
from ncu_tools.compare.gate import NOT_EVALUATED, PASSED, TRIPPED
from ncu_tools.numbers.change import LESS, MORE, VERDICTS
from ncu_tools.report.cell_styles import BAD, DIM, DOUBTFUL, GOOD, NEAR_ROOF, style_of
from ncu_tools.report.table import Column, Table, to_text

ESCAPE = re.compile("\x1b" + r"\[[0-9;]*m")
GATES = Table(
    "gates",
    [Column("gate", "gate", wide=True), Column("outcome", "outcome"), Column("bound_fraction", "of bound", "fraction")],
    [{"gate": f"gate {number} " + "x" * 40, "outcome": outcome, "bound_fraction": 0.5 + number / 3}
     for number, outcome in enumerate((TRIPPED, PASSED))],
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "style"),
    [
        ("outcome", TRIPPED, BAD), ("outcome", PASSED, GOOD), ("outcome", NOT_EVALUATED, DOUBTFUL),
        ("verdict", f"{VERDICTS[MORE]}, noise not known", BAD), ("verdict", VERDICTS[LESS], GOOD),
        ("verdict", "same", ""), ("verdict", None, ""),
        ("bound_fraction", 0.8, NEAR_ROOF), ("bound_fraction", 0.79, ""), ("bound_fraction", None, ""),
        ("cause", "unknown", DIM), ("kernel", "tripped", ""), ("launches", 3, ""),
    ],
)  # fmt: skip
def test_a_value_has_the_style_of_what_it_says(name: str, value: object, style: str) -> None:
    assert style_of(name, value) == style


@pytest.mark.parametrize("width", [None, 60])
def test_colours_change_no_width(width: int | None) -> None:
    plain, coloured = (to_text(GATES, width, colours=colours) for colours in (False, True))
    assert "\x1b[31mtripped" in coloured
    assert "\x1b[36m" in coloured
    assert [line.rstrip() for line in ESCAPE.sub("", coloured).splitlines()] == plain.splitlines()
    assert "\x1b" not in plain


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_only_a_terminal_has_colours_and_no_color_and_dumb_ones_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert has_colours(Terminal())
    assert not has_colours(StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colours(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colours(Terminal())
