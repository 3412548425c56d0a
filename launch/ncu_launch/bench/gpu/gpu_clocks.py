"""Clocks, temperature and throttling reasons of a GPU, as the driver reports them."""

from __future__ import annotations

from dataclasses import dataclass

from ncu_launch.profilers.installed_tools import ask
from ncu_launch.profilers.sampling.nvml import reasons_text

QUERIES = tuple(f"clocks.sm,clocks.mem,temperature.gpu,clocks_{word}_reasons.active" for word in ("event", "throttle"))
"""Queries of nvidia-smi: drivers before 535 support only the name with `throttle`, newer ones both."""


@dataclass(frozen=True)
class GpuState:
    """Clocks in Hz, temperature in degrees Celsius, and throttling reasons in words; None if not reported."""

    sm_clock_hz: float | None
    memory_clock_hz: float | None
    temperature_c: float | None
    throttling: str | None


def gpu_state(device: str) -> GpuState | None:
    """The state of a GPU, given as index or UUID; None if nvidia-smi fails."""
    for query in QUERIES:
        answer = ask(["nvidia-smi", "-i", device, f"--query-gpu={query}", "--format=csv,noheader,nounits"])
        if answer is not None and answer[0] == 0:
            return parsed_state(answer[1])
    return None


def parsed_state(line: str) -> GpuState | None:
    """Parse the four cells that nvidia-smi printed; None if they have another form."""
    cells = [cell.strip() for cell in line.strip().split(",")]
    if len(cells) != 4:
        return None
    sm, memory, temperature = (float(cell) if cell.replace(".", "", 1).isdecimal() else None for cell in cells[:3])
    mega = 1e6
    return GpuState(
        None if sm is None else sm * mega, None if memory is None else memory * mega, temperature, _reasons(cells[3])
    )


def _reasons(cell: str) -> str | None:
    try:
        bits = int(cell, 16)
    except ValueError:
        return None
    return reasons_text(bits)
