"""Traces of the PyTorch profiler: real CPU traces recorded here, and synthetic GPU traces.

Synthetic traces have the fields that libkineto writes; no GPU was involved.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.launches.host_ranges import DEEPEST
from ncu_parsers.parse.parse import parse
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Report
from ncu_parsers.schema.tables import field_entries
from ncu_parsers.sources.settings import NOT_SET, Settings
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.kineto import chrome_trace

from ncu_tools.advice.advise import rows_of
from ncu_tools.advice.without_counters import without_counters
from tests.support.installed import WITHOUT_TORCH
from tests.support.traces import events_in, read_report

A100 = {"id": 0, "name": "NVIDIA A100-SXM4-40GB", "computeMajor": 8, "computeMinor": 0, "warpSize": 32, "numSms": 108}
GEMM = "void gemm<128, float>(float const*, float*)"
MAIN, AUTOGRAD = 100, 101


def inputs(dims: list[list[int]], *types: str) -> dict[str, Any]:
    return {"Input Dims": dims, "Input type": list(types)}


def host(category: str, name: str, start: float, duration: float, thread: int = MAIN, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": thread, "ts": start, "dur": duration,
            "args": args}  # fmt: skip


def call(correlation: int, start: float, thread: int = MAIN) -> dict[str, Any]:
    return host("cuda_runtime", "cudaLaunchKernel", start, 1, thread, correlation=correlation, cbid=211)


def gpu(category: str, name: str, start: float, duration: float, correlation: int, **args: Any) -> dict[str, Any]:
    args = {"device": 0, "context": 1, "stream": 7, "correlation": correlation, **args}
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": start, "dur": duration, "args": args}


def synthetic_gpu_events() -> list[dict[str, Any]]:
    """A step with a matrix product, its backward pass on an autograd thread, an update, and a copy."""
    return [
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts": 0, "args": {"name": "python"}},
        host("user_annotation", "ProfilerStep#3", 1000, 900),
        host("user_annotation", "my range", 1010, 200),
        host("python_function", "nn.Module: Linear_0", 1015, 190),
        host("python_function", "train.py(3): step", 1011, 195),
        host("cpu_op", "aten::linear", 1020, 100, **inputs([[2, 3]], "float")),
        host("cpu_op", "aten::mm", 1030, 50, **inputs([[2, 3], [3, 4]], "float", "float")),
        call(41, 1040.5),
        gpu("kernel", GEMM, 1100.25, 12.345, 41, grid=[32, 2, 1], block=[128, 1, 1],
            **{"registers per thread": 40, "shared memory": 400, "est. achieved occupancy %": 75}),
        host("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 1300, 100, AUTOGRAD),
        host("cpu_op", "aten::mm", 1310, 50, AUTOGRAD, **inputs([[4, 2]])),
        call(42, 1320, AUTOGRAD),
        gpu("kernel", GEMM, 1400, 20, 42, grid=[16, 2, 1], block=[128, 1, 1]),
        host("user_annotation", "Optimizer.step#SGD.step", 1500, 100),
        call(43, 1550),
        gpu("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1600, 4, 43, bytes=4096),
        gpu("kernel", "lone", 2000, 1, 99),
    ]  # fmt: skip


def read(folder: Path, content: object, name: str = "trace.json", settings: Settings = NOT_SET) -> Report:
    path = folder / name
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return read_report(Source(str(path), settings=settings))


def rows(report: Report) -> list[dict[str, Any]]:
    assert report.table is not None
    found: list[dict[str, Any]] = report.table.to_pylist()
    return found


@pytest.fixture
def synthetic(tmp_path: Path) -> Report:
    return read(tmp_path, {"schemaVersion": 1, "deviceProperties": [A100], "traceEvents": synthetic_gpu_events()})


def test_a_note_says_that_operations_overlap(tmp_path: Path) -> None:
    first, second = gpu("kernel", "a", 1000, 500, 1), gpu("kernel", "b", 1100, 400, 2, stream=8)
    said = "operations overlap: their times add up to 0.9 ms, in which the GPUs were busy for 0.5 ms"
    assert said in read(tmp_path, [first, second]).notes


LIMITS = {
    "activeBlocksPerMultiprocessor": 2, "limitingFactors": "REGS|SMEM", "blockLimitRegs": 2, "blockLimitSharedMem": 2,
    "blockLimitWarps": 16, "blockLimitBlocks": 32, "blockLimitBarriers": 2**31 - 1, "allocatedRegistersPerBlock": 32768,
    "allocatedSharedMemPerBlock": 102400,
}  # fmt: skip
"""What libkineto says of occupancy since 2026; the greatest int is that of a resource that the kernel does not use."""


class TestLimitsOfOccupancy:
    """What a kernel says since 2026 of the blocks that fit on an SM, of its stream's priority and of its channel."""

    def test_are_columns_and_what_limits_nothing_is_null(self, tmp_path: Path) -> None:
        limited = gpu("kernel", "k", 1000, 5, 1, occupancy=LIMITS, priority=-2, channel=9)
        first, second = rows(read(tmp_path, [limited, gpu("kernel", "k", 2000, 5, 2)]))
        assert (first["blocks_per_sm"], first["block_limit_registers"], first["block_limit_warps"]) == (2, 2, 16)
        assert (first["priority"], first["channel"], first["block_limit_blocks"]) == (-2, 9, 32)
        assert first["occupancy_limited_by"] == "registers, shared memory"
        assert (first["allocated_registers_per_block"], first["allocated_shared_memory_per_block"]) == (32768, 102400)
        assert "block_limit_barriers" not in first
        assert (second["priority"], second["occupancy_limited_by"], second["blocks_per_sm"]) == (None, None, None)

    @pytest.mark.parametrize("odd", [{"occupancy": "N/A"}, {"occupancy": {"blockLimitRegs": -1}}, {"priority": "high"}])
    def test_are_left_out_where_they_are_something_else(self, tmp_path: Path, odd: dict[str, Any]) -> None:
        (row,) = rows(read(tmp_path, [gpu("kernel", "k", 1000, 5, 1, channel=3, **odd)]))
        assert (row["channel"], row.get("priority"), row.get("block_limit_registers")) == (3, None, None)

    def test_are_evidence_of_advice_without_any_counter(self, tmp_path: Path) -> None:
        report = read(tmp_path, [gpu("kernel", "k", 1000, 5, 1, occupancy=LIMITS)])
        advice = without_counters(report.table)
        (row,) = rows_of(advice)
        assert [(one["quantity"], one["value"], list(one["metrics"])) for one in row["evidence"]] == [
            ("blocks that registers allow on an SM", 2, ["block_limit_registers"]),
            ("blocks that shared memory allows on an SM", 2, ["block_limit_shared_memory"]),
        ]
        assert {one["provenance"] for one in row["evidence"]} == {"recorded"}
        assert "blocks that shared memory allows on an SM 2 (recorded)" in row["says"]


