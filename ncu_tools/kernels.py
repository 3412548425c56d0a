"""The kernels of a file of launches, summed as it is read, and kept beside it as kernels.parquet.

What was kept holds as long as the launches, the machine files and this release are those it was made with; else it is
as if it were not there. It answers what no other grouping, machine or launch by itself is asked for.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from ncu_launch import metrics as known
from ncu_parsers import tables
from ncu_parsers.parquet import (
    contents,
    filled_columns,
    fingerprint,
    launch_stretches,
    read_beside,
    read_launches,
    write_table,
)
from ncu_parsers.tables import SCHEMA_VERSION

from ncu_tools import __version__
from ncu_tools.kernel_rows import Hotspot, Hotspots, kernels_table, ranked
from ncu_tools.loading import KERNELS, OnDisk, Run, notes_of
from ncu_tools.machine import Machine, machine_files
from ncu_tools.work import UNIT_COLUMNS

OF_THE_BOARD = ("device__attribute_", known.TENSOR_PREFIX)
EXTREMES = ("gpu__time_duration.sum (minimum)", "gpu__time_duration.sum (maximum)")
OF_CEILINGS = frozenset({"device_name", "compute_capability", "sm_clock_hz"})
OF_SUMS = frozenset({
    "source", "kernel_name", "kernel_short", "invocations", "failed", "duration_ns", "flops", "flops_basis",
    "dram_bytes", *UNIT_COLUMNS.values(), *EXTREMES,
})  # fmt: skip
OF_GROUPS = {"grid": ("grid", "block"), "nvtx": ("nvtx_path",)}


def hotspots_of(
    run: OnDisk | Run, machine: Machine | None = None, *, by: str = "time", group: str = "name"
) -> Hotspots:
    """The kernels of a run, as `hotspots` has them of its whole table; the run's notes come first.

    Launches that are in a Parquet file are never in memory all at once; where its kernels were kept, they are not read.
    Raises `NcuBenchError` when the file is damaged or not ours.
    """
    if not isinstance(run, OnDisk):
        from ncu_tools.ceilings import ceilings_of
        from ncu_tools.hotspots import hotspots

        result = hotspots(run.table, ceilings_of(run.table, machine), by=by, group=group)
        return Hotspots(result.rows, [*run.notes, *result.notes])
    kept = kept_kernels(run.file) if machine is None and group == "name" else None
    if kept is not None:
        rows, said, notes = kept
        return ranked(rows, [*(run.notes or said), *notes], by=by)
    rows, notes = _summed(run.file, machine, group)
    return ranked(rows, [*(run.notes or notes_of(run.file)), *notes], by=by)


def keep_kernels(launches: Path) -> Path | None:
    """Write the kernels of the file `launches` beside it, the hottest first, as `profile` does for a run folder.

    None when another process replaces the launches meanwhile: the kernels are then its to write. Raises `NcuBenchError`
    when a file cannot be read or written.
    """
    made_of = _made_of(launches)
    rows, notes = _summed(launches, None, "name")
    said = notes_of(launches)
    if _made_of(launches) != made_of:
        return None
    path = launches.with_name(KERNELS)
    kept = {"schema_version": SCHEMA_VERSION, "kernels": {"made_of": made_of, "said": said, "notes": notes}}
    write_table(tables.with_metadata(kernels_table(ranked(rows, notes).rows), kept), path)
    return path


def kept_kernels(launches: Path) -> tuple[list[Hotspot], list[str], list[str]] | None:
    """The kernels kept beside a file of launches, the notes of reading its reports, and those on its launches.

    None where none were kept, or of other launches, with other machine files or by another release.
    """
    beside = launches.with_name(KERNELS)
    table = read_beside(beside) if beside.is_file() else None
    kept = tables.table_metadata(table).get("kernels") if table is not None else None
    if table is None or not kept or kept["made_of"] != _made_of(launches):
        return None
    return _rows_of(table), kept["said"], kept["notes"]


def _rows_of(table: pa.Table) -> list[Hotspot]:
    """The rows that `kernels_table` made a table of."""
    names = [column.name for column in fields(Hotspot) if column.name != "work"]
    units = {unit: column for unit, column in UNIT_COLUMNS.items() if column in table.column_names}
    values: dict[str, list[Any]] = {name: table.column(name).to_pylist() for name in (*names, *units.values())}
    return [
        Hotspot(
            **{name: values[name][row] for name in names},
            work={unit: values[column][row] for unit, column in units.items()},
        )
        for row in range(len(table))
    ]


def _made_of(launches: Path) -> list[str | None]:
    """What the kernels of a file of launches depend on."""
    machines = hashlib.sha256(repr(machine_files()).encode()).hexdigest()
    return [__version__, machines, fingerprint(launches)]


def _summed(launches: Path, machine: Machine | None, group: str) -> tuple[list[Hotspot], list[str]]:
    """The kernels of a file of launches and the notes on them, with some row groups in memory at a time."""
    from ncu_tools.ceilings import ceilings_of  # kept kernels do without all that it takes to make them
    from ncu_tools.hotspots import RunSums

    columns = _needed_columns(launches, group)
    run = RunSums(group)
    said = set()
    for stretch in launch_stretches(launches, columns):
        ceilings = ceilings_of(stretch, machine)
        run.add(stretch, ceilings)
        from_file = frozenset(ceilings.origins[at] for at in set(ceilings.origin_of["fp32"].tolist()))
        said.add((tuple(ceilings.notes), from_file))
    if len(said) == 1:
        # Medians that print alike in every stretch print so over all of them.
        ((notes, _),) = said
    else:
        whole = read_launches(launches, [name for name in columns if _decides_ceilings(name)])
        notes = tuple(ceilings_of(whole, machine).notes)
    return run.kernels(), [*run.notes(), *notes]


def _needed_columns(launches: Path, group: str) -> list[str]:
    """The columns that the kernels depend on and some launch has; of tensor counters, that there is one says much."""
    wanted = {*OF_SUMS, *OF_GROUPS.get(group, ())}
    filled = set(filled_columns(launches))
    return [
        name
        for name in contents(launches)[0]
        if (name in filled or name.startswith(known.TENSOR_PREFIX)) and (name in wanted or _decides_ceilings(name))
    ]


def _decides_ceilings(name: str) -> bool:
    return name in _of_ceilings() or name.startswith(OF_THE_BOARD)


@lru_cache(maxsize=1)
def _of_ceilings() -> frozenset[str]:
    from ncu_tools.ceilings import PEAK_COLUMNS

    return OF_CEILINGS.union(PEAK_COLUMNS.values(), (ceiling.metric for ceiling in known.ceilings()))
