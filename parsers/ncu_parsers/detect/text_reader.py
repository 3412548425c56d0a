"""Read one report file line by line into a `Report`; refuse anything else with the reason.

Kinds of pages are an ordered list: the first kind whose header matches a line opens a page there, so a file may hold
several runs, several dialects and any program output between them.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ncu_launch.errors import NcuBenchError
from ncu_launch.profilers.tool_failures import ToolFailed, recognise
from zstandard import ZstdError

from ncu_parsers.detect.other_tools import is_json_of_other_tool, is_tar, of_other_tool
from ncu_parsers.launches.nsys import nsys_stats
from ncu_parsers.ncu import csv_pages
from ncu_parsers.ncu.csv_pages import LongPage, WidePage
from ncu_parsers.ncu.property_page import PropertyPage, may_open_property_page, open_property_page
from ncu_parsers.ncu.session_and_source_pages import (
    SessionPage,
    SourcePage,
    may_open_source_page,
    open_session_page,
    open_source_page,
    opens_session_page,
)
from ncu_parsers.ncu.text_page import TextPage, open_text_page
from ncu_parsers.report_data import report
from ncu_parsers.report_data.operator_records import may_open_operator_file, open_operator_file
from ncu_parsers.report_data.refusals import EXPORT, NotAReport
from ncu_parsers.report_data.report import Launch, Page, Report, more_precise, resolve_readings
from ncu_parsers.sources.memory import DEFAULT, OPTION, longest_line
from ncu_parsers.sources.sources import Lines, LongLine, Source, encoding_of, unreadable

MESSAGES_KEPT = 200
_WARNING = re.compile(r"(?:==WARNING==|\s+Warning:)\s*(?:Note: )?(.*\S)")
_SECTIONS_ALONE = re.compile(r"^\s*Section: \S.*\n(?:\s*-{3,}.*\n)?.*\S\s{2,}[\d.,]+\s*$", re.MULTILINE)
"""The title of a section and the first row of its table, without a kernel line."""
EXAMPLES_OF = (report.BROKEN, report.CUT, report.OUTPUT, report.TOO_LONG)


OF_WHOLE_NUMBERS = (
    "gpu__time_duration.sum", "dram__bytes.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
)  # fmt: skip
"""Metrics whose values in ns and bytes are whole numbers for every launch."""
PAGES_OF_NCU = (TextPage, LongPage, WidePage, PropertyPage)
"""Pages with launches counted by ncu."""


def _open_nsys_page(line: str, current: Page | None) -> Page | None:
    """The nsys table that `line` opens; below a page of ncu only a table with times: others may be program output."""
    if not isinstance(current, PAGES_OF_NCU):
        return nsys_stats.open_page(line, current)
    page = nsys_stats.open_page(line, None)
    return None if page is None or nsys_stats.holds_only_other_tables([page]) else page


def _may_open_text_page(line: str) -> bool:
    """Whether a line holds one of the words that end kernel lines."""
    return ", Context " in line or ", Device " in line or "nvocations" in line


OPENERS: tuple[tuple[Callable[[str], object], Callable[[str, Page | None], Page | None]], ...] = (
    (may_open_operator_file, open_operator_file),
    (may_open_source_page, open_source_page),
    (nsys_stats.may_open_page, _open_nsys_page),
    (may_open_property_page, open_property_page),
    (csv_pages.may_open_page, lambda line, current: csv_pages.open_page(line)),
    (_may_open_text_page, open_text_page),
    (opens_session_page, open_session_page),
)
"""Per kind of page: whether a line may open one, judged by its beginning, and the function that returns the opened
page, or the current page for a line that belongs to it."""


def open_page(line: str, current: Page | None) -> Page | None:
    """The page that `line` opens, if it opens one other than `current`."""
    for may_open, opens in OPENERS:
        page = opens(line, current) if may_open(line) else None
        if page is not None:
            return None if page is current else page
    return None


_QUOTED = re.compile(r"(?:(?:>|//|#|\d+:)(?=\s)|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*Z ) ?")


def unquoted(line: str) -> str:
    """The line without a leading quotation mark, comment mark, line number or date and time; leading tabs as spaces."""
    quoted = _QUOTED.match(line)
    text = line[quoted.end() :] if quoted else line
    return text.expandtabs(4) if text.startswith("\t") else text


@dataclass
class TextReading:
    """State of reading one file: its report, the pages opened so far, and the last lines before the next page."""

    report: Report
    pages: list[Page]
    tail: deque[str]

    @property
    def current(self) -> Page | None:
        """The page that the next lines belong to; None before the first page."""
        return self.pages[-1] if self.pages else None

    def take(self, number: int, line: str) -> None:
        """Take in the next line."""
        if isinstance(line, LongLine):
            self.note(report.TOO_LONG, number, line)
            return
        current = self.current
        if current is None or isinstance(current, (TextPage, nsys_stats.NsysPage)):
            line = unquoted(line)
        page = open_page(line, current)
        if page is not None:
            self.pages.append(page)
            if isinstance(page, TextPage):
                for earlier in (*self.tail, line):  # the process is printed above the first kernel line
                    page.feed(earlier)
            kind = report.HEADER
        elif current is not None:
            kind = current.feed(line)
        else:
            kind = before_any_page(line)
        self.note(kind, number, line)

    def note(self, kind: str, number: int, line: str) -> None:
        """Count a line of this kind, and keep it if it is a message or an example."""
        self.report.lines[kind] += 1
        if kind == report.MESSAGE and len(self.report.messages) < MESSAGES_KEPT:
            self.report.messages.append(line)
        if kind in EXAMPLES_OF:
            self.report.examples.setdefault(kind, (number, line[:200]))
        if kind == report.HEADER:  # the next page is fed the tail: launches of this one would be read again
            self.tail.clear()
        self.tail.append("" if kind == report.HEADER else line)


def before_any_page(line: str) -> str:
    """The kind of a line above the first page."""
    if not line.strip():
        return report.BLANK
    return report.MESSAGE if line.startswith("==") else report.OUTPUT


def read_report(source: Source) -> Report:
    """Read one report.

    Raises `ToolFailed` if the file holds a failure of ncu instead of a profile, `NotAReport` if it holds no launches
    and no session, `NcuBenchError` if it cannot be read at all.
    """
    reading = TextReading(Report(source.name), [], deque(maxlen=50))
    with source.open() as stream:
        try:
            lines = Lines(stream, source.name)
            _refuse_binary(source, lines.head)
            for number, line in enumerate(lines, start=1):
                reading.take(number, line)
        except (OSError, EOFError, zlib.error, ZstdError) as error:
            if not reading.pages:
                raise _unread(source, error) from error
            reading.report.notes.append(f"the file ends in damage and was read up to it ({error})")
    result = reading.report
    note_replaced(result, lines.replaced)
    if not lines.complete and reading.tail:
        note_cut(result, reading)
    return _finish(result, reading.pages, lines.head)


BINARY_FILES = (
    (b"SQLite format 3\0", "is an SQLite file, perhaps an export of nsys", "Save it to a file and name that file."),
    (b"PAR1", "is a Parquet file already", "Give it to hotspots or roofline as it is."),
    (b"PK\x03\x04", "is a zip archive", "Unpack it, and name the files or their folder."),
    (b"\x1f\x8b\x08", "is compressed more than once", "Unpack it, and name what is in it."),
    (b"\x28\xb5\x2f\xfd", "is compressed more than once", "Unpack it, and name what is in it."),
    (b"\xfd7zXZ\0", "is compressed by xz", "Unpack it with xz -dk, or compress it by gzip or zstd."),
    (b"BZh", "is compressed by bzip2", "Unpack it with bunzip2 -k, or compress it by gzip or zstd."),
    (b"%PDF", "is a PDF document", f"Export the report: {EXPORT}"),
)
"""Magic bytes of binary files, what the files are, and what to do instead."""


def _refuse_binary(source: Source, head: bytes) -> None:
    for magic, what, advice in BINARY_FILES:
        if head.startswith(magic):
            raise NotAReport(f"{source.name} {what}.", advice=advice)
    if is_tar(head):
        raise NotAReport(
            f"{source.name} is a tar archive.", advice="Unpack it with tar xf, and name the files or their folder."
        )
    if is_json_of_other_tool(head) and (other := of_other_tool(source.name, head)) is not None:
        raise other


def note_replaced(report: Report, lines: int) -> None:
    """Add a note with the number of lines in which bytes were replaced, if any."""
    if lines:
        some = "1 line" if lines == 1 else f"{lines:,} lines"
        report.notes.append(f"{some} held bytes that are not text; they were replaced")


def note_cut(result: Report, reading: TextReading) -> None:
    """Count the last line, which has no line end, as cut off instead of broken if it could not be read as a row."""
    if result.lines[report.BROKEN] and reading.tail[-1][:200] == result.examples[report.BROKEN][1]:
        result.lines[report.BROKEN] -= 1
        result.lines[report.CUT] += 1
        result.examples[report.CUT] = result.examples.pop(report.BROKEN)
        result.lines = +result.lines  # drops kinds that are down to zero


def _of_one_tool(pages: list[Page], result: Report) -> list[Page]:
    """The pages, without nsys tables if ncu counted launches: the same kernels ran again, so times would add up."""
    of_nsys = [page for page in pages if isinstance(page, nsys_stats.NsysPage)]
    if not of_nsys:
        return pages
    if not any(page.launches() for page in pages if isinstance(page, PAGES_OF_NCU)):
        return nsys_stats.only_the_best(pages, result)
    left_out = sorted({page.dialect for page in of_nsys if page.rows})
    if left_out:
        result.notes.append(
            f"the file also holds tables of nsys ({', '.join(left_out)}), of another run: they are left out, and "
            "the launches of ncu read; to read them, put them into a file of their own"
        )
    return [page for page in pages if not isinstance(page, nsys_stats.NsysPage)]


def _finish(result: Report, pages: list[Page], head: bytes) -> Report:
    tables: list[list[Launch]] = []
    for page in _of_one_tool(pages, result):
        if page.dialect not in result.dialects:
            result.dialects.append(page.dialect)
        if isinstance(page, SessionPage):
            result.session.update(page.attributes)
            result.tool_version = result.tool_version or page.tool_version
        launches = page.launches()
        resolve_readings(launches, result)
        if isinstance(page, LongPage | WidePage) and not page.has_units:
            _note_no_units(launches, result)
        runs = page.runs() if isinstance(page, LongPage) else [launches]
        if len(runs) > 1:
            result.notes.append(
                f"ids of launches begin anew under one header, so its rows were read as {len(runs)} runs"
            )
        tables += runs
    result.notes += warnings_of_ncu(result.messages)
    result.era = era_of(pages)
    result.launches, merged = merge(tables)
    if merged:
        result.notes.append(f"{merged} launches stand in several tables of the file and were joined")
    if not result.launches and not result.session:
        raise _refusal(result, pages, head)
    return result


def _note_no_units(launches: Sequence[Launch], result: Report) -> None:
    """Note that a table without units is read in base units. Raises `NotAReport` if its values show other units."""
    for launch in launches:
        for name in OF_WHOLE_NUMBERS:
            value = launch.metrics[name].value if name in launch.metrics else None
            if isinstance(value, float) and not value.is_integer():
                raise NotAReport(
                    f"{result.source} has no units: their row or column was left out.",
                    f"{name} is {value:g}, which is no number of ns or bytes, and may be one of µs or ms, of KB or MB.",
                    f"Keep the units, or export the report with base units: {EXPORT}",
                )
    result.notes.append("the table has no units: its numbers are taken for ns, bytes and Hz")


def warnings_of_ncu(messages: Sequence[str]) -> list[str]:
    """One note per distinct warning that ncu printed."""
    warnings = (match[1] for message in messages if (match := _WARNING.match(message)))
    return [f"ncu warns: {text}" for text in dict.fromkeys(warnings)]


def merge(tables: list[list[Launch]]) -> tuple[list[Launch], int]:
    """Join launches that are the same in several tables (one section of a report per file or table, say).

    Launches are the same if id, process, kernel, context and stream are equal, device, shape and time of launch do not
    contradict, and every shared metric agrees within its printed digits. Returns the launches and how many were joined.
    """
    result: list[Launch] = []
    known: dict[tuple[object, ...], Launch] = {}
    joined = 0
    for table in tables:
        fresh: dict[tuple[object, ...], Launch] = {}
        for launch in table:
            other = known.get(_who(launch)) if launch.launch_id is not None else None
            if other is not None and _agree(other, launch):
                _absorb(other, launch)
                joined += 1
            else:
                fresh.setdefault(_who(launch), launch)
                result.append(launch)
        known.update({key: launch for key, launch in fresh.items() if key not in known})
    return result, joined


def _who(launch: Launch) -> tuple[object, ...]:
    """A launch's identity without the device, which pages of ncu up to 2022.3 do not name."""
    process, number, kernel, _device, *rest = launch.identity
    return process, number, kernel, *rest


