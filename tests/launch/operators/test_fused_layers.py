"""Operators that hold a whole layer, an FFT or distances: FLOPs against the same work done by operators one by one."""

from __future__ import annotations

from collections.abc import Callable
from math import log2
from typing import Any

import pytest
from ncu_launch.operators.calls import Call, Tensor
from ncu_launch.operators.table import OperatorWork, contraction_flops, work_of
from ncu_launch.workload.collected_work import work_of_call
from ncu_launch.workload.module_attribution import Attribution
from ncu_launch.workload.operator_collector import collector_class

from tests.launch.operators.test_flop_counter import attention_on_a_cpu

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed (pip install '.[models]')")

Records = list[dict[str, Any]]


def floats(*shape: int, kind: str = "float32") -> Tensor:
    return Tensor(shape, kind)


def known(name: str, *arguments: Any) -> OperatorWork:
    work = work_of(Call(f"aten::{name}", arguments))
    assert work is not None
    return work


def collected(run: Callable[[], Any]) -> Records:
    attribution = Attribution()
    collector = collector_class()(attribution, "cpu", ("forward",))
    with collector, attribution.during("forward"):
        run()
    return list(collector.records)


def total(records: Records, column: str) -> float:
    return float(sum(one[column] for one in records))


def counted_by_torch(run: Callable[[], Any]) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False, custom_mapping=attention_on_a_cpu()) as counter:
        run()
    return float(counter.get_total_flops())


# ------------------------------------------------------------------------------------------------------- encoder layers


def on_both_paths(layer: Any, *inputs: Any, **keywords: Any) -> tuple[Records, Records, float]:
    """What the fused operator and the operators of the slow path do, and the slow path by PyTorch's counter."""
    layer.eval()

    def run() -> None:
        with torch.no_grad():
            layer(*inputs, **keywords)

    fused = collected(run)
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        return fused, collected(run), counted_by_torch(run)
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_layer_has_the_flops_of_its_slow_path(activation: str, norm_first: bool) -> None:
    layer = torch.nn.TransformerEncoderLayer(32, 4, 48, activation=activation, norm_first=norm_first, batch_first=True)
    fused, slow, counted = on_both_paths(layer, torch.randn(2, 10, 32))
    assert [one["operator"] for one in fused] == ["aten._transformer_encoder_layer_fwd"]
    assert total(fused, "contraction_flops") == total(slow, "contraction_flops") == counted
    assert total(fused, "flops") == total(slow, "flops")


def test_fused_attention_has_the_flops_of_its_slow_path() -> None:
    source = torch.randn(2, 10, 32)
    attention = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    fused, slow, counted = on_both_paths(attention, source, source, source, need_weights=False)
    assert [one["operator"] for one in fused] == ["aten._native_multi_head_attention"]
    assert total(fused, "contraction_flops") == total(slow, "contraction_flops") == counted
    assert total(fused, "flops") == total(slow, "flops")


def test_an_encoder_layer_of_sequences_whose_lengths_are_not_known_has_no_flops() -> None:
    layer = (floats(20, 32), 32, 4, floats(96, 32), floats(96), floats(32, 32),
             floats(32), False, False, 1e-5, *[floats(32)] * 4, floats(48, 32), floats(48), floats(32, 48), floats(32))  # fmt: skip
    assert known("_transformer_encoder_layer_fwd", *layer).flops is None


# --------------------------------------------------------------------------------------------------- recurrent networks


def lstm_step(kind: Any) -> Callable[[], Any]:
    """A step whose every gradient is wanted. PyTorch takes that of oneDNN for float32 alone."""
    network = torch.nn.LSTM(16, 32, 2, dtype=kind)
    source, hidden, cell = (
        torch.randn(size, 3, depth, dtype=kind, requires_grad=True) for size, depth in ((5, 16), (2, 32), (2, 32))
    )

    def run() -> None:
        result, (last, last_cell) = network(source, (hidden, cell))
        (result.sum() + last.sum() + last_cell.sum()).backward()

    return run


def test_an_lstm_of_onednn_has_the_products_of_the_plain_one_forward_and_backward() -> None:
    records = collected(lstm_step(torch.float32))
    plain = counted_by_torch(lstm_step(torch.float64))
    textbook = sum(2 * 5 * 3 * (inputs + 32) * 4 * 32 for inputs in (16, 32))
    backward = [one for one in records if one["operator"] == "aten.mkldnn_rnn_layer_backward"]
    assert total(backward, "contraction_flops") == 2 * textbook
    assert total(records, "contraction_flops") == 3 * textbook == plain


@pytest.mark.parametrize(("name", "state"), [("_cudnn_rnn_backward", (4, None)), ("miopen_rnn_backward", (4, None))])
@pytest.mark.parametrize("wanted", [True, False])
def test_gradients_of_weights_of_an_rnn_are_counted_where_they_are_wanted(
    name: str, state: tuple[Any, ...], wanted: bool
) -> None:
    source, weights, result = floats(5, 3, 16), (floats(128, 16), floats(128, 32), floats(128)), floats(5, 3, 32)
    numbers = (2, 32, *((0,) if "cudnn" in name else ()), 1, False, 0.0, True, False, (), None, None)
    work = known(
        name, source, weights, *state, result, None, result, result, None, None, *numbers, [True, True, True, wanted]
    )
    assert work.flops == (1 + wanted) * 2 * 5 * 3 * (16 + 32) * 4 * 32
    gradients = floats(5, 3, 16).bytes + wanted * sum(one.bytes for one in weights)
    assert work.least_bytes == source.bytes + sum(one.bytes for one in weights) + 2 * result.bytes + gradients


