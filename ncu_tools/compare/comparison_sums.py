"""Totals per launch signature (kernel, grid, block, NVTX range): the input of `compare`.

Memory grows with the number of signatures, not of launches, and totals of several files can be merged, so runs of any
size can be compared.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import Floats, drop_failed

from ncu_tools.compare.run_conditions import Observed
from ncu_tools.kernels.kernel_sums import KernelSums, Launches
from ncu_tools.kernels.matching.launch_signatures import (
    Codes,
    LaunchSignature,
    Signatures,
    signatures_in,
    signatures_of,
)
from ncu_tools.kernels.operator_work import OF_INPUTS
from ncu_tools.numbers.row_sums import Accumulator, Chosen, Family, RowNumbers, Sum
from ncu_tools.numbers.statistics import Estimate, Moments, mean_of, of_single_launches
from ncu_tools.runs.partition_sums import OF_GROUPS, batches_for_sums, notes_of_reports, sums_of_run
from ncu_tools.runs.run import Run

SCATTERED = ("duration_ns", "dram_bytes")
"""The columns that scatter between launches of the same signature."""

LEAST_ITERATIONS = 2
MOST_KEPT = 1 << 18
"""Most stored sums of signatures in iterations; in a larger run, the noise is estimated from launches."""

FEWEST_DIGITS = 3
"""Significant digits of a number of at least 1 with two decimals, as ncu prints them."""


def printed_steps(values: Floats) -> Floats:
    """The step of the last printed digit of each value if it has three digits, else 0; float64, one per value."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = 10.0 ** (np.floor(np.log10(values)) + 1 - FEWEST_DIGITS)
        whole = values / steps
        return np.where(np.abs(whole - np.round(whole)) < 1e-7, steps, 0.0)


LAUNCHES = "launches"


class IterationSums(Accumulator):
    """The sums of `SCATTERED` columns and the launches of each signature, by its number, in each iteration.

    Launches of an iteration are slow together, so the scatter of whole iterations describes a run's noise better than
    the scatter of single launches. Nothing is `known` if a launch has no iteration, or if there are too many.
    """

    def __init__(self) -> None:
        self._rows: RowNumbers[tuple[int, int]] = RowNumbers()
        self._sums = Family(partial(Sum, self._rows))
        self.known = True

    def add(self, table: pa.Table, signatures: Codes) -> None:
        """Add launches with the signature of each."""
        named = tables.floats(table, "iteration")
        self.known &= not np.isnan(named).any()
        if self.known:
            keys, place = np.unique(np.stack([signatures, named.astype(np.int64)]), axis=1, return_inverse=True)
            self._rows.use([(signature, iteration) for signature, iteration in keys.T.tolist()], place.reshape(-1))
            for column in SCATTERED:
                self._sums.made(column).add(of_single_launches(table, column))
            self._sums.made(LAUNCHES).count(np.ones(len(table)))
        self._forget_many()

    def merge(self, other: IterationSums, numbers: Codes) -> None:
        """Merge later launches into these; signature i of `other` is signature `numbers[i]` here."""
        self.known &= other.known
        if self.known:
            theirs = [(int(numbers[signature]), iteration) for signature, iteration in other._rows.numbers]
            self._sums.merge(other._sums, self._rows.use(theirs))
        self._forget_many()

    def _forget_many(self) -> None:
        self.known &= len(self._rows) <= MOST_KEPT
        if not self.known:
            self._rows = RowNumbers()
            self._sums = Family(partial(Sum, self._rows))

    def of_groups(self, column: str, groups: Codes, count: int, weights: Floats | None = None) -> Floats | None:
        """The sums of groups of signatures in each iteration: float64, shape (iterations, groups).

        `groups` has the group of each signature, of `count`, and `weights` the factors of its launches. None unless
        there are two iterations or more.
        """
        keys = np.array(list(self._rows.numbers), np.int64).reshape(-1, 2)
        iterations, place = np.unique(keys[:, 1], return_inverse=True)
        if not self.known or len(iterations) < LEAST_ITERATIONS:
            return None
        amounts = self._sums[column].values
        if weights is not None:
            weight = weights[keys[:, 0]]
            amounts = np.where(weight > 0, amounts * weight, 0.0)
        found = np.zeros((len(iterations), count))
        np.add.at(found, (place, groups[keys[:, 0]]), amounts)
        return found

    def total(self, column: str, signatures: int) -> Estimate | None:
        """The sum over all iterations with its variance; None for fewer than two iterations."""
        each = self.of_groups(column, np.zeros(signatures, np.int64), 1)
        if each is None:
            return None
        mean, variance, freedom = mean_of(each[:, 0])
        return len(each) * mean, len(each) ** 2 * variance, freedom


class Scatter(Accumulator):
    """The moments of a value of the launches of each signature."""

    def __init__(self, rows: RowNumbers[Any]) -> None:
        self._rows = rows
        self.moments = Moments(*np.empty((3, 0)))

    def add(self, moments: Moments, numbers: Codes) -> None:
        """Add moments for the signatures with these numbers."""
        self.moments = self.moments.behind(moments, numbers, len(self._rows))

    def merge(self, other: Scatter, numbers: Codes) -> None:
        """See `Accumulator.merge`."""
        self.add(other.moments, numbers)


class SignatureSums(KernelSums[LaunchSignature]):
    """Totals and scatter per launch signature, in the order of first launches, and per whole iteration.

    Failed launches are left out. `observed` are the conditions of all launches. `steps` bounds the rounding of values
    printed with three digits, per signature; 0 if any value has more.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scatter = Family(partial(Scatter, self.rows))
        self.steps = Family(partial(Chosen, self.rows, np.fmin.at))
        self.iterations = IterationSums()
        self.observed = Observed()
        self.reports: dict[str, None] = {}

    @property
    def are_calls(self) -> bool:
        """True if they are of calls of operators, which have their inputs in the place of a range."""
        ranges = self.signatures.ranges
        return any(isinstance(path, tuple) and path[:1] and path[0].startswith(OF_INPUTS) for path in ranges)

    def add(self, table: pa.Table) -> None:
        """Add launches."""
        self.observed.add(table)
        self.reports |= notes_of_reports(table)
        succeeded = drop_failed(table)
        codes, signatures = signatures_in(succeeded)
        self.add_launches(Launches(succeeded), codes, signatures)
        numbers = self.rows.use(signatures)
        self.iterations.add(succeeded, numbers[codes])
        for column in SCATTERED:
            moments = Moments.of(of_single_launches(succeeded, column), codes, len(signatures))
            self.scatter.made(column).add(moments, numbers)
            self.steps.made(column).add(numbers[codes], printed_steps(tables.floats(succeeded, column)))

    def totals(self, measure: str) -> Floats:
        """The sum of "time" (ns), "flops" or "dram_bytes", one per signature; NaN if a launch lacks it."""
        if measure == "time":
            return self.times.whole(self.launches) * 1e9
        return (self.flops if measure == "flops" else self.dram).whole(self.launches)

    @property
    def signatures(self) -> Signatures:
        """The signatures as columns."""
        return signatures_of(self.titles)


def signature_sums_of_run(run: Run) -> SignatureSums:
    """The totals of a run; Parquet files are read in batches, and a dataset is summed by its engine.

    Raises `NcuBenchError` as `sums_of_run` does.
    """
    return sums_of_run(run, SignatureSums, partial(batches_for_sums, others=OF_GROUPS["signature"]))
