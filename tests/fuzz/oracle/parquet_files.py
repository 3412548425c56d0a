"""Parquet files of launches with other values, types, codecs and orders of columns, read by pyarrow alone."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from ncu_parsers.parquet import reader
from ncu_parsers.schema import tables

from tests.fuzz import seeds
from tests.fuzz.oracle.compared import Reading, Row
from tests.fuzz.oracle.damage import NAMES, damaged_bytes, moved, real, some, whole

NUMBERS = ("launch_id", "device_id", "duration_ns", "flops", "dram_bytes", "lts__t_bytes.sum")
LISTS = ("grid", "nvtx_path", "rules")
TEXTS = ("source", "report", "kernel_name", "kernel_short", "flops_basis")


def mutated(rng: random.Random) -> bytes:
    """A file of some launches, each column written in some way that other tools use."""
    table = seeds.launch_table()
    if rng.randrange(4):
        table = table.drop_columns(list(LISTS))  # half of what a file holds, and not compared
    rows = table.to_pylist() * rng.randint(1, 2)
    for row in rows:
        for _ in some(rng):
            name = rng.choice((*NUMBERS, *TEXTS[2:]))
            row[name] = _value(rng, name) if rng.randrange(5) else None
    rows = moved(rng, rows) if rng.randrange(2) else rows
    names = table.column_names
    if rng.randrange(3) == 0:
        rng.shuffle(names)
    if rng.randrange(6) == 0:
        names.remove(rng.choice(NUMBERS))
    fields = [table.schema.field(name).with_type(_type(rng, name, table.schema.field(name).type)) for name in names]
    schema = pa.schema(fields, table.schema.metadata)
    try:
        written = pa.Table.from_pylist(rows, schema)
    except (pa.ArrowException, OverflowError, ValueError):
        written = pa.Table.from_pylist(
            rows, pa.schema([table.schema.field(name) for name in names], table.schema.metadata)
        )
    out = io.BytesIO()
    pq.write_table(
        written, out, compression=rng.choice(("none", "snappy", "zstd", "gzip")), row_group_size=rng.choice((1, 3, 100)),
        use_dictionary=bool(rng.randrange(2)), write_page_checksum=True, data_page_version=rng.choice(("1.0", "2.0")),
    )  # fmt: skip
    return damaged_bytes(rng, out.getvalue()) if rng.randrange(10) == 0 else out.getvalue()


def _value(rng: random.Random, name: str) -> Any:
    if name in TEXTS:
        return rng.choice(NAMES)
    if name in ("launch_id", "device_id"):
        return rng.randrange(2**20)
    return rng.choice((float(whole(rng)), real(rng), -real(rng), float("nan"), float("inf")))


def _type(rng: random.Random, name: str, kind: pa.DataType) -> pa.DataType:
    """The type of a column, or another one that holds such values."""
    if rng.randrange(4):
        return kind
    if name in TEXTS:
        return rng.choice((pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())))
    if name in NUMBERS and pa.types.is_floating(kind):
        return rng.choice((pa.float32(), pa.int64(), pa.float64(), pa.uint32(), pa.decimal128(20, 3)))
    return rng.choice((pa.int32(), pa.int16())) if pa.types.is_integer(kind) else kind


def slow(data: bytes) -> list[Row] | None:
    """The rows as pyarrow reads them, checksums included; None where it cannot."""
    try:
        table = pq.read_table(io.BytesIO(data), page_checksum_verification=True, partitioning=None)
    except (pa.ArrowException, OSError, ValueError, UnicodeDecodeError):
        return None
    kept = table.select([name for name in (*NUMBERS, *TEXTS) if name in table.column_names])
    return [{name: _known(value) for name, value in row.items()} for row in kept.to_pylist()]


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else float(value) if isinstance(value, int) else value


def fast(path: Path) -> Reading:
    """The rows as commands take them: numbers as float64, texts as words."""
    table = reader.read_launches(path)
    columns: dict[str, list[Any]] = {}
    for name in NUMBERS:
        columns[name] = [None if value != value else value for value in tables.floats(table, name).tolist()]
    for name in TEXTS:
        columns[name] = tables.words(table, name)
    return Reading([dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)])
