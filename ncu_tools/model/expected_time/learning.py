"""Learn from measured times: the numbers of formulas, then corrections, then the spread of times around both.

The spread is that of times predicted by fits without their group (such as all m of one (n, k)), since errors on fitted
times are too small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ncu_tools.ceilings.machine_files import Machine
from ncu_tools.model.expected_time.corrections import corrections_at, learnt
from ncu_tools.model.expected_time.kinds import KINDS, OperatorKind
from ncu_tools.model.expected_time.learnt_times import Learnt, LearntEntry, Spread
from ncu_tools.model.expected_time.physics import Floats, TimedOperators, fitted, fitted_from_several

RIDGE_SHARED, RIDGE_OWN = 2.0, 0.5
"""Ridge of the corrections shared by all machines, and of each machine's own; chosen by cross-validation."""
FOLDS = 10
EDGES = (0.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0)
"""Expected us at which ranges with separate spreads begin, if there are enough times."""
HELD = 0.5
"""How strongly few times hold a number to its previous value, if it differs by a factor e among GPUs."""
FEW = 2.0
"""Factor by which the interval is wider than the errors on the few times that were learnt from."""
ENOUGH = 80
LOW, HIGH = 10.0, 90.0
"""Percentiles of measured times at the two ends of the 80 % interval."""


@dataclass(frozen=True)
class MeasuredTimes:
    """Measured times of one kind of operators in one type on one machine; times of a group are left out together."""

    kind: str
    machine: str
    dtype: str
    measured: TimedOperators
    groups: NDArray[np.intp]

    def where(self, chosen: NDArray[np.bool_]) -> MeasuredTimes:
        """The chosen times."""
        hardware, work, times = self.measured
        some = TimedOperators(hardware, {name: column[chosen] for name, column in work.items()}, times[chosen])
        return MeasuredTimes(self.kind, self.machine, self.dtype, some, self.groups[chosen])


@dataclass(frozen=True)
class Fit:
    """The fitted numbers (logarithms) and corrections of one machine, kind and type."""

    logs: Floats
    corrections: Floats | None

    def predicted(self, times: MeasuredTimes) -> Floats:
        """The expected us of operators, independent of their measured times."""
        return expected_us(KINDS[times.kind], self.logs, self.corrections, times.measured)


def expected_us(kind: OperatorKind, logs: Floats, corrections: Floats | None, of: TimedOperators) -> Floats:
    """The expected us from formula and corrections."""
    found = kind.physics.best(of.hardware, of.work, logs)[0]
    if corrections is None:
        return found
    return found * np.exp(corrections_at(kind.grids, kind.coordinates(of.work), corrections))


def fit_numbers(all_times: Sequence[MeasuredTimes], starts: int = 4) -> list[Floats]:
    """Fit the numbers of each machine, from several starts."""
    return [fitted_from_several(KINDS[one.kind].physics, one.measured, starts) for one in all_times]


def refit_numbers(all_times: Sequence[MeasuredTimes], near: Sequence[Floats]) -> list[Floats]:
    """Fit the numbers of each machine again, from those of a fit to nearly the same times."""
    pairs = zip(all_times, near, strict=True)
    return [fitted(KINDS[one.kind].physics, one.measured, start, steps=8)[0] for one, start in pairs]


def fit_corrections(all_times: Sequence[MeasuredTimes], numbers: Sequence[Floats]) -> list[Fit]:
    """Fit the corrections of machines of one kind and type: a shared part, and each machine's own."""
    kind = KINDS[all_times[0].kind]
    if not kind.grids:
        return [Fit(logs, None) for logs in numbers]
    coordinates = [kind.coordinates(one.measured.work) for one in all_times]
    off = [
        np.log(one.measured.time_us / kind.physics.best(one.measured.hardware, one.measured.work, logs)[0])
        for one, logs in zip(all_times, numbers, strict=True)
    ]
    together = {name: np.concatenate([each[name] for each in coordinates]) for name in coordinates[0]}
    shared = learnt(kind.grids, together, np.concatenate(off), RIDGE_SHARED)
    left = [error - corrections_at(kind.grids, at, shared) for at, error in zip(coordinates, off, strict=True)]
    own = [learnt(kind.grids, at, error, RIDGE_OWN) for at, error in zip(coordinates, left, strict=True)]
    return [Fit(logs, np.rint(100 * (shared + table)) / 100) for logs, table in zip(numbers, own, strict=True)]


def unseen(
    all_times: Sequence[MeasuredTimes], numbers: Sequence[Floats], folds: int = FOLDS, seed: int = 0
) -> list[Floats]:
    """The expected us of every time, from fits that have not seen its group (cross-validation)."""
    found = [np.full(len(one.groups), np.nan) for one in all_times]
    for left_out, fits in fits_without_folds(all_times, numbers, folds, seed):
        for one, chosen, into, fit in zip(all_times, left_out, found, fits, strict=True):
            if chosen.any():
                into[chosen] = fit.predicted(one.where(chosen))
    return found


