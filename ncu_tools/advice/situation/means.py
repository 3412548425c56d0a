"""Group launches into kernels, and take means of metrics over each group."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_parsers.schema import tables
from ncu_parsers.schema.metric_forms import MetricsInAnyForm
from ncu_parsers.schema.tables import Floats

from ncu_tools.advice.situation.largest_values import largest_of
from ncu_tools.ceilings.launch_devices import device_titles

SIZES_APART, TIMES_APART = 1.1, 1.6
"""Launches of one name and block size are split where sorted grid sizes, or times, jump by more than this factor."""

Groups = npt.NDArray[np.int64]


def grouped(launches: pa.Table, rows: Groups) -> Groups:
    """The group of each launch, from 0: one per row, name, device, block size, and about equal grid size and time.

    A kernel called with equal grids but different work has times far apart, and a group for each: advice on one would
    not fit the other.
    """
    names, _ = tables.codes(launches, "kernel_name")
    grids, shapes = tables.list_codes(launches, "grid")
    sizes = np.array([float(np.prod(shape)) if shape else 1.0 for shape in shapes])[grids]
    blocks, devices = tables.list_codes(launches, "block")[0], device_titles(launches)[0]
    keys = np.stack([rows, names.astype(np.int64), blocks, devices], 1)
    groups = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
    groups = _split(groups, np.maximum(sizes, 1.0), SIZES_APART)
    groups = _split(groups, tables.floats(launches, "duration_ns"), TIMES_APART)
    return np.unique(groups, return_inverse=True)[1].reshape(-1)


def _split(groups: Groups, values: Floats, apart: float) -> Groups:
    """Split groups wherever a value is more than `apart` times the next smaller value of its group."""
    order = np.lexsort((values, groups))
    begins = (np.diff(groups[order]) != 0) | (np.diff(np.log(values[order])) > math.log(apart))
    result = np.empty(len(values), np.int64)
    result[order] = np.concatenate([[0], np.cumsum(begins)])
    return result


class KernelMeans:
    """Means of metrics by group, weighted by the time of the launches that have them; NaN where none has.

    Impossible values are left out; `impossible` has the largest one of each group (0 for none), by metric.
    """

    def __init__(self, launches: pa.Table, groups: Groups) -> None:
        self.table, self.groups, self.count = launches, groups, int(groups.max()) + 1
        self.metrics = MetricsInAnyForm(launches)
        self.launches = tables.launch_counts(launches)
        self.times = tables.floats(launches, "duration_ns") * self.launches
        self.impossible: dict[str, Floats] = {}

    def of(self, metric: str) -> Floats:
        """The means of a metric, in any form that the report has it, by group."""
        if not self.metrics.behind(metric):
            return tables.unknown(self.count)
        values = self.metrics.floats(metric)
        with np.errstate(invalid="ignore"):
            is_too_large = values > largest_of(metric)
        if is_too_large.any():
            found = self.impossible.setdefault(metric, np.zeros(self.count))
            np.maximum.at(found, self.groups[is_too_large], values[is_too_large])
            values = np.where(is_too_large, np.nan, values)
        return self.mean(values)

    def column(self, name: str) -> Floats:
        """The means of a column of the contract, by group."""
        return self.mean(tables.floats(self.table, name))

    def mean(self, values: Floats) -> Floats:
        """The means of values per launch, by group, weighted by time."""
        known = ~np.isnan(values)
        if not known.any():
            return tables.unknown(self.count)
        weights = np.where(known, self.times, 0.0)
        sums = self.total(np.where(known, values, 0.0) * weights)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(sums / self.total(weights), np.float64)

    def total(self, values: Floats) -> Floats:
        """The sums of values per launch, by group."""
        return np.bincount(self.groups, values, self.count).astype(np.float64, copy=False)
