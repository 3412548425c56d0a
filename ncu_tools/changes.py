"""One measure before and after, how sure its change is, and what a gate can be held against.

Kernels, layers and measured points are compared in this form, so that all of them have the same words and gates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ncu_tools.report.units import FORMATS

EXACT = ("launches", "flops", "bytes", "memory", "allocated", "parameters")
"""Measures without noise: any difference is one."""
KINDS = {
    "time": "time", "dram_bytes": "byte", "bytes": "byte", "memory": "byte", "allocated": "byte", "flops": "flop",
}  # fmt: skip

SAME_COUNT = 1e-9
"""Counts are sums of floats: how far two sums of the same numbers may be apart, as a share."""

UNKNOWN, SAME, NOT_SHOWN, MORE, LESS = "not known", "the same", "no change shown", "more", "less"


@dataclass(frozen=True)
class Change:
    """One measure before and after, in its base unit; None where unknown, 0 where the kernel did not run.

    `low` and `high` bound new / base with 95 % confidence; None where the noise is not known: fewer than two samples
    on a side, averages, or samples that do not differ at all. `unlike` says why two numbers are no change.
    """

    measure: str
    base: float | None
    new: float | None
    low: float | None = None
    high: float | None = None
    basis: str | None = None
    unlike: str = ""

    @property
    def growth(self) -> float | None:
        """(new - base) / base, infinite from 0 to anything; None where it is not known."""
        if self.base is None or self.new is None or self.unlike:
            return None
        if self.base == self.new:
            return 0.0
        return (self.new - self.base) / self.base if self.base else math.inf

    @property
    def ratio(self) -> float | None:
        """New / base; None where it is not known, or the base is 0."""
        return None if self.growth is None or not self.base else 1.0 + self.growth

    @property
    def outcome(self) -> str:
        """`MORE`, `LESS`, `SAME`, `NOT_SHOWN` where the interval holds 1, or `UNKNOWN`."""
        if self.growth is None:
            return UNKNOWN
        if abs(self.growth) <= SAME_COUNT:
            return SAME
        if self.low is not None and self.high is not None and self.low <= 1 <= self.high:
            return NOT_SHOWN
        return MORE if self.growth > 0 else LESS

    @property
    def noise_is_known(self) -> bool:
        """Whether the change is exact, or has an interval."""
        return self.measure in EXACT or self.low is not None


@dataclass(frozen=True)
class Subject:
    """What a gate is held against: a run, a kernel, a layer or a point, by the names that it has or had.

    `unheld` says why there is no growth to hold to a limit, `missing` why the new run lacks a number that it should
    have; both are empty where there is one.
    """

    names: tuple[str, ...]
    changes: dict[str, Change]
    unheld: str = ""
    missing: str = ""


@dataclass
class Subjects:
    """Everything of one comparison that gates may name, each a `noun`.

    A gate that names nothing is held against the `whole`, and where that is None against each of `every`. `lacks` has
    reasons for measures that do not exist here.
    """

    noun: str
    every: list[Subject]
    whole: Subject | None = None
    lacks: dict[str, str] = field(default_factory=dict)


def sentence(change: Change) -> str:
    """The numbers of a change: "time 1.2 ms -> 1.4 ms: +16.7 % [+12.1 %, +21.4 %]"."""
    shown: Callable[[float], str] = FORMATS[KINDS[change.measure]] if change.measure in KINDS else lambda n: f"{n:,.0f}"
    before, after = ("not known" if value is None else shown(value) for value in (change.base, change.new))
    noise = "" if change.noise_is_known else ", noise not known"
    return f"{change.measure} {before} -> {after}: {growth_text(change) or 'not known'}{noise}"


def growth_text(change: Change) -> str | None:
    """A change in per cent with its interval, "+5.2 % [+3.1 %, +7.4 %]"; None where it is not known."""
    if change.growth is None:
        return None
    if math.isinf(change.growth):
        return "from nothing"
    interval = (
        "" if change.low is None or change.high is None else f" [{signed(change.low - 1)}, {signed(change.high - 1)}]"
    )
    return signed(change.growth) + interval


def signed(fraction: float) -> str:
    """A fraction as per cent with its sign, and as many digits as a small change needs to be seen."""
    if fraction == 0:
        return "0 %"
    return f"{100 * fraction:+.1f} %" if abs(fraction) >= 0.001 else f"{100 * fraction:+.1g} %"


def shortened(words: Sequence[str], most: int) -> list[str]:
    """The first words, and how many more there are."""
    return [*words[:most], *([f"and {len(words) - most} more"] if len(words) > most else [])]
