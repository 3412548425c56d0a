"""Read launches, measured points, instructions and ranges inside kernels from Parquet.

Parquet is read only here, by `arrow_dataset`, and by the writer of its own parts. Of launches, only requested columns
are read, on disk and at URLs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from ncu_launch.errors import NcuBenchError

from ncu_parsers.datasets.remote_files import File
from ncu_parsers.parquet.checked_open import DAMAGE, opened, parquet_file
from ncu_parsers.parquet.footer import MAGIC, FooterColumns
from ncu_parsers.schema import arrays, bench_table, instance_table, instructions_table, warp_range_table
from ncu_parsers.schema.tables import (
    COLUMNS,
    METADATA_KEY,
    SCHEMA_VERSION,
    Field,
    column_problem,
    floats,
    metadata_problem,
    table_metadata,
)
from ncu_parsers.sources import memory

Columns = Iterable[str] | Callable[[str], bool] | None
"""Columns to read: names, a function that selects names, or None for all."""

INSTRUCTIONS_COMMAND = "ncu-bench parse REPORT -o launches.parquet --instructions"

ROWS_PER_BATCH = 16 * 1024
"""Row groups are combined to batches of at least this many rows, except the last."""


class TableContents(NamedTuple):
    """Names of all columns, names of the columns that are not null in every row, and the number of rows."""

    names: list[str]
    filled: list[str]
    rows: int


def contents(path: File) -> TableContents:
    """The columns of a table of launches and the number of its rows. Raises `NcuBenchError` if the file is damaged."""
    with opened(path) as (file, found):
        return TableContents(list(file.schema_arrow.names), _filled_of(file, found), int(file.metadata.num_rows))


def _filled_of(file: pq.ParquetFile, found: FooterColumns) -> list[str]:
    return [name for name in file.schema_arrow.names if name not in found.empty]


def schema_of(path: File) -> pa.Schema:
    """The schema of a file of launches, with metadata. Raises `NcuBenchError` as `read_launches` does."""
    with opened(path) as (file, _):
        nothing = file.read(columns=[])  # the schema alone lacks metadata added on closing
        schema = file.schema_arrow.with_metadata(nothing.schema.metadata)
        _require_launches(schema.empty_table(), path)
        return schema


def read_launches(path: File, columns: Columns = None) -> pa.Table:
    """Read a table of launches; with `columns`, only the ones among them that exist.

    Raises `NcuBenchError` if the file is damaged, of another kind, of a newer schema version, or too large for the
    memory limit.
    """
    wanted = columns if columns is None or callable(columns) else list(columns)
    with opened(path) as (file, _):
        _require_launches(file.read(columns=[]), path)  # first: pages of other kinds of files may claim gigabytes
        chosen = _chosen(file.schema_arrow.names, wanted)
        _require_memory(file, chosen, path)
        table = _require_valid_text(file.read(columns=None if wanted is None else chosen))
    _require_launches(table, path)
    return table


def _require_memory(file: pq.ParquetFile, columns: Sequence[str], path: File) -> None:
    """Raise `memory.TooBig` if the columns exceed the memory limit. Nulls take space too."""
    rows, names = file.metadata.num_rows, set(columns)
    kinds = [field.type for field in file.schema_arrow if field.name in names]
    memory.require_table_fits(str(path), rows, rows * sum(4 if pa.types.is_dictionary(kind) else 8 for kind in kinds))


def _require_valid_text(table: pa.Table) -> pa.Table:
    """Return the table. Raises `pyarrow.ArrowInvalid` if a text is invalid UTF-8, which Arrow reads unchecked."""
    names = [field.name for field in table.schema if not pa.types.is_primitive(field.type)]
    if len(set(table.column_names)) == len(table.column_names):
        table.select(names).validate(full=True)
    return table


def _chosen(names: Sequence[str], columns: Columns) -> list[str]:
    if columns is None or callable(columns):
        return [name for name in names if columns is None or columns(name)]
    return [name for name in columns if name in names]


def _require_launches(table: pa.Table, path: File) -> None:
    """Raise `NcuBenchError` if the table does not contain launches or has a newer schema version."""
    if METADATA_KEY not in (table.schema.metadata or {}):
        raise NcuBenchError(
            f"{path} is a Parquet file, but not one of ncu-bench.",
            "It lacks the metadata that says which schema its columns follow.",
            "Make one from a report with: ncu-bench parse REPORT -o launches.parquet",
        )
    _require_valid(metadata_problem(table.schema), path, "ncu-bench parse")
    metadata = table_metadata(table)
    kind = metadata.get("table")
    if kind == bench_table.BENCH:
        raise NcuBenchError(
            f"{path} is a table of measured points, not of launches.",
            advice=f"Look at it with: ncu-bench bench {path}, or with roofline or query",
        )
    if kind == instructions_table.INSTRUCTIONS:
        raise NcuBenchError(
            f"{path} is a table of instructions, not of launches.", advice=f"Look at it with: ncu-bench source {path}"
        )
    if kind == instance_table.INSTANCES:
        raise NcuBenchError(
            f"{path} is a table of instances: what metrics are at each address, opcode or time, not launches.",
            advice="Name the file of launches beside it; any reader of Parquet opens this one.",
        )
    if kind == warp_range_table.WARP_RANGES:
        raise NcuBenchError(
            f"{path} is a table of ranges inside kernels, not of launches.",
            advice=f"Look at it with: ncu-bench kernel {path} --part inside",
        )
    if "kernels" in metadata:
        raise NcuBenchError(
            f"{path} holds the kernels of a file of launches, not launches.",
            advice="Name launches.parquet beside it; its kernels are used wherever they suffice.",
        )
    if "history" in metadata:
        raise NcuBenchError(
            f"{path} holds what a history keeps of a run, not launches.",
            advice="Name launches.parquet beside it; this file may be deleted.",
        )
    version = metadata.get("schema_version", 0)
    if version > SCHEMA_VERSION:
        raise NcuBenchError(
            f"{path} follows schema version {version}; this ncu-bench knows versions up to {SCHEMA_VERSION}.",
            advice="Update ncu-bench, or make the file again from its report.",
        )
    _require_valid(column_problem(table.schema, COLUMNS), path, "ncu-bench parse")


def _require_valid(problem: str, path: File, command: str) -> None:
    if problem:
        raise NcuBenchError(f"{path} cannot be used: {problem}.", "It was changed by hand.", f"Make it anew: {command}")


def _require_known(table: pa.Table, path: File, newest: int, columns: Sequence[Field], command: str) -> None:
    """Raise `NcuBenchError` if a table of another kind has a newer schema version, or columns of other types."""
    version = table_metadata(table).get("schema_version", 0)
    if version > newest:
        raise NcuBenchError(
            f"{path} follows schema version {version} of its kind; this ncu-bench knows versions up to {newest}.",
            advice="Update ncu-bench.",
        )
    _require_valid(column_problem(table.schema, columns), path, command)


Choice = Callable[[Sequence[str], Sequence[str]], list[str]]
"""Selects columns, given the names of all columns and of the columns that are not null in every row."""
Beforehand = tuple[Choice, Callable[[pa.Table], None]]
"""Selects columns, and receives them for each row group before the batches come."""


def launch_batches(
    path: File, columns: Iterable[str] | Choice | None, beforehand: Beforehand | None = None
) -> Iterator[pa.Table]:
    """Yield the launches of a file in batches of row groups, in order, with the existing ones of `columns` (None: all).

    If there are several batches, `beforehand` first receives its own choice of columns for all launches, one row group
    at a time. Raises `NcuBenchError` as `read_launches` does.
    """
    with opened(path) as (file, found):
        _require_launches(file.read(columns=[]), path)
        known = file.schema_arrow.names
        names = columns(known, _filled_of(file, found)) if callable(columns) else _chosen(known, columns)
        batches = _batches_of_row_groups(file)
        if beforehand is not None and len(batches) > 1:
            choose, take = beforehand
            chosen = choose(known, _filled_of(file, found))
            for number in range(file.num_row_groups if chosen else 0):
                take(_require_valid_text(file.read_row_group(number, columns=chosen)))
        for groups in batches:
            yield _require_valid_text(file.read_row_groups(groups, columns=names))


def _batches_of_row_groups(file: pq.ParquetFile) -> list[list[int]]:
    """Numbers of the row groups in each batch."""
    batches: list[list[int]] = []
    rows = ROWS_PER_BATCH
    for number in range(file.num_row_groups):
        if rows >= ROWS_PER_BATCH:
            batches.append([])
            rows = 0
        batches[-1].append(number)
        rows += file.metadata.row_group(number).num_rows
    return batches


def one_value(path: Path, column: str) -> int | None:
    """The value of a numeric column if it is the same in every row; None if values differ or are null.

    Raises `NcuBenchError` if the file is damaged.
    """
    values = floats(read_launches(path, [column]), column)
    return int(values[0]) if len(values) and bool((values == values[0]).all()) else None


def spans_of_ids(path: Path) -> dict[int | None, tuple[int, int]]:
    """The smallest and largest launch id per process id (None if unknown) in a file of launches.

    Raises `NcuBenchError` if the file is damaged.
    """
    table = read_launches(path, ["process_id", "launch_id"])
    processes, ids = (arrays.one(table.column(name)) for name in ("process_id", "launch_id"))
    numbered = arrays.present(ids)
    if not numbered.any():
        return {}
    nowhere = -1  # no process has a negative id
    each = np.where(arrays.present(processes), arrays.values_of(processes, np.int64), nowhere)[numbered]
    order = np.argsort(each, kind="stable")  # in numpy: group_by() of a table would import pandas
    found, begins = np.unique(each[order], return_index=True)
    sorted_ids = arrays.values_of(ids, np.int64)[numbered][order]
    least, greatest = np.minimum.reduceat(sorted_ids, begins), np.maximum.reduceat(sorted_ids, begins)
    return {
        None if process == nowhere else process: (first, last)
        for process, first, last in zip(found.tolist(), least.tolist(), greatest.tolist(), strict=True)
    }


def read_beside(path: Path) -> pa.Table | None:
    """A table that `write_table` stored beside a file of launches; None if it is missing or unreadable."""
    try:
        with opened(path) as (file, _):
            return file.read(use_threads=False)  # it is small: starting threads takes longer
    except NcuBenchError:
        return None


def read_bench(path: File) -> pa.Table:
    """Read a table of measured points.

    Raises `NcuBenchError` if the file is missing, damaged, of another kind, or of a newer schema version.
    """
    try:
        with parquet_file(path) as (file, _):
            table = _require_valid_text(file.read())
    except DAMAGE as error:
        raise NcuBenchError(
            f"{path} could not be read as Parquet: {error}.", advice="Make one with: ncu-bench bench TARGET -o RUN"
        ) from error
    _require_valid(metadata_problem(table.schema), path, "ncu-bench bench")
    if table_metadata(table).get("table") != bench_table.BENCH:
        raise NcuBenchError(
            f"{path} is no table of measured points.", advice="Make one with: ncu-bench bench TARGET -o RUN"
        )
    _require_known(table, path, bench_table.SCHEMA_VERSION, bench_table.COLUMNS, "ncu-bench bench")
    missing = bench_table.missing_column(table.column_names)
    _require_valid(missing and f"it lacks the column {missing}", path, "ncu-bench bench")
    return bench_table.completed(table)


def read_instructions_table(path: File) -> pa.Table:
    """Read a table of instructions.

    Raises `NcuBenchError` if the file is damaged, of another kind, or of a newer schema version.
    """
    with opened(path) as (file, _):
        table = _require_valid_text(file.read())
    _require_valid(metadata_problem(table.schema), path, INSTRUCTIONS_COMMAND)
    if table_metadata(table).get("table") != instructions_table.INSTRUCTIONS:
        raise NcuBenchError(f"{path} is no table of instructions.", advice=f"Make one with: {INSTRUCTIONS_COMMAND}")
    _require_known(table, path, instructions_table.SCHEMA_VERSION, instructions_table.COLUMNS, INSTRUCTIONS_COMMAND)
    return instructions_table.completed(table)


def is_warp_ranges(path: Path) -> bool:
    """True for a Parquet file of ranges inside kernels, by its metadata; false for damaged ones."""
    try:
        with path.open("rb") as stream:
            if stream.read(len(MAGIC)) != MAGIC:
                return False
        with parquet_file(path) as (file, _):
            table = file.read(columns=[])
    except DAMAGE:
        return False
    return not metadata_problem(table.schema) and table_metadata(table).get("table") == warp_range_table.WARP_RANGES


def warp_range_parts(path: Path) -> tuple[dict[str, Any], Iterator[pa.Table]]:
    """The metadata of a file of ranges inside kernels, and its rows in parts.

    Raises `NcuBenchError` if the file is damaged or of a newer schema version, also while parts are read.
    """
    command = "ncu-bench parse TRACE -o FILE.parquet"
    with opened(path) as (file, _):
        table = file.read(columns=[])
        empty = file.schema_arrow.with_metadata(table.schema.metadata).empty_table()
        _require_valid(metadata_problem(table.schema), path, command)
        _require_known(empty, path, warp_range_table.SCHEMA_VERSION, warp_range_table.COLUMNS, command)
        missing = [one.name for one in warp_range_table.COLUMNS if one.name not in empty.column_names]
        _require_valid(f"it lacks the column {missing[0]}" if missing else "", path, command)

    def parts() -> Iterator[pa.Table]:
        with opened(path) as (again, _):
            for groups in _batches_of_row_groups(again):
                memory.require_memory(str(path))
                yield _require_valid_text(again.read_row_groups(groups))

    return table_metadata(empty), parts()
