"""Read tables of `nsys stats` (2020 to 2026, as CSV or in columns) and tables exported by nsys's user interface.

Three kinds contain times of kernels and copies: summaries (a row per kernel, or per kernel and NVTX range, with the
number of launches), traces (a row per launch), and summaries of copies. Titles changed (`Time(%)`, `Average`, then
`Time (%)`, `Avg (ns)`), GridXYZ and BlockXYZ came and went, and missing values are empty or `None`. Units are in the
title, default ns; the user interface prints them in the cells (`383.682 μs`). `nsys stats` prints several tables to one
file. Sizes are printed in MB with three decimals, so bytes are exact to a kilobyte.

Headers up to 2021 name only the unit of the total time; the other times of the table have the same unit.

In columns, as `nsys stats` prints to a terminal, a line of dashes below the titles marks the columns, and names that
are too long end in `…`. A table shortened by hand has `...` for omitted columns, in the line of dashes too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from ncu_launch.nvtx_ranges import DOMAIN

from ncu_parsers.report_data import report
from ncu_parsers.report_data.cell_text import DELIMITERS, NumberFormat, split_row, unit, whole
from ncu_parsers.report_data.nvtx_path import place
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Launch, Metric, Page, Report
from ncu_parsers.schema.tables import ABSENT

SOURCE = "nsys"
OTHER_ROW = "row of another nsys table"

KERNEL, MEMCPY, MEMSET = "kernel", "memcpy", "memset"
KERNEL_SUMMARY, SHAPED_SUMMARY = "kernel summary", "kernel summary by grid and block"

OLD_TITLES = {
    "average": "avg", "median": "med", "minimum": "min", "maximum": "max", "kernel start": "start",
    "kernel dur": "duration", "kernel name": "name", "devid": "device",
}  # fmt: skip
"""Titles of other releases and reports -> the titles used here."""

may_open_page = re.compile(r'\s*"?(?:Time|Start|Total|API |NVTX |Count|Name|Range|Processing \[)').match
"""Whether a line begins like the header of a table of nsys."""

_TITLE = r"(?P<title>[^()]*?)\s*(?:\((?P<unit>[^()]*)\))?$"
_AMOUNT = r"(?P<number>[-+]?\d[\d.,'’\s]*?)\s*(?P<unit>[^\d\s.,'’].*)?$"
_DEVICE = r"(?P<name>.*?)\s*\(?(?P<number>\d+)\)?$"
_WORDS_OF_ABSENCE = ABSENT | {"None", "-"}
_PROCESSING = r"Processing \[.*\] with \["

_BETWEEN_COLUMNS = r"\s{2,}"
_COLUMN = r"-+|\.\.\.|…"
_DASHES = rf"\s*(?:{_COLUMN})(?:\s{{2,}}(?:{_COLUMN}))+\s*"
_HEADING = r"\s*\*\* .*:\s*|(?:\[\d+/\d+\] )?Executing '.*|SKIPPED: .*"
IN_COLUMNS = ""
"""The delimiter of tables in columns."""
CUT = "…"
"""nsys replaces the end of a name that is too long for its column by this character."""

PRINTED_WITH_DECIMALS = "%"
"""Unit given for all cells when the number format is inferred: not a count, because nsys prints three decimals
(`383.682 μs`), as ncu never does for counts."""

Cells = dict[str, str]


def open_page(line: str, current: Page | None) -> Page | None:
    """The page that starts with `line`, if no page or a page of nsys is open; None if none starts here.

    A table without kernels opens a page too, so that its rows are not mistaken for rows of another table.
    """
    if not (current is None or isinstance(current, NsysPage)):
        return None
    if re.match(_PROCESSING, line):
        return OtherTable([], [], ",")
    for delimiter in DELIMITERS:
        header = split_row(line.rstrip(), delimiter)
        if header is not None and len(header) > 3:
            return _page_of(header, delimiter)
    header = re.split(_BETWEEN_COLUMNS, line.strip())
    return _page_of(header, IN_COLUMNS) if len(header) > 3 else None


def _page_of(header: list[str], delimiter: str) -> Page | None:
    titles, units = _titles_and_units(header)
    found = set(titles)
    if {"start", "duration", "name"} <= found and ({"grdx", "corrid"} <= found or "gridxyz" in found):
        return TracePage(titles, units, delimiter)
    if {"total time", "instances", "operation", "category"} <= found:
        return StatsSummaryPage(titles, units, delimiter, "GPU summary", "operation", "instances")
    if {"total time", "count", "operation"} <= found:
        return StatsSummaryPage(titles, units, delimiter, "memory time summary", "operation", "count")
    if {"total time", "instances", "name"} <= found:
        kind = SHAPED_SUMMARY if "gridxyz" in found else KERNEL_SUMMARY
        return StatsSummaryPage(titles, units, delimiter, kind, "name", "instances")
    if {"nvtx range", "kern inst", "total time", "name"} <= found:
        return RangeSummaryPage(titles, units, delimiter, "kernel summary by NVTX range", "name", "kern inst")
    if "total time" in found or {"start", "duration"} <= found or {"total", "count", "operation"} <= found:
        return OtherTable(titles, units, delimiter)
    return None


def _titles_and_units(header: Sequence[str]) -> tuple[list[str], list[str]]:
    """The titles in lower case and current spelling, and the unit in parentheses after each, "" for none."""
    titles, units = [], []
    for cell in header:
        match = re.match(_TITLE, cell.strip().lstrip("\ufeff"))
        title = match["title"].lower() if match else cell.lower()
        titles.append(OLD_TITLES.get(title, title))
        units.append(_unit_word(match["unit"] or "") if match else "")
    return titles, units


def _unit_word(text: str) -> str:
    """A unit as `cell_text.unit` spells it: `nsec` becomes ns."""
    return {"nsec": "ns", "usec": "us", "msec": "ms"}.get(text, text)


class NsysPage:
    """A table below a header. Cells stay text until the page ends, because the number format is inferred from all.

    `rank` orders kinds of tables with the same times: 0 for the most detailed, which is read.
    """

    dialect = ""
    rank = 0

    def __init__(self, titles: list[str], units: list[str], delimiter: str) -> None:
        self.titles = titles
        self.units = dict(zip(titles, units, strict=True))
        self.delimiter = delimiter
        self.rows: list[Cells] = []
        self._spans: list[tuple[int, int]] = []

    def feed(self, line: str) -> str:
        """Read one line and return its kind."""
        if not line.strip():
            return report.BLANK
        if re.fullmatch(_HEADING, line):
            return report.HEADER
        if self.delimiter == IN_COLUMNS and re.fullmatch(_DASHES, line):
            self._spans = [column.span() for column in re.finditer(_COLUMN, line)]
            return report.HEADER
        cells = split_row(line, self.delimiter) if self.delimiter != IN_COLUMNS else self._columns_of(line)
        if cells is None or len(cells) != len(self.titles):
            return report.BROKEN if cells is None else report.OUTPUT
        row = {
            title: "" if cell.strip() in _WORDS_OF_ABSENCE else cell.strip()
            for title, cell in zip(self.titles, cells, strict=True)
        }
        if not self._is_row(row):
            return report.OUTPUT
        self.rows.append(row)
        return report.METRICS

    def launches(self) -> list[Launch]:
        """The rows as launches; [] for a table without times of kernels."""
        return []

    def _columns_of(self, line: str) -> list[str]:
        """The cells of a line in columns; [] if it is no row: text between two columns, or no dashes above."""
        if not self._spans:
            return []
        gaps = zip(self._spans, self._spans[1:], strict=False)
        if any(line[end:start].strip() for (_, end), (start, _) in gaps):
            return []
        ends = [end for _, end in self._spans[:-1]]
        return [line[start:end] for (start, _), end in zip(self._spans, [*ends, len(line)], strict=True)]

    def _is_row(self, row: Cells) -> bool:
        return True

    def _amounts(self) -> Callable[[Cells, str], float | None]:
        """A function that converts the cell of a row under a title to base units, in the number format of the page."""
        amounts = (re.match(_AMOUNT, text) for row in self.rows for text in row.values())
        number_format = NumberFormat.infer((match["number"], PRINTED_WITH_DECIMALS) for match in amounts if match)

        def amount(row: Cells, title: str) -> float | None:
            match = re.match(_AMOUNT, row.get(title, ""))
            number = number_format.parse(match["number"]) if match else None
            if match is None or number is None:
                return None
            return number.value * unit(match["unit"] or self._unit_of(title)).factor

        return amount

    def _unit_of(self, title: str) -> str:
        """The unit of a column: its own; else for times the unit of the table's leading time; else ns."""
        own = self.units.get(title)
        leading = (self.units.get(time) for time in LEADING_TIMES) if title in TIMES else ()
        return own or next((found for found in leading if found), "ns")


