"""Pages of ncu read line by line: which line opens which page, and the kind of each following line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ncu_parsers.detect.text_reader import read_report
from ncu_parsers.ncu.csv_pages import LongPage, SummaryPage, WidePage, open_page
from ncu_parsers.ncu.session_and_source_pages import SessionPage, SourcePage, opens_session_page, opens_source_page
from ncu_parsers.ncu.text_page import TextPage, open_text_page
from ncu_parsers.report_data import report
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.sources.sources import Source

from sample_reports import dialects
from sample_reports.dialects import Cell, Printed, Style

LAUNCHES = [Printed(0, "gemm(float *)", [Cell("gpu__time_duration.sum", 12, "us", 1)])]
LONG, WIDE = dialects.long(LAUNCHES, Style()), dialects.wide(LAUNCHES, Style())
CELL = LAUNCHES[0].cells[0]
SUMMARY = dialects.summary([(LAUNCHES[0], 3, [(CELL, CELL, CELL)])], Style())


class TestCsvPages:
    @pytest.mark.parametrize(("text", "kind"), [(LONG, LongPage), (WIDE, WidePage), (SUMMARY, SummaryPage)])
    def test_a_header_opens_the_page_of_its_columns(self, text: str, kind: type) -> None:
        assert type(open_page(text.splitlines()[0])) is kind

    def test_a_header_behind_output_of_the_program_opens_the_page_too(self) -> None:
        assert type(open_page("loss 0.3" + LONG.splitlines()[0])) is LongPage

    @pytest.mark.parametrize("line", [LONG.splitlines()[1], "", "a,b,c", '"Kernel Name"'])
    def test_other_lines_open_none(self, line: str) -> None:
        assert open_page(line) is None

    @pytest.mark.parametrize("title", ["Metric Name", "Metric Value"])
    def test_a_long_page_with_a_damaged_title_is_not_read_as_a_wide_one(self, title: str) -> None:
        assert open_page(LONG.splitlines()[0].replace(title, title.replace("Metric", "Netric"))) is None

    def test_each_line_of_a_long_page_is_named(self) -> None:
        header, row = LONG.splitlines()
        page = open_page(header)
        assert page is not None
        assert [page.feed(row), page.feed("epoch 1"), page.feed("==PROF== Disconnected"), page.feed("")] == [
            report.METRICS, report.OUTPUT, report.MESSAGE, report.BLANK,
        ]  # fmt: skip
        (launch,) = page.launches()
        assert (launch.kernel_name, launch.grid, launch.launch_id) == ("gemm(float *)", (1, 1, 1), 0)


class TestSessionPages:
    @pytest.mark.parametrize(
        "line", ["Launch Settings", '"Session Attribute","Value"', '"Device Attribute","Device 0"']
    )
    def test_begin_with_one_of_their_titles(self, line: str) -> None:
        assert opens_session_page(line)
        assert not opens_session_page(f"a {line}")

    def test_keep_attributes_of_each_device_apart(self) -> None:
        page = SessionPage()
        fed = [page.feed(line) for line in (
            '"Session Attribute","Value"', '"Nsight Compute","2024.1.0"', "",
            '"Device Attribute","Device 0","Device 1"', '"Display Name","A100","H100"',
        )]  # fmt: skip
        assert fed == [report.HEADER, report.SESSION, report.BLANK, report.HEADER, report.SESSION]
        assert page.attributes == {
            "Nsight Compute": "2024.1.0", "Device 0: Display Name": "A100", "Device 1: Display Name": "H100",
        }  # fmt: skip
        assert (page.tool_version, page.launches()) == ("2024.1.0", [])

    def test_read_their_columns_from_the_dashes_in_plain_text(self) -> None:
        page = SessionPage()
        for line in ("Session Info", "----------- ------", "Created     2024", "Hostname    node one"):
            page.feed(line)
        assert page.attributes == {"Created": "2024", "Hostname": "node one"}

    def test_take_the_version_from_the_path_of_the_profiler(self) -> None:
        page = SessionPage()
        page.feed('"Profiler Command Line","/opt/nvidia/nsight-compute/2023.2.1/ncu --page session"')
        assert page.tool_version == "2023.2.1"
        assert SessionPage().tool_version is None


class TestSourcePages:
    def test_are_distinguished_from_wide_pages_by_their_second_column(self) -> None:
        assert opens_source_page('"Kernel Name","gemm(float *)"')
        assert opens_source_page('"#","Address","Source","# Samples"')
        assert not opens_source_page('"Kernel Name","Block Size","Grid Size"')
        assert not opens_source_page(LONG.splitlines()[0])

    def test_are_skipped(self) -> None:
        page = SourcePage()
        assert [page.feed("0x10,IADD3"), page.feed(" ")] == [report.SOURCE, report.BLANK]
        assert page.launches() == []


class TestTextPages:
    KERNEL = "  gemm(float *) (4, 2, 1)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 8.0"

    def test_are_opened_by_a_line_of_a_kernel(self) -> None:
        assert open_text_page(self.KERNEL, None)
        assert open_text_page("  gemm(float *), 2020-Mar-01 10:00:00, Context 1, Stream 7", None)
        assert not open_text_page("  loss 0.5, Context switch", None)
        assert not open_text_page("  [0]   gemm, Context 1, Stream 7", None)  # lines of several ranks mix
        assert not open_text_page("gemm runs in Context 1, Device 0", None)

    def test_give_a_launch_its_shape_device_process_and_metrics(self) -> None:
        page = TextPage()
        fed = [page.feed(line) for line in (
            "[4711] app@node1", self.KERNEL, "    Section: GPU Speed Of Light", "    -------- ---- -----",
            "    Duration us   12.50", "    -------- ---- -----",
        )]  # fmt: skip
        assert fed == [report.LAYOUT, report.HEADER, report.LAYOUT, report.LAYOUT, report.METRICS, report.LAYOUT]
        (launch,) = page.launches()
        assert (launch.process_id, launch.grid, launch.block, launch.device_id, launch.compute_capability) == (
            4711, (4, 2, 1), (128, 1, 1), 0, "8.0",
        )  # fmt: skip
        assert [reading.text for readings in launch.readings.values() for reading in readings] == ["12.50"]

    def test_are_read_where_an_editor_has_indented_the_rows_below_a_line_of_dashes(self) -> None:
        page = TextPage()
        for line in (
            self.KERNEL, "    Section: Occupancy",
            "    -------------------------- --------------- ---------------",
            "      Block Limit Warps                    block               6",
            "      Registers Per Thread       register/thread              16",
            "      Achieved Occupancy                       %           80.71",
            "      Waves Per SM                                        136.53",
            "      -------------------------- --------------- ---------------",
        ):  # fmt: skip
            page.feed(line)
        (launch,) = page.launches()
        read = {name: [(one.text, one.unit) for one in readings] for name, readings in launch.readings.items()}
        assert [one for readings in read.values() for one in readings] == [
            ("6", "block"), ("16", "register/thread"), ("80.71", "%"), ("136.53", ""),
        ]  # fmt: skip

    TABLE = (
        "    Section: GPU Speed Of Light Throughput",
        "    ------------------- ----------- ------------",
        "    Metric Name         Metric Unit Metric Value",
        "    ------------------- ----------- ------------",
        "    Duration                     us        12.50",
        "    ------------------- ----------- ------------",
    )

    @pytest.mark.parametrize(
        "pasted",
        [
            lambda line: f"    {line}", lambda line: f"\t{line}", lambda line: f"> {line}", lambda line: f"// {line}",
            lambda line: f"12: {line}", lambda line: f"2025-04-22T00:30:24.123Z {line}", str.strip,
            lambda line: line.strip() if "Context" in line else line,
        ],
        ids=["indented", "by a tab", "quoted", "in a comment", "numbered", "logged", "without indent", "from the name on"],
    )  # fmt: skip
    def test_two_launches_keep_their_own_values_however_they_were_pasted(
        self, pasted: Callable[[str], str], tmp_path: Path
    ) -> None:
        lines = [
            line.replace("gemm", name).replace("12.50", time)
            for name, time in (("gemm", "12.50"), ("copy", " 3.25"))
            for line in (self.KERNEL, *self.TABLE, "")
        ]
        (tmp_path / "pasted.txt").write_text("\n".join(map(pasted, lines)))
        launches = read_report(Source(str(tmp_path / "pasted.txt"))).launches
        assert [(one.kernel_name, one.metrics["gpu__time_duration.sum"].value) for one in launches] == [
            ("gemm(float *)", 12_500.0), ("copy(float *)", 3_250.0),
        ]  # fmt: skip

    @pytest.mark.parametrize("width", range(18, 80, 3))
    def test_a_kernel_line_that_was_broken_is_mended(self, width: int) -> None:
        page = TextPage()
        line = "  void attention<float, 8>(float *, int) (4, 2, 1)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 8.0"
        parts = [line[at : at + width] for at in range(0, len(line), width)]
        for one in (
            "  first(int) (1, 1, 1)x(32, 1, 1), Context 1, Stream 7, Device 0, CC 8.0",
            *self.TABLE,
            "",
            *parts,
        ):
            page.feed(one)
        assert page.launches()[1].kernel_name == "void attention<float, 8>(float *, int)"
        assert page.launches()[1].grid == (4, 2, 1)

    def test_a_shape_in_a_line_of_its_own_belongs_to_the_name_above(self) -> None:
        page = TextPage()
        for line in ("  heat(float *, int) ", "  (63, 63, 1)x(16, 16, 1), Context 1, Stream 7, Device 0, CC 8.6"):
            page.feed(line)
        assert [(one.kernel_name, one.grid) for one in page.launches()] == [("heat(float *, int)", (63, 63, 1))]

    def test_a_remark_behind_a_value_is_no_part_of_it(self) -> None:
        page = TextPage()
        for line in (self.KERNEL, *self.TABLE[:4], f"{self.TABLE[4]}  <-- slow", f"{self.TABLE[4]}  # 12.5 微秒"):
            page.feed(line)
        (launch,) = page.launches()
        assert [one.text for readings in launch.readings.values() for one in readings] == ["12.50", "12.50"]

    def test_a_table_of_the_program_below_a_launch_is_none_of_its(self) -> None:
        page = TextPage()
        for line in (self.KERNEL, *self.TABLE, "", "epoch  loss", "----- ---- ----", "first    s  0.25"):
            page.feed(line)
        (launch,) = page.launches()
        assert len(launch.readings) == 1

    def test_a_line_that_is_no_kernel_opens_no_launch(self) -> None:
        page = TextPage()
        assert page.feed("  step 3") == report.OUTPUT
        assert page.launches() == []

    @pytest.mark.parametrize(
        "name",
        [
            "gemm", "f(int, char *)", "f<A, B>(A, B) (.cold)", "f(int), CC", "operator()(int) (3, 4)", "f, 12", "f, Device",
            "void g<(anonymous namespace)::H, 4>(G *) [clone .kd]",
        ],
    )  # fmt: skip
    def test_a_name_may_hold_what_stands_behind_names(self, name: str) -> None:
        page = TextPage()
        assert page.feed(f"  {name} (4, 2, 1)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 8.0") == report.HEADER
        (launch,) = page.launches()
        assert (launch.kernel_name, launch.grid, launch.stream) == (name, (4, 2, 1), "7")


class TestTablesThatScriptsSavedAnew:
    """A script left out the row or the column of units, or the ids."""

    def saved(self, rows: list[list[str]], folder: Path) -> Source:
        text = "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows)
        (folder / "saved.csv").write_text(text, encoding="utf-8")
        return Source(str(folder / "saved.csv"))

    @pytest.mark.parametrize("ids", [True, False])
    @pytest.mark.parametrize("units", [True, False])
    def test_a_wide_one_is_read_without_ids_and_without_units_with_a_note(
        self, ids: bool, units: bool, tmp_path: Path
    ) -> None:
        rows = [["ID", "Kernel Name", "gpu__time_duration.sum"], ["", "", "ns"], ["0", "a", "12"], ["1", "a", "13.00"]]
        rows = [row[0 if ids else 1 :] + ([""] if not ids else []) for row in rows]
        found = read_report(self.saved(rows if units else [rows[0], *rows[2:]], tmp_path))
        assert [one.metrics["gpu__time_duration.sum"].value for one in found.launches] == [12.0, 13.0]
        assert any("has no units" in note for note in found.notes) == (not units)

    @pytest.mark.parametrize("rows", [
        [["ID", "Kernel Name", "gpu__time_duration.sum"], ["0", "a", "12.5"]],
        [["ID", "Kernel Name", "Section Name", "Metric Name", "Metric Value"],
         ["0", "a", "GPU Speed Of Light Throughput", "Duration", "12.5"]],
    ])  # fmt: skip
    def test_one_without_units_whose_numbers_are_in_others_than_base_units_is_refused(
        self, rows: list[list[str]], tmp_path: Path
    ) -> None:
        with pytest.raises(NotAReport, match="has no units") as refused:
            read_report(self.saved(rows, tmp_path))
        assert "gpu__time_duration.sum is 12.5, which is no number of ns or bytes" in refused.value.paragraph
