"""Build the table of launches from columns of printed cells, without an object per launch.

The same cells give the same table as through `csv_pages.launch_of`, `resolve_readings` and `launches_table`; each
distinct text is parsed once, by the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ncu_parsers.derived import table_builder
from ncu_parsers.derived.opcode_check import Disagreement
from ncu_parsers.ncu import csv_pages
from ncu_parsers.report_data.cell_text import NumberFormat, capability, present, whole
from ncu_parsers.report_data.nvtx_path import place
from ncu_parsers.report_data.report import NAN_TEXTS, Launch, Metric, Reading, Report, metric_of, more_precise, printed
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.tables import Floats
from ncu_parsers.streaming.cells.rows import Codes, Integers, Mask, Numbers, Texts, joined_texts

Value = TypeVar("Value")

NvtxRanges = tuple[tuple[str, str], ...]
"""The NVTX ranges around a launch as (domain, name), outermost first."""

ATTRIBUTES = ("Process Name", "Host Name", "Kernel Time", "Result Type", "Device Name")


@dataclass
class MetricColumn:
    """One metric of some launches in base units: a launch has a number, a word, or neither.

    `first` is the index of the first launch with either, on long pages; `absent` counts launches with a printed n/a.
    """

    values: Floats
    unit: str = ""
    words: dict[int, str] = field(default_factory=dict)
    instances: dict[int, str] = field(default_factory=dict)
    absent: int = 0
    first: int | None = None

    def put(self, launch: int, metric: Metric | None, behind: str | None) -> None:
        """Store one cell of a launch: a metric or none, and the instances printed after it."""
        if behind is not None:
            self.instances[launch] = behind
        if metric is not None and isinstance(metric.value, str):
            self.words[launch] = metric.value
        elif metric is not None:
            self.values[launch] = metric.value

    def fill(self, numbers: Numbers, unit: str, number_format: NumberFormat) -> Mask:
        """Store the non-numeric cells of a column with one cell per launch; returns the mask of printed nan."""
        nans = np.zeros(len(self.values), bool)
        for text, launches in numbers.non_numeric.items():
            lowered = text.strip().lower()
            nans[launches] = lowered in NAN_TEXTS
            metric, behind = metric_of(Reading(text, unit, "", "", ""), number_format)
            for launch in launches.tolist():
                self.put(launch, metric, behind)
            if metric is None and lowered.endswith("n/a"):
                self.absent += len(launches)
        return nans


class Rules(NamedTuple):
    """Rule results of some launches: each field as texts, one per rule, launch by launch.

    `counts` are the rules per launch, int64.
    """

    fields: dict[str, Texts]
    counts: Integers

    def array(self) -> pa.Array:
        """Rules as the column of the launch table."""
        return arrays.grouped_structs(
            {field: _spelled_out(texts) for field, texts in self.fields.items()}, self.counts, tables.RULES_COLUMN.type
        )

    def metrics(self) -> list[list[str] | None] | None:
        """Per launch, the metrics of its rules, a text per rule; None if no rule names any."""
        texts = self.fields["metrics"]
        if not any(texts.words):
            return None
        each = iter([texts.words[code] if code >= 0 else "" for code in texts.codes.tolist()])
        of_launches = ([next(each) for _ in range(count)] for count in self.counts.tolist())
        return [metrics if any(metrics) else None for metrics in of_launches]


def _spelled_out(texts: Texts) -> pa.Array:
    """Texts as strings; "" where a row ends before the column."""
    return arrays.take(arrays.texts([*texts.words, ""]), arrays.indices(texts.codes % (len(texts.words) + 1)))


@dataclass
class LaunchColumns:
    """Some launches: ids (int64, one per launch), the other identity cells and shapes by column title, metrics.

    Shapes are int32, (rows, 3); -1 where a launch prints none.

    `readings` and `nans` count, per launch, the printed values and the nan among them. `ranges` are the NVTX ranges of
    each launch, None where NVTX was not recorded; None as a whole if `cells` have them as printed.
    """

    rows: int
    ids: Integers
    processes: Integers | None
    cells: dict[str, Texts]
    shapes: dict[str, Codes]
    metrics: dict[str, MetricColumn]
    readings: npt.NDArray[np.int64]
    nans: npt.NDArray[np.int64]
    rules: Rules | None = None
    ranges: list[NvtxRanges | None] | None = None

    @cached_property
    def failed(self) -> Mask:
        """Mask of launches that ended in an error, as in `report.resolve_with`."""
        failed: Mask = (self.nans == self.readings) & (self.readings > 0)
        for shapes in self.shapes.values():
            failed = failed | ~shapes.any(axis=1)
        return failed


def joinable(one: LaunchColumns, other: LaunchColumns) -> bool:
    """True if `joined` accepts both: they have the same identity columns."""
    return (
        one.cells.keys() == other.cells.keys()
        and one.shapes.keys() == other.shapes.keys()
        and (one.processes is None) == (other.processes is None)
        and (one.ranges is None) == (other.ranges is None)
    )


def joined(parts: Sequence[LaunchColumns]) -> LaunchColumns:
    """Concatenate launches; a metric is NaN in launches that lack it."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    return LaunchColumns(
        sum(part.rows for part in parts),
        np.concatenate([part.ids for part in parts]),
        None if first.processes is None else np.concatenate([part.processes for part in parts]),
        {title: joined_texts([part.cells[title] for part in parts]) for title in first.cells},
        {title: np.concatenate([part.shapes[title] for part in parts]) for title in first.shapes},
        {name: _joined_metric(name, parts) for name in dict.fromkeys(name for part in parts for name in part.metrics)},
        np.concatenate([part.readings for part in parts]),
        np.concatenate([part.nans for part in parts]),
        _joined_rules(parts),
        None if first.ranges is None else [ranges for part in parts for ranges in part.ranges or ()],
    )


