"""FLOPs and least bytes of traces, from the shapes of operators: real traces of others, and synthetic ones."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.operators.calls import UNRECORDED
from ncu_launch.operators.table import FORMULAS, work_of
from ncu_parsers.derived.operators.work_from_shapes import TYPES, RecordedInputs, recorded_call
from ncu_parsers.report_data.report import Report
from ncu_parsers.sources.sources import Source

from tests.conftest import SHARED
from tests.parsers.timelines.test_kineto import A100, AUTOGRAD, call, gpu, host, read, rows
from tests.support.reports import needs_shared_reports
from tests.support.traces import read_report

BF16 = "c10::BFloat16"


def operator(name: str, start: float, duration: float, shapes: list[Any], types: list[str], values: list[str] | None = None,
             thread: int = 100) -> dict[str, Any]:  # fmt: skip
    recorded = {"Input Dims": shapes, "Input type": types}
    return host("cpu_op", name, start, duration, thread, **recorded, **({"Concrete Inputs": values} if values else {}))


def mm(start: float, thread: int = 100) -> dict[str, Any]:
    return operator("aten::mm", start, 50, [[2, 3], [3, 4]], [BF16, BF16], ["", ""], thread)


def trace(folder: Path, *events: dict[str, Any]) -> Report:
    return read(folder, {"deviceProperties": [A100], "traceEvents": list(events)})


class TestARow:
    def test_has_the_work_of_its_operator_on_the_unit_of_its_type(self, tmp_path: Path) -> None:
        (row,) = rows(trace(tmp_path, mm(0), call(1, 10), gpu("kernel", "gemm", 100, 5, 1)))
        assert (row["flops"], row["flops_basis"], row["tensor_flops_bf16"]) == (48, "shapes", 48)
        assert (row["least_bytes"], row["dram_bytes"]) == (2 * (6 + 12 + 8), None)

    def test_of_a_product_of_integers_has_bytes_and_no_flops(self, tmp_path: Path) -> None:
        product = operator("aten::mm", 0, 50, [[2, 3], [3, 4]], ["signed char"] * 2)
        (row,) = rows(trace(tmp_path, product, call(1, 10), gpu("kernel", "i8gemm", 100, 5, 1)))
        assert (row["least_bytes"], row["flops"], row.get("operator_flops")) == (6 + 12 + 8, None, None)
        assert (row.get("operator_unit"), row["tensor_flops"]) == (None, None)

    def test_of_a_wrapper_is_not_counted_again(self, tmp_path: Path) -> None:
        linear = operator("aten::linear", 0, 100, [[2, 3], [4, 3], []], [BF16, BF16, ""], ["", "", ""])
        inner, outer = rows(
            trace(tmp_path, linear, mm(10), call(1, 20), call(2, 80), gpu("kernel", "gemm", 100, 5, 1),
                  gpu("kernel", "stray", 200, 5, 2))
        )  # fmt: skip
        assert (inner["flops"], outer["flops"], outer["operator"]) == (48, None, "aten::linear")

    def test_of_several_has_the_work_where_the_others_only_prepare_it(self, tmp_path: Path) -> None:
        main, reduction = rows(
            trace(tmp_path, mm(0), call(1, 10), call(2, 20), gpu("kernel", "nvjet_hsh_splitK", 100, 5, 1),
                  gpu("kernel", "cublasLt::splitKreduce_kernel<32>", 110, 1, 2))
        )  # fmt: skip
        assert (main["flops"], reduction["flops"]) == (48, None)
        assert (main["operator_flops"], reduction["operator_flops"]) == (48, 0)
        assert main["operator_call"] == reduction["operator_call"]

    def test_of_two_that_may_both_have_done_it_has_none_and_their_operator_has_it(self, tmp_path: Path) -> None:
        places = {"shapes": [[1, 4, 8, 8], [1, 2, 8, 8], [4, 2, 3, 3], [], [], [], [], [], [], [], []]}
        values = ["", "", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"]
        types = ["float"] * 3 + [
            "",
            "ScalarList",
            "ScalarList",
            "ScalarList",
            "Scalar",
            "ScalarList",
            "Scalar",
            "ScalarList",
        ]
        backward = operator("aten::convolution_backward", 0, 50, places["shapes"], types, values)
        found = rows(
            trace(tmp_path, backward, call(1, 10), call(2, 20), gpu("kernel", "xmma_dgrad", 100, 5, 1),
                  gpu("kernel", "xmma_wgrad", 110, 5, 2))
        )  # fmt: skip
        assert [row["flops"] for row in found] == [None, None]
        assert [row["operator_flops"] for row in found] == [2 * 2 * 64 * 4 * 2 * 9, 0]

    def test_that_is_a_copy_does_no_flops_and_moves_bytes_that_its_operator_may_not_know(self, tmp_path: Path) -> None:
        item = operator("aten::_local_scalar_dense", 0, 50, [[1]], [BF16])
        (row,) = rows(trace(tmp_path, item, call(1, 10), gpu("gpu_memcpy", "Memcpy DtoH", 100, 5, 1)))
        assert (row["flops"], row["operator_flops"], row["least_bytes"]) == (0, 0, None)

    def test_that_is_a_copy_does_not_tell_the_flops_of_a_product_whose_kernel_is_not_here(self, tmp_path: Path) -> None:
        (row,) = rows(trace(tmp_path, mm(0), call(1, 10), gpu("gpu_memset", "Memset", 100, 5, 1)))
        assert (row["flops"], row.get("operator_flops")) == (None, None)

    def test_launched_by_a_graph_is_unknown_and_a_note_says_so(self, tmp_path: Path) -> None:
        launch = host("cuda_runtime", "cudaGraphLaunch", 10, 1, correlation=1)
        report = trace(tmp_path, mm(0), launch, gpu("kernel", "gemm", 100, 5, 1))
        assert rows(report)[0]["flops"] is None
        assert any("1 of 1 rows were launched by a graph" in note for note in report.notes)

    def test_without_shapes_is_unknown_and_a_note_says_how_to_record_them(self, tmp_path: Path) -> None:
        report = trace(tmp_path, host("cpu_op", "aten::mm", 0, 50), call(1, 10), gpu("kernel", "gemm", 100, 5, 1))
        assert (rows(report)[0]["flops"], rows(report)[0]["least_bytes"]) == (None, None)
        assert any("record_shapes=True" in note for note in report.notes)

    def test_of_the_backward_pass_has_the_shapes_of_its_own_operator(self, tmp_path: Path) -> None:
        node = host("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 0, 100, AUTOGRAD)
        (row,) = rows(trace(tmp_path, node, mm(10, AUTOGRAD), call(1, 20, AUTOGRAD), gpu("kernel", "gemm", 100, 5, 1)))
        assert (row["flops"], row["phase"]) == (48, "backward")


def test_an_operator_on_a_cpu_that_calls_the_one_which_works_has_no_work_of_its_own(tmp_path: Path) -> None:
    linear = operator("aten::linear", 0, 100, [[2, 3], [4, 3], []], ["float", "float", ""], ["", "", ""])
    inner = operator("aten::mm", 10, 50, [[2, 3], [3, 4]], ["float", "float"], ["", ""])
    found = {row["operator"]: row for row in rows(trace(tmp_path, linear, inner))}
    assert (found["aten::linear"]["flops"], found["aten::mm"]["flops"], found["aten::mm"]["flops_fp32"]) == (0, 48, 48)


def test_an_operator_on_a_cpu_that_computes_and_calls_one_that_only_fills_has_its_work(tmp_path: Path) -> None:
    total = operator("aten::sum", 0, 100, [[2, 3], []], ["float", ""], ["", ""])
    filling = operator("aten::fill_", 10, 5, [[1], []], ["float", "Scalar"], ["", "0"])
    found = {row["operator"]: row for row in rows(trace(tmp_path, total, filling))}
    assert (found["aten::sum"]["flops"], found["aten::sum"]["least_bytes"]) == (6, 4 * 6 + 4)


@pytest.mark.parametrize("name", ["mT", "view_as_real", "randn", "lstm", "fft_rfft", "cdist", "_sparse_mm"])
def test_a_view_and_an_operator_on_a_cpu_that_only_calls_others_compute_and_move_nothing(
    name: str, tmp_path: Path
) -> None:
    (row,) = rows(trace(tmp_path, operator(f"aten::{name}", 0, 100, [[2, 3]], ["float"], [""])))
    assert (row["flops"], row["least_bytes"]) == (0, 0)


def test_an_argument_that_was_not_recorded_is_not_taken_for_none() -> None:
    inputs = RecordedInputs([[2, 3], []], ["float", ""], None, None)
    assert recorded_call("aten::sum", inputs).arguments[1] is UNRECORDED
    assert recorded_call("aten::sum", inputs._replace(values=["", ""])).arguments[1] is None


def test_the_work_of_a_product_with_a_sparse_matrix_which_has_sizes_and_no_strides_is_unknown() -> None:
    """As PyTorch 2.13 records `torch.sparse.mm`: aten::_sparse_addmm calls this one."""
    shapes, types = [[64, 8], [64, 64], [64, 8], [], []], ["float", "float", "float", "Scalar", "Scalar"]
    values = ["", "", "", "0", "1"]
    dense = RecordedInputs(shapes, types, [[8, 1], [64, 1], [8, 1], [], []], values)
    sparse = dense._replace(strides=[[8, 1], [], [8, 1], [], []])
    works = [work_of(recorded_call("aten::addmm", inputs)) for inputs in (dense, sparse)]
    assert [work and work.flops for work in works] == [2 * 64 * 64 * 8, None]
    assert [work and work.least_bytes for work in works] == [4 * (64 * 64 + 2 * 64 * 8), None]


SIZES = st.lists(st.one_of(st.integers(-1, 9), st.integers(2**40, 2**70), st.text(max_size=2)), max_size=5)
ARGUMENT = st.tuples(
    st.one_of(SIZES, st.lists(SIZES, max_size=3), st.none()),
    st.one_of(st.sampled_from([*TYPES, "Scalar", "ScalarList", "TensorList", ""]), st.integers()),
    st.one_of(st.sampled_from(["", "0", "-1", "1.5", "True", "[0, 0]", "[]", "[1, 'a']", "((("]), st.none()),
)


@given(st.sampled_from([*sorted(FORMULAS), "triton_poi_fused_0"]), st.lists(ARGUMENT, max_size=12), st.booleans())
def test_no_recorded_arguments_make_a_formula_fail_or_give_anything_but_an_amount(
    name: str, arguments: list[Any], has_values: bool
) -> None:
    shapes, types, values = ([one[place] for one in arguments] for place in range(3))
    found = work_of(recorded_call(name, RecordedInputs(shapes, types, shapes, values if has_values else None)))
    assert found is not None
    assert all(amount is None or 0 <= amount < float("inf") for amount in found[:2])


# --------------------------------------------------------------------------------------------- traces that others made

QWEN = "AMD-AGI__TraceLens__h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
COMPILED = "AMD-AGI__TraceLens__torch_compile_triton__trace.json.gz"
VLLM = "AMD-AGI__TraceLens__inference__vllm_decode_full__graph_execution.json.gz"
SGLANG = "AMD-AGI__TraceLens__inference__sglang_decode__sglang_Qwen3-8B_decode.json.gz"
CONTRACTIONS = {name for name, formula in FORMULAS.items() if formula.is_contraction}


def shared(name: str) -> Report:
    return read_report(Source(str(SHARED / "reports" / "kineto" / name)))


def gflop_of_products(report: Report) -> dict[str, float]:
    """GFLOP of products by operator, from the column that holds each call once."""
    sums: dict[str, float] = defaultdict(float)
    for row in rows(report):
        if row["operator"] in CONTRACTIONS:
            sums[row["operator"]] += row["operator_flops"] or 0.0
    return {name: round(flops / 1e9, 3) for name, flops in sums.items()}


@needs_shared_reports
class TestARealTrace:
    def test_of_a_language_model_has_the_flops_of_its_products(self) -> None:
        found = gflop_of_products(shared(QWEN))
        assert (found["aten::mm"], found["aten::addmm"]) == (4164.038, 1351.158)
        assert set(found) == {"aten::mm", "aten::addmm", "aten::bmm", "aten::_flash_attention_forward"}

    def test_of_a_compiled_model_has_the_flops_of_its_products_and_the_bytes_of_its_fused_kernels(self) -> None:
        report = shared(COMPILED)
        assert gflop_of_products(report)["aten::mm"] == 4398.047
        fused = [row for row in rows(report) if (row["operator"] or "").startswith("triton_")]
        assert fused
        assert all(row["flops"] is None and row["least_bytes"] for row in fused)

    def test_of_a_decode_step_has_the_one_product_outside_its_graph_once(self) -> None:
        report = shared(VLLM)
        assert gflop_of_products(report) == {"aten::mm": pytest.approx(37.06, abs=0.005)}
        assert any("421 of 434 rows were launched by a graph" in note for note in report.notes)

    def test_of_a_decode_step_that_is_a_graph_whole_has_no_products_and_says_why(self) -> None:
        report = shared(SGLANG)
        assert gflop_of_products(report) == {}
        assert any("544 of 558 rows were launched by a graph" in note for note in report.notes)

    @pytest.mark.parametrize("name", [QWEN, COMPILED, VLLM])
    def test_has_as_many_flops_by_launch_as_by_operator_where_every_call_has_a_launch_that_did_it(
        self, name: str
    ) -> None:
        found = rows(shared(name))
        by_operator = sum(row["operator_flops"] or 0 for row in found)
        assert sum(row["flops"] or 0 for row in found) == by_operator > 0


def test_the_recorded_shapes_stay_json(tmp_path: Path) -> None:
    (row,) = rows(trace(tmp_path, mm(0), call(1, 10), gpu("kernel", "gemm", 100, 5, 1)))
    assert json.loads(row["shapes"]) == [[2, 3], [3, 4]]
