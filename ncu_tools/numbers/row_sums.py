"""Sums over launches by row, such as a kernel, added in batches and merged from parts.

Every sum is taken in the order of the launches, so batch sizes change no digit; parts merged in the same order give the
same digits, of which the last may differ from adding all launches one by one. A row of averages weighs as many launches
as it averages, a failed launch nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from ncu_parsers.schema.tables import Floats

from ncu_tools.numbers.merged_by_field import MergedByField, merged

MOSTLY_KNOWN = 0.9
"""Least known share of the time of a row of several kernels for deriving values."""

Mask = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.int64]
Title = TypeVar("Title", bound=Hashable)
Value = TypeVar("Value", bound=Hashable)


class RowNumbers(Generic[Title]):
    """The rows that launches are summed by, numbered in the order in which their titles are first seen."""

    def __init__(self) -> None:
        self.numbers: dict[Title, int] = {}
        self._places: Keys = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.numbers)

    def use(self, titles: Sequence[Title], keys: npt.NDArray[Any] | None = None) -> Keys:
        """Set the row of each following launch, whose index in `titles` is its key; without keys one of each.

        Returns the row numbers.
        """
        known = self.numbers
        numbers = np.array([known.setdefault(title, len(known)) for title in titles], np.int64)
        numbers = numbers if keys is None else numbers[keys]
        self._places = np.concatenate([np.arange(len(self)), numbers])
        return numbers

    def added(self, totals: Floats, amounts: Floats | Mask) -> Floats:
        """The totals of all rows, with the amounts per launch added."""
        return np.bincount(self._places, np.concatenate([totals, amounts])).astype(np.float64, copy=False)

    def counted(self, whole: Floats | Mask) -> Floats:
        """The sum per row of an integer per launch, or of the launches of a mask: exact in any order."""
        return np.bincount(self._places[len(self) :], whole, len(self)).astype(np.float64, copy=False)


class Accumulator:
    """A sum by row. It is merged field by field: each nested accumulator by its own rule."""

    def merge(self, other: Any, numbers: Keys) -> None:
        """Merge the same accumulator of later launches, whose rows have these `numbers` here, and are in use."""
        for name, one in vars(self).items():
            if isinstance(one, Accumulator):
                one.merge(getattr(other, name), numbers)


class Sum(Accumulator):
    """The sum of an amount, 0 in rows without additions."""

    def __init__(self, rows: RowNumbers[Any]) -> None:
        self._rows = rows
        self._totals: Floats | None = None

    @property
    def values(self) -> Floats:
        """The sum of each row (float64)."""
        return _extended(np.empty(0) if self._totals is None else self._totals, len(self._rows), 0.0)

    def add(self, amounts: Floats | Mask, where: Mask | None = None) -> None:
        """Add an amount per launch; with `where`, only for those launches."""
        taken = amounts if where is None or where.all() else np.where(where, amounts, 0.0)
        self._totals = self._rows.added(self.values, taken)

    def count(self, whole: Floats | Mask) -> None:
        """Add an integer per launch, or 1 for each launch of a mask."""
        self.plus(self._rows.counted(whole))

    def plus(self, counted: Floats) -> None:
        """Add sums that were already `counted` by row."""
        self._totals = self.values + counted

    def begin(self, like: Sum) -> None:
        """Start from the value of another sum, if nothing was added yet."""
        if self._totals is None:
            self._totals = like.values

    def merge(self, other: Sum, numbers: Keys) -> None:
        """See `Accumulator.merge`."""
        if other._totals is not None:
            self.add(other.values)


class Chosen(Accumulator):
    """One value of each row, chosen by `choose` among its launches' values: np.fmin.at, np.fmax.at or `first_at`."""

    def __init__(self, rows: RowNumbers[Any], choose: Callable[[Floats, Keys, Floats], None]) -> None:
        self._rows, self._choose = rows, choose
        self._found = np.empty(0)

    @property
    def values(self) -> Floats:
        """The value of each row (float64); NaN without one."""
        return _extended(self._found, len(self._rows), np.nan)

    def add(self, numbers: Keys, values: Floats) -> None:
        """Add a value per launch, whose rows have these numbers."""
        self._found = self.values
        self._choose(self._found, numbers, values)

    def merge(self, other: Chosen, numbers: Keys) -> None:
        """See `Accumulator.merge`."""
        self.add(numbers, other.values)


def first_at(found: Floats, numbers: Keys, values: Floats) -> None:
    """Fill NaN rows of `found` with the first of their values."""
    new = np.flatnonzero(np.isnan(found[numbers]) & ~np.isnan(values))[::-1]
    found[numbers[new]] = values[new]  # for equal indices the last assignment wins: the first launch


class Total(Accumulator):
    """The total of an amount per launch, and the number of launches with a known amount."""

    def __init__(self, rows: RowNumbers[Any]) -> None:
        self.launches = Sum(rows)
        self.sum = Sum(rows)

    def whole(self, launches: Sum) -> Floats:
        """The total of each row; NaN unless all of its `launches` know the amount."""
        known = self.launches.values
        return np.where((known > 0) & (known == launches.values), self.sum.values, np.nan)


class Quotient(Accumulator):
    """A ratio of two sums, over the launches with both amounts."""

    def __init__(self, rows: RowNumbers[Any]) -> None:
        self.part, self.of = Sum(rows), Sum(rows)

    @property
    def values(self) -> Floats:
        """The quotient of each row; NaN where it is not finite."""
        return ratio(self.part.values, self.of.values)

    def add(self, part: Floats, of: Floats, where: Mask) -> None:
        """Add two amounts for each launch of `where`."""
        self.part.add(part, where)
        self.of.add(of, where)


