"""Which ceilings hold for which launch, and who says so.

In order: the report's own peaks at the profiled clock; the machine file of the device the report names; the machine
that the user named; for the few compute capabilities that stand for one family of boards, what the files of that
family agree on. A compute capability alone never gives a bandwidth that its boards do not share, and RTX boards are
never guessed from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from ncu_launch.metrics import TENSOR_FLOAT_PRECISIONS, TENSOR_INTEGER_PRECISIONS
from ncu_parsers import tables
from ncu_parsers.tables import Floats

from ncu_tools.machine import Machine, Rate, machine_of_device, machines_of_capability

PEAK_COLUMNS: dict[str, str] = {
    **{precision: f"peak_flops_{precision}" for precision in ("fp64", "fp32", "fp16")},
    **{f"tensor_{precision}": f"peak_tensor_flops_{precision}" for precision in TENSOR_FLOAT_PRECISIONS},
    **{f"tensor_{precision}": f"peak_tensor_ops_{precision}" for precision in TENSOR_INTEGER_PRECISIONS},
    "dram": "peak_dram_bytes",
    "l2": "peak_l2_bytes",
    "l1": "peak_l1_bytes",
}
"""Unit or memory level -> the column that holds its ceiling."""

UNIT_TITLES = {"dram": "DRAM", "l2": "L2", "l1": "L1"}


def unit_title(unit: str) -> str:
    """How a unit or level is called in tables and plots: `tensor_bf16` is "tensor BF16"."""
    if unit in UNIT_TITLES:
        return UNIT_TITLES[unit]
    return f"tensor {unit.removeprefix('tensor_').upper()}" if unit.startswith("tensor_") else unit.upper()


@dataclass(frozen=True)
class Ceiling:
    """One ceiling of one device: FLOP/s (OP/s, B/s) of a unit or memory level, and where it comes from."""

    device: str
    unit: str
    value: float
    source: str

    @property
    def is_bandwidth(self) -> bool:
        """Whether it limits bytes rather than operations."""
        return self.unit in UNIT_TITLES


@dataclass
class Ceilings:
    """The ceilings of every launch of a table: `per_launch[unit]` is NaN where none is known."""

    per_launch: dict[str, Floats]
    drawn: list[Ceiling] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Fallback:
    """What a machine file gives for the launches of one device."""

    rates: dict[str, Rate]
    says: str
    boost_clock_hz: float | None


def ceilings_of(table: pa.Table, machine: Machine | None = None) -> Ceilings:
    """The ceilings for each launch of `table`; `machine` is the one the user named, if any."""
    result = Ceilings({unit: tables.floats(table, column).copy() for unit, column in PEAK_COLUMNS.items()})
    names = tables.words(table, "device_name")
    capabilities = tables.words(table, "compute_capability")
    devices: dict[tuple[str | None, str | None], list[int]] = {}
    for row, device in enumerate(zip(names, capabilities, strict=True)):
        devices.setdefault(device, []).append(row)
    clocks = tables.floats(table, "sm_clock_hz")
    for (name, capability), rows in devices.items():
        at = np.array(rows)
        title = (
            name
            or (machine.name if machine else None)
            or (f"compute capability {capability}" if capability else "unknown device")
        )
        _draw_report(result, title, at, clocks)
        fallback = _fallback(name, capability, machine, result.notes, _needs_more(result, at))
        if fallback is not None:
            _fill(result, title, at, fallback, clocks)
    return result


def _needs_more(result: Ceilings, at: Floats) -> bool:
    return any(np.isnan(result.per_launch[unit][at]).any() for unit in ("dram", "fp32"))


def _draw_report(result: Ceilings, title: str, at: Floats, clocks: Floats) -> None:
    """Ceilings of the report itself, as one line each: they differ a little from launch to launch with the clock."""
    for unit, values in result.per_launch.items():
        known = values[at][~np.isnan(values[at])]
        if known.size:
            result.drawn.append(Ceiling(title, unit, float(np.median(known)), f"report, {_clock(clocks[at])}"))


def _clock(clocks: Floats) -> str:
    known = clocks[~np.isnan(clocks)]
    return f"SM clock {np.median(known) / 1e9:.2f} GHz" if known.size else "at the profiled clock"


def _fallback(
    name: str | None, capability: str | None, machine: Machine | None, notes: list[str], needed: bool
) -> _Fallback | None:
    known = machine_of_device(name)
    if known is not None:
        return _Fallback(known.rates, f"machine file {known.id}", known.boost_clock_hz)
    if machine is not None:
        return _Fallback(machine.rates, f"--machine {machine.id}", machine.boost_clock_hz)
    family = [candidate for candidate in machines_of_capability(capability) if candidate.stands_for_compute_capability]
    agreed = _agreed(family) if name is None and family else {}
    if agreed:
        missing = [unit_title(unit) for unit in ("fp32", "dram") if unit not in agreed]
        if needed:
            unknown = f"; they differ in {' and '.join(missing)}, which have no ceiling" if missing else ""
            notes.append(
                f"the report names no device: ceilings are what {_ids(family)} agree on (compute capability "
                f"{capability}){unknown}. Say --machine NAME to choose one"
            )
        return _Fallback(agreed, f"compute capability {capability}: {_ids(family)} agree", family[0].boost_clock_hz)
    if needed:
        others = [candidate.id for candidate in machines_of_capability(capability)] if capability else []
        known_ones = f" (of compute capability {capability} there are {', '.join(others)})" if others else ""
        # What has a name and no compute capability was not measured by ncu.
        own = (
            ", or collect the report's own with --section SpeedOfLight_RooflineChart" if capability or not name else ""
        )
        notes.append(
            f"no ceilings are known for {name or 'this device'}{known_ones}: choose a machine with --machine NAME{own}"
        )
    return None


def _ids(family: Sequence[Machine]) -> str:
    return ", ".join(machine.id for machine in family)


def _agreed(family: Sequence[Machine]) -> dict[str, Rate]:
    """The rates all machines of a family have alike, within 1 %."""
    first = family[0]
    return {
        unit: rate
        for unit, rate in first.rates.items()
        if all(unit in other.rates and abs(other.rates[unit].value / rate.value - 1) < 0.01 for other in family)
    }


def _fill(result: Ceilings, title: str, at: Floats, fallback: _Fallback, clocks: Floats) -> None:
    used = []
    for unit, rate in fallback.rates.items():
        if unit not in result.per_launch:
            continue
        values = result.per_launch[unit]
        missing = at[np.isnan(values[at])]
        if missing.size:
            values[missing] = rate.value
            used.append(unit)
            if missing.size == at.size:
                result.drawn.append(Ceiling(title, unit, rate.value, f"{fallback.says}; {rate.source}"))
    profiled = clocks[at][~np.isnan(clocks[at])]
    if (
        "fp32" in used
        and profiled.size
        and fallback.boost_clock_hz
        and np.median(profiled) < 0.95 * fallback.boost_clock_hz
    ):
        result.notes.append(
            f"{title} was profiled at {np.median(profiled) / 1e9:.2f} GHz; its data-sheet ceilings assume "
            f"{fallback.boost_clock_hz / 1e9:.2f} GHz, so per cent of the bound read low"
        )