def _agree(one: Launch, other: Launch) -> bool:
    if None not in (one.device_id, other.device_id) and one.device_id != other.device_id:
        return False
    for own, its in ((one.grid, other.grid), (one.block, other.block)):
        if own and its and own != its:
            return False
    times = {launch.attributes["Kernel Time"] for launch in (one, other) if "Kernel Time" in launch.attributes}
    if len(times) > 1:
        return False
    shared = one.metrics.keys() & other.metrics.keys()
    return not any(more_precise(one.metrics[name], other.metrics[name])[1] for name in shared)


def _absorb(launch: Launch, other: Launch) -> None:
    for name, metric in other.metrics.items():
        launch.metrics[name] = more_precise(launch.metrics.get(name, metric), metric)[0] or metric
    launch.instances = {**other.instances, **launch.instances}
    launch.attributes = {**other.attributes, **launch.attributes}
    launch.rules += [rule for rule in other.rules if rule not in launch.rules]
    for name in ("device_id", "compute_capability", "grid", "block", "nvtx_path", "kernel_short"):
        if getattr(launch, name) is None:
            setattr(launch, name, getattr(other, name))


def era_of(pages: list[Page]) -> str | None:
    """The ncu versions that write such pages, such as "2022.4 or newer", by their columns; None if unknown."""
    for page in pages:
        if not isinstance(page, (LongPage, WidePage)) or page.kind not in ("long", "wide"):
            continue
        if {"Kernel Time", "Grid Size"} <= page.column.keys():
            continue  # no ncu writes both: one of our own exports
        if "Kernel Time" in page.column:
            return "at most 2022.3"
        if "Estimated Speedup" in page.column:
            return "2023.1 or newer"
        return "2022.4 or newer"
    return None


