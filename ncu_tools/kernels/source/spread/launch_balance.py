"""Choose a launch of a run, and find how evenly the units of the chip did its work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from ncu_launch.errors import NcuBenchError
from ncu_parsers.ncu_rep.metric_units import unit_of
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.schema import arrays
from ncu_parsers.schema.instance_table import NUMBER
from ncu_parsers.schema.tables import Floats, floats, launch_numbers
from ncu_parsers.schema.vendors import why_no_ncu_for
from ncu_parsers.sources.sources import Source, is_here

from ncu_tools.numbers.number_format import counted
from ncu_tools.runs.loading import load_only
from ncu_tools.runs.selection import Selection

COLLECT = "ncu --metrics sm__cycles_active.min,sm__cycles_active.avg,sm__cycles_active.max (or --set full)"
UNITS = {
    "sm": "SM",
    "smsp": "SM sub-partition",
    "l1tex": "L1 cache",
    "lts": "L2 slice",
    "dram": "DRAM channel",
    "fbpa": "DRAM partition",
    "gpc": "GPC",
    "tpc": "TPC",
}
"""Prefix of a unit's metrics -> the unit (Kernel Profiling Guide, "Metrics Structure")."""
LEAST, MEAN, MOST = ".min", ".avg", ".max"
"""Suffixes of metrics that combine a counter over units (same guide, "Metrics Rollups")."""
WORK, NO_WORK = "__cycles_active", "_elapsed"
"""Counters of cycles in which a unit works, and of cycles that pass on every unit, working or not."""
ALIKE = 1e-9


@dataclass
class LaunchBalance:
    """The balance of one launch, with notes on counters whose unit values only repeat the mean.

    `launch_id` is its number for `--launch`: its index in the run if no launch has an id.
    """

    kernel_name: str
    launch_id: int | None
    duration_ns: float | None
    rows: list[Balance]
    notes: list[str]


def launch_balance(
    path: str,
    only: Selection | None = None,
    launch: int | None = None,
    reading: Callable[[Source], None] = lambda source: None,
) -> LaunchBalance:
    """The balance of the longest launch of a run that matches a selection and a launch number.

    Raises `NcuBenchError` if the run cannot be read, no launch matches, or it has no counter by units.
    """
    run = load_only(path, only, reading=reading)
    number, row = _longest(run.table, launch)
    kernel, lasted = (row[name][0].as_py() for name in ("kernel_name", "duration_ns"))
    of_units = {metric: values for source in _binary(path) for metric, values in _of_units(source, row)}
    rows = balances(row, of_units)
    repeated = [metric for metric, values in of_units.items() if repeats_mean(values)]
    notes = [] if only is None else run.notes[-1:]
    if repeated:
        notes.append(
            f"{counted(len(repeated), 'counter has', 'counters have')} one value for all units, which tells nothing of "
            "balance: old reports repeat the mean there"
        )
    if not rows:
        raise NcuBenchError(
            f"Launch {number} of {kernel} has no counter of single units.",
            f"{notes[-1].capitalize()}."
            if repeated
            else "Neither the least and the most over units were collected, nor values of each unit.",
            why_no_ncu_for(run.table) or f"Collect them with: {COLLECT}",
        )
    return LaunchBalance(kernel, number, lasted, rows, notes)


def _longest(launches: pa.Table, launch: int | None) -> tuple[int | None, pa.Table]:
    """The number and the row of the longest launch, or of the longest with that number."""
    numbers = launch_numbers(launches)
    named = np.full(len(launches), True) if launch is None else numbers == launch
    left, numbers = arrays.kept(launches, named), numbers[named]
    if not len(left):
        raise NcuBenchError(
            "There is no such launch." if launch is None else f"There is no launch {launch}.",
            f"There are {counted(len(launches), 'launch', 'launches')}.",
            "Name another with --launch, or leave it out for the longest.",
        )
    longest = int(np.nan_to_num(floats(left, "duration_ns"), nan=-1.0).argmax())
    return None if np.isnan(numbers[longest]) else int(numbers[longest]), left.slice(longest, 1)


