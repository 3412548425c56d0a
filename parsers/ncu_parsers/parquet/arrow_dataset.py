"""Launches as an Arrow dataset, for query engines such as DuckDB that read only what a query needs.

Engines skip unused columns, row groups whose minimum and maximum exclude a condition, and files of other runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FSSpecHandler, LocalFileSystem, PyFileSystem

from ncu_parsers.datasets.dataset_layout import RUN, Dataset, Partition
from ncu_parsers.datasets.remote_files import File, RemoteFile
from ncu_parsers.parquet.checked_open import CHECKED
from ncu_parsers.parquet.reader import each_partition, left_out_note, notes_of_all, read_launches, schema_of
from ncu_parsers.schema.tables import contract_first, field_metadata

_FORMAT = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True, **CHECKED),
)


@dataclass(frozen=True)
class Scanned:
    """How to get the launches, none of them read yet, and notes on the files."""

    launches: Callable[[], ds.Dataset | pa.Table]
    notes: list[str]


def scanned(path: File | Dataset) -> Scanned:
    """The launches of a file or dataset as an Arrow dataset; those of a dataset have the column `run`.

    If files disagree on the type of a column, or Arrow cannot represent their paths, all launches are read at once by
    `read_launches`. Raises `NcuBenchError` as `read_launches` does.
    """
    if not isinstance(path, Dataset):
        schema = schema_of(path)
        if not _is_utf8(path):
            return Scanned(partial(read_launches, path), notes_of_all([schema]))
        return Scanned(partial(_joined, [Partition(path)], schema), notes_of_all([schema]))
    found, left_out = each_partition(path, _schema_of)
    schemas = [schema for _, schema in found]
    notes = [*path.notes, *notes_of_all(schemas), *(left_out_note(*one) for one in left_out)]
    whole = _whole(schemas)
    if whole is None or not all(_is_utf8(partition.file) for partition, _ in found):
        return Scanned(partial(read_launches, path), list(dict.fromkeys(notes)))
    launches = partial(_joined, [partition for partition, _ in found], _with_run(whole))
    return Scanned(launches, list(dict.fromkeys(notes)))


def _is_utf8(file: File) -> bool:
    return isinstance(file, RemoteFile) or not re.search("[\ud800-\udfff]", str(file.absolute()))


def _schema_of(partition: Partition) -> pa.Schema:
    return schema_of(partition.file)


def _whole(schemas: Sequence[pa.Schema]) -> pa.Schema | None:
    """The union of all columns; None if a column has several types."""
    fields: dict[str, pa.Field] = {}
    for field in (field for schema in schemas for field in schema):
        if fields.setdefault(field.name, field).type != field.type:
            return None
    return pa.schema([fields[name] for name in contract_first(fields)])


def _with_run(schema: pa.Schema) -> pa.Schema:
    meaning = field_metadata(meaning="the run that a report of a dataset belongs to")
    return schema if RUN in schema.names else schema.append(pa.field(RUN, pa.string(), metadata=meaning))


def _joined(partitions: Sequence[Partition], schema: pa.Schema) -> ds.Dataset:
    return ds.FileSystemDataset(list(map(_fragment, partitions)), schema, _FORMAT)


def _fragment(partition: Partition) -> ds.Fragment:
    """A Parquet fragment with the partition expression `run == ...` taken from its path."""
    known = None if partition.run is None else ds.field(RUN) == partition.run
    if isinstance(partition.file, RemoteFile):
        system, path = partition.file.found()
        return _FORMAT.make_fragment(path, PyFileSystem(FSSpecHandler(system)), known)
    return _FORMAT.make_fragment(str(partition.file.absolute()), LocalFileSystem(), known)
