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
from ncu_tools.model.layers.layers import NEEDED, LayerRows
from ncu_tools.numbers.merged_by_field import MergedByField
from ncu_tools.runs.partition_sums import in_batches, notes_of_reports, sums_of_run
from ncu_tools.runs.run import Run

OF_LAYERS = {*NEEDED, *OF_LAUNCHES, *OF_TIMES, "sm_clock_hz", "grid", "block"}


@dataclass
class LayerSums(MergedByField):
    """The launches of a run as rows for its layers, their conditions, and notes on reading.

    Memory grows with kernels x modules x iterations, not with the number of ranks.
    """

    layers: LayerRows = field(default_factory=LayerRows)
    observed: Observed = field(default_factory=Observed)
    reports: dict[str, None] = field(default_factory=dict)
    work: LayerWork = field(default_factory=LayerWork)

    def add(self, table: pa.Table) -> None:
        """Add launches."""
        self.observed.add(table)
        self.reports |= notes_of_reports(table)
        self.work.add(table)
        self.layers.add(table)

    @property
    def launches(self) -> pa.Table:
        """The rows as a table of launches."""
        return self.layers.table()


@dataclass
class CategorySums(LayerSums):
    """As `LayerSums`, with the categories of kernels in place of layers, and no phases."""

    uncategorised: Uncategorised = field(default_factory=Uncategorised)

    def add(self, table: pa.Table) -> None:
        """Add launches."""
        self.uncategorised.add(table)
        # The work of an operator call is stored in its first kernel, whose category may differ from the work's.
        table = table.drop_columns([name for name in OF_OPERATOR_WORK if name in table.column_names])
        codes, categories = categories_in(table)
        column = pa.DictionaryArray.from_arrays(arrays.indices(codes.astype(np.int32)), arrays.texts(categories))
        replaced = {"module": column, "phase": pa.nulls(len(table), table.schema.field("phase").type)}
        for name, values in replaced.items():
            table = table.set_column(table.schema.get_field_index(name), name, values)
        super().add(table)


def layers_of_run(run: Run) -> LayerSums:
    """The layers of a run; Parquet files are read in batches, and a dataset is read by its engine.

    Raises `NcuBenchError` as `sums_of_run` does.
    """
    return sums_of_run(run, LayerSums, in_batches(OF_LAYERS))


def categories_of_run(run: Run) -> CategorySums:
    """The categories of a run, read as `layers_of_run` reads layers."""
    return sums_of_run(run, CategorySums, in_batches({*OF_LAYERS, *OF_CATEGORIES}))