def _of_units(source: Source, row: pa.Table) -> Iterator[tuple[str, Floats]]:
    """The values of each unit by metric, for the launch in `row`, if a binary report has them."""
    from ncu_parsers.ncu_rep.instances import instance_tables  # slow to import

    found: dict[str, list[Floats]] = {}
    launch, process = row["launch_id"][0], row["process_id"][0]
    for table in instance_tables(source):
        same = pc.and_(pc.equal(table["launch_id"], launch), pc.equal(table["kind"].cast(pa.string()), NUMBER))
        same = same if not process.is_valid else pc.and_(same, pc.equal(table["process_id"], process))
        left = table.filter(pc.fill_null(same, False))
        metrics = left["metric"].cast(pa.string()).to_pylist()
        for metric, value in zip(metrics, floats(left, "value").tolist(), strict=True):
            if unit_kind(metric):
                found.setdefault(metric, []).append(value)
    for metric, values in found.items():
        if not np.isnan(values).any():
            yield metric, np.array(values, np.float64)


def _binary(path: str) -> list[Source]:
    """The binary reports that a path names."""
    from ncu_parsers.ncu.instructions.read import is_binary

    if not is_here(path):
        return []
    try:
        return [source for source in find_sources([path]) if is_binary(source)]
    except NcuBenchError:  # a Parquet file, or a folder without reports
        return []


@dataclass(frozen=True)
class Balance:
    """A counter of one launch over all units of a kind, each value in `unit`.

    `count` is the number of units; it and `median` are None if the report lacks the values per unit. `slowest_cost` is
    the share of the most loaded unit's amount that an even spread would save, 1 - mean / most.
    """

    metric: str
    of: str
    count: int | None
    unit: str
    least: float
    median: float | None
    mean: float
    most: float
    slowest_cost: float


def balances(launch: pa.Table, of_units: Mapping[str, Floats] | None = None) -> list[Balance]:
    """The counters of a launch over units: first active cycles, then others, each with the highest cost first.

    `launch` is its row of the table of launches, `of_units` the values of each unit by metric, if a report has them.
    Counters that are 0 everywhere are left out, as are unit values that only repeat the mean (`repeats_mean`).
    """
    found = {one.metric: one for one in _from_extremes(launch)}
    for metric, values in (of_units or {}).items():
        if unit_kind(metric) and len(values) > 1 and not repeats_mean(values) and values.max() > 0:
            found[metric.removesuffix(MEAN)] = _balance(metric, values)
    return sorted(found.values(), key=lambda one: (not one.metric.endswith(WORK), -one.slowest_cost))


def repeats_mean(values: Floats) -> bool:
    """True if all units have one value: old reports store the mean for each unit, which shows no balance."""
    return bool(np.ptp(values) <= ALIKE * np.abs(values).max(initial=0.0))


def _from_extremes(launch: pa.Table) -> Iterator[Balance]:
    for name in launch.column_names:
        metric = name.removesuffix(MOST)
        names = [metric + ending for ending in (LEAST, MEAN, MOST)]
        if name == metric or not unit_kind(metric) or any(one not in launch.column_names for one in names):
            continue
        least, mean, most = (launch[one][0].as_py() for one in names)
        if None not in (least, mean, most) and most > 0:
            yield Balance(metric, unit_kind(metric), None, unit_of(metric), least, None, mean, most, 1 - mean / most)


def _balance(metric: str, values: Floats) -> Balance:
    mean, most = float(values.mean()), float(values.max())
    return Balance(
        metric=metric.removesuffix(MEAN),
        of=unit_kind(metric),
        count=len(values),
        unit=unit_of(metric),
        least=float(values.min()),
        median=float(np.median(values)),
        mean=mean,
        most=most,
        slowest_cost=1 - mean / most,
    )


def unit_kind(metric: str) -> str:
    """The kind of unit that a metric counts on; "" for metrics without one, and for pure times."""
    beginning, _, rest = metric.partition("__")
    return "" if rest.partition(".")[0].endswith(NO_WORK) else UNITS.get(beginning, "")
