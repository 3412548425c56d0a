"""Operations and bytes of reductions, norms, pooling and optimizers against loops and definitions. No PyTorch needed."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.operators.calls import UNRECORDED, Call, Formula, Tensor, UnknownWork
from ncu_launch.operators.table import FORMULAS

SIZE = st.integers(1, 5)
FLOAT, INDEX = 4, 8


def tensor(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(shape, dtype)


def work(name: str, *arguments: Any) -> tuple[float, float, float]:
    """FLOPs, bytes read and bytes written; the name without its namespace is one of aten."""
    name = name if "::" in name else f"aten::{name}"
    formula: Formula = FORMULAS[name]
    call = Call(name, arguments)
    return formula.flops(call), formula.read(call), formula.written(call)


@given(st.lists(SIZE, min_size=1, max_size=3), st.data())
def test_a_reduction_leaves_the_dimensions_that_it_does_not_sum(sizes: list[int], data: st.DataObject) -> None:
    dims = data.draw(st.lists(st.integers(-len(sizes), len(sizes) - 1), max_size=2))
    gone = {dim % len(sizes) for dim in dims} or set(range(len(sizes)))
    places = {tuple(-1 if at in gone else one for at, one in enumerate(place)) for place in product(*map(range, sizes))}
    elements = len(list(product(*map(range, sizes))))
    assert work("sum", tensor(*sizes), dims) == (elements, elements * FLOAT, len(places) * FLOAT)


def test_sums_of_integers_are_int64_and_no_flops() -> None:
    assert work("sum", tensor(3, 4, dtype="int32")) == (0, 3 * 4 * 4, 8)


def test_a_largest_value_along_a_dimension_has_its_index_too() -> None:
    assert work("max", tensor(3, 4), 1) == (12, 12 * FLOAT, 3 * (FLOAT + INDEX))
    assert work("max", tensor(3, 4)) == (12, 12 * FLOAT, FLOAT)
    assert work("argmax", tensor(3, 4), 1) == (12, 12 * FLOAT, 3 * INDEX)


def windows(size: int, kernel: int, stride: int, padding: int, *, rounds_up: bool) -> int:
    """How many windows fit into the padded input, counted one by one.

    Rounding up allows one more that reaches beyond it, if it begins in the input or the padding before it.
    """
    last = size + 2 * padding - kernel
    begins = range(0, size + 2 * padding + stride, stride)
    whole = [at for at in begins if at <= last]
    more = [at for at in begins if at > last and at - stride < last and at < size + padding]
    return len(whole) + (len(more) if rounds_up else 0)


@given(st.integers(3, 9), st.integers(1, 3), st.integers(1, 4), st.integers(0, 1), st.booleans())
def test_a_pooling_has_a_result_for_every_window(
    size: int, kernel: int, stride: int, padding: int, rounds_up: bool
) -> None:
    padding = min(padding, kernel // 2)
    results = 2 * windows(size, kernel, stride, padding, rounds_up=rounds_up) ** 2
    source = tensor(1, 2, size, size)
    read = 2 * size * size * FLOAT
    average = work("avg_pool2d", source, [kernel] * 2, [stride] * 2, [padding] * 2, rounds_up)
    assert average == (results * kernel**2, read, results * FLOAT)
    largest = work("max_pool2d_with_indices", source, [kernel] * 2, [stride] * 2, [padding] * 2, [1, 1], rounds_up)
    assert largest == (results * (kernel**2 - 1), read, results * (FLOAT + INDEX))


def test_an_operator_that_ends_in_an_underscore_writes_the_type_of_its_first_operand() -> None:
    half, single = tensor(2, 3, dtype="float16"), tensor(2, 3)
    assert work("add_", half, single)[2] == 6 * 2
    assert work("add", half, single)[2] == 6 * FLOAT


def test_a_comparison_computes_no_flops_and_writes_a_byte_per_element() -> None:
    assert work("lt", tensor(4, 1), tensor(5)) == (0, 9 * FLOAT, 4 * 5)


def test_a_layer_norm_writes_mean_and_deviation_of_each_row() -> None:
    assert work("native_layer_norm", tensor(4, 6), [6], tensor(6), tensor(6), 1e-5) == (
        8 * 24, (24 + 6 + 6) * FLOAT, (24 + 2 * 4) * FLOAT,
    )  # fmt: skip


def test_a_list_of_tensors_is_copied_without_reading_its_destination() -> None:
    ours, theirs = [tensor(3), tensor(2, 2)], [tensor(3), tensor(2, 2)]
    assert work("_foreach_copy_", ours, theirs) == (0, 7 * FLOAT, 7 * FLOAT)
    assert work("_foreach_add_", ours, theirs) == (7, 14 * FLOAT, 7 * FLOAT)


@pytest.mark.parametrize(("name", "operations"), [("_fused_adam_", 13), ("_fused_adamw_", 14)])
def test_adam_reads_parameters_gradients_and_moments_and_writes_all_but_gradients(name: str, operations: int) -> None:
    each = [tensor(3), tensor(2, 2)]
    assert work(name, each, each, each, each) == (7 * operations, 4 * 7 * FLOAT, 3 * 7 * FLOAT)


def test_types_and_sizes_that_were_not_recorded_leave_the_work_unknown() -> None:
    with pytest.raises(UnknownWork):
        work("add", tensor(3, dtype=""), tensor(3, dtype=""))
    with pytest.raises(UnknownWork):
        work("sum", tensor(3, 4), UNRECORDED)
    with pytest.raises(UnknownWork):
        work("_adaptive_avg_pool2d", tensor(1, 2, 8, 8), UNRECORDED)


def test_a_reduction_over_an_empty_list_of_dimensions_is_over_all() -> None:
    assert work("sum", tensor(3, 4), ()) == work("sum", tensor(3, 4)) == (12, 12 * FLOAT, FLOAT)
    assert work("var", tensor(3, 4), True) == (48, 12 * FLOAT, FLOAT)
    assert work("var_mean", tensor(3, 4), [1], 1, False) == (48, 12 * FLOAT, 2 * 3 * FLOAT)
    assert work("linalg_vector_norm", tensor(3, 4), 2, [0], False) == (24, 12 * FLOAT, 4 * FLOAT)


@given(SIZE, SIZE)
def test_the_gradient_of_a_picked_loss_is_written_whole(rows: int, classes: int) -> None:
    scores, target = tensor(rows, classes), tensor(rows, dtype="int64")
    found = work("nll_loss_backward", tensor(), scores, target, None, 1, -100, tensor())
    assert found == (rows, FLOAT + rows * INDEX, rows * classes * FLOAT)
    assert work("nll_loss_forward", scores, target, None, 1, -100) == (2 * rows, rows * (FLOAT + INDEX), 2 * FLOAT)


def test_how_often_sorting_compares_is_unknown_and_what_it_moves_is_not() -> None:
    formula = FORMULAS["aten::topk"]
    call = Call("aten::topk", (tensor(3, 9), 2, -1, True, True))
    assert (formula.read(call), formula.written(call)) == (27 * FLOAT, 6 * (FLOAT + INDEX))
    with pytest.raises(UnknownWork):
        formula.flops(call)


@pytest.mark.parametrize(
    ("settings", "operations", "momenta"),
    [((0.0, 0.0, 1e-3, 0.0, False), 2, 0), ((0.0, 0.9, 1e-3, 0.0, False), 5, 1), ((0.1, 0.9, 1e-3, 0.0, True), 9, 1)],
)
def test_sgd_does_and_keeps_what_its_settings_ask_for(settings: tuple[Any, ...], operations: int, momenta: int) -> None:
    each = (tensor(3), tensor(2, 2))
    found = work("_fused_sgd_", each, each, each * momenta, *settings, False, False)
    assert found == (7 * operations, 7 * FLOAT * (2 + momenta), 7 * FLOAT * (1 + momenta))


def test_the_norm_of_each_tensor_of_a_list_is_one_number() -> None:
    assert work("_foreach_norm", (tensor(3), tensor(2, 2)), 2) == (14, 7 * FLOAT, 2 * FLOAT)


def test_logits_do_three_operations_forward_and_backward_and_replaced_nans_three_comparisons() -> None:
    x, integers = tensor(2, 3), tensor(2, 3, dtype="int32")
    assert work("logit", x, None) == work("nan_to_num", x, 0.0, None, None) == (3 * 6, 6 * FLOAT, 6 * FLOAT)
    assert work("logit_backward", x, x, None) == (3 * 6, 2 * 6 * FLOAT, 6 * FLOAT)
    assert work("nan_to_num", integers) == (0, 6 * 4, 6 * 4)
