"""Launches as columns of printed cells -> the table of launches, without an object per launch.

The same cells give the same table as through `csv_pages.launch_of`, `report.settle` and `table_builder.launches_table`;
each distinct text is looked at once, by the same functions.
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
from ncu_parsers.derived.tensor_opcodes import OPCODES, named_instances
from ncu_parsers.ncu import csv_pages
from ncu_parsers.report_data.csv_text import present, triple, whole
from ncu_parsers.report_data.nvtx_path import place
from ncu_parsers.report_data.report import NAN_TEXTS, Launch, Metric, Reading, Report, metric_of, more_precise, printed
from ncu_parsers.report_data.units import NumberFormat
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.tables import Floats
from ncu_parsers.streaming.cells.number_cells import Cells, Integers, Mask, triples
from ncu_parsers.streaming.line_accounting import NotCertain

Value = TypeVar("Value")
Codes = npt.NDArray[np.int32]
Shapes = npt.NDArray[np.int32] | list[tuple[int, int, int] | None]
"""Grids or blocks: an array of shape (rows, 3) where every launch prints one, else a list."""

ATTRIBUTES = ("Process Name", "Host Name", "Kernel Time", "Result Type", "Device Name")


@dataclass
class MetricColumn:
    """One metric of some launches in base units: a launch has a number, a word, or neither.

    `first` is the first launch with either; `absent` counts launches for which n/a is printed.
    """

    values: Floats
    unit: str = ""
    words: dict[int, str] = field(default_factory=dict)
    instances: dict[int, str] = field(default_factory=dict)
    absent: int = 0
    first: int | None = None


class Rules(NamedTuple):
    """What rules say of some launches: each distinct rule once, the place there of each line, launch by launch, and how
    many lines each launch has.
    """

    said: list[dict[str, str]]
    codes: Integers
    counts: Integers


@dataclass
class Columns:
    """Some launches: ids, the other identity cells by column title as dictionary arrays, shapes by title, metrics.

    `readings` and `nans` count, for each launch, what was printed for it and how much of that was nan.
    """

    rows: int
    ids: Integers
    processes: Integers | None
    cells: dict[str, pa.DictionaryArray]
    shapes: dict[str, Shapes]
    metrics: dict[str, MetricColumn]
    readings: npt.NDArray[np.int64]
    nans: npt.NDArray[np.int64]
    rules: Rules | None = None

    @cached_property
    def failed(self) -> Mask:
        """Which launches ended in an error, as `report.settle_with` finds it."""
        failed: Mask = (self.nans == self.readings) & (self.readings > 0)
        for shapes in self.shapes.values():
            if isinstance(shapes, np.ndarray):
                failed = failed | ~shapes.any(axis=1)
            else:
                failed = failed | np.array([one == (0, 0, 0) for one in shapes], dtype=bool)
        return failed


def joinable(one: Columns, other: Columns) -> bool:
    """Whether `joined` takes both: they have the same identity columns."""
    return (
        one.cells.keys() == other.cells.keys()
        and one.shapes.keys() == other.shapes.keys()
        and (one.processes is None) == (other.processes is None)
    )


def joined(parts: Sequence[Columns]) -> Columns:
    """Launches behind each other; of a metric that some of them lack, only the others have numbers."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    return Columns(
        sum(part.rows for part in parts),
        np.concatenate([part.ids for part in parts]),
        None if first.processes is None else np.concatenate([part.processes for part in parts]),
        {title: arrays.joined([part.cells[title] for part in parts]) for title in first.cells},
        {title: joined_shapes([part.shapes[title] for part in parts]) for title in first.shapes},
        {name: _joined_metric(name, parts) for name in dict.fromkeys(name for part in parts for name in part.metrics)},
        np.concatenate([part.readings for part in parts]),
        np.concatenate([part.nans for part in parts]),
        _joined_rules(parts),
    )


def _joined_rules(parts: Sequence[Columns]) -> Rules | None:
    if not any(part.rules for part in parts):
        return None
    none = np.empty(0, np.int64)
    each = [part.rules or Rules([], none, np.zeros(part.rows, np.int64)) for part in parts]
    said = {id(rule): rule for rules in each for rule in rules.said}  # parts share most
    places = {rule: place for place, rule in enumerate(said)}
    codes = [np.array([places[id(rule)] for rule in rules.said], np.int64)[rules.codes] for rules in each]
    return Rules(list(said.values()), np.concatenate(codes), np.concatenate([rules.counts for rules in each]))


def _joined_metric(name: str, parts: Sequence[Columns]) -> MetricColumn:
    """One metric of all parts, in the unit of the first launch that has it: base units differ where labels do."""
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


def filled(column: MetricColumn, cells: Cells, units: Sequence[str], number_format: NumberFormat) -> Mask:
    """Put what `cells` hold beside simple numbers into a column of one cell per launch; where they print nan."""
    nans = np.zeros(len(cells.values), bool)
    for text, places in cells.odd.items():
        lowered = text.strip().lower()
        nans[places] = lowered in NAN_TEXTS
        for at in places.tolist():
            metric, behind = metric_of(Reading(text, units[at], "", "", ""), number_format)
            if behind is not None:
                column.instances[at] = behind
            if metric is None:
                column.absent += lowered.endswith("n/a")
            elif isinstance(metric.value, str):
                column.words[at] = metric.value
            else:
                column.values[at] = metric.value
    return nans


def settled(readings: Sequence[Reading], number_format: NumberFormat) -> tuple[Metric | None, str | None, str]:
    """One metric of a launch that is printed several times: the best reading, instances, and what contradicts it."""
    metric, behind, contradiction = None, None, ""
    for reading in readings:
        found, instances = metric_of(reading, number_format)
        behind = instances if instances is not None else behind
        metric, conflict = more_precise(metric, found)
        if conflict and not contradiction:
            contradiction = f"{printed(readings[0])} and {printed(reading)}"
    return metric, behind, contradiction


