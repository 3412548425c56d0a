"""Operators of the backward pass without shapes of their own, which take those of their forward operator."""

from __future__ import annotations

import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ncu_launch.operators.backward_calls import backward_call
from ncu_launch.operators.calls import Call, Tensor
from ncu_launch.operators.table import FORMULAS
from ncu_parsers.derived.operators.forward_operators import ForwardOperators
from ncu_parsers.report_data.report import Report
from ncu_parsers.sources.sources import Source

from tests.conftest import SHARED
from tests.parsers.timelines.test_kineto import call, gpu, host, rows
from tests.parsers.timelines.test_work_of_traces import BF16, operator, trace
from tests.support.reports import needs_shared_reports
from tests.support.traces import read_report

NODE = "autograd::engine::evaluate_function"
COMPUTES = re.compile(r"aten::(?:\w+_backward\w*|b?mm)")
NOT_REBUILT = {"aten::native_layer_norm_backward"}
SHAPES = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")


def numbered(event: dict[str, Any], number: int, forward_thread: int = 0) -> dict[str, Any]:
    event["args"] = {**event.get("args", {}), "Sequence number": number, "Fwd thread id": forward_thread}
    return event


def forward_mm(start: float, number: int, thread: int = 100) -> dict[str, Any]:
    return numbered(operator("aten::mm", start, 20, [[2, 3], [3, 4]], ["float"] * 2, ["", ""], thread), number)


def backward_mm(start: float, number: int) -> list[dict[str, Any]]:
    return [numbered(host("cpu_op", f"{NODE}: MmBackward0", start, 40), number, 1),
            host("cpu_op", "aten::mm", start + 5, 20)]  # fmt: skip


def flops_of_backward(report: Report) -> dict[str, float | None]:
    return {row["operator"]: row["operator_flops"] for row in rows(report) if row["phase"] == "backward"}


class TestABackwardOperatorWithoutShapes:
    def test_takes_those_of_the_forward_operator_with_its_sequence_number(self, tmp_path: Path) -> None:
        other = numbered(operator("aten::mm", 30, 20, [[9, 9], [9, 9]], ["float"] * 2, ["", ""]), 8)
        report = trace(tmp_path, forward_mm(0, 7), other, *backward_mm(100, 7))
        assert flops_of_backward(report)["aten::mm"] == 2 * 2 * 3 * 4

    def test_that_launched_a_kernel_gives_it_the_flops_and_the_unit_of_the_forward_types(self, tmp_path: Path) -> None:
        forward = numbered(operator("aten::mm", 0, 20, [[2, 3], [3, 4]], [BF16] * 2, ["", ""]), 7)
        report = trace(tmp_path, forward, *backward_mm(100, 7), call(1, 110), gpu("kernel", "a_gemm", 200, 5, 1))
        (row,) = rows(report)
        assert (row["phase"], row["flops"], row["tensor_flops_bf16"]) == ("backward", 48, 48)
        assert row["least_bytes"] == 2 * (6 + 12 + 8)

    def test_takes_those_of_the_last_of_several_that_began_with_that_number(self, tmp_path: Path) -> None:
        wrapper = numbered(operator("aten::matmul", 0, 40, [[1], [1]], ["float"] * 2, ["", ""]), 7)
        report = trace(tmp_path, wrapper, forward_mm(10, 7), *backward_mm(100, 7))
        assert flops_of_backward(report)["aten::mm"] == 2 * 2 * 3 * 4

    def test_is_unknown_where_operators_of_two_threads_have_that_number(self, tmp_path: Path) -> None:
        report = trace(tmp_path, forward_mm(0, 7), forward_mm(0, 7, thread=200), *backward_mm(100, 7))
        assert flops_of_backward(report)["aten::mm"] is None

    def test_is_unknown_where_no_forward_operator_has_that_number(self, tmp_path: Path) -> None:
        report = trace(tmp_path, forward_mm(0, 6), *backward_mm(100, 7))
        assert flops_of_backward(report)["aten::mm"] is None

    def test_is_unknown_where_the_forward_operator_is_not_its_own(self, tmp_path: Path) -> None:
        gelu = numbered(operator("aten::gelu", 0, 20, [[2, 3], []], ["float", ""], ["", "none"]), 7)
        assert flops_of_backward(trace(tmp_path, gelu, *backward_mm(100, 7)))["aten::mm"] is None


def test_the_innermost_of_several_nodes_around_an_operator_counts(tmp_path: Path) -> None:
    wide = numbered(operator("aten::mm", 50, 20, [[5, 6], [6, 7]], ["float"] * 2, ["", ""]), 8)
    outer = numbered(host("cpu_op", f"{NODE}: OuterBackward0", 90, 80), 8, 1)
    report = trace(tmp_path, forward_mm(0, 7), wide, outer, *backward_mm(100, 7))
    assert flops_of_backward(report)["aten::mm"] == 2 * 2 * 3 * 4


def test_the_operator_that_began_last_with_a_number_is_known_by_its_place() -> None:
    numbers, threads = np.array([7, -1, 7, 9, 9, 8]), np.array([0, 0, 0, 0, 1, 1])
    known = ForwardOperators(numbers, threads, np.array([1.0, 2.0, 0.5, 3.0, 3.0, 4.0]))
    assert known.behind(np.array([7, 8, 9, 6])).tolist() == [0, 5, -1, -1]


