"""The kernels of a file or dataset of launches, and kernels.parquet, their cache beside the file.

The cache is keyed by launches file, machine files and ncu-bench version. It is used with the default grouping and
without `--machine`, for commands that need no single launches.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from ncu_launch.files.typed_json import record_of
from ncu_launch.version import VERSION
from ncu_parsers.parquet.checked_open import fingerprint
from ncu_parsers.parquet.reader import read_beside
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import SCHEMA_VERSION

from ncu_tools.ceilings.machine_files import Machine, machine_files
from ncu_tools.ceilings.work_by_unit import UNIT_COLUMNS
from ncu_tools.kernels.kernel_row import NOT_OF_KERNELS, ORDERS, Hotspot, Hotspots, kernels_table, ranked
from ncu_tools.numbers.merged_by_field import MergedByField
from ncu_tools.runs.partition_sums import (
    OF_GROUPS,
    batches_for_sums,
    decides_ceilings,
    needed,
    notes_of_reports,
    sums_of_run,
)
from ncu_tools.runs.run import Run
from ncu_tools.runs.varied_run import Values, by_point

if TYPE_CHECKING:
    from ncu_tools.kernels.hotspots import Rows, RunSums

KERNELS = "kernels.parquet"


def hotspots_of(run: Run, machine: Machine | None = None, *, by: str = "time", group: str = "name") -> Hotspots:
    """The kernels of a run, equal to `hotspots` of its whole table; the run's notes come first.

    Launches of a Parquet file are never all in memory; if its kernels are cached, launches are not read. If the run
    varied arguments (`--vary`), each point has its own rows and shares. Raises `NcuBenchError` if the file is damaged
    or not ours.
    """
    points = by_point(run)
    return _of_points(points, machine, by, group) if points else _of_one(run, machine, by, group)


def _of_one(run: Run, machine: Machine | None, by: str, group: str) -> Hotspots:
    kept = cached_kernels(run.path) if machine is None and group == "name" and run.path is not None else None
    if kept is not None:
        rows, about = kept
        notes = [*(run.told or about.said), *about.notes]
        return ranked(rows, notes, by=by, time_title=about.time_title, devices=about.devices)
    summed = _sums_of(machine, group, run)
    notes, whole = [*summed.reports, *summed.notes(run)], summed.run
    return ranked(whole.kernels(), notes, by=by, time_title=whole.time_title, devices=whole.devices)


def _of_points(points: Sequence[tuple[Values, Run]], machine: Machine | None, by: str, group: str) -> Hotspots:
    each = [(values, _of_one(one, machine, by, group)) for values, one in points]
    rows = [replace(row, point=values, time_cumulative=None) for values, found in each for row in found.rows]
    rows.sort(key=lambda row: -(getattr(row, ORDERS[by]) or 0.0))
    notes = dict.fromkeys(note for _, found in each for note in found.notes)
    shares = [f"kernels of {len(points)} points are kept apart; shares are of the time of their point"]
    devices = list(dict.fromkeys(device for _, found in each for device in found.devices))
    return Hotspots(rows, [*notes, *(shares if len(points) > 1 else [])], each[0][1].time_title, devices)


def cache_kernels(launches: Path) -> Path | None:
    """Write the kernels of the file `launches` beside it, the hottest first, as `profile` does for a run folder.

    Returns None if another process replaced the launches meanwhile and will write the kernels. Raises `NcuBenchError`
    if a file cannot be read or written.
    """
    made_of, run = _made_of(launches), Run.in_file(str(launches), launches)
    summed = _sums_of(None, "name", run)
    notes, said = summed.notes(run), run.notes
    if _made_of(launches) != made_of:
        return None
    path = launches.with_name(KERNELS)
    about = CacheMetadata(made_of, said, notes, summed.run.time_title, summed.run.devices)
    kept = {"schema_version": SCHEMA_VERSION, "kernels": vars(about)}
    write_table(tables.with_metadata(kernels_table(ranked(summed.run.kernels(), notes).rows), kept), path)
    return path


def cached_kernels(launches: Path) -> tuple[list[Hotspot], CacheMetadata] | None:
    """The cached kernels of a file of launches, and the cache's metadata.

    None if there is no cache, or if launches, machine files or version differ.
    """
    beside = launches.with_name(KERNELS)
    table = read_beside(beside) if beside.is_file() else None
    kept = _kept_in(table) if table is not None else None
    if table is None or kept is None or kept.made_of != _made_of(launches):
        return None
    return _rows_of(table), kept


@dataclass(frozen=True)
class CacheMetadata:
    """Metadata of cached kernels: the key `made_of`, notes on the reports (`said`) and on the launches (`notes`).

    `time_title` is the title of their times, `devices` are the devices that ran them.
    """

    made_of: list[str | None]
    said: list[str]
    notes: list[str]
    time_title: str
    devices: list[str]


def _kept_in(table: pa.Table) -> CacheMetadata | None:
    """The metadata of a table of cached kernels; None if the table is not one."""
    if tables.metadata_problem(table.schema):
        return None
    known = {column.name: column.type for column in table.schema}
    if any(known.get(column.name) != column.type for column in kernels_table([]).schema):
        return None
    try:
        return record_of(CacheMetadata, tables.table_metadata(table).get("kernels", {}))
    except TypeError:
        return None


def _rows_of(table: pa.Table) -> list[Hotspot]:
    """The rows of a table made by `kernels_table`."""
    names = [column.name for column in fields(Hotspot) if column.name not in NOT_OF_KERNELS]
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
    """The cache key of a file of launches: version, machine files, fingerprint of the file."""
    machines = hashlib.sha256(repr(machine_files()).encode()).hexdigest()
    return [VERSION, machines, fingerprint(launches)]


@dataclass
class Summed(MergedByField):
    """Sums of the launches of one or several files, with the notes and origins of their ceilings."""

    run: RunSums
    machine: Machine | None
    seen: dict[tuple[tuple[str, ...], frozenset[Any]], None] = field(default_factory=dict)
    reports: dict[str, None] = field(default_factory=dict)

    def add(self, table: pa.Table, rows: Rows | None = None) -> None:
        """Add launches; `rows` replace the rows of the group."""
        from ncu_tools.ceilings.ceilings import ceilings_of  # slow to import, and cached kernels do not need it

        self.reports |= notes_of_reports(table)
        ceilings = ceilings_of(table, self.machine)
        self.run.add(table, ceilings, rows)
        from_file = frozenset(ceilings.origins[at] for at in set(ceilings.origin_of["fp32"].tolist()))
        self.seen[tuple(ceilings.notes), from_file] = None

    def notes(self, run: Run) -> list[str]:
        """Notes on missing or unusual values of the launches of `run`, and on the sources of their ceilings.

        Raises `NcuBenchError` if the file has been damaged since.
        """
        if len(run.parts) > 1:
            return [*self.run.notes(), *_merged(list(dict.fromkeys(note for notes, _ in self.seen for note in notes)))]
        if len(self.seen) == 1:
            # Medians that print alike in every batch also print alike over all of them.
            ((notes, _),) = self.seen
        else:
            from ncu_tools.ceilings.ceilings import ceilings_of

            there = run.contents()
            columns = needed((), there.names, there.filled)
            whole = run.read([name for name in columns if decides_ceilings(name)])
            notes = tuple(ceilings_of(whole, self.machine).notes)
        return [*self.run.notes(), *notes]


def _sums_of(machine: Machine | None, group: str, run: Run) -> Summed:
    read = partial(batches_for_sums, others=OF_GROUPS[group])
    return sums_of_run(run, partial(_no_sums, machine, group), read)


def _no_sums(machine: Machine | None, group: str) -> Summed:
    from ncu_tools.kernels.hotspots import RunSums

    return Summed(RunSums(group), machine)


def _merged(notes: Sequence[str]) -> list[str]:
    """Merge notes that differ only in their numbers: medians of files differ a little."""
    groups: dict[str, list[str]] = {}
    for note in notes:
        groups.setdefault(re.sub(r"\d[\d.,]*", "#", note), []).append(note)
    return [
        same[0] if len(same) == 1 else f"{same[0]} (from one report; {len(same) - 1} more differ only in the numbers)"
        for same in groups.values()
    ]
