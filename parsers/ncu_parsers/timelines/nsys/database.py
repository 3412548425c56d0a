"""Open an SQLite export of nsys safely, even if the file is malicious, and read whole columns.

Only ordinary tables with nsys's names are read: no views, virtual tables or generated columns. nsys creates a table
with its first row, and its schema grew every year, so absent tables and columns are read as nulls. Schema: "SQLite
Export Schema Reference" in NVIDIA's Nsight Systems documentation, 2020 to 2026.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
from ncu_launch.errors import NcuBenchError

from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import DAMAGE, Source

MAGIC = b"SQLite format 3\0"

Integers = npt.NDArray[np.int64]

MISSING = int(np.iinfo(np.int64).min)
"""Stands for null in integer columns."""

LONGEST_VALUE = 1 << 26
"""Bytes; reading ends with an error at a longer text, because SQLite loads it before its length is known."""

LONGEST_READ_S = 1800.0
STEPS_BETWEEN_CHECKS = 5_000_000
ROWS_BETWEEN_CHECKS, BYTES_BETWEEN_CHECKS = 50_000, 16 << 20

OF_NSYS = ("ANALYSIS_DETAILS", "TARGET_INFO_SESSION_START_TIME", "META_DATA_EXPORT", "EXPORT_META_DATA", "NVTX_EVENTS")
"""Every export has at least one of these tables; other profilers use CUPTI's table names too."""


class Database:
    """The tables of one export. Columns are arrays in row order."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self.name = name
        self._connection = connection
        self._longest, self._unchecked = memory.longest_line(), 0
        self.too_long = 0
        """Number of texts that were dropped because they are longer than a line of a report may be."""
        connection.text_factory = self._text
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0").fetchall()
        self.tables = frozenset(str(name) for (name,) in found)
        self._columns: dict[str, frozenset[str]] = {}

    def columns(self, table: str) -> frozenset[str]:
        """The stored columns of a table; empty if the file lacks it."""
        if table not in self._columns:
            rows = self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
            self._columns[table] = frozenset(str(name) for (name,) in rows) if table in self.tables else frozenset()
        return self._columns[table]

    def has_rows(self, table: str) -> bool:
        """True if a table exists and is not empty."""
        if table not in self.tables:
            return False
        query = f'SELECT 1 FROM "{table}" LIMIT 1'  # noqa: S608  the names in queries are those of this package
        return self._connection.execute(query).fetchone() is not None

    def rows(self, table: str) -> int:
        """The number of rows of a table; 0 if the file lacks it."""
        if table not in self.tables:
            return 0
        (count,) = self._connection.execute(f'SELECT count(*) FROM "{table}" NOT INDEXED').fetchone()  # noqa: S608
        return int(count)

    def integers(self, table: str, *names: str) -> dict[str, Integers]:
        """Columns as int64, one per row; `MISSING` for null, for other types, and for absent columns."""
        present = [name for name in names if name in self.columns(table)]
        if not present:
            return {name: np.full(self.rows(table), MISSING) for name in names}
        chosen = ", ".join(
            f"""CASE typeof("{name}") WHEN 'integer' THEN "{name}" ELSE {MISSING} END""" for name in present
        )
        query = f'SELECT {chosen} FROM "{table}" NOT INDEXED'  # noqa: S608
        cursor = self._connection.execute(query)
        values = np.fromiter(chain.from_iterable(self._checked_rows(cursor)), np.int64).reshape(-1, len(present))
        found = {name: np.ascontiguousarray(values[:, index]) for index, name in enumerate(present)}
        return {name: found.get(name, np.full(len(values), MISSING)) for name in names}

    def integers_where(self, table: str, column: str, wanted: Sequence[int], *names: str) -> dict[str, Integers]:
        """As `integers`, of the rows whose `column` is one of `wanted`; all of these columns have to be there."""
        chosen = ", ".join(
            f"""CASE typeof("{name}") WHEN 'integer' THEN "{name}" ELSE {MISSING} END""" for name in names
        )
        holes = ", ".join("?" * len(wanted))
        query = f'SELECT {chosen} FROM "{table}" NOT INDEXED WHERE "{column}" IN ({holes})'  # noqa: S608
        cursor = self._connection.execute(query, list(wanted))
        values = np.fromiter(chain.from_iterable(self._checked_rows(cursor)), np.int64).reshape(-1, len(names))
        return {name: np.ascontiguousarray(values[:, index]) for index, name in enumerate(names)}

    def texts(self, table: str, name: str) -> list[str | None]:
        """A column as texts, one per row; None for null, empty, too long or other types. [] without the column."""
        if name not in self.columns(table):
            return []
        chosen = f"""CASE typeof("{name}") WHEN 'text' THEN "{name}" END"""  # values of other types are not loaded
        cursor = self._connection.execute(f'SELECT {chosen} FROM "{table}" NOT INDEXED')  # noqa: S608
        return [value or None for (value,) in self._checked_rows(cursor)]

    def _text(self, raw: bytes) -> str:
        """Decode a text from SQLite; "" if it is too long. Raises `memory.TooBig` like `_checked_rows`.

        SQLite calls it per text, so that even one batch of rows cannot exceed the memory limit.
        """
        if len(raw) > LONGEST_VALUE:  # Python 3.10 cannot set SQLite's limit
            raise sqlite3.DataError("string or blob too big")
        self._unchecked += len(raw)
        if self._unchecked > BYTES_BETWEEN_CHECKS:
            self._unchecked = 0
            memory.require_memory(self.name)
        if len(raw) > self._longest:
            self.too_long += 1
            return ""
        return raw.decode("utf-8", "replace")

    def _checked_rows(self, cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
        """The rows of a query. Raises `memory.TooBig` if the process exceeds its memory limit."""
        while rows := cursor.fetchmany(ROWS_BETWEEN_CHECKS):
            memory.require_memory(self.name)
            yield from rows

    def strings(self) -> dict[int, str]:
        """The table of strings, by the number with which other tables refer to them."""
        numbers, texts = self.integers("StringIds", "id")["id"].tolist(), self.texts("StringIds", "value")
        return {number: text for number, text in zip(numbers, texts, strict=False) if text is not None}

    def attributes(self, table: str) -> dict[str, str]:
        """A table of names and values as a dict."""
        pairs = zip(self.texts(table, "name"), self.texts(table, "value"), strict=False)
        return {name: value for name, value in pairs if name is not None and value is not None}


@contextmanager
def opened(source: Source, name: str) -> Iterator[Database]:
    """Open the database of an export, which may be compressed; error messages call it `name`.

    Raises `NotAReport` if it is not an export of nsys, `NcuBenchError` if it cannot be read.
    """
    with on_disk(source) as path:
        try:
            connection = _connect(path)
            try:
                database = Database(connection, name)
                _refuse_strangers(name, database)
                yield database
            finally:
                connection.close()
        except sqlite3.DataError as error:  # SQLite raises it only for values over the limit
            raise NcuBenchError(
                f"{name} holds a text of more than {LONGEST_VALUE >> 20} MB, and was not read.",
                "No timeline has one: the file is damaged, or was made to take memory.",
                "Export it again: nsys export --type sqlite REPORT.nsys-rep",
            ) from error
        # SQLite quotes a damaged schema in its message, which Python cannot always decode.
        except (sqlite3.Error, OverflowError, MemoryError, UnicodeDecodeError) as error:
            raise NcuBenchError(
                f"{name} could not be read as SQLite: {error}.",
                "The file is damaged or was cut, as when nsys export was stopped.",
                "Export it again: nsys export --type sqlite REPORT.nsys-rep",
            ) from error


@contextmanager
def on_disk(source: Source) -> Iterator[Path]:
    """The path of a source's file; a compressed file is unpacked to a temporary folder within the block."""
    with Path(source.path).open("rb") as raw, source.open() as stream:
        packed = _differ(raw, stream)
    if not packed:
        yield Path(source.path)
        return
    with TemporaryDirectory(prefix="ncu-bench-") as folder:
        unpacked = Path(folder) / Path(source.path).stem
        source.unpack(unpacked)
        yield unpacked


