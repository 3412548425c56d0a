"""The kernel-level roofline: points, ceilings and ridge points. Drawing them is `ncu_tools.report.roofline_plot`.

x is arithmetic intensity, FLOPs per DRAM byte; y is achieved FLOP/s over the kernel's own time. A slanted ceiling is a
bandwidth, a flat one a peak, and they meet at the ridge point: peak / bandwidth. Which bytes: those between L2 and
device memory, as counted with the caches in the state the profiler left them (docs/numbers.md).
Source of the model: Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
from ncu_parsers import tables

from ncu_tools.ceilings import Ceiling, ceilings_of, unit_title
from ncu_tools.hotspots import Hotspot, hotspots
from ncu_tools.machine import Machine

DRAM_BYTE = "DRAM byte"
OPERATOR_BYTE = "byte of inputs, weights and outputs"
BY_OPERATOR = {"operators", "estimate"}
"""Values of `source` whose bytes are those of operators."""


@dataclass(frozen=True)
class Ridge:
    """Where a bandwidth and a peak of one device meet: `intensity` in FLOP/B, `value` in FLOP/s."""

    device: str
    unit: str
    intensity: float
    value: float


@dataclass(frozen=True)
class Point:
    """One kernel of one run."""

    run: str
    hotspot: Hotspot

    @property
    def place(self) -> tuple[float, float]:
        """Arithmetic intensity and FLOP/s; 0 for what is not known."""
        return self.hotspot.arithmetic_intensity or 0.0, self.hotspot.flops_per_s or 0.0


@dataclass
class Roofline:
    """All that a roofline plot shows, and in `others` the ceilings that only its tables do."""

    points: list[Point]
    ceilings: list[Ceiling] = field(default_factory=list)
    others: list[Ceiling] = field(default_factory=list)
    ridges: list[Ridge] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bytes_title: str = DRAM_BYTE

    @property
    def drawable(self) -> list[Point]:
        """Points that have a place on logarithmic axes."""
        return [point for point in self.points if min(point.place) > 0]


def roofline(runs: dict[str, pa.Table], machine: Machine | None = None, *, group: str = "name") -> Roofline:
    """The roofline of some runs (by name), every kernel a point."""
    result = Roofline([], bytes_title=_bytes_title(runs))
    for name, table in runs.items():
        ceilings = ceilings_of(table, machine)
        spots = hotspots(table, ceilings, group=group)
        result.points += [Point(name, row) for row in spots.rows]
        result.notes += [note for note in spots.notes if note not in result.notes]
        result.ceilings += [ceiling for ceiling in ceilings.drawn if ceiling not in result.ceilings]
        result.others += [ceiling for ceiling in ceilings.others if ceiling not in result.others]
    units = {point.hotspot.unit for point in result.points}
    result.ceilings, result.others = worth_drawing(result.ceilings, units), worth_drawing(result.others, units)
    result.ridges = ridges(result.ceilings)
    _note_what_is_missing(result)
    return result


def _bytes_title(runs: dict[str, pa.Table]) -> str:
    """Which bytes the x axis is per: those of operators are no DRAM bytes."""
    sources = {source for table in runs.values() for source in tables.words(table, "source")}
    if sources.isdisjoint(BY_OPERATOR):
        return DRAM_BYTE
    return OPERATOR_BYTE if sources <= BY_OPERATOR else f"{DRAM_BYTE}; of operators, per {OPERATOR_BYTE}"


def of_machine(machine: Machine) -> Roofline:
    """The bare roofline of a machine: every ceiling, no points."""
    rates = [*machine.bandwidths, *machine.peaks]
    ceilings = [Ceiling(machine.name, rate.unit, rate.value, rate.source) for rate in rates]
    sparse = [
        Ceiling(machine.name, rate.unit, rate.sparse, rate.source, sparse=True)
        for rate in rates
        if rate.sparse is not None
    ]
    return Roofline([], ceilings, sparse, ridges(ceilings))


ALWAYS_DRAWN = ("dram", "fp32")


def worth_drawing(ceilings: list[Ceiling], units: set[str | None]) -> list[Ceiling]:
    """The ceilings that mean something for these points: DRAM, FP32 and every unit that did most of a kernel's work.

    L2 and L1 ceilings bound other bytes than those of the x axis and are left out.
    """
    keep = {*ALWAYS_DRAWN, *units}
    return [ceiling for ceiling in ceilings if ceiling.unit in keep and not ceiling.unit.startswith("tensor_int")]


def ridges(ceilings: list[Ceiling]) -> list[Ridge]:
    """The ridge point of every peak with its device's DRAM bandwidth."""
    bandwidth = {ceiling.device: ceiling.value for ceiling in ceilings if ceiling.unit == "dram"}
    return [
        Ridge(ceiling.device, ceiling.unit, ceiling.value / bandwidth[ceiling.device], ceiling.value)
        for ceiling in ceilings
        if not ceiling.is_bandwidth and ceiling.device in bandwidth
    ]


def _note_what_is_missing(result: Roofline) -> None:
    undrawn = len(result.points) - len(result.drawable)
    if undrawn:
        result.notes.append(
            f"{undrawn} of {len(result.points)} kernels have no place on the plot: FLOPs, bytes or time zero or unknown"
        )
    if not result.ceilings:
        result.notes.append(
            "no ceiling is known, so the plot shows the points alone; name a machine with --machine NAME"
        )


def others_beside(ceiling: Ceiling, others: list[Ceiling]) -> list[tuple[str, Ceiling]]:
    """The ceilings of the same unit and device that are not drawn, each with what sets it apart from `ceiling`."""
    beside = [other for other in others if (other.device, other.unit) == (ceiling.device, ceiling.unit)]
    return [(_what_sets_apart(other, ceiling), other) for other in beside]


def _what_sets_apart(other: Ceiling, ceiling: Ceiling) -> str:
    words = (other.instruction, "sparse" * other.sparse, other.kind if other.kind != ceiling.kind else "")
    return " ".join(word for word in words if word)


def ceiling_label(ceiling: Ceiling, devices: int, units: str = "") -> str:
    """The text beside a ceiling of `units` (its own when empty); names the device where there are several."""
    amount, unit = (ceiling.value / 1e9, "GB/s") if ceiling.is_bandwidth else (ceiling.value / 1e12, "TFLOP/s")
    title = f"{units or unit_title(ceiling.unit)} {amount:,.4g} {unit}"
    return f"{ceiling.device}: {title}" if devices > 1 else title
