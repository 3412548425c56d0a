"""Change points of series over runs: noisy values by two-sample tests at every split, exact counts by their steps.

The test is the changepoint model of Hawkins, Qiu and Kang (Journal of Quality Technology 35, 2003, p. 355): after each
run, the last 2, 3, ... runs are compared with all earlier ones since the last change by Student's t, and the largest t
decides. So a step is found after a few runs, and a slow drift once it has added up, since a run is never compared with
its predecessor alone. A single run decides nothing. Values are clipped to a few spreads around the level so far
(Winsorized, as Hawkins does for CUSUMs, Communications in Statistics 22, 1993, p. 2853), so that an outlier moves
neither level nor spread. Times are not normal, so a permutation test must confirm each finding at the same odds
(Pitman; counted as by Streitberg and Roehmel, Computational Statistics Quarterly 12, 1986, p. 23): among all choices of
as many runs, few deviate as much as the last ones. It is exact whatever the distribution. Values are logarithms, so
changes are relative. All series are tested at once, run by run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from ncu_parsers.schema.tables import Floats

Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

LIMIT, UNLIKELY, LIKELY_STEPS = 3.42, 0.8, (1.2, 1.95)
"""Normal deviates at which one series has changed, and the addition at lengths that steps of `LIKELY_STEPS` spreads do
not need: by simulation, about one false alarm in 1,000 runs of ten distributions (`python -m benchmarks.history
--simulated`)."""
EARLY, EARLIER = 40, 0.25
"""For this many runs after a change, the limit is lowered by `EARLIER`: the level is not known well enough yet to find
a step of two spreads soon."""
LENGTHS = np.array([2, 3, 4, 5, 6, 8, 11, 15, 20])
"""Numbers of last runs that are compared with those before. A single run decides nothing."""
FEWEST_AFTER, WINDOW = int(LENGTHS[0]), int(LENGTHS[-1])
WILD, WILD_OF_FEW = 3.5, 5.0
"""Spreads around the level at which a value is clipped; the second while a series has few runs, whose deviations would
otherwise never add up. One run clipped at 5 spreads is 3.5 deviates from any number of others: below that of two."""
FEWEST_APART = 3
"""Runs on both sides that suffice if the sides do not overlap, since few runs have few permutations. One more is needed
before the change per factor of ten in the number of series, and one more after it per factor of four: an occasional
outlier is unlikely to occur that often in a row in any of them."""
MOST_COMPARED, REACH, SCORES = 60, 5.0, 40
"""For the permutation test: most runs before a change, the clipping of values in median absolute deviations (3.4
spreads), and the number of steps to which they are rounded."""
FEW, FREEDOM_OF_OTHERS = 6, 4.0
"""With fewer runs, a series' spread is pooled with that of other series, which gets this many degrees of freedom
(moderated variances: Smyth, Statistical Applications in Genetics 3, 2004, article 3)."""
MARKED_LIMIT = 3.0
"""Limit in normal deviates at a run where something else is known to have changed: one test, not a search."""
OFTEN, LEAST_STEPS = 1 / 3, 4
"""A count that changes in more than this share of at least so many steps may be noisy."""
SMALL_SPAN, TRAVEL = 0.02, 2.5
"""Such a count is noisy if all values lie within this relative span, or go up and down: its steps add up to more than
`TRAVEL` times the span. Of random values with a spread of 5 % (simulated), 86 % of series of five runs, 33 % of eight,
11 % of ten and 0.1 % of fifteen stay below that, and are taken as exact."""
SMALLEST_SPREAD = 1e-9


@dataclass(frozen=True)
class Shift:
    """A series has another level from run `begin` on.

    `before` and `after` are medians of the runs on both sides; `spread` is the relative deviation of a run before, 0
    for exact counts. A `drift` goes from one level to the other between `begin` and `end`; otherwise both are the same
    run.
    """

    series: int
    begin: int
    end: int
    before: float
    after: float
    spread: float
    drift: bool = False


def limit_for(series: float) -> float:
    """The limit in normal deviates at which one of `series` series has changed (Bonferroni).

    With any number of series, the rate of false alarms of all together is that of a single one.
    """
    return -NormalDist().inv_cdf(NormalDist().cdf(-LIMIT) / series)


def _limits_for(watched: Floats) -> Floats:
    """The limit of each series at each of `LENGTHS`, shape (lengths, series); lower where `LIKELY_STEPS` reach it."""
    limit, (smallest, largest) = np.array([limit_for(series) for series in watched.tolist()]), LIKELY_STEPS
    lengths = LENGTHS[:, None]
    likely = ((limit / largest) ** 2 < lengths) & ((limit / smallest) ** 2 > lengths)
    return np.where(likely, limit, limit + UNLIKELY)


def normal_deviates(t: Floats, freedom: Floats) -> Floats:
    """Student's t as a normal deviate of the same probability, within 0.02 (Wallace, Biometrika 46, 1959, p. 124)."""
    return np.sign(t) * (8 * freedom + 1) / (8 * freedom + 3) * np.sqrt(freedom * np.log1p(t * t / freedom))