class Rated(Total):
    """A total, and its rate per second over the launches that have a time too."""

    def __init__(self, rows: RowNumbers[Any]) -> None:
        super().__init__(rows)
        self.rate = Quotient(rows)


class Mean(Total):
    """A value per launch, with a time-weighted mean."""

    def __init__(self, rows: RowNumbers[Any]) -> None:
        super().__init__(rows)
        self.by_time, self.seconds = Sum(rows), Sum(rows)

    def add(self, values: Floats, weight: Floats, seconds: Floats, where: Mask) -> None:
        """Add the values of launches `where`; `weight` is the number of launches and `seconds` the time of each."""
        self.sum.add(values * weight, where)
        self.launches.count(np.where(where, weight, 0.0))
        self.by_time.add(values * seconds, where)
        self.seconds.add(seconds, where)

    def mean_of_all(self, launches: Sum) -> Floats:
        """The mean of each row; NaN unless all of its `launches` know the value."""
        return np.where(np.isnan(self.whole(launches)), np.nan, self.mean())

    def mean(self) -> Floats:
        """The mean of each row weighted by time, or by launches if no time of launches with the value is known."""
        by_time = ratio(self.by_time.values, self.seconds.values)
        return np.where(np.isnan(by_time), ratio(self.sum.values, self.launches.values), by_time)


Of = TypeVar("Of", bound=Accumulator)


class Family(Accumulator, Generic[Of]):
    """Accumulators of one kind, one for each metric, unit or part that any launch has."""

    def __init__(self, new: Callable[[], Of]) -> None:
        self._new = new
        self.members: dict[str, Of] = {}

    def __getitem__(self, name: str) -> Of:
        return self.members.get(name) or self._new()

    def made(self, name: str) -> Of:
        """The accumulator of `name`, to add to."""
        return self.members.setdefault(name, self._new())

    def merge(self, other: Any, numbers: Keys) -> None:
        """See `Accumulator.merge`."""
        for name, one in other.members.items():
            self.made(name).merge(one, numbers)


class Seen(Accumulator, Generic[Value]):
    """The different values of each row, in order of appearance; only the first `most`."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._of_rows: dict[int, dict[Value, None]] = {}

    def add(self, row: int, values: Iterable[Value]) -> None:
        """Add values to a row."""
        seen = self._of_rows.setdefault(row, {})
        for value in values:
            if self._most is None or len(seen) < self._most:
                seen[value] = None

    def add_codes(self, numbers: Keys, codes: npt.NDArray[Any], values: Sequence[Value | None]) -> None:
        """Add a value per launch, None for none, by its index in `values`."""
        for pair in np.flatnonzero(np.bincount(numbers * len(values) + codes)).tolist():
            row, code = divmod(pair, len(values))
            value = values[code]
            if value is not None:
                self.add(row, [value])

    def merge(self, other: Seen[Value], numbers: Keys) -> None:
        """See `Accumulator.merge`."""
        for row, values in other._of_rows.items():
            self.add(int(numbers[row]), values)

    def of(self, row: int) -> list[Value]:
        """The values of a row."""
        return list(self._of_rows.get(row, ()))


class RowSums(MergedByField, Generic[Title]):
    """Sums of launches by row, each merged in the order of creation."""

    def __init__(self) -> None:
        self.rows: RowNumbers[Title] = RowNumbers()

    @property
    def titles(self) -> list[Title]:
        """The titles of the rows."""
        return list(self.rows.numbers)

    def number(self, title: Title) -> int:
        """The index of a row by title. Raises `KeyError` if there is none."""
        return self.rows.numbers[title]

    def merge(self, other: Any) -> None:
        """Merge the sums of later launches, of the same class."""
        self._take(other, other.titles)

    def _take(self, other: RowSums[Any], titles: Sequence[Title]) -> None:
        """Merge sums whose rows get these titles."""
        numbers = self.rows.use(titles)
        for name, one in vars(self).items():
            if isinstance(one, Accumulator):
                one.merge(getattr(other, name), numbers)
            elif one is not self.rows:
                setattr(self, name, merged(one, getattr(other, name)))


class TimedSums(RowSums[str]):
    """Sums with the launches and the time of each row; `of_several` if rows may combine kernels."""

    def __init__(self, *, of_several: bool) -> None:
        super().__init__()
        self._of_several = of_several
        self.launches, self.seconds = Sum(self.rows), Sum(self.rows)

    def means(self, one: Mean) -> Floats:
        """The mean of each row; NaN if unknown."""
        return np.where(self.rare(one), np.nan, one.mean())

    def rare(self, one: Mean) -> Mask:
        """Mask of rows of several kernels in which launches with less than `MOSTLY_KNOWN` of the time know a value."""
        timed = self.seconds.values > 0
        have = np.where(timed, one.seconds.values, one.launches.values)
        every = np.where(timed, self.seconds.values, self.launches.values)
        return have < MOSTLY_KNOWN * every if self._of_several else np.zeros(len(self.rows), bool)


def _extended(values: Floats, size: int, filling: float) -> Floats:
    """The values, extended to `size` with `filling`."""
    return np.concatenate([values, np.full(size - len(values), filling)]) if len(values) < size else values


def ratio(amount: Floats, other: Floats) -> Floats:
    """One amount per another (float64, one per row); NaN where it is not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = amount / other
    return np.where(np.isfinite(found), found, np.nan)


def or_none(value: float) -> float | None:
    """A Python float, None for NaN."""
    return None if np.isnan(value) else float(value)
