"""Columns of kernels from the metrics of their launches, added in batches, so that a run of any size has them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import Floats

from ncu_tools.kernels.grouping import rows_of
from ncu_tools.kernels.kernel_row import OF_SEVERAL
from ncu_tools.kernels.names.categories import CATEGORY, with_categories
from ncu_tools.kernels.view.columns.column_names import FROM_NAMES, MEAN, MEDIAN, MOST_TIME, RATIO, SUM, ChosenColumn
from ncu_tools.numbers.row_sums import (
    Accumulator,
    Family,
    Keys,
    Mean,
    Sum,
    TimedSums,
    or_none,
    ratio,
)
from ncu_tools.runs.partition_sums import OF_GROUPS, OF_OPERATORS, in_batches, notes_of_reports, sums_of_run
from ncu_tools.runs.run import Run

OF_LAUNCHES = ("source", "kernel_name", "kernel_short", "invocations", "failed", "duration_ns", *OF_OPERATORS)
NAME, VALUE = "name", "value"
Value = float | str | None


class ColumnSums(TimedSums):
    """Sums over the launches of each kernel for `columns`; `group` is one of `hotspots.GROUPS`.

    Failed launches are left out. `units` are the report's units of metrics.
    """

    def __init__(self, columns: Sequence[ChosenColumn], group: str) -> None:
        super().__init__(of_several=group in OF_SEVERAL)
        self.reports: dict[str, None] = {}
        self.units: dict[str, str] = {}
        self._columns, self._group = tuple(columns), group
        self._means = Family(partial(Mean, self.rows))
        self._parts, self._overs = Family(partial(Mean, self.rows)), Family(partial(Sum, self.rows))
        """Dividend and divisor of each quotient column."""
        self._occurrences = Family(_Occurrences)
        self._families: dict[str, dict[str, None]] = {}

    def add(self, table: pa.Table) -> None:
        """Add launches."""
        self.reports |= notes_of_reports(table)
        if any(one.needs(name) for one in self._columns for name in FROM_NAMES):
            table = with_categories(table)
        places, titles = rows_of(table, self._group)
        keys = self.rows.use(titles, places)
        weight = np.where(tables.floats(table, "failed") > 0, 0.0, tables.launch_counts(table))
        seconds = np.nan_to_num(tables.floats(table, "duration_ns")) * weight
        self.launches.count(weight)
        self.seconds.add(seconds)
        added, counted = self._wanted(table.schema)
        for metric in added:
            self._add_amount(metric, tables.floats(table, metric), weight, seconds)
        for metric in counted:
            self._occurrences.made(metric).add(keys, *_coded(table, metric), weight, seconds)
        for column in self._columns:
            if column.over:
                self._add_quotient(column, table, weight, seconds)

    def values(self, column: ChosenColumn) -> dict[str, Value]:
        """The value of a column by kernel; None if no launch has it, or for a sum if any launch lacks it."""
        if column.largest_of:
            values = self._largest(column)
        elif column.by == RATIO:
            part = self._parts[column.name]
            quotients = ratio(part.sum.values, self._overs[column.name].values)
            values = self._numbers_of(np.where(self.rare(part), np.nan, quotients))
        else:
            values = [None] * len(self.rows)
            for metric in column.metrics:
                others = self._of(metric, column.by)
                values = [other if one is None else one for one, other in zip(values, others, strict=True)]
        has_launches = self.launches.values > 0
        return {kernel: value for kernel, value, has in zip(self.titles, values, has_launches, strict=True) if has}

    def metrics_in_run(self, column: ChosenColumn) -> list[str]:
        """The metrics of a column that some launch has; of alternatives the preferred one first."""
        known = [name for name in self.units if column.needs(name) and self._has(name)]
        if column.largest_of:
            return known
        if column.over:
            return [*column.metrics, column.over] if len(known) > 1 else []
        return [name for name in column.metrics if name in known]

    def _has(self, metric: str) -> bool:
        return any(metric in family.members for family in (self._means, self._occurrences))

    def _wanted(self, schema: pa.Schema) -> tuple[dict[str, None], dict[str, None]]:
        """The metrics of a table whose amounts are summed, and the metrics whose values are counted."""
        added, counted = dict[str, None](), dict[str, None]()
        for column in self._columns:
            made_of = [name for name in schema.names if column.needs(name)]
            if column.largest_of:
                self._families.setdefault(column.largest_of, {}).update(dict.fromkeys(made_of))
            for metric in made_of:
                field = schema.field(metric)
                self.units.setdefault(metric, tables.field_entries(field).get("unit", ""))
                is_counted = column.by in (MEDIAN, MOST_TIME) or not _is_number(field.type)
                (counted if is_counted else added)[metric] = None
        return added, counted

    def _add_amount(self, metric: str, values: Floats, weight: Floats, seconds: Floats) -> None:
        known = ~np.isnan(values) & (weight > 0)
        if known.any():
            self._means.made(metric).add(values, weight, seconds, known)

    def _add_quotient(self, column: ChosenColumn, table: pa.Table, weight: Floats, seconds: Floats) -> None:
        (metric,), over = column.metrics, tables.floats(table, column.over)
        part = tables.floats(table, metric)
        known = ~np.isnan(part) & (over > 0) & (weight > 0)
        if known.any():
            self._parts.made(column.name).add(part, weight, seconds, known)
            self._overs.made(column.name).add(over * weight, known)

    def _of(self, metric: str, by: str) -> list[Value]:
        """A metric of every kernel, its launches combined; for texts, the value with the most time."""
        if by in (MEDIAN, MOST_TIME) or metric not in self._means.members:
            return self._occurrences[metric].combined(len(self.rows), by)
        one = self._means[metric]
        return self._numbers_of(one.whole(self.launches) if by == SUM else self.means(one))

    def leaves_out(self, column: ChosenColumn) -> bool:
        """True if a row lacks a mean or quotient because launches with less than `MOSTLY_KNOWN` of its time have it."""
        if column.by not in (MEAN, RATIO):
            return False
        of_metrics = [self._means[name] for name in self.metrics_in_run(column)]
        made_of = [self._parts[column.name]] if column.by == RATIO else of_metrics
        return any(bool((self.rare(one) & (one.launches.values > 0)).any()) for one in made_of)

    def _largest(self, column: ChosenColumn) -> list[Value]:
        names, values = [], []
        for metric in self._families.get(column.largest_of, ()):
            match = re.fullmatch(column.largest_of, metric)
            if match is not None and match[1] != column.but:
                names.append(match[1].replace("_", " "))
                values.append(self.means(self._means[metric]))
        return [_largest_of(names, [float(one[row]) for one in values], column) for row in range(len(self.rows))]

    def _numbers_of(self, values: Floats) -> list[Value]:
        return [or_none(value) for value in values]


class _Occurrences(Accumulator):
    """How often each value of a metric occurs among the launches of each kernel, and for how much time."""

    def __init__(self) -> None:
        self._found: dict[int, dict[float | str, list[float]]] = {}

    def add(self, keys: Keys, codes: Keys, values: Sequence[Value], weight: Floats, seconds: Floats) -> None:
        """Add launches: the key of each, the index of its value in `values`, its count, its time."""
        both = keys * len(values) + codes
        counts, times = np.bincount(both, weight), np.bincount(both, seconds)
        for at in np.flatnonzero(counts).tolist():
            key, code = divmod(at, len(values))
            value = values[code]
            if value is not None:
                self._count(key, value, float(counts[at]), float(times[at]))

    def merge(self, other: _Occurrences, numbers: Keys) -> None:
        """Merge later launches, whose keys are the indices of `numbers`."""
        for key, found in other._found.items():
            for value, (count, time) in found.items():
                self._count(int(numbers[key]), value, count, time)

    def combined(self, kernels: int, by: str) -> list[Value]:
        """The value of each kernel: the median of numbers, else the value with the most time."""
        return [_combined(self._found.get(kernel, {}), by) for kernel in range(kernels)]

    def _count(self, key: int, value: float | str, count: float, time: float) -> None:
        found = self._found.setdefault(key, {}).setdefault(value, [0.0, 0.0])
        found[0] += count
        found[1] += time


def _combined(found: dict[float | str, list[float]], by: str) -> Value:
    if not found:
        return None
    numbers = [value for value in found if not isinstance(value, str)]
    if by == MEDIAN and len(numbers) == len(found):
        return _median(sorted((value, found[value][0]) for value in numbers))
    return max(found, key=lambda value: (found[value][1], found[value][0]))


def _median(values: Sequence[tuple[float, float]]) -> float:
    """The median of values with their counts, in ascending order."""
    ends = np.cumsum([count for _, count in values])
    middle = ((ends[-1] - 1) // 2, ends[-1] // 2)
    low, high = (values[int(np.searchsorted(ends, place, side="right"))][0] for place in middle)
    return (low + high) / 2


def _largest_of(names: Sequence[str], values: Sequence[float], column: ChosenColumn) -> Value:
    """The name, value or share in % of the largest; None if none is known or above zero."""
    whole = float(np.nansum(values)) if values else 0.0
    if not whole > 0:
        return None
    at = int(np.nanargmax(values))
    if column.gives == NAME:
        return names[at]
    return values[at] if column.gives == VALUE else 100 * values[at] / whole


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _coded(table: pa.Table, name: str) -> tuple[Keys, Sequence[Value]]:
    """Index of each launch's value, and the values: numbers or texts; shapes as "128 x 1 x 1"."""
    kind = table.schema.field(name).type
    if _is_number(kind):
        numbers, places = np.unique(tables.floats(table, name), return_inverse=True)
        return places.astype(np.int64), [or_none(number) for number in numbers]
    if pa.types.is_list(kind):
        places, lists = tables.list_codes(table, name)
        between = "/" if name == "nvtx_path" else " x "
        return places, [None if one is None else between.join(map(str, one)) for one in lists]
    if pa.types.is_boolean(kind):
        flags = table.column(name).to_pylist()
        return np.array([2 if flag is None else int(flag) for flag in flags], np.int64), ["false", "true", None]
    codes, texts = tables.codes(table, name)
    return codes.astype(np.int64), texts


def column_sums(run: Run, columns: Sequence[ChosenColumn], group: str) -> ColumnSums:
    """Sum the metrics that `columns` of a run need, with a few row groups in memory at a time.

    Raises `NcuBenchError` as `sums_of_run` does.
    """
    read = in_batches(partial(_needed, columns, group))
    return sums_of_run(run, partial(ColumnSums, columns, group), read)


def categories_of_kernels(run: Run) -> dict[str, str]:
    """The category of each kernel by `Hotspot.key`; for several operators, the one with most of its time."""
    column = ChosenColumn(CATEGORY, CATEGORY, (CATEGORY,), MOST_TIME)
    found = column_sums(run, [column], "name").values(column)
    return {kernel: value for kernel, value in found.items() if isinstance(value, str)}


def _needed(columns: Sequence[ChosenColumn], group: str, names: Sequence[str], filled: Collection[str]) -> list[str]:
    """The columns of a file that the sums need and some launch has."""
    wanted, known = {*OF_LAUNCHES, *OF_GROUPS[group]}, set(filled)
    return [name for name in names if name in wanted or (name in known and any(one.needs(name) for one in columns))]