def _differ(raw: BinaryIO, stream: BinaryIO) -> bool:
    """True if the file is compressed: its bytes differ from those read through the source, or reading them fails."""
    try:
        return raw.read(16) != stream.read(16)
    except DAMAGE:
        return True


def _connect(path: Path) -> sqlite3.Connection:
    """Open an untrusted file read-only: its schema cannot run functions, and the size of values is limited."""
    location = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
    connection = sqlite3.connect(location, uri=True, isolation_level=None)
    for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
        connection.execute(f"PRAGMA {pragma}")
    if hasattr(connection, "setlimit"):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
    deadline = time.monotonic() + LONGEST_READ_S
    connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_CHECKS)
    return connection


def _refuse_strangers(name: str, database: Database) -> None:
    if database.tables.intersection(OF_NSYS) or "StringIds" in database.tables:
        return
    if "StringTable" in database.tables:
        raise NotAReport(
            f"{name} is a database of nvprof, which is not read.",
            advice="Record the program with nsys: nsys profile --trace cuda,nvtx PROGRAM",
        )
    raise NotAReport(
        f"{name} is an SQLite file without the tables of nsys.",
        f"It has: {', '.join(_some(sorted(database.tables))) or 'no table'}.",
        "Export a report with: nsys export --type sqlite REPORT.nsys-rep",
    )


def _some(names: Sequence[str]) -> list[str]:
    return [name[:60] for name in names[:6]]
