"""One run of a history as a small summary: sums by launch signature, and facts on the run.

Summaries are made once and kept: as history.parquet beside the launches of a run folder or dataset, for reports in the
user's cache folder. A file of another version, or from other files, is made again; any of them may be deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.manifest import Manifest, manifest_in
from ncu_launch.files.run_files import BENCH_FILE, LAUNCHES
from ncu_launch.files.typed_json import UNREADABLE, record_of
from ncu_parsers.parquet.reader import read_beside
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.point_files import PointFile, is_point_file, read_points
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.metric_forms import MetricsInAnyForm
from ncu_parsers.schema.tables import Floats, drop_failed, table_metadata, with_metadata

from ncu_tools.ceilings.machine_files import own_place
from ncu_tools.compare.comparison_sums import Scatter
from ncu_tools.compare.run_conditions import Observed, conditions_of
from ncu_tools.history.quantities import LAUNCHES as LAUNCHED
from ncu_tools.history.quantities import TIME, WatchedQuantity, metrics_needed, quantities
from ncu_tools.kernels.matching.launch_signatures import signatures_in
from ncu_tools.numbers.row_sums import Chosen, Family, RowSums, Sum, Total
from ncu_tools.numbers.statistics import Moments, of_single_launches
from ncu_tools.runs.loading import load
from ncu_tools.runs.partition_sums import in_batches, notes_of_reports, sums_of_run
from ncu_tools.runs.run import PartInFile, Run

VERSION = 1
"""Version of kept sums. History: 1 (2026-11)."""
KEPT = "history.parquet"
BY_MANIFEST, BY_REPORT, BY_FILE = "manifest", "report", "file"
"""Sources of a run's date."""
CREATED = "Created"
"""The session attribute of binary ncu reports with the time of their creation."""
_IN_UTC = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC")
VARIANCE = "time_variance"
"""Variance of the sum of a signature's times; null for a single launch."""
TITLES = ("kernel", "shape", "range", "module", "phase")
OF_TITLES = ["kernel_name", "grid", "block", "nvtx_path", "module", "phase"]
OF_LAUNCHES = (
    "source", "kernel_name", "grid", "block", "nvtx_path", "module", "phase", "iteration", "invocations", "failed",
    "duration_ns", "device_name", "compute_capability", "sm_clock_hz", "flops_basis", "operation",
)  # fmt: skip


class SummedTitle(NamedTuple):
    """What launches are summed by: their signature as text, layer and phase; None if unknown."""

    kernel: str
    shape: str | None = None
    range: str | None = None
    module: str | None = None
    phase: str | None = None


@dataclass
class RunFacts:
    """Facts on a run: its commit and that commit's date, its own date and the source of it, and its conditions.

    Dates are ISO 8601, in UTC unless they have a zone. `steps` are the GPU times of its iterations in ns, `clock` is
    the median SM clock in Hz. With `points`, rows are measured points, not kernels. `identity` is equal for runs whose
    rows have the same titles in the same order.
    """

    commit: str | None = None
    committed: str | None = None
    started: str | None = None
    dated_by: str = ""
    conditions: dict[str, str] = field(default_factory=dict)
    clock: float | None = None
    iterations: int | None = None
    steps: list[float] = field(default_factory=list)
    points: bool = False
    identity: str = ""
    notes: list[str] = field(default_factory=list)
    made_of: list[str] = field(default_factory=list)

    @property
    def devices(self) -> str:
        """The device or machine of the run, in words; "" if unknown."""
        capability = self.conditions.get("compute capability", "")
        named = self.conditions.get("GPU") or self.conditions.get("machine")
        return named or (capability and f"compute capability {capability}")


@dataclass(frozen=True)
class FoundRun:
    """A run before it is read: its name in the history, and its path, URL or parts of a dataset.

    `files` are the files that it consists of, if they are on disk.
    """

    name: str
    place: str
    parts: tuple[PartInFile, ...] = ()
    files: tuple[Path, ...] = ()

    @property
    def kept(self) -> Path | None:
        """The file in which the run's sums are kept; None if the run is not on disk."""
        if not self.files:
            return None
        first = self.files[0]
        if self.parts:  # run=NAME/rank=R/report=F/launches.parquet
            return first.parents[2] / KEPT
        if first.name in (LAUNCHES, BENCH_FILE):
            return first.with_name(KEPT)
        key = hashlib.sha256(b"\n".join(os.fsencode(file.resolve()) for file in self.files))
        return own_place("XDG_CACHE_HOME", ".cache") / "history" / f"{key.hexdigest()[:32]}.parquet"

    @property
    def made_of(self) -> list[str]:
        """Version of kept sums, and name, size and time of every file that they derive from."""
        found = [str(VERSION)]
        for file in self.files:
            with suppress(OSError):
                stat = file.stat()
                found.append(f"{file.name} {stat.st_size} {stat.st_mtime_ns}")
        return found