def fits_without_folds(
    all_times: Sequence[MeasuredTimes], numbers: Sequence[Floats], folds: int = FOLDS, seed: int = 0
) -> Iterator[tuple[list[NDArray[np.bool_]], list[Fit]]]:
    """For each fold of the groups: masks of its times, and fits to all others, machine by machine."""
    groups = np.unique(np.concatenate([one.groups for one in all_times]))
    fold_of = dict(zip(groups.tolist(), np.random.default_rng(seed).permutation(len(groups)) % folds, strict=True))
    places = [np.array([fold_of[group] for group in one.groups.tolist()]) for one in all_times]
    for fold in range(folds):
        left_out = [place == fold for place in places]
        seen = [one.where(~chosen) for one, chosen in zip(all_times, left_out, strict=True)]
        yield left_out, fit_corrections(seen, refit_numbers(seen, numbers))


def spread_of(expected: Floats, measured: Floats, wider: float = 1.0) -> Spread:
    """The spread of measured around expected times, by expected time; ranges with too few times are merged."""
    off = np.log(measured / expected)
    rows: list[tuple[float, float, float]] = []
    begin, waiting = EDGES[0], np.zeros(len(off), bool)
    for low, high in zip(EDGES, (*EDGES[1:], np.inf), strict=True):
        waiting |= (expected >= low) & (expected < high)
        left = int((expected >= high).sum())
        if waiting.sum() >= ENOUGH and (left >= ENOUGH or left == 0):
            rows.append(_row(begin, off[waiting], wider))
            begin, waiting = high, np.zeros(len(off), bool)
    if waiting.any():
        rows.append(_row(begin, off[waiting], wider))
    return tuple(rows)


def _row(begin: float, off: Floats, wider: float) -> tuple[float, float, float]:
    low, high = np.percentile(off, [LOW, HIGH])
    return begin, round(min(float(low), -0.005) * wider, 3), round(max(float(high), 0.005) * wider, 3)


def bounds(expected: Floats, spread: Spread) -> tuple[Floats, Floats]:
    """The ends of the 80 % interval around each expected time; NaN without a spread."""
    if not spread:
        return np.full(len(expected), np.nan), np.full(len(expected), np.nan)
    begins, lows, highs = (np.array(column) for column in zip(*spread, strict=True))
    row = np.clip(np.searchsorted(begins, expected, "right") - 1, 0, len(begins) - 1)
    return expected * np.exp(np.minimum(lows[row], 0)), expected * np.exp(np.maximum(highs[row], 0))


def entries(all_times: Sequence[MeasuredTimes], fits: Sequence[Fit], predicted: Sequence[Floats]) -> list[LearntEntry]:
    """The entries for a file of learnt times."""
    return [
        LearntEntry(
            one.kind, one.machine, one.dtype, len(one.groups), fit.logs, fit.corrections,
            spread_of(expected, one.measured.time_us),
        )
        for one, fit, expected in zip(all_times, fits, predicted, strict=True)
    ]  # fmt: skip


def learnt_from_few(
    kind: str, machine: Machine, dtype: str, measured: TimedOperators, known: Learnt
) -> tuple[LearntEntry, float, float]:
    """An entry from few times, and the median relative error before and after.

    The numbers start from those known of the machine, its siblings or all GPUs, and are held to them, each by how
    little it differs among GPUs. Corrections stay as they are.
    """
    basis = known.basis(kind, machine, dtype)
    physics = KINDS[kind].physics
    weight = HELD / np.square(known.deviations(kind, dtype) + 0.05)
    shift = np.zeros(len(measured.time_us))
    if basis.corrections is not None:
        shift = corrections_at(KINDS[kind].grids, KINDS[kind].coordinates(measured.work), basis.corrections)
    without = measured._replace(time_us=measured.time_us / np.exp(shift))
    logs = fitted(physics, without, basis.logs, basis.logs, weight)[0]
    before = expected_us(KINDS[kind], basis.logs, basis.corrections, measured) / measured.time_us
    after = expected_us(KINDS[kind], logs, basis.corrections, measured) / measured.time_us
    off = np.log(after)
    spread = basis.spread
    if spread:
        usual = max(0.05, float(np.percentile(np.abs(off), 80)) * FEW)
        spread = tuple((begin, -min(-low, usual), min(high, usual)) for begin, low, high in spread)
    entry = LearntEntry(kind, machine.id, dtype, len(off), logs, basis.corrections, spread)
    return entry, float(np.median(np.abs(before - 1))), float(np.median(np.abs(after - 1)))


def by_kind_and_type(all_times: Sequence[MeasuredTimes]) -> Mapping[tuple[str, str], list[MeasuredTimes]]:
    """Group the times of machines that share corrections."""
    found: dict[tuple[str, str], list[MeasuredTimes]] = {}
    for one in all_times:
        found.setdefault((one.kind, one.dtype), []).append(one)
    return found
