"""Measured against expected: FLOPs and bytes counted by hardware, beside those of operator formulas.

Expected FLOPs are of contractions, from the shapes of one iteration's operators, and beside them of all operators.
Tensor counters see contractions alone; counters of CUDA cores see element-wise additions and multiplications too, but
no functions and comparisons, which formulas count. So a ratio to contractions outside 0.97 to 1.03 is explained by the
known causes that fit, and the ratio to all operators is shown. Expected bytes are the least of every operator, as if no
cache existed; measured bytes are DRAM traffic. Their ratio is shown without a verdict.

A trace joined with counts has both sides itself: counters, and the work of its operators by their shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from ncu_launch.nvtx_ranges import RUN_PHASES
from ncu_parsers.schema import tables
from ncu_parsers.schema.flops_basis import BasisMark
from ncu_parsers.schema.tables import drop_failed

from ncu_tools.kernels.grouping import NO_MODULE, NO_PHASE, module_at_depth
from ncu_tools.model.expected.both_sides import Collection, MeasuredLaunches, Operators, Place, Places, ratio, total
from ncu_tools.model.expected.mismatch_causes import BothSides, Evidence, Explanation, explain
from ncu_tools.model.expected.operators_of_layers import operators_by_shapes
from ncu_tools.model.layers.layers import in_iterations, outside_iterations
from ncu_tools.numbers.number_format import counted, scaled

UNATTRIBUTED = "no launch knows its phase or module, so there is a row for the model alone"
MODEL, PHASE, LAYER, OPERATOR = "model", "phase", "layer", "operator"


@dataclass(frozen=True)
class Row:
    """The model, a phase, a layer in a phase, or an operator: FLOPs and bytes per iteration, None if unknown.

    `expected_flops` are of contractions, `all_flops` of all operators: a lower bound if `all_flops_lower_bound`, since
    some have no formula. `all_ratio` is measured / `all_flops`, None for a lower bound. `measured_flops` is None if any
    launch's FLOPs are unknown; `flops_lower_bound` is True if some were not collected. `launches` counts all
    iterations. `fitting` names the causes that fit, `causes` are sentences on all causes. Integer operations are
    separate, and None if none are expected.
    """

    scope: str
    phase: str | None
    module: str | None
    measured_flops: float | None
    flops_lower_bound: bool
    expected_flops: float | None
    flops_ratio: float | None
    measured_bytes: float | None
    expected_bytes: float | None
    bytes_ratio: float | None
    launches: int
    fitting: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    measured_integers: float | None = None
    expected_integers: float | None = None
    integers_ratio: float | None = None
    all_flops: float | None = None
    all_flops_lower_bound: bool = False
    all_ratio: float | None = None
    operator: str | None = None


@dataclass
class ExpectedComparison:
    """The model, its phases, then its layers, most work first."""

    rows: list[Row]
    iterations: int
    notes: list[str] = field(default_factory=list)


def compare(
    measured: pa.Table, expected: pa.Table, *, collection: Collection | None = None, depth: int | None = None
) -> ExpectedComparison:
    """Compare the launches of `measured` with the operators of `expected`, which is one iteration.

    A layer is the module of a launch, without the modules inside it. With `depth`, layers are the first `depth` parts
    of module paths, with everything inside them. If no launch has a phase or module, there is only a row for the model.
    If only some launches have an iteration, the others are left out, with a note.
    """
    collection = collection or Collection()
    launches = MeasuredLaunches(in_iterations(measured))
    if launches.are_unattributed:
        expected = expected.drop_columns(["phase", "module"])
    work = BothSides(launches, Operators(expected), collection, launches.iterations(collection.iterations))
    notes = [*_notes(work), *outside_iterations(drop_failed(measured))]
    return ExpectedComparison(_rows(work, depth), work.iterations, notes)


def compare_by_shapes(joined: pa.Table, *, depth: int | None = None) -> ExpectedComparison:
    """Compare the counters of a joined trace with the work of its operators by their shapes, also operator by operator.

    Launches of operators with unknown work are left out, with a note.
    """
    table, operators, notes = operators_by_shapes(joined)
    launches = MeasuredLaunches(table)
    work = BothSides(launches, Operators(operators), Collection(), 1)
    rows = _rows(work, depth)
    names = list(zip(tables.words(table, OPERATOR), strict=True))
    by_name = _rows_by((name or "", "") for (name,) in names)
    found = [
        replace(_row(work, OPERATOR, None, None, mine, mine), operator=name) for (name, _), mine in by_name.items()
    ]
    found.sort(key=lambda row: -max(row.all_flops or 0.0, row.measured_flops or 0.0))
    return ExpectedComparison([*rows, *found], 1, [*_notes(work), *notes])


def _rows(work: BothSides, depth: int | None) -> list[Row]:
    """The model, its phases, and its layers, most work first; only the model if launches have no places."""
    rows = [_row(work, MODEL, None, None, np.arange(work.launches.rows), np.arange(len(work.operators.places)))]
    if work.launches.are_unattributed:
        return rows
    rows += [
        _row(work, PHASE, place[0], None, *found)
        for place, found in _grouped(work, lambda place: (place[0], "")).items()
    ]
    rows[1:] = sorted(rows[1:], key=lambda row: _order(row.phase))
    levels = None if depth is None else depth - 1
    layers = [
        _row(work, LAYER, *place, *found)
        for place, found in _grouped(work, lambda place: (place[0], module_at_depth(place[1], levels))).items()
    ]
    layers.sort(key=lambda row: (-max(row.expected_flops or 0.0, row.measured_flops or 0.0), _order(row.phase)))
    return [*rows, *layers]


def _order(phase: str | None) -> int:
    return RUN_PHASES.index(phase) if phase in RUN_PHASES else len(RUN_PHASES)


def _grouped(work: BothSides, key: Callable[[Place], Place]) -> dict[Place, tuple[Places, Places]]:
    """For every group of places the rows of its launches and of its operators."""
    launches, operators = _rows_by(map(key, work.launches.places)), _rows_by(map(key, work.operators.places))
    nothing = np.empty(0, np.int64)
    return {place: (launches.get(place, nothing), operators.get(place, nothing)) for place in {**operators, **launches}}


def _rows_by(places: Iterable[Place]) -> dict[Place, Places]:
    found: dict[Place, list[int]] = {}
    for row, place in enumerate(places):
        found.setdefault(place, []).append(row)
    return {place: np.array(rows, dtype=np.int64) for place, rows in found.items()}


def _row(
    work: BothSides, scope: str, phase: str | None, module: str | None, launches: Places, operators: Places
) -> Row:
    measured, is_lower_bound = work.launches.flops_of(launches, work.iterations)
    expected = total(work.operators.flops[operators])
    measured_bytes = total(work.launches.dram_bytes[launches], work.iterations)
    expected_bytes = total(work.operators.bytes[operators])
    of_expected = ratio(measured, expected)
    if of_expected is not None and expected is not None:
        explanation = explain(Evidence(work, launches, operators, expected, of_expected))
    else:
        explanation = Explanation(sentences=_why_no_ratio(work, launches, operators, measured, expected))
    return Row(
        scope, phase, module, measured, is_lower_bound, expected, of_expected,
        measured_bytes, expected_bytes, ratio(measured_bytes, expected_bytes), len(launches),
        explanation.fitting, explanation.sentences, *_integers(work, launches, operators),
        *_of_all(work, operators, measured),
    )  # fmt: skip


def _of_all(work: BothSides, operators: Places, measured: float | None) -> tuple[float | None, bool, float | None]:
    """FLOPs of all operators, whether some of them have no formula, and measured / them."""
    known = work.operators.all_flops[operators]
    is_lower_bound = bool(np.isnan(known).any())
    if np.isnan(known).all():
        return None, False, None
    flops = float(np.nansum(known))
    return flops, is_lower_bound, None if is_lower_bound else ratio(measured, flops)


def _integers(work: BothSides, launches: Places, operators: Places) -> tuple[float | None, float | None, float | None]:
    """Measured and expected integer operations and their ratio, or None if none are expected."""
    expected = total(work.operators.integer_operations[operators])
    if not expected:
        return None, None, None
    measured = total(work.launches.integer_operations[launches], work.iterations)
    return measured, expected, ratio(measured, expected)


def _why_no_ratio(
    work: BothSides, launches: Places, operators: Places, measured: float | None, expected: float | None
) -> tuple[str, ...]:
    """Reasons why FLOPs cannot be compared, if there is something to compare."""
    if expected is None and len(operators):
        unknown = {work.operators.names[row] for row in operators[np.isnan(work.operators.flops[operators])].tolist()}
        return (f"No formula is known for the FLOPs of {', '.join(sorted(unknown))}.",)
    if not expected or measured is not None:
        return ()
    if not len(launches):
        return (f"No launch of this was measured ({_filters(work.collection)}).",)
    missing = int(np.isnan(work.launches.flops[launches]).sum())
    if not missing:
        return ("None of the FLOPs were collected.",)
    busy = any(BasisMark.UNCOUNTED in work.launches.bases[row].marks for row in launches.tolist())
    why = ": their tensor metrics were not collected" if busy else ""
    return (f"The FLOPs of {missing:,} of {counted(len(launches), 'launch', 'launches')} are not known{why}.",)


def _filters(collection: Collection) -> str:
    if collection.filters:
        return "asked for: " + ", ".join(collection.filters)
    if collection.partial:
        return "the run ended early"
    return "no filter was asked for" if collection.filters is not None else "whether any were filtered out is not known"


def _notes(work: BothSides) -> list[str]:
    notes = [] if work.iterations == 1 else [f"measured values are means over {work.iterations} iterations"]
    if work.launches.are_unattributed:
        return [*notes, UNATTRIBUTED]
    everywhere = work.launches.places
    for position, nowhere in ((0, NO_PHASE), (1, NO_MODULE)):
        lost = sum(place[position] == nowhere for place in everywhere)
        if lost:
            notes.append(f"{lost:,} of {counted(len(everywhere), 'launch', 'launches')} are listed under {nowhere}")
    return notes


def summary(comparison: ExpectedComparison) -> list[str]:
    """A sentence for the model and each phase: measured and expected FLOPs, their ratio, and the causes that fit."""
    return [_sentence(row) for row in comparison.rows if row.scope in (MODEL, PHASE)]


def title(row: Row) -> str:
    """The title of a row: "model", "forward", "forward resnet18.conv1"."""
    return " ".join(filter(None, (row.phase, row.module, row.operator))) or MODEL


def _sentence(row: Row) -> str:
    measured = "unknown" if row.measured_flops is None else scaled(row.measured_flops, "FLOP")
    expected = "unknown" if row.expected_flops is None else scaled(row.expected_flops, "FLOP")
    bound = "at least " if row.flops_lower_bound else ""
    words = f"{title(row)}: {bound}{measured} measured, {expected} expected"
    if row.flops_ratio is not None:
        words += f", ratio {bound}{row.flops_ratio:.3f}"
    if row.expected_integers is not None:
        counted_here = "unknown" if row.measured_integers is None else scaled(row.measured_integers, "OP")
        words += f"; {counted_here} measured, {scaled(row.expected_integers, 'OP')} expected"
    return f"{words}. {row.causes[0]}" if row.causes else words
