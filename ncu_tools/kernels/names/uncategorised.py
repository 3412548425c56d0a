"""The share of the time in kernels of no category, and the largest of them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import tables

from ncu_tools.kernels.names.categories import OTHER, decision_of
from ncu_tools.kernels.names.kernel_titles import function_path
from ncu_tools.numbers.merged_by_field import MergedByField
from ncu_tools.numbers.number_format import percent

MOST_NAMED = 4


class Uncategorised(MergedByField):
    """Times of the kernels of a run that are in no category, in s, added in batches of launches.

    `kinds` are those whose kind is known, as FFT, and none of the categories; `names` are all others.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.names: defaultdict[str, float] = defaultdict(float)
        self.kinds: defaultdict[str, float] = defaultdict(float)

    def add(self, launches: pa.Table) -> None:
        """Add launches; failed ones, and those without a time, count for nothing."""
        succeeded = ~(tables.floats(launches, "failed") > 0)
        times = np.nan_to_num(tables.floats(launches, "duration_ns") / 1e9)
        seconds = np.where(succeeded, times * tables.launch_counts(launches), 0.0)
        self.seconds += float(seconds.sum())
        codes, names = tables.codes(launches, "kernel_name")
        of_operators, operators = tables.codes(launches, "operator")
        pairs, numbers = np.unique(codes.astype(np.int64) * len(operators) + of_operators, return_inverse=True)
        for pair, time in zip(pairs.tolist(), np.bincount(numbers, seconds, len(pairs)).tolist(), strict=True):
            name = names[pair // len(operators)] or "?"
            decision = decision_of(name, operators[pair % len(operators)])
            if decision.category == OTHER and time:
                (self.kinds if decision.kind else self.names)[decision.kind or function_path(name)] += time

    def notes(self) -> list[str]:
        """In sentences; none where every kernel has a category, or no time is known."""
        if not self.seconds:
            return []
        notes = []
        if self.names:
            share = percent(sum(self.names.values()) / self.seconds)
            notes.append(f"{share} of the time is in kernels whose names say no category: {self._largest(self.names)}")
        if self.kinds:
            share = percent(sum(self.kinds.values()) / self.seconds)
            notes.append(f"{share} of the time is of kinds that are no category: {self._largest(self.kinds)}")
        return notes

    def _largest(self, times: dict[str, float]) -> str:
        ordered = sorted(times.items(), key=lambda one: (-one[1], one[0]))
        named = [f"{name} {percent(time / self.seconds)}" for name, time in ordered[:MOST_NAMED]]
        rest = ordered[MOST_NAMED:]
        if rest:
            named.append(f"{len(rest)} more {percent(sum(time for _, time in rest) / self.seconds)}")
        return ", ".join(named)


def notes_on_other(launches: pa.Table) -> list[str]:
    """The notes on a whole table of launches."""
    found = Uncategorised()
    found.add(launches)
    return found.notes()
