"""GPU activity sampled at a steady rate, and its means over the times of kernels and ranges.

A sample is a mean over its period and the whole GPU, so it covers every kernel that ran then. It holds from its
timestamp to the next sample's, as NVIDIA's recipe gpu_metric_util_map reads it (Nsight Systems 2023.3) and as PyTorch's
profiler writes it (a start without an end). The distance to the next sample is therefore its length.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from ncu_launch.files.toml_tables import table_beside

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

LEAST_PERIODS = 5
"""Fewest sampling periods for a mean: the samples at both ends include work before and after the interval.

For an interval of n periods, these two can move the mean by up to 1 / 2n of the difference: here by a tenth.
"""
LEAST_COVERED = 0.9
"""Fraction of an interval that samples must cover for a mean."""
LONGEST_PERIOD = 1.5
"""In median periods; if the next sample comes later, samples in between were lost."""


@dataclass(frozen=True)
class Means:
    """Means over intervals: values by metric (float64, one per interval; NaN: none), and the samples in each.

    `samples` (int64, one per interval) is 0 where an interval is too short or not covered.
    """

    values: dict[str, Floats]
    samples: Integers


@dataclass(frozen=True)
class GpuSamples:
    """The samples of one GPU: `times` in ns, ascending, and `values` by metric (float64; NaN if unknown).

    A metric is a column of `sampled_columns` in % of peak, or has the tool's own name and unit.
    """

    times: Integers
    values: Mapping[str, Floats]

    def __len__(self) -> int:
        return len(self.times)

    @cached_property
    def period_ns(self) -> float:
        """The median time between samples; NaN for fewer than two."""
        return float(np.median(np.diff(self.times))) if len(self.times) > 1 else float("nan")

    @cached_property
    def ends(self) -> Integers:
        """The time in ns until which each sample holds: the next sample's start, or earlier before lost samples."""
        if len(self.times) < 2:
            return self.times.copy()
        period = round(self.period_ns)
        steps = np.append(np.diff(self.times), period)
        return self.times + np.where(steps > LONGEST_PERIOD * self.period_ns, period, steps)

    @property
    def covered_ns(self) -> float:
        """Total time covered by samples."""
        return float((self.ends - self.times).sum())

    @property
    def lost_ns(self) -> float:
        """Time between the first and the last sample that no sample covers."""
        return float(self.ends[-1] - self.times[0]) - self.covered_ns if len(self.times) else 0.0

    def only(self, metrics: Container[str]) -> GpuSamples:
        """The same samples, with only the given metrics."""
        return GpuSamples(self.times, {name: values for name, values in self.values.items() if name in metrics})

    def amounts(self, metric: str, start: Integers, end: Integers) -> tuple[Floats, Floats]:
        """A metric integrated from `start` to `end` (ns): the sum of value x ns, and the ns with known values."""
        if not len(start):
            return np.zeros(0), np.zeros(0)
        first = max(int(np.searchsorted(self.times, start.min(), "right")) - 1, 0)
        near = slice(first, max(int(np.searchsorted(self.times, end.max())), first + 1))
        values = self.values[metric][near]
        known = ~np.isnan(values)
        amounts = np.where(known, values, 0.0), known.astype(np.float64)
        amount, covered = (self._integral(near, one) for one in amounts)
        return amount.between(start, end), covered.between(start, end)

    def means(self, start: Integers, end: Integers) -> Means:
        """The mean of each metric over intervals from `start` to `end` (ns), weighted by each sample's overlap."""
        lasts = (end - start).astype(np.float64)
        long_enough = lasts >= LEAST_PERIODS * self.period_ns  # false if the period is unknown
        values = {}
        has_any = np.zeros(len(start), bool)
        for metric in self.values:
            amount, covered = self.amounts(metric, start, end)
            has = long_enough & (covered >= LEAST_COVERED * lasts)
            values[metric] = np.divide(amount, covered, out=np.full(len(start), np.nan), where=has)
            has_any |= has
        begin_in = np.searchsorted(self.times, end) - np.searchsorted(self.times, start)
        return Means(values, np.where(has_any, begin_in, 0).astype(np.int64))

    def _integral(self, near: slice, values: Floats) -> _Integral:
        times, ends = self.times[near], self.ends[near]
        return _Integral(times, ends, values, np.concatenate([[0.0], np.cumsum(values * (ends - times))]))


