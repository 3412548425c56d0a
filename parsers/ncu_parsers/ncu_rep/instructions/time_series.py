"""Samples over time in a binary report (PM sampling): a series per counter and launch.

Counters are sampled in several passes, each of which runs the kernel again. Times count from the kernel's start in the
series' pass; the report has start and end for each pass. A sample's time is the start of its period. The period in
which the kernel starts is included: only then do the blocks launched over time add up to the grid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncu_parsers.ncu_rep.blocks import Blocks, Content, blocks_of, opened
from ncu_parsers.ncu_rep.encoded_values import values_of
from ncu_parsers.ncu_rep.fields import text_of
from ncu_parsers.ncu_rep.results import Lost, Result, results_of
from ncu_parsers.schema.tables import Floats, short_name
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import Source

PREFIX = "pmsampling:"
START, END = "profiler__timestamp_workload_start_", "profiler__timestamp_workload_end_"
DROPPED = "profiler__pmsampler_dropped_samples"


@dataclass(frozen=True)
class TimeSeries:
    """One counter of one launch over time: `times_ns` (float64, ns from the kernel's start) and as many `values`.

    `duration_ns` is the kernel's duration in that pass. Periods before and after the kernel are left out; the period in
    which it starts has time 0. `dropped` is the number of samples that the launch lost, None if not recorded.
    """

    launch_id: int
    kernel_name: str
    kernel_short: str
    metric: str
    times_ns: Floats
    values: Floats
    duration_ns: float
    dropped: int | None


def time_series(source: Source) -> list[TimeSeries]:
    """The series of all launches of a binary report; [] if it has none.

    Series without start and end of their pass are left out. Raises `NcuBenchError` if the file cannot be read.
    """
    result: list[TimeSeries] = []
    with opened(source) as stream:
        blocks = blocks_of(stream, source.name)
        for one in results_of(stream, blocks, Lost()):
            if one.content is Content.KERNEL:
                result += _of_launch(one, blocks)
                memory.require_memory(source.name, streaming=True)
    return result


def _of_launch(result: Result, blocks: Blocks) -> Iterator[TimeSeries]:
    metrics = {name: metric for metric in result.message.metrics if (name := _name(metric, blocks)) is not None}
    passes = [
        (_first_key(metrics[name]), _first_key(metrics[END + name.removeprefix(START)]))
        for name in metrics
        if name.startswith(START) and END + name.removeprefix(START) in metrics
    ]
    lost = metrics.get(DROPPED)
    counts = [] if lost is None else values_of([one.value for one in lost.instances]).numbers.tolist()
    dropped = int(sum(counts)) if counts and all(one == one for one in counts) else None
    kernel = text_of(result.message.name or result.message.function)
    for name, metric in metrics.items():
        if not name.startswith(PREFIX) or not metric.instances:
            continue
        keys = values_of([one.key for one in metric.instances])
        times, values = keys.whole, values_of([one.value for one in metric.instances]).numbers
        found = next(((begin, end) for begin, end in passes if begin and times[0] <= end and begin <= times[-1]), None)
        if found is None:
            continue
        begin, end = found
        since = times.astype(np.int64) - begin
        period = float(np.median(np.diff(since))) if len(since) > 1 else 0.0
        inside = keys.is_whole & (since > -period) & (since <= end - begin)
        begun = np.maximum(since[inside], 0).astype(np.float64)
        counter = name.removeprefix(PREFIX)
        lasted = float(end - begin)
        yield TimeSeries(result.number, kernel, short_name(kernel), counter, begun, values[inside], lasted, dropped)


def _name(metric: Any, blocks: Blocks) -> str | None:
    codes = blocks.names.codes
    return blocks.names.texts[codes[metric.name]] if metric.name < len(codes) and codes[metric.name] >= 0 else None


def _first_key(metric: Any) -> int:
    """The time in the first instance of a metric; 0 if it has none."""
    keys = values_of([one.key for one in metric.instances[:1]])
    return int(keys.whole[0]) if len(keys.whole) and keys.is_whole[0] else 0
