"""The ceilings of each launch, and their sources.

In order of preference: the report's own peaks at the profiled clock; the report's device attributes; the machine file
of the device that the report names; the machine that the user chose; a measured machine file of the device; for the few
compute capabilities that stand for one family of boards, the values on which that family's files agree. A compute
capability alone never gives a bandwidth that its boards do not share, and RTX boards are never guessed from it.

These are dense ceilings. Listed separately: sparse ceilings, ceilings of single tensor instructions, and ceilings at
the board's limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.counters.metrics import TENSOR_FLOAT_PRECISIONS, TENSOR_INTEGER_PRECISIONS
from ncu_launch.notes import Note, NoteKind
from ncu_parsers.schema import tables
from ncu_parsers.schema.flops_basis import BasisMark, marked
from ncu_parsers.schema.tables import LEAST_BYTES, LONG_ENOUGH_NS, Floats

from ncu_tools.ceilings.device_attributes import DeviceAttributes, Peak, device_attributes_of
from ncu_tools.ceilings.launch_devices import (
    Device,
    Rows,
    agreed,
    board_of,
    devices_of,
    differs_by_threads,
    family_of,
    ids,
    known_boards,
    measured_cpu,
    measured_of,
    note_on_cpu_ceilings,
    recorded,
    sm_count,
)
from ncu_tools.ceilings.levels import shared_memory_ceiling
from ncu_tools.ceilings.machine_files import Machine, Rate, machine_of_device
from ncu_tools.ceilings.unknown_devices import on_an_unknown, on_an_unnamed_cpu
from ncu_tools.ceilings.work_by_unit import UNIT_COLUMNS
from ncu_tools.numbers.number_format import counted

PROFILED_CLOCK = "profiled clock"
BOARD_LIMIT = "board limit"
DATA_SHEET = "data sheet"
MEASURED = "measured"
MEASURED_QUICKLY = "measured quickly"
"""Kinds of ceilings: by the clock at which they hold (a data sheet's peaks are scaled to the run's clock), or measured:
by `ncu-bench machines measure`, or in a few seconds by `ncu-bench profile`."""
MEASUREMENTS = (MEASURED, MEASURED_QUICKLY)

BOARD_SAYS = "report, device attributes"

SAME_CLOCK = 0.95
"""A run's clock at or above this share of the data sheet's clock gets no note."""

CLOCK_ERROR = 0.01
"""Relative error of a measured memory clock; a clock within it of the board's limit counts as the limit."""

PEAK_COLUMNS: dict[str, str] = {
    **{precision: f"peak_flops_{precision}" for precision in ("fp64", "fp32", "fp16")},
    **{f"tensor_{precision}": f"peak_tensor_flops_{precision}" for precision in TENSOR_FLOAT_PRECISIONS},
    **{f"tensor_{precision}": f"peak_tensor_ops_{precision}" for precision in TENSOR_INTEGER_PRECISIONS},
    "dram": "peak_dram_bytes",
    "l2": "peak_l2_bytes",
    "l1": "peak_l1_bytes",
}
"""Unit or memory level -> the column of its ceiling."""

Mask = npt.NDArray[np.bool_]

UNIT_TITLES = {"dram": "DRAM", "l2": "L2", "l1": "L1", "shared": "shared memory"}


def unit_title(unit: str) -> str:
    """The name of a unit or memory level in tables and plots: `tensor_bf16` is "tensor BF16"."""
    if unit in UNIT_TITLES:
        return UNIT_TITLES[unit]
    return f"tensor {unit.removeprefix('tensor_').upper()}" if unit.startswith("tensor_") else unit.upper()


def rate_unit(unit: str) -> str:
    """The unit of a rate: byte/s for memory levels, OP/s for integer tensor units, else FLOP/s."""
    if unit in UNIT_TITLES:
        return "byte/s"
    return "OP/s" if unit.startswith("tensor_int") else "FLOP/s"


def kind_of(machine: Machine) -> str:
    """The kind of a machine file's ceilings."""
    if machine.measured:
        return MEASURED_QUICKLY if machine.measured_quickly else MEASURED
    return DATA_SHEET


