"""Find all changes in a history: counts first, then cycles, then time, and a change common to all series."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from ncu_parsers.schema.tables import Floats

from ncu_tools.history.change_points import (
    FEW,
    MARKED_LIMIT,
    SMALLEST_SPREAD,
    WINDOW,
    Mask,
    Shift,
    are_noisy,
    last_known,
    shifts_of_counts,
    shifts_of_values,
    spread_of,
)
from ncu_tools.history.quantities import LAUNCHES, TIME, WatchedQuantity, quantities
from ncu_tools.history.run_summary import VARIANCE, RunFacts
from ncu_tools.history.series import EVERY, KERNEL, SHAPES, History

SPREAD_OF_RUNS = 0.02
"""The assumed relative spread between runs, if there are too few runs and series to measure it."""
JITTER_NS = 80.0
"""Standard deviation of the difference between two launches of a short kernel: half of `compare`'s 160 ns."""
LEAST_DIFFERENCES = 10
"""Fewest run-to-run differences from which the spread between runs is measured."""
RUNS_LOOKED_AT = 200
NEAR = 2
"""Largest error of a noisy change's place, in runs; changes nearer to each other are one change."""
MANY = 10
"""Fewest series for a statement on all series."""
COMMON_LEAST = 0.01
"""Smallest common change of all series that is shown in a history of few runs."""


@dataclass(frozen=True)
class FoundChange:
    """A change of a quantity of a series (`EVERY`: the median over all), before its cause is known."""

    quantity: str
    shift: Shift


