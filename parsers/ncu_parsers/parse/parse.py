"""Parse any reports into one table of launches, with an account of what was read, joined, skipped and refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.atomic_files import folder_beside
from ncu_launch.files.run_files import (
    MANIFEST,
    NCU_CSV,
    NCU_INSTRUCTIONS_CSV,
    NCU_REPLAYED_CSV,
    RANKS,
    REPORTS,
    STATE,
)
from ncu_launch.files.typed_json import object_in

from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.detect.text_reader import merge
from ncu_parsers.parquet.writer import write_parts, write_table, writing_row_groups
from ncu_parsers.parse.file_kinds import read_artefact, streamer_of
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Launch, Report, shortened
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.tables import HOST, SCHEMA_VERSION, concatenated, encoded, field_metadata, with_metadata
from ncu_parsers.sources.memory import TooBig, limited
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming.cells.rows import NotStreamed, note_loops


@dataclass
class Parsed:
    """Result of parsing: table (None if all were refused, or if streamed), reports, and errors of refused sources.

    `mismatch` describes how the kernels launched in two runs of a program differ. `written` is true if the table is in
    a file.
    """

    table: pa.Table | None
    reports: list[Report] = field(default_factory=list)
    refused: dict[str, NcuBenchError] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    mismatch: str = ""
    written: bool = False


STREAMED_FROM_BYTES = 1_000_000
"""Reports of at least this size in bytes are streamed."""
MANY_BYTES = 8_000_000
"""From this total size in bytes on, small reports are read one by one, each into its own table."""
FIRST_FEW = 8
"""Number of small reports that are checked for being sections of one run, as a sample of all."""


@limited()
def parse_into(
    path: Path,
    sources: Sequence[Source],
    *,
    join: bool = True,
    processes: int = 1,
    reading: Callable[[Source], None] = lambda source: None,
) -> Parsed:
    """Parse every source into the Parquet file `path`; the result equals the table of `parse`.

    Big reports are streamed, several of them in up to `processes` processes: then `table` is None, and only batches of
    launches are in memory. With several processes, the calling program must be importable (`if __name__ ==
    "__main__"`). Raises `NcuBenchError` if the file cannot be written.
    """
    not_streamed: dict[str, NotStreamed] = {}
    try:
        streamed = stream_into(path, sources, join=join, processes=processes, reading=reading)
    except NotStreamed as reason:
        streamed, not_streamed = None, {sources[0].name: reason}
    if streamed is not None:
        return streamed
    result = parse(sources, join=join, reading=reading, not_streamed=not_streamed)
    if result.table is not None:
        write_table(result.table, path)
        result.written = True
    return result


def stream_into(
    path: Path,
    sources: Sequence[Source],
    *,
    join: bool = True,
    processes: int = 1,
    reading: Callable[[Source], None] = lambda source: None,
    ranges: bool = True,
) -> Parsed | None:
    """Stream big reports into the Parquet file `path`; None if they cannot be streamed.

    Streaming is impossible if one report may affect another: a session page, or, with `join`, launches with ids of
    several reports. With `ranges=False`, host ranges of a single report are left out if that saves time. Raises
    `NcuBenchError` if the file cannot be written, `NotStreamed` with the reason if the only report must be read launch
    by launch.
    """
    if len(sources) > 1 and any(source.is_piped for source in sources):
        return None  # child processes cannot read data that came through a pipe
    sizes = [source.size for source in sources]
    if max(sizes, default=0) < STREAMED_FROM_BYTES and sum(sizes) < MANY_BYTES:
        return None
    if any(origin_of(source.path) for source in sources):
        return None  # streamed launches have no ranks
    if join and _of_several_runs(Path(source.path) for source in sources):
        return None
    if len(sources) == 1:
        return _stream_one(path, sources[0], reading, ranges=ranges)
    from ncu_parsers.parse.parallel_parse import begin_alike, read_parts

    big = [source for source, size in zip(sources, sizes, strict=True) if size >= STREAMED_FROM_BYTES]
    if join and begin_alike(big or sources[:FIRST_FEW]):
        return None
    with folder_beside(path) as folder:
        parts = read_parts(sources, folder, big=STREAMED_FROM_BYTES, processes=processes, reading=reading)
        if any(part.report is not None and not part.has_launches for part in parts):
            return None
        if join and share_ids([part.ids for part in parts]):
            return None
        result = Parsed(None, [part.report for part in parts if part.report is not None])
        for source, part in zip(sources, parts, strict=True):
            if part.refusal is not None:
                result.refused[source.name] = NcuBenchError(*part.refusal)
        written = [launches for part in parts if (launches := part.path or part.table) is not None]
        if written:
            write_parts(path, written, encoded(_metadata(result.reports, result.notes)))
            result.written = True
    return result


def _stream_one(path: Path, source: Source, reading: Callable[[Source], None], *, ranges: bool) -> Parsed | None:
    try:
        stream = streamer_of(source, ranges=ranges)
    except NcuBenchError:
        return None  # the plain reader reports the error
    if stream is None:
        return None
    reading(source)
    try:
        with writing_row_groups(path) as groups:
            report = stream(source, groups.write)
            note_loops(report)
            groups.finish(encoded(_metadata([report], [])))
    except (TooBig, NotAReport) as error:
        return Parsed(None, refused={source.name: error.drop_traceback()})
    return Parsed(None, [report], written=True)


def share_ids(reports: Sequence[Mapping[int | None, tuple[int, int]]]) -> bool:
    """True if a launch may be in two reports: their ids of one process overlap."""
    spans: dict[int | None, list[tuple[int, int]]] = {}
    for ids in reports:
        for process, span in ids.items():
            spans.setdefault(process, []).append(span)
    return any(later[0] <= earlier[1] for each in map(sorted, spans.values()) for earlier, later in pairwise(each))


@limited()
def parse(
    sources: Sequence[Source],
    *,
    join: bool = True,
    reading: Callable[[Source], None] = lambda source: None,
    not_streamed: Mapping[str, NotStreamed] | None = None,
) -> Parsed:
    """Parse every source into one table.

    A source that cannot be read is listed with its error; the others are read. With `join`, a launch in several files
    (one section of a report per file, say) becomes one row. `reading` is called with each source before it is read.
    Reports named in `not_streamed` get a note with the reason.
    """
    result = Parsed(None)
    for source in sources:
        reading(source)
        try:
            result.reports.append(read_artefact(source))
        except NcuBenchError as error:
            result.refused[source.name] = error.drop_traceback()
    for report in result.reports:
        if not_streamed and report.source in not_streamed:
            report.notes.append(not_streamed[report.source].note)
    sessions = [report for report in result.reports if not report.rows]
    profiles = [report for report in result.reports if report.rows]
    _lend_sessions(sessions, profiles, result)
    if join:
        profiles = _one_of_each_launch(profiles, result)
        for together in by_origin([report for report in profiles if report.table is None]):
            _join(together, result)
    return _tabulated(profiles, result)


def parse_two_runs(first: Source, second: Source, *, ended_early: bool = False) -> Parsed:
    """Join the reports of two runs of one program, with different counters, to one table with a row per launch.

    `ended_early`: the second run was aborted, so missing launches are expected. If one report is refused, the table has
    the launches of the other.
    """
    result = parse([first, second], join=False)
    if len(result.reports) < 2:
        return result
    one, other = result.reports
    result.mismatch = _join_second_run(one, other, result, ended_early=ended_early)
    return _tabulated([one], result)


def _join_second_run(one: Report, other: Report, result: Parsed, *, ended_early: bool) -> str:
    """Add the second run's counters to the launches of the first; returns a sentence on their differences, or ""."""
    from ncu_parsers.parse.two_run_join import join_runs

    joined = join_runs(one.launches, other.launches, ended_early=ended_early)
    one.labels = {**other.labels, **one.labels}
    result.notes.append(
        f"{joined.matched} of {len(one.launches)} launches were collected in two runs of the program, and joined by "
        "their order within kernel, shape and range"
    )
    return joined.mismatch


