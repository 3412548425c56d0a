"""FLOPs of operators as the collector counts them: products, convolutions and attention, forward and backward.

The formulas are those of `ncu_launch.operators`. The convention is that of every operator counter: contractions are
counted, a multiply-add as 2; element-wise arithmetic, norms, pooling and activations are not, so a hardware count lies
a little higher. An operator that is not known to be free of contractions has unknown FLOPs: None, never 0.

Two of the stock counter's errors are avoided: the backward pass of grouped convolutions (over-counted there up to 25
times) and attention on the CPU (not counted there at all).
"""

from __future__ import annotations

from ncu_launch.operators.calls import Call, UnknownWork
from ncu_launch.operators.contractions import CONTRACTIONS, INTEGER_CONTRACTIONS
from ncu_launch.operators.table import contraction_flops, is_contraction

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
FREE_OF_CONTRACTIONS = frozenset(f"aten::{name}" for name in _NAMES_FREE_OF_CONTRACTIONS.split())
"""Operators that hold no contraction, beyond those that PyTorch tags as pointwise or as reductions."""


def has_formula(name: str) -> bool:
    """Whether FLOPs of an operator, as "aten::mm", follow from its shapes and those are FLOPs of floating point."""
    return is_contraction(name) and name not in INTEGER_CONTRACTIONS


def integer_operations(call: Call) -> float | None:
    """Operations of one call on integers, a multiply-add as 2; None for operators that do none."""
    return float(CONTRACTIONS[call.name].flops(call)) if call.name in INTEGER_CONTRACTIONS else None


def operator_flops(call: Call, *, is_elementwise: bool) -> float | None:
    """FLOPs of one operator call, or None when the operator is not known or its arguments do not tell.

    `is_elementwise` is PyTorch's own word that the operator is pointwise or a reduction.
    """
    if has_formula(call.name):
        try:
            return contraction_flops(call)
        except UnknownWork:
            return None
    is_free = is_elementwise or call.name in FREE_OF_CONTRACTIONS or call.name in INTEGER_CONTRACTIONS
    return 0.0 if is_free else None
