"""Operators of other libraries: flash-attn, xformers, vLLM, SGLang, AITER, torchao and Transformer Engine.

Covers work that shapes determine. Argument positions follow the libraries' own declarations, named below. Left out are
operators whose work depends on data, such as mixtures of experts (how many tokens each gets) and paged caches (their
lengths), and operators whose arguments differ between versions that cannot be told apart by shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ncu_launch.operators.attention import LAST, Variant, backward, forward, scores_inside
from ncu_launch.operators.calls import Call, Formula, Tensor, UnknownWork, bytes_at, of_floats
from ncu_launch.operators.contractions import linear
from ncu_launch.operators.elementwise import of_first
from ncu_launch.operators.packed_products import (
    columns_of,
    integer_product,
    packed_weight,
    requested_type,
    scaled_product,
    sparse_product,
    type_at,
)

PRODUCT = "2 x rows x columns x inner size (definition of the product)"

# ---------------------------------------------------------------------------------------------------------- attention

_FLASH_3 = forward(
    Variant(
        0, causal=24, heads_first=False, lengths=(7, 8), longest=(12, 13), window=(25, 26), aligned=LAST,
        # new keys and values, page table, lengths in use, chunks
        unknown=(3, 4, 5, 9, 10, 11, 14, 15, 16, 27),
    ),
    halves_fp8=True,
)  # fmt: skip
_FLASH_3_BACKWARD = backward(
    Variant(
        1, causal=16, heads_first=False, lengths=(9, 10), longest=(13, 14), window=(17, 18), aligned=LAST,
        unknown=(11, 12),
    ),
    4,
)  # fmt: skip

FLASH_ATTENTION: dict[str, Formula] = {
    "flash_attn::_flash_attn_forward": forward(
        Variant(0, causal=5, heads_first=False, window=(6, 7), aligned=LAST)
    ),
    "flash_attn::_flash_attn_backward": backward(
        Variant(1, causal=11, heads_first=False, window=(12, 13), aligned=LAST), 4
    ),
    "flash_attn::_flash_attn_varlen_forward": forward(
        Variant(0, causal=9, heads_first=False, lengths=(3, 4), longest=(5, 6), window=(10, 11), unknown=(15, 16, 17),
                aligned=LAST)
    ),
    "flash_attn::_flash_attn_varlen_backward": backward(
        Variant(1, causal=15, heads_first=False, lengths=(9, 10), longest=(11, 12), window=(16, 17), aligned=LAST), 4
    ),
    "flash_attn_3::fwd": _FLASH_3,
    "flash_attn_3::bwd": _FLASH_3_BACKWARD,
    "flash_attn_3::_flash_attn_forward": _FLASH_3,
}  # fmt: skip
"""FlashAttention's operators -> their formulas.

Sources: flash_attn/flash_attn_interface.py (flash-attn 2), hopper/flash_api.cpp and flash_attn_interface.py (3).
"""


def _by_first_argument(tensor: Formula, other: Formula) -> Formula:
    """The formula `tensor` for calls whose first argument is a tensor, else `other`: two versions of one operator."""

    def of(call: Call) -> Formula:
        return tensor if call.is_tensor(0) else other

    return Formula(
        lambda call: of(call).flops(call), lambda call: of(call).read(call), lambda call: of(call).written(call),
        True, tensor.source, lambda call: of(call).correction(call) if of(call).correction else 0.0,
    )  # fmt: skip


XFORMERS: dict[str, Formula] = {
    "xformers_flash::flash_fwd": forward(
        Variant(0, causal=10, heads_first=False, lengths=(3, 4), longest=(6, 7), window=(11, 12), unknown=(5, 14),
                aligned=LAST)
    ),
    "xformers_flash::flash_bwd": _by_first_argument(  # until 0.0.25, and from 0.0.26 on
        backward(Variant(1, causal=15, heads_first=False, lengths=(9, 10), longest=(11, 12), window=(16, 17),
                         aligned=LAST), 4),
        backward(Variant(2, causal=13, heads_first=False, lengths=(7, 8), longest=(9, 10), window=(14, 15),
                         aligned=LAST), 5),
    ),
    # the longest key length is not an argument, so FLOPs are unknown with lengths
    **{f"xformers::efficient_attention_forward_{name}": forward(
        Variant(0, heads_first=False, lengths=(4, 5), unknown=unknown, bias=3, mask=9)
    ) for name, unknown in (("cutlass", (11, 12)), ("ck", (11, 12, 13)))},
    "xformers::efficient_attention_backward_cutlass": backward(
        Variant(1, heads_first=False, lengths=(5, 6), longest=(7, 8), unknown=(17,), bias=4, mask=14), 10
    ),
    "xformers::efficient_attention_backward_ck": backward(
        Variant(1, heads_first=False, lengths=(5, 6), longest=(7, 8), unknown=(9, 17), bias=4, mask=15), 11
    ),
    "xformers::_sparse24_gemm": sparse_product(0, 1, (2,), type_at(0)),
}  # fmt: skip
"""xFormers' operators -> their formulas; `xformers_flash3::` calls `flash_attn_3::`.

