"""The work of an operator call as the collector records it, by the table of formulas in `ncu_launch.operators`.

Two counts of FLOPs stand side by side and are never added. `flops` is everything that the operator computes:
element-wise arithmetic, norms, pooling and biases too, without what a causal mask skips. `contraction_flops` is what
products, convolutions and attention compute, as PyTorch's counter and published figures have it, and 0 of other
operators. Each is None where it is not known, never 0: an operator without a formula has no `flops`, and no
`contraction_flops` either unless it is known to hold no contraction.

Two of the stock counter's errors are avoided: the weights of grouped convolutions in the backward pass (counted there
once for every group) and attention on the CPU (not counted there at all).
"""

from __future__ import annotations

from typing import NamedTuple

from ncu_launch.operators.calls import Call
from ncu_launch.operators.table import (
    INTEGER_CONTRACTIONS,
    UNUSABLE,
    contraction_flops,
    formula_of,
    is_contraction,
    moved_bytes,
    work_of,
)

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
    leaky_relu_backward elu_backward floor_divide histc slice_scatter select_scatter
"""
FREE_OF_CONTRACTIONS = frozenset(f"aten::{name}" for name in _NAMES_FREE_OF_CONTRACTIONS.split())
"""Operators that hold no contraction, beyond those that PyTorch tags as pointwise or as reductions."""

_NAMES_OF_MOVES = """
    clone _to_copy contiguous lift_fresh lift_fresh_copy fill zeros ones full zeros_like ones_like full_like new_zeros
    new_ones new_full scalar_tensor eye rand randn randint randperm rand_like randn_like bernoulli masked_fill repeat
    tile select_backward slice_backward diagonal_backward split_with_sizes_copy channel_shuffle pixel_shuffle
    native_channel_shuffle im2col reflection_pad2d replication_pad2d slice_scatter select_scatter _unsafe_index
    unique_dim nonzero _local_scalar_dense item
"""
MOVES = frozenset(f"aten::{name}" for name in _NAMES_OF_MOVES.split())
"""Operators without a formula that fill, copy or rearrange memory, or draw random numbers: 0 FLOPs."""


class CollectedWork(NamedTuple):
    """What one call computes and moves; None where it is not known.

    `flops` and `contraction_flops`: see above. `integer_operations` of products of integers, a multiply-add as 2; None
    for other operators. `moved`: the least bytes read and written, None without a formula.
    """

    flops: float | None
    contraction_flops: float | None
    integer_operations: float | None
    moved: tuple[float, float] | None


def work_of_call(call: Call, *, is_elementwise: bool) -> CollectedWork:
    """The work of a call. `is_elementwise` is PyTorch's own word that it is pointwise or a reduction."""
    is_free = is_elementwise or call.name in FREE_OF_CONTRACTIONS
    formula = formula_of(call.name)
    moved = moved_bytes(formula, call) if formula is not None else None
    if call.name in INTEGER_CONTRACTIONS:
        return CollectedWork(0.0, 0.0, _integer_operations(call), moved)
    return CollectedWork(_flops(call, is_free=is_free), _contraction_flops(call, is_free=is_free), None, moved)


def _integer_operations(call: Call) -> float | None:
    try:
        return contraction_flops(call)
    except UNUSABLE:
        return None


def _contraction_flops(call: Call, *, is_free: bool) -> float | None:
    if is_contraction(call.name):
        try:
            return contraction_flops(call)
        except UNUSABLE:
            return None
    return 0.0 if is_free or formula_of(call.name) is not None else None


def _flops(call: Call, *, is_free: bool) -> float | None:
    """All FLOPs. Without a formula they are 0 of operators that only move, and of integers and truth values."""
    work = work_of(call)
    if work is not None:
        return work.flops
    is_of_floats = any(one.is_float for one in call.every_tensor())
    return 0.0 if call.name in MOVES or (is_free and not is_of_floats) else None
