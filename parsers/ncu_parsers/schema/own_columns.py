"""Extra columns of a table of measured points: arguments, counters requested by name, and sampled power.

A row holds them as dicts, under "argument_values" (texts), "metric_values" (numbers) and "sampled_values" (readings of
`ncu_launch.bench.iteration_energy`). The file's metadata names the columns, under "arguments", "metrics" and "sampled".
An argument is a column of numbers if all its values are numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ncu_parsers.schema.tables import field_entries, field_metadata, table_metadata, with_metadata

ARGUMENTS, METRICS, SAMPLED = "arguments", "metrics", "sampled"
"""Keys of the file's metadata."""
VALUES = {ARGUMENTS: "argument_values", METRICS: "metric_values", SAMPLED: "sampled_values"}
"""Key of the metadata -> key of a row."""
UNITS = {METRICS: "metric_units", SAMPLED: "sampled_units"}
"""Key of the metadata -> key of a row: the unit of each counter or sampled value."""
PREFIX = "arg_"
"""Prefix of an extra column whose name another column has."""
GREATEST = 2**63 - 1
_MEANINGS = {
    ARGUMENTS: "argument {} of the function",
    METRICS: "{} in the profiled run: sums added, maxima the greatest, others a mean over time",
    SAMPLED: "{} while the iteration was repeated after timing, sampled through NVML (docs/bench.md)",
}

Row = dict[str, Any]


class OwnColumns(NamedTuple):
    """The extra fields with their values, and the names of the columns for the file's metadata."""

    columns: list[tuple[pa.Field, list[Any]]]
    names: dict[str, list[str]]


def own_fields(rows: Sequence[Row], taken: Collection[str]) -> OwnColumns:
    """The extra columns of rows; a name that is `taken`, in any case, gets `PREFIX`."""
    columns: list[tuple[pa.Field, list[Any]]] = []
    names: dict[str, list[str]] = {}
    used = {name.lower() for name in taken}
    for kind, key in VALUES.items():
        for name in dict.fromkeys(name for row in rows for name in row.get(key) or {}):
            column = name
            while column.lower() in used:
                column = PREFIX + column
            used.add(column.lower())
            values = _typed([(row.get(key) or {}).get(name) for row in rows])
            unit = next((found for row in rows if (found := (row.get(UNITS.get(kind, "")) or {}).get(name))), "")
            metadata = field_metadata(meaning=_MEANINGS[kind].format(name), label=name, unit=unit)
            columns.append((pa.field(column, _type_of(values), metadata=metadata), values))
            names.setdefault(kind, []).append(column)
    return OwnColumns(columns, names)


def own_names(table: pa.Table, kind: str = ARGUMENTS) -> list[str]:
    """The columns of a table that hold its arguments, or another `kind` of extra values; [] for a table without them.

    An untrusted file may contain any names: only letters, digits, _ and dots are accepted.
    """
    found = table_metadata(table).get(kind)
    texts = [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
    named = [name for name in texts if re.fullmatch(r"[\w.]+", name)]
    return [name for name in named if name in table.column_names and _is_plain(table.schema.field(name).type)]


def values_apart(values: Row, taken: Collection[str]) -> Row:
    """Values by argument, with `PREFIX` before each name that is `taken` by another column."""
    return {PREFIX + name if name in taken else name: value for name, value in values.items()}


def arguments_apart(table: pa.Table, taken: Collection[str]) -> pa.Table:
    """The table with `PREFIX` before each argument whose name is `taken` by a column to be added."""
    arguments = own_names(table)
    new = {name: PREFIX + name for name in arguments if name in taken}
    metadata = {**table_metadata(table), ARGUMENTS: [new.get(name, name) for name in arguments]}
    renamed = table.rename_columns([new.get(name, name) for name in table.column_names])
    return with_metadata(renamed, metadata) if new else table


def own_values(table: pa.Table) -> list[Row]:
    """The extra values of each row as dicts, under the keys that `own_fields` reads."""
    return list(_own_values(table))


def _own_values(table: pa.Table) -> Iterator[Row]:
    held = {
        key: {_label(table.schema.field(name)): table.column(name).to_pylist() for name in own_names(table, kind)}
        for kind, key in VALUES.items()
    }
    units = {key: _units(table, kind) for kind, key in UNITS.items()}
    for place in range(len(table)):
        yield units | {
            key: {name: values[place] for name, values in columns.items() if values[place] is not None}
            for key, columns in held.items()
        }


def _units(table: pa.Table, kind: str) -> dict[str, str]:
    fields = [table.schema.field(name) for name in own_names(table, kind)]
    return {_label(one): field_entries(one).get("unit", "") for one in fields}


def _label(field: pa.Field) -> str:
    """The name that the user gave, without `PREFIX`."""
    return field_entries(field).get("label") or str(field.name)


def _is_plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind))


def _typed(values: Sequence[Any]) -> list[Any]:
    """The values as whole numbers if all are, else as numbers if all are, else as texts; None stays None."""
    for as_number in (_whole, _number):
        found = [None if value is None else as_number(value) for value in values]
        if all(new is not None for new, value in zip(found, values, strict=True) if value is not None):
            return found
    return [None if value is None else _text(value) for value in values]


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _whole(value: Any) -> int | None:
    try:
        found = int(value) if not isinstance(value, float) else None
    except ValueError:
        return None
    return found if found is not None and abs(found) <= GREATEST else None


def _number(value: Any) -> float | None:
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _type_of(values: Sequence[Any]) -> pa.DataType:
    kind = next((type(value) for value in values if value is not None), str)
    return {int: pa.int64(), float: pa.float64()}.get(kind, pa.string())
