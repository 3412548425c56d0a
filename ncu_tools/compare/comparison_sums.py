"""A run summed by what its launches do, which is all that it takes to compare it with another one.

Launches of one work have kernel, grid, block and NVTX range in common. What is kept of a run grows with the number of
its works, not with its launches, and what is known of its files can be merged, so that a run of any size is compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import Floats

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.compare.matching.launch_signatures import Codes, Signatures, Work, signatures_of, works_of
from ncu_tools.compare.run_conditions import Observed
from ncu_tools.kernels.kernel_sums import KernelSums, Launches
from ncu_tools.layers.layers import drop_failed
from ncu_tools.numbers.statistics import Moments, of_single_launches
from ncu_tools.runs.loading import OnDisk, Run
from ncu_tools.runs.partition_sums import OF_GROUPS, batches_for_sums, notes_of_reports, sums_of_run

SCATTERED = ("duration_ns", "dram_bytes")
"""The columns that scatter from launch to launch of one work."""


FEWEST_DIGITS = 3
"""Significant digits of a number with two decimals in a unit of which there is at least one, as ncu prints them."""


def _no_moments() -> dict[str, Moments]:
    return {column: Moments(*(np.empty(0) for _ in range(3))) for column in SCATTERED}


def printed_steps(values: Floats) -> Floats:
    """The step of the last digit that a report printed of each value, if it has three digits; 0 of any finer value."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = 10.0 ** (np.floor(np.log10(values)) + 1 - FEWEST_DIGITS)
        is_coarse = np.abs(values / steps - np.round(values / steps)) < 1e-9 * values / steps
    return np.where((values > 0) & is_coarse, steps, 0.0)


@dataclass
class Works:
    """The works of a run in the order of their first launches: what each adds up to, and how its launches scatter.

    Failed launches are left out. `observed` is what all launches say of their conditions, `steps` by how much values of
    a work may be off because their report printed three digits of each; 0 where any has more.
    """

    sums: KernelSums[Work] = field(default_factory=KernelSums)
    moments: dict[str, Moments] = field(default_factory=_no_moments)
    steps: dict[str, Floats] = field(default_factory=lambda: {column: np.empty(0) for column in SCATTERED})
    observed: Observed = field(default_factory=Observed)
    reports: dict[str, None] = field(default_factory=dict)

    def add(self, table: pa.Table) -> None:
        """Take the next launches."""
        self.observed.add(table)
        self.reports |= notes_of_reports(table)
        succeeded = drop_failed(table)
        codes, works = works_of(succeeded)
        self.sums.add(Launches(succeeded, ceilings_of(succeeded)), codes, works)
        numbers = self._numbers(works)
        for column, moments in self.moments.items():
            new = Moments.of(of_single_launches(succeeded, column), codes, len(works))
            self.moments[column] = moments.behind(new, numbers, len(self.sums.titles))
            self._take_steps(column, numbers[codes], printed_steps(tables.floats(succeeded, column)))

    def merge(self, other: Works) -> None:
        """Take the works of the launches that come behind; see `KernelSums.merge`."""
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

    def _numbers(self, works: list[Work]) -> Codes:
        return np.array([self.sums.number(work) for work in works], np.int64)

    def totals(self, measure: str) -> Floats:
        """The sum of "time" (ns), "flops" or "dram_bytes" over the launches of each work; NaN where one lacks it."""
        if measure == "time":
            is_known = self.sums.of("timed") == self.sums.of("launches")
            return np.where(is_known, self.sums.of("seconds") * 1e9, np.nan)
        return self.sums.total({"flops": "flops", "dram_bytes": "dram"}[measure])

    @property
    def signatures(self) -> Signatures:
        """The signature of each work."""
        return signatures_of(self.sums.titles)


def works_of_run(run: OnDisk | Run) -> Works:
    """The works of a run; what is in Parquet is never in memory all at once, and a dataset is summed by its engine.

    Raises `NcuBenchError` as `sums_of_run` does.
    """
    return sums_of_run(run, Works, partial(batches_for_sums, others=OF_GROUPS["work"]))
