"""Sums merged field by field."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ncu_tools.numbers.merged_by_field import MergedByField


class Inner(MergedByField):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Sums(MergedByField):
    def __init__(self, launches: int, *, averaged: bool, names: set[str]) -> None:
        self.title = "kernels"
        self.launches, self.averaged, self.names = launches, averaged, names
        self.cells = np.full(2, float(launches))
        self.missing = Counter(dict.fromkeys(names, launches))
        self.inner, self.nothing, self.lines = Inner(launches / 2), None, [launches]


def test_numbers_and_lists_add_up_sets_and_dicts_unite_and_names_stay() -> None:
    sums = Sums(1, averaged=False, names={"a"})
    sums.merge(Sums(2, averaged=True, names={"a", "b"}))
    assert (sums.title, sums.launches, sums.averaged, sums.names) == ("kernels", 3, True, {"a", "b"})
    assert sums.missing == {"a": 3, "b": 2}
    assert sums.cells.tolist() == [3.0, 3.0]
    assert (sums.inner.seconds, sums.nothing, sums.lines) == (1.5, None, [1, 2])


def test_keys_keep_the_order_in_which_they_came() -> None:
    first, later = Sums(1, averaged=False, names={"b"}), Sums(1, averaged=False, names={"a"})
    first.merge(later)
    assert list(first.missing) == ["b", "a"]
