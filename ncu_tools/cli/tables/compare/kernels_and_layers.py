"""Runs of launches compared kernel by kernel, or layer by layer, as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Generic, TypeVar

from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.notes import reworded
from ncu_parsers.schema.own_columns import values_apart

from ncu_tools.cli.options import ROWS_SHOWN, engine_of, hidden_rows, progress
from ncu_tools.cli.tables.compare.shared import (
    CATEGORY,
    LAYER,
    OPERATOR,
    RUN,
    Compared,
    CompareRequest,
    change_cells,
)
from ncu_tools.cli.tables.time_titles import with_time_title
from ncu_tools.compare.compare_kernels import ComparedKernel, Comparison, require_comparable
from ncu_tools.compare.compare_layers import ComparedLayer, LayerComparison
from ncu_tools.compare.comparison_sums import SignatureSums, signature_sums_of_run
from ncu_tools.compare.layer_sums import LayerSums, categories_of_run, layers_of_run
from ncu_tools.compare.run_conditions import Conditions, conditions_of
from ncu_tools.compare.same_work import NOT_THE_SAME_WORK
from ncu_tools.kernels.kernel_row import Hotspot
from ncu_tools.kernels.matching.asked_pairs import asked_pairs
from ncu_tools.kernels.matching.kernel_pairs import BY_NAME
from ncu_tools.kernels.names.kernel_ids import kernel_id
from ncu_tools.kernels.operator_times import time_title
from ncu_tools.kernels.operator_work import calls_of_operators, knows_operators
from ncu_tools.numbers.change import verdict
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.first_sentences import first_change
from ncu_tools.report.head import Head, head_of, manifest_of, short_names, told_apart
from ncu_tools.report.table import TOTAL, Column, Table, columns_of_arguments
from ncu_tools.runs.loading import load
from ncu_tools.runs.run import Run
from ncu_tools.runs.varied_run import Values, by_point, in_words, is_varied

Known = TypeVar("Known", bound=SignatureSums | LayerSums)
Lines = tuple[list[dict[str, Any]], dict[str, Any]]
"""The cells of the compared items, and of the sum over all of them."""

ORDER = "change"
KERNELS = columns("kernel was")
OPERATORS = columns("kernel was", kind="text", wide=True)
PHASE, COMPARES = columns("phase~0 compares")
BY_CATEGORY, BY_LAYER = columns(f"{CATEGORY} {LAYER}")
VERDICT, MATCHED_BY = columns("verdict~0 matched_by~4")
UNCHANGED, CHANGED, LAUNCHES_CHANGED = 9, 4, 3
"""Ranks of counts in `Column.spare`."""
LONGEST_TITLE = 12
"""Letters of a run's name in the title of a column."""
COUNTED = ("launches", "flops", "dram_bytes")
FOR_MACHINES = columns(
    "time_ratio time_ratio_low time_ratio_high dram_bytes_ratio dram_bytes_ratio_low dram_bytes_ratio_high "
    "time_interval_of base_flops new_flops flops_ratio base_dram_bytes new_dram_bytes base_least_bytes "
    "new_least_bytes launches_ratio flops_verdict dram_bytes_verdict launches_verdict is_total kernel_id was_id"
)
COUNTS = columns("base_launches new_launches")
SUMS = columns("base_time_ns new_time_ns")
MEANS = columns(
    "base_time_mean_ns new_time_mean_ns base_flops_mean new_flops_mean base_dram_bytes_mean new_dram_bytes_mean"
)
"""Means per launch, over the launches that the column `compares` describes."""


@dataclass(frozen=True)
class _Side(Generic[Known]):
    """One run, or one point of a run: sums of its launches, its conditions, notes on reading it, and varied values.

    `of` is the run of a point.
    """

    name: str
    run: Known
    conditions: Conditions
    notes: list[str]
    point: Values = field(default_factory=dict)
    of: str = ""