def _of_several_runs(paths: Iterable[Path]) -> list[Path]:
    """The reports of second and of replacement runs in run folders, if the report of the first run is given too."""
    given = set(paths)
    return [
        path
        for path in given
        if path.name in (NCU_INSTRUCTIONS_CSV, NCU_REPLAYED_CSV)
        and path.parent.name == REPORTS
        and path.with_name(NCU_CSV) in given
    ]


def _one_of_each_launch(profiles: list[Report], result: Parsed) -> list[Report]:
    """The reports with each launch of a run folder once; a run may have ended early.

    A first run gets the counters of the second, and both are left out if a single run replaced them.
    """
    by_path = {Path(report.source): report for report in profiles if report.table is None}
    left_out: set[Path] = set()
    for path in sorted(_of_several_runs(by_path), reverse=True):  # ncu-replayed.csv first
        first = path.with_name(NCU_CSV)
        if path.name == NCU_REPLAYED_CSV:
            left_out |= {first, path.with_name(NCU_INSTRUCTIONS_CSV)}
            result.notes.append(
                f"{first} is left out: the program launched other kernels when it ran again, and {path.name} is of the "
                "run that replaces both"
            )
            continue
        if path not in left_out:
            mismatch = _join_second_run(by_path[first], by_path[path], result, ended_early=True)
            result.notes += [mismatch] if mismatch else []
            left_out.add(path)
    return [report for report in profiles if Path(report.source) not in left_out]


