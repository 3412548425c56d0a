"""Parse several reports independently: big ones into Parquet files, in parallel processes where that is faster.

Starting a process takes longer than reading a small report, so this process reads small ones meanwhile; if they are
many, each child process reads a batch of them. Child processes end when their parent ends, for whatever reason.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from pathlib import Path

import numpy as np
import pyarrow as pa
from ncu_launch.errors import NcuBenchError

from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.detect.text_reader import TextReading, read_report
from ncu_parsers.parquet.writer import ENOUGH_ROWS, write_table, writing_row_groups
from ncu_parsers.parse.file_kinds import read_artefact, reader_of, streamer_of
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Report, StreamedReport
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import concatenated
from ncu_parsers.sources.memory import TooBig, limited, process_wide, share_among
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming.cells.rows import Mask, NotStreamed, note_loops
from ncu_parsers.streaming.streaming_reader import beside_others

WORTH_A_PROCESS = 16_000_000
WORTH_A_PROCESS_IF_SLOW = 4_000_000
"""Bytes from which a report is read in its own process: for streamed CSV, and for formats that are read slower."""

SAFE_PATH = "PYTHONSAFEPATH"
BATCH_BYTES = 4_000_000
"""Small reports are assigned to a process in batches of this many bytes."""

HEAD_BYTES = 1 << 16
"""Bytes at the beginning of a report from which the first launch is read."""

MOST_PROCESSES = 8
"""Each process may take some 200 MB."""

StreamReport = Callable[[Source, Callable[[pa.Table], None]], StreamedReport]

Ids = dict[int | None, tuple[int, int]]
"""The smallest and largest launch id per process."""


@dataclass
class Part:
    """Result of reading one report: its launches in the file `path` or as `table`; or a refusal.

    `ids` are launch ids that may also be in another report. `refusal` is (what, cause, advice) of an error.
    `is_gathered`: the launches were written with those of the following reports to one file, which the first of them
    has as `path`.
    """

    report: Report | None = None
    path: Path | None = None
    table: pa.Table | None = None
    ids: Ids = field(default_factory=dict)
    refusal: tuple[str, str, str] | None = None
    is_gathered: bool = False

    @property
    def has_launches(self) -> bool:
        """True if there are launches; those of a gathered part may be in the file of an earlier part."""
        return self.path is not None or self.table is not None or self.is_gathered


def read_parts(
    sources: Sequence[Source], folder: Path, *, big: int, processes: int, reading: Callable[[Source], None]
) -> list[Part]:
    """Read every source, in up to `processes` processes. Launches of reports of at least `big` bytes go to `folder`.

    `reading` is called with each source when it is its turn. Raises `NcuBenchError` if `folder` is not writable.
    """
    numbers = {source: number for number, source in enumerate(sources)}
    places = {source: folder / str(number) for source, number in numbers.items()}
    small = _Small()
    batches = _batches(sources) if processes > 1 else []
    work = [[(source, places[source]) for source in batch] for batch in batches] if len(batches) > 1 else []
    found: dict[Source, Part] = {}
    with _started(work, big, min(processes, MOST_PROCESSES)) as running:
        for source in sorted(sources, key=lambda source: source in running):
            reading(source)
            try:
                found[source] = running[source]() if source in running else read_here(source, places[source], big)
            except BrokenProcessPool:  # a process was killed
                found[source] = read_here(source, places[source], big)
            small.take(numbers[source], found[source], places[source])
    small.finish()
    return [found[source] for source in sources]


def _batches(sources: Sequence[Source]) -> list[list[Source]]:
    """Sources for child processes: each long report alone, and batches of small ones if there are many."""
    long = [source for source in sources if _is_long_work(source)]
    others = [(source, source.size) for source in sources if source not in set(long)]
    batches = [[source] for source in long]
    if sum(size for _, size in others) < WORTH_A_PROCESS:
        return batches
    batch: list[Source] = []
    taken = 0
    for source, size in others:
        batch.append(source)
        taken += size
        if taken >= BATCH_BYTES:
            batches.append(batch)
            batch, taken = [], 0
    return [*batches, batch] if batch else batches


class _Small:
    """Combines tables of consecutive small reports in files, since each table alone takes much memory."""

    def __init__(self) -> None:
        self._gathered: list[Part] = []
        self._place = Path()
        self._next = 0
        self._rows = 0

    def take(self, number: int, part: Part, place: Path) -> None:
        """Add part number `number`; small ones are combined. `place` is where the part's own file would be."""
        if number != self._next:
            self.finish()
        self._next = number + 1
        if part.table is None:
            self.finish()
            return
        if not self._gathered:
            self._place = place
        self._gathered.append(part)
        self._rows += len(part.table)
        if self._rows >= ENOUGH_ROWS:
            self.finish()

    def finish(self) -> None:
        """Write the combined tables as the file of the first part; the other parts then have neither table nor file."""
        tables = [part.table for part in self._gathered if part.table is not None]
        if len(tables) > 1:
            write_table(concatenated(tables), self._place)
            self._gathered[0].path = self._place
            for part in self._gathered:
                part.table, part.is_gathered = None, True
        self._gathered, self._rows = [], 0