def _joined_rules(parts: Sequence[LaunchColumns]) -> Rules | None:
    with_rules = [part.rules for part in parts if part.rules is not None]
    if not with_rules:
        return None
    counts = [np.zeros(part.rows, np.int64) if part.rules is None else part.rules.counts for part in parts]
    return Rules(
        {field: joined_texts([rules.fields[field] for rules in with_rules]) for field in with_rules[0].fields},
        np.concatenate(counts),
    )


def _joined_metric(name: str, parts: Sequence[LaunchColumns]) -> MetricColumn:
    """One metric of all parts, in the unit of the first launch that has it: base units can differ between labels."""
    columns = [part.metrics.get(name) or MetricColumn(np.full(part.rows, np.nan)) for part in parts]
    result = MetricColumn(np.concatenate([column.values for column in columns]))
    holding = (column for column in columns if column.words or not np.isnan(column.values).all())
    result.unit = next(holding, columns[0]).unit
    before = 0
    for part, column in zip(parts, columns, strict=True):
        result.words |= {before + row: word for row, word in column.words.items()}
        result.instances |= {before + row: text for row, text in column.instances.items()}
        result.absent += column.absent
        if result.first is None and column.first is not None:
            result.first = before + column.first
        before += part.rows
    return result


def best_reading(readings: Sequence[Reading], number_format: NumberFormat) -> tuple[Metric | None, str | None, str]:
    """The most precise of several readings of a metric of a launch, its instances, and a contradiction (or "")."""
    metric, behind, contradiction = None, None, ""
    for reading in readings:
        found, instances = metric_of(reading, number_format)
        behind = instances if instances is not None else behind
        metric, conflict = more_precise(metric, found)
        if conflict and not contradiction:
            contradiction = f"{printed(readings[0])} and {printed(reading)}"
    return metric, behind, contradiction


# ------------------------------------------------------------------------------------------------------- identity


def _each(texts: Texts, function: Callable[[str], Value]) -> list[Value]:
    """`function` of every cell, called once per distinct text."""
    values = [function(text) for text in texts.words]
    return [values[code] for code in texts.codes.tolist()]


def _numbers(texts: Texts | None, kind: pa.DataType) -> pa.Array | None:
    if texts is None:
        return None
    bits = 31 if kind == pa.int32() else 63
    return arrays.take(arrays.integers([whole(text, bits) for text in texts.words], kind), arrays.indices(texts.codes))


def _words(texts: Texts | None, function: Callable[[str], str | None]) -> pa.Array | None:
    """A dictionary array of the converted texts; null for None."""
    if texts is None:
        return None
    meanings = [function(text) for text in texts.words]
    known = {text: None for text in meanings if text is not None}
    places = {text: place for place, text in enumerate(known)}
    codes = np.array([-1 if text is None else places[text] for text in meanings] or [0], np.int32)
    return arrays.coded(codes[texts.codes], list(known))


def _identity(columns: LaunchColumns, report: Report) -> dict[str, Any]:
    cells = columns.cells
    names = cells["Kernel Name"]
    ranges = _ranges(columns)
    return {
        "source": arrays.repeated("ncu", columns.rows),
        "report": arrays.repeated(report.source, columns.rows),
        "launch_id": arrays.whole(columns.ids),
        "process_id": None if columns.processes is None else arrays.whole(columns.processes),
        "rank": None,
        "device_id": _numbers(cells.get("Device"), pa.int32()),
        "device_name": _device_names(columns),
        "chip": _chips(columns),
        "compute_capability": _compute_capabilities(columns),
        "context": _numbers(cells.get("Context"), pa.int64()),
        "stream": _words(cells.get("Stream"), present),
        "kernel_name": arrays.coded(names.codes, names.words),
        "kernel_short": _words(names, tables.short_name),
        "grid": _shape_array(columns.shapes.get("Grid Size")),
        "block": _shape_array(columns.shapes.get("Block Size")),
        **ranges,
        "invocations": None,
        "failed": columns.failed,
        "rules": columns.rules and columns.rules.array(),
        "rule_metrics": columns.rules and columns.rules.metrics(),
    }


