"""Counters over the time of a kernel: as sparklines, with the durations of ramp-up and tail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from ncu_parsers.ncu_rep.metric_units import unit_of
from ncu_parsers.schema.tables import Floats

if TYPE_CHECKING:
    from ncu_parsers.ncu_rep.instructions.time_series import TimeSeries

BARS = "▁▂▃▄▅▆▇█"
SPARKLINE_WIDTH = 40
PLATEAU_PERCENTILE = 90
NEAR_PLATEAU = 0.9
"""A counter is at its plateau above 90 % of its 90th percentile."""
TITLES = {
    "sm__cycles_active.avg": "SM active cycles",
    "sm__ctas_launched.sum": "blocks launched",
    "sm__inst_executed_realtime.avg.per_cycle_active": "instructions per cycle",
    "sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed": "issue slots",
    "sm__inst_executed_pipe_alu_realtime.avg.pct_of_peak_sustained_elapsed": "ALU pipe",
    "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed": "tensor pipe",
    "dramc__throughput.avg.pct_of_peak_sustained_elapsed": "DRAM",
    "dramc__read_throughput.avg.pct_of_peak_sustained_elapsed": "DRAM read",
    "dramc__write_throughput.avg.pct_of_peak_sustained_elapsed": "DRAM write",
    "l1tex__t_sector_hit_rate.pct": "L1 hit rate",
    "l1tex__data_pipe_lsu_wavefronts.avg": "L1 data pipe wavefronts",
}
"""Titles of counters of the section PmSampling; others are shown under their names."""


@dataclass(frozen=True)
class CounterOverTime:
    """One counter of one launch. Times in ns from the kernel's start, values in the counter's unit, None if unknown.

    `ramp_up_ns` is the time until it first comes near its plateau, `tail_ns` the time it stays below that at the end.
    """

    metric: str
    title: str
    unit: str
    mean: float | None
    peak: float | None
    ramp_up_ns: float | None
    tail_ns: float | None
    duration_ns: float
    samples: int
    sparkline: str
    times_ns: list[float]
    values: list[float | None]


def counter_over_time(series: TimeSeries, width: int = SPARKLINE_WIDTH) -> CounterOverTime:
    """A counter's mean, peak, ramp-up and tail, and its course as a text of `width` characters."""
    known = series.values[~np.isnan(series.values)]
    ramp_up, tail = _edges(series)
    return CounterOverTime(
        metric=series.metric,
        title=TITLES.get(series.metric, series.metric),
        unit=unit_of(series.metric),
        mean=float(known.mean()) if len(known) else None,
        peak=float(known.max()) if len(known) else None,
        ramp_up_ns=ramp_up,
        tail_ns=tail,
        duration_ns=series.duration_ns,
        samples=len(known),
        sparkline=sparkline(series.times_ns, series.values, series.duration_ns, width),
        times_ns=series.times_ns.tolist(),
        values=[None if np.isnan(value) else value for value in series.values.tolist()],
    )


def _edges(series: TimeSeries) -> tuple[float | None, float | None]:
    """When a counter first and last is near its plateau: ns from the start, and ns before the end."""
    known = ~np.isnan(series.values)
    if not known.any():
        return None, None
    plateau = float(np.percentile(series.values[known], PLATEAU_PERCENTILE))
    near = series.times_ns[known & (series.values >= NEAR_PLATEAU * plateau)]
    if plateau <= 0 or not len(near):
        return None, None
    return float(near[0]), series.duration_ns - float(near[-1])


def sparkline(times_ns: Floats, values: Floats, duration_ns: float, width: int) -> str:
    """Values as bars from 0 to their maximum: means of `width` equal time intervals, a space where one has none."""
    known = ~np.isnan(values)
    top = float(values[known].max(initial=0.0))
    if not duration_ns or top <= 0:
        return "▁" * width if known.any() else ""
    means = means_over_time(times_ns, values, duration_ns, width)
    levels = np.ceil(np.nan_to_num(means) / top * len(BARS)).astype(int).clip(1, len(BARS)) - 1
    return "".join(BARS[level] if count else " " for level, count in zip(levels, ~np.isnan(means), strict=True))


def means_over_time(times_ns: Floats, values: Floats, duration_ns: float, width: int) -> Floats:
    """Means of `width` equal intervals of a positive duration, float64; NaN where an interval has no value."""
    known = ~np.isnan(values)
    places = np.minimum((times_ns[known] / duration_ns * width).astype(int), width - 1)
    counts = np.bincount(places, minlength=width)
    with np.errstate(invalid="ignore"):
        return np.bincount(places, values[known], minlength=width) / counts
