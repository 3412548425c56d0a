"""A big CSV report -> the same table that `read.py` and `build.py` make of it, a stretch of launches at a time.

The plain reader keeps every cell until the file has ended. Here launches leave as soon as nothing that may follow can
change them, so that memory does not grow with the file. What is not certain before the end (a page that numbers do not
tell the locale of, launches that several tables may share, pages of another kind) is left to the plain reader.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol, TypeVar, cast

import pyarrow as pa
from zstandard import ZstdError

from ncu_parsers import memory
from ncu_parsers.fast_long import LongReader
from ncu_parsers.fast_wide import WideReader
from ncu_parsers.flow import Flow
from ncu_parsers.ncu_csv import LongPage, WidePage
from ncu_parsers.printed import NotCertain
from ncu_parsers.read import before_any_page, era_of, note_cut
from ncu_parsers.report import Report
from ncu_parsers.sources import STANDARD_INPUT, Source, encoding_of
from ncu_parsers.stretches import Unexpected

Result = TypeVar("Result")

BUFFER_BYTES = 1 << 18
LINE_BYTES = 1 << 13
"""Few lines are longer."""
BYTES_BETWEEN_CHECKS = 1 << 22
"""Of memory: asking for it takes some time."""

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

    None when the plain reader has to read it, whatever `sink` was given by then. Lines are recognised by how they
    begin and end, and checked later; when that fails once, the file is read again with every line looked at.
    """
    if source.path == STANDARD_INPUT:
        return None
    try:
        with _one_heap():
            try:
                return _stream(source, sink.write, careful=False)
            except Unexpected:
                sink.restart()
                return _stream(source, sink.write, careful=True)
    except (NotCertain, Unexpected):
        return None


@contextmanager
def _one_heap() -> Iterator[None]:
    """Arrow's buffers come from the heap that numpy's come from: two heaps keep a fifth more of what was freed."""
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(usual)


def _stream(source: Source, write: Callable[[pa.Table], None], careful: bool) -> StreamedReport:
    report = StreamedReport(source.name)
    threads = InThisThread if _beside_others.get() else ThreadPoolExecutor
    with source.open() as stream, threads(WORKERS) as pool, threads(1) as writer:
        flow = Flow(report, write, pool, writer)
        try:
            complete = _read(flow, stream, careful)
        except (OSError, EOFError, zlib.error, ZstdError) as error:
            raise NotCertain("the file is damaged") from error
    if not flow.rows:
        raise NotCertain("it holds no launch")
    if flow.replaced:
        report.notes.append(f"{flow.replaced} lines held bytes that are not text; they were replaced")
    if not complete:
        note_cut(report, flow.reading)
    for page in flow.reading.pages:
        if page.dialect not in report.dialects:
            report.dialects.append(page.dialect)
    report.era = era_of(flow.reading.pages)
    report.notes += flow.notes()
    report.streamed_rows, report.streamed_names, report.streamed_failures = flow.rows, flow.metric_names, flow.failed
    return report


def _read(flow: Flow, stream: BinaryIO, careful: bool) -> bool:
    """Read a file with the reader of its first page; whether the last line was complete."""
    lines = io.BufferedReader(_Held(stream, flow.report.source), BUFFER_BYTES)
    encoding = encoding_of(lines.peek(4096)[:4096])
    if encoding not in ("utf-8", "utf-8-sig"):
        raise NotCertain(f"it is written in {encoding}")
    if encoding == "utf-8-sig":
        lines.read(3)
    reader = _first_page(flow, lines, careful)
    complete = reader.read(lines)
    flow.write_all()
    return complete


class _Held(io.RawIOBase):
    """A file whose lines are for the plain reader once one is too long to be read, and that takes no more memory than
    it may: raises `NotCertain` for the one and `memory.TooBig` for the other.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = cast(io.RawIOBase, stream)
        self._name = name
        self._line = 0
        self._unheld = 0
        self._longest = memory.longest_line()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._stream.readinto(buffer) or 0
        tail = max(count - LINE_BYTES, 0)
        end = bytes(buffer[tail:count]).rfind(b"\n")
        if end < 0:
            tail, end = 0, bytes(buffer[:count]).rfind(b"\n")
        self._line = self._line + count if end < 0 else count - tail - end
        if self._line > self._longest:
            raise NotCertain("a line of it is too long")
        self._unheld += count
        if self._unheld > BYTES_BETWEEN_CHECKS:
            self._unheld = 0
            memory.hold(self._name, streaming=True)
        return count


def _first_page(flow: Flow, lines: Iterable[bytes], careful: bool) -> WideReader | LongReader:
    """The reader of the first page; the lines up to its header are taken."""
    for line in lines:
        text = flow.text(line)
        page = flow.opened_by(text)
        if page is None:
            flow.note(before_any_page(text), text)
        elif isinstance(page, LongPage):
            return LongReader(flow, page, careful)
        elif isinstance(page, WidePage):
            return WideReader(flow, page)
    raise NotCertain("it has no page")
