"""What is fuzzed: a parser, how an input is given to it, and what must hold of its answer.

A target returns when the answer is right or the parser refused the input with an error of the project. Whatever else
it raises is a finding.
"""

from __future__ import annotations

import atexit
import math
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.manifest import read_manifest
from ncu_launch.files.run_files import MANIFEST
from ncu_launch.operators.calls import Call, Tensor
from ncu_launch.operators.table import work_of
from ncu_launch.operators.user_formulas import formulas_in
from ncu_parsers.binaries.code_files import CodeReading, kernels_in
from ncu_parsers.detect.text_reader import read_report
from ncu_parsers.launches.launch_view import report_of
from ncu_parsers.launches.nsys import nsys_sqlite
from ncu_parsers.ncu.instructions.read import read_instructions, source_files
from ncu_parsers.ncu.instructions.source_pages import read_source_pages
from ncu_parsers.ncu_rep.contents import contents_of
from ncu_parsers.ncu_rep.instances import instance_tables
from ncu_parsers.ncu_rep.instructions.debug_lines import file_sizes, kernel_debug, ptx_text
from ncu_parsers.ncu_rep.instructions.time_series import time_series
from ncu_parsers.ncu_rep.sass.kernel_text import KernelText
from ncu_parsers.parquet import checked_open, footer, reader
from ncu_parsers.parse.file_kinds import KINDS, activity_reader_of
from ncu_parsers.parse.warp_trace_files import read_warp_trace, write_warp_trace
from ncu_parsers.point_files import read_points
from ncu_parsers.report_data.report import METRICS, Report
from ncu_parsers.schema import tables
from ncu_parsers.schema.bench_table import appended
from ncu_parsers.sources.reading_ahead import beside_others
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming import binary_launches as binary
from ncu_parsers.streaming import page_rows, streaming_reader
from ncu_parsers.streaming.cells import rows
from ncu_parsers.streaming.cells.rows import NotStreamed
from ncu_parsers.timelines.activity.activity import Activity, GpuOperations
from ncu_parsers.timelines.nsys.nsys_activity import ACTIVITIES
from ncu_parsers.warp_ranges.warp_trace import MISSING

from ncu_tools.advice.history import LoggedChange, append
from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.ceilings.machine_files import machine_files_in, parse_machine, problems
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.source import hot_places
from ncu_tools.kernels.source.kernel_code import kernel_code
from ncu_tools.kernels.warp_ranges.inside_kernel import inside_kernel
from ncu_tools.kernels.warp_ranges.lanes import blocks_to_draw, lanes_of
from ncu_tools.kernels.warp_ranges.launch_ranges import launches_in
from ncu_tools.kernels.warp_ranges.warp_levers import warp_levers
from ncu_tools.report.warp_tables import sections
from tests.fuzz import seeds
from tests.fuzz.choices import ODD_REALS, Choices
from tests.fuzz.expectations import (
    events_of,
    hold_lines,
    hold_refusal,
    hold_table,
    lines_of,
    only_what_was_read,
    rows_of,
    table_of,
)
from tests.support import cubins, traces
from tests.support.timelines import Row, database


@dataclass(frozen=True)
class Target:
    """One thing that is fuzzed: `run` tries an input, with derived columns too where it is `thorough`.

    `words` are what the format is made of, for the mutator to insert; `longest` is the most bytes of an input.
    """

    run: Callable[[bytes, bool], None]
    seeds: Callable[[], Sequence[bytes]]
    words: tuple[str, ...] = ()
    longest: int = 8192


def try_input(target: Target, data: bytes, *, thorough: bool | None = None) -> None:
    """Try one input. An error of the project is an answer if it has a reason; any other error is passed on.

    Unless told, one input of eight, by its bytes, is tried with all that follows from the parser's answer.
    """
    chosen = zlib.crc32(data) % 8 == 0 if thorough is None else thorough
    try:
        target.run(data, chosen)
    except NcuBenchError as error:
        hold_refusal(error)


@contextmanager
def written(data: bytes, name: str) -> Iterator[Path]:
    """The input as a file of that name, in a folder of this process."""
    path = _path(name)
    with path.open("wb", buffering=0) as file:
        file.write(data)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


@cache
def _path(name: str) -> Path:
    return _folder() / name


