"""Samples of GPUs that PyTorch's profiler took, while a trace is read: series by GPU and by its name for the metric."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from ncu_parsers.timelines.activity.activity import Integers
from ncu_parsers.timelines.activity.samples import ENVIRONMENT, GpuSamples, SampledActivity, column_of_trace

FINER = "a shorter sampling_interval_ms of torch.profiler.PerformanceMetricsConfig samples more often"
PER_KERNEL = ("Cycles (Current Kernel)",)
"""Counters with one value per kernel, derived from the kernel's duration; they are not samples."""
ENVIRONMENT_LABELS = {
    "Power (W)": ("power_w", 1.0), "Temperature (C)": ("temperature_c", 1.0), "SM Clock (MHz)": ("sm_clock_hz", 1e6),
    "Memory Clock (MHz)": ("memory_clock_hz", 1e6), "Fan Speed (%)": ("fan_pct", 1.0),
}  # fmt: skip
"""Cuspy's labels for the driver's values: our name, and the factor to our unit."""


class SampleSeries:
    """Collects samples in any order; each series, a metric of a GPU, has a number."""

    def __init__(self) -> None:
        self._gpus: list[tuple[int, str]] = []
        self._factors: list[float] = []
        self._start, self._value, self._code = array("q"), array("d"), array("i")

    def __len__(self) -> int:
        return len(self._start)

    def series(self, gpu: int, label: str) -> int:
        """The number of a new series; -1 if the label is not one of samples."""
        if not label or label in PER_KERNEL:
            return -1
        name, factor = ENVIRONMENT_LABELS.get(label, (column_of_trace(label), 1.0))
        self._gpus.append((gpu, name))
        self._factors.append(factor)
        return len(self._gpus) - 1

    def add(self, series: npt.NDArray[np.int32], start: Integers, value: npt.NDArray[np.float64]) -> None:
        """Add samples: the number of the series, ns and finite value of each."""
        self._code.frombytes(series.tobytes())
        self._start.frombytes(start.tobytes())
        self._value.frombytes(value.tobytes())

    def sampled(self, begin: int | None, end: int | None) -> SampledActivity:
        """The samples from `begin` to `end` (ns; None: all); others are left out and counted in a note."""
        start = np.frombuffer(self._start, np.int64)
        code = np.frombuffer(self._code, np.int32)
        value = np.frombuffer(self._value, np.float64) * np.array(self._factors or [1.0])[code]
        metrics, environment = dict[int, GpuSamples](), dict[int, GpuSamples]()
        left_out = 0
        for of_driver, gpus in ((False, metrics), (True, environment)):
            for gpu in sorted({number for number, _ in self._gpus}):
                own = np.array([number == gpu and (name in ENVIRONMENT) == of_driver for number, name in self._gpus])
                rows = own[code]
                if not rows.any():
                    continue
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
            environment=environment, events=len(self),
        )  # fmt: skip

    def _samples(self, start: Integers, value: npt.NDArray[np.float64], code: npt.NDArray[np.int32]) -> GpuSamples:
        """The samples of one GPU; if a trace repeats a time of a metric, its last value counts."""
        times = np.sort(start)  # mostly in order, which np.unique does not make use of
        times = times[np.append(True, times[1:] != times[:-1])]
        values: dict[str, npt.NDArray[np.float64]] = {}
        for one in np.flatnonzero(np.bincount(code)).tolist():
            own, mine = values.setdefault(self._gpus[one][1], np.full(len(times), np.nan)), code == one
            own[np.searchsorted(times, start[mine])] = value[mine]
        return GpuSamples(times, values)