class StatsSummaryPage(NsysPage):
    """A row per kernel or kind of copy: total time, number of launches, and statistics of their times."""

    def __init__(
        self, titles: list[str], units: list[str], delimiter: str, kind: str, name_title: str, count_title: str
    ) -> None:
        super().__init__(titles, units, delimiter)
        self.dialect = f"nsys {kind}"
        self.rank = 2 if "category" in titles else 3
        self.name_title, self.count_title = name_title, count_title

    def _is_row(self, row: Cells) -> bool:
        return _count(row[self.count_title]) is not None and re.match(_AMOUNT, row["total time"]) is not None

    def launches(self) -> list[Launch]:
        """The rows, as averages over their launches."""
        amount = self._amounts()
        found = (self._launch(row, amount) for row in self.rows)
        return [launch for launch in found if launch is not None]

    def _launch(self, row: Cells, amount: Callable[[Cells, str], float | None]) -> Launch | None:
        """A row as the average over its launches; None if it has none."""
        count, total = _count(row[self.count_title]), amount(row, "total time")
        if not count or total is None:
            return None
        name = row[self.name_title]
        launch = _launch(name, _category(row, name, self.name_title))
        launch.invocations = count
        launch.grid, launch.block = _triple(row.get("gridxyz", "")), _triple(row.get("blockxyz", ""))
        launch.measures["duration_ns"] = total / count
        for title, metric in EXTREMES.items():
            value = amount(row, title)
            if value is not None:
                launch.metrics[metric] = Metric(value, 0.0, "ns")
        return launch


