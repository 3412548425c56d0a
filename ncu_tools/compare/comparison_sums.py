"""Totals per launch signature (kernel, grid, block, NVTX range): the input of `compare`.

Memory grows with the number of signatures, not of launches, and totals of several files can be merged, so runs of any
size can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import Floats

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.compare.matching.launch_signatures import (
    Codes,
    LaunchSignature,
    Signatures,
    signatures_in,
    signatures_of,
)
from ncu_tools.compare.run_conditions import Observed
from ncu_tools.kernels.kernel_sums import KernelSums, Launches
from ncu_tools.model.layers.layers import drop_failed
from ncu_tools.numbers.statistics import Estimate, Moments, mean_of, of_single_launches
from ncu_tools.runs.partition_sums import OF_GROUPS, batches_for_sums, notes_of_reports, sums_of_run
from ncu_tools.runs.run import Run

SCATTERED = ("duration_ns", "dram_bytes")
"""The columns that scatter between launches of the same signature."""

LEAST_ITERATIONS = 2
MOST_KEPT = 1 << 18
"""Sums of signatures in iterations that are kept; of a run with more, launches tell the noise."""

FEWEST_DIGITS = 3
"""Significant digits of a number of at least 1 with two decimals, as ncu prints them."""


def printed_steps(values: Floats) -> Floats:
    """The step of the last printed digit of each value if it has three digits, else 0; float64, one per value."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = 10.0 ** (np.floor(np.log10(values)) + 1 - FEWEST_DIGITS)
        whole = values / steps
        return np.where(np.abs(whole - np.round(whole)) < 1e-7, steps, 0.0)


LAUNCHES = "launches"


@dataclass
class IterationSums:
    """The sums of `SCATTERED` columns and the launches of each signature, by its number, in each iteration.

    Launches of an iteration are slow together, so that the scatter of whole iterations says more of a run's noise than
    that of its launches, taken one by one. Nothing is `known` if a launch has no iteration, or of too many of them.
    """

    sums: dict[str, dict[tuple[int, int], float]] = field(
        default_factory=lambda: {column: {} for column in (*SCATTERED, LAUNCHES)}
    )
    known: bool = True

    def add(self, table: pa.Table, signatures: Codes) -> None:
        """Add launches with the signature of each."""
        named = tables.floats(table, "iteration")
        if not self.known or np.isnan(named).any():
            self._forget()
            return
        keys, place = np.unique(np.stack([signatures, named.astype(np.int64)]), axis=1, return_inverse=True)
        of_each = [(int(signature), int(iteration)) for signature, iteration in keys.T.tolist()]
        values = {column: of_single_launches(table, column) for column in SCATTERED}
        for column, amounts in (values | {LAUNCHES: np.ones(len(table))}).items():
            found = np.bincount(place.reshape(-1), amounts, len(of_each)).tolist()
            self._take(column, dict(zip(of_each, found, strict=True)))

    def merge(self, other: IterationSums, numbers: Codes) -> None:
        """Merge later launches into these; signature i of `other` is signature `numbers[i]` here."""
        if not self.known or not other.known:
            self._forget()
            return
        for column, more in other.sums.items():
            self._take(column, {(int(numbers[signature]), at): amount for (signature, at), amount in more.items()})

    def _take(self, column: str, more: dict[tuple[int, int], float]) -> None:
        sums = self.sums[column]
        sums |= {key: sums.get(key, 0.0) + amount for key, amount in more.items()}
        if len(sums) > MOST_KEPT:
            self._forget()

    def _forget(self) -> None:
        self.known, self.sums = False, {column: {} for column in self.sums}

    def of_groups(self, column: str, groups: Codes, count: int, weights: Floats | None = None) -> Floats | None:
        """The sums of groups of signatures in each iteration: float64, shape (iterations, groups).

        `groups` has the group of each signature, of `count`, and `weights` what its launches are multiplied by. None
        unless there are two iterations or more.
        """
        keys = np.array(list(self.sums[column]), np.int64).reshape(-1, 2)
        iterations, place = np.unique(keys[:, 1], return_inverse=True)
        if not self.known or len(iterations) < LEAST_ITERATIONS:
            return None
        amounts = np.array(list(self.sums[column].values()))
        if weights is not None:
            weight = weights[keys[:, 0]]
            amounts = np.where(weight > 0, amounts * weight, 0.0)
        found = np.zeros((len(iterations), count))
        np.add.at(found, (place.reshape(-1), groups[keys[:, 0]]), amounts)
        return found

    def total(self, column: str, signatures: int) -> Estimate | None:
        """The sum over all iterations with its variance; None unless it is of two iterations or more."""
        each = self.of_groups(column, np.zeros(signatures, np.int64), 1)
        if each is None:
            return None
        mean, variance, freedom = mean_of(each[:, 0])
        return len(each) * mean, len(each) ** 2 * variance, freedom