# ------------------------------------------------------------------------------------------------------------- counts


def are_noisy(values: Floats, tolerance: float) -> Mask:
    """Mask of the counts (columns of `values`, shape (runs, series)) that vary without a change.

    They change too often to be exact, and by little, or up and down: a program that is modified in every run also has
    other counts in each.
    """
    steps, changed = _steps(values, tolerance)
    often = (steps >= LEAST_STEPS) & (changed > OFTEN * steps)
    with np.errstate(all="ignore"):
        logs = np.where(values > 0, np.log(values), np.nan)
        span = np.fmax.reduce(logs, axis=0) - np.fmin.reduce(logs, axis=0)
        travel = np.nansum(np.abs(np.diff(last_known(logs), axis=0)), axis=0)
        noisy: Mask = often & ((span < SMALL_SPAN) | (travel > TRAVEL * span))
    return noisy


def _steps(values: Floats, tolerance: float) -> tuple[Places, Places]:
    filled = last_known(values)
    known = ~np.isnan(values[1:]) & ~np.isnan(filled[:-1])
    return known.sum(axis=0), _differ(filled[:-1], values[1:], tolerance).sum(axis=0)


def _differ(before: Floats, after: Floats, tolerance: float) -> Mask:
    with np.errstate(invalid="ignore"):
        return np.abs(after - before) > tolerance * np.maximum(np.abs(before), np.abs(after))


def last_known(values: Floats) -> Floats:
    """The last known value of each series up to each run; NaN before the first."""
    rows = np.where(np.isnan(values), 0, np.arange(len(values))[:, None])
    return np.take_along_axis(values, np.maximum.accumulate(rows, axis=0), axis=0)


def shifts_of_counts(values: Floats, tolerance: float) -> list[Shift]:
    """Every step of exact counts, shape (runs, series); a missing value is no step."""
    before = last_known(values)[:-1]
    places = np.argwhere(_differ(before, values[1:], tolerance))
    return [
        Shift(series, run + 1, run + 1, float(before[run, series]), float(values[run + 1, series]), 0.0)
        for run, series in places.tolist()
    ]


# ------------------------------------------------------------------------------------------------------- noisy values


