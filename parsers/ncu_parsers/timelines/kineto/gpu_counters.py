"""Samples of GPUs in a trace: counter events, each with a start and a value but no end.

Kineto writes CUPTI's metric names under the category hardware_counters; PyTorch's newer profiler ("Cuspy") writes
labels without a category. Both name the GPU in the process field ("GPU 0 Counters") and use an empty key for the value.
Facts: libkineto's `output_json.cpp` (August 2026) and PyTorch's `torch/profiler/_cuspy` with its tests.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ncu_parsers.timelines.activity.sample_series import SampleSeries
from ncu_parsers.timelines.kineto.chrome_trace import LONGEST_TIME, TraceEvent, event_number, whole_nanoseconds

COUNTER = "C"
_OF_GPU = re.compile(r"GPU (\d{1,6}) Counters")
_VALUES = msgspec.json.Decoder(list[dict[str, float]])


class CounterEvents:
    """Collects the counter events of GPUs while a trace is read. `broken` counts events without a time or a number."""

    def __init__(self) -> None:
        self.broken = 0
        self.samples = SampleSeries()
        self._series: dict[tuple[object, str | None], int] = {}

    def take(self, events: Sequence[TraceEvent]) -> int:
        """Add the events that are samples of GPUs; returns the number of other counters."""
        mine: list[TraceEvent] = []
        codes = array("i")
        for event in events:
            code = self._series.get((event.pid, event.name))
            if code is None:
                code = self._new_series(event)
            if code >= 0:
                mine.append(event)
                codes.append(code)
        values = _values(mine)
        start = np.array([event.ts for event in mine], np.float64)
        usable = np.isfinite(values) & (np.abs(np.nan_to_num(start, nan=math.inf)) < LONGEST_TIME)
        self.broken += len(mine) - int(usable.sum())
        series = np.array(codes, np.int32)[usable]
        self.samples.add(series, whole_nanoseconds(start[usable]), values[usable])
        return len(events) - len(mine)

    def _new_series(self, event: TraceEvent) -> int:
        """Number a new series; -1 if it is not a sample of a GPU."""
        found = _OF_GPU.fullmatch(event.pid) if isinstance(event.pid, str) else None
        code = -1 if found is None else self.samples.series(int(found[1]), event.name or "")
        self._series[event.pid, event.name] = code
        return code


def _values(events: Sequence[TraceEvent]) -> npt.NDArray[np.float64]:
    """The value of each counter; NaN if it has none."""
    try:
        found = _VALUES.decode(b"[" + b",".join(bytes(event.args) for event in events) + b"]")
        return np.array([next(iter(one.values()), math.nan) for one in found], np.float64)
    except (msgspec.DecodeError, RecursionError):
        return np.array([_value(bytes(event.args)) for event in events], np.float64)


def _value(args: bytes) -> float:
    try:
        found = json.loads(args, strict=False)
    except (ValueError, RecursionError):
        return math.nan
    return event_number(next(iter(found.values()), None)) if isinstance(found, dict) else math.nan
