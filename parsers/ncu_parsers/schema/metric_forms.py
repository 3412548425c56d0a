"""Metrics of launches in any form that a report has: `.pct` for `.ratio`, loads and stores for their sum.

`metric_forms.toml` lists the equivalent metrics. A metric reported under its own name takes precedence.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from ncu_launch.files.toml_tables import table_beside

from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import Floats


@dataclass(frozen=True)
class MetricForm:
    """One way to compute a metric: factor x sum of `plus` x product of `times` / product of `over`."""

    factor: float
    plus: tuple[str, ...]
    times: tuple[str, ...]
    over: tuple[str, ...]

    @property
    def terms(self) -> tuple[str, ...]:
        """Every metric that the form needs."""
        return self.plus + self.times + self.over


class MetricsInAnyForm:
    """The metrics of a table of launches, in any form that the table has."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._columns = frozenset(table.column_names)

    def floats(self, metric: str) -> Floats:
        """A metric as float64, one per row: as reported, else in the first other form that a row has; NaN if none."""
        return self._floats(metric, frozenset())

    def behind(self, metric: str) -> tuple[str, ...]:
        """The columns that a metric is computed from: itself, or those of its first complete form; () if none."""
        return source_columns(metric, self._columns)

    def formula(self, metric: str) -> str:
        """The expression that `floats` evaluates, in the report's metrics: "a / b"; the metric's name if none."""
        return _formula(metric, self._columns, frozenset())

    def _floats(self, metric: str, above: frozenset[str]) -> Floats:
        result = tables.floats(self._table, metric)
        for form in _forms_below(metric, above):
            if not np.isnan(result).any():
                break
            if all(source_columns(one, self._columns, above | {metric}) for one in form.terms):
                result = np.where(np.isnan(result), self._computed(form, above | {metric}), result)
        return result

    def _computed(self, form: MetricForm, above: frozenset[str]) -> Floats:
        plus, times, over = (
            [self._floats(one, above) for one in names] for names in (form.plus, form.times, form.over)
        )
        amount = np.sum(plus, axis=0) if plus else np.ones(len(self._table))
        divisor = np.prod([np.ones(len(self._table)), *over], axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            values: Floats = form.factor * amount * np.prod([np.ones(len(self._table)), *times], axis=0) / divisor
        return np.where(divisor > 0, values, np.nan)


def source_columns(metric: str, columns: Collection[str], above: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The `columns` that a metric can be computed from; () if none. `above` are the metrics whose forms led here."""
    if metric in columns:
        return (metric,)
    for form in _forms_below(metric, above):
        behind = [source_columns(one, columns, above | {metric}) for one in form.terms]
        if all(behind):
            return tuple(dict.fromkeys(name for names in behind for name in names))
    return ()


def _formula(metric: str, columns: Collection[str], above: frozenset[str]) -> str:
    for form in () if metric in columns else _forms_below(metric, above):
        if all(source_columns(one, columns, above | {metric}) for one in form.terms):
            plus, times, over = (
                [_formula(one, columns, above | {metric}) for one in names]
                for names in (form.plus, form.times, form.over)
            )
            amount = [f"({' + '.join(plus)})" if len(plus) > 1 and times + over else " + ".join(plus)] if plus else []
            factors = [*([f"{form.factor:g}"] if form.factor != 1 else []), *amount, *times]
            return " / ".join([" x ".join(factors), *over])
    return metric


def with_every_form(metrics: Collection[str]) -> frozenset[str]:
    """The metrics, and every other metric that their forms need."""
    return frozenset[str]().union(*(_reachable(one, frozenset()) for one in metrics))


@cache
def _reachable(metric: str, above: frozenset[str]) -> frozenset[str]:
    below = (one for form in _forms_below(metric, above) for one in form.terms)
    return frozenset({metric}).union(*(_reachable(one, above | {metric}) for one in below))


def _forms_below(metric: str, above: frozenset[str]) -> list[MetricForm]:
    """The forms of a metric, except forms computed from itself or from a metric of `above`."""
    return [form for form in _forms(metric) if not (above | {metric}) & set(form.terms)]


@cache
def _forms(metric: str) -> tuple[MetricForm, ...]:
    return tuple(_filled(entry, match) for pattern, entry in _entries() if (match := pattern.fullmatch(metric)))


@cache
def _entries() -> tuple[tuple[re.Pattern[str], Mapping[str, Any]], ...]:
    return tuple((re.compile(entry["metric"]), entry) for entry in table_beside(__file__, "metric_forms")["form"])


def _filled(entry: Mapping[str, Any], match: re.Match[str]) -> MetricForm:
    plus, times, over = (tuple(match.expand(one) for one in entry.get(key, ())) for key in ("plus", "times", "over"))
    return MetricForm(entry.get("factor", 1.0), plus, times, over)
