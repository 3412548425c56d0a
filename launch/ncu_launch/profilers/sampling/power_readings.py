"""Every NVML reading of GPUs while a program ran, in a file of its run folder: one JSON object per line.

Times are in ns since 1970 (UTC), so that they can be aligned with a recording of known start time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ncu_launch.files.atomic_files import write_whole
from ncu_launch.files.run_files import POWER
from ncu_launch.files.typed_json import UNREADABLE, record_of
from ncu_launch.profilers.sampling.gpu_sampler import GpuSampler

NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class PowerReading:
    """NVML's values for one GPU (`gpu` is its index, `uuid` as "GPU-...") at one time; None if not reported.

    `energy_j` is the energy since the driver was loaded.
    """

    gpu: str
    uuid: str | None
    utc_ns: int
    power_w: float | None
    energy_j: float | None
    sm_clock_hz: float | None
    memory_clock_hz: float | None
    temperature_c: float | None


def write_readings(folder: Path, samplers: Mapping[str, GpuSampler]) -> None:
    """Write the readings of GPUs, by GPU index, into a run folder. Raises `OSError` if they cannot be written."""
    lines = [
        json.dumps(asdict(PowerReading(
            device, sampler.uuid, round(one.at_s * NS_PER_S) + sampler.utc_of_zero_ns, one.power_w, one.energy_j,
            one.sm_clock_hz, one.memory_clock_hz, one.temperature_c,
        )))
        for device, sampler in samplers.items()
        for one in sampler.readings
    ]  # fmt: skip
    write_whole(folder / POWER, "".join(f"{line}\n" for line in lines).encode())


def read_readings(folder: Path) -> dict[str, list[PowerReading]]:
    """The readings of each GPU in order of time, by GPU index; {} without a readable file. Skips damaged lines."""
    found: dict[str, list[PowerReading]] = {}
    try:
        lines = (folder / POWER).read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return {}
    for line in lines:
        try:
            one = record_of(PowerReading, json.loads(line))
        except UNREADABLE:
            continue
        found.setdefault(one.gpu, []).append(one)
    return {gpu: sorted(some, key=lambda one: one.utc_ns) for gpu, some in found.items()}
