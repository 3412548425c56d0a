"""The kernels of a file of launches, summed as it is read, and kept beside it as kernels.parquet; those of a dataset.

What was kept holds as long as the launches, the machine files and this release are those it was made with; else it is
as if it were not there. It is used with the default grouping, without `--machine`, and where no single launch is asked
for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from ncu_launch.files.typed_json import record_of
from ncu_launch.version import VERSION
from ncu_parsers.datasets.dataset_layout import Dataset
from ncu_parsers.datasets.remote_files import File
from ncu_parsers.parquet.checked_open import fingerprint
from ncu_parsers.parquet.reader import contents, filled_columns, read_beside, read_launches
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import SCHEMA_VERSION

from ncu_tools.ceilings.machine_files import Machine, machine_files
from ncu_tools.ceilings.work_by_unit import UNIT_COLUMNS
from ncu_tools.kernels.kernel_row import Hotspot, Hotspots, kernels_table, ranked
from ncu_tools.runs.loading import KERNELS, OnDisk, Run, notes_of
from ncu_tools.runs.partition_sums import (
    OF_GROUPS,
    decides_ceilings,
    needed,
    notes_of_reports,
    stretches,
    sums_of_dataset,
    sums_of_file,
)

if TYPE_CHECKING:
    from ncu_tools.kernels.hotspots import RunSums


def hotspots_of(
    run: OnDisk | Run, machine: Machine | None = None, *, by: str = "time", group: str = "name"
) -> Hotspots:
    """The kernels of a run, as `hotspots` has them of its whole table; the run's notes come first.

    Launches that are in a Parquet file are never in memory all at once; where its kernels were kept, they are not read.
    Raises `NcuBenchError` when the file is damaged or not ours.
    """
    if not isinstance(run, OnDisk):
        from ncu_tools.ceilings.ceilings import ceilings_of
        from ncu_tools.kernels.hotspots import hotspots

        result = hotspots(run.table, ceilings_of(run.table, machine), by=by, group=group)
        return Hotspots(result.rows, [*run.notes, *result.notes], result.time_title)
    if isinstance(run.file, Dataset):
        rows, notes, title = _summed_dataset(run.file, machine, group)
        return ranked(rows, [*run.notes, *notes], by=by, time_title=title)
    kept = None
    if machine is None and group == "name" and isinstance(run.file, Path):
        kept = kept_kernels(run.file)
    if kept is not None:
        rows, about = kept
        return ranked(rows, [*(run.notes or about.said), *about.notes], by=by, time_title=about.time_title)
    rows, notes, title = _summed(run.file, machine, group)
    return ranked(rows, [*(run.notes or notes_of(run.file)), *notes], by=by, time_title=title)


def keep_kernels(launches: Path) -> Path | None:
    """Write the kernels of the file `launches` beside it, the hottest first, as `profile` does for a run folder.

    None when another process replaces the launches meanwhile: the kernels are then its to write. Raises `NcuBenchError`
    when a file cannot be read or written.
    """
    made_of = _made_of(launches)
    rows, notes, title = _summed(launches, None, "name")
    said = notes_of(launches)
    if _made_of(launches) != made_of:
        return None
    path = launches.with_name(KERNELS)
    kept = {"schema_version": SCHEMA_VERSION, "kernels": asdict(Kept(made_of, said, notes, title))}
    write_table(tables.with_metadata(kernels_table(ranked(rows, notes).rows), kept), path)
    return path


def kept_kernels(launches: Path) -> tuple[list[Hotspot], Kept] | None:
    """The kernels kept beside a file of launches, and what they say of themselves.

    None where none were kept, or of other launches, with other machine files or by another release.
    """
    beside = launches.with_name(KERNELS)
    table = read_beside(beside) if beside.is_file() else None
    kept = _kept_in(table) if table is not None else None
    if table is None or kept is None or kept.made_of != _made_of(launches):
        return None
    return _rows_of(table), kept


@dataclass(frozen=True)
class Kept:
    """What kept kernels say of themselves: what they were `made_of`, notes on its reports and on its launches.

    `time_title` is what their times are called.
    """

    made_of: list[str | None]
    said: list[str]
    notes: list[str]
    time_title: str


def _kept_in(table: pa.Table) -> Kept | None:
    """What a table says of kept kernels, whoever wrote it; None where it is no table of them."""
    if tables.metadata_problem(table.schema):
        return None
    known = {column.name: column.type for column in table.schema}
    if any(known.get(column.name) != column.type for column in kernels_table([]).schema):
        return None
    try:
        return record_of(Kept, tables.table_metadata(table).get("kernels", {}))
    except TypeError:
        return None


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
    return [VERSION, machines, fingerprint(launches)]


@dataclass
class Summed:
    """The sums of a file or of several, and what was said on their ceilings: in notes, and by which the rates are."""

    run: RunSums
    machine: Machine | None
    said: dict[tuple[tuple[str, ...], frozenset[Any]], None] = field(default_factory=dict)
    reports: dict[str, None] = field(default_factory=dict)

    def add(self, table: pa.Table) -> None:
        """Take the next launches."""
        from ncu_tools.ceilings.ceilings import ceilings_of  # kept kernels do without all that it takes to make them

        self.reports |= notes_of_reports(table)
        ceilings = ceilings_of(table, self.machine)
        self.run.add(table, ceilings)
        from_file = frozenset(ceilings.origins[at] for at in set(ceilings.origin_of["fp32"].tolist()))
        self.said[tuple(ceilings.notes), from_file] = None

    def merge(self, other: Summed) -> None:
        """Take what comes behind."""
        self.run.merge(other.run)
        self.said |= other.said
        self.reports |= other.reports

    def notes(self, file: File | Dataset) -> list[str]:
        """What is missing in the launches or odd about them, and where their ceilings come from.

        Raises `NcuBenchError` when the file that they were read from is damaged now.
        """
        if isinstance(file, Dataset):
            return [*self.run.notes(), *_alike(list(dict.fromkeys(note for said, _ in self.said for note in said)))]
        if len(self.said) == 1:
            # Medians that print alike in every stretch print so over all of them.
            ((notes, _),) = self.said
        else:
            from ncu_tools.ceilings.ceilings import ceilings_of

            columns = needed((), contents(file)[0], filled_columns(file))
            whole = read_launches(file, [name for name in columns if decides_ceilings(name)])
            notes = tuple(ceilings_of(whole, self.machine).notes)
        return [*self.run.notes(), *notes]


def _summed(launches: File, machine: Machine | None, group: str) -> tuple[list[Hotspot], list[str], str]:
    """The kernels of a file of launches, the notes on them, what their times are called.

    Some row groups are in memory at a time.
    """
    summed = _sums_of(machine, group, launches)
    return summed.run.kernels(), summed.notes(launches), summed.run.time_title


def _sums_of(machine: Machine | None, group: str, launches: File) -> Summed:
    from ncu_tools.kernels.hotspots import RunSums

    return sums_of_file(lambda: Summed(RunSums(group), machine), partial(stretches, others=OF_GROUPS[group]), launches)


def _summed_dataset(dataset: Dataset, machine: Machine | None, group: str) -> tuple[list[Hotspot], list[str], str]:
    """The kernels of a dataset, its notes, what its times are called; raises as `sums_of_dataset` does."""
    whole = sums_of_dataset(dataset, partial(_sums_of, machine, group))
    return whole.run.kernels(), [*whole.reports, *whole.notes(dataset)], whole.run.time_title


def _alike(notes: Sequence[str]) -> list[str]:
    """Notes of many files, those that differ in their numbers alone said once: medians of each file differ a little."""
    groups: dict[str, list[str]] = {}
    for note in notes:
        groups.setdefault(re.sub(r"\d[\d.,]*", "#", note), []).append(note)
    return [
        same[0] if len(same) == 1 else f"{same[0]} (so of one report; {len(same) - 1} more differ in the numbers)"
        for same in groups.values()
    ]
