"""Operators of xformers, torchao and Transformer Engine, called by the names of their arguments, against small loops."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.operators.calls import Call, Tensor
from ncu_launch.operators.table import OperatorWork, work_of
from ncu_launch.operators.units import type_of
from ncu_launch.workload.collected_work import work_of_call

from tests.support.installed import WITHOUT_TORCH, WITHOUT_TORCHAO

SIZE = st.integers(1, 6)
BF16, FP8 = "bfloat16", "float8_e4m3fn"
BF16_NUMBER = 15

ARGUMENTS = {
    "xformers_flash::flash_fwd":
        "query key value cu_seqlens_q cu_seqlens_k seqused_k max_seqlen_q max_seqlen_k p softmax_scale is_causal "
        "window_left window_right return_softmax block_tables",
    "xformers_flash::flash_bwd":
        "grads_share_storage grad query key value out lse cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k p "
        "softmax_scale is_causal window_left window_right rng_state",
    "xformers::efficient_attention_forward_cutlass":
        "query key value attn_bias seqstart_q seqstart_k max_seqlen_q dropout_p compute_logsumexp custom_mask_type scale "
        "seqlen_k window_size",
    "xformers::efficient_attention_forward_ck":
        "query key value attn_bias seqstart_q seqstart_k max_seqlen_q dropout_p compute_logsumexp custom_mask_type scale "
        "seqlen_k window_size block_tables page_size",
    "xformers::efficient_attention_backward_cutlass":
        "grad query key value attn_bias cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k logsumexp out dropout_p "
        "rng_seed rng_offset custom_mask_type scale num_splits_key window_size",
    "xformers::efficient_attention_backward_ck":
        "grad query key value attn_bias cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k seqlen_k logsumexp out "
        "dropout_p rng_seed rng_offset custom_mask_type scale window_size",
}  # fmt: skip
"""The names of arguments in the libraries' declarations: xformers/ops/fmha/flash.py, xformers/csrc/attention/."""

OLDER_FLASH_BWD = (
    "grad query key value out lse dq dk dv cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k p softmax_scale is_causal "
    "window_left window_right rng_state"
)
"""xformers_flash::flash_bwd of xformers 0.0.25 and before."""

DEFAULTS = {"window_left": -1, "window_right": -1, "is_causal": False, "custom_mask_type": 0, "p": 0.0,
            "dropout_p": 0.0, "grads_share_storage": False}  # fmt: skip


def tensor(*shape: int, dtype: str = BF16) -> Tensor:
    return Tensor(shape, dtype)


def work(name: str, *arguments: Any) -> OperatorWork:
    found = work_of(Call(name, arguments))
    assert found is not None
    return found


def named(name: str, declared: str = "", **given: Any) -> OperatorWork:
    """The work of a call with some arguments by their names, and the defaults or None for the others."""
    names = (declared or ARGUMENTS[name]).split()
    assert given.keys() <= {*names, *DEFAULTS}
    return work(name, *(given.get(one, DEFAULTS.get(one)) for one in names))


def seen(rows: int, columns: int, *, from_last: bool) -> int:
    shift = columns - rows if from_last else 0
    return sum(column <= row + shift for row, column in product(range(rows), range(columns)))


