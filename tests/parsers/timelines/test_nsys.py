"""Timelines of nsys: exports of every schema, ranges around launches, copies, graphs, several processes and GPUs."""

from __future__ import annotations

import gzip
import os
import re
import sqlite3
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.errors import NcuBenchError
from ncu_launch.profilers.command_line import nsys_export_command
from ncu_parsers.launches.host_ranges import DEEPEST
from ncu_parsers.launches.nsys import nsys_rep
from ncu_parsers.launches.nsys.nsys_sqlite import NoGpuWork
from ncu_parsers.launches.nsys.nvtx import read_ranges
from ncu_parsers.parse.parse import parse
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.nsys import database as nsys_database
from ncu_parsers.timelines.nsys.database import MISSING, opened

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.roofline.roofline import roofline
from tests.conftest import SAMPLES, SHARED
from tests.support.installed import needs_nsys
from tests.support.nightly import one_in
from tests.support.reports import needs_shared_reports
from tests.support.timelines import (
    CALLS,
    KERNELS,
    RANGES,
    call,
    database,
    domain,
    global_id,
    kernel,
    pushed,
    read,
    started,
    table_of,
)  # fmt: skip
from tests.tools.cli.test_cli import PROGRAM as NCU_BENCH
from tests.tools.cli.test_cli import PYTHONPATH

kept = cache(table_of)
"""What a timeline that no test writes is read as."""
REAL = sorted((SHARED / "reports" / "nsys").glob("*.sqlite"))
MEMCPY, MEMSET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"


@needs_shared_reports
@pytest.mark.parametrize("path", one_in(3, REAL), ids=lambda path: path.stem[-24:])
class TestRealTimelines:
    def test_counts_and_times_equal_those_of_plain_sql(self, path: Path) -> None:
        rows = kept(path).to_pylist()
        with sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True) as plain:
            tables = {name for (name,) in plain.execute("SELECT name FROM sqlite_master")}
            for operation, table in (("kernel", KERNELS), ("memcpy", MEMCPY), ("memset", MEMSET)):
                mine = [row["duration_ns"] for row in rows if row["operation"] == operation]
                query = f"SELECT count(*), total(end - start) FROM {table}"  # noqa: S608
                expected = plain.execute(query).fetchone() if table in tables else (0, 0.0)
                assert (len(mine), sum(mine)) == expected, operation

    def test_every_kernel_has_the_time_that_plain_sql_gives(self, path: Path) -> None:
        by_name: dict[str, float] = {}
        for row in kept(path).to_pylist():
            if row["operation"] == "kernel":
                by_name[row["kernel_name"]] = by_name.get(row["kernel_name"], 0.0) + row["duration_ns"]
        query = f"SELECT value, total(end - start) FROM {KERNELS} JOIN StringIds ON id = demangledName GROUP BY value"  # noqa: S608
        with sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True) as plain:
            assert by_name == dict(plain.execute(query).fetchall())

    @pytest.mark.slow
    def test_ranges_are_those_found_by_an_sql_join(self, path: Path) -> None:
        query = f"""
            SELECT k.start, k.globalPid, group_concat(coalesce(n.text, s.value), '\n')
            FROM (SELECT *, rowid AS number FROM {KERNELS} ORDER BY start DESC LIMIT 150) k
            JOIN {CALLS} r ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24
            JOIN {RANGES} n ON n.globalTid = r.globalTid AND n.start <= r.start AND n.end > r.start AND n.eventType = 59
            LEFT JOIN StringIds s ON s.id = n.textId GROUP BY k.number"""  # noqa: S608
        with sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True) as plain:
            expected = {(start, process): names for start, process, names in plain.execute(query)}
        assert len(expected) > 50
        rows = kept(path).to_pylist()
        found = {(row["start_ns"], row["process_id"]): row["nvtx_path"] for row in rows if row["operation"] == "kernel"}
        for (start, process), names in expected.items():
            plain_names = [re.sub(r"(, (seq|op_id) = \d+)+$", "", name) for name in names.split("\n")]
            assert sorted(found[start, process >> 24 & 0xFFFFFF]) == sorted(plain_names)

    def test_hotspots_and_roofline_work_on_durations_alone(self, path: Path) -> None:
        table = kept(path)
        result = hotspots(table, ceilings_of(table))
        assert result.rows[0].time_share
        assert any(row.kernel.startswith("[CUDA memcpy ") for row in result.rows)
        assert not any("--metrics" in note for note in result.notes)
        assert roofline({"run": table}).drawable == []


