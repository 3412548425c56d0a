"""The table of instances: the value of a launch's metric at each address, opcode, time or unit (docs/dialects.md).

Missing is null, never 0. A row belongs to the launch with the same `report`, `process_id` and `launch_id`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ncu_parsers.schema.tables import Field, encoded, field_of

INSTANCES = "instances"
"""Value of `table` in the file's metadata."""
INSTANCES_FILE = "instances.parquet"

SCHEMA_VERSION = 1
"""History: 1 (2026-11)."""

ADDRESS, OPCODE, TIME, NUMBER = KINDS = ("address", "opcode", "time", "number")

_NAME = pa.dictionary(pa.int32(), pa.string())

COLUMNS: tuple[Field, ...] = (
    Field("report", _NAME, "", "the file a row came from", "never"),
    Field("process_id", pa.int64(), "", "the profiled process"),
    Field("launch_id", pa.int64(), "", "the launch, as in launches.parquet", "never"),
    Field("metric", _NAME, "", "the metric's name", "never"),
    Field("kind", _NAME, "", "what key is: address, opcode, time or number", "never"),
    Field("opcode", _NAME, "", "an opcode, with or without modifiers", "key is not an opcode"),
    Field(
        "key",
        pa.int64(),
        "",
        "an instruction's address; a time in ns; the number of a hardware unit, or the value a curve is drawn over",
        "it is an opcode",
    ),
    Field("value", pa.float64(), "", "the metric there, in `unit`", "not in the report, or a text"),
    Field("unit", _NAME, "", "the metric's base unit, empty where it has none", "never"),
    Field("text", _NAME, "", "a value that is a text", "value is a number"),
)


def schema() -> pa.Schema:
    """The columns of a file of instances."""
    return pa.schema([field_of(column) for column in COLUMNS])


def file_metadata(reports: list[str], notes: list[str]) -> bytes:
    """The file-level metadata of a file of instances."""
    said: dict[str, Any] = {
        "table": INSTANCES, "schema_version": SCHEMA_VERSION, "reports": [{"report": name} for name in reports],
        "notes": notes,
    }  # fmt: skip
    return encoded(said)
