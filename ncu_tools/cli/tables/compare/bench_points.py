"""Measured points compared as a table: a line for each side of a point, sides of one point one below the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ncu_launch.bench.point_outcomes import OK
from ncu_launch.errors import WrongUsage

from ncu_tools.bench.bench_runs import BenchRun, Row, is_bench, load_bench
from ncu_tools.bench.bench_summaries import summaries, times
from ncu_tools.bench.compare_points import (
    ASKED,
    ComparedPoint,
    PointComparison,
    compare_across,
    compare_runs,
    in_words,
    valid_across,
)
from ncu_tools.cli.options import hidden_rows
from ncu_tools.cli.tables.compare.shared import RUN, Compared, CompareRequest, change_cells
from ncu_tools.compare.compare_kernels import require_alike
from ncu_tools.numbers.change import verdict
from ncu_tools.numbers.number_format import counted, digits
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.head import Head, told_apart
from ncu_tools.report.table import Column, Table, columns_of_arguments

ASKED_COLUMNS = {
    "machine": column("machine", wide=True),
    "dtype": column("type", spare=0),
    "mode": column("mode_words", spare=0),
    "channels-last": column("layout", spare=0),
    "phase": column("phase", spare=0),
    "torch": column("torch", spare=0),
    "threads": column("threads", spare=0),
}
SIZE_COLUMNS = columns("batch_size input_size sequence_length")
FOR_PEOPLE = columns(
    "latency_mean_ns~0 speedup_words~0 time_words~3 verdict~0 rate~4 memory_peak_bytes~2 memory_change~2 "
    "memory_allocated_bytes~5 allocated_change~5 flops_words~6 parameters_change~7 self_cpu_time_ns~8 "
    "self_gpu_time_ns~8 failure~0 reason"
)
FOR_MACHINES = columns(
    "is_base target device device_name dtype autocast mode channels_last phase batch_size input_size sequence_length "
    "torch threads outcome reason compared_with verdict latency_mean_ns latency_low_ns latency_high_ns "
    "latency_median_ns latency_p95_ns latency_p99_ns iterations time_ratio time_ratio_low time_ratio_high speedup "
    "speedup_low speedup_high throughput throughput_unit memory_peak_bytes memory_allocated_bytes parameters "
    "expected_flops expected_bytes memory_ratio allocated_ratio flops_ratio bytes_ratio parameters_ratio "
    "self_cpu_time_ns self_gpu_time_ns"
)

Group = tuple["Row | None", list[tuple[str, "ComparedPoint"]]]
"""A point of the base, and for each comparison (name, the point with its other side)."""


def compared_points(request: CompareRequest) -> Compared:
    """Compare runs of ncu-bench bench with the first one, or all their points across dimensions.

    Raises `NcuBenchError` if their conditions differ, or they have no point in common.
    """
    taken = {column.name for column in (RUN, *FOR_PEOPLE, *FOR_MACHINES, *ASKED_COLUMNS.values())}
    runs = [load_bench(path, taken) for path in request.runs]
    if request.how.across:
        found, base = compare_across(runs, request.how.across), ", ".join(request.runs)
    else:
        found, base = [compare_runs(runs[0], new, gated=request.gated) for new in runs[1:]], request.runs[0]
    for one in () if request.how.anyway else found:
        require_alike(
            one.differences, (base, one.name), f", or compare just that: --across {','.join(valid_across(one))}"
        )
    with_names = [(one, summary) for one in found for summary in summaries(one)]
    sentences = [summary.sentence for _, summary in with_names]
    table = _table(found, request, _argument_columns(runs))
    notes = [f"the points differ in {each}" for one in found for each in one.differences]
    for one in found:
        notes += [f"{one.name}: {note}" if len(found) > 1 else note for note in one.notes]
    table.notes = [*notes, *table.notes, *(note for run in runs for note in run.notes)]
    table.extra = {
        "base": base,
        "across": list(request.how.across),
        "differences": [{RUN.name: one.name, **asdict(each)} for one in found for each in one.differences],
        "summaries": [{RUN.name: one.name, **asdict(each), "sentence": each.sentence} for one, each in with_names],
    }
    heads = [Head((run.name,), more=(counted(len(run.rows), "point", "points"),)) for run in runs]
    return Compared(table, {one.name: one.subjects for one in found}, sentences, told_apart(heads))


def are_bench_runs(operands: tuple[str, ...], across: tuple[str, ...]) -> bool:
    """True if all operands are runs of ncu-bench bench, False if none is.

    Raises `WrongUsage` for a mixture, and if --across or a single operand does not fit runs of launches.
    """
    kinds = {path: is_bench(path) for path in operands}
    if len(set(kinds.values())) > 1:
        points, launches = (next(path for path, is_one in kinds.items() if is_one is kind) for kind in (True, False))
        raise WrongUsage(
            f"{points} holds measured points, and {launches} launches.",
            "The first is a run of ncu-bench bench, the second one of a profiler.",
            "Compare runs of one kind.",
        )
    of_bench = all(kinds.values())
    if across and not of_bench:
        raise WrongUsage(
            "--across is for runs of ncu-bench bench.", advice="Launches are compared run by run: BASE NEW."
        )
    if len(operands) == 1 and not across:
        advice = "Add --across dtype, or mode, phase, ..., or a second run." if of_bench else "Add a second run."
        raise WrongUsage(f"There is nothing to compare {operands[0]} with.", advice=advice)
    return of_bench


# ------------------------------------------------------------------------------------------------------ the table


def _argument_columns(runs: Sequence[BenchRun]) -> list[Column]:
    names = dict.fromkeys(name for run in runs for name in run.arguments)
    return columns_of_arguments(names, [row for run in runs for row in run.rows], (*SIZE_COLUMNS, RUN, *FOR_PEOPLE))


def _table(found: Sequence[PointComparison], request: CompareRequest, arguments: Sequence[Column]) -> Table:
    groups = _ordered(_groups(found), request.how.order)
    shown = groups[: request.how.top]
    rows = [cells for group in shown for cells in _lines(group, (*SIZE_COLUMNS, *arguments))]
    notes = hidden_rows(len(groups), request.how.top, "point")
    if request.machine_readable:
        return Table("compare", (RUN, *FOR_MACHINES, *arguments), rows, notes)
    points = [point for one in found for point in one.points]
    sides = [side for point in points for side in (point.base, point.new) if side is not None]
    compared = {name for point in points for name in point.across}
    several = [
        name for name in ASKED_COLUMNS
        if name in compared or (name in ASKED and len({in_words(side, name) for side in sides}) > 1)
    ]  # fmt: skip
    constant = [in_words(sides[0], name) for name in ASKED if name not in several]
    notes += [f"all points: {', '.join(constant)}"] if constant else []
    varied = tuple(ASKED_COLUMNS[name] for name in several)
    by_run = (RUN,) if any(not point.across for point in points) else ()
    sizes = (*SIZE_COLUMNS, *arguments)
    return Table("compare", (column("target"), *sizes, *varied, *by_run, *FOR_PEOPLE), rows, notes)


def _groups(found: Sequence[PointComparison]) -> list[Group]:
    """The points of all comparisons grouped by the point of the base; those without one last."""
    groups: dict[int, Group] = {}
    alone: list[Group] = []
    for one in found:
        for point in one.points:
            if point.base is None:
                alone.append((None, [(one.name, point)]))
            else:
                groups.setdefault(id(point.base), (point.base, []))[1].append((one.name, point))
    return [*groups.values(), *alone]


def _ordered(groups: list[Group], by: str | None) -> list[Group]:
    """The groups in the order of the sweep, or by the largest change of time as a factor, or by latency."""

    def change(group: Group) -> float:
        ratios = [point.changes["time"].ratio for _, point in group[1] if point.is_compared]
        return -max((abs(math.log(ratio)) for ratio in ratios if ratio), default=-1.0)

    def latency(group: Group) -> float:
        sides = [group[0], *(point.new for _, point in group[1])]
        return -max((side["latency_mean_ns"] or 0.0 for side in sides if side is not None), default=0.0)

    return groups if by is None else sorted(groups, key=change if by == "change" else latency)


def _lines(group: Group, sizes: Sequence[Column]) -> list[dict[str, Any]]:
    base, others = group
    words = {"verdict": "base"} if any(point.new is not None for _, point in others) else {}
    lines = [] if base is None else [{**_side(base, others[0][1].base_label), "is_base": True, **words}]
    for _, point in others:
        if point.new is None:
            cells = {name: point.row.get(name) for name in ("target", *(column.name for column in sizes))}
            lines.append({**cells, **_place(point), RUN.name: point.new_label, "is_base": False, "verdict": "gone"})
        else:
            lines.append({**_side(point.new, point.new_label), "is_base": False, **_compared_cells(point)})
    return lines


def _side(row: Row, label: str) -> dict[str, Any]:
    """One side of a point: its settings and its measured values."""
    is_ok = row["outcome"] == OK
    rate = f"{digits(row['throughput'])} {row['throughput_unit']}" if row["throughput"] else None
    words = {ASKED_COLUMNS[name].name: in_words(row, name) for name in ("machine", "dtype", "mode", "channels-last")}
    return {**row, **words, RUN.name: label, "rate": rate, "failure": None if is_ok else row["outcome"]}


def _place(point: ComparedPoint) -> dict[str, Any]:
    """The settings of a missing side: copied from the other side, except for compared dimensions."""
    return {
        ASKED_COLUMNS[name].name: point.new_label if point.across == (name,) else in_words(point.row, name)
        for name in ASKED if name not in point.across or point.across == (name,)
    }  # fmt: skip


def _compared_cells(point: ComparedPoint) -> dict[str, Any]:
    """The cells that compare one side of a point with the base."""
    if not point.is_compared:
        return {"verdict": "new" if point.base is None else None}
    time = point.changes["time"]
    cells = change_cells(point.changes, in_both=True)
    cells |= {"compared_with": point.base_label, "verdict": verdict(time, is_new=False, is_gone=False)}
    for name in ("flops", "parameters"):
        if point.changes[name].growth == 0:
            cells[f"{name}_change"] = None
    cells["flops_words"] = cells["flops_change"]
    if not time.ratio:
        return cells
    cells |= {"speedup": 1 / time.ratio, "speedup_low": _inverse(time.high), "speedup_high": _inverse(time.low)}
    if point.across == ("phase",):
        return cells | {
            "time_words": times(time.ratio, time.low, time.high),
            "flops_words": _times(point.changes["flops"].ratio),
            "verdict": None,
        }
    return cells | {"speedup_words": times(time.ratio, time.low, time.high, turned=True)}


def _inverse(value: float | None) -> float | None:
    return None if value is None else 1 / value


def _times(ratio: float | None) -> str | None:
    return None if ratio is None else f"{ratio:.3f} x"
