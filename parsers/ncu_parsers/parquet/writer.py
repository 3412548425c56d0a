"""Write tables to Parquet: a whole table, or launches table by table. The only writer of Parquet.

Floats are split by byte and compressed with zstd (for counters a third smaller and faster than dictionaries), ascending
ids and times are delta-encoded (ids take a hundredth of their size), names are dictionaries, pages have checksums.
Files are opened here by the bytes of their path, because Arrow accepts only UTF-8 paths.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from ncu_launch.files.atomic_files import replacing_output

from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import COLUMNS, METADATA_KEY, concatenated, contract_first


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table, atomically.

    Raises `NcuBenchError` if the folder is missing or not writable.
    """
    with replacing_output(path) as temporary, pa.OSFile(os.fsencode(temporary), "wb") as sink:
        pq.write_table(table, sink, row_group_size=ROWS_OF_A_GROUP, **_encodings(table.schema))


ROWS_OF_A_GROUP = 128 * 1024
ROWS_AT_A_TIME = 8 * 1024
"""Rows of a column that Arrow encodes at a time; its default of 1024 takes 5 % longer."""
ENOUGH_ROWS, ENOUGH_CELLS = 16 * 1024, 1_500_000
"""Smaller tables are buffered and combined to one row group: Arrow keeps a kilobyte per column and row group until the
file is closed, as much as 128 buffered rows. Reports of a thousand metrics reach the second limit first.
"""


COUNTING_UPWARDS = frozenset({"launch_id", "correlation_id", "start_ns", "end_ns"})
"""Columns of integers that differ little from row to row; a dictionary of them would hold nearly every row."""


def _encodings(schema: pa.Schema) -> dict[str, Any]:
    encodings = {field.name: "BYTE_STREAM_SPLIT" for field in schema if pa.types.is_float64(field.type)}
    ascending = (field for field in schema if field.name in COUNTING_UPWARDS and pa.types.is_integer(field.type))
    encodings |= {field.name: "DELTA_BINARY_PACKED" for field in ascending}
    others = [field.name for field in schema if field.name not in encodings and not pa.types.is_nested(field.type)]
    return {
        "compression": "zstd",
        "use_dictionary": others,
        "column_encoding": encodings,
        "write_page_checksum": True,
        "write_batch_size": ROWS_AT_A_TIME,
    }


class RowGroups:
    """A Parquet file of launches, written table by table.

    Later tables may have new columns, which are null in earlier rows. Rows written with fewer columns are copied at the
    end, one row group at a time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: list[Path] = []
        self._sink: pa.OSFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._schema: pa.Schema | None = None
        self._waiting: list[pa.Table] = []
        self.finished = False

    def write(self, table: pa.Table) -> None:
        """Append the rows of a table."""
        self._waiting.append(table)
        rows = sum(map(len, self._waiting))
        if rows >= ENOUGH_ROWS or rows * table.num_columns >= ENOUGH_CELLS:
            self._write_waiting()

    def finish(self, metadata: bytes) -> None:
        """Write the file's metadata and close it. At least one table must have been written, even if it has no rows."""
        self._write_waiting()
        if len(self._parts) > 1:
            self._copy_parts()
        assert self._writer is not None  # noqa: S101 - finish() follows write()
        self._writer.add_key_value_metadata({METADATA_KEY: metadata})
        self._close()
        self._parts[-1].replace(self._path)
        self.finished = True

    def discard(self) -> None:
        """Delete unfinished files."""
        self._waiting = []
        self._close()
        for part in self._parts:
            part.unlink(missing_ok=True)

    def _write_waiting(self) -> None:
        if not self._waiting:
            return
        schema = self._schema
        for table in self._waiting:
            schema = _grown(schema, table.schema)
        if schema != self._schema:
            self._begin(schema)
        assert self._writer is not None  # noqa: S101 - _begin() made it
        tables = [_conformed(table, schema) for table in self._waiting]
        self._waiting = []
        self._writer.write_table(pa.concat_tables(tables).unify_dictionaries() if len(tables) > 1 else tables[0])

    def _begin(self, schema: pa.Schema) -> None:
        self._close()
        self._schema = schema
        self._parts.append(self._path.with_name(f"{self._path.name}.{len(self._parts)}"))
        self._sink = pa.OSFile(os.fsencode(self._parts[-1]), "wb")
        self._writer = pq.ParquetWriter(self._sink, schema, **_encodings(schema))

    def _copy_parts(self) -> None:
        assert self._schema is not None  # noqa: S101 - there are parts
        parts = list(self._parts)
        self._begin(self._schema)
        assert self._writer is not None  # noqa: S101 - _begin() made it
        for part in parts:
            for table in _row_groups(part):
                self._writer.write_table(_conformed(table, self._schema))
            part.unlink()

    def _close(self) -> None:
        writer, sink = self._writer, self._sink
        self._writer = self._sink = None
        try:
            if writer is not None:
                writer.close()
        finally:
            if sink is not None:
                sink.close()


def _grown(known: pa.Schema | None, other: pa.Schema) -> pa.Schema:
    """The columns of both schemas in contract order; a column of both keeps its type in `known`."""
    if known is None:
        return other
    fields = {field.name: field for field in (*other, *known)}
    if len(fields) == len(known):
        return known
    return pa.schema([fields[name] for name in contract_first(fields)])


def _conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    known = dict(zip(table.column_names, table.columns, strict=True))
    columns = [known[field.name] if field.name in known else pa.nulls(len(table), field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


@contextmanager
def writing_row_groups(path: Path) -> Iterator[RowGroups]:
    """Yield a `RowGroups` writer. If finished, it replaces `path` atomically; otherwise `path` is left unchanged.

    Raises `NcuBenchError` if the folder is not writable.
    """
    with replacing_output(path) as temporary:
        groups = RowGroups(temporary)
        try:
            yield groups
        finally:
            groups.discard()
        if not groups.finished:
            temporary.unlink()


def write_parts(path: Path, parts: Sequence[Path | pa.Table], metadata: bytes) -> None:
    """Concatenate launches from several files and tables into one file, with the columns that `concatenated` gives.

    Raises `NcuBenchError` if the file cannot be written.
    """
    schemas = [part.schema if isinstance(part, pa.Table) else _schema_of(part) for part in parts]
    schema = concatenated([_as_made(one).empty_table() for one in schemas]).schema.remove_metadata()
    with writing_row_groups(path) as groups:
        for part in parts:
            for table in [part] if isinstance(part, pa.Table) else _row_groups(part):
                groups.write(_as(schema, table))
        groups.finish(metadata)


def _as_made(schema: pa.Schema) -> pa.Schema:
    """The schema with the contract's list types: types read from a file name the inner field differently."""
    lists = {column.name: column.type for column in COLUMNS if pa.types.is_nested(column.type)}
    return pa.schema([field.with_type(lists.get(field.name, field.type)) for field in schema])


def _schema_of(path: Path) -> pa.Schema:
    with pa.OSFile(os.fsencode(path), "rb") as stream:
        return pq.read_schema(stream)


def _row_groups(path: Path) -> Iterator[pa.Table]:
    with pa.OSFile(os.fsencode(path), "rb") as stream, pq.ParquetFile(stream) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group)


def _as(schema: pa.Schema, table: pa.Table) -> pa.Table:
    """Cast and reorder the table to this schema."""
    for place, field in enumerate(table.schema):
        wanted = schema.field(field.name)
        if field.type != wanted.type:
            table = table.set_column(place, wanted, arrays.cast(table.column(place), wanted.type))
    return _conformed(table, schema)
