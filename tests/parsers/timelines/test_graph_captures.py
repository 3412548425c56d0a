"""Replayed CUDA graphs with the operators of their capture: synthetic traces with the fields that libkineto writes.

HIP's launch calls name the kernel, also while a graph is captured. CUDA's do not: there the same kernels have to have
run by themselves in the capture's trace, as the run before a capture does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.derived.operators.graph_captures import Capture, Kernel
from ncu_parsers.report_data.report import Report
from ncu_parsers.sources.settings import Settings

from ncu_tools.cli import run
from tests.conftest import SHARED
from tests.parsers.timelines.test_kineto import A100, gpu, host, read, rows
from tests.parsers.timelines.test_work_of_traces import SGLANG, operator
from tests.support.reports import needs_shared_reports

BF16 = "c10::BFloat16"


def mm(start: float, columns: int) -> dict[str, Any]:
    return operator("aten::mm", start, 10, [[2, 3], [3, columns]], [BF16, BF16], ["", ""])


def captured(start: float, correlation: int, kernel: str) -> dict[str, Any]:
    return host("cuda_runtime", "hipModuleLaunchKernel", start, 1, correlation=correlation, kernel=kernel)


def capture_of_two_products(columns: int = 4) -> list[dict[str, Any]]:
    """A module with two products; nothing runs while they are captured."""
    return [
        host("python_function", "nn.Module: Linear_0", 0, 100),
        mm(10, columns), captured(12, 1, "gemm"), mm(30, columns + 1), captured(32, 2, "gemm"),
        host("cpu_op", "aten::copy_", 50, 10), captured(52, 3, "copy"),
    ]  # fmt: skip


def replay(*kernels: str, graphs: int = 1) -> list[dict[str, Any]]:
    found = []
    for graph in range(graphs):
        start = 1000.0 * (graph + 1)
        found.append(host("user_annotation", "decode", start - 1, 20))
        found.append(host("cuda_runtime", "hipGraphLaunch", start, 10, correlation=70 + graph))
        found += [gpu("kernel", name, start + 20 + place, 1, 70 + graph) for place, name in enumerate(kernels)]
    return found


def replayed(folder: Path, capture: list[dict[str, Any]], *events: dict[str, Any]) -> Report:
    path = folder / f"capture{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps({"traceEvents": capture}))
    trace = {"deviceProperties": [A100], "traceEvents": list(events)}
    return read(folder, trace, settings=Settings(capture=str(path)))


class TestAReplayedGraph:
    def test_has_the_operators_work_and_modules_of_its_capture(self, tmp_path: Path) -> None:
        report = replayed(tmp_path, capture_of_two_products(), *replay("gemm", "gemm", "copy"))
        first, second, copy = rows(report)
        assert (first["operator"], first["flops"], second["flops"]) == ("aten::mm", 48, 60)
        assert (first["module"], first["nvtx_path"]) == ("Linear_0", ["decode"])
        assert copy["operator"] == "aten::copy_"
        assert any("3 of 3 rows that a graph launched have the operators of" in note for note in report.notes)

    def test_does_its_work_again_at_every_launch(self, tmp_path: Path) -> None:
        events = replay("gemm", "gemm", "copy", graphs=2)
        report = replayed(tmp_path, capture_of_two_products(), *events)
        assert sum(row["operator_flops"] or 0 for row in rows(report)) == 2 * (48 + 60)
        assert len({row["operator_call"] for row in rows(report)}) == 2 * 3

    @pytest.mark.parametrize("kernels", [("gemm", "copy"), ("gemm", "gemm", "gemm"), ("gemm", "gemm", "copy", "gemm")])
    def test_of_other_kernels_or_another_order_is_unknown(self, tmp_path: Path, kernels: tuple[str, ...]) -> None:
        capture = capture_of_two_products() if kernels != ("gemm", "copy") else capture_of_two_products()[:5]
        report = replayed(tmp_path, capture, *replay(*kernels))
        assert all(row["flops"] is None and row.get("operator") is None for row in rows(report))
        assert any("they are no gapless part of that trace" in note for note in report.notes)

    def test_that_fits_in_two_places_with_other_shapes_is_unknown(self, tmp_path: Path) -> None:
        report = replayed(tmp_path, capture_of_two_products(), *replay("gemm"))
        assert rows(report)[0]["flops"] is None

    def test_that_fits_in_two_places_with_the_same_shapes_has_their_work_and_no_module_if_those_differ(
        self, tmp_path: Path
    ) -> None:
        capture = [
            host("python_function", "nn.Module: Linear_0", 0, 20), mm(1, 4), captured(2, 1, "gemm"),
            host("python_function", "nn.Module: Linear_1", 30, 20), mm(31, 4), captured(32, 2, "gemm"),
        ]  # fmt: skip
        (row,) = rows(replayed(tmp_path, capture, *replay("gemm")))
        assert (row["flops"], row["module"]) == (48, None)

    def test_of_cuda_has_the_work_of_the_same_kernels_that_ran_by_themselves_with_the_same_grid(
        self, tmp_path: Path
    ) -> None:
        warm_up = [
            mm(10, 4), host("cuda_runtime", "cudaLaunchKernel", 12, 1, correlation=1),
            gpu("kernel", "gemm", 20, 1, 1, grid=[8, 1, 1]),
        ]  # fmt: skip
        launch = host("cuda_runtime", "cudaGraphLaunch", 100, 1, correlation=70)
        same, other = (gpu("kernel", "gemm", 200, 1, 70, grid=[size, 1, 1]) for size in (8, 16))
        (row,) = rows(replayed(tmp_path, warm_up, launch, same))
        assert row["flops"] == 48
        (row,) = rows(replayed(tmp_path, warm_up, launch, other))
        assert row["flops"] is None

    def test_without_a_capture_says_how_to_name_one(self, tmp_path: Path) -> None:
        report = read(tmp_path, {"traceEvents": replay("gemm")})
        assert any("--capture TRACE takes them from there" in note for note in report.notes)


@given(st.lists(st.sampled_from("ab"), max_size=8), st.lists(st.sampled_from("ab"), min_size=1, max_size=3))
def test_matches_are_every_gapless_part_of_the_launches(launches: list[str], graph: list[str]) -> None:
    capture = Capture([Kernel(name) for name in launches], [None] * len(launches))
    expected = [begin for begin in range(len(launches)) if launches[begin : begin + len(graph)] == graph]
    found = capture.places_of([Kernel(name) for name in graph])
    assert found == ([[begin + place for begin in expected] for place in range(len(graph))] if expected else [])


@pytest.mark.parametrize("command", ["hotspots", "roofline", "hotspots --by layer", "report"])
@pytest.mark.slow
def test_commands_take_the_trace_of_a_capture(tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    capture, trace = tmp_path / "capture.json", tmp_path / "trace.json"
    capture.write_text(json.dumps({"traceEvents": capture_of_two_products()}))
    trace.write_text(json.dumps({"deviceProperties": [A100], "traceEvents": replay("gemm", "gemm", "copy")}))
    out = {"report": ["-o", str(tmp_path / "out.html")], "roofline": ["-o", str(tmp_path / "out.svg")]}.get(command, [])
    assert run([*command.split(), str(trace), "--capture", str(capture), "--notes", *out]) == 0
    assert "3 of 3 rows that a graph launched have the operators of" in capsys.readouterr().err


def test_a_capture_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"traceEvents": replay("gemm")}))
    assert run(["hotspots", str(trace), "--capture", str(tmp_path / "none.json")]) in (1, 2)
    assert "none.json" in capsys.readouterr().err


@needs_shared_reports
def test_a_real_decode_step_without_its_capture_says_how_to_name_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hotspots", str(SHARED / "reports" / "kineto" / SGLANG), "--by", "operator"]) == 0
    assert "--capture TRACE takes them from there" in capsys.readouterr().err
