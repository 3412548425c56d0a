"""Exports: traces that are well nested, sections that read back equal, spreadsheets that run no formula."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.parse.parse import parse
from ncu_parsers.report_data.report import Launch, Metric
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import SCHEMA_VERSION, Rule, with_metadata
from ncu_parsers.sources.sources import Source

from ncu_tools.cli import cli
from ncu_tools.model.layers.trace_spans import Span, spans
from ncu_tools.report.export.ncu_details_csv import to_section_csv
from ncu_tools.report.export.perfetto import to_perfetto
from ncu_tools.report.export.speedscope import to_speedscope
from ncu_tools.report.export.spreadsheet_csv import to_spreadsheet
from tests.conftest import SAMPLES
from tests.support.launches import launch, metric, table
from tests.support.nightly import one_in
from tests.support.reports import needs_shared_reports, sample_files, shared_reports

MODULES = ("net", "net.a", "net.a.x", "net.a.y", "net.b", "other", None)
PHASES = ("forward", "backward", "optimizer", None)


def ran(module: str | None, ns: float | None, phase: str | None = "forward", iteration: int = 0) -> Launch:
    return launch("k", ns=ns, module=module, phase=phase, iteration=iteration)


STEP = (
    ran("net.a.x", 10), ran("net.a.y", 20), ran("net", 5), ran("net.b", 7), ran("net.b", 9, "backward"),
    ran("net.a.x", 30, "backward"), ran(None, 4, "optimizer"),
)  # fmt: skip

random_steps = st.lists(
    st.builds(
        ran, st.sampled_from(MODULES), st.floats(0.1, 1e6), st.sampled_from(PHASES), st.integers(0, 2)
    ),
    min_size=1, max_size=25,
)  # fmt: skip


def check_speedscope(document: Any) -> None:
    """The requirements of https://www.speedscope.app/file-format-schema.json and its reader on an evented profile."""
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    assert all(isinstance(frame["name"], str) for frame in frames)
    for profile in document["profiles"]:
        assert (profile["type"], profile["unit"]) == ("evented", "nanoseconds")
        at, stack = profile["startValue"], []
        for event in profile["events"]:
            assert event["type"] in ("O", "C")
            assert at <= event["at"] <= profile["endValue"]
            assert 0 <= event["frame"] < len(frames)
            at = event["at"]
            if event["type"] == "O":
                stack.append(event["frame"])
            else:
                assert stack.pop() == event["frame"]
        assert stack == []


def check_trace_events(document: Any) -> None:
    """The requirements of Perfetto's reader of the Trace Event Format on complete events and on metadata of a track."""
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    assert all(isinstance(value, str) for value in document["otherData"].values())
    for event in document["traceEvents"]:
        assert (event["pid"], event["tid"]) == (1, 1)
        assert isinstance(event["name"], str)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert list(event["args"]) == ["name"]
        else:
            assert event["ph"] == "X"
            assert event["ts"] >= 0
            assert event["dur"] >= 0


