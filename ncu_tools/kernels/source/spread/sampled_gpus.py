"""Activity that nsys sampled on GPUs: over the time of a recording, and its means while an NVTX range's work ran."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import Floats
from ncu_parsers.timelines.nsys.gpu_metrics import SAMPLED_GPU, sampled_columns
from ncu_parsers.timelines.nsys.sampled_timeline import SampledTimeline
from ncu_parsers.timelines.sampled_activity import LEAST_PERIODS, GpuSamples, Integers, merged

from ncu_tools.kernels.source.spread.over_time import SPARKLINE_WIDTH, sparkline

EVERYTHING = "(all operations)"


@dataclass(frozen=True)
class SampledMetric:
    """A metric of a GPU over a recording, in % of its peak: mean and peak of its samples, and its course as a text."""

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
class SampledRange:
    """What a GPU did while the operations of a range ran on it: `means` in % by column, None where none is known.

    `busy_ns` is the time of its operations, those less than a period apart taken together; `sampled_ns` the part of it
    in pieces of at least five periods, whose `samples` the means are of.
    """

    range: str
    gpu: int
    operations: int
    busy_ns: float
    sampled_ns: float
    samples: int
    means: dict[str, float | None] = field(default_factory=dict)


def metrics_over_time(timeline: SampledTimeline, width: int = SPARKLINE_WIDTH) -> list[SampledMetric]:
    """Every metric of every GPU over the recording, from its first sample to its last."""
    return [
        _over_time(gpu, name, samples, width)
        for gpu, samples in sorted(timeline.activity.gpus.items())
        for name in sampled_columns()
        if name in samples.values and not np.isnan(samples.values[name]).all()
    ]


def _over_time(gpu: int, name: str, samples: GpuSamples, width: int) -> SampledMetric:
    values = samples.values[name]
    times = (samples.times - samples.times[0]).astype(np.float64)
    duration = float(samples.ends[-1] - samples.times[0])
    return SampledMetric(
        gpu=gpu,
        metric=name,
        title=name.removeprefix("sampled_").removesuffix("_pct").replace("_", " "),
        unit="%",
        mean=float(np.nanmean(values)),
        peak=float(np.nanmax(values)),
        samples=int((~np.isnan(values)).sum()),
        duration_ns=duration,
        sparkline=sparkline(times, values, duration, width),
        times_ns=times.tolist(),
        values=[None if np.isnan(value) else value for value in values.tolist()],
    )


def ranges(timeline: SampledTimeline) -> list[SampledRange]:
    """The ranges of a timeline on each sampled GPU, the longest busy first, behind a row of all operations.

    An operation belongs to every range that is open where it was launched.
    """
    table = timeline.operations
    if table is None or SAMPLED_GPU not in table.column_names:
        return []
    gpu_of = tables.floats(table, SAMPLED_GPU)
    start, end = (_integers(table, name) for name in ("start_ns", "end_ns"))
    places = _rows_of_ranges(table)
    found: list[SampledRange] = []
    for gpu, samples in sorted(timeline.activity.gpus.items()):
        mine = gpu_of == gpu
        rows = [
            _of_range(name, gpu, samples, start[chosen], end[chosen])
            for name, own in places.items()
            if len(chosen := own[mine[own]])
        ]
        found += sorted(rows, key=lambda row: (row.range != EVERYTHING, -row.busy_ns))
    return found


def _rows_of_ranges(table: pa.Table) -> dict[str, Integers]:
    """The rows of each range's operations, and of all."""
    places: dict[str, list[int]] = {}
    codes, paths = tables.list_codes(table, "nvtx_path")
    by_path: dict[int, list[int]] = {}
    for row, code in enumerate(codes.tolist()):
        by_path.setdefault(code, []).append(row)
    for code, rows in by_path.items():
        for name in dict.fromkeys(paths[code] or ()):
            places.setdefault(str(name), []).extend(rows)
    everything = {EVERYTHING: np.arange(len(table), dtype=np.int64)}
    return everything | {name: np.array(sorted(rows), np.int64) for name, rows in places.items()}


def _of_range(name: str, gpu: int, samples: GpuSamples, start: Integers, end: Integers) -> SampledRange:
    gap = 0.0 if np.isnan(samples.period_ns) else samples.period_ns
    begins, ends = merged(start, end, gap)
    kept = (ends - begins) >= LEAST_PERIODS * samples.period_ns
    begins_kept, ends_kept = begins[kept], ends[kept]
    means: dict[str, float | None] = {}
    for metric in samples.values:
        amount, covered = samples.amounts(metric, begins_kept, ends_kept)
        means[metric] = float(amount.sum() / covered.sum()) if covered.sum() > 0 else None
    count = np.searchsorted(samples.times, ends_kept) - np.searchsorted(samples.times, begins_kept)
    _, covered = samples.amounts(next(iter(samples.values)), begins_kept, ends_kept)
    return SampledRange(
        name, gpu, len(start), float((ends - begins).sum()), float(covered.sum()), int(count.sum()), means
    )  # fmt: skip


def _integers(table: pa.Table, name: str) -> Integers:
    """A column of ns as int64; operations without a time never get here, since they have no sampled GPU."""
    values: Floats = tables.floats(table, name)
    return np.nan_to_num(values).astype(np.int64)
