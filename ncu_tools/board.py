"""What a report says of its own board, beside counters: limits from `device__attribute_*`, peaks per cycle, L2 size.

ncu collects device attributes always and without an extra pass. They give what the board can do at its highest clocks,
where a report's own ceilings hold at the clocks of the profile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from ncu_launch import metrics as known
from ncu_parsers import tables
from ncu_parsers.peaks import tensor_peaks
from ncu_parsers.tables import Floats

INSTRUCTION_TITLES = {
    "hmma": "mma.sync", "imma": "mma.sync", "dmma": "mma.sync", "hgmma": "wgmma", "igmma": "wgmma", "qgmma": "wgmma",
    "utchmma": "tcgen05", "utcqmma": "tcgen05", "utcomma": "tcgen05", "utcimma": "tcgen05",
}  # fmt: skip
"""Tensor instructions as they are called in counters -> as they are called in PTX."""


class Peak(NamedTuple):
    """Operations per SM cycle of one unit, for each launch; `instruction` is "" for the fastest of all."""

    unit: str
    sparse: bool
    instruction: str
    per_cycle: Floats

    @property
    def is_plain(self) -> bool:
        """Whether it is the unit's dense peak."""
        return not self.sparse and not self.instruction


class Board(NamedTuple):
    """The board under each launch: limits in B/s and Hz, clocks while profiled in Hz, peaks. NaN where unknown."""

    dram_limit: Floats
    highest_clock: Floats
    sm_clock: Floats
    memory_clock: Floats
    peaks: list[Peak]


def board_of(table: pa.Table) -> Board:
    """The boards of a table of launches."""
    return Board(
        dram_limit(table),
        tables.floats(table, "device__attribute_max_gpu_frequency_khz") * 1e3,
        tables.floats(table, "sm_clock_hz"),
        tables.floats(table, "dram_clock_hz"),
        peaks(table),
    )


def dram_limit(table: pa.Table) -> Floats:
    """DRAM bandwidth in B/s at the highest memory clock: 2 x clock x bus width / 8. NaN without the attributes.

    Source: nine boards from A2000 to GH200, where it agrees with the counters (docs/numbers.md). Integrated GPUs are
    left out: what the bus width means there is not confirmed.
    """
    clock = tables.floats(table, "device__attribute_max_mem_frequency_khz") * 1e3
    width = tables.floats(table, "device__attribute_global_memory_bus_width")
    limit = 2 * clock * width / 8
    return np.where((limit > 0) & (tables.floats(table, "device__attribute_integrated") != 1), limit, np.nan)


def l2_size(table: pa.Table) -> Floats:
    """The size of the L2 cache in bytes, NaN without the attribute."""
    return tables.floats(table, "device__attribute_l2_cache_size")


def peaks(table: pa.Table) -> list[Peak]:
    """The peak per SM cycle of every compute unit, dense and sparse, over all instructions and of each."""
    found: dict[tuple[str, bool, str], Floats] = {}
    for ceiling in known.ceilings():
        if ceiling.clock == "sm" and ceiling.metric in table.column_names:
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
    """For each tensor unit the share of its operations that were sparse; NaN or absent where that was not collected."""
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