@dataclass
class RunSummary:
    """A run with its facts and sums: one row of `titles` per `SummedTitle`, and the sums of each known quantity.

    Sums are float64, one per row, NaN where a row lacks the quantity.
    """

    name: str
    facts: RunFacts
    titles: pa.Table
    sums: dict[str, Floats]

    @classmethod
    def of_table(cls, name: str, facts: RunFacts, table: pa.Table) -> RunSummary:
        """The summary of a table of titles and sums."""
        columns = {one: tables.floats(table, one) for one in table.column_names if one not in TITLES}
        known = {one: values for one, values in columns.items() if not np.isnan(values).all()}
        return cls(name, facts, table.select(list(TITLES)), known)

    def column(self, name: str) -> Floats:
        """The sums of a quantity, one per row; NaN if it is unknown."""
        found = self.sums.get(name)
        return tables.unknown(len(self.titles)) if found is None else found


Made = TypeVar("Made")


def _once_for_equal(made_of: Callable[[pa.Table], Made]) -> Callable[[pa.Table], Made]:
    """Cache the result for the last table, since most runs have equal titles."""
    last: list[tuple[pa.Table, Made]] = []

    def remembered(table: pa.Table) -> Made:
        if not last or not last[0][0].equals(table):
            last[:] = [(table, made_of(table))]
        return last[0][1]

    return remembered


class HistorySums(RowSums[SummedTitle]):
    """The sums of a run's quantities by launch signature, layer and phase, and the time of each iteration."""

    def __init__(self) -> None:
        super().__init__()
        self.launches = Sum(self.rows)
        self.totals = Family(partial(Total, self.rows))
        self.largest = Family(partial(Chosen, self.rows, np.fmax.at))
        self.scatter = Scatter(self.rows)
        self.observed = Observed()
        self.steps: dict[int, float] = {}
        self.created: set[str] = set()
        self.reports: dict[str, None] = {}

    def add(self, table: pa.Table) -> None:
        """Add launches; failed ones are left out."""
        self.observed.add(table)
        self.reports |= notes_of_reports(table)
        self.created |= _created(table)
        table = drop_failed(table)
        keys, titles = _titles(table.select([name for name in OF_TITLES if name in table.column_names]))
        numbers = self.rows.use(titles, keys)
        weight = tables.launch_counts(table)
        self.launches.count(weight)
        metrics = MetricsInAnyForm(table)
        for quantity in quantities().values():
            values = _values(quantity, table, metrics)
            known = ~np.isnan(values)
            if known.any() and quantity.is_of_a_launch:
                self.largest.made(quantity.name).add(numbers, values)
            elif known.any():
                total = self.totals.made(quantity.name)
                total.sum.add(np.where(known, values * weight, 0.0))
                total.launches.count(np.where(known, weight, 0.0))
        self.scatter.add(Moments.of(of_single_launches(table, "duration_ns"), keys, len(titles)), self.rows.use(titles))
        self._add_steps(table, weight)

    def _add_steps(self, table: pa.Table, weight: Floats) -> None:
        iterations, times = tables.floats(table, "iteration"), tables.floats(table, "duration_ns") * weight
        known = ~np.isnan(iterations)
        if known.all() and len(table):
            each, place = np.unique(iterations.astype(np.int64), return_inverse=True)
            for number, time in zip(each.tolist(), np.bincount(place.reshape(-1), times).tolist(), strict=True):
                self.steps[number] = self.steps.get(number, 0.0) + time

    def table(self) -> pa.Table:
        """The titles and sums as a table."""
        columns = dict(zip(TITLES, _title_columns(tuple(self.titles)), strict=True))
        columns[LAUNCHED] = arrays.floats(self.launches.values)
        for name, total in self.totals.members.items():
            columns[name] = arrays.floats(total.whole(self.launches))
        for name, largest in self.largest.members.items():
            columns[name] = arrays.floats(largest.values)
        moments = self.scatter.moments
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = np.where(moments.size > 1, moments.size * moments.squares / (moments.size - 1), np.nan)
        columns[VARIANCE] = arrays.floats(variance)
        return pa.table(columns)


