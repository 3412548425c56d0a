"""Least bytes of the operator formulas against what PyTorch allocates for the results of the same calls."""

from __future__ import annotations

from typing import Any

import pytest
from ncu_launch.operators.calls import Call, Tensor
from ncu_launch.operators.table import FORMULAS

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed (pip install '.[models]')")

X = torch.ones(2, 3, 8, 8)
M, N, V = torch.ones(4, 6), torch.ones(6, 5), torch.ones(6)
WHOLE = torch.ones(4, 6, dtype=torch.int64)
ROWS = torch.tensor([0, 2, 2])
Q = torch.ones(2, 3, 4)
WIDE, ENDS = torch.ones(8, 16, dtype=torch.bfloat16), torch.tensor([2, 8], dtype=torch.int32)

CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("mm", (M, N)),
    ("addmm", (torch.ones(5), M, N)),
    ("bmm", (torch.ones(3, 4, 6), torch.ones(3, 6, 5))),
    ("addbmm", (torch.ones(4, 5), torch.ones(3, 4, 6), torch.ones(3, 6, 5))),
    ("mv", (M, V)),
    ("dot", (V, V)),
    ("_int_mm", (torch.ones(32, 32, dtype=torch.int8), torch.ones(32, 32, dtype=torch.int8))),
    ("convolution", (X, torch.ones(4, 3, 3, 3), None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1)),
    ("convolution", (X, torch.ones(3, 4, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1)),
    ("add", (M, V)), ("add", (WHOLE, M)), ("mul", (WHOLE, 2.5)), ("mul", (WHOLE, 2)), ("sqrt", (WHOLE,)), ("div", (WHOLE, WHOLE)), ("pow", (WHOLE, 2.5)), ("mul", (M.to(torch.bfloat16), M.to(torch.float16))),
    ("silu", (M,)), ("pow", (M, 2)), ("rsqrt", (M,)), ("eq", (M, V)), ("logical_not", (M,)),
    ("where", (M > 0, M, M.double())), ("pow", (M, V)), ("pow", (2, M)), ("rsub", (torch.ones(4, 1), V)), ("clamp", (M[:, :1], V, None)),
    ("clamp_min", (M[:, :1], V)), ("bitwise_and", (WHOLE, WHOLE)), ("bitwise_not", (WHOLE,)), ("bitwise_xor", (M > 0, M > 0)),
    ("cumsum", (M > 0, 1)), ("cumsum", (WHOLE.int(), 1)), ("mse_loss", (M, M)), ("elu_backward", (M, 1, 1, 1, False, M)), ("abs", (torch.ones(4, 6, dtype=torch.complex64),)),
    ("sum", (M,)), ("sum", (M, [1])), ("sum", (WHOLE, [0])), ("mean", (M, [-1], True)), ("amax", (X, [2, 3])),
    ("max", (M, 1)), ("argmax", (M, 1)), ("all", (M > 0, 1)), ("cumsum", (M, 1)),
    ("_softmax", (M, 1, False)), ("_log_softmax", (M, 1, False)), ("native_layer_norm", (M, [6], V, V, 1e-5)),
    ("max_pool2d_with_indices", (X, [3, 3], [2, 2], [1, 1])), ("avg_pool2d", (X, [2, 2], [2, 2])),
    ("avg_pool2d", (X, [3, 3], [2, 2], [0, 0], True)), ("avg_pool2d", (X, [1, 1], [3, 3], [0, 0], True)),
    ("max_pool2d_with_indices", (X, [2, 2], [3, 3], [1, 1], [1, 1], True)),
    ("max_pool2d_with_indices", (X, [1, 2], [5, 4], [0, 1], [1, 1], True)),
    ("_adaptive_avg_pool2d", (X, [2, 2])), ("native_dropout", (M, 0.5, True)),
    ("cat", ([M, M], 1)), ("flip", (M, [0])), ("constant_pad_nd", (M, [1, 2, 0, 1])),
    ("embedding", (M, WHOLE % 4)), ("index_select", (M, 1, ROWS)), ("gather", (M, 1, WHOLE[:2] * 0)),
    ("index", (X, [ROWS % 2, ROWS])), ("embedding_dense_backward", (torch.ones(3, 6), ROWS, 9, -1, False)),
    ("_foreach_add", ([M, V], [M, V])), ("tril", (M,)), ("stack", ([M, M],)),
    ("_grouped_mm", (WIDE, torch.ones(2, 16, 24, dtype=torch.bfloat16), ENDS)), ("_grouped_mm", (WIDE.expand(2, 8, 16), WIDE.T, ENDS)),
    ("_grouped_mm", (WIDE.T, WIDE, ENDS)), ("_grouped_mm", (torch.ones(3, 8, 16, dtype=torch.bfloat16), torch.ones(3, 16, 24, dtype=torch.bfloat16))),
    ("_weight_int4pack_mm_for_cpu", (torch.ones(3, 64, dtype=torch.bfloat16), torch.zeros(32, 32, dtype=torch.uint8), 32, torch.ones(2, 32, 2, dtype=torch.bfloat16))),
    ("slow_conv_dilated2d", (X, torch.ones(4, 3, 3, 3), [3, 3], None, [1, 1], [1, 1], [2, 2])),
    ("slow_conv_transpose2d", (X, torch.ones(3, 4, 3, 3), [3, 3], None, [2, 2], [1, 1], [1, 1], [1, 1])),
    ("slow_conv3d_forward", (X.view(2, 3, 4, 4, 4), torch.ones(4, 3, 3, 3, 3), [3, 3, 3], None, [1, 1, 1], [1, 1, 1])),
    ("max_pool2d_with_indices_backward", (X[:, :, :4, :4], X, [2, 2], [2, 2], [0, 0], [1, 1], False, torch.zeros(2, 3, 4, 4, dtype=torch.int64))),
    ("avg_pool2d_backward", (X[:, :, :4, :4], X, [2, 2], [2, 2], [0, 0], False, True, None)),
    ("_adaptive_avg_pool2d_backward", (X[:, :, :2, :2], X)), ("adaptive_max_pool2d", (X, [2, 3])),
    ("upsample_nearest2d", (X, [16, 12])), ("upsample_bilinear2d", (X, [5, 12], False)), ("upsample_bicubic2d", (X, [16, 16], True)),
    ("upsample_bilinear2d_backward", (X, [8, 8], [2, 3, 4, 5], False)), ("upsample_nearest1d", (X[0], [20])),
    ("var", (M, [1])), ("var_mean", (M, [1])), ("linalg_vector_norm", (M, 2, [0])), ("sum", (M, [])), ("cumprod", (M, 0)), ("std", (M, True)),
    ("sort", (M, 1)), ("topk", (M, 2, 1)), ("glu", (M, 1)), ("mse_loss", (M, M, 0)), ("mse_loss_backward", (M, M, M, 1)),
    ("native_group_norm_backward", (X, X, torch.ones(2, 3), torch.ones(2, 3), torch.ones(3), 2, 3, 64, 3, [True, True, True])),
    ("nll_loss_forward", (M, ROWS.new_tensor([0, 1, 2, 3]), None, 1, -100)), ("native_dropout_backward", (M, M > 0, 2.0)),
    ("nll_loss_backward", (torch.ones(()), M, ROWS.new_tensor([0, 1, 2, 3]), None, 1, -100, torch.ones(()))),
    ("_foreach_norm", ([M, V],)), ("softplus_backward", (M, M, 1, 20)), ("exp2", (M,)), ("_masked_softmax", (M, M > 0, 1)),
    ("mkldnn_rnn_layer", (torch.ones(3, 2, 6), torch.ones(16, 6), torch.ones(16, 4), torch.ones(16), torch.ones(16), torch.ones(2, 4), torch.ones(2, 4), False, [], 2, 4, 1, True, False, False, False)),
    ("_fft_r2c", (M, [0, 1], 0, True)), ("_fft_r2c", (M.double(), [1, 0], 0, False)), ("_fft_c2c", (M.cfloat(), [1], 0, True)),
    ("_fft_c2r", (M.cdouble(), [0, 1], 2, 10)), ("_fft_c2r", (M.cfloat(), [1, 0], 2, 7)), ("_euclidean_dist", (X, X[:, :, :5])),
    ("_cdist_forward", (X, X[:, :1, :5], 1.0, None)), ("_pdist_forward", (M, 2.0)),
    ("_native_multi_head_attention", (Q, Q, Q, 4, 2, torch.ones(12, 4), torch.ones(12), torch.ones(4, 4), torch.ones(4), None, False)),
    *((("_native_multi_head_attention"), (Q, Q, Q, 4, 2, torch.ones(12, 4), torch.ones(12), torch.ones(4, 4), torch.ones(4), None, True, averaged)) for averaged in (True, False)),
    ("_transformer_encoder_layer_fwd", (Q, 4, 2, torch.ones(12, 4), torch.ones(12), torch.ones(4, 4), torch.ones(4), False, False, 1e-5, *[torch.ones(4)] * 4, torch.ones(6, 4), torch.ones(6), torch.ones(4, 6), torch.ones(4))),
]  # fmt: skip

