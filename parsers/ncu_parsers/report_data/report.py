"""One parsed report file, whatever its dialect: launches with metrics, and a count of lines by kind.

A dialect is read by a `Page`: it receives line after line, returns the kind of each, and finally returns its launches.
Numbers are converted only at the end, because the locale (decimal point or comma) must be inferred from many numbers.

`ncu --page details` prints "Duration" for gpu__time_duration.sum. NVIDIA's section files define the metric of a label,
per section; `labels.toml` lists labels with the same metric in every version examined (2018 to 2024.1; reports of 2025
agree). Any other label becomes a column named "Section: Label".
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ncu_launch.notes import Note, NoteKind

from ncu_parsers.report_data.cell_text import NumberFormat, instances, unit
from ncu_parsers.schema.tables import ABSENT, Rule

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    import pyarrow as pa

# Kinds of lines. Lines of READ_KINDS carry data; all others are skipped and counted by kind.
HEADER = "header"
UNITS = "units row"
METRICS = "metric row"
RULE = "rule row"
BLANK = "blank line"
MESSAGE = "message of the tool"
OUTPUT = "program output"
SAMPLE = "sample of a GPU"
BROKEN = "broken row"
CUT = "row cut off at the end of the file"
TOO_LONG = "line too long to be read"
UNLABELLED = "row without a label"
LAYOUT = "table layout"
SESSION = "session attribute"
SOURCE = "source line"
HOST = "range or call of the host"

MEAN_FIRST = "GPU and Memory Workload Distribution: Workload Distribution: "
"""Metrics of this table of `--print-details all` are printed four times: mean, maximum, minimum and sum.

ncu 2025.3 prints it beside its raw page, which names the metrics. The mean is kept.
"""
NAN_TEXTS = frozenset({"nan", "-nan"})
_OF_INSTANCES = re.compile(r"\d+: ")
"""Start of the instance values printed after a text: `CachePreferNone (0: CachePreferNone)`."""

READ_KINDS = frozenset({HEADER, UNITS, METRICS, RULE, SESSION, HOST, SAMPLE})

# ------------------------------------------------------------------------------------------- labels of the details page

# "{UNIT}: {COMPOUND_NAME} (dram__cycles_active.avg.pct_of_peak_sustained_elapsed)": a breakdown of the metric.
_BREAKDOWN = r"\{UNIT\}: \{COMPOUND_NAME\} \((?P<metric>\w+(?:\.\w+)*)\)$"
COMMAND_LINE_SECTION = "Command line profiler metrics"


class LabelledMetric(NamedTuple):
    """The metric of a label, and the section and label under which it was printed."""

    name: str
    section: str
    label: str


@lru_cache(maxsize=1)
def _known() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("labels.toml").read_text("utf-8"))


def labels_of_metrics() -> dict[str, tuple[str, str]]:
    """Section and label of each metric of `labels.toml`; the first if there are several."""
    found: dict[str, tuple[str, str]] = {}
    for section, labels in _known().items():
        for label, metric in labels.items():
            found.setdefault(metric, (section, label))
    return found


@lru_cache(maxsize=65536)
def metric_of_label(section: str, body: str, label: str) -> LabelledMetric:
    """The metric that `label` means in `section`.

    `body` is the Body Item Label of `--print-details all`, else "". A label that is a metric name means that metric.
    """
    if "__" in label:
        breakdown = re.match(_BREAKDOWN, label)
        if breakdown:
            return LabelledMetric(breakdown["metric"], section, label)
        if " " not in label:
            return LabelledMetric(label, section, label)
    if not section or section == COMMAND_LINE_SECTION:
        return LabelledMetric(label, section, label)
    known = _known().get(section, {}).get(label)
    if known:
        if "elapsed cycles" in body:  # ncu 2025.3 prints pipe utilization over both
            known = re.sub("_active$", "_elapsed", known)
        return LabelledMetric(known, section, label)
    return LabelledMetric(": ".join(part for part in (section, body, label) if part), section, label)


# ---------------------------------------------------------------------------------------------------- launches, reports


class Reading(NamedTuple):
    """One printed metric of one launch."""

    text: str
    unit: str
    section: str
    body: str
    label: str


class Metric(NamedTuple):
    """One metric of one launch in base units. `value` is a number or a text; `step` is the step of its last digit."""

    value: float | str
    step: float
    unit: str


@dataclass
class Launch:
    """One kernel launch or range; with `invocations`, an average over that many launches.

    `measures` are contract columns that the report contains directly, so they are not derived from metrics.
    """

    kernel_name: str
    launch_id: int | None = None
    process_id: int | None = None
    device_id: int | None = None
    compute_capability: str | None = None
    context: int | None = None
    stream: str | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    nvtx_path: tuple[str, ...] | None = None
    invocations: int | None = None
    kernel_short: str | None = None
    phase: str | None = None
    module: str | None = None
    iteration: int | None = None
    measures: dict[str, float] = field(default_factory=dict)
    flops_basis: str | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    readings: dict[str, list[Reading]] = field(default_factory=dict)
    metrics: dict[str, Metric] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    failed: bool = False

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for the same launch on two pages or in two files of one run."""
        return (
            self.process_id, self.launch_id, self.kernel_name, self.device_id, self.context, self.stream,
            self.attributes.get("Process Name"), self.attributes.get("Host Name"),
        )  # fmt: skip

    def read(self, label: str, text: str, unit_text: str = "", section: str = "", body: str = "") -> None:
        """Store one printed metric under the metric name that its label means."""
        name = metric_of_label(section, body, label).name
        self.readings.setdefault(name, []).append(Reading(text, unit_text, section, body, label))


