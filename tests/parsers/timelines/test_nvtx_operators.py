"""Operators and sizes in NVTX ranges of `torch.autograd.profiler.emit_nvtx`, in exports of nsys.

Names are those that PyTorch's `getNvtxStr` writes; the real timelines hold `, op_id = 12`, without sizes.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.operators.units import contraction_unit, type_in_name
from ncu_parsers.derived.operators.nvtx_operators import operator_of

from ncu_tools.cli import run
from tests.conftest import SHARED
from tests.support.reports import needs_shared_reports
from tests.support.timelines import CALLS, KERNELS, NODES, RANGES, call, database, kernel, node_made, pushed, table_of

SIZES = st.lists(st.lists(st.integers(0, 2**31), max_size=4), min_size=1, max_size=5)
NAME = st.sampled_from(["aten::mm", "aten::add_", "MmBackward0", "autograd::engine::evaluate_function: MmBackward0",
                        "my label, with a comma", "flash_attn::_flash_attn_forward"])  # fmt: skip


@given(NAME, st.none() | st.integers(0, 99), st.none() | st.integers(1, 99), st.none() | SIZES, st.booleans())
def test_the_name_of_a_range_gives_back_what_it_was_made_of(
    name: str, sequence: int | None, number: int | None, sizes: list[list[int]] | None, has_inputs: bool
) -> None:
    text = name
    text += f", seq = {sequence}" if sequence is not None else ""
    text += f", op_id = {number}" if number is not None else ""
    text += f", sizes = {sizes}" if sizes is not None else ""
    text += ", input_op_ids = [(5,0), (6,1)]" if has_inputs else ""
    found = operator_of(text)
    if sequence is None and number is None and sizes is None:
        assert found is None
        return
    assert found is not None
    assert (found.name, found.inputs.shapes) == (name, sizes)
    assert found.is_operator == name.startswith(("aten", "flash"))


@given(st.text(max_size=60))
def test_names_that_emit_nvtx_did_not_write_are_left_as_they_are(name: str) -> None:
    found = operator_of(name)
    assert found is None or name.startswith(found.name)


MM = "aten::mm, op_id = 12, sizes = [[2, 3], [3, 4]], input_op_ids = [(10,0), (11,0)]"
GEMM, OTHER = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "elementwise_kernel"


def timeline(path: Path, ranges: list[dict[str, Any]], **tables: Any) -> list[dict[str, Any]]:
    rows = {KERNELS: [kernel(100, 1, name=1)], CALLS: [call(10, 1)], RANGES: ranges, **tables}
    found: list[dict[str, Any]] = table_of(database(path, rows, (GEMM, OTHER))).to_pylist()
    return found


class TestAKernelBelowAnOperatorsRange:
    def test_has_its_flops_by_sizes_and_the_unit_that_its_own_name_says(self, tmp_path: Path) -> None:
        linear = "aten::linear, op_id = 11, sizes = [[2, 3], [4, 3], []]"
        (row,) = timeline(tmp_path / "a.sqlite", [pushed(linear, 0, 50), pushed(MM, 5, 40)])
        assert (row["operator"], row["shapes"]) == ("aten::mm", "[[2,3],[3,4]]")
        assert (row["flops"], row["flops_basis"], row["tensor_flops_bf16"]) == (48, "shapes", 48)
        assert row["nvtx_path"] == ["aten::linear", "aten::mm"]

    def test_has_no_bytes_as_types_are_not_in_the_name(self, tmp_path: Path) -> None:
        (row,) = timeline(tmp_path / "a.sqlite", [pushed(MM, 5, 40)])
        assert row.get("least_bytes") is None

    @pytest.mark.parametrize(
        "name",
        [
            "aten::convolution, op_id = 3, sizes = [[1, 2, 8, 8], [4, 2, 3, 3], [], [], [], [], [], [], []]",
            "aten::_scaled_mm, op_id = 3, sizes = [[2, 3], [3, 4], [], [], [], [], [], []]",
            "aten::add, op_id = 3, sizes = [[2, 3], [2, 3], []]",
            "aten::mm, op_id = 3",
        ],
    )
    def test_has_no_flops_where_they_need_a_number_or_a_type(self, tmp_path: Path, name: str) -> None:
        (row,) = timeline(tmp_path / "a.sqlite", [pushed(name, 5, 40)])
        assert row.get("flops") is None
        assert row["operator"] == name.partition(",")[0]

    def test_of_the_backward_pass_is_that_of_the_operator_and_not_of_the_node(self, tmp_path: Path) -> None:
        node = "autograd::engine::evaluate_function: MmBackward0, seq = 3, op_id = 9"
        (row,) = timeline(tmp_path / "a.sqlite", [pushed(node, 0, 60), pushed(MM, 5, 40)])
        assert (row["operator"], row["flops"]) == ("aten::mm", 48)
        assert row["nvtx_path"][0] == "autograd::engine::evaluate_function: MmBackward0"

    def test_of_a_graph_has_the_operator_of_the_capture_at_every_launch(self, tmp_path: Path) -> None:
        kernels = [kernel(100, 1, graphNodeId=20), kernel(200, 2, graphNodeId=20)]
        nodes = [node_made(5, 12), node_made(20, 30, copy_of=5)]
        replay = pushed("aten::add, op_id = 4, sizes = [[9], [9]]", 80, 300)
        rows = timeline(tmp_path / "a.sqlite", [pushed(MM, 5, 25), replay],
                        **{KERNELS: kernels, CALLS: [call(90, 1), call(190, 2)], NODES: nodes})  # fmt: skip
        assert [row["operator"] for row in rows] == ["aten::mm"] * 2
        assert [row["operator_flops"] for row in rows] == [48, 48]
        assert len({row["operator_call"] for row in rows}) == 2


def test_the_share_of_the_time_with_flops_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.sqlite"
    timeline(path, [pushed(MM, 5, 40)])
    assert run(["hotspots", str(path), "--by", "operator"]) == 0
    assert "100.0 % of kernel time has FLOPs" in capsys.readouterr().err
    other = tmp_path / "b.sqlite"
    timeline(other, [pushed("step", 5, 40)])
    assert run(["hotspots", str(other)]) == 0
    assert "of kernel time has FLOPs" not in capsys.readouterr().err


def test_ranges_of_other_programs_add_no_operators(tmp_path: Path) -> None:
    (row,) = timeline(tmp_path / "a.sqlite", [pushed("Step 1 = first", 5, 40)])
    assert "operator" not in row
    assert row["nvtx_path"] == ["Step 1 = first"]


@pytest.mark.parametrize(
    ("kernel_name", "dtype", "unit"),
    [
        (GEMM, "bfloat16", "tensor_bf16"),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_32x6_tn", "float16", "tensor_fp16"),
        ("ampere_sgemm_128x64_tn", "float32", "fp32"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x8", "float32", "tensor_tf32"),
        ("nvjet_tst_128x256_64x4", "bfloat16", "tensor_bf16"),
        ("some_kernel", None, None),
    ],
)
def test_the_name_of_a_product_says_its_type(kernel_name: str, dtype: str | None, unit: str | None) -> None:
    assert type_in_name(kernel_name) == dtype
    assert contraction_unit("", kernel_name) == unit


@needs_shared_reports
def test_a_real_timeline_has_a_row_per_operator_and_not_per_call(capsys: pytest.CaptureFixture[str]) -> None:
    path = SHARED / "reports" / "nsys" / "GindaChen__nsys-ai__tests_fixtures_mfu_2gpu_after.sqlite"
    counted = Counter(row["operator"] for row in table_of(path).to_pylist())
    assert counted["flash_attn::_flash_attn_forward"] == 60
    assert not any("op_id" in (name or "") for name in counted)
    assert run(["hotspots", str(path), "--by", "operator", "--top", "1"]) == 0
    shown = capsys.readouterr()
    assert "flash_attn::_flash_attn_forward" in shown.out
    assert "emit_nvtx(record_shapes=True)" in shown.err
