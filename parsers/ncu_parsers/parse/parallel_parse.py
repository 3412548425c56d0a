"""Parse several reports independently: big ones into Parquet files, in parallel processes where that is faster.

Starting a process takes longer than reading a small report, so this process reads small ones meanwhile; if there are
many, each child process reads a batch of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from ncu_launch.errors import NcuBenchError

from ncu_parsers.datasets.process_engine import child_processes
from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.detect.text_reader import TextReading, read_report
from ncu_parsers.parquet.writer import ENOUGH_ROWS, write_table, writing_row_groups
from ncu_parsers.parse.file_kinds import read_artefact, reader_of, streamer_of
from ncu_parsers.report_data.report import Report, StreamedReport
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import concatenated
from ncu_parsers.sources.memory import limited
from ncu_parsers.sources.reading_ahead import beside_others
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming.cells.rows import Mask, NotStreamed, note_loops

WORTH_A_PROCESS = 16_000_000
WORTH_A_PROCESS_IF_SLOW = 4_000_000
"""Bytes from which a report gets its own process: for text, and for formats that are slower to read."""

BATCH_BYTES = 4_000_000
"""Small reports are assigned to a process in batches of this many bytes."""

HEAD_BYTES = 1 << 16
"""Bytes at the beginning of a report from which the first launch is read."""

MOST_PROCESSES = 8
"""Most child processes: each may take some 200 MB."""

StreamReport = Callable[[Source, Callable[[pa.Table], None]], StreamedReport]

Ids = dict[int | None, tuple[int, int]]
"""The smallest and largest launch id per process."""


@dataclass
class Part:
    """Result of reading one report: its launches in the file `path` or as `table`; or a refusal.

    `ids` are the smallest and largest launch id per process, {} for timelines, whose launches are in one report only.
    `refusal` is (what, cause, advice) of an error. `is_gathered`: the launches are in one file with those of other
    small reports, which is the `path` of the first of them.
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
    """Read every source, in up to `processes` processes, and return the parts in the order of the sources.

    Reports of at least `big` bytes are streamed into files in `folder`; smaller ones are combined in files there, or
    stay in memory if they are few. `reading` is called with each source, before this process reads it or takes its
    result. Raises `NcuBenchError` if `folder` is not writable, and as `read_here`.
    """
    places = {source: folder / str(number) for number, source in enumerate(sources)}
    batches = _batches(sources) if processes > 1 else []
    batches = batches if len(batches) > 1 else []
    others = {source for batch in batches for source in batch}
    found: dict[Source, Part] = {}
    small = _Small()
    with child_processes(min(processes, MOST_PROCESSES, len(batches))) as engine:
        work = [[(source, places[source]) for source in batch] for batch in batches]
        answers = engine.map(partial(read_apart, big=big), work)
        for number, source in enumerate(sources):
            if source not in others:
                reading(source)
                found[source] = read_here(source, places[source], big)
                small.take(number, found[source], places[source])
        small.finish()
        for batch, parts in zip(batches, answers, strict=True):
            for place, source in enumerate(batch):
                reading(source)
                # This process reads the reports of a process that was killed.
                if isinstance(parts, NcuBenchError):
                    found[source] = read_here(source, places[source], big)
                else:
                    found[source] = parts[place]
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
    """Combines tables of consecutive small reports into files, since each table alone takes much memory."""

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
    """True if two text reports begin with the same process and launch id, as sections of one run do."""
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
    """Read one report: streamed into the file `path` if it has at least `big` bytes, else in memory.

    What makes the report unreadable becomes a `refusal`. Raises `NcuBenchError` if `path` cannot be written.
    """
    try:
        stream = streamer_of(source)
    except NcuBenchError:
        stream = None  # the plain reader reports the error
    part = None
    if stream is not None:
        part = _streamed(source, path, stream) if source.size >= big else _streamed_here(source, stream)
    return part or _read_whole(source)


def read_apart(work: Sequence[tuple[Source, Path]], big: int) -> list[Part]:
    """Read (source, path) pairs like `read_here`, in a child process: launches are returned in files, not pickled."""
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

            try:
                part.report = stream(source, write)
            except NcuBenchError as error:  # what cannot be written is an OSError here
                return _refused(error)
            groups.finish(b"{}")
        if part.report.origin != Report.origin:
            part.ids = {}  # launches of timelines are never joined with others
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
    except NcuBenchError as error:
        return _refused(error)
    part = Part(report, table=concatenated(tables))
    for table in tables if report.origin == Report.origin else ():
        _note_ids(part.ids, table)
    return part


def _refused(error: NcuBenchError) -> Part:
    return Part(refusal=(error.what, error.cause, error.advice))


def _read_whole(source: Source) -> Part:
    try:
        report = read_artefact(source)
    except NcuBenchError as error:
        return _refused(error)
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
    """A copy of a report without its launches, for pickling."""
    known = {entry.name: getattr(report, entry.name) for entry in fields(Report)}
    return StreamedReport(
        **{**known, "launches": [], "table": None},
        streamed_rows=report.rows,
        streamed_names=report.metric_names,
        streamed_failures=report.failures,
    )