class RangeSummaryPage(StatsSummaryPage):
    """A row per kernel, thread and NVTX range: a kernel in nested ranges has a row for each of them.

    The table prints `Domain:Name`, so only ranges of our own domain can be distinguished from names with a colon.
    """

    def __init__(
        self, titles: list[str], units: list[str], delimiter: str, kind: str, name_title: str, count_title: str
    ) -> None:
        super().__init__(titles, units, delimiter, kind, name_title, count_title)
        self.rank = 4

    @property
    def repeated(self) -> int:
        """Number of kernels of a thread that are listed under more than one range."""
        places = Counter((row.get("pid"), row.get("tid"), row["name"]) for row in self.rows)
        return sum(count > 1 for count in places.values())

    def _launch(self, row: Cells, amount: Callable[[Cells, str], float | None]) -> Launch | None:
        launch = super()._launch(row, amount)
        if launch is not None:
            launch.process_id = _whole(row.get("pid"))
            own = row["nvtx range"].removeprefix(f"{DOMAIN}:")
            place(launch, [(DOMAIN if own != row["nvtx range"] else "", own)] if own else [])
        return launch


EXTREMES = {
    "min": "gpu__time_duration.sum (minimum)", "max": "gpu__time_duration.sum (maximum)",
    "med": "duration_ns (median)", "stddev": "duration_ns (standard deviation)",
}  # fmt: skip
"""Titles of a summary -> columns; minimum and maximum are named as in averages of ncu."""


LEADING_TIMES = ("total time", "duration", "start")
"""Titles whose unit holds for times without a unit of their own: `nsys stats --timeunit` converts a whole table."""
TIMES = frozenset((*LEADING_TIMES, *EXTREMES, "avg"))


