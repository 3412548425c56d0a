"""Small inputs to begin with: the sample reports, cut to a few lines, and what other tests construct."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
from dataclasses import asdict
from functools import lru_cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from ncu_launch.files.manifest import Manifest, ToolRun
from ncu_launch.workload.record_format import FORMAT, FORMAT_VERSION
from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.detect.text_reader import read_report
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.parse.warp_trace_files import write_warp_trace
from ncu_parsers.schema.bench_table import COLUMNS as COLUMNS_OF_POINTS
from ncu_parsers.schema.bench_table import bench_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata
from ncu_parsers.sources.sources import Source

from ncu_tools.advice.history import HEAD, LoggedChange
from sample_reports import source_page
from sample_reports.generate import reports
from tests.conftest import SAMPLES
from tests.parsers.test_point_files import NVBENCH, OF_2021, PYTEST
from tests.parsers.timelines.test_gpu_counters import SM, sample
from tests.parsers.timelines.test_graph_edges import TestEdgesOfGraphs, edge
from tests.parsers.timelines.test_kineto import LIMITS, gpu, synthetic_gpu_events
from tests.parsers.timelines.test_nsys_csv import COPY_ROW, KERNEL_ROW, NAME, SUMMARY, TRACE
from tests.parsers.timelines.test_pftrace import MM
from tests.parsers.timelines.test_rocprofv3 import launched
from tests.parsers.timelines.test_xplane import step
from tests.support import cubins, warp_files
from tests.support.binary_reports import BEGINNING, Metric, block_of, field, nvtx_state, put_together, report_of
from tests.support.binary_reports import Kernel as ReportKernel
from tests.support.cubins import library_of_fatbin
from tests.support.other_timelines import XEvent, XLine, XPlane, dispatch, rocprof, rocprof_json, xspace
from tests.support.perfetto_traces import begin, clocks, counter, end, interned, said, stage, thread
from tests.support.timelines import (
    CALLS,
    KERNELS,
    NODES,
    RANGES,
    Row,
    call,
    database,
    domain,
    kernel,
    node_made,
    pushed,
    started,
)
from tests.support.warp_pipelines import drawn, simulated

LONGEST = 2000
LONGEST_CSV = 1750
LONGEST_WIDE = 6000
"""The header of a wide page alone is longer."""

SOME_COLUMNS = (
    "source", "report", "launch_id", "device_id", "kernel_name", "kernel_short", "grid", "nvtx_path", "failed",
    "duration_ns", "flops", "flops_basis", "dram_bytes", "rules", "lts__t_bytes.sum",
)  # fmt: skip
"""Columns of launches of every type; files of more take longer to read."""

SOME_OF_POINTS = (
    *(column.name for column in COLUMNS_OF_POINTS if column.null == "never"), "device", "batch_size", "latency_mean_ns",
    "samples_ns", "threads", "throughput", "notes",
)  # fmt: skip


COLUMNS = 19
"""Of wide pages: whose kernel, and metrics of each kind. More take longer, and are read alike."""
ROWS = 3
"""Of one launch: of metrics, and of rules. The next rows are read alike."""
LONG_NAME = (
    b"at::native::vectorized_elementwise_kernel<4, at::native::relu_kernel(at::TensorIteratorBase &)::[lambda(float) "
    b"(instance 1)], std::array<char *, 2>>(int, T2, T3)"
)
"""It would be most of the bytes of a seed, so that few changes would meet anything else."""


def narrowed(page: bytes) -> bytes:
    """A wide page with its first columns; other lines as they are."""
    rows = (line.split(b'","') for line in page.splitlines())
    return b"".join(b'","'.join(row[:COLUMNS]) + b'"' * (len(row) > COLUMNS) + b"\n" for row in rows)


def begun(data: bytes, longest: int = LONGEST) -> bytes:
    """The first lines of a text, as many as fit."""
    return data if len(data) <= longest else data[: data.rfind(b"\n", 0, longest) + 1]


def shortened(name: str, page: bytes) -> bytes:
    """The beginning of a sample: few columns, a shorter kernel, and few rows of each launch, so that it has several."""
    page = narrowed(page) if "wide" in name else page
    if "utf16" in name:
        return begun(page)
    lines = page.replace(LONG_NAME, b"relu<4, float>(int, T2)").splitlines(keepends=True)
    alike = (list(rows) for _, rows in groupby(lines, lambda line: (line[:4], b'"","","' in line)))  # metrics, or rules
    few = b"".join(row for rows in alike for row in rows[:ROWS])
    return begun(few if b'"ID"' in few else b"".join(lines), LONGEST_CSV if b'"ID"' in few else LONGEST)


@lru_cache(maxsize=1)
def csv_reports() -> list[bytes]:
    """Every dialect of ncu and nsys in text; some with noise, other encodings, compressed."""
    found = [shortened(name, data) for name, data in sorted(reports().items())]
    stats = [
        f'{SUMMARY}\n62.5,4000,4,1000.0,990.0,900,1100,None,"{NAME}"\n',
        f"** CUDA GPU Trace (cuda_gpu_trace):\n\n{TRACE}\n{KERNEL_ROW}\n{COPY_ROW}\n",
    ]
    long = shortened("long", reports()["d04-long-metrics.csv"])
    several = long + b"epoch 3: done\n" + reports()["d17-section-occupancy.csv"]
    return [*found, *(text.encode() for text in stats), several, gzip.compress(long), zstandard.compress(long)]


@lru_cache(maxsize=1)
def ncu_pages() -> list[bytes]:
    """Long and wide pages, which the fast path takes."""
    names = [name for name in sorted(reports()) if any(word in name for word in ("long", "wide", "d08", "d13", "d21"))]
    return [shortened(name, reports()[name]) for name in names]


def operator_files() -> list[bytes]:
    """Files of the embedded collector: measured on a CPU, and an estimate."""
    record = {
        "operator": "aten.mm.default", "phase": "forward", "module": "net.fc", "iteration": 0, "shapes": "[[2, 3]]",
        "dtype": "float32", "flops": 48, "contraction_flops": 32, "unit": "fp32", "read": 96, "written": 32, "ns": 1250,
    }  # fmt: skip
    integers = {**record, "dtype": "int8", "flops": 0, "integer_operations": 48, "phase": None, "module": None}
    headers = [
        {FORMAT: FORMAT_VERSION, "device": "cpu", "device_name": "x86"},
        {FORMAT: FORMAT_VERSION, "device": "cuda", "device_name": None, "estimate": True},
    ]
    return [
        "".join(json.dumps(line) + "\n" for line in (header, record, integers, {**record, "ns": None})).encode()
        for header in headers
    ]


def traces() -> list[bytes]:
    """Traces of a GPU and of a CPU, whole and bare."""
    events = synthetic_gpu_events()
    device = {"id": 0, "name": "NVIDIA A100", "computeMajor": 8, "computeMinor": 0, "warpSize": 32}
    header = {"schemaVersion": 1, "deviceProperties": [device], "distributedInfo": {"rank": 1}}
    newer = [*TestEdgesOfGraphs.NODES, *edge(0, (7, 15.0), (8, 15.25)), sample(SM, 9, 50.0), sample("Power (W)", 9, 3)]
    limited = gpu("kernel", "k", 3000, 5, 1, occupancy=LIMITS, priority=-2, channel=9)
    contents: list[object] = [
        {**header, "traceEvents": events},
        {**header, "traceEvents": [*newer, limited]},
        {"traceEvents": [event for event in events if event.get("cat") == "cpu_op"], **header},
        events[:6],
    ]
    return [json.dumps(content).encode() for content in contents]


def rocprofv3_files() -> list[bytes]:
    """Recordings of one process and of two, with calls, ranges and copies."""
    made = launched()
    two = rocprof([dispatch(0, 9, 0)]), rocprof([dispatch(0, 9, 1)], process=9)
    return [rocprof_json(made, indent=None), rocprof_json(*two, indent=None)]


def warp_traces() -> list[bytes]:
    """A kernel of two blocks from inside, in every format that is read."""
    trace = simulated(drawn(1, 2, 3, 1, depth=1, sms=2)).trace()
    words = [warp_files.buffer(trace, layout=one) for one in ("wide", "sm", "mirage", "triton-dist")]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ranges.parquet"
        write_warp_trace(path, trace, "a")
        parquet = path.read_bytes()
    return [
        warp_files.iket(trace), warp_files.iket(trace, tables=False), warp_files.proton(trace), warp_files.tree(trace),
        *words, warp_files.saved_by_numpy(words[0]), warp_files.saved_by_torch(words[0]), parquet,
    ]  # fmt: skip


def xplanes() -> list[bytes]:
    """A step on a GPU, and a TPU."""
    return [xspace(*step()), xspace(XPlane("/device:TPU:0", [XLine("XLA Ops", [XEvent("f", 0, 9)])]))]


def pftraces() -> list[bytes]:
    """A step with a graph's edge, samples and an operator."""
    head = interned(names=["aten::mm", "launch"], categories=["cpu_op", "cuda_runtime"], kernels=["k"],
                    counters=["SM Active (%)"])  # fmt: skip
    host = [thread(5, 9, 90), begin(1, 5, 1, 1, *MM), begin(2, 5, 2, 2, said("correlation", 8)), end(9, 5), end(3, 5)]
    work = [stage(10, 5, 1, kernel=1, correlation=8, grid=(1, 1, 1)), stage(15, 5, 2, "HostNode", waits=[1]),
            stage(20, 5, 3, "Memset", waits=[2], bytes=4)]  # fmt: skip
    return [b"".join([clocks(0, 1), head, *host, *work, counter(9, 0, 1.5)])]