def _unread(source: Source, error: Exception) -> NcuBenchError:
    """The error for a file that could not be read because of `error`: a failing disk, or a damaged compressed file."""
    if isinstance(error, OSError) and error.errno is not None:
        return unreadable(source.name, error)
    return NotAReport(
        f"{source.name} could not be read: it is damaged before its first table ({error}).",
        "It may have been copied in part, or its writer was stopped.",
        "Copy or export it again.",
    )


def _refusal(result: Report, pages: list[Page], head: bytes) -> NcuBenchError:
    failure = recognise(result.messages)
    if failure is not None:
        return ToolFailed(result.source, *failure)
    if any(isinstance(page, SourcePage) for page in pages):
        return NotAReport(
            f"{result.source} is a source page (--page source): it holds counters per instruction, not per launch.",
            advice=f"Look at it with: ncu-bench source {result.source}; or export the launches: {EXPORT}",
        )
    other = of_other_tool(result.source, head)
    of_nsys = nsys_stats.refusal(result.source, pages, head)
    if of_nsys is not None:
        return of_nsys
    if nsys_stats.holds_only_other_tables(pages):
        return other or NotAReport(
            f"{result.source} holds tables of nsys, and none that says how long kernels took.",
            advice="Make one: nsys stats --report cuda_gpu_trace --format csv REPORT.nsys-rep > FILE.csv",
        )
    if not pages and _SECTIONS_ALONE.search(head.decode(encoding_of(head), "replace")):
        return NotAReport(
            f"{result.source} holds sections of a details page of ncu, and not the line that names their kernel.",
            "It was pasted or cut without its first lines.",
            f'Copy that line, too: "  name(int) (8, 1, 1)x(128, 1, 1), Context 1, Stream 7". Or export: {EXPORT}',
        )
    if pages:
        return NotAReport(
            f"{result.source} has the header of a {result.dialects[0]} page and no launch below it.",
            "The run may have been stopped before its first kernel, or the file was cut.",
            "Look at the file's end, and profile again.",
        )
    reports = [message for message in result.messages if message.startswith("==PROF== Report:")]
    if reports:
        return NotAReport(
            f"{result.source} is the log of a run that wrote its results elsewhere.",
            f'It says: "{reports[0].strip()}".',
            "Name that report: it is read as it is.",
        )
    if other is not None:
        return other
    if result.lines[report.TOO_LONG]:
        return NotAReport(
            f"{result.source} holds no table that could be read, and {result.lines[report.TOO_LONG]} of its "
            f"{result.lines.total()} lines longer than the {longest_line():,} characters that one may have.",
            "It may be no report, or its line ends were lost.",
            f"If it is one, give it more memory: {OPTION} {DEFAULT} is the default.",
        )
    if not result.lines.total():
        return NotAReport(
            f"{result.source} is empty.", "The run wrote nothing, or the redirect failed.", "Profile again."
        )
    return NotAReport(
        f"{result.source} holds no table of Nsight Compute in its "
        f"{'only line' if result.lines.total() == 1 else f'{result.lines.total():,} lines'}.",
        "It may be another tool's file, or only the program's output.",
        f"Export a report with: {EXPORT}",
    )
