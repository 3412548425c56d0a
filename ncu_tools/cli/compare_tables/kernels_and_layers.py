"""Runs of launches compared kernel by kernel, or layer by layer, as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ncu_launch.files.manifest import read_manifest

from ncu_tools.cli.compare_tables.shared import RUN, Asked, Compared, change_cells, short_names, verdict
from ncu_tools.cli.options import ROWS_SHOWN, engine_of, hidden_rows, progress
from ncu_tools.cli.time_titles import with_time_title
from ncu_tools.report.table import Column, Table

if TYPE_CHECKING:
    from ncu_tools.compare.compare_kernels import ComparedKernel, Comparison
    from ncu_tools.compare.compare_layers import ComparedLayer, LayerComparison
    from ncu_tools.compare.comparison_sums import Works
    from ncu_tools.compare.layer_sums import LayerSums
    from ncu_tools.compare.run_conditions import Conditions, Observed
    from ncu_tools.runs.loading import OnDisk, Run

Known = TypeVar("Known")

BY = "change"
KERNEL = (Column("kernel", "kernel", wide=True), Column("was", "was", wide=True))
LAYER = (Column("layer", "layer", wide=True), Column("phase", "phase", spare=0))
VERDICT, MATCHED_BY = Column("verdict", "verdict", spare=0), Column("matched_by", "matched by", spare=4)
UNCHANGED, CHANGED, LAUNCHES_CHANGED = 9, 3, 2
"""How early a count is left out on a narrow terminal."""
COUNTED = ("launches", "flops", "dram_bytes")
FOR_MACHINES = (
    *(
        Column(f"{measure}_ratio{end}", f"{measure} ratio{end}", "number")
        for measure in ("time", "dram_bytes")
        for end in ("", "_low", "_high")
    ),
    Column("time_interval_of", "interval of"),
    Column("base_flops", "base FLOPs", "flop", "FLOP"),
    Column("new_flops", "new FLOPs", "flop", "FLOP"),
    Column("flops_ratio", "FLOPs ratio", "number"),
    Column("base_dram_bytes", "base DRAM", "byte", "byte"),
    Column("new_dram_bytes", "new DRAM", "byte", "byte"),
    Column("launches_ratio", "launches ratio", "number"),
    *(Column(f"{measure}_verdict", f"{measure} verdict") for measure in ("flops", "dram_bytes", "launches")),
    Column("is_total", "total"),
)
COUNTS = (Column("base_launches", "base launches", "count"), Column("new_launches", "new launches", "count"))
SUMS = (Column("base_time_ns", "base time", "time", "ns"), Column("new_time_ns", "new time", "time", "ns"))
MEANS = tuple(
    Column(f"{side}_{name}_mean{end}", f"{side} {title} per launch", kind, unit)
    for name, end, title, kind, unit in (
        ("time", "_ns", "time", "time", "ns"), ("flops", "", "FLOPs", "flop", "FLOP"),
        ("dram_bytes", "", "DRAM", "byte", "byte"),
    )
    for side in ("base", "new")
)  # fmt: skip
"""Means per launch, of the launches that are compared: the column `compares` says which."""


@dataclass(frozen=True)
class _Side(Generic[Known]):
    """A run: what is known of its launches, its conditions, and what was odd about reading it."""

    name: str
    run: Known
    conditions: Conditions
    notes: list[str]


def compared_kernels(asked: Asked) -> Compared:
    """Each new run against the base, kernel by kernel. Raises `NcuBenchError` where they are not alike."""
    from ncu_tools.compare.compare_kernels import compare, ordered
    from ncu_tools.compare.matching.asked_pairs import asked_pairs

    found: dict[str, Comparison] = {}
    notes: dict[str, list[str]] = {}
    sides = _pairs(asked, _calls if asked.how.operators else _summed)
    names = [side.run.signatures.names for side in (sides[0][0], *(theirs for _, theirs in sides))]
    pairs = asked_pairs(asked.how.pairs, names[0], names[1:])
    for ours, theirs in sides:
        conditions = ours.conditions, theirs.conditions
        one = compare(ours.run, theirs.run, conditions, asked=pairs, sums_anyway=asked.how.anyway)
        found[theirs.name] = one
        notes[theirs.name] = [*one.notes, *ours.notes, *theirs.notes]
    lines = {
        name: ([_kernel_cells(kernel) for kernel in ordered(one.kernels, asked.how.by or BY)], _total_cells(one, asked))
        for name, one in found.items()
    }
    machine = (*KERNEL, *COUNTS, *MEANS, *SUMS, VERDICT, MATCHED_BY, Column("compares", "compares"), *FOR_MACHINES)
    columns = machine if asked.machine_readable else (*KERNEL, MATCHED_BY)
    table = _table(asked, "kernel", lines, notes, columns, _time_title(sides))
    table.extra["differences"] = _differences(found)
    several = len(found) > 1
    anyway = ", compared anyway" if asked.how.anyway else ""
    other = [
        (f"{name}: " if several else "") + f"all kernels: {one.other_work}{anyway}"
        for name, one in found.items() if one.other_work
    ]  # fmt: skip
    return Compared(table, {name: one.subjects for name, one in found.items()}, other)


def compared_layers(asked: Asked) -> Compared:
    """Each new run against the base, layer by layer and phase by phase. Raises `NcuBenchError` as kernels do."""
    from ncu_tools.compare.compare_layers import compare_layers, ordered

    found: dict[str, LayerComparison] = {}
    notes: dict[str, list[str]] = {}
    sides = _pairs(asked, _layered)
    for ours, theirs in sides:
        one = compare_layers(ours.run, theirs.run, (ours.conditions, theirs.conditions), depth=asked.how.depth)
        found[theirs.name] = one
        notes[theirs.name] = [*one.notes, *ours.notes, *theirs.notes]
    lines = {
        name: ([_layer_cells(layer) for layer in ordered(one.layers, asked.how.by or BY)], _layer_cells(one.total))
        for name, one in found.items()
    }
    counts = [column._replace(kind="number") for column in COUNTS]
    columns = (*LAYER, *counts, *SUMS, VERDICT, *FOR_MACHINES) if asked.machine_readable else LAYER
    table = _table(asked, "layer", lines, notes, columns, _time_title(sides))
    table.extra["differences"] = _differences(found)
    return Compared(table, {name: one.subjects for name, one in found.items()})


# ------------------------------------------------------------------------------------------------------- the runs


def _pairs(
    asked: Asked, side_of: Callable[[str, OnDisk | Run], _Side[Known]]
) -> list[tuple[_Side[Known], _Side[Known]]]:
    """The base with each new run, once it is clear that they may be compared."""
    from ncu_tools.compare.compare_kernels import hold_comparable
    from ncu_tools.runs.loading import locate

    with engine_of(asked.dask) as engine, progress("Reading") as reading:
        found = ((path, locate(path, reading=reading, engine=engine)) for path in asked.runs)
        ours, *theirs = (side_of(path, asked.only.of(run) if asked.only is not None else run) for path, run in found)
    if not asked.how.anyway:
        for side in theirs:
            hold_comparable(ours.conditions, side.conditions, (ours.name, side.name))
    return [(ours, side) for side in theirs]


def _time_title(sides: Sequence[tuple[_Side[Any], _Side[Any]]]) -> str:
    """What the times of all these runs are called: "time", or "self CPU" where each is of operators on a CPU."""
    from ncu_tools.kernels.operator_times import time_title

    return time_title({kind for pair in sides for side in pair for kind in side.run.observed.times})


def _summed(path: str, found: OnDisk | Run) -> _Side[Works]:
    """A run of any size, summed by what its launches do."""
    from ncu_tools.compare.comparison_sums import works_of_run

    works = works_of_run(found)
    return _Side(path, works, _conditions(path, works.observed), list(works.reports))


def _calls(path: str, found: OnDisk | Run) -> _Side[Works]:
    """A trace, summed by its calls of operators; all of its launches are in memory for that."""
    from ncu_parsers.parquet.reader import read_launches

    from ncu_tools.kernels.operator_work import calls_of_operators
    from ncu_tools.runs.loading import Run

    table = found.table if isinstance(found, Run) else read_launches(found.file)
    return _summed(path, Run(found.name, calls_of_operators(table), found.notes))


def _layered(path: str, found: OnDisk | Run) -> _Side[LayerSums]:
    """A run of any size, condensed to what its layers are made of."""
    from ncu_tools.compare.layer_sums import layers_of_run

    run = layers_of_run(found)
    return _Side(path, run, _conditions(path, run.observed), list(run.reports))


def _conditions(path: str, observed: Observed) -> Conditions:
    """The conditions of a run, with what its manifest says of them, where it has one that can be read."""
    from ncu_tools.compare.run_conditions import conditions_of

    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    belongs = Path(path).is_dir() or Path(path).name == "launches.parquet"
    try:
        return conditions_of(observed, read_manifest(folder) if belongs else None)
    except (OSError, ValueError, TypeError):
        return conditions_of(observed)


# ------------------------------------------------------------------------------------------------------ the table


def _table(
    asked: Asked,
    what: str,
    lines: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]],
    notes: dict[str, list[str]],
    columns: Sequence[Column],
    time: str,
) -> Table:
    """The first lines of each comparison and its total, which is never hidden.

    `columns` are all of them for machines. People get those of what is compared behind them. `time` is what the times
    are called.
    """
    shown = None if asked.how.top is None and asked.machine_readable else asked.how.top or ROWS_SHOWN
    several = len(lines) > 1
    names = {name: name for name in asked.runs} if asked.machine_readable else short_names(asked.runs)
    rows, said = [], []
    for name, (every, total) in lines.items():
        rows += [{RUN.name: names[name], **cells} for cells in [*every[:shown], {**total, "is_total": True}]]
        hidden = hidden_rows(len(every), shown, f"more {what}", f"more {what}s")
        said += [f"{names[name]}: {note}" if several else note for note in [*hidden, *notes[name]]]
    if not asked.machine_readable:
        rows = [_with_short_names(row) for row in rows]
        columns = (*columns, *_for_people(rows, names[asked.runs[0]] if several else "", what, time))
    columns = (RUN, *columns) if several or asked.machine_readable else columns
    return with_time_title(Table("compare", columns, rows, said, {"base": asked.runs[0]}), time)


def _with_short_names(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its kernel as people tell it from others: what it was by its short name, if that was another."""
    from ncu_parsers.schema.tables import short_name

    from ncu_tools.compare.matching.kernel_pairs import BY_NAME

    if "kernel" not in row:
        return row
    was = row["was"] and short_name(row["was"])
    return {
        **row,
        "kernel": row["kernel"].removeprefix("void "),
        "was": was if was != short_name(row["kernel"]) else row["was"],
        MATCHED_BY.name: row[MATCHED_BY.name] if row[MATCHED_BY.name] != BY_NAME else None,
    }


