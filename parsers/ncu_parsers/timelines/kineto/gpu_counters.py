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

from ncu_parsers.timelines.activity.activity import Integers
from ncu_parsers.timelines.activity.samples import ENVIRONMENT, GpuSamples, SampledActivity, column_of_trace
from ncu_parsers.timelines.kineto.chrome_trace import LONGEST_TIME, TraceEvent, event_number, whole_nanoseconds

COUNTER = "C"
FINER = "a shorter sampling_interval_ms of torch.profiler.PerformanceMetricsConfig samples more often"
PER_KERNEL = ("Cycles (Current Kernel)",)
"""Counters with one value per kernel, derived from the kernel's duration; they are not samples."""
ENVIRONMENT_LABELS = {
    "Power (W)": ("power_w", 1.0), "Temperature (C)": ("temperature_c", 1.0), "SM Clock (MHz)": ("sm_clock_hz", 1e6),
    "Memory Clock (MHz)": ("memory_clock_hz", 1e6), "Fan Speed (%)": ("fan_pct", 1.0),
}  # fmt: skip
"""Cuspy's labels for the driver's values: our name, and the factor to our unit."""
_OF_GPU = re.compile(r"GPU (\d{1,6}) Counters")
_VALUES = msgspec.json.Decoder(list[dict[str, float]])


class CounterEvents:
    """Collects the counter events of GPUs while a trace is read. `broken` counts events without a time or a number."""

    def __init__(self) -> None:
        self.broken = 0
        self._series: dict[tuple[object, str | None], int] = {}
        self._gpus: list[tuple[int, str]] = []
        self._factors: list[float] = []
        self._start, self._value, self._code = array("d"), array("d"), array("i")

    def __len__(self) -> int:
        return len(self._start)

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
        self._start.frombytes(start[usable].tobytes())
        self._value.frombytes(values[usable].tobytes())
        self._code.frombytes(np.frombuffer(codes, np.int32)[usable].tobytes() if mine else b"")
        return len(events) - len(mine)

    def _new_series(self, event: TraceEvent) -> int:
        """Number a new series; -1 if it is not a sample of a GPU."""
        found = _OF_GPU.fullmatch(event.pid) if isinstance(event.pid, str) else None
        code = -1
        if found is not None and event.name and event.name not in PER_KERNEL:
            code = len(self._gpus)
            name, factor = ENVIRONMENT_LABELS.get(event.name, (column_of_trace(event.name), 1.0))
            self._gpus.append((int(found[1]), name))
            self._factors.append(factor)
        self._series[event.pid, event.name] = code
        return code

    def sampled(self, begin: int | None, end: int | None) -> SampledActivity:
        """The samples within `begin` to `end` (ns); earlier and later samples are left out and counted in a note."""
        start = whole_nanoseconds(np.frombuffer(self._start, np.float64))
        code = np.frombuffer(self._code, np.int32)
        value = np.frombuffer(self._value, np.float64) * np.array(self._factors or [1.0])[code]
        metrics, environment = dict[int, GpuSamples](), dict[int, GpuSamples]()
        left_out = 0
        for of_driver, gpus in ((False, metrics), (True, environment)):
            for gpu in sorted({number for number, _ in self._gpus}):
                own = [at for at, (number, name) in enumerate(self._gpus)
                       if number == gpu and (name in ENVIRONMENT) == of_driver]  # fmt: skip
                rows = np.flatnonzero(np.isin(code, own))
                found = self._samples(start[rows], value[rows], code[rows])
                inside = np.ones(len(found), np.bool_)
                if begin is not None and end is not None:
                    inside = (found.ends > begin) & (found.times < end)
                left_out += len(found) - int(inside.sum())
                if inside.any():
                    values = {name: one[inside] for name, one in found.values.items()}
                    gpus[gpu] = GpuSamples(found.times[inside], values)
        notes = [f"{left_out:,} samples of GPUs lie before or after what was recorded, and were left out"]
        return SampledActivity(
            metrics, tuple(notes if left_out else []), sampled_by="PyTorch's profiler", finer=FINER,
            environment=environment,
        )  # fmt: skip

    def _samples(self, start: Integers, value: npt.NDArray[np.float64], code: npt.NDArray[np.int32]) -> GpuSamples:
        """The samples of one GPU; if a trace repeats a time of a metric, its last value counts."""
        times = np.unique(start)
        values: dict[str, npt.NDArray[np.float64]] = {}
        for one in np.unique(code).tolist():
            own = values.setdefault(self._gpus[one][1], np.full(len(times), np.nan))
            own[np.searchsorted(times, start[code == one])] = value[code == one]
        return GpuSamples(times, values)


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
