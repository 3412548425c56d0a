"""The share of the time in kernels without a category, and the largest of these."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import tables

from ncu_tools.kernels.names.categories import OTHER, decision_of
from ncu_tools.kernels.names.kernel_titles import function_path
from ncu_tools.numbers.number_format import percent
from ncu_tools.numbers.row_sums import RowSums, Sum

MOST_NAMED = 4


class NoCategory(NamedTuple):
    """A kernel without a category: its kind, such as FFT, if `is_kind`, else the name of its function."""

    name: str
    is_kind: bool


class Uncategorised(RowSums[NoCategory]):
    """Times of a run's kernels without a category, in s, added in batches of launches."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self._times = Sum(self.rows)

    def add(self, launches: pa.Table) -> None:
        """Add launches; failed ones, and launches without a time, do not count."""
        succeeded = ~(tables.floats(launches, "failed") > 0)
        times = np.nan_to_num(tables.floats(launches, "duration_ns") / 1e9)
        seconds = np.where(succeeded, times * tables.launch_counts(launches), 0.0)
        self.seconds += float(seconds.sum())
        codes, names = tables.codes(launches, "kernel_name")
        of_operators, operators = tables.codes(launches, "operator")
        pairs, numbers = np.unique(codes.astype(np.int64) * len(operators) + of_operators, return_inverse=True)
        found = [_without_category(names[pair // len(operators)] or "?", operators[pair % len(operators)])
                 for pair in pairs.tolist()]  # fmt: skip
        mine = np.array([one is not None for one in found], bool)[numbers]
        self.rows.use([one or NOTHING for one in found], numbers)
        self._times.add(seconds, mine)

    def notes(self) -> list[str]:
        """The notes; none if every kernel has a category, or no time is known."""
        if not self.seconds:
            return []
        notes = []
        sentences = {False: "in kernels whose names say no category", True: "of kinds that are no category"}
        for is_kind, sentence in sentences.items():
            times = self.times(is_kind=is_kind)
            if times:
                share = percent(sum(times.values()) / self.seconds)
                notes.append(f"{share} of the time is {sentence}: {self._largest(times)}")
        return notes

    def times(self, *, is_kind: bool) -> dict[str, float]:
        """The positive times of kernels with a known kind, or of all others, by `NoCategory.name`."""
        found = zip(self.titles, self._times.values.tolist(), strict=True)
        return {row.name: time for row, time in found if row.is_kind == is_kind and time}

    def _largest(self, times: dict[str, float]) -> str:
        ordered = sorted(times.items(), key=lambda one: (-one[1], one[0]))
        named = [f"{name} {percent(time / self.seconds)}" for name, time in ordered[:MOST_NAMED]]
        rest = ordered[MOST_NAMED:]
        if rest:
            named.append(f"{len(rest)} more {percent(sum(time for _, time in rest) / self.seconds)}")
        return ", ".join(named)


NOTHING = NoCategory("", is_kind=False)
"""The row of all kernels with a category; nothing is added to it."""


def _without_category(kernel: str, operator: str | None) -> NoCategory | None:
    """The row of a kernel; None if it has a category."""
    decision = decision_of(kernel, operator)
    if decision.category != OTHER:
        return None
    return NoCategory(decision.kind or function_path(kernel), is_kind=bool(decision.kind))


def notes_on_other(launches: pa.Table) -> list[str]:
    """The notes on a whole table of launches."""
    found = Uncategorised()
    found.add(launches)
    return found.notes()