Sources: xformers/ops/fmha/flash.py (tags v0.0.23 to v0.0.33), xformers/csrc/attention/attention.cpp (v0.0.25 and
v0.0.35), xformers/csrc/sparse24/sparse24.cpp.
"""


# ------------------------------------------------------------------------------- norms, activations and quantisation


def _normalised(operations: int, *read: int) -> Formula:
    """`operations` per element of argument 1, written to argument 0; the tensors at `read` are read."""
    return of_first(operations, read=read, counted=1)


RMS_NORM, RESIDUAL, QUANTISED = 4, 1, 1
"""Operations per element: RMS norm (square, sum, two factors), addition of a residual, division by a scale."""

GATED = {"silu_and_mul": 5, "gelu_and_mul": 6, "gelu_tanh_and_mul": 6}
"""Operations per element of the result for an activation of one half of the input times its other half."""

_ADDED_IN_PLACE = of_first(RMS_NORM + RESIDUAL, read=(0, 1, 2), also_written=bytes_at(1))


def _group_norm() -> Formula:
    """8 operations per element, as in PyTorch's formula.

    Raises `UnknownWork` if argument 1 is a tensor, as in a version with extra leading arguments.
    """

    def source(call: Call) -> Tensor:
        if call.is_tensor(1):
            raise UnknownWork("which argument the input is")
        return call.tensor(0)

    formula = of_first(8, result=source, read=(0, 2, 3))
    return formula._replace(flops=lambda call: of_floats(call, 8.0 * source(call).elements))


def _rotary() -> Formula:
    """Rotation of pairs of the first numbers of each head of queries and keys: 6 operations per pair.

    Arguments: positions, query, key or none, head depth, [positions, rotation depth] of cosines and sines.
    """

    def rotated(call: Call) -> Tensor:
        """The rotated part of queries and keys together."""
        query, depth, table = call.tensor(1), call.value(3), call.tensor(4)
        elements = query.elements + (call.tensor(2).elements if call.is_tensor(2) else 0)
        if not isinstance(depth, int) or table.shape[-1] > depth or elements % depth:
            raise UnknownWork("the depth of a head")
        return Tensor((elements // depth, table.shape[-1]), query.dtype)

    def read(call: Call) -> float:
        positions, table = call.tensor(0), call.tensor(4)
        rows = Tensor((positions.elements, table.shape[-1]), table.dtype)
        return float(rotated(call).bytes + positions.bytes + min(rows.bytes, table.bytes))

    return Formula(
        lambda call: of_floats(call, 3.0 * rotated(call).elements), read, lambda call: float(rotated(call).bytes),
        False, "x cos - y sin and y cos + x sin for each pair (RoFormer, Su et al. 2021)",
    )  # fmt: skip


def _cached() -> Formula:
    """Write keys and values to slots of two caches, quantised if the caches have smaller elements. Every slot counts.

    Arguments: key, value, cache of keys, cache of values, slots.
    """

    def tokens(call: Call, place: int) -> Tensor:
        source, slots = call.tensor(place), call.tensor(4)
        return Tensor((slots.elements, *source.shape[1:]), source.dtype)

    def flops(call: Call) -> float:
        is_smaller = Tensor((), call.tensor(2).dtype).bytes < Tensor((), call.tensor(0).dtype).bytes
        return float(is_smaller * QUANTISED * sum(tokens(call, place).elements for place in (0, 1)))

    def read(call: Call) -> float:
        return float(sum(tokens(call, place).bytes for place in (0, 1)) + call.tensor(4).bytes)

    def written(call: Call) -> float:
        kept = (tokens(call, place)._replace(dtype=call.tensor(place + 2).dtype) for place in (0, 1))
        return float(sum(one.bytes for one in kept))

    return Formula(flops, read, written, False, "every key and value once; a division by the scale for each in FP8")


# ----------------------------------------------------------------------------------------------------------- products


def _marlin(sizes: int, others: tuple[int, ...]) -> Formula:
    """A product with a packed weight, whose rows, columns and inner size are three numbers from `sizes` on.

    Raises `UnknownWork` if they contradict the input, as in a version with other arguments.
    """

    def size(call: Call) -> tuple[int, int]:
        rows, columns, inner = (call.value(sizes + one) for one in range(3))
        if call.tensor(0).shape != (rows, inner) or not isinstance(columns, int):
            raise UnknownWork("sizes that fit the input")
        return rows, columns

    def flops(call: Call) -> float:
        return 2.0 * call.tensor(0).elements * size(call)[1]

    def written(call: Call) -> float:
        return float(Tensor(size(call), call.tensor(0).dtype).bytes)

    return Formula(flops, lambda call: float(call.given_bytes((0, *others))), written, True, PRODUCT)


def _gptq_columns(call: Call) -> int:
    """Columns of the weight, [inner size packed, columns]."""
    return call.tensor(1).shape[1]


def _into(columns: Callable[[Call], int], *, bits: int | None = None) -> Formula:
    """A product with a packed weight of `bits` per number (None: 4); scales and zero points are arguments 2 and 3.

    `columns` returns the number of columns of the result.
    """
    return packed_weight(columns, (2, 3), bits=bits or 4)


def _gptq() -> Formula:
    """A GPTQ product with a packed weight, whose bits per number are the last argument."""
    return Formula(
        lambda call: _into(_gptq_columns, bits=call.value(len(call.arguments) - 1)).flops(call),
        lambda call: _into(_gptq_columns).read(call),
        lambda call: _into(_gptq_columns).written(call),
        True,
        PRODUCT,
    )


def _float8_linear() -> Formula:
    """A product with a weight [n, k], or in blocks [n / a, k / b, b, a], each with its scales and a bias."""

    def columns(call: Call) -> int:
        source, weight = call.tensor(0).shape, call.tensor(2).shape
        if len(weight) not in (2, 4) or call.tensor(2).elements != source[-1] * weight[0] * prod(weight[3:]):
            raise UnknownWork("a weight that fits the input")
        return weight[0] * prod(weight[3:])

    def result(call: Call) -> Tensor:
        return Tensor((*call.tensor(0).shape[:-1], columns(call)), requested_type(5)(call))

    return Formula(
        lambda call: 2.0 * call.tensor(0).elements * columns(call), lambda call: float(call.given_bytes((0, 2, 4))),
        lambda call: float(result(call).bytes), True,
        PRODUCT,
        lambda call: float(result(call).elements) if call.is_tensor(4) else 0.0,
    )  # fmt: skip


def _quant_llm() -> Formula:
    """A product with a weight [n, k / 32 x bits] packed in int32; arguments 0 and 1 are exponent and mantissa bits."""

    def shifted(call: Call) -> Call:
        return Call(call.name, call.arguments[2:])

    def formula(call: Call) -> Formula:
        return packed_weight(columns_of(1, 0), (2,), bits=1 + int(call.value(0)) + int(call.value(1)))

    return Formula(
        lambda call: formula(call).flops(shifted(call)),
        lambda call: formula(call).read(shifted(call)),
        lambda call: formula(call).written(shifted(call)),
        True,
        PRODUCT,
    )


def _sparse_marlin() -> Formula:
    """A product with a 2:4 sparse weight, which keeps half of the inner size."""
    whole = _marlin(6, (1, 2, 3))
    return whole._replace(flops=lambda call: whole.flops(call) / 2)


# ------------------------------------------------------------------------------------------------ products of integers


def _of_matrices(call: Call) -> tuple[int, int, int]:
    """Sizes (rows, columns, inner) of [m, k] x [k, n]. Raises `UnknownWork` if k differs."""
    (rows, inner), (other, columns) = call.tensor(0).shape, call.tensor(1).shape
    if inner != other:
        raise UnknownWork("two matrices that fit each other")
    return rows, columns, inner


def _stated(sizes: int, order: str) -> Callable[[Call], tuple[int, int, int]]:
    """Sizes (rows, columns, inner) from numbers at position `sizes` on, in an `order` such as "mnk".

    Without m, rows are the input's. Raises `UnknownWork` if they contradict the input.
    """

    def of(call: Call) -> tuple[int, int, int]:
        named = {letter: int(call.value(sizes + place)) for place, letter in enumerate(order)}
        rows, inner = prod(call.tensor(0).shape[:-1]), call.tensor(0).shape[-1]
        if named["k"] != inner or named.get("m", rows) != rows:
            raise UnknownWork("sizes that fit the input")
        return rows, named["n"], inner

    return of


def _in_nibbles(*, input_too: bool) -> Callable[[Call], tuple[int, int, int]]:
    """Sizes (rows, columns, inner) of [..., k] x [n, k / 2] with two weights per byte.

    `input_too`: the input is [..., k / 2] with two numbers per byte. Raises `UnknownWork` for other shapes.
    """

    def of(call: Call) -> tuple[int, int, int]:
        source, (columns, packed) = call.tensor(0).shape, call.tensor(2).shape
        if source[-1] != packed * (1 if input_too else 2):
            raise UnknownWork("a weight that fits the input")
        return prod(source[:-1]), columns, 2 * packed

    return of


def _in_blocks_of_nibbles(call: Call) -> tuple[int, int, int]:
    """Sizes (rows, columns, inner) of [..., k] x [n / b, k / a, a, b / 2] with two weights per byte."""
    source, weight = call.tensor(0).shape, call.tensor(3)
    if len(weight.shape) != 4 or weight.shape[1] * weight.shape[2] != source[-1]:
        raise UnknownWork("a weight that fits the input")
    return prod(source[:-1]), weight.shape[0] * weight.shape[3] * 2, source[-1]


def _or_type_of_scale(call: Call) -> str:
    return type_at(1)(call) if call.value(5) is None else requested_type(5)(call)


INTEGER_PRODUCTS: dict[str, Formula] = {
    "torchao::int_matmul": integer_product(_of_matrices, lambda call: "int32", (0, 1)),
    "torchao::int_scaled_matmul": integer_product(_of_matrices, type_at(2), (0, 1, 2)),
    "torchao::scaled_int8_mm": integer_product(_of_matrices, type_at(2), (0, 1, 2, 3)),
    "torchao::da8w4_linear_cpu": integer_product(_in_blocks_of_nibbles, requested_type(8), range(8)),
    "torchao::marlin_qqq_gemm": integer_product(_stated(6, "mnk"), lambda call: "float16", range(5)),
    "torchao::rowwise_scaled_linear_cutlass_s8s4": integer_product(
        _in_nibbles(input_too=False), _or_type_of_scale, range(5)
    ),
    "torchao::rowwise_scaled_linear_cutlass_s4s4": integer_product(
        _in_nibbles(input_too=True), _or_type_of_scale, range(5)
    ),
    **{f"torchao::_linear_8bit_act_{bits}bit_weight": integer_product(_stated(3, "nk"), type_at(0), (0, 1))
       for bits in range(1, 9)},
}  # fmt: skip
"""torchao's integer products, whose operations are not FLOPs. Sources: torchao/ops.py (CUTLASS; Marlin of a version
before 0.18), csrc_meta_ops.py, kernel/intmm_triton.py, prototype/quantized_training/int8_mm.py."""

# ------------------------------------------------------------------------------------- quantisation and masked softmax


def _in_blocks(scale: str, elements: Callable[[Call], int], copies: Callable[[Call], int] = lambda call: 1) -> Formula:
    """Quantisation to FP8 with a scale per block of `elements`, done `copies` times: 3 operations per element.

    `scale` is the type of the scales.
    """

    def written(call: Call) -> float:
        source = call.tensor(0).elements
        return copies(call) * (source + source / elements(call) * Tensor((), scale).bytes)

    return Formula(
        lambda call: of_floats(call, copies(call) * (2.0 + QUANTISED) * call.tensor(0).elements),
        lambda call: float(call.tensor(0).bytes), written, False,
        "the size and a comparison for the largest of a block, and a division (OCP Microscaling Formats 1.0)",
    )  # fmt: skip


def _or_float32(place: int) -> Callable[[Call], str]:
    return lambda call: "float32" if call.value(place) is None else requested_type(place)(call)


def _dequantised(call: Call) -> Tensor:
    return call.tensor(0)._replace(dtype=requested_type(2)(call))


def _causal_softmax(operations: int, tensors: int = 1) -> Formula:
    """`operations` per score inside a causal mask aligned to the last row and column; other scores are written as 0.

    `tensors` inputs of the scores' shape are read inside the mask.
    """

    def inside(call: Call) -> int:
        *batch, rows, columns = call.tensor(0).shape
        return prod(batch) * scores_inside(rows, columns, columns - rows, -1, 0)

    return Formula(
        lambda call: of_floats(call, operations * float(inside(call))),
        lambda call: float(tensors * inside(call) * Tensor((), call.tensor(0).dtype).bytes),
        lambda call: float(call.tensor(0).bytes),
        False,
        "operations of the definition",
    )


SOFTMAX, SOFTMAX_BACKWARD, SCALED = 5, 4, 1

_SCALED_INTO = scaled_product(type_at(0), bias=5, first=1)
_OF_LIBRARIES: dict[str, Formula] = {
    # vLLM: csrc/torch_bindings.cpp
    "_C::rms_norm": _normalised(RMS_NORM, 1, 2),
    "_C::fused_add_rms_norm": _ADDED_IN_PLACE,
    "_C::rms_norm_static_fp8_quant": _normalised(RMS_NORM + QUANTISED, 1, 2, 3),
    "_C::fused_add_rms_norm_static_fp8_quant": of_first(
        RMS_NORM + RESIDUAL + QUANTISED, read=(1, 2, 3, 4), counted=1, also_written=bytes_at(2)
    ),
    "_C::static_scaled_fp8_quant": _normalised(QUANTISED, 1, 2),
    # a first pass finds the maximum of all: an absolute value and a comparison
    "_C::dynamic_scaled_fp8_quant": of_first(2 + QUANTISED, read=(1,), counted=1, also_written=bytes_at(2)),
    "_C::dynamic_per_token_scaled_fp8_quant": of_first(2 + QUANTISED, read=(1,), counted=1, also_written=bytes_at(2)),
    "_C::silu_and_mul_quant": of_first(GATED["silu_and_mul"] + QUANTISED, read=(1, 2)),
    "_C::rotary_embedding": _rotary(),
    "_C_cache_ops::reshape_and_cache_flash": _cached(),
    "_C::cutlass_scaled_mm": _SCALED_INTO,
    "_C::awq_gemm": _into(columns_of(2)),
    "_C::gptq_gemm": _gptq(),
    "_C::marlin_gemm": _marlin(12, (2, 3, 4, 5, 7)),
    "vllm::rocm_unquantized_gemm": linear(),
    # SGLang: sgl-kernel/csrc/common_extension.cc
    "sgl_kernel::rmsnorm": _normalised(RMS_NORM, 1, 2),
    "sgl_kernel::gemma_rmsnorm": _normalised(RMS_NORM + 1, 1, 2),  # 1 is added to the weight
    "sgl_kernel::fused_add_rmsnorm": _ADDED_IN_PLACE,
    "sgl_kernel::gemma_fused_add_rmsnorm": of_first(
        RMS_NORM + RESIDUAL + 1, read=(0, 1, 2), also_written=bytes_at(1)
    ),
    "sgl_kernel::rotary_embedding": _rotary(),
    "sgl_kernel::fp8_scaled_mm": scaled_product(requested_type(4), bias=5),
    "sgl_kernel::int8_scaled_mm": scaled_product(requested_type(4), bias=5),
    "sglang::store_cache": _cached(),
    "sgl_kernel::gptq_marlin_gemm": _marlin(10, (2, 3, 4, 5)),
    # AITER: aiter/ops/rmsnorm.py, aiter/ops/activation.py, aiter/tuned_gemm.py
    "aiter::rmsnorm": _normalised(RMS_NORM, 1, 2),
    "aiter::add_rmsnorm": of_first(RMS_NORM + RESIDUAL, read=(1, 2, 4), counted=1, also_written=bytes_at(3)),
    "aiter::rmsnorm2d_fwd_with_add_ck": of_first(
        RMS_NORM + RESIDUAL, read=(1, 2, 4), counted=1, also_written=bytes_at(3)
    ),
    "aiter::_groupnorm_run": _group_norm(),
    "aiter::rms_norm": of_first(RMS_NORM, read=(0, 1)),
    "aiter::gemm_a16w16": linear(),
    # torchao: torchao/ops.py (quant_llm_linear in v0.7.0's), prototype/mx_formats/kernels.py,
    # prototype/blockwise_fp8_training/kernels.py
    "torchao::mx_fp8_bf16": scaled_product(lambda call: "bfloat16"),
    "torchao::blockwise_scaled_mm": scaled_product(requested_type(6)),
    "torchao::triton_fp8_gemm_1x128_128x128": scaled_product(_or_float32(5)),
    "torchao::triton_fp8_gemm_1x128_128x1": scaled_product(_or_float32(5)),
    "torchao::rowwise_scaled_linear_sparse_cutlass_f8f8": sparse_product(
        2, 0, (3, 5), lambda call: (type_at(1) if call.value(6) is None else requested_type(6))(call), of_weight=True
    ),
    "torchao::float8_linear_cpu": _float8_linear(),
    "torchao::quant_llm_linear": _quant_llm(),
    "torchao::marlin_24_gemm": _sparse_marlin(),  # of a version before 0.18
    **{f"torchao::triton_to_mxfp8_dim{dim}": _in_blocks("float8_e8m0fnu", lambda call: int(call.value(1, 32)))
       for dim in (0, 1)},
    "torchao::mxfp8_quantize": _in_blocks(
        "float8_e8m0fnu", lambda call: 32, lambda call: bool(call.value(1)) + bool(call.value(2))
    ),
    "torchao::triton_mxfp8_dequant_dim0": of_first(1, result=_dequantised, read=(0, 1)),
    **{f"torchao::triton_fp8_blockwise_act_quant_{side}": _in_blocks("float32", lambda call: int(call.value(1, 128)))
       for side in ("lhs", "rhs", "transposed_lhs")},
    **{f"torchao::triton_fp8_blockwise_weight_quant_{side}":
       _in_blocks("float32", lambda call: int(call.value(1, 128)) ** 2) for side in ("rhs", "transposed_rhs")},
    # Transformer Engine: transformer_engine/pytorch/attention/dot_product_attention/softmax.py
    "te_softmax::scaled_softmax_fwd": of_first(SOFTMAX + SCALED),
    "te_softmax::scaled_masked_softmax_fwd": of_first(SOFTMAX + SCALED, read=(0, 1)),
    **{f"te_softmax::scaled_{mask}softmax_bwd": of_first(SOFTMAX_BACKWARD + SCALED, read=(0, 1))
       for mask in ("", "masked_")},
    **{f"te_softmax::scaled_{mask}_masked_softmax_fwd": _causal_softmax(SOFTMAX + SCALED)
       for mask in ("upper_triang", "aligned_causal")},
    **{f"te_softmax::scaled_{mask}_masked_softmax_bwd": _causal_softmax(SOFTMAX_BACKWARD + SCALED, tensors=2)
       for mask in ("upper_triang", "aligned_causal")},
    **{f"{library}::{name}": of_first(count, read=(1,))
       for library in ("_C", "sgl_kernel", "aiter") for name, count in GATED.items()},
}  # fmt: skip

CUSTOM: dict[str, Formula] = {**FLASH_ATTENTION, **XFORMERS, **INTEGER_PRODUCTS, **_OF_LIBRARIES}
"""Operator of another library, such as "_C::rms_norm" -> its formula."""
