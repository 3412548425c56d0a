"""Least bytes of the operator formulas against what PyTorch allocates for the results of the same calls."""

from __future__ import annotations

from typing import Any

import pytest
from ncu_launch.operators.calls import Call, Tensor
from ncu_launch.operators.table import FORMULAS

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'ncu-bench[models]')")

X = torch.ones(2, 3, 8, 8)
M, N, V = torch.ones(4, 6), torch.ones(6, 5), torch.ones(6)
WHOLE = torch.ones(4, 6, dtype=torch.int64)
ROWS = torch.tensor([0, 2, 2])

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
    ("where", (M > 0, M, M.double())),
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
]  # fmt: skip


def described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return Tensor(tuple(value.shape), str(value.dtype).removeprefix("torch."), tuple(value.stride()))
    return tuple(map(described, value)) if isinstance(value, list) else value


def allocated(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return int(value.nbytes)
    return sum(map(allocated, value)) if isinstance(value, (list, tuple)) else 0


@pytest.mark.parametrize(("name", "arguments"), CALLS, ids=[f"{name}-{place}" for place, (name, _) in enumerate(CALLS)])
def test_what_a_formula_says_is_written_is_the_size_of_the_result(name: str, arguments: tuple[Any, ...]) -> None:
    result = getattr(torch.ops.aten, name)(*arguments)
    written = FORMULAS[f"aten::{name}"].written(Call(f"aten::{name}", tuple(map(described, arguments))))
    kept = sum(allocated(one) for one in result[1:3]) if name == "native_layer_norm" else 0
    assert written == (allocated(result[0]) + kept if kept else allocated(result))


def test_every_operator_of_the_table_exists_in_pytorch() -> None:
    of_torch = {name.partition("::")[2] for name in FORMULAS if name.startswith("aten::")}
    assert {name for name in of_torch if not hasattr(torch.ops.aten, name)} <= {"mkldnn_linear"}


@pytest.mark.parametrize(
    ("name", "places"),
    [
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
        ("_efficient_attention_forward", {3: "bias", 9: "custom_mask_type", 12: "seqlen_k", 13: "window_size"}),
        ("_efficient_attention_backward", {4: "bias", 5: "out", 14: "custom_mask_type", 18: "window_size"}),
    ],
)  # fmt: skip
def test_arguments_of_attention_stand_where_the_formulas_look_for_them(name: str, places: dict[int, str]) -> None:
    arguments = getattr(torch.ops.aten, name).default._schema.arguments
    assert {place: arguments[place].name for place in places} == places
