"""Recordings made in a line or two, for tests of timelines: operations, API calls and ranges with their times in ns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import (
    Activity,
    ApiCalls,
    GpuOperations,
    HostRanges,
    Numbered,
    Overheads,
    columns_of,
)

PROCESS, THREAD = 7, 70


class Operation(NamedTuple):
    """Something on a GPU. `calls` is the correlation id; None: its API call is not recorded."""

    start: int
    end: int
    name: str = "void gemm()"
    calls: int | None = None
    stream: int = 7
    device: int = 0
    kind: int = activity.KERNEL
    bytes: int | None = None
    direction: int | None = None
    source_memory: int | None = None
    destination_memory: int | None = None
    process: int = PROCESS


class Call(NamedTuple):
    """An API call of a thread."""

    start: int
    end: int
    name: str = "cudaLaunchKernel"
    correlation: int | None = None
    thread: int = THREAD


class Range(NamedTuple):
    """A range of a thread."""

    start: int
    end: int
    name: str
    kind: int = activity.NVTX
    thread: int = THREAD


class Overhead(NamedTuple):
    """Time of the driver or profiler on a thread."""

    start: int
    end: int
    kind: int
    thread: int = THREAD


def copy(start: int, end: int, size: int | None, calls: int | None = None, **more: Any) -> Operation:
    """A copy from the host."""
    named = {"direction": activity.HOST_TO_DEVICE, "name": "[CUDA memcpy host to device]", **more}
    return Operation(start, end, calls=calls, kind=activity.MEMCPY, bytes=size, **named)


def recording(
    operations: Sequence[Operation],
    calls: Sequence[Call] = (),
    ranges: Sequence[Range] = (),
    overheads: Sequence[Overhead] = (),
    **more: Any,
) -> Activity:
    """A recording of one process."""
    return Activity(
        "made.sqlite", "nsys",
        _table(GpuOperations, operations, {"calls": "correlation"}),
        _table(ApiCalls, calls, {}), _table(HostRanges, ranges, {}), _table(Overheads, overheads, {}),
        **{"recorded_with": "nsys profile --trace cuda,nvtx PROGRAM", **more},
    )  # fmt: skip


def _table(table: type[Any], rows: Sequence[Any], renamed: dict[str, str]) -> Any:
    names = Numbered()
    columns: dict[str, list[int]] = {"start": [], "process": []}
    for row in rows:
        for field, value in row._asdict().items():
            number = names.number(value) if field == "name" else value
            number = activity.MISSING if number is None else number
            columns.setdefault(renamed.get(field, field), []).append(number)
        if "process" not in row._asdict():
            columns["process"].append(PROCESS)
    return columns_of(table, columns, names.texts).by_start()
