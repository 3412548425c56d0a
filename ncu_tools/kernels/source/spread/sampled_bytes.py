"""DRAM rates of single kernels, from samples of the whole GPU in which nearly only this kernel ran.

A sample counts if operations ran for 80 % of its time, and one kernel for 95 % of that. The kernel's rate is then the
sampled share of the DRAM's peak: an estimate, not a count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from ncu_parsers.launches.sampled_columns import SAMPLED_GPU
from ncu_parsers.parse.sampled_timeline import SampledTimeline
from ncu_parsers.schema import tables
from ncu_parsers.timelines.activity.samples import LEAST_PERIODS, Floats, GpuSamples, merged, time_within

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.source.spread.sampled_gpus import EVERYTHING, times_by_kernel

COVERED, ALONE = 0.8, 0.95
"""Least share of a sample in which operations ran, and least share of that in which one kernel ran."""
DRAM, DRAM_PARTS = "sampled_dram_pct", ("sampled_dram_read_pct", "sampled_dram_write_pct")


class SampledBytes(NamedTuple):
    """The DRAM bytes that a kernel moved per second of its time, and the number of samples used."""

    bytes_per_s: float
    samples: int


def bytes_in(timeline: SampledTimeline) -> dict[str, SampledBytes]:
    """As `sampled_bytes`, with the DRAM peaks of the GPUs on which the timeline's launches ran."""
    table = timeline.operations
    if table is None or SAMPLED_GPU not in table.column_names:
        return {}
    gpu_of, peak = tables.floats(table, SAMPLED_GPU), ceilings_of(table).per_launch["dram"]
    known = ~np.isnan(gpu_of) & ~np.isnan(peak)
    return sampled_bytes(
        timeline, {int(gpu): float(np.median(peak[known & (gpu_of == gpu)])) for gpu in np.unique(gpu_of[known])}
    )


def sampled_bytes(timeline: SampledTimeline, peaks: Mapping[int, float]) -> dict[str, SampledBytes]:
    """The DRAM rates of kernels with at least `LEAST_PERIODS` samples, by name; `peaks` are DRAM B/s by GPU number."""
    found: dict[str, SampledBytes] = {}
    for gpu, samples in sorted(timeline.activity.gpus.items()):
        shares = dram_shares(samples)
        if shares is None or gpu not in peaks:
            continue
        begin, end = samples.times, samples.ends
        lasts = np.maximum(end - begin, 1).astype(np.float64)
        times = times_by_kernel(timeline, gpu)
        if not times:
            continue
        busy = time_within(merged(*times.pop(EVERYTHING), 0), begin, end)
        usable = (busy >= COVERED * lasts) & ~np.isnan(shares)
        for name, rows in times.items():
            own = time_within(merged(*rows, 0), begin, end)
            mine = usable & (own >= ALONE * busy)
            if int(mine.sum()) >= LEAST_PERIODS:
                at_peak = float((shares[mine] * lasts[mine]).sum()) / float(own[mine].sum())
                found[name] = SampledBytes(at_peak * peaks[gpu], int(mine.sum()))
    return found


def dram_shares(samples: GpuSamples) -> Floats | None:
    """The share of DRAM's peak in each sample, reads and writes together; None if one of them was not sampled."""
    if DRAM in samples.values:
        return np.asarray(samples.values[DRAM] / 100, np.float64)
    parts = [samples.values[name] for name in DRAM_PARTS if name in samples.values]
    return np.asarray(np.sum(parts, axis=0) / 100, np.float64) if len(parts) == len(DRAM_PARTS) else None