@lru_cache(maxsize=1)
def _title_columns(titles: tuple[SummedTitle, ...]) -> list[pa.Array]:
    return [arrays.dictionary([getattr(title, name) for title in titles]) for name in TITLES]


@_once_for_equal
def _titles(table: pa.Table) -> tuple[Any, list[SummedTitle]]:
    """For each launch the index of its title, and the titles in the order of their first launches."""
    codes, signatures = signatures_in(table)
    modules, phases = (tables.codes(table, name) for name in ("module", "phase"))
    each = (codes * len(modules[1]) + modules[0]) * len(phases[1]) + phases[0]
    _, first, place = np.unique(each, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(first), np.int64)
    number[order] = np.arange(len(first))
    titles = []
    for row in first[order].tolist():
        one = signatures[codes[row]]
        shape = None if one.shape is None else ",".join(map(str, one.shape))
        path = None if one.range is None else json.dumps(one.range) if one.range else ""
        titles.append(SummedTitle(one.name, shape, path, modules[1][modules[0][row]], phases[1][phases[0][row]]))
    return number[place.reshape(-1)], titles


def _created(table: pa.Table) -> set[str]:
    """The creation times of the reports in UTC, from their sessions; empty if none has one."""
    said = (str(report.get("session", {}).get(CREATED, "")) for report in table_metadata(table).get("reports", []))
    return {f"{day}T{time}+00:00" for day, time in (match.groups() for match in map(_IN_UTC.fullmatch, said) if match)}


def _values(quantity: WatchedQuantity, table: pa.Table, metrics: MetricsInAnyForm) -> Floats:
    """A quantity of each launch, from the first of its sources that any launch has; NaN if none."""
    if quantity.name == TIME:
        return tables.floats(table, "duration_ns")
    for parts in (*((name,) for name in (*quantity.columns, *quantity.metrics)), *quantity.sum_of):
        values = np.sum([metrics.floats(name) for name in parts], axis=0)
        if not np.isnan(values).all():
            return np.asarray(values, np.float64)
    return tables.unknown(len(table))


def _wanted(names: Sequence[str], filled: Sequence[str]) -> list[str]:
    needed, known = {*OF_LAUNCHES, *metrics_needed()}, set(filled)
    return [name for name in names if name in needed and name in known]


# ------------------------------------------------------------------------------------------------------- one run


def summarised(found: FoundRun) -> RunSummary:
    """The summary of a run: the kept one, or made now and kept. Raises `NcuBenchError` if the run cannot be read."""
    kept = found.kept
    made_of = found.made_of
    known = _kept_in(kept, found.name, made_of) if kept is not None else None
    if known is not None:
        return known
    facts, table = _made(found)
    facts = replace(facts, made_of=made_of, identity=_identity(table.select(TITLES)))
    if kept is not None:
        with suppress(OSError, NcuBenchError):  # the user cannot write to the folder
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_table(with_metadata(table, {"history": asdict(facts)}), kept)
    return RunSummary.of_table(found.name, facts, table)


@_once_for_equal
def _identity(table: pa.Table) -> str:
    titles = zip(*(tables.words(table, name) for name in TITLES), strict=True)
    return hashlib.sha256(json.dumps(list(titles)).encode()).hexdigest()


def _kept_in(kept: Path, name: str, made_of: list[str]) -> RunSummary | None:
    """The summary kept in a file, if it has this version and derives from these files; else None."""
    table = read_beside(kept) if kept.is_file() else None
    if table is None or tables.metadata_problem(table.schema):
        return None
    try:
        facts = record_of(RunFacts, table_metadata(table)["history"])
    except (*UNREADABLE, KeyError):
        return None
    are_sums = {*TITLES, LAUNCHED} <= set(table.column_names)
    return RunSummary.of_table(name, facts, table) if are_sums and facts.made_of == made_of else None


def _made(found: FoundRun) -> tuple[RunFacts, pa.Table]:
    """The facts of a run, and the table of its titles and sums."""
    from ncu_tools.bench.bench_runs import is_bench

    if not found.parts and is_bench(found.place):
        return _of_points(found)
    if found.files and is_point_file(found.files[0]):
        return _of_point_file(found, read_points(found.files[0]))
    run = Run(found.name, found.parts) if found.parts else load(found.place)
    sums = sums_of_run(run, HistorySums, in_batches(_wanted))
    manifest = manifest_in(Path(found.files[0]).parent) if found.files else None
    dated = _dated(found, manifest, sums.created)
    return with_facts_of(sums, dated, manifest), sums.table()