@dataclass
class SignatureSums:
    """Totals and scatter per launch signature, in the order of first launches, and those of whole iterations.

    Failed launches are left out. `observed` are the conditions of all launches. `steps` (float64, one per signature)
    bounds the rounding of values printed with three digits; 0 if any value has more.
    """

    sums: KernelSums[LaunchSignature] = field(default_factory=KernelSums)
    moments: dict[str, Moments] = field(default_factory=lambda: {key: Moments(*np.empty((3, 0))) for key in SCATTERED})
    steps: dict[str, Floats] = field(default_factory=lambda: {column: np.empty(0) for column in SCATTERED})
    iterations: IterationSums = field(default_factory=IterationSums)
    observed: Observed = field(default_factory=Observed)
    reports: dict[str, None] = field(default_factory=dict)

    def add(self, table: pa.Table) -> None:
        """Add launches."""
        self.observed.add(table)
        self.reports |= notes_of_reports(table)
        succeeded = drop_failed(table)
        codes, signatures = signatures_in(succeeded)
        self.sums.add(Launches(succeeded, ceilings_of(succeeded)), codes, signatures)
        numbers = self._numbers(signatures)
        self.iterations.add(succeeded, numbers[codes])
        for column, moments in self.moments.items():
            new = Moments.of(of_single_launches(succeeded, column), codes, len(signatures))
            self.moments[column] = moments.behind(new, numbers, len(self.sums.titles))
            self._take_steps(column, numbers[codes], printed_steps(tables.floats(succeeded, column)))

    def merge(self, other: SignatureSums) -> None:
        """Merge the totals of later launches into these; see `KernelSums.merge`."""
        self.sums.merge(other.sums)
        numbers = self._numbers(other.sums.titles)
        for column, moments in self.moments.items():
            self.moments[column] = moments.behind(other.moments[column], numbers, len(self.sums.titles))
            self._take_steps(column, numbers, other.steps[column])
        self.iterations.merge(other.iterations, numbers)
        self.observed.merge(other.observed)
        self.reports |= other.reports

    def _take_steps(self, column: str, numbers: Codes, steps: Floats) -> None:
        known = self.steps[column]
        self.steps[column] = np.concatenate([known, np.full(len(self.sums.titles) - len(known), np.inf)])
        np.minimum.at(self.steps[column], numbers, steps)

    def _numbers(self, signatures: list[LaunchSignature]) -> Codes:
        return np.array([self.sums.number(signature) for signature in signatures], np.int64)

    def totals(self, measure: str) -> Floats:
        """The sum of "time" (ns), "flops" or "dram_bytes", one per signature; NaN if a launch lacks it."""
        if measure == "time":
            is_known = self.sums.of("timed") == self.sums.of("launches")
            return np.where(is_known, self.sums.of("seconds") * 1e9, np.nan)
        return self.sums.total({"flops": "flops", "dram_bytes": "dram"}[measure])

    @property
    def signatures(self) -> Signatures:
        """The signatures as columns."""
        return signatures_of(self.sums.titles)


def signature_sums_of_run(run: Run) -> SignatureSums:
    """The totals of a run; Parquet files are read in batches, and a dataset is summed by its engine.

    Raises `NcuBenchError` as `sums_of_run` does.
    """
    return sums_of_run(run, SignatureSums, partial(batches_for_sums, others=OF_GROUPS["signature"]))
