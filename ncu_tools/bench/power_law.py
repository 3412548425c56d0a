"""The exponent of latency ~ size^exponent with a 95 % interval that is valid if some sizes are noisier than others.

The fit is a weighted straight line through logarithms. The variance of each point is the variance of its own samples
plus one common to all points: how far latencies lie off any power law, which samples cannot show. The common variance
is the largest one that the residuals do not rule out (upper end of the Q-profile interval: Viechtbauer, Statistics in
Medicine 26, 2007, p. 37): with a smaller one, the most precise points would decide alone. The interval is Student's
with points - 2 degrees of freedom, scaled by the residuals (Knapp and Hartung, Statistics in Medicine 22, 2003, p.
2693), so only the ratios of the variances must be right. `benchmarks/scaling_coverage.py` counts how often the interval
covers the true exponent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from ncu_parsers.schema.tables import Floats

from ncu_tools.numbers.statistics import CONFIDENCE, student_quantile

LEAST_SIZES = 3
SHRINKAGE = 8.0
"""Weight, in degrees of freedom, of the trend of variances over sizes: variances of few samples shrink towards it."""

RULED_OUT = 1.2816
"""The 90 % quantile of the normal distribution: a variance is ruled out if 90 of 100 fits have larger residuals."""

HALVINGS = 60


class Spread(NamedTuple):
    """The uncertainty of a mean: its variance relative to the mean squared, and the variance's degrees of freedom."""

    variance: float
    freedom: float


@dataclass(frozen=True)
class PowerFit:
    """latency = factor x size^exponent, with the 95 % interval of the exponent and the share of variance explained.

    `weighted` is True if points are weighted by their measured spread; False if one of them has none.
    """

    exponent: float
    low: float
    high: float
    factor: float
    r_squared: float
    weighted: bool = False

    def at(self, size: float) -> float:
        """The fitted latency at a size."""
        return float(self.factor * size**self.exponent)


class _Line(NamedTuple):
    """A weighted line: its centre (x, y), slope, and the weighted sums of squares in x, in y, and of residuals."""

    x: float
    y: float
    slope: float
    across: float
    up: float
    left: float


def fitted(
    sizes: Sequence[float], latencies: Sequence[float], spreads: Sequence[Spread | None] = ()
) -> PowerFit | None:
    """Fit a line through the logarithms of points; None for fewer than three different sizes.

    `spreads` has one entry per point. If one is None or zero, or there are none, all points have the same weight: then
    the interval is that of an ordinary slope (Draper and Smith, Applied Regression Analysis, 1.4).
    """
    if len(set(sizes)) < LEAST_SIZES:
        return None
    x, y = np.log(np.asarray(sizes, np.float64)), np.log(np.asarray(latencies, np.float64))
    known = [spread for spread in spreads if spread is not None and spread.variance > 0 and spread.freedom > 0]
    weighted = len(known) == len(x)
    variances = np.ones(len(x))
    if weighted:
        variances = _smoothed(x, known)
        variances = variances + _scatter(x, y, variances)
    line = _line(x, y, 1 / variances)
    freedom = float(len(x) - 2)
    reach = student_quantile(CONFIDENCE, freedom) * math.sqrt(line.left / freedom / line.across)
    factor = math.exp(line.y - line.slope * line.x)
    explained = 1 - line.left / line.up if line.up > 0 else 1.0
    return PowerFit(line.slope, line.slope - reach, line.slope + reach, factor, explained, weighted)


def _line(x: Floats, y: Floats, weights: Floats) -> _Line:
    """The least-squares line through weighted points; every array has shape (points,)."""
    weights = weights / weights.sum()
    middle, height = float(weights @ x), float(weights @ y)
    across, up = x - middle, y - height
    spread = float(weights @ across**2)
    slope = float(weights @ (across * up)) / spread
    return _Line(middle, height, slope, spread, float(weights @ up**2), float(weights @ (up - slope * across) ** 2))


def _smoothed(x: Floats, spreads: Sequence[Spread]) -> Floats:
    """The variance of each point; variances of few samples shrink towards a straight trend of their logarithms over
    `x`.

    The logarithm of a sample variance is on average below that of the true variance, by ln(d/2) - digamma(d/2) for d
    degrees of freedom, here to the second term of the asymptotic series (Abramowitz and Stegun, 6.3.18).
    """
    freedom = np.array([spread.freedom for spread in spreads], np.float64)
    logs = np.log([spread.variance for spread in spreads]) + 1 / freedom + 1 / (3 * freedom**2)
    trend = _line(x, logs, freedom)
    expected = trend.y + trend.slope * (x - trend.x)
    found: Floats = np.exp((freedom * logs + SHRINKAGE * expected) / (freedom + SHRINKAGE))
    return found


def _scatter(x: Floats, y: Floats, variances: Floats) -> float:
    """The largest variance common to all points that their residuals do not rule out; 0 if they rule out any.

    At this variance the weighted sum of squared residuals is the 10 % quantile of chi-squared with points - 2 degrees
    of freedom (Wilson and Hilferty's approximation).
    """
    freedom = len(x) - 2
    part = 2 / (9 * freedom)
    least = freedom * (1 - part - RULED_OUT * math.sqrt(part)) ** 3

    def squares(common: float) -> float:
        weights = 1 / (variances + common)
        return _line(x, y, weights).left * float(weights.sum())

    if squares(0.0) <= least:
        return 0.0
    low, high = 0.0, float(((y - y.mean()) ** 2).sum()) / least
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if squares(middle) > least else (low, middle)
    return high