class TestSpans:
    def test_are_phases_in_sequence_with_modules_in_the_order_of_each_phase(self) -> None:
        found = [(span.name, span.start, span.end) for span in spans(table(*STEP)).rows]
        assert found == [
            ("forward", 0, 42), ("net", 0, 42), ("a", 0, 30), ("x", 0, 10), ("y", 10, 30), ("b", 30, 37),
            ("backward", 42, 81), ("net", 42, 81), ("b", 42, 51), ("a", 51, 81), ("x", 51, 81),
            ("optimizer", 81, 85), ("(no module)", 81, 85),
        ]  # fmt: skip

    def test_are_means_over_all_iterations_also_if_a_phase_is_not_in_each(self) -> None:
        found = spans(table(ran("net", 10), ran("net", 20, iteration=1), ran("net", 8, "backward"))).rows
        assert [(span.phase, span.end - span.start) for span in found if span.layer] == [
            ("forward", 15),
            ("backward", 4),
        ]

    def test_leave_out_launches_without_a_time_with_a_note(self) -> None:
        found = spans(table(ran("net", 10), ran("net", None)))
        assert found.rows[0].end == 10
        assert "1 launches without a time are left out" in found.notes

    def test_below_a_depth_are_cut_and_keep_their_time(self) -> None:
        assert [span.name for span in spans(table(*STEP), depth=0).rows if span.phase == "forward"] == [
            "forward",
            "net",
        ]

    @pytest.mark.slow
    @given(random_steps)
    def test_nest_add_up_and_make_a_valid_profile(self, launches: list[Launch]) -> None:
        found = spans(table(*launches)).rows
        if not found:
            return
        around: list[Span] = []
        for span in found:
            del around[span.depth :]
            assert span.start <= span.end
            assert all(outer.start <= span.start and span.end <= outer.end for outer in around)
            around.append(span)
        iterations = len({one.iteration for one in launches})
        total = sum(one.metrics["gpu__time_duration.sum"].value for one in launches) / iterations  # type: ignore[misc]
        assert max(span.end for span in found) == pytest.approx(total, abs=1)
        check_speedscope(json.loads(to_speedscope(found, "run")))
        check_trace_events(json.loads(to_perfetto(found, "run")))


class TestTraces:
    def test_for_speedscope_give_a_module_one_frame_in_every_phase(self) -> None:
        document = json.loads(to_speedscope(spans(table(*STEP)).rows, "run"))
        names = [frame["name"] for frame in document["shared"]["frames"]]
        assert names.count("net.a.x") == 1
        assert document["profiles"][0]["endValue"] == 85

    def test_for_perfetto_are_complete_events_in_microseconds_without_null(self) -> None:
        events = json.loads(to_perfetto(spans(table(*STEP)).rows, "run"))["traceEvents"]
        slices = [event for event in events if event["ph"] == "X"]
        assert {event["ph"] for event in events} == {"M", "X"}
        assert [(event["name"], event["ts"], event["dur"]) for event in slices[:2]] == [
            ("forward", 0.0, 0.042), ("net", 0.0, 0.042),
        ]  # fmt: skip
        assert all(value is not None for event in slices for value in event["args"].values())
        assert "flops" not in slices[1]["args"]  # not counted, so absent


# ------------------------------------------------------------------------------------------------------- sections

values = st.one_of(
    st.integers(0, 10**18).map(float),
    st.floats(0, 1e6).map(lambda value: round(value, 3)),
    st.floats(-1e300, 1e300, allow_nan=False, allow_subnormal=False).filter(lambda value: abs(value) > 1e-290),
)
counted_launches = st.lists(
    st.builds(
        lambda name, found, grid, ids: Launch(
            name, metrics={key: Metric(value, 0.0, unit) for key, (value, unit) in found.items()}, grid=grid,
            process_id=ids, compute_capability="8.0",
        ),
        st.sampled_from(["k", 'operator"" _x(int)', "=cmd|' /C calc'!A0", "void f<float, 4>(T *, int)"]),
        st.dictionaries(
            st.sampled_from(["gpu__time_duration.sum", "a__b.sum", "Occupancy: Odd label", "dram__bytes.sum"]),
            st.tuples(values, st.just("")), min_size=1,
        ),
        st.sampled_from([(1, 2, 3), None]),
        st.sampled_from([7, None]),
    ),
    min_size=1, max_size=5,
)  # fmt: skip


def read_back(text: str) -> pa.Table:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "details.csv"
        path.write_text(text, "utf-8")
        found = parse([Source(str(path))]).table
    assert found is not None
    return found


def metrics_of(made: pa.Table) -> dict[str, list[Any]]:
    no_metrics = {*tables.COLUMN_NAMES, "Process Name", "Host Name", "Kernel Time", "Result Type", "Device Name"}
    names = [field.name for field in made.schema if field.name not in no_metrics]
    return {name: made.column(name).to_pylist() for name in names if made.column(name).null_count < len(made)}