@dataclass(frozen=True)
class Ceiling:
    """One ceiling of one device: `value` in FLOP/s (OP/s, B/s) of a compute unit or memory level, and its source.

    `kind` names the clock at which it holds. `instruction` is the tensor instruction it applies to, "" for all.
    """

    device: str
    unit: str
    value: float
    source: str
    kind: str = DATA_SHEET
    sparse: bool = False
    instruction: str = ""

    @property
    def is_bandwidth(self) -> bool:
        """True for the bandwidth of a memory level, False for a compute peak."""
        return self.unit in UNIT_TITLES

    @property
    def value_unit(self) -> str:
        """The unit of `value`."""
        return rate_unit(self.unit)


class Origin(NamedTuple):
    """Source of ceilings: `says` names it, `clock_hz` is the SM clock it assumes, if any.

    `chosen` is True for a machine that the report does not confirm: the user named it, or a trace names no CPU.
    """

    kind: str
    says: str
    clock_hz: float | None = None
    chosen: bool = False


OWN = Origin(PROFILED_CLOCK, "the report's own")
OWN_BOARD = Origin(BOARD_LIMIT, "the board's limit by its device attributes")


@dataclass
class Ceilings:
    """The ceilings of every launch of a table: `per_launch[unit]` is dense, float64, one per launch, NaN where unknown.

    Values are in FLOP/s, OP/s or B/s. `origin_of[unit]` gives for each launch the index in `origins` of its source.
    `drawn` are these ceilings by device, `others` ceilings that bound no launch: sparse, at the board's limit, of
    single instructions. `capability_of` maps the device names used by ceilings to compute capabilities.
    """

    per_launch: dict[str, Floats]
    drawn: list[Ceiling] = field(default_factory=list)
    others: list[Ceiling] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    capability_of: dict[str, str | None] = field(default_factory=dict)
    origins: list[Origin] = field(default_factory=lambda: [OWN, OWN_BOARD])
    origin_of: dict[str, npt.NDArray[np.int32]] = field(init=False)

    def __post_init__(self) -> None:
        self.origin_of = {unit: np.zeros(len(values), np.int32) for unit, values in self.per_launch.items()}

    def give(self, unit: str, rows: Rows, value: float | Floats, origin: Origin) -> None:
        """Set the ceiling of the launches `rows`, and its origin."""
        if origin not in self.origins:
            self.origins.append(origin)
        where = slice(None) if rows.size == len(self.per_launch[unit]) else rows  # a slice is ten times as fast
        self.per_launch[unit][where] = value
        self.origin_of[unit][where] = self.origins.index(origin)


class _Fallback(NamedTuple):
    """Ceilings from a machine file for launches of one device that have none of their own."""

    rates: dict[str, Rate]
    says: str
    boost_clock_hz: float | None
    chosen: bool = False
    kind: str = DATA_SHEET


def ceilings_of(table: pa.Table, machine: Machine | None = None) -> Ceilings:
    """The ceilings of each launch of `table`; `machine` is the one the user chose, if any."""
    result = Ceilings({unit: tables.floats(table, column).copy() for unit, column in PEAK_COLUMNS.items()})
    attributes = device_attributes_of(table)
    shared = shared_memory_ceiling(table)
    flops, dram, least = (tables.floats(table, column) for column in ("flops", "dram_bytes", LEAST_BYTES))
    counted_in = ~np.isnan(flops) | ~np.isnan(dram) | ~np.isnan(least)
    devices = devices_of(table)
    for device, at in devices.items():
        title = device_title(device, devices, machine)
        result.capability_of[title] = device.capability
        _set_dram(result, title, at, attributes)
        _draw_report(result, title, at, attributes)
        _fill_from_board(result, title, at, attributes)
        needed = _missing(result, at[counted_in[at]])
        fallback = _fallback(device, machine, result.notes, needed, table, at)
        if fallback is not None:
            _fill(result, title, at, fallback, attributes, _worked(table))
        if machine is not None:
            result.notes += _on_the_choice(result, device, machine, at)
        _add_others(result, title, at, attributes)
        _draw_measured(result, title, device)
        showing = _showing_clocks(attributes, at[~np.isnan(shared[at])])
        bandwidth = middle(shared[showing])
        if bandwidth is not None:
            source = f"report, {_clock(attributes, showing, 'shared')}"
            result.drawn.append(Ceiling(title, "shared", bandwidth, source, PROFILED_CLOCK))
    return result