def _for_people(rows: list[dict[str, Any]], base: str, what: str, time: str) -> list[Column]:
    """Columns of both sides and of what changed. Of several runs, `base` is the name of the base; others name rows."""
    before, after = (base, "") if base else ("base", "new")

    def sides(name: str, title: str, kind: str, spare: int) -> list[Column]:
        both = (("base", before), ("new", after))
        return [Column(f"{side}_{name}", f"{called} {title}".strip(), kind, spare=spare) for side, called in both]

    same = {name: all(row.get(f"{name}_verdict") in ("same", None) for row in rows) for name in COUNTED}
    counts = "count" if what == "kernel" else "number"
    return [
        *sides("launches", "launches", counts, UNCHANGED if same["launches"] else LAUNCHES_CHANGED),
        *sides("compared_ns", time, "time", 1),
        Column("time_change", f"{time} changed [95 %]", spare=0),
        VERDICT,
        Column("flops_change", "FLOPs changed", spare=UNCHANGED if same["flops"] else CHANGED),
        Column("dram_bytes_change", "DRAM changed [95 %]", spare=UNCHANGED if same["dram_bytes"] else CHANGED),
    ]


def _differences(found: dict[str, Comparison] | dict[str, LayerComparison]) -> list[dict[str, Any]]:
    return [{RUN.name: name, **asdict(each)} for name, one in found.items() for each in one.differences]


