"""Runs of launches compared kernel by kernel, or layer by layer, as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ncu_launch.manifest import read_manifest

from ncu_tools.cli.compared import RUN, Asked, Compared, change_cells, verdict
from ncu_tools.cli.options import ROWS_SHOWN, engine_of, hidden_rows, progress
from ncu_tools.report.table import Column, Table

if TYPE_CHECKING:
    from ncu_tools.compare import ComparedKernel, Comparison
    from ncu_tools.compare_layers import ComparedLayer, LayerComparison
    from ncu_tools.conditions import Conditions, Observed
    from ncu_tools.loading import OnDisk, Run
    from ncu_tools.run_layers import LayerSums
    from ncu_tools.run_works import Works

Known = TypeVar("Known")

BY = "change"
KERNEL = (
    Column("kernel", "kernel", wide=True),
    Column("was", "was", wide=True),
    Column("base_launches", "launches", "count", spare=4),
    Column("new_launches", "new", "count", spare=4),
    Column("base_time_mean_ns", "mean", "time", "ns", spare=5),
    Column("new_time_mean_ns", "new", "time", "ns", spare=5),
)
LAYER = (
    Column("layer", "layer", wide=True),
    Column("phase", "phase", spare=0),
    Column("base_launches", "launches", "number", spare=4),
    Column("new_launches", "new", "number", spare=4),
)
TIMES = (Column("base_time_ns", "time", "time", "ns", spare=1), Column("new_time_ns", "new", "time", "ns", spare=1))
FOR_PEOPLE = (
    Column("time_change", "time changed by [95 %]", spare=0),
    Column("verdict", "verdict", spare=0),
    Column("flops_change", "FLOPs", spare=2),
    Column("dram_bytes_change", "DRAM [95 %]", spare=3),
)
MATCHED_BY = Column("matched_by", "matched by")
FOR_MACHINES = (
    *(
        Column(f"{measure}_ratio{end}", f"{measure} ratio{end}", "number")
        for measure in ("time", "dram_bytes")
        for end in ("", "_low", "_high")
    ),
    Column("time_interval_of", "interval of"),
    Column("base_flops", "FLOPs", "flop", "FLOP"),
    Column("new_flops", "new", "flop", "FLOP"),
    Column("flops_ratio", "FLOPs ratio", "number"),
    Column("base_dram_bytes", "DRAM", "byte", "byte"),
    Column("new_dram_bytes", "new", "byte", "byte"),
    Column("launches_ratio", "launches ratio", "number"),
    Column("is_total", "total"),
)


@dataclass(frozen=True)
class _Side(Generic[Known]):
    """A run: what is known of its launches, its conditions, and what was odd about reading it."""

    name: str
    run: Known
    conditions: Conditions
    notes: list[str]


def compared_kernels(asked: Asked) -> Compared:
    """Each new run against the base, kernel by kernel. Raises `NcuBenchError` where they are not alike."""
    from ncu_tools.compare import compare, ordered

    found: dict[str, Comparison] = {}
    notes: dict[str, list[str]] = {}
    for ours, theirs in _pairs(asked, _summed):
        one = compare(ours.run, theirs.run, (ours.conditions, theirs.conditions))
        found[theirs.name] = one
        notes[theirs.name] = [*one.notes, *ours.notes, *theirs.notes]
    lines = {
        name: ([_kernel_cells(kernel) for kernel in ordered(one.kernels, asked.by or BY)], _kernel_cells(one.total))
        for name, one in found.items()
    }
    columns = (*KERNEL, *TIMES, *((FOR_PEOPLE[1], MATCHED_BY, *FOR_MACHINES) if asked.machine_readable else FOR_PEOPLE))
    table = _table(asked, "kernel", lines, notes, columns)
    table.extra["differences"] = _differences(found)
    return Compared(table, {name: one.subjects for name, one in found.items()})


def compared_layers(asked: Asked) -> Compared:
    """Each new run against the base, layer by layer and phase by phase. Raises `NcuBenchError` as kernels do."""
    from ncu_tools.compare_layers import compare_layers, ordered

    found: dict[str, LayerComparison] = {}
    notes: dict[str, list[str]] = {}
    for ours, theirs in _pairs(asked, _layered):
        one = compare_layers(ours.run, theirs.run, (ours.conditions, theirs.conditions), depth=asked.depth)
        found[theirs.name] = one
        notes[theirs.name] = [*one.notes, *ours.notes, *theirs.notes]
    lines = {
        name: ([_layer_cells(layer) for layer in ordered(one.layers, asked.by or BY)], _layer_cells(one.total))
        for name, one in found.items()
    }
    columns = (*LAYER, *TIMES, *((FOR_PEOPLE[1], *FOR_MACHINES) if asked.machine_readable else FOR_PEOPLE))
    table = _table(asked, "layer", lines, notes, columns)
    table.extra["differences"] = _differences(found)
    return Compared(table, {name: one.subjects for name, one in found.items()})


# ------------------------------------------------------------------------------------------------------- the runs


def _pairs(
    asked: Asked, side_of: Callable[[str, OnDisk | Run], _Side[Known]]
) -> list[tuple[_Side[Known], _Side[Known]]]:
    """The base with each new run, once it is clear that they may be compared."""
    from ncu_tools.compare import hold_comparable
    from ncu_tools.loading import locate

    with engine_of(asked.dask) as engine, progress("Reading") as reading:
        found = ((path, locate(path, reading=reading, engine=engine)) for path in asked.runs)
        ours, *theirs = (side_of(path, asked.only.of(run) if asked.only is not None else run) for path, run in found)
    if not asked.anyway:
        for side in theirs:
            hold_comparable(ours.conditions, side.conditions, (ours.name, side.name))
    return [(ours, side) for side in theirs]


def _summed(path: str, found: OnDisk | Run) -> _Side[Works]:
    """A run of any size, summed by what its launches do."""
    from ncu_tools.run_works import works_of_run

    works = works_of_run(found)
    return _Side(path, works, _conditions(path, works.observed), list(works.reports))


def _layered(path: str, found: OnDisk | Run) -> _Side[LayerSums]:
    """A run of any size, condensed to what its layers are made of."""
    from ncu_tools.run_layers import layers_of_run

    run = layers_of_run(found)
    return _Side(path, run, _conditions(path, run.observed), list(run.reports))


def _conditions(path: str, observed: Observed) -> Conditions:
    """The conditions of a run, with what its manifest says of them, where it has one that can be read."""
    from ncu_tools.conditions import conditions_of

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
) -> Table:
    """The first lines of each comparison and its total, which is never hidden."""
    shown = None if asked.top is None and asked.machine_readable else asked.top or ROWS_SHOWN
    several = len(lines) > 1
    rows, said = [], []
    for name, (every, total) in lines.items():
        rows += [{RUN.name: name, **cells} for cells in [*every[:shown], {**total, "is_total": True}]]
        hidden = hidden_rows(len(every), shown, f"more {what}", f"more {what}s")
        said += [f"{name}: {note}" if several else note for note in [*hidden, *notes[name]]]
    columns = (RUN, *columns) if several or asked.machine_readable else columns
    return Table("compare", columns, rows, said, {"base": asked.runs[0]})


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
    for title, side in (("base", kernel.base), ("new", kernel.new)):
        if side is not None:
            cells |= {f"{title}_launches": side.launches, f"{title}_time_mean_ns": side.time_mean_ns}
            cells |= {f"{title}_time_ns": side.time_total_ns}
            cells |= {f"{title}_flops": side.flops, f"{title}_dram_bytes": side.dram_bytes}
    return cells | change_cells(kernel.changes, in_both=not kernel.is_new and not kernel.is_gone)


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
            cells |= {f"{title}_flops": side.flops, f"{title}_dram_bytes": side.dram_bytes}
    return cells | change_cells(layer.changes, in_both=not is_new and not is_gone)
