"""A stand-in for pynvml, NVIDIA's package for NVML, for machines without a GPU. Its numbers are made up, not measured.

It gives out one GPU of 700 W, or what STAND_IN_NVML says. Its energy counter moves all the time, where that of a GPU
moves in steps: on a busy machine a step is seen late, and tests of time would fail now and then.

good        everything
old         no energy counter, no GPM, and only the names of functions that drivers before 535 have
no-driver   nvmlInit fails as it does without a driver
"""

# ruff: noqa: N802  the names are pynvml's
from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

POWER_W, SM_MHZ, MEMORY_MHZ, TEMPERATURE_C = 700.0, 1_755, 2_619, 61
UUID = "GPU-made-up"
GPM = {2: 97.5, 3: 40.0, 5: 61.25, 10: 33.0, 12: 5.0, 20: 2.0, 21: 3.0}
"""Made-up values of GPM by metric, in NVML's units; it has no NVLink and counts no FP64 and FP16."""

NVML_SUCCESS, NVML_ERROR_NOT_SUPPORTED = 0, 3
NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
NVML_GPM_METRICS_GET_VERSION = 1
POWER_CAP, IDLE = 0x4, 0x1


class NVMLError(Exception):
    """What every function raises."""


def _is(behaviour: str) -> bool:
    return os.environ.get("STAND_IN_NVML", "good") == behaviour


def _only_new() -> None:
    if _is("old"):
        raise NVMLError("Function Not Found")


def nvmlInit() -> None:
    if _is("no-driver"):
        raise NVMLError("NVML Shared Library Not Found")


def nvmlShutdown() -> None:
    pass


def nvmlDeviceGetHandleByIndex(index: int) -> str:
    if index:
        raise NVMLError("Invalid Argument")
    return UUID


def nvmlDeviceGetHandleByUUID(uuid: str) -> str:
    if uuid != UUID:
        raise NVMLError("Not Found")
    return uuid


def nvmlDeviceGetUUID(handle: str) -> str:
    return handle


def nvmlDeviceGetPowerUsage(handle: str) -> int:
    return round(POWER_W * 1000)


def nvmlDeviceGetTotalEnergyConsumption(handle: str) -> int:
    _only_new()
    return round(time.monotonic() * POWER_W * 1000)


def nvmlDeviceGetClockInfo(handle: str, kind: int) -> int:
    return {NVML_CLOCK_SM: SM_MHZ, NVML_CLOCK_MEM: MEMORY_MHZ}[kind]


def nvmlDeviceGetTemperatureV(handle: str, sensor: int) -> int:
    _only_new()
    return TEMPERATURE_C


def nvmlDeviceGetTemperature(handle: str, sensor: int) -> int:
    return TEMPERATURE_C


def nvmlDeviceGetCurrentClocksEventReasons(handle: str) -> int:
    _only_new()
    return POWER_CAP | IDLE


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: str) -> int:
    return POWER_CAP


def nvmlGpmQueryDeviceSupport(handle: str) -> Any:
    return SimpleNamespace(isSupportedDevice=int(not _is("old")))


def nvmlGpmSampleAlloc() -> Any:
    return SimpleNamespace(at=None)


def nvmlGpmSampleFree(sample: Any) -> None:
    sample.at = None


def nvmlGpmSampleGet(handle: str, sample: Any) -> Any:
    sample.at = time.monotonic()
    return sample


class c_nvmlGpmMetricsGet_t:  # noqa: N801  pynvml's name
    """The structure that GPM fills."""

    def __init__(self) -> None:
        self.version = self.numMetrics = 0
        self.sample1: Any = None
        self.sample2: Any = None
        self.metrics = [SimpleNamespace(metricId=0, nvmlReturn=-1, value=0.0) for _ in range(333)]


def nvmlGpmMetricsGet(asked: c_nvmlGpmMetricsGet_t) -> c_nvmlGpmMetricsGet_t:
    if asked.version != NVML_GPM_METRICS_GET_VERSION or not asked.sample1.at < asked.sample2.at:
        raise NVMLError("Invalid Argument")
    for metric in asked.metrics[: asked.numMetrics]:
        known = metric.metricId in GPM
        metric.nvmlReturn = NVML_SUCCESS if known else NVML_ERROR_NOT_SUPPORTED
        metric.value = GPM.get(metric.metricId, 0.0)
    return asked
