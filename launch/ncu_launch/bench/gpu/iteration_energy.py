"""Power and energy of an iteration: after timing, it is repeated for seconds while NVML is read.

An iteration includes the final wait for the GPU, as in timing. Its energy is mean power times the mean time of an
iteration in this run. Values are sampled; the sampling rate and time are recorded too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_launch.profilers.sampling.gpu_sampler import sampling
from ncu_launch.profilers.sampling.nvml import NvmlGpu, gpm_metrics, opened_gpu

VALUES, UNITS = "sampled_values", "sampled_units"
"""Keys of a row: values and units of sampled quantities, which become columns of the table."""
REPEATED_S = 3.0
"""Seconds for which an iteration is repeated: power readings are means over the last second."""
ENERGY, FLOPS_PER_J = "energy_j", "flops_per_j"
UNIT_OF = {
    ENERGY: "J", FLOPS_PER_J: "FLOP/J", "power_w": "W", "power_basis": "", "sampled_clock_hz": "hz",
    "sampled_memory_clock_hz": "hz", "sampled_temperature_c": "degree Celsius", "sampled_throttling": "",
    "sampled_s": "s", "sampling_hz": "hz", "sampled_iterations": "",
    **{name: entry["unit"] for name, entry in gpm_metrics().items()},
}  # fmt: skip
NOT_ALONE = "no energy of the backward pass: each repetition also ran the forward pass"

Row = dict[str, Any]


def sampled_row(work: Callable[[], None], device: str, *, is_backward: bool = False) -> Row:
    """Sample the GPU `device` (index or UUID) while `work` repeats; returns a row with values, units and notes.

    `work` is one complete iteration. Without NVML, a note explains why there are no values.
    """
    try:
        with opened_gpu(device) as gpu:
            values = repeated(work, gpu)
    except NcuBenchError as error:
        return {"notes": [f"power was not sampled: {error.what}"]}
    if is_backward:
        values.pop(ENERGY, None)
    return {
        VALUES: values,
        UNITS: {name: UNIT_OF[name] for name in values},
        "notes": [NOT_ALONE] if is_backward else [],
    }


def repeated(work: Callable[[], None], gpu: NvmlGpu) -> Row:
    """Repeat `work` for `REPEATED_S` while `gpu` is read; returns the known values by column."""
    iterations, began = 0, time.monotonic()
    with sampling(gpu) as sampler:
        while time.monotonic() - began < REPEATED_S or not iterations:
            work()
            iterations += 1
        lasted = time.monotonic() - began
    found = sampler.summary
    if found is None:
        return {}
    values = {
        ENERGY: None if found.power_w is None else found.power_w * lasted / iterations,
        "power_w": found.power_w,
        "power_basis": found.power_basis,
        "sampled_clock_hz": found.sm_clock_hz,
        "sampled_memory_clock_hz": found.memory_clock_hz,
        "sampled_temperature_c": found.temperature_c,
        "sampled_throttling": found.throttling,
        "sampled_s": found.seconds,
        "sampling_hz": found.hz,
        "sampled_iterations": iterations,
        **found.gpm,
    }
    return {name: value for name, value in values.items() if value is not None}


def with_flops_per_joule(row: Row) -> Row:
    """The row of a point with FLOPs per joule, if its FLOPs by formulas and its energy are known."""
    energy, flops = (row.get(VALUES) or {}).get(ENERGY), row.get("expected_flops")
    if not energy or flops is None or row.get("expected_why_not"):
        return row
    values = {**row[VALUES], FLOPS_PER_J: flops / energy}
    return {**row, VALUES: values, UNITS: {**row[UNITS], FLOPS_PER_J: UNIT_OF[FLOPS_PER_J]}}
