"""A big CSV report -> the table that reading it launch by launch would give, a part at a time.

Bytes become blocks of lines, these rows, these launches as columns, these tables: a chain of generators, each of which
holds no more than its next piece, so that memory does not grow with the file. What is not certain before the end (a
page whose numbers do not tell their locale, launches that several tables may share) raises `NotStreamed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import pyarrow as pa

from ncu_parsers.detect.text_reader import era_of, note_cut, note_replaced
from ncu_parsers.report_data.report import DECIMAL_COMMAS, StreamedReport
from ncu_parsers.sources.process_settings import one_heap
from ncu_parsers.sources.sources import DAMAGE, Source
from ncu_parsers.streaming.blocks import blocks_of
from ncu_parsers.streaming.cells.rows import NotStreamed
from ncu_parsers.streaming.launch_columns import LaunchColumns
from ncu_parsers.streaming.launch_tables import LaunchTables
from ncu_parsers.streaming.line_account import LineAccount
from ncu_parsers.streaming.page_rows import PageRows, StreamedPage
from ncu_parsers.streaming.report_launches import launches_of_report

Result = TypeVar("Result")

WORKERS = 1
TABLES_UNRELEASED = 3
"""So many tables are written between two times that the heap is tidied, which takes a sixth of the time if always."""


_beside_others: ContextVar[bool] = ContextVar("beside others", default=False)


@contextmanager
def beside_others() -> Iterator[None]:
    """Read reports in this thread alone, as long as the block: other processes have work for the other cores."""
    token = _beside_others.set(True)
    try:
        yield
    finally:
        _beside_others.reset(token)


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
    executor = InThisThread if _beside_others.get() else ThreadPoolExecutor
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
    _count(report, tables)


def _count(report: StreamedReport, tables: LaunchTables) -> None:
    report.notes += tables.notes()
    report.streamed_rows, report.streamed_names, report.streamed_failures = (
        tables.rows, tables.metric_names, tables.failed
    )  # fmt: skip
