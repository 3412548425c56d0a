"""Each step of streaming by itself: blocks of lines, layouts, the account of lines, ids of launches, columns."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.ncu.csv_pages import LongPage, WidePage
from ncu_parsers.report_data import report as kinds
from ncu_parsers.report_data.report import Report
from ncu_parsers.sources import memory
from ncu_parsers.streaming import page_rows
from ncu_parsers.streaming.cells.rows import Kind, NotStreamed, Texts
from ncu_parsers.streaming.launch_columns import LaunchColumns, MetricColumn, joined, table_of
from ncu_parsers.streaming.page_launches import LaunchIds
from ncu_parsers.streaming.page_rows import LineAccount, blocks_of, long_layout, wide_layout

IDENTITY = ["ID", "Process ID", "Kernel Name", "Grid Size"]
LONG = [*IDENTITY, "Section Name", "Metric Name", "Metric Unit", "Metric Value"]


class TestBlocks:
    @given(st.binary(max_size=60), st.integers(1, 9))
    def test_end_at_line_ends_and_hold_every_byte(self, text: bytes, size: int) -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(page_rows, "BLOCK_BYTES", size)
            found = list(blocks_of(io.BytesIO(b"a\n" + text), "report"))
        assert b"".join(found) == b"a\n" + text
        assert all(block.endswith(b"\n") for block in found[:-1])
        assert b"" not in found

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
    def test_are_in_utf_8_without_a_byte_order_mark(self, encoding: str) -> None:
        text = "kernel \u03bb\U0001f600\n" * 3
        assert b"".join(blocks_of(io.BytesIO(text.encode(encoding)), "report")) == text.encode()

    def test_the_encoding_follows_from_the_first_4096_bytes_however_short_blocks_are(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(page_rows, "BLOCK_BYTES", 1000)
        text = b"a,b\n" * 300 + "c,d\n".encode("utf-16-le") * 600  # UTF-16 by its zeros, which come late
        assert b"".join(blocks_of(io.BytesIO(text), "report")).decode() == text.decode("utf-16-le")

    def test_a_line_longer_than_allowed_is_not_streamed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory, "longest_line", lambda: 10)
        assert list(blocks_of(io.BytesIO(b"0123456789\n"), "report"))
        with pytest.raises(NotStreamed, match="too long"):
            list(blocks_of(io.BytesIO(b"01234567891"), "report"))


class TestLayouts:
    def test_a_long_row_may_end_behind_its_value_and_names_a_metric(self) -> None:
        layout = long_layout(LongPage([*LONG, "Rule Name"], ","))
        assert (layout.required, layout.leading, layout.label, layout.is_compiled) == (8, 4, 5, True)
        assert dict(layout.columns) == {
            **dict.fromkeys(["Kernel Name", "Section Name", "Metric Name", "Metric Unit", "Rule Name"], Kind.TEXTS),
            "ID": Kind.WHOLE, "Process ID": Kind.WHOLE, "Grid Size": Kind.SHAPES, "Metric Value": Kind.NUMBERS,
        }  # fmt: skip

    @pytest.mark.parametrize(("delimiter", "quoted"), [(";", True), ("\t", True), (",", False)])
    def test_the_compiled_loop_knows_commas_and_quotes_only(self, delimiter: str, quoted: bool) -> None:
        assert not long_layout(LongPage(LONG, delimiter, quoted)).is_compiled
        assert not wide_layout(WidePage([*IDENTITY, "dram__bytes.sum"], delimiter, quoted)).is_compiled

    @pytest.mark.parametrize("header", [[*LONG, "ID"], LONG[1:], [*LONG, "Domain"], [*LONG[:2], *LONG[3:]]])
    def test_other_columns_than_ncu_writes_are_not_streamed(self, header: list[str]) -> None:
        with pytest.raises(NotStreamed, match="columns are unusual"):
            long_layout(LongPage(header, ","))

    def test_metrics_of_a_wide_page_that_are_words_are_read_by_their_distinct_texts(self) -> None:
        page = WidePage([*IDENTITY, "dram__bytes.sum", "launch__func_cache_config"], ",")
        assert [kind for _, kind in wide_layout(page, {1}).columns[4:]] == [Kind.NUMBERS, Kind.MIXED]


def test_lines_are_counted_by_what_they_were_with_their_numbers() -> None:
    report = Report("report.csv")
    account = LineAccount(report)
    assert account.judge(None, account.text(b"epoch 1\r\n")) == (kinds.OUTPUT, [])
    page = account.opened_by(account.text((",".join(f'"{title}"' for title in LONG) + "\n").encode()))
    account.count_rows(3, 1)
    assert account.judge(page, account.text(b'"7","8","cut'))[0] == kinds.BROKEN
    assert report.lines == {kinds.OUTPUT: 1, kinds.HEADER: 1, kinds.METRICS: 3, kinds.RULE: 1, kinds.BROKEN: 1}
    assert report.examples[kinds.BROKEN] == (7, '"7","8","cut')
    assert (account.number, account.is_complete, account.replaced) == (7, False, 0)


class TestIdsOfLaunches:
    def test_grow_within_each_process(self) -> None:
        ids = LaunchIds()
        ids.add(np.array([7, 8, 7]), np.array([0, 0, 1]))
        ids.begin_table()
        ids.add(np.array([7, 8]), np.array([2, 1]))
        ids.begin_table()
        with pytest.raises(NotStreamed, match="several of its tables"):
            ids.add(np.array([8]), np.array([1]))

    def test_may_repeat_within_one_table(self) -> None:
        ids = LaunchIds()
        ids.add(None, np.array([3, 3]))
        ids.add(None, np.array([1]))


def columns_of(name: str, values: list[float], unit: str, words: dict[int, str] | None = None) -> LaunchColumns:
    rows = len(values)
    metric = MetricColumn(np.array(values), unit, words or {})
    kernel = Texts(np.zeros(rows, np.int32), [f"kernel of {name}"])
    return LaunchColumns(
        rows, np.arange(rows), None, {"Kernel Name": kernel}, {"Grid Size": np.array([[1, 2, 3]] * rows, np.int32)},
        {name: metric}, np.ones(rows, np.int64), np.zeros(rows, np.int64),
    )  # fmt: skip


class TestLaunchesAsColumns:
    def test_joined_have_no_value_where_a_part_lacks_the_metric(self) -> None:
        both = joined([columns_of("a", [1.0], "byte"), columns_of("b", [2.0, 3.0], "inst")])
        assert {name: column.values.tolist() for name, column in both.metrics.items()} == {
            "a": [1.0, pytest.approx(np.nan, nan_ok=True), pytest.approx(np.nan, nan_ok=True)],
            "b": [pytest.approx(np.nan, nan_ok=True), 2.0, 3.0],
        }
        assert [both.cells["Kernel Name"].words[code] for code in both.cells["Kernel Name"].codes] == [
            "kernel of a", "kernel of b", "kernel of b",
        ]  # fmt: skip

    def test_a_launch_without_blocks_or_with_nothing_but_nan_has_failed(self) -> None:
        columns = columns_of("a", [1.0, 1.0, 1.0], "")
        columns.shapes["Grid Size"][1] = 0
        columns.nans[2] = 1
        assert columns.failed.tolist() == [False, True, True]

    def test_words_of_a_metric_that_is_a_number_elsewhere_are_left_out(self) -> None:
        words = columns_of("launch__func_cache_config", [np.nan], "", {0: "CachePreferNone"})
        table = table_of(words, Report("report.csv"))
        assert table.column("launch__func_cache_config").to_pylist() == ["CachePreferNone"]
        assert table.column("grid").to_pylist() == [[1, 2, 3]]
        assert (
            "launch__func_cache_config"
            not in table_of(words, Report("report.csv"), {"launch__func_cache_config"}).column_names
        )
