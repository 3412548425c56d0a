"""Which FLOPs of a workload a measured point holds."""

from __future__ import annotations

from typing import Any

from ncu_launch.bench.flops_of_points import flops_columns


def columns(**changes: Any) -> tuple[Any, Any, Any]:
    summary = {
        "flops": 0.0, "flops_operators": 20_480.0, "integer_contractions": 0, "unknown_operators": {},
        "uncounted_operators": {}, **changes,
    }  # fmt: skip
    found = flops_columns(summary)
    return found["expected_flops"], found["expected_flops_basis"], found["expected_why_not"]


def test_a_workload_without_a_contraction_has_the_flops_of_all_its_operators() -> None:
    assert columns() == (20_480.0, "all operators", None)


def test_a_workload_with_a_contraction_has_those_of_contractions_alone() -> None:
    assert columns(flops=8e9, flops_operators=9e9) == (8e9, "contractions", None)


def test_products_of_integers_are_contractions_and_have_no_flops() -> None:
    assert columns(integer_contractions=1) == (0.0, "contractions", None)


def test_an_operator_without_a_formula_leaves_flops_unknown_and_is_named() -> None:
    sort = columns(flops_operators=None, uncounted_operators={"aten::sort": 1})
    assert sort == (None, None, "no formula for aten::sort")
    unknown = columns(flops=None, flops_operators=None, unknown_operators={"mine::product": 2})
    assert unknown == (None, None, "no formula for mine::product")


def test_a_workload_with_a_contraction_needs_no_formula_of_its_other_operators() -> None:
    assert columns(flops=8e9, flops_operators=None, uncounted_operators={"aten::sort": 1}) == (
        8e9, "contractions", None,
    )  # fmt: skip