class TestMissingTables:
    def test_an_old_export_of_kernels_only_notes_what_is_unknown(self, tmp_path: Path) -> None:
        report = read(database(tmp_path / "t.sqlite", {KERNELS: [kernel(5, 1)]}))
        assert report.table is not None
        (row,) = report.table.to_pylist()
        assert (row["source"], row["kernel_short"], row["duration_ns"]) == ("nsys", "gemm", 10.0)
        assert (row["grid"], row["block"], row["stream"]) == ([4, 2, 1], [128, 1, 1], "7")
        assert (row["nvtx_path"], row["device_name"], row["flops"]) == (None, None, None)
        notes = " ".join(report.notes)
        assert all(table in notes for table in (MEMCPY, MEMSET, CALLS, "TARGET_INFO_GPU"))
        assert "--machine" not in notes, "compare has none; commands that ask for a machine say so themselves"
        assert report.era == "schema of 2021 or older"

    def test_without_nvtx_the_path_is_unknown_and_with_it_empty(self, tmp_path: Path) -> None:
        tables: dict[str, Any] = {KERNELS: [kernel(5, 1)], CALLS: [call(1, 1)]}
        without = read(database(tmp_path / "a.sqlite", tables))
        assert without.table is not None
        assert without.table.column("nvtx_path").to_pylist() == [None]
        assert any(RANGES in note for note in without.notes)
        outside = database(tmp_path / "b.sqlite", {**tables, RANGES: [pushed("later", 2, 3)]})
        assert table_of(outside).column("nvtx_path").to_pylist() == [[]]

    def test_a_timeline_without_gpu_work_is_refused_with_its_number_of_ranges(self, tmp_path: Path) -> None:
        said = {"DIAGNOSTIC_EVENT": [{"text": "No CUDA events collected."}]}
        path = database(tmp_path / "t.sqlite", {RANGES: [pushed("a", 1, 2), pushed("b", 1, 2)], **said})
        with pytest.raises(NoGpuWork, match=r"2 NVTX ranges.*No CUDA events collected\."):
            read(path)

    def test_a_timeline_without_gpu_work_is_not_explained_by_what_nsys_says_by_the_way(self, tmp_path: Path) -> None:
        said = ["Buffers holding CUDA trace data will be flushed on CudaProfilerStop() call.",
                "CUDA device 0: Unified Memory cannot be traced on devices that don't support peer-to-peer transfers."]  # fmt: skip
        path = database(
            tmp_path / "t.sqlite", {CALLS: [call(1, 1)], "DIAGNOSTIC_EVENT": [{"text": one} for one in said]}
        )
        with pytest.raises(NoGpuWork, match=r"CUDA was not traced, could not be") as caught:
            read(path)
        assert "nsys says" not in str(caught.value)

    def test_a_timeline_of_a_gpu_without_its_work_may_be_of_an_nsys_older_than_the_driver(self, tmp_path: Path) -> None:
        """As nsys 2022.4 wrote it on an H100 under a driver of 2025."""
        gpus = [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]
        path = database(tmp_path / "t.sqlite", {RANGES: [pushed("a", 1, 2)], "TARGET_INFO_GPU": gpus})
        with pytest.raises(NoGpuWork, match=r"names NVIDIA H100 80GB HBM3: an nsys older than the driver") as caught:
            read(path)
        assert "Record with an nsys as new as the driver" in str(caught.value)

    def test_an_operation_without_api_call_has_no_path_and_is_counted(self, tmp_path: Path) -> None:
        tables = {KERNELS: [kernel(5, 1), kernel(20, 2)], CALLS: [call(1, 2)], RANGES: [pushed("a", 0, 9)]}
        report = read(database(tmp_path / "t.sqlite", tables))
        assert report.table is not None
        assert report.table.column("nvtx_path").to_pylist() == [None, ["a"]]
        assert any(note.startswith("1 of 2 GPU operations have no API call") for note in report.notes)

    def test_a_kernel_without_an_end_has_no_time(self, tmp_path: Path) -> None:
        report = read(database(tmp_path / "t.sqlite", {KERNELS: [{**kernel(5, 1), "end": None}, kernel(9, 2)]}))
        assert report.table is not None
        assert report.table.column("duration_ns").to_pylist() == [None, 10.0]
        assert any("no end" in note for note in report.notes)


def paths(
    tmp_path: Path, ranges: list[dict[str, Any]], *calls: dict[str, Any], strings: tuple[str, ...] = ("k",)
) -> Any:
    """The NVTX path of a kernel for each call, in order."""
    kernels = [kernel(100 + row["start"], row["correlationId"]) for row in calls]
    path = database(tmp_path / "t.sqlite", {KERNELS: kernels, CALLS: calls, RANGES: ranges}, strings)
    return table_of(path).column("nvtx_path").to_pylist()