def begin_alike(sources: Sequence[Source]) -> bool:
    """True if two CSV reports begin with the same process and launch id, as sections of one run do."""
    firsts = [first for source in sources if (first := _first_launch(source)) is not None]
    return len(set(firsts)) < len(firsts)


def _first_launch(source: Source) -> tuple[int | None, int | None] | None:
    try:
        if reader_of(source) is not read_report:
            return None
    except NcuBenchError:
        return None
    reading = TextReading(Report(source.name), [], deque(maxlen=50))
    for number, line in enumerate(source.head(HEAD_BYTES).decode("utf-8", "replace").splitlines()[:-1], start=1):
        reading.take(number, line)
    launch = next((launch for page in reading.pages for launch in page.launches()), None)
    return None if launch is None or launch.launch_id is None else (launch.process_id, launch.launch_id)


def _is_long_work(source: Source) -> bool:
    size = source.size
    if size < WORTH_A_PROCESS_IF_SLOW:
        return False
    try:
        return size >= WORTH_A_PROCESS or reader_of(source) is not read_report
    except NcuBenchError:
        return False


# ------------------------------------------------------------------------------------------------------- one report


@limited()
def read_here(source: Source, path: Path, big: int) -> Part:
    """Read one report: streamed into the file `path` if it has at least `big` bytes, else in memory."""
    try:
        stream = streamer_of(source)
    except NcuBenchError:
        stream = None  # the plain reader reports the error
    try:
        part = None
        if stream is not None:
            part = _streamed(source, path, stream) if source.size >= big else _streamed_here(source, stream)
    except (TooBig, NotAReport) as error:
        return Part(refusal=(error.what, error.cause, error.advice))
    return part or _read_whole(source)


def read_apart(work: Sequence[tuple[Source, Path]], big: int) -> list[Part]:
    """`read_here` for some reports in a child process; launches are returned in files, not pickled."""
    parts = [read_here(source, path, big) for source, path in work]
    small = _Small()
    for number, (part, (_, path)) in enumerate(zip(parts, work, strict=True)):
        small.take(number, part, path)
    small.finish()
    for part, (_, path) in zip(parts, work, strict=True):
        if part.table is not None:
            write_table(part.table, path)
            part.path, part.table = path, None
    return parts


def _streamed(source: Source, path: Path, stream: StreamReport) -> Part:
    part = Part(path=path)
    try:
        with writing_row_groups(path) as groups:

            def write(table: pa.Table) -> None:
                groups.write(table)
                _note_ids(part.ids, table)

            part.report = stream(source, write)
            groups.finish(b"{}")
        if part.report.origin != Report.origin:
            part.ids = {}  # launches of timelines are joined with none
    except NotStreamed as reason:
        part = _read_whole(source)
        if part.report is not None:
            part.report.notes.append(reason.note)
        return part
    note_loops(part.report)
    return part


def _streamed_here(source: Source, stream: StreamReport) -> Part | None:
    """Stream a small report into memory, which is faster than the plain reader."""
    tables: list[pa.Table] = []
    try:
        with beside_others():
            report = stream(source, tables.append)
    except NotStreamed:
        return None
    part = Part(report, table=concatenated(tables))
    for table in tables if report.origin == Report.origin else ():
        _note_ids(part.ids, table)
    return part


