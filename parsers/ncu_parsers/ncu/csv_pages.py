"""The CSV pages of Nsight Compute: long, wide, summary, and the export of its user interface.

The meaning of a number depends on the collection, which the file does not describe: ncu replays a kernel once per pass
and by default flushes the caches before each pass (so DRAM bytes are for a cold cache) and lowers the clock to its base
(so times are longer than in a plain run, until 2026.1). docs/numbers.md explains the consequences.

One row is one metric of one launch ("long", `--page details` or `--metrics`) or one launch ("wide", `--page raw`). Rows
are ragged: in a long page with rules, metric rows end before the rule columns and rule rows leave the metric columns
empty. So the kind of a row follows from its filled columns, never from its length alone. Program output, status lines
and further headers may appear anywhere in between.
"""

from __future__ import annotations

import re

from ncu_parsers.report_data import report
from ncu_parsers.report_data.cell_text import DELIMITERS, capability, present, split_row, triple, whole
from ncu_parsers.report_data.nvtx_path import place
from ncu_parsers.report_data.report import Launch, Page, metric_of_label
from ncu_parsers.schema.tables import Rule

PUSH_POP = "thread Domain:Push/Pop_Range"
START_STOP = "Id:Domain:Start/Stop_Range"
NVTX_SUMMARY_RANGE = "Range:PL_Type"
NVTX_TITLES = (PUSH_POP, START_STOP, NVTX_SUMMARY_RANGE)
NOT_OF_WIDE_PAGES = ("Address", "Metric Name", "Metric Unit", "Metric Value")
"""Titles of source pages, and of long pages, whose header may be damaged elsewhere."""
EXTREMES = ("Minimum", "Maximum", "Average")
PAYLOAD_FIELDS = 6  # after every range: PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg

IDENTITY_OF_LAUNCHES = frozenset({
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream", "Block Size",
    "Grid Size", "Device", "CC",
})  # fmt: skip
"""Identity columns of details and raw pages."""
IDENTITY_COLUMNS = IDENTITY_OF_LAUNCHES | {
    "Device Name", "Invocations", "Domain", "Result Type", "Function Name", "Demangled Name", "Mangled Name",
    "Original Demangled Name", "API Call ID",
}  # fmt: skip
"""Identity columns of any page: summaries and pages of the user interface have more."""

TITLES = {"Process Id": "Process ID", "Device Id": "Device"}
"""A dialect's title of a column -> the title that all readers use.

A dialect of the same tables under other titles takes its lines here and a sample in `sample_reports/`.
"""

KERNEL_TITLES = tuple(
    {title: None for title in ("Kernel Name", "Function Name", *TITLES) if TITLES.get(title, title).endswith(" Name")}
)
"""Every header has one of these."""

UI_LABELS = {
    "Duration": "gpu__time_duration.sum",
    "Compute Throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "Memory Throughput": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "# Registers": "launch__registers_per_thread",
    "Cycles": "gpc__cycles_elapsed.max",
}
"""Titles on the user interface's summary page, without the unit in brackets -> metric."""

_ROW_START = re.compile(r'(?<![,;\t])"\d+","\d+","')  # behind a delimiter these are context and stream, not ids
_ENDS_IN_A_CELL = re.compile(r'"[,;\t]\Z')
_METRIC = re.compile(r"[a-z0-9]+__\w+\.\w")
_TITLE_AND_UNIT = re.compile(r"(?P<title>.*?)\s*\[(?P<unit>[^\]]*)\]$")
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')


may_open_page = re.compile(" Name").search
"""Whether a line may be a header: almost no other line contains this."""