class TestRanges:
    def test_nest_outermost_first_whatever_their_order_in_the_file(self, tmp_path: Path) -> None:
        ranges = [pushed("inner", 3, 8), pushed("outer", 1, 20), pushed("next", 8, 12)]
        assert paths(tmp_path, ranges, call(2, 1), call(5, 2), call(8, 3), call(20, 4)) == [
            ["outer"], ["outer", "inner"], ["outer", "next"], [],
        ]  # fmt: skip

    def test_that_begin_together_are_ordered_by_their_length(self, tmp_path: Path) -> None:
        assert paths(tmp_path, [pushed("short", 1, 5), pushed("long", 1, 9)], call(2, 1)) == [["long", "short"]]

    def test_belong_to_the_thread_that_pushed_them(self, tmp_path: Path) -> None:
        ranges = [pushed("here", 1, 9, thread=1), pushed("there", 1, 9, thread=2)]
        assert paths(tmp_path, ranges, call(2, 1, thread=1), call(3, 2, thread=2)) == [["here"], ["there"]]

    def test_started_on_one_thread_cover_autograd_threads_too(self, tmp_path: Path) -> None:
        ranges = [started("backward", 1, 9, thread=1), pushed("conv1", 3, 5, thread=2)]
        assert paths(tmp_path, ranges, call(2, 1, thread=2), call(4, 2, thread=2), call(9, 3, thread=2)) == [
            ["backward"], ["backward", "conv1"], [],
        ]  # fmt: skip

    def test_pushed_and_started_under_one_name_are_listed_once(self, tmp_path: Path) -> None:
        assert paths(tmp_path, [started("step", 1, 9), pushed("step", 2, 8)], call(3, 1)) == [["step"]]

    def test_with_registered_names_are_read_and_without_a_name_dropped(self, tmp_path: Path) -> None:
        ranges = [pushed(2, 1, 9), pushed(99, 1, 9), pushed("own", 2, 9)]
        assert paths(tmp_path, ranges, call(3, 1), strings=("k", "registered")) == [["registered", "own"]]

    def test_of_two_domains_may_overlap_without_nesting(self, tmp_path: Path) -> None:
        ranges = [domain("one", 1), domain("two", 2), pushed("a", 1, 5, domain=1), pushed("b", 3, 9, domain=2)]
        assert paths(tmp_path, ranges, call(4, 1), call(6, 2)) == [["a", "b"], ["b"]]

    @pytest.mark.parametrize("end", [None, 0])
    def test_that_never_ended_are_open_to_the_end(self, tmp_path: Path, end: int | None) -> None:
        assert paths(tmp_path, [pushed("training", 1, end)], call(10**12, 1)) == [["training"]]

    def test_that_leak_are_cut_to_the_innermost(self, tmp_path: Path) -> None:
        leaked = [pushed(f"r{number}", number + 1, None) for number in range(DEEPEST + 5)]
        (path,) = paths(tmp_path, leaked, call(10**6, 1))
        assert path == [f"r{number}" for number in range(5, DEEPEST + 5)]

    def test_marks_and_categories_are_no_ranges(self, tmp_path: Path) -> None:
        others = [{**pushed("mark", 1, None), "eventType": 34}, {**pushed("category", 1, None), "eventType": 33}]
        assert paths(tmp_path, others, call(3, 1)) == [[]]

    def test_use_the_event_type_numbers_of_the_file(self, tmp_path: Path) -> None:
        tables = {
            KERNELS: [kernel(5, 1)], CALLS: [call(3, 1)], RANGES: [{**pushed("a", 1, 9), "eventType": 159}],
            "ENUM_NSYS_EVENT_TYPE": [{"id": 159, "name": "NvtxPushPopRange"}],
        }  # fmt: skip
        assert table_of(database(tmp_path / "t.sqlite", tables)).column("nvtx_path").to_pylist() == [["a"]]

    def test_of_our_domain_set_phase_module_and_iteration(self, tmp_path: Path) -> None:
        names = ("iteration 3", "backward", "net.layer1.0")
        ranges = [domain("ncu_bench", 1), *(started(name, at, 20, domain=1) for at, name in enumerate(names, start=1))]
        tables = {KERNELS: [kernel(9, 1)], CALLS: [call(5, 1, thread=9)], RANGES: [*ranges, pushed("mine", 4, 9)]}
        (row,) = table_of(database(tmp_path / "t.sqlite", tables)).to_pylist()
        assert (row["iteration"], row["phase"], row["module"]) == (3, "backward", "net.layer1.0")
        assert (row["nvtx_path"], row["thread_id"]) == ([*names], 9)

    def test_with_the_same_names_in_another_domain_set_nothing(self, tmp_path: Path) -> None:
        tables = {KERNELS: [kernel(9, 1)], CALLS: [call(5, 1)], RANGES: [pushed("backward", 1, 9)]}
        (row,) = table_of(database(tmp_path / "t.sqlite", tables)).to_pylist()
        assert (row["nvtx_path"], row["phase"]) == (["backward"], None)


