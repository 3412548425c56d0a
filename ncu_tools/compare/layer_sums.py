"""A run condensed to rows for its layers, file by file, so that layers of runs of any size can be compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from ncu_parsers.parquet.reader import launch_batches

from ncu_tools.compare.run_conditions import OF_LAUNCHES, Observed
from ncu_tools.kernels.operator_times import NEEDED as OF_TIMES
from ncu_tools.model.layers.layers import NEEDED, condensed
from ncu_tools.runs.loading import OnDisk, Run
from ncu_tools.runs.partition_sums import notes_of_reports, sums_of_run


@dataclass
class LayerSums:
    """The condensed launches of a run (see `layers.condensed`), their conditions, and notes on reading.

    Memory grows with kernels x modules x iterations, not with the number of ranks.
    """

    table: pa.Table | None = None
    observed: Observed = field(default_factory=Observed)
    reports: dict[str, None] = field(default_factory=dict)

    def add(self, table: pa.Table) -> None:
        """Add launches."""
        self.observed.add(table)
        self.reports |= notes_of_reports(table)
        self._append(condensed(table))

    def merge(self, other: LayerSums) -> None:
        """Merge later launches into these."""
        self.observed.merge(other.observed)
        self.reports |= other.reports
        if other.table is not None:
            self._append(other.table)

    @property
    def launches(self) -> pa.Table:
        """The condensed launches. Raises `ValueError` before any were added."""
        if self.table is None:
            raise ValueError("no launches were added")
        return self.table

    def _append(self, more: pa.Table) -> None:
        self.table = more if self.table is None else condensed(_joined(self.table, more))


def _joined(table: pa.Table, more: pa.Table) -> pa.Table:
    return pa.concat_tables([table, more], promote_options="permissive").unify_dictionaries().combine_chunks()


def layers_of_run(run: OnDisk | Run) -> LayerSums:
    """The layers of a run; Parquet files are read in batches, and a dataset is read by its engine.

    Raises `NcuBenchError` as `sums_of_run` does.
    """
    return sums_of_run(
        run, LayerSums, partial(launch_batches, columns={*NEEDED, *OF_LAUNCHES, *OF_TIMES, "sm_clock_hz"})
    )