def open_page(line: str) -> Page | None:
    """The page whose header `line` is; None if it is no header.

    A program that prints without a newline leaves its text in front of the header, so the header may start inside the
    line. A script may have put other columns in front of the ids: those belong to the header.
    """
    if not any(title in line for title in KERNEL_TITLES):
        return None
    start = min((at for at in (line.find('"ID"'), line.find('"Process ID"')) if at >= 0), default=0)
    if _ENDS_IN_A_CELL.search(line, 0, start):
        start = line.find('"')
    quoted = line[start:].startswith('"')
    for delimiter in DELIMITERS:
        header = split_row(line[start:].rstrip(), delimiter)
        if header is None or len(header) < 3:
            continue
        titles = (cell.strip().lstrip("\ufeff") for cell in header)
        header = [TITLES.get(title, title) for title in titles]
        names = set(header)
        if "Metric Name" in names and "Metric Value" in names:
            return LongPage(header, delimiter, quoted)
        if "Metric Name" in names and {"Minimum", "Maximum", "Average"} <= names:
            return SummaryPage(header, delimiter, quoted)
        is_wide = names.isdisjoint(NOT_OF_WIDE_PAGES) and ("Kernel Name" in names or "Function Name" in names)
        if is_wide and ("ID" in names or any(map(_METRIC.match, names))):
            return WidePage(header, delimiter, quoted)
    return None


class _CsvPage:
    """Base of the CSV pages: a header, and a way to split lines into cells.

    ncu quotes every cell, so rows below a `quoted` header are quoted; the user interface quotes none.
    """

    kind = ""

    def __init__(self, header: list[str], delimiter: str, quoted: bool = True) -> None:
        self.quoted = quoted
        self.header = header
        self.delimiter = delimiter
        self.column = {name: index for index, name in reversed(list(enumerate(header)))}
        self.nvtx_columns = [name for name in header if name.startswith(NVTX_TITLES)]
        self.identity_columns = [name for name in header if name in IDENTITY_COLUMNS or name in self.nvtx_columns]
        self._whole_at = [self.column[name] for name in ("ID", "Process ID", "Invocations") if name in self.column]
        self._launches: dict[tuple[str, ...], Launch] = {}
        self._latest: dict[tuple[int | None, ...], Launch] = {}

    @property
    def has_units(self) -> bool:
        """False if a script left out the units, which ncu prints in every table."""
        return True

    @property
    def dialect(self) -> str:
        """A short name for the dialect, as shown to users."""
        traits = []
        if "Kernel Time" in self.column:
            traits.append("with Kernel Time")
        if "Body Item Label" in self.column:
            traits.append("with body labels")
        if "Rule Name" in self.column:
            traits.append("with rules")
        if self.nvtx_columns:
            traits.append("with NVTX")
        return " ".join([self.kind, *traits])

    def launches(self) -> list[Launch]:
        """The launches read so far, in the order of their first row."""
        return list(self._launches.values())

    def _cells(self, line: str) -> list[str] | None:
        """The cells of a row of this page; None for other lines, which have no digits as id and process id.

        A row may follow program output without a newline, but not the beginning of another row: both are lost.
        """
        cells = self._row_in(line)
        inside = _ROW_START.search(line, 1) if cells is None else None
        if inside is not None and self._broken(line[: inside.start()]) != report.BROKEN:
            cells = self._row_in(line[inside.start() :])
        return cells

    def _row_in(self, text: str) -> list[str] | None:
        cells = split_row(text, self.delimiter) if not self.quoted or text.startswith('"') else None
        return cells if cells is not None and self._is_row(cells) else None

    def _is_row(self, cells: list[str]) -> bool:
        return all(at < len(cells) and whole(cells[at]) is not None for at in self._whole_at)

    def _fits(self, cells: list[str]) -> bool:
        """True if a row is no longer than the header; a comma after the last cell may add an empty one."""
        return len(cells) <= len(self.header) or (len(cells) == len(self.header) + 1 and not cells[-1])

    def _last_of(self, *names: str) -> int:
        """Index of the last column among the identity columns and `names`: a row must be at least that long."""
        return max(self.column[name] for name in (*self.identity_columns, *names) if name in self.column)

    def _launch(self, cells: list[str]) -> Launch:
        """The launch with these identity cells; created at its first row."""
        key = tuple(cells[self.column[name]] for name in self.identity_columns)
        launch = self._launches.get(key)
        if launch is None:
            launch = self._launches[key] = launch_of(dict(zip(self.identity_columns, key, strict=True)))
            self._latest[launch.process_id, launch.launch_id] = launch
        return launch

    def _launch_of_rule(self, cells: list[str]) -> Launch:
        """The launch of a rule row, by its ids: ncu up to 2022.3 prints another stream in rule rows."""
        ids = tuple(whole(cells[self.column[name]]) if name in self.column else None for name in ("Process ID", "ID"))
        launch = self._latest.get(ids)
        return launch if launch is not None else self._launch(cells)

    def _broken(self, line: str) -> str:
        stripped = line.lstrip()
        if not stripped:
            return report.BLANK
        if stripped.startswith("=="):
            return report.MESSAGE
        if _ROW_START.match(stripped) or (stripped.startswith('"') and stripped.count('"') > 6):
            return report.BROKEN
        return report.OUTPUT


