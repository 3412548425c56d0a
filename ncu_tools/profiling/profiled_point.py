"""Counts of a point's profiled run, as columns of its row beside the time of runs without a profiler.

FLOPs and bytes of several launches are summed, and null if one launch lacks them. A counter requested by name is
summed, or its maximum or minimum taken, if its name says so, and else averaged over the time of the launches.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from ncu_launch.counters.metric_groups import select
from ncu_parsers.schema.operator_columns import DIALECT as OPERATORS
from ncu_parsers.schema.own_columns import METRICS, UNITS, VALUES
from ncu_parsers.schema.tables import Floats, field_entries, floats

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.kernel_row import run_total

SUMMED = ("time", "flops", "dram")
"""Groups of metrics whose results are columns already."""
DRAM = "dram"

Row = dict[str, Any]


def counted(table: pa.Table, metrics: Sequence[str], iterations: int = 1) -> Row:
    """The columns `profiled_*` of the launches of a run, and the counters that `metrics` name beyond `SUMMED`.

    Sums are means over the `iterations`. If a launch failed, its counters mean nothing: the row has none, and says so.
    """
    source = str(table.column("source")[0]) if len(table) else None
    failed = sum(table.column("failed").to_pylist())
    if failed:
        return {"profiled_by": source, "profiled_why_not": f"{failed} of {len(table)} launches failed"}
    ceilings = ceilings_of(table)
    total = run_total(hotspots(table, ceilings).rows)
    named = _requested_columns(table, metrics)
    of_hardware = source != OPERATORS
    values = {name: _over_launches(table, name, iterations) for name in named}
    moved = _each(total.dram_bytes, iterations)
    return {
        "profiled_by": source,
        "profiled_launches": total.launches // iterations if total.launches % iterations == 0 else None,
        "profiled_time_ns": _each(total.time_total_ns, iterations),
        "profiled_flops": None if total.flops_lower_bound else _each(total.flops, iterations),
        "profiled_flops_basis": total.flops_basis,
        "profiled_dram_bytes": moved if of_hardware else None,
        "profiled_dram_fraction": _dram_fraction(table, ceilings.per_launch.get(DRAM)) if of_hardware else None,
        "profiled_operator_bytes": None if of_hardware else moved,
        UNITS[METRICS]: {name: field_entries(table.schema.field(name)).get("unit", "") for name in named},
        VALUES[METRICS]: {name: value for name, value in values.items() if value is not None},
    }


def _each(amount: float | None, iterations: int) -> float | None:
    return None if amount is None else amount / iterations


def _dram_fraction(table: pa.Table, peaks: Floats | None) -> float | None:
    """The bytes of all launches over the DRAM's capacity in their time, at the profiled clock."""
    if peaks is None:
        return None
    able = float(np.sum(peaks * floats(table, "duration_ns") / 1e9))
    moved = float(np.sum(floats(table, "dram_bytes")))
    return moved / able if np.isfinite(able) and np.isfinite(moved) and able > 0 else None


def _requested_columns(table: pa.Table, metrics: Sequence[str]) -> list[str]:
    """The columns of counters requested by groups beyond `SUMMED`, by name or by pattern."""
    usual = set(select(SUMMED, None).names)
    others = [entry for entry in metrics if entry not in SUMMED]
    patterns = [entry for entry in others if "*" in entry or "?" in entry]
    known = {name for entry in others if entry not in patterns for name in select((entry,), None).names}
    wanted = (known - usual) | set(others)
    columns = [field.name for field in table.schema if "__" in field.name and _is_number(field.type)]
    return [
        name for name in columns
        if name in wanted or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    ]  # fmt: skip


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _over_launches(table: pa.Table, name: str, iterations: int) -> float | None:
    """One value for all launches, a sum per iteration; None if a launch lacks it."""
    values = floats(table, name)
    times = floats(table, "duration_ns")
    if not len(values) or np.isnan(values).any():
        return None
    if name.endswith((".sum", ".count")):
        return float(values.sum()) / iterations
    if name.endswith((".max", ".min")):
        return float(values.max() if name.endswith(".max") else values.min())
    weights = times if np.isfinite(times).all() and times.sum() > 0 else np.ones(len(values))
    return float((values * weights).sum() / weights.sum())
