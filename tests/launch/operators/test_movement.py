"""Bytes of operators that only move memory, against loops that mark every element they touch. No PyTorch is needed."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.operators.calls import UNRECORDED, Call, Tensor, UnknownWork
from ncu_launch.operators.movement import CALLING_OTHERS, FREE, MOVEMENT

SIZE = st.integers(1, 5)
FLOAT, INDEX = 4, 8
ADDING = {"embedding_dense_backward", "scatter_add_", "index_add_", "index_put_", "_embedding_bag"}


def tensor(*shape: int, dtype: str = "float32", strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(shape, dtype, strides)


def moved(name: str, *arguments: Any) -> tuple[float, float]:
    """Bytes read and bytes written."""
    formula, call = MOVEMENT[f"aten::{name}"], Call(f"aten::{name}", arguments)
    assert name in ADDING or formula.flops(call) == 0.0
    return formula.read(call), formula.written(call)


@given(SIZE, SIZE, SIZE)
def test_an_embedding_reads_indices_and_as_much_as_it_writes_but_no_more_than_its_weight(
    rows: int, depth: int, picked: int
) -> None:
    written = len(list(product(range(picked), range(depth)))) * FLOAT
    read = min(written, rows * depth * FLOAT) + picked * INDEX
    assert moved("embedding", tensor(rows, depth), tensor(picked, dtype="int64")) == (read, written)


@given(SIZE, SIZE, SIZE, st.integers(-2, 1))
def test_a_selection_keeps_every_dimension_but_the_one_it_picks_from(m: int, n: int, picked: int, dim: int) -> None:
    written = picked * (n if dim in (0, -2) else m) * FLOAT
    found = moved("index_select", tensor(m, n), dim, tensor(picked, dtype="int64"))
    assert found == (min(written, m * n * FLOAT) + picked * INDEX, written)


def test_indices_are_broadcast_before_they_pick() -> None:
    column, row = tensor(3, 1, dtype="int64"), tensor(4, dtype="int64")
    assert moved("index", tensor(5, 6, 2), [column, row]) == (3 * 4 * 2 * FLOAT + (3 + 4) * INDEX, 3 * 4 * 2 * FLOAT)


def test_how_many_elements_a_mask_picks_is_unknown() -> None:
    with pytest.raises(UnknownWork, match="mask"):
        moved("index", tensor(5), [tensor(5, dtype="bool")])
    assert moved("masked_fill_", tensor(5), tensor(5, dtype="bool"), 0.0) == (5, 0)


def test_a_copy_reads_its_source_once_however_often_it_is_broadcast() -> None:
    assert moved("copy_", tensor(4, 6, dtype="float16"), tensor(4, 6, strides=(0, 1))) == (6 * FLOAT, 4 * 6 * 2)


def test_a_fill_reads_nothing() -> None:
    assert moved("fill_", tensor(3, 5), 1.0) == moved("zero_", tensor(3, 5)) == (0, 3 * 5 * FLOAT)


@given(SIZE, SIZE, st.lists(st.integers(0, 3), min_size=2, max_size=4).filter(lambda pads: len(pads) % 2 == 0))
def test_padding_begins_at_the_last_dimension(m: int, n: int, pads: list[int]) -> None:
    rows = m + (sum(pads[2:]) if len(pads) == 4 else 0)
    assert moved("constant_pad_nd", tensor(m, n), pads) == (m * n * FLOAT, rows * (n + sum(pads[:2])) * FLOAT)


@given(st.lists(SIZE, min_size=1, max_size=4))
def test_a_concatenation_reads_and_writes_every_tensor(rows: list[int]) -> None:
    assert moved("cat", [tensor(one, 3) for one in rows], 0) == (sum(rows) * 3 * FLOAT,) * 2


def test_the_gradient_of_an_embedding_is_as_large_as_its_weight() -> None:
    read = (3 * 6) * FLOAT + 3 * INDEX
    assert moved("embedding_dense_backward", tensor(3, 6), tensor(3, dtype="int64"), 9, -1, False) == (
        read, 9 * 6 * FLOAT,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("index_select", (tensor(4, 6), UNRECORDED, tensor(2, dtype="int64"))),
        ("constant_pad_nd", (tensor(4, 6), UNRECORDED)),
        ("embedding_dense_backward", (tensor(3, 6), tensor(3, dtype="int64"), UNRECORDED, -1, False)),
        ("cat", (UNRECORDED, 0)),
    ],
)
def test_an_argument_that_was_not_recorded_leaves_the_bytes_unknown(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(UnknownWork):
        moved(name, *arguments)


def test_an_operator_moves_memory_or_is_free_or_calls_others_but_not_two_of_these() -> None:
    assert not FREE & MOVEMENT.keys()
    assert not CALLING_OTHERS & (FREE | MOVEMENT.keys())


@given(SIZE, SIZE, SIZE)
def test_what_is_added_at_indices_reads_what_stands_there(rows: int, depth: int, picked: int) -> None:
    target, source, index = tensor(rows, depth), tensor(picked, depth), tensor(picked, dtype="int64")
    touched = min(rows, picked) * depth * FLOAT
    added = picked * depth * FLOAT
    assert moved("index_copy_", target, 0, index, source) == (picked * INDEX + added, touched)
    assert moved("index_add_", target, 0, index, source, 1) == (picked * INDEX + added + touched, touched)
    assert MOVEMENT["aten::index_add_"].flops(Call("", (target, 0, index, source, 1))) == picked * depth
    assert moved("index_put_", target, [index], source, False) == (picked * INDEX + added, touched)
    assert moved("index_put_", target, [index], source, True) == (picked * INDEX + added + touched, touched)


def test_a_scattered_source_counts_as_far_as_there_are_indices() -> None:
    target, source, index = tensor(9, 5), tensor(7, 5), tensor(2, 3, dtype="int64")
    assert moved("scatter_", target, 0, index, source) == (6 * (INDEX + FLOAT), 6 * FLOAT)
    assert moved("scatter_", target, 0, index, 1.5) == (6 * INDEX, 6 * FLOAT)


@given(SIZE, SIZE, SIZE)
def test_a_bag_of_embeddings_is_the_sum_of_its_rows(rows: int, depth: int, picked: int) -> None:
    arguments = (tensor(rows, depth), tensor(picked, dtype="int64"), tensor(2, dtype="int64"), False, 0, False, None)
    read = min(rows, picked) * depth * FLOAT + (picked + 2) * INDEX
    assert moved("_embedding_bag", *arguments) == (read, 2 * depth * FLOAT)
    assert moved("_embedding_bag", *arguments, True) == (read, depth * FLOAT)
    assert MOVEMENT["aten::_embedding_bag"].flops(Call("", arguments)) == picked * depth


@pytest.mark.parametrize(("start", "end", "step"), [(0, 5, 1), (2, 9, 3), (5, 0, -2)])
def test_a_range_writes_its_numbers(start: int, end: int, step: int) -> None:
    written = len(range(start, end, step)) * INDEX
    assert moved("arange", start, end, step, tensor(0, dtype="int64")) == (0, written)


INDICES = tensor(2, 3, dtype="int64")


@pytest.mark.parametrize(
    ("name", "arguments", "read", "written"),
    [
        ("embedding", (tensor(100, 7, 2), INDICES), 6 * 14 * FLOAT + 6 * INDEX, 6 * 14 * FLOAT),
        ("embedding", (tensor(3, 7), INDICES), 3 * 7 * FLOAT + 6 * INDEX, 6 * 7 * FLOAT),
        ("gather", (tensor(100, 7), 0, INDICES), 6 * FLOAT + 6 * INDEX, 6 * FLOAT),
        ("gather", (tensor(2, 2), 0, INDICES), 4 * FLOAT + 6 * INDEX, 6 * FLOAT),
        ("index", (tensor(5, 7, 2), [tensor(3, dtype="int64")]), 3 * 14 * FLOAT + 3 * INDEX, 3 * 14 * FLOAT),
        ("index", (tensor(2, 2), [tensor(9, dtype="int64")]), 4 * FLOAT + 9 * INDEX, 9 * 2 * FLOAT),
        ("stack", ([tensor(3), tensor(3)], 0), 6 * FLOAT, 6 * FLOAT),
        ("normal_", (tensor(3, 5),), 0, 15 * FLOAT),
        ("flip", (tensor(3, 5), [0]), 15 * FLOAT, 15 * FLOAT),
        ("scatter_add_", (tensor(9, 5), 0, INDICES, tensor(7, 5)), 6 * (INDEX + 2 * FLOAT), 6 * FLOAT),
        ("index_add_", (tensor(4, 5), 0, tensor(9, dtype="int64"), tensor(9, 5)), 9 * INDEX + 65 * FLOAT, 20 * FLOAT),
        ("index_put_", (tensor(9, 5), [tensor(2, dtype="int64")], tensor(1)), FLOAT + 2 * INDEX, 10 * FLOAT),
        ("index_put_", (tensor(9, 5), [tensor(2, dtype="int64")], tensor(1), True), 11 * FLOAT + 2 * INDEX, 10 * FLOAT),
        ("constant_pad_nd", (tensor(3, 5, 7), [1, 2, 0, 4]), 105 * FLOAT, 3 * 9 * 10 * FLOAT),
        ("constant_pad_nd", (tensor(3, 5), (1, -2)), 15 * FLOAT, 3 * 4 * FLOAT),
        ("embedding_dense_backward", (tensor(2, 3, 6), INDICES, 9, -1, False), 36 * FLOAT + 6 * INDEX, 54 * FLOAT),
    ],
)  # fmt: skip
def test_bytes_are_those_of_the_elements_that_are_touched(
    name: str, arguments: tuple[Any, ...], read: int, written: int
) -> None:
    formula, call = MOVEMENT[f"aten::{name}"], Call(f"aten::{name}", arguments)
    assert (formula.read(call), formula.written(call)) == (read, written)


def test_what_is_added_counts_as_flops_of_floating_point_numbers_alone() -> None:
    def flops(name: str, *arguments: Any) -> float:
        return float(MOVEMENT[f"aten::{name}"].flops(Call(f"aten::{name}", arguments)))

    index = [tensor(2, dtype="int64")]
    whole = tensor(9, 5, dtype="int64")
    assert flops("scatter_add_", tensor(9, 5), 0, INDICES, tensor(7, 5)) == 6
    assert (
        flops("scatter_add_", whole, 0, INDICES, whole)
        == flops("scatter_", tensor(9, 5), 0, INDICES, tensor(7, 5))
        == 0
    )
    assert flops("index_put_", tensor(9, 5), index, tensor(1), True) == 10
    assert (
        flops("index_put_", tensor(9, 5), index, tensor(1), False)
        == flops("index_put_", tensor(9, 5), index, tensor(1))
        == 0
    )
    assert flops("embedding_dense_backward", tensor(2, 3, 6), INDICES, 9) == 36


@pytest.mark.parametrize(
    ("name", "arguments", "lacking"),
    [
        ("index_select", (tensor(), 0, INDICES), "dimension"), ("index_select", (tensor(3), None, INDICES), "dimension"),
        ("arange", (0, 5, 1), "type"), ("arange", (0, 5, 1, None), "type"),
        ("_embedding_bag", (tensor(3, 6), INDICES, INDICES), "bags"), ("constant_pad_nd", (tensor(3), 4), "padding"),
        ("embedding_dense_backward", (tensor(3, 6), INDICES, None), "rows"),
    ],
)  # fmt: skip
def test_bytes_are_not_known_where_an_argument_is_of_another_kind(
    name: str, arguments: tuple[Any, ...], lacking: str
) -> None:
    with pytest.raises(UnknownWork, match=lacking):
        MOVEMENT[f"aten::{name}"].written(Call(f"aten::{name}", arguments))
