"""One GPU as NVIDIA's management library (NVML) reports it, through the package nvidia-ml-py (extra `nvml`).

Written from NVIDIA's NVML API reference, tested with a stand-in and run on an H100. A value is None if the driver or
GPU lacks its function, or if reading it fails otherwise.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_launch.files.toml_tables import table_beside

INSTALL = "pip install '.[nvml]'"
REASONS = {
    0x2: "applications clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "software thermal slowdown", 0x40: "hardware thermal slowdown", 0x80: "power brake", 0x100: "display clocks",
    0x200: "board limit", 0x400: "reliability",
}  # fmt: skip
"""Bits of nvmlClocksEventReason... (nvidia-ml-py 13.615.71, pynvml.py). Bit 0x1, an idle GPU, is not throttling."""
IDLE = 0x1
UNTHROTTLED = "none"
MEGA, MILLI = 1e6, 1e-3


@dataclass(frozen=True)
class NvmlReading:
    """NVML's values at one time, `at_s` by the monotonic clock; None if not reported.

    `power_w` is a mean over the last second on Ampere (except GA100) and newer, `energy_j` the energy since the driver
    was loaded, `reasons` the bits of throttling reasons.
    """

    at_s: float
    power_w: float | None = None
    energy_j: float | None = None
    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    temperature_c: float | None = None
    reasons: int | None = None


def gpm_metrics() -> dict[str, dict[str, Any]]:
    """The metrics requested from GPM, by column name: id, unit, factor and meaning."""
    return table_beside(__file__, "gpm")


def reasons_text(bits: int) -> str:
    """The throttling reasons of a bit mask in words; "none" if there are none."""
    unknown = bits & ~(IDLE | sum(REASONS))
    found = [name for bit, name in REASONS.items() if bits & bit] + ([f"unknown (0x{unknown:x})"] if unknown else [])
    return ", ".join(found) or UNTHROTTLED


def require_nvml() -> Any:
    """The module of nvidia-ml-py. Raises `NcuBenchError` if it is not installed."""
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise NcuBenchError(
            "Power and energy are read through NVML, and its package is not installed.", advice=f"Type: {INSTALL}"
        ) from error


@contextmanager
def opened_gpu(device: str) -> Iterator[NvmlGpu]:
    """Within the block, a GPU by its index or UUID. Raises `NcuBenchError` without package, driver or such a GPU."""
    nvml = require_nvml()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NcuBenchError(
            f"NVML could not be started: {error}.", "There is no NVIDIA driver, or it does not answer.",
            "Type: ncu-bench doctor",
        ) from error  # fmt: skip
    try:
        try:
            by_index = nvml.nvmlDeviceGetHandleByIndex
            handle = by_index(int(device)) if device.isdecimal() else nvml.nvmlDeviceGetHandleByUUID(device)
        except nvml.NVMLError as error:
            raise NcuBenchError(f"NVML has no GPU {device}: {error}.", advice="Type: nvidia-smi -L") from error
        yield NvmlGpu(nvml, handle)
    finally:
        nvml.nvmlShutdown()


class NvmlGpu:
    """A GPU that NVML has opened."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    @property
    def uuid(self) -> str | None:
        """The GPU's UUID, as "GPU-..."; None if NVML does not report it."""
        found = self._asked("nvmlDeviceGetUUID")
        return found.decode("ascii", "replace") if isinstance(found, bytes) else found

    def read(self) -> NvmlReading:
        """Read power, energy, clocks, temperature and throttling reasons once."""
        nvml = self._nvml
        power = self._asked("nvmlDeviceGetPowerUsage")
        energy = self._asked("nvmlDeviceGetTotalEnergyConsumption")
        at = time.monotonic()
        sm, memory = (self._asked("nvmlDeviceGetClockInfo", kind) for kind in (nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM))
        temperature = self._first(("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"), nvml.NVML_TEMPERATURE_GPU)
        reasons = self._first(("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"))
        return NvmlReading(
            at,
            None if power is None else power * MILLI,
            None if energy is None else energy * MILLI,
            None if sm is None else sm * MEGA,
            None if memory is None else memory * MEGA,
            None if temperature is None else float(temperature),
            None if reasons is None else int(reasons),
        )

    @contextmanager
    def gpm(self) -> Iterator[Callable[[], dict[str, float]]]:
        """Within the block, a function that returns the mean of each GPM metric since its start; {} without GPM."""
        nvml = self._nvml
        support = self._asked("nvmlGpmQueryDeviceSupport")
        if support is None or not support.isSupportedDevice:
            yield dict
            return
        samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
        try:
            began = self._asked("nvmlGpmSampleGet", samples[0])
            yield lambda: self._between(*samples) if began is not None else {}
        finally:
            for sample in samples:
                nvml.nvmlGpmSampleFree(sample)

    def _between(self, first: Any, last: Any) -> dict[str, float]:
        nvml = self._nvml
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
        asked.sample1, asked.sample2 = first, last
        asked.numMetrics = len(gpm_metrics())
        for place, entry in enumerate(gpm_metrics().values()):
            asked.metrics[place].metricId = entry["id"]
        try:
            nvml.nvmlGpmSampleGet(self._handle, last)
            answer = nvml.nvmlGpmMetricsGet(asked)
        except nvml.NVMLError:
            return {}
        return {
            name: float(answer.metrics[place].value * entry.get("factor", 1))
            for place, (name, entry) in enumerate(gpm_metrics().items())
            if answer.metrics[place].nvmlReturn == nvml.NVML_SUCCESS
        }

    def _asked(self, function: str, *arguments: Any) -> Any:
        """The result of an NVML function; None if this package, driver or GPU does not provide it."""
        try:
            return getattr(self._nvml, function)(self._handle, *arguments)
        except (AttributeError, self._nvml.NVMLError):
            return None

    def _first(self, functions: tuple[str, ...], *arguments: Any) -> Any:
        answers = (self._asked(function, *arguments) for function in functions)
        return next((answer for answer in answers if answer is not None), None)