KEPT_OF_SEVERAL = {"mkldnn_rnn_layer": 1}
"""Operators whose other results are small states of a network, which the formula leaves out."""


def described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return Tensor(tuple(value.shape), str(value.dtype).removeprefix("torch."), tuple(value.stride()))
    return tuple(map(described, value)) if isinstance(value, list) else value


def allocated(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return int(value.nbytes)
    return sum(map(allocated, value)) if isinstance(value, (list, tuple)) else 0


def kept(name: str, arguments: tuple[Any, ...]) -> int:
    """The bytes that PyTorch allocates for what an operator keeps of its results."""
    result = getattr(torch.ops.aten, name)(*arguments)
    return allocated(result[: KEPT_OF_SEVERAL[name]] if name in KEPT_OF_SEVERAL else result)


def test_what_a_formula_says_is_written_is_the_size_of_the_result() -> None:
    written = [FORMULAS[f"aten::{name}"].written(Call(f"aten::{name}", described([*each]))) for name, each in CALLS]
    sizes = [kept(*one) for one in CALLS]
    unlike = [
        (place, name, said, size)
        for place, ((name, _), said, size) in enumerate(zip(CALLS, written, sizes, strict=True))
        if said != size
    ]
    assert unlike == []


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("pow", (M, V)), ("rsub", (M, V)), ("clamp", (M, V, V)), ("clamp_max", (M, V)), ("elu_backward", (M, 1, 1, 1, False, M))],
)  # fmt: skip
def test_every_tensor_of_an_element_wise_operator_is_read(name: str, arguments: tuple[Any, ...]) -> None:
    read = FORMULAS[f"aten::{name}"].read(Call(f"aten::{name}", tuple(map(described, arguments))))
    assert read == sum(map(allocated, arguments))


