"""Launches as a density: how many lie in each cell of a fine logarithmic grid, and where the means of kernels lie.

For more launches than a plot can show as points. Nothing here is done launch by launch in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from ncu_parsers import arrays, tables
from ncu_parsers.tables import Floats

from ncu_tools.hotspots import Hotspot
from ncu_tools.levels import TRAFFIC, bytes_of
from ncu_tools.scene import DRAM, Density
from ncu_tools.work import FLOAT_UNITS

DENSE_FROM = 10_000
"""From this number of launches on they are drawn as a density."""

COLUMNS, ROWS = 180, 120

ENOUGH_FOR_CEILINGS = 20_000

NEEDED = ("kernel_name", "duration_ns", "flops", "dram_bytes", "failed", "invocations", "source")


@dataclass(frozen=True)
class _Launches:
    """FLOPs, DRAM bytes and seconds of the launches that did not fail, NaN for others; `weight` is launches per row."""

    flops: Floats
    dram: Floats
    seconds: Floats
    weight: Floats


def weights(table: pa.Table) -> Floats:
    """How many launches each row stands for: none where it failed, as many as it is the average of."""
    invocations = tables.floats(table, "invocations")
    weight = np.where(np.isnan(invocations), 1.0, invocations)
    if "failed" in table.column_names and len(table):
        weight[np.concatenate([arrays.bits_of(chunk) for chunk in table.column("failed").chunks])] = 0.0
    return weight


def _launches(table: pa.Table) -> _Launches:
    weight = weights(table)
    flops, dram = tables.floats(table, "flops"), tables.floats(table, "dram_bytes")
    return _Launches(flops, dram, tables.floats(table, "duration_ns") / 1e9, weight)


def density_of(
    runs: Iterable[pa.Table], level: str = DRAM, definition: str = TRAFFIC
) -> tuple[Density | None, int]:  # fmt: skip
    """The density of the launches of all runs by the bytes of a memory level, and how many have no place in it.

    Such have something zero or unknown. None where no launch has a place. `definition` is one of `levels.DEFINITIONS`.
    """
    places = [_place(_launches(table), bytes_of(table, [level], definition)[level]) for table in runs]
    intensity, rate, weight = (np.concatenate(parts) for parts in zip(*places, strict=True))
    drawn = np.isfinite(intensity) & np.isfinite(rate) & (weight > 0)
    missing = int(weight[~drawn].sum())
    if not drawn.any():
        return None, missing
    return _counted(intensity[drawn], rate[drawn], weight[drawn]), missing


def _place(launches: _Launches, moved: Floats) -> tuple[Floats, Floats, Floats]:
    """Decimal logarithms of FLOP/B and FLOP/s, not finite where there is no place; launches per row."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return (
            np.log10(launches.flops / moved),
            np.log10(launches.flops / launches.seconds),
            launches.weight,
        )


def _counted(intensity: Floats, rate: Floats, weight: Floats) -> Density:
    x, columns = _cells(intensity, COLUMNS)
    y, rows = _cells(rate, ROWS)
    counts = np.bincount(columns * ROWS + rows, weight, COLUMNS * ROWS)
    cells = tuple((cell // ROWS, cell % ROWS, round(counts[cell])) for cell in np.flatnonzero(counts).tolist())
    return Density(x, y, COLUMNS, ROWS, cells)


def _cells(values: Floats, count: int) -> tuple[tuple[float, float], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """The ends of an even grid over all values, at least a tenth of a decade wide, and the cell of each value."""
    low, high = float(values.min()), float(values.max())
    margin = max(0.0, 0.1 - (high - low)) / 2
    low, high = low - margin, high + margin
    cells = ((values - low) * (count / (high - low))).astype(np.int64)
    return (low, high), np.minimum(cells, count - 1)


def kernels_in_brief(table: pa.Table) -> list[Hotspot]:
    """The kernels with their sums and rates, the hottest first; what bounds them is left out.

    A rate is over the launches that have both numbers, as in `ncu_tools.hotspots`.
    """
    launches = _launches(table)
    codes, names = tables.codes(table, "kernel_name")
    groups, alive = len(names), launches.weight > 0

    def total(values: Floats, *needed: Floats) -> Floats:
        known = alive & ~np.isnan(np.sum([values, *needed], axis=0))
        sums = np.bincount(codes[known], (values * launches.weight)[known], groups)
        return np.where(np.bincount(codes[known], minlength=groups) > 0, sums, np.nan)

    def whole(values: Floats) -> Floats:
        """Totals, NaN where one launch has no value."""
        missing = np.bincount(codes[alive & np.isnan(values)], minlength=groups)
        return np.where(missing == 0, total(values), np.nan)

    flops, dram, seconds = launches.flops, launches.dram, launches.seconds
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = total(flops, seconds) / total(seconds, flops)
        bandwidth = total(dram, seconds) / total(seconds, dram)
        intensity = total(flops, dram) / total(dram, flops)
    count = np.bincount(codes, launches.weight, groups)
    time = whole(seconds) * 1e9
    columns = (time, whole(flops), rate, whole(dram), bandwidth, intensity)
    rows = [
        _brief(names[group] or "?", int(count[group]), [_known(column[group]) for column in columns])
        for group in np.flatnonzero(count).tolist()
    ]
    return _with_shares(sorted(rows, key=lambda row: (-(row.time_total_ns or -1.0), row.kernel)))


def thinned(table: pa.Table, of: int | None = None) -> pa.Table:
    """Launches evenly taken from a table, with the first of every device: enough for the medians that ceilings are.

    `of` is how many launches there are in all, where the table is a part of them.
    """
    if not len(table):
        return table
    codes = [tables.codes(table, name)[0] for name in ("device_name", "compute_capability")]
    first = [np.unique(codes[0].astype(np.int64) * (codes[1].max() + 1) + codes[1], return_index=True)[1]]
    step = max(1, (of or len(table)) // ENOUGH_FOR_CEILINGS)
    return table.take(arrays.whole(np.unique(np.concatenate([*first, np.arange(0, len(table), step)]))))


def units_at_work(table: pa.Table) -> set[str]:
    """The compute units that did at least a hundredth of all counted FLOPs."""
    sums = {unit: float(np.nansum(tables.floats(table, column))) for unit, column in FLOAT_UNITS.items()
            if column in table.column_names}  # fmt: skip
    return {unit for unit, amount in sums.items() if amount > 0.01 * sum(sums.values())}


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _brief(kernel: str, launches: int, numbers: Sequence[float | None]) -> Hotspot:
    time, flops, rate, dram, bandwidth, intensity = numbers
    return Hotspot(
        kernel=kernel,
        launches=launches,
        time_total_ns=time,
        time_mean_ns=None if time is None else time / launches,
        time_min_ns=None,
        time_max_ns=None,
        time_std_ns=None,
        time_share=None,
        time_cumulative=None,
        flops=flops,
        flops_per_s=rate,
        dram_bytes=dram,
        dram_bytes_per_s=bandwidth,
        arithmetic_intensity=intensity,
        bound=None,
        bound_fraction=None,
    )


def _with_shares(rows: list[Hotspot]) -> list[Hotspot]:
    whole = sum(row.time_total_ns or 0.0 for row in rows)
    return [
        replace(row, time_share=row.time_total_ns / whole if row.time_total_ns is not None and whole else None)
        for row in rows
    ]