class Page(Protocol):
    """A table of a report while it is read."""

    @property
    def dialect(self) -> str:
        """The name of the dialect, as shown to users."""

    def feed(self, line: str) -> str:
        """Read the next line and return its kind: one of the constants above."""

    def launches(self) -> list[Launch]:
        """The launches read so far, with readings but without metrics."""


@dataclass
class Report:
    """One parsed report file: its launches, or, from readers that build whole tables, the table of its launches.

    If `table` is set, `launches` is empty, and `origin` is the value of the `source` column. `era` names the
    tool's versions by the form of the file. `examples` are the number and text of the first line of each kind.
    """

    source: str
    dialects: list[str] = field(default_factory=list)
    tool_version: str | None = None
    era: str | None = None
    launches: list[Launch] = field(default_factory=list)
    lines: Counter[str] = field(default_factory=Counter)
    examples: dict[str, tuple[int, str]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    session: dict[str, str] = field(default_factory=dict)
    labels: dict[str, LabelledMetric] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    table: pa.Table | None = None
    origin: str = "ncu"

    @property
    def rows(self) -> int:
        """Number of launches in the report."""
        return len(self.launches) if self.table is None else len(self.table)

    @property
    def failures(self) -> int:
        """Number of launches that ended in an error."""
        if self.table is not None:
            return sum(map(bool, self.table.column("failed").to_pylist()))
        return sum(launch.failed for launch in self.launches)

    @property
    def losses(self) -> list[str]:
        """Lines that could not be read: number per kind, and the first line of each kind."""
        lost = ((kind, self.examples[kind]) for kind in (BROKEN, CUT, TOO_LONG) if kind in self.examples)
        return [
            f"{_counted(self.lines[kind], kind)}, the first in line {line}: {text[:100]}" for kind, (line, text) in lost
        ]

    @property
    def skipped(self) -> dict[str, int]:
        """Number of lines without data, by kind."""
        return {kind: count for kind, count in self.lines.items() if kind not in READ_KINDS}

    @property
    def metric_names(self) -> list[str]:
        """Every metric that at least one launch has, sorted."""
        return sorted({name for launch in self.launches for name in launch.metrics})


def _counted(lines: int, kind: str) -> str:
    several = re.sub("(row|line)", r"\1s", kind, count=1)
    return f"{lines:,} {kind if lines == 1 else several}"


@dataclass
class StreamedReport(Report):
    """A report whose launches were passed on as tables; keeps their number, metrics and number of failures."""

    streamed_rows: int = 0
    streamed_names: list[str] = field(default_factory=list)
    streamed_failures: int = 0

    @property
    def rows(self) -> int:
        """Number of launches in the report."""
        return self.streamed_rows

    @property
    def failures(self) -> int:
        """Number of launches that ended in an error."""
        return self.streamed_failures

    @property
    def metric_names(self) -> list[str]:
        """Every metric that at least one launch has, sorted."""
        return self.streamed_names


@dataclass
class ReadingProblems:
    """Problems in the readings of one page, over all its launches; `succeeded` counts launches that did not fail."""

    absent: Counter[str] = field(default_factory=Counter)
    conflicts: dict[str, str] = field(default_factory=dict)
    succeeded: int = 0

    def notes(self) -> list[str]:
        """One note on metrics that are n/a in all successful launches, and one per metric with contradictory values."""
        everywhere = sorted(name for name, count in self.absent.items() if self.succeeded and count >= self.succeeded)
        notes = []
        if everywhere:
            metrics = f"{len(everywhere)} metric{'s' * (len(everywhere) > 1)}"
            notes.append(Note(f"{metrics} came back n/a: {shortened(everywhere)}", NoteKind.NOT_MEASURED))
        return notes + [
            f"{name} is printed with different values in one launch ({values}); the first is kept"
            for name, values in sorted(self.conflicts.items())
            if not name.startswith(MEAN_FIRST)
        ]


DECIMAL_COMMAS = "numbers were read with decimal commas (1.234,5)"


def resolve_readings(launches: list[Launch], report: Report) -> None:
    """Convert the readings of a page's `launches` to metrics, in place; add notes on problems to `report`."""
    number_format = NumberFormat.infer(
        (reading.text, unit(reading.unit).base)
        for launch in launches
        for values in launch.readings.values()
        for reading in values
    )
    if number_format.decimal == ",":
        report.notes.append(DECIMAL_COMMAS)
    problems = ReadingProblems()
    resolve_with(number_format, launches, report, problems)
    report.notes += problems.notes()


def resolve_with(
    number_format: NumberFormat, launches: list[Launch], report: Report, problems: ReadingProblems
) -> None:
    """Convert the readings of some of a page's `launches` to metrics, in place; add problems to `problems`."""
    for launch in launches:
        for name, readings in launch.readings.items():
            metric = None
            for reading in readings:
                report.labels.setdefault(name, metric_of_label(reading.section, reading.body, reading.label))
                found, listed = metric_of(reading, number_format)
                if listed is not None:
                    launch.instances[name] = listed
                metric, conflict = more_precise(metric, found)
                if conflict:
                    problems.conflicts.setdefault(name, f"{printed(readings[0])} and {printed(reading)}")
            if metric is None:
                problems.absent[name] += readings[0].text.strip().lower().endswith("n/a")
            else:
                launch.metrics[name] = metric
        launch.failed = _has_failed(launch)
        launch.readings = {}
    problems.succeeded += sum(not launch.failed for launch in launches)


def metric_of(reading: Reading, number_format: NumberFormat) -> tuple[Metric | None, str | None]:
    """The metric of a reading (None without a value), and the instance values printed after it (None without)."""
    text, listed = reading.text.strip(), None
    number = number_format.parse(text)
    if number is None:
        text, listed = instances(text)
        if text in ABSENT:
            return None, listed
        number = number_format.parse(text)
    base, factor = unit(reading.unit)
    if number is None:
        is_word = listed is not None and _OF_INSTANCES.match(listed)
        return Metric(text if is_word else reading.text.strip(), 0.0, base), None
    if not math.isfinite(number.value * factor):
        return Metric(reading.text.strip(), 0.0, base), None
    return Metric(number.value * factor, number.step * factor, base), listed


def more_precise(known: Metric | None, other: Metric | None) -> tuple[Metric | None, bool]:
    """The more precise of two readings of one metric, and whether they contradict each other.

    Two numbers agree if they differ by no more than the precision of their printed digits.
    """
    if known is None or other is None:
        return known or other, False
    if isinstance(known.value, str) or isinstance(other.value, str):
        return known, known.value != other.value
    if abs(known.value - other.value) > 0.51 * (known.step + other.step) + 1e-9 * abs(known.value):
        return known, True
    return (other if other.step < known.step else known), False


def printed(reading: Reading) -> str:
    """A reading as printed in a note."""
    return f"{reading.text[:24]} {reading.unit}".strip()


def _has_failed(launch: Launch) -> bool:
    """True if the launch ended in an error: ncu then prints grid (0, 0, 0), or nan for every metric."""
    if launch.grid == (0, 0, 0) or launch.block == (0, 0, 0):
        return True
    texts = {reading.text.strip().lower() for readings in launch.readings.values() for reading in readings}
    return bool(texts) and texts <= NAN_TEXTS


def shortened(names: Iterable[str], most: int = 6) -> str:
    """The names joined by commas, cut after `most`."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
