"""Launch configuration of a kernel: grid, block, registers, shared memory and waves of its launches, as texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_parsers.schema.tables import floats, list_codes

from ncu_tools.numbers.number_format import FORMATS

GRID, BLOCK = "grid", "block"
REGISTERS = (("launch__registers_per_thread",), ("registers_per_thread",))
SHARED = (
    ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic"),
    ("static_shared_memory_bytes", "dynamic_shared_memory_bytes"),
    ("shared_memory_bytes",),
)
WAVES = (("launch__waves_per_multiprocessor",),)
"""Columns of counters and of traces: the first group with a value is used; several columns are added."""
COLUMNS = frozenset({GRID, BLOCK, *(name for one in (REGISTERS, SHARED, WAVES) for names in one for name in names)})

OF_OCCUPANCY = {
    "launch__registers_per_thread": "registers", "launch__block_size": "threads per block",
    "launch__shared_mem_per_block_static": "static shared memory",
    "launch__shared_mem_per_block_dynamic": "dynamic shared memory",
    "launch__occupancy_limit_registers": "blocks per SM by registers",
    "launch__occupancy_limit_shared_mem": "blocks per SM by shared memory",
    "launch__occupancy_limit_warps": "blocks per SM by warps",
}  # fmt: skip
"""Limits on the number of blocks per SM, and metrics of that number -> the name in a sentence."""


@dataclass(frozen=True)
class Alike:
    """Launches of one kernel with equal occupancy: their mask, and the properties in which others differ, or ""."""

    kept: npt.NDArray[np.bool_]
    differ_in: str


def most_alike(launches: pa.Table) -> Alike:
    """Among launches that differ in registers, threads or shared memory of a block, the equal ones with the most time.

    Medians over different ones would be limits that no launch has.
    """
    values = {name: floats(launches, name) for name in OF_OCCUPANCY}
    several = [name for name, each in values.items() if len(np.unique(each[~np.isnan(each)])) > 1]
    if not several:
        return Alike(np.full(len(launches), True), "")
    columns = np.column_stack([values[name] for name in several])
    _, groups = np.unique(np.nan_to_num(columns, nan=-1.0), axis=0, return_inverse=True)
    groups = groups.reshape(-1)
    times = np.bincount(groups, np.nan_to_num(floats(launches, "duration_ns")))
    return Alike(groups == np.lexsort((np.bincount(groups), times))[-1], OF_OCCUPANCY[several[0]])


@dataclass(frozen=True)
class LaunchConfiguration:
    """Blocks of the grid and threads of a block by dimension, registers of a thread, shared memory of a block, waves.

    If launches differ: the most frequent shape with the number of others, and the minimum and maximum of a number. None
    if the report lacks it. Shared memory is static and dynamic, without the driver's share.
    """

    grid: str | None
    block: str | None
    registers: str | None
    shared_memory: str | None
    waves: str | None


def launch_configuration(launches: pa.Table) -> LaunchConfiguration:
    """The configuration of the launches of one kernel."""
    return LaunchConfiguration(
        grid=_shapes(launches, GRID),
        block=_shapes(launches, BLOCK),
        registers=_numbers(launches, REGISTERS, lambda value: FORMATS["count"](round(value))),
        shared_memory=_numbers(launches, SHARED, FORMATS["byte"]),
        waves=_numbers(launches, WAVES, FORMATS["number"]),
    )


def _shapes(launches: pa.Table, column: str) -> str | None:
    """The most frequent shape, as 128 x 1 x 1, and the number of others."""
    codes, shapes = list_codes(launches, column)
    counts = {
        shape: count for shape, count in zip(shapes, np.bincount(codes).tolist(), strict=False) if shape and count
    }
    if not counts:
        return None
    shape, others = max(counts, key=counts.__getitem__), len(counts) - 1
    return " x ".join(map(str, shape)) + (f" and {others:,} other{'s' * (others > 1)}" if others else "")


def _numbers(launches: pa.Table, sources: Sequence[Sequence[str]], written: Callable[[float], str]) -> str | None:
    """The number, or its minimum and maximum, of the first source that has any; None without."""
    for names in sources:
        values = sum((floats(launches, name) for name in names), np.zeros(len(launches)))
        known = values[~np.isnan(values)]
        if len(known):
            least, most = written(float(known.min())), written(float(known.max()))
            return least if least == most else f"{least} to {most}"
    return None
