"""Tables on terminals of any width, and in pipes: lines fit, and names get the remaining width."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len

from ncu_tools.cli import run
from ncu_tools.report.table import Column, Table, to_markdown, to_text
from tests.conftest import SAMPLES
from tests.support.nightly import by_day
from tests.support.ran import below_head

pytestmark = pytest.mark.slow

RAW = str(SAMPLES / "d01-wide-raw.csv")
SUMMARY = str(SAMPLES / "d16-ui-summary.csv")
LONGEST = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char *, 1>>"
)
COMMANDS = [
    ["hotspots", RAW],
    ["hotspots", RAW, "--sort", "headroom"],
    ["hotspots", RAW, "--full-names"],
    ["hotspots", RAW, "--diagnose"],
    ["hotspots", RAW, "--units"],
    ["hotspots", SUMMARY],
    ["roofline", RAW, "--levels", "all"],
    ["roofline", "--machine", "a100-sxm4-40gb,t4"],
    ["compare", RAW, RAW],
    ["compare", RAW, SUMMARY, "--anyway"],
    ["machines"],
    ["machines", "a100-sxm4-40gb"],
    ["metrics", "flops", "--chip", "gh100"],
    ["metrics", "--all-chips"],
]
NAMES = Column("name", "name", wide=True)
TABLE = Table(
    "x",
    [NAMES, Column("a", "a"), Column("b", "b", spare=1), Column("c", "c", spare=2), Column("d", "d", spare=2),
     Column("e", "e", spare=0), Column("f", "f")],
    [{"name": "n" * 60, **{name: name * 10 for name in "abcdef"}}],
)  # fmt: skip


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    width: int = request.param
    monkeypatch.setattr("ncu_tools.cli.options.terminal_width", lambda: width)
    monkeypatch.setattr("ncu_tools.cli.comparing.compare.terminal_width", lambda: width)
    return width


def titles(width: int | None) -> str:
    return "".join(to_text(TABLE, width).splitlines()[0].split()[1:])


@pytest.mark.parametrize("terminal", by_day([80, 200], [80, 100, 120, 200]), indirect=True)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(Path(word).name for word in words))
def test_no_line_is_wider_than_the_terminal(
    command: list[str], terminal: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command) == 0
    assert max(map(cell_len, capsys.readouterr().out.splitlines())) <= terminal


@pytest.mark.parametrize("terminal", [100], indirect=True)
def test_no_note_names_the_columns_that_were_dropped(terminal: int, capsys: pytest.CaptureFixture[str]) -> None:
    run(["hotspots", RAW])
    found = capsys.readouterr()
    assert found.err == ""
    assert below_head(found.out).splitlines()[0].split()[-2:] == ["of", "bound"]


@pytest.mark.parametrize("terminal", [80], indirect=True)
def test_the_column_that_rows_are_sorted_by_is_not_dropped(terminal: int, capsys: pytest.CaptureFixture[str]) -> None:
    for by, title in (("headroom", "headroom"), ("flops", "FLOPs"), ("dram", "DRAM")):
        run(["hotspots", RAW, "--sort", by])
        assert title in below_head(capsys.readouterr().out).splitlines()[0].split()
    assert terminal == 80


def test_pipes_get_whole_names_and_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    run(["hotspots", RAW])
    found = capsys.readouterr()
    assert f" {LONGEST[:60]}" in found.out
    assert "…" not in below_head(found.out)


def test_names_get_the_remaining_width() -> None:
    row = to_text(TABLE, 130).splitlines()[2]
    assert len(row) == 130
    assert row.startswith("n" * 57 + "…")


def test_columns_are_dropped_by_importance_and_then_from_the_right() -> None:
    assert [titles(width) for width in (None, 200, 100, 90, 59, 47)] == [
        "abcdef", "abcdef", "abcdef", "abef", "ae", "e",
    ]  # fmt: skip


def test_names_are_shortened_if_no_other_column_can_be_dropped() -> None:
    assert len(to_text(TABLE, 30).splitlines()[2]) == 30


def test_full_names_and_sentences_are_wrapped() -> None:
    table = Table("x", [NAMES, Column("why", "why", prose=True)], [{"name": "x" * 60, "why": "one two three " * 5}])
    text = to_text(table, 60, full_names=True)
    assert text.count("x") == 60
    assert text.split().count("three") == 5
    assert all(len(line) <= 60 for line in text.splitlines())


def test_markdown_keeps_the_indentation_of_a_tree() -> None:
    table = Table("layers", [Column("layer", "layer")], [{"layer": "net"}, {"layer": "    a b"}])
    assert to_markdown(table).splitlines()[2:] == ["| net |", "| &nbsp;&nbsp;&nbsp;&nbsp;a b |"]
