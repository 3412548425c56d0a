"""Open an SQLite export of nsys safely, even if the file is malicious, and read whole columns.

Only ordinary tables with nsys's names are read: no views, virtual tables or generated columns. nsys creates a table
with its first row, and its schema grew every year, so absent tables and columns are read as nulls. Schema: "SQLite
Export Schema Reference" in NVIDIA's Nsight Systems documentation, 2020 to 2026.

Numbers are read by Arrow's driver, in half the time of Python's `sqlite3`, and texts by `sqlite3`, which can limit
their lengths; short texts of millions of rows also come by Arrow's driver, a block at a time.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import adbc_driver_manager
import adbc_driver_sqlite
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.errors import NcuBenchError

from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.schema import arrays
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import Source

MAGIC = b"SQLite format 3\0"

Integers = npt.NDArray[np.int64]

MISSING = int(np.iinfo(np.int64).min)
"""Represents null in integer columns."""

LONGEST_VALUE = 1 << 26
"""Bytes; reading stops with an error at a longer text, because SQLite loads it before its length is known."""

LONGEST_READ_S = 1800.0
STEPS_BETWEEN_CHECKS = 5_000_000
ROWS_BETWEEN_CHECKS, BYTES_BETWEEN_CHECKS = 50_000, 16 << 20

ROWS_OF_A_BLOCK = 32 * 1024
ROWID = "rowid"
"""SQLite's own row number, a column of every table."""
VALUE = "(value)"
SHORT_TEXT = 2000
"""Bytes; a block of rows without longer texts is read at once."""
LONGER_TEXT = "\x01a longer text"
"""Placeholder for a longer text."""
PRAGMAS = ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON")
"""Settings for untrusted files: their schema cannot run functions, and nothing is written."""
BATCH_ROWS = adbc_driver_sqlite.StatementOptions.BATCH_ROWS.value

_DAMAGE = (sqlite3.Error, adbc_driver_manager.Error, pa.ArrowException)

OF_NSYS = ("ANALYSIS_DETAILS", "TARGET_INFO_SESSION_START_TIME", "META_DATA_EXPORT", "EXPORT_META_DATA", "NVTX_EVENTS")
"""Every export has at least one of these tables; other profilers use CUPTI's table names too."""


class RowBlock(NamedTuple):
    """Consecutive `rows` of a table, with rowids above `after` up to `last`."""

    after: int
    last: int
    rows: int


