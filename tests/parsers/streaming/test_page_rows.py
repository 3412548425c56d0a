"""Blocks of lines become batches of rows of one page each, and every line is accounted for."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from ncu_parsers.report_data import report as kinds
from ncu_parsers.report_data.cell_text import DecimalVotes
from ncu_parsers.report_data.report import Report
from ncu_parsers.streaming.cells import rows
from ncu_parsers.streaming.cells.rows import NotStreamed, Rows
from ncu_parsers.streaming.page_rows import LineAccount, PageRows, RowBatch, accepts
from ncu_parsers.streaming.streaming_reader import InThisThread

LONG = ["ID", "Process ID", "Kernel Name", "Section Name", "Metric Name", "Metric Unit", "Metric Value"]
WIDE = ["ID", "Process ID", "Kernel Name", "gpu__time_duration.sum"]


def line(*cells: object) -> str:
    return ",".join('"' + str(cell).replace('"', '""') + '"' for cell in cells) + "\n"


def metric(number: int, value: str = "1.5", kernel: str = "k") -> str:
    return line(number, 7, kernel, "Section", "gpu__time_duration.sum", "us", value)


@pytest.fixture(autouse=True, params=[True, False], ids=["compiled", "plain"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        assert rows.loops is not None
    else:
        monkeypatch.setattr(rows, "loops", None)


def read(blocks: Iterable[str]) -> tuple[Report, PageRows, list[RowBatch]]:
    report = Report("report.csv")
    rows = PageRows(LineAccount(report), InThisThread(1))
    return report, rows, list(rows.batches(block.encode() for block in blocks))


def kernels(rows: Rows) -> list[str]:
    names = rows.texts["Kernel Name"]
    return [names.words[code] for code in names.codes]


def test_a_row_that_its_page_had_to_judge_stands_where_its_line_does() -> None:
    block = line(*LONG) + metric(0) + "epoch 1\n" + "text" + metric(1, kernel="judged") + metric(2)
    report, _, (batch,) = read([block])
    assert batch.rows.whole["ID"].tolist() == [0, 1, 2]
    assert kernels(batch.rows) == ["k", "judged", "k"]
    assert report.lines == {kinds.HEADER: 1, kinds.METRICS: 3, kinds.OUTPUT: 1}


def test_a_header_ends_the_batch_of_its_page_and_rows_behind_it_are_of_the_next() -> None:
    _, rows, (first, second) = read([line(*LONG) + metric(0) + line(*LONG) + metric(1)])
    assert (first.is_last, second.is_last) == (True, False)
    assert [streamed.page.header for streamed in rows.pages] == [LONG, LONG]
    assert (first.rows.whole["ID"].tolist(), second.rows.whole["ID"].tolist()) == ([0], [1])
    assert second.streamed is rows.pages[1]


def test_blocks_scanned_ahead_under_another_header_are_scanned_again() -> None:
    blocks = [line(*LONG) + metric(0), metric(1), line(*WIDE) + line("", "", "", "us"), line(2, 7, "wide", "2.5")]
    _, _, batches = read(blocks)
    assert [batch.rows.whole["ID"].tolist() for batch in batches] == [[0], [1], [2]]
    assert kernels(batches[2].rows) == ["wide"]
    assert batches[2].rows.numbers["0"].values.tolist() == [2.5]


def test_a_wide_page_without_a_row_of_units_is_judged_launch_by_launch() -> None:
    with pytest.raises(NotStreamed):
        read([line(*WIDE) + line(0, 7, "k", "1.5") + line(1, 7, "k", "2.5")])


def test_numbers_with_decimal_commas_are_read_again_with_them() -> None:
    _, rows, (batch,) = read([line(*LONG) + metric(0, "1.234,50") + metric(1, "65,75")])
    assert batch.decimal == rows.pages[0].votes.mark == ","
    assert batch.rows.numbers["Metric Value"].values.tolist() == [1234.5, 65.75]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (["1.50", "2,50"], "speak for decimal points and for decimal commas"),
        (["1,234", "5"], "do not show whether the decimal mark"),
    ],
)
def test_numbers_that_contradict_or_do_not_tell_are_not_streamed(values: list[str], reason: str) -> None:
    with pytest.raises(NotStreamed, match=reason):
        read([line(*LONG) + "".join(metric(number, value) for number, value in enumerate(values))])


def test_metrics_that_are_words_are_read_by_their_distinct_texts_from_the_next_block_on() -> None:
    blocks = [line(*WIDE) + line("", "", "", ""), *(line(number, 7, "k", "CachePreferNone") for number in range(5))]
    _, rows, batches = read(blocks)
    assert rows.pages[0].layout is not None
    assert rows.pages[0].layout.columns[3][1].name == "MIXED"
    assert all(batch.rows.numbers["0"].non_numeric["CachePreferNone"].tolist() == [0] for batch in batches)


def test_a_locale_is_resolved_by_a_thousand_numbers_that_agree() -> None:
    votes = DecimalVotes()
    votes["."] = 1000
    assert not votes.is_resolved
    votes["."] += 1
    assert votes.is_resolved
    _, _, (batch,) = read([line(*LONG) + metric(0, "5")])
    assert accepts(votes, batch.rows, ".")
    assert not accepts(votes, batch.rows, ",")