@dataclass
class Moves:
    """All changes in a history: shifts of quantities, changes of conditions, and other mixes of launches."""

    found: list[FoundChange] = field(default_factory=list)
    conditions: dict[int, dict[str, tuple[str, str]]] = field(default_factory=dict)
    """Run -> condition -> (before, after), compared with the last run in which the condition is known."""
    mixes: set[tuple[int, int]] = field(default_factory=set)
    """(series, run) for each run from which on a series has launches of other grids, blocks or ranges."""
    counts: dict[int, list[FoundChange]] = field(default_factory=dict)
    """Series -> the changes of its exact counts."""
    marks: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Series -> the runs at which its counts, its mix of launches or a condition of the run changed."""


def moves_in(history: History, asked: Mask | None = None) -> Moves:
    """Every change of a history, without causes, in the order of the quantities.

    `asked` is a mask of the series to look at, None for all: among fewer series, a change is found in fewer runs.
    """
    asked = np.ones(len(history.names), np.bool_) if asked is None else asked
    moves = Moves(conditions=_other_conditions(history.facts))
    moves.mixes = {(one.series, one.begin) for one in shifts_of_counts(history.values(SHAPES), 1e-5)}
    noisy: list[tuple[WatchedQuantity, Floats]] = []
    for quantity in quantities().values():
        if not history.has(quantity.name):
            continue
        values = history.values(quantity.name)
        is_noisy = np.full(values.shape[1], not quantity.exact)
        if quantity.exact and not quantity.is_of_a_launch:  # registers do not depend on data, however often they change
            is_noisy = are_noisy(values, quantity.tolerance)
        for shift in shifts_of_counts(np.where(is_noisy, np.nan, values), quantity.tolerance):
            found = FoundChange(quantity.name, shift)
            moves.found.append(found)
            moves.counts.setdefault(shift.series, []).append(found)
        if is_noisy.any():
            noisy.append((quantity, np.where(is_noisy, values, np.nan)))
    moves.marks = _marks(moves, len(history.names))
    for quantity, values in noisy:
        moves.found += [
            FoundChange(quantity.name, shift) for shift in _noisy_shifts(history, quantity, values, moves, asked)
        ]
    if history.has(TIME):
        moves.found += [FoundChange(TIME, shift) for shift in common_shifts(history.values(TIME))]
    return moves


def _other_conditions(facts: list[RunFacts]) -> dict[int, dict[str, tuple[str, str]]]:
    found: dict[int, dict[str, tuple[str, str]]] = {}
    known: dict[str, str] = {}
    for run, one in enumerate(facts):
        for name, value in one.conditions.items():
            before = known.get(name, value)
            if before != value:
                found.setdefault(run, {})[name] = before, value
            known[name] = value
    return found


# ------------------------------------------------------------------------------------------------------ noisy values


def _noisy_shifts(
    history: History, quantity: WatchedQuantity, values: Floats, moves: Moves, asked: Mask
) -> list[Shift]:
    """The changes of a noisy quantity: those found by tests, and those at runs where something exact changed."""
    floor = _floors(history, quantity, values)
    of_others = np.maximum(_spread_of_others(values), _within_runs(history, quantity, values))
    watched = _watched_as(history, asked & (~np.isnan(values)).any(axis=0))
    marks = moves.marks
    shifts = [
        _at_mark(shift, marks.get(shift.series, ()))
        for shift in shifts_of_values(values, np.maximum(of_others, floor), floor, watched)
    ]
    begun: dict[int, list[int]] = {}
    for shift in shifts:
        begun.setdefault(shift.series, []).append(shift.begin)
    for series, runs in marks.items():
        found = begun.get(series, [])
        bounds = sorted({0, len(values), *found, *runs})
        for run in runs:
            if not any(abs(run - one) <= NEAR for one in found):
                at = bounds.index(run)
                tested = _tested(
                    values[:, series],
                    series,
                    (bounds[at - 1], run, bounds[at + 1]),
                    max(of_others[series], floor[series]),
                )
                shifts += [tested] if tested is not None else []
    return shifts


def _watched_as(history: History, asked: Mask) -> Floats:
    """Per series, the number of series for which its test is corrected (weighted Bonferroni); low for hot kernels.

    Half of the permitted false alarms is shared evenly among the `asked` series, half by their time, so that a change
    of a hot kernel is found sooner. Source: Genovese, Roeder and Wasserman, Biometrika 93, 2006, p. 509.
    """
    times = history.values(TIME)
    if history.noun == KERNEL:
        times *= history.values(LAUNCHES)
    times = np.where(asked, np.nan_to_num(_middle(times)), 0.0)
    even = asked / max(asked.sum(), 1)
    shares = (even + times / times.sum()) / 2 if times.sum() else even
    return np.asarray(1 / np.where(asked, shares, 1 / len(asked)))


def _floors(history: History, quantity: WatchedQuantity, values: Floats) -> Floats:
    """The smallest relative spread of each series: that of the quantity; for times also the jitter of short kernels."""
    floor = np.full(values.shape[1], quantity.floor)
    if quantity.name != TIME:
        return floor
    level, launches = _middle(values), _middle(history.values(LAUNCHES))
    with np.errstate(divide="ignore", invalid="ignore"):
        ticks = JITTER_NS / np.sqrt(launches) / level
    return np.asarray(np.fmax(floor, ticks))


def _middle(values: Floats) -> Floats:
    """The median of each series over the last `RUNS_LOOKED_AT` runs; NaN if it is in none of them."""
    last = values[-RUNS_LOOKED_AT:]
    with np.errstate(all="ignore"):
        return np.array([np.median(one[~np.isnan(one)]) if (~np.isnan(one)).any() else np.nan for one in last.T])


def _spread_of_others(values: Floats) -> float:
    """The relative spread between runs over all series, from differences of logarithms, in which steps are rare."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.diff(np.log(values[-RUNS_LOOKED_AT:]), axis=0)
    steps = steps[np.isfinite(steps)]
    if len(steps) < LEAST_DIFFERENCES:
        return SPREAD_OF_RUNS
    return 1.4826 * float(np.median(np.abs(steps))) / math.sqrt(2)