def with_facts_of(sums: HistorySums, dated: RunFacts, manifest: Manifest | None = None) -> RunFacts:
    """The facts of a run from its launches and manifest; commit and dates are those of `dated`."""
    conditions = conditions_of(sums.observed, manifest)
    return replace(
        dated,
        conditions={name: value for name, value in conditions.items() if value is not None},
        clock=sums.observed.median_clock,
        iterations=len(sums.steps) or None,
        steps=[sums.steps[number] for number in sorted(sums.steps)],
        notes=[str(note) for note in sums.reports],
    )


def _dated(found: FoundRun, manifest: Manifest | None, created: Collection[str] = ()) -> RunFacts:
    """Commit and date of a run: from its manifest, else its reports' sessions, else the time of its newest file."""
    if manifest is not None:
        return RunFacts(manifest.commit or None, manifest.committed or None, manifest.started, BY_MANIFEST)
    if created:
        return RunFacts(started=max(created), dated_by=BY_REPORT)
    times = []
    for file in found.files:
        with suppress(OSError):
            times.append(file.stat().st_mtime)
    return RunFacts(started=_utc(max(times)), dated_by=BY_FILE) if times else RunFacts()


def _utc(seconds: float) -> str:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


OF_POINTS: dict[str, str] = {
    "time": "latency_mean_ns", "memory": "memory_peak_bytes", "allocated": "memory_allocated_bytes",
    "flops": "expected_flops", "bytes": "expected_bytes", "parameters": "parameters",
}  # fmt: skip
"""Quantity -> the column of measured points that has it."""


def _of_points(found: FoundRun) -> tuple[RunFacts, pa.Table]:
    """The measured points of a sweep; if a point was measured again, the last row counts."""
    from ncu_launch.bench.point_outcomes import OK

    from ncu_tools.bench.bench_runs import load_bench

    run = load_bench(found.place)
    rows = {row["point"]: row for row in run.rows if row["outcome"] == OK}
    values: dict[str, list[Any]] = {name: [row[column] for row in rows.values()] for name, column in OF_POINTS.items()}
    variances = [_variance(row) for row in rows.values()]
    manifest = manifest_in(Path(found.files[0]).parent) if found.files else None
    conditions = {
        name: ", ".join(sorted({str(row[column]) for row in rows.values() if row[column] is not None}))
        for name, column in (("GPU", "device_name"), ("version of torch", "torch"), ("threads", "threads"))
    }
    clocks = [row["gpu_clock_hz"] for row in rows.values() if row["gpu_clock_hz"]]
    facts = replace(
        _dated(found, manifest),
        conditions={name: text for name, text in conditions.items() if text},
        clock=float(np.median(clocks)) if clocks else None,
        points=True,
        notes=run.notes,
    )
    return facts, table_of_points(list(rows), values, variances)


def _of_point_file(found: FoundRun, file: PointFile) -> tuple[RunFacts, pa.Table]:
    """The points in another program's file, with the commit and date that it gives."""
    dated = _dated(found, None)
    if file.measured:
        dated = replace(dated, started=file.measured, dated_by=BY_REPORT)
    facts = replace(
        dated, commit=file.commit or None, committed=file.committed or None, conditions=file.conditions, points=True
    )
    points = {one.name: one for one in file.points}.values()
    times = [one.time_ns for one in points]
    return facts, table_of_points([one.name for one in points], {TIME: times}, [one.variance for one in points])


def table_of_points(names: Sequence[str], values: dict[str, list[Any]], variances: Sequence[float]) -> pa.Table:
    """The sums of measured points: each as one launch, with its values and the variance of its mean time."""
    columns: dict[str, pa.Array] = {name: arrays.dictionary([None] * len(names)) for name in TITLES}
    columns["kernel"] = arrays.dictionary(list(names))
    columns[LAUNCHED] = arrays.floats(np.ones(len(names)))
    for name, found in values.items():
        columns[name] = arrays.floats(np.array([np.nan if one is None else one for one in found], np.float64))
    columns[VARIANCE] = arrays.floats(np.asarray(variances, np.float64))
    return pa.table(columns)


def _variance(row: dict[str, Any]) -> float:
    """The variance of a point's mean time: over its processes, else over its samples by batch means."""
    from ncu_tools.bench.compare_points import estimates_of

    return float(estimates_of(row, row)[0][1])
