"""Robust reading of reports: noise, several runs and dialects in one file, broken rows, joins, refusals."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from ncu_launch.errors import NcuBenchError
from ncu_launch.profilers.tool_failures import ToolFailed, failures, recognise
from ncu_parsers.detect.text_reader import read_report
from ncu_parsers.parse.parse import parse
from ncu_parsers.report_data import report as kinds
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Report, metric_of_label
from ncu_parsers.sources.sources import Source

from sample_reports import dialects
from sample_reports.dialects import Cell, Printed, Style

PLAIN = Style(thousands=",")


def read(text: str, folder: Path, name: str = "report.csv") -> Report:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return read_report(Source(str(path)))


def one_launch(
    number: int = 0, value: int = 1000, name: str = "gpu__time_duration.sum", unit: str = "ns", **more: object
) -> Printed:
    return Printed(number, "kernel", [Cell(name, value, unit)], **more)  # type: ignore[arg-type]


def values(report: Report, name: str) -> list[object]:
    return [launch.metrics[name].value if name in launch.metrics else None for launch in report.launches]


class TestNoise:
    def test_a_program_that_prints_without_a_newline_leaves_the_header_inside_a_line(self, tmp_path: Path) -> None:
        assert values(read("42 % done" + dialects.long([one_launch()], PLAIN), tmp_path), "gpu__time_duration.sum") == [
            1000
        ]

    def test_a_program_that_prints_without_a_newline_leaves_a_row_inside_a_line(self, tmp_path: Path) -> None:
        header, row = dialects.long([one_launch()], PLAIN).splitlines()
        assert values(read(f"{header}\nloss 0.3, {row}\n", tmp_path), "gpu__time_duration.sum") == [1000]

    def test_a_broken_row_is_counted_with_its_line_and_the_rest_is_kept(self, tmp_path: Path) -> None:
        header, first, second = dialects.long([one_launch(0), one_launch(1, 2000)], PLAIN).splitlines()
        report = read(f"{header}\n{first[:60]}\n{second}\n", tmp_path)
        assert values(report, "gpu__time_duration.sum") == [2000]
        assert report.lines[kinds.BROKEN] == 1
        assert report.examples[kinds.BROKEN] == (2, first[:60])
        assert report.losses == [f"1 broken row, the first in line 2: {first[:60]}"]
        twice = read(f"{header}\n{first[:60]}\n{first[:60]}\n{second}\n", tmp_path)
        assert twice.losses == [f"2 broken rows, the first in line 2: {first[:60]}"]

    @pytest.mark.parametrize("make", [dialects.long, dialects.wide])
    def test_a_row_that_lost_its_end_with_the_line_break_is_counted_with_the_one_behind_it(
        self, make: Callable[..., str], tmp_path: Path
    ) -> None:
        *above, first, second, third = make([one_launch(number, 1000) for number in range(3)], PLAIN).splitlines()
        report = read("\n".join([*above, first[:-3] + second, third]) + "\n", tmp_path)
        assert [launch.launch_id for launch in report.launches] == [2]
        assert report.lines[kinds.BROKEN] == 1

    def test_a_row_cut_off_at_the_end_of_the_file_is_counted_as_such(self, tmp_path: Path) -> None:
        text = dialects.long([one_launch(0), one_launch(1)], PLAIN)
        report = read(text[: text.rindex('"Command line')], tmp_path)
        assert len(report.launches) == 1
        assert report.skipped == {kinds.CUT: 1}

    def test_bytes_that_are_not_text_are_replaced_and_counted(self, tmp_path: Path) -> None:
        path = tmp_path / "report.csv"
        path.write_bytes(
            b"\xff\xfe\xfd not text\n".replace(b"\xff\xfe", b"\xfe\xfd") + dialects.long([one_launch()], PLAIN).encode()
        )
        report = read_report(Source(str(path)))
        assert len(report.launches) == 1
        assert "1 line held bytes that are not text; they were replaced" in report.notes[0]


class TestColumnsInAnotherOrder:
    @pytest.mark.parametrize("make", [dialects.long, dialects.wide])
    @pytest.mark.parametrize("title", ["Kernel Name", "Context", "Process Name"])
    def test_a_column_in_front_of_the_ids_does_not_shift_the_others(
        self, make: Callable[..., str], title: str, tmp_path: Path
    ) -> None:
        rows = list(csv.reader(make([one_launch(3, 1000), one_launch(4, 2000)], PLAIN).splitlines()))
        at = rows[0].index(title)
        text = "\n".join(dialects.quoted([row[at], *row[:at], *row[at + 1 :]]) for row in rows)
        report = read(text + "\n", tmp_path)
        assert [(one.launch_id, one.kernel_name, one.context) for one in report.launches] == [
            (3, "kernel", 1), (4, "kernel", 1),
        ]  # fmt: skip
        assert values(report, "gpu__time_duration.sum") == [1000, 2000]

    @pytest.mark.parametrize("make", [dialects.long, dialects.wide])
    def test_a_row_with_more_cells_than_the_header_is_broken(self, make: Callable[..., str], tmp_path: Path) -> None:
        *above, last = make([one_launch(0, 1000), one_launch(1, 2000)], PLAIN).splitlines()
        report = read("\n".join([*above, last.replace('"4711"', '"4711","new"')]) + "\n", tmp_path)
        assert values(report, "gpu__time_duration.sum") == [1000]
        assert report.lines[kinds.BROKEN] == 1

    def test_context_and_stream_of_a_damaged_row_are_not_taken_for_ids(self, tmp_path: Path) -> None:
        rules = [("SpeedOfLight", "Bottleneck", "OPT", "text")]
        lines = dialects.long([one_launch(0, 1000)], PLAIN, rules=rules).splitlines()
        report = read("\n".join([*lines[:-1], lines[-1].replace('"4711","app"', '"4711""app"')]) + "\n", tmp_path)
        assert [(one.process_id, one.launch_id) for one in report.launches] == [(4711, 0)]
        assert report.lines[kinds.BROKEN] == 1


class TestSeveralTablesInOneFile:
    def test_the_same_launches_under_two_headers_are_joined(self, tmp_path: Path) -> None:
        time = dialects.long([one_launch()], PLAIN)
        bytes_moved = dialects.long([one_launch(0, 64, "dram__bytes.sum", "byte")], PLAIN)
        report = read(time + bytes_moved, tmp_path)
        assert [set(launch.metrics) for launch in report.launches] == [{"gpu__time_duration.sum", "dram__bytes.sum"}]
        assert "1 launches stand in several tables of the file and were joined" in report.notes

    def test_another_run_with_the_same_ids_and_other_times_is_another_launch(self, tmp_path: Path) -> None:
        report = read(
            dialects.long([one_launch(0, 1000)], PLAIN) + dialects.long([one_launch(0, 1100)], PLAIN), tmp_path
        )
        assert values(report, "gpu__time_duration.sum") == [1000, 1100]

    def test_the_same_ids_with_another_block_size_are_another_launch(self, tmp_path: Path) -> None:
        first, second = one_launch(0, 64, "dram__bytes.sum", "byte"), one_launch(0, 1000, block=(256, 1, 1))
        report = read(dialects.long([first], PLAIN) + dialects.long([second], PLAIN), tmp_path)
        assert [one.block for one in report.launches] == [(1, 1, 1), (256, 1, 1)]

    def test_ids_that_restart_in_another_process_are_other_launches(self, tmp_path: Path) -> None:
        report = read(dialects.long([one_launch(0, process_id=1), one_launch(0, process_id=2)], PLAIN), tmp_path)
        assert len(report.launches) == 2

    def test_dialects_may_differ(self, tmp_path: Path) -> None:
        report = read(dialects.long([one_launch()], PLAIN) + dialects.wide([one_launch(5, 7)], PLAIN), tmp_path)
        assert report.dialects == ["long", "wide"]
        assert values(report, "gpu__time_duration.sum") == [1000, 7]

    def test_locales_may_differ(self, tmp_path: Path) -> None:
        cells = [Cell("a__b.avg", 123456, "%", 2)]
        texts = [
            dialects.long([Printed(n, "k", cells)], style)
            for n, style in enumerate((PLAIN, Style(decimal=",", thousands=".")))
        ]
        assert values(read("".join(texts), tmp_path), "a__b.avg") == [1234.56, 1234.56]


NSYS_IN_COLUMNS = """
 Time (%)  Total Time (ns)  Instances  Avg (ns)  Name
 --------  ---------------  ---------  --------  ------
    100.0             2000          1    2000.0  kernel