def device_title(device: Device, devices: Iterable[Device], machine: Machine | None) -> str:
    """The name under which the ceilings of a device of `devices` are shown; `machine` is the user's choice, if any."""
    name, capability, threads = device
    title = (
        name
        or (machine.name if machine else None)
        or (f"compute capability {capability}" if capability else "unknown device")
    )
    if differs_by_threads(device, devices):
        title += f", {counted(threads, 'thread', 'threads') if threads else 'threads not known'}"
    return title


def _missing(result: Ceilings, at: Rows) -> list[str]:
    """Which of the two ceilings that every roofline needs (fp32, dram) are missing for some of these launches."""
    return [unit for unit in ("fp32", "dram") if np.isnan(result.per_launch[unit][at]).any()]


def _worked(table: pa.Table) -> dict[str, Mask]:
    """For each compute unit, the mask of launches with work in it. FP16 counts that are constant moves do not count."""
    work = {
        unit: tables.floats(table, column) > 0
        for unit, column in UNIT_COLUMNS.items()
        if tables.has_column(table, column)
    }
    if "fp16" in work:
        work["fp16"] &= ~marked(table, BasisMark.LEFT_OUT)
    return work


def middle(values: Floats) -> float | None:
    """The median of the known values, None if there is none: ceilings vary a little with the clock of each launch."""
    known = np.sort(values[~np.isnan(values)])
    # not numpy.median, which imports numpy.ma: 15 ms for every command
    return float((known[(known.size - 1) // 2] + known[known.size // 2]) / 2) if known.size else None


def _set_dram(result: Ceilings, title: str, at: Rows, attributes: DeviceAttributes) -> None:
    """Set the DRAM ceiling of each launch: bytes per cycle x memory clock of the run, one value for all its launches.

    The clock is the board's limit unless the run shows a lower one. Without the attribute it is the clock that the run
    shows; a run whose launches are all too short to show it has no ceiling of its own.
    """
    limit, shown = attributes.dram_limit[at], (attributes.dram_per_cycle * attributes.memory_clock)[at]
    with np.errstate(invalid="ignore"):
        lowered = shown < (1 - CLOCK_ERROR) * limit
    result.give("dram", at, np.where(np.isnan(limit) | lowered, shown, limit), OWN)
    result.give("dram", at[~np.isnan(limit) & np.isnan(shown)], limit[~np.isnan(limit) & np.isnan(shown)], OWN_BOARD)
    result.notes += _on_dram(title, at, attributes, lowered)


def _on_dram(title: str, at: Rows, attributes: DeviceAttributes, lowered: Mask) -> list[str]:
    """Notes on the DRAM ceiling of a device: clock below its limit, narrower bus, launches too short."""
    notes = []
    if lowered.any():
        clock = middle(attributes.memory_clock[at[lowered]]) or 0.0
        limit = middle((attributes.dram_limit / attributes.dram_per_cycle)[at[lowered]]) or 0.0
        notes.append(
            f"{title}: the memory clock was {clock / 1e9:.2f} GHz and its limit is {limit / 1e9:.2f} GHz: the DRAM "
            f"ceiling is that at {clock / 1e9:.2f} GHz"
        )
    counted, bus = middle(attributes.counted_dram[at]), middle(attributes.dram_per_cycle[at])
    if counted is not None and bus is not None and counted > (1 + CLOCK_ERROR) * bus:
        notes.append(
            f"{title}: ncu's DRAM peak is {counted:g} bytes per cycle, and the board's memory bus moves {bus:g} by its "
            "device attributes: the counter describes the whole chip, the ceiling the bus"
        )
    per_cycle = attributes.dram_per_cycle[at]
    if (~np.isnan(per_cycle) & np.isnan(attributes.dram_limit[at]) & np.isnan(attributes.memory_clock[at])).any():
        notes.append(
            f"{title}: no launch is known to take {LONG_ENOUGH_NS / 1e6:g} ms or more, and shorter ones do not show "
            "the memory clock, so the report gives no DRAM ceiling"
        )
    return notes


def _draw_report(result: Ceilings, title: str, at: Rows, attributes: DeviceAttributes) -> None:
    """Add the report's own ceilings at the profiled clock, one per unit."""
    for unit, values in result.per_launch.items():
        known = at[~np.isnan(values[at])]
        profiled = known[result.origin_of[unit][known] == result.origins.index(OWN)]
        profiled = _showing_clocks(attributes, profiled)
        value = middle(values[profiled])
        if value is not None:
            source = f"report, {_clock(attributes, profiled, unit)}"
            result.drawn.append(
                Ceiling(title, unit, value, source, PROFILED_CLOCK, instruction=_fastest(unit, attributes, at))
            )


def _showing_clocks(attributes: DeviceAttributes, at: Rows) -> Rows:
    """The launches among these that are long enough to show their clocks; all of them if none is."""
    steady = at[attributes.steady[at]]
    return steady if steady.size else at


def _fill_from_board(result: Ceilings, title: str, at: Rows, attributes: DeviceAttributes) -> None:
    """Give launches without a ceiling at the profiled clock their board's limit."""
    limits = {peak.unit: peak.per_cycle * attributes.highest_clock for peak in attributes.peaks if peak.is_plain}
    drawn = {ceiling.unit for ceiling in result.drawn if ceiling.device == title}
    for unit, limit in {"dram": attributes.dram_limit, **limits}.items():
        missing = at[np.isnan(result.per_launch[unit][at]) & ~np.isnan(limit[at])]
        if missing.size:
            result.give(unit, missing, limit[missing], OWN_BOARD)
        held = at[result.origin_of[unit][at] == result.origins.index(OWN_BOARD)]
        value = middle(result.per_launch[unit][held])
        if value is not None and unit not in drawn:
            result.drawn.append(
                Ceiling(title, unit, value, BOARD_SAYS, BOARD_LIMIT, instruction=_fastest(unit, attributes, at))
            )


def _add_others(result: Ceilings, title: str, at: Rows, attributes: DeviceAttributes) -> None:
    """Add ceilings that bound no launch: at the board's limit, sparse, and of instructions slower than the fastest."""
    drawn = {(ceiling.unit, ceiling.kind) for ceiling in result.drawn if ceiling.device == title}
    limit = middle(attributes.dram_limit[at])
    held = np.array_equal(result.per_launch["dram"][at], attributes.dram_limit[at], equal_nan=True)
    if limit is not None and not held:
        result.others.append(Ceiling(title, "dram", limit, BOARD_SAYS, BOARD_LIMIT))
    for peak in attributes.peaks:
        if peak.instruction and not _is_slower(peak, attributes, at):
            continue
        showing = _showing_clocks(attributes, at[~np.isnan((peak.per_cycle * attributes.sm_clock)[at])])
        for clock, rows, source, kind in (
            (attributes.sm_clock, showing, f"report, {_clock(attributes, showing, peak.unit)}", PROFILED_CLOCK),
            (attributes.highest_clock, at, BOARD_SAYS, BOARD_LIMIT),
        ):
            value = middle((peak.per_cycle * clock)[rows])
            if value is not None and not (peak.is_plain and (peak.unit, kind) in drawn):
                result.others.append(Ceiling(title, peak.unit, value, source, kind, peak.sparse, peak.instruction))


def _draw_measured(result: Ceilings, title: str, device: Device) -> None:
    """Add the measured ceilings of a device as a separate device, beside the ceilings that bound its launches."""
    machine = measured_of(device)
    if machine is None or any(ceiling.kind in MEASUREMENTS for ceiling in result.drawn if ceiling.device == title):
        return
    for unit, rate in machine.rates.items():
        if unit in result.per_launch:
            result.drawn.append(Ceiling(f"{title}, measured", unit, rate.value, rate.source, kind_of(machine)))


def _is_slower(peak: Peak, attributes: DeviceAttributes, at: Rows) -> bool:
    """True if an instruction's peak is below its unit's: mma.sync on Hopper reaches two thirds of wgmma's."""
    mine = middle(peak.per_cycle[at])
    whole = [
        middle(other.per_cycle[at])
        for other in attributes.peaks
        if (other.unit, other.sparse, other.instruction) == (peak.unit, peak.sparse, "")
    ]
    return mine is not None and any(fastest is not None and mine < 0.99 * fastest for fastest in whole)


def _fastest(unit: str, attributes: DeviceAttributes, at: Rows) -> str:
    """The instruction of a unit's dense ceiling, if the report has slower instructions too; else ""."""
    rivals = [peak for peak in attributes.peaks if peak.unit == unit and peak.instruction and not peak.sparse]
    slower = [peak for peak in rivals if _is_slower(peak, attributes, at)]
    return next((peak.instruction for peak in rivals if slower and peak not in slower), "")


def _clock(attributes: DeviceAttributes, at: Rows, unit: str) -> str:
    """Describe the clock of a unit's ceiling; for DRAM also whether the bus width comes from device attributes."""
    if unit == "dram":
        by_bus = "device attributes, " if not np.isnan(attributes.dram_limit[at]).all() else ""
        clock = middle(attributes.memory_clock[at])
        return f"{by_bus}memory clock {clock / 1e9:.2f} GHz" if clock is not None else "at the profiled clock"
    clock = middle(attributes.sm_clock[at])
    if clock is None:
        return "at the profiled clock"
    if not attributes.steady[at].any():
        return f"SM clock {clock / 1e9:.2f} GHz, which reads low in launches under {LONG_ENOUGH_NS / 1e6:g} ms"
    low, high = np.nanmin(attributes.sm_clock[at]), np.nanmax(attributes.sm_clock[at])
    differ = f", the median of {low / 1e9:.2f} to {high / 1e9:.2f} GHz" if low < (1 - 2 * CLOCK_ERROR) * high else ""
    return f"SM clock {clock / 1e9:.2f} GHz{differ}"


def _fallback(
    device: Device, machine: Machine | None, notes: list[str], needed: Sequence[str], table: pa.Table, at: Rows
) -> _Fallback | None:
    """The first available source: board, the user's choice, a measurement, values of all such boards. Adds notes."""
    how = recorded(table, at)
    known, note = board_of(device, table, at)
    if note and needed:
        notes.append(note)
    if known is not None:
        return _Fallback(known.rates, f"machine file {known.id}", known.boost_clock_hz)
    if machine is not None:
        says = f"--machine {machine.id}"
        return _Fallback(machine.rates, says, machine.boost_clock_hz, chosen=True, kind=kind_of(machine))
    of_unnamed_cpu = how.on_cpu and not any(device)
    measured = measured_cpu() if of_unnamed_cpu else measured_of(device)
    if measured is not None:
        notes += [note_on_cpu_ceilings(measured)] if of_unnamed_cpu and needed else []
        says = f"machine file {measured.id}"
        return _Fallback(measured.rates, says, None, chosen=of_unnamed_cpu, kind=kind_of(measured))
    sms = sm_count(table, at)
    family = family_of(device.capability, sms)
    shared = agreed(family) if device.name is None else {}
    if shared:
        notes += [_on_a_family(device, family, shared, sms)] if needed else []
        return _Fallback(shared, f"machine files {ids(family)} agree", family[0].boost_clock_hz)
    if needed:
        ways = on_an_unnamed_cpu() if of_unnamed_cpu else on_an_unknown(device, sms, by_ncu=how.by_ncu)
        what = "no ceilings are" if len(needed) > 1 else f"no {unit_title(needed[0])} ceiling is"
        unknown = f"{what} known for {device.name or 'this device'}{ways}"
        notes.append(Note(unknown, NoteKind.NOT_KNOWN, "ceilings"))
    return None


def _on_a_family(device: Device, family: Sequence[Machine], shared: Mapping[str, Rate], sms: float | None) -> str:
    """A note on ceilings that all boards of a device's compute capability and SMs agree on."""
    missing = [unit_title(unit) for unit in ("fp32", "dram") if unit not in shared]
    lacks = "has no ceiling" if len(missing) == 1 else "have no ceiling"
    unknown = f"; they differ in {' and '.join(missing)}, which {lacks}" if missing else ""
    others = known_boards(device.capability, sms, but=family)
    too = f", which other boards have too: {others}" if others else ""
    agreed_on = f"ceilings are what {ids(family)} agree on (compute capability {device.capability}{too}){unknown}"
    words = f"the report names no device: {agreed_on}. Say --machine NAME to choose one"
    return Note(words, NoteKind.METHOD)


def _on_the_choice(result: Ceilings, device: Device, machine: Machine, at: Rows) -> list[str]:
    """Notes on the user's choice of machine: it bounds no launch of this device, or is another chip."""
    chosen = [number for number, origin in enumerate(result.origins) if origin.chosen]
    if not any(np.isin(result.origin_of[unit][at], chosen).any() for unit in result.per_launch):
        own = machine_of_device(device.name)
        if _missing(result, at) or (own is not None and own.id == machine.id):
            return []
        or_file = f", or machine file {own.id}'s" if own is not None else ""
        whose = f"launch of {device.name}: its ceilings are" if device.name else "launch: ceilings are"
        return [f"--machine {machine.id} bounds no {whose} the report's own{or_file}"]
    if None in (device.capability, machine.compute_capability) or device.capability == machine.compute_capability:
        return []
    return [
        f"the report says compute capability {device.capability}{f' of {device.name}' if device.name else ''}, and "
        f"--machine {machine.id} has {machine.compute_capability}: its ceilings are those of another chip"
    ]


def _fill(
    result: Ceilings, title: str, at: Rows, fallback: _Fallback, attributes: DeviceAttributes, work: dict[str, Mask]
) -> None:
    """Give launches without a ceiling the ceilings of a machine file, with compute peaks at each launch's clock.

    That is the clock of the launch's cycles, so its share of the peak is a share of cycles, however short it is.
    """
    boost = fallback.boost_clock_hz if fallback.kind == DATA_SHEET else None
    clocks = attributes.sm_clock if boost else tables.unknown(len(attributes.sm_clock))
    steady = middle(attributes.steady_sm_clock[at])
    clock = (steady or middle(clocks[at])) if boost else None
    origin = Origin(fallback.kind, fallback.says, None if clock else fallback.boost_clock_hz, fallback.chosen)
    scaled = False
    for unit, rate in fallback.rates.items():
        missing = at[np.isnan(result.per_launch[unit][at])] if unit in result.per_launch else at[:0]
        if not missing.size:
            continue
        is_peak = rate_unit(unit) != "byte/s"
        assumed = (rate.clock_hz or boost) if is_peak else None
        factors = clocks[missing] / assumed if assumed else np.ones(missing.size)
        result.give(unit, missing, rate.value * np.where(np.isnan(factors), 1.0, factors), origin)
        scaled |= is_peak and (unit == "fp32" or (unit in work and bool(work[unit][missing].any())))
        if missing.size == at.size:
            _draw_rate(result, title, rate, fallback, clock, assumed)
    has_bound = not np.isnan(result.per_launch["dram"][at]).all()  # without a DRAM ceiling no launch has one
    if has_bound and scaled and boost and steady and steady < SAME_CLOCK * boost:
        profiled = f"{title} was profiled at {steady / 1e9:.2f} GHz"
        peaks = f"its peaks are the data sheet's, of {boost / 1e9:.2f} GHz, scaled to that clock"
        result.notes.append(Note(f"{profiled}: {peaks}", NoteKind.METHOD))


def _draw_rate(
    result: Ceilings, title: str, rate: Rate, fallback: _Fallback, clock: float | None, assumed: float | None
) -> None:
    """Add a machine file's ceiling, with slower and sparse ones; scaled to the run's clock if it assumes another."""
    factor, says, kind = 1.0, fallback.says, fallback.kind
    if clock and assumed:
        factor, says = clock / assumed, f"{fallback.says} at {clock / 1e9:.2f} GHz"
    own, slower = rate.instructions
    source = f"{says}; {rate.source}"
    result.drawn.append(Ceiling(title, rate.unit, factor * rate.value, source, kind, instruction=own))
    result.others += [
        Ceiling(title, rate.unit, factor * value, source, kind, is_sparse, instruction)
        for value, instruction, is_sparse in ((rate.mma_sync, slower, False), (rate.sparse, "", True))
        if value is not None
    ]
