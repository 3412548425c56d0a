"""Samples of GPUs in a trace: counter events, each with a start and a value but no end.

Kineto writes CUPTI's metric names under the category hardware_counters; PyTorch's newer profiler ("Cuspy") writes
labels without a category. Both name the GPU in the process field ("GPU 0 Counters") and use an empty key for the value.
Facts: libkineto's `output_json.cpp` (August 2026) and PyTorch's `torch/profiler/_cuspy` with its tests.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ncu_parsers.timelines.activity.sample_series import SampleSeries
from ncu_parsers.timelines.kineto.chrome_trace import LONGEST_TIME, TraceEvent, event_number, whole_nanoseconds

COUNTER = "C"
_OF_GPU = re.compile(r"GPU (\d{1,6}) Counters")
OF_NAME, OF_PROCESS, OF_BOTH = attrgetter("name"), attrgetter("pid"), attrgetter("pid", "name")
OF_TIME, OF_ARGUMENTS, OF_VALUE = attrgetter("ts"), attrgetter("args"), attrgetter("value")


class CounterArguments(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The value of a counter, whose key is empty; with another key it is looked for more slowly."""

    value: float = msgspec.field(default=math.nan, name="")


_VALUES = msgspec.json.Decoder(list[CounterArguments])


class CounterEvents:
    """Collects the counter events of GPUs while a trace is read. `broken` counts events without a time or a number."""

    def __init__(self) -> None:
        self.broken = 0
        self.samples = SampleSeries()
        self._series: dict[tuple[object, str | None], int] = {}

    def take(self, events: Sequence[TraceEvent]) -> int:
        """Add the events that are samples of GPUs; returns the number of other counters."""
        names: list[Any] = list(map(OF_NAME, events))
        processes = set(map(OF_PROCESS, events))
        if len(processes) > 1:
            names = list(map(OF_BOTH, events))
        process = next(iter(processes))
        codes = {
            key: self._code(process, key) if len(processes) == 1 else self._code(*key) for key in dict.fromkeys(names)
        }
        code = np.fromiter(map(codes.__getitem__, names), np.int32, len(names))
        mine = code >= 0
        values, start = _values(events), np.fromiter(map(OF_TIME, events), np.float64, len(events))
        usable = mine & np.isfinite(values) & (np.abs(np.nan_to_num(start, nan=math.inf)) < LONGEST_TIME)
        self.broken += int((mine & ~usable).sum())
        self.samples.add(code[usable], whole_nanoseconds(start[usable]), values[usable])
        return len(events) - int(mine.sum())

    def _code(self, process: object, name: str | None) -> int:
        """The number of a series of samples; -1 if it is not one of a GPU."""
        code = self._series.get((process, name))
        if code is None:
            found = _OF_GPU.fullmatch(process) if isinstance(process, str) else None
            code = -1 if found is None else self.samples.series(int(found[1]), name or "")
            self._series[process, name] = code
        return code


def _values(events: Sequence[TraceEvent]) -> npt.NDArray[np.float64]:
    """The value of each counter; NaN if it has none."""
    try:
        found = _VALUES.decode(b"[" + b",".join(map(OF_ARGUMENTS, events)) + b"]")
        return np.fromiter(map(OF_VALUE, found), np.float64, len(found))
    except (msgspec.DecodeError, RecursionError):
        return np.array([_value(bytes(event.args)) for event in events], np.float64)


def _value(args: bytes) -> float:
    try:
        found = json.loads(args, strict=False)
    except (ValueError, RecursionError):
        return math.nan
    return event_number(next(iter(found.values()), None)) if isinstance(found, dict) else math.nan
