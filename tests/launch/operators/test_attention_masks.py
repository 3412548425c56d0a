"""Attention under masks, windows and with sequences in one tensor, against loops that count the scores it needs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.operators.calls import UNRECORDED, Call, Tensor
from ncu_launch.operators.table import OperatorWork, work_of

SIZE = st.integers(1, 5)
SIDE = st.integers(-1, 6)


def tensor(*shape: int, dtype: str = "bfloat16") -> Tensor:
    return Tensor(shape, dtype)


def work(name: str, *arguments: Any) -> OperatorWork:
    found = work_of(Call(name, arguments))
    assert found is not None
    return found


def scores_seen(
    rows: int, columns: int, *, causal: bool, left: int = -1, right: int = -1, from_last: bool = True
) -> int:
    """How many scores remain, by looking at each: as flash-attn and PyTorch document their masks."""
    right = 0 if causal else right
    shift = columns - rows if from_last else 0
    return sum(
        1
        for row, column in product(range(rows), range(columns))
        if (left < 0 or column >= row + shift - left) and (right < 0 or column <= row + shift + right)
    )


def flash(rows: int, columns: int, *, causal: bool, left: int, right: int) -> OperatorWork:
    q, k = tensor(1, rows, 3, 4), tensor(1, columns, 3, 4)
    return work("aten::_flash_attention_forward", q, k, k, None, None, rows, columns, 0.0, causal, False, 0.5, left,
                right, None, None, None)  # fmt: skip


@given(st.integers(1, 9), st.integers(1, 9), st.booleans(), SIDE, SIDE)
def test_flash_attention_does_the_scores_between_both_sides_of_its_window(
    rows: int, columns: int, causal: bool, left: int, right: int
) -> None:
    seen = scores_seen(rows, columns, causal=causal, left=left, right=right)
    assert flash(rows, columns, causal=causal, left=left, right=right).flops == pytest.approx(2 * 3 * 8 * seen)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2))
def test_efficient_attention_is_causal_from_the_first_row_or_from_the_last(rows: int, columns: int, mask: int) -> None:
    q, k = tensor(1, rows, 3, 4), tensor(1, columns, 3, 4)
    found = work("aten::_efficient_attention_forward", q, k, k, None, None, None, None, None, 0.0, mask, False, None,
                 None, None)  # fmt: skip
    seen = scores_seen(rows, columns, causal=mask > 0, from_last=mask == 2)
    assert found.flops == pytest.approx(2 * 3 * 8 * seen)


def test_a_window_of_efficient_attention_is_unknown() -> None:
    q = tensor(1, 6, 3, 4)
    found = work("aten::_efficient_attention_forward", q, q, q, None, None, None, None, None, 0.0, 1, False, None, None,
                 4)  # fmt: skip
    assert (found.flops, found.least_bytes) == (None, 2 * 4 * q.elements)


def test_how_cudnn_lays_a_causal_mask_on_scores_that_are_not_square_is_unknown() -> None:
    q, k = tensor(1, 3, 5, 4), tensor(1, 3, 7, 4)
    found = work("aten::_scaled_dot_product_cudnn_attention", q, k, k, None, False, 0.0, True)
    assert (found.flops, found.least_bytes) == (None, 2 * 2 * (q.elements + k.elements))


VARLEN: dict[str, Callable[..., tuple[Any, ...]]] = {
    "aten::_flash_attention_forward": lambda q, k, lengths, rows, columns: (
        q, k, k, lengths, lengths, rows, columns, 0.0, False, False, None, None, None, None, None, None),
    "flash_attn::_flash_attn_varlen_forward": lambda q, k, lengths, rows, columns: (
        q, k, k, lengths, lengths, rows, columns, 0.0, 0.5, False, -1, -1, 0.0, None, False, None, None, None),
    "flash_attn_3::fwd": lambda q, k, lengths, rows, columns: (
        q, k, k, None, None, None, None, lengths, lengths, None, None, None, rows, columns, *[None] * 9, 0.5, False, -1,
        -1, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", VARLEN)
@given(SIZE, st.integers(1, 9), st.integers(1, 9))
def test_sequences_in_one_tensor_have_flops_only_where_all_are_as_long_as_the_longest(
    name: str, count: int, rows: int, columns: int
) -> None:
    q, k, lengths = tensor(count * rows, 3, 4), tensor(count * columns, 3, 4), tensor(count + 1, dtype="int32")
    found = work(name, *VARLEN[name](q, k, lengths, rows, columns))
    assert found.flops == 2 * 3 * count * rows * columns * 8
    assert found.least_bytes == 2 * 2 * (q.elements + k.elements)
    shorter = work(name, *VARLEN[name](q, k, lengths, rows + 1, columns))
    assert (shorter.flops, shorter.least_bytes) == (None, found.least_bytes)


@pytest.mark.parametrize("place", [13, 15])
def test_pages_and_parts_of_a_cache_are_unknown_with_their_bytes(place: int) -> None:
    q = tensor(1, 5, 8, 4)
    arguments: list[Any] = [q, q, q, None, None, 5, 5, 0.0, False, False, *[None] * 6]
    arguments[place] = tensor(2, dtype="int32")
    assert work("aten::_flash_attention_forward", *arguments)[:2] == (None, None)


def test_sides_of_a_window_that_were_not_recorded_leave_the_flops_unknown() -> None:
    q = tensor(1, 5, 8, 4)
    found = work("aten::_flash_attention_forward", q, q, q, None, None, 5, 5, 0.0, False, False, None, UNRECORDED,
                 UNRECORDED)  # fmt: skip
    assert (found.flops, found.least_bytes) == (None, 2 * 4 * q.elements)


def test_the_result_of_queries_in_fp8_is_bf16() -> None:
    q = tensor(1, 5, 8, 4, dtype="float8_e4m3fn")
    found = work("flash_attn_3::fwd", q, q, q, *[None] * 20, 0.5, False, -1, -1, 0)
    assert (found.flops, found.least_bytes) == (2 * 8 * 25 * 8, (3 + 2) * q.elements)
    chunked = work("flash_attn_3::fwd", q, q, q, *[None] * 20, 0.5, False, -1, -1, 2)
    assert chunked.flops is None


@given(SIZE, SIZE, st.booleans())
def test_backward_operators_of_flash_attn_do_five_products(rows: int, columns: int, causal: bool) -> None:
    q, k = tensor(1, rows, 3, 4), tensor(1, columns, 3, 4)
    seen = scores_seen(rows, columns, causal=causal)
    second = work("flash_attn::_flash_attn_backward", q, q, k, k, q, tensor(), q, k, k, 0.0, 0.5, causal, -1, -1)
    third = work("flash_attn_3::bwd", q, q, k, k, q, tensor(), q, k, k, *[None] * 6, 0.5, causal, -1, -1)
    assert second == third
    assert second.flops == pytest.approx(5 * 2 * 3 * 4 * seen)