class TracePage(NsysPage):
    """A row per kernel launch, copy or memset."""

    def __init__(self, titles: list[str], units: list[str], delimiter: str) -> None:
        super().__init__(titles, units, delimiter)
        self.dialect = "nsys GPU trace" if "grdx" in titles else "nsys kernel execution trace"
        self.rank = 0 if "grdx" in titles else 1

    def _is_row(self, row: Cells) -> bool:
        return bool(row["name"]) and all(re.match(_AMOUNT, row[title]) for title in ("start", "duration"))

    def launches(self) -> list[Launch]:
        """The rows, as launches."""
        amount = self._amounts()
        return [self._launch(row, amount) for row in self.rows]

    def _launch(self, row: Cells, amount: Callable[[Cells, str], float | None]) -> Launch:
        launch = _launch(row["name"], _category(row, row["name"], "name"))
        launch.launch_id, launch.process_id = _whole(row.get("corrid")), _whole(row.get("pid"))
        launch.context, launch.stream = _whole(row.get("ctx")), row.get("strm") or None
        launch.grid = _triple(row.get("gridxyz") or " ".join(row.get(f"grd{axis}", "") for axis in "xyz"))
        launch.block = _triple(row.get("blockxyz") or " ".join(row.get(f"blk{axis}", "") for axis in "xyz"))
        device = re.match(_DEVICE, row.get("device", ""))
        if device is not None:
            launch.device_id = whole(device["number"], bits=31)
            if device["name"]:
                launch.attributes["Device Name"] = device["name"]
        duration = amount(row, "duration")
        if duration is not None:
            launch.measures["duration_ns"] = duration
        for title, column, word in (("start", "start_ns", "ns"), ("bytes", "bytes", "byte")):
            value = amount(row, title)
            if value is not None:
                launch.metrics[column] = Metric(value, 0.0, word)
        registers = _whole(row.get("reg/trd"))
        if registers is not None and launch.attributes["operation"] == KERNEL:
            launch.metrics["registers_per_thread"] = Metric(float(registers), 0.0, "register/thread")
        return launch


class OtherTable(NsysPage):
    """A table of nsys without kernel times: API calls, NVTX ranges, sizes of copies."""

    dialect = "other tables of nsys"
    rank = 9

    def feed(self, line: str) -> str:
        """Skip one line."""
        return OTHER_ROW if line.strip() else report.BLANK


def only_the_best(pages: list[Page], result: Report) -> list[Page]:
    """`pages` without nsys tables whose times a more detailed table has, and without copies; notes name them."""
    of_nsys = [page for page in pages if isinstance(page, NsysPage)]
    result.origin = SOURCE
    filled = [page for page in of_nsys if page.rows]
    best = min((page.rank for page in filled), default=0)
    kept = _drop_shapeless_twins([page for page in filled if page.rank == best])
    kept, twice = _drop_copies(kept)
    filled = [page for page in filled if page not in twice]
    repeats = {page.dialect for page in filled if page not in kept}
    if repeats:
        result.notes.append(
            f"left out, because the {kept[0].dialect} holds the same times: {', '.join(sorted(repeats))}"
        )
    if not filled:
        return pages
    if twice:
        tables = "1 table stands" if len(twice) == 1 else f"{len(twice)} tables stand"
        result.notes.append(f"{tables} twice in the file, with the same numbers: each was read once")
    result.notes += [*_of_several_runs(kept), *_remarks(kept)]
    return [page for page in pages if not isinstance(page, NsysPage) or page in kept]


def _drop_copies(pages: Sequence[NsysPage]) -> tuple[list[NsysPage], list[NsysPage]]:
    """Split tables into those kept and those that repeat all numbers of an earlier one."""
    kept: list[tuple[NsysPage, list[Launch]]] = []
    copies = []
    for page in pages:
        launches = page.launches()
        if any(one.dialect == page.dialect and launches == others for one, others in kept):
            copies.append(page)
        else:
            kept.append((page, launches))
    return [page for page, _ in kept], copies


def _of_several_runs(pages: Sequence[NsysPage]) -> list[str]:
    """The note on tables of one kind that list the same kernel with different numbers, as from two runs."""
    found: dict[tuple[str, str], list[float]] = {}
    for page in pages:
        of_page: dict[str, Launch] = {}
        for launch in page.launches():
            of_page.setdefault(launch.kernel_name, launch)
        for name, launch in of_page.items():
            found.setdefault((page.dialect, name), []).append(launch.measures.get("duration_ns", 0.0))
    several = {key: times for key, times in found.items() if len(times) > 1}
    if not several:
        return []
    (dialect, name), times = max(several.items(), key=lambda one: max(one[1]))
    each = " and ".join(f"{time / 1000:,.4g} µs" for time in times)
    return [
        f"the file holds {len(times)} tables of one kind ({dialect}) with different numbers, as of {len(times)} runs; "
        f"their sums are shown: a launch of {name} takes {each}; put each into a file of its own, and compare "
        "them: ncu-bench compare FIRST SECOND"
    ]


