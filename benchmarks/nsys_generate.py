"""Repeat a real SQLite export of nsys up to a given size, as an hour of training repeats its minutes.

Each repetition is shifted in time and has its own correlation ids, and its own op_ids in the range names of PyTorch.
Indices of other programs are left out. Tables without a start are copied once.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KERNELS, RANGES = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"
SHIFTED_IN_TIME = ("start", "end")
CORRELATION = "correlationId"
OP_ID = re.compile(r"(.*, op_id = )(\d+)", re.DOTALL)
REPETITIONS_AT_A_TIME = 20


def repeat(real: Path, path: Path, megabytes: int) -> int:
    """Write `path` from the export `real`; returns the number of repetitions."""
    path.unlink(missing_ok=True)
    with _opened(path) as database:
        database.execute("ATTACH ? AS real", (f"file:{real.resolve()}?mode=ro&immutable=1",))
        schema = database.execute("SELECT name, sql FROM real.sqlite_master WHERE type = 'table'").fetchall()
        columns = {}
        for table, made_by in schema:
            database.execute(made_by)
            columns[table] = [name for _, name, *_ in database.execute(f'PRAGMA real.table_info("{table}")')]
        repeated = [table for table, names in columns.items() if set(SHIFTED_IN_TIME) <= set(names)]
        for table in columns:
            if table not in repeated:
                database.execute(f'INSERT INTO main."{table}" SELECT * FROM real."{table}"')  # noqa: S608
        _split_names(database)
        span, calls, names = _steps(database, repeated, columns)
        inserts = [_insert(table, columns[table]) for table in repeated]
        count = 0
        while path.stat().st_size < megabytes * 1_000_000:
            for _ in range(REPETITIONS_AT_A_TIME):
                for insert in inserts:
                    database.execute(insert, {"time": count * span, "calls": count * calls, "names": count * names})
                count += 1
            database.commit()
        return count


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    database = sqlite3.connect(path.resolve().as_uri(), uri=True)
    try:
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "page_size = 4096"):
            database.execute(f"PRAGMA {pragma}")
        yield database
    finally:
        database.close()


def _split_names(database: sqlite3.Connection) -> None:
    """Split range names into two parts; the second is an op_id or null."""
    database.execute("CREATE TEMP TABLE split (at INTEGER PRIMARY KEY, name TEXT, number INTEGER)")
    texts = database.execute(f"SELECT rowid, text FROM real.{RANGES} WHERE text NOT NULL").fetchall()  # noqa: S608
    found = ((row, text, OP_ID.fullmatch(text)) for row, text in texts)
    database.executemany(
        "INSERT INTO split VALUES (?, ?, ?)",
        ((row, match[1], int(match[2])) if match else (row, text, None) for row, text, match in found),
    )


def _steps(database: sqlite3.Connection, tables: list[str], columns: dict[str, list[str]]) -> tuple[int, int, int]:
    """Offsets of time, correlation ids and op_ids between consecutive repetitions."""
    ends = [
        database.execute(f'SELECT min(start), max(max(start, coalesce("end", 0))) FROM real."{table}"').fetchone()  # noqa: S608
        for table in tables
    ]
    known = [pair for pair in ends if pair[0] is not None]
    ids = [
        database.execute(f'SELECT min({CORRELATION}), max({CORRELATION}) FROM real."{table}"').fetchone()  # noqa: S608
        for table in tables
        if CORRELATION in columns[table]
    ]
    spans = [pair for pair in ids if pair[0] is not None]
    (numbers,) = database.execute("SELECT coalesce(max(number) - min(number), 0) FROM split").fetchone()
    span = max(end for _, end in known) - min(start for start, _ in known)
    return span + 1_000, max(end for _, end in spans) - min(start for start, _ in spans) + 1, numbers + 1


def _insert(table: str, columns: list[str]) -> str:
    values = []
    for name in columns:
        if name in SHIFTED_IN_TIME:
            values.append(f'event."{name}" + :time')
        elif name == CORRELATION:
            values.append(f"event.{name} + :calls")
        elif table == RANGES and name == "text":
            values.append("split.name || coalesce(split.number + :names, '')")
        else:
            values.append(f'event."{name}"')
    of_names = "LEFT JOIN split ON split.at = event.rowid" if table == RANGES else ""
    rows = f'FROM real."{table}" AS event {of_names} ORDER BY event.rowid'
    return f'INSERT INTO main."{table}" SELECT {", ".join(values)} {rows}'