@pytest.mark.parametrize(("name", "cell", "gates"), [("lstm", "LSTMCell", 4), ("gru", "GRUCell", 3)])
def test_a_fused_cell_has_the_flops_of_the_plain_one_beside_the_products(name: str, cell: str, gates: int) -> None:
    with torch.no_grad():
        module, source = getattr(torch.nn, cell)(16, 32, bias=False), torch.randn(3, 16)
        plain = [one for one in collected(lambda: module(source)) if not one["contraction_flops"]]
    arguments = (floats(3, gates * 32), floats(3, gates * 32), floats(3, 32))
    assert known(f"_thnn_fused_{name}_cell", *arguments).flops == total(plain, "flops")
    biased = known(f"_thnn_fused_{name}_cell", *arguments, floats(gates * 32), floats(gates * 32))
    assert biased.flops == total(plain, "flops") + 2 * 3 * gates * 32


# --------------------------------------------------------------------------------------------------- Fourier transforms


def operations_of_radix_2(points: int) -> int:
    """Of a transform of complex numbers, halved again and again: a product of 6 and two sums of 2 for each pair."""
    return 0 if points == 1 else 2 * operations_of_radix_2(points // 2) + points // 2 * (6 + 2 + 2)


@pytest.mark.parametrize("points", [1, 2, 64, 1024])
def test_an_fft_has_the_operations_of_a_radix_2_algorithm(points: int) -> None:
    each = operations_of_radix_2(points)
    assert known("_fft_c2c", floats(7, points, kind="complex64"), [1], 0, True).flops == 7 * each
    assert known("_fft_r2c", floats(7, points), [1], 0, True).flops == 7 * each / 2
    half = floats(7, points // 2 + 1, kind="complex64")
    assert known("_fft_c2r", half, [1], 2, points).flops == 7 * each / 2


def test_an_fft_of_two_dimensions_has_the_operations_of_both() -> None:
    rows, columns = 8 * operations_of_radix_2(16), 16 * operations_of_radix_2(8)
    assert known("_fft_c2c", floats(3, 8, 16, kind="complex64"), [1, 2], 0, True).flops == 3 * (rows + columns)
    assert known("_fft_r2c", floats(3, 8, 16), [1, 2], 0, True).flops == 3 * (rows + columns) / 2


def test_an_fft_of_any_length_has_the_customary_count_and_no_contraction() -> None:
    call = Call("aten::_fft_c2c", (floats(2, 100, kind="complex128"), [1], 0, True))
    assert work_of_call(call, is_elementwise=False)[:2] == (pytest.approx(5 * 200 * log2(100)), 0.0)


def test_an_fft_whose_dimensions_were_not_recorded_has_no_flops() -> None:
    assert known("_fft_c2c", floats(2, 64, kind="complex64")).flops is None


# ------------------------------------------------------------------------------------------------------------ distances


def distances_in_pieces(left: Any, right: Any) -> Any:
    """As PyTorch does it in `_euclidean_dist`."""
    squares, others = (one.pow(2).sum(-1, keepdim=True) for one in (left, right))
    wide = torch.cat([left.mul(-2), squares, torch.ones_like(squares)], -1)
    other = torch.cat([right, torch.ones_like(others), others], -1)
    return wide.matmul(other.mT).clamp_min_(0).sqrt_()


@pytest.mark.parametrize("batch", [(), (2,)])
def test_euclidean_distances_have_the_flops_of_the_operators_that_they_call(batch: tuple[int, ...]) -> None:
    left, right = torch.randn(*batch, 50, 8), torch.randn(*batch, 20, 8)
    fused = collected(lambda: torch.cdist(left, right))
    pieces = collected(lambda: distances_in_pieces(left, right))
    assert [one["operator"] for one in fused] == ["aten._euclidean_dist"]
    assert torch.allclose(torch.cdist(left, right), distances_in_pieces(left, right))
    for column in ("flops", "contraction_flops"):
        assert total(fused, column) == total(pieces, column)


@pytest.mark.parametrize(
    ("order", "each", "at_the_end"), [(0.0, 3, 0), (1.0, 3, 0), (2.0, 3, 1), (float("inf"), 3, 0), (3.0, 4, 1)]
)
def test_distances_have_the_operations_of_their_definition(order: float, each: int, at_the_end: int) -> None:
    left, right = floats(5, 8), floats(4, 8)
    assert known("_cdist_forward", left, right, order, None).flops == 5 * 4 * (8 * each + at_the_end)
    assert known("_pdist_forward", left, order).flops == 10 * (8 * each + at_the_end)


@pytest.mark.parametrize("name", ["_cdist_backward", "_thnn_fused_lstm_cell_backward_impl"])
def test_what_is_known_of_operators_without_a_formula_is_that_they_hold_no_contraction(name: str) -> None:
    found = work_of_call(Call(f"aten::{name}", (floats(3, 8), floats(3, 8))), is_elementwise=False)
    assert (found.flops, found.contraction_flops) == (None, 0.0)


def test_distances_have_contractions_only_where_they_are_a_product() -> None:
    left, right = floats(5, 8), floats(4, 8)
    assert contraction_flops(Call("aten::_euclidean_dist", (left, right))) == 2 * 5 * 4 * 10
    assert contraction_flops(Call("aten::_cdist_forward", (left, right, 1.0, None))) is None