def test_a_record_that_cannot_be_right_is_cut_and_named(tmp_path: Path) -> None:
    events = [
        gpu("kernel", name, 100 * at, lasts, at) for at, (name, lasts) in enumerate([("a", 9), ("b", 9e6), ("c", 9)])
    ]
    report = read(tmp_path, events)
    assert [row["duration_ns"] for row in rows(report)] == [9_000, 100_000, 9_000]
    assert report.notes[0].startswith("the record of b is impossible: it lasts 9,000.0 ms")


def test_a_kernel_has_its_time_shape_and_device(synthetic: Report) -> None:
    kernel = rows(synthetic)[0]
    assert kernel["duration_ns"] == pytest.approx(12345)
    assert (kernel["start_ns"], kernel["launch_id"], kernel["process_id"]) == (1100250, 41, 7)
    assert (kernel["grid"], kernel["block"], kernel["stream"]) == ([32, 2, 1], [128, 1, 1], "7")
    assert (kernel["device_name"], kernel["compute_capability"]) == ("NVIDIA A100-SXM4-40GB", "8.0")
    assert (kernel["source"], kernel["kernel_short"], kernel["operation"]) == ("kineto", "gemm", "kernel")
    assert (kernel["registers_per_thread"], kernel["shared_memory_bytes"]) == (40, 400)
    assert kernel["estimated_occupancy_percent"] == 75
    assert (kernel["flops"], kernel["flops_basis"]) == (2 * 2 * 3 * 4, "shapes")


