"""What of many alike is tried by day, and what at night: pytest -m nightly."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest
from hypothesis import settings

NIGHTLY = pytest.mark.nightly
FEWER = settings(max_examples=settings().max_examples // 3)
"""A decorator for a property whose examples take long, as simulations do: a third of them, by day as by night."""


def by_day(few: Collection[Any], of: Sequence[Any]) -> list[Any]:
    """Parameters for `pytest.mark.parametrize`: those of `of` that are in `few` by day, the others at night.

    A plain tuple holds the values of several parameters; a named one is one value.
    """
    return [
        value if value in few else pytest.param(*(value if type(value) is tuple else [value]), marks=NIGHTLY)
        for value in of
    ]


def one_in(every: int, of: Sequence[Any]) -> list[Any]:
    """Parameters for `pytest.mark.parametrize`: the first and each `every`th from it on by day, the others at night."""
    return by_day(of[::every], of)
