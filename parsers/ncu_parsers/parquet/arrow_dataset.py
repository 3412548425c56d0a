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

from ncu_parsers.datasets.dataset_layout import RUN
from ncu_parsers.datasets.remote_files import File, RemoteFile
from ncu_parsers.parquet.checked_open import CHECKED
from ncu_parsers.schema.tables import contract_first, field_metadata

_FORMAT = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True, **CHECKED),
)


@dataclass(frozen=True)
class ScannedFile:
    """A file of launches with its schema, and its run if it belongs to a dataset."""

    file: File
    run: str | None
    schema: pa.Schema


def joined(files: Sequence[ScannedFile]) -> Callable[[], ds.Dataset] | None:
    """A function that opens files of launches as one Arrow dataset; files of a dataset have the column `run`.

    None if files disagree on the type of a column, or a path is not UTF-8. A column that a file lacks is null there.
    """
    schema = _whole([one.schema for one in files])
    if schema is None or not all(_is_utf8(one.file) for one in files):
        return None
    if any(one.run is not None for one in files):
        schema = _with_run(schema)
    return partial(_joined, files, schema)


def _is_utf8(file: File) -> bool:
    return not re.search("[\ud800-\udfff]", str(file.absolute()))


def _whole(schemas: Sequence[pa.Schema]) -> pa.Schema | None:
    """The union of all columns; None if a column has several types."""
    if len(schemas) == 1:
        return schemas[0]
    fields: dict[str, pa.Field] = {}
    for field in (field for schema in schemas for field in schema):
        if fields.setdefault(field.name, field).type != field.type:
            return None
    return pa.schema([fields[name] for name in contract_first(fields)])


def _with_run(schema: pa.Schema) -> pa.Schema:
    meaning = field_metadata(meaning="the run that a report of a dataset belongs to")
    return schema if RUN in schema.names else schema.append(pa.field(RUN, pa.string(), metadata=meaning))


def _joined(files: Sequence[ScannedFile], schema: pa.Schema) -> ds.Dataset:
    return ds.FileSystemDataset(list(map(_fragment, files)), schema, _FORMAT)


def _fragment(one: ScannedFile) -> ds.Fragment:
    """A Parquet fragment with the partition expression `run == ...` taken from its path."""
    known = None if one.run is None else ds.field(RUN) == one.run
    if isinstance(one.file, RemoteFile):
        system, path = one.file.found()
        return _FORMAT.make_fragment(path, PyFileSystem(FSSpecHandler(system)), known)
    return _FORMAT.make_fragment(str(one.file.absolute()), LocalFileSystem(), known)