def _tabulated(profiles: list[Report], result: Parsed) -> Parsed:
    tables = [_table_of(report) for report in profiles if report.rows]
    if tables:
        result.table = with_metadata(concatenated(tables), _metadata(result.reports, result.notes))
    return result


def _metadata(reports: Sequence[Report], notes: list[str]) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, "reports": [account(report) for report in reports], "notes": notes}


def _table_of(report: Report) -> pa.Table:
    return with_origin(launches_table(report) if report.table is None else report.table, report.source)


def _lend_sessions(sessions: list[Report], profiles: list[Report], result: Parsed) -> None:
    """Copy the attributes of session pages to reports with the longest common file-name prefix, or to all reports."""
    for session in sessions:
        if not profiles:
            result.refused[session.source] = NcuBenchError(
                f"{session.source} is a session page: it describes a run and holds no launch.",
                advice="Parse it together with the report it belongs to: ncu-bench parse REPORT.csv SESSION.csv -o OUT",
            )
            result.reports.remove(session)
            continue
        near = [profile for profile in profiles if _shared_stem(profile.source, session.source) > 0]
        best = max((_shared_stem(profile.source, session.source) for profile in near), default=0)
        for profile in [
            profile for profile in near if _shared_stem(profile.source, session.source) == best
        ] or profiles:
            profile.session = {**session.session, **profile.session}
            profile.tool_version = profile.tool_version or session.tool_version


def _shared_stem(one: str, other: str) -> int:
    """Length of the common prefix of two file names; 0 for files in different folders."""
    first, second = PurePath(one), PurePath(other)
    if first.parent != second.parent:
        return 0
    letters = zip(first.name, second.name, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], letters))


def _join(profiles: list[Report], result: Parsed) -> None:
    before: dict[int, Report] = {id(launch): report for report in profiles for launch in report.launches}
    launches, joined = merge([report.launches for report in profiles])
    if not joined:
        return
    kept: dict[str, list[Launch]] = {report.source: [] for report in profiles}
    for launch in launches:
        kept[before[id(launch)].source].append(launch)
    emptied = []
    for report in profiles:
        for other in profiles:
            report.labels = {**other.labels, **report.labels}
        if len(kept[report.source]) < len(report.launches):
            emptied.append(report.source)
        report.launches = kept[report.source]
    result.notes.append(
        f"{joined} launches stand in several files and were joined into one row each "
        f"({shortened(PurePath(name).name for name in emptied)}); --separate keeps them apart"
    )


