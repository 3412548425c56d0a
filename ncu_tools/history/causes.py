"""Why a series changed: the code, the method, the machine, noise, or an unknown cause; each with its evidence.

code      counts of the kernel changed with it: instructions, FLOPs, bytes, registers, spills; or its name
method    it was measured differently: other launches, grids, versions or settings
machine   only the clock or the device changed
noise     none of these, with as many instructions as before
unknown   none of these, and no instructions were counted: a change of the code may not show
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ncu_tools.history.change_points import Mask, Shift
from ncu_tools.history.changes import NEAR, FoundChange, Moves, moves_in
from ncu_tools.history.quantities import CODE, CYCLES, LAUNCHES, MACHINE, METHOD, NOISE, TIME, UNKNOWN, quantities
from ncu_tools.history.series import EVERY, History
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.numbers.change import CLOCKS_ALIKE, signed
from ncu_tools.numbers.number_format import FORMATS

OF_MACHINE = ("GPU", "compute capability", "clock control", "machine", "host")
"""Conditions of a run that describe the machine."""
OF_CODE_ALONE = ("registers", "spills", "shared_bytes", "local_accesses")
"""Counts that depend on the code alone, not on how it is launched."""
INSTRUCTIONS = "instructions"
"""The count that no change of the code leaves as it is."""
MOST_SHOWN = 4
MANY_DIGITS = 1000
"""Mean counts from this size on are shown without decimals."""


@dataclass(frozen=True)
class HistoryChange:
    """A change: from run `run` on, a quantity of a series is `after` instead of `before`, in its base unit.

    `series` is `EVERY` for the median over all series. A drift ends at run `end`. `evidence` are phrases.
    """

    series: int
    run: int
    end: int
    quantity: str
    before: float
    after: float
    spread: float
    drift: bool
    cause: str
    evidence: tuple[str, ...]

    @property
    def change(self) -> float:
        """(after - before) / before; infinite if `before` is 0."""
        return (self.after - self.before) / self.before if self.before else float("inf")

    @property
    def growth_in_words(self) -> str:
        """The relative change, such as "+20.0 %"; "from nothing" if `before` is 0."""
        return signed(self.change) if self.before else "from nothing"

    @property
    def in_words(self) -> str:
        """The numbers of the change: "time 100 µs -> 120 µs (+20.0 %)"."""
        return _phrase(self.quantity, self.before, self.after)


@dataclass(frozen=True)
class _Signs:
    """Evidence for each cause of a change, as phrases; `of_code_alone` if a change of the launch cannot explain it."""

    code: tuple[str, ...]
    method: tuple[str, ...]
    machine: tuple[str, ...]
    of_code_alone: bool


def changes_of(history: History, asked: Mask | None = None) -> list[HistoryChange]:
    """Every change of a history with its cause, ordered by run, then by quantity.

    `asked` is a mask of the series to look at, as for `moves_in`.
    """
    moves = moves_in(history, asked)
    judge = _Judge(history, moves)
    order = list(quantities())
    changes = [judge.judged(one) for one in moves.found]
    return sorted(
        changes, key=lambda one: (one.run, one.series != EVERY, order.index(one.quantity), -abs(one.change), one.series)
    )


class _Judge:
    """Finds the cause of each change of a history."""

    def __init__(self, history: History, moves: Moves) -> None:
        self._history, self._moves = history, moves
        counters = [name for name, one in quantities().items() if one.moves == CODE and history.has(name)]
        self._known = {name: ~np.isnan(history.values(name)) for name in counters}
        self._noisy_moves: dict[int, list[FoundChange]] = {}
        for one in moves.found:
            if not quantities()[one.quantity].exact:
                self._noisy_moves.setdefault(one.shift.series, []).append(one)
        self._cycles, self._times = history.values(CYCLES), history.values(TIME)

    def judged(self, found: FoundChange) -> HistoryChange:
        """The change with its cause and the evidence."""
        shift = found.shift
        cause, evidence = self._cause(found)
        evidence = evidence or (_phrase(found.quantity, shift.before, shift.after),)
        drift = (f"drift over {shift.end - shift.begin + 1} runs",) if shift.drift else ()
        return HistoryChange(
            shift.series, shift.begin, shift.end, found.quantity, _rounded(shift.before), _rounded(shift.after),
            shift.spread, shift.drift, cause, (*drift, *evidence),
        )  # fmt: skip

    def _cause(self, found: FoundChange) -> tuple[str, tuple[str, ...]]:
        signs = self._signs(found)
        if found.quantity == LAUNCHES:
            return METHOD, (*signs.method, *signs.code, *signs.machine)
        if any(one.startswith(OF_MACHINE) for one in signs.machine):
            return MACHINE, (*signs.machine, *signs.code, *signs.method)
        if signs.method and not (signs.of_code_alone and not self._conditions(found.shift, of_machine=False)):
            return METHOD, (*signs.method, *signs.code)
        if signs.code:
            return CODE, (*signs.code, *signs.method)
        if signs.machine:
            return MACHINE, (*signs.machine, self._nothing(found.shift))
        shift = found.shift  # exact counts were assigned a cause above
        spreads = abs(math.log(shift.after / shift.before)) / shift.spread
        cause = NOISE if self._counts_instructions(shift) else UNKNOWN
        return cause, (self._nothing(shift), f"{spreads:.1f} times the spread of runs")

    def _signs(self, found: FoundChange) -> _Signs:
        shift = found.shift
        counts = self._counts(found)
        renamed = [
            f"renamed, was {readable_name(one.was)} ({one.matched_by})"
            for one in self._history.renamed
            if one.series == shift.series and shift.begin <= one.run <= shift.end
        ]
        code = [one for one in counts if quantities()[one.quantity].moves == CODE]
        method = [
            _phrase(one.quantity, one.shift.before, one.shift.after) for one in counts if one.quantity == LAUNCHES
        ]
        if any((shift.series, run) in self._moves.mixes for run in self._runs(shift)):
            method.append("other grids, blocks or ranges, or another mix of them")
        method += self._conditions(shift, of_machine=False)
        return _Signs(
            (*(_phrase(one.quantity, one.shift.before, one.shift.after) for one in code[:MOST_SHOWN]), *renamed),
            tuple(method),
            (*self._conditions(shift, of_machine=True), *self._clock(found)),
            bool(renamed) or any(one.quantity in OF_CODE_ALONE for one in code) or self._same_work(found, code),
        )

    def _same_work(self, found: FoundChange, moved: list[FoundChange]) -> bool:
        """True if a launch does as many FLOPs as before, so that another grid is another way to do the same work."""
        there = self._known.get("flops")
        if there is None or found.shift.series == EVERY:
            return False
        known = there[found.shift.begin - 1 : found.shift.begin + 1, found.shift.series].all()
        return bool(known) and "flops" not in [one.quantity for one in moved]

    def _runs(self, shift: Shift) -> range:
        """The runs in which the cause of a change may lie."""
        return range(shift.begin, shift.end + 1)

    def _counts(self, found: FoundChange) -> list[FoundChange]:
        """The counts of the series that changed together with `found`; for `EVERY`, if most series have one."""
        shift = found.shift
        exact = self._moves.counts.get(shift.series, [])
        noisy = self._noisy_moves.get(shift.series, [])
        runs = self._runs(shift)
        with_it = [one for one in exact if one.shift.begin in runs]
        near: dict[str, FoundChange] = {}
        for one in sorted(noisy, key=lambda one: abs(one.shift.begin - shift.begin)):
            if one.shift.begin in runs or (self._may_be_off(one.shift, runs) and self._may_be_off(shift, runs)):
                near.setdefault(one.quantity, one)
        with_it += near.values()
        if shift.series == EVERY:
            with_it = [one for ones in self._moves.counts.values() for one in ones if one.shift.begin in runs]
            return with_it if 2 * len({one.shift.series for one in with_it}) > len(self._history.names) else []
        return with_it

    def _may_be_off(self, shift: Shift, runs: range) -> bool:
        """True for a noisy change near these runs whose place no exact change confirms."""
        marked = shift.begin in self._moves.marks.get(shift.series, ())
        return not marked and runs.start - NEAR <= shift.begin < runs.stop + NEAR

    def _conditions(self, shift: Shift, *, of_machine: bool) -> list[str]:
        """The conditions that differ from the runs before, as phrases: of the machine, or all others."""
        return [
            f"{name}: {before} -> {after}"
            for run in self._runs(shift)
            for name, (before, after) in self._moves.conditions.get(run, {}).items()
            if (name in OF_MACHINE) == of_machine
        ]

    def _clock(self, found: FoundChange) -> list[str]:
        """The SM clock before and after, as a phrase, if it changed and explains the change; else [].

        A lower clock gives kernels bound by SMs a longer time, and kernels bound by DRAM fewer cycles.
        """
        if found.quantity not in (TIME, CYCLES):
            return []
        shift = found.shift
        before, after = self._clock_at(shift.series, shift.begin - 1), self._clock_at(shift.series, shift.end)
        if before is None or after is None or max(before, after) / min(before, after) - 1 <= CLOCKS_ALIKE:
            return []
        explains = (after < before) == ((shift.after > shift.before) == (found.quantity == TIME))
        return [f"SM clock {FORMATS['hz'](before)} -> {FORMATS['hz'](after)}"] if explains else []

    def _clock_at(self, series: int, run: int) -> float | None:
        """The SM clock of a series in a run, or the last one before, in Hz: cycles / time, else the run's median."""
        for one in range(run, -1, -1):
            if series != EVERY:
                cycles, time = float(self._cycles[one, series]), float(self._times[one, series])
                if np.isfinite(cycles) and time > 0:
                    return cycles / time * 1e9
            clock = self._history.facts[one].clock
            if clock is not None:
                return clock
        return None

    def _counts_instructions(self, shift: Shift) -> bool:
        """True if the instructions of the series were counted before the change and after it."""
        return INSTRUCTIONS in self._known and (shift.series == EVERY or INSTRUCTIONS in self._known_around(shift))

    def _known_around(self, shift: Shift) -> list[str]:
        """The counts of one series that are known before the change and after it."""
        at, series = shift.begin, shift.series
        return [name for name, there in self._known.items() if there[at, series] and there[:at, series].any()]

    def _nothing(self, shift: Shift) -> str:
        """The phrase which says that counts are unchanged, or that there are none."""
        if shift.series == EVERY and self._known:
            return "no count moved in most of them"
        known = [] if shift.series == EVERY else self._known_around(shift)
        if not known:
            return "no counters were collected, so that a change of the code would not show"
        as_before = f"{', '.join(quantities()[name].title for name in known[:MOST_SHOWN])} as before"
        return as_before if INSTRUCTIONS in known else f"{as_before}, but instructions were not counted"


def _phrase(quantity: str, before: float, after: float) -> str:
    known = quantities()[quantity]
    levels = " -> ".join(FORMATS[known.kind](_short_number(_rounded(value))) for value in (before, after))
    return f"{known.title} {levels} ({signed(after / before - 1) if before else 'from nothing'})"


def _rounded(value: float) -> float:
    """A value rounded to 12 digits: logarithms and means of sums do not keep more."""
    return float(f"{value:.12g}")


def _short_number(value: float) -> float:
    return int(value) if value == int(value) or value >= MANY_DIGITS else round(value, 3)
