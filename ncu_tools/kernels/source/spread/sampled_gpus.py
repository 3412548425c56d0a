"""Activity that a profiler sampled on GPUs: over the time of a recording, and its means while a range or kernel ran."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from ncu_parsers.launches.sampled_columns import SAMPLED_GPU
from ncu_parsers.parse.sampled_timeline import SampledTimeline
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import Floats
from ncu_parsers.timelines.activity.samples import (
    LEAST_PERIODS,
    GpuSamples,
    Integers,
    merged,
    sampled_columns,
    time_within,
    title_of_sampled,
    unit_of_sampled,
)

from ncu_tools.kernels.source.spread.over_time import SPARKLINE_WIDTH, sparkline

EVERYTHING = "(all operations)"
BY_RANGE, BY_KERNEL = "nvtx", "name"
MOST_OF_OTHERS = 0.1
"""Largest share of an interval that other groups' operations may take, for the interval to count in a group's mean."""


@dataclass(frozen=True)
class SampledMetric:
    """A sampled metric of one GPU over a recording: mean, peak, and its course as a sparkline.

    `unit` is % of peak, or the tool's own unit; "" if the name does not state one.
    """

    gpu: int
    metric: str
    title: str
    unit: str
    mean: float
    peak: float
    samples: int
    duration_ns: float
    sparkline: str
    times_ns: list[float]
    values: list[float | None]


@dataclass(frozen=True)
class SampledGroup:
    """GPU activity while the operations of a range or kernel ran: `means` in % by column, None if unknown.

    `busy_ns`: time in which the group's operations ran. `sampled_ns`: time covered by the samples in the means.
    """

    group: str
    gpu: int
    operations: int
    busy_ns: float
    sampled_ns: float
    samples: int
    means: dict[str, float | None] = field(default_factory=dict)


def metrics_over_time(timeline: SampledTimeline, width: int = SPARKLINE_WIDTH) -> list[SampledMetric]:
    """Every metric of each GPU over the recording, from first to last sample; the driver's values come last."""
    return [
        _over_time(gpu, name, samples, width)
        for gpus in (timeline.activity.gpus, timeline.activity.environment)
        for gpu, samples in sorted(gpus.items())
        for name in (*sampled_columns(), *(own for own in samples.values if own not in sampled_columns()))
        if name in samples.values and not np.isnan(samples.values[name]).all()
    ]


def _over_time(gpu: int, name: str, samples: GpuSamples, width: int) -> SampledMetric:
    values = samples.values[name]
    times = (samples.times - samples.times[0]).astype(np.float64)
    duration = float(samples.ends[-1] - samples.times[0])
    return SampledMetric(
        gpu=gpu,
        metric=name,
        title=title_of_sampled(name),
        unit=unit_of_sampled(name),
        mean=float(np.nanmean(values)),
        peak=float(np.nanmax(values)),
        samples=int((~np.isnan(values)).sum()),
        duration_ns=duration,
        sparkline=sparkline(times, values, duration, width),
        times_ns=times.tolist(),
        values=[None if np.isnan(value) else value for value in values.tolist()],
    )


def groups(timeline: SampledTimeline, by: str) -> list[SampledGroup]:
    """Per sampled GPU: all operations, then the ranges (`BY_RANGE`) or kernels (`BY_KERNEL`), longest busy time first.

    An operation belongs to every range that was open at its launch.
    """
    table = timeline.operations
    if table is None or SAMPLED_GPU not in table.column_names:
        return []
    gpu_of = tables.floats(table, SAMPLED_GPU)
    start, end = (_integers(table, name) for name in ("start_ns", "end_ns"))
    places = _rows_by(table, by)
    found: list[SampledGroup] = []
    for gpu, samples in sorted(timeline.activity.gpus.items()):
        mine = gpu_of == gpu
        everything = merged(start[mine], end[mine], 0)
        rows = [
            _of_group(name, gpu, samples, (start[chosen], end[chosen]), everything)
            for name, own in places.items()
            if len(chosen := own[mine[own]])
        ]
        found += sorted(rows, key=lambda row: (row.group != EVERYTHING, -row.busy_ns))
    return found


def times_by_kernel(timeline: SampledTimeline, gpu: int) -> dict[str, tuple[Integers, Integers]]:
    """Starts and ends in ns of the operations on a GPU, by kernel; `EVERYTHING` has all of them."""
    table = timeline.operations
    if table is None or SAMPLED_GPU not in table.column_names:
        return {}
    mine = tables.floats(table, SAMPLED_GPU) == gpu
    start, end = (_integers(table, name) for name in ("start_ns", "end_ns"))
    rows = {name: own[mine[own]] for name, own in _rows_by(table, BY_KERNEL).items()}
    return {name: (start[own], end[own]) for name, own in rows.items() if len(own)}


def _rows_by(table: pa.Table, by: str) -> dict[str, Integers]:
    """Row numbers of the operations, by range or kernel; `EVERYTHING` has all rows."""
    names: list[tuple[str, ...]]
    if by == BY_KERNEL:
        short_codes, texts = tables.codes(table, "kernel_name")
        codes, names = short_codes.astype(np.int64), [(str(text),) for text in texts]
    else:
        codes, paths = tables.list_codes(table, "nvtx_path")
        names = [tuple(dict.fromkeys(map(str, path or ()))) for path in paths]
    places: dict[str, list[Integers]] = {EVERYTHING: [np.arange(len(table), dtype=np.int64)]}
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(names)), side="right")
    for code, rows in enumerate(np.split(order, ends[:-1])):
        for name in names[code]:
            places.setdefault(name, []).append(rows.astype(np.int64))
    return {name: np.concatenate(parts) for name, parts in places.items()}


def _of_group(
    name: str, gpu: int, samples: GpuSamples, own: tuple[Integers, Integers], everything: tuple[Integers, Integers]
) -> SampledGroup:
    """Means over the group's intervals; operations less than a sampling period apart are merged into one interval.

    An interval counts if it is long enough and other groups take at most `MOST_OF_OTHERS` of it.
    """
    busy = merged(*own, 0)
    begins, ends = merged(*own, 0.0 if np.isnan(samples.period_ns) else samples.period_ns)
    of_others = time_within(everything, begins, ends) - time_within(busy, begins, ends)
    lasts = (ends - begins).astype(np.float64)
    kept = (lasts >= LEAST_PERIODS * samples.period_ns) & (of_others <= MOST_OF_OTHERS * lasts)
    begins, ends = begins[kept], ends[kept]
    means: dict[str, float | None] = {}
    sampled_ns = 0.0
    for metric in samples.values:
        amount, covered = (float(one.sum()) for one in samples.amounts(metric, begins, ends))
        means[metric] = amount / covered if covered > 0 else None
        sampled_ns = max(sampled_ns, covered)
    count = int((np.searchsorted(samples.times, ends) - np.searchsorted(samples.times, begins)).sum())
    return SampledGroup(name, gpu, len(own[0]), float((busy[1] - busy[0]).sum()), sampled_ns, count, means)


def _integers(table: pa.Table, name: str) -> Integers:
    """An int64 column in ns; operations without a time have no sampled GPU and were dropped by the caller."""
    values: Floats = tables.floats(table, name)
    return np.nan_to_num(values).astype(np.int64)
