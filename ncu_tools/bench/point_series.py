"""Columns of measured points against a chosen one, a series for each combination of further columns.

A quantity is a column of docs/bench.md, an argument, a counter, or one of `SHORT`. Time is from runs without a profiler
if points have it. FLOPs and bytes are counted if any point has counts, else from formulas: the quantity names its
column, so that every number has a source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from ncu_launch.bench.point_outcomes import OK
from ncu_launch.errors import WrongUsage, near_names
from ncu_parsers.parquet.reader import read_bench
from ncu_parsers.schema.bench_table import COLUMN_NAMES
from ncu_parsers.schema.own_columns import arguments_apart, own_names
from ncu_parsers.schema.tables import field_entries

from ncu_tools.bench.bench_runs import RUN, Row, completed, file_of_points
from ncu_tools.bench.expected_flops import notes_on_basis
from ncu_tools.numbers.number_format import counted

SHORT: dict[str, tuple[str, ...]] = {
    "time": ("latency_mean_ns", "profiled_time_ns"),
    "flops": ("profiled_flops", "expected_flops"),
    "bytes": ("profiled_dram_bytes", "profiled_operator_bytes", "expected_bytes"),
    "dram": ("profiled_dram_bytes",),
    "dram_pct": ("profiled_dram_fraction",),
    "memory": ("memory_peak_bytes",),
    "batch": ("batch_size",),
    "image": ("input_size",),
    "tokens": ("sequence_length",),
}
"""Short name -> columns; the first with any value is used."""
RATES = {"flops_per_s": "flops", "bytes_per_s": "bytes"}
"""Name of a rate -> the quantity that is divided by time."""
KINDS = {"ns": "time", "byte": "byte", "FLOP": "flop", "hz": "hz", "FLOP/s": "flop/s", "byte/s": "byte/s"}
NS = 1e9
SEPARATING = (
    "run", "target", "device_name", "dtype", "autocast", "mode", "channels_last", "phase", "batch_size", "input_size",
    "sequence_length",
)  # fmt: skip
"""Columns that separate series, in addition to arguments, unless the user chooses."""


@dataclass(frozen=True)
class SeriesQuantity:
    """A quantity of points: its name, its column, its unit, and its number format (`FORMATS`)."""

    name: str
    column: str
    unit: str = ""
    kind: str = "text"

    @property
    def title(self) -> str:
        """The name with unit and column, as "time in ns (latency_mean_ns)"."""
        unit = f" in {self.unit}" if self.unit else ""
        return f"{self.name}{unit}" + (f" ({self.column})" if self.column != self.name else "")


@dataclass
class PointSeries:
    """`ys` against `x`: `rows` have both by name, the values that separate series in `by`, and the outcome of the
    point.

    `latency_low_ns` and `latency_high_ns` are the interval of `latency_mean_ns`. `alike` says what all measured points
    have in common: model, batch, phase, type and device, as far as these separate no series.
    """

    x: SeriesQuantity
    ys: list[SeriesQuantity]
    by: list[str]
    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    alike: list[str] = field(default_factory=list)

    def lines(self) -> dict[str, list[Row]]:
        """The points with an x, by the name of their series, sorted by x."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            if row[self.x.name] is not None:
                words = ", ".join(_words(name, row[name]) for name in self.by if row[name] is not None)
                found.setdefault(words, []).append(row)
        return found


