"""The instruction roofline of kernels: warp instructions per second against warp instructions per transaction.

A transaction is a sector of 32 bytes at DRAM, L2 and L1, and a pass ("wavefront") over shared memory. The flat ceiling
is the rate at which all schedulers together can issue, a slanted one the bandwidth of a memory level in transactions
per second. Source of the model: N. Ding, S. Williams, An Instruction Roofline Model for GPUs, PMBS 2019.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import LONG_ENOUGH_NS, Floats

from ncu_tools.ceilings.ceilings import Ceilings, ceilings_of, device_title, middle, unit_title
from ncu_tools.ceilings.launch_devices import devices_of
from ncu_tools.ceilings.levels import byte_metrics, transaction_bytes, transactions_of
from ncu_tools.ceilings.machine_files import DRAM, TRAFFIC, Machine, machine_of_device
from ncu_tools.kernels.kernel_row import names_shown
from ncu_tools.numbers.number_format import counted, scaled
from ncu_tools.roofline.density import weights
from ncu_tools.roofline.level_notes import on_missing_ceilings, why_no_ncu_in_all
from ncu_tools.roofline.scene import (
    INSTRUCTIONS,
    DrawnCeiling,
    LevelPlace,
    Mark,
    RidgePoint,
    Scene,
    SceneRun,
    short_names,
)
from ncu_tools.roofline.scene_builder import weight_of
from ncu_tools.roofline.views import Look, seen_as

PAPER = "N. Ding, S. Williams, An Instruction Roofline Model for GPUs, PMBS 2019"
ISSUE = "warp issue"
SCHEDULERS = 4
"""Warp schedulers per SM, each one instruction per cycle, from compute capability 5.0 on. Source: CUDA C++ Programming
Guide."""
COUNTERS = ("smsp__inst_executed.sum", "sm__inst_executed.sum", "inst_executed")
RATE = "smsp__inst_executed.sum.per_second"
PER_SCHEDULER = "smsp__inst_executed.avg"
OF_PEAK = "sm__inst_executed.avg.pct_of_peak_sustained_elapsed"
CYCLES = "sm__cycles_elapsed.avg"
IPC, SMS = "device__attribute_max_ipc_per_multiprocessor", "device__attribute_multiprocessor_count"


@dataclass(frozen=True)
class InstructionPoint:
    """A kernel of a run. None if not collected.

    `instructions` are warp instructions, `of_issue` their share of the issue capacity in its time, and `intensities`
    warp instructions per transaction by memory level, if known.
    """

    run: str
    kernel: str
    launches: int
    time_total_ns: float | None
    time_share: float | None
    instructions: float | None
    instructions_per_s: float | None
    of_issue: float | None
    intensities: Mapping[str, float]


@dataclass
class InstructionRoofline:
    """Kernels by time, the longest first, under issue rates and memory ceilings in transactions/s."""

    levels: tuple[str, ...]
    group: str = "name"
    runs: list[SceneRun] = field(default_factory=list)
    points: list[InstructionPoint] = field(default_factory=list)
    roofs: list[DrawnCeiling] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def instruction_roofline(
    runs: Mapping[str, pa.Table], levels: Sequence[str], machine: Machine | None = None, group: str = "name"
) -> InstructionRoofline:
    """The instruction roofline of runs by name at memory levels; `machine` is the one that the user chose, if any."""
    result = InstructionRoofline(tuple(levels), group)
    capability_of: dict[str, str | None] = {}
    known = []
    for (name, table), label in zip(runs.items(), short_names(list(runs)), strict=True):
        ceilings = ceilings_of(table, machine)
        capability_of |= ceilings.capability_of
        known += ceilings.drawn
        rates, roofs = _issue_rates(table, machine)
        roofs += _memory_roofs(ceilings, levels)
        result.roofs += [roof for roof in roofs if roof not in result.roofs]
        points, notes = _points(name, seen_as(table, Look(group=group)), rates, levels)
        result.points += points
        result.notes += [note for note in notes if note not in result.notes]
        times = [point.time_total_ns for point in points if point.time_total_ns is not None]
        device = next(iter(ceilings.capability_of)) if len(ceilings.capability_of) == 1 else None
        result.runs.append(SceneRun(name, label, sum(times) if times else None, device))
    result.points.sort(key=lambda point: -(point.time_total_ns or 0.0))
    result.notes += _on_what_is_missing(result, runs.values(), why_no_ncu_in_all(runs.values()))
    there = [level for level in levels if any(level in point.intensities for point in result.points)]
    result.notes += on_missing_ceilings(there, known, capability_of, list(runs.values()))
    result.notes.append(f"transactions are sectors of 32 bytes, of shared memory its wavefronts: {PAPER}")
    return result


# -------------------------------------------------------------------------------------------------------- ceilings


def _issue_rates(table: pa.Table, machine: Machine | None) -> tuple[Floats, list[DrawnCeiling]]:
    """The issue rate in warp instructions per second, one per launch, NaN where unknown; the ceiling per device."""
    slots, clock = tables.floats(table, IPC) * tables.floats(table, SMS), tables.floats(table, "sm_clock_hz").copy()
    schedulers = _schedulers(table)
    devices, roofs = devices_of(table), []
    for device, at in devices.items():
        chip = machine_of_device(device.name) or machine
        source = "report, device attributes"
        if np.isnan(slots[at]).all():
            slots[at], source = middle(schedulers[at]) or np.nan, "report, executed instructions / those per scheduler"
        if np.isnan(slots[at]).all() and chip is not None and chip.sm_count:
            slots[at] = SCHEDULERS * chip.sm_count
            source = f"{chip.name}, {chip.sm_count} SMs x {SCHEDULERS} schedulers"
        kind = "profiled clock"
        if np.isnan(clock[at]).all() and chip is not None and chip.boost_clock_hz:
            clock[at], kind = chip.boost_clock_hz, "data sheet"
        rates = (slots * clock)[at]
        steady = rates[tables.floats(table, "duration_ns")[at] >= LONG_ENOUGH_NS]
        value = middle(steady)
        value = middle(rates) if value is None else value
        if value is not None:
            says = f"{source}, SM clock {scaled(middle(clock[at]) or 0.0, 'Hz')}"
            roofs.append(_roof(device_title(device, devices, machine), "issue", value, kind, says))
    return slots * clock, roofs


def _schedulers(table: pa.Table) -> Floats:
    """The schedulers of the GPU as a counter's sum over its mean, if printed exactly enough."""
    mean = tables.floats(table, PER_SCHEDULER)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = tables.floats(table, COUNTERS[0]) / mean
        exact = (mean > 0) & (found * 0.01 / mean < 0.25) & (np.abs(found - np.round(found)) < 0.25)
    return np.where(exact & (np.round(found) % SCHEDULERS == 0), np.round(found), np.nan)