def test_durations_are_whole_nanoseconds_as_the_trace_prints_them(tmp_path: Path) -> None:
    events = [gpu("kernel", GEMM, 1, duration, number) for number, duration in enumerate((1.001, 30.912, 1.003))]
    assert [row["duration_ns"] for row in rows(read(tmp_path, {"traceEvents": events}))] == [1001, 30912, 1003]


def test_a_kernel_gets_the_innermost_operator_and_ranges_of_the_launching_thread(
    synthetic: Report,
) -> None:
    forward, backward, copy, lone = rows(synthetic)
    assert (forward["operator"], forward["shapes"], forward["dtype"]) == (
        "aten::mm", "[[2,3],[3,4]]", '["float","float"]',
    )  # fmt: skip
    assert forward["nvtx_path"] == ["ProfilerStep#3", "my range"]
    assert (forward["phase"], forward["module"], forward["iteration"]) == ("forward", "Linear_0", 3)
    assert (backward["operator"], backward["nvtx_path"], backward["phase"]) == ("aten::mm", [], "backward")
    assert backward["iteration"] == 3  # a step holds for every thread
    assert (copy["phase"], copy["bytes"], copy["operation"], copy["operator"]) == ("optimizer", 4096, "memcpy", None)
    assert (lone["nvtx_path"], lone["operator"], lone["iteration"]) == (None, None, None)


def test_kernels_without_a_launching_call_are_noted_and_other_events_counted(synthetic: Report) -> None:
    assert any(note.startswith("1 of 4 rows have no launching call") for note in synthetic.notes)
    assert synthetic.lines == {"metric row": 4, "range or call of the host": 12, "event of another kind": 1}
    assert synthetic.lines.total() == len(synthetic_gpu_events())


def test_extra_columns_have_their_units(synthetic: Report) -> None:
    assert synthetic.table is not None
    units = {name: field_entries(synthetic.table.schema.field(name)).get("unit") for name in ("start_ns", "bytes")}
    assert units == {"start_ns": "ns", "bytes": "byte"}


@pytest.mark.parametrize("name", ["trace.json", "t.pt.trace.json.gz", "unknown.bin"])
def test_a_trace_is_recognised_by_its_content_also_as_a_bare_list(tmp_path: Path, name: str) -> None:
    read(tmp_path, synthetic_gpu_events(), name)
    parsed = parse([Source(str(tmp_path / name))])
    assert parsed.table is not None
    assert parsed.reports[0].dialects == ["kineto"]
    assert len(parsed.table) == 4


def test_json_files_in_a_folder_are_read_only_if_they_are_traces(tmp_path: Path) -> None:
    read(tmp_path, {"traceEvents": synthetic_gpu_events()})
    (tmp_path / "manifest.json").write_text('{"schema_version": 1}')
    assert [Path(source.path).name for source in find_sources([str(tmp_path)])] == ["trace.json"]


def test_category_names_of_old_traces_are_recognised(tmp_path: Path) -> None:
    old = {"kernel": "Kernel", "gpu_memcpy": "Memcpy", "cpu_op": "Operator", "cuda_runtime": "Runtime"}
    events = [{**event, "cat": old.get(event.get("cat", ""), event.get("cat"))} for event in synthetic_gpu_events()]
    assert rows(read(tmp_path, events))[0]["operator"] == "aten::mm"


