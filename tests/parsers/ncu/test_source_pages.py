"""Source pages of ncu become the table of instructions: CSV and text, with and without source lines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.ncu.instructions.source_pages import read_source_pages
from ncu_parsers.schema.instructions_table import COLUMNS, MEASURES
from ncu_parsers.sources.sources import Source

from sample_reports import source_page
from tests.conftest import SAMPLES, SHARED
from tests.support.installed import needs_ncu
from tests.support.nightly import by_day
from tests.support.reports import needs_shared_reports

SAMPLE = SAMPLES / "d20-source-page.csv"
EXAMPLES = Path("/usr/share/doc/nsight-compute/examples/uncoalescedGlobalAccesses")
EXAMPLE = EXAMPLES / "addConstDouble.ncu-rep"
NO_EXAMPLES = (
    f"{EXAMPLES} is not there: apt-get install nsight-compute (Debian, non-free), on a system that keeps /usr/share/doc"
)
REAL = SHARED / "reports" / "ncu_rep" / "eschnett__IndexSpaces.jl__317662_profile.ncu-rep"


def read(text: str, tmp_path: Path) -> pa.Table | None:
    path = tmp_path / "source.csv"
    path.write_text(text, "utf-8")
    return read_source_pages(Source(str(path)))


def sample() -> pa.Table:
    table = read_source_pages(Source(str(SAMPLE)))
    assert table is not None
    return table


def test_each_instruction_of_the_sample_has_its_line_offset_and_counts() -> None:
    table = sample()
    rows = {row["offset"]: row for row in table.to_pylist()}
    assert sorted(rows) == [16 * place for place in range(len(source_page.LINES))]
    load = rows[0x70]
    assert (load["opcode"], load["modifiers"], load["line"], load["file"]) == ("LDG", "E", 14, source_page.FILE)
    assert load["inst_executed"] == source_page.WARPS * source_page.STEPS
    assert load["stall_lg_throttle"] == 212
    assert (load["address_space"], load["access"], load["access_bits"]) == ("Global", "Load", 32)
    assert load["l2_sectors"] == 4 * load["inst_executed"]


def test_a_stall_that_the_page_does_not_list_is_null_and_one_that_it_lists_is_zero() -> None:
    table = sample()
    assert table["stall_warpgroup_arrive"].null_count == len(table)
    assert table["stall_sleeping"].to_pylist() == [0.0] * len(table)


def test_the_table_has_the_columns_of_the_contract_in_order() -> None:
    assert sample().column_names == [column.name for column in COLUMNS]


def test_a_page_with_addresses_and_no_counts_keeps_the_text(tmp_path: Path) -> None:
    table = read('"Kernel Name","k(int)"\n"Address","Source"\n"0x7f10","@P0   EXIT "\n"0x7f20","      NOP"\n', tmp_path)
    assert table is not None
    assert table["sass"].to_pylist() == ["@P0   EXIT", "NOP"]
    assert table["offset"].to_pylist() == [0, 16]
    assert table["inst_executed"].null_count == 2


def test_each_kernel_of_a_page_is_a_launch(tmp_path: Path) -> None:
    page = '"Kernel Name","{}"\n"Address","Source","Instructions Executed"\n"0x10","NOP","{}"\n'
    table = read(page.format("a", 1) + page.format("a", 2) + page.format("b", 3), tmp_path)
    assert table is not None
    assert table["launch_id"].to_pylist() == [0, 1, 2]
    assert table["inst_executed"].to_pylist() == [1.0, 2.0, 3.0]


def test_a_second_launch_begins_where_a_file_of_the_first_comes_again(tmp_path: Path) -> None:
    page = (
        '"File Path","a.cu"\n"Function Name","k"\n"Line No","Source","Address","Source","# Samples"\n"3","","-","-","9"\n'
        '"","","0x20","NOP","9"\n"File Path","b.cu"\n"Function Name","k"\n'
        '"Line No","Source","Address","Source","# Samples"\n"5","","-","-","1"\n"","","0x10","EXIT ","1"\n'
    )
    table = read(page + page, tmp_path)
    assert table is not None
    found = table.select(["launch_id", "offset", "file", "line"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        (0, 0, "b.cu", 5), (0, 16, "a.cu", 3), (1, 0, "b.cu", 5), (1, 16, "a.cu", 3),
    ]  # fmt: skip


def test_a_view_of_lines_without_instructions_gives_a_row_per_line(tmp_path: Path) -> None:
    page = '"File Path","a.cu"\n"Function Name","k"\n"Line No","Source","# Samples"\n"3","x = y;","9"\n"4","}","-"\n'
    table = read(page, tmp_path)
    assert table is not None
    assert table["line"].to_pylist() == [3, 4]
    assert table["samples"].to_pylist() == [9.0, None]
    assert table["offset"].null_count == 2


def test_broken_rows_are_skipped_and_counted(tmp_path: Path) -> None:
    table = read('"Kernel Name","k"\n"Address","Source","# Samples"\n"0x10","NOP","1"\n"0x20","NOP"\n', tmp_path)
    assert table is not None
    assert table["samples"].to_pylist() == [1.0]
    assert b"broken rows of source pages, skipped: 1" in table.schema.metadata[b"ncu_bench"]


def test_numbers_with_thousands_separators_are_read(tmp_path: Path) -> None:
    rows = '"0x10","NOP","1,234,567"\n"0x20","NOP","-"\n'
    table = read('"Kernel Name","k"\n"Address","Source","Instructions Executed"\n' + rows, tmp_path)
    assert table is not None
    assert table["inst_executed"].to_pylist() == [1234567.0, None]


def test_a_page_of_launches_holds_no_instructions() -> None:
    assert read_source_pages(Source(str(SAMPLES / "d01-wide-raw.csv"))) is None


def test_no_two_columns_share_a_title_or_a_metric() -> None:
    titles = [title for measure in MEASURES for title in measure.titles]
    metrics = [measure.metric for measure in MEASURES if measure.metric]
    assert len(set(titles)) == len(titles)
    assert len(set(metrics)) == len(metrics)


@given(st.text(alphabet='"0x1,-\n KernelNamAdrsSouc#', max_size=400))
def test_any_text_is_read_without_a_traceback(text: str) -> None:
    import io

    from ncu_parsers.ncu.instructions.source_pages import page_tables

    for table in page_tables(io.StringIO('"Kernel Name","k"\n"Address","Source"\n' + text)):
        assert len(set(table.titles)) == len(table.titles)


@given(st.text(alphabet='"0x1,-\n\r KernelNamAdrsSouc#\u00e9', max_size=400))
def test_rows_read_together_are_the_tables_of_single_lines(text: str) -> None:
    import io

    from ncu_parsers.ncu.instructions.source_pages import PageTable, page_tables, rows_together
    from ncu_parsers.sources.sources import Lines

    def plain(table: PageTable) -> PageTable:
        lines = [line.rstrip(b"\r") for line in b"".join(table.rows).split(b"\n")]
        return table._replace(rows=[line for line in lines if line])

    page = ('"Kernel Name","k"\n"Address","Source"\n' + text).encode()
    together = page_tables(rows_together(Lines(io.BytesIO(page))))
    one_by_one = page_tables(Lines(io.BytesIO(page)))
    assert list(map(plain, together)) == list(map(plain, one_by_one))


def test_only_the_wanted_counts_are_read_and_the_others_are_null() -> None:
    some = read_source_pages(Source(str(SAMPLE)), wanted={"samples", "stall_barrier"})
    assert some is not None
    read, every = ("samples", "stall_barrier", "sass", "line", "offset", "file"), sample()
    assert some.select(read).equals(every.select(read))
    assert some["inst_executed"].null_count == some["access"].null_count == len(some)


def test_line_ends_of_windows_change_nothing(tmp_path: Path) -> None:
    text = SAMPLE.read_bytes().decode("utf-8").replace("\r\n", "\n")
    path = tmp_path / "source.csv"
    for ending in ("\n", "\r\n"):
        path.write_bytes(text.replace("\n", ending).encode())
        table = read_source_pages(Source(str(path)))
        assert table is not None
        assert table.drop_columns(["report"]).to_pylist() == sample().drop_columns(["report"]).to_pylist()


@needs_ncu
@needs_shared_reports
@pytest.mark.slow
@pytest.mark.parametrize(
    ("report", "samples"),
    by_day([(EXAMPLE, 3306)], [(EXAMPLE, 3306), (REAL, 956_805 + 48_443)]),
    ids=lambda value: getattr(value, "stem", ""),
)
def test_text_and_csv_of_a_real_report_hold_the_same_instructions(report: Path, samples: int, tmp_path: Path) -> None:
    if not report.is_file():
        pytest.skip(NO_EXAMPLES)
    tables = {}
    for view in ("sass", "cuda,sass"):
        for form in ("csv", "txt"):
            command = ["ncu", "--import", str(report), "--page", "source", "--print-source", view]
            path = tmp_path / f"{view}.{form}"
            with path.open("wb") as out:
                subprocess.run([*command, *(["--csv"] if form == "csv" else [])], stdout=out, check=True)
            read_back = read_source_pages(Source(str(path)))
            assert read_back is not None
            tables[view, form] = read_back.drop_columns(["report"])
    for view in ("sass", "cuda,sass"):
        assert tables[view, "csv"].to_pylist() == tables[view, "txt"].to_pylist()
    both = [tables[view, "csv"].drop_columns(["file", "line"]).to_pylist() for view in ("sass", "cuda,sass")]
    assert both[0] == both[1]
    assert pc.sum(tables["sass", "csv"]["samples"]).as_py() == samples


def test_source_lines_on_a_page_are_kept_with_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "source.csv"
    path.write_text(
        '"File Path","a.cu"\n"Function Name","k"\n"Line No","Source","Address","Source","# Samples"\n'
        '"2","  x = y;","-","-","9"\n"","","0x20","NOP","9"\n"4","<Unable to open source file>","-","-","1"\n'
    )
    files: dict[str, str] = {}
    read_source_pages(Source(str(path)), files)
    assert files == {"a.cu": "\n  x = y;"}


@needs_ncu
@pytest.mark.skipif(not EXAMPLES.is_dir(), reason=NO_EXAMPLES)
@pytest.mark.parametrize("form", ["csv", "txt"])
def test_source_lines_on_a_real_page_are_those_of_the_file(form: str, tmp_path: Path) -> None:
    source, report = EXAMPLES / "uncoalescedGlobalAccesses.cu", EXAMPLES / "addConstDouble3.ncu-rep"
    path = tmp_path / f"source.{form}"
    command = ["ncu", "--import", str(report), "--page", "source", "--print-source", "cuda,sass"]
    with path.open("wb") as out:
        more = ["--resolve-source-file", str(source), *(["--csv"] if form == "csv" else [])]
        subprocess.run([*command, *more], stdout=out, check=True)
    files: dict[str, str] = {}
    table = read_source_pages(Source(str(path)), files)
    assert table is not None
    text, written = files[str(source)].splitlines(), source.read_text().splitlines()
    assert [text[line - 1].strip() for line in set(table["line"].to_pylist())] == [
        written[line - 1].strip() for line in set(table["line"].to_pylist())
    ]
