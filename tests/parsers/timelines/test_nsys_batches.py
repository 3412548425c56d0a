"""Timelines of nsys too big for memory: what is read in parts equals what is read at once, and unneeded is not read."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError
from ncu_parsers.launches.nsys import nsys_sqlite, nvtx, python_backtraces
from ncu_parsers.launches.nsys.api_calls import ApiCallIndex
from ncu_parsers.launches.nsys.call_sites import nested, open_paths
from ncu_parsers.launches.nsys.nvtx import NvtxRanges
from ncu_parsers.parquet.reader import read_launches
from ncu_parsers.parse.parse import parse_into
from ncu_parsers.schema.tables import concatenated
from ncu_parsers.sources import memory
from ncu_parsers.sources.reading_ahead import one_ahead
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity.activity import NVTX, HostRanges, RangeLabel, columns_of
from ncu_parsers.timelines.nsys import database as nsys_database
from ncu_parsers.timelines.nsys.database import MISSING, opened

from ncu_tools.cli import cli
from tests.support.nightly import one_in
from tests.support.timelines import (
    CALLS,
    KERNELS,
    NODES,
    PROCESS,
    RANGES,
    call,
    database,
    domain,
    global_id,
    gpu_metric_names,
    gpu_metric_samples,
    kernel,
    node_made,
    pushed,
    read,
    started,
)

MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
DRIVER = "CUPTI_ACTIVITY_KIND_DRIVER"


@pytest.fixture
def tiny_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_database, "ROWS_OF_A_BLOCK", 7)
    monkeypatch.setattr(nsys_sqlite, "ROWS_OF_A_TABLE", 11)


def streamed(path: Path) -> tuple[pa.Table, Any, int]:
    """The launches of a timeline read in parts, the report, and the number of parts."""
    parts: list[pa.Table] = []
    report = nsys_sqlite.stream_report(Source(str(path)), parts.append)
    return concatenated(parts), report, len(parts)


def any_timeline(seed: int) -> dict[str, list[dict[str, Any]]]:
    """A timeline of two processes with two threads each, whose rows are in any order."""
    some = random.Random(seed)  # noqa: S311 - not for secrets
    calls, kernels, copies, ranges, nodes = [], [], [], [], []
    for correlation in range(1, 80):
        process, at = some.choice((7, 8)), some.randrange(1000)
        launch = call(at, correlation, process=process, thread=some.choice((1, 2)))
        calls.append(launch)
        if some.random() < 0.8:
            more: dict[str, Any] = {"graphNodeId": some.choice((None, 0, 31, 32))}
            kernels.append(
                kernel(at + some.randrange(300), correlation, process=process, name=some.randrange(4), **more)
            )
        else:
            copies.append({**kernel(at + 5, correlation, process=process), "copyKind": some.choice((1, 2, None))})
    for number in range(90):
        process, at = some.choice((7, 8)), some.randrange(1000)
        end = some.choice((at + some.randrange(400), at + 5, None))
        make = started if some.random() < 0.1 else pushed
        name = some.choice((f"level {number % 9}", f"aten::mul, seq = {number}", "aten::add, op_id = 3", 3, ""))
        ranges.append(make(name, at, end, domain=some.choice((0, 4)), thread=some.choice((1, 2)), process=process))
    ranges.append(domain("ncu_bench", 4, process=8))
    for process in (7, 8):
        nodes += [node_made(11, some.randrange(900), process=process, thread=1)]
        nodes += [node_made(31, 950, copy_of=11, process=process, thread=1)]
    kernels.append({**kernel(5, 1), "start": None})
    parts = {KERNELS: kernels, MEMCPY: copies, CALLS: calls[:60], DRIVER: calls[60:], RANGES: ranges, NODES: nodes}
    for rows in parts.values():
        some.shuffle(rows)
    return parts


def assert_same_in_parts(path: Path) -> pa.Table:
    """Assert that reading a timeline in parts gives what reading it at once does; gives the launches."""
    whole = read(path)
    table, report, parts = streamed(path)
    assert whole.table is not None
    assert parts > 4
    columns = [name for name in table.column_names if name in whole.table.column_names]
    assert set(whole.table.column_names) == set(columns)
    assert table.select(columns).to_pylist() == whole.table.select(columns).to_pylist()
    assert (report.notes, report.lines, report.rows) == (whole.notes, whole.lines, whole.rows)
    return table


def too_big(*_: object) -> None:
    with memory.limited(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "resident", lambda: 1 << 50)
        patch.setattr(memory, "gc", SimpleNamespace(collect=int))  # that of all tests takes long to collect
        memory.require_memory("t.sqlite")


@pytest.mark.usefixtures("tiny_parts")
class TestReadingInParts:
    @pytest.mark.parametrize("seed", one_in(3, range(12)))
    def test_gives_the_launches_and_notes_of_reading_at_once(self, seed: int, tmp_path: Path) -> None:
        path = database(tmp_path / "t.sqlite", any_timeline(seed), ("void a<1>(int)", "b", "layer", "d"))
        assert_same_in_parts(path)

    @pytest.mark.parametrize("seed", one_in(3, range(3)))
    def test_gives_the_sampled_activity_and_the_lines_of_python_of_reading_at_once(
        self, seed: int, tmp_path: Path
    ) -> None:
        timeline, times = any_timeline(seed), range(0, 700, 2)
        for number, one in enumerate((*timeline[CALLS], *timeline[DRIVER])):
            one["callchainId"] = number % 4 or None
        frames = [{"id": chain, "symbol": 2, "module": 5, "stackDepth": 0} for chain in (1, 2)]
        sampled = {
            "TARGET_INFO_GPU": [{"id": 0, "cuDevice": 0}], python_backtraces.TABLE: frames,
            "TARGET_INFO_GPU_METRICS": gpu_metric_names("SMs Active", "Tensor Active"),
            "GPU_METRICS": gpu_metric_samples(times, [time % 7 for time in times], [time % 9 for time in times]),
        }  # fmt: skip
        path = database(tmp_path / "t.sqlite", {**timeline, **sampled}, ("a", "b", "layer", "d", "net.py:7"))
        table = assert_same_in_parts(path)
        for column in ("sampled_tensor_active_pct", "python_line"):
            assert 0 < table.column(column).null_count < len(table)

    def test_writes_the_file_that_reading_at_once_gives(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ncu_parsers.parse.parse.STREAMED_FROM_BYTES", 1)
        path = database(tmp_path / "t.sqlite", any_timeline(3), ("void a<1>(int)", "b", "layer", "d"))
        parsed = parse_into(tmp_path / "launches.parquet", [Source(str(path))])
        assert (parsed.table, parsed.written) == (None, True)
        whole = read(path).table
        assert whole is not None
        assert read_launches(tmp_path / "launches.parquet").column("start_ns") == whole.column("start_ns")

    def test_of_operators_with_sizes_works_out_flops_over_all_launches_of_a_call(self, tmp_path: Path) -> None:
        ranges = [pushed("aten::mm, seq = 1, op_id = 2, sizes = [[8, 4], [4, 2]]", 0, 900)]
        launches = [kernel(10 * at, at) for at in range(1, 40)]
        tables = {KERNELS: launches, CALLS: [call(9 * at, at) for at in range(1, 40)], RANGES: ranges}
        table, _, parts = streamed(database(tmp_path / "t.sqlite", tables))
        assert parts == 1
        assert sum(value or 0 for value in table.column("operator_flops").to_pylist()) == 2 * 8 * 4 * 2

    @pytest.mark.parametrize("sizes", ["", ", sizes = [[8, 4], [4, 2]]"])
    @pytest.mark.slow
    def test_beyond_the_memory_limit_says_that_sizes_are_read_at_once(
        self, sizes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ranges = [pushed(f"aten::mm, seq = 1, op_id = 2{sizes}", 0, 900)]
        path = database(tmp_path / "t.sqlite", {KERNELS: [kernel(20, 1)], CALLS: [call(9, 1)], RANGES: ranges})
        monkeypatch.setattr(nsys_sqlite._Timeline, "_batches", too_big)
        for reading in (streamed, read):
            with pytest.raises(memory.TooBig) as refused:
                reading(path)
            assert ("Ranges hold the sizes of operators" in refused.value.paragraph) == bool(sizes)
            assert "--memory-limit" in refused.value.paragraph

    def test_of_sizes_that_a_look_at_some_ranges_misses_counts_a_call_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(nvtx, "SAMPLES", 1)
        monkeypatch.setattr(nvtx, "ROWS_OF_A_SAMPLE", 1)
        ranges = [pushed("step", 0, 950), pushed("aten::mm, seq = 1, op_id = 2, sizes = [[8, 4], [4, 2]]", 0, 900)]
        launches, calls = [kernel(10 * at, at) for at in range(1, 40)], [call(9 * at, at) for at in range(1, 40)]
        table, _, _ = streamed(database(tmp_path / "t.sqlite", {KERNELS: launches, CALLS: calls, RANGES: ranges}))
        assert sum(value or 0 for value in table.column("operator_flops").to_pylist()) == 2 * 8 * 4 * 2

    def test_cuts_an_end_that_cannot_be_where_the_next_operation_of_its_stream_is_in_a_later_part(
        self, tmp_path: Path
    ) -> None:
        others = [kernel(10 * at, at, streamId=8) for at in range(2, 60)]
        launches = [kernel(5, 1, end=9_000_000), *others, kernel(700, 99)]
        table = assert_same_in_parts(database(tmp_path / "t.sqlite", {KERNELS: launches}))
        assert table.column("end_ns")[0].as_py() == 700

    def test_of_a_timeline_without_gpu_work_counts_its_ranges(self, tmp_path: Path) -> None:
        path = database(tmp_path / "t.sqlite", {RANGES: [pushed(f"r{at}", at, at + 1) for at in range(30)]})
        with pytest.raises(nsys_sqlite.NoGpuWork, match="30 NVTX ranges"):
            streamed(path)

    def test_of_a_text_among_numbers_in_a_later_part_gives_null(self, tmp_path: Path) -> None:
        launches = [kernel(at, at, deviceId="three" if at == 25 else 1) for at in range(1, 30)]
        table, _, _ = streamed(database(tmp_path / "t.sqlite", {KERNELS: launches}))
        assert table.column("device_id").to_pylist() == [None if at == 25 else 1 for at in range(1, 30)]

    def test_of_long_names_of_ranges_gives_them_whole(self, tmp_path: Path) -> None:
        name = "x" * (nsys_database.SHORT_TEXT + 1)
        ranges = [pushed(name if at == 9 else f"r{at}", 10 * at, 10 * at + 9) for at in range(20)]
        launches = {KERNELS: [kernel(95, 1)], CALLS: [call(92, 1)], RANGES: ranges}
        table, _, _ = streamed(database(tmp_path / "t.sqlite", launches))
        assert table.column("nvtx_path").to_pylist() == [[name]]

    def test_ends_with_an_error_where_numbers_of_rows_do_not_increase(self, tmp_path: Path) -> None:
        path = database(tmp_path / "t.sqlite", {KERNELS: [{**kernel(at, at), "rowid": "x"} for at in range(1, 9)]})
        with pytest.raises(NcuBenchError, match="the numbers of rows do not increase"):
            streamed(path)

    def test_takes_no_longer_than_half_an_hour(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = database(tmp_path / "t.sqlite", {KERNELS: [kernel(at, at) for at in range(1, 9)]})
        monkeypatch.setattr(nsys_database, "LONGEST_READ_S", 0.0)
        with pytest.raises(NcuBenchError, match="interrupted"):
            streamed(path)

    def test_finds_the_earliest_of_the_calls_with_an_id(self, tmp_path: Path) -> None:
        calls = [call(100 - at, at % 5, thread=at) for at in range(40)]
        with opened(Source(str(database(tmp_path / "t.sqlite", {CALLS: calls}))), "t") as timeline:
            found = ApiCallIndex(timeline).of(np.array([PROCESS, MISSING]), np.array([2, 9]))
        assert found.start.tolist() == [63, MISSING]
        assert found.thread.tolist() == [global_id(thread=37), MISSING]


class TestGpuWorkAlone:
    def timeline(self, folder: Path, sizes: str = "", name: str = "void gemm<1>(int)") -> Path:
        ranges = [pushed(f"aten::mm, seq = {at}, op_id = {at}{sizes}", at, at + 5) for at in range(0, 200, 10)]
        tables = {
            KERNELS: [kernel(at + 3, at) for at in range(0, 200, 10)],
            CALLS: [call(at, at) for at in range(0, 200, 10)],
        }
        tables |= {RANGES: ranges, "ANALYSIS_DETAILS": [{"duration": 1}]}
        path = database(folder / "t.sqlite", tables, (name,))
        with sqlite3.connect(path) as connection:  # of a size from which on reports are cached
            connection.execute("CREATE TABLE padding AS SELECT zeroblob(5000000) AS bytes")
        connection.close()
        return path

    def test_has_times_and_shapes_without_ranges_and_calls(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(NvtxRanges, "around", None)
        parts: list[pa.Table] = []
        report = nsys_sqlite.stream_gpu_work(Source(str(self.timeline(tmp_path))), parts.append)
        (row, *_) = concatenated(parts).to_pylist()
        assert (row["duration_ns"], row["grid"], row["operation"]) == (10.0, [4, 2, 1], "kernel")
        assert row.keys().isdisjoint({"nvtx_path", "thread_id", "launch_id", "start_ns"})
        assert not any("API call" in note for note in report.notes)
        assert any("operators have no sizes; torch.autograd.profiler.emit_nvtx" in note for note in report.notes)

    def test_with_sizes_of_operators_has_their_flops(self, tmp_path: Path) -> None:
        parts: list[pa.Table] = []
        path = self.timeline(tmp_path, ", sizes = [[8, 4], [4, 2]]")
        nsys_sqlite.stream_gpu_work(Source(str(path)), parts.append)
        assert concatenated(parts).column("flops").to_pylist() == [128.0] * 20

    def test_is_what_hotspots_reads_until_ranges_are_asked_for(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, runner = self.timeline(tmp_path), CliRunner()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        with monkeypatch.context() as patch:
            patch.setattr(NvtxRanges, "around", None)
            shown = runner.invoke(cli, ["hotspots", str(path), "--format", "csv"])
        assert shown.exit_code == 0, shown.output
        assert "gemm" in shown.output
        by_range = runner.invoke(cli, ["hotspots", str(path), "--group", "operator", "--format", "csv"])
        assert "aten::mm" in by_range.output
        assert len(list((tmp_path / "cache").rglob("*.parquet"))) == 2
        again = runner.invoke(cli, ["hotspots", str(path), "--format", "csv"])
        assert [line.split(",")[:4] for line in again.stdout.splitlines()] == [
            line.split(",")[:4] for line in shown.stdout.splitlines()
        ]

    def test_is_read_and_summed_without_pandas(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        program = (
            "import sys; from ncu_tools.cli import run; assert run(sys.argv[1:]) == 0; "
            "assert 'pandas' not in sys.modules; assert 'ncu_parsers.launches.nsys.operations' in sys.modules"
        )
        words = ["hotspots", str(self.timeline(tmp_path))]
        subprocess.run([sys.executable, "-c", program, *words], check=True, capture_output=True)

    def test_is_not_enough_for_categories_that_operators_decide(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        path = self.timeline(tmp_path, name="mystery")
        shown = CliRunner().invoke(cli, ["hotspots", str(path), "--by", "category", "--format", "csv"])
        assert [line.split(",")[0] for line in shown.stdout.splitlines()[1:]] == ["GEMM"]


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.booleans()), max_size=25)


@given(SPANS, st.lists(st.integers(0, 61), min_size=1, max_size=10))
def test_the_ranges_open_at_a_moment_are_those_of_the_process_and_then_those_of_the_thread(
    spans: list[tuple[int, int, bool]], times: list[int]
) -> None:
    in_order = sorted((start, -length, of_process) for start, length, of_process in spans)
    starts, lengths, of_process = np.array(in_order, np.int64).reshape(-1, 3).T
    labels = [RangeLabel(NVTX, f"range {number}", None, "") for number in range(4)]
    columns = {
        "start": starts, "end": starts - lengths, "label": np.arange(len(spans)) % 4, "labels": labels,
        "process": np.full(len(spans), PROCESS), "thread": np.where(of_process == 1, MISSING, global_id()),
    }  # fmt: skip
    ranges = nested(columns_of(HostRanges, columns))
    found = open_paths(ranges, np.array([*times, 0]), np.array([*[global_id()] * len(times), MISSING]))
    assert found.code[-1] == -1
    for moment, code in zip(times, found.code.tolist(), strict=False):
        now = [(wide, row % 4) for row, (start, less, wide) in enumerate(in_order) if start <= moment < start - less]
        outer = [name for wide, name in now if wide]
        expected = [*outer, *(name for wide, name in now if not wide and name not in outer)]
        assert found.paths[code] == tuple(("", f"range {name}") for name in expected)


def test_parts_are_read_one_ahead_and_end_with_the_error_of_reading() -> None:
    read_so_far: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(3):
            read_so_far.append(number)
            yield number
        raise ValueError("no more")

    parts = one_ahead(numbers())
    assert next(parts) == 0
    with pytest.raises(ValueError, match="no more"):
        list(parts)
    assert read_so_far == [0, 1, 2]
