"""A row per kernel, its rank and share in the run, and the rows as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
from ncu_launch.notes import Note, NoteKind
from ncu_parsers.schema import arrays
from ncu_parsers.schema.flops_basis import BETWEEN_BASES
from ncu_parsers.schema.own_columns import ARGUMENTS, VALUES, own_fields

from ncu_tools.ceilings.work_by_unit import FLOAT_UNITS, UNIT_COLUMNS
from ncu_tools.kernels.names.distinct_names import distinct_names, fitted_names
from ncu_tools.kernels.names.readable_names import readable_name

ORDERS = {"time": "time_total_ns", "headroom": "headroom_ns", "flops": "flops", "dram": "dram_bytes"}

NEEDS = {"headroom": "a ceiling and FLOPs or bytes", "flops": "FLOP counts", "dram": "DRAM bytes"}
BY_TIME = "rows are by time: none has what --sort {} needs, {}"

KERNEL, CATEGORY = "kernel", "category"
GROUPS = {
    "name": KERNEL, "short": KERNEL, "grid": KERNEL, "nvtx": "range", "operator": "operator", CATEGORY: CATEGORY,
    "location": "location", "report": "report", "device": "device",
}  # fmt: skip
"""Grouping -> the name of its rows; `grouping` finds the rows."""

NAMES_OF_KERNELS = frozenset({"name", "short", "grid"})
"""Groupings whose rows have names of kernels, full or short, with or without a shape."""

OF_CALLS = frozenset({"operator", "location"})
"""Groupings whose rows are calls: their work is that of the operators, each counted once."""

NEAR_ITS_LIMIT = 0.8
"""A resource at this share of its peak bounds a kernel. Source: NVIDIA's speed-of-light rule."""

OF_SEVERAL = frozenset({"short", "nvtx", "operator", CATEGORY, "location", "report", "device"})
"""Groupings whose rows may combine several kernels, so that facts on some do not hold for all."""
FLAGS_NOTED = 3
"""The number of flagged kernels that notes name."""

NOT_OF_KERNELS = ("work", "point", "kernels", "hottest_kernel")
"""Fields of a row without a column in the table of kernels."""


def names_shown(titles: Iterable[str], group: str = "name", width: int | None = None) -> dict[str, str]:
    """Row titles as shown to people: unique readable names for kernels, other titles unchanged.

    Names wider than `width` are cut if they stay unique.
    """
    names = distinct_names(titles) if group in NAMES_OF_KERNELS else {title: title for title in titles}
    if width is None:
        return names
    fitted = fitted_names(names.values(), width)
    return {title: fitted[name] for title, name in names.items()}


BEFORE_TITLE = "\0ran\0"
"""Separates device and title in the key of a row: damaged reports have names with a NUL, and none with this."""


def row_key(title: str, device: str | None) -> str:
    """The key of a row: its title, with its device if known, since one kernel on two devices is two rows."""
    return title if device is None else f"{device}{BEFORE_TITLE}{title}"


def title_and_device(key: str) -> tuple[str, str | None]:
    """Title and device in a key of `row_key`."""
    device, separator, title = key.partition(BEFORE_TITLE)
    return (title, device) if separator else (key, None)


@dataclass(frozen=True)
class Hotspot:
    """All launches of one kernel on one device.

    Times in ns, rates per second of GPU time; None if the report lacks the value. `work` is the work of each unit used
    by any kernel of the run: FLOP, or OP of integer tensor units, which `flops` leaves out. `least_bytes` is the least
    traffic by the shapes of operators, an estimate, if no bytes were counted; arithmetic intensity and bound then use
    it instead. `flag` says why the kernel may be above a ceiling, None if it is not. `headroom_ns` is the time saved if
    the kernel reached its ceiling, at most that in which it ran alone on its GPU, and `headroom_share` its share of all
    time: the most that the run can gain.
    `sm_busy` and `memory_busy` are the fractions of its peak that the busiest part of the SMs and of the memory system
    reached; if no roof is known, they make `bound` "SM", "memory" or "latency", and `bound_fraction` None. `point` has
    the varied values, {} in other runs. For a row that is a Python location, `kernels` is the number of kernels it
    launches, and `hottest_kernel` the one with most time. `device` and `report` are shared by all launches; None if
    unknown, or if there are several.
    """

    kernel: str
    launches: int
    time_total_ns: float | None
    time_mean_ns: float | None
    time_min_ns: float | None
    time_max_ns: float | None
    time_std_ns: float | None
    time_share: float | None
    time_cumulative: float | None
    flops: float | None
    flops_per_s: float | None
    dram_bytes: float | None
    dram_bytes_per_s: float | None
    arithmetic_intensity: float | None
    bound: str | None
    bound_fraction: float | None
    unit: str | None = None
    flops_basis: str | None = None
    flops_lower_bound: bool = False
    flag: str | None = None
    headroom_ns: float | None = None
    headroom_share: float | None = None
    work: dict[str, float | None] = field(default_factory=dict)
    least_bytes: float | None = None
    least_bytes_per_s: float | None = None
    sm_busy: float | None = None
    memory_busy: float | None = None
    point: dict[str, Any] = field(default_factory=dict)
    kernels: int | None = None
    hottest_kernel: str | None = None
    device: str | None = None
    report: str | None = None

    @property
    def key(self) -> str:
        """Unique identification of the row: its title and device."""
        return row_key(self.kernel, self.device)

    def share_of_flops(self, unit: str) -> float | None:
        """A unit's share of the kernel's counted FLOPs; None for integer units, and if unknown."""
        amount = self.work.get(unit)
        return amount / self.flops if unit in FLOAT_UNITS and self.flops and amount is not None else None