def _within_runs(history: History, quantity: WatchedQuantity, values: Floats) -> Floats:
    """The relative error of a run's mean time, from the scatter of its launches; 0 if unknown."""
    if quantity.name != TIME:
        return np.zeros(values.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.sqrt(history.values(VARIANCE)) / values
    return np.asarray(np.nan_to_num(_middle(relative)))


def _marks(moves: Moves, count: int) -> dict[int, tuple[int, ...]]:
    of_runs = set(moves.conditions)
    marks: dict[int, set[int]] = {series: set(of_runs) for series in range(count)} if of_runs else {}
    for series, found in moves.counts.items():
        marks.setdefault(series, set()).update(one.shift.begin for one in found)
    for series, run in moves.mixes:
        marks.setdefault(series, set()).add(run)
    return {series: tuple(sorted(runs)) for series, runs in marks.items()}


def _at_mark(shift: Shift, marks: tuple[int, ...]) -> Shift:
    """The shift moved to a mark nearby, if there is one: an exact change shows better where it began."""
    near = [run for run in marks if abs(run - shift.begin) <= NEAR]
    if not near or shift.drift:
        return shift
    begin = min(near, key=lambda run: abs(run - shift.begin))
    return replace(shift, begin=begin, end=begin)


def _tested(values: Floats, series: int, bounds: tuple[int, int, int], of_others: float) -> Shift | None:
    """The shift of a series at a run where something exact changed, if its level moved beyond the spread; else None.

    This is one test at a known place, so one run after it suffices.
    """
    low, run, high = bounds
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(values)
    before, after = (part[np.isfinite(part)] for part in (logs[low:run][-WINDOW:], logs[run:high][:WINDOW]))
    if not len(before) or not len(after):
        return None
    own = spread_of(before, SMALLEST_SPREAD) if len(before) >= FEW else of_others
    ends = float(np.median(before)), float(np.median(after))
    if abs(ends[1] - ends[0]) <= MARKED_LIMIT * own * np.sqrt(1 / len(before) + 1 / len(after)):
        return None
    return Shift(series, run, run, float(np.exp(ends[0])), float(np.exp(ends[1])), own)


# ------------------------------------------------------------------------------------------- what all have in common


def common_shifts(times: Floats) -> list[Shift]:
    """The changes of the median over all series, for runs that share at least `MANY` series with others.

    The index of each run (`_common_index`) is tested like any noisy series. With few runs, an index that changes by
    more than its own error is a change.
    """
    index, error = _common_index(times)
    if not (error > 0).any():
        return []
    floor = COMMON_LEAST / MARKED_LIMIT
    if len(times) < 2 * FEW:
        clear = np.abs(np.diff(index, prepend=0.0)) > np.maximum(MARKED_LIMIT * error, COMMON_LEAST)
        shifts = [
            Shift(EVERY, run, run, math.exp(index[run - 1]), math.exp(index[run]), max(error[run], floor))
            for run in np.flatnonzero(clear).tolist()
        ]
    else:
        of_others = max(float(np.median(error[error > 0])), COMMON_LEAST)
        shifts = shifts_of_values(np.exp(index)[:, None], np.array([of_others]), np.array([floor]), np.ones(1))
    return [_in_ns(replace(one, series=EVERY), times) for one in shifts]


def _common_index(times: Floats) -> tuple[Floats, Floats]:
    """Per run, the median over series of log(time / usual time), and its standard error; 0 if too few are known.

    The usual time is the median of each series: a sum of run-to-run changes would drift like a random walk. With few
    runs it is that sum, since the median of few runs may lie on one side of a change. The error is that of a median of
    normal values, 1.2533 times that of their mean, with a spread from the median absolute deviation.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(times > 0, np.log(times), np.nan)
    are_few = len(times) < 2 * FEW
    off = logs - (_known_before(logs) if are_few else _levels(logs))
    index, error = np.zeros(len(times)), np.zeros(len(times))
    for run, every in enumerate(off):
        values = every[np.isfinite(every)]
        if len(values) >= MANY:
            index[run] = middle = float(np.median(values))
            spread = 1.4826 * float(np.median(np.abs(values - middle)))
            error[run] = 1.2533 * spread / np.sqrt(len(values)) or np.finfo(float).tiny
        elif run and not are_few:
            index[run] = index[run - 1]
    return (np.cumsum(index) if are_few else index), error


def _known_before(logs: Floats) -> Floats:
    """The last known value of each series before each run; NaN where there is none."""
    return np.concatenate([np.full((1, logs.shape[1]), np.nan), last_known(logs)[:-1]])


def _levels(logs: Floats) -> Floats:
    """The median of each series; NaN where nothing is known."""
    return np.array([np.median(one[~np.isnan(one)]) if (~np.isnan(one)).any() else np.nan for one in logs.T])


def _in_ns(shift: Shift, times: Floats) -> Shift:
    """The shift of the index, in ns: from the median time of the run before it."""
    before = times[: shift.begin]
    last = next((row[~np.isnan(row)] for row in before[::-1] if (~np.isnan(row)).any()), np.array([1.0]))
    level = float(np.median(last))
    return replace(shift, before=level, after=level * shift.after / shift.before)