def _kernel_cells(kernel: ComparedKernel) -> dict[str, Any]:
    cells: dict[str, Any] = {
        "kernel": kernel.pair.kernel,
        "was": kernel.pair.was if kernel.pair.was != kernel.pair.kernel else None,
        "matched_by": kernel.pair.matched_by,
        "verdict": verdict(kernel.changes["time"], is_new=kernel.is_new, is_gone=kernel.is_gone),
        "time_interval_of": kernel.changes["time"].basis,
        "is_total": False,
    }
    cells["compares"] = kernel.changes["time"].compares or "sums"
    for title, side in (("base", kernel.base), ("new", kernel.new)):
        if side is not None:
            cells |= {f"{title}_launches": side.launches, f"{title}_time_ns": side.time_total_ns}
            cells |= {f"{title}_flops": side.flops, f"{title}_dram_bytes": side.dram_bytes}
            compared = {name: getattr(change, title) for name, change in kernel.changes.items()}
            cells |= {f"{title}_time_mean_ns": compared["time"], f"{title}_compared_ns": compared["time"]}
            cells |= {f"{title}_{name}_mean": compared[name] for name in ("flops", "dram_bytes")}
    return cells | change_cells(kernel.changes, in_both=not kernel.is_new and not kernel.is_gone)


def _total_cells(comparison: Comparison, asked: Asked) -> dict[str, Any]:
    """The cells of the sums over all kernels: no means per launch, and the verdict says where the work is another."""
    cells = _kernel_cells(comparison.total)
    cells |= {column.name: None for column in MEANS}
    if not asked.machine_readable:
        cells["kernel"] += " (sums)"
    if comparison.other_work and not comparison.sums_anyway:
        from ncu_tools.compare.same_work import NOT_THE_SAME_WORK

        cells["verdict"] = str(comparison.other_work) if asked.machine_readable else NOT_THE_SAME_WORK
    return cells


def _layer_cells(layer: ComparedLayer) -> dict[str, Any]:
    is_new, is_gone = layer.base is None, layer.new is None
    cells: dict[str, Any] = {
        "layer": layer.module,
        "phase": layer.phase or None,
        "verdict": verdict(layer.changes["time"], is_new=is_new, is_gone=is_gone),
        "time_interval_of": layer.changes["time"].basis,
        "is_total": False,
    }
    for title, side in (("base", layer.base), ("new", layer.new)):
        if side is not None:
            cells |= {f"{title}_launches": side.launches, f"{title}_time_ns": side.time_ns}
            cells |= {f"{title}_compared_ns": side.time_ns}
            cells |= {f"{title}_flops": side.flops, f"{title}_dram_bytes": side.dram_bytes}
    return cells | change_cells(layer.changes, in_both=not is_new and not is_gone)
