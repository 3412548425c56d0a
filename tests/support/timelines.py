"""Small SQLite exports of nsys for tests, of any schema: a table has the columns named by its rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from ncu_parsers.parse.file_kinds import read_artefact
from ncu_parsers.report_data.report import Report
from ncu_parsers.sources.sources import Source

Row = dict[str, Any]

KERNELS, CALLS, RANGES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
NODES = "CUDA_GRAPH_NODE_EVENTS"
PROCESS = 7
GPU_METRICS_TYPE = 72057594037927936 + 0x100
"""A type of events as nsys numbers them: the lowest 8 bits are the GPU's id."""
ONE_HOST = 1 << 48
"""An id of nsys with its process and thread, including the upper bits that nsys adds."""


def global_id(process: int = PROCESS, thread: int = 0) -> int:
    return ONE_HOST | process << 24 | thread


def kernel(start: int, correlation: int, *, end: int = 0, process: int = PROCESS, name: int = 1, **more: Any) -> Row:
    return {
        "start": start, "end": end or start + 10, "deviceId": 0, "contextId": 1, "streamId": 7,
        "correlationId": correlation, "globalPid": global_id(process), "demangledName": name,
        "gridX": 4, "gridY": 2, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1, **more,
    }  # fmt: skip


def call(start: int, correlation: int, *, process: int = PROCESS, thread: int = PROCESS) -> Row:
    return {
        "start": start, "end": start + 1, "globalTid": global_id(process, thread), "correlationId": correlation
    }  # fmt: skip


def node_made(
    number: int, start: int, *, copy_of: int | None = None, process: int = PROCESS, thread: int = PROCESS
) -> Row:
    """A node of a CUDA graph added by a capture, or its copy in an instantiated graph."""
    thread_id = global_id(process, thread)
    return {"start": start, "end": start, "globalTid": thread_id, "graphNodeId": number, "originalGraphNodeId": copy_of}


def pushed(name: str | int, start: int, end: int | None, *, domain: int = 0, thread: int = PROCESS, **more: Any) -> Row:
    text, number = (name, None) if isinstance(name, str) else (None, name)
    return {
        "start": start, "end": end, "eventType": 59, "globalTid": global_id(more.pop("process", PROCESS), thread),
        "text": text, "textId": number, "domainId": domain, **more,
    }  # fmt: skip


def started(name: str | int, start: int, end: int | None, **more: Any) -> Row:
    return {**pushed(name, start, end, **more), "eventType": 60}


def domain(name: str, number: int, process: int = PROCESS) -> Row:
    return {**pushed(name, 0, None, domain=number, process=process), "eventType": 75}


def database(path: Path, tables: Mapping[str, Sequence[Row]], strings: Sequence[str] = ("void gemm<1>(int)",)) -> Path:
    """Write an export with these tables; `strings` are numbered from 1."""
    named = [{"id": number, "value": text} for number, text in enumerate(strings, start=1)]
    with sqlite3.connect(path) as connection:
        for table, rows in {"StringIds": named, **tables}.items():
            columns = list(dict.fromkeys(name for row in rows for name in row))
            declared = ", ".join(f'"{name}"' for name in columns or ["start"])
            connection.execute(f'CREATE TABLE "{table}" ({declared})')
            if not rows:
                continue
            holes = ", ".join("?" * len(columns))
            values = [[row.get(name) for name in columns] for row in rows]
            connection.executemany(f'INSERT INTO "{table}" VALUES ({holes})', values)  # noqa: S608
    connection.close()
    return path


def read(path: Path) -> Report:
    return read_artefact(Source(str(path)))


def table_of(path: Path) -> pa.Table:
    table = read(path).table
    assert table is not None
    return table


def gpu_metric_names(*names: str, gpu: int = 0, first: int = 0) -> list[Row]:
    """Rows of TARGET_INFO_GPU_METRICS for the metrics of one GPU, numbered from `first`. Made up, as is what follows."""
    return [
        {"typeId": GPU_METRICS_TYPE | gpu, "sourceId": 1, "typeName": "GPU Metrics", "metricId": number,
         "metricName": name}
        for number, name in enumerate(names, start=first)
    ]  # fmt: skip


def gpu_metric_samples(times: Sequence[int], *values: Sequence[int | None], gpu: int = 0, first: int = 0) -> list[Row]:
    """Rows of GPU_METRICS: the values of each metric of `gpu_metric_names` at `times` in ns."""
    return [
        {"rawTimestamp": time + 5_000, "timestamp": time, "typeId": GPU_METRICS_TYPE | gpu, "metricId": number,
         "value": value}
        for number, of_metric in enumerate(values, start=first)
        for time, value in zip(times, of_metric, strict=True)
        if value is not None
    ]  # fmt: skip