def compared_kernels(request: CompareRequest) -> Compared:
    """Compare each new run with the base, kernel by kernel. Raises `NcuBenchError` if their conditions differ."""
    from ncu_tools.compare.compare_kernels import compare, ordered

    what, order = request.how.group, request.how.order or ORDER
    sides = _pairs(request, _calls if what == OPERATOR else signature_sums_of_run)
    names = [side.run.signatures.names for side in (sides[0][0], *(theirs for _, theirs in sides))]
    pairs = asked_pairs(request.how.pairs, names[0], names[1:])
    found: dict[str, Comparison] = {}
    lines: dict[str, Lines] = {}
    for ours, theirs in sides:
        conditions = ours.conditions, theirs.conditions
        one = compare(ours.run, theirs.run, conditions, asked=pairs, sums_anyway=request.how.anyway)
        found[theirs.name] = one
        kernels = [_kernel_cells(kernel) for kernel in ordered(one.kernels, order)]
        lines[theirs.name] = kernels, _total_cells(one, request)
    machine = (*KERNELS, *COUNTS, *MEANS, *SUMS, VERDICT, MATCHED_BY, COMPARES, *FOR_MACHINES)
    first, *others = OPERATORS if what == OPERATOR else KERNELS
    columns = machine if request.machine_readable else (first._replace(title=what), *others, MATCHED_BY)
    return _compared(request, sides, found, lines, columns)


def compared_layers(request: CompareRequest) -> Compared:
    """Compare each new run with the base, layer by layer and phase by phase, or by category of kernels.

    Raises as `compared_kernels`.
    """
    from ncu_tools.compare.compare_layers import compare_categories, compare_layers, ordered

    what, order, anyway = request.how.group, request.how.order or ORDER, request.how.anyway
    sides: Sequence[tuple[_Side[Any], _Side[Any]]]
    titles: tuple[Column, ...]
    if what == CATEGORY:
        sides = _pairs(request, categories_of_run)
        compare, titles = compare_categories, (BY_CATEGORY,)
    else:
        sides = _pairs(request, layers_of_run)
        compare, titles = partial(compare_layers, depth=request.how.depth), (BY_LAYER, PHASE)
    found: dict[str, LayerComparison] = {}
    lines: dict[str, Lines] = {}
    for ours, theirs in sides:
        one = compare(ours.run, theirs.run, (ours.conditions, theirs.conditions), sums_anyway=anyway)
        found[theirs.name] = one
        layers = [_layer_cells(layer, what, request) for layer in ordered(one.layers, order)]
        lines[theirs.name] = layers, _layer_cells(one.total, what, request)
    counts = [column._replace(kind="number") for column in COUNTS]
    columns = (*titles, *counts, *SUMS, VERDICT, *FOR_MACHINES) if request.machine_readable else titles
    return _compared(request, sides, found, lines, columns)


def _compared(
    request: CompareRequest,
    sides: Sequence[tuple[_Side[Any], _Side[Any]]],
    found: Mapping[str, Comparison] | Mapping[str, LayerComparison],
    lines: dict[str, Lines],
    columns: Sequence[Column],
) -> Compared:
    notes = {theirs.name: [*found[theirs.name].notes, *ours.notes, *theirs.notes] for ours, theirs in sides}
    table = _table(request, lines, notes, columns, sides)
    table.extra["differences"] = [
        {RUN.name: name, **asdict(each)} for name, one in found.items() for each in one.differences
    ]
    heads = _heads(sides, found, request)
    table.extra["heads"] = [one.as_json() for one in heads]
    subjects = {name: one.subjects for name, one in found.items()}
    only = next(iter(found.values())) if len(found) == 1 else None
    first = first_change(only.kernels) if isinstance(only, Comparison) else None
    return Compared(table, subjects, _other_work(found, request), heads, first)