@dataclass(frozen=True)
class _Integral:
    """The integral of a step function over time, from its first sample on."""

    times: Integers
    ends: Integers
    values: Floats
    sums: Floats

    def between(self, start: Integers, end: Integers) -> Floats:
        return self._at(end) - self._at(start)

    def _at(self, moments: Integers) -> Floats:
        place = np.searchsorted(self.times, moments, side="right") - 1
        inside = np.maximum(place, 0)
        within = np.minimum(moments, self.ends[inside]) - self.times[inside]
        return np.where(place >= 0, self.sums[inside] + self.values[inside] * within, 0.0)


ENVIRONMENT = {"power_w": "W", "temperature_c": "degree Celsius", "sm_clock_hz": "hz", "memory_clock_hz": "hz",
               "fan_pct": "%"}  # fmt: skip
"""Units of the values that the driver reports for a GPU."""


@dataclass(frozen=True)
class SampledActivity:
    """Samples by GPU number, and notes on samples that were left out.

    `environment`: the driver's power, temperature, clocks and fan speed, by names of `ENVIRONMENT`. `numbers`: GPU
    numbers by (process, device), where a process uses another number. `sampled_by`: the tool. `finer`: the tool's
    option for a higher sampling rate. `events`: the number of values in a trace, including ones left out.
    """

    gpus: Mapping[int, GpuSamples] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    numbers: Mapping[tuple[int, int], int] = field(default_factory=dict)
    sampled_by: str = ""
    finer: str = ""
    environment: Mapping[int, GpuSamples] = field(default_factory=dict)
    events: int = 0

    def number(self, process: int, device: int) -> int:
        """The number of the GPU that a process calls `device`."""
        return self.numbers.get((process, device), device)

    def of(self, process: int | None, device: int | None) -> GpuSamples | None:
        """The samples of the GPU that a process calls `device`; None where there are none."""
        return self.gpus.get(self._number(process, device))

    def series(self, process: int | None, device: int | None) -> Iterator[tuple[str, GpuSamples]]:
        """Names of a GPU's metrics, each with the samples that contain it."""
        for gpus in (self.gpus, self.environment):
            samples = gpus.get(self._number(process, device))
            yield from ((name, samples) for name in samples.values) if samples is not None else ()

    def _number(self, process: int | None, device: int | None) -> int:
        return self.number(-1 if process is None else process, -1 if device is None else device)


def sampled_columns() -> dict[str, dict[str, Any]]:
    """Columns of sampled metrics: the tools' names for each, and its meaning."""
    return table_beside(__file__, "sampled_columns")


_OF_PEAK = re.compile(r"\.avg\.pct_of_peak_sustained_elapsed$")
"""End of CUPTI's names of metrics that are a mean over the sample, in % of peak."""


def column_of_trace(name: str) -> str:
    """The column for a metric name or label of PyTorch's profiler; the name itself if there is none."""
    of_peak = _OF_PEAK.search(name)
    base = name[: of_peak.start()].rpartition(".")[2] if of_peak else None  # without the domain in front of the name
    for column, entry in sampled_columns().items():
        if name in entry.get("labels", ()) or base in entry.get("metrics", ()):
            return column
    return name


def title_of_sampled(name: str) -> str:
    """A sampled metric's name as shown to users."""
    if name in ENVIRONMENT:
        return name.rpartition("_")[0].replace("_", " ")
    return name.removeprefix("sampled_").removesuffix("_pct").replace("_", " ") if name in sampled_columns() else name


def unit_of_sampled(name: str) -> str:
    """The unit of a sampled metric, from its name; "" if the name does not state one."""
    if name in ENVIRONMENT:
        return ENVIRONMENT[name]
    return "%" if name in sampled_columns() or "pct" in name or name.endswith("(%)") else ""


def merged(start: Integers, end: Integers, gap_ns: float) -> tuple[Integers, Integers]:
    """The union of intervals from `start` to `end` (ns), sorted; intervals at most `gap_ns` apart are merged."""
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    begins = np.concatenate([[True], start[1:] - end[:-1] > gap_ns])
    last = np.append(np.flatnonzero(begins)[1:] - 1, len(start) - 1)
    return start[begins], end[last]


def time_within(of: tuple[Integers, Integers], start: Integers, end: Integers) -> Floats:
    """Overlap of each interval `start` to `end` with the intervals `of`, in ns; `of` is sorted and disjoint."""
    steps = _Integral(*of, np.ones(len(of[0])), np.concatenate([[0.0], np.cumsum(of[1] - of[0], dtype=np.float64)]))
    return steps.between(start, end) if len(of[0]) else np.zeros(len(start))


def rate_text(period_ns: float) -> str:
    """A sampling rate as text: 10 kHz, 200 Hz."""
    rate = 1e9 / period_ns
    return f"{rate / 1e3:.3g} kHz" if rate >= 1e3 else f"{rate:.3g} Hz"
