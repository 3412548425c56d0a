"""Columns and note of `bench --power`: energy, power and activity of a GPU, sampled after the timing of each point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ncu_launch.bench.gpu.iteration_energy import UNIT_OF

from ncu_tools.numbers.number_format import digits
from ncu_tools.report.columns.registry import columns

SHOWN = columns("energy_j~1 flops_per_j~3 power_w~2 gpm_tensor_active_pct~5 gpm_dram_pct~4")
EVERY = columns(" ".join(UNIT_OF))

Row = dict[str, Any]


def power_notes(rows: Sequence[Row]) -> list[str]:
    """The note on sampling: rate, time and source; [] if nothing was sampled."""
    sampled = [row for row in rows if row.get("sampled_s")]
    if not sampled:
        return []
    rates, seconds = ([row[name] for row in sampled if row.get(name)] for name in ("sampling_hz", "sampled_s"))
    by = " and ".join(sorted({row["power_basis"] for row in sampled if row.get("power_basis")})) or "nothing"
    held = sorted({row["sampled_throttling"] for row in sampled if row.get("sampled_throttling") not in (None, "none")})
    return [
        f"~ is sampled through NVML, {_range(rates)} times a second for {_range(seconds)} s after timing, while the "
        f"iteration repeated; mean power is by {by}, energy is power times time of an iteration, FLOPs are formulas"
        + (f"; clocks were held down then: {', '.join(held)}" if held else "")
    ]


def _range(values: Sequence[float]) -> str:
    least, most = digits(min(values)), digits(max(values))
    return least if least == most else f"{least} to {most}"
