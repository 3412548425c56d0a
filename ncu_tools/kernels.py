"""The kernels of a file of launches, summed as it is read, and kept beside it as kernels.parquet; those of a dataset.

What was kept holds as long as the launches, the machine files and this release are those it was made with; else it is
as if it were not there. It answers what no other grouping, machine or launch by itself is asked for.

The files of a dataset are summed by its engine, some in a row by one worker, and these sums are added up in the order
of the dataset. Which files are in a row depends on their number alone, so that every engine gives the same digits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from ncu_launch import metrics as known
from ncu_launch.errors import NcuBenchError
from ncu_parsers import tables
from ncu_parsers.datasets import Dataset, Partition
from ncu_parsers.parquet import (
    contents,
    filled_columns,
    fingerprint,
    launch_stretches,
    left_out_note,
    nothing_in,
    read_beside,
    read_launches,
    write_table,
)
from ncu_parsers.storage import File
from ncu_parsers.tables import SCHEMA_VERSION

from ncu_tools import __version__
from ncu_tools.kernel_rows import Hotspot, Hotspots, kernels_table, ranked
from ncu_tools.loading import KERNELS, OnDisk, Run, notes_of
from ncu_tools.machine import Machine, machine_files
from ncu_tools.work import UNIT_COLUMNS

if TYPE_CHECKING:
    from ncu_tools.hotspots import RunSums

OF_THE_BOARD = ("device__attribute_", known.TENSOR_PREFIX)
EXTREMES = ("gpu__time_duration.sum (minimum)", "gpu__time_duration.sum (maximum)")
OF_CEILINGS = frozenset({"device_name", "compute_capability", "sm_clock_hz"})
OF_SUMS = frozenset({
    "source", "kernel_name", "kernel_short", "invocations", "failed", "duration_ns", "flops", "flops_basis",
    "dram_bytes", *UNIT_COLUMNS.values(), *EXTREMES,
})  # fmt: skip
OF_COMPARISONS = frozenset({*EXTREMES, "start_ns", "operation", "host"})
OF_GROUPS = {"grid": ("grid", "block"), "nvtx": ("nvtx_path",)}

TASKS, MOST_IN_A_ROW = 64, 32
"""A dataset is summed as so many tasks at least, where it has as many files, and of so many files each at most."""


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
    if isinstance(run.file, Dataset):
        rows, notes = _summed_dataset(run.file, machine, group)
        return ranked(rows, [*run.notes, *notes], by=by)
    kept = None
    if machine is None and group == "name" and isinstance(run.file, Path):
        kept = kept_kernels(run.file)
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


@dataclass
class _Summed:
    """The sums of a file or of several, and what was said on their ceilings: in notes, and by which the rates are."""

    run: RunSums
    said: dict[tuple[tuple[str, ...], frozenset[Any]], None] = field(default_factory=dict)
    reports: dict[str, None] = field(default_factory=dict)

    def merge(self, other: _Summed) -> None:
        """Take what comes behind."""
        self.run.merge(other.run)
        self.said |= other.said
        self.reports |= other.reports


def _summed(launches: File, machine: Machine | None, group: str) -> tuple[list[Hotspot], list[str]]:
    """The kernels of a file of launches and the notes on them, with some row groups in memory at a time."""
    summed = _sums_of(launches, machine, group)
    if len(summed.said) == 1:
        # Medians that print alike in every stretch print so over all of them.
        ((notes, _),) = summed.said
    else:
        from ncu_tools.ceilings import ceilings_of

        columns = _needed(group, contents(launches)[0], filled_columns(launches))
        whole = read_launches(launches, [name for name in columns if _decides_ceilings(name)])
        notes = tuple(ceilings_of(whole, machine).notes)
    return summed.run.kernels(), [*summed.run.notes(), *notes]


def _sums_of(launches: File, machine: Machine | None, group: str) -> _Summed:
    from ncu_tools.ceilings import ceilings_of  # kept kernels do without all that it takes to make them
    from ncu_tools.hotspots import RunSums

    result = _Summed(RunSums(group))
    for stretch in launch_stretches(launches, partial(_needed, group)):
        result.reports |= dict.fromkeys(tables.table_metadata(stretch).get("notes", []))
        ceilings = ceilings_of(stretch, machine)
        result.run.add(stretch, ceilings)
        from_file = frozenset(ceilings.origins[at] for at in set(ceilings.origin_of["fp32"].tolist()))
        result.said[tuple(ceilings.notes), from_file] = None
    return result


# -------------------------------------------------------------------------------------------------------- datasets


def _summed_dataset(dataset: Dataset, machine: Machine | None, group: str) -> tuple[list[Hotspot], list[str]]:
    """The kernels of a dataset and its notes; files that cannot be read are left out, and noted.

    Raises `NcuBenchError` where none can be read.
    """
    from ncu_tools.hotspots import RunSums

    rows = _in_rows(dataset.partitions)
    whole = _Summed(RunSums(group), reports=dict.fromkeys(dataset.notes))
    lost = 0
    for row, summed in zip(rows, dataset.engine.map(partial(_sums_of_row, machine, group), rows), strict=True):
        if isinstance(summed, NcuBenchError):
            lost += 1
            whole.reports |= dict.fromkeys(left_out_note(one, summed) for one in row)
            error = summed
        else:
            whole.merge(summed)
    if lost == len(rows):
        raise error if rows else nothing_in(dataset)
    notes = list(dict.fromkeys(note for said, _ in whole.said for note in said))
    return whole.run.kernels(), [*whole.reports, *whole.run.notes(), *_alike(notes)]


def _in_rows(partitions: Sequence[Partition]) -> list[list[Partition]]:
    """The files of a dataset in its order, in rows of the same length, the last shorter."""
    length = max(1, min(MOST_IN_A_ROW, len(partitions) // TASKS))
    return [list(partitions[start : start + length]) for start in range(0, len(partitions), length)]


def _sums_of_row(machine: Machine | None, group: str, row: Sequence[Partition]) -> _Summed:
    """The sums of some files, one in memory at a time. Raises `NcuBenchError` where none of them can be read."""
    result: _Summed | None = None
    left_out: dict[str, None] = {}
    for partition in row:
        try:
            summed = _sums_of(partition.file, machine, group)
        except NcuBenchError as error:
            left_out[left_out_note(partition, error)] = None
            last = error
            continue
        if result is None:
            result = summed
        else:
            result.merge(summed)
    if result is None:
        raise last
    result.reports |= left_out
    return result


def _alike(notes: Sequence[str]) -> list[str]:
    """Notes of many files, those that differ in their numbers alone said once: medians of each file differ a little."""
    groups: dict[str, list[str]] = {}
    for note in notes:
        groups.setdefault(re.sub(r"\d[\d.,]*", "#", note), []).append(note)
    return [
        same[0] if len(same) == 1 else f"{same[0]} (so of one report; {len(same) - 1} more differ in the numbers)"
        for same in groups.values()
    ]


def _needed(group: str, names: Sequence[str], filled: Sequence[str]) -> list[str]:
    """The columns that the kernels depend on and some launch has; of tensor counters, that there is one says much."""
    wanted, known_of_some = {*OF_SUMS, *OF_GROUPS.get(group, ())}, set(filled)
    return [
        name
        for name in names
        if (name in known_of_some or name.startswith(known.TENSOR_PREFIX))
        and (name in wanted or _decides_ceilings(name))
    ]


def is_compared(name: str) -> bool:
    """Whether a column is needed to compare two runs: those of the contract, and what decides ceilings and order."""
    return (name in tables.COLUMN_NAMES and name != "rules") or name in OF_COMPARISONS or _decides_ceilings(name)


def _decides_ceilings(name: str) -> bool:
    return name in _of_ceilings() or name.startswith(OF_THE_BOARD)


@lru_cache(maxsize=1)
def _of_ceilings() -> frozenset[str]:
    from ncu_tools.ceilings import PEAK_COLUMNS

    return OF_CEILINGS.union(PEAK_COLUMNS.values(), (ceiling.metric for ceiling in known.ceilings()))
