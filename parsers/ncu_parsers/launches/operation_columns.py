"""Columns of launches that follow from the operations of a timeline, the same for every tool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import COLUMNS, contract_fields, field_metadata, short_name
from ncu_parsers.timelines.activity.activity import KERNEL, MISSING, GpuOperations, Integers

Column = tuple[pa.Field, pa.Array]


def identity(operations: GpuOperations, source: str, report: str) -> dict[str, pa.Array]:
    """Columns of the launch table that follow from operations alone: ids, GPU, stream, kernel, duration in ns."""
    rows, names = len(operations), operations.names
    stream, of_stream = np.unique(operations.stream, return_inverse=True)
    streams = [None if one == MISSING else str(one) for one in stream.tolist()]
    shorts = [*names, *map(short_name, names)]  # a copy keeps its whole name
    return {
        "source": arrays.repeated(source, rows),
        "report": arrays.repeated(report, rows),
        "launch_id": wholes(operations.correlation, pa.int64()),
        "process_id": wholes(operations.process, pa.int64()),
        "device_id": wholes(operations.device, pa.int32()),
        "context": wholes(operations.context, pa.int64()),
        "stream": arrays.recoded(of_stream, streams),
        "kernel_name": arrays.recoded(operations.name, names),
        "kernel_short": arrays.recoded(operations.name + len(names) * (operations.kind == KERNEL), shorts),
        "failed": arrays.booleans(np.zeros(rows, np.bool_)),
        "duration_ns": arrays.floats(operations.durations),
    }


def wholes(values: Integers, kind: pa.DataType) -> pa.Array:
    """Integers as int32 or int64; null if negative or too large."""
    if len(values) and not values.strides[0] and values[0] < 0:  # a column that is missing everywhere
        return pa.nulls(len(values), kind)
    most = np.iinfo(np.int32 if kind == pa.int32() else np.int64).max
    return arrays.wholes(np.where((values >= 0) & (values <= most), values, -1), kind)


def table_of(rows: int, known: Mapping[str, pa.Array], beyond: Iterable[Column]) -> pa.Table:
    """The launch table: every contract column, null if not in `known`, then the columns `beyond` the contract."""
    nothing = {kind: pa.nulls(rows, kind) for kind in {column.type for column in COLUMNS}}
    columns = [known.get(column.name, nothing[column.type]) for column in COLUMNS]
    fields = list(contract_fields())
    for field, values in beyond:
        fields.append(field)
        columns.append(values)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def column(title: str, values: pa.Array, unit: str = "", meaning: str = "") -> Column:
    """Field and values of a column beyond the contract."""
    return pa.field(title, values.type, metadata=field_metadata(unit=unit, meaning=meaning)), values