@dataclass
class Hotspots:
    """All kernels in the requested order, with notes, the title of their times, and their devices."""

    rows: list[Hotspot]
    notes: list[str] = field(default_factory=list)
    time_title: str = "time"
    devices: Sequence[str] = ()


def kernels_table(rows: list[Hotspot]) -> pa.Table:
    """The kernels as a table, one column per field of `Hotspot` and used unit: kernels.parquet of a run folder."""
    columns = {}
    for column in fields(Hotspot):
        if column.name in NOT_OF_KERNELS:
            continue
        values = [getattr(row, column.name) for row in rows]
        if column.type == "int":
            columns[column.name] = arrays.integers(values, pa.int64())
        elif column.type == "bool":
            columns[column.name] = arrays.booleans(values)
        elif column.type.startswith("float"):
            columns[column.name] = arrays.floats(np.array([np.nan if value is None else value for value in values]))
        else:
            columns[column.name] = arrays.texts(values)
    for unit in used_units(rows):
        amounts = [row.work[unit] for row in rows]
        columns[UNIT_COLUMNS[unit]] = arrays.floats(np.array([np.nan if one is None else one for one in amounts]))
    of_points = own_fields([{VALUES[ARGUMENTS]: row.point} for row in rows], columns)
    columns |= {column.name: pa.array(values, type=column.type) for column, values in of_points.columns}
    return pa.table(columns)


def used_units(rows: list[Hotspot]) -> list[str]:
    """The units that any kernel used, CUDA cores first and integer tensor units last."""
    return [unit for unit in UNIT_COLUMNS if any(row.work.get(unit) for row in rows)]


def run_total(rows: list[Hotspot]) -> Hotspot:
    """The sum of all kernels; None for values that a kernel lacks. Without bound, spread and flag."""
    time, flops, dram, least = (
        _sum_of_all([getattr(row, name) for row in rows if row.launches])
        for name in ("time_total_ns", "flops", "dram_bytes", "least_bytes")
    )
    launches = sum(row.launches for row in rows)
    bases = {basis for row in rows if row.flops_basis for basis in row.flops_basis.split(BETWEEN_BASES)}
    return Hotspot(
        kernel="all kernels",
        launches=launches,
        time_total_ns=time,
        time_mean_ns=time / launches if time is not None and launches else None,
        time_min_ns=None,
        time_max_ns=None,
        time_std_ns=None,
        time_share=None if time is None else 1.0,
        time_cumulative=None,
        flops=flops,
        flops_per_s=flops / time * 1e9 if flops is not None and time else None,
        dram_bytes=dram,
        dram_bytes_per_s=dram / time * 1e9 if dram is not None and time else None,
        arithmetic_intensity=flops / dram if flops is not None and dram else None,
        bound=None,
        bound_fraction=None,
        flops_basis=BETWEEN_BASES.join(sorted(bases)) or None,
        flops_lower_bound=flops is not None and any(row.flops_lower_bound for row in rows),
        least_bytes=least,
        least_bytes_per_s=least / time * 1e9 if least is not None and time else None,
        work={unit: _sum_of_all([row.work[unit] for row in rows if row.launches]) for unit in used_units(rows)},
    )


def _sum_of_all(values: list[float | None]) -> float | None:
    """The sum; None if there are no values or one is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def ranked(
    kernels: Iterable[Hotspot],
    notes: Sequence[str],
    *,
    by: str = "time",
    time_title: str = "time",
    devices: Sequence[str] = (),
) -> Hotspots:
    """Sort the kernels of one run by `by` (one of `ORDERS`) and add their shares of the run; flags follow `notes`."""
    rows = list(kernels)
    is_known = any(getattr(row, ORDERS[by]) is not None for row in rows)
    fallback = [] if is_known or by == "time" else [Note(BY_TIME.format(by, NEEDS[by]), NoteKind.ASKED)]
    orders = ORDERS[by], ORDERS["time"]

    def rank(row: Hotspot) -> tuple[float, float, str, str]:
        first, then = (-1.0 if (value := getattr(row, order)) is None else value for order in orders)
        return -first, -then, row.kernel, row.key

    rows.sort(key=rank)
    return Hotspots(_with_shares(rows), [*notes, *_flag_notes(rows), *fallback], time_title, devices)


def _with_shares(rows: list[Hotspot]) -> list[Hotspot]:
    """The rows with their share of all time, and the cumulative share; unchanged if a time is unknown."""
    whole = _sum_of_all([row.time_total_ns for row in rows if row.launches])
    if not whole:
        return rows
    result, reached = [], 0.0
    for row in rows:
        share = None if row.time_total_ns is None else row.time_total_ns / whole
        reached += share or 0.0
        gain = None if row.headroom_ns is None else row.headroom_ns / whole
        result.append(replace(row, time_share=share, time_cumulative=min(reached, 1.0), headroom_share=gain))
    return result


def _flag_notes(rows: list[Hotspot]) -> list[str]:
    flagged = [row for row in rows if row.flag]
    notes = [f"{readable_name(row.kernel)}: {row.flag}" for row in flagged[:FLAGS_NOTED]]
    more = len(flagged) - len(notes)
    if more:
        notes.append(f"{more} more kernel{'s are' if more > 1 else ' is'} above a ceiling; --format json says why")
    return notes
