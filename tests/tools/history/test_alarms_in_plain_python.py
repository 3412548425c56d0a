"""The search for changes of noisy values, against the same search written for one series without running sums."""

from __future__ import annotations

import math
from statistics import fmean, median

import numpy as np
import pytest
from ncu_parsers.schema.tables import Floats

from ncu_tools.history.change_points import differ, first_alarms, limit_for, normal_deviates

LENGTHS = (2, 3, 4, 5, 6, 8, 11, 15, 20)
OF_OTHERS, FLOOR = 0.012, 0.004


class PlainSeries:
    """The values of one series since its last change, clipped; None where a run lacks it."""

    def __init__(self, watched: float) -> None:
        self.watched = watched
        self.begun, self.of_others = 0, OF_OTHERS
        self.values: list[float | None] = []
        self.wild: list[float] = []
        """Values in a row on one side of the range to which the first of them was clipped."""

    def known(self, low: int = 0, high: int | None = None) -> list[float]:
        return [one for one in self.values[low:high] if one is not None]

    def spread(self) -> float:
        """The deviation of a value: while there are fewer than six, that of others weighs as much as four."""
        return self._spread([self.known()], len(self.known()) < 6)

    def _spread(self, parts: list[list[float]], few: bool) -> float:
        around = sum((one - fmean(part)) ** 2 for part in parts for one in part)
        weight = 4 if few else 0
        freedom = weight + sum(map(len, parts)) - len(parts)
        return max(math.sqrt((weight * self.of_others**2 + around) / freedom), FLOOR)

    def add(self, value: float) -> None:
        """Add a value, at most 3.5 spreads from the level; 5 of few."""
        if known := self.known():
            reach = (5 if len(known) < 6 else 3.5) * self.spread()
            self._count_wild(value, fmean(known), reach)
            value = min(max(value, fmean(known) - reach), fmean(known) + reach)
        self.values.append(None if math.isnan(value) else value)

    def _count_wild(self, value: float, level: float, reach: float) -> None:
        if not self.wild:
            self.clipped_from = level - reach, level + reach
        low, high = self.clipped_from
        below, above = (
            value < low and max(self.wild, default=low) <= low,
            value > high and min(self.wild, default=high) >= high,
        )
        if below or above:
            self.wild.append(value)
        elif not math.isnan(value):
            self.wild = []

    def deviate(self, length: int) -> float:
        """Student's t of the last runs against those before, as a normal deviate; 0 of none."""
        before, after = self.known(0, -length), self.known(-length)
        if not before or not after:
            return 0.0
        few = len(before) + len(after) - 2 < 6
        spread = self._spread([before, after], few)
        t = (fmean(after) - fmean(before)) / (spread * math.sqrt(1 / len(before) + 1 / len(after)))
        freedom = len(before) + len(after) - 2 + (4 if few else 0)
        return float(normal_deviates(np.array([t]), np.array([freedom]))[0])

    def limit(self, length: int) -> float:
        """Lower in the first 40 runs; higher by 0.8 at lengths that no step of 1.2 to 1.95 spreads needs."""
        limit = limit_for(self.watched)
        likely = (limit / 1.95) ** 2 < length < (limit / 1.2) ** 2
        return limit + (0 if likely else 0.8) - (0.25 if len(self.values) <= 40 else 0)

    def begin(self, logs: list[float]) -> int | None:
        """The place of the change that is furthest beyond its limit and that permutations bear out."""
        beyond = {length: abs(self.deviate(length)) - self.limit(length) for length in LENGTHS}
        for length in sorted((one for one in LENGTHS if beyond[one] > 0), key=lambda one: -beyond[one]):
            parts = np.array(logs[:-length]), np.array(logs[-length:])
            if differ(*parts, self.limit(length), self.watched):
                return len(logs) - length
        return self.begin_of_wild(logs)

    def begin_of_wild(self, logs: list[float]) -> int | None:
        """Where wild values on one side begin, if all before are apart: a fourth of as many series asks for one more."""
        if len(self.wild) < 3 + math.log(self.watched, 4):
            return None
        begin = logs.index(self.wild[0])
        before = [one for one in logs[:begin] if not math.isnan(one)]
        apart = max(before) < min(self.wild) or min(before) > max(self.wild)
        return begin if apart and len(before) >= 3 + math.log10(self.watched) else None

    def restart(self, begin: int, logs: list[float]) -> None:
        """Begin anew with these values, clipped around their median by the spread so far."""
        self.of_others, self.begun, self.wild = self.spread(), begin, []
        reach, level = 3.5 * self.of_others, median(one for one in logs if not math.isnan(one))
        clipped = [min(max(one, level - reach), level + reach) for one in logs]
        self.values = [None if math.isnan(raw) else one for raw, one in zip(logs, clipped, strict=True)]


def alarms_of(logs: list[float], watched: float) -> list[tuple[int, int]]:
    """(begin, found) of each alarm of one series."""
    series, found = PlainSeries(watched), []
    for run, value in enumerate(logs):
        series.add(value)
        begin = series.begin(logs[series.begun : run + 1])
        if begin is not None:
            begin += series.begun
            found.append((begin, run))
            series.restart(begin, logs[begin : run + 1])
    return found


def of_each_kind(runs: int, count: int, seed: int) -> Floats:
    """Logarithms of series with steps, a drift, wild runs and gaps, around levels far from 0."""
    random = np.random.default_rng(seed)
    logs: Floats = 12 + 0.01 * random.standard_normal((runs, count)) * random.choice([0.1, 1.0, 1.5], count)
    for series in range(count):
        for at in random.integers(3, runs, 2).tolist():
            logs[at:, series] += random.choice([-1, 1]) * random.choice([random.uniform(0.015, 0.05), 0.3])
            logs[at : at + 2, series] += random.choice([-0.2, 0, 0, 0.2], min(2, runs - at))
        if series % 4 == 0:
            logs[:, series] += 0.002 * np.maximum(np.arange(runs) - 25, 0)
    wild = random.random(logs.shape) < random.choice([0.0, 0.02, 0.1], count)
    logs += np.where(wild, random.choice([-0.2, 0.2], logs.shape), 0)
    logs[random.random(logs.shape) < 0.05] = np.nan
    logs[:3, 0], logs[:, 1] = np.nan, np.nan
    logs[1, ::7] += 0.2
    return logs


@pytest.mark.parametrize(("runs", "count", "watched"), [(70, 40, 3.0), (16, 150, 1.0), (16, 150, 11.0)])
def test_alarms_of_many_series_at_once_equal_the_alarms_of_each_series_alone(
    runs: int, count: int, watched: float
) -> None:
    logs = of_each_kind(runs, count, runs)
    each = np.ones(count)
    together = first_alarms(logs, OF_OTHERS * each, FLOOR * each, watched * each)
    alone = [(series, *alarm) for series in range(count) for alarm in alarms_of(logs[:, series].tolist(), watched)]
    assert len(alone) > count / 3
    assert sorted(together) == alone
