"""Sentences on levers, each made by one function, so that commands, pages and digests word them alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ncu_tools.advice.advise import KernelAdvice, LeverAdvice
from ncu_tools.advice.situation.model import SavedShare
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.numbers.number_format import digits, duration, percent

WRITTEN = {"fraction": percent, "ns": duration}
"""Unit -> how its numbers are written; other numbers are followed by their unit."""
MOST_WRITTEN = 0.99
"""Larger shares are written as "over 99", as a kernel that still runs takes some time."""
NAMED = 3
"""Most levers that the sentence on a kernel names."""


def interval(saves: SavedShare, of: str = "") -> str:
    """A saving in percent of the kernel's time: "18 to 31 %, likely 24 %"; `of` follows the first "%"."""
    low, middle, high = (f"{100 * share:.0f}" if share <= MOST_WRITTEN else "over 99" for share in saves)
    return f"{low} to {high} %{of}, likely {middle} %"


def number_of(quantity: str, value: float, unit: str) -> str:
    """A number of evidence, with its unit unless its name has it: "registers of a thread: 64"."""
    if unit in WRITTEN:
        return f"{quantity}: {WRITTEN[unit](value)}"
    return f"{quantity}: {digits(value)} {'' if unit in quantity else unit}".rstrip()


def lever_in_words(one: LeverAdvice) -> str:
    """A lever with its saving, and the first number of its evidence."""
    shown = [number_of(each.quantity, each.value, each.unit) for each in one.evidence[:1]]
    return f"{one.title} saves {interval(one.saves)}{f' ({shown[0]})' if shown else ''}"


def first_lever(advice: KernelAdvice) -> str:
    """The first lever that is worth it and keeps the kernel, with its saving; else why there is none."""
    worth = advice.that_keep_it
    return f"{worth[0].title} saves {interval(worth[0].saves)}" if worth else advice.reason


def advice_in_words(advice: KernelAdvice) -> str:
    """The first levers that are worth it and keep the kernel; else why there are none, and the best lever apart."""
    worth = advice.that_keep_it[:NAMED]
    if worth:
        return "; ".join(map(lever_in_words, worth))
    apart = next((one for one in advice.levers if one.is_worth_it and one.is_apart), None)
    return "; ".join([advice.says, *([f"apart: {lever_in_words(apart)}"] if apart is not None else [])])


def sentence_on(advice: KernelAdvice) -> str:
    """As `advice_in_words`, preceded by what it is about."""
    return f"{'levers' if advice.that_keep_it else 'no lever counts'}: {advice_in_words(advice)}"


def first_of_run(found: Iterable[KernelAdvice]) -> str | None:
    """The lever that saves most of a run and keeps its kernel, with its kernel and times; None if there is none."""
    best = saves_most(found)
    return None if best is None else f"{readable_name(best.kernel.name)}: {saved_of_run(best)}"


def saves_most(found: Iterable[KernelAdvice]) -> KernelAdvice | None:
    """The kernel whose first lever saves most time of the run; None where no kernel has a lever."""
    best = [one for one in found if one.that_keep_it]
    return max(best, key=lambda one: one.that_keep_it[0].saves.middle * one.kernel.total_ns, default=None)


def saved_of_run(advice: KernelAdvice) -> str:
    """The first lever that keeps the kernel: its share of the kernel's time, and its time of the run."""
    lever = advice.that_keep_it[0]
    low, high = (duration(share * advice.kernel.total_ns) for share in (lever.saves.low, lever.saves.high))
    return f"{lever_in_words(lever)}: {low} to {high} of the run"


def rows_of_levers(advice: KernelAdvice | None) -> list[dict[str, Any]]:
    """A row of plain values for each lever on a kernel that may save time, in order."""
    return [
        {
            "lever": one.lever,
            "title": one.title,
            "saves_share": one.saves.middle,
            "saves_low": one.saves.low,
            "saves_high": one.saves.high,
            "is_apart": one.is_apart,
            "evidence": [asdict(each) for each in one.evidence],
        }
        for one in (advice.levers if advice else ())
        if not one.pulled.nothing
    ]