class TestAttentionOfXformers:
    @given(SIZE, SIZE, st.booleans())
    def test_by_flash_does_two_products_forward_and_five_backward(self, rows: int, columns: int, causal: bool) -> None:
        q, k = tensor(2, rows, 3, 4), tensor(2, columns, 3, 4)
        scores = 2 * 3 * (seen(rows, columns, from_last=True) if causal else rows * columns)
        forward = named("xformers_flash::flash_fwd", query=q, key=k, value=k, is_causal=causal)
        assert forward.flops == pytest.approx(2 * scores * 8)
        assert forward.least_bytes == 2 * 2 * (q.elements + k.elements)
        given: dict[str, Any] = {"grad": q, "query": q, "key": k, "value": k, "out": q, "is_causal": causal}
        backward = named("xformers_flash::flash_bwd", **given)
        assert backward.flops == pytest.approx(5 * 2 * scores * 4)
        assert backward.least_bytes == 2 * (4 * q.elements + 4 * k.elements)
        assert named("xformers_flash::flash_bwd", OLDER_FLASH_BWD, **given, dq=q, dk=k, dv=k) == backward

    @pytest.mark.parametrize("kind", ["cutlass", "ck"])
    @given(rows=SIZE, columns=SIZE, mask=st.sampled_from([0, 1, 2]))
    def test_by_other_kernels_has_the_mask_that_a_number_says(
        self, kind: str, rows: int, columns: int, mask: int
    ) -> None:
        q, k = tensor(2, rows, 3, 4), tensor(2, columns, 3, 4)
        scores = 2 * 3 * (seen(rows, columns, from_last=mask == 2) if mask else rows * columns)
        given: dict[str, Any] = {"query": q, "key": k, "value": k, "custom_mask_type": mask}
        assert named(f"xformers::efficient_attention_forward_{kind}", **given).flops == pytest.approx(2 * scores * 8)
        backward = named(f"xformers::efficient_attention_backward_{kind}", **given, grad=q, out=q)
        assert backward.flops == pytest.approx(5 * 2 * scores * 4)
        assert backward.least_bytes == 2 * (4 * q.elements + 4 * k.elements)

    def test_of_sequences_whose_longest_key_is_no_argument_has_bytes_and_no_flops(self) -> None:
        q, lengths = tensor(1, 12, 3, 4), tensor(3, dtype="int32")
        found = named("xformers::efficient_attention_forward_cutlass", query=q, key=q, value=q, seqstart_q=lengths,
                      seqstart_k=lengths, max_seqlen_q=6)  # fmt: skip
        assert (found.flops, found.least_bytes) == (None, 2 * 4 * q.elements)

    def test_of_pages_and_of_an_older_version_with_other_arguments_is_unknown(self) -> None:
        q = tensor(1, 6, 3, 4)
        paged = named("xformers_flash::flash_fwd", query=q, key=q, value=q, block_tables=tensor(1, 2, dtype="int32"))
        assert paged[:2] == (None, None)
        older = work("xformers_flash::flash_fwd", q, q, q, None, None, 6, 6, 0.0, 0.5, True, 0, False)
        assert older.flops is None


