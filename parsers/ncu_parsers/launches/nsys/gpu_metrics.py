"""Read the GPU metrics that nsys sampled (`--gpu-metrics-devices`) from an SQLite export, beside its operations.

Tables: GPU_METRICS (timestamp, typeId, metricId, value) has a row for each metric of each sample, with integer
percentages; TARGET_INFO_GPU_METRICS names the metrics of each type, and the lowest 8 bits of a type are the GPU's id in
TARGET_INFO_GPU. Sources: "SQLite Export Schema Reference" and "GPU Metrics" in NVIDIA's Nsight Systems documentation;
for the GPU, NVIDIA's recipe gpu_metric_util_map. Made-up tables of this schema test it: no real one was at hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from ncu_launch.files.toml_tables import table_beside

from ncu_parsers.launches.nsys.operations import Operations
from ncu_parsers.launches.nsys.sampled_activity import LEAST_PERIODS, Floats, GpuSamples, rate_text
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import field_metadata
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.nsys.database import MISSING, Database, Integers, opened
from ncu_parsers.timelines.nsys.devices import Devices

TABLE, NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
OLD_TYPES = "GENERIC_EVENT_TYPES"
COLUMNS = ("timestamp", "typeId", "metricId", "value")
SAMPLES, SAMPLED_GPU = "sampled_samples", "sampled_gpu"
GPU_BITS = 0xFF
MOST_ROWS = 20_000_000
"""Rows of a table that are read: 100 s of twenty metrics at 10 kHz. Of more, none is."""
PERCENT = re.compile(r"\s*\[Throughput %\]$", re.IGNORECASE)
"""The unit that newer versions append to a name; with any other unit it is another metric."""
NAMED = 4


@dataclass(frozen=True)
class SampledActivity:
    """The samples of each GPU by its id in the export, and notes on what was left out."""

    gpus: Mapping[int, GpuSamples]
    notes: tuple[str, ...] = ()


def sampled_columns() -> dict[str, dict[str, Any]]:
    """The columns that sampled metrics make: names, parts and meaning of each."""
    return table_beside(__file__, "gpu_metrics")


def read_samples(source: Source, name: str) -> SampledActivity:
    """The samples in an export; raises what `database.opened` raises."""
    with opened(source, name) as database:
        return read_gpu_metrics(database)


def read_gpu_metrics(database: Database) -> SampledActivity:
    """The samples in an open export; no GPU if nsys sampled none, with a note if there are some that are not read."""
    if not database.has_rows(TABLE):
        return SampledActivity({}, tuple(_old_events(database)))
    lacking = [column for column in COLUMNS if column not in database.columns(TABLE)]
    if lacking:
        return _not_read(f"{TABLE} has no column {', '.join(lacking)}")
    if database.rows(TABLE) > MOST_ROWS:
        return _not_read(f"{TABLE} has {database.rows(TABLE):,} rows, and at most {MOST_ROWS:,} are read")
    kinds = database.integers(NAMES, "typeId", "metricId")
    names = [PERCENT.sub("", text or "").strip().lower() for text in database.texts(NAMES, "metricName")]
    named = dict(zip(zip(kinds["typeId"].tolist(), kinds["metricId"].tolist(), strict=True), names, strict=False))
    known = {kind: name for kind, name in named.items() if name in _wanted()}
    if not known:
        listed = ", ".join(sorted(set(names) - {""})[:NAMED]) or "none"
        return _not_read(f"{TABLE} has no metric that is known here (it has {listed})")
    sampled = database.integers_where(TABLE, "metricId", sorted({metric for _, metric in known}), *COLUMNS)
    usable = np.logical_and.reduce([values != MISSING for values in sampled.values()])
    left_out = len(usable) - int(usable.sum())
    sampled = {column: values[usable] for column, values in sampled.items()}
    gpus: dict[int, GpuSamples] = {}
    for kind in np.unique(sampled["typeId"]).tolist():
        found = _samples_of(sampled, kind, {metric: name for (one, metric), name in known.items() if one == kind})
        if found is not None:
            gpus.setdefault(kind & GPU_BITS, found)
    notes = [f"{left_out} rows of {TABLE} have no time, or a value that is no integer, and were left out"]
    return SampledActivity(gpus, tuple(notes if left_out else []))


def _not_read(why: str) -> SampledActivity:
    return SampledActivity({}, (f"{why}, so no sampled activity is shown",))


def _samples_of(sampled: dict[str, Integers], kind: int, names: Mapping[int, str]) -> GpuSamples | None:
    """The samples of one type of event, whose wanted metrics are `names` by number; None if it has none of them."""
    mine = sampled["typeId"] == kind
    times = np.unique(sampled["timestamp"][mine])
    by_name: dict[str, Floats] = {}
    for number, name in names.items():
        rows = mine & (sampled["metricId"] == number)
        if rows.any():
            values = by_name.setdefault(name, np.full(len(times), np.nan))
            values[np.searchsorted(times, sampled["timestamp"][rows])] = sampled["value"][rows]
    found = {column: _column(column, by_name) for column in sampled_columns()}
    columns = {column: values for column, values in found.items() if values is not None}
    return GpuSamples(times, columns) if columns else None


def _column(column: str, by_name: Mapping[str, Floats]) -> Floats | None:
    """The values of a column: those of the first of its names, or of all its parts together; None without any."""
    entry = sampled_columns()[column]
    first = next((by_name[name.lower()] for name in entry["names"] if name.lower() in by_name), None)
    if first is not None:
        return first
    parts = [by_name.get(name.lower()) for name in entry.get("parts", ())]
    present = [part for part in parts if part is not None]
    return np.sum(present, axis=0) if present and len(present) == len(parts) else None


def _wanted() -> frozenset[str]:
    entries = sampled_columns().values()
    return frozenset(name.lower() for entry in entries for name in [*entry["names"], *entry.get("parts", ())])


def _old_events(database: Database) -> list[str]:
    """A note if an old nsys exported samples as generic events."""
    kinds = database.texts(OLD_TYPES, "data") if OLD_TYPES in database.tables else []
    if not any(kind and "SM Active" in kind for kind in kinds):
        return []
    return [
        f"GPU metrics are in the file as generic events, as nsys exported them before it had {TABLE}, and are not "
        "read; export the report with a newer nsys"
    ]


# --------------------------------------------------------------------------------------------- beside the operations


class SampledColumns:
    """The columns of sampled metrics, in % of their peak, for the operations of a timeline as they come in parts.

    An operation has the mean of the GPU's samples over its time, weighted by their overlap; null if it takes fewer than
    five periods of sampling, if samples cover less than 90 % of it, or if its GPU is not known. `sampled_samples` is
    the number of samples in that mean, 0 for none.
    """

    def __init__(self, activity: SampledActivity, devices: Devices) -> None:
        self._activity, self._devices = activity, devices
        self._operations = self._of_gpus = self._without = 0

    def beside(self, table: pa.Table, operations: Operations) -> pa.Table:
        """The table of some operations with their columns; as it is where no GPU was sampled."""
        gpus = self._activity.gpus
        if not gpus:
            return table
        rows = len(operations)
        start, end = operations.columns["start"], operations.columns["end"]
        timed = ~np.isnan(operations.durations)
        place = self._devices.places(operations.processes, operations.columns["deviceId"])
        values = {name: np.full(rows, np.nan) for name in sampled_columns()}
        samples = np.full(rows, MISSING)
        for gpu, own in gpus.items():
            mine = np.flatnonzero(timed & (place == gpu))
            found = own.means(start[mine], end[mine])
            samples[mine] = found.samples
            for name, means in found.values.items():
                values[name][mine] = means
        self._operations += rows
        self._of_gpus += int((samples != MISSING).sum())
        self._without += int((samples == 0).sum())
        for name, entry in sampled_columns().items():
            if any(name in own.values for own in gpus.values()):
                meaning = f"sampled on the whole GPU while it ran, not counted: {entry['means']}"
                metadata = field_metadata(unit="%", meaning=meaning)
                table = table.append_column(
                    pa.field(name, pa.float64(), metadata=metadata), arrays.floats(values[name])
                )
        sampled_gpu = np.where(samples == MISSING, MISSING, place)
        for name, numbers, meaning in (
            (SAMPLES, samples, "samples in the means of the sampled columns, 0 for none"),
            (SAMPLED_GPU, sampled_gpu, "the GPU that these are of, by its number in the timeline"),
        ):
            known = [None if number == MISSING else number for number in numbers.tolist()]
            column = pa.field(name, pa.int64(), metadata=field_metadata(unit="", meaning=meaning))
            table = table.append_column(column, arrays.integers(known, pa.int64()))
        return table

    def notes(self) -> list[str]:
        """Notes on what was left out, on the samples of each GPU, and on operations without any."""
        notes = [*self._activity.notes, *_notes_on_gpus(self._activity)]
        if self._without:
            notes.append(
                f"{self._without} of {self._of_gpus} operations have no sampled values: they take fewer than "
                f"{LEAST_PERIODS} samples, or samples were lost; profile --gpu-metrics 200000 samples as finely as "
                "nsys can"
            )
        unplaced = self._operations - self._of_gpus
        if unplaced:
            notes.append(
                f"{unplaced} operations have no sampled values, because their GPU or time is not known or sampled"
            )
        return notes


def _notes_on_gpus(activity: SampledActivity) -> list[str]:
    notes = []
    for gpu, own in sorted(activity.gpus.items()):
        if len(own) < 2:
            notes.append(f"GPU {gpu} has a single sample of GPU metrics, too few for a mean")
            continue
        lost = f"; {own.lost_ns / 1e9:.2g} s between them have none" if own.lost_ns > 0 else ""
        notes.append(
            f"activity of GPU {gpu} was sampled by nsys at {rate_text(own.period_ns)}: {len(own):,} samples over "
            f"{own.covered_ns / 1e9:.3g} s{lost}; a sampled value is a mean of the whole GPU while a kernel ran, and "
            "never a count"
        )
    return notes
