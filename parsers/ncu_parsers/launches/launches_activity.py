"""The GPU operations in a launch table made from a timeline, by `parse` or in a run folder.

Such a table has no API calls and no timed host ranges, so causes of gaps are unknown.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from ncu_launch.errors import NcuBenchError

from ncu_parsers.schema.vendors import VENDOR_COLUMN, vendor_named
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import (
    FARTHEST,
    MISSING,
    OPERATION_KINDS,
    Activity,
    ApiCalls,
    GpuOperations,
    HostRanges,
    Integers,
    Numbered,
    Overheads,
    are_times,
    columns_of,
    empty,
)
from ncu_parsers.timelines.kineto.kineto import COPY_WORDS
from ncu_parsers.timelines.nsys.nsys_activity import COPY_KINDS, DIRECTION_OF, RECORDED_WITH

NEEDED = (
    "source", "process_id", "device_id", "device_name", "context", "stream", "kernel_name", "iteration", "duration_ns",
    "operation", "start_ns", "end_ns", "bytes", "correlation_id", "launch_id", "graph_node_id", VENDOR_COLUMN,
)  # fmt: skip
"""Columns that are read if the table has them."""

NSYS_WORDS = {word: number for number, word in enumerate(COPY_KINDS[:11]) if number}
"""nsys's words in the names of copies -> CUPTI's number."""


def read_launches_activity(name: str, table: pa.Table) -> Activity:
    """The operations of a launch table called `name`; rows without a start time are dropped.

    Raises `NcuBenchError` if no row has a start time, as in a table from ncu alone.
    """
    start = _integers(table, "start_ns")
    known = (start > -FARTHEST) & (start < FARTHEST)
    if not known.any():
        of_ncu = "ncu" in _texts(table, "source")
        raise NcuBenchError(
            f"{name} holds no times of a timeline, so there are no gaps to see.",
            "Reports of ncu have none: it runs kernels alone, one after the other."
            if of_ncu
            else "It says how long each launch took, and not when it began.",
            "Name a recording of nsys (.sqlite, .nsys-rep) or a trace of PyTorch's profiler.",
        )
    table, start = table.filter(pa.array(known)), start[known]
    end = _integers(table, "end_ns")
    lasts = _durations(table)
    end = np.where(are_times(start, end), end, start + lasts)
    names = Numbered()
    devices: dict[tuple[int, int], str] = {}
    kernel_names = _texts(table, "kernel_name")
    kinds = _texts(table, "operation")
    process, device = _integers(table, "process_id"), _integers(table, "device_id")
    alone = np.unique(process[process != MISSING])
    process = np.where(process == MISSING, alone[0], process) if len(alone) == 1 else process
    for row, one in enumerate(_texts(table, "device_name")):
        if one is not None:
            devices.setdefault((int(process[row]), int(device[row])), one)
    gpus = zip(process.tolist(), device.tolist(), _texts(table, VENDOR_COLUMN), strict=True)
    vendors = {(one, number): vendor for one, number, text in gpus if text and (vendor := vendor_named(text))}
    correlation = _integers(table, "correlation_id")
    stream = [int(one) if one is not None and one.isdecimal() else MISSING for one in _texts(table, "stream")]
    codes = {kind: number for number, kind in enumerate(OPERATION_KINDS)}
    operations = columns_of(
        GpuOperations,
        {
            "kind": [codes.get(kind or "kernel", 0) for kind in kinds],
            "name": [names.number(one or "(no name)") for one in kernel_names],
            "process": process, "device": device, "context": _integers(table, "context"), "stream": stream,
            "start": start, "end": np.maximum(end, start), "bytes": _integers(table, "bytes"),
            "direction": [_direction(one or "") if kind == "memcpy" else MISSING
                          for one, kind in zip(kernel_names, kinds, strict=True)],
            "correlation": np.where(correlation == MISSING, _integers(table, "launch_id"), correlation),
            "graph_node": _integers(table, "graph_node_id"), "iteration": _integers(table, "iteration"),
        },
        names.texts,
    ).by_start()  # fmt: skip
    missing = [
        "the table holds operations alone: causes of gaps, waits of the host, and whether copied memory was pinned are "
        "not known; the recording itself has them"
    ]
    return Activity(name, "launches", operations, empty(ApiCalls), empty(HostRanges), empty(Overheads),
                    devices=devices, missing=missing, vendors=vendors,
                    recorded_with=RECORDED_WITH)  # fmt: skip


def _integers(table: pa.Table, column: str) -> Integers:
    if column not in table.column_names:
        return np.full(len(table), MISSING)
    values = table.column(column).combine_chunks()
    found = [MISSING if value is None else int(value) for value in values.to_pylist()]
    return np.array(found, np.int64)


def _durations(table: pa.Table) -> Integers:
    values = table.column("duration_ns").to_pylist()
    return np.array([round(value) if value is not None and 0 <= value < FARTHEST else 0 for value in values], np.int64)


def _texts(table: pa.Table, column: str) -> list[str | None]:
    if column not in table.column_names:
        return [None] * len(table)
    found: list[str | None] = table.column(column).to_pylist()
    return found


def _direction(name: str) -> int:
    """The number of a copy's direction, from its name as nsys or Kineto write it; `OTHER_DIRECTION` if unknown."""
    for words, codes in ((NSYS_WORDS, DIRECTION_OF), (COPY_WORDS, None)):
        for word, number in words.items():
            if word in name:
                return number if codes is None else codes[number]
    return activity.OTHER_DIRECTION
