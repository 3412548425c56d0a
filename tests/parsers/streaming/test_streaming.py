"""Big reports that are written as they are read: the same table, account and notes as by the plain reader."""

from __future__ import annotations

import random
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, event, given, settings, target
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError
from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.detect.text_reader import read_report
from ncu_parsers.parquet.reader import read_launches
from ncu_parsers.parquet.writer import write_table, writing_row_groups
from ncu_parsers.parse import parse
from ncu_parsers.parse.parse import account
from ncu_parsers.report_data.cell_text import NumberFormat
from ncu_parsers.sources.reading_ahead import beside_others
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming import page_rows, streaming_reader
from ncu_parsers.streaming.cells import rows
from ncu_parsers.streaming.cells.rows import NotStreamed

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.kernel_cache import cache_kernels
from ncu_tools.kernels.kernel_row import kernels_table
from tests.support.nightly import by_day, one_in
from tests.support.reports import needs_shared_reports, sample_files, shared_reports

pytestmark = pytest.mark.slow

IDENTITY = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
            "Grid Size", "Device", "CC"]  # fmt: skip
TAIL = ["Section Name", "Metric Name", "Metric Unit", "Metric Value"]
RULES = ["Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup"]
TIME, READ, ADD, CACHE = (
    "gpu__time_duration.sum", "dram__bytes_read.sum", "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
    "launch__func_cache_config",
)  # fmt: skip
WORD = [(CACHE, "", "CachePreferNone")]


def row(*cells: object) -> str:
    return ",".join('"' + str(cell).replace('"', '""') + '"' for cell in cells)


def launch_cells(number: int, kernel: str = "void k<int>(float *, 4)", process: int = 7) -> list[object]:
    return [number, process, "app", "node", kernel, 1, 7, "(128, 1, 1)", f"({number + 1}, 2, 1)", 0, "8.0"]


def long_lines(number: int, metrics: list[tuple[str, str, str]], kernel: str = "void k<int>(float *, 4)") -> list[str]:
    return [row(*launch_cells(number, kernel), "Section", *metric) for metric in metrics]


def wide_header(*metrics: tuple[str, str]) -> list[str]:
    return [row(*IDENTITY, *(name for name, _ in metrics)), row(*[""] * 11, *(unit for _, unit in metrics))]


def streamed(path: Path, folder: Path) -> tuple[dict[str, Any], list[Any], list[Any]] | None:
    """Account, schema and rows of a report that was streamed through a file; None where that cannot be done."""
    output = folder / "streamed.parquet"
    try:
        with writing_row_groups(output) as groups:
            report = streaming_reader.stream_report(Source(str(path)), groups.write)
            groups.finish(b"{}")
    except NotStreamed:
        return None
    return everything(report, read_launches(output))


def everything(report: Any, table: pa.Table) -> tuple[dict[str, Any], list[Any], list[Any]]:
    known = {**account(report), "examples": report.examples, "messages": report.messages, "names": report.metric_names,
             "labels": report.labels, "failures": report.failures}  # fmt: skip
    return known, [(field.name, field.type, field.metadata) for field in table.schema], table.to_pylist()


def plainly(path: Path) -> tuple[dict[str, Any], list[Any], list[Any]] | None:
    try:
        report = read_report(Source(str(path)))
    except NcuBenchError:
        return None
    return everything(report, launches_table(report) if report.table is None else report.table)


plainly_kept = cache(plainly)
"""Of reports that no test writes: the plain reader does not depend on how others are streamed."""