def test_every_operator_of_the_table_exists_in_pytorch() -> None:
    of_torch = {name.partition("::")[2] for name in FORMULAS if name.startswith("aten::")}
    assert {name for name in of_torch if not hasattr(torch.ops.aten, name)} <= {"mkldnn_linear"}


PLACES: list[tuple[str, dict[int, str]]] = [
    ("_scaled_dot_product_flash_attention", {4: "is_causal"}),
    ("_scaled_dot_product_efficient_attention", {3: "attn_bias", 6: "is_causal"}),
    ("_scaled_dot_product_cudnn_attention", {3: "attn_bias", 6: "is_causal"}),
    ("_scaled_dot_product_fused_attention_overrideable", {3: "attn_bias", 5: "is_causal"}),
    ("_scaled_dot_product_flash_attention_for_cpu", {4: "is_causal", 5: "attn_mask"}),
    ("_scaled_dot_product_flash_attention_backward", {4: "out", 6: "cum_seq_q", 7: "cum_seq_k", 11: "is_causal"}),
    ("_scaled_dot_product_efficient_attention_backward", {4: "attn_bias", 5: "out", 11: "is_causal"}),
    ("_scaled_dot_product_cudnn_attention_backward", {4: "out", 8: "attn_bias", 9: "cum_seq_q", 14: "is_causal"}),
    ("_scaled_dot_product_flash_attention_for_cpu_backward", {4: "out", 7: "is_causal"}),
    ("_flash_attention_forward", {3: "cum_seq_q", 8: "is_causal", 11: "window_size_left", 15: "block_table"}),
    ("_flash_attention_backward", {4: "out", 6: "cum_seq_q", 11: "is_causal", 15: "window_size_left"}),
    ("_efficient_attention_forward", {3: "bias", 4: "cu_seqlens_q", 5: "cu_seqlens_k", 6: "max_seqlen_q", 7: "max_seqlen_k", 9: "custom_mask_type", 12: "seqlen_k", 13: "window_size"}),
    ("_efficient_attention_backward", {4: "bias", 5: "out", 6: "cu_seqlens_q", 8: "max_seqlen_q", 14: "custom_mask_type", 18: "window_size"}),
    ("_flash_attention_forward", {4: "cum_seq_k", 5: "max_q", 6: "max_k", 12: "window_size_right", 13: "seqused_k"}),
    ("_flash_attention_backward", {7: "cum_seq_k", 8: "max_q", 9: "max_k", 16: "window_size_right"}),
    ("_scaled_mm", {4: "bias", 6: "out_dtype"}),
    ("_scaled_mm_v2", {8: "bias", 9: "out_dtype"}),
    ("_sparse_semi_structured_mm", {0: "mat1", 1: "mat1_meta", 2: "mat2", 3: "out_dtype"}),
    ("_sparse_semi_structured_addmm", {0: "input", 1: "mat1", 2: "mat1_meta", 3: "mat2", 6: "out_dtype"}),
    ("_sparse_semi_structured_linear", {1: "weight", 2: "meta", 3: "bias", 5: "out_dtype"}),
    ("_weight_int4pack_mm", {3: "qScaleAndZeros"}),
    ("_grouped_mm", {2: "offs", 3: "bias", 4: "out_dtype"}),
    ("_scaled_grouped_mm", {4: "offs", 5: "bias", 7: "out_dtype"}),
    ("_scaled_grouped_mm_v2", {8: "offs", 9: "bias", 10: "out_dtype"}),
    ("_cudnn_rnn", {1: "weight", 7: "hidden_size", 8: "proj_size", 13: "bidirectional"}),
    ("miopen_rnn", {1: "weight", 6: "hidden_size", 11: "bidirectional"}),
    ("mkldnn_rnn_layer", {1: "weight0", 4: "weight3", 10: "hidden_size"}),
    ("_cudnn_rnn_backward", {1: "weight", 6: "output", 7: "grad_output", 21: "output_mask"}),
    ("miopen_rnn_backward", {1: "weight", 6: "output", 7: "grad_output", 20: "output_mask"}),
    ("mkldnn_rnn_layer_backward", {1: "weight1", 4: "weight4", 7: "output", 10: "grad_output"}),
    ("_thnn_fused_lstm_cell", {2: "cx", 3: "input_bias", 4: "hidden_bias"}),
    ("_thnn_fused_gru_cell", {2: "hx", 3: "input_bias", 4: "hidden_bias"}),
    ("_fft_r2c", {1: "dim", 3: "onesided"}),
    ("_fft_c2r", {1: "dim", 3: "last_dim_size"}),
    ("_cdist_forward", {1: "x2", 2: "p"}),
    ("_native_multi_head_attention", {3: "embed_dim", 4: "num_head", 9: "mask", 10: "need_weights", 11: "average_attn_weights"}),
    ("_transformer_encoder_layer_fwd", {1: "embed_dim", 7: "use_gelu", 14: "ffn_weight_1", 18: "mask"}),
    ("conv_depthwise3d", {3: "bias", 4: "stride", 5: "padding", 6: "dilation"}),
    ("slow_conv_transpose3d", {3: "bias", 4: "stride", 5: "padding", 6: "output_padding", 7: "dilation"}),
    ("miopen_convolution_transpose", {2: "bias", 3: "padding", 4: "output_padding", 5: "stride", 6: "dilation", 7: "groups"}),
    ("miopen_convolution_relu", {2: "bias", 3: "stride", 4: "padding", 5: "dilation"}),
    ("miopen_convolution_add_relu", {2: "z", 4: "bias", 5: "stride", 6: "padding", 7: "dilation"}),
    ("convolution_backward_overrideable", {6: "transposed", 9: "output_mask"}),
    ("max_pool2d_with_indices_backward", {7: "indices"}),
    ("adaptive_max_pool2d_backward", {2: "indices"}),
    ("upsample_bicubic2d_backward", {1: "output_size", 2: "input_size"}),
    ("native_group_norm_backward", {1: "input", 2: "mean", 3: "rstd", 4: "weight"}),
    ("_fused_rms_norm_backward", {1: "input", 3: "rstd", 4: "weight"}),
    ("batch_norm_elemt", {1: "weight", 2: "bias", 3: "mean", 4: "invstd"}),
    ("nll_loss_backward", {1: "self", 2: "target"}),
    ("_fused_sgd_", {2: "momentum_buffer_list", 3: "weight_decay", 4: "momentum", 7: "nesterov"}),
    ("_fused_adagrad_", {2: "state_sums", 6: "weight_decay"}),
    ("_embedding_bag", {0: "weight", 1: "indices", 2: "offsets", 7: "include_last_offset"}),
    ("_index_put_impl_", {1: "indices", 2: "values", 3: "accumulate"}),
    ("index_add_", {2: "index", 3: "source"}),
]  # fmt: skip
"""Operators, and the names of the arguments that their formulas read, by place."""


def test_arguments_stand_where_the_formulas_look_for_them() -> None:
    for name, places in PLACES:
        operator = getattr(torch.ops.aten, name)
        arguments = getattr(operator, operator.overloads()[0])._schema.arguments
        assert (name, {place: arguments[place].name for place in places}) == (name, places)


@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (5, 3), (4, 4)])
def test_causal_attention_on_a_cpu_sees_the_scores_that_its_formula_counts(rows: int, columns: int) -> None:
    """Each row sees the first columns, as many as its number: the same as with a mask of that shape."""
    q, k = torch.randn(1, 2, rows, 8), torch.randn(1, 2, columns, 8)
    causal = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, k, 0.0, True)[0]
    mask = torch.ones(rows, columns, dtype=torch.bool).tril()
    masked = torch.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=mask)
    assert torch.allclose(causal, masked, atol=1e-5)
    formula = FORMULAS["aten::_scaled_dot_product_flash_attention_for_cpu"]
    call = Call("", (described(q), described(k), described(k), 0.0, True))
    assert formula.flops(call) + formula.correction(call) == pytest.approx(2 * 2 * 16 * int(mask.sum()))
