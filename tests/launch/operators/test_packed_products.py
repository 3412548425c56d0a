"""Products of quantised, packed and grouped matrices, and recurrent networks, against loops on small shapes."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.operators.calls import Call, Tensor
from ncu_launch.operators.table import OperatorWork, work_of
from ncu_launch.operators.units import contraction_unit, type_of

SIZE = st.integers(1, 5)
BF16, FP8 = "bfloat16", "float8_e4m3fn"


def tensor(*shape: int, dtype: str = BF16) -> Tensor:
    return Tensor(shape, dtype)


def work(name: str, *arguments: Any) -> OperatorWork:
    found = work_of(Call(name, arguments))
    assert found is not None
    return found


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(any), SIZE, SIZE)
def test_groups_together_are_as_large_as_one_product(groups: list[int], k: int, n: int) -> None:
    counted = sum(2 for rows in groups for _ in product(range(rows), range(k), range(n)))
    total, offsets = sum(groups), tensor(len(groups), dtype="int32")
    rows = work("aten::_grouped_mm", tensor(total, k), tensor(len(groups), k, n), offsets, None, None)
    columns = work("aten::_grouped_mm", tensor(len(groups), n, k), tensor(k, total), offsets, None, None)
    inner = work("aten::_grouped_mm", tensor(k, total), tensor(total, n), offsets, None, None)
    assert rows.flops == columns.flops == inner.flops == counted
    assert inner.least_bytes == 2 * (k * total + total * n + len(groups) * k * n)
    weights = len(groups) * k * n
    assert rows.least_bytes == (None if total < len(groups) else 2 * (total * k + weights + total * n))


def test_batches_of_groups_are_products_of_a_batch() -> None:
    found = work("aten::_grouped_mm", tensor(3, 4, 5), tensor(3, 5, 6), None, None, None)
    assert found == work("aten::bmm", tensor(3, 4, 5), tensor(3, 5, 6))


def test_scaled_groups_have_the_type_that_is_asked_for() -> None:
    left, right, offsets = tensor(8, 5, dtype=FP8), tensor(2, 5, 6, dtype=FP8), tensor(2, dtype="int32")
    found = work("aten::_scaled_grouped_mm", left, right, tensor(8), tensor(2, 6), offsets, None, None, 15, False)
    assert found == OperatorWork(2 * 8 * 5 * 6, 8 * 5 + 2 * 5 * 6 + 2 * 8 * 6, is_contraction=True)
    newer = work("aten::_scaled_grouped_mm_v2", left, right, (), (), (), (), (), (), offsets, None, 15, (), False)
    assert newer == found


def test_a_bias_of_a_scaled_product_counts() -> None:
    left, right = tensor(2, 3, dtype=FP8), tensor(3, 5, dtype=FP8)
    found = work("aten::_scaled_mm_v2", left, right, (), (), (), (), (), (), tensor(5), 15, (), False)
    assert found == OperatorWork(2 * 2 * 3 * 5 + 10, 6 + 15 + 2 * 5 + 2 * 10, is_contraction=True)


@given(SIZE, SIZE, SIZE)
def test_a_weight_of_int4_has_two_numbers_in_a_byte(m: int, groups: int, n: int) -> None:
    k = 32 * groups
    weight, scales = tensor(n, k // 2, dtype="uint8"), tensor(groups, n, 2)
    found = work("aten::_weight_int4pack_mm_for_cpu", tensor(m, k), weight, 32, scales)
    assert found == OperatorWork(2 * m * k * n, 2 * m * k + n * k // 2 + 4 * groups * n + 2 * m * n, True)
    other = work("aten::_weight_int4pack_mm", tensor(m, k), tensor(n, k // 8, dtype="int32"), 32, scales)
    assert other == found


def test_a_weight_that_has_not_as_many_numbers_as_the_product_takes_is_unknown() -> None:
    found = work("aten::_weight_int4pack_mm", tensor(2, 64), tensor(5, 64, dtype="int32"), 32, tensor(2, 5, 2))
    assert found.flops is None


@given(SIZE, SIZE, SIZE, SIZE)
def test_a_recurrent_network_multiplies_by_every_weight_at_every_moment(
    moments: int, batch: int, depth: int, hidden: int
) -> None:
    gates = 4
    counted = 0
    for _ in product(range(moments), range(batch), range(gates * hidden)):
        counted += 2 * depth + 2 * hidden
    source, bias = tensor(moments, batch, depth, dtype="float32"), tensor(gates * hidden, dtype="float32")
    weights = (tensor(gates * hidden, depth, dtype="float32"), tensor(gates * hidden, hidden, dtype="float32"))
    state = tensor(1, batch, hidden, dtype="float32")
    layer = work("aten::mkldnn_rnn_layer", source, *weights, bias, bias, state, state, False, (), 2, hidden, 1, True,
                 False, False, False)  # fmt: skip
    cudnn = work("aten::_cudnn_rnn", source, (*weights, bias, bias), 4, None, state, state, 2, hidden, 0, 1, False, 0.0,
                 False, False, (), None)  # fmt: skip
    assert layer == cudnn
    assert layer.flops == counted
    parameters = gates * hidden * (depth + hidden + 2)
    assert layer.least_bytes == 4 * (moments * batch * (depth + hidden) + parameters)


# ------------------------------------------------------------------------------------------------ of other libraries


def test_a_scaled_product_of_vllm_writes_into_its_first_argument() -> None:
    left, right = tensor(4, 6, dtype=FP8), tensor(6, 5, dtype=FP8)
    found = work("_C::cutlass_scaled_mm", tensor(4, 5), left, right, tensor(1), tensor(1), tensor(5))
    assert found == OperatorWork(2 * 4 * 6 * 5 + 20, 24 + 30 + 10 + 40, is_contraction=True)
    call = Call("_C::cutlass_scaled_mm", (tensor(4, 5), left, right, tensor(1), tensor(1), None))
    assert contraction_unit(type_of(call), "cutlass_kernel") == "tensor_fp8"
    integers = work("_C::cutlass_scaled_mm", tensor(4, 5), tensor(4, 6, dtype="int8"), tensor(6, 5, dtype="int8"))
    assert integers.flops is None


def test_products_with_packed_weights_of_vllm_and_sglang_count_as_unpacked() -> None:
    m, k, n = 3, 64, 16
    source, weight = tensor(m, k), tensor(k, n // 8, dtype="int32")
    scales, zeros = tensor(k // 32, n), tensor(k // 32, n // 8, dtype="int32")
    bytes_moved = 2 * m * k + n * k // 2 + 2 * k // 32 * n + k // 32 * n // 2 + 2 * m * n
    awq = work("_C::awq_gemm", source, weight, scales, zeros, 8)
    assert awq == OperatorWork(2 * m * k * n, bytes_moved, is_contraction=True)
    packed = tensor(k // 8, n, dtype="int32")
    gptq = work("_C::gptq_gemm", source, packed, zeros, scales, tensor(k, dtype="int32"), True, False, 4)
    assert gptq == awq
    assert work("_C::gptq_gemm", source, packed, zeros, scales, tensor(k, dtype="int32"), True, False, 8).flops is None
    marlin = work("sgl_kernel::gptq_marlin_gemm", source, None, packed, scales, *[None] * 5, 0, m, n, k, True)
    assert marlin.flops == awq.flops
    other = work("sgl_kernel::gptq_marlin_gemm", source, None, packed, scales, *[None] * 5, 0, m + 1, n, k, True)
    assert (other.flops, other.least_bytes) == (None, None)


def test_norms_and_activations_have_their_result_first_or_write_their_input() -> None:
    x, weight, scale = tensor(4, 6), tensor(6), tensor(1, dtype="float32")
    quantised = tensor(4, 6, dtype=FP8)
    expected = {
        ("_C::rms_norm", x, x, weight, 1e-6): (4 * 24, 2 * (48 + 6)),
        ("sgl_kernel::rmsnorm", x, x, weight, 1e-6, True): (4 * 24, 2 * (48 + 6)),
        ("aiter::rmsnorm", x, x, weight, 1e-6): (4 * 24, 2 * (48 + 6)),
        ("_C::fused_add_rms_norm", x, x, weight, 1e-6): (5 * 24, 2 * (4 * 24 + 6)),
        ("aiter::add_rmsnorm", x, x, x, x, weight, 1e-6): (5 * 24, 2 * (4 * 24 + 6)),
        ("_C::silu_and_mul", tensor(4, 3), x): (5 * 12, 2 * (12 + 24)),
        ("sgl_kernel::gelu_and_mul", tensor(4, 3), x): (6 * 12, 2 * (12 + 24)),
        ("_C::static_scaled_fp8_quant", quantised, x, scale): (24, 24 + 2 * 24 + 4),
        ("_C::dynamic_scaled_fp8_quant", quantised, x, scale): (3 * 24, 24 + 2 * 24 + 4),
        ("_C::rms_norm_static_fp8_quant", quantised, x, weight, scale, 1e-6): (5 * 24, 24 + 2 * (24 + 6) + 4),
    }
    source = tensor(2, 6, 4)
    groups = work("aiter::_groupnorm_run", source, 3, weight, weight, 1e-6)
    assert groups[:2] == (8 * 48, 2 * (2 * 48 + 12))
    assert work("aiter::_groupnorm_run", source, source, source, 3, weight, weight, 1e-6)[:2] == (None, None)
    assert {call: work(str(call[0]), *call[1:])[:2] for call in expected} == expected


@given(SIZE, SIZE, SIZE, st.sampled_from([2, 4]))
def test_a_rotation_turns_pairs_of_the_first_numbers_of_each_head(
    tokens: int, heads: int, more: int, turned: int
) -> None:
    depth = turned + 2 * more
    pairs = sum(1 for _ in product(range(tokens), range(heads + 1), range(turned // 2)))
    positions, table = tensor(tokens, dtype="int64"), tensor(100, turned)
    found = work("_C::rotary_embedding", positions, tensor(tokens, heads * depth), tensor(tokens, depth), depth, table,
                 True)  # fmt: skip
    assert found == OperatorWork(6 * pairs, 2 * 2 * 2 * pairs + 8 * tokens + 2 * tokens * turned)


def test_a_cache_takes_keys_and_values_in_its_own_type() -> None:
    key, cache, slots = tensor(5, 2, 4), tensor(100, 16, 2, 4, dtype="uint8"), tensor(3, dtype="int64")
    found = work("_C_cache_ops::reshape_and_cache_flash", key, key, cache, cache, slots, None, tensor(), tensor())
    assert found == OperatorWork(2 * 3 * 8, 2 * 3 * 8 * (2 + 1) + 3 * 8)
    same = work("sglang::store_cache", tensor(5, 8), tensor(5, 8), tensor(100, 8), tensor(100, 8), slots, 16, 0)
    assert same == OperatorWork(0, 2 * 3 * 8 * (2 + 2) + 3 * 8)
