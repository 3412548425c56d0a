"""A big CSV report -> the same table that `read.py` and `build.py` make of it, a stretch of launches at a time.

The plain reader keeps every cell until the file has ended. Here launches leave as soon as nothing that may follow can
change them, so that memory does not grow with the file. What is not certain before the end (a page that numbers do not
tell the locale of, launches that several tables may share, pages of another kind) is left to the plain reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from ncu_parsers.detect.text_reader import era_of, note_cut, note_replaced
from ncu_parsers.ncu.csv_pages import LongPage, WidePage
from ncu_parsers.report_data.report import Report
from ncu_parsers.sources.process_settings import process_wide
from ncu_parsers.sources.sources import DAMAGE, Source
from ncu_parsers.streaming.cells import compiled_loops
from ncu_parsers.streaming.compiled_row_batches import LongPages
from ncu_parsers.streaming.launch_pipeline import Flow
from ncu_parsers.streaming.line_accounting import NotCertain, PageReader, read_lines
from ncu_parsers.streaming.long_blocks import LongBlocks
from ncu_parsers.streaming.long_page_lines import LongLines
from ncu_parsers.streaming.row_batch_reader import Unexpected
from ncu_parsers.streaming.wide_page_blocks import WideReader

Result = TypeVar("Result")

WORKERS = 2


@dataclass
class StreamedReport(Report):
    """A report whose launches have left as tables: how many there were, which metrics they have, how many failed."""

    streamed_rows: int = 0
    streamed_names: list[str] = field(default_factory=list)
    streamed_failures: int = 0

    @property
    def rows(self) -> int:
        """How many launches the report holds."""
        return self.streamed_rows

    @property
    def failures(self) -> int:
        """How many of its launches ended in an error."""
        return self.streamed_failures

    @property
    def metric_names(self) -> list[str]:
        """Every metric that at least one launch has, sorted."""
        return self.streamed_names


class Sink(Protocol):
    """What takes the launches."""

    def write(self, table: pa.Table) -> None:
        """Take the next ones."""

    def restart(self) -> None:
        """Forget those taken: the first follow again."""


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


def stream_report(source: Source, sink: Sink) -> StreamedReport | None:
    """Read a report and give its launches to `sink`, in tables that follow each other.

    None when the plain reader has to read the file: what `sink` was given by then is to be discarded. Lines are
    recognised by how they begin and end, and checked later; when that fails once, the file is read again with every
    line looked at.
    """
    try:
        with _one_heap():
            try:
                return _stream(source, sink.write, _read)
            except Unexpected:
                sink.restart()
                return _stream(source, sink.write, _read_carefully)
    except (NotCertain, Unexpected):
        return None


@process_wide
def _one_heap() -> Callable[[], None]:
    """Arrow's buffers come from the heap that numpy's come from: two heaps keep a fifth more of what was freed."""
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    return partial(pa.set_memory_pool, usual)


def _stream(source: Source, write: Callable[[pa.Table], None], read: Callable[[Flow, Source], bool]) -> StreamedReport:
    report = StreamedReport(source.name)
    threads = InThisThread if _beside_others.get() else ThreadPoolExecutor
    with threads(WORKERS) as pool, threads(1) as writer:
        flow = Flow(report, write, pool, writer)
        complete = read(flow, source)
        flow.write_all()
    if not flow.rows:
        raise NotCertain("it holds no launch")
    note_replaced(report, flow.account.replaced)
    reading = flow.account.reading
    if not complete:
        note_cut(report, reading)
    for page in reading.pages:
        if page.dialect not in report.dialects:
            report.dialects.append(page.dialect)
    report.era = era_of(reading.pages)
    report.notes += flow.notes()
    report.streamed_rows, report.streamed_names, report.streamed_failures = flow.rows, flow.metric_names, flow.failed
    return report


def _read(flow: Flow, source: Source, careful: bool = False) -> bool:
    """Read a file with the reader of its first page; whether the last line was complete."""
    long = LongPages(flow)

    def reader_of(page: LongPage | WidePage) -> PageReader:
        if isinstance(page, WidePage):
            return WideReader(flow, page)
        if careful or compiled_loops.loops is None:
            return LongLines(flow.account, page, careful, long.take)
        return LongBlocks(flow.account, page, long.take, compiled_loops.loops)

    try:
        with source.open() as stream:
            complete = read_lines(flow.account, stream, reader_of)
    except DAMAGE as error:
        raise NotCertain("the file is damaged") from error
    long.finish()
    return complete


_read_carefully = partial(_read, careful=True)