def _memory_roofs(ceilings: Ceilings, levels: Sequence[str]) -> list[DrawnCeiling]:
    """The bandwidths of the report's own devices in transactions per second."""
    return [
        _roof(one.device, one.unit, one.value / transaction_bytes(one.unit), one.kind, one.source)
        for one in ceilings.drawn
        if one.unit in levels and one.device in ceilings.capability_of
    ]


def _roof(device: str, unit: str, value: float, kind: str, source: str) -> DrawnCeiling:
    is_issue = unit == "issue"
    title = (
        f"{ISSUE} {scaled(value, 'inst/s')}" if is_issue else f"{unit_title(unit)} {scaled(value, 'transactions/s')}"
    )
    return DrawnCeiling(device, unit, value, "inst/s" if is_issue else "transaction/s", title, kind, source)


# ---------------------------------------------------------------------------------------------------------- points


def executed(table: pa.Table, rates: Floats) -> tuple[Floats, int]:
    """Warp instructions of each launch (float64, NaN if not collected), and the number derived from a share.

    The share is of the peak, `rates` are the issue rates of launches per second.
    """
    time = tables.floats(table, "duration_ns") / 1e9
    result = np.full(len(table), np.nan)
    for values in (*(tables.floats(table, name) for name in COUNTERS), tables.floats(table, RATE) * time):
        result = np.where(np.isnan(result), values, result)
    cycles = tables.floats(table, CYCLES) * tables.floats(table, IPC) * tables.floats(table, SMS)
    by_share = tables.floats(table, OF_PEAK) / 100 * np.where(np.isnan(cycles), rates * time, cycles)
    return np.where(np.isnan(result), by_share, result), int((np.isnan(result) & ~np.isnan(by_share)).sum())