def _shape_array(shapes: Codes | None) -> pa.Array | None:
    return None if shapes is None else arrays.triples(shapes)


def _ranges(columns: LaunchColumns) -> dict[str, list[Any] | None]:
    titles = [title for title in columns.cells if title.startswith(csv_pages.NVTX_TITLES)]
    names = ("nvtx_path", "phase", "module", "iteration")
    if not titles and not any(ranges is not None for ranges in columns.ranges or ()):
        return dict.fromkeys(names)
    seen: dict[Any, Launch] = {}
    launches = []
    if columns.ranges is None:
        printed_ranges = zip(*(_each(columns.cells[title], str) for title in titles), strict=True)
        for texts in printed_ranges:
            if texts not in seen:
                seen[texts] = Launch("")
                place(seen[texts], csv_pages.nvtx_ranges(dict(zip(titles, texts, strict=True))) or [])
            launches.append(seen[texts])
    for ranges in columns.ranges or ():
        if ranges not in seen:
            seen[ranges] = Launch("")
            if ranges is not None:
                place(seen[ranges], list(ranges))
        launches.append(seen[ranges])
    return {name: [getattr(launch, name) for launch in launches] for name in names}


def _metric_values(columns: LaunchColumns, name: str) -> Floats | None:
    column = columns.metrics.get(name)
    return None if column is None or np.isnan(column.values).all() else column.values


def _device_names(columns: LaunchColumns) -> pa.Array | list[str | None] | None:
    printed = _words(columns.cells.get("Device Name"), lambda text: text or None)
    metric = columns.metrics.get(table_builder.DEVICE_NAME)
    if metric is None or not metric.words:
        return printed
    names = [None] * columns.rows if printed is None else printed.to_pylist()
    return [metric.words.get(row, name) for row, name in enumerate(names)]


def _chips(columns: LaunchColumns) -> list[str | None] | None:
    numbers = _metric_values(columns, "device__attribute_chip")
    if numbers is None:
        return None
    return [table_builder.CHIP_BY_NUMBER.get(int(number)) for number in np.nan_to_num(numbers).tolist()]


def _compute_capabilities(columns: LaunchColumns) -> pa.Array | list[str | None] | None:
    printed = _words(columns.cells.get("CC"), capability)
    major, minor = (
        _metric_values(columns, f"device__attribute_compute_capability_{part}") for part in ("major", "minor")
    )
    if major is None or minor is None:
        return printed
    derived = [
        f"{int(one)}.{int(other)}" if one == one and other == other else None
        for one, other in zip(major.tolist(), minor.tolist(), strict=True)
    ]
    return derived if printed is None else [one or two for one, two in zip(printed.to_pylist(), derived, strict=True)]


# ---------------------------------------------------------------------------------------------------------- table


def table_of(
    columns: LaunchColumns, report: Report, numeric: Collection[str] = (), found: list[Disagreement] | None = None
) -> pa.Table:
    """The table of these launches, equal to `table_builder.launches_table` on launches as objects.

    A metric without a value in any of them has no column. Words are left out of `numeric` metrics, which are numbers in
    other launches of the report. Disagreements of counters and opcodes are appended to `found`.
    """
    numbers = {name: column.values for name, column in columns.metrics.items() if not np.isnan(column.values).all()}
    texts: dict[str, list[str | None] | pa.Array] = {}
    for name, column in columns.metrics.items():
        if column.words and name not in numbers and name not in numeric:
            texts[name] = [column.words.get(row) for row in range(columns.rows)]
        if column.instances:
            texts[f"{name} (instances)"] = [column.instances.get(row) for row in range(columns.rows)]
    for title in ATTRIBUTES:
        words = _words(columns.cells.get(title), lambda text: text or None)
        if words is not None and words.null_count < columns.rows:
            texts[title] = arrays.cast(words, pa.string())
    units = {name: column.unit for name, column in columns.metrics.items()}
    described = {name: table_builder.describe(name, report, units.get(name, "")) for name in (*numbers, *texts)}
    return table_builder.contract_table(
        columns.rows, _identity(columns, report), numbers, texts, described, found=found
    )