def test_an_amd_device_has_no_compute_capability(tmp_path: Path) -> None:
    device = {**A100, "name": "AMD Instinct MI250X", "computeMajor": 9, "warpSize": 64}
    report = read(tmp_path, {"deviceProperties": [device], "traceEvents": synthetic_gpu_events()})
    assert (rows(report)[0]["device_name"], rows(report)[0]["compute_capability"]) == ("AMD Instinct MI250X", None)


def test_the_rank_of_a_distributed_run_is_kept(tmp_path: Path) -> None:
    report = read(tmp_path, {"traceEvents": synthetic_gpu_events(), "distributedInfo": {"rank": 5}})
    assert {row["rank"] for row in rows(report)} == {5}


# ------------------------------------------------------------------------------------------------ traces of the CPU


@pytest.fixture(scope="module")
def cpu_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step of a small model, recorded by PyTorch's own profiler."""
    torch = pytest.importorskip("torch", reason=WITHOUT_TORCH)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU())
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, with_stack=True, with_modules=True
    ) as profiler:
        with torch.profiler.record_function("my forward"):
            result = model(torch.ones(4, 8))
        result.sum().backward()
    path = tmp_path_factory.mktemp("traces") / "cpu.pt.trace.json.gz"
    profiler.export_chrome_trace(str(path))
    return path


@pytest.mark.slow
def test_operators_are_the_rows_of_a_trace_of_the_cpu(cpu_trace: Path) -> None:
    report = read_report(Source(str(cpu_trace)))
    found = rows(report)
    addmm = next(row for row in found if row["kernel_name"] == "aten::addmm")
    assert (addmm["operation"], addmm["kernel_short"]) == ("cpu_op", "addmm")
    assert (addmm["nvtx_path"], addmm["phase"]) == (["my forward"], "forward")
    assert addmm["module"].endswith("Linear_0")
    assert addmm["shapes"].startswith("[[16],[4,8],[8,16]")
    assert any(row["phase"] == "backward" and row["kernel_name"] == "aten::mm" for row in found)
    assert any("no GPU work" in note for note in report.notes)


def test_times_of_operators_add_up_to_those_of_the_outermost_ones(cpu_trace: Path) -> None:
    with gzip.open(cpu_trace) as stream:
        events = [event for event in json.load(stream)["traceEvents"] if event.get("cat") == "cpu_op"]
    spans = [(event["tid"], event["ts"], event["ts"] + event["dur"]) for event in events]
    outermost = sum(
        end - start
        for thread, start, end in spans
        if not any(one == thread and left <= start and end <= right and (left, right) != (start, end)
                   for one, left, right in spans)
    )  # fmt: skip
    found = rows(read_report(Source(str(cpu_trace))))
    assert sum(row["duration_ns"] for row in found) == pytest.approx(1000 * outermost, rel=1e-4)
    assert sum(row["whole_duration_ns"] for row in found) == pytest.approx(1000 * sum(e["dur"] for e in events))


# ------------------------------------------------------------------------------------------------- what is not sound


def test_broken_events_are_counted_and_the_others_read(tmp_path: Path) -> None:
    broken = [
        gpu("kernel", "no time", 1, 1, 1) | {"dur": None},
        gpu("kernel", "nan", float("nan"), 1, 1),
        gpu("kernel", "negative", 1, -1, 1),
        gpu("kernel", "huge", 10**400, 1, 1),
        gpu("kernel", "no name", 1, 1, 1) | {"name": 3},
        host("cpu_op", "no thread", 1, 1) | {"tid": []},
        17,
    ]
    report = read(tmp_path, [*broken, *synthetic_gpu_events()])
    assert report.rows == 4
    assert report.lines["broken row"] == len(broken)
    assert "7 events could not be read and were left out" in report.notes


