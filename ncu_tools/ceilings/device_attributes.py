"""Device attributes of a report (`device__attribute_*`): bandwidth limit, peaks per cycle, size of L2.

ncu always collects device attributes, without an extra pass. They give limits at the highest clocks, whereas a report's
own ceilings hold at the profiled clocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.counters import metrics as known
from ncu_parsers.derived.measures import tensor_peaks
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import LONG_ENOUGH_NS, Floats

from ncu_tools.ceilings.memory_clock import run_clock

DRAM_PEAK = "dram__bytes.sum.peak_sustained"

INSTRUCTION_TITLES = {
    "hmma": "mma.sync", "imma": "mma.sync", "dmma": "mma.sync", "hgmma": "wgmma", "igmma": "wgmma", "qgmma": "wgmma",
    "utchmma": "tcgen05", "utcqmma": "tcgen05", "utcomma": "tcgen05", "utcimma": "tcgen05",
}  # fmt: skip
"""Tensor instructions: name in counters -> name in PTX."""


class Peak(NamedTuple):
    """The peak of one unit in operations per SM cycle (float64, one per launch); `instruction` "" is the fastest."""

    unit: str
    sparse: bool
    instruction: str
    per_cycle: Floats

    @property
    def is_plain(self) -> bool:
        """True for the unit's dense peak over all instructions."""
        return not self.sparse and not self.instruction


class DeviceAttributes(NamedTuple):
    """Attributes of the device of each launch: float64 arrays, one value per launch, NaN where unknown.

    `dram_limit` is DRAM bandwidth in B/s at the highest memory clock. `dram_per_cycle` is bytes per cycle of that
    clock, `counted_dram` the same by the peak of the counter. Clocks are in Hz: `sm_clock` of the launch,
    `memory_clock` of the run. `steady` (bool) marks launches long enough to show their clocks.
    """

    dram_limit: Floats
    dram_per_cycle: Floats
    counted_dram: Floats
    highest_clock: Floats
    sm_clock: Floats
    memory_clock: Floats
    steady: npt.NDArray[np.bool_]
    peaks: list[Peak]

    @property
    def steady_sm_clock(self) -> Floats:
        """The SM clock of launches long enough to show it; NaN for others, whose printed clock is too low."""
        return np.where(self.steady, self.sm_clock, np.nan)


def device_attributes_of(table: pa.Table) -> DeviceAttributes:
    """The device attributes of a table of launches."""
    return DeviceAttributes(
        dram_limit(table),
        dram_per_cycle(table),
        tables.floats(table, DRAM_PEAK),
        tables.floats(table, "device__attribute_max_gpu_frequency_khz") * 1e3,
        tables.floats(table, "sm_clock_hz"),
        run_clock(table),
        tables.floats(table, "duration_ns") >= LONG_ENOUGH_NS,
        peaks(table),
    )


def bus_bytes(table: pa.Table) -> Floats:
    """Bytes per memory clock cycle of the bus, one per launch: 2 transfers x bus width / 8.

    Source: nine boards from A2000 to GH200, where it agrees with the counters (docs/numbers.md). NaN without the
    attributes, and for integrated GPUs, whose bus width attribute has no confirmed meaning.
    """
    width = 2 * tables.floats(table, "device__attribute_global_memory_bus_width") / 8
    return np.where((width > 0) & (tables.floats(table, "device__attribute_integrated") != 1), width, np.nan)


def dram_limit(table: pa.Table) -> Floats:
    """DRAM bandwidth in B/s at the highest memory clock, one per launch; NaN without the attributes."""
    clock = np.full(len(table), np.nan)
    for attribute in ("max_mem_frequency_khz", "memory_clock_rate"):
        clock = np.where(clock > 0, clock, tables.floats(table, f"device__attribute_{attribute}") * 1e3)
    limit: Floats = bus_bytes(table) * np.where(clock > 0, clock, np.nan)
    return limit


def dram_per_cycle(table: pa.Table) -> Floats:
    """DRAM bytes per cycle of the memory clock, one per launch: of the bus, else the peak of the counter.

    The bus takes precedence: on boards with part of the bus disabled, the counter's peak covers the whole chip.
    """
    bus = bus_bytes(table)
    return np.where(np.isnan(bus), tables.floats(table, DRAM_PEAK), bus)


def l2_size(table: pa.Table) -> Floats:
    """The size of the L2 cache in bytes, one per launch; NaN without the attribute."""
    return tables.floats(table, "device__attribute_l2_cache_size")


def peaks(table: pa.Table) -> list[Peak]:
    """The peak per SM cycle of every compute unit: dense and sparse, over all instructions and for each one."""
    found: dict[tuple[str, bool, str], Floats] = {}
    for ceiling in known.ceilings():
        if ceiling.clock == "sm" and tables.has_column(table, ceiling.metric):
            place = (ceiling.column.removeprefix("peak_flops_"), False, "")
            values = tables.floats(table, ceiling.metric) * ceiling.factor
            before = found.get(place, np.full(len(table), np.nan))
            found[place] = np.where(np.isnan(before), values, before)
    metrics = _tensor_metrics(table, "sum.peak_sustained")
    for peak in tensor_peaks(metrics, tables.words(table, "compute_capability") if metrics else []):
        for instruction in {"", INSTRUCTION_TITLES.get(peak.instruction, peak.instruction)}:
            place = (f"tensor_{peak.precision}", peak.sparse, instruction)
            found[place] = np.fmax(found.get(place, np.full(len(table), np.nan)), peak.per_cycle)
    return [Peak(*place, per_cycle) for place, per_cycle in found.items()]


def sparse_shares(table: pa.Table) -> dict[str, Floats]:
    """Share of each tensor unit's operations that were sparse, one per launch; NaN or absent if not collected."""
    shares: dict[str, Floats] = {}
    for suffix in ("sum", "sum.per_cycle_elapsed"):
        sparse: dict[str, Floats] = {}
        both: dict[str, Floats] = {}
        for name, values in _tensor_metrics(table, suffix).items():
            counter = known.tensor_counter(name.partition(".")[0])
            if counter is None or "sparsity" not in counter.part:
                continue
            unit, amount = f"tensor_{counter.precision}", np.nan_to_num(values)
            both[unit] = both.get(unit, np.zeros(len(table))) + amount
            if "sparsity_on" in counter.part:
                sparse[unit] = sparse.get(unit, np.zeros(len(table))) + amount
        for unit, amount in sparse.items():
            with np.errstate(divide="ignore", invalid="ignore"):
                share = amount / both[unit]
            shares[unit] = np.fmax(shares.get(unit, np.full(len(table), np.nan)), share)
    return shares


def _tensor_metrics(table: pa.Table, suffix: str) -> dict[str, Floats]:
    return {
        name: tables.floats(table, name)
        for name in table.column_names
        if name.startswith(known.TENSOR_PREFIX) and name.partition(".")[2] == suffix
    }
