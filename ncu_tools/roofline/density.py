"""Launches as a density: the number of launches in each cell of a fine logarithmic grid.

For more launches than a plot can show as points, and more than fit in memory. No loop here runs over single launches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.tables import LEAST_BYTES, Floats

from ncu_tools.ceilings.levels import COLUMNS as COLUMNS_OF_LEVELS
from ncu_tools.ceilings.levels import bytes_of, needed_metrics
from ncu_tools.ceilings.machine_files import DRAM, TRAFFIC
from ncu_tools.ceilings.memory_clock import longest_launches
from ncu_tools.numbers.merged_by_field import MergedByField
from ncu_tools.roofline.scene import Density
from ncu_tools.runs.partition_sums import AnySums, in_batches, sums_of_run
from ncu_tools.runs.run import Run

DENSE_FROM = 10_000
"""Number of launches above which they are drawn as a density."""

COLUMNS, ROWS = 180, 120

ENOUGH_FOR_CEILINGS = 20_000

NEEDED = ("duration_ns", "flops", "dram_bytes", LEAST_BYTES, "failed", "invocations")


def weights(table: pa.Table) -> Floats:
    """The number of launches of each row (float64): 0 if it failed, several if it is an average."""
    weight = tables.launch_counts(table)
    if "failed" in table.column_names and len(table):
        weight[np.concatenate([arrays.bits_of(chunk) for chunk in table.column("failed").chunks])] = 0.0
    return weight


@dataclass
class Extent:
    """The range of launches at a memory level, in decimal logarithms of FLOP/B and FLOP/s.

    `drawn` counts launches with a position, `missing` those with a zero or unknown value.
    """

    x: tuple[float, float] = (np.inf, -np.inf)
    y: tuple[float, float] = (np.inf, -np.inf)
    drawn: int = 0
    missing: int = 0

    def merge(self, other: Extent) -> None:
        """Merge the extent of other launches."""
        self.x, self.y = (
            (min(one[0], two[0]), max(one[1], two[1])) for one, two in ((self.x, other.x), (self.y, other.y))
        )
        self.drawn, self.missing = self.drawn + other.drawn, self.missing + other.missing


@dataclass
class Extents(MergedByField):
    """The extent of launches at several memory levels, added in batches of launches."""

    levels: tuple[str, ...]
    definition: str
    found: dict[str, Extent] = field(default_factory=dict)
    reports: dict[str, None] = field(default_factory=dict)

    def add(self, table: pa.Table) -> None:
        """Add launches."""
        for level in self.levels:
            x, y, weight, missing = _places(table, level, self.definition)
            ends = [(float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))) for values in (x, y)]
            self.found.setdefault(level, Extent()).merge(Extent(ends[0], ends[1], int(weight.sum()), missing))


@dataclass
class Counts(MergedByField):
    """The number of launches in each cell of a grid over an extent, added in batches of launches."""

    level: str
    definition: str
    x: tuple[float, float]
    y: tuple[float, float]
    cells: Floats = field(default_factory=lambda: np.zeros(COLUMNS * ROWS))
    reports: dict[str, None] = field(default_factory=dict)

    def add(self, table: pa.Table) -> None:
        """Add launches, which all lie within the extent."""
        x, y, weight, _ = _places(table, self.level, self.definition)
        places = _cells(x, self.x, COLUMNS) * ROWS + _cells(y, self.y, ROWS)
        self.cells += np.bincount(places, weight, COLUMNS * ROWS)


class DenseLaunches:
    """The launches of a run for a density, read twice: for their extent, and into the grid that all runs share."""

    def __init__(self, run: Run, levels: Sequence[str], definition: str = TRAFFIC) -> None:
        """Read the extent of the launches. Raises `NcuBenchError` as `sums_of_run` does."""
        self._run, self._definition = run, definition
        self.extents = self._summed(partial(Extents, tuple(levels), definition)).found

    def counts(self, level: str, extent: Extent) -> Floats:
        """The number of launches in each cell of a grid over `extent`: float64 of shape (COLUMNS * ROWS,)."""
        return self._summed(partial(Counts, level, self._definition, *grid(extent))).cells

    def _summed(self, new: Callable[[], AnySums]) -> AnySums:
        columns = {*NEEDED, *COLUMNS_OF_LEVELS.values(), *needed_metrics(), "compute_capability"}
        return sums_of_run(self._run, new, in_batches(columns))


def density_of(runs: Sequence[DenseLaunches], level: str = DRAM) -> tuple[Density | None, int]:
    """The density of all runs' launches at a memory level, and the number of launches without a position.

    None if no launch has a position. Raises `NcuBenchError` as `DenseLaunches` does.
    """
    extent = Extent()
    for run in runs:
        extent.merge(run.extents.get(level, Extent()))
    if not extent.drawn:
        return None, extent.missing
    counts = sum((run.counts(level, extent) for run in runs), np.zeros(COLUMNS * ROWS))
    cells = tuple((cell // ROWS, cell % ROWS, round(counts[cell])) for cell in np.flatnonzero(counts).tolist())
    return Density(*grid(extent), COLUMNS, ROWS, cells), extent.missing


def _places(table: pa.Table, level: str, definition: str) -> tuple[Floats, Floats, Floats, int]:
    """Decimal logarithms of FLOP/B and FLOP/s of drawable rows, their numbers of launches, and the number missing."""
    flops, weight = tables.floats(table, "flops"), weights(table)
    moved = bytes_of(table, [level], definition)[level]
    with np.errstate(divide="ignore", invalid="ignore"):
        x, y = np.log10(flops / moved), np.log10(flops / (tables.floats(table, "duration_ns") / 1e9))
    drawn = np.isfinite(x) & np.isfinite(y) & (weight > 0)
    return x[drawn], y[drawn], weight[drawn], int(weight[~drawn].sum())


def grid(extent: Extent) -> tuple[tuple[float, float], tuple[float, float]]:
    """The ends of an even grid over an extent, at least a tenth of a decade wide."""
    return _widened(*extent.x), _widened(*extent.y)


def _widened(low: float, high: float) -> tuple[float, float]:
    margin = max(0.0, 0.1 - (high - low)) / 2
    return low - margin, high + margin


def _cells(values: Floats, ends: tuple[float, float], count: int) -> npt.NDArray[np.int64]:
    """The cell index of each value in an even grid; values outside, of a file that changed meanwhile, are clipped."""
    cells = ((values - ends[0]) * (count / (ends[1] - ends[0]))).astype(np.int64)
    return np.clip(cells, 0, count - 1)


def thinned(table: pa.Table, of: int | None = None) -> pa.Table:
    """Sample launches evenly, with the first of every device and the one that shows its memory clock.

    The sample suffices for ceilings, which are medians except for that clock. `of` is the number of all launches if the
    table is a part of them.
    """
    if not len(table):
        return table
    codes = [tables.codes(table, name)[0] for name in ("device_name", "compute_capability")]
    first = [np.unique(codes[0].astype(np.int64) * (codes[1].max() + 1) + codes[1], return_index=True)[1]]
    evenly = np.arange(0, len(table), max(1, (of or len(table)) // ENOUGH_FOR_CEILINGS))
    return arrays.take(table, arrays.whole(np.unique(np.concatenate([*first, longest_launches(table), evenly]))))
