"""A run: launches in memory, in a Parquet file or in the files of a dataset, whose columns are read when needed.

Analyses ask for columns, batches or sums, never for the location of launches. A run has one part or, as a dataset,
several, which its engine processes. A part that cannot be read is left out with a note, unless it is the only one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.run_files import POINTS_FILE
from ncu_parsers.datasets.dataset_layout import RUN, Dataset, LogLine
from ncu_parsers.datasets.engine import Engine, InOrder
from ncu_parsers.datasets.remote_files import File
from ncu_parsers.parquet import reader
from ncu_parsers.parquet.reader import Beforehand, Choice, Columns, TableContents
from ncu_parsers.schema import arrays
from ncu_parsers.schema.own_columns import own_names
from ncu_parsers.schema.tables import (
    SCHEMA_VERSION,
    concatenated,
    contract_first,
    field_metadata,
    table_metadata,
    with_metadata,
)

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from ncu_parsers.parquet.arrow_dataset import ScannedFile

Result = TypeVar("Result")


@dataclass(frozen=True)
class PartInMemory:
    """Launches in memory; always returned with all columns."""

    table: pa.Table
    path = None

    @property
    def is_varied(self) -> bool:
        """True if launches may be of several points, as in `profile --vary`."""
        return bool(own_names(self.table))

    def read(self, columns: Columns = None) -> pa.Table:
        """The launches."""
        return self.table

    def batches(self, columns: object = None, beforehand: Beforehand | None = None) -> Iterator[pa.Table]:
        """The launches as one batch."""
        yield self.table

    def in_parts(self, columns: Sequence[str], part: Callable[[pa.Table], pa.Table]) -> pa.Table:
        """`part` is not applied: it would not save memory."""
        return self.table

    def contents(self) -> TableContents:
        """The columns and the number of rows."""
        names, rows = list(self.table.column_names), len(self.table)
        return TableContents(names, [name for name in names if self.table.column(name).null_count < rows], rows)

    def scanned(self) -> None:
        """No file: a query engine gets the table."""


@dataclass(frozen=True)
class PartInFile:
    """Launches in a Parquet file, on disk or at a URL; `run` is the run that a file of a dataset belongs to."""

    file: File
    run: str | None = None

    def __str__(self) -> str:
        return str(self.file)

    @property
    def path(self) -> Path | None:
        """The file if it is on disk, where caches are beside it."""
        return self.file if isinstance(self.file, Path) else None

    @property
    def is_varied(self) -> bool:
        """True in the run folder of several points."""
        return self.path is not None and self.path.with_name(POINTS_FILE).is_file()

    def read(self, columns: Columns = None) -> pa.Table:
        """The existing ones of `columns`; rows of a dataset have the column `run`."""
        table = reader.read_launches(self.file, columns)
        return self._with_run(table) if columns is None or callable(columns) or RUN in columns else table

    def batches(
        self, columns: Iterable[str] | Choice | None = None, beforehand: Beforehand | None = None
    ) -> Iterator[pa.Table]:
        """The launches, a few row groups at a time; see `reader.launch_batches`."""
        found = reader.launch_batches(self.file, columns, beforehand)
        return found if columns is not None else map(self._with_run, found)

    def _with_run(self, table: pa.Table) -> pa.Table:
        if self.run is None or RUN in table.column_names:
            return table
        run = arrays.repeated(self.run, len(table))
        meaning = field_metadata(meaning="the run that a report of a dataset belongs to")
        return table.append_column(pa.field(RUN, run.type, metadata=meaning), run)

    def in_parts(self, columns: Sequence[str], part: Callable[[pa.Table], pa.Table]) -> pa.Table:
        """`part` of each batch, with one batch in memory at a time."""
        found = [part(batch) for batch in self.batches(columns)]
        return pa.concat_tables(found).unify_dictionaries() if found else self.read(columns)

    def contents(self) -> TableContents:
        """The columns and the number of rows, from the statistics of the file."""
        return reader.contents(self.file)

    def scanned(self) -> ScannedFile:
        """The input that a query engine reads by itself."""
        from ncu_parsers.parquet.arrow_dataset import ScannedFile

        return ScannedFile(self.file, self.run, reader.schema_of(self.file))


LaunchPart = PartInMemory | PartInFile
"""Launches that are read together, and left out together if they are unreadable."""


@dataclass
class Run:
    """Launches under a name. `told` are the notes on reading them, none if they are stored with the launches.

    `refused` are reports that a dataset lacks. Everything that reads raises `NcuBenchError` if a file is damaged or not
    ours; for several parts, if none can be read.
    """

    name: str
    parts: Sequence[LaunchPart]
    told: list[str] = field(default_factory=list)
    engine: Engine = field(default_factory=InOrder, repr=False, compare=False)
    refused: Sequence[LogLine] = ()

    @classmethod
    def held(cls, name: str, table: pa.Table, notes: Iterable[str] = ()) -> Run:
        """Launches in memory."""
        return cls(name, [PartInMemory(table)], list(notes))

    @classmethod
    def in_file(cls, name: str, file: File, notes: Iterable[str] = (), engine: Engine | None = None) -> Run:
        """Launches in a Parquet file."""
        return cls(name, [PartInFile(file)], list(notes), engine or InOrder())

    @classmethod
    def of_dataset(cls, dataset: Dataset) -> Run:
        """The launches of a dataset."""
        parts = [PartInFile(one.file, one.run) for one in dataset.partitions]
        return cls(dataset.root, parts, engine=dataset.engine, refused=dataset.refused)

    @cached_property
    def table(self) -> pa.Table:
        """All launches with all columns, read once."""
        return self.read()

    @cached_property
    def notes(self) -> list[str]:
        """The notes on reading the run."""
        return self.told or notes_in(self.read(()))

    @property
    def notes_on_refused(self) -> list[str]:
        """One sentence per report that a dataset lacks."""
        return [f"left out of {self.name}: {line.reason}" for line in self.refused]

    @property
    def path(self) -> Path | None:
        """Its only file, if on disk."""
        return self.parts[0].path if len(self.parts) == 1 else None

    def read(self, columns: Columns = None) -> pa.Table:
        """The launches with at least the existing ones of `columns`."""
        wanted = columns if columns is None or callable(columns) else list(columns)
        return self._joined(methodcaller("read", wanted))

    def only(self, columns: Columns) -> Run:
        """The run in memory, with at least `columns`."""
        table = self.read(columns)
        return Run.held(self.name, table, self.told or notes_in(table))

    def batches(self) -> Iterator[pa.Table]:
        """The launches with all columns; a single file comes a few row groups at a time."""
        return self.parts[0].batches() if len(self.parts) == 1 else iter([self.table])

    def in_parts(self, columns: Sequence[str], part: Callable[[pa.Table], pa.Table]) -> pa.Table:
        """`part` of each batch of the launches in files, with one batch in memory at a time."""
        return self._joined(methodcaller("in_parts", columns, part))

    def contents(self) -> TableContents:
        """The columns and the number of rows."""
        found: list[TableContents] = self._each(methodcaller("contents"))[0]
        if len(found) == 1:
            return found[0]
        return TableContents(
            contract_first(name for one in found for name in one.names),
            contract_first(name for one in found for name in one.filled),
            sum(one.rows for one in found),
        )

    def scanned(self) -> tuple[Callable[[], ds.Dataset | pa.Table], list[str]]:
        """The launches for a query engine, which reads only what it needs, and the notes on them.

        Rows of a dataset have the column `run`.
        """
        from ncu_parsers.parquet.arrow_dataset import joined  # slow to import

        found, left_out = self._each(methodcaller("scanned"))
        parts = [one for one in found if one is not None]
        launches = joined(parts) if len(parts) == len(found) else None
        notes = [note for one in parts for note in notes_in(one.schema.empty_table())]
        said = self.told or list(dict.fromkeys([*self.notes_on_refused, *notes, *left_out]))
        return launches or self.read, said

    def _joined(self, function: Callable[[LaunchPart], pa.Table]) -> pa.Table:
        """The tables that `function` makes of the parts, with their metadata merged."""
        found, left_out = self._each(function)
        if len(self.parts) == 1 and not self.refused:
            return found[0]
        metadatas = [table_metadata(table) for table in found]
        notes = [*self.notes_on_refused, *(note for one in metadatas for note in one.get("notes", [])), *left_out]
        reports = [report for one in metadatas for report in one.get("reports", [])]
        metadata = {"schema_version": SCHEMA_VERSION, "reports": reports, "notes": list(dict.fromkeys(notes))}
        return with_metadata(concatenated(found), metadata)

    def _each(self, function: Callable[[LaunchPart], Result]) -> tuple[list[Result], list[str]]:
        """Apply `function` to each part; returns the results, and notes on parts that cannot be read.

        Raises the first error if no part can be read.
        """
        found: list[Result] = []
        errors: dict[str, NcuBenchError] = {}
        for part, result in zip(self.parts, self.engine.map(function, self.parts), strict=True):
            if isinstance(result, NcuBenchError):
                errors[left_out_note(part, result)] = result
            else:
                found.append(result)
        if not found:
            raise next(iter(errors.values()), None) or self.nothing_in_it()
        return found, list(errors)

    def nothing_in_it(self) -> NcuBenchError:
        """The error for a dataset without a report."""
        first = next((line.reason for line in self.refused), "")
        reason = f"{len(self.refused)} reports were refused, the first because: {first}"
        return NcuBenchError(
            f"{self.name} holds no launches.", reason if self.refused else "No report was read into it."
        )


def pooled(runs: Sequence[Run]) -> Run:
    """The launches and notes of several runs as one run in memory."""
    if len(runs) == 1:
        return runs[0]
    return Run.held(
        ", ".join(run.name for run in runs),
        concatenated([run.table for run in runs]),
        [note for run in runs for note in run.notes],
    )


def notes_in(table: pa.Table) -> list[str]:
    """The notes on reading in the metadata of launches."""
    return list(table_metadata(table).get("notes", []))


def left_out_note(part: LaunchPart, error: NcuBenchError) -> str:
    """The note on a part of a dataset that cannot be read."""
    return f"{part} was left out: {error.what}"
