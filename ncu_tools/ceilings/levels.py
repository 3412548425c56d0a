"""Bytes of each launch at each memory level by one of two definitions, and the ceiling of shared memory.

`traffic` counts reads and writes requested at L2 and L1: the columns `l2_bytes` and `l1_bytes`. `nvidia` counts bytes
that the levels returned to the SM, as NVIDIA's hierarchical charts do since 2023. Counters, factors and sources are in
`levels.toml`. Ceilings follow NVIDIA's definition in both (docs/numbers.md, section 4).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from ncu_launch.counters import metrics as known
from ncu_launch.files.toml_tables import table_beside
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import LEAST_BYTES, Floats

from ncu_tools.ceilings.machine_files import DRAM, TRAFFIC

COLUMNS = {"l2": "l2_bytes", "l1": "l1_bytes"}
SECTOR_BYTES, WAVEFRONT_BYTES = 32, 128
SUFFIXES = (".sum", ".sum.per_second")
_VERSION = r"[0-9]{1,3}\.[0-9]"
_facts = partial(table_beside, __file__, "levels")


def bytes_of(table: pa.Table, levels: Iterable[str], definition: str = TRAFFIC) -> dict[str, Floats]:
    """Bytes of each launch at each of `levels` (float64, one per launch); NaN where not collected.

    If DRAM bytes were not counted, they are the least traffic by the shapes of the launch's operator.
    """
    return {level: _bytes_of_level(table, level, definition) for level in levels}


def _bytes_of_level(table: pa.Table, level: str, definition: str) -> Floats:
    if level == DRAM:
        counted = tables.floats(table, "dram_bytes")
        return np.where(np.isnan(counted), tables.floats(table, LEAST_BYTES), counted)
    if definition == TRAFFIC and level in COLUMNS:
        return tables.floats(table, COLUMNS[level])
    result = np.full(len(table), np.nan)
    for entry in _counters(level):
        amount: Floats = _total(table, entry["counter"]) * entry["factor"]
        amount[~_holds(table, entry)] = np.nan
        result = np.where(np.isnan(result), amount, result)
    return _without_unused(table, result) if level == "shared" else result


def _without_unused(table: pa.Table, amount: Floats) -> Floats:
    """Bytes of shared memory, with 0 for launches known to have no instruction on it."""
    for entry in _facts()["unused_shared"]:
        is_unused = _holds(table, entry)
        for count in entry["counts"]:
            is_unused &= tables.floats(table, count) == 0
        amount = np.where(is_unused, 0.0, amount)
    return amount


def transactions_of(table: pa.Table, levels: Iterable[str]) -> dict[str, Floats]:
    """Transactions of each launch at each level (float64); NaN where not collected.

    They are sectors of 32 bytes, requested there for reads and writes, and passes ("wavefronts") over shared memory.
    The byte columns are sectors x 32 or an equivalent byte count, so dividing gives the sectors again.
    """
    columns = {DRAM: "dram_bytes", **COLUMNS}
    return {
        level: tables.floats(table, columns[level]) / SECTOR_BYTES
        if level in columns
        else _without_unused(table, _total(table, _facts()["shared"][0]["counter"]))
        for level in levels
    }


def transaction_bytes(level: str) -> int:
    """The most bytes that a transaction of a level moves."""
    return WAVEFRONT_BYTES if level == "shared" else SECTOR_BYTES


def _counters(level: str) -> list[dict[str, Any]]:
    facts = _facts()
    return [entry for entry in (*facts["nvidia"], *facts["shared"]) if entry["level"] == level]


def _total(table: pa.Table, counter: str) -> Floats:
    """The value of a counter, one per launch: its sum, else its rate per second x the time of the launch."""
    counted, rate = (tables.floats(table, counter + suffix) for suffix in SUFFIXES)
    return np.where(np.isnan(counted), rate * tables.floats(table, "duration_ns") / 1e9, counted)


def _holds(table: pa.Table, entry: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Mask of the launches whose chip has this counter; True where the chip is unknown."""
    codes, capabilities = tables.codes(table, "compute_capability")
    return np.array([_is_for(entry, capability) for capability in capabilities], dtype=bool)[codes]


def _is_for(entry: dict[str, Any], capability: str | None) -> bool:
    """True if the compute capability has this counter, or is unknown."""
    found = re.fullmatch(_VERSION, capability or "")
    lowest, highest = entry.get("since", 0.0), entry.get("until", np.inf)
    return found is None or bool(lowest <= float(found.group()) <= highest)


def byte_metrics(level: str, definition: str, runs: Iterable[pa.Table] = ()) -> list[str]:
    """The metrics that give the bytes of a level on the GPUs of some runs."""
    if level == DRAM or (definition == TRAFFIC and level in COLUMNS):
        return known.byte_metrics(
            level, {one for run in runs for one in tables.codes(run, "compute_capability")[1][:-1]}
        )
    counters = [entry["counter"] for entry in _counters(level) if not entry["counter"].startswith("derived__")]
    return [f"{counter}.sum" for counter in (counters[:1] if level == "shared" else counters)]


def ceiling_metrics(level: str, capability: str | None) -> list[str]:
    """The metrics that give the ceiling of a level on a chip: the peak per cycle, then its clock.

    Memory shared with the CPU has no such counter; then the attributes of the board.
    """
    if level == DRAM and known.has_system_memory_alone(capability):
        return ["device__attribute_max_mem_frequency_khz", "device__attribute_global_memory_bus_width"]
    if level == "shared":
        ceiling = _facts()["roof"]["shared"]
        return [ceiling["metric"], known.clock_metrics(ceiling["clock"])[0]]
    ceilings = [one for one in known.ceilings() if one.column == f"peak_{level}_bytes"]
    of_chip = {entry["counter"] for entry in _counters(level) if _is_for(entry, capability)} if level in COLUMNS else {}
    chosen = next((one for one in ceilings if one.metric.partition(".")[0] in of_chip), ceilings[0])
    return [chosen.metric, known.clock_metrics(chosen.clock)[0]]


def needed_metrics() -> set[str]:
    """Every metric that the bytes or the ceiling of a level can depend on."""
    ceiling = _facts()["roof"]["shared"]
    counters = [entry["counter"] for level in (*COLUMNS, "shared") for entry in _counters(level)]
    of_bytes = {counter + suffix for counter in counters for suffix in SUFFIXES}
    clocks = {clock for domain in ("dram", "lts", "l1tex") for clock in known.clock_metrics(domain)}
    unused = {count for entry in _facts()["unused_shared"] for count in entry["counts"]}
    return of_bytes | {ceiling["metric"], *clocks, *unused}


def shared_memory_ceiling(table: pa.Table) -> Floats:
    """Bandwidth of shared memory in B/s at the profiled clock, one per launch: peak wavefronts x 128; or NaN."""
    ceiling = _facts()["roof"]["shared"]
    clock = np.full(len(table), np.nan)
    for metric in known.clock_metrics(ceiling["clock"]):
        clock = np.where(np.isnan(clock), tables.floats(table, metric), clock)
    peak: Floats = tables.floats(table, ceiling["metric"]) * ceiling["factor"]
    bandwidth: Floats = peak * clock
    return bandwidth


def definition_titles(levels: Sequence[str], definition: str, dram: str) -> dict[str, str]:
    """The meaning of each level's bytes, in words; `dram` is the text for DRAM."""
    titles = _facts()["titles"]
    of_level = {DRAM: dram, "shared": titles["shared"], **titles[definition]}
    return {level: of_level[level] for level in levels}