class _Levels:
    """Running sums of the clipped logarithms of every series since its last change, after each of the last runs."""

    def __init__(self, of_others: Floats, floor: Floats) -> None:
        count = len(floor)
        self.of_others, self.floor = of_others.copy(), floor
        self.sums = np.zeros((3, count))
        """Number, sum and sum of squares of the values."""
        self.ring = np.zeros((3, WINDOW + 1, count))
        self.begun = np.zeros(count, np.int64)
        self.wild = np.zeros(count, np.int64)
        """Number of last values in a row that would have been clipped on one side, negative for the lower one."""
        self.clipped_from = np.zeros((2, count))
        """The level and the clipping distance at the first of them."""

    def levels(self) -> tuple[Floats, Floats, Floats]:
        """Per series the number of runs, their level, and the standard deviation of a run."""
        number, level, around = _moments(*self.sums)
        return number, level, self._pooled(number, number - 1, around)[0]

    def _pooled(self, number: Floats, freedom: Floats, around: Floats) -> tuple[Floats, Floats]:
        """The standard deviation from sums of squares, pooled with other series, and its degrees of freedom."""
        of_others = np.where(number < FEW, FREEDOM_OF_OTHERS, 0.0)
        variance = (of_others * self.of_others**2 + around) / (of_others + freedom)
        return np.maximum(np.sqrt(variance), self.floor), of_others + freedom

    def add(self, run: int, values: Floats) -> None:
        """Add a run's logarithms; NaN for series without a value."""
        number, level, spread = self.levels()
        known, there = ~np.isnan(values), number > 0
        reach = np.where(number < FEW, WILD_OF_FEW, WILD) * spread
        value = np.nan_to_num(values)
        self._count_wild(np.where(known & there, value, np.nan), np.stack([level, reach]))
        value = np.where(there, np.clip(value, level - reach, level + reach), value)
        self.sums += np.where(known, np.stack([np.ones_like(value), value, value * value]), 0.0)
        self.ring[:, (run + 1) % self.ring.shape[1]] = self.sums

    def _count_wild(self, value: Floats, now: Floats) -> None:
        self.clipped_from = np.where(self.wild == 0, now, self.clipped_from)
        off = value - self.clipped_from[0]
        side = np.where(np.abs(off) > self.clipped_from[1], np.sign(off), 0).astype(np.int64)
        wild = np.where((self.wild == 0) | (side == np.sign(self.wild)), self.wild + side, 0)
        self.wild = np.where(np.isnan(value), self.wild, wild)

    def restart(self, series: int, begin: int, values: Floats) -> None:
        """Restart a series at run `begin`, with its logarithms from there on."""
        spread = float(self.levels()[2][series])
        level = np.median(values[~np.isnan(values)])
        self.of_others[series], self.begun[series], self.wild[series] = spread, begin, 0
        clipped = np.clip(values, level - WILD * spread, level + WILD * spread)
        parts = np.stack([np.ones_like(clipped), clipped, clipped**2])
        sums = np.cumsum(np.where(np.isnan(clipped), 0.0, parts), axis=1)
        self.ring[:, :, series] = 0.0
        self.ring[:, (begin + 1 + np.arange(len(values))) % self.ring.shape[1], series] = sums
        self.sums[:, series] = sums[:, -1]

    def deviates(self, run: int) -> Floats:
        """Normal deviates between the last runs and those before, shape (lengths, series); 0 without such runs."""
        past = self.ring[:, (run + 1 - LENGTHS) % self.ring.shape[1]]
        with np.errstate(divide="ignore", invalid="ignore"):
            numbers, means, around = zip(*(_moments(*part) for part in (past, self.sums[:, None] - past)), strict=True)
            whole = numbers[0] + numbers[1]
            spread, freedom = self._pooled(whole - FEWEST_AFTER, whole - 2, around[0] + around[1])
            t = (means[1] - means[0]) / (spread * np.sqrt(1 / numbers[0] + 1 / numbers[1]))
            return np.nan_to_num(normal_deviates(t, freedom))


def _moments(number: Floats, total: Floats, squares: Floats) -> tuple[Floats, Floats, Floats]:
    with np.errstate(invalid="ignore"):
        mean = total / number
    return number, mean, np.maximum(squares - total * mean, 0.0)


def first_alarms(logs: Floats, of_others: Floats, floor: Floats, watched: Floats) -> list[tuple[int, int, int]]:
    """(series, begin, found) of each alarm, in the order in which added runs raise them; `logs` are (runs, series).

    Per series: `of_others` is the assumed spread while it has few runs, `floor` the smallest spread, `watched` the
    number of series for which its test is corrected.
    """
    levels, limits = _Levels(of_others, floor), _limits_for(watched)
    too_many = np.array([_fewest_apart(one)[1] for one in watched.tolist()])
    found = []
    for run, values in enumerate(logs):
        levels.add(run, values)
        limit = limits - np.where(run - levels.begun < EARLY, EARLIER, 0.0)
        beyond = np.abs(levels.deviates(run)) - limit
        for series in np.flatnonzero((beyond.max(axis=0) > 0) | (np.abs(levels.wild) >= too_many)).tolist():
            since = logs[levels.begun[series] : run + 1, series]
            begin = _begin(beyond[:, series], since, limit[:, series], float(watched[series]))
            if begin is None:
                begin = _begin_of_wild(since, abs(int(levels.wild[series])), float(watched[series]))
            if begin is not None:
                begin += int(levels.begun[series])
                found.append((series, begin, run))
                levels.restart(series, begin, logs[begin : run + 1, series])
    return found


def _begin(beyond: Floats, logs: Floats, limit: Floats, watched: float) -> int | None:
    """Index into a series' logarithms at which it changed: at the length furthest beyond its limit that permutations
    confirm; None if there is none."""
    for place in np.argsort(-beyond, kind="stable").tolist():
        begin = len(logs) - int(LENGTHS[place])
        if beyond[place] <= 0:
            return None
        if differ(logs[:begin], logs[begin:], float(limit[place]), watched):
            return begin
    return None


def _begin_of_wild(logs: Floats, last: int, watched: float) -> int | None:
    """Index at which the last `last` logarithms begin, all clipped on one side, if they overlap with no earlier one.

    Clipped values move the level little and the spread much, so a step of many spreads would exceed the limit late.
    """
    begin = int(np.flatnonzero(~np.isnan(logs))[-last])
    return begin if _are_apart(logs[:begin], logs[begin:], watched) else None


