"""Which ceilings hold for which launch, and who says so.

In order: the report's own peaks at the profiled clock; what the report's device attributes say of its board; the
machine file of the device the report names; the machine that the user named; what was measured of the device; for the
few compute capabilities that stand for one family of boards, what the files of that family agree on. A compute
capability alone never gives a bandwidth that its boards do not share, and RTX boards are never guessed from it.

Those are dense ceilings. Beside them stand the sparse ones, those of single tensor instructions, and those at the
board's limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.counters.metrics import TENSOR_FLOAT_PRECISIONS, TENSOR_INTEGER_PRECISIONS
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import LEAST_BYTES, Floats

from ncu_tools.ceilings.device_attributes import Board, Peak, board_of
from ncu_tools.ceilings.launch_devices import (
    Device,
    Rows,
    devices_of,
    differs_by_threads,
    measured_of,
    with_other_threads,
)
from ncu_tools.ceilings.levels import shared_roof
from ncu_tools.ceilings.machine_files import Machine, Rate, machine_of_device, machines_of_capability
from ncu_tools.ceilings.memory_clock import LONG_ENOUGH_NS
from ncu_tools.ceilings.work_by_unit import LEFT_OUT, UNIT_COLUMNS
from ncu_tools.numbers.number_format import counted

PROFILED_CLOCK = "profiled clock"
BOARD_LIMIT = "board limit"
DATA_SHEET = "data sheet"
MEASURED = "measured"
"""At which clock a ceiling holds, or that it is what `ncu-bench machines measure` reached."""

BOARD_SAYS = "report, device attributes"

CLOCK_ERROR = 0.01
"""How much a memory clock that was measured may be off; closer to the board's limit than that, it was at the limit."""

PEAK_COLUMNS: dict[str, str] = {
    **{precision: f"peak_flops_{precision}" for precision in ("fp64", "fp32", "fp16")},
    **{f"tensor_{precision}": f"peak_tensor_flops_{precision}" for precision in TENSOR_FLOAT_PRECISIONS},
    **{f"tensor_{precision}": f"peak_tensor_ops_{precision}" for precision in TENSOR_INTEGER_PRECISIONS},
    "dram": "peak_dram_bytes",
    "l2": "peak_l2_bytes",
    "l1": "peak_l1_bytes",
}
"""Unit or memory level -> the column that holds its ceiling."""

Mask = npt.NDArray[np.bool_]

UNIT_TITLES = {"dram": "DRAM", "l2": "L2", "l1": "L1", "shared": "shared memory"}


def unit_title(unit: str) -> str:
    """How a unit or level is called in tables and plots: `tensor_bf16` is "tensor BF16"."""
    if unit in UNIT_TITLES:
        return UNIT_TITLES[unit]
    return f"tensor {unit.removeprefix('tensor_').upper()}" if unit.startswith("tensor_") else unit.upper()


def rate_unit(unit: str) -> str:
    """What a unit or memory level does per second: operations on integers are no FLOPs."""
    if unit in UNIT_TITLES:
        return "byte/s"
    return "OP/s" if unit.startswith("tensor_int") else "FLOP/s"