def timeline_tables() -> dict[str, list[Row]]:
    """A timeline with every table that is read."""
    numbers = {"computeMajor": 8, "computeMinor": 0}
    return {
        KERNELS: [
            kernel(100, 1, graphNodeId=None), kernel(200, 2, name=2), kernel(300, 3, graphNodeId=12), kernel(400, 9)
        ],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [
            {"start": 500, "end": 510, "deviceId": 0, "correlationId": 4, "bytes": 64, "copyKind": 1}
        ],
        "CUPTI_ACTIVITY_KIND_MEMSET": [{"start": 600, "end": 610, "deviceId": 0, "correlationId": 5, "bytes": 64}],
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [{"start": 700, "end": 710, "deviceId": 0, "correlationId": 6, "graphId": 3}],
        CALLS: [call(number * 100 - 50, number) for number in range(1, 7)],
        RANGES: [
            domain("ncu_bench", 1), pushed("outer", 10, 650), pushed("forward", 40, 250, domain=1), pushed(2, 45, None),
            started("iteration 3", 5, 690, domain=1),
        ],
        NODES: [node_made(11, 60), node_made(12, 70, copy_of=11)],
        "TARGET_INFO_GPU": [{"id": 0, "cuDevice": 0, "name": "NVIDIA A100", "chipName": "GA100", **numbers}],
        "TARGET_INFO_CUDA_DEVICE": [{"pid": 7, "cudaId": 0, "gpuId": 0}],
        "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.1.0"}],
        "ENUM_CUDA_MEMCPY_OPER": [{"id": 1, "label": "Host-to-Device"}],
        "ENUM_NSYS_EVENT_TYPE": [{"id": 59, "name": "NvtxPushPopRange"}],
    }  # fmt: skip