def _fewest_apart(watched: float) -> tuple[float, float]:
    """The fewest runs before and after a change that suffice if the sides do not overlap."""
    return FEWEST_APART + math.log(watched, 10), FEWEST_APART + math.log(watched, 4)


def runs_needed(series: int) -> int:
    """The fewest runs in which a change, however large, can be found by values alone if so many series are watched."""
    return sum(map(math.ceil, _fewest_apart(max(series, 1))))


def _are_apart(before: Floats, after: Floats, watched: float) -> bool:
    """True if there are enough runs on both sides of a change, and the sides do not overlap."""
    before, after = before[~np.isnan(before)], after[~np.isnan(after)]
    fewest = _fewest_apart(watched)
    if len(before) < fewest[0] or len(after) < fewest[1]:
        return False
    return bool(before.min() > after.max() or after.min() > before.max())


def differ(before: Floats, after: Floats, limit: float, watched: float = 1) -> bool:
    """True if the runs differ from those before by `limit` normal deviates in a permutation test, or do not overlap."""
    before, after = before[~np.isnan(before)][-MOST_COMPARED:], after[~np.isnan(after)]
    if _are_apart(before, after, watched):
        return True
    odds = NormalDist().cdf(-limit)
    return 1 / math.comb(len(before) + len(after), len(after)) <= odds and chance(before, after) <= odds


def chance(before: Floats, after: Floats) -> float:
    """P-value of a one-sided permutation test: the share of choices of as many runs whose mean deviates like `after`'s.

    Values are clipped around the common median and rounded to `SCORES` steps, which leaves the share exact.
    """
    every = np.concatenate([before, after])
    off = every - np.median(every)
    reach = REACH * float(np.median(np.abs(off)) or np.abs(off).mean())
    off = np.clip(off, -reach, reach)
    off = off if off[len(before) :].mean() < off[: len(before)].mean() else -off
    scores = np.rint((off - off.min()) / max(np.ptp(off), SMALLEST_SPREAD) * SCORES).astype(np.int64)
    most = int(scores[len(before) :].sum())
    ways = np.zeros((len(after) + 1, most + 1))  # ways[n, s]: number of choices of n runs whose scores add up to s
    ways[0, 0] = 1.0
    for score in scores[scores <= most].tolist():
        ways[1:, score:] += ways[:-1, : most + 1 - score]
    return float(ways[-1].sum()) / math.comb(len(every), len(after))


def shifts_of_values(values: Floats, of_others: Floats, floor: Floats, watched: Floats) -> list[Shift]:
    """The changes of positive noisy values, shape (runs, series), each placed where all runs together show its begin.

    Changes of a series in one direction, within `WINDOW` runs of each other, are one drift.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(values > 0, np.log(values), np.nan)
    by_series: dict[int, list[int]] = {}
    for series, begin, _ in first_alarms(logs, of_others, floor, watched):
        by_series.setdefault(series, []).append(begin)
    return [
        shift
        for series, alarms in by_series.items()
        for shift in _placed(series, logs[:, series], alarms, float(floor[series]), limit_for(watched[series]))
    ]


def _placed(series: int, logs: Floats, alarms: Sequence[int], floor: float, limit: float) -> list[Shift]:
    """The shifts of one series, from the runs at which alarms place its changes."""
    alarms = list(alarms)
    while alarms:
        bounds = [0, *alarms, len(logs)]
        for number in range(1, len(bounds) - 1):
            bounds[number] = _split(logs, bounds[number - 1], bounds[number + 1], bounds[number])
        parts = [logs[low:high] for low, high in pairwise(bounds)]
        apart = [_standard_errors_apart(*pair, floor) for pair in pairwise(parts)]
        if min(apart) > limit:
            break
        del alarms[apart.index(min(apart))]  # two alarms for one change
    shifts: list[Shift] = []
    jumped = False  # the last shift is a step that no drift explains
    for low, begin, high in zip(bounds[:-2], bounds[1:-1], bounds[2:], strict=True) if alarms else ():
        before, after = _level(logs[low:begin]), _level(logs[begin:high])
        start = max(low, begin - 2 * WINDOW)
        ramp = ramp_in(logs[start : min(high, begin + 2 * WINDOW)])
        spread = spread_of(logs[low:begin], floor)
        last = shifts[-1] if shifts and not jumped else None
        jumped = _jumps(logs, begin, max(spread, last.spread) if last else spread)
        top = begin if ramp is None else start + ramp[1]
        if last and not jumped and begin - last.end <= WINDOW and (after > before) == (last.after > last.before):
            shifts[-1] = Shift(series, last.begin, top, last.before, math.exp(after), last.spread, True)
        elif ramp is not None and not jumped:
            rise = start + ramp[0]
            ends = _level(logs[low:rise]), _level(logs[min(top, high - 2) : high])
            shifts.append(Shift(series, rise, top, math.exp(ends[0]), math.exp(ends[1]), spread, True))
        else:
            shifts.append(Shift(series, begin, begin, math.exp(before), math.exp(after), spread))
    return shifts


def _standard_errors_apart(before: Floats, after: Floats, floor: float) -> float:
    """The difference of two parts' levels in standard errors, from the spread of the longer part."""
    sizes = [int((~np.isnan(part)).sum()) for part in (before, after)]
    if not min(sizes):
        return 0.0
    spread = min(
        spread_of(part, floor) for part, size in zip((before, after), sizes, strict=True) if size == max(sizes)
    )
    error = max(spread, SMALLEST_SPREAD) * math.sqrt(sum(1 / min(size, WINDOW) for size in sizes))
    return abs(_level(after) - _level(before)) / error


