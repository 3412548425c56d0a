"""FLOPs of operators from their shapes: matrix products, convolutions and attention, forward and backward.

The convention is that of every operator counter: contractions are counted, a multiply-add as 2; element-wise
arithmetic, norms, pooling and activations are not, so a hardware count lies a little higher. An operator that is not
known to be free of contractions has unknown FLOPs: None, never 0.

Two of the stock counter's errors are avoided: the backward pass of grouped convolutions (over-counted there up to 25
times) and attention on the CPU (not counted there at all).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

Shape = tuple[int, ...]
Formula = Callable[[Sequence[Any], Any], float]
"""(arguments, result) of an operator, every tensor replaced by its shape -> FLOPs."""


def _matmul(a: Shape, b: Shape) -> float:
    """[..., m, k] x [..., k, n]."""
    return 2.0 * float(prod(a)) * b[-1]


def _mm(args: Sequence[Any], result: Any) -> float:
    return _matmul(args[0], args[1])


def _addmm(args: Sequence[Any], result: Any) -> float:
    return _matmul(args[1], args[2])


def _matvec(args: Sequence[Any], result: Any) -> float:
    return 2.0 * float(prod(args[0]))


def convolution_flops(output_spatial: Shape, batch: int, weight: Shape) -> float:
    """2 N x spatial x prod(weight): holds for any groups, because weight is [out, in / groups, *kernel].

    For a transposed convolution, [in, out / groups, *kernel], the spatial size is the input's.
    """
    return 2.0 * batch * prod(output_spatial) * prod(weight)


def _convolution(args: Sequence[Any], result: Any) -> float:
    source, weight, transposed = args[0], args[1], bool(args[6]) if len(args) > 6 else False
    return convolution_flops((source if transposed else result)[2:], source[0], weight)


def _convolution_backward(args: Sequence[Any], result: Any) -> float:
    """The same once for the gradient of the input and once for that of the weight, each where it is wanted."""
    gradient, source, weight, transposed, mask = args[0], args[1], args[2], bool(args[7]), args[10]
    spatial = (source if transposed else gradient)[2:]
    return convolution_flops(spatial, source[0], weight) * (bool(mask[0]) + bool(mask[1]))


def _attention(query: Shape, key: Shape, value: Shape) -> float:
    """Q K^T and P V for every head; a causal mask is not deducted, as the hardware does the work by tiles."""
    *heads, rows, depth = query
    columns = key[-2]
    return 2.0 * float(prod(heads)) * rows * columns * (depth + value[-1])


def _attention_forward(args: Sequence[Any], result: Any) -> float:
    return _attention(args[0], args[1], args[2])


def _attention_backward(args: Sequence[Any], result: Any) -> float:
    """Five products where the forward pass has two: the scores are computed again, and four gradients."""
    query, key, value = args[1], args[2], args[3]
    *heads, rows, depth = query
    products = 3 * depth + 2 * value[-1]
    return 2.0 * float(prod(heads) * rows * key[-2] * products)


REAL_OF_COMPLEX = 4
"""A multiply-add of complex numbers takes four multiplications and four additions, as much as four of real ones."""

FORMULAS: dict[str, Formula] = {
    "aten.mm": _mm,
    "aten.addmm": _addmm,
    "aten.bmm": _mm,
    "aten.baddbmm": _addmm,
    "aten.addbmm": _addmm,
    "aten._scaled_mm": _mm,
    "aten.mv": _matvec,
    "aten.addmv": lambda args, result: 2.0 * float(prod(args[1])),
    "aten.dot": _matvec,
    "aten.vdot": _matvec,
    "aten.convolution": _convolution,
    "aten._convolution": _convolution,
    "aten.cudnn_convolution": lambda args, result: convolution_flops(result[2:], args[0][0], args[1]),
    "aten.convolution_backward": _convolution_backward,
    "aten._scaled_dot_product_flash_attention": _attention_forward,
    "aten._scaled_dot_product_efficient_attention": _attention_forward,
    "aten._scaled_dot_product_cudnn_attention": _attention_forward,
    "aten._scaled_dot_product_flash_attention_for_cpu": _attention_forward,
    "aten._scaled_dot_product_flash_attention_backward": _attention_backward,
    "aten._scaled_dot_product_efficient_attention_backward": _attention_backward,
    "aten._scaled_dot_product_cudnn_attention_backward": _attention_backward,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
}

_NAMES_FREE_OF_CONTRACTIONS = """
    native_batch_norm native_batch_norm_backward cudnn_batch_norm cudnn_batch_norm_backward
    _native_batch_norm_legit _native_batch_norm_legit_no_training batch_norm_backward _batch_norm_with_update
    miopen_batch_norm native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward
    _fused_rms_norm _fused_rms_norm_backward max_pool2d_with_indices max_pool2d_with_indices_backward
    max_pool3d_with_indices max_pool3d_with_indices_backward avg_pool2d avg_pool2d_backward avg_pool3d
    avg_pool3d_backward _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d
    _adaptive_avg_pool3d_backward adaptive_max_pool2d adaptive_max_pool2d_backward mean sum amax amin max min
    argmax argmin any all prod cumsum var var_mean std norm linalg_vector_norm logsumexp cat stack copy_ clone
    _to_copy contiguous constant_pad_nd embedding embedding_dense_backward embedding_renorm_ _embedding_bag
    _embedding_bag_forward_only _embedding_bag_backward _embedding_bag_dense_backward addr addr_ ger _softmax
    _safe_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data nll_loss_forward
    nll_loss_backward nll_loss2d_forward nll_loss2d_backward mse_loss mse_loss_backward native_dropout
    native_dropout_backward bernoulli bernoulli_ index index_put index_put_ _unsafe_index _unsafe_index_put
    index_select index_add index_add_ gather scatter scatter_ scatter_add scatter_add_ masked_fill masked_fill_
    where topk sort unique_dim nonzero roll flip repeat tile split_with_sizes_copy upsample_bilinear2d
    upsample_bilinear2d_backward upsample_nearest2d upsample_nearest2d_backward upsample_bicubic2d
    grid_sampler_2d im2col col2im fill_ fill zero_ zeros ones full empty_like zeros_like ones_like full_like
    rand_like randn_like empty empty_strided new_empty new_empty_strided new_zeros new_ones new_full arange
    linspace scalar_tensor tril triu select_backward slice_backward unfold_backward _foreach_add_ _foreach_mul_
    _foreach_addcdiv_ _foreach_addcmul_ _foreach_lerp_ _foreach_sqrt _foreach_div_ lift_fresh lift_fresh_copy
    bitwise_not isinf isnan eye diagonal_backward _local_scalar_dense item resize_ set_ detach_ channel_shuffle
    pixel_shuffle native_channel_shuffle rrelu_with_noise reflection_pad2d replication_pad2d random_ uniform_
    normal_ exponential_ randperm randint randn rand hardswish_ hardtanh_backward threshold_backward
    gelu_backward silu_backward sigmoid_backward tanh_backward hardsigmoid_backward hardswish_backward
    leaky_relu_backward elu_backward slice_scatter select_scatter
"""
FREE_OF_CONTRACTIONS = frozenset(f"aten.{name}" for name in _NAMES_FREE_OF_CONTRACTIONS.split())
"""Operators that hold no contraction, beyond those that PyTorch tags as pointwise or as reductions."""


INTEGER_FORMULAS: dict[str, Formula] = {"aten._int_mm": _mm}
"""Contractions of integers: their operations are no FLOPs, and stand apart."""


def integer_operations(name: str, args: Sequence[Any], result: Any) -> float | None:
    """Operations of one call on integers, a multiply-add as 2; None for operators that do none."""
    formula = INTEGER_FORMULAS.get(name)
    return None if formula is None else formula(args, result)


def operator_flops(name: str, args: Sequence[Any], result: Any, *, is_elementwise: bool) -> float | None:
    """FLOPs of one operator call, or None when the operator is not known.

    `name` is as "aten.convolution"; in `args` and `result` every tensor is replaced by its shape. `is_elementwise` is
    PyTorch's own word that the operator is pointwise or a reduction.
    """
    formula = FORMULAS.get(name)
    if formula is not None:
        return formula(args, result)
    return 0.0 if is_elementwise or name in FREE_OF_CONTRACTIONS or name in INTEGER_FORMULAS else None
