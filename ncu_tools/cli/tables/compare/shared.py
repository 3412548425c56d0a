"""The result of every kind of comparison: its table, the subjects of gates, and its sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ncu_launch.errors import WrongUsage

from ncu_tools.report.columns.registry import column
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    from ncu_tools.numbers.change import Change, Subjects
    from ncu_tools.report.head import Head
    from ncu_tools.runs.selection import Selection

RUN = column("run")
KERNEL, LAYER, OPERATOR, CATEGORY = "kernel", "layer", "operator", "category"
"""Possible rows of compared launches."""
PLACES = ("line", "opcode", "function")
"""Values of --by for comparing inside a kernel."""


@dataclass(frozen=True)
class CompareOptions:
    """How to compare: layers down to `depth`, points `across` dimensions, kernels by `pairs`.

    `group` is the kind of rows, `order` their order, of which `top` are shown; `layers` and `operators` are flags for
    two groups. `anyway` compares what is otherwise refused.
    """

    group: str = KERNEL
    order: str | None = None

    layers: bool = False
    operators: bool = False
    depth: int | None = None
    across: tuple[str, ...] = ()
    top: int | None = None
    anyway: bool = False
    pairs: tuple[str, ...] = ()

    def with_group_of_flags(self) -> CompareOptions:
        """The options with --layers and --operators in `group`. Raises `WrongUsage` for rows of two kinds."""
        named = [self.group] * (self.group != KERNEL) + [LAYER] * self.layers + [OPERATOR] * self.operators
        if len(set(named)) > 1:
            raise WrongUsage(
                f"A row is one of {' and '.join(dict.fromkeys(named))}.",
                "--layers is --by layer, and --operators is --by operator.",
                "Leave one of them out.",
            )
        return replace(self, group=named[0] if named else KERNEL)


@dataclass(frozen=True)
class CompareRequest:
    """The request of the command: the runs, the first of which is the base, and how to compare and show them."""

    runs: tuple[str, ...]
    how: CompareOptions = CompareOptions()
    gated: bool = False
    dask: str | None = None
    machine_readable: bool = False
    only: Selection | None = None


@dataclass
class Compared:
    """A comparison to show. `subjects` maps the name of each new side to its subjects of gates.

    `heads` are the lines of the runs above the table, `first` is the sentence on the largest change below them, `more`
    the command below the sentences.
    """

    table: Table
    subjects: dict[str, Subjects]
    sentences: list[str] = field(default_factory=list)
    heads: Sequence[Head] = ()
    first: str | None = None
    more: str | None = None


def change_cells(changes: Mapping[str, Change], *, in_both: bool) -> dict[str, Any]:
    """For each measure the ratio, its interval, and if both sides have it the change in words and its outcome."""
    from ncu_tools.numbers.change import UNKNOWN, growth_text, verdict_text

    cells: dict[str, Any] = {}
    for measure, change in changes.items():
        cells |= {f"{measure}_ratio": change.ratio}
        cells |= {f"{measure}_ratio_low": change.low, f"{measure}_ratio_high": change.high}
        words = growth_text if measure == "time" else verdict_text
        cells |= {f"{measure}_change": words(change) if in_both else None}
        cells |= {f"{measure}_verdict": change.outcome if in_both and change.outcome != UNKNOWN else None}
    return cells
