"""FLOPs and least bytes of the operator formulas against loops that count, on small shapes. No PyTorch is needed."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.operators.calls import UNRECORDED, Call, Tensor, UnknownWork, broadcast, promoted
from ncu_launch.operators.table import FORMULAS, NOTHING, OperatorWork, contraction_flops, work_of
from ncu_launch.operators.units import contraction_unit, elementwise_unit, type_of

SIZE = st.integers(1, 5)


def tensor(*shape: int, dtype: str = "float32", strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(shape, dtype, strides)


def work(name: str, *arguments: Any) -> OperatorWork:
    found = work_of(Call(name, arguments))
    assert found is not None
    return found


# ------------------------------------------------------------------------------------------------------- contractions


@given(SIZE, SIZE, SIZE)
def test_a_product_of_matrices_does_a_multiplication_and_an_addition_per_row_column_and_inner_place(
    m: int, k: int, n: int
) -> None:
    counted = sum(2 for _ in product(range(m), range(n), range(k)))
    found = work("aten::mm", tensor(m, k), tensor(k, n))
    assert found == OperatorWork(counted, 4 * (m * k + k * n + m * n), is_contraction=True)
    assert work("aten::addmm", tensor(n), tensor(m, k), tensor(k, n), 1, 1).flops == counted + m * n
    assert work("aten::linear", tensor(m, k), tensor(n, k), tensor(n)).flops == counted + m * n
    assert work("aten::linear", tensor(m, k), tensor(n, k), None).flops == counted
    assert contraction_flops(Call("aten::addmm", (tensor(n), tensor(m, k), tensor(k, n), 1, 1))) == counted
    assert work("aten::bmm", tensor(3, m, k), tensor(3, k, n)).flops == 3 * counted


def test_the_tensor_that_a_product_is_added_to_is_read_unless_its_factor_is_zero() -> None:
    read = work("aten::addmm", tensor(5), tensor(2, 3), tensor(3, 5), 1, 1).least_bytes
    ignored = work("aten::addmm", tensor(5), tensor(2, 3), tensor(3, 5), 0, 1).least_bytes
    assert (read, ignored) == (4 * (5 + 6 + 15 + 10), 4 * (6 + 15 + 10))


def test_the_result_of_a_scaled_product_has_the_type_that_is_asked_for() -> None:
    left, right, scale = tensor(2, 3, dtype="float8_e4m3fn"), tensor(3, 5, dtype="float8_e4m3fn"), tensor()
    found = work("aten::_scaled_mm", left, right, scale, scale, None, None, 15)
    assert found.least_bytes == 6 + 15 + 2 * 10
    kept = work("aten::_scaled_mm", left, right, scale, scale, None, None, None)
    assert kept.least_bytes == 6 + 15 + 10


def test_an_element_of_packed_fp4_holds_two_numbers() -> None:
    left, right = tensor(2, 3, dtype="float4_e2m1fn_x2"), tensor(3, 5, dtype="float4_e2m1fn_x2")
    found = work("aten::_scaled_mm", left, right, tensor(), tensor(), None, None, 15)
    assert found.flops == 2 * 2 * (2 * 3) * 5


def test_a_product_of_integers_has_operations_and_no_flops() -> None:
    assert work("aten::_int_mm", tensor(2, 3, dtype="int8"), tensor(3, 5, dtype="int8")).flops is None


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8"])
def test_every_product_of_integers_has_bytes_and_no_flops(dtype: str) -> None:
    left, right, bias = tensor(2, 3, dtype=dtype), tensor(3, 5, dtype=dtype), tensor(5, dtype=dtype)
    calls = {
        "mm": (left, right),
        "addmm": (bias, left, right, 1, 1),
        "bmm": (tensor(4, 2, 3, dtype=dtype), tensor(4, 3, 5, dtype=dtype)),
        "linear": (left, tensor(5, 3, dtype=dtype), None),
        "mv": (left, tensor(3, dtype=dtype)),
        "convolution": (tensor(1, 2, 4, 4, dtype=dtype), tensor(3, 2, 2, 2, dtype=dtype), None, [1, 1], [0, 0], [1, 1],
                        False, [0, 0], 1),
    }  # fmt: skip
    for name, arguments in calls.items():
        found = work(f"aten::{name}", *arguments)
        assert found.flops is None, name
        assert found.least_bytes, name


def test_a_product_whose_types_were_not_recorded_may_be_of_floating_point_numbers() -> None:
    assert work("aten::mm", tensor(2, 3, dtype=""), tensor(3, 5, dtype="")).flops == 2 * 2 * 3 * 5


def test_a_product_of_floating_point_numbers_and_integers_has_flops() -> None:
    assert work("aten::_weight_int8pack_mm", tensor(2, 3), tensor(5, 3, dtype="int8"), tensor(5)).flops == 2 * 2 * 3 * 5


def convolution_places(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """How often a kernel fits, by putting it down everywhere."""
    last = size + 2 * padding - dilation * (kernel - 1)
    return sum(1 for start in range(last) if start % stride == 0)


@given(SIZE, SIZE, st.integers(1, 2), st.integers(3, 7), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2),
       st.integers(1, 2))  # fmt: skip
def test_a_convolution_does_the_whole_kernel_at_every_place(
    batch: int, out: int, groups: int, size: int, kernel: int, stride: int, padding: int, dilation: int
) -> None:
    places = convolution_places(size, kernel, stride, padding, dilation)
    if places == 0:
        return
    source, weight = tensor(batch, 2 * groups, size, size), tensor(out * groups, 2, kernel, kernel)
    counted = 2 * sum(1 for _ in product(range(batch), range(out * groups), range(places**2), range(2 * kernel**2)))
    arguments = (source, weight, None, [stride] * 2, [padding] * 2, [dilation] * 2, False, [0, 0], groups)
    found = work("aten::convolution", *arguments)
    result = tensor(batch, out * groups, places, places)
    assert found == OperatorWork(counted, source.bytes + weight.bytes + result.bytes, is_contraction=True)
    cudnn = work("aten::cudnn_convolution", source, weight, [padding] * 2, [stride] * 2, [dilation] * 2, groups)
    assert cudnn == found
    backward = work("aten::convolution_backward", result, source, weight, None, [stride] * 2, [padding] * 2,
                    [dilation] * 2, False, [0, 0], groups, [True, True, False])  # fmt: skip
    assert backward.flops == 2 * counted


def test_a_convolution_whose_stride_was_not_recorded_is_unknown() -> None:
    found = work("aten::convolution", tensor(1, 2, 8, 8), tensor(4, 2, 3, 3), None, UNRECORDED, UNRECORDED, UNRECORDED,
                 UNRECORDED, UNRECORDED, UNRECORDED)  # fmt: skip
    assert (found.flops, found.least_bytes) == (None, None)


# ---------------------------------------------------------------------------------------------------------- attention


@given(SIZE, SIZE, SIZE, SIZE)
def test_attention_does_two_products_forward_and_five_backward(batch: int, heads: int, rows: int, depth: int) -> None:
    counted = sum(2 for _ in product(range(batch * heads), range(rows), range(rows), range(depth)))
    q = tensor(batch, heads, rows, depth)
    forward = work("aten::_scaled_dot_product_flash_attention", q, q, q, 0.0, False, False)
    assert (forward.flops, forward.least_bytes) == (2 * counted, 4 * q.bytes)
    backward = work("aten::_scaled_dot_product_flash_attention_backward", q, q, q, q, q, tensor(batch, heads, rows),
                    None, None, rows, rows, 0.0, False)  # fmt: skip
    assert (backward.flops, backward.least_bytes) == (5 * counted, 8 * q.bytes)


@given(SIZE, st.integers(1, 9), SIZE)
def test_causal_attention_skips_the_scores_above_the_diagonal(heads: int, rows: int, depth: int) -> None:
    seen = sum(1 for row, column in product(range(rows), range(rows)) if column <= row)
    q = tensor(1, heads, rows, depth)
    call = Call("aten::_scaled_dot_product_flash_attention", (q, q, q, 0.0, True, False))
    found = work_of(call)
    assert found is not None
    assert found.flops == pytest.approx(2 * 2 * heads * seen * depth)
    assert contraction_flops(call) == 2 * 2 * heads * rows * rows * depth  # as PyTorch's counter


def test_grouped_queries_have_the_work_of_all_heads_and_the_bytes_of_the_fewer_keys() -> None:
    q, k = tensor(1, 8, 5, 4), tensor(1, 2, 5, 4)
    found = work("aten::_scaled_dot_product_flash_attention", q, k, k, 0.0, False, False)
    assert (found.flops, found.least_bytes) == (2 * 8 * 5 * 5 * 8, 2 * q.bytes + 2 * k.bytes)


# ------------------------------------------------------------------------------------------------ everything beside it


@given(SIZE, SIZE)
def test_an_element_wise_operator_does_its_operations_for_every_element_of_the_result(m: int, n: int) -> None:
    assert work("aten::add", tensor(m, 1), tensor(1, n), 1) == OperatorWork(m * n, 4 * (m + n + m * n))
    assert work("aten::mul_", tensor(m, n), tensor(n)) == OperatorWork(m * n, 4 * (2 * m * n + n))
    assert work("aten::addcmul", tensor(m, n), tensor(m, n), tensor(m, n)).flops == 3 * m * n
    assert work("aten::eq", tensor(m, n), tensor(m, n)) == OperatorWork(0, 4 * 2 * m * n + m * n)


def test_a_dimension_of_stride_zero_is_read_once() -> None:
    expanded = tensor(4, 6, strides=(0, 1))
    assert work("aten::copy_", tensor(4, 6), expanded).least_bytes == 4 * 24 + 4 * 6


def test_integers_are_no_flops() -> None:
    assert work("aten::add", tensor(3, dtype="int64"), tensor(3, dtype="int64"), 1) == OperatorWork(0, 3 * 8 * 3)


def test_a_number_does_not_widen_the_type_of_a_tensor() -> None:
    half = tensor(4, dtype="bfloat16")
    assert promoted([half, tensor(dtype="float64")]) == "bfloat16"
    assert promoted([tensor(4, dtype="int32"), tensor(dtype="float64")]) == "float32"
    assert promoted([half, tensor(4, dtype="float16")]) == "float32"


@given(st.lists(st.tuples(SIZE, SIZE), min_size=1, max_size=4))
def test_lists_of_tensors_are_summed(shapes: list[tuple[int, int]]) -> None:
    elements = sum(m * n for m, n in shapes)
    listed = tuple(tensor(*shape) for shape in shapes)
    assert work("aten::_foreach_add_", listed, listed, 1) == OperatorWork(elements, 3 * 4 * elements)
    assert work("aten::_foreach_copy_", listed, listed, False) == OperatorWork(0, 2 * 4 * elements)
    assert work("aten::cat", listed, 0) == OperatorWork(0, 2 * 4 * elements)
    adam = work("aten::_fused_adamw_", listed, listed, listed, listed, (), ())
    assert adam == OperatorWork(14 * elements, 7 * 4 * elements)


def test_a_list_of_tensors_whose_shapes_were_not_recorded_is_unknown() -> None:
    assert work("aten::cat", UNRECORDED, 0).least_bytes is None
    assert work("aten::_foreach_add_", UNRECORDED, UNRECORDED, 1) == OperatorWork(None, None)


def test_rows_that_are_picked_cost_no_more_than_is_written() -> None:
    table, rows = tensor(1000, 8), tensor(3, 2, dtype="int64")
    assert work("aten::embedding", table, rows, -1, False, False).least_bytes == 2 * 4 * 6 * 8 + 8 * 6


@given(st.integers(2, 8), st.integers(1, 3), st.integers(1, 3))
def test_a_pooling_window_takes_as_many_operations_as_numbers(size: int, kernel: int, stride: int) -> None:
    if kernel > size:
        return
    places = convolution_places(size, kernel, stride, 0, 1)
    found = work("aten::avg_pool2d", tensor(2, 3, size, size), [kernel] * 2, [stride] * 2, [0, 0], False)
    assert found.flops == 2 * 3 * places**2 * kernel**2


def test_views_and_allocations_do_nothing() -> None:
    assert work("aten::view", tensor(3), [3]) == NOTHING
    assert work("aten::empty", [3], 6) == NOTHING


def test_a_fused_kernel_moves_every_tensor_once_and_does_an_unknown_number_of_operations() -> None:
    found = work("triton_poi_fused_mul_silu_2", tensor(4, 8), tensor(4, 8), 32)
    assert (found.flops, found.least_bytes) == (None, 2 * 4 * 32)


def test_a_fused_kernel_reads_of_a_slice_no_more_than_it_has_iterations() -> None:
    source, result = tensor(4, 100), tensor(4, 8)
    assert work("triton_poi_fused_slice_clone_3", source, result, 32).least_bytes == 4 * (32 + 32)
    assert work("triton_red_fused_slice_sum_4", source, tensor(4), 4, 8).least_bytes == 4 * (32 + 4)
    untold = work("triton_poi_fused_slice_clone_3", source, result, UNRECORDED)
    assert untold.least_bytes == 4 * (400 + 32)


def test_an_operator_without_a_formula_is_unknown() -> None:
    assert work_of(Call("vllm::unified_attention_with_output", (tensor(3),))) is None


def test_every_formula_has_a_source_and_takes_no_arguments_for_granted() -> None:
    for name, formula in FORMULAS.items():
        assert formula.source, name
        found = work_of(Call(name, ()))
        assert found is not None, name
        assert found.flops in (None, 0.0), name


@given(st.lists(st.lists(SIZE, max_size=3).map(tuple), max_size=3))
def test_shapes_that_do_not_fit_are_unknown_and_others_are_as_long_as_the_longest(shapes: list[Any]) -> None:
    try:
        found = broadcast(shapes)
    except UnknownWork:
        return
    assert len(found) == max((len(shape) for shape in shapes), default=0)


@pytest.mark.parametrize(
    ("dtype", "kernel", "unit"),
    [
        ("bfloat16", "nvjet_tst_128x256", "tensor_bf16"),
        ("float8_e4m3fn", "nvjet_qqtst", "tensor_fp8"),
        ("float32", "ampere_sgemm_128x64_tn", "fp32"),
        ("float32", "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", "tensor_tf32"),
        ("float32", "some_kernel", None),
        ("bfloat16", "void gemvNSP_kernel<__nv_bfloat16>", "fp32"),
        ("float64", "sm80_xmma_gemm_f64f64_f64f64_f64_tn_n_dmma", "tensor_fp64"),
        ("complex64", "some_kernel", None),
    ],
)
def test_the_unit_of_a_product_follows_from_its_type_and_where_that_is_not_enough_from_the_kernel(
    dtype: str, kernel: str, unit: str | None
) -> None:
    assert contraction_unit(dtype, kernel) == unit


def test_element_wise_work_on_half_types_is_that_of_the_fp32_units() -> None:
    assert (
        elementwise_unit(type_of(Call("aten::add", (tensor(3, dtype="bfloat16"), tensor(dtype="float64"))))) == "fp32"
    )
