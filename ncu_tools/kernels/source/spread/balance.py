"""How evenly the units of a chip did the work of a launch: the least and the most of a counter, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from ncu_parsers.ncu_rep.metric_units import unit_of
from ncu_parsers.schema.tables import Floats

UNITS = {
    "sm": "SM",
    "smsp": "SM sub-partition",
    "l1tex": "L1 cache",
    "lts": "L2 slice",
    "dram": "DRAM channel",
    "fbpa": "DRAM partition",
    "gpc": "GPC",
    "tpc": "TPC",
}
"""What metrics of a unit begin with -> the unit (Kernel Profiling Guide, "Metrics Structure")."""
LEAST, MEAN, MOST = ".min", ".avg", ".max"
"""What metrics end with that sum up a counter over the units (same guide, "Metrics Rollups")."""
WORK, NO_WORK = "__cycles_active", "_elapsed"
"""Counters of cycles in which a unit works, and of those that pass on every unit, whether it works or not."""
ALIKE = 1e-9


@dataclass(frozen=True)
class Balance:
    """A counter of one launch over all units of a kind, each value in `unit`.

    `count` is how many units there are; it and `median` are None where the report holds no value of each.
    `slowest_cost` is the share of the most loaded unit's amount that an even spread would take off it, 1 - mean / most.
    """

    metric: str
    of: str
    count: int | None
    unit: str
    least: float
    median: float | None
    mean: float
    most: float
    slowest_cost: float


def balances(launch: pa.Table, of_units: Mapping[str, Floats] | None = None) -> list[Balance]:
    """The counters of a launch over units: first active cycles, then others, each with the highest cost first.

    `launch` is its row of the table of launches, `of_units` the values of each unit by metric, where a report has them.
    Counters that are 0 everywhere are left out, as are values of units that only repeat the mean (`repeats_mean`).
    """
    found = {one.metric: one for one in _from_extremes(launch)}
    for metric, values in (of_units or {}).items():
        if unit_kind(metric) and len(values) > 1 and not repeats_mean(values) and values.max() > 0:
            found[metric.removesuffix(MEAN)] = _balance(metric, values)
    return sorted(found.values(), key=lambda one: (not one.metric.endswith(WORK), -one.slowest_cost))


def repeats_mean(values: Floats) -> bool:
    """True if all units have one value: old reports hold the mean of all as that of each, which tells of no balance."""
    return bool(np.ptp(values) <= ALIKE * np.abs(values).max(initial=0.0))


def _from_extremes(launch: pa.Table) -> Iterator[Balance]:
    for name in launch.column_names:
        metric = name.removesuffix(MOST)
        names = [metric + ending for ending in (LEAST, MEAN, MOST)]
        if name == metric or not unit_kind(metric) or any(one not in launch.column_names for one in names):
            continue
        least, mean, most = (launch[one][0].as_py() for one in names)
        if None not in (least, mean, most) and most > 0:
            yield Balance(metric, unit_kind(metric), None, unit_of(metric), least, None, mean, most, 1 - mean / most)


def _balance(metric: str, values: Floats) -> Balance:
    mean, most = float(values.mean()), float(values.max())
    return Balance(
        metric=metric.removesuffix(MEAN),
        of=unit_kind(metric),
        count=len(values),
        unit=unit_of(metric),
        least=float(values.min()),
        median=float(np.median(values)),
        mean=mean,
        most=most,
        slowest_cost=1 - mean / most,
    )


def unit_kind(metric: str) -> str:
    """The kind of unit that a metric counts on; "" for metrics of none, and of mere time."""
    beginning, _, rest = metric.partition("__")
    return "" if rest.partition(".")[0].endswith(NO_WORK) else UNITS.get(beginning, "")