class TestSections:
    @pytest.mark.slow
    @given(counted_launches)
    def test_read_back_with_every_digit(self, launches: list[Launch]) -> None:
        made = table(*launches)
        again = read_back(to_section_csv(made))
        assert metrics_of(again) == metrics_of(made)
        for name in ("kernel_name", "grid", "compute_capability", "duration_ns", "dram_bytes"):
            assert again.column(name).to_pylist() == made.column(name).to_pylist(), name

    @pytest.mark.parametrize("path", one_in(6, sample_files()), ids=lambda path: path.name)
    def test_of_every_sample_read_back_with_equal_numbers(self, path: Path) -> None:
        check_round_trip(path)

    @pytest.mark.slow
    @needs_shared_reports
    @pytest.mark.parametrize("path", one_in(4, shared_reports("ncu_csv")), ids=lambda path: path.name)
    def test_of_a_real_report_read_back_with_equal_numbers(self, path: Path) -> None:
        check_round_trip(path)

    def test_keep_the_section_label_and_unit_of_a_details_page(self) -> None:
        made = parse([Source(str(SAMPLES / "d02-long-rules.csv"))]).table
        assert made is not None
        rows = csv.DictReader(io.StringIO(to_section_csv(made)))
        printed = {(row["Section Name"], row["Metric Name"], row["Metric Unit"]) for row in rows}
        assert ("GPU Speed Of Light Throughput", "Duration", "ns") in printed

    @pytest.mark.parametrize("estimate", [("", ""), ("", "25.5"), ("global", "25.5")])
    def test_have_rule_results_without_names_that_read_back(self, estimate: tuple[str, str]) -> None:
        rule = Rule("Occupancy", "", "OPT", "Do less.", *estimate)
        made = table(launch("k", ns=5.0, rules=[rule]))
        assert read_back(to_section_csv(made)).column("rules").to_pylist() == made.column("rules").to_pylist()

    def test_have_rule_results_that_read_back(self) -> None:
        made = parse([Source(str(SAMPLES / "d02-long-rules.csv"))]).table
        assert made is not None
        rules = made.column("rules").to_pylist()
        assert any(rules)
        assert read_back(to_section_csv(made)).column("rules").to_pylist() == rules

    @pytest.mark.parametrize("name", ["d12-range-nvtx.csv", "d01-wide-raw.csv"])
    def test_have_nvtx_ranges_if_the_report_has_any(self, name: str) -> None:
        made = parse([Source(str(SAMPLES / name))]).table
        assert made is not None
        text = to_section_csv(made)
        ranges = made.column("nvtx_path").to_pylist()
        assert read_back(text).column("nvtx_path").to_pylist() == ranges
        assert ("Push/Pop_Range" in text) == any(ranges)

    def test_keep_phase_iteration_and_module_of_our_own_ranges(self) -> None:
        path = ("forward", "iteration 3", "net.a", "a:b", "net.a.x")
        one = launch("k", ns=5, nvtx_path=path, phase="forward", iteration=3, module="net.a.x")
        again = read_back(to_section_csv(table(one))).to_pylist()[0]
        assert tuple(again["nvtx_path"]) == path
        assert (again["phase"], again["iteration"], again["module"]) == ("forward", 3, "net.a.x")

    def test_keep_processes_and_times_of_launches_without_an_id(self) -> None:
        launches = [
            Launch("k", process_id=process, metrics={"a__b.sum": metric(1.0)}, attributes={"Kernel Time": time})
            for process, time in ((7, "2022-Dec-02 15:45:59"), (8, "2022-Dec-02 15:46:03"))
        ]
        made = table(*launches)
        again = read_back(to_section_csv(made))
        for name in ("process_id", "Kernel Time"):
            assert again.column(name).to_pylist() == made.column(name).to_pylist(), name

    def test_are_not_mistaken_for_the_page_of_an_ncu_version(self, tmp_path: Path) -> None:
        one = Launch("k", metrics={"a__b.sum": metric(1.0)}, attributes={"Kernel Time": "2026-Jan-02 15:45:59"})
        path = tmp_path / "details.csv"
        path.write_text(to_section_csv(table(one)), "utf-8")
        assert [report.era for report in parse([Source(str(path))]).reports] == [None]

    def test_keep_ids_of_launches_without_a_process(self) -> None:
        made = table(*(Launch("k", launch_id=number, metrics={"a__b.sum": metric(1.0)}) for number in (3, 5)))
        assert read_back(to_section_csv(made)).column("launch_id").to_pylist() == [3, 5]

    @pytest.mark.parametrize("name", ["d05-legacy-long.csv", "d01-wide-raw-2022.csv", "d18-text.txt"])
    def test_keep_the_time_of_each_kernel_if_the_report_has_it(self, name: str) -> None:
        made = parse([Source(str(SAMPLES / name))]).table
        assert made is not None
        times = made.column("Kernel Time").to_pylist() if "Kernel Time" in made.column_names else []
        again = read_back(to_section_csv(made))
        assert again.column("process_id").to_pylist() == made.column("process_id").to_pylist()
        assert (again.column("Kernel Time").to_pylist() if times else []) == times

    def test_keep_the_number_of_launches_beside_launches_that_are_no_averages(self) -> None:
        one, mean = launch("k", ns=5), launch("mean", ns=5)
        mean.invocations = 3
        again = read_back(to_section_csv(table(one, mean)))
        assert again.column("invocations").to_pylist() == [1, 3]

    def test_leave_out_run_and_host_of_a_dataset(self) -> None:
        one = launch("k", {"a__b.sum": metric(1.0)})
        made = table(one).append_column("run", pa.array(["base"])).append_column("host", pa.array(["node017"]))
        rows = csv.DictReader(io.StringIO(to_section_csv(made)))
        assert [row["Metric Name"] for row in rows] == ["a__b.sum"]

    def test_are_refused_for_a_run_without_metrics_of_ncu(self, tmp_path: Path) -> None:
        path = kept(tmp_path, launch("k", {}, module="net"))
        result = export(path, tmp_path / "s.csv", "sections")
        assert isinstance(result.exception, NcuBenchError)
        assert "holds no metrics of ncu" in str(result.exception)
        assert not (tmp_path / "s.csv").exists()


