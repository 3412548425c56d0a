"""SQLite exports of nsys, mutated cell by cell and read with the sqlite3 module, row by row."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from ncu_parsers.launches.nsys import nsys_sqlite
from ncu_parsers.report_data import report
from ncu_parsers.sources.sources import Source

from tests.fuzz.oracle.compared import Reading, Row
from tests.fuzz.oracle.damage import NAMES, moved, real, seldom_damaged, some, whole
from tests.fuzz.oracle.json_traces import excused_times
from tests.support.timelines import CALLS, KERNELS, call, database, kernel

COPIES, MEMSETS, GRAPHS = (f"CUPTI_ACTIVITY_KIND_{name}" for name in ("MEMCPY", "MEMSET", "GRAPH_TRACE"))
LABELS = {1: "Host-to-Device", 2: "Device-to-Host", 8: "Device-to-Device"}
CUPTI_COPIES = dict(enumerate((
    "Unknown", "Host-to-Device", "Device-to-Host", "Host-to-Array", "Array-to-Host", "Array-to-Array", "Array-to-Device",
    "Device-to-Array", "Device-to-Device", "Host-to-Host", "Peer-to-Peer", "Unified Host-to-Device",
    "Unified Device-to-Host", "Unified Device-to-Device",
)))  # fmt: skip
"""Names of CUPTI's kinds of copies, for exports without a table of them."""
ODD: tuple[Any, ...] = (None, -1, 0, 1, 2**31, 2**40, 2**53 + 1, 2**61, "", "12", "x", 1.5, 7.0, b"\x01")
KEPT = ("kernel_name", "duration_ns", "start_ns", "device_id", "stream", "launch_id", "process_id", "context", "grid",
        "block", "bytes")  # fmt: skip
HEADER: dict[str, list[dict[str, Any]]] = {
    "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.1.0"}],
    "ENUM_CUDA_MEMCPY_OPER": [{"id": number, "label": label} for number, label in LABELS.items()],
}


def mutated(rng: random.Random) -> bytes:
    """An export of some kernels, copies, memsets and graphs, with some cells, rows and columns changed."""
    tables: dict[str, list[dict[str, Any]]] = {KERNELS: [], COPIES: [], MEMSETS: [], GRAPHS: [], CALLS: []}
    time = rng.choice((0, 10**9, 10**15))
    for number in range(1, rng.randint(2, 14)):
        time += rng.randrange(10**5)
        end = time + rng.choice((0, 1, rng.randrange(10**6)))
        process = rng.choice((7, 7, 8))
        place = {"start": time, "end": end, "deviceId": rng.randrange(2), "contextId": 1, "streamId": rng.choice((7, 13)),
                 "correlationId": number, "globalPid": kernel(0, 0, process=process)["globalPid"]}  # fmt: skip
        table = rng.choice((KERNELS, KERNELS, KERNELS, COPIES, MEMSETS, GRAPHS))
        more: dict[str, Any] = {}
        if table == KERNELS:
            more = {**kernel(time, number, process=process, name=rng.randint(1, 4)), "gridX": whole(rng) % 2**31}
        elif table == COPIES:
            more = {"bytes": whole(rng), "copyKind": rng.choice((1, 2, 8, 77))}
        elif table == MEMSETS:
            more = {"bytes": whole(rng)}
        else:
            more = {"graphId": rng.randrange(5)}
        tables[table].append({**more, **place})
        tables[CALLS].append(call(max(time - 50, 0), number, process=process))
    tables = {name: rows for name, rows in tables.items() if rows}
    for _ in some(rng):
        _change(rng, tables)
    strings = [rng.choice(NAMES) for _ in range(3)]
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:  # noqa: S108
        path = database(Path(folder) / "export", {**tables, **HEADER}, strings)
        return seldom_damaged(rng, path.read_bytes())


