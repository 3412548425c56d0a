"""Products behind the shapes of operators, as the collector and traces write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_tools.model.expected_time.operator_shapes import Product, product_of, shapes_in


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("32x3x224x224 64x3x7x7", [(32, 3, 224, 224), (64, 3, 7, 7)]),
        ("[[8944,1024],[1024,2816]]", [(8944, 1024), (1024, 2816)]),
        ("[[768],[25088,768],[768,768],[],[]]", [(768,), (25088, 768), (768, 768)]),
        ("4096x64 64x4096 () ()", [(4096, 64), (64, 4096)]),
        ("[[[1,2],[3,4]],[]]", []),
        ("[1", []),
        ("a b", []),
        (None, []),
    ],
)
def test_shapes_are_read_as_the_collector_and_as_traces_write_them(text: str, shapes: list[tuple[int, ...]]) -> None:
    assert shapes_in(text) == shapes


@pytest.mark.parametrize(
    ("operator", "text", "flops", "product"),
    [
        ("aten::mm", "8x4 4x2", 128, Product(1, 8, 2, 4)),
        ("aten::addmm", "2 8x4 4x2", 128, Product(1, 8, 2, 4)),
        ("aten::_scaled_mm", "8x4 4x2 () ()", 128, Product(1, 8, 2, 4)),
        ("aten::_scaled_mm", "8x2 2x2 () ()", 128, None),  # two numbers a byte
        ("aten::_int_mm", "8x4 4x2", 0, Product(1, 8, 2, 4)),
        ("aten::bmm", "3x8x4 3x4x2", 384, Product(3, 8, 2, 4)),
        ("aten::linear", "5x8x4 2x4 2", 640, Product(1, 40, 2, 4)),
        ("aten::matmul", "5x8x4 4x2", 640, Product(1, 40, 2, 4)),
        ("aten::matmul", "2x3x8x4 2x3x4x5", 1920, Product(6, 8, 5, 4)),
        ("aten::convolution", "2x3x8x8 6x3x2x2", 2 * 2 * 16 * 6 * 12, Product(1, 32, 6, 12, True)),
        ("aten::convolution", "2x8x4x4 8x1x3x3", 2 * 2 * 16 * 8 * 9, Product(8, 32, 1, 9, True, 1 / 9)),
        ("aten::conv_transpose2d", "2x8x4x4 8x8x3x3", 2 * 2 * 16 * 64 * 9, None),
        ("aten::mm", "8x4 5x2", 128, None),
        ("aten::relu", "8x4", 32, None),
        ("aten::convolution", "2x3x4x4 8x2x3x3", 100, None),
    ],
)
def test_a_product_follows_from_shapes(operator: str, text: str, flops: float, product: Product | None) -> None:
    assert product_of(operator, shapes_in(text), flops) == product


@given(
    st.sampled_from(["mm", "bmm", "addmm", "linear", "matmul", "convolution"]), st.text("0123456789x []", max_size=30)
)
def test_odd_texts_give_no_product_and_no_error(name: str, text: str) -> None:
    found = product_of(f"aten::{name}", shapes_in(text), 64.0)
    assert found is None or min(found[:4]) >= 1
