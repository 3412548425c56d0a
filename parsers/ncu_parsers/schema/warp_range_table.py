"""The table of ranges inside kernels: a row for what a warp did from when to when (docs/inside.md).

Missing is null, never 0. Times are in the file's clock: ns of the GPU's global timer, or cycles of each SM.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ncu_parsers.schema.tables import Field, encoded, field_of

WARP_RANGES = "warp_ranges"
"""Value of `table` in the file's metadata."""
SCHEMA_VERSION = 1
"""History: 1 (2026-11)."""

RANGE, MARKER, LIFE, SUM = KINDS = ("range", "marker", "life", "sum")

_NAME = pa.dictionary(pa.int32(), pa.string())

COLUMNS: tuple[Field, ...] = (
    Field("launch", pa.int32(), "", "number of the launch in the trace, from 0 on", "never"),
    Field("kernel", _NAME, "", "the kernel of the launch", "never"),
    Field("block", pa.int64(), "", "linear number of the block in its grid", "a sum over blocks"),
    Field("warp", pa.int32(), "", "number of the warp in its block, or of the group that a buffer has", "a sum"),
    Field("role", _NAME, "", "the role of the warp, by `--roles`", "not named"),
    Field("range", _NAME, "", "name of the range or marker; of a sum its path, joined by /", "the life of a warp"),
    Field("kind", _NAME, "", "range, marker, life (of a warp) or sum (of a range over all warps)", "never"),
    Field("start", pa.int64(), "ns or cycles", "when it began, in the clock of the file", "a sum has no time"),
    Field("end", pa.int64(), "ns or cycles", "when it ended", "a marker, or a sum"),
    Field("total", pa.float64(), "cycles", "total of a sum", "it has a start and an end"),
    Field("sm", pa.int32(), "", "number of the SM", "the trace does not say"),
    Field("tpc", pa.int32(), "", "number of the TPC", "the trace does not say"),
    Field("gpc", pa.int32(), "", "number of the GPC", "the trace does not say"),
    Field("file", _NAME, "", "source file of the range", "not known: name the file to find it"),
    Field("line", pa.int32(), "", "line where the range begins in the source", "not known: name the file to find it"),
)


def schema() -> pa.Schema:
    """The columns of a file of ranges."""
    return pa.schema([field_of(column) for column in COLUMNS])


def file_metadata(**facts: Any) -> bytes:
    """The file-level metadata of a file of ranges."""
    return encoded({"table": WARP_RANGES, "schema_version": SCHEMA_VERSION, **facts})
