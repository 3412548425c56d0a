"""Sums over launches by kernel and by name, added in batches, and what follows from such sums."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
from ncu_parsers.schema.tables import Floats

Mask = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.int64]
Title = TypeVar("Title", bound=Hashable)


class NamedSums(Generic[Title]):
    """Sums per kernel, by name. Kernels are numbered in the order in which their titles are first seen."""

    def __init__(self) -> None:
        self.numbers: dict[Title, int] = {}
        self._totals: dict[str, Floats] = {}
        self._places: Keys = np.empty(0, np.int64)

    @property
    def kernels(self) -> int:
        """The number of all kernels."""
        return len(self.numbers)

    def use(self, titles: Sequence[Title], keys: Keys | None = None) -> Keys:
        """The kernel of each launch for following `add` calls, whose index in `titles` is its key; else one of each.

        Returns its number.
        """
        numbers = np.array([self.numbers.setdefault(title, len(self.numbers)) for title in titles], np.int64)
        numbers = numbers if keys is None else numbers[keys]
        self._places = np.concatenate([np.arange(self.kernels), numbers])
        return numbers

    def merge(self, other: NamedSums[Title]) -> Keys:
        """Add the sums of later launches; returns the number here of each kernel there."""
        numbers = self.use(list(other.numbers))
        for name in other.names:
            self.add(name, other.of(name))
        return numbers

    def add(self, what: str, amounts: Floats | Mask, where: Mask | None = None) -> None:
        """Add an amount per launch to the sums of its kernel; with `where`, only for those launches."""
        taken = amounts if where is None or where.all() else np.where(where, amounts, 0.0)
        totals = np.bincount(self._places, np.concatenate([self.of(what), taken]))
        self._totals[what] = totals.astype(np.float64, copy=False)

    def count(self, names: Iterable[str], where: Mask) -> None:
        """Add 1 per launch of `where` to several sums: whole numbers, so the order does not matter."""
        counted = np.bincount(self._places[self.kernels :], where, self.kernels)
        for name in names:
            self._totals[name] = self.of(name) + counted

    def begin(self, what: str, like: str) -> None:
        """Start a new sum at the current value of the sum `like`."""
        if what not in self._totals:
            self._totals[what] = self.of(like)

    def of(self, what: str) -> Floats:
        """The sum `what` (float64, one per kernel); 0 if it was never added to."""
        return extended(self._totals.get(what, np.empty(0)), self.kernels, 0.0)

    @property
    def names(self) -> list[str]:
        """The names of the sums."""
        return list(self._totals)


def extended(values: Floats, size: int, filling: float) -> Floats:
    """The values, with so many of `filling` behind them that they are `size`."""
    return np.concatenate([values, np.full(size - len(values), filling)]) if len(values) < size else values


def ratio(amount: Floats, other: Floats) -> Floats:
    """One amount per another (float64, one per kernel); NaN where it is not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = amount / other
    return np.where(np.isfinite(found), found, np.nan)


def or_none(value: float) -> float | None:
    """A Python float, None for NaN."""
    return None if np.isnan(value) else float(value)