def _read_whole(source: Source) -> Part:
    try:
        report = read_artefact(source)
    except NcuBenchError as error:
        return Part(refusal=(error.what, error.cause, error.advice))
    if not report.rows:
        return Part(report)
    if report.table is not None:
        return Part(drop_launches(report), table=report.table)
    table = launches_table(report)
    part = Part(drop_launches(report), table=table)
    _note_ids(part.ids, table)
    return part


def _note_ids(ids: Ids, table: pa.Table) -> None:
    columns = (arrays.one(table.column(name)) for name in ("process_id", "launch_id"))
    (processes, of_process), (launches, known) = (
        (arrays.values_of(column, np.int64), arrays.present(column)) for column in columns
    )
    groups: list[tuple[int | None, Mask]] = [(None, known & ~of_process)]
    groups += [
        (process, known & of_process & (processes == process))
        for process in np.unique(processes[known & of_process]).tolist()
    ]
    for process, chosen in groups:
        if chosen.any():
            least, most = int(launches[chosen].min()), int(launches[chosen].max())
            before = ids.get(process, (least, most))
            ids[process] = (min(least, before[0]), max(most, before[1]))


def drop_launches(report: Report) -> StreamedReport:
    """Everything known of a report except its launches, for pickling."""
    known = {entry.name: getattr(report, entry.name) for entry in fields(Report)}
    return StreamedReport(
        **{**known, "launches": [], "table": None},
        streamed_rows=report.rows,
        streamed_names=report.metric_names,
        streamed_failures=report.failures,
    )


# -------------------------------------------------------------------------------------------------------- processes


@process_wide
def hide_current_folder() -> Callable[[], None]:
    """Within the block, child processes start without the current folder, which may contain a json.py, on sys.path.

    Effective from Python 3.11 on.
    """
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"

    def put_back() -> None:
        os.environ.pop(SAFE_PATH, None)
        if before is not None:
            os.environ[SAFE_PATH] = before

    return put_back


@contextmanager
def _started(
    work: Sequence[Sequence[tuple[Source, Path]]], big: int, processes: int
) -> Iterator[dict[Source, Callable[[], Part]]]:
    """Start processes for `work`; yields, per source, a function that waits for its part.

    The processes end with the block, also after an error or Ctrl-C.
    """
    if not work:
        yield {}
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy locks that threads hold
    lifeline, our_end = context.Pipe(duplex=False)
    count = min(processes, len(work))
    pool = _pool(context, lifeline, count)
    if pool is None:
        our_end.close()
        lifeline.close()
        yield {}
        return
    try:
        with hide_current_folder(), block_interrupts():
            running = [(pool.submit(read_apart, one, big), one) for one in work]
        yield {
            source: partial(_of_batch, future, place)
            for future, one in running
            for place, (source, _) in enumerate(one)
        }
    except BaseException:
        our_end.close()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        our_end.close()
        lifeline.close()


def _pool(context: SpawnContext, lifeline: Connection, count: int) -> ProcessPoolExecutor | None:
    """A process pool; None without semaphores, as in some containers: then the caller reads files one by one."""
    try:
        return ProcessPoolExecutor(count, context, _begin, (lifeline, count))
    # Python was built without semaphores, the system has too few, or /dev/shm is missing.
    except (ImportError, NotImplementedError, OSError):
        return None


def _of_batch(future: Future[list[Part]], place: int) -> Part:
    return future.result()[place]


@contextmanager
def block_interrupts() -> Iterator[None]:
    """Processes started in the block ignore Ctrl-C, which a terminal sends to all; this one gets it after the block.

    The same holds for processes that threads of the block start later. SIGTERM comes after the block too.
    """
    with _handled_later():
        if not hasattr(signal, "pthread_sigmask"):
            yield
            return
        resource_tracker.ensure_running()  # started inside, it would unblock Ctrl-C
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _handled_later() -> Iterator[None]:
    """Ctrl-C and SIGTERM are handled after the block: a process prints a traceback if its parent leaves its start.

    A blocked signal is not enough: another thread may get it, and Python handles it in the main thread all the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread alone
        return
    came: list[int] = []
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    raising = {number: handler for number, handler in usual.items() if callable(handler)}
    for number in raising:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in raising.items():
            signal.signal(number, handler)
        for one in came:
            signal.raise_signal(one)


def _begin(lifeline: Connection, processes: int) -> None:
    share_among(processes)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    """End this process when its parent closes the connection or dies."""
    try:
        lifeline.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)