def check_round_trip(path: Path) -> None:
    made = parse([Source(str(path))]).table
    text = to_section_csv(made) if made is not None else ""
    if made is None or not text:
        return
    again = read_back(text)
    counted = [row for row in range(len(made)) if any(values[row] is not None for values in metrics_of(made).values())]
    made = made.take(pa.array(counted))
    assert len(again) == len(made)
    for name, expected in metrics_of(made).items():
        found = again.column(name).to_pylist()
        if any(isinstance(value, str) for value in expected):
            assert found == expected, name
        else:
            np.testing.assert_array_equal(tables.floats(again, name), tables.floats(made, name), err_msg=name)
    np.testing.assert_array_equal(tables.floats(again, "duration_ns"), tables.floats(made, "duration_ns"))


# --------------------------------------------------------------------------------------------------- spreadsheets


class TestSpreadsheets:
    @pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "=cmd|' /C calc'!A0"])
    def test_run_no_kernel_name_as_a_formula(self, name: str) -> None:
        text = to_spreadsheet(table(launch(name, ns=5)))
        (row,) = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
        assert row["kernel_name"] == f"'{name}"

    def test_do_not_change_other_texts_and_negative_numbers(self) -> None:
        text = to_spreadsheet(table(launch("void f<-1>(T = 2)", {"a__b.avg": metric(-2.5, "byte")}, ns=5)))
        (row,) = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
        assert row["kernel_name"] == "void f<-1>(T = 2)"
        assert row["a__b.avg [byte]"] == "-2.5"

    def test_have_the_unit_of_a_column_that_only_the_page_names(self) -> None:
        made = parse([Source(str(SAMPLES / "d16-ui-summary.csv"))]).table
        assert made is not None
        heads = to_spreadsheet(made).removeprefix("\ufeff").splitlines()[0].split(",")
        assert {"Estimated Speedup [%]", "duration_ns"} <= set(heads)

    def test_have_an_empty_cell_for_unknown_values(self) -> None:
        (row,) = list(csv.DictReader(io.StringIO(to_spreadsheet(table(launch("k"))))))
        assert (row["duration_ns"], row["flops"], row["grid"]) == ("", "", "")

    def test_have_shapes_and_ranges_in_one_cell(self) -> None:
        one = launch("k", grid=(1, 2, 3), nvtx_path=("=evil", "b"))
        (row,) = list(csv.DictReader(io.StringIO(to_spreadsheet(table(one)))))
        assert (row["grid"], row["nvtx_path"]) == ("[1, 2, 3]", "'=evil / b")