def test_rows_whose_times_the_profiler_lost_are_left_out_and_counted(tmp_path: Path) -> None:
    report = read(tmp_path, [gpu("kernel", "lost", 0, 0, 7), *synthetic_gpu_events()])
    assert "lost" not in {row["kernel_name"] for row in rows(report)}
    assert any(note.startswith("1 GPU operation was recorded without times") for note in report.notes)


def test_gpu_work_that_could_not_be_read_is_not_said_to_be_none(tmp_path: Path) -> None:
    report = read(tmp_path, [gpu("kernel", "lost", 0, 0, 7), host("cpu_op", "aten::mul", 1, 1)])
    assert report.notes[0].startswith("the trace holds no GPU work that could be read: rows are operators")


def test_a_kernel_that_a_call_of_xpu_launched_has_its_operator_and_flops(tmp_path: Path) -> None:
    inputs: dict[str, Any] = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
    mm = host("cpu_op", "aten::mm", 0, 10, **inputs)
    launched = {**call(1, 1), "cat": "xpu_runtime", "name": "launch"}
    (row,) = rows(read(tmp_path, [mm, launched, gpu("kernel", "gemm", 20, 5, 1)]))
    assert (row["operator"], row["flops"]) == ("aten::mm", 2 * 64**3)


def test_fields_of_the_wrong_type_are_null(tmp_path: Path) -> None:
    event = gpu("kernel", "odd", 1, 1, 1, grid="big", block=[1, 2], device="zero", context=-1, bytes=2**70, stream=[])
    (row,) = rows(read(tmp_path, [event]))
    assert [row[name] for name in ("grid", "block", "device_id", "context", "stream")] == [None] * 5
    assert "bytes" not in row  # a column without any value is left out


def test_an_event_with_invalid_json_is_skipped_alone(tmp_path: Path) -> None:
    events = [json.dumps(event) for event in synthetic_gpu_events()]
    events.insert(3, r'{"ph": "X", "cat": "python_function", "name": "C:\user\x", "pid": 7}')
    events.insert(5, '{"ph": "X", "args": ' + "[" * 100_000 + "}")
    report = read(tmp_path, '{"schemaVersion": 1, "traceEvents": [\n' + ",\n".join(events) + "]}")
    assert report.rows == 4
    assert report.lines["broken row"] == 2


@pytest.mark.parametrize("missing", [1, 3, 40, 400])
def test_a_truncated_file_is_read_up_to_its_end(tmp_path: Path, missing: int) -> None:
    whole = json.dumps({"schemaVersion": 1, "traceEvents": synthetic_gpu_events()})
    report = read(tmp_path, whole[:-missing])
    assert 2 <= report.rows <= 4
    assert any("ends early" in note for note in report.notes) == (missing > 2)


def test_a_damaged_gzip_file_is_read_up_to_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "cut.json.gz"
    many = [gpu("kernel", f"kernel{number}", number, 1, number) for number in range(5000)]
    path.write_bytes(gzip.compress(json.dumps(many).encode())[:-2000])
    report = read_report(Source(str(path)))
    assert 0 < report.rows < 5000
    assert any("ends early" in note for note in report.notes)