def _heads(
    sides: Sequence[tuple[_Side[Any], _Side[Any]]],
    found: Mapping[str, Comparison] | Mapping[str, LayerComparison],
    request: CompareRequest,
) -> list[Head]:
    """A head line for each run, the base first; layers are means, so their head lines have no sums."""
    runs: dict[str, Head] = {}
    for ours, theirs in sides:
        total = found[theirs.name].total
        for side, sums in ((ours, total.base), (theirs, total.new)):
            known: dict[str, Any] = {}
            if isinstance(sums, Hotspot):
                calls = counted(sums.launches, "call", "calls")
                known = {"more": (calls,)} if request.how.group == OPERATOR else {"launches": sums.launches}
                known["time_ns"] = sums.time_total_ns
            devices = side.run.observed.devices
            title = _time_title(sides)
            runs[side.name] = head_of(
                [side.name], None, side.notes, only=request.only, devices=devices, time_title=title, **known
            )
    return told_apart(list(runs.values()))


def _other_work(found: Mapping[str, Comparison] | Mapping[str, LayerComparison], request: CompareRequest) -> list[str]:
    """A sentence for each new run whose work differs from the base's."""
    several = len(found) > 1
    anyway = ", compared anyway" if request.how.anyway else ""
    group = request.how.group
    what = "all launches" if group in (LAYER, CATEGORY) else "all operators" if group == OPERATOR else "all kernels"
    return [
        (f"{name}: " if several else "") + f"{what}: {one.other_work}{anyway}"
        for name, one in found.items() if one.other_work
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------------- the runs


def _pairs(request: CompareRequest, read: Callable[[Run], Known]) -> list[tuple[_Side[Known], _Side[Known]]]:
    """The base with each new run, once they are known to be comparable; runs of several points are paired by point."""
    only = request.only
    with engine_of(request.dask) as engine, progress("Reading") as reading:
        found = ((path, load(path, reading=reading, engine=engine)) for path in request.runs)
        chosen = ((path, run if only is None else only.of(run)) for path, run in found)
        if any(map(is_varied, request.runs)):
            pairs = _pairs_of_points(list(chosen), read)
        else:
            ours, *theirs = (_side(path, read(run)) for path, run in chosen)
            pairs = [(ours, side) for side in theirs]
    if not request.how.anyway:
        for ours, side in pairs:
            require_comparable(ours.conditions, side.conditions, (ours.name, side.name))
    return pairs


def _pairs_of_points(
    runs: Sequence[tuple[str, Run]], read: Callable[[Run], Known]
) -> list[tuple[_Side[Known], _Side[Known]]]:
    """Each point of the base with the same point of each new run.

    Raises `WrongUsage` for a run of a single point among them, and `NcuBenchError` if no point is in common.
    """
    points = [(path, {in_words(values): (values, run) for values, run in by_point(found)}) for path, found in runs]
    single = next((path for path, found in points if not found), None)
    if single is not None:
        raise WrongUsage(
            f"{single} is a run of one point, and another holds several.",
            advice="Name the folder of one point inside the run folder.",
        )
    (base, ours), *others = points
    pairs = []
    for path, theirs in others:
        common = [words for words in ours if words in theirs]
        if not common:
            raise NcuBenchError(
                f"No point of {path} is one of {base}.",
                f"The first is of {next(iter(theirs))}, the second of {next(iter(ours))}.",
                "Profile both with the same --vary.",
            )
        alone = [
            f"{run}/{words}" for run, own in ((base, ours), (path, theirs)) for words in own if words not in common
        ]
        notes = [f"not compared, since only one run has the point: {', '.join(alone)}"] if alone else []
        for words in common:
            values, before = ours[words]
            after = _side(path, read(theirs[words][1]))
            new = replace(after, name=f"{path}/{words}", notes=[*after.notes, *notes], point=values, of=path)
            pairs.append((replace(_side(base, read(before)), name=f"{base}/{words}"), new))
    return pairs


def _time_title(sides: Sequence[tuple[_Side[Any], _Side[Any]]]) -> str:
    """The title of the times of all runs: "time", or "self CPU" if all are of operators on a CPU."""
    return time_title({kind for pair in sides for side in pair for kind in side.run.observed.times})


def _calls(found: Run) -> SignatureSums:
    """A trace, summed by its calls of operators; needs all of its launches in memory."""
    table = found.table
    if not knows_operators(table):
        raise NcuBenchError(
            f"No launch of {found.name} knows its operator.",
            "Operators come from traces of PyTorch's profiler, or its NVTX ranges.",
            "Profile with PyTorch's profiler, or compare kernels: leave --by operator out.",
        )
    return signature_sums_of_run(Run.held(found.name, calls_of_operators(table), found.notes))


def _side(path: str, run: Known) -> _Side[Known]:
    """A run with its conditions, from its launches and, if readable, its manifest."""
    return _Side(path, run, conditions_of(run.observed, manifest_of(path)), list(run.reports))


# ------------------------------------------------------------------------------------------------------ the table


def _table(
    request: CompareRequest,
    lines: dict[str, Lines],
    notes: dict[str, list[str]],
    columns: Sequence[Column],
    sides: Sequence[tuple[_Side[Any], _Side[Any]]],
) -> Table:
    """The first lines of each comparison and its total, which is never hidden.

    `columns` are all columns for machines; for people the comparison's are appended. Varied values have extra columns;
    people then see the run only if there are several.
    """
    what, time = request.how.group, _time_title(sides)
    taken = {RUN.name, *(column.name for column in columns), *_names_of_cells(lines)}
    points = {theirs.name: values_apart(theirs.point, taken) for _, theirs in sides}
    of_points = columns_of_arguments(dict.fromkeys(chain(*points.values())), list(points.values()), columns, spare=0)
    new_runs = {theirs.of or theirs.name for _, theirs in sides}
    shown = None if request.how.top is None and request.machine_readable else request.how.top or ROWS_SHOWN
    several = len(lines) > 1
    runs = (request.runs[0], *lines)
    names = {name: name for name in runs} if request.machine_readable else short_names(runs)
    rows, all_notes = [], []
    for name, (every, total) in lines.items():
        own = {RUN.name: names[name], **points[name]}
        rows += [{**own, **cells} for cells in [*every[:shown], {**total, TOTAL: True}]]
        hidden = hidden_rows(len(every), shown, what)
        all_notes += [reworded(f"{names[name]}: {note}", note) if several else note for note in [*hidden, *notes[name]]]
    if not request.machine_readable:
        rows = [_for_text(row) for row in rows]
        columns = (*columns, *_for_people(rows, names[request.runs[0]] if several else "", what, time))
    columns = (*of_points, *columns)
    columns = (RUN, *columns) if len(new_runs) > 1 or request.machine_readable else columns
    return with_time_title(Table("compare", columns, rows, all_notes, {"base": request.runs[0]}), time)


def _names_of_cells(lines: dict[str, Lines]) -> Iterator[str]:
    return (name for every, total in lines.values() for cells in (*every, total) for name in cells)


def _for_text(row: dict[str, Any]) -> dict[str, Any]:
    """The row for people: names of kernels in one spelling, so that a table gives each one short name."""
    if "kernel" not in row:
        return row
    return {
        **row,
        "kernel": row["kernel"].removeprefix("void "),
        "was": row["was"] and row["was"].removeprefix("void "),
        MATCHED_BY.name: row[MATCHED_BY.name] if row[MATCHED_BY.name] != BY_NAME else None,
    }


def _for_people(rows: list[dict[str, Any]], base: str, what: str, time: str) -> list[Column]:
    """Columns of both sides and of their changes. With several runs, `base` is the name of the base.

    A long name, such as that of a file, would be wider than its numbers: columns are dropped by their width.
    """
    before, after = (base if len(base) <= LONGEST_TITLE else "base", "") if base else ("base", "new")

    def sides(name: str, title: str, kind: str, spare: int) -> list[Column]:
        both = (("base", before), ("new", after))
        return [
            column(f"{side}_{name}", title=f"{called} {title}".strip(), kind=kind, spare=spare) for side, called in both
        ]

    same = {name: all(row.get(f"{name}_verdict") in ("same", None) for row in rows) for name in COUNTED}
    counts = "number" if what in (LAYER, CATEGORY) else "count"
    per_call = [
        *sides("flops_mean", "FLOPs/call", "flop", CHANGED),
        *sides("least_bytes_mean", "least B/call", "byte", CHANGED + 1),
    ]
    return [
        *sides(
            "launches",
            "calls" if what == "operator" else "launches",
            counts,
            UNCHANGED if same["launches"] else LAUNCHES_CHANGED,
        ),
        *(one._replace(spare=spare) for one, spare in zip(sides("compared_ns", time, "time", 1), (1, 2), strict=True)),
        column("time_change", title=f"{time} changed [95 %]", spare=0),
        VERDICT,
        *(per_call if what == "operator" else ()),
        column("flops_change", spare=UNCHANGED if same["flops"] else CHANGED),
        column("dram_bytes_change", spare=UNCHANGED if same["dram_bytes"] else CHANGED),
    ]


def _kernel_cells(kernel: ComparedKernel) -> dict[str, Any]:
    cells: dict[str, Any] = {
        "kernel": kernel.pair.kernel,
        "was": kernel.pair.was if kernel.pair.was != kernel.pair.kernel else None,
        "matched_by": kernel.pair.matched_by,
        "verdict": verdict(kernel.changes["time"], is_new=kernel.is_new, is_gone=kernel.is_gone),
        "time_interval_of": kernel.changes["time"].basis,
        TOTAL: False,
        "kernel_id": kernel_id(kernel.pair.kernel),
        "was_id": None if kernel.pair.was in (None, kernel.pair.kernel) else kernel_id(kernel.pair.was or ""),
    }
    cells["compares"] = kernel.changes["time"].compares or "sums"
    for title, side in (("base", kernel.base), ("new", kernel.new)):
        if side is not None:
            cells |= {f"{title}_launches": side.launches, f"{title}_time_ns": side.time_total_ns}
            cells |= {f"{title}_flops": side.flops, f"{title}_dram_bytes": side.dram_bytes}
            least = side.least_bytes
            cells |= {f"{title}_least_bytes": least, f"{title}_least_bytes_mean": least and least / side.launches}
            compared = {name: getattr(change, title) for name, change in kernel.changes.items()}
            cells |= {f"{title}_time_mean_ns": compared["time"], f"{title}_compared_ns": compared["time"]}
            cells |= {f"{title}_{name}_mean": compared[name] for name in ("flops", "dram_bytes")}
    return cells | change_cells(kernel.changes, in_both=not kernel.is_new and not kernel.is_gone)


def _total_cells(comparison: Comparison, request: CompareRequest) -> dict[str, Any]:
    """The cells of the sums over all kernels: no means per launch; the verdict tells if the work differs."""
    cells = _kernel_cells(comparison.total)
    cells |= dict.fromkeys([name for name in cells if "_mean" in name])
    if not request.machine_readable:
        cells["kernel"] = ("all operators" if request.how.group == OPERATOR else cells["kernel"]) + " (sums)"
    if comparison.other_work and not comparison.sums_anyway:
        cells["verdict"] = str(comparison.other_work) if request.machine_readable else NOT_THE_SAME_WORK
    return cells


def _layer_cells(layer: ComparedLayer, what: str, request: CompareRequest) -> dict[str, Any]:
    is_new, is_gone = layer.base is None, layer.new is None
    cells: dict[str, Any] = {
        what: layer.module,
        "phase": layer.phase or None,
        "verdict": verdict(layer.changes["time"], is_new=is_new, is_gone=is_gone),
        "time_interval_of": layer.changes["time"].basis,
        TOTAL: False,
    }
    for title, side in (("base", layer.base), ("new", layer.new)):
        if side is not None:
            cells |= {f"{title}_launches": side.launches, f"{title}_time_ns": side.time_ns}
            cells |= {f"{title}_compared_ns": side.time_ns}
            cells |= {f"{title}_flops": side.flops, f"{title}_dram_bytes": side.dram_bytes}
    if layer.other_work and not is_new and not is_gone:
        cells["verdict"] = str(layer.other_work) if request.machine_readable else NOT_THE_SAME_WORK
    return cells | change_cells(layer.changes, in_both=not is_new and not is_gone)
