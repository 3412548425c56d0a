"""A big report that was read slowly says why, and what makes the next one faster."""

from __future__ import annotations

from pathlib import Path

import pytest
from ncu_parsers.parquet.reader import read_launches
from ncu_parsers.parse import parse
from ncu_parsers.schema.tables import table_metadata
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming.cells import rows
from ncu_parsers.streaming.cells.rows import NOT_COMPILED

from tests.conftest import SAMPLES

NAMES = ("d01-wide-raw.csv", "d04-long-metrics.csv")
SOURCES = [Source(str(SAMPLES / name)) for name in NAMES]


@pytest.fixture
def all_are_big(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "STREAMED_FROM_BYTES", 100)


@pytest.fixture
def not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "loops", None)


@pytest.mark.usefixtures("all_are_big", "not_compiled")
@pytest.mark.parametrize("sources", [SOURCES[:1], SOURCES], ids=["alone", "beside another"])
def test_a_big_report_read_without_compiled_loops_has_one_note_of_it(tmp_path: Path, sources: list[Source]) -> None:
    result = parse.parse_into(tmp_path / "out.parquet", sources, join=False)
    assert [report.notes.count(NOT_COMPILED) for report in result.reports] == [1] * len(sources)
    kept = table_metadata(read_launches(tmp_path / "out.parquet"))["reports"]
    assert [NOT_COMPILED in report["notes"] for report in kept] == [True] * len(sources)


@pytest.mark.usefixtures("all_are_big")
def test_a_big_report_read_by_compiled_loops_has_no_such_note(tmp_path: Path) -> None:
    assert rows.loops is not None
    result = parse.parse_into(tmp_path / "out.parquet", SOURCES, join=False)
    assert [NOT_COMPILED in report.notes for report in result.reports] == [False, False]


@pytest.mark.usefixtures("not_compiled")
def test_a_small_report_has_no_such_note(tmp_path: Path) -> None:
    result = parse.parse_into(tmp_path / "out.parquet", SOURCES, join=False)
    assert [NOT_COMPILED in report.notes for report in result.reports] == [False, False]


@pytest.mark.usefixtures("all_are_big", "not_compiled")
def test_a_report_that_no_compiled_loop_could_read_has_no_such_note(tmp_path: Path) -> None:
    result = parse.parse_into(tmp_path / "out.parquet", [Source(str(SAMPLES / "d18-text.txt"))])
    assert [NOT_COMPILED in report.notes for report in result.reports] == [False]


@pytest.mark.usefixtures("all_are_big")
@pytest.mark.parametrize(
    ("name", "reason"),
    [("d18-text.txt", "it holds a text page"), ("d19-summary-per-kernel.csv", "it holds a summary page")],
)
@pytest.mark.parametrize("beside", [[], SOURCES[:1]], ids=["alone", "beside another"])
def test_a_big_report_that_cannot_be_streamed_has_a_note_with_the_reason(
    tmp_path: Path, name: str, reason: str, beside: list[Source]
) -> None:
    sources = [Source(str(SAMPLES / name)), *beside]
    result = parse.parse_into(tmp_path / "out.parquet", sources, join=False)
    (note,) = (note for note in result.reports[0].notes if note.startswith("read launch by launch"))
    assert note.endswith(reason)
    assert note in table_metadata(read_launches(tmp_path / "out.parquet"))["reports"][0]["notes"]
    assert not any("launch by launch" in note for report in result.reports[1:] for note in report.notes)
