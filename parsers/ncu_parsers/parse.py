"""Any reports -> one table of launches, with an account of what was read, joined, skipped and refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import pyarrow as pa
from ncu_launch.errors import NcuBenchError

from ncu_parsers.artefacts import read_artefact
from ncu_parsers.build import launches_table
from ncu_parsers.join_runs import join_runs
from ncu_parsers.read import merge
from ncu_parsers.report import Launch, Report, shortened
from ncu_parsers.sources import Source
from ncu_parsers.tables import SCHEMA_VERSION, concatenated, with_metadata


@dataclass
class Parsed:
    """What parsing gave: the table (None when every source was refused), the reports read, the errors of the others.

    `mismatch` says, in a sentence, how two runs of a program differ in the kernels they launch.
    """

    table: pa.Table | None
    reports: list[Report] = field(default_factory=list)
    refused: dict[str, NcuBenchError] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    mismatch: str = ""


def parse(
    sources: Sequence[Source], *, join: bool = True, reading: Callable[[Source], None] = lambda source: None
) -> Parsed:
    """Read every source into one table.

    A source that cannot be read is kept apart with its reason; the others are read all the same. With `join`, a
    launch that stands in several files (one section of a report per file, say) becomes one row. `reading` is called
    with each source before it is read.
    """
    result = Parsed(None)
    for source in sources:
        reading(source)
        try:
            result.reports.append(read_artefact(source))
        except NcuBenchError as error:
            result.refused[source.name] = error
    sessions = [report for report in result.reports if not report.rows]
    profiles = [report for report in result.reports if report.rows]
    _lend_sessions(sessions, profiles, result)
    if join:
        _join([report for report in profiles if report.table is None], result)
    return _tabulated(profiles, result)


def parse_two_runs(first: Source, second: Source, *, ended_early: bool = False) -> Parsed:
    """Two reports of two runs of one program, each with some of the counters, as one table: a row per launch.

    `ended_early` says that the second run was broken off, so that it holds fewer launches for a known reason.
    """
    result = parse([first, second], join=False)
    if len(result.reports) < 2:
        return result
    one, other = result.reports
    joined = join_runs(one.launches, other.launches, ended_early=ended_early)
    one.labels = {**other.labels, **one.labels}
    result.mismatch = joined.mismatch
    result.notes.append(
        f"{joined.matched} of {len(one.launches)} launches were collected in two runs of the program, and joined by "
        "their order within kernel, shape and range"
    )
    return _tabulated([one], result)


def _tabulated(profiles: list[Report], result: Parsed) -> Parsed:
    tables = [_table_of(report) for report in profiles if report.rows]
    if tables:
        metadata = {
            "schema_version": SCHEMA_VERSION,
            "reports": [account(report) for report in result.reports],
            "notes": result.notes,
        }
        result.table = with_metadata(concatenated(tables), metadata)
    return result


def _table_of(report: Report) -> pa.Table:
    return launches_table(report) if report.table is None else report.table


def _lend_sessions(sessions: list[Report], profiles: list[Report], result: Parsed) -> None:
    """Session pages give their attributes to the reports beside them: of the same name stem, or to all."""
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
    """How many leading characters two file names share; 0 for files in different folders."""
    first, second = PurePath(one), PurePath(other)
    if first.parent != second.parent:
        return 0
    return next((at for at, pair in enumerate(zip(first.name, second.name, strict=False)) if pair[0] != pair[1]), 0)


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
    """What the Parquet file remembers of a report: dialect, tool, lines and notes."""
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
    }
