"""Attention as language models call it, by shapes: with fewer heads of keys, causal, one token against a cache, windowed.

PyTorch's own counter sees none of the operator that a CPU takes: 0 FLOPs, eager and compiled. These are not 0 here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ncu_launch.operators.calls import Call, Tensor
from ncu_launch.operators.table import contraction_flops, work_of
from ncu_launch.workload.module_attribution import Attribution
from ncu_launch.workload.operator_collector import collector_class

from tests.support.installed import WITHOUT_TORCH

BATCH, HEADS, DEPTH = 2, 8, 16
SDPA = "aten::_scaled_dot_product_"
AFTER_THE_KEYS: dict[str, Callable[[bool], tuple[Any, ...]]] = {
    f"{SDPA}flash_attention": lambda causal: (0.0, causal, False),
    f"{SDPA}efficient_attention": lambda causal: (None, False, 0.0, causal),
    f"{SDPA}cudnn_attention": lambda causal: (None, False, 0.0, causal, False),
    f"{SDPA}fused_attention_overrideable": lambda causal: (None, 0.0, causal, False),
    f"{SDPA}flash_attention_for_cpu": lambda causal: (0.0, causal),
}
"""Operator -> its arguments behind query, key and value. Source: aten/src/ATen/native/native_functions.yaml."""


def of_shapes(name: str, rows: int, columns: int, heads_of_keys: int, *, causal: bool) -> Call:
    query = Tensor((BATCH, HEADS, rows, DEPTH), "bfloat16")
    keys = Tensor((BATCH, heads_of_keys, columns, DEPTH), "bfloat16")
    return Call(name, (query, keys, keys, *AFTER_THE_KEYS[name](causal)))


@pytest.mark.parametrize("heads_of_keys", [8, 2, 1])
@pytest.mark.parametrize("name", AFTER_THE_KEYS)
class TestOnEveryBackend:
    def test_the_work_is_that_of_all_query_heads_and_the_bytes_those_of_fewer_keys(
        self, name: str, heads_of_keys: int
    ) -> None:
        call = of_shapes(name, 1, 64, heads_of_keys, causal=False)
        found = work_of(call)
        assert found is not None
        assert found.flops == contraction_flops(call) == 4 * BATCH * HEADS * 64 * DEPTH
        assert found.least_bytes == 2 * BATCH * DEPTH * (2 * HEADS * 1 + 2 * heads_of_keys * 64)

    def test_a_causal_mask_leaves_out_the_scores_above_its_diagonal(self, name: str, heads_of_keys: int) -> None:
        call = of_shapes(name, 64, 64, heads_of_keys, causal=True)
        found = work_of(call)
        assert found is not None
        assert contraction_flops(call) == 4 * BATCH * HEADS * 64 * 64 * DEPTH
        assert found.flops == 4 * BATCH * HEADS * DEPTH * 64 * 65 / 2


def test_a_sliding_window_leaves_out_what_lies_before_it() -> None:
    query = Tensor((1, 64, HEADS, DEPTH), "bfloat16")
    call = Call(
        "aten::_flash_attention_forward", (query, query, query, None, None, 64, 64, 0.0, True, False, None, 15, 0)
    )
    found = work_of(call)
    assert found is not None
    assert found.flops == 4 * HEADS * DEPTH * sum(min(row + 1, 16) for row in range(64))


# ------------------------------------------------------------------------------------------------------- as it runs


def collected(work: Callable[[], Any]) -> list[dict[str, Any]]:
    attribution = Attribution()
    collector = collector_class()(attribution, "cpu", ("forward",))
    with collector, attribution.during("forward"):
        work()
    records: list[dict[str, Any]] = collector.records
    return records


def stock_counter(work: Callable[[], Any]) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        work()
    return float(counter.get_total_flops())


@pytest.mark.parametrize(
    ("rows", "columns", "heads_of_keys", "causal"),
    [(32, 32, 8, True), (32, 32, 2, True), (1, 48, 8, False), (1, 48, 2, False), (1, 48, 1, False), (16, 48, 4, False)],
)
@pytest.mark.slow
class TestOnACpu:
    def test_scaled_dot_product_attention_is_counted_where_pytorch_counts_nothing(
        self, rows: int, columns: int, heads_of_keys: int, causal: bool
    ) -> None:
        torch = pytest.importorskip("torch", reason=WITHOUT_TORCH)
        query = torch.randn(BATCH, HEADS, rows, DEPTH)
        keys = torch.randn(BATCH, heads_of_keys, columns, DEPTH)

        def attend() -> None:
            torch.nn.functional.scaled_dot_product_attention(
                query, keys, keys, is_causal=causal, enable_gqa=heads_of_keys < HEADS
            )

        records = collected(attend)
        whole = 4 * BATCH * HEADS * rows * columns * DEPTH
        assert sum(record["contraction_flops"] for record in records) == whole
        names = {record["operator"] for record in records if record["contraction_flops"]}
        if "aten._scaled_dot_product_flash_attention_for_cpu" in names:
            assert stock_counter(attend) in (0.0, whole)

    @pytest.mark.slow
    def test_products_and_softmax_in_pieces_are_the_same_contractions(
        self, rows: int, columns: int, heads_of_keys: int, causal: bool
    ) -> None:
        torch = pytest.importorskip("torch", reason=WITHOUT_TORCH)
        query = torch.randn(BATCH, HEADS, rows, DEPTH)
        keys = torch.randn(BATCH, heads_of_keys, columns, DEPTH)
        from torch.nn.attention import SDPBackend, sdpa_kernel

        def attend() -> None:
            with sdpa_kernel(SDPBackend.MATH):
                torch.nn.functional.scaled_dot_product_attention(
                    query, keys, keys, is_causal=causal, enable_gqa=heads_of_keys < HEADS
                )

        records = collected(attend)
        assert sum(record["contraction_flops"] for record in records) == 4 * BATCH * HEADS * rows * columns * DEPTH


@pytest.mark.nightly
def test_compiled_attention_on_a_cpu_calls_the_operator_whose_shapes_tell_its_flops() -> None:
    torch = pytest.importorskip("torch", reason=WITHOUT_TORCH)
    query, keys = torch.randn(BATCH, HEADS, 32, DEPTH), torch.randn(BATCH, 2, 48, DEPTH)

    def plain(query: Any, keys: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(query, keys, keys, enable_gqa=True) * 2

    attend = torch.compile(plain)
    attend(query, keys)
    with torch.profiler.profile(record_shapes=True) as profiler:
        attend(query, keys)
    (event,) = [one for one in profiler.events() if one.name == f"{SDPA}flash_attention_for_cpu"]
    tensors = [Tensor(tuple(shape), "float32") for shape in event.input_shapes[:3]]
    found = work_of(Call(event.name, (*tensors, *event.concrete_inputs[3:5])))
    assert found is not None
    assert found.flops == 4 * BATCH * HEADS * 32 * 48 * DEPTH