def _change(rng: random.Random, tables: dict[str, list[dict[str, Any]]]) -> None:
    name = rng.choice(sorted(tables))
    rows = tables[name]
    change = rng.randrange(8)
    if not rows:
        return
    if change == 0:
        tables[name] = moved(rng, rows)
    elif change == 1:
        column = rng.choice(sorted(rows[0]))
        tables[name] = [{key: value for key, value in row.items() if key != column} for row in rows]
    else:
        row = rng.choice(rows)
        if row:
            column = rng.choice(sorted(row))
            row[column] = rng.choice(ODD) if change < 4 else rng.choice((whole(rng), int(real(rng))))


def slow(data: bytes) -> list[Row] | None:
    """The operations by start, then by kind and place in the table; None if SQLite cannot read the file."""
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:  # noqa: S108
        path = Path(folder) / "export"
        path.write_bytes(data)
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        connection.row_factory = sqlite3.Row
        try:
            return _operations(connection)
        except (sqlite3.Error, UnicodeDecodeError, TypeError):
            return None
        finally:
            connection.close()


def _operations(connection: sqlite3.Connection) -> list[Row]:
    names = {row["id"]: row["value"] for row in connection.execute("SELECT id, value FROM StringIds")}
    labels = {row["id"]: row["label"] for row in connection.execute("SELECT id, label FROM ENUM_CUDA_MEMCPY_OPER")}
    known = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    found: list[tuple[tuple[int, int, int], Row]] = []
    for kind, table in enumerate((KERNELS, COPIES, MEMSETS, GRAPHS)):
        if table not in known:
            continue
        for place, row in enumerate(connection.execute(f'SELECT * FROM "{table}" ORDER BY rowid')):  # noqa: S608
            cells = {name: row[name] if type(row[name]) is int else None for name in row.keys()}  # noqa: SIM118
            start, end = cells.get("start"), cells.get("end")
            if start is None or (start == 0 and end == 0):
                continue
            found.append(((start, kind, place), _row(kind, cells, start, end, names, labels)))
    return [row for _, row in sorted(found, key=lambda one: one[0])]


def _row(
    kind: int, cells: dict[str, int | None], start: int, end: int | None, names: dict[int, str], labels: dict[int, str]
) -> Row:
    process, copies = cells.get("globalPid"), {**CUPTI_COPIES, **labels}
    name = (
        names.get(_first(cells, "demangledName", "mangledName", "shortName"), "(kernel without a name)"),
        f"[CUDA memcpy {copies.get(_first(cells, 'copyKind'), 'Unknown')}]",
        "[CUDA memset]",
        "[CUDA graph]" if cells.get("graphId") is None else f"[CUDA graph {cells['graphId']}]",
    )[kind]
    sides = [[cells.get(f"{what}{axis}") for axis in "XYZ"] for what in ("grid", "block")]
    grid, block = ([side for side in three if side is not None] if _is_shape(three) else None for three in sides)
    stream = cells.get("streamId")
    return {
        "kernel_name": name, "start_ns": start, "duration_ns": end - start if end is not None and end >= start else None,
        "device_id": _fit(cells.get("deviceId"), 31), "stream": None if stream is None else str(stream),
        "launch_id": _fit(cells.get("correlationId")), "context": _fit(cells.get("contextId")),
        "process_id": None if process is None else process >> 24 & 0xFFFFFF, "grid": grid, "block": block,
        "bytes": _fit(cells.get("bytes")),
    }  # fmt: skip


def _first(cells: dict[str, int | None], *names: str) -> int:
    return next((value for name in names if (value := cells.get(name)) is not None), -1)


def _fit(value: int | None, bits: int = 63) -> int | None:
    return value if value is not None and 0 <= value < 2**bits else None


def _is_shape(sides: list[int | None]) -> bool:
    return all(side is not None and 0 <= side < 2**31 for side in sides)


def fast(path: Path) -> Reading:
    """The operations of an export by the real reader."""
    with patch.object(nsys_sqlite, "one_ahead", iter):  # a thread takes longer to start than these are to read
        found = nsys_sqlite.read_report(Source(str(path)))
    assert found.table is not None
    rows = found.table.select([name for name in KEPT if name in found.table.column_names]).to_pylist()
    return Reading(rows, bool(found.lines[report.BROKEN]), excused_times(found.notes))