class Database:
    """The tables of one export. Columns are arrays in row order."""

    def __init__(self, connection: sqlite3.Connection, numbers: adbc_driver_manager.AdbcConnection, name: str) -> None:
        self.name = name
        self._connection, self._numbers = connection, numbers
        self._longest, self._unchecked = memory.longest_line(), 0
        self.too_long = 0
        """Number of texts dropped because they exceed the length limit of a report's line."""
        self._deadline = time.monotonic() + LONGEST_READ_S
        self.in_parts = False
        """True if tables are written while the database is read."""
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

    def last_row(self, table: str) -> int:
        """The greatest rowid of a table; 0 if it has no rows, or is absent."""
        return self._arrow(f'SELECT max(rowid) FROM "{table}"')[0][0].as_py() or 0 if table in self.tables else 0  # noqa: S608

    def integers(self, table: str, *names: str, block: RowBlock | None = None) -> dict[str, Integers]:
        """Columns as int64, one per row; `MISSING` for null, for other types, and for absent columns.

        With `block`, only its rows.
        """
        if not self.columns(table).intersection(names):
            rows = self.rows(table) if block is None else block.rows
            return {name: np.full(rows, MISSING) for name in names}
        return self._numbers_and_more(table, names, (), _within(block), block and block.rows)[0]

    def integers_and_texts(
        self, table: str, names: Sequence[str], text: str, block: RowBlock, condition: str = "1"
    ) -> tuple[dict[str, Integers], pa.Array]:
        """Some columns as in `integers`, and a text column as bytes (binary), null for other types and too long texts.

        Only rows of a block that meet `condition` (SQL).
        """
        if text not in self.columns(table):
            text = "NULL"
        short = f"CASE WHEN octet_length({text}) <= {SHORT_TEXT} THEN {text} ELSE '{LONGER_TEXT}' END"
        within = _within(block, condition)
        chosen = f"CASE typeof({text}) WHEN 'text' THEN {short} END"
        numbers, (column,) = self._numbers_and_more(table, names, (chosen,), within, block.rows)
        if column.null_count == len(column):
            return numbers, pa.nulls(len(column), pa.binary())
        texts = _bytes_of(column)
        data = texts.buffers()[2]
        if data is not None and LONGER_TEXT.encode() in data.to_pybytes():
            texts = arrays.cast(arrays.texts(self.texts(table, text, within=within)), pa.binary())
        return numbers, texts

    def integer_blocks(
        self, table: str, *names: str, value: str | None = None
    ) -> Iterator[tuple[RowBlock, dict[str, Integers]]]:
        """All rows of a table in blocks, with columns as in `integers`, and with `ROWID`.

        `value` is SQL for an integer, which is returned too, as `VALUE`.
        """
        after = MISSING
        while table in self.tables:
            within = f" WHERE rowid > {after} ORDER BY rowid LIMIT {ROWS_OF_A_BLOCK}"
            columns, values = self._numbers_and_more(table, (ROWID, *names), (value,) if value else (), within)
            if values:
                columns[VALUE] = _numbers_of(values[0])
            rowids = columns[ROWID]
            if not len(rowids):
                return
            yield _next_block(after, int(rowids[-1]), len(rowids)), columns
            after = int(rowids[-1])

    def rows_in_blocks(
        self, table: str, *names: str, text: str = "", condition: str = "1"
    ) -> Iterator[tuple[dict[str, Integers], pa.Array]]:
        """The rows that meet `condition` (SQL), in blocks, as in `integers_and_texts`."""
        after, last = MISSING, self.last_row(table)
        while table in self.tables:
            block = RowBlock(after, last, ROWS_OF_A_BLOCK)
            columns, texts = self.integers_and_texts(table, (ROWID, *names), text, block, condition)
            rowids = columns.pop(ROWID)
            if len(rowids):
                yield columns, texts
            if len(rowids) < ROWS_OF_A_BLOCK:
                return
            after = _next_block(after, int(rowids[-1]), len(rowids)).last

    def numbers(self, chosen: str, table: str, condition: str) -> list[list[int | None]]:
        """The integer columns selected from a table by a query; None for other values."""
        query = f'SELECT {chosen} FROM "{table}" NOT INDEXED WHERE {condition}'  # noqa: S608
        columns = [column.to_pylist() for column in self._arrow(query)]
        return [[value if isinstance(value, int) else None for value in column] for column in columns]

    def _numbers_and_more(
        self, table: str, names: Sequence[str], more: Sequence[str], within: str, rows: int | None = None
    ) -> tuple[dict[str, Integers], list[pa.ChunkedArray]]:
        """Columns as in `integers`, and the unconverted result of `more` (SQL). `rows`: upper limit, if known."""
        present = [name for name in names if name in self.columns(table) or name == ROWID]
        plain, typed = [], []
        for name in present:
            plain.append(f'"{name}"')
            typed.append(f"""CASE typeof("{name}") WHEN 'integer' THEN "{name}" END""")
        query = f'SELECT {{}} FROM "{table}" NOT INDEXED{within}'  # noqa: S608
        try:
            found = self._arrow(query.format(", ".join([*plain, *more])), rows)
        except (adbc_driver_manager.Error, pa.ArrowException):
            found = []  # the driver raises for a value of another type after the first rows, as for damage
        if not found or any(column.type != pa.int64() for column in found[: len(present)]):
            found = self._arrow(query.format(", ".join([*typed, *more])), rows)
        columns = dict(zip(present, map(_numbers_of, found), strict=False))
        absent = np.full(len(found[0]), MISSING)
        return {name: columns.get(name, absent) for name in names}, found[len(present) :]

    def _arrow(self, query: str, rows: int | None = None) -> list[pa.ChunkedArray]:
        """The columns of a query's result, of at most `rows` if known. Raises `memory.TooBig` like `_checked_rows`."""
        if time.monotonic() > self._deadline:
            raise sqlite3.OperationalError("interrupted")
        with adbc_driver_manager.AdbcStatement(self._numbers) as statement:
            statement.set_options(**{BATCH_ROWS: str(min(rows or ROWS_OF_A_BLOCK, ROWS_OF_A_BLOCK))})
            statement.set_sql_query(query)
            stream, _ = statement.execute_query()
            with pa.RecordBatchReader.from_stream(stream) as reader:
                batches = []
                for batch in reader:
                    memory.require_memory(self.name, in_parts=self.in_parts)
                    batches.append(batch)
                columns: list[pa.ChunkedArray] = pa.Table.from_batches(batches, reader.schema).columns
                return columns

    def integers_where(self, table: str, column: str, wanted: Sequence[int], *names: str) -> dict[str, Integers]:
        """As `integers`, for rows whose `column` is one of `wanted`; all these columns must exist."""
        chosen = ", ".join(
            f"""CASE typeof("{name}") WHEN 'integer' THEN "{name}" ELSE {MISSING} END""" for name in names
        )
        holes = ", ".join("?" * len(wanted))
        query = f'SELECT {chosen} FROM "{table}" NOT INDEXED WHERE "{column}" IN ({holes})'  # noqa: S608
        cursor = self._connection.execute(query, list(wanted))
        values = np.fromiter(chain.from_iterable(self._checked_rows(cursor)), np.int64).reshape(-1, len(names))
        return {name: np.ascontiguousarray(values[:, index]) for index, name in enumerate(names)}

    def texts(self, table: str, name: str, *, within: str = "") -> list[str | None]:
        """A column as texts, one per row; None for null, empty, too long or other types. [] without the column.

        `within`: the end of the query, such as "WHERE rowid < 5".
        """
        if name not in self.columns(table):
            return []
        chosen = f"""CASE typeof("{name}") WHEN 'text' THEN "{name}" END"""  # values of other types are not loaded
        cursor = self._connection.execute(f'SELECT {chosen} FROM "{table}" NOT INDEXED{within}')  # noqa: S608
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
            memory.require_memory(self.name, in_parts=self.in_parts)
        if len(raw) > self._longest:
            self.too_long += 1
            return ""
        return raw.decode("utf-8", "replace")

    def _checked_rows(self, cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
        """The rows of a query. Raises `memory.TooBig` if the process exceeds its memory limit."""
        while rows := cursor.fetchmany(ROWS_BETWEEN_CHECKS):
            memory.require_memory(self.name, in_parts=self.in_parts)
            yield from rows

    def strings(self) -> dict[int, str]:
        """The table of strings, by the numbers that other tables use."""
        numbers, texts = self.integers("StringIds", "id")["id"].tolist(), self.texts("StringIds", "value")
        return {number: text for number, text in zip(numbers, texts, strict=False) if text is not None}

    def attributes(self, table: str) -> dict[str, str]:
        """A table of names and values as a dict."""
        pairs = zip(self.texts(table, "name"), self.texts(table, "value"), strict=False)
        return {name: value for name, value in pairs if name is not None and value is not None}


def _next_block(after: int, last: Any, rows: int) -> RowBlock:
    """The block of rows after `after`. Raises `sqlite3.DatabaseError` if rowids do not increase (malicious file)."""
    if not isinstance(last, int) or last <= after:
        raise sqlite3.DatabaseError("the numbers of rows do not increase")
    return RowBlock(after, last, rows)


def _within(block: RowBlock | None, condition: str = "1") -> str:
    """The end of a query for a block's rows; its row limit holds even if a damaged file would return more."""
    if block is None:
        return ""
    rows = f"rowid > {block.after} AND rowid <= {block.last}"
    return f" WHERE {rows} AND ({condition}) ORDER BY rowid LIMIT {block.rows}"


def _numbers_of(column: pa.ChunkedArray) -> Integers:
    """The values of an int64 column; `MISSING` for null."""
    array = arrays.one(column)
    values = arrays.values_of(array, np.int64)
    return np.where(arrays.present(array), values, MISSING) if array.null_count else values


def _bytes_of(column: pa.ChunkedArray) -> pa.Array:
    """A column of texts, which may not be UTF-8, as binary."""
    return arrays.one(column).view(pa.binary())


@contextmanager
def opened(source: Source, name: str) -> Iterator[Database]:
    """Open the database of an export, which may be compressed; error messages call it `name`.

    Raises `NotAReport` if it is not an export of nsys, `NcuBenchError` if it cannot be read.
    """
    with source.on_disk(".sqlite") as path:
        try:
            with closing(_connect(path)) as connection, _connect_numbers(path) as numbers:
                database = Database(connection, numbers, name)
                _refuse_strangers(name, database)
                yield database
        except sqlite3.DataError as error:  # SQLite raises it only for values over the limit
            raise NcuBenchError(
                f"{name} holds a text of more than {LONGEST_VALUE >> 20} MB, and was not read.",
                "No timeline has one: the file is damaged, or was made to take memory.",
                "Export it again: nsys export --type sqlite REPORT.nsys-rep",
            ) from error
        # SQLite quotes a damaged schema in its message, which Python cannot always decode.
        except (*_DAMAGE, OverflowError, MemoryError, UnicodeDecodeError) as error:
            raise NcuBenchError(
                f"{name} could not be read as SQLite: {error}.",
                "The file is damaged or was cut, as when nsys export was stopped.",
                "Export it again: nsys export --type sqlite REPORT.nsys-rep",
            ) from error


def _location(path: Path) -> str:
    return f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"


def _connect(path: Path) -> sqlite3.Connection:
    """Open an untrusted file read-only, with limits on the size of values and on the time of all queries."""
    connection = sqlite3.connect(_location(path), uri=True, isolation_level=None, check_same_thread=False)
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    if hasattr(connection, "setlimit"):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
    deadline = time.monotonic() + LONGEST_READ_S
    connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_CHECKS)
    return connection


@contextmanager
def _connect_numbers(path: Path) -> Iterator[adbc_driver_manager.AdbcConnection]:
    """Open an untrusted file read-only by Arrow's driver."""
    with (
        adbc_driver_sqlite.connect(_location(path)) as opened_file,
        adbc_driver_manager.AdbcConnection(opened_file) as connection,
    ):
        for pragma in PRAGMAS:
            with adbc_driver_manager.AdbcStatement(connection) as statement:
                statement.set_sql_query(f"PRAGMA {pragma}")
                statement.execute_update()
        yield connection


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