@dataclass(frozen=True)
class Ceiling:
    """One ceiling of one device: FLOP/s (OP/s, B/s) of a unit or memory level, and where it comes from.

    `kind` says at which clock it holds. `instruction` is the tensor instruction it is for, "" where for all.
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
        """Whether it limits bytes rather than operations."""
        return self.unit in UNIT_TITLES

    @property
    def value_unit(self) -> str:
        """What `value` counts per second."""
        return rate_unit(self.unit)


class Origin(NamedTuple):
    """Who gave launches their ceilings: `says` names it, `clock_hz` is the SM clock it assumes where it assumes one.

    `chosen` is a machine that the user named and the report does not confirm.
    """

    kind: str
    says: str
    clock_hz: float | None = None
    chosen: bool = False


OWN = Origin(PROFILED_CLOCK, "the report's own")
OWN_BOARD = Origin(BOARD_LIMIT, "the board's limit by its device attributes")


@dataclass
class Ceilings:
    """The ceilings of every launch of a table: `per_launch[unit]` is dense, and NaN where none is known.

    `origin_of[unit]` says for each launch which of `origins` gave it. `drawn` are these ceilings by device, `others`
    those that bound no launch here: sparse ones, those at the board's limit, those of single instructions.
    `capability_of` are the devices of the launches, as ceilings name them, with their compute capability.
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
        """Set the ceiling of some launches."""
        if origin not in self.origins:
            self.origins.append(origin)
        where = slice(None) if rows.size == len(self.per_launch[unit]) else rows  # which takes a tenth of the time
        self.per_launch[unit][where] = value
        self.origin_of[unit][where] = self.origins.index(origin)


class _Fallback(NamedTuple):
    """What a machine file gives for the launches of one device."""

    rates: dict[str, Rate]
    says: str
    boost_clock_hz: float | None
    chosen: bool = False
    kind: str = DATA_SHEET


def ceilings_of(table: pa.Table, machine: Machine | None = None) -> Ceilings:
    """The ceilings for each launch of `table`; `machine` is the one the user named, if any."""
    result = Ceilings({unit: tables.floats(table, column).copy() for unit, column in PEAK_COLUMNS.items()})
    board = board_of(table)
    shared = shared_roof(table)
    flops, dram, least = (tables.floats(table, column) for column in ("flops", "dram_bytes", LEAST_BYTES))
    counted_in = ~np.isnan(flops) | ~np.isnan(dram) | ~np.isnan(least)
    devices = devices_of(table)
    for device, at in devices.items():
        name, capability, threads = device
        title = (
            name
            or (machine.name if machine else None)
            or (f"compute capability {capability}" if capability else "unknown device")
        )
        if differs_by_threads(device, devices):
            title += f", {counted(threads, 'thread', 'threads') if threads else 'threads not known'}"
        result.capability_of[title] = capability
        _set_dram(result, title, at, board)
        _draw_report(result, title, at, board)
        _fill_from_board(result, title, at, board)
        fallback = _fallback(device, machine, result.notes, _missing(result, at[counted_in[at]]))
        if fallback is not None:
            _fill(result, title, at, fallback, board.sm_clock, _worked(table))
        if machine is not None:
            result.notes += _on_the_choice(result, device, machine, at)
        _add_others(result, title, at, board)
        _draw_measured(result, title, device)
        roof = _middle(shared[at])
        if roof is not None:
            result.drawn.append(
                Ceiling(title, "shared", roof, f"report, {_clock(board, at, 'shared')}", PROFILED_CLOCK)
            )
    return result


def _missing(result: Ceilings, at: Rows) -> list[str]:
    """Those of the two ceilings that every roofline needs which some of these launches lacks."""
    return [unit for unit in ("fp32", "dram") if np.isnan(result.per_launch[unit][at]).any()]


def _worked(table: pa.Table) -> dict[str, Mask]:
    """For each compute unit which launches it did work in. Constant moves that look like FP16 are none."""
    codes, bases = tables.codes(table, "flops_basis")
    moves = np.array([LEFT_OUT in (basis or "") for basis in bases], bool)[codes]
    work = {
        unit: tables.floats(table, column) > 0 for unit, column in UNIT_COLUMNS.items() if column in table.column_names
    }
    if "fp16" in work:
        work["fp16"] &= ~moves
    return work