"""


class TestTablesOfNsysBesideNcu:
    """The log of a job that runs both profilers: each has run the kernels anew."""

    NCU = dialects.text([one_launch()], PLAIN)

    @pytest.mark.parametrize("text", [NSYS_IN_COLUMNS + NCU, NCU + NSYS_IN_COLUMNS, NCU + NSYS_IN_COLUMNS + NCU])
    def test_launches_of_ncu_are_read_and_a_note_names_the_tables(self, tmp_path: Path, text: str) -> None:
        report = read(text, tmp_path)
        assert values(report, "gpu__time_duration.sum") == [1000] * text.count(self.NCU)
        assert (report.origin, report.dialects) == ("ncu", ["text"])
        assert [note for note in report.notes if "(nsys kernel summary), of another run: they are left out" in note]

    def test_launches_of_ncu_in_csv_are_read_too(self, tmp_path: Path) -> None:
        report = read(dialects.long([one_launch()], PLAIN) + NSYS_IN_COLUMNS, tmp_path)
        assert values(report, "gpu__time_duration.sum") == [1000]
        assert len(report.notes) == 1

    def test_a_table_of_the_program_below_a_launch_leaves_its_metrics_alone(self, tmp_path: Path) -> None:
        kernel, tables = self.NCU.split("\n    Section", 1)
        table = "Time  Total Time  Calls  Function\n1.0  2.0  3  f\n"
        report = read(f"{kernel}\n{table}    Section{tables}", tmp_path)
        assert (values(report, "gpu__time_duration.sum"), report.notes) == ([1000], [])


class TestSeveralRunsUnderOneHeader:
    """Rows of a second run with the same process id, appended without their header."""

    def appended(self, first: list[Printed], second: list[Printed], folder: Path) -> Report:
        below = dialects.long(second, PLAIN).partition("\n")[2]
        return read(dialects.long(first, PLAIN) + below, folder)

    @pytest.mark.parametrize("count", [1, 3])
    def test_are_separate_launches_if_their_values_differ(self, tmp_path: Path, count: int) -> None:
        first, second = ([one_launch(n, time + n) for n in range(count)] for time in (1000, 2000))
        report = self.appended(first, second, tmp_path)
        assert values(report, "gpu__time_duration.sum") == [time + n for time in (1000, 2000) for n in range(count)]
        assert report.notes == ["ids of launches begin anew under one header, so its rows were read as 2 runs"]

    def test_are_joined_if_all_values_agree(self, tmp_path: Path) -> None:
        launches = [one_launch(n) for n in range(2)]
        report = self.appended(launches, launches, tmp_path)
        assert len(report.launches) == 2
        assert "2 launches stand in several tables of the file and were joined" in report.notes

    def test_have_separate_rows_if_they_launch_different_numbers_of_kernels(self, tmp_path: Path) -> None:
        first, second = (
            [Printed(n, "k", [Cell("a__b.sum", value), Cell("c__d.sum", value + n)]) for n in range(count)]
            for value, count in ((10, 3), (20, 2))
        )
        report = self.appended(first, second, tmp_path)
        assert values(report, "a__b.sum") == [10, 10, 10, 20, 20]
        assert values(report, "c__d.sum") == [10, 11, 12, 20, 21]

    def test_are_not_assumed_in_rows_sorted_by_metric(self, tmp_path: Path) -> None:
        first = [one_launch(n) for n in range(3)]
        second = [one_launch(n, 64 + n, "dram__bytes.sum", "byte") for n in range(3)]
        report = self.appended(first, second, tmp_path)
        assert values(report, "dram__bytes.sum") == [64, 65, 66]
        assert report.notes == []


class TestOneMetricTwice:
    def both(self, first: Cell, second: Cell, folder: Path) -> Report:
        return read(dialects.long([Printed(0, "k", [first, second])], PLAIN), folder)

    def test_by_name_and_by_label_is_one_metric_with_the_more_precise_value(self, tmp_path: Path) -> None:
        label = Cell("Duration", 675, "us", 2, "GPU Speed Of Light Throughput")
        report = self.both(label, Cell("gpu__time_duration.sum", 6752, "ns"), tmp_path)
        assert values(report, "gpu__time_duration.sum") == [6752]
        assert report.notes == []

    def test_with_conflicting_values_keeps_the_first_with_a_note(self, tmp_path: Path) -> None:
        report = self.both(Cell("a__b.sum", 10), Cell("a__b.sum", 20, section="Occupancy"), tmp_path)
        assert values(report, "a__b.sum") == [10]
        assert report.notes == [
            "a__b.sum is printed with different values in one launch (10 and 20); the first is kept"
        ]

    def test_in_the_table_of_mean_maximum_minimum_and_sum_is_the_mean(self, tmp_path: Path) -> None:
        section, body, label = "GPU and Memory Workload Distribution", "Workload Distribution", "DRAM Active Cycles"
        cells = [Cell(f"Average {label}", 407247, "cycle", section=section)]
        cells += [Cell(label, value, "cycle", section=section, body=body) for value in (407247, 407728, 406840)]
        report = read(dialects.long([Printed(0, "k", cells)], PLAIN, body=True), tmp_path)
        assert values(report, f"{section}: {body}: {label}") == [407247]
        assert report.notes == []


class TestLabels:
    @pytest.mark.parametrize(
        ("section", "label", "metric"),
        [
            ("GPU Speed Of Light Throughput", "Duration", "gpu__time_duration.sum"),
            ("GPU Speed Of Light Throughput", "DRAM Frequency", "dram__cycles_elapsed.avg.per_second"),
            ("GPU Speed Of Light", "SOL FB", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"),
            ("GPU Speed Of Light", "Memory Frequency", "dram__cycles_elapsed.avg.per_second"),
            ("Memory Workload Analysis", "Memory Throughput", "dram__bytes.sum.per_second"),
            (
                "GPU Speed Of Light Throughput",
                "Memory Throughput",
                "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
            ),
            ("Launch Statistics", "Registers Per Thread", "launch__registers_per_thread"),
            ("Anything", "{UNIT}: {COMPOUND_NAME} (dram__cycles_active.avg)", "dram__cycles_active.avg"),
            ("Command line profiler metrics", "gpu__time_duration.sum", "gpu__time_duration.sum"),
        ],
    )
    def test_a_label_with_a_fixed_metric_becomes_that_metric(self, section: str, label: str, metric: str) -> None:
        assert metric_of_label(section, "", label).name == metric

    def test_a_pipe_in_a_table_over_elapsed_cycles_is_not_that_over_active_cycles(self) -> None:
        name = "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained"
        table = "Pipe Utilization (% of peak instructions executed over {} cycles)"
        section = "Compute Workload Analysis"
        assert metric_of_label(section, table.format("elapsed"), "LSU").name == f"{name}_elapsed"
        assert metric_of_label(section, table.format("active"), "LSU").name == f"{name}_active"

    def test_any_other_label_becomes_a_column_named_by_section_body_and_label(self) -> None:
        assert metric_of_label("Some Section", "", "New Thing").name == "Some Section: New Thing"
        assert metric_of_label("Some Section", "A Chart", "New Thing").name == "Some Section: A Chart: New Thing"


class TestRanges:
    def test_nvtx_ranges_keep_their_order_and_their_colons(self, tmp_path: Path) -> None:
        launch = Printed(0, "k", [Cell("a__b.sum", 1)], ranges=("step", "layer:1:forward"))
        report = read(dialects.long([launch], PLAIN, nvtx=True, as_range=True), tmp_path)
        (found,) = report.launches
        assert found.nvtx_path == ("step", "layer:1:forward")
        assert (found.kernel_name, found.grid, found.stream) == ("range", None, None)

    def test_push_pop_ranges_are_printed_per_thread(self, tmp_path: Path) -> None:
        text = dialects.long([Printed(0, "k", [Cell("a__b.sum", 1)], ranges=("x",))], PLAIN, nvtx=True)
        cell = (
            '7  ""<default domain>:outer:none:none:none:none:none:none"" ""mine:inner:none:none:none:none:none:none""'
        )
        text = text.replace('"127.0.0.1","",', f'"127.0.0.1","{cell}",').replace(
            '" ""0:<default domain>:x:none:none:none:none:none:none"" "', '""'
        )
        assert read(text, tmp_path).launches[0].nvtx_path == ("outer", "inner")

    def test_ranges_of_our_launcher_set_iteration_phase_and_module(self, tmp_path: Path) -> None:
        text = dialects.long([Printed(0, "k", [Cell("a__b.sum", 1)], ranges=("x",))], PLAIN, nvtx=True)
        rest = ":none:none:none:none:none:none"
        process = f'" ""5:ncu_bench:iteration 3{rest}""  ""6:ncu_bench:backward{rest}"" "'
        for pushed, module in (
            (f'7  ""ncu_bench:net.block{rest}"" ""ncu_bench:net.block.conv{rest}""', "net.block.conv"),
            (f'8  ""ncu_bench:backward{rest}"" ""ncu_bench:net.fc{rest}"" ""theirs:mine{rest}""', "net.fc"),
            ("", None),
        ):
            row = text.replace('"127.0.0.1","",', f'"127.0.0.1","{pushed}",')
            row = row.replace('" ""0:<default domain>:x:none:none:none:none:none:none"" "', process)
            (launch,) = read(row, tmp_path).launches
            assert (launch.iteration, launch.phase, launch.module) == (3, "backward", module)
            assert launch.nvtx_path is not None
            assert launch.nvtx_path[:2] == ("iteration 3", "backward")
            assert launch.nvtx_path.count("backward") == 1


class TestJoiningFiles:
    def write(self, folder: Path, **reports: str) -> list[Source]:
        for name, text in reports.items():
            (folder / f"{name}.csv").write_text(text)
        return [Source(str(folder / f"{name}.csv")) for name in reports]

    def test_sections_of_one_report_in_several_files_become_one_row_per_launch(self, tmp_path: Path) -> None:
        sources = self.write(
            tmp_path,
            time=dialects.long([one_launch(0), one_launch(1)], PLAIN),
            dram=dialects.long([one_launch(n, 64, "dram__bytes.sum", "byte") for n in (0, 1)], PLAIN),
        )
        parsed = parse(sources)
        assert parsed.table is not None
        assert parsed.table.column("dram_bytes").to_pylist() == [64, 64]
        assert parsed.table.column("duration_ns").to_pylist() == [1000, 1000]
        assert "--separate keeps them apart" in parsed.notes[0]

    def test_separate_keeps_them_apart(self, tmp_path: Path) -> None:
        text = dialects.long([one_launch()], PLAIN)
        parsed = parse(self.write(tmp_path, one=text, two=text), join=False)
        assert parsed.table is not None
        assert len(parsed.table) == 2

    def test_two_runs_with_the_same_ids_and_different_times_are_not_joined(self, tmp_path: Path) -> None:
        texts = {
            name: dialects.long([one_launch(0, value)], PLAIN) for name, value in (("before", 1000), ("after", 900))
        }
        parsed = parse(self.write(tmp_path, **texts))
        assert parsed.table is not None
        assert parsed.table.column("duration_ns").to_pylist() == [1000, 900]
        assert parsed.notes == []

    def test_files_with_different_metrics_combine_by_name(self, tmp_path: Path) -> None:
        first = Printed(0, "a", [Cell("a__x.sum", 1), Cell("word__w", "Yes")], process_id=1)
        second = Printed(0, "b", [Cell("b__y.sum", 2), Cell("word__w", 3)], process_id=2)
        parsed = parse(self.write(tmp_path, one=dialects.long([first], PLAIN), two=dialects.long([second], PLAIN)))
        assert parsed.table is not None
        rows = parsed.table.to_pylist()
        assert [(row["a__x.sum"], row["b__y.sum"]) for row in rows] == [(1, None), (None, 2)]
        assert [row["word__w"] for row in rows] == ["Yes", "3"]

    def test_a_file_that_cannot_be_read_does_not_affect_the_others(self, tmp_path: Path) -> None:
        sources = self.write(tmp_path, good=dialects.long([one_launch()], PLAIN), bad="==ERROR== ERR_NVGPUCTRPERM\n")
        parsed = parse([*sources, Source(str(tmp_path / "missing.csv"))])
        assert parsed.table is not None
        assert len(parsed.table) == 1
        assert [type(error) for error in parsed.refused.values()] == [ToolFailed, NcuBenchError]

    def test_a_lone_session_page_is_refused(self, tmp_path: Path) -> None:
        parsed = parse(self.write(tmp_path, session='"Session Attribute","Value"\n"CUDA Version","12.4"\n'))
        assert parsed.table is None
        assert "is a session page" in next(iter(parsed.refused.values())).what

    def test_a_session_page_names_the_device_of_the_report_beside_it(self, tmp_path: Path) -> None:
        session = '"Device Attribute","Device 0"\n"display_name","NVIDIA A40"\n"compute_capability_major","8"\n"compute_capability_minor","6"\n'
        legacy = dialects.long([one_launch()], PLAIN, legacy=True)
        parsed = parse(self.write(tmp_path, run=legacy, run_session=session))
        assert parsed.table is not None
        (row,) = parsed.table.to_pylist()
        assert (row["device_name"], row["compute_capability"]) == ("NVIDIA A40", "8.6")

    def test_a_session_page_applies_to_the_report_with_the_most_similar_name(self, tmp_path: Path) -> None:
        session = '"Device Attribute","Device 0"\n"display_name","NVIDIA A40"\n'
        for name in ("a", "b"):
            (tmp_path / name).write_text(dialects.long([one_launch()], PLAIN, legacy=True), encoding="utf-8")
        (tmp_path / "a.session.csv").write_text(session, encoding="utf-8")
        parsed = parse([Source(str(tmp_path / name)) for name in ("a", "b", "a.session.csv")], join=False)
        assert parsed.table is not None
        named = {Path(row["report"]).name: row["device_name"] for row in parsed.table.to_pylist()}
        assert named == {"a": "NVIDIA A40", "b": None}


class TestRefusals:
    @pytest.mark.parametrize("failure", failures(), ids=lambda failure: failure.slug)
    def test_every_known_failure_is_recognised_and_explained_with_its_remedy(
        self, failure: object, tmp_path: Path
    ) -> None:
        known = next(one for one in failures() if one is failure)
        for sign in known.signs:
            with pytest.raises(ToolFailed) as caught:
                read(f"==PROF== Connected to process 1\n==ERROR== {sign} and so on\n", tmp_path)
            assert caught.value.failure.slug == known.slug
            assert known.meaning in str(caught.value)
            assert sign in str(caught.value)
            assert known.advice in str(caught.value)

    def test_the_cause_is_recognised_before_its_consequence(self) -> None:
        lines = ["==WARNING== No kernels were profiled.", "==ERROR== ERR_NVGPUCTRPERM - no"]
        found = recognise(lines)
        assert found is not None
        assert found[0].slug == "counter-permission"

    def test_a_failure_message_in_a_file_with_launches_does_not_refuse_it(self, tmp_path: Path) -> None:
        assert len(read("==ERROR== LaunchFailed\n" + dialects.long([one_launch()], PLAIN), tmp_path).launches) == 1

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("", "is empty"),
            ("hello\nworld\n", "holds no table of Nsight Compute in its 2 lines"),
            (dialects.long([], PLAIN), "has the header of a long page and no launch below it"),
            ("==PROF== Report: /data/run.ncu-rep\n", "is the log of a run that wrote its results elsewhere"),
            ('"Kernel Name","k(int)"\n"Address","Source"\n"0x0","MOV"\n', "is a source page"),
            ("SQLite format 3\0", "is an SQLite file"),
        ],
    )
    def test_files_that_are_no_reports_are_refused_with_the_reason(self, text: str, says: str, tmp_path: Path) -> None:
        with pytest.raises(NotAReport, match=says):
            read(text, tmp_path)


class TestTextPages:
    def test_a_value_too_long_for_its_column_continues_in_the_next_line(self, tmp_path: Path) -> None:
        text = "\n".join([
            "[7] app@host",
            "  kernel(int) (1, 1, 1)x(32, 1, 1), Context 1, Stream 7, Device 0, CC 8.9",
            "  Metric Name                      Metric Unit Metric Value",
            "  -------------------------------- ----------- --------------------",
            "  device__attribute_display_name                 NVIDIA GeForce RTX",
            "                                                    4060 Laptop GPU",
            "  launch__func_cache_config                    cudaFuncCachePreferN",
            "                                                                one",
            "  -------------------------------- ----------- --------------------",
        ])  # fmt: skip
        (launch,) = read(text, tmp_path).launches
        assert launch.metrics["device__attribute_display_name"].value == "NVIDIA GeForce RTX 4060 Laptop GPU"
        assert launch.metrics["launch__func_cache_config"].value == "cudaFuncCachePreferNone"
        assert (launch.process_id, launch.block, launch.compute_capability) == (7, (32, 1, 1), "8.9")

    def test_tables_of_2020_have_no_titles_and_kernels_no_shapes(self, tmp_path: Path) -> None:
        text = "\n".join([
            "[7] app@host",
            "  fill, 2020-Jan-28 15:43:03, Context 1, Stream 15",
            "    Section: GPU Speed Of Light",
            "    ---------------- ------------- ------",
            "    SOL FB                       %   0.09",
            "    Duration               usecond   2.40",
            "    ---------------- ------------- ------",
        ])  # fmt: skip
        (launch,) = read(text, tmp_path).launches
        assert launch.kernel_name == "fill"
        assert launch.metrics["gpu__time_duration.sum"].value == pytest.approx(2400)

    def test_summaries_of_2020_repeat_the_kernel_above_every_section(self, tmp_path: Path) -> None:
        section = [
            "  fill, Block Size 128, Grid Size 1, Device 0, 30 invocations ",
            "    Section: S",
            "    Metric Name            Metric Unit   Minimum  Maximum  Average ",
            "    ---------------------- ------------- -------- -------- --------",
            "    gpu__time_duration.sum usecond       2.368000 2.592000 2.409600",
        ]
        text = "\n".join(
            [
                "[7] app@host",
                *section,
                "",
                *[line.replace("gpu__time_duration.sum", "other__time_duration.s") for line in section],
            ]
        )
        (launch,) = read(text, tmp_path).launches
        assert launch.invocations == 30
        assert launch.metrics["gpu__time_duration.sum (maximum)"].value == pytest.approx(2592)
        assert "other__time_duration.s" in launch.metrics
