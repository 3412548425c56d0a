"""One measure before and after, the uncertainty of its change, and the subjects that gates apply to.

Kernels, layers and measured points are compared in this form, so that all have the same texts and gates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ncu_tools.numbers.number_format import FORMATS

EXACT = (
    "launches", "flops", "bytes", "memory", "allocated", "parameters",
    "instructions", "l1_bytes", "registers", "spills", "local_accesses", "shared_bytes",
)  # fmt: skip
"""Measures without noise: any difference counts."""
KINDS = {
    "time": "time", "dram_bytes": "byte", "bytes": "byte", "memory": "byte", "allocated": "byte", "flops": "flop",
    "l1_bytes": "byte", "l2_bytes": "byte", "shared_bytes": "byte",
}  # fmt: skip

IN_FACTORS, MOST_FACTOR = 10.0, 1000.0
"""Growth that is written as a factor, and the largest factor that is written."""
SAME_COUNT = 1e-9
"""Largest relative difference of two sums of the same numbers: counts are sums of floats."""

DIGITS_PRINTED = 4
"""Significant digits of tables (`ncu_tools.numbers.number_format`)."""

UNKNOWN, SAME, NOT_SHOWN, MORE, LESS = "not known", "same", "no change shown", "more", "less"
CLOCKS_DIFFER = "clocks differ"
"""Verdict on a time that would change at the SM clock of the base."""
VERDICTS = {MORE: "slower", LESS: "faster"}

CLOCKS_ALIKE = 0.02
"""Largest relative difference of the median SM clocks of two runs without a note."""


@dataclass(frozen=True)
class Change:
    """One measure before and after, in its base unit; None if unknown, 0 if the kernel did not run.

    `low` and `high` bound new / base with 95 % confidence; None if the noise is unknown: fewer than two samples on a
    side, averages, or samples that are all equal. `unlike` is the reason why the two values cannot be compared, and
    `compares` names their kind if not sums, such as "per launch". A difference below `step` may come from the few
    digits that the reports printed, and if no interval is known, one below `jitter` from the GPU's clock and the
    difference of two launches. `low_of_many` replaces `low` if the change is one of many judged together. `clock` is
    the new / base SM clock of a time, 1 if they are alike or unknown.
    """

    measure: str
    base: float | None
    new: float | None
    low: float | None = None
    high: float | None = None
    basis: str | None = None
    unlike: str = ""
    compares: str = ""
    step: float = 0.0
    clock: float = 1.0
    jitter: float = 0.0
    low_of_many: float | None = None

    @property
    def in_cycles(self) -> Change:
        """The change of a time if the new run had the SM clock of the base and took as many cycles.

        Times bound by SMs change this way; times bound by DRAM do not change with their clock. The truth lies between.
        """
        new, low, high, low_of_many = (
            None if one is None else one * self.clock for one in (self.new, self.low, self.high, self.low_of_many)
        )
        return replace(self, new=new, low=low, high=high, low_of_many=low_of_many, clock=1.0)

    @property
    def growth(self) -> float | None:
        """(new - base) / base; infinite for a base of 0; None if unknown."""
        if self.base is None or self.new is None or self.unlike:
            return None
        if self.base == self.new:
            return 0.0
        return (self.new - self.base) / self.base if self.base else math.inf

    @property
    def ratio(self) -> float | None:
        """New / base; None if unknown, or the base is 0."""
        return None if self.growth is None or not self.base else 1.0 + self.growth

    @property
    def outcome(self) -> str:
        """`MORE`, `LESS`, `SAME`, `NOT_SHOWN` if the interval includes 1 or the change is mere jitter, or `UNKNOWN`.

        `SAME` means equal counts, or times and bytes of launches that differ by less than the last digit printed by
        tables or the reports.
        """
        if self.growth is None or self.base is None or self.new is None:
            return UNKNOWN
        if abs(self.growth) <= SAME_COUNT or (self.measure not in EXACT and self._prints_alike):
            return SAME
        if self.low is not None and self.high is not None:
            is_shown = not self.low <= 1 <= self.high
        else:
            is_shown = 0 in (self.base, self.new) or abs(self.new - self.base) >= self.jitter
        if not is_shown:
            return NOT_SHOWN
        return MORE if self.growth > 0 else LESS

    @property
    def _prints_alike(self) -> bool:
        before, after = self.base or 0.0, self.new or 0.0
        larger = max(abs(before), abs(after))
        shown = 10.0 ** (math.floor(math.log10(larger)) + 1 - DIGITS_PRINTED) if larger else 0.0
        return abs(after - before) < max(shown, self.step)

    @property
    def noise_is_known(self) -> bool:
        """True if the change is exact, or has an interval."""
        return self.measure in EXACT or self.low is not None


@dataclass(frozen=True)
class Difference:
    """A condition in which two runs differ. `refused` is True if the comparison would mean little."""

    condition: str
    base: str
    new: str
    refused: bool

    def __str__(self) -> str:
        return f"{self.condition}: {self.base} in the base, {self.new} in the new run"


@dataclass(frozen=True)
class Refusal:
    """Why gates on a subject are refused, except on `launches`: the `reason`, and what to gate `instead`.

    `instead` is the beginning of a valid gate, such as "kernel:gemm:", and `first` the words on what to do before that;
    empty if nothing. `slower` names subjects that took longer nevertheless, and is empty if none is known.
    """

    reason: str
    instead: str
    first: str = ""
    slower: str = ""

    def advice(self, limit: str) -> str:
        """What to type in place of a gate with this measure and limit, such as "time>5%"."""
        what = f"{self.first} gate" if self.first else "Gate"
        gates = f'--fail-on "any:{limit}" or "{self.instead}{limit}"'
        return f"{what} kernels per launch, as {gates}, or add --anyway to judge the sums."


@dataclass(frozen=True)
class Subject:
    """One subject of gates: a run, a kernel, a layer or a point, with its names in both runs.

    `not_gated` is the reason why there is no growth to compare with a limit, `missing` why the new run lacks the base's
    subject, so that no gate on it can pass, `refusal` why sums mean nothing; all are empty if gates apply.
    """

    names: tuple[str, ...]
    changes: dict[str, Change]
    not_gated: str = ""
    missing: str = ""
    refusal: Refusal | None = None


@dataclass
class Subjects:
    """All subjects of one comparison that gates can name; each is a `noun`.

    A gate without a name applies to `whole`, or if that is None to each of `every`. `lacks` has the reasons for
    measures that do not exist here.
    """

    noun: str
    every: list[Subject]
    whole: Subject | None = None
    lacks: dict[str, str] = field(default_factory=dict)


def clock_ratio(base: float | None, new: float | None) -> float:
    """New / base SM clock; 1 if one is unknown, or if they are alike."""
    if base is None or new is None or max(base, new) / min(base, new) - 1 <= CLOCKS_ALIKE:
        return 1.0
    return new / base


def sentence(change: Change) -> str:
    """The numbers of a change: "time per launch 1.2 ms -> 1.4 ms: +16.7 % [+12.1 %, +21.4 %]"."""
    shown: Callable[[float], str] = FORMATS[KINDS[change.measure]] if change.measure in KINDS else lambda n: f"{n:,.0f}"
    before, after = ("not known" if value is None else shown(value) for value in (change.base, change.new))
    noise = "" if change.noise_is_known or change.outcome == SAME else ", noise not known"
    noise = f", {NOT_SHOWN}" if change.outcome == NOT_SHOWN else noise
    per_launch, _, which = change.compares.partition(", ")
    what, of_which = f"{change.measure} {per_launch}".rstrip(), f" ({which})" if which else ""
    cycles = "" if change.clock == 1 or change.growth is None else f"; in SM cycles {growth_text(change.in_cycles)}"
    return f"{what} {before} -> {after}: {growth_text(change) or 'not known'}{noise}{of_which}{cycles}"


def growth_text(change: Change) -> str | None:
    """A change in per cent with its interval, "+5.2 % [+3.1 %, +7.4 %]", or "same"; None if unknown."""
    if change.growth is None:
        return None
    if math.isinf(change.growth):
        return "from nothing"
    return (SAME if change.outcome == SAME else signed(change.growth)) + _interval_text(change)


def verdict_text(change: Change) -> str | None:
    """As `growth_text`, but "no change shown" if the interval includes no change."""
    return NOT_SHOWN + _interval_text(change) if change.outcome == NOT_SHOWN else growth_text(change)


def verdict(change: Change, *, is_new: bool, is_gone: bool) -> str | None:
    """The verdict on a change of time; None if unknown."""
    if is_new or is_gone:
        return "new" if is_new else "gone"
    if change.growth is None:
        return None
    noise = "" if change.noise_is_known or change.outcome == SAME else ", noise not known"
    clocks = "" if change.outcome == change.in_cycles.outcome else f", {CLOCKS_DIFFER}"
    return VERDICTS.get(change.outcome, change.outcome) + noise + clocks


def _interval_text(change: Change) -> str:
    if change.low is None or change.high is None:
        return ""
    return f" [{signed(change.low - 1)}, {signed(change.high - 1)}]"


def signed(fraction: float) -> str:
    """A fraction as signed per cent, with as many digits as a small change needs; from 1,000 % on as a factor."""
    if fraction == 0:
        return "0 %"
    if fraction >= IN_FACTORS:
        return f"{float(f'{1 + fraction:.3g}'):g} x" if fraction < MOST_FACTOR else f"> {MOST_FACTOR:g} x"
    return f"{100 * fraction:+.1f} %" if abs(fraction) >= 0.001 else f"{100 * fraction:+.1g} %"


def shortened(words: Sequence[str], most: int) -> list[str]:
    """The first `most` words, and the number of the rest."""
    return [*words[:most], *([f"and {len(words) - most} more"] if len(words) > most else [])]
