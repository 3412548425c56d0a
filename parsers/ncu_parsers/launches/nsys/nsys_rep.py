"""Read native reports of Nsight Systems (.nsys-rep, .qdrep) by exporting them to SQLite with nsys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.atomic_files import temporary_folder
from ncu_launch.profilers.installed_tools import Tool, export_timeline, find_tool

from ncu_parsers.launches.nsys.nsys_sqlite import read_export, stream_export
from ncu_parsers.report_data.report import Report, StreamedReport
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity.activity import Activity, Window
from ncu_parsers.timelines.nsys.nsys_activity import read_sqlite

MAGIC = b"NVIDIA Tegra Profiler Report"
NSYS = "nsys"
DIALECT = "nsys report"

EXPORT_THERE = "nsys export --type sqlite REPORT.nsys-rep, then name the .sqlite file here"
"""Advice for the machine that recorded the report: the nsys that wrote a report can read it."""

_MADE_BY_NEWER = re.compile(r"created in Nsight Systems version \(?(20\d\d[\w.]*)")
_IN_FIRST_LINE = re.compile(rb"Report (20\d\d)@(\d{1,4})@(\d{1,4})@")
_AT_THE_END = re.compile(rb"(20\d\d)\.(\d{1,4})\.(\d{1,4})\.\d+-\d+v\d")
_END_BYTES = 65_536
"""Bytes searched for the version: since 2025 in the first line, always at the end (`2023.1.2.43-32377213v0`)."""


def read_report(source: Source) -> Report:
    """Read one report through `nsys export` into a temporary folder.

    Raises as `exported` and `nsys_sqlite.read_report`.
    """
    with exported(source) as export:
        result = read_export(export, source.name)
    result.dialects = [DIALECT]
    return result


def stream_report(source: Source, write: Callable[[pa.Table], None]) -> StreamedReport:
    """Read one report like `read_report`, and pass its launches to `write` in consecutive tables."""
    with exported(source) as export:
        result = stream_export(export, source.name, write)
    result.dialects = [DIALECT]
    return result


def stream_gpu_work(source: Source, write: Callable[[pa.Table], None]) -> StreamedReport:
    """Read one report like `stream_report`, without API calls and ranges."""
    with exported(source) as export:
        result = stream_export(export, source.name, write, ranges=False)
    result.dialects = [DIALECT]
    return result


def read_activity(
    source: Source, *, trim: Window | None = None, whole_names: bool = False, named: Callable[[str], bool] | None = None
) -> Activity:
    """Read one report as an `Activity`; `trim` and `whole_names` as in `nsys_activity.read_sqlite`.

    All ranges are held, whatever is `named`: the export is gone when others would be looked up.
    """
    with exported(source) as export:
        return read_sqlite(export, source.name, trim=trim, whole_names=whole_names)


@contextmanager
def exported(source: Source) -> Iterator[Source]:
    """The SQLite export of a report, for the block. Raises `NcuBenchError` if nsys is missing or the export fails."""
    nsys = find_tool(NSYS)
    if nsys is None:
        raise NcuBenchError(
            f"{source.name} is a report of Nsight Systems, which only nsys can open.",
            "No nsys was found on PATH.",
            f"Install Nsight Systems; or, where it was recorded, run {EXPORT_THERE}.",
        )
    with temporary_folder() as folder, source.on_disk(".nsys-rep") as report:
        path, log = folder / "timeline.sqlite", folder / "log.txt"
        ended = export_timeline(nsys, report, path, log)
        if not ended or not path.is_file():
            printed = log.read_text("utf-8", "replace") if ended else None
            raise _not_exported(source.name, nsys, printed, version_of(report))
        yield replace(source, path=str(path))


def read_with() -> str:
    """The installed nsys, which exports reports, such as "nsys 2024.5.1"; "no nsys" if there is none."""
    nsys = find_tool(NSYS)
    return "no nsys" if nsys is None else f"nsys {nsys.version_text}"


def version_of(report: Path) -> str | None:
    """The version of the nsys that made a report (`2023.1.2`), read from the file; None if absent."""
    with report.open("rb") as stream:
        first = stream.read(len(MAGIC) + 64)
        stream.seek(max(0, report.stat().st_size - _END_BYTES))
        found = _IN_FIRST_LINE.search(first) or _AT_THE_END.search(stream.read())
    return ".".join(part.decode() for part in found.groups()) if found else None


def _not_exported(name: str, nsys: Tool, printed: str | None, made_by: str | None) -> NcuBenchError:
    """The error if nsys wrote no database: nsys is older than the report, the report is damaged, or nsys hung."""
    if printed is None:
        return NcuBenchError(
            f"{name} could not be exported: nsys {nsys.version_text} did not end.",
            advice=f"Run it by hand: {EXPORT_THERE}.",
        )
    newer = _MADE_BY_NEWER.search(printed)
    made_by = newer[1].rstrip(".") if newer is not None else made_by
    if made_by is not None and (newer is not None or _order(made_by) > _order(nsys.version_text)):
        said = "" if newer is not None else f' It says: "{_reason(printed)}".'
        return NcuBenchError(
            f"{name} could not be exported: it was made by nsys {made_by}.",
            f"The nsys on PATH is {nsys.version_text}, and cannot open reports of newer versions.{said}",
            f"Install that version or a newer one; or, where it was recorded, run {EXPORT_THERE}.",
        )
    maker = ", or made by a newer nsys" if made_by is None else f": the nsys that made it, {made_by}, is no newer"
    return NcuBenchError(
        f"{name} could not be exported by nsys {nsys.version_text}.",
        f'It says: "{_reason(printed)}". The file is cut or damaged{maker}.',
        f"Copy it again; or, where it was recorded, run {EXPORT_THERE}.",
    )


def _order(version: str) -> tuple[int, ...]:
    """The first three numbers of a version, for comparison."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _reason(printed: str) -> str:
    """The failure that nsys printed: its exception if there is one, else the last line that is not a progress bar."""
    lines = [line.strip() for line in printed.replace("\r", "\n").splitlines()]
    lines = [line[:300] for line in lines if line and not line.endswith("]")]
    exceptions = [line for line in lines if line.startswith(("Exportation error", "Dynamic exception type"))]
    return exceptions[-1] if exceptions else next(reversed(lines), "nothing")