def _middle(values: Floats) -> float | None:
    """The median of what is known: ceilings differ a little from launch to launch with the clock."""
    known = np.sort(values[~np.isnan(values)])
    # not numpy.median, which imports numpy.ma: 15 ms for every command
    return float((known[(known.size - 1) // 2] + known[known.size // 2]) / 2) if known.size else None


def _set_dram(result: Ceilings, title: str, at: Rows, board: Board) -> None:
    """Give launches the DRAM ceiling of their run: bytes per cycle x memory clock, one number for all of its launches.

    The clock is the board's limit unless the run shows a lower one. Without the attribute it is the one that the run
    shows; a run of launches too short to show it has no ceiling of its own.
    """
    limit, shown = board.dram_limit[at], (board.dram_per_cycle * board.memory_clock)[at]
    with np.errstate(invalid="ignore"):
        lowered = shown < (1 - CLOCK_ERROR) * limit
    result.give("dram", at, np.where(np.isnan(limit) | lowered, shown, limit), OWN)
    result.give("dram", at[~np.isnan(limit) & np.isnan(shown)], limit[~np.isnan(limit) & np.isnan(shown)], OWN_BOARD)
    result.notes += _on_dram(title, at, board, lowered)


def _on_dram(title: str, at: Rows, board: Board, lowered: Mask) -> list[str]:
    """What is odd about the DRAM ceiling of a device: a clock below the limit, a bus cut down, launches too short."""
    notes = []
    if lowered.any():
        clock = _middle(board.memory_clock[at[lowered]]) or 0.0
        limit = _middle((board.dram_limit / board.dram_per_cycle)[at[lowered]]) or 0.0
        notes.append(
            f"{title}: the memory clock was {clock / 1e9:.2f} GHz and its limit is {limit / 1e9:.2f} GHz: the DRAM "
            f"ceiling is that at {clock / 1e9:.2f} GHz"
        )
    counted, bus = _middle(board.counted_dram[at]), _middle(board.dram_per_cycle[at])
    if counted is not None and bus is not None and counted > (1 + CLOCK_ERROR) * bus:
        notes.append(
            f"{title}: ncu's DRAM peak is {counted:g} bytes per cycle, and the board's memory bus moves {bus:g} by its "
            "device attributes: the counter is that of the whole chip, and the ceiling that of the bus"
        )
    per_cycle = board.dram_per_cycle[at]
    if (~np.isnan(per_cycle) & np.isnan(board.dram_limit[at]) & np.isnan(board.memory_clock[at])).any():
        notes.append(
            f"{title}: no launch is known to take {LONG_ENOUGH_NS / 1e6:g} ms or more, and shorter ones do not show "
            "the memory clock, so the report gives no DRAM ceiling"
        )
    return notes


def _draw_report(result: Ceilings, title: str, at: Rows, board: Board) -> None:
    """Ceilings of the report itself at the profiled clock, one for each unit."""
    for unit, values in result.per_launch.items():
        if np.isnan(values).all():
            continue
        profiled = at[(result.origin_of[unit][at] == result.origins.index(OWN)) & ~np.isnan(values[at])]
        steady = profiled[board.steady[profiled]]
        profiled = steady if steady.size else profiled
        value = _middle(values[profiled])
        if value is not None:
            source = f"report, {_clock(board, profiled, unit)}"
            result.drawn.append(
                Ceiling(title, unit, value, source, PROFILED_CLOCK, instruction=_fastest(unit, board, at))
            )


def _fill_from_board(result: Ceilings, title: str, at: Rows, board: Board) -> None:
    """Give launches without a profiled clock what their board can do at most."""
    limits = {peak.unit: peak.per_cycle * board.highest_clock for peak in board.peaks if peak.is_plain}
    drawn = {ceiling.unit for ceiling in result.drawn if ceiling.device == title}
    for unit, limit in {"dram": board.dram_limit, **limits}.items():
        missing = at[np.isnan(result.per_launch[unit][at]) & ~np.isnan(limit[at])]
        if missing.size:
            result.give(unit, missing, limit[missing], OWN_BOARD)
        held = at[result.origin_of[unit][at] == result.origins.index(OWN_BOARD)]
        value = _middle(result.per_launch[unit][held])
        if value is not None and unit not in drawn:
            result.drawn.append(
                Ceiling(title, unit, value, BOARD_SAYS, BOARD_LIMIT, instruction=_fastest(unit, board, at))
            )


def _add_others(result: Ceilings, title: str, at: Rows, board: Board) -> None:
    """The ceilings that bound no launch: at the board's limit, sparse, and of instructions slower than the fastest."""
    drawn = {(ceiling.unit, ceiling.kind) for ceiling in result.drawn if ceiling.device == title}
    limit = _middle(board.dram_limit[at])
    held = np.array_equal(result.per_launch["dram"][at], board.dram_limit[at], equal_nan=True)
    if limit is not None and not held:
        result.others.append(Ceiling(title, "dram", limit, BOARD_SAYS, BOARD_LIMIT))
    for peak in board.peaks:
        if peak.instruction and not _is_slower(peak, board, at):
            continue
        for clock, source, kind in (
            (board.sm_clock, f"report, {_clock(board, at, peak.unit)}", PROFILED_CLOCK),
            (board.highest_clock, BOARD_SAYS, BOARD_LIMIT),
        ):
            value = _middle((peak.per_cycle * clock)[at])
            if value is not None and not (peak.is_plain and (peak.unit, kind) in drawn):
                result.others.append(Ceiling(title, peak.unit, value, source, kind, peak.sparse, peak.instruction))


def _draw_measured(result: Ceilings, title: str, device: Device) -> None:
    """What was measured of a device, beside the ceilings that bound its launches, as a device of its own."""
    machine = measured_of(device)
    if machine is None or any(ceiling.kind == MEASURED for ceiling in result.drawn if ceiling.device == title):
        return
    for unit, rate in machine.rates.items():
        if unit in result.per_launch:
            result.drawn.append(Ceiling(f"{title}, measured", unit, rate.value, rate.source, MEASURED))


def _is_slower(peak: Peak, board: Board, at: Rows) -> bool:
    """Whether an instruction's peak is below that of its unit: mma.sync on Hopper has two thirds of wgmma's."""
    mine = _middle(peak.per_cycle[at])
    whole = [
        _middle(other.per_cycle[at])
        for other in board.peaks
        if (other.unit, other.sparse, other.instruction) == (peak.unit, peak.sparse, "")
    ]
    return mine is not None and any(fastest is not None and mine < 0.99 * fastest for fastest in whole)


def _fastest(unit: str, board: Board, at: Rows) -> str:
    """The instruction that the dense ceiling of a unit takes, where the report has slower ones too; else ""."""
    rivals = [peak for peak in board.peaks if peak.unit == unit and peak.instruction and not peak.sparse]
    slower = [peak for peak in rivals if _is_slower(peak, board, at)]
    return next((peak.instruction for peak in rivals if slower and peak not in slower), "")


def _clock(board: Board, at: Rows, unit: str) -> str:
    """At which clock the ceiling of a unit holds, and for DRAM whether the bus width is that of the attributes."""
    if unit == "dram":
        by_bus = "device attributes, " if not np.isnan(board.dram_limit[at]).all() else ""
        clock = _middle(board.memory_clock[at])
        return f"{by_bus}memory clock {clock / 1e9:.2f} GHz" if clock is not None else "at the profiled clock"
    clock = _middle(board.sm_clock[at])
    if clock is None:
        return "at the profiled clock"
    short = "" if board.steady[at].any() else f", which reads low in launches under {LONG_ENOUGH_NS / 1e6:g} ms"
    return f"SM clock {clock / 1e9:.2f} GHz{short}"


def _fallback(device: Device, machine: Machine | None, notes: list[str], needed: Sequence[str]) -> _Fallback | None:
    name, capability, _ = device
    known = machine_of_device(name)
    if known is not None:
        return _Fallback(known.rates, f"machine file {known.id}", known.boost_clock_hz)
    if machine is not None:
        kind = MEASURED if machine.measured else DATA_SHEET
        return _Fallback(machine.rates, f"--machine {machine.id}", machine.boost_clock_hz, chosen=True, kind=kind)
    measured = measured_of(device)
    if measured is not None:
        return _Fallback(measured.rates, f"machine file {measured.id}", None, kind=MEASURED)
    family = [candidate for candidate in machines_of_capability(capability) if candidate.stands_for_compute_capability]
    agreed = _agreed(family) if name is None and family else {}
    if agreed:
        missing = [unit_title(unit) for unit in ("fp32", "dram") if unit not in agreed]
        if needed:
            lacks = "has no ceiling" if len(missing) == 1 else "have no ceiling"
            unknown = f"; they differ in {' and '.join(missing)}, which {lacks}" if missing else ""
            notes.append(
                f"the report names no device: ceilings are what {_ids(family)} agree on (compute capability "
                f"{capability}){unknown}. Say --machine NAME to choose one"
            )
        return _Fallback(agreed, f"machine files {_ids(family)} agree", family[0].boost_clock_hz)
    if needed:
        others = [candidate.id for candidate in machines_of_capability(capability)] if capability else []
        known_ones = f" (of compute capability {capability} there are {', '.join(others)})" if others else ""
        other_way = "or collect the report's own with --section SpeedOfLight_RooflineChart"
        if name and not capability:  # what has a name and no compute capability was not measured by ncu
            known_ones = with_other_threads(device)
            chosen = f"OMP_NUM_THREADS={device.threads} " if known_ones and device.threads else ""
            other_way = f"or measure it where it is with {chosen}ncu-bench machines measure"
        what = "no ceilings are" if len(needed) > 1 else f"no {unit_title(needed[0])} ceiling is"
        notes.append(
            f"{what} known for {name or 'this device'}{known_ones}: choose a machine with --machine NAME, {other_way}"
        )
    return None


def _on_the_choice(result: Ceilings, device: Device, machine: Machine, at: Rows) -> list[str]:
    """Whether the machine that the user named bounds the launches of a device, and whether it can be that device."""
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


TWO_THIRDS = "2/3 of wgmma, as ncu's peaks of both instructions"


def instructions_of(rate: Rate) -> tuple[str, str]:
    """The instruction that a rate of a machine file takes and the slower one, both "" where there is only one."""
    return ("wgmma", "mma.sync") if rate.mma_sync is not None else ("", "")


def _fill(result: Ceilings, title: str, at: Rows, fallback: _Fallback, clocks: Floats, work: dict[str, Mask]) -> None:
    origin = Origin(fallback.kind, fallback.says, fallback.boost_clock_hz, fallback.chosen)
    used = []
    for unit, rate in fallback.rates.items():
        if unit not in result.per_launch:
            continue
        values = result.per_launch[unit]
        missing = at[np.isnan(values[at])]
        if missing.size:
            result.give(unit, missing, rate.value, origin)
            if unit == "fp32" or (unit in work and work[unit][missing].any()):
                used.append(unit)
            if missing.size == at.size:
                source = f"{fallback.says}; {rate.source}"
                own, slower = instructions_of(rate)
                result.drawn.append(Ceiling(title, unit, rate.value, source, fallback.kind, instruction=own))
                if rate.mma_sync is not None:
                    result.others.append(Ceiling(title, unit, rate.mma_sync, source, fallback.kind, instruction=slower))
                if rate.sparse is not None:
                    result.others.append(Ceiling(title, unit, rate.sparse, source, sparse=True))
    profiled = _middle(clocks[at])
    if (
        used
        and not np.isnan(result.per_launch["dram"][at]).all()  # else nothing has a bound
        and profiled is not None
        and fallback.boost_clock_hz
        and profiled < 0.95 * fallback.boost_clock_hz
    ):
        result.notes.append(
            f"{title} was profiled at {profiled / 1e9:.2f} GHz; its data-sheet ceilings assume "
            f"{fallback.boost_clock_hz / 1e9:.2f} GHz, so per cent of the bound read low"
        )