@cache
def _folder() -> Path:
    folder = tempfile.mkdtemp(prefix="ncu-bench-fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _tables(thorough: bool) -> AbstractContextManager[None]:
    return nullcontext() if thorough else only_what_was_read()


# ------------------------------------------------------------------------------------------------------ text reports


def csv(data: bytes, thorough: bool) -> None:
    """Any report in text: every line is accounted for, and the launches make a sound table."""
    with written(data, "report.csv") as path:
        found = read_report(Source(str(path)))
    if not data.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        hold_lines(found, lines_of(data))
    if found.launches:
        with _tables(thorough):
            hold_table(table_of(found))


def fast_path(data: bytes, thorough: bool) -> None:
    """The fast path gives what the plain reader does, or leaves the report to it."""
    with (
        written(data, "report.csv") as path,
        _tables(thorough),
        patch.object(page_rows, "BLOCK_BYTES", 1000),
        patch.object(streaming_reader, "CELLS_OF_A_TABLE", 400 if len(data) % 2 else 1),
        beside_others(),
        patch.object(rows, "loops", rows.loops if len(data) % 3 else None),
    ):
        tables: list[pa.Table] = []
        try:
            streamed = streaming_reader.stream_report(Source(str(path)), tables.append)
        except NotStreamed:
            return
        try:
            plain = read_report(Source(str(path)))
        except NcuBenchError as error:
            raise AssertionError(f"the fast path read {streamed.rows} launches of what is refused: {error}") from error
        table = table_of(plain)
    if not data.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        hold_lines(streamed, lines_of(data))
    assert _known(streamed) == _known(plain)
    assert rows_of(tables) == rows_of([table])
    names = {name for each in tables for name in each.column_names}
    assert names == set(table.column_names), names ^ set(table.column_names)


KNOWN = (
    "source", "dialects", "tool_version", "era", "rows", "lines", "skipped", "session", "notes", "losses", "examples",
    "messages", "labels", "metric_names", "failures",
)  # fmt: skip


def _known(report: Report) -> dict[str, Any]:
    return {name: getattr(report, name) for name in KNOWN}


def operators(data: bytes, thorough: bool) -> None:
    """Files of the embedded collector, which begin with its header."""
    csv(data, thorough)


# --------------------------------------------------------------------------------------------------------- timelines


def nsys_bytes(data: bytes, thorough: bool) -> None:
    """An SQLite file with any byte changed."""
    with written(data, "report.sqlite") as path:
        hold_table(table_of(_read_at_once(path)))


def _read_at_once(path: Path) -> Report:
    """The launches of an export, without a thread for each input that reads ahead."""
    with patch.object(nsys_sqlite, "one_ahead", iter):
        return nsys_sqlite.read_report(Source(str(path)))


def nsys_cells(data: bytes, thorough: bool) -> None:
    """A whole SQLite file of any cells and schema: every row of GPU work is accounted for."""
    choices = Choices(data)
    timeline = choices.one_of((seeds.work_tables, seeds.range_tables, seeds.timeline_tables))()
    while choices.left:
        _change_rows(timeline, choices)
    with written(b"", "report.sqlite") as path:
        path.unlink()
        database(path, timeline, ("void gemm<1>(int)", "wait"))
        found = _read_at_once(path)
    hold_table(table_of(found))
    assert not (tables.floats(table_of(found), "duration_ns") < 0).any()
    hold_lines(found, sum(len(timeline.get(table, ())) for table in ACTIVITIES.values()))


def _change_rows(tables: dict[str, list[Row]], choices: Choices) -> None:
    """Change a cell, or lose a row, a column or a table, or repeat a row."""
    if not tables:
        choices.number(256)
        return
    name = choices.one_of(sorted(tables))
    rows = tables[name]
    change = choices.number(8)
    if change == 0:
        del tables[name]
    elif not rows:
        return
    elif change == 1:
        rows.pop(choices.number(len(rows)))
    elif change == 2:
        rows.append(dict(choices.one_of(rows)))
    else:
        columns = sorted({column for row in rows for column in row})
        column = choices.one_of(columns)
        if change == 3 and len(columns) > 1:
            tables[name] = [{key: value for key, value in row.items() if key != column} for row in rows]
        else:
            choices.one_of(rows)[column] = choices.value()


def kineto_events(data: bytes, thorough: bool) -> None:
    """A trace: every event is accounted for where the whole is JSON."""
    with written(data, "trace.json") as path:
        found = traces.read_report(Source(str(path)))
    hold_table(table_of(found))
    events = events_of(data)
    if events is not None:
        hold_lines(found, events)


def rocprofv3(data: bytes, thorough: bool) -> None:
    """JSON of rocprofv3, whatever is in it."""
    _viewed(data, "results.json", "rocprofv3", thorough)


def xplane(data: bytes, thorough: bool) -> None:
    """Planes of XLA's profiler, whatever their bytes."""
    _viewed(data, "host.xplane.pb", "xplane", thorough)


def pftrace(data: bytes, thorough: bool) -> None:
    """Packets of Perfetto, whatever their bytes."""
    _viewed(data, "trace.pftrace", "pftrace", thorough)


def _viewed(data: bytes, name: str, origin: str, thorough: bool) -> None:
    """A recording of that origin: what is read is sound, has no negative time, and can be shown.

    A PyTorch trace without GPU work has rows of operators instead.
    """
    read = activity_reader_of(next(one for one in KINDS if one.origin == origin))
    recorded: list[GpuOperations] = []

    def noted(source: Source) -> Activity:
        activity = read(source)
        recorded.append(activity.operations)
        return activity

    with written(data, name) as path:
        found = report_of(Source(str(path)), noted, origin)
    table, operations = table_of(found), recorded[0]
    hold_table(table)
    assert len(operations) in (len(table), 0)
    assert (operations.end >= operations.start).all()
    assert found.lines[METRICS] == len(table)
    if thorough:
        hotspots(table, ceilings_of(table))


def warp_ranges(data: bytes, thorough: bool) -> None:
    """A trace from inside kernels, in any format: it is sound, and the same after it was written."""
    with written(data, "trace") as path:
        trace, lines = read_warp_trace(str(path))
    ranges = trace.ranges
    assert ((ranges.end >= ranges.start) | (ranges.end == MISSING)).all()
    assert ((ranges.warp >= 0) & (ranges.warp < len(trace.warps))).all()
    assert ((ranges.name >= 0) & (ranges.name < len(trace.names))).all()
    assert len(ranges) + len(trace.sums) or len(trace.warps)
    if thorough:
        with written(b"", "ranges.parquet") as path:
            write_warp_trace(path, trace, "a", lines)
            again, _ = read_warp_trace(str(path))
        assert len(again.ranges) <= len(ranges)
        assert len(again.sums) == len(trace.sums)
        for number, _ in launches_in(trace)[:2]:
            found = inside_kernel(trace, number)
            warp_levers(found)
            list(sections(found))
            for _, block in blocks_to_draw(found.ranges):
                lanes_of(found.ranges, block, 40)


# ----------------------------------------------------------------------------------------------------------- Parquet


def parquet_bytes(data: bytes, thorough: bool) -> None:
    """A Parquet file of launches with any byte changed."""
    with written(data, "launches.parquet") as path:
        _use_launches(path, thorough)


def parquet_schema(data: bytes, thorough: bool) -> None:
    """A whole Parquet file whose columns are missing, or of other types, and whose metadata is anything."""
    choices = Choices(data)
    table = choices.one_of((seeds.plain_launch_table, seeds.launch_table))()
    with written(_as_parquet(_changed(table, choices)), "launches.parquet") as path:
        _use_launches(path, thorough)


def _as_parquet(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    found: bytes = out.getvalue().to_pybytes()
    return found


def _use_launches(path: Path, thorough: bool) -> None:
    """Read a file as commands do: what is in it, its notes, its columns as numbers and texts, and its kernels."""
    reader.contents(path)
    checked_open.fingerprint(path)
    table = reader.read_launches(path)
    hold_table(table)
    stretches = reader.launch_batches(path, table.column_names)
    assert sum(map(len, stretches)) == len(table)
    said = tables.table_metadata(table)
    assert all(isinstance(note, str) for note in said.get("notes", []))
    for column in tables.COLUMNS:
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            assert len(tables.floats(table, column.name)) == len(table)
        elif pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
            assert len(tables.words(table, column.name)) == len(table)
    if thorough:
        hotspots(table, ceilings_of(table))


def bench(data: bytes, thorough: bool) -> None:
    """A table of measured points whose columns are missing or of other types, or a file; points are put behind."""
    if not data.startswith(footer.MAGIC):
        data = _as_parquet(_changed(seeds.point_table(), Choices(data)))
    with written(data, "bench.parquet") as path:
        table = reader.read_bench(path)
    hold_table(table)
    assert len(appended(table, seeds.point_rows())) == len(table) + 2


def _changed(table: pa.Table, choices: Choices) -> pa.Table:
    while choices.left and table.num_columns:
        change, place = choices.number(6), choices.number(table.num_columns)
        name = table.column_names[place]
        if change == 0:
            table = table.remove_column(place)
        elif change == 1:
            table = table.set_column(place, table.schema.field(place).remove_metadata(), table.column(place))
        elif change == 2:
            table = table.replace_schema_metadata(_odd_metadata(table, choices))
        elif change == 3:
            table = table.slice(choices.number(len(table) + 1))
        elif change == 4:
            table = table.append_column(choices.one_of([name, "odd"]), table.column(place))
        else:
            table = table.set_column(place, name, _odd_column(len(table), choices))
    return table


def _odd_metadata(table: pa.Table, choices: Choices) -> dict[bytes, bytes]:
    said = dict(table.schema.metadata or {})
    content = choices.one_of([
        b"", b"{", b"[]", b"7", b'"text"', b"\xff", b'{"schema_version": 999}', b'{"schema_version": "x"}',
        b'{"notes": 7}', b'{"notes": [7, null]}', b'{"reports": [1]}', b'{"table": "bench", "schema_version": []}',
        b'{"schema_version": 1}', b'{"table": "bench"}', b"[" * 5000,
    ])  # fmt: skip
    return {**said, tables.METADATA_KEY: content}


def _odd_column(rows: int, choices: Choices) -> pa.Array:
    kind = choices.number(8)
    if kind == 0:
        return pa.nulls(rows)
    if kind == 1:
        return pa.array([str(choices.value()).replace("\ud800", "") for _ in range(rows)])
    if kind == 2:
        return pa.array([choices.one_of(ODD_REALS) for _ in range(rows)], pa.float64())
    if kind == 3:
        return pa.array([choices.number(2**63) for _ in range(rows)], pa.int64())
    if kind == 4:
        return pa.array([[choices.number(9)] * choices.number(5) for _ in range(rows)], pa.list_(pa.int32()))
    if kind == 5:
        return pa.array([bytes([choices.number(256)]) for _ in range(rows)], pa.binary())
    if kind == 6:
        return pa.array([bool(choices.number(2)) for _ in range(rows)])
    return pa.array([{"x": choices.number(3)} for _ in range(rows)])


# -------------------------------------------------------------------------------------------------- everything else


def machine(data: bytes, thorough: bool) -> None:
    """A machine file: it is refused, or every rate is a plausible number."""
    with written(data, "own.toml") as path:
        ((machine_id, text),) = machine_files_in(path.parent)
    found = parse_machine(machine_id, text)
    assert problems(text) == []
    assert all(math.isfinite(rate.value) and rate.value > 0 for rate in found.rates.values())
    assert found.bandwidths
    hash(found.compute_capability)
    assert all(isinstance(name, str) for name in (found.name, found.source, *found.device_names))


def manifest(data: bytes, thorough: bool) -> None:
    """A manifest: it is refused as damaged, or its fields are what they say."""
    with written(data, MANIFEST) as path:
        found = read_manifest(path.parent)
    assert all(run.succeeded in (True, False) for run in found.tool_runs)
    assert all(isinstance(note, str) for note in found.notes)
    assert isinstance(found.partial, bool)


def points(data: bytes, thorough: bool) -> None:
    """A file of NVBench or pytest-benchmark: it is refused, or its times are positive and finite."""
    with written(data, "points.json") as path:
        found = read_points(path)
    assert found.points
    assert all(0 < one.time_ns < math.inf and not one.variance < 0 for one in found.points)
    assert all(
        isinstance(text, str) for text in (found.commit, found.committed, found.measured, *found.conditions.values())
    )


FORMULA_CALLS = tuple(
    Call("mylib::op", (Tensor(shape, "float"), Tensor((3, 4), "float16"), 7))
    for shape in ((2, 3), (0,), (), (2**40, 2**40))
)


def formulas(data: bytes, thorough: bool) -> None:
    """A file of the user's formulas: it is refused, or each gives an amount of work, or none, for any call."""
    with written(data, "own.toml") as path:
        found = formulas_in.__wrapped__(str(path))
    for name in found:
        for call in FORMULA_CALLS:
            work = work_of(call._replace(name=name), found)
            assert work is None or work.flops is None or (math.isfinite(work.flops) and work.flops >= 0), work


def log(data: bytes, thorough: bool) -> None:
    """A history of `advise --log`: it is refused and left as it is, or keeps its lines and ends with the new change."""
    change = LoggedChange("2026", "a", "b", "k|<b>", "coalesce", "12 %", "11 %", "next")
    with written(data, "changes.md") as path:
        try:
            append(path, [change])
        except NcuBenchError:
            assert path.read_bytes() == data
            raise
        lines = path.read_text("utf-8").splitlines()
        path.with_name(f".{path.name}.lock").unlink(missing_ok=True)
    assert lines[-1] == change.line
    assert not data or lines[:-1] == data.decode("utf-8").splitlines()


INSTRUCTIONS = ("FFMA R1, R2, R3, R4", "@P0 HADD2.F32 R1, -RZ, R2.H0_H0", "HMMA.16816.F32 R4, R8, R12, R4", "EXIT")


def _any_text(texts: KernelText, kernel: str, addresses: Sequence[int], *more: Any) -> list[str | None]:
    """Some text for each address, and none for one of 17, in place of a program that is asked for it."""
    return [None if address % 17 == 16 else INSTRUCTIONS[address // 16 % len(INSTRUCTIONS)] for address in addresses]


def ncu_rep(data: bytes, thorough: bool) -> None:
    """A binary report, whatever its bytes: launches read in parts are those read as launches, or both are refused."""
    tables: list[pa.Table] = []
    with (
        written(data, "report.ncu-rep") as path,
        _tables(thorough),
        beside_others(),
        patch.object(KernelText, "of", _any_text),
    ):
        source = Source(str(path))
        try:
            found = binary.read_report(source)
        except NcuBenchError:
            with pytest.raises(NcuBenchError):
                binary.stream_report(source, tables.append)
            raise
        try:
            streamed = binary.stream_report(source, tables.append)
        except NotStreamed:
            return
        table = table_of(found)
        if thorough:
            _use_binary(source)
    assert _known(streamed) == _known(found)
    assert rows_of(tables) == rows_of([table])
    for each in (table, *tables):
        hold_table(each)


def _use_binary(source: Source) -> None:
    """What else a binary report is asked for: contents, instances, instructions, series over time, code."""
    assert contents_of(source).launches >= 0
    for instances in (*instance_tables(source), read_instructions(source)):
        if instances is not None:
            hold_table(instances)
    for series in time_series(source):
        assert len(series.times_ns) == len(series.values)
    files = source_files(source)
    assert files is None or all(isinstance(text, str) for text in files.texts.values())


def source_pages(data: bytes, thorough: bool) -> None:
    """Source pages as CSV or text: no instruction is in the table twice, and a view of it, or all, can be shown."""
    with written(data, "source.csv") as path:
        found = read_source_pages(Source(str(path)))
    if found is None or not len(found):
        return
    hold_table(found)
    places = list(zip(*(found[name].to_pylist() for name in ("launch_id", "offset")), strict=True))
    known = [place for place in places if place[1] is not None]
    assert len(set(known)) == len(known)
    code = kernel_code(found)
    for view in hot_places.VIEWS if thorough else [hot_places.VIEWS[len(data) % len(hot_places.VIEWS)]]:
        hot_places.hottest(code, view, "samples", 10)


def cubin(data: bytes, thorough: bool) -> None:
    """The debug lines of a cubin: lines are numbers, and files are texts or unknown."""
    debug = kernel_debug(data, cubins.KERNEL)
    assert all(isinstance(line, str) for line in ptx_text(data))
    assert all(size > 0 for size in file_sizes(data).values())
    for places in (debug.lines, debug.ptx_lines) if debug is not None else ():
        assert all(isinstance(one.line, int) and isinstance(one.file, (str, type(None))) for one in places.values())


def compiled_code(data: bytes, thorough: bool) -> None:
    """Compiled code: resources are counts or unknown, and code has a digest; PTX and prints name kernels."""
    reading = CodeReading()
    with written(data, "kernels.so") as path:
        found = list(kernels_in(path, reading))
    for one in found:
        resources = one.resources
        numbers = (resources.registers, resources.stack_bytes, resources.shared_bytes, resources.barriers)
        assert all(number is None or number >= 0 for number in (*numbers, resources.code_bytes))
        assert resources.spills is None or min(resources.spills.store_bytes, resources.spills.load_bytes) >= 0
        assert all(isinstance(text, str) for text in (resources.name, resources.architecture, resources.toolkit))
    assert all(isinstance(one.name, str) for _, one in reading.ptx)


CSV_WORDS = (
    '"ID"', '"Process ID"', '"Kernel Name"', '"Metric Name"', '"Metric Value"', '"Metric Unit"', '"Section Name"',
    '"Rule Name"', '"Minimum"', "gpu__time_duration.sum", "dram__bytes.sum", "launch__grid_size", "Kbyte", "usecond",
    '","', '""', "\n", "\r\n", ";", "\t", "==ERROR== ", "==PROF== ", "n/a", "nan", "1,234", "1.234,5", "1e308",
    "(1, 1, 1)", "99999999999999999999", "\ufeff", "Section: ", "----------", "  k (1, 1, 1)x(1, 1, 1), Context 1",
    "thread Domain:Push/Pop_Range", '"Device Attribute","Device 0"', "Time (%)", "Total Time (ns)", "Instances",
)  # fmt: skip
JSON_WORDS = (
    '"traceEvents"', '"ph"', '"X"', '"C"', '"GPU 0 Counters"', '"cat"', '"kernel"', '"cpu_op"', '"cuda_runtime"', '"user_annotation"', '"args"',
    '"correlation"', '"ts"', '"dur"', '"pid"', '"tid"', '"grid"', "ProfilerStep#", "NaN", "Infinity", "-1", "1e999", "1e200",
    "9223372036854775808", "null", "true", "[", "{", "]", "}", ",", ":", '"deviceProperties"', '"compute Major"',
)  # fmt: skip
ROCPROFV3_WORDS = (
    '"rocprofiler-sdk-tool"', '"buffer_records"', '"kernel_dispatch"', '"memory_copy"', '"hip_api"', '"marker_api"',
    '"start_timestamp"', '"end_timestamp"', '"correlation_id"', '"internal"', '"dispatch_info"', '"handle"', "null",
    "9223372036854775808", "-1", "1e999", "1e200", "NaN", "[", "{", "]", "}", ",", ":", '"agents"', '"kernel_symbols"',
)  # fmt: skip
OPERATOR_WORDS = (
    '{"ncu_bench_operators": 1', '"operator"', '"phase"', '"module"', '"iteration"', '"flops"', '"read"', '"ns"',
    '"estimate"', '"device_name"', "null", "true", "1e999", "1e200", "-1", "NaN", "[]", "{}", '"integer_operations"',
    "9223372036854775808",
)  # fmt: skip
SOURCE_WORDS = (
    '"Address"', '"Source"', '"Line No"', '"#"', '"Kernel Name"', '"Function Name"', '"File Path"', '"0x7f3a5e200000"',
    '"Instructions Executed"', '"Warp Stall Sampling (All Cycles)"', '"stall_wait"', '"LDG.E R4, [R2.64] "', "File Path: ",
    "Function Name: ", "------- ------- ----", '"@!P1  BRA 0x7f3a5e200070 "', '"1,5"', '"0x{12}"', '"-"', '""', "R255",
    "BRX R2 -0x10", "0xffffffffffffffffffff", "99999999999999999999",
)  # fmt: skip
TOML_WORDS = (
    "[[peak]]", "[[bandwidth]]", "[memory]", "unit = ", "value = ", "sparse = ", "inf", "nan", "[]", "{}", "true",
    '"fp64"', '"dram"', "schema = 1", "device_names = ", "1e300", "2026-11-21", "measured", "bytes = ", "mma_sync = ",
)  # fmt: skip
POINT_WORDS = (
    '"machine_info"', '"benchmarks"', '"stats"', '"mean"', '"rounds"', '"nvbench"', '"devices"', '"states"', '"summaries"',
    '"tag"', '"value"', "nv/cold/time/gpu/mean", '"is_skipped"', "1e999", "1e200", "NaN", "-1", "null", "[]", "{}", "true",
)  # fmt: skip
FORMULA_WORDS = (
    '["mylib::op"]', "arguments = ", "flops = ", "bytes = ", "contraction = true", "prod(x)", "bytes(x)", "len(x)", "x[0]",
    "x[-9]", "min(", "max(", " // ", " / ", "**", "1e308", "0", "lambda", "__import__", "9" * 400,
)  # fmt: skip
MANIFEST_WORDS = (
    '"tool_runs"', '"schema_version"', '"notes"', '"partial"', "null", "[]", "{}", "1e999", "1e200", '"command"', "true", "NaN",
)  # fmt: skip

WARP_WORDS = (
    '"launches"', '"graphLaunches"', '"ranges"', '"warpLocIdxs"', '"startTs"', '"endTs"', '"rangeNameIdx"', '"ctaId"',
    '"stringTable"', '"locationTable"', '"tid":"warp 0 (line 0)"', '"pid":"gemm Core0 CTA1"', '"cycles"', '"frame"',
)  # fmt: skip
TARGETS: dict[str, Target] = {
    "csv": Target(csv, seeds.csv_reports, CSV_WORDS, 4096),
    "fast-path": Target(fast_path, seeds.ncu_pages, CSV_WORDS, 4096),
    "operators": Target(operators, seeds.operator_files, OPERATOR_WORDS, 4096),
    "nsys-bytes": Target(nsys_bytes, seeds.databases, longest=1 << 17),
    "nsys-cells": Target(
        nsys_cells, lambda: [b"\x00\x00\x04\x00", b"\x01" + bytes(range(32)), b"\x02" + bytes(range(32))], longest=48
    ),
    "kineto": Target(kineto_events, seeds.traces, JSON_WORDS, 6000),
    "parquet-bytes": Target(parquet_bytes, seeds.parquet_files, longest=1 << 16),
    "parquet-schema": Target(parquet_schema, lambda: [b"\x00\x05\x01", b"\x01" + bytes(range(24))], longest=32),
    "bench": Target(bench, lambda: [b"\x05\x01", bytes(range(48))], longest=64),
    "machine": Target(machine, seeds.machine_files, TOML_WORDS, 4096),
    "manifest": Target(manifest, seeds.manifests, MANIFEST_WORDS, 4096),
    "ncu-rep": Target(ncu_rep, seeds.binary_reports, longest=4096),
    "points": Target(points, seeds.point_files, POINT_WORDS, 4096),
    "formulas": Target(formulas, seeds.formula_files, FORMULA_WORDS, 1024),
    "log": Target(log, seeds.logs, ("| ", "<!-- ncu-bench advise --log, version 1 -->", "| --- |", "\\|", "\n"), 2048),
    "source-pages": Target(source_pages, seeds.source_pages, SOURCE_WORDS, 4096),
    "cubin": Target(cubin, seeds.cubin_files, longest=4096),
    "rocprofv3": Target(rocprofv3, seeds.rocprofv3_files, ROCPROFV3_WORDS, 6000),
    "xplane": Target(xplane, seeds.xplanes, longest=2048),
    "pftrace": Target(pftrace, seeds.pftraces, longest=2048),
    "warp-ranges": Target(warp_ranges, seeds.warp_traces, WARP_WORDS, 1 << 14),
    "compiled-code": Target(
        compiled_code, seeds.binaries, (".entry ", ".maxntid ", "ptxas info : Used ", ".nv_fatbin"), 1 << 14
    ),
}


def any_parser(data: bytes, thorough: bool) -> None:
    """One of them all, which the first byte names."""
    if data:
        names = sorted(TARGETS)
        chosen = TARGETS[names[data[0] % len(names)]]
        chosen.run(data[1 : 1 + chosen.longest], thorough)


def _seeds_of_all() -> list[bytes]:
    return [bytes([at]) + seed for at, name in enumerate(sorted(TARGETS)) for seed in TARGETS[name].seeds()]


TOGETHER = Target(
    any_parser,
    _seeds_of_all,
    tuple({word for target in TARGETS.values() for word in target.words}),
    longest=1 + max(target.longest for target in TARGETS.values()),
)
"""All of them as one, so that a short campaign imports the parsers once."""
