"""What every kind of comparison gives to the command: its table, what gates are held against, and its sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ncu_tools.report.table import Column, Table

if TYPE_CHECKING:
    from ncu_tools.compare.change import Change, Subjects
    from ncu_tools.runs.selection import Selection

RUN = Column("run", "run", wide=True)
LONG_BEGINNING = 12
"""So many letters that the names of all runs begin with are left out of narrow columns."""
VERDICTS = {"more": "more time", "less": "less time"}


@dataclass(frozen=True)
class CompareOptions:
    """How to compare: `layers` down to `depth`, calls of `operators`, points `across` dimensions, kernels by `pairs`.

    `by` is the order of the rows, of which `top` are shown; `anyway` compares what is refused without it.
    """

    layers: bool = False
    operators: bool = False
    depth: int | None = None
    across: tuple[str, ...] = ()
    by: str | None = None
    top: int | None = None
    anyway: bool = False
    pairs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Asked:
    """What the command was asked: the runs, of which the first is the base, and how to compare and show them."""

    runs: tuple[str, ...]
    how: CompareOptions = CompareOptions()
    gated: bool = False
    dask: str | None = None
    machine_readable: bool = False
    only: Selection | None = None


@dataclass
class Compared:
    """A comparison as it is shown. `subjects` are those of each new side by its name."""

    table: Table
    subjects: dict[str, Subjects]
    sentences: list[str] = field(default_factory=list)


def change_cells(changes: Mapping[str, Change], *, in_both: bool) -> dict[str, Any]:
    """The ratio of each measure, its interval, and in words the change and its outcome where both sides have it."""
    from ncu_tools.compare.change import UNKNOWN, growth_text, verdict_text

    cells: dict[str, Any] = {}
    for measure, change in changes.items():
        cells |= {f"{measure}_ratio": change.ratio}
        cells |= {f"{measure}_ratio_low": change.low, f"{measure}_ratio_high": change.high}
        words = growth_text if measure == "time" else verdict_text
        cells |= {f"{measure}_change": words(change) if in_both else None}
        cells |= {f"{measure}_verdict": change.outcome if in_both and change.outcome != UNKNOWN else None}
    return cells


def verdict(change: Change, *, is_new: bool, is_gone: bool, words: Mapping[str, str] = VERDICTS) -> str | None:
    """What a change of time comes to; None where it is not known."""
    if is_new or is_gone:
        return "new" if is_new else "gone"
    if change.growth is None:
        return None
    noise = "" if change.noise_is_known or change.outcome == "same" else ", noise not known"
    return words.get(change.outcome, change.outcome) + noise


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """As few of the last parts of each path as tell all of them apart, without a long beginning that all have."""
    parts = {path: path.rstrip("/").split("/") for path in paths}
    for count in range(1, 1 + max(map(len, parts.values()))):
        names = {path: "/".join(each[-count:]) for path, each in parts.items()}
        if len(set(names.values())) == len(names):
            return _without_beginning(names)
    return {path: path for path in paths}


def _without_beginning(names: dict[str, str]) -> dict[str, str]:
    letters = zip(*names.values(), strict=False)
    alike = "".join(each[0] for each in takewhile(lambda each: len(set(each)) == 1, letters))
    whole_words = re.match(r".*[^a-zA-Z0-9.]", alike)
    cut = whole_words.end() if whole_words else 0
    return {path: f"…{name[cut:]}" for path, name in names.items()} if cut > LONG_BEGINNING else names