# ---------------------------------------------------------------------------------------------------- the command


def kept(folder: Path, *launches: Launch) -> str:
    made = with_metadata(table(*launches), {"schema_version": SCHEMA_VERSION, "reports": [], "notes": []})
    write_table(made, folder / "launches.parquet")
    return str(folder)


def export(run: str, output: Path, form: str, *options: str) -> Result:
    return CliRunner().invoke(cli, ["report", run, "-o", str(output), "--as", form, *options])


class TestTheCommand:
    @pytest.mark.parametrize("form", ["speedscope", "perfetto"])
    def test_writes_traces_and_notes_that_they_are_not_timelines(self, tmp_path: Path, form: str) -> None:
        result = export(kept(tmp_path, *STEP), tmp_path / "t.json", form)
        assert result.exit_code == 0, result.output
        document = json.loads((tmp_path / "t.json").read_text("utf-8"))
        (check_speedscope if form == "speedscope" else check_trace_events)(document)
        said = document["name"] if form == "speedscope" else document["otherData"]["note"]
        assert "spans are means over 1 iteration laid end to end" in said
        assert "no timeline" in said
        assert said.removesuffix(")").rpartition("(")[2] in result.stderr.replace("\n", " ")

    @pytest.mark.parametrize(("of", "rows"), [("kernels", 1), ("launches", 7), ("layers", 6)])
    def test_writes_each_table_for_spreadsheets(self, tmp_path: Path, of: str, rows: int) -> None:
        result = export(kept(tmp_path, *STEP), tmp_path / "t.csv", "csv", "--table", of)
        assert result.exit_code == 0, result.output
        assert len((tmp_path / "t.csv").read_text("utf-8-sig").splitlines()) == rows + 1

    def test_refuses_a_trace_of_a_report_without_modules_with_the_reason(self, tmp_path: Path) -> None:
        result = export(str(SAMPLES / "d01-wide-raw.csv"), tmp_path / "t.json", "speedscope")
        assert "No launch knows its module" in str(result.exception)
        assert not (tmp_path / "t.json").exists()

    def test_refuses_options_that_do_not_belong_together(self, tmp_path: Path) -> None:
        for form, *options in (
            ("sections", "--table", "layers"), ("sections", "--depth", "1"), ("csv", "--depth", "1"),
            ("sections", "--machine", "t4"), ("csv", "--table", "launches", "--machine", "t4"),
        ):  # fmt: skip
            result = export(str(SAMPLES / "d01-wide-raw.csv"), tmp_path / "t", form, *options)
            assert isinstance(result.exception, WrongUsage), options

    def test_says_how_many_launches_sections_lack(self, tmp_path: Path) -> None:
        result = export(str(SAMPLES / "d14-kernel-failed.csv"), tmp_path / "t.csv", "sections")
        assert "1 of 2 launches left out: no metrics of ncu" in result.stderr
