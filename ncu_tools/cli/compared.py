"""What every kind of comparison gives to the command: its table, what gates are held against, and its sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ncu_tools.report.table import Column, Table

if TYPE_CHECKING:
    from ncu_tools.changes import Change, Subjects
    from ncu_tools.selection import Selection

RUN = Column("run", "run", wide=True)
VERDICTS = {"more": "more time", "less": "less time"}


@dataclass(frozen=True)
class Asked:
    """What the command was asked: the runs, of which the first is the base, and how to compare and show them."""

    runs: tuple[str, ...]
    layers: bool = False
    depth: int | None = None
    across: tuple[str, ...] = ()
    by: str | None = None
    top: int | None = None
    gated: bool = False
    anyway: bool = False
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
    """The ratio of each measure, its interval, and the change in per cent where both sides have it."""
    from ncu_tools.changes import growth_text

    cells: dict[str, Any] = {}
    for measure, change in changes.items():
        cells |= {f"{measure}_ratio": change.ratio}
        cells |= {f"{measure}_ratio_low": change.low, f"{measure}_ratio_high": change.high}
        cells |= {f"{measure}_change": growth_text(change) if in_both else None}
    return cells


def verdict(change: Change, *, is_new: bool, is_gone: bool, words: Mapping[str, str] = VERDICTS) -> str | None:
    """What a change of time comes to; None where it is not known."""
    if is_new or is_gone:
        return "new" if is_new else "gone"
    if change.growth is None:
        return None
    noise = "" if change.noise_is_known or change.outcome == "the same" else ", noise not known"
    return words.get(change.outcome, change.outcome) + noise
