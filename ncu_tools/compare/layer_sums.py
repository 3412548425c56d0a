"""A run condensed to rows for its layers, file by file, so that layers of runs of any size can be compared."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import arrays

from ncu_tools.compare.layer_work import LayerWork
from ncu_tools.compare.run_conditions import OF_LAUNCHES, Observed
from ncu_tools.kernels.names.categories import NEEDED as OF_CATEGORIES
from ncu_tools.kernels.names.categories import categories_in
from ncu_tools.kernels.names.uncategorised import Uncategorised
from ncu_tools.kernels.operator_times import NEEDED as OF_TIMES
from ncu_tools.kernels.operator_work import OF_OPERATOR_WORK
from ncu_tools.model.layers.layers import NEEDED, condensed
from ncu_tools.numbers.merged_by_field import MergedByField
from ncu_tools.runs.partition_sums import in_batches, notes_of_reports, sums_of_run
from ncu_tools.runs.run import Run

OF_LAYERS = {*NEEDED, *OF_LAUNCHES, *OF_TIMES, "sm_clock_hz", "grid", "block"}


@dataclass
class LayerSums(MergedByField):
    """The condensed launches of a run (see `layers.condensed`), their conditions, and notes on reading.

    Memory grows with kernels x modules x iterations, not with the number of ranks.
    """

    table: pa.Table | None = None
    observed: Observed = field(default_factory=Observed)
    reports: dict[str, None] = field(default_factory=dict)
    work: LayerWork = field(default_factory=LayerWork)

    def add(self, table: pa.Table) -> None:
        """Add launches."""
        self.observed.add(table)
        self.reports |= notes_of_reports(table)
        self.work.add(table)
        self._append(condensed(table))

    def merge(self, other: LayerSums) -> None:
        """Merge later launches into these."""
        super().merge(other)
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


@dataclass
class CategorySums(LayerSums):
    """As `LayerSums`, with the categories of kernels in the place of layers, and no phases."""

    uncategorised: Uncategorised = field(default_factory=Uncategorised)

    def add(self, table: pa.Table) -> None:
        """Add launches."""
        self.uncategorised.add(table)
        # The work of an operator call stands in its first kernel, which may be of another category than the work.
        table = table.drop_columns([name for name in OF_OPERATOR_WORK if name in table.column_names])
        codes, categories = categories_in(table)
        column = pa.DictionaryArray.from_arrays(arrays.indices(codes.astype(np.int32)), arrays.texts(categories))
        replaced = {"module": column, "phase": pa.nulls(len(table), table.schema.field("phase").type)}
        for name, values in replaced.items():
            table = table.set_column(table.schema.get_field_index(name), name, values)
        super().add(table)


def _joined(table: pa.Table, more: pa.Table) -> pa.Table:
    return pa.concat_tables([table, more], promote_options="permissive").unify_dictionaries().combine_chunks()


def layers_of_run(run: Run) -> LayerSums:
    """The layers of a run; Parquet files are read in batches, and a dataset is read by its engine.

    Raises `NcuBenchError` as `sums_of_run` does.
    """
    return sums_of_run(run, LayerSums, in_batches(OF_LAYERS))


def categories_of_run(run: Run) -> CategorySums:
    """The categories of a run, read as `layers_of_run` reads layers."""
    return sums_of_run(run, CategorySums, in_batches({*OF_LAYERS, *OF_CATEGORIES}))