def _drop_shapeless_twins(pages: Sequence[NsysPage]) -> list[NsysPage]:
    """Drop kernel summaries if the same summary by grid and block is present."""
    has_shapes = any(page.dialect == f"nsys {SHAPED_SUMMARY}" for page in pages)
    return [page for page in pages if not has_shapes or page.dialect != f"nsys {KERNEL_SUMMARY}"]


def _remarks(pages: Sequence[NsysPage]) -> list[str]:
    """Notes on cut names and on kernels listed under several ranges."""
    notes = []
    cut = {row["name"] for page in pages if "name" in page.titles for row in page.rows if CUT in row["name"]}
    if cut:
        notes.append(
            f"nsys cut {len(cut)} kernel name{'s' * (len(cut) > 1)} to the width of the column ({CUT}), so kernels "
            "that differ after it are one; --format csv prints names whole"
        )
    repeated = sum(page.repeated for page in pages if isinstance(page, RangeSummaryPage))
    if repeated:
        notes.append(
            f"{repeated} kernels are listed under several NVTX ranges: times are right within a range, but if ranges "
            "nest, sums over all ranges count launches more than once; the report cuda_gpu_kern_sum counts each once"
        )
    return notes


_SKIPPED = re.compile(r"SKIPPED: .*does not contain .*(?:CUDA|GPU).*")
_OMISSION = ("...", CUT)


def refusal(name: str, pages: Sequence[Page], head: bytes) -> NotAReport | None:
    """Why a file of nsys tables has no launches, if the file says so; None otherwise."""
    skipped = _SKIPPED.findall(head.decode("utf-8", "replace"))
    if skipped and all(isinstance(page, NsysPage) for page in pages):
        of_kernels = next((one for one in skipped if "kernel" in one), skipped[0])
        return NotAReport(
            f"{name} is what nsys stats prints of a recording without GPU work.",
            f'It says: "{of_kernels.strip()}".',
            "Record the program again, with CUDA: nsys profile --trace cuda,nvtx PROGRAM",
        )
    if any(isinstance(page, NsysPage) and set(page.titles) & set(_OMISSION) for page in pages):
        return NotAReport(
            f'{name} is a table of nsys from which columns were left out ("..." among its titles).',
            "Its values cannot be assigned to columns.",
            "Print all of it: nsys stats --report cuda_gpu_kern_sum --format csv REPORT.nsys-rep > FILE.csv",
        )
    return None


def holds_only_other_tables(pages: Sequence[Page]) -> bool:
    """True if there are pages, and all of them are tables without kernels."""
    return bool(pages) and all(isinstance(page, OtherTable) for page in pages)


def _launch(name: str, operation: str) -> Launch:
    return Launch(
        name or "(kernel without a name)",
        kernel_short=name if operation != KERNEL else None,
        attributes={"operation": operation},
    )


def _category(row: Cells, name: str, name_title: str) -> str:
    """Kernel, memcpy or memset: traces put copies and memsets in brackets, summaries in tables of their own."""
    of_memory = name.startswith("[CUDA ") or (name_title == "operation" and row.get("category") != "CUDA_KERNEL")
    if not of_memory:
        return KERNEL
    return MEMSET if "memset" in name.lower() else MEMCPY


def _whole(text: str | None) -> int | None:
    return whole(text) if text and text.isdecimal() else None


def _count(text: str) -> int | None:
    """An integer with any thousands separator; None for any other text."""
    return _whole(re.sub(r"[.,'’\s]", "", text))


def _triple(text: str) -> tuple[int, int, int] | None:
    """x, y and z with any separator; None unless there are three."""
    numbers = [whole(number, bits=31) for number in re.findall(r"\d+", text)]
    known = tuple(number for number in numbers if number is not None)
    return (known[0], known[1], known[2]) if len(numbers) == len(known) == 3 else None