def test_without_numbers_no_operator_is_known() -> None:
    known = ForwardOperators(np.array([-1, -2]), np.array([0, 0]), np.array([0.0, 1.0]))
    assert known.behind(np.array([0, 1])).tolist() == [-1, -1]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", ["flash", "efficient"])
def test_attention_of_a_gpu_has_the_work_of_a_backward_call_with_shapes_of_its_own(kind: str, masked: bool) -> None:
    query, key, value = (Tensor((2, 4, rows, depth), "float16") for rows, depth in ((6, 8), (6, 8), (6, 5)))
    result, name = Tensor((2, 4, 6, 5), "float16"), f"aten::_scaled_dot_product_{kind}_attention"
    middle = (False,) if kind == "efficient" else ()
    bias = (None,) if kind == "efficient" else ()
    forward = Call(name, (query, key, value, *bias, *middle, 0.0, masked))
    sizes = (None, None, 6, 6, 0.0) if kind == "flash" else (None, None, 0.0, (True, True, True, False))
    own = Call(f"{name}_backward", (result, query, key, value, *bias, result, None, *sizes, masked))
    rebuilt = backward_call(own.name, forward)
    assert rebuilt is not None
    formula = FORMULAS[own.name]
    for part in (formula.flops, formula.correction, formula.read, formula.written):
        assert part(rebuilt) == part(own)


def torch_trace(folder: Path) -> dict[str, Any]:
    """The trace of a training step on this machine, forward and backward, with shapes."""
    torch = pytest.importorskip("torch", reason="torch is not installed (pip install '.[models]')")
    nn = torch.nn
    layers = (nn.Linear(8, 12), nn.GELU(), nn.LayerNorm(12), nn.Linear(12, 16), nn.SiLU(), nn.Tanh(), nn.ReLU())
    model, inputs = nn.Sequential(*layers), torch.randn(5, 8)
    recorder = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True)
    with recorder as profiler:
        heads = (model(inputs) @ torch.randn(16, 48)).view(1, 5, 3, 16).transpose(1, 2)
        seen = nn.functional.scaled_dot_product_attention(heads, heads * 2, heads, is_causal=True)
        scores = torch.bmm(seen.view(3, 5, 16), seen.view(3, 5, 16).transpose(1, 2))
        loss = (scores.softmax(-1) * torch.randn(3, 5, 5)).sum()
        loss.backward()
    path = folder / "with_shapes.json"
    profiler.export_chrome_trace(str(path))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def without_shapes_of_backward(traced: dict[str, Any]) -> dict[str, Any]:
    calls = [one for one in traced["traceEvents"] if one.get("cat") == "cpu_op"]
    nodes = [(one["tid"], one["ts"], one["ts"] + one["dur"]) for one in calls if one["name"].startswith(NODE)]
    assert nodes
    for one in calls:
        begin, end = one["ts"], one["ts"] + one["dur"]
        if any(thread == one["tid"] and since <= begin and end <= until for thread, since, until in nodes):
            one["args"] = {name: value for name, value in one["args"].items() if name not in SHAPES}
    return traced


@needs_shared_reports
def test_calls_of_a_training_on_a_gpu_have_the_same_work_without_the_shapes_of_their_backward_pass(
    tmp_path: Path,
) -> None:
    """The forward operators of most calls are not in this trace, which is a part of one."""
    path, other = next((SHARED / "reports" / "kineto").glob("*sampled_rank-0*")), tmp_path / "without_shapes.json"
    other.write_text(json.dumps(without_shapes_of_backward(json.loads(gzip.decompress(path.read_bytes())))))
    pairs = zip(*(rows(read_report(Source(str(one)))) for one in (path, other)), strict=True)
    rebuilt = [
        (own, taken)
        for own, taken in pairs
        if taken["phase"] == "backward" and taken["operator_flops"] and not taken["shapes"]
    ]
    assert len(rebuilt) > 90
    assert {own["operator"] for own, _ in rebuilt} == {"aten::mm", "aten::bmm", "aten::_softmax_backward_data"}
    for own, taken in rebuilt:
        assert (taken["operator_flops"], taken["flops"]) == (own["operator_flops"], own["flops"])
        assert taken["operator_least_bytes"] == own["operator_least_bytes"]


@pytest.mark.slow
def test_a_real_training_step_has_the_same_work_without_the_shapes_of_its_backward_pass(tmp_path: Path) -> None:
    def work(traced: dict[str, Any]) -> dict[str, list[tuple[float, float]]]:
        path = tmp_path / "trace.json"
        path.write_text(json.dumps(traced))
        found: dict[str, list[tuple[float, float]]] = {}
        for row in rows(read_report(Source(str(path)))):
            if row["phase"] == "backward" and COMPUTES.fullmatch(row["operator"]):
                flops, moved = row["operator_flops"], row["operator_least_bytes"]
                amounts = (math.nan if flops is None else flops, math.nan if moved is None else moved)
                found.setdefault(row["operator"], []).append(amounts)
        return {name: sorted(calls) for name, calls in found.items()}

    traced = torch_trace(tmp_path)
    expected, rebuilt = work(traced), work(without_shapes_of_backward(traced))
    assert expected.keys() == rebuilt.keys() >= {"aten::mm", "aten::bmm", "aten::gelu_backward", "aten::tanh_backward"}
    unknown = {name for name, calls in rebuilt.items() if any(math.isnan(one[0]) for one in calls)}
    assert unknown == NOT_REBUILT
    assert {name: calls for name, calls in rebuilt.items() if name not in unknown} == {
        name: calls for name, calls in expected.items() if name not in unknown
    }
