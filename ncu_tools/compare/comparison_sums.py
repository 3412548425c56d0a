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
from ncu_tools.numbers.statistics import Moments, of_single_launches
from ncu_tools.runs.loading import OnDisk, Run
from ncu_tools.runs.partition_sums import OF_GROUPS, batches_for_sums, notes_of_reports, sums_of_run

SCATTERED = ("duration_ns", "dram_bytes")
"""The columns that scatter between launches of the same signature."""


FEWEST_DIGITS = 3
"""Significant digits of a number of at least 1 with two decimals, as ncu prints them."""


def printed_steps(values: Floats) -> Floats:
    """The step of the last printed digit of each value if it has three digits, else 0; float64, one per value."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = 10.0 ** (np.floor(np.log10(values)) + 1 - FEWEST_DIGITS)
        whole = values / steps
        return np.where(np.abs(whole - np.round(whole)) < 1e-7, steps, 0.0)


@dataclass
class SignatureSums:
    """Totals and scatter per launch signature, in the order of first launches.

    Failed launches are left out. `observed` are the conditions of all launches. `steps` (float64, one per signature)
    bounds the rounding of values printed with three digits; 0 if any value has more.
    """

    sums: KernelSums[LaunchSignature] = field(default_factory=KernelSums)
    moments: dict[str, Moments] = field(default_factory=lambda: {key: Moments(*np.empty((3, 0))) for key in SCATTERED})
    steps: dict[str, Floats] = field(default_factory=lambda: {column: np.empty(0) for column in SCATTERED})
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


def signature_sums_of_run(run: OnDisk | Run) -> SignatureSums:
    """The totals of a run; Parquet files are read in batches, and a dataset is summed by its engine.

    Raises `NcuBenchError` as `sums_of_run` does.
    """
    return sums_of_run(run, SignatureSums, partial(batches_for_sums, others=OF_GROUPS["signature"]))
