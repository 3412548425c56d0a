"""Advice on the rows of a table of kernels, for any grouping of launches and any number of them.

The advice on a row is that on its kernel with most time, at one block size and about one grid size. Launches are
measured batch by batch; of each batch only the kernel with most time of each row is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.metric_forms import with_every_form

from ncu_tools.advice.advise import KernelAdvice, advice_on, doubts_of
from ncu_tools.advice.situation.code_facts import CodeFacts, facts_of_instructions, facts_of_opcodes
from ncu_tools.advice.situation.contradictions import metrics_of_contradictions
from ncu_tools.advice.situation.measured import COLUMNS, MeasuredKernel, measured_kernels, quantities
from ncu_tools.advice.situation.utilisation import metrics_of_resources
from ncu_tools.kernels.diagnosis.rule_texts import RULES
from ncu_tools.kernels.diagnosis.sums import CONTRACT_COLUMNS, diagnosis_metrics
from ncu_tools.kernels.grouping import rows_of
from ncu_tools.kernels.kernel_row import Hotspot
from ncu_tools.kernels.source.inside_of_run import PER_INSTRUCTION
from ncu_tools.kernels.source.instruction_mix import COLUMNS as OPCODES
from ncu_tools.numbers.number_format import counted
from ncu_tools.runs.partition_sums import OF_GROUPS, in_batches, notes_of_reports, sums_of_run
from ncu_tools.runs.run import Run

COUNTED_BY = "ncu"
"""Prefix of the column `source` for launches with counters."""


class HeaviestKernels:
    """For each row of a grouping, its kernel with most time, and its code; `columns` are those of launches."""

    def __init__(self, group: str) -> None:
        self.reports: dict[str, None] = {}
        self._group = group
        self.columns: dict[str, None] = {}
        self._heaviest: dict[str, tuple[MeasuredKernel, CodeFacts | None]] = {}

    def add(self, launches: pa.Table) -> None:
        """Measure the kernels of these launches, and keep the one with most time of each row."""
        self.reports |= notes_of_reports(launches)
        self.columns |= dict.fromkeys(launches.column_names)
        codes, sources = tables.codes(launches, "source")
        by_ncu = np.array([(source or "").startswith(COUNTED_BY) for source in sources], bool)[codes]
        launches = launches if by_ncu.all() else arrays.kept(launches, by_ncu)
        if not len(launches):
            return
        numbers, titles = rows_of(launches, self._group)
        code = facts_of_opcodes(launches)
        for one in measured_kernels(launches, numbers):
            self._keep(titles[one.row], one, code.get(one.name))

    def merge(self, other: HeaviestKernels) -> None:
        """Merge the kernels of later launches into these."""
        self.reports |= other.reports
        self.columns |= other.columns
        for row, (kernel, code) in other._heaviest.items():
            self._keep(row, kernel, code)

    def _keep(self, row: str, kernel: MeasuredKernel, code: CodeFacts | None) -> None:
        if row not in self._heaviest or kernel.total_ns > self._heaviest[row][0].total_ns:
            self._heaviest[row] = kernel, code

    def advice(self, kernels: Sequence[Hotspot], instructions: pa.Table | None = None) -> dict[str, KernelAdvice]:
        """The advice on each row that has a launch with counters, by `Hotspot.key`."""
        inside = facts_of_instructions(instructions) if instructions is not None else {}
        found = {one.key: self._heaviest[one.key] for one in kernels if one.key in self._heaviest}
        return {key: advice_on(kernel, inside.get(kernel.name, code)) for key, (kernel, code) in found.items()}


def advice_on_rows(
    launches: pa.Table, kernels: Sequence[Hotspot], group: str, instructions: pa.Table | None = None
) -> dict[str, KernelAdvice]:
    """The advice on rows of launches in memory, by `Hotspot.key`; `group` is the grouping of `kernels`."""
    heaviest = HeaviestKernels(group)
    heaviest.add(launches)
    return heaviest.advice(kernels, instructions)


def heaviest_kernels(run: Run, group: str) -> HeaviestKernels:
    """The kernels of a run, with few row groups in memory at a time. Raises `NcuBenchError` as `sums_of_run` does."""
    columns = {*CONTRACT_COLUMNS, *OF_GROUPS[group], *lever_columns()}
    return sums_of_run(run, partial(HeaviestKernels, group), in_batches(columns))


@cache
def lever_columns() -> frozenset[str]:
    """The columns of launches that levers can read, with metrics in every form that a report may use."""
    metrics = {metric for spec in quantities().values() for metric in spec["metrics"]}
    known = with_every_form(metrics | metrics_of_resources() | diagnosis_metrics()) | metrics_of_contradictions()
    return known.union(COLUMNS, OPCODES, PER_INSTRUCTION, {RULES, "source", "failed", "invocations", "grid", "block"})


def without_advice(kernels: Sequence[Hotspot], found: Mapping[str, KernelAdvice]) -> list[str]:
    """Notes on the rows without advice, by reason, and on counters that are contradictory or impossible."""
    silent = [one for one in kernels if one.key not in found]
    failed = sum(not one.launches for one in silent)
    reasons = {
        "all of their launches failed": failed,
        "their launches have no counters of ncu, which is what levers follow from": len(silent) - failed,
    }
    notes = [f"no levers of {counted(many, 'kernel', 'kernels')}: {why}" for why, many in reasons.items() if many]
    return [*notes, *doubts_of([one.kernel for one in found.values()])]
