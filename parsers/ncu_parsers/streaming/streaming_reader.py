"""A big CSV report -> the table that reading it launch by launch would give, a part at a time.

Bytes become blocks of lines, these rows, these launches as columns, these tables: a chain of generators, each of which
holds no more than its next piece, so that memory does not grow with the file. What is not certain before the end (a
page whose numbers do not tell their locale, launches that several tables may share) raises `NotStreamed`.
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
"""So many tables are written between two times that the heap is tidied, which takes a sixth of the time if always."""
TABLES_AHEAD = 1
CELLS_OF_A_TABLE = 1_500_000
DERIVED_COLUMNS = 60
"""Launches are gathered until their table has so many cells, with so many columns beside their metrics: a table takes
as many steps for few launches as for many.
"""


class InThisThread(Executor):
    """Does at once what it is given."""

    def __init__(self, workers: int) -> None:
        """As other executors; it needs no workers."""

    def submit(self, function: Callable[..., Result], /, *arguments: Any, **keywords: Any) -> Future[Result]:
        """The result, or what was raised, as a future that is done."""
        future: Future[Result] = Future()
        try:
            future.set_result(function(*arguments, **keywords))
        except Exception as error:
            future.set_exception(error)
        return future


def stream_report(source: Source, write: Callable[[pa.Table], None]) -> StreamedReport:
    """Read a report, and give its launches to `write` in tables that follow each other.

    Raises `NotStreamed` for a report that has to be read launch by launch: what was written by then is to be discarded.
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
    """What makes tables beside this thread, and what writes them."""
    executor = InThisThread if reads_beside_others() else ThreadPoolExecutor
    with one_heap(), executor(WORKERS) as pool, executor(1) as writer:
        yield pool, writer


def write_launches(
    launches: Iterable[LaunchColumns], report: StreamedReport, write: Callable[[pa.Table], None]
) -> None:
    """Give launches to `write` in tables that follow each other, and count them in the report.

    Raises `NotStreamed` for launches that have to be read one by one.
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
    """Tables of launches, and what is known of all launches so far."""

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

        Raises `NotStreamed` where a column that was written turns out to be of another type.
        """
        waiting: deque[Future[pa.Table]] = deque()
        for columns in self._gathered(launches):
            waiting.append(self._pool.submit(_tabulated, columns, self._report, frozenset(self._numeric), self._found))
            if len(waiting) > TABLES_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _gathered(self, launches: Iterable[LaunchColumns]) -> Iterator[list[LaunchColumns]]:
        """Launches that follow each other, enough of them for a table."""
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
        """Metrics that are numbers in some launches and words in others; counters that opcodes do not agree with."""
        return [
            f'{name} is a number in some launches and a word ("{word[:40]}") in others; the words are left out'
            for name, word in sorted(self._words.items())
            if name in self._numeric
        ] + (notes_on(self._found) if self._found else [])


def _tabulated(
    columns: Sequence[LaunchColumns], report: Report, numeric: Collection[str], found: list[Disagreement]
) -> pa.Table:
    return table_of(joined(columns), report, numeric, found)
