"""FLOPs of formulas against loops that do the work: each definition is computed with numbers that count operations.

Per row or channel a few operations more may be done than the formula has, which counts per element; tests say how many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from ncu_launch.operators.calls import Call, Tensor
from ncu_launch.operators.table import FORMULAS, contraction_flops, work_of

SIZE = st.integers(1, 4)
FLOAT = 4


class Tally:
    """Counts the operations of the numbers that it makes."""

    def __init__(self) -> None:
        self.operations = 0

    def number(self, value: float = 1.5) -> Number:
        return Number(value, self)

    def numbers(self, count: int) -> list[Number]:
        return [self.number(0.5 + 0.25 * place) for place in range(count)]


class Number:
    """A number each of whose operations is counted, a call of a function too."""

    def __init__(self, value: float, tally: Tally) -> None:
        self.value, self.tally = value, tally

    def _new(self, value: float) -> Number:
        self.tally.operations += 1
        return Number(value, self.tally)

    def __add__(self, other: Any) -> Number:
        return self._new(self.value + float(other))

    def __sub__(self, other: Any) -> Number:
        return self._new(self.value - float(other))

    def __mul__(self, other: Any) -> Number:
        return self._new(self.value * float(other))

    def __truediv__(self, other: Any) -> Number:
        return self._new(self.value / float(other))

    def __neg__(self) -> Number:
        return self._new(-self.value)

    def __float__(self) -> float:
        return self.value

    def of(self, function: Callable[[float], float]) -> Number:
        return self._new(function(self.value))

    def max(self, other: Any) -> Number:
        return self._new(max(self.value, float(other)))

    def min(self, other: Any) -> Number:
        return self._new(min(self.value, float(other)))


def total(numbers: Sequence[Number]) -> Number:
    result = numbers[0]
    for one in numbers[1:]:
        result = result + one
    return result


def tensor(*shape: int) -> Tensor:
    return Tensor(shape, "float32")


def flops(name: str, *arguments: Any) -> float:
    found = work_of(Call(f"aten::{name}", arguments))
    assert found is not None
    assert found.flops is not None
    return found.flops


# --------------------------------------------------------------------------------------------------------- activations

ACTIVATIONS: dict[str, Callable[[Number], Number]] = {
    "relu": lambda x: x.max(0),
    "sigmoid": lambda x: x.tally.number(1) / ((-x).of(math.exp) + 1),
    "silu": lambda x: x / ((-x).of(math.exp) + 1),
    "gelu": lambda x: x * 0.5 * ((x * math.sqrt(0.5)).of(math.erf) + 1),
    "softplus": lambda x: (x.of(math.exp) + 1).of(math.log),
    "mish": lambda x: x * (x.of(math.exp) + 1).of(math.log).of(math.tanh),
    "hardtanh": lambda x: x.max(-1).min(1),
    "hardsigmoid": lambda x: (x + 3).max(0).min(6) / 6,
    "hardswish": lambda x: x * (x + 3).max(0).min(6) / 6,
    "leaky_relu": lambda x: (x * 0.01).max(x),
    "clamp": lambda x: x.max(0).min(1),
    "reciprocal": lambda x: x.tally.number(1) / x,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@given(rows=SIZE, columns=SIZE)
def test_an_activation_takes_the_operations_of_its_definition_per_element(name: str, rows: int, columns: int) -> None:
    tally = Tally()
    for one in tally.numbers(rows * columns):
        ACTIVATIONS[name](one)
    assert flops(name, tensor(rows, columns)) == tally.operations


@pytest.mark.parametrize(
    ("name", "definition"),
    [
        ("addcmul", lambda x, a, b: x + a * b * 0.5),
        ("addcdiv", lambda x, a, b: x + a / b * 0.5),
        ("lerp", lambda x, a, b: x + (a - x) * b),
    ],
)
@given(count=SIZE)
def test_an_operator_of_three_tensors_takes_the_operations_of_its_definition(
    name: str, definition: Callable[..., Number], count: int
) -> None:
    tally = Tally()
    for one in tally.numbers(count):
        definition(one, one, one)
    assert flops(name, *[tensor(count)] * 3) == tally.operations


# --------------------------------------------------------------------------------------- norms, softmax and reductions


def normalised(row: list[Number], *, is_affine: bool = True) -> list[Number]:
    mean = total(row) / len(row)
    variance = total([(x - mean) * (x - mean) for x in row]) / len(row)
    squares = len(row)
    row[0].tally.operations -= squares  # x - mean is computed once
    scale = (variance + 1e-5).of(lambda value: 1 / math.sqrt(value))
    return [(x - mean) * scale * 0.5 + 0.25 if is_affine else (x - mean) * scale for x in row]


@given(SIZE, SIZE)
def test_layer_norm_takes_eight_operations_per_element_and_two_per_row_beside(rows: int, columns: int) -> None:
    tally = Tally()
    for _ in range(rows):
        normalised(tally.numbers(columns))
    found = flops("native_layer_norm", tensor(rows, columns), [columns], tensor(columns), tensor(columns), 1e-5)
    assert found == tally.operations - 2 * rows


@given(SIZE, SIZE, SIZE)
def test_batch_norm_takes_eight_operations_per_element_and_two_per_channel_beside(
    batch: int, channels: int, size: int
) -> None:
    tally = Tally()
    for _ in range(channels):
        normalised(tally.numbers(batch * size))
    one = tensor(channels)
    found = flops("native_batch_norm", tensor(batch, channels, size), one, one, one, one, True, 0.1, 1e-5)
    assert found == tally.operations - 2 * channels
    group = flops("native_group_norm", tensor(batch, channels, size), one, one, batch, channels, size, 1, 1e-5)
    assert group == 8 * batch * channels * size


@given(SIZE, SIZE)
def test_batch_norm_without_training_takes_four_operations_per_element(batch: int, channels: int) -> None:
    tally = Tally()
    for x in tally.numbers(batch * channels):
        _ = (x - 0.5) * 2 * 0.5 + 0.25
    one = tensor(channels)
    arguments = (tensor(batch, channels), one, one, one, one, 0.1, 1e-5)
    assert flops("_native_batch_norm_legit_no_training", *arguments) == tally.operations


@given(SIZE, SIZE)
def test_rms_norm_takes_four_operations_per_element_and_two_per_row_beside(rows: int, columns: int) -> None:
    tally = Tally()
    for _ in range(rows):
        row = tally.numbers(columns)
        scale = (total([x * x for x in row]) / columns + 1e-5).of(lambda value: 1 / math.sqrt(value))
        _ = [x * scale * 0.5 for x in row]
    assert (
        flops("_fused_rms_norm", tensor(rows, columns), [columns], tensor(columns), 1e-5) == tally.operations - 2 * rows
    )


def largest(row: Sequence[Number]) -> Number:
    result = row[0]
    for one in row[1:]:
        result = result.max(one)
    return result


@given(SIZE, SIZE)
def test_softmax_takes_five_operations_per_element_forward_and_four_backward(rows: int, columns: int) -> None:
    forward, logarithm, backward, logarithm_backward = Tally(), Tally(), Tally(), Tally()
    for _ in range(rows):
        row = forward.numbers(columns)
        most = largest(row)
        powers = [(x - most).of(math.exp) for x in row]
        whole = total(powers)
        _ = [power / whole for power in powers]

        row = logarithm.numbers(columns)
        most = largest(row)
        shifted = [x - most for x in row]
        whole = total([x.of(math.exp) for x in shifted]).of(math.log)
        _ = [x - whole for x in shifted]

        gradient, result = backward.numbers(columns), backward.numbers(columns)
        along = total([g * y for g, y in zip(gradient, result, strict=True)])
        _ = [(g - along) * y for g, y in zip(gradient, result, strict=True)]

        gradient, result = logarithm_backward.numbers(columns), logarithm_backward.numbers(columns)
        along = total(gradient)
        _ = [g - y.of(math.exp) * along for g, y in zip(gradient, result, strict=True)]
    x = tensor(rows, columns)
    assert flops("_softmax", x, 1, False) == forward.operations + 2 * rows  # n numbers take n - 1 additions
    assert flops("_log_softmax", x, 1, False) == logarithm.operations + rows  # and one logarithm
    assert flops("_softmax_backward_data", x, x, 1, 6) == backward.operations + rows
    assert flops("_log_softmax_backward_data", x, x, 1, 6) == logarithm_backward.operations + rows


@given(SIZE, SIZE)
def test_the_backward_pass_of_layer_norm_takes_thirteen_operations_per_element(rows: int, columns: int) -> None:
    tally = Tally()
    of_weight, of_bias = [tally.number(0)] * columns, [tally.number(0)] * columns
    beside = 0
    for _ in range(rows):
        gradient, row = tally.numbers(columns), tally.numbers(columns)
        scaled = [(x - 0.5) * 2 for x in row]
        weighted = [g * 0.5 for g in gradient]
        first = total(weighted)
        second = total([w * s for w, s in zip(weighted, scaled, strict=True)])
        before = tally.operations
        first, second = first / columns, second / columns
        beside += tally.operations - before - 2  # what the two sums lack: n numbers take n - 1 additions
        _ = [(w - (s * second + first)) * 2 for w, s in zip(weighted, scaled, strict=True)]
        of_weight = [old + g * s for old, g, s in zip(of_weight, gradient, scaled, strict=True)]
        of_bias = [old + g for old, g in zip(of_bias, gradient, strict=True)]
    x, one, statistic = tensor(rows, columns), tensor(columns), tensor(rows, 1)
    arguments = (x, x, [columns], statistic, statistic, one, one, [True] * 3)
    assert flops("native_layer_norm_backward", *arguments) == tally.operations - beside


@given(SIZE, SIZE)
def test_a_reduction_reads_every_element_once(rows: int, columns: int) -> None:
    added, compared = Tally(), Tally()
    for _ in range(rows):
        total(added.numbers(columns))
        largest(compared.numbers(columns))
    x = tensor(rows, columns)
    assert flops("sum", x, [1]) == added.operations + rows  # to a sum that begins with 0
    assert flops("mean", x, [1]) == added.operations + rows  # and here a division
    assert flops("amax", x, [1]) == flops("argmax", x, 1) == compared.operations + rows
    assert flops("cumsum", x, 1) == rows * columns


# ------------------------------------------------------------------------------------ pooling, convolution, attention


@given(st.integers(2, 7), st.integers(1, 3), st.integers(1, 3), st.integers(0, 1), st.integers(1, 2))
def test_the_largest_of_each_window_is_found_by_comparing_all_its_places(
    size: int, kernel: int, stride: int, padding: int, dilation: int
) -> None:
    padding = min(padding, kernel // 2)
    reach = dilation * (kernel - 1)
    begins = [at for at in range(-padding, size + padding - reach) if (at + padding) % stride == 0]
    assume(begins)
    tally = Tally()
    for _ in product(begins, begins):
        largest(tally.numbers(kernel * kernel))
    source = tensor(1, 1, size, size)
    arguments = (source, [kernel] * 2, [stride] * 2, [padding] * 2, [dilation] * 2, False)
    assert flops("max_pool2d_with_indices", *arguments) == tally.operations


def multiplied(
    batch: int, out: int, inside: int, groups: int, size: int, kernel: int, stride: int, padding: int, dilation: int
) -> tuple[int, int]:
    """Multiply-adds of a convolution in one dimension, with the zeros of the padding, and the places of its result."""
    begins = [at for at in range(-padding, size + padding - dilation * (kernel - 1)) if (at + padding) % stride == 0]
    loops = product(range(batch), range(groups), range(out), begins, range(inside), range(kernel))
    return sum(1 for _ in loops), len(begins)


CONVOLUTION = st.tuples(
    st.integers(1, 2), SIZE, SIZE, st.integers(1, 3), st.integers(2, 8), st.integers(1, 3), st.integers(1, 3),
    st.integers(0, 2), st.integers(1, 3),
)  # fmt: skip
"""Batch, channels out and in of a group, groups, size, kernel, stride, padding, dilation."""


@given(CONVOLUTION)
def test_a_convolution_multiplies_every_weight_with_an_input_at_every_place(sizes: tuple[int, ...]) -> None:
    batch, out, inside, groups, size, kernel, stride, padding, dilation = sizes
    multiplications, places = multiplied(*sizes)
    assume(places)
    source, weight = tensor(batch, inside * groups, size), tensor(out * groups, inside, kernel)
    rest = ([stride], [padding], [dilation], False, [0], groups)
    forward = Call("aten::convolution", (source, weight, None, *rest))
    assert contraction_flops(forward) == 2 * multiplications
    assert FORMULAS["aten::convolution"].written(forward) == batch * out * groups * places * FLOAT
    result, bias = tensor(batch, out * groups, places), tensor(out * groups)
    assert flops("convolution", source, weight, bias, *rest) == 2 * multiplications + result.elements
    for mask, times in (([True, True, False], 2), ([False, True, True], 1), ([True, False, False], 1)):
        backward = Call("aten::convolution_backward", (result, source, weight, None, *rest, mask))
        assert contraction_flops(backward) == times * 2 * multiplications


@given(CONVOLUTION)
def test_a_transposed_convolution_adds_every_input_times_every_weight_to_its_result(sizes: tuple[int, ...]) -> None:
    batch, out, inside, groups, size, kernel, stride, padding, dilation = sizes
    loops = product(range(batch), range(groups), range(inside), range(out), range(size), range(kernel))
    multiplications = sum(1 for _ in loops)
    touched = {at * stride + one * dilation for at in range(size) for one in range(kernel)}
    places = max(touched) + 1 - 2 * padding
    assume(places > 0)
    source, weight = tensor(batch, inside * groups, size), tensor(inside * groups, out, kernel)
    call = Call("aten::convolution", (source, weight, None, [stride], [padding], [dilation], True, [0], groups))
    assert contraction_flops(call) == 2 * multiplications
    assert FORMULAS["aten::convolution"].written(call) == batch * out * groups * places * FLOAT


@given(SIZE, SIZE, st.integers(1, 3), SIZE, SIZE, SIZE, SIZE)
def test_attention_of_grouped_queries_does_the_products_of_every_query_head(
    batch: int, keys: int, group: int, rows: int, columns: int, depth: int, values: int
) -> None:
    heads = keys * group
    pairs = list(product(range(batch * heads), range(rows), range(columns)))
    scores = sum(2 for _ in product(pairs, range(depth)))
    outputs = sum(2 for _ in product(pairs, range(values)))
    q, k, v = (
        tensor(batch, heads, rows, depth),
        tensor(batch, keys, columns, depth),
        tensor(batch, keys, columns, values),
    )
    out, lse = tensor(batch, heads, rows, values), tensor(batch, heads, rows)
    for name in ("flash_attention_for_cpu", "flash_attention"):
        assert flops(f"_scaled_dot_product_{name}", q, k, v, 0.0, False) == scores + outputs
    backward = flops("_scaled_dot_product_flash_attention_for_cpu_backward", out, q, k, v, out, lse, 0.0, False)
    assert backward == 3 * scores + 2 * outputs  # scores again, dQ and dK; dP and dV


@given(SIZE, st.integers(1, 6), SIZE, SIZE)
def test_causal_attention_does_the_products_of_what_each_row_sees(
    heads: int, rows: int, depth: int, values: int
) -> None:
    seen = [(row, column) for row, column in product(range(rows), range(rows)) if column <= row]
    multiplications = sum(1 for _ in product(range(heads), seen, range(depth + values)))
    q, v = tensor(1, heads, rows, depth), tensor(1, heads, rows, values)
    found = flops("_scaled_dot_product_flash_attention_for_cpu", q, q, v, 0.0, True)
    assert found == pytest.approx(2 * multiplications)


# ---------------------------------------------------------------------------------------------------------- optimizers


@pytest.mark.parametrize(("name", "decays"), [("_fused_adam_", False), ("_fused_adamw_", True)])
@given(sizes=st.lists(SIZE, min_size=1, max_size=3))
def test_adam_takes_the_operations_of_its_definition_per_parameter(name: str, decays: bool, sizes: list[int]) -> None:
    tally = Tally()
    for parameter in tally.numbers(sum(sizes)):
        gradient, first, second = tally.numbers(3)
        decayed = parameter * 0.99 if decays else parameter
        first = first * 0.9 + gradient * 0.1
        second = second * 0.99 + gradient * gradient * 0.01
        denominator = second.of(math.sqrt) / 0.5 + 1e-8
        _ = decayed - first / denominator * 0.001
    listed = tuple(tensor(size) for size in sizes)
    assert flops(name, listed, listed, listed, listed, (), ()) == tally.operations
