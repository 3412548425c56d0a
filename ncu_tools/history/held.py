"""The subjects of gates on a history: the newest run against a window before it, or the last runs against the first.

Runs on another device than the newest one are left out, and for sums also runs that did other work. If none is left, or
the outcome depends on the clock, the gate is not evaluated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from ncu_parsers.schema.tables import Floats

from ncu_tools.history.change_points import SMALLEST_SPREAD, spread_of
from ncu_tools.history.quantities import LAUNCHES, TIME, quantities
from ncu_tools.history.series import POINT, SHAPES, STEP, History
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.numbers.change import EXACT, Change, Refusal, Subject, Subjects, clock_ratio, shortened
from ncu_tools.numbers.number_format import counted, plural
from ncu_tools.numbers.statistics import CONFIDENCE, student_quantile

LAST = 5
"""Number of newest runs whose median a drift compares."""
FEWEST_FOR_NOISE = 3
"""Fewest runs from which the spread between runs is measured."""
NOT_SUMMED = frozenset({"registers", "shared_bytes"})
"""Quantities that have no sum over kernels."""
MOST_NAMED = 3


@dataclass(frozen=True)
class _Sides:
    """The runs on both sides of a gate, by index; `newest` is the last run, or the last ones for a drift."""

    base: list[int]
    newest: list[int]


def held(history: History, measure: str, window: int, *, drift: bool = False) -> Subjects:
    """The subjects of gates on a measure: each series and the whole run, with the medians of both sides."""
    noun = history.noun
    if not history.has(measure):
        return Subjects(noun, [], lacks={measure: f"no run of this history knows {_title(measure)}"})
    sides = _sides(history, window, drift=drift)
    if isinstance(sides, str):
        return Subjects(noun, [], lacks={measure: sides})
    values = history.values(measure)
    confidence = 1 - (1 - CONFIDENCE) / values.shape[1]
    clock = _clock(history, sides) if measure == TIME else 1.0
    every = [
        _subject(
            (history.names[series], *_former(history, series)), measure, values[:, series], sides, clock, confidence
        )
        for series in range(values.shape[1])
        if not np.isnan(values[[*sides.base, *sides.newest], series]).all()
    ]
    if noun == POINT:
        return Subjects(noun, every)
    if measure in NOT_SUMMED:
        each = f"{_title(measure)} have no sum over {plural(noun)}: gate any:{measure} or {noun}:NAME:{measure}"
        return Subjects(noun, every, Subject(("the run",), {measure: Change(measure, 0.0, 0.0, unlike=each)}))
    return Subjects(noun, every, _subject_of_run(history, measure, values, sides, clock))


def _title(measure: str) -> str:
    return quantities()[measure].title


def _former(history: History, series: int) -> tuple[str, ...]:
    return tuple(one.was for one in history.renamed if one.series == series)


def _sides(history: History, window: int, *, drift: bool) -> _Sides | str:
    """The runs of both sides, all on one device; or the reason why there are none to compare with."""
    runs = len(history.runs)
    here = history.facts[-1].devices
    alike = [run for run in range(runs) if history.facts[run].devices == here]
    if runs < 2:
        return "there is only one run, and none before it to compare with"
    if len(alike) < 2:
        others = ", ".join(dict.fromkeys(one.devices or "a device that is not known" for one in history.facts[:-1]))
        return f"{history.runs[-1]} ran on {here or 'a device that is not known'}, and the runs before it on {others}"
    if not drift:
        return _Sides(alike[:-1][-window:], alike[-1:])
    last = min(LAST, len(alike) // 2)
    return _Sides(alike[: min(window, len(alike) - last)], alike[-last:])


def _clock(history: History, sides: _Sides) -> float:
    """New / base SM clock, from the medians of both sides; 1 if they agree or are unknown."""
    found: list[float | None] = []
    for side in (sides.base, sides.newest):
        clocks = [clock for run in side if (clock := history.facts[run].clock) is not None]
        found.append(float(np.median(clocks)) if clocks else None)
    return clock_ratio(*found)


def _subject(
    names: tuple[str, ...], measure: str, values: Floats, sides: _Sides, clock: float, of_many: float
) -> Subject:
    """A series with the change of its median: new if the base lacks it, missing if the newest runs lack it."""
    change = _change(measure, values, sides, clock, of_many)
    if change.new is None:
        return Subject(names, {measure: change}, missing="is not in the newest run, perhaps under another name")
    if change.base is None:
        return Subject(names, {measure: Change(measure, 0.0, change.new), LAUNCHES: Change(LAUNCHES, 0.0, 1.0)})
    return Subject(names, {measure: change})


def _change(measure: str, values: Floats, sides: _Sides, clock: float, of_many: float) -> Change:
    """The change of the median, with its confidence interval from the spread of the base runs."""
    base, newest = (_without_nan(values[side]) for side in (sides.base, sides.newest))
    before, after = (float(np.median(side)) if len(side) else None for side in (base, newest))
    compares = f"of {counted(len(base), 'run', 'runs')}"
    if measure in EXACT or len(base) < FEWEST_FOR_NOISE or not before or not after:
        return Change(measure, before, after, clock=clock, compares=compares)
    spread = spread_of(np.log(base), max(quantities()[measure].floor, SMALLEST_SPREAD))
    error = spread * math.sqrt(1 / len(base) + 1 / len(newest))
    ratio, freedom = after / before, len(base) - 1.0
    reach, wide = (math.exp(student_quantile(one, freedom) * error) for one in (CONFIDENCE, of_many))
    return Change(
        measure, before, after, ratio / reach, ratio * reach, "runs", clock=clock, low_of_many=ratio / wide,
        compares=compares,
    )  # fmt: skip


def _without_nan(values: Floats) -> Floats:
    return np.asarray(values[~np.isnan(values)])


# ---------------------------------------------------------------------------------------------------------- the whole


def _subject_of_run(history: History, measure: str, values: Floats, sides: _Sides, clock: float) -> Subject:
    """The run: the sum over its series, compared with runs that did the same work; refused if none did."""
    launches = history.values(LAUNCHES)
    weights = np.ones_like(launches) if measure == LAUNCHES or history.noun != "kernel" else launches
    there = ~np.isnan(launches)
    with np.errstate(invalid="ignore"):
        sums = np.where((np.isnan(values) & there).any(axis=1), np.nan, np.nansum(values * weights, axis=1))
    if measure == LAUNCHES:
        return Subject(("the run",), {measure: _change(measure, sums, sides, clock, CONFIDENCE)})
    other = [run for run in sides.base if _other_work(history, launches, run)]
    alike = [run for run in sides.base if run not in other]
    change = _change(measure, sums, _Sides(alike or sides.base, sides.newest), clock, CONFIDENCE)
    if alike or history.noun == STEP:
        return Subject(("the run",), {measure: change})
    words = _other_work(history, launches, other[-1])
    refusal = Refusal(f"not the same work: {', '.join(shortened(words, MOST_NAMED))}", "kernel:NAME:")
    return Subject(("the run",), {measure: change}, refusal=refusal)


def _other_work(history: History, launches: Floats, run: int) -> list[str]:
    """Differences between the work of the newest run and of `run`, a phrase per series; [] for the same work."""
    mixes = history.values(SHAPES)
    before, after = (np.nan_to_num(launches[one]) for one in (run, -1))
    named = [
        f"{before[at]:,.0f} -> {after[at]:,.0f} launches of {readable_name(history.names[at])}"
        for at in np.flatnonzero(before != after).tolist()
    ]
    renamed = {one.series for one in history.renamed if one.run > run}
    both = (before > 0) & (after > 0) & (mixes[run] != mixes[-1])
    return named + [
        f"another grid, block or range of {readable_name(history.names[at])}"
        for at in np.flatnonzero(both).tolist()
        if at not in renamed
    ]