def _jumps(logs: Floats, begin: int, spread: float) -> bool:
    """True if the runs next to a change differ too much for a drift."""
    before, after = _level(logs[max(begin - NEAREST, 0) : begin]), _level(logs[begin : begin + NEAREST])
    return abs(after - before) > A_JUMP * max(spread, SMALLEST_SPREAD)


def _split(logs: Floats, low: int, high: int, likely: int) -> int:
    """The split of runs low to high - 1 into two levels with the smallest absolute deviations; near `likely`."""
    places = range(max(low + 1, likely - WINDOW), min(high, likely + WINDOW))
    lost = {place: _deviations(logs[low:place]) + _deviations(logs[place:high]) for place in places}
    return min(lost, key=lambda place: (lost[place], abs(place - likely)), default=likely)


def _deviations(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.abs(known - np.median(known)).sum()) if len(known) else 0.0


def _level(values: Floats) -> float:
    """The median of the last `WINDOW` known values."""
    known = values[~np.isnan(values)][-WINDOW:]
    return float(np.median(known)) if len(known) else np.nan


def spread_of(logs: Floats, floor: float = 0.0) -> float:
    """The standard deviation of runs around their level: 1.4826 times the median absolute deviation of the last runs.

    For fewer than three runs, the `floor`.
    """
    known = logs[~np.isnan(logs)][-WINDOW:]
    if len(known) < 3:
        return floor
    return max(1.4826 * float(np.median(np.abs(known - np.median(known)))), floor)


NEAREST, A_JUMP = 3, 6.0
"""Runs on each side of a change that tell a step from a drift, and the fewest spreads of a step between them."""
SHORTEST_RAMP, BETTER = 5, 0.8
"""Fewest runs of a drift, and the largest ratio of its squared residuals to those of a step."""


def ramp_in(logs: Floats) -> tuple[int, int] | None:
    """First and last run of a drift, as indices into `logs`; None if a step fits as well.

    A drift is level, then linear, then level. Its squared residuals are compared with those of the best step.
    """
    known = np.flatnonzero(~np.isnan(logs))
    values, count = logs[known], len(known)
    if count < SHORTEST_RAMP + 2:
        return None
    places = np.arange(count)
    splits = places[1:]
    steps = (splits[:, None] <= places).astype(np.float64)
    pairs = [(low, high) for low, high in combinations(range(count), 2) if high - low >= SHORTEST_RAMP]
    lows, highs = np.array(pairs).T
    ramps = np.clip((places - lows[:, None]) / (highs - lows)[:, None], 0.0, 1.0)
    of_steps, of_ramps = _residuals(steps, values), _residuals(ramps, values)
    best = int(of_ramps.argmin())
    if of_ramps[best] >= BETTER * of_steps.min():
        return None
    return int(known[lows[best]]) + 1, int(known[highs[best]])


def _residuals(shapes: Floats, values: Floats) -> Floats:
    """The squared residuals of least-squares fits of `values` to a constant and each row of `shapes`."""
    shapes, values = shapes - shapes.mean(axis=1, keepdims=True), values - values.mean()
    squares = (shapes**2).sum(axis=1)
    return np.asarray((values**2).sum() - (shapes @ values) ** 2 / squares)