def work_tables() -> dict[str, list[Row]]:
    """What the GPU did, without the calls and ranges around it: a timeline of half as many tables."""
    behind = (CALLS, RANGES, NODES, "TARGET_INFO_CUDA_DEVICE", "ENUM_NSYS_EVENT_TYPE")
    return {name: rows for name, rows in timeline_tables().items() if name not in behind}


def range_tables() -> dict[str, list[Row]]:
    """Kernels with the calls and ranges around them."""
    whole = timeline_tables()
    return {name: whole[name] for name in (KERNELS, CALLS, RANGES, NODES, "META_DATA_EXPORT")}


def databases() -> list[bytes]:
    """Exports of nsys as files."""
    whole = timeline_tables()
    few = {KERNELS: [kernel(100, 1)], CALLS: [call(50, 1)], RANGES: [pushed("outer", 10, 650)]}
    with TemporaryDirectory() as folder:
        paths = [database(Path(folder) / str(number), tables) for number, tables in enumerate((whole, few))]
        return [_in_small_pages(path).read_bytes() for path in paths]


def _in_small_pages(path: Path) -> Path:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")
    connection.close()
    return path


def _launches() -> pa.Table:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.csv"
        path.write_bytes(begun(reports()["d01-wide-raw.csv"], LONGEST_WIDE))
        table = launches_table(read_report(Source(str(path))))
    account = {"report": "report.csv", "lines": {"metric row": 2}, "notes": ["a note"]}
    whole = {"schema_version": SCHEMA_VERSION, "reports": [account], "notes": ["one"]}
    return with_metadata(table.select(SOME_COLUMNS).slice(0, 2), whole)


@lru_cache(maxsize=1)
def launch_table() -> pa.Table:
    """Some launches with all kinds of columns of the contract."""
    return _launches()


@lru_cache(maxsize=1)
def plain_launch_table() -> pa.Table:
    """These launches without lists and without a second column of a type: half the columns of a file, half the time."""
    return launch_table().drop_columns(["report", "kernel_short", "flops_basis", "grid", "nvtx_path", "rules"])


