"""The table of formulas is put together from one module per kind of operator."""

from __future__ import annotations

from ncu_launch.operators.attention import ATTENTION
from ncu_launch.operators.contractions import CONTRACTIONS
from ncu_launch.operators.custom_operators import CUSTOM
from ncu_launch.operators.elementwise import ELEMENTWISE
from ncu_launch.operators.movement import FREE, MOVEMENT
from ncu_launch.operators.packed_products import PACKED_PRODUCTS
from ncu_launch.operators.sampling import SAMPLING
from ncu_launch.operators.table import FORMULAS

PARTS = (MOVEMENT, ELEMENTWISE, SAMPLING, ATTENTION, CONTRACTIONS, PACKED_PRODUCTS, CUSTOM)


def test_every_operator_has_its_formula_in_one_place() -> None:
    assert sum(map(len, PARTS)) == len(FORMULAS)
    assert FORMULAS.keys() & FREE == set()


def test_every_formula_names_its_source() -> None:
    assert [name for name, formula in FORMULAS.items() if not formula.source] == []