def is_rule(metric_name: str) -> bool:
    """True if a row of a long page with this metric name is a rule, not a metric: rules have no metric name."""
    return not metric_name


class LongPage(_CsvPage):
    """One row per metric: `--page details --csv`, or `--metrics ... --csv`, with or without rules and body labels.

    Several runs below one header may have the same ids. ncu prints each fact of a launch once, so a row that repeats
    the first row of its launch begins another run. Repeats of other rows prove nothing: details pages of every body
    label repeat rows within a run.
    """

    kind = "long"

    def __init__(self, header: list[str], delimiter: str, quoted: bool = True) -> None:
        super().__init__(header, delimiter, quoted)
        self.name_at = self.column["Metric Name"]
        self.unit_at = self.column.get("Metric Unit")
        self.value_at = self.column["Metric Value"]
        self.section_at = self.column.get("Section Name")
        self.body_at = self.column.get("Body Item Label")
        self.rule_at = self.column.get("Rule Name")
        self.last_at = self._last_of("Metric Name", "Metric Unit", "Metric Value", "Section Name", "Body Item Label")
        self._earlier_runs: list[list[Launch]] = []

    @property
    def has_units(self) -> bool:
        """True if there is a column of units."""
        return self.unit_at is not None

    def launches(self) -> list[Launch]:
        """The launches read so far, in the order of their first row, run after run."""
        return [launch for run in self.runs() for launch in run]

    def runs(self) -> list[list[Launch]]:
        """The launches of each run."""
        return [*self._earlier_runs, list(self._launches.values())]

    def feed(self, line: str) -> str:
        """Take in one line: a metric row, a rule row, or something else."""
        kind, cells = self.judge(line)
        if kind == report.METRICS:
            section, body, unit_text = (self._cell(cells, at) for at in (self.section_at, self.body_at, self.unit_at))
            label = cells[self.name_at]
            self._launch_of_metric(cells, (section, body, label)).read(
                label, cells[self.value_at], unit_text, section, body
            )
        elif kind == report.RULE:
            self._launch_of_rule(cells).rules.append(self.rule(cells))
        return kind

    def judge(self, line: str) -> tuple[str, list[str]]:
        """The kind of a line, and the cells of a metric or rule row."""
        cells = self._cells(line)
        if cells is None or self.last_at >= len(cells) or not self._fits(cells):
            return self._broken(line), []
        if not is_rule(cells[self.name_at]):
            return report.METRICS, cells
        if self.rule_at is not None and self.rule_at < len(cells):
            return report.RULE, cells
        return report.UNLABELLED if cells[self.value_at] else self._broken(line), []

    def _launch_of_metric(self, cells: list[str], said: tuple[str, str, str]) -> Launch:
        launch = self._launch(cells)
        first = next(iter(launch.readings.values()), None)
        if first is None or (first[0].section, first[0].body, first[0].label) != said:
            return launch
        self._earlier_runs.append(list(self._launches.values()))
        self._launches, self._latest = {}, {}
        return self._launch(cells)

    def rule_columns(self) -> dict[str, int]:
        """Column indices of a rule's fields, as far as the page has them."""
        first = len(self.header) if self.rule_at is None else self.rule_at
        columns = dict(zip(Rule._fields[1:], range(first, len(self.header)), strict=False))
        return columns if self.section_at is None else {"section": self.section_at, **columns}

    def rule(self, cells: list[str]) -> Rule:
        """The rule in a rule row; "" for missing fields."""
        found = {field: cells[at] for field, at in self.rule_columns().items() if at < len(cells)}
        return Rule(*(found.get(field, "") for field in Rule._fields))

    @staticmethod
    def _cell(cells: list[str], at: int | None) -> str:
        return "" if at is None else cells[at]