@lru_cache(maxsize=1)
def point_table() -> pa.Table:
    """Measured points of a sweep."""
    row = {
        "point": "gemm:64 fp32", "target": "gemm:64", "device": "cpu", "dtype": "fp32", "autocast": False,
        "mode": "eager", "channels_last": False, "phase": "forward", "batch_size": 1, "outcome": "ok",
        "latency_mean_ns": 1e6, "latency_low_ns": 9e5, "latency_high_ns": 1.1e6, "iterations": 3,
        "samples_ns": [9e5, 1e6, 1.1e6], "throughput": 1e3, "throughput_unit": "sample/s", "started": "2026-11-21",
        "seconds": 2.5, "log": "logs/1.txt", "notes": [], "expected_flops": 524288.0,
    }  # fmt: skip
    failed = {**row, "point": "gemm:128 fp32", "outcome": "failed", "reason": "it failed", "latency_mean_ns": None}
    table = bench_table([row, failed], asked=["bench"])
    return table.select(SOME_OF_POINTS)


@lru_cache(maxsize=1)
def point_rows() -> list[dict[str, Any]]:
    """The rows of `point_table`."""
    rows: list[dict[str, Any]] = point_table().to_pylist()
    return rows


def parquet_files() -> list[bytes]:
    """Launches and points as Parquet files, and a file of somebody else's."""
    found = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "launches.parquet"
        for table in (launch_table(), point_table()):
            write_table(table, path)
            found.append(path.read_bytes())
    plain = io.BytesIO()
    pq.write_table(pa.table({"x": [1, 2]}), plain)
    return [*found, plain.getvalue()]


def machine_files() -> list[bytes]:
    """Machine files of the project."""
    folder = files("ncu_tools") / "ceilings" / "machines"
    return [(folder / f"{name}.toml").read_bytes() for name in ("a100-pcie-40gb", "h100-sxm", "apple-m1")]


def manifests() -> list[bytes]:
    """Manifests of runs."""
    run = ToolRun(["ncu", "app"], 0, 1.5, report="0.ncu-rep", passes=3)
    full = Manifest(
        ["resnet18"], "ncu", "2026-11-21T08:00:00+00:00", {"target": "resnet18"}, {"parameters": 1}, ["flops"], [run],
        {"ncu": "2026.3"}, [{"name": "A100"}], "GA100", "one run", {"flops": 1.0}, {"rank": 0}, [{"rank": 0}], "base",
        "all", "kernel", True, ["a note"],
    )  # fmt: skip
    return [json.dumps(asdict(one), indent=1).encode() for one in (full, Manifest(["app"], "nsys", "2026"))]


def point_files() -> list[bytes]:
    """Files of pytest-benchmark and of NVBench."""
    return [json.dumps(content).encode() for content in (PYTEST, NVBENCH, OF_2021)]


def formula_files() -> list[bytes]:
    """Formulas with everything that an expression may hold."""
    whole = """["mylib::op"]
arguments = ["x", "w", "n"]
flops = "2 * prod(x) * w[0] + min(n, len(x), 3) - -1"
bytes = "bytes(x) / x[-1] + max(bytes(w), 1.5) // 2"
contraction = true
"""
    return [whole.encode(), b'["a::b"]\nflops = "1"\n']


def logs() -> list[bytes]:
    """Histories of changes: an empty one, one with a change, and one with a damaged line."""
    head = ("\n".join(HEAD) + "\n").encode()
    change = LoggedChange("2026", "a", "b", "k", "coalesce", "12 %", "11 %", "next").line.encode() + b"\n"
    return [head, head + change, head + change[:20] + b"\n" + change]


def binary_reports() -> list[bytes]:
    """Binary reports of ncu: texts and numbers, opcodes, samples, NVTX, rules, several processes and blocks."""
    metrics: dict[str, Metric | str | float] = {
        "gpu__time_duration.sum": 1280.0, "launch__device_id": 0, "device__attribute_display_name": "NVIDIA A100",
        "launch__grid_dim_x": 16, "launch__grid_dim_y": 2, "launch__grid_dim_z": 1, "breakdown:x": "a,b",
        "sass__inst_executed_per_opcode": (5, {"FADD": 3, "FFMA": 2.0}), "inst_executed": (7, {2**40: 3, 2**40 + 16: 4}),
        "pmsampling:sm__cycles_active.avg": (None, {2**60: 0.5}), "dram__bytes.sum.per_second": 2.5e9,
        "thread_inst_executed_true": (70, {2**40: 64, 2**40 + 16: 6}), "launch__function_pcs": (1, {0: 2**40}),
        "profiler__timestamp_workload_start_0": (None, {2**60 - 9: 0}), "profiler__pmsampler_dropped_samples": (1, {0: 1}),
        "profiler__timestamp_workload_end_0": (None, {2**60 + 9: 0}),
    }  # fmt: skip
    speedup = field(10, field(1, 1) + b"\x11" + bytes(8))
    message = field(1, field(1, b"see @section:X:The X@") + field(2, 4))
    rule = field(19, field(1, b"Rule") + field(3, field(1, message + speedup)) + field(4, b"SpeedOfLight"))
    nvtx = field(21, nvtx_state(["iteration 1"], {"<default domain>": ["outer"], "ncu_bench": ["forward"]}))
    source = field(1, 9) + field(4, b"\x7fELF") + field(6, 80)
    names = list(metrics)
    blocks = [
        block_of([ReportKernel(metrics=metrics, more=rule)], names, sources=[source]),
        block_of([ReportKernel("wait", {"inst_executed": 3}, nvtx), ReportKernel("wait")], [], process=3),
    ]
    small = report_of([ReportKernel(metrics={"gpu__time_duration.sum": 5})])
    return [put_together(BEGINNING, blocks), small, small[:-9], zstandard.compress(small), BEGINNING + b"\x03"]


