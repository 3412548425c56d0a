"""What changed between two runs, layer by layer and phase by phase, per iteration.

Layers match if module path and phase are equal. The numbers of a layer include everything below it. The noise of times
and bytes is the scatter of whole iterations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_launch.nvtx_ranges import RUN_PHASES
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import Floats, drop_failed

from ncu_tools.compare.compare_kernels import COUNTED_DIFFERENTLY, NOT_OF_LAUNCHES, notes_on_conditions
from ncu_tools.compare.layer_sums import CategorySums, LayerSums
from ncu_tools.compare.layer_work import ALL, Row, other_work_of_rows
from ncu_tools.compare.per_launch import OF_ITERATIONS
from ncu_tools.compare.run_conditions import Conditions, differences
from ncu_tools.compare.same_work import OtherWork
from ncu_tools.kernels.grouping import NO_MODULE
from ncu_tools.kernels.names.categories import CATEGORY
from ncu_tools.model.layers.layers import WHOLE, Layer, layers, outside_iterations, sums_by_iteration, whole_run
from ncu_tools.numbers.change import Change, Difference, Refusal, Subject, Subjects, clock_ratio
from ncu_tools.numbers.number_format import counted
from ncu_tools.numbers.statistics import mean_of, ratio_interval

MEASURES = {"launches": "launches", "time": "time_ns", "flops": "flops", "dram_bytes": "dram_bytes"}
"""Measure -> the field of `Layer` with its mean over the iterations."""
VALUES = {"time": "duration_ns", "dram_bytes": "dram_bytes"}
NO_PHASE = ""

Sums = Mapping[str, Mapping[str, Floats]]


@dataclass(frozen=True)
class ComparedLayer:
    """A layer in one phase, of both runs or of one of them (the other is None), with the change of each measure.

    `other_work` are the kernels in which the runs did not do the same work there; empty if sums are compared anyway.
    """

    module: str
    phase: str
    base: Layer | None
    new: Layer | None
    changes: dict[str, Change]
    other_work: OtherWork = field(default_factory=OtherWork)

    @property
    def subject(self) -> Subject:
        """The layer as a subject of gates, named by its path, alone and with its phase in front."""
        missing = "has left the new run" if self.new is None else ""
        name = f"{self.phase} {self.module}" if self.phase else self.module
        return Subject((name, self.module), self.changes, missing=missing, refusal=_refusal(self.other_work))


@dataclass
class LayerComparison:
    """Two runs compared: every layer in every phase, the total, differences of conditions, and notes.

    Layers are sorted by their contribution to the change of the run's time. `other_work` covers all launches, even if
    sums are compared anyway.
    """

    layers: list[ComparedLayer]
    total: ComparedLayer
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    noun: str = "layer"
    other_work: OtherWork = field(default_factory=OtherWork)

    @property
    def subjects(self) -> Subjects:
        """The subjects of gates: the layers, called `noun`, and the run."""
        whole = Subject(("the run",), self.total.changes, refusal=_refusal(self.total.other_work))
        return Subjects(self.noun, [one.subject for one in self.layers], whole, NOT_OF_LAUNCHES)


def _refusal(other: OtherWork) -> Refusal | None:
    """The refusal of gates on sums of different work."""
    return replace(other.refusal, first="Compare kernels, and") if other else None


def compare_layers(
    base_run: LayerSums,
    new_run: LayerSums,
    conditions: tuple[Conditions, Conditions],
    *,
    depth: int | None = None,
    sums_anyway: bool = False,
) -> LayerComparison:
    """Compare the layers of two runs, at most `depth` levels below the model.

    With `sums_anyway`, sums are compared even if the runs did not do the same work.
    Raises `NcuBenchError` if no launch of a run has a module.
    """
    base, new = base_run.launches, new_run.launches
    for name, table in (("base", base), ("new run", new)):
        if all(module is None for module in tables.words(table, "module")):
            raise NcuBenchError(
                f"No launch of the {name} knows its module.",
                "Layers come from NVTX ranges or PyTorch operators of a model.",
                "Profile a model target, or compare kernels: leave --by layer out.",
            )
    alike = _flops_are_alike(base, new)
    work = other_work_of_rows(base_run.work, new_run.work)
    judged = {} if sums_anyway else work
    found = [layer for phase in _phases(base, new) for layer in _of_phase(base, new, phase, depth, alike, judged)]
    sums = _sums(base, None), _sums(new, None)
    total = _compared(WHOLE, NO_PHASE, whole_run(base), whole_run(new), sums, judged, flops_are_alike=alike)
    result = LayerComparison(ordered(found, "change"), total, differences(*conditions))
    result.other_work = work.get(ALL, OtherWork())
    observed = base_run.observed, new_run.observed
    clock = clock_ratio(*(one.median_clock for one in observed))
    for layer in (*result.layers, total):
        layer.changes["time"] = replace(layer.changes["time"], clock=clock)
    result.notes = [*notes_on_conditions(result.differences, observed, conditions), *_notes(base, new, result)]
    return result


def compare_categories(
    base_run: CategorySums,
    new_run: CategorySums,
    conditions: tuple[Conditions, Conditions],
    *,
    sums_anyway: bool = False,
) -> LayerComparison:
    """Compare the times of two runs by category of kernels, each as a layer without a phase."""
    result = compare_layers(base_run, new_run, conditions, sums_anyway=sums_anyway)
    for name, run in (("base", base_run), ("new run", new_run)):
        result.notes += [f"{name}: {note}" for note in run.uncategorised.notes()]
    result.noun = CATEGORY
    return result


def ordered(found: list[ComparedLayer], by: str) -> list[ComparedLayer]:
    """The layers sorted by how much their time changed, then by the larger of their two times, or by that alone."""

    def key(layer: ComparedLayer) -> tuple[float, float, str, str]:
        before, after = layer.changes["time"].base, layer.changes["time"].new
        if before is None or after is None:
            return 1.0, 0.0, layer.module, layer.phase
        return -abs(after - before) if by == "change" else 0.0, -max(before, after), layer.module, layer.phase

    return sorted(found, key=key)


def _phases(base: pa.Table, new: pa.Table) -> list[str]:
    """The phases of both runs in order, with `NO_PHASE` for launches without one."""
    known = {phase or NO_PHASE for table in (base, new) for phase in tables.words(table, "phase")}
    return [phase for phase in (*RUN_PHASES, NO_PHASE) if phase in known]


def _of_phase(
    base: pa.Table, new: pa.Table, phase: str, depth: int | None, alike: bool, work: Mapping[Row, OtherWork]
) -> list[ComparedLayer]:
    ours, theirs = ({row.module: row for row in layers(table, depth=depth, phase=phase).rows} for table in (base, new))
    sums = _sums(base, phase), _sums(new, phase)
    return [
        _compared(module, phase, ours.get(module), theirs.get(module), sums, work, flops_are_alike=alike)
        for module in dict.fromkeys((*ours, *theirs))
    ]


def _sums(table: pa.Table, phase: str | None) -> Sums:
    return {measure: sums_by_iteration(table, column, phase) for measure, column in VALUES.items()}


def _compared(
    module: str,
    phase: str,
    base: Layer | None,
    new: Layer | None,
    sums: tuple[Sums, Sums],
    work: Mapping[Row, OtherWork],
    *,
    flops_are_alike: bool,
) -> ComparedLayer:
    changes = {}
    other = work.get((phase, module), OtherWork())
    for measure, name in MEASURES.items():
        before, after = (0.0 if side is None else getattr(side, name) for side in (base, new))
        interval = _interval(module, measure, sums) if base is not None and new is not None and not other else None
        low, high = interval or (None, None)
        bounded = any(side is not None and side.flops_lower_bound for side in (base, new))
        unlike = COUNTED_DIFFERENTLY if measure == "flops" and bounded and not flops_are_alike else ""
        unlike = unlike or ("" if measure == "launches" else str(other))
        basis = OF_ITERATIONS if interval else None
        changes[measure] = Change(measure, before, after, low, high, basis, unlike)
    return ComparedLayer(module, phase, base, new, changes, other)


def _interval(module: str, measure: str, sums: tuple[Sums, Sums]) -> tuple[float, float] | None:
    if measure not in VALUES:
        return None
    before, after = (mean_of(side[measure][module]) for side in sums)
    return ratio_interval(before, after)


def _flops_are_alike(base: pa.Table, new: pa.Table) -> bool:
    """True if both runs counted FLOPs by the same counters, so that lower bounds can be compared."""
    ours, theirs = (set(tables.words(table, "flops_basis")) for table in (base, new))
    return ours == theirs


def _notes(base: pa.Table, new: pa.Table, result: LayerComparison) -> list[str]:
    iterations = [len(np.unique(named[~np.isnan(named)])) for named in _iterations(base, new)]
    notes = []
    if max(iterations) > 1:
        notes.append(
            f"means over {counted(iterations[0], 'iteration', 'iterations')} and {iterations[1]} of the new run"
        )
    if result.total.changes["time"].low is None and not result.total.other_work:
        notes.append("there is no interval: it takes two iterations in each run; profile more, as in --iterations 5")
    for name, table in (("base", base), ("new run", new)):
        notes += [f"{name}: {note}" for note in outside_iterations(drop_failed(table))]
    nowhere = [layer for layer in result.layers if layer.module == NO_MODULE]
    if nowhere:
        notes.append(f"{NO_MODULE} is what belongs to no layer")
    return notes


def _iterations(*runs: pa.Table) -> list[Floats]:
    return [tables.floats(drop_failed(table), "iteration") for table in runs]
