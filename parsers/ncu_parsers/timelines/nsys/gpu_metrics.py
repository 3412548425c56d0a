"""Read the GPU metrics that nsys sampled (`--gpu-metrics-devices`) from an SQLite export, beside its operations.

Tables: GPU_METRICS (timestamp, typeId, metricId, value) has a row for each metric of each sample, with integer
percentages; TARGET_INFO_GPU_METRICS names the metrics of each type, and the lowest 8 bits of a type are the GPU's id in
TARGET_INFO_GPU. Sources: "SQLite Export Schema Reference" and "GPU Metrics" in NVIDIA's Nsight Systems documentation;
for the GPU, NVIDIA's recipe gpu_metric_util_map. Made-up tables of this schema test it: no real one was at hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity.samples import Floats, GpuSamples, SampledActivity, sampled_columns
from ncu_parsers.timelines.nsys.database import MISSING, Database, Integers, opened

TABLE, NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
OLD_TYPES = "GENERIC_EVENT_TYPES"
COLUMNS = ("timestamp", "typeId", "metricId", "value")
GPU_BITS = 0xFF
MOST_ROWS = 20_000_000
"""Most rows of a table that are read: 100 s of twenty metrics at 10 kHz. A larger table is skipped."""
PERCENT = re.compile(r"\s*\[Throughput %\]$", re.IGNORECASE)
"""The unit that newer versions append to a name; with any other unit it is another metric."""
NAMED = 4
FINER = "profile --gpu-metrics 200000 samples as finely as nsys can"


def read_samples(source: Source, name: str) -> SampledActivity:
    """The samples in an export; raises what `database.opened` raises."""
    with opened(source, name) as database:
        return read_gpu_metrics(database)


def read_gpu_metrics(database: Database) -> SampledActivity:
    """The samples in an open export, by id of the GPU; without samples no GPU. A note if samples are not read."""
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
    return SampledActivity(gpus, tuple(notes if left_out else []), sampled_by="nsys", finer=FINER)


def _not_read(why: str) -> SampledActivity:
    return SampledActivity({}, (f"{why}, so no sampled activity is shown",))


def _samples_of(sampled: dict[str, Integers], kind: int, names: Mapping[int, str]) -> GpuSamples | None:
    """The samples of one event type, whose wanted metrics are `names` by number; None if it has none of them."""
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
    """The values of a column: of the first matching metric, or the sum of its parts; None without any."""
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
