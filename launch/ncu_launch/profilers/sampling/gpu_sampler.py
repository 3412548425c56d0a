"""Read a GPU's power, clocks and temperature at a steady rate while something runs, and sum the readings up.

Mean power is computed from the GPU's energy counter, between its first and last observed change. It changes in steps,
about ten per second, so either time is late by at most one reading period. Without the counter, mean power is the mean
of the readings after the first second, since a reading is a mean over the last second on most GPUs. Every number comes
with its number of readings and its time span.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any

from ncu_launch.profilers.sampling.nvml import NvmlGpu, NvmlReading, opened_gpu, reasons_text

PERIOD_S = 0.05
AVERAGED_S = 1.0
"""Averaging time of a power reading (NVML API reference, nvmlDeviceGetPowerUsage)."""
BY_COUNTER, BY_READINGS = "the GPU's energy counter", "power readings"


@dataclass(frozen=True)
class SampledGpu:
    """Readings of a GPU summed up: means, the highest temperature, and all throttling reasons.

    `seconds` is the time from the first reading to the last, `hz` the reading rate. `gpm` has the means of GPM's
    metrics over that time, by column. None for values that NVML does not report.
    """

    seconds: float
    readings: int
    hz: float | None
    power_w: float | None
    power_basis: str | None
    sm_clock_hz: float | None
    memory_clock_hz: float | None
    temperature_c: float | None
    throttling: str | None
    gpm: dict[str, float] = field(default_factory=dict)

    @property
    def energy_j(self) -> float | None:
        """Mean power times the sampled time, in joules; None if the power is unknown."""
        return None if self.power_w is None else self.power_w * self.seconds

    def as_json(self) -> dict[str, Any]:
        """All fields, for the manifest of a run."""
        return {**asdict(self), "energy_j": self.energy_j}

    def in_words(self) -> str:
        """Number of readings, time, power and other known values, as the end of a sentence."""
        parts = [f"{self.readings} readings over {self.seconds:.3g} s"]
        if self.power_w is None:
            parts.append(f"no power: its energy counter did not move twice, none was read after {AVERAGED_S:g} s")
        elif self.energy_j is not None:
            energy = f"{self.energy_j:.3g}" if self.energy_j < 1000 else f"{self.energy_j:,.0f}"
            parts.append(f"{self.power_w:.3g} W by {self.power_basis}, {energy} J")
        if self.sm_clock_hz is not None:
            parts.append(f"SMs at {self.sm_clock_hz / 1e6:.0f} MHz")
        if self.temperature_c is not None:
            parts.append(f"at most {self.temperature_c:.0f} degrees Celsius")
        if self.throttling is not None:
            parts.append(f"clocks held down by: {self.throttling}")
        for name, what in (("gpm_sm_active_pct", "SMs"), ("gpm_tensor_active_pct", "tensor"), ("gpm_dram_pct", "DRAM")):
            if name in self.gpm:
                parts.append(f"{what} {self.gpm[name]:.3g} %")
        return ", ".join(parts)


class GpuSampler:
    """The readings of a GPU so far; the last one is taken when the block of `sampling` ends.

    `utc_of_zero_ns` is the time at which the readings' monotonic clock was 0, in ns since 1970 (UTC).
    """

    def __init__(self, uuid: str | None = None) -> None:
        self.uuid = uuid
        self.utc_of_zero_ns = time.time_ns() - time.monotonic_ns()
        self.readings: list[NvmlReading] = []
        self.gpm: dict[str, float] = {}

    @property
    def summary(self) -> SampledGpu | None:
        """The readings summed up; None with fewer than two."""
        return summed_up(self.readings, self.gpm) if len(self.readings) > 1 else None


@contextmanager
def sampling(gpu: NvmlGpu, period_s: float = PERIOD_S) -> Iterator[GpuSampler]:
    """Read `gpu` every `period_s` seconds within the block, in a separate thread, and once at its start and end."""
    sampler, ended = GpuSampler(gpu.uuid), threading.Event()

    def read_on() -> None:
        while not ended.wait(period_s):
            sampler.readings.append(gpu.read())

    thread = threading.Thread(target=read_on, daemon=True)
    with gpu.gpm() as gpm_so_far:
        sampler.readings.append(gpu.read())
        thread.start()
        try:
            yield sampler
        finally:
            ended.set()
            thread.join()
            sampler.readings.append(gpu.read())
            sampler.gpm = gpm_so_far()


@contextmanager
def sampling_gpus(devices: Sequence[str]) -> Iterator[dict[str, GpuSampler]]:
    """Read several GPUs within the block; yields their samplers by the given index or UUID.

    Raises `NcuBenchError` if one cannot be opened.
    """
    with ExitStack() as stack:
        yield {device: stack.enter_context(sampling(stack.enter_context(opened_gpu(device)))) for device in devices}


def summed_up(readings: Sequence[NvmlReading], gpm: dict[str, float]) -> SampledGpu:
    """Sum up two or more readings, in order."""
    seconds = readings[-1].at_s - readings[0].at_s
    power, basis = _mean_power(readings)
    bits = [reading.reasons for reading in readings if reading.reasons is not None]
    temperatures = [reading.temperature_c for reading in readings if reading.temperature_c is not None]
    return SampledGpu(
        seconds=seconds,
        readings=len(readings),
        hz=(len(readings) - 1) / seconds if seconds > 0 else None,
        power_w=power,
        power_basis=basis,
        sm_clock_hz=_mean([reading.sm_clock_hz for reading in readings]),
        memory_clock_hz=_mean([reading.memory_clock_hz for reading in readings]),
        temperature_c=max(temperatures, default=None),
        throttling=reasons_text(reduce(or_, bits)) if bits else None,
        gpm=gpm,
    )


def _mean_power(readings: Sequence[NvmlReading]) -> tuple[float | None, str | None]:
    counted = [(reading.at_s, reading.energy_j) for reading in readings if reading.energy_j is not None]
    moved = [now for before, now in pairwise(counted) if now[1] != before[1]]
    if len(moved) > 1 and moved[-1][1] > moved[0][1]:  # the counter restarts at 0 when the driver is reloaded
        return (moved[-1][1] - moved[0][1]) / (moved[-1][0] - moved[0][0]), BY_COUNTER
    settled = [one.power_w for one in readings if one.at_s - readings[0].at_s >= AVERAGED_S]
    power = _mean(settled)
    return power, None if power is None else BY_READINGS


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