@given(SIZE, st.integers(1, 4), SIZE)
def test_only_the_kept_numbers_of_a_sparse_matrix_count(m: int, groups: int, n: int) -> None:
    k = 4 * groups
    kept = sum(2 for _, _, place in product(range(m), range(n), range(k)) if place % 4 < 2)
    packed, dense, meta = tensor(m, k // 2), tensor(k, n), tensor(m, k // 16, dtype="int16")
    read = 2 * (packed.elements + dense.elements + meta.elements)
    expected = OperatorWork(kept, read + 2 * m * n, is_contraction=True)
    assert work("xformers::_sparse24_gemm", packed, dense, meta) == expected
    assert work("aten::_sparse_semi_structured_mm", packed, meta, dense, None) == expected
    added = work("aten::_sparse_semi_structured_addmm", tensor(m), packed, meta, dense, 1, 1, None)
    assert (added.flops, added.least_bytes) == (kept, read + 2 * m * n + 2 * m)
    source = tensor(2, n, k)
    linear = work("aten::_sparse_semi_structured_linear", source, packed, meta, tensor(m), None, None)
    assert linear.flops == 2 * kept
    assert linear.least_bytes == 2 * (source.elements + packed.elements + meta.elements + m + 2 * n * m)
    assert work("xformers::_sparse24_gemm", tensor(m, k), dense, meta).flops is None


class TestProductsOfTorchao:
    LEFT, RIGHT = tensor(4, 64, dtype=FP8), tensor(64, 5, dtype=FP8)
    FLOPS = 2 * 4 * 64 * 5

    def test_of_scaled_matrices_have_the_type_that_they_are_asked_for(self) -> None:
        scale = tensor(4, 2, dtype="float32")
        read, elements = 4 * 64 + 64 * 5, 4 * 5
        calls = {
            "mx_fp8_bf16": ((scale, scale), 2),
            "blockwise_scaled_mm": ((scale, 1, scale, 2, BF16_NUMBER), 2),
            "triton_fp8_gemm_1x128_128x128": ((scale, scale, 128, None), 4),
            "triton_fp8_gemm_1x128_128x1": ((scale, scale, 128, BF16_NUMBER), 2),
        }
        for name, (others, size) in calls.items():
            call = Call(f"torchao::{name}", (self.LEFT, self.RIGHT, *others))
            assert work_of(call) == OperatorWork(self.FLOPS, read + size * elements, is_contraction=True), name
            assert type_of(call) == FP8

    def test_of_a_sparse_weight_are_of_the_numbers_that_are_kept(self) -> None:
        weight, scale = tensor(5, 32, dtype=FP8), tensor(4, dtype="float32")
        found = work("torchao::rowwise_scaled_linear_sparse_cutlass_f8f8", self.LEFT, scale, weight,
                     tensor(5, 8, dtype="uint8"), tensor(5), None, None)  # fmt: skip
        assert found == OperatorWork(self.FLOPS / 2, 4 * 64 + 5 * 32 + 5 * 8 + 4 * 4 * 5, is_contraction=True)

    @pytest.mark.parametrize("weight", [(6, 64), (3, 2, 32, 2)])
    def test_on_a_cpu_take_a_weight_whole_or_in_blocks(self, weight: tuple[int, ...]) -> None:
        found = work("torchao::float8_linear_cpu", self.LEFT, tensor(4), tensor(*weight, dtype=FP8), tensor(6),
                     tensor(6), BF16_NUMBER)  # fmt: skip
        assert found.flops == 2 * 4 * 64 * 6 + 4 * 6
        assert found.least_bytes == 4 * 64 + 6 * 64 + 2 * 6 + 2 * 4 * 6
        other = work("torchao::float8_linear_cpu", self.LEFT, tensor(4), tensor(6, 63, dtype=FP8), tensor(6), None, 15)
        assert other.flops is None

    def test_with_a_weight_of_six_bits_are_known_where_it_has_as_many_numbers(self) -> None:
        source, weight = tensor(3, 64, dtype="float16"), tensor(5, 64 * 6 // 32, dtype="int32")
        found = work("torchao::quant_llm_linear", 3, 2, source, weight, tensor(5, dtype="float16"), 1)
        assert found == OperatorWork(2 * 3 * 64 * 5, 2 * 3 * 64 + 4 * 60 + 2 * 5 + 2 * 15, is_contraction=True)
        assert work("torchao::quant_llm_linear", 2, 2, source, weight, tensor(5), 1).flops is None

    def test_of_a_sparse_marlin_weight_are_of_the_numbers_that_are_kept(self) -> None:
        source, weight = tensor(3, 64, dtype="float16"), tensor(2, 16 * 128 // 8, dtype="int32")
        meta, scales = tensor(2, 256, dtype="int16"), tensor(1, 128, dtype="float16")
        found = work("torchao::marlin_24_gemm", source, weight, meta, scales, tensor(64, dtype="int32"), 4, 3, 128, 64)
        read = 2 * 3 * 64 + 4 * 2 * 256 + 2 * 2 * 256 + 2 * 128
        assert found == OperatorWork(3 * 64 * 128, read + 2 * 3 * 128, is_contraction=True)


INT8, UINT8, FP32 = (tensor(3, 64, dtype=name) for name in ("int8", "uint8", "float32"))
ROWS, SCALE = tensor(3, 1, dtype="float32"), tensor(1, 128, dtype="float32")
IN_NIBBLES = tensor(128, 32, dtype="int8")
INTEGERS: dict[str, tuple[tuple[Any, ...], int]] = {
    "int_matmul": ((INT8, tensor(64, 128, dtype="int8")), 64 * 128 + 4 * 3 * 128),
    "int_scaled_matmul": ((INT8, tensor(64, 128, dtype="int8"), tensor(3, 1)), 64 * 128 + 2 * 3 + 2 * 3 * 128),
    "scaled_int8_mm": ((INT8, tensor(64, 128, dtype="int8"), ROWS, SCALE), 64 * 128 + 4 * 131 + 4 * 3 * 128),
    "da8w4_linear_cpu": (
        (UINT8, tensor(3, dtype="float32"), tensor(3, dtype="int32"), tensor(4, 2, 32, 16, dtype="uint8"),
         tensor(4, 1, 32, dtype="float32"), tensor(4, 1, 32, dtype="int8"), tensor(4, 2, 32, dtype="int32"),
         tensor(128, dtype="float32"), BF16_NUMBER),
        4 * 3 + 4 * 3 + 64 * 64 + 4 * 128 + 128 + 4 * 256 + 4 * 128 + 2 * 3 * 128,
    ),
    "marlin_qqq_gemm": (
        (INT8, tensor(4, 16 * 16, dtype="int32"), ROWS, SCALE, tensor(0, dtype="float16"), tensor(32, dtype="int32"),
         3, 128, 64),
        4 * 4 * 256 + 4 * 3 + 4 * 128 + 2 * 3 * 128,
    ),
    "rowwise_scaled_linear_cutlass_s8s4": (
        (INT8, tensor(3), IN_NIBBLES, tensor(128), None, None), 128 * 32 + 2 * 131 + 2 * 3 * 128
    ),
    "rowwise_scaled_linear_cutlass_s4s4": (
        (tensor(3, 32, dtype="int8"), tensor(3), IN_NIBBLES, tensor(128), None, None),
        -3 * 32 + 128 * 32 + 2 * 131 + 2 * 3 * 128,
    ),
    "_linear_8bit_act_4bit_weight": (
        (FP32, tensor(5000, dtype="uint8"), 32, 128, 64), 3 * 3 * 64 + 5000 + 4 * 3 * 128
    ),
}  # fmt: skip
"""Operator of torchao -> arguments of a product of [3, 64] and [64, 128], and what it moves beside 3 x 64 bytes."""


@pytest.mark.parametrize("name", INTEGERS)
def test_products_of_integers_have_operations_and_bytes_and_no_flops(name: str) -> None:
    arguments, moved = INTEGERS[name]
    call = Call(f"torchao::{name}", arguments)
    assert work_of(call) == OperatorWork(None, 3 * 64 + moved, is_contraction=True)
    collected = work_of_call(call, is_elementwise=False)
    assert (collected.flops, collected.contraction_flops) == (0.0, 0.0)
    assert collected.integer_operations == 2 * 3 * 64 * 128


@pytest.mark.parametrize("name", INTEGERS)
def test_products_of_integers_whose_sizes_do_not_fit_are_unknown(name: str) -> None:
    arguments, _ = INTEGERS[name]
    call = Call(f"torchao::{name}", (tensor(3, 63, dtype="int8"), *arguments[1:]))
    assert work_of(call) == OperatorWork(None, None, is_contraction=True)
    assert work_of_call(call, is_elementwise=False).integer_operations is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("da8w4_linear_cpu", {0: "input", 3: "weight", 7: "bias", 8: "output_dtype"}),
        ("float8_linear_cpu", {0: "input", 2: "weight", 4: "bias", 5: "output_dtype"}),
        ("rowwise_scaled_linear_sparse_cutlass_f8f8", {0: "input", 2: "weight", 3: "weight_meta", 5: "bias"}),
        ("mx_fp8_bf16", {0: "a", 1: "b"}),
    ],
)
def test_places_of_arguments_are_those_that_torchao_declares(name: str, places: dict[int, str]) -> None:
    torch = pytest.importorskip("torch", reason=WITHOUT_TORCH)
    pytest.importorskip("torchao", reason=WITHOUT_TORCHAO)
    declared = [one.name for one in getattr(torch.ops.torchao, name).default._schema.arguments]
    assert {place: declared[place] for place in places} == places


def test_quantisation_in_blocks_looks_for_the_largest_of_each_and_divides() -> None:
    source, elements = tensor(128, 256), 128 * 256
    once = OperatorWork(3 * elements, 2 * elements + elements + elements / 32)
    assert work("torchao::triton_to_mxfp8_dim0", source, 32, "rceil") == once
    assert work("torchao::mxfp8_quantize", source, False, True, 1, 32, "e4m3", "rceil") == once
    twice = work("torchao::mxfp8_quantize", source, True, True, 32, 32, "e4m3", "rceil")
    assert twice == OperatorWork(6 * elements, 2 * elements + 2 * (elements + elements / 32))
    rows = work("torchao::triton_fp8_blockwise_act_quant_lhs", source, 128, 24)
    assert rows.least_bytes == 3 * elements + 4 * elements / 128
    squares = work("torchao::triton_fp8_blockwise_weight_quant_rhs", source, 128, 24)
    assert squares.least_bytes == 3 * elements + 4 * elements / 128**2
    back = work("torchao::triton_mxfp8_dequant_dim0", tensor(2, 64, dtype=FP8), tensor(2, 2, dtype="float8_e8m0fnu"),
                BF16_NUMBER, 32)  # fmt: skip
    assert back == OperatorWork(128, 128 + 4 + 2 * 128)


@given(SIZE, SIZE)
def test_a_causal_softmax_of_transformer_engine_computes_inside_of_its_mask(rows: int, columns: int) -> None:
    scores = tensor(2, 3, rows, columns)
    inside = 6 * seen(rows, columns, from_last=True)
    forward = work("te_softmax::scaled_aligned_causal_masked_softmax_fwd", scores, 0.5)
    assert forward == OperatorWork(6 * inside, 2 * inside + 2 * scores.elements)
    backward = work("te_softmax::scaled_aligned_causal_masked_softmax_bwd", scores, scores, 0.5)
    assert backward == OperatorWork(5 * inside, 2 * 2 * inside + 2 * scores.elements)


def test_other_softmaxes_of_transformer_engine_compute_every_score() -> None:
    scores, mask = tensor(2, 1, 4, 4), tensor(2, 1, 4, 4, dtype="uint8")
    assert work("te_softmax::scaled_softmax_fwd", scores, 0.5) == OperatorWork(6 * 32, 4 * 32)
    assert work("te_softmax::scaled_masked_softmax_fwd", scores, mask, 0.5) == OperatorWork(6 * 32, 5 * 32)
    assert work("te_softmax::scaled_masked_softmax_bwd", scores, scores, 0.5) == OperatorWork(5 * 32, 6 * 32)