class WidePage(_CsvPage):
    """One row per launch: `--page raw --csv`, with units in its second row, or the user interface's summary export."""

    def __init__(self, header: list[str], delimiter: str, quoted: bool = True) -> None:
        super().__init__(header, delimiter, quoted)
        self.kind = "summary page of the user interface" if "Function Name" in self.column else "wide"
        self.units: list[str] | None = None
        self.titles: list[str] = []
        bracketed = [_TITLE_AND_UNIT.match(name) for name in header]
        if any(bracketed):
            self.units = [match["unit"] if match else "" for match in bracketed]
        for name, match in zip(header, bracketed, strict=True):
            title = match["title"] if match else name
            self.titles.append(UI_LABELS.get(title, title) if self.units else title)
        self.metric_columns = [index for index, name in enumerate(header) if name and self._is_metric(name)]
        metrics = set(self.metric_columns)
        self.other_columns = [(at, name.split(" [")[0]) for at, name in enumerate(header) if at not in metrics]
        self.rows = 0

    @property
    def is_begun(self) -> bool:
        """True once the units are known: their row comes first, or not at all."""
        return self.units is not None or self.rows > 0

    @property
    def has_units(self) -> bool:
        """True if units are known, or if no launch was read yet."""
        return self.units is not None or not self.rows

    def _is_metric(self, name: str) -> bool:
        title = name.split(" [")[0]
        return title not in IDENTITY_COLUMNS and name not in self.nvtx_columns

    def feed(self, line: str) -> str:
        """Take in one line: the units row, a launch, or something else."""
        kind, cells = self.judge(line)
        if kind == report.METRICS:
            self.take(cells)
        return kind

    def take(self, cells: list[str]) -> None:
        """Take in the cells of a launch's row."""
        launch = launch_of({name: cells[index] for index, name in self.other_columns})
        units = self.units or [""] * len(self.header)
        for index in self.metric_columns:
            launch.read(self.titles[index], cells[index], units[index])
        self._launches[("row", str(len(self._launches)))] = launch

    def judge(self, line: str) -> tuple[str, list[str]]:
        """The kind of a line, and the cells of a launch's row; stores the units row and counts rows."""
        if not self.is_begun:
            cells = split_row(line, self.delimiter)
            empty_above_units = self.column.get("ID", self.column.get("Kernel Name", 0))
            if cells and len(cells) >= len(self.header) > 1 and not cells[empty_above_units].strip():
                self.units = cells
                return report.UNITS, []
        cells = self._cells(line)
        if cells is None or len(cells) < len(self.header) or not self._fits(cells):
            return self._broken(line), []
        self.rows += 1
        return report.METRICS, cells


