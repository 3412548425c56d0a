"""Which operators the expected FLOPs of measured points cover: contractions, or all operators if there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ncu_launch.bench.flops_of_points import ALL_OPERATORS, COLUMN
from ncu_parsers.schema.operator_columns import BASIS, CONTRACTIONS_BASIS, EXPECTED

from ncu_tools.numbers.number_format import counted

Row = dict[str, Any]


def is_of_all_operators(row: Row) -> bool:
    """True if a point has no contraction, so that its expected FLOPs cover all its operators."""
    return bool(row.get(COLUMN) == ALL_OPERATORS)


def basis_of_flops(row: Row) -> str:
    """The coverage of a point's expected FLOPs, as in `flops_basis`."""
    return EXPECTED + (BASIS if is_of_all_operators(row) else CONTRACTIONS_BASIS)


def unlike_basis(base: Row, new: Row) -> str:
    """The reason why the expected FLOPs of two points cannot be compared; "" if they can."""
    bases = [row.get(COLUMN) for row in (base, new)]
    return f"FLOPs cover {bases[0]} and {bases[1]}" if None not in bases and bases[0] != bases[1] else ""


def notes_on_basis(rows: Sequence[Row]) -> list[str]:
    """A note if expected FLOPs of some points cover all operators: how many, while other points have contractions."""
    known = [row for row in rows if row.get("expected_flops") is not None]
    number = sum(map(is_of_all_operators, known))
    if not number:
        return []
    some = "" if number == len(known) else f" of {number} of {counted(len(known), 'point', 'points')}"
    others = "" if number == len(known) else "; FLOPs of the others cover only contractions"
    return [f"expected FLOPs{some} cover all operators, because there is no contraction{others}"]