def test_events_across_the_blocks_of_a_large_file_are_whole(tmp_path: Path) -> None:
    many = [gpu("kernel", f"kernel{number}" + "x" * 300, number, 1, number) for number in range(10_000)]
    found = rows(read(tmp_path, {"traceEvents": many, "INFO": "y" * 3_000_000}))
    assert [row["launch_id"] for row in found] == list(range(10_000))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"traceEvents": [{"ph": "X", "cat": "tensorflow", "ts": 1, "dur": 1, "name": "x"}]}, "none of its 1 events"),
        ({"traceEvents": [host("user_annotation", "alone", 1, 1)]}, "neither GPU work nor operators"),
        ({"schema_version": 1}, "JSON without the events of a trace"),
        ({"traceEvents": 5}, "none of its 0 events"),
        ("", "JSON without the events of a trace"),
    ],
)
def test_json_that_is_no_pytorch_trace_is_refused_with_the_reason(tmp_path: Path, content: object, words: str) -> None:
    with pytest.raises(NotAReport, match=words):
        read(tmp_path, content)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_EVENT = st.fixed_dictionaries(
    {"ph": st.just("X"), "cat": st.sampled_from(["kernel", "cpu_op", "cuda_runtime", "user_annotation"])},
    optional=dict.fromkeys(("name", "ts", "dur", "pid", "tid", "args"), _JSON),
)


@given(events=st.lists(_EVENT | _JSON, max_size=6), properties=_JSON, info=_JSON)
def test_no_json_makes_the_reader_crash(
    tmp_path_factory: pytest.TempPathFactory, events: list[Any], properties: Any, info: Any
) -> None:
    content = {
        "deviceProperties": properties, "distributedInfo": info,
        "traceEvents": [*events, gpu("kernel", "k", 1, 1, 1)],
    }  # fmt: skip
    assert read(tmp_path_factory.mktemp("json"), content).rows >= 1


@given(st.binary(max_size=80))
def test_no_bytes_make_the_reader_crash(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "trace.json"
    path.write_bytes(b'{"traceEvents": [' + content)
    with pytest.raises(NotAReport):
        read_report(Source(str(path)))


class TestRangesWithoutEnd:
    """Too many ranges around a row: only the innermost are kept, with a note."""

    def ranges(self, kind: str, count: int) -> list[dict[str, Any]]:
        return [host(kind, f"level {at}", at, 10_000 - 2 * at) for at in range(count)]

    def test_keep_the_innermost_around_kernels(self, tmp_path: Path) -> None:
        works = [event for at in range(20) for event in (call(at, 1000 + at), gpu("kernel", "k", 2000 + at, 1, at))]
        report = read(tmp_path, {"traceEvents": [*self.ranges("user_annotation", DEEPEST + 5), *works]})
        assert all(row["nvtx_path"] == [f"level {at}" for at in range(5, DEEPEST + 5)] for row in rows(report))
        assert "more than 100 ranges are open at once around 20 of 20 rows; the innermost are kept" in report.notes

    def test_keep_the_innermost_around_operators(self, tmp_path: Path) -> None:
        annotated = self.ranges("user_annotation", DEEPEST + 5)
        report = read(tmp_path, {"traceEvents": [*annotated, host("cpu_op", "aten::mm", 1000, 1)]})
        (row,) = rows(report)
        assert row["nvtx_path"] == [f"level {at}" for at in range(6, DEEPEST + 5)]
        assert "more than 100 ranges are open at once around 1 of 1 rows; the innermost are kept" in report.notes

    def test_give_no_note_up_to_the_maximum_depth(self, tmp_path: Path) -> None:
        report = read(tmp_path, {"traceEvents": self.ranges("cpu_op", DEEPEST)})
        assert not [note for note in report.notes if "open at once" in note]


@pytest.mark.slow
def test_a_long_value_beside_the_events_is_parsed_a_few_times_not_once_per_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    decode = chrome_trace._DECODER.raw_decode

    def counted(text: str, at: int) -> Any:
        tried.append(at)
        return decode(text, at)

    monkeypatch.setattr(chrome_trace._DECODER, "raw_decode", counted)
    trace = tmp_path / "trace.json"
    trace.write_text('{"long": [' + "1," * (6 << 20) + '1], "traceEvents": [{"ph": "X"}]}', encoding="utf-8")
    with trace.open("rb") as stream:
        events = chrome_trace.TraceEvents(stream)
        assert events_in(events) == [{"ph": "X"}]
    assert len(events.header["long"]) == (6 << 20) + 1
    assert len(tried) < 12