class TestOperations:
    def test_equal_correlation_ids_of_two_processes_are_distinguished(self, tmp_path: Path) -> None:
        tables = {
            KERNELS: [kernel(5, 1, process=7), kernel(6, 1, process=8, deviceId=1)],
            CALLS: [call(1, 1, process=8, thread=80), call(2, 1, process=7, thread=70)],
            RANGES: [pushed("seven", 0, 9, process=7, thread=70), pushed("eight", 0, 9, process=8, thread=80)],
        }
        rows = table_of(database(tmp_path / "t.sqlite", tables)).to_pylist()
        found = [(row["process_id"], row["device_id"], row["thread_id"], row["nvtx_path"]) for row in rows]
        assert found == [(7, 0, 70, ["seven"]), (8, 1, 80, ["eight"])]

    def test_copies_and_memsets_are_rows_with_bytes(self, tmp_path: Path) -> None:
        plain = {"deviceId": 0, "correlationId": 1, "globalPid": global_id()}
        tables = {
            MEMCPY: [{"start": 9, "end": 19, "bytes": 64, "copyKind": 1, **plain}],
            MEMSET: [{"start": 1, "end": 3, "bytes": 32, **plain}],
        }
        rows = table_of(database(tmp_path / "t.sqlite", tables)).to_pylist()
        assert [(row["kernel_name"], row["operation"], row["bytes"], row["duration_ns"]) for row in rows] == [
            ("[CUDA memset]", "memset", 32, 2.0), ("[CUDA memcpy Host-to-Device]", "memcpy", 64, 10.0),
        ]  # fmt: skip
        assert [row["grid"] for row in rows] == [None, None]

    def test_nodes_of_a_graph_share_the_path_of_its_launch(self, tmp_path: Path) -> None:
        tables = {
            KERNELS: [kernel(5, 1, graphNodeId=51), kernel(6, 1, graphNodeId=52), kernel(7, 2, graphNodeId=0)],
            CALLS: [call(1, 1), call(2, 2)], RANGES: [pushed("replay", 0, 2)],
        }  # fmt: skip
        report = read(database(tmp_path / "t.sqlite", tables))
        assert report.table is not None
        assert report.table.column("nvtx_path").to_pylist() == [["replay"], ["replay"], []]
        assert report.table.column("graph_node_id").to_pylist() == [51, 52, None]
        assert any(note.startswith("2 operations are nodes of CUDA graphs") for note in report.notes)

    def test_graphs_recorded_as_a_whole_are_separate_rows(self, tmp_path: Path) -> None:
        graph = {"start": 5, "end": 105, "graphId": 12, "correlationId": 1, "globalPid": global_id()}
        report = read(database(tmp_path / "t.sqlite", {GRAPH_TRACE: [graph]}))
        assert report.table is not None
        (row,) = report.table.to_pylist()
        assert (row["kernel_name"], row["operation"], row["duration_ns"]) == ("[CUDA graph 12]", "graph", 100.0)
        assert any("--cuda-graph-trace=node" in note for note in report.notes)

    def test_overlapping_operations_give_a_note_with_the_busy_time(self, tmp_path: Path) -> None:
        kernels = [kernel(0, 1, end=10_000_000), kernel(5_000_000, 2, end=8_000_000, streamId=8)]
        report = read(database(tmp_path / "t.sqlite", {KERNELS: kernels}))
        assert any("add up to 13.0 ms" in note and "busy for 10.0 ms" in note for note in report.notes)

    @pytest.mark.parametrize(("more", "is_cut"), [({}, True), ({"streamId": 8}, False), ({"graphNodeId": 5}, False)])
    def test_that_end_long_after_the_next_of_their_stream_are_cut_and_named(
        self, tmp_path: Path, more: dict[str, int], is_cut: bool
    ) -> None:
        kernels = [kernel(100, 1, end=200), kernel(300, 2, end=9_000_000, **more), kernel(500, 3, end=600)]
        report = read(database(tmp_path / "t.sqlite", {KERNELS: kernels}))
        assert report.table is not None
        times = sorted(zip(report.table["start_ns"].to_pylist(), report.table["duration_ns"].to_pylist(), strict=True))
        assert times[1] == (300, 200 if is_cut else 9_000_000 - 300)
        assert any("the record of void gemm<1>(int) is impossible" in note for note in report.notes) == is_cut

    def test_whose_times_were_lost_are_left_out_and_counted(self, tmp_path: Path) -> None:
        """CUPTI leaves start and end at 0 where it ran out of buffers."""
        kernels = [kernel(50, 1), {**kernel(0, 2), "end": 0}, {**kernel(0, 3), "end": 0}]
        report = read(database(tmp_path / "t.sqlite", {KERNELS: kernels}))
        assert report.table is not None
        assert report.table["start_ns"].to_pylist() == [50]
        assert any(note.startswith("2 GPU operations were recorded without times") for note in report.notes)

    def test_device_numbers_are_resolved_per_process(self, tmp_path: Path) -> None:
        gpus = [
            {"id": number, "name": name, "chipName": chip, "computeMajor": major, "computeMinor": 0, "cuDevice": number}
            for number, name, chip, major in ((0, "A100", "GA100", 8), (1, "H100", "GH100", 9))
        ]
        shown = [{"gpuId": 1, "cudaId": 0, "pid": 8}]
        tables = {
            KERNELS: [kernel(5, 1, process=7), kernel(6, 1, process=8)], "TARGET_INFO_GPU": gpus,
            "TARGET_INFO_CUDA_DEVICE": shown,
        }  # fmt: skip
        rows = table_of(database(tmp_path / "t.sqlite", tables)).to_pylist()
        found = [(row["device_name"], row["chip"], row["compute_capability"]) for row in rows]
        assert found == [("A100", "GA100", "8.0"), ("H100", "GH100", "9.0")]

    def test_the_gpu_of_an_export_of_2020_is_read(self, tmp_path: Path) -> None:
        gpu = {"deviceId": 0, "name": "V100", "computeCapabilityMajor": 7, "computeCapabilityMinor": 0}
        path = database(tmp_path / "t.sqlite", {KERNELS: [kernel(5, 1)], "TARGET_INFO_CUDA_GPU": [gpu]})
        (row,) = table_of(path).to_pylist()
        assert (row["device_name"], row["compute_capability"]) == ("V100", "7.0")

    def test_the_version_of_nsys_and_of_the_schema_are_kept(self, tmp_path: Path) -> None:
        exported = [
            {"name": f"EXPORT_{key}_VERSION", "value": value}
            for key, value in (("PRODUCT", "2026.2"), ("SCHEMA", "3.25"))
        ]
        report = read(database(tmp_path / "t.sqlite", {KERNELS: [kernel(5, 1)], "META_DATA_EXPORT": exported}))
        assert (report.tool_version, report.era) == ("nsys 2026.2", "schema 3.25")