def account(report: Report) -> dict[str, Any]:
    """The entry of a report in the Parquet file's metadata: dialects, tool, lines and notes."""
    return {
        "report": report.source,
        "dialects": report.dialects,
        "tool_version": report.tool_version,
        "era": report.era,
        "launches": report.rows,
        "lines": dict(report.lines),
        "skipped": report.skipped,
        "session": report.session,
        "notes": report.notes,
        "losses": report.losses,
    }


# ---------------------------------------------------------------------------------- ranks of a distributed run


@dataclass(frozen=True)
class RankOrigin:
    """Where a report was made: host, device, and rank of the report or of each process; None or {} if unknown."""

    host: str | None
    rank: int | None = None
    device_id: int | None = None
    rank_of_process: dict[int, int] = field(default_factory=dict)


def origin_of(path: str) -> RankOrigin | None:
    """The origin of a report in the run folder of a rank or node; None for any other report.

    A killed rank leaves no manifest; then the folder's name gives the rank.
    """
    file = Path(path)
    if file.parent.name != REPORTS:
        return None
    folder = file.parent.parent
    manifest = object_in(folder / MANIFEST)
    place = _object(manifest.get("place"))
    if not place and folder.parent.name == RANKS and folder.name.isdecimal():
        place = {"rank": int(folder.name), "host": object_in(folder / STATE).get("host")}
    if not place:
        return None
    host, device = place.get("host"), _object(manifest.get("facts")).get("device_id")
    return RankOrigin(
        host if isinstance(host, str) and host else None, _number(place.get("rank")), _number(device), _processes(place)
    )


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int | None:
    """A rank, process id or device number; None if the value is not one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


def _processes(place: Mapping[str, Any]) -> dict[int, int]:
    """The known ranks of a node's processes."""
    entries = place.get("processes")
    objects = map(_object, entries) if isinstance(entries, list) else ()
    known = ((_number(one.get("process_id")), _number(one.get("rank"))) for one in objects)
    return {process: rank for process, rank in known if process is not None and rank is not None}


def by_origin(reports: Sequence[Report]) -> list[list[Report]]:
    """Group reports by rank or node; all others form one group. Launches of two ranks are never the same."""
    groups: dict[str, list[Report]] = {}
    for report in reports:
        known = origin_of(report.source) is not None
        groups.setdefault(str(Path(report.source).parent) if known else "", []).append(report)
    return list(groups.values())


def with_origin(table: pa.Table, path: str) -> pa.Table:
    """Add rank, host and (where no row has one) device of a report to every row of its table, if they are known."""
    origin = origin_of(path)
    if origin is None:
        return table
    table = _with(table, "rank", arrays.integers(_ranks(table, origin), pa.int32()))
    if origin.device_id is not None and table.column("device_id").null_count == len(table):
        table = _with(table, "device_id", arrays.integers([origin.device_id] * len(table), pa.int32()))
    if origin.host is None:
        return table
    meaning = field_metadata(meaning="the machine that a rank of a distributed run ran on")
    host = arrays.repeated(origin.host, len(table))
    return table.append_column(pa.field(HOST, host.type, metadata=meaning), host)


def _ranks(table: pa.Table, origin: RankOrigin) -> list[int | None]:
    """The rank of each launch: the rank of its report, or of its process."""
    if origin.rank is not None:
        return [origin.rank] * len(table)
    processes = tables.floats(table, "process_id")
    return [None if np.isnan(one) else origin.rank_of_process.get(int(one)) for one in processes]


def _with(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    index = table.schema.get_field_index(name)
    return table.set_column(index, table.schema.field(index), values)