@pytest.fixture(autouse=True, params=[(1, True), (400, False)], ids=["a table each, compiled", "some in a table"])
def short_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so short that even a small report has several, with launches gathered or not, with the compiled loop or
    without.
    """
    cells, is_compiled = request.param
    monkeypatch.setattr(streaming_reader, "CELLS_OF_A_TABLE", cells)
    monkeypatch.setattr(page_rows, "BLOCK_BYTES", 1500)
    if is_compiled:
        assert rows.loops is not None
    else:
        monkeypatch.setattr(rows, "loops", None)


once = pytest.mark.parametrize("short_blocks", [(1, True)], ids=["once"], indirect=True)
"""Of what no block is read in here: a small report that is not streamed, or another process."""


def file_of(folder: Path, lines: list[str], end: str = "\n") -> Path:
    path = folder / "report.csv"
    path.write_bytes(end.join(lines).encode() + (end.encode() if lines and lines[-1] else b""))
    return path


def assert_streams_the_same(path: Path, folder: Path) -> None:
    found = streamed(path, folder)
    assert found is not None
    assert found == plainly(path)


class TestRealReports:
    @pytest.mark.parametrize("path", one_in(4, sample_files()), ids=lambda path: path.name)
    def test_every_sample_is_the_same_or_left_to_the_plain_reader(self, path: Path, tmp_path: Path) -> None:
        found = streamed(path, tmp_path)
        assert found is None or found == plainly_kept(path)

    @needs_shared_reports
    @pytest.mark.parametrize("path", one_in(4, shared_reports("ncu_csv")), ids=lambda path: path.name)
    def test_every_shared_report_is_the_same_or_left_to_the_plain_reader(self, path: Path, tmp_path: Path) -> None:
        found = streamed(path, tmp_path)
        assert found is None or found == plainly_kept(path)

    @needs_shared_reports
    @pytest.mark.nightly
    def test_most_of_them_are_streamed(self, tmp_path: Path) -> None:
        reports = [path for path in shared_reports("ncu_csv") if "raw" in path.name or "details" in path.name]
        assert sum(streamed(path, tmp_path) is not None for path in reports) > len(reports) / 2


@pytest.mark.parametrize(
    "tail",
    [
        ("Section Name", "Metric Name", "Metric Value", "Metric Unit"),
        ("Metric Name", "Metric Unit", "Metric Value", "Section Name"),
    ],
)
def test_a_long_page_whose_value_does_not_come_last_is_read_as_by_the_plain_reader(
    tail: tuple[str, ...], tmp_path: Path
) -> None:
    cells = {"Section Name": "Section", "Metric Name": TIME, "Metric Unit": "us", "Metric Value": "1.5"}
    rows = [row(*launch_cells(number), *(cells[title] for title in tail)) for number in range(40)]
    path = file_of(tmp_path, [row(*IDENTITY, *tail), *rows])
    found, expected = streamed(path, tmp_path), plainly(path)
    assert expected is not None
    assert found is None or found == expected


# ------------------------------------------------------------------------------------------------------ any report

NOISE = st.sampled_from([
    "step 10, loss = 2.3456", '[rank0]: "hello, world" a=1,b=2', "==WARNING== overhead is high", "",
    '"unterminated quote, x', 'nan,inf,"",,,', "1,2,3", '"0","7","half a row', "==PROF== Profiling", '"","","",""',
    "caf\u00e9 \u20ac", "progress\r50%", 'x = "a", "b"',
])  # fmt: skip
NUMBERS = st.one_of(
    st.integers(0, 10**10).map(str),
    st.integers(0, 10**10).map("{:,}".format),
    st.floats(0, 1e9).map("{:,.2f}".format),
    st.floats(0, 1e9).map("{:.6f}".format),
    st.sampled_from(["n/a", "nan", "", "-5.5", "1e5", "inf", "5.0 (1.0; 2.0)", "7 {3}", "+3", "1'234"]),
)
ODD_NUMBERS = st.one_of(NUMBERS, NUMBERS, NUMBERS, st.sampled_from(["0,123", "12,34", "1.234.567", "word"]))
KERNELS = st.sampled_from(
    ["void k<int>(float *, 4)", "gemm", 'quo"ted', "caf\u00e9", "\u6838", "the Kernel Name", "a, b"]
)


@st.composite
def long_reports(draw: st.DrawFn) -> str:
    with_rules = draw(st.booleans())
    numbers = draw(st.sampled_from([NUMBERS, NUMBERS, ODD_NUMBERS]))
    header = row(*IDENTITY, *TAIL, *(RULES if with_rules else []))
    names = [(TIME, "us"), (READ, "Mbyte"), (ADD, "inst"), ("Section metric", "%")]
    lines = [*draw(st.lists(NOISE, max_size=3)), header]
    for number in range(draw(st.integers(1, 25))):
        cells = launch_cells(number, draw(KERNELS), draw(st.sampled_from([7, 7, 7, 8])))
        for name, unit in draw(st.lists(st.sampled_from(names), min_size=1, max_size=5)):
            unit = draw(st.sampled_from([unit, unit, "Gbyte"])) if unit == "Mbyte" else unit
            lines.append(row(*cells, "Section", name, unit, draw(numbers)) + "," * with_rules)
        if with_rules and draw(st.booleans()):
            lines.append(row(*cells, "Section", "", "", "", "Rule", "OPT", 'look at "this"', "global", "3.5"))
        if not draw(st.integers(0, 5)):
            lines.append(draw(st.one_of(NOISE, st.just(header), st.just(WORD_ROW(cells, with_rules)))))
    return _ended(draw, lines)


def WORD_ROW(cells: list[object], with_rules: bool) -> str:  # noqa: N802
    return row(*cells, "Section", CACHE, "", "CachePreferNone") + "," * with_rules


@st.composite
def wide_reports(draw: st.DrawFn) -> str:
    numbers = draw(st.sampled_from([NUMBERS, NUMBERS, ODD_NUMBERS]))
    header = wide_header((TIME, "us"), (READ, "Mbyte"), (ADD, "inst"), (CACHE, ""))
    lines = [*draw(st.lists(NOISE, max_size=3)), *header]
    for number in range(draw(st.integers(1, 25))):
        cells = launch_cells(number, draw(KERNELS), draw(st.sampled_from([7, 7, 7, 8])))
        lines.append(row(*cells, *(draw(numbers) for _ in range(3)), draw(st.sampled_from(["CachePreferNone", "n/a"]))))
        if not draw(st.integers(0, 5)):
            lines += draw(st.one_of(NOISE.map(lambda line: [line]), st.just(header)))
    return _ended(draw, lines)


def _ended(draw: st.DrawFn, lines: list[str]) -> str:
    ends = [draw(st.sampled_from(["\n"] * 8 + ["\r\n"])) for _ in lines]
    text = "".join(line + end for line, end in zip(lines, ends, strict=True))
    return text[: len(text) - draw(st.sampled_from([0, 0, 0, 1, 9, 60]))]


same_for_any = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


class TestAnyReport:
    @same_for_any
    @given(st.one_of(long_reports(), wide_reports()))
    def test_is_the_same_or_left_to_the_plain_reader(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "report.csv"
        path.write_bytes(text.encode())
        found = streamed(path, tmp_path)
        target(float(found is not None))
        event(f"streamed: {found is not None}")
        assert found is None or found == plainly(path)

    @same_for_any
    @given(st.lists(ODD_NUMBERS, min_size=1, max_size=30), st.sampled_from([".", ","]))
    def test_cells_read_together_are_the_cells_read_one_by_one(self, texts: list[str], decimal: str) -> None:
        if decimal == ",":
            texts = [text.translate(str.maketrans(".,", ",.")) for text in texts]
        numbers = rows.numbers_of(texts, decimal)
        for place, text in enumerate(texts):
            number = NumberFormat(decimal).parse(text)
            if text not in numbers.non_numeric:
                assert number is not None
                assert numbers.values[place] == number.value


# ------------------------------------------------------------------------------------------------ single decisions


@pytest.mark.parametrize("block", [200, 100_000])
@pytest.mark.parametrize("launches", [1, 5])
def test_runs_under_one_header_are_told_apart_by_the_plain_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, launches: int
) -> None:
    monkeypatch.setattr(page_rows, "BLOCK_BYTES", block)
    runs = [
        long_lines(number, [(TIME, "ns", str(time + number)), (ADD, "inst", "12,345,678")])
        for time in (1000, 2000)
        for number in range(launches)
    ]
    path = file_of(tmp_path, [row(*IDENTITY, *TAIL), *(line for lines in runs for line in lines)])
    assert streamed(path, tmp_path) is None
    found = plainly(path)
    assert found is not None
    assert len(found[2]) == 2 * launches


class TestWhatIsStreamed:
    def metrics(self, number: int) -> list[tuple[str, str, str]]:
        return [(TIME, "us", f"{number + 1}.25"), (READ, "Mbyte", "1,234.50"), (ADD, "inst", "12,345,678")]

    def test_a_long_page_with_noise_between_its_rows_is_streamed(self, tmp_path: Path) -> None:
        rows = [line for number in range(40) for line in (*long_lines(number, self.metrics(number)), "epoch 3: done")]
        path = file_of(tmp_path, ["==PROF== Connected", row(*IDENTITY, *TAIL), *rows])
        assert_streams_the_same(path, tmp_path)
        found = streamed(path, tmp_path)
        assert found is not None
        assert found[0]["lines"]["program output"] == 40

    def test_a_rule_of_a_launch_without_metrics_where_a_stretch_ends(self, tmp_path: Path) -> None:
        """Rows of the launch before it may follow: they are not those of the launches of the next stretch."""
        metrics = [(f"sm__metric_{number}.sum", "inst", f"{number},000") for number in range(1, 21)]
        rows = [f"{line}," for line in long_lines(0, [*self.metrics(0), *metrics])]
        rule = row(*launch_cells(9), "Section", "", "", "", "Bottleneck", "WRN", "It waits", "", "")
        path = file_of(tmp_path, [row(*IDENTITY, *TAIL, *RULES), *rows[:15], rule, *rows[15:]])
        found = streamed(path, tmp_path)
        assert found is None or found == plainly(path)

    def test_a_header_that_stands_there_again(self, tmp_path: Path) -> None:
        header = row(*IDENTITY, *TAIL)
        rows = [line for number in range(30) for line in (header, *long_lines(number, self.metrics(number)))]
        assert_streams_the_same(file_of(tmp_path, rows), tmp_path)

    def test_a_wide_page_with_decimal_commas_is_streamed(self, tmp_path: Path) -> None:
        rows = [row(*launch_cells(number), "1.234,50", "65,77") for number in range(60)]
        path = file_of(tmp_path, [*wide_header((TIME, "us"), (READ, "byte")), *rows])
        assert_streams_the_same(path, tmp_path)
        found = streamed(path, tmp_path)
        assert found is not None
        assert found[2][59]["duration_ns"] == 1_234_500.0

    def test_a_metric_that_comes_later(self, tmp_path: Path) -> None:
        rows = [line for number in range(40) for line in long_lines(number, self.metrics(number)[: 2 + number // 20])]
        assert_streams_the_same(file_of(tmp_path, [row(*IDENTITY, *TAIL), *rows]), tmp_path)

    def test_a_row_that_only_begins_and_ends_like_one(self, tmp_path: Path) -> None:
        rows = [line for number in range(40) for line in long_lines(number, self.metrics(number))]
        rows[51] = rows[51].replace(TIME, f'{TIME}" and output')
        path = file_of(tmp_path, [row(*IDENTITY, *TAIL), *rows])
        assert_streams_the_same(path, tmp_path)

    def test_ids_that_begin_again_in_another_process(self, tmp_path: Path) -> None:
        header = wide_header((TIME, "us"))
        pages = [
            [*header, *(row(*launch_cells(number, process=process), "1.50") for number in range(30))]
            for process in (7, 8)
        ]
        assert_streams_the_same(file_of(tmp_path, [*pages[0], *pages[1]]), tmp_path)

    def test_a_line_that_is_output_on_one_page_and_a_row_on_the_next(self, tmp_path: Path) -> None:
        short = [*IDENTITY[:2], *IDENTITY[4:], *TAIL]
        cells = launch_cells(50)
        line = "out " + row(*cells[:2], *cells[4:], "Section", *self.metrics(50)[0])
        rows = [line for number in range(20) for line in long_lines(number, self.metrics(number))]
        lines = [row(*IDENTITY, *TAIL), *rows, line, line, row(*short), line]
        assert_streams_the_same(file_of(tmp_path, lines), tmp_path)

    def test_output_that_is_no_text_each_time_it_is_printed(self, tmp_path: Path) -> None:
        rows = [line for number in range(20) for line in long_lines(number, self.metrics(number))]
        path = file_of(tmp_path, [row(*IDENTITY, *TAIL), *rows[:9], "odd", "odd", *rows[9:], "odd"])
        path.write_bytes(path.read_bytes().replace(b"odd", b"od\xff"))
        assert_streams_the_same(path, tmp_path)

    @pytest.mark.parametrize("odd", [b"\xff", b"\0", b"\r", "\ufffd".encode(), "ä".encode(), b"Kernel Name"])
    def test_an_odd_byte_in_a_few_rows_is_streamed(self, tmp_path: Path, odd: bytes) -> None:
        """The plain reader has no room for a report of gigabytes, whatever a single row of it holds."""
        launches = [long_lines(number, [*self.metrics(number), *WORD]) for number in range(40)]
        rows = [line.encode() for lines in launches for line in lines]
        for at, cell in enumerate([b"void k", b"Section", b"node", b"CachePrefer", TIME.encode()] * 4):
            rows[at * 7] = rows[at * 7].replace(cell, cell + odd)
        path = tmp_path / "report.csv"
        path.write_bytes(b"\n".join([row(*IDENTITY, *TAIL).encode(), *rows, b""]))
        assert_streams_the_same(path, tmp_path)

    def test_pages_with_other_identity_columns_are_streamed(self, tmp_path: Path) -> None:
        whole = [*wide_header((TIME, "us")), row(*launch_cells(1), "1.50"), row(*launch_cells(2), "2.50")]
        without = [row(*IDENTITY[:-2], TIME), row(*[""] * 9, "us"), row(*launch_cells(3)[:-2], "3.50")]
        again = [*wide_header((TIME, "us")), row(*launch_cells(4), "4.50")]
        assert_streams_the_same(file_of(tmp_path, [*whole, *without, *again]), tmp_path)

    def test_reports_are_streamed_in_this_thread_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(streaming_reader, "ThreadPoolExecutor", None)
        wide = [*wide_header((TIME, "us")), *(row(*launch_cells(number), "1.50") for number in range(60))]
        long = [line for number in range(40) for line in long_lines(number, self.metrics(number))]
        with beside_others():
            assert_streams_the_same(file_of(tmp_path, wide), tmp_path)
            assert_streams_the_same(file_of(tmp_path, [row(*IDENTITY, *TAIL), *long]), tmp_path)
            broken = [*wide, row(*launch_cells(60), "2,50"), *(row(*launch_cells(61 + n), "3,75") for n in range(9))]
            assert streamed(file_of(tmp_path, broken), tmp_path) is None

    @pytest.mark.parametrize("ending", ["\r", ",", ",\r"])
    def test_rows_with_another_line_end_alone_and_in_a_row(self, tmp_path: Path, ending: str) -> None:
        rows = [line for number in range(40) for line in long_lines(number, self.metrics(number))]
        for at in (7, 30, 31, *range(60, 80)):
            rows[at] += ending
        assert_streams_the_same(file_of(tmp_path, [row(*IDENTITY, *TAIL), *rows]), tmp_path)

    def test_rows_that_end_as_rules_do(self, tmp_path: Path) -> None:
        rows = [f"{line}," for number in range(40) for line in long_lines(number, self.metrics(number))]
        for at in (7, 30, 31, 70):
            rows[at] += ",".join(['""'] * len(RULES))
        assert_streams_the_same(file_of(tmp_path, [row(*IDENTITY, *TAIL, *RULES), *rows]), tmp_path)

    @pytest.mark.parametrize("end", by_day(["\n"], ["\n", ",\n", "\r\n"]))
    def test_a_last_row_that_is_cut_before_or_behind_a_quote(self, tmp_path: Path, end: str) -> None:
        rows = [line + end for number in range(4) for line in long_lines(number, self.metrics(number))]
        path = tmp_path / "report.csv"
        cuts = [at for at in range(1, len(rows[-1])) if '"' in rows[-1][at - 1 : at + 1]]
        for cut in cuts[:: 3 if end == "\n" else 5] + cuts[-4:]:  # before and behind quotes, by turns
            path.write_text(row(*IDENTITY, *TAIL) + end + "".join(rows[:-1]) + rows[-1][:cut], newline="")
            assert_streams_the_same(path, tmp_path)

    def test_windows_line_ends_and_a_byte_order_mark(self, tmp_path: Path) -> None:
        rows = [line for number in range(40) for line in long_lines(number, self.metrics(number))]
        path = file_of(tmp_path, ["\ufeff" + row(*IDENTITY, *TAIL), *rows], end="\r\n")
        assert_streams_the_same(path, tmp_path)


class TestWhatIsLeftToThePlainReader:
    @pytest.mark.parametrize(
        ("first", "second"), [(0, 0), (1, 0)], ids=["one launch in two tables", "ids that go backwards"]
    )
    def test_launches_that_tables_may_share(self, tmp_path: Path, first: int, second: int) -> None:
        pages = [[*wide_header((TIME, "us")), row(*launch_cells(number), "1.50")] for number in (first, second)]
        assert streamed(file_of(tmp_path, [*pages[0], *pages[1]]), tmp_path) is None

    @pytest.mark.parametrize(
        ("printed", "other"), [("(1, 2, 1)", "(n, 2, 1)"), ("(1, 2, 1)", "(1,2,1)"), ('"7"', '"07"')]
    )
    def test_cells_of_another_text_and_the_same_meaning_are_left(
        self, printed: str, other: str, tmp_path: Path
    ) -> None:
        """To the plain reader they are cells of another launch."""
        rows = [line for _ in range(2) for line in long_lines(0, WORD)]
        rows += long_lines(0, [(TIME, "us", "1.5")])
        odd = [long_lines(0, [(name, "", "2")])[0].replace(printed, other, 1) for name in (READ, ADD)]
        odd[1] = odd[1].replace("(n, 2, 1)", "(m, 2, 1)")
        path = file_of(tmp_path, [row(*IDENTITY, *TAIL), rows[0], rows[2], *odd])
        assert streamed(path, tmp_path) is None
        assert plainly(path) is not None

    def test_numbers_of_two_locales_are_left(self, tmp_path: Path) -> None:
        rows = [row(*launch_cells(number), "1.50" if number < 30 else "2,50") for number in range(60)]
        assert streamed(file_of(tmp_path, [*wide_header((TIME, "us")), *rows]), tmp_path) is None

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
    def test_utf_16_with_bytes_that_are_no_text(self, encoding: str, tmp_path: Path) -> None:
        path = in_utf_16(tmp_path, encoding)
        whole = path.read_bytes()
        unpaired = b"\xdc\x00" if encoding == "utf-16-be" else b"\x00\xdc"
        path.write_bytes(whole.replace("1".encode(encoding)[-2:], unpaired, 1))
        assert path.read_bytes() != whole
        assert streamed(path, tmp_path) is None
        assert plainly(path) is not None


def in_utf_16(folder: Path, encoding: str) -> Path:
    """A wide page of 60 launches of kernels with names outside of Latin, of which one lies where blocks end."""
    rows = [row(*launch_cells(number, "k1 \u03bb\U0001f600(int)"), f"{number}.5") for number in range(60)]
    path = folder / "report.csv"
    path.write_bytes("\n".join([*wide_header((TIME, "us")), *rows, ""]).encode(encoding))
    return path


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("block", [7, 1 << 18], ids=["cut inside of characters", "whole"])
def test_utf_16_is_streamed_like_its_utf_8_twin(
    encoding: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_rows, "BLOCK_BYTES", block)
    assert_streams_the_same(in_utf_16(tmp_path, encoding), tmp_path)


class TestParsingIntoAFile:
    def test_a_big_report_gives_the_file_that_its_table_would(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        generator = random.Random(1)  # noqa: S311
        rows = [row(*launch_cells(number), f"{generator.random() * 1e4:,.2f}") for number in range(500)]
        path = file_of(tmp_path, [*wide_header((TIME, "us")), *rows])
        monkeypatch.setattr(parse, "STREAMED_FROM_BYTES", 0)
        monkeypatch.setattr(parse, "note_loops", lambda report: None)  # how it was read is no part of a table
        result = parse.parse_into(tmp_path / "streamed.parquet", [Source(str(path))])
        assert result.written
        assert result.table is None
        table = parse.parse([Source(str(path))]).table
        assert table is not None
        write_table(table, tmp_path / "whole.parquet")
        one, other = (read_launches(tmp_path / f"{name}.parquet") for name in ("streamed", "whole"))
        assert one.to_pylist() == other.to_pylist()
        assert one.schema.equals(other.schema, check_metadata=True)

    def test_no_part_of_a_file_stays_behind(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = file_of(tmp_path, [*wide_header((TIME, "us")), row(*launch_cells(1), "1.5"), "  text"])
        monkeypatch.setattr(parse, "STREAMED_FROM_BYTES", 0)
        (tmp_path / "out").mkdir()
        parse.parse_into(tmp_path / "out" / "launches.parquet", [Source(str(path))])
        assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["launches.parquet"]


class TestKernelsBesideTheLaunches:
    @once
    @pytest.mark.parametrize("path", one_in(3, sample_files()), ids=lambda path: path.name)
    def test_are_those_of_all_columns(self, path: Path, tmp_path: Path) -> None:
        launches = tmp_path / "launches.parquet"
        if not parse.parse_into(launches, [Source(str(path))]).written:
            return
        table = read_launches(launches)
        kept = cache_kernels(launches)
        assert kept is not None
        assert kept.name == "kernels.parquet"
        expected = kernels_table(hotspots(table, ceilings_of(table)).rows)
        assert pq.read_table(kept).to_pylist() == expected.to_pylist()


@once
def test_no_pandas_is_imported_by_a_parse(tmp_path: Path) -> None:
    path = file_of(tmp_path, [*wide_header((TIME, "us")), *(row(*launch_cells(n), "1,234.5") for n in range(20_000))])
    program = (
        "import sys; from ncu_tools.cli import run; assert run(sys.argv[1:]) == 0; "
        "assert 'pandas' not in sys.modules; assert 'ncu_parsers.streaming.page_launches' in sys.modules"
    )
    output = str(tmp_path / "launches.parquet")
    subprocess.run([sys.executable, "-c", program, "parse", str(path), "-o", output], check=True, capture_output=True)
    assert (tmp_path / "kernels.parquet").is_file()


@pytest.mark.parametrize("later", ["n/a", ""], ids=["a word later", "nothing later"])
def test_a_metric_called_as_a_column_of_the_page_is_left_to_the_plain_reader(
    later: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parse, "STREAMED_FROM_BYTES", 0)
    lines = [row(*IDENTITY, *TAIL)]
    for number in range(40):
        lines += long_lines(number, [(TIME, "nsecond", "100")])
        value = "5" if number < 20 else later
        if value:
            lines.append(row(*launch_cells(number), "Command line profiler metrics", "Host Name", "", value))
    path = file_of(tmp_path, lines)
    parse.parse_into(tmp_path / "launches.parquet", [Source(str(path))])
    assert read_launches(tmp_path / "launches.parquet").column("Host Name").to_pylist() == [5.0] * 20 + [None] * 20
