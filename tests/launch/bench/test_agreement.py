"""Whether results of two functions agree: by type, exactly where they are whole numbers, and with their gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow

from ncu_launch.bench.against.agreement import TOLERANCES, compared  # noqa: E402


@pytest.mark.parametrize(("name", "step"), [(name, step) for name, step in TOLERANCES.items() if "float8" not in name])
def test_values_agree_within_the_tolerance_of_their_type_and_not_beyond(name: str, step: float) -> None:
    ones = torch.ones(8, dtype=torch.float64)
    reference = ones.to(getattr(torch, name))
    assert compared((ones * (1 + step)).to(reference.dtype), reference).agrees is True
    found = compared((ones * (1 + 3 * step)).to(reference.dtype), reference)
    assert found.agrees is False
    assert found.tolerances == {name: step}
    assert found.max_abs == pytest.approx(3 * step, rel=0.2)


def test_whole_numbers_have_to_agree_exactly() -> None:
    assert compared(torch.arange(4), torch.arange(4)).agrees is True
    found = compared(torch.tensor([0, 1, 2, 4]), torch.arange(4))
    assert found.agrees is False
    assert found.reason == "1 of 4 values differ, and int64 has to agree exactly"
    assert found.max_abs == 1
    assert compared(torch.tensor([True]), torch.tensor([False])).agrees is False


def test_a_sum_near_zero_may_have_the_error_of_its_largest_terms() -> None:
    reference = torch.tensor([1.0, -1.0, 1e-9])
    assert compared(reference + 1e-6, reference).agrees is True


def test_a_few_huge_values_excuse_no_error_in_the_others() -> None:
    """As masks of attention are: -1e9 beside ordinary numbers."""
    reference = torch.tensor([1.0, 2.0, 3.0, -1e9])
    assert compared(torch.tensor([1.0, 2.1, 3.0, -1e9]), reference).agrees is False


def test_zeros_where_the_reference_has_values_disagree() -> None:
    reference = torch.rand(16) + 0.5
    mine = reference.clone()
    mine[3] = 0
    assert compared(mine, reference).reason == "1 of 16 values differ by more than 1e-05"


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_agree_with_themselves_only(special: float) -> None:
    reference = torch.tensor([1.0, special])
    assert compared(reference.clone(), reference).agrees is True
    assert compared(torch.tensor([1.0, 2.0]), reference).agrees is False
    assert compared(reference, torch.tensor([1.0, 2.0])).agrees is False
    assert compared(torch.tensor([1.0, -special]), reference).agrees is math.isnan(special)


def test_results_of_two_types_are_compared_with_the_wider_tolerance() -> None:
    reference = torch.rand(64) + 1
    found = compared(reference.half(), reference)
    assert found.agrees is True
    assert found.tolerances == {"float16": 2e-3, "float32": 2e-3}


def test_a_tolerance_that_is_given_replaces_those_of_types() -> None:
    reference = torch.ones(4)
    assert compared(reference * 1.01, reference, 0.1).agrees is True
    assert compared(reference * 1.01, reference, 1e-4).agrees is False


@pytest.mark.parametrize(
    ("mine", "reference", "reason"),
    [
        (torch.ones(2), torch.ones(3), "the shapes are 2 and 3"),
        ((torch.ones(2), torch.ones(2)), torch.ones(2), "it gives 2 results, the reference 1"),
        (None, torch.ones(2), "it gives no result, the reference 1"),
        ([torch.ones(2), torch.ones(())], [torch.ones(2), torch.ones(1)], "result 2: the shapes are a number and 1"),
    ],
)
def test_results_that_cannot_be_the_same_say_why(mine: Any, reference: Any, reason: str) -> None:
    found = compared(mine, reference)
    assert (found.agrees, found.reason) == (False, reason)


def test_nothing_to_compare_is_no_agreement() -> None:
    found = compared(None, None)
    assert found.agrees is None
    assert found.reason == "neither returns numbers or changes its inputs, so there is nothing to compare"


def test_numbers_arrays_and_nested_containers_are_compared() -> None:
    import numpy as np

    mine = {"a": np.ones(3), "b": [2.0, (torch.ones(1),)]}
    assert compared(mine, {"a": torch.ones(3, dtype=torch.float64), "b": [2.0, (torch.ones(1),)]}).agrees is True
    assert compared(mine, {"a": np.ones(3), "b": [2.1, (torch.ones(1),)]}).agrees is False


def test_complex_and_sparse_results_are_compared_by_their_values() -> None:
    values = torch.tensor([1 + 2j, 3j])
    assert compared(values, values.clone()).agrees is True
    assert compared(values, values.conj()).agrees is False
    assert compared(torch.eye(3).to_sparse(), torch.eye(3)).agrees is True


def test_empty_results_agree() -> None:
    assert compared(torch.ones(0), torch.ones(0)).agrees is True
    assert compared(torch.ones(0, dtype=torch.int64), torch.ones(0, dtype=torch.int64)).agrees is True