class SeriesPoints:
    """The points of runs: rows, and the columns that can be drawn."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.rows: list[Row] = []
        self.arguments: list[str] = []
        self.units: dict[str, str] = {}
        for path in paths:
            table = arguments_apart(read_bench(file_of_points(path)).drop_columns(["samples_ns"]), {RUN})
            self.rows += [{**row, RUN: path} for row in completed(table.to_pylist())]
            self.arguments += [name for name in own_names(table) if name not in self.arguments]
            self.units |= {one.name: field_entries(one).get("unit", "") for one in table.schema}

    def has(self, column: str) -> bool:
        """True if any point has a value in this column."""
        return any(row.get(column) is not None for row in self.rows)

    def quantity(self, name: str) -> SeriesQuantity:
        """The quantity with this name. Raises `WrongUsage` if no point has it."""
        if name in RATES and name not in self.units:
            amount, time = self.quantity(RATES[name]), self.quantity("time")
            unit = f"{amount.unit}/s"
            return SeriesQuantity(name, f"{amount.column} / {time.column}", unit, KINDS.get(unit, "number"))
        columns = (name,) if name in self.units or name not in SHORT else SHORT[name]
        column = next((one for one in columns if self.has(one)), None)
        if column is None:
            raise self._unknown(name, columns)
        if name == "dram_pct":
            return SeriesQuantity(name, column, "%", "number")
        return SeriesQuantity(name, column, self.units.get(column, ""), self._kind(column))

    def value(self, row: Row, quantity: SeriesQuantity) -> Any:
        """The value of a point; None if unknown."""
        if quantity.name in RATES and " / " in quantity.column:
            amount, time = (row.get(column) for column in quantity.column.split(" / "))
            return amount / time * NS if amount is not None and time else None
        value = row.get(quantity.column)
        return 100 * value if quantity.name == "dram_pct" and value is not None else value

    def _kind(self, column: str) -> str:
        values = [row[column] for row in self.rows if row.get(column) is not None]
        if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
            return "text"
        if column.endswith("_fraction"):
            return "fraction"
        whole = all(isinstance(value, int) for value in values)
        return KINDS.get(self.units.get(column, ""), "count" if whole else "number")

    def _unknown(self, name: str, columns: Sequence[str]) -> WrongUsage:
        held = [one for one in (*SHORT, *self.units) if any(map(self.has, SHORT.get(one, (one,))))]
        rates = (rate for rate, amount in RATES.items() if amount in held and "time" in held)
        short = ", ".join((*(one for one in held if one in SHORT), *rates, *self.arguments))
        near = near_names(name, held, most=1)
        if name in SHORT or name in COLUMN_NAMES:
            what, why = f"No point has {name}.", f"Its columns are {', '.join(columns)}, and all of them are empty."
        else:
            what, why = f"The points have no column {name}.", f"Did you mean {near[0]}?" if near else ""
        return WrongUsage(what, why, f"There are {short}, and the columns of docs/bench.md.")


def point_series(paths: Sequence[str], x: str, ys: Sequence[str], by: Sequence[str] = ()) -> PointSeries:
    """The quantities `ys` against `x` of the points of runs; without `by` all differing columns separate series.

    Raises `WrongUsage` for a quantity that no point has or that is also `x`, and `NcuBenchError` if a run has no
    points.
    """
    points = SeriesPoints(paths)
    across, up = points.quantity(x), [points.quantity(name) for name in dict.fromkeys(ys)]
    numeric = [one for one in up if one.kind == "text"]
    if numeric:
        raise WrongUsage(f"{numeric[0].name} is no number.", advice="Name it after -x or --by.")
    names = {across.column, *(one.column for one in up)}
    separating = list(dict.fromkeys(points.quantity(name).column for name in by))
    for option, columns in (("-y", [one.column for one in up]), ("--by", separating)):
        if across.column in columns:
            raise WrongUsage(f"{x} is named after both -x and {option}.", advice="Name another column in one of them.")
    separating = separating or _differing(points, names)
    rows = [_cells(points, row, across, up, separating) for row in points.rows]
    rows.sort(key=lambda row: [_rank(row[name]) for name in (*separating, across.name)])
    taken = {*names, *separating}
    return PointSeries(
        across, up, separating, rows, _notes(points, across, up, separating), _shared_settings(points, taken)
    )


def _shared_settings(points: SeriesPoints, taken: Iterable[str]) -> list[str]:
    titles = {"target": "", "batch_size": "batch ", "phase": "", "dtype": "", "device_name": ""}
    values = {name: {row.get(name) for row in points.rows if row["outcome"] == OK} for name in titles}
    return [
        f"{titles[name]}{PurePath(str(one)).name if name == 'target' else one}"
        for name, (one, *others) in ((name, tuple(found)) for name, found in values.items() if found)
        if not others and one is not None and name not in taken
    ]


def _differing(points: SeriesPoints, taken: Iterable[str]) -> list[str]:
    names = [name for name in (*SEPARATING, *points.arguments) if name not in taken]
    return [name for name in names if len({row.get(name) for row in points.rows if row["outcome"] == OK}) > 1]


def _cells(points: SeriesPoints, row: Row, x: SeriesQuantity, ys: Sequence[SeriesQuantity], by: Sequence[str]) -> Row:
    interval = {name: row.get(name) for name in ("latency_low_ns", "latency_high_ns")}
    failed = {"outcome": None if row["outcome"] == OK else row["outcome"], "reason": row["reason"]}
    named = {one.name: points.value(row, one) for one in (x, *ys)}
    return {**{name: row.get(name) for name in by}, **interval, **failed, **named}


def _rank(value: Any) -> tuple[int, float, str]:
    """A key that sorts numbers before texts, and unknown values last."""
    if value is None:
        return 2, 0.0, ""
    return (0, float(value), "") if isinstance(value, (int, float)) else (1, 0.0, str(value))


def _words(name: str, value: Any) -> str:
    return f"{name}={value}" if isinstance(value, (bool, int, float)) else str(value)


def _notes(points: SeriesPoints, x: SeriesQuantity, ys: Sequence[SeriesQuantity], by: Sequence[str]) -> list[str]:
    notes = [f"{one.name} is {one.column}" for one in (x, *ys) if one.column != one.name]
    if any("expected_" in one.column for one in ys):
        notes.append("expected FLOPs and bytes are those of formulas for each operator, not measured")
    if any("expected_flops" in one.column for one in ys):
        notes += notes_on_basis(points.rows)
    if any(row.get("profiled_by") == "operators" for row in points.rows) and any("profiled_" in y.column for y in ys):
        notes.append("counted by operators: FLOPs and bytes are those of formulas, not counted by hardware")
    measured = [row for row in points.rows if row["outcome"] == OK]
    places = Counter((points.value(row, x), *(row.get(name) for name in by)) for row in measured)
    repeated = sum(number > 1 for number in places.values())
    if repeated:
        others = [name for name in _differing(points, {x.column}) if name not in by]
        differ = f": they differ in {', '.join(others)}, which --by tells apart" if others else ""
        notes.append(f"{counted(repeated, 'place has', 'places have')} several points{differ}")
    failed = len(points.rows) - len(measured)
    if failed:
        notes.append(f"{counted(failed, 'point is', 'points are')} not ok, with the reason in the row")
    return notes