class SummaryPage(_CsvPage):
    """Minimum, maximum and average over all launches of a kernel: `--print-summary per-kernel|per-gpu|per-nvtx`."""

    kind = "summary"

    def __init__(self, header: list[str], delimiter: str, quoted: bool = True) -> None:
        super().__init__(header, delimiter, quoted)
        self.last_at = self._last_of("Section Name", "Metric Name", "Metric Unit", *EXTREMES)

    def feed(self, line: str) -> str:
        """Take in one line: a metric of one kernel, or something else."""
        cells = self._cells(line)
        if cells is None or self.last_at >= len(cells) or not self._fits(cells):
            return self._broken(line)
        section = cells[self.column["Section Name"]] if "Section Name" in self.column else ""
        launch = self._launch(cells)
        read_summary(
            launch,
            cells[self.column["Metric Name"]],
            cells[self.column["Metric Unit"]] if "Metric Unit" in self.column else "",
            section,
            {name: cells[self.column[name]] for name in EXTREMES},
        )
        return report.METRICS


def read_summary(launch: Launch, label: str, unit_text: str, section: str, values: dict[str, str]) -> None:
    """Read one row of a summary: the average as the metric, the extremes as separate metrics."""
    name = metric_of_label(section, "", label).name
    for column, suffix in (("Average", ""), ("Minimum", " (minimum)"), ("Maximum", " (maximum)")):
        reading = report.Reading(values[column], unit_text, section, "", label)
        launch.readings.setdefault(name + suffix, []).append(reading)


def launch_of(cells: dict[str, str]) -> Launch:
    """A launch from its identity cells, under their column titles."""
    titles = ("Original Demangled Name", "Demangled Name", "Kernel Name", "Function Name")  # ncu-ui cuts the second
    launch = Launch(
        kernel_name=next((name for title in titles if (name := cells.get(title))), ""),
        kernel_short=cells.get("Function Name"),
        launch_id=whole(cells.get("ID")),
        process_id=whole(cells.get("Process ID")),
        device_id=whole(cells.get("Device"), bits=31),
        compute_capability=capability(cells.get("CC")),
        context=whole(cells.get("Context")),
        stream=present(cells.get("Stream")),
        grid=triple(cells.get("Grid Size")),
        block=triple(cells.get("Block Size")),
        invocations=whole(cells.get("Invocations")),
    )
    ranges = nvtx_ranges(cells)
    if ranges is not None:
        place(launch, ranges)
    for shape in ("Grid Size", "Block Size"):  # the oldest summaries print a number of blocks and threads instead
        count = cells.get(shape, "").strip()
        if count.isdecimal():
            launch.read(f"launch__{shape.lower().replace(' ', '_')}", count)
    for title in ("Process Name", "Host Name", "Kernel Time", "Result Type", "Device Name"):
        if cells.get(title):
            launch.attributes[title] = cells[title]
    return launch


def nvtx_ranges(cells: dict[str, str]) -> list[tuple[str, str]] | None:
    """The NVTX ranges around a launch as (domain, name), outermost first; None without NVTX columns.

    A cell of push/pop ranges is `thread "domain:range:6 payload fields" ...`, a cell of start/end ranges
    `"id:domain:range:6 payload fields" ...`. Range names may contain colons. Start/end ranges apply to the whole
    process, so they come first; a range pushed under the same name as well is listed once.
    """
    columns = [title for title in cells if title.startswith(NVTX_TITLES)]
    if not columns:
        return None
    ranges: list[tuple[str, str]] = []
    for title in sorted(columns, key=lambda title: not title.startswith(START_STOP)):
        skipped = 2 if title.startswith(START_STOP) else 0 if title.startswith(NVTX_SUMMARY_RANGE) else 1
        of_process = set(ranges)
        for entry in _QUOTED.findall(cells[title]) or [cells[title].strip()]:
            parts = entry.split(":")
            if len(parts) <= skipped:
                continue
            if len(parts) > skipped + PAYLOAD_FIELDS:
                parts = parts[:-PAYLOAD_FIELDS]
            domain = parts[skipped - 1] if skipped else ""
            name = ":".join(parts[skipped:])
            if name and (domain, name) not in of_process:
                ranges.append((domain, name))
    return ranges