def _points(
    run: str, seen: pa.Table, rates: Floats, levels: Sequence[str]
) -> tuple[list[InstructionPoint], list[str]]:  # fmt: skip
    codes, names = tables.codes(seen, "kernel_name")
    weight, time = weights(seen), tables.floats(seen, "duration_ns")
    count, derived = executed(seen, rates)
    moved = transactions_of(seen, levels)

    def sums(values: Floats, where: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Floats:
        summed: Floats = np.bincount(codes[where], (values * weight)[where], len(names)).astype(np.float64)
        return summed

    ran, timed = weight > 0, (weight > 0) & ~np.isnan(time)
    both = timed & ~np.isnan(count)
    bounded = both & ~np.isnan(rates)
    with np.errstate(divide="ignore", invalid="ignore"):
        per_second = sums(count, both) / sums(time, both) * 1e9
        of_issue = sums(count, bounded) / sums(rates * time / 1e9, bounded)
        intensity = {
            level: sums(count, with_both) / sums(values, with_both)
            for level, values in moved.items()
            for with_both in [ran & ~np.isnan(count) & ~np.isnan(values)]
        }
    launches, times = sums(np.ones(len(seen)), ran), sums(time, timed)
    instructions = sums(count, ran & ~np.isnan(count))
    has_time, has_count = (np.bincount(codes[one], minlength=len(names)) > 0 for one in (timed, ran & ~np.isnan(count)))
    whole = times.sum()
    points = [
        InstructionPoint(
            run, names[place] or "?", round(launches[place]), float(times[place]) if has_time[place] else None,
            float(times[place] / whole) if has_time[place] and whole else None,
            float(instructions[place]) if has_count[place] else None,
            _finite(per_second[place]), _finite(of_issue[place]),
            {level: float(one[place]) for level, one in intensity.items() if 0 < one[place] < np.inf},
        )
        for place in np.flatnonzero(launches > 0).tolist()
    ]  # fmt: skip
    note = (
        f"{run}: warp instructions of {counted(derived, 'launch', 'launches')} follow from the per cent of the peak "
        f"({OF_PEAK})"
    )
    return points, [note] if derived else []


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _on_what_is_missing(result: InstructionRoofline, runs: Iterable[pa.Table], elsewhere: str) -> list[str]:
    """Counts that no kernel has, or some lack, and what to collect for them; or `elsewhere`, if ncu cannot."""
    notes = []
    without = sum(point.instructions is None for point in result.points)
    if without:
        of = counted(len(result.points), "kernel", "kernels")
        notes.append(f"{without} of {of} have no warp instructions: {elsewhere or f'ask ncu for {COUNTERS[0]}'}")
    for level in result.levels:
        lacking = [point for point in result.points if level not in point.intensities and point.instructions]
        if lacking:
            metrics = ", ".join(byte_metrics(level, TRAFFIC, runs))
            notes.append(
                f"{len(lacking)} of {counted(len(result.points), 'kernel', 'kernels')} have no transactions of "
                f"{unit_title(level)}, or none were counted: {elsewhere or f'ask ncu for {metrics}'}"
            )
    if not any(roof.unit == "issue" for roof in result.roofs):
        notes.append(
            f"the issue rate has no roof: the report lacks {IPC}, {SMS} or the SM clock; name a machine with "
            "--machine NAME"
        )
    return notes


COUNTED = {
    DRAM: "sectors between L2 and device memory",
    "l2": "sectors requested at L2",
    "l1": "sectors requested at L1",
    "shared": "wavefronts of shared memory",
}
"""Memory level -> its transactions in words."""


def scene_of_instructions(result: InstructionRoofline, title: str = "") -> Scene:
    """The scene of the picture; kernels without instructions, transactions or time are counted as not drawn."""
    number = {run.name: place for place, run in enumerate(result.runs)}
    longest = max((run.time_ns or 0.0 for run in result.runs), default=0.0)
    labels = names_shown([point.kernel for point in result.points], result.group)
    marks = [
        Mark(
            point.kernel, labels[point.kernel], number[point.run], point.instructions_per_s,
            tuple(LevelPlace(level, point.intensities[level]) for level in result.levels if level in point.intensities),
            weight_of(point.time_total_ns, longest), point.time_total_ns, point.time_share, point.launches,
            bound=ISSUE if point.of_issue is not None else None, bound_fraction=point.of_issue,
        )
        for point in result.points
        if point.instructions_per_s and point.intensities
    ]  # fmt: skip
    levels = tuple(level for level in result.levels if any(level == at.level for mark in marks for at in mark.places))
    roofs = [roof for roof in result.roofs if roof.unit in ("issue", *(levels or result.levels))]
    slope = {roof.device: roof for roof in roofs if roof.unit == (levels[0] if len(levels) == 1 else DRAM)}
    where = COUNTED[levels[0]] if len(levels) == 1 else "of each memory level"
    return Scene(
        title=title,
        x_title=f"warp instructions per transaction ({where}); Ding and Williams, PMBS 2019",
        levels=levels or result.levels,
        bytes_by_level={level: COUNTED[level] for level in levels or result.levels},
        runs=result.runs,
        marks=marks,
        not_drawn=len(result.points) - len(marks),
        roofs=roofs,
        ridges=[
            RidgePoint(roof.device, roof.unit, roof.value / slope[roof.device].value, roof.value)
            for roof in roofs
            if roof.unit == "issue" and roof.device in slope
        ],
        work=INSTRUCTIONS,
    )
