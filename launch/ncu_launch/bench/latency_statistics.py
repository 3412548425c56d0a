"""Statistics of latency samples: mean with confidence interval, percentiles, and when to stop sampling.

Consecutive samples are correlated, because clocks, caches and other programs change slowly. So the interval of the mean
is computed from the means of up to 20 blocks of consecutive samples (batch means: Conway, Management Science 10, 1963,
p. 47). It is close to the usual interval for independent samples, and wider for correlated ones.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

BLOCKS = 20
LEAST_FOR_P95, LEAST_FOR_P99 = 20, 100
"""Fewest samples for each percentile: with fewer, it would be close to the maximum."""

_STUDENT_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093,
)  # fmt: skip
"""The 97.5 % quantile of Student's t for 1 to 19 degrees of freedom (Abramowitz and Stegun, table 26.10)."""


@dataclass(frozen=True)
class Latency:
    """Statistics of samples, in the unit of the samples. `low` and `high` bound the 95 % interval of the mean.

    None for too few samples: interval and deviation need 2, p95 needs 20, p99 needs 100.
    """

    mean: float
    median: float
    p95: float | None
    p99: float | None
    deviation: float | None
    low: float | None
    high: float | None

    @property
    def columns(self) -> dict[str, float | None]:
        """The columns of a point's row; the samples must be times in ns."""
        return {
            "latency_mean_ns": self.mean, "latency_median_ns": self.median, "latency_p95_ns": self.p95,
            "latency_p99_ns": self.p99, "latency_sd_ns": self.deviation, "latency_low_ns": self.low,
            "latency_high_ns": self.high,
        }  # fmt: skip


def summed_up(samples: Sequence[float]) -> Latency:
    """Statistics of one or more samples in chronological order; percentiles are interpolated (Hyndman and Fan 7)."""
    mean, reach = statistics.fmean(samples), half_width(samples)
    return Latency(
        mean=mean,
        median=statistics.median(samples),
        p95=_percentile(samples, 95) if len(samples) >= LEAST_FOR_P95 else None,
        p99=_percentile(samples, 99) if len(samples) >= LEAST_FOR_P99 else None,
        deviation=_deviation(samples, mean) if len(samples) > 1 else None,
        low=mean - reach if reach is not None else None,
        high=mean + reach if reach is not None else None,
    )


def half_width(samples: Sequence[float]) -> float | None:
    """Half the width of the 95 % interval of the mean, in the unit of the samples; None for fewer than two samples."""
    if len(samples) < 2:
        return None
    count = min(BLOCKS, len(samples))
    ends = [len(samples) * block // count for block in range(count + 1)]
    means = [statistics.fmean(samples[start:end]) for start, end in pairwise(ends)]
    return _STUDENT_975[count - 2] * _deviation(means, statistics.fmean(means)) / math.sqrt(count)


def _deviation(values: Sequence[float], mean: float) -> float:
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _percentile(samples: Sequence[float], percent: int) -> float:
    return statistics.quantiles(samples, n=100, method="inclusive")[percent - 1]


@dataclass(frozen=True)
class Effort:
    """How long to measure one point.

    Timing ends when half the 95 % interval of the mean is at most `precision` times the mean, after at least `least`
    samples and `least_s` seconds; at the latest after `most` samples or `max_s` seconds. Warm-up takes at least
    `warmup` iterations and `warm_s` seconds, but ends after two iterations once half of `max_s` is over. With `power`,
    a GPU's power is sampled while iterations repeat after timing.
    """

    precision: float = 0.01
    least: int = 100
    least_s: float = 0.5
    max_s: float = 10.0
    warmup: int = 10
    warm_s: float = 0.2
    most: int = 100_000
    power: bool = False

    def warm(self, iterations: int, seconds: float) -> bool:
        """True if a warm-up of this many iterations and seconds was long enough."""
        if iterations >= 2 and seconds >= self.max_s / 2:
            return True
        return iterations >= self.warmup and seconds >= min(self.warm_s, self.max_s)

    def tight(self, samples: Sequence[float]) -> bool:
        """True if the interval of the mean is as narrow as requested."""
        reach = half_width(samples)
        return reach is not None and reach <= self.precision * statistics.fmean(samples)
