"""Tables of any width, on terminals and in pipes: lines fit, and names have half of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from ncu_tools.cli import run
from ncu_tools.report.table import Column, Table, to_json, to_markdown, to_text
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
    ["machines", "--metrics", "flops", "--chip", "gh100"],
    ["machines", "--all-chips"],
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
    assert below_head(found.out).splitlines()[0].split()[-2:] == ["of", "roof"]


@pytest.mark.parametrize("terminal", [80], indirect=True)
def test_the_column_that_rows_are_sorted_by_is_not_dropped(terminal: int, capsys: pytest.CaptureFixture[str]) -> None:
    for by, title in (("headroom", "headroom"), ("flops", "FLOPs"), ("dram", "DRAM")):
        run(["hotspots", RAW, "--sort", by])
        assert title in below_head(capsys.readouterr().out).splitlines()[0].split()
    assert terminal == 80


def test_pipes_are_120_columns_wide_and_have_everything_if_that_was_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(["hotspots", RAW])
    found = capsys.readouterr()
    assert max(map(cell_len, found.out.splitlines())) <= 120
    run(["hotspots", RAW, "--wide", "--full-names"])
    found = capsys.readouterr()
    assert f" {LONGEST[:60]}" in found.out
    assert "…" not in below_head(found.out)


def test_columns_say_how_wide_a_pipe_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    run(["hotspots", RAW])
    assert 80 < max(map(cell_len, capsys.readouterr().out.splitlines())) <= 100


def test_names_get_the_remaining_width_and_are_cut_in_the_middle() -> None:
    row = to_text(TABLE, 100).splitlines()[2]
    assert len(row) == 100
    assert row.startswith("n" * 26 + "…" + "n" * 25 + "  ")


def test_kernels_have_readable_names_that_differ_in_every_column_of_a_table() -> None:
    add, other = (
        f"void at::native::vectorized_elementwise_kernel<{size}, at::native::CUDAFunctor_add<float>>(int)"
        for size in (4, 2)
    )
    columns = [Column("kernel", "kernel", "kernel"), Column("was", "was", "kernel"), Column("a", "a", "count")]
    rows: list[dict[str, Any]] = [
        {"kernel": add, "was": None, "a": 1},
        {"kernel": None, "was": other, "a": 2},
        {"kernel": "all kernels", "is_total": True},
    ]
    table = Table("x", columns, rows)
    names = "elementwise add fp32 (4)", "elementwise add fp32 (2)"
    for text in (to_text(table, None), to_markdown(table)):
        assert all(name in text for name in (*names, "all kernels"))
        assert "at::native" not in text
    narrow = to_text(table, 40).splitlines()
    assert [line.split("  ")[0] for line in narrow[2:3]] == ["elementwise ad… (4)"]
    assert all(len(line) <= 40 for line in narrow)
    assert to_text(table, None, full_names=True).count(add) == 1


def test_true_and_false_are_yes_and_no_for_people_and_stay_so_for_programs() -> None:
    table = Table("x", [NAMES, Column("within", "within")], [{"name": one, "within": one == "a"} for one in "ab"])
    assert [line.split() for line in to_text(table, None).splitlines()[2:]] == [["a", "yes"], ["b", "no"]]
    assert '"within": false' in "".join(to_json(table))


def test_a_launch_by_grid_has_the_name_of_its_kernel_and_the_grid() -> None:
    table = Table("x", [Column("kernel", "kernel", "kernel")], [{"kernel": "void f<int>(int*) (8, 1, 1) x (32, 1, 1)"}])
    assert to_text(table, None).splitlines()[2] == " f (8, 1, 1) x (32, 1, 1)"


def test_cells_of_markdown_are_bounded() -> None:
    columns = [NAMES, Column("kernel", "kernel", "kernel"), Column("why", "why", prose=True)]
    row = {"name": "n" * 99, "kernel": f"void {'k' * 99}(int)", "why": "one two three " * 50}
    table = Table("x", columns, [row])
    cells = [cell.strip() for cell in to_markdown(table).splitlines()[2].split("|")[1:-1]]
    assert [len(cell) for cell in cells] == [60, 60, 240]
    assert cells[0] == "n" * 30 + "…" + "n" * 29
    assert "k" * 99 in to_markdown(table, wide=True)
    assert f"void {'k' * 99}(int)" in to_markdown(table, full_names=True)


def test_columns_are_dropped_by_importance_and_then_from_the_right() -> None:
    assert [titles(width) for width in (None, 200, 100, 90, 59, 47)] == [
        "abcdef", "abcdef", "abef", "aef", "ae", "e",
    ]  # fmt: skip


def test_a_column_in_which_all_rows_are_alike_is_dropped_before_one_that_tells_them_apart() -> None:
    columns = [NAMES, *(Column(name, name) for name in ("device", "mode", "phase"))]
    rows = [{"name": "x", "device": "cpu", "mode": "eager", "phase": phase} for phase in ("prefill", "decode")]
    assert to_text(Table("x", columns, rows), 24).split("\n")[0].split() == ["name", "device", "phase"]
    assert to_text(Table("x", columns, rows[:1]), 22).split("\n")[0].split() == ["name", "device", "mode"]


def test_names_are_shortened_if_no_other_column_can_be_dropped() -> None:
    assert len(to_text(TABLE, 30).splitlines()[2]) == 30


def test_full_names_and_sentences_are_wrapped() -> None:
    table = Table("x", [NAMES, Column("why", "why", prose=True)], [{"name": "x" * 60, "why": "one two three " * 5}])
    text = to_text(table, 60, full_names=True)
    assert text.count("x") == 60
    assert text.split().count("three") == 5
    assert all(len(line) <= 60 for line in text.splitlines())


@pytest.mark.parametrize("width", range(48, 60))
def test_a_sentence_breaks_before_no_per_cent_sign(width: int) -> None:
    table = Table("x", [NAMES, Column("why", "why", prose=True)], [{"name": "x", "why": "time 1 ms (-50.2 %); " * 4}])
    lines = to_text(table, width).splitlines()
    assert "\n".join(lines).count("-50.2 %") == 4
    assert max(map(cell_len, lines)) <= width


def test_markdown_keeps_the_indentation_of_a_tree() -> None:
    table = Table("layers", [Column("layer", "layer")], [{"layer": "net"}, {"layer": "    a b"}])
    assert to_markdown(table).splitlines()[2:] == ["| net |", "| &nbsp;&nbsp;&nbsp;&nbsp;a b |"]