class TestUntrustedFiles:
    def test_a_database_of_another_program_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "history.sqlite"
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE visits (url)")
        with pytest.raises(NotAReport, match=r"without the tables of nsys.*visits"):
            read(path)

    def test_a_database_of_nvprof_is_refused_by_name(self, tmp_path: Path) -> None:
        path = tmp_path / "old.sqlite"
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE StringTable (_id_, value)")
        with pytest.raises(NotAReport, match="nvprof"):
            read(path)

    def test_a_view_instead_of_a_table_is_not_read(self, tmp_path: Path) -> None:
        path = database(tmp_path / "t.sqlite", {KERNELS: [kernel(5, 1)]})
        with sqlite3.connect(path) as connection:
            connection.execute(f"CREATE VIEW {MEMCPY} AS SELECT 1 AS start, 2 AS end")
        assert len(table_of(path)) == 1

    def test_a_truncated_file_is_reported_as_damaged(self, tmp_path: Path) -> None:
        path = database(tmp_path / "t.sqlite", {KERNELS: [kernel(at, at) for at in range(1, 3000)]})
        path.write_bytes(path.read_bytes()[:9000])
        with pytest.raises(NcuBenchError, match="could not be read as SQLite"):
            read(path)

    def test_a_query_that_takes_too_long_is_ended(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(nsys_database, "LONGEST_READ_S", -1.0)
        monkeypatch.setattr(nsys_database, "STEPS_BETWEEN_CHECKS", 1)
        with pytest.raises(NcuBenchError, match="interrupted"):
            read(database(tmp_path / "t.sqlite", {KERNELS: [kernel(5, 1)]}))

    def test_texts_in_numeric_columns_are_null(self, tmp_path: Path) -> None:
        path = database(tmp_path / "t.sqlite", {KERNELS: [kernel(5, 1, deviceId="zero", demangledName="x")]})
        (row,) = table_of(path).to_pylist()
        assert (row["device_id"], row["kernel_name"]) == (None, "(kernel without a name)")

    def test_a_path_with_url_characters_is_opened_as_a_path(self, tmp_path: Path) -> None:
        folder = tmp_path / "a?mode=rwc #1 %41"
        folder.mkdir()
        assert len(table_of(database(folder / "t.sqlite", {KERNELS: [kernel(5, 1)]}))) == 1

    def test_reading_changes_neither_the_file_nor_its_folder(self, tmp_path: Path) -> None:
        path = database(tmp_path / "t.sqlite", {KERNELS: [kernel(5, 1)]})
        before = path.read_bytes()
        read(path)
        assert (path.read_bytes(), list(tmp_path.iterdir())) == (before, [path])

    def test_a_compressed_export_is_read(self, tmp_path: Path) -> None:
        path = database(tmp_path / "t.sqlite", {KERNELS: [kernel(5, 1)]})
        packed = tmp_path / "t.sqlite.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        assert len(table_of(packed)) == 1

    @pytest.mark.parametrize("damage", ["cut", "overwritten"])
    def test_a_damaged_compressed_export_is_refused_and_the_report_beside_it_read(
        self, damage: str, tmp_path: Path
    ) -> None:
        packed = gzip.compress(database(tmp_path / "t.sqlite", {KERNELS: [kernel(5, 1)]}).read_bytes())
        damaged = tmp_path / "damaged.sqlite.gz"
        damaged.write_bytes(packed[:20] if damage == "cut" else packed[:12] + b"\xff" * 40 + packed[52:])
        parsed = parse([Source(str(damaged)), Source(str(SAMPLES / "d01-wide-raw.csv"))])
        assert list(parsed.refused) == [str(damaged)]
        assert [report.rows for report in parsed.reports] == [8]


def test_files_of_one_timeline_in_a_folder_are_read_once(tmp_path: Path) -> None:
    names = ("run.nsys-rep", "run.sqlite", "run_cuda_gpu_trace.csv", "run_cuda_gpu_kern_sum.csv")
    others = ("other_gputrace.csv", "other_gpukernsum.csv", "third_gpukernsum.csv", "third_gpumemtimesum.csv", "a.csv")
    shaped = [f"w_cuda_gpu_{table}.txt" for table in ("kern_gb_sum", "kern_sum", "mem_time_sum")]
    for name in (*names, *others, *shaped, "w_nvtx_kern_sum.txt", "x_nvtxkernsum.csv"):
        (tmp_path / name).touch()
    found = [Path(source.path).name for source in find_sources([str(tmp_path)])]
    assert found == [
        "a.csv", "other_gputrace.csv", "run.sqlite", "third_gpukernsum.csv", "third_gpumemtimesum.csv",
        "w_cuda_gpu_kern_gb_sum.txt", "w_cuda_gpu_mem_time_sum.txt", "x_nvtxkernsum.csv",
    ]  # fmt: skip


PROGRAM = """
import nvtx, threading
handle = nvtx.start_range("iteration 0", domain="ncu_bench")
with nvtx.annotate("outer"), nvtx.annotate("inner", domain="ncu_bench"):
    pass
thread = threading.Thread(target=nvtx.annotate("elsewhere")(lambda: None))
thread.start()
thread.join()
nvtx.mark("no range")
nvtx.end_range(handle)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of real nsys, recorded with a minimal environment, because the report contains all of it."""
    pytest.importorskip("nvtx", reason="nvtx is not installed (pip install '.[models]')")
    folder = tmp_path_factory.mktemp("nsys")
    (folder / "program.py").write_text(PROGRAM)
    command = [
        "nsys",
        "profile",
        "-t",
        "nvtx",
        "-s",
        "none",
        "--cpuctxsw=none",
        "-o",
        "run",
        sys.executable,
        "program.py",
    ]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
    report, said = folder / "run.nsys-rep", ""
    for _ in range(3):  # where it loses its agent, as on a busy machine, it leaves nothing and ends with 0
        done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
        said += f"{done.stdout}{done.stderr}(exit code {done.returncode})\n"
        if report.exists():
            return report
    pytest.fail(f"nsys left no report. It said: {said}")


@needs_nsys
@pytest.mark.slow
class TestReportsOfRealNsys:
    def test_ranges_of_both_forms_domains_and_threads_are_read(self, recorded: Path, tmp_path: Path) -> None:
        exported = tmp_path / "t.sqlite"
        subprocess.run(nsys_export_command(str(recorded), str(exported)), check=True, capture_output=True)
        with opened(Source(str(exported)), "t") as timeline:
            recorded_ranges = read_ranges(timeline, timeline.strings())
            assert recorded_ranges is not None
            ranges = recorded_ranges.all()
        assert {(ranges.labels[label].domain, ranges.labels[label].name) for label in ranges.label.tolist()} == {
            ("ncu_bench", "iteration 0"), ("ncu_bench", "inner"), ("", "outer"), ("", "elsewhere"),
        }  # fmt: skip
        of_process = ranges.at(ranges.thread == MISSING)
        assert [ranges.names[label] for label in of_process.label.tolist()] == ["iteration 0"]
        assert len(set(ranges.thread.tolist())) == 3

    def test_a_report_without_a_gpu_is_read_and_holds_no_gpu_work(self, recorded: Path) -> None:
        with pytest.raises(NoGpuWork, match=r"run\.nsys-rep is a timeline without GPU work: it holds 4 NVTX ranges"):
            read(recorded)

    def test_the_error_for_a_damaged_report_quotes_nsys(self, recorded: Path, tmp_path: Path) -> None:
        cut = tmp_path / "cut.nsys-rep"
        cut.write_bytes(recorded.read_bytes()[:2000])
        with pytest.raises(NcuBenchError, match=r'cut\.nsys-rep could not be exported by nsys 20.*It says: ".*error'):
            read(cut)

    def test_the_error_without_nsys_says_what_to_install(self, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(NcuBenchError, match=r"No nsys was found on PATH\. Install Nsight Systems"):
            read(recorded)


def test_a_schema_with_invalid_utf_8_is_refused(tmp_path: Path) -> None:
    path = database(tmp_path / "t.sqlite", {KERNELS: [kernel(5, 1)]})
    data = path.read_bytes()
    path.write_bytes(data.replace(b"CREATE TABLE", b"CREATE T\xd0BLE"))
    with pytest.raises(NcuBenchError, match="could not be read as SQLite"):
        read(path)


def stand_in_nsys(folder: Path, does: str) -> None:
    """A fake nsys that answers --version and runs a shell command for an export; $6 is the output path."""
    script = folder / "nsys"
    script.write_text(
        f"#!/bin/sh\n[ $1 = --version ] && echo NVIDIA Nsight Systems version 2022.4.2 && exit 0\n{does}\n"
    )
    script.chmod(0o755)


class TestReportsThroughNsys:
    @pytest.fixture
    def report(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        path = tmp_path / "run.nsys-rep"
        path.write_bytes(nsys_rep.MAGIC + b" 1.\n")
        return path

    def test_kernels_of_the_export_have_the_name_of_the_report(self, report: Path, tmp_path: Path) -> None:
        exported = database(tmp_path / "t.sqlite", {KERNELS: [kernel(5, 1)]})
        stand_in_nsys(tmp_path, f'cp "{exported}" "$7"')
        result = read(report)
        assert result.table is not None
        assert (result.dialects, result.table.column("report").to_pylist()) == (["nsys report"], [str(report)])

    def test_the_error_for_a_report_of_a_newer_nsys_names_its_version(self, report: Path, tmp_path: Path) -> None:
        stand_in_nsys(
            tmp_path, "echo 'Report was created in Nsight Systems version (2026.3.1), newer than this'; exit 1"
        )
        with pytest.raises(NcuBenchError, match=r"made by nsys 2026\.3\.1\. The nsys on PATH is 2022\.4\.2"):
            read(report)

    def test_a_failed_export_names_the_newer_nsys_that_made_the_report(self, report: Path, tmp_path: Path) -> None:
        report.write_bytes(nsys_rep.MAGIC + b" 1.\n" + bytes(99_000) + b"\x022023.1.2.43-32377213v0\n")
        empty = database(tmp_path / "t.sqlite", {})
        stand_in_nsys(tmp_path, f'cp "{empty}" "$7"; echo "Exportation error: ProtobufParseException"; exit 1')
        with pytest.raises(NcuBenchError, match=r"made by nsys 2023\.1\.2\. The nsys .*Exportation error: Protobuf"):
            read(report)
        with pytest.raises(NcuBenchError, match=r"made by nsys 2023\.1\.2\. .*nsys export --type sqlite"):
            nsys_rep.read_activity(Source(str(report)))

    def test_the_version_in_the_first_line_of_a_report_is_enough(self, report: Path, tmp_path: Path) -> None:
        report.write_bytes(nsys_rep.MAGIC + b" 2025@1@3@140-251335620677v0.\n")
        stand_in_nsys(tmp_path, 'echo "Exportation error: Version number is invalid: 2025@1@3@140"; exit 1')
        with pytest.raises(NcuBenchError, match=r"made by nsys 2025\.1\.3\. .*Version number is invalid"):
            read(report)

    def test_a_failed_export_of_an_older_report_is_damage(self, report: Path, tmp_path: Path) -> None:
        report.write_bytes(nsys_rep.MAGIC + b" 1.\n\x022021.1.2.43-3237v0\n")
        stand_in_nsys(tmp_path, "exit 1")
        with pytest.raises(NcuBenchError, match=r"cut or damaged: the nsys that made it, 2021\.1\.2, is no newer"):
            read(report)

    def test_parse_joins_a_report_with_others_into_one_table(self, report: Path, tmp_path: Path) -> None:
        exported = database(tmp_path / "t.sqlite", {KERNELS: [kernel(5, 1)]})
        stand_in_nsys(tmp_path, f'cp "{exported}" "$7"')
        parsed = parse([Source(str(report)), Source(str(exported))])
        assert parsed.table is not None
        assert parsed.table.column("source").to_pylist() == ["nsys", "nsys"]


def profiled(tmp_path: Path, export: str) -> subprocess.CompletedProcess[str]:
    """Profile a program with a fake nsys that records nothing, and runs `export` to export its report."""
    stand_in_nsys(
        tmp_path,
        "if [ $1 = export ]; then " + export + "; exit; fi\n"
        'while [ $# -gt 0 ]; do [ "$1" = --output ] && out=$2; shift; done\n'
        "printf 'NVIDIA Tegra Profiler Report 1.\\n' > \"$out.nsys-rep\"",
    )
    environment = {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PYTHONPATH": PYTHONPATH,
    }
    command = [*NCU_BENCH, "profile", "--tool", "nsys", "-o", "run", "--", "true"]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, env=environment)


@pytest.mark.slow
def test_a_profile_with_nsys_shows_the_kernels_of_its_timeline(tmp_path: Path) -> None:
    exported = database(tmp_path / "t.sqlite", {KERNELS: [kernel(5, 1), kernel(20, 2)]})
    done = profiled(tmp_path, f'cp "{exported}" "$7"')
    assert done.returncode == 0, done.stderr
    assert "gemm " in done.stdout
    assert "20 ns" in done.stdout
    assert (tmp_path / "run" / "launches.parquet").is_file()


@pytest.mark.slow
def test_a_profile_with_nsys_without_gpu_work_succeeds_with_a_message(tmp_path: Path) -> None:
    exported = database(tmp_path / "t.sqlite", {RANGES: [pushed("a", 1, 2)]})
    done = profiled(tmp_path, f'cp "{exported}" "$7"')
    assert (done.returncode, done.stdout) == (0, "")
    assert "The timeline is in run/reports." in done.stderr
    assert "1 NVTX range" in done.stderr


@pytest.mark.slow
def test_a_profile_whose_timeline_cannot_be_read_fails_with_the_reason(tmp_path: Path) -> None:
    done = profiled(tmp_path, "echo out of luck")
    assert done.returncode == 1
    assert 'It says: "out of luck"' in done.stderr


class TestOperationsBesideEachOther:
    def times(self, path: Path, *kernels: dict[str, Any]) -> list[tuple[int | None, int | None]]:
        """What each ran alone and beside others; nothing where no operation ran beside another."""
        table = table_of(database(path / "t.sqlite", {KERNELS: kernels}))
        if "exclusive_ns" not in table.column_names:
            return []
        columns = (table.column(name).to_pylist() for name in ("exclusive_ns", "overlapped_ns"))
        return list(zip(*columns, strict=True))

    def test_count_the_time_in_which_another_one_of_their_gpu_ran(self, tmp_path: Path) -> None:
        """On another stream, or launched ahead of the end of the one before on the same one (PDL)."""
        found = self.times(
            tmp_path, kernel(0, 1, end=100), kernel(40, 2, end=60, streamId=8), kernel(95, 3, end=150),
            kernel(120, 4, end=130, deviceId=1),
        )  # fmt: skip
        assert found == [(75, 25), (0, 20), (50, 5), (10, 0)]

    def test_have_no_columns_where_none_ran_beside_another(self, tmp_path: Path) -> None:
        assert self.times(tmp_path, kernel(0, 1, end=100), kernel(100, 2, end=120)) == []

    def test_an_end_that_cannot_be_is_cut_first(self, tmp_path: Path) -> None:
        assert self.times(
            tmp_path, kernel(0, 1, end=9_000_000), kernel(100, 2, end=120), kernel(110, 3, end=130, streamId=8)
        )[0] == (100, 0)
