"""Read a big CSV report in parts into the same table as reading launch by launch.

Generators turn bytes into blocks of lines, lines into rows, rows into launches as columns, and columns into tables;
each holds only its next piece, so that memory does not grow with the file. If a fact is uncertain until the end
(numbers that do not show their locale, launches that several tables may share), `NotStreamed` is raised.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from ncu_parsers.derived.opcode_check import Disagreement, notes_on
from ncu_parsers.detect.text_reader import era_of, note_cut, note_replaced, warnings_of_ncu
from ncu_parsers.report_data.report import DECIMAL_COMMAS, Report, StreamedReport
from ncu_parsers.sources.memory import one_heap
from ncu_parsers.sources.reading_ahead import reads_beside_others
from ncu_parsers.sources.sources import DAMAGE, Source
from ncu_parsers.streaming.cells.rows import NotStreamed
from ncu_parsers.streaming.launch_columns import ATTRIBUTES, LaunchColumns, MetricColumn, joinable, joined, table_of
from ncu_parsers.streaming.page_launches import launches_of_report
from ncu_parsers.streaming.page_rows import LineAccount, PageRows, StreamedPage, blocks_of

Result = TypeVar("Result")

WORKERS = 1
TABLES_UNRELEASED = 3
"""Tables written between two releases of memory; releasing after each would take a sixth of the time."""
TABLES_AHEAD = 1
CELLS_OF_A_TABLE = 1_500_000
DERIVED_COLUMNS = 60
"""Launches are collected until their table has CELLS_OF_A_TABLE cells, counting DERIVED_COLUMNS columns besides their
metrics: the time per table hardly depends on its rows."""


class InThisThread(Executor):
    """An executor that runs each task at once in this thread."""

    def __init__(self, workers: int) -> None:
        """`workers` is ignored: the signature is that of other executors."""

    def submit(self, function: Callable[..., Result], /, *arguments: Any, **keywords: Any) -> Future[Result]:
        """The result or the exception as a completed future."""
        future: Future[Result] = Future()
        try:
            future.set_result(function(*arguments, **keywords))
        except Exception as error:
            future.set_exception(error)
        return future


def stream_report(source: Source, write: Callable[[pa.Table], None]) -> StreamedReport:
    """Read a report, and pass its launches to `write` in consecutive tables.

    Raises `NotStreamed` for a report that must be read launch by launch; discard what was written by then.
    """
    report = StreamedReport(source.name)
    account = LineAccount(report)
    with _workers() as (pool, writer):
        rows, tables = PageRows(account, pool), LaunchTables(report, pool)
        try:
            with source.open() as stream:
                launches = launches_of_report(rows.batches(blocks_of(stream, source.name)), report)
                _write_each(tables.tables(launches), write, writer)
        except DAMAGE as error:
            raise NotStreamed("the file is damaged") from error
    if not tables.rows:
        raise NotStreamed("it holds no launch")
    _finish(report, account, rows.pages, tables)
    return report


@contextmanager
def _workers() -> Iterator[tuple[Executor, Executor]]:
    """The executors that make tables and that write them, beside this thread."""
    executor = InThisThread if reads_beside_others() else ThreadPoolExecutor
    with one_heap(), executor(WORKERS) as pool, executor(1) as writer:
        yield pool, writer


def write_launches(
    launches: Iterable[LaunchColumns], report: StreamedReport, write: Callable[[pa.Table], None]
) -> None:
    """Pass launches to `write` in consecutive tables, and count them in the report.

    Raises `NotStreamed` for launches that must be read one by one.
    """
    with _workers() as (pool, writer):
        tables = LaunchTables(report, pool)
        _write_each(tables.tables(launches), write, writer)
    _count(report, tables)


def _write_each(tables: Iterable[pa.Table], write: Callable[[pa.Table], None], writer: Executor) -> None:
    """Write each table while the next one is made."""
    writing: Future[None] | None = None
    for number, table in enumerate(tables, 1):
        if writing is not None:
            writing.result()
        writing = writer.submit(_write, table, write, tidy=number % TABLES_UNRELEASED == 0)
    if writing is not None:
        writing.result()


def _write(table: pa.Table, write: Callable[[pa.Table], None], *, tidy: bool) -> None:
    write(table)
    if tidy:
        pa.default_memory_pool().release_unused()


def _finish(report: StreamedReport, account: LineAccount, pages: list[StreamedPage], tables: LaunchTables) -> None:
    note_replaced(report, account.replaced)
    if not account.is_complete:
        note_cut(report, account.reading)
    report.dialects = list(dict.fromkeys(streamed.page.dialect for streamed in pages))
    report.era = era_of([streamed.page for streamed in pages])
    for streamed in pages:
        report.notes += [DECIMAL_COMMAS] if streamed.votes.mark == "," else []
        report.notes += streamed.problems.notes()
    report.notes += warnings_of_ncu(report.messages)
    _count(report, tables)


def _count(report: StreamedReport, tables: LaunchTables) -> None:
    report.notes += tables.notes()
    report.streamed_rows, report.streamed_names, report.streamed_failures = (
        tables.rows, tables.metric_names, tables.failed
    )  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- tables


class LaunchTables:
    """Makes tables of launches; counts all launches so far in `rows`, and failed ones in `failed`."""

    def __init__(self, report: Report, pool: Executor) -> None:
        self.rows = self.failed = 0
        self._report, self._pool = report, pool
        self._numeric: set[str] = set()
        self._words: dict[str, str] = {}
        self._found: list[Disagreement] = []
        self._written_words: set[str] = set()

    @property
    def metric_names(self) -> list[str]:
        """Metrics that at least one launch has, sorted."""
        return sorted(self._numeric | self._words.keys())

    def tables(self, launches: Iterable[LaunchColumns]) -> Iterator[pa.Table]:
        """The launches as tables, each made while the next ones are read.

        Raises `NotStreamed` if a column already written turns out to have another type.
        """
        waiting: deque[Future[pa.Table]] = deque()
        for columns in self._gathered(launches):
            waiting.append(self._pool.submit(_tabulated, columns, self._report, frozenset(self._numeric), self._found))
            if len(waiting) > TABLES_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _gathered(self, launches: Iterable[LaunchColumns]) -> Iterator[list[LaunchColumns]]:
        """Consecutive launches, enough for a table."""
        gathered: list[LaunchColumns] = []
        for columns in launches:
            self._note(columns)
            if gathered and not joinable(gathered[0], columns):
                yield gathered
                gathered = []
            gathered.append(columns)
            if sum(some.rows for some in gathered) * (len(columns.metrics) + DERIVED_COLUMNS) >= CELLS_OF_A_TABLE:
                yield gathered
                gathered = []
        if gathered:
            yield gathered

    def _note(self, columns: LaunchColumns) -> None:
        self.rows += columns.rows
        self.failed += int(columns.failed.sum())
        for name, column in columns.metrics.items():
            self._note_metric(name, column)

    def _note_metric(self, name: str, column: MetricColumn) -> None:
        if name in ATTRIBUTES:
            raise NotStreamed(f"{name} is a metric and a column of the page")
        if column.words:
            self._words.setdefault(name, column.words[min(column.words)])
        if name not in self._numeric and not np.isnan(column.values).all():
            self._numeric.add(name)
            if name in self._written_words:
                raise NotStreamed(f"{name} is a word first and a number later")
        if column.words and name not in self._numeric:
            self._written_words.add(name)

    def notes(self) -> list[str]:
        """Notes on metrics that are numbers in some launches and words in others, and on opcodes unlike counters."""
        return [
            f'{name} is a number in some launches and a word ("{word[:40]}") in others; the words are left out'
            for name, word in sorted(self._words.items())
            if name in self._numeric
        ] + (notes_on(self._found) if self._found else [])


def _tabulated(
    columns: Sequence[LaunchColumns], report: Report, numeric: Collection[str], found: list[Disagreement]
) -> pa.Table:
    return table_of(joined(columns), report, numeric, found)