COLUMNS_OF_SOURCE = frozenset({
    "Line No", "Source", "Address", "Warp Stall Sampling (All Cycles)", "Warp Stall Sampling (Not-issued Cycles)",
    "Instructions Executed", "Avg. Threads Executed", "Address Space", "Access Operation", "Access Size",
    "L2 Theoretical Sectors Global", "L1 Wavefronts Shared", "L1 Wavefronts Shared Ideal", "stall_long_sb", "stall_wait",
    "stall_wait (Not Issued)", "smsp__pcsamp_sample_count",
})  # fmt: skip
"""Titles of every kind of column: the other stalls and counts are read as these are."""
LINES_OF_SOURCE = ("9", "14")
TEXTS_OF_SOURCE = (
    "      MOV R1, c[0x0][0x28] ", "      LDG.E R4, [R2.64] ", "      FMNMX R6, R4, R6, !PT ", "@!P1  BRA 0x7f3a5e200070 ",
)  # fmt: skip
"""A load, what waits for it, and a branch back, below their lines."""


def source_pages() -> list[bytes]:
    """Source pages: of lines and instructions, of instructions alone, of lines alone, and as text."""
    named, rows = list(source_page.source_rows())[:2], list(source_page.source_rows())[2:]
    kept = [at for at, title in enumerate(rows[0]) if title in COLUMNS_OF_SOURCE]
    titles, *rows = [[row[at] for at in kept] for row in rows]
    head, lines = [*named, titles], [row for row in rows if row[0] in LINES_OF_SOURCE or row[3] in TEXTS_OF_SOURCE]
    instructions = [row[2:] for row in (titles, *lines) if row[2] != "-"]
    alone = [["Kernel Name", source_page.KERNEL], *instructions]
    text = "  File Path: a.cu\nFunction Name: k\n# Address Source Samples\n- ------- ------ -------\n"
    wrapped = "1 0x10    FADD R1,       7\n                R2, R3       \n"
    of_lines = [[*row[:2], *row[4:]] for row in (titles, *lines)]
    pages = [[*head, *lines], alone, [*named, *of_lines], [*alone, *alone]]
    return [*map(_quoted, pages), (text.strip() + "\n" + wrapped).encode()]


def _quoted(rows: list[list[str]]) -> bytes:
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL).writerows(rows)
    return written.getvalue().encode()[:LONGEST_WIDE]


@lru_cache(maxsize=1)
def binaries() -> list[bytes]:
    """Some of our compiled kernels: as cubins, one of a spilling kernel, compressed, inside a library, as PTX and prints."""
    folder = SAMPLES / "binaries"
    whole = (folder / "kernels.sm_80.cubin").read_bytes()
    cubin, spilling = cubins.only(whole, ("reversed", "table")), cubins.only(whole, ("crowded",))
    texts = [begun((folder / name).read_bytes()) for name in ("kernels.ptx", "ptxas.printed", "cuobjdump.printed")]
    packed = [cubins.fatbin_of(cubin, codec=codec) for codec in ("lz4_raw", "zstd", "")]
    return [cubin, spilling, library_of_fatbin(packed[0]), *packed, *texts]


def cubin_files() -> list[bytes]:
    """Cubins with lines, with a function of the device inside, and without lines."""
    made = [cubins.cubin_of([(0, 9), (16, 10), (128, 300)], "sinf"), cubins.cubin_of([(0, 7)]), cubins.cubin_of([])]
    return [*made, cubins.cubin_of_nvcc(cubins.KERNEL)]
