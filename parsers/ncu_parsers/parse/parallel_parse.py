"""Several reports, each read on its own: big ones into Parquet files beside each other, in processes where that pays.

Starting a process takes longer than reading a small report, so a few small ones are read here, while the others work;
where they are many, a process reads some at a time. It ends with the process that started it, however that ends.
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
from ncu_parsers.parse.file_kinds import read_artefact, reader_of
from ncu_parsers.parse.slow_reading import note_loops, note_not_streamed
from ncu_parsers.report_data.report import Report
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import concatenated
from ncu_parsers.sources.memory import TooBig, limited, share_among
from ncu_parsers.sources.process_settings import process_wide
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming.cells.rows import Mask, NotStreamed
from ncu_parsers.streaming.streaming_reader import StreamedReport, beside_others, stream_report

WORTH_A_PROCESS = 16_000_000
WORTH_A_PROCESS_IF_SLOW = 4_000_000
"""From these sizes on a report is read in a process of its own: CSV as it is streamed, and what is read slower."""

SAFE_PATH = "PYTHONSAFEPATH"
BATCH_BYTES = 4_000_000
"""Small reports that follow each other are read by one process, so many of them."""

HEAD_BYTES = 1 << 16
"""So much of a report is looked at to see how it begins."""

MOST_PROCESSES = 8
"""Each may take some 200 MB."""

Ids = dict[int | None, tuple[int, int]]
"""The least and the greatest launch id of each process."""


@dataclass
class Part:
    """What reading one report gave: its account, and its launches in the file `path` or as `table`; or a refusal.

    `ids` are those of launches that may stand in another report too. `refusal` is what happened, cause and advice.
    `is_gathered` says that the launches were put into one file with those of its neighbours, which the first has.
    """

    report: Report | None = None
    path: Path | None = None
    table: pa.Table | None = None
    ids: Ids = field(default_factory=dict)
    refusal: tuple[str, str, str] | None = None
    is_gathered: bool = False

    @property
    def has_launches(self) -> bool:
        """Whether there are any; of a gathered part, they may be in the file of one before it."""
        return self.path is not None or self.table is not None or self.is_gathered


def read_parts(
    sources: Sequence[Source], folder: Path, *, big: int, processes: int, reading: Callable[[Source], None]
) -> list[Part]:
    """Read every source, in as many as `processes` where that pays. Reports of at least `big` bytes go into `folder`.

    `reading` is called with each source when it is waited for. Raises `NcuBenchError` when `folder` cannot be written.
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
    """What processes of their own read: reports that are long work, each alone, and small ones where they are many."""
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
    """Tables of small reports that follow each other, gathered in files: each by itself takes much memory."""

    def __init__(self) -> None:
        self._gathered: list[Part] = []
        self._place = Path()
        self._next = 0
        self._rows = 0

    def take(self, number: int, part: Part, place: Path) -> None:
        """Gather a part, the one of this number, if it is a small one; `place` is where its file would be."""
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
        """Write what was gathered as the file of the first part; the others have nothing of their own then."""
        tables = [part.table for part in self._gathered if part.table is not None]
        if len(tables) > 1:
            write_table(concatenated(tables), self._place)
            self._gathered[0].path = self._place
            for part in self._gathered:
                part.table, part.is_gathered = None, True
        self._gathered, self._rows = [], 0


def begin_alike(sources: Sequence[Source]) -> bool:
    """Whether two CSV reports begin with a launch of the same process and id, as sections of one run do."""
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
    """One report: streamed into the file `path` where it has at least `big` bytes, else in memory."""
    try:
        streams = reader_of(source) is read_report
    except NcuBenchError:
        streams = False  # the plain reader says what is wrong
    try:
        part = None
        if streams:
            part = _streamed(source, path) if source.size >= big else _streamed_here(source)
    except TooBig as error:
        return Part(refusal=(error.what, error.cause, error.advice))
    return part or _read_whole(source)


def read_apart(work: Sequence[tuple[Source, Path]], big: int) -> list[Part]:
    """The same for some reports in a process of its own: launches do not travel between processes but through files."""
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


def _streamed(source: Source, path: Path) -> Part:
    part = Part(path=path)
    try:
        with writing_row_groups(path) as groups:

            def write(table: pa.Table) -> None:
                groups.write(table)
                _note_ids(part.ids, table)

            part.report = stream_report(source, write)
            groups.finish(b"{}")
    except NotStreamed as reason:
        part = _read_whole(source)
        if part.report is not None:
            note_not_streamed(part.report, reason)
        return part
    note_loops(part.report)
    return part


def _streamed_here(source: Source) -> Part | None:
    """A small report, which takes less time so than by the plain reader."""
    tables: list[pa.Table] = []
    try:
        with beside_others():
            report = stream_report(source, tables.append)
    except NotStreamed:
        return None
    part = Part(report, table=concatenated(tables))
    for table in tables:
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
        return Part(without_launches(report), table=report.table)
    table = launches_table(report)
    part = Part(without_launches(report), table=table)
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


def without_launches(report: Report) -> StreamedReport:
    """What is known of a report, which travels between processes: all but its launches."""
    known = {entry.name: getattr(report, entry.name) for entry in fields(Report)}
    return StreamedReport(
        **{**known, "launches": [], "table": None},
        streamed_rows=report.rows,
        streamed_names=report.metric_names,
        streamed_failures=report.failures,
    )


# -------------------------------------------------------------------------------------------------------- processes


@process_wide
def without_the_current_folder() -> Callable[[], None]:
    """Inside, processes begin without the current folder on their path, in which a report may lie beside a json.py.

    Python knows the setting from 3.11 on.
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
    """Processes that do the `work` of `read_apart`, and for each report what waits for its part.

    They have ended when the block has, also by an error or Ctrl-C.
    """
    if not work:
        yield {}
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy locks that threads hold
    lifeline, held = context.Pipe(duplex=False)
    count = min(processes, len(work))
    pool = _pool(context, lifeline, count)
    if pool is None:
        held.close()
        lifeline.close()
        yield {}
        return
    try:
        with without_the_current_folder(), interrupts_held_back():
            running = [(pool.submit(read_apart, one, big), one) for one in work]
        yield {
            source: partial(_of_batch, future, place)
            for future, one in running
            for place, (source, _) in enumerate(one)
        }
    except BaseException:
        held.close()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        held.close()
        lifeline.close()


def _pool(context: SpawnContext, lifeline: Connection, count: int) -> ProcessPoolExecutor | None:
    """So many processes; None on a machine without semaphores, such as some containers, where the caller reads one file
    after another.
    """
    try:
        return ProcessPoolExecutor(count, context, _begin, (lifeline, count))
    # Python was built without semaphores, the system has too few, or there is no /dev/shm to keep them in.
    except (ImportError, NotImplementedError, OSError):
        return None


def _of_batch(future: Future[list[Part]], place: int) -> Part:
    return future.result()[place]


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Processes started here never hear Ctrl-C, which a terminal sends to all; this one hears it afterwards.

    Nor do those that are started later by threads of the block.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # multiprocessing would start it inside, and let Ctrl-C through again behind it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(lifeline: Connection, processes: int) -> None:
    share_among(processes)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    """End this process when the one that started it lets go of its end, or is no more."""
    try:
        lifeline.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)