# ------------------------------------------------------------------------------------------------------- identity


def _each(column: pa.DictionaryArray, function: Callable[[str], Value]) -> list[Value]:
    """`function` of every cell, called once for each distinct text."""
    values = [function(text) for text in column.dictionary.to_pylist()]
    return [values[code] for code in arrays.values_of(column.indices, np.int32).tolist()]


def _numbers(column: pa.DictionaryArray | None, kind: pa.DataType) -> pa.Array | None:
    if column is None:
        return None
    bits = 31 if kind == pa.int32() else 63
    numbers = arrays.integers([whole(text, bits) for text in column.dictionary.to_pylist()], kind)
    return arrays.taken(numbers, column.indices)


def _words(column: pa.DictionaryArray | None, function: Callable[[str], str | None]) -> pa.Array | None:
    """A dictionary array of what the texts mean, null where nothing."""
    if column is None:
        return None
    meanings = [function(text) for text in column.dictionary.to_pylist()]
    known = {text: None for text in meanings if text is not None}
    places = {text: place for place, text in enumerate(known)}
    codes = np.array([-1 if text is None else places[text] for text in meanings] or [0], np.int32)
    indices = codes[arrays.values_of(column.indices, np.int32)]
    return pa.DictionaryArray.from_arrays(arrays.indices(indices), arrays.texts(list(known)))


def _identity(columns: Columns, report: Report) -> dict[str, Any]:
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
        "kernel_name": names,
        "kernel_short": _words(names, tables.short_name),
        "grid": _shape_array(columns.shapes.get("Grid Size")),
        "block": _shape_array(columns.shapes.get("Block Size")),
        **ranges,
        "invocations": None,
        "failed": columns.failed,
        "rules": columns.rules and arrays.coded_struct_lists(*columns.rules, tables.RULES_COLUMN.type),
    }


def shapes_of(column: pa.StringArray) -> Shapes:
    """The grids or blocks that cells print. Raises `NotCertain` for the counts that the oldest summaries print."""
    found = triples(column)
    if found is not None:
        return found
    encoded = arrays.encoded(column)
    if any(text.strip().isdecimal() for text in encoded.dictionary.to_pylist()):
        raise NotCertain("its shapes are counts")
    return _each(encoded, triple)


def joined_shapes(parts: Sequence[Shapes]) -> Shapes:
    """Shapes of launches behind each other."""
    whole = [part for part in parts if isinstance(part, np.ndarray)]
    if len(whole) == len(parts):
        return np.concatenate(whole)
    return [shape if shape is None else tuple(shape) for part in parts for shape in _listed(part)]


def _listed(shapes: Shapes) -> list[Any]:
    return shapes.tolist() if isinstance(shapes, np.ndarray) else shapes


def _shape_array(shapes: Shapes | None) -> pa.Array | None:
    if shapes is None:
        return None
    return arrays.triples(shapes) if isinstance(shapes, np.ndarray) else arrays.integer_lists(shapes)


def _ranges(columns: Columns) -> dict[str, list[Any] | None]:
    titles = [title for title in columns.cells if title.startswith(csv_pages.NVTX_TITLES)]
    names = ("nvtx_path", "phase", "module", "iteration")
    if not titles:
        return dict.fromkeys(names)
    seen: dict[tuple[str, ...], Launch] = {}
    launches = []
    for texts in zip(*(_each(columns.cells[title], str) for title in titles), strict=True):
        if texts not in seen:
            seen[texts] = Launch("")
            place(seen[texts], csv_pages.nvtx_ranges(dict(zip(titles, texts, strict=True))) or [])
        launches.append(seen[texts])
    return {name: [getattr(launch, name) for launch in launches] for name in names}


def _metric_values(columns: Columns, name: str) -> Floats | None:
    column = columns.metrics.get(name)
    return None if column is None or np.isnan(column.values).all() else column.values


def _device_names(columns: Columns) -> pa.Array | list[str | None] | None:
    printed = _words(columns.cells.get("Device Name"), lambda text: text or None)
    metric = columns.metrics.get(table_builder.DEVICE_NAME)
    if metric is None or not metric.words:
        return printed
    names = [None] * columns.rows if printed is None else printed.to_pylist()
    return [metric.words.get(row, name) for row, name in enumerate(names)]


def _chips(columns: Columns) -> list[str | None] | None:
    numbers = _metric_values(columns, "device__attribute_chip")
    if numbers is None:
        return None
    return [table_builder.CHIP_BY_NUMBER.get(int(number)) for number in np.nan_to_num(numbers).tolist()]


def _compute_capabilities(columns: Columns) -> pa.Array | list[str | None] | None:
    printed = _words(columns.cells.get("CC"), lambda text: text or None)
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


def table_of(columns: Columns, report: Report, numeric: Collection[str] = ()) -> pa.Table:
    """The table of these launches: what `table_builder.launches_table` makes of the same launches as objects.

    A metric without a value in any of them has no column. Words of a `numeric` one, which is a number in other launches
    of the report, are left out, too.
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
    opcodes = columns.metrics.get(OPCODES)
    named: list[dict[str, float] | None] = []
    if opcodes is not None and opcodes.instances:
        named = [named_instances(opcodes.instances.get(row, "")) or None for row in range(columns.rows)]

    def describe(name: str) -> dict[bytes, bytes]:
        metric = columns.metrics.get(name)
        return table_builder.describe(name, report, metric.unit if metric is not None else "")

    return table_builder.contract_table(
        columns.rows, _identity(columns, report), numbers, texts, named if any(named) else [], describe
    )
