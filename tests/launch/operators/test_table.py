"""The table of formulas is put together from one module per kind of operator."""

from __future__ import annotations

import math
from typing import Any

import pytest
from ncu_launch.operators.attention import ATTENTION
from ncu_launch.operators.calls import Call, Formula, Tensor
from ncu_launch.operators.contractions import CONTRACTIONS
from ncu_launch.operators.custom_operators import CUSTOM
from ncu_launch.operators.elementwise import ELEMENTWISE
from ncu_launch.operators.movement import FREE, MOVEMENT
from ncu_launch.operators.packed_products import PACKED_PRODUCTS
from ncu_launch.operators.sampling import SAMPLING
from ncu_launch.operators.table import (
    FORMULAS,
    FUSED,
    NOTHING,
    OperatorWork,
    contraction_flops,
    formula_of,
    is_contraction,
    is_integer_product,
    work_of,
)

PARTS = (MOVEMENT, ELEMENTWISE, SAMPLING, ATTENTION, CONTRACTIONS, PACKED_PRODUCTS, CUSTOM)


def test_every_operator_has_its_formula_in_one_place() -> None:
    assert sum(map(len, PARTS)) == len(FORMULAS)
    assert FORMULAS.keys() & FREE == set()


def test_every_formula_names_its_source() -> None:
    assert [name for name, formula in FORMULAS.items() if not formula.source] == []


HALF, FLOAT32, WHOLE = (Tensor((2, 3), dtype) for dtype in ("float16", "float32", "int8"))


def product(dtype: str) -> Call:
    return Call("aten::mm", (Tensor((2, 3), dtype), Tensor((3, 4), dtype)))


def made(
    flops: float = 5.0,
    read: float = 3.0,
    written: float = 4.0,
    correction: float | None = None,
    contracts: bool = False,
) -> Formula:
    """A formula with these results."""
    return Formula(
        lambda _: flops, lambda _: read, lambda _: written, contracts, "",
        None if correction is None else lambda _: correction,
    )  # fmt: skip


class TestTheWorkOfACall:
    def test_is_flops_and_bytes_of_its_formula(self) -> None:
        found = work_of(product("float32"))
        assert found == OperatorWork(2 * 2 * 3 * 4, 4 * (6 + 12 + 8), is_contraction=True)
        assert work_of(Call("aten::view", (FLOAT32,))) == NOTHING == OperatorWork(0, 0)
        assert work_of(Call("aten::nothing_like_it", ())) is None

    def test_of_complex_numbers_is_four_times_as_much_in_a_product(self) -> None:
        assert work_of(product("complex64")) == OperatorWork(4 * 48, 8 * 26, is_contraction=True)
        own = {"mine::add": made()}
        assert work_of(Call("mine::add", (Tensor((2,), "complex64"),)), own) == OperatorWork(5, 7)

    def test_follows_a_formula_of_the_users_before_the_table(self) -> None:
        assert work_of(product("float32"), {"aten::mm": made()}) == OperatorWork(5, 7)
        assert work_of(Call("aten::view", (FLOAT32,)), {"aten::view": made()}) == OperatorWork(5, 7)
        assert formula_of("triton_poi_fused_add") is FUSED
        assert formula_of("other_triton_poi") is None

    def test_has_the_correction_of_its_formula_which_a_counter_like_pytorchs_lacks(self) -> None:
        assert work_of(Call("mine::x", ()), {"mine::x": made(correction=2.0)}) == OperatorWork(7, 7)
        assert contraction_flops(product("complex64")) == 4 * 48
        assert contraction_flops(product("float32")) == 48
        assert contraction_flops(Call("aten::add", (FLOAT32, FLOAT32))) is None
        assert contraction_flops(Call("aten::nothing_like_it", ())) is None

    @pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
    def test_is_not_known_where_a_number_cannot_be(self, value: float) -> None:
        own = {"x": made(flops=value), "y": made(read=value), "z": made(written=value)}
        found = [work_of(Call(name, ()), own) for name in own]
        assert found == [OperatorWork(None, 7), OperatorWork(5, None), OperatorWork(5, None)]
        assert work_of(Call("x", ()), {"x": made(flops=0.0, read=0.0, written=0.0)}) == OperatorWork(0, 0)

    def test_is_not_known_where_an_argument_lacks(self) -> None:
        assert work_of(Call("aten::mm", (FLOAT32,))) == OperatorWork(None, None, is_contraction=True)

    def test_of_integers_has_no_flops_in_a_product(self) -> None:
        assert work_of(product("int8")) == OperatorWork(None, 26, is_contraction=True)
        assert [is_integer_product(product(one)) for one in ("int8", "float32", "")] == [True, False, False]
        assert not is_integer_product(Call("aten::mm", (WHOLE, HALF)))
        assert not is_integer_product(Call("aten::mm", (WHOLE, Tensor((3,), ""))))
        assert not is_integer_product(Call("aten::add", (WHOLE, WHOLE)))
        assert not is_integer_product(Call("aten::mm", ()))
        assert is_integer_product(Call("aten::_int_mm", (FLOAT32,)))
        assert (is_contraction("aten::mm"), is_contraction("aten::add"), is_contraction("none")) == (True, False, False)
        assert is_contraction("none", {"none": made(contracts=True)})


class TestAFusedKernel:
    def test_takes_every_tensor_once_or_as_much_of_it_as_it_goes_over(self) -> None:
        def taken(*arguments: Any) -> OperatorWork | None:
            return work_of(Call("triton_poi_fused_add", arguments))

        assert taken(FLOAT32, [HALF], "text") == OperatorWork(None, 24 + 12)
        assert taken(FLOAT32, HALF, 2, 2) == OperatorWork(None, 4 * 4 + 4 * 2)
        assert taken(FLOAT32, HALF, 100) == OperatorWork(None, 24 + 12)
        assert taken(FLOAT32, 1) == OperatorWork(None, 4)
        assert taken(FLOAT32, 0, -3, True) == OperatorWork(None, 24)
        assert taken(5) == OperatorWork(None, None)
