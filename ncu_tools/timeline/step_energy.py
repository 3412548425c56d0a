"""Sampled power of a GPU during its steps, and the resulting energy.

Power is read about ten times a second, and on most GPUs a reading is a mean over the last second, so energy of shorter
steps is smeared over their neighbours. Steps with fewer than two readings get no energy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import numpy as np
from ncu_launch.profilers.sampling.gpu_sampler import summed_up
from ncu_launch.profilers.sampling.nvml import NvmlReading
from ncu_launch.profilers.sampling.power_readings import PowerReading
from ncu_parsers.timelines.activity.activity import Activity

from ncu_tools.numbers.number_format import counted, digits

NS_PER_S = 1_000_000_000
RECORDED_POWER = (
    "~ is what the driver told the profiler of the GPU's power: energy is the mean power of the readings in a step "
    "times its time; a reading may be a mean over up to a second, and steps with fewer than two have none"
)
"""The note on power readings that come from the recording itself."""


@dataclass(frozen=True)
class StepEnergy:
    """Power and energy of a GPU in one step.

    `power_w` is the trapezoidal mean between the first and the last of the `readings` in the step, which are
    `sampled_s` apart; `energy_j` is that times the step's span. The clock is a mean, the temperature the maximum.
    """

    energy_j: float
    power_w: float
    readings: int
    sampled_s: float
    sm_clock_hz: float | None
    temperature_c: float | None


def energy_between(readings: Sequence[PowerReading], start_ns: int, end_ns: int) -> StepEnergy | None:
    """The energy of a GPU from `start_ns` to `end_ns` (since 1970), from its readings in order of time.

    None if fewer than two readings lie in this time.
    """
    own = [(one.utc_ns, one.power_w, one) for one in readings if start_ns <= one.utc_ns < end_ns]
    powers = [(at, power) for at, power, _ in own if power is not None]
    if len(powers) < 2 or powers[-1][0] <= powers[0][0]:
        return None
    joules = sum((left[1] + right[1]) / 2 * (right[0] - left[0]) for left, right in pairwise(powers)) / NS_PER_S
    sampled_s = (powers[-1][0] - powers[0][0]) / NS_PER_S
    clocks = [one.sm_clock_hz for _, _, one in own if one.sm_clock_hz is not None]
    return StepEnergy(
        energy_j=joules / sampled_s * (end_ns - start_ns) / NS_PER_S,
        power_w=joules / sampled_s,
        readings=len(powers),
        sampled_s=sampled_s,
        sm_clock_hz=fmean(clocks) if clocks else None,
        temperature_c=max((one.temperature_c for _, _, one in own if one.temperature_c is not None), default=None),
    )


def readings_of(
    activity: Activity, gpu: tuple[int, int], power: Mapping[str, Sequence[PowerReading]]
) -> list[PowerReading]:
    """The readings of the GPU with a process and device number, matched by UUID.

    If either side lacks UUIDs, they are matched only if one GPU was read and the recording has one GPU.
    """
    wanted = _plain(activity.uuids.get(gpu))
    known = {_plain(some[0].uuid): some for some in power.values() if some}
    if wanted is not None and None not in known:
        return list(known.get(wanted, []))
    return list(*known.values()) if len(known) == 1 and len(activity.operations.gpus()) == 1 else []


def recorded_readings(activity: Activity, gpu: tuple[int, int]) -> list[PowerReading]:
    """The readings of a GPU in the recording itself, with `utc_ns` in ns of the recording; [] if it has none."""
    samples = activity.sampled.environment.get(activity.sampled.number(*gpu))
    if samples is None:
        return []

    def of(name: str) -> list[float | None]:
        values = samples.values.get(name, np.full(len(samples), np.nan)).tolist()
        return [None if value != value else value for value in values]

    return [
        PowerReading(str(gpu[1]), None, time, power, None, clock, memory, temperature)
        for time, power, clock, memory, temperature in zip(
            samples.times.tolist(), of("power_w"), of("sm_clock_hz"), of("memory_clock_hz"), of("temperature_c"),
            strict=True,
        )
    ]  # fmt: skip


def _plain(uuid: str | None) -> str | None:
    """A GPU's UUID in lower case without "GPU-", which nsys leaves out."""
    return None if uuid is None else uuid.removeprefix("GPU-").lower()


def power_of_whole_run(power: Mapping[str, Sequence[PowerReading]]) -> list[str]:
    """A sentence per GPU with mean power and energy over all its readings; none for a GPU with one reading."""
    readings = {
        gpu: [
            NvmlReading(
                one.utc_ns / NS_PER_S, one.power_w, one.energy_j, one.sm_clock_hz, one.memory_clock_hz,
                one.temperature_c,
            )
            for one in some
        ]
        for gpu, some in power.items()
    }  # fmt: skip
    return [
        f"GPU {gpu} sampled through NVML while the whole program ran: {summed_up(some, {}).in_words()}."
        for gpu, some in readings.items()
        if len(some) > 1
    ]


def power_note(power: Mapping[str, Sequence[PowerReading]]) -> str:
    """A sentence on how often, how long and on how many GPUs power was sampled."""
    some = [readings for readings in power.values() if len(readings) > 1]
    seconds = max((one[-1].utc_ns - one[0].utc_ns) / NS_PER_S for one in some)
    rates = [(len(one) - 1) / ((one[-1].utc_ns - one[0].utc_ns) / NS_PER_S) for one in some]
    return (
        f"~ is sampled through NVML, {digits(fmean(rates))} times a second for {digits(seconds)} s on "
        f"{counted(len(some), 'GPU', 'GPUs')}: energy is the mean power of the readings in a step times its time; a "
        "reading is a mean over the last second on most GPUs, and steps with fewer than two have none"
    )
