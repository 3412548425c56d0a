"""What a profiled run of a point counted, as columns of its row beside the time of runs without a profiler.

Of several launches FLOPs and bytes are sums, and null where one launch lacks them. A counter asked for by its name is
a sum if its name says so, a maximum or minimum likewise, and else a mean over the time of the launches.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from ncu_launch.counters.metric_groups import select
from ncu_parsers.report_data.operator_records import DIALECT as OPERATORS
from ncu_parsers.schema.own_columns import METRICS, UNITS, VALUES
from ncu_parsers.schema.tables import Floats, field_entries, floats

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.hotspots import hotspots, run_total

SUMMED = ("time", "flops", "dram")
"""Groups of metrics whose results are columns already."""
DRAM = "dram"

Row = dict[str, Any]


def counted(table: pa.Table, metrics: Sequence[str]) -> Row:
    """The columns `profiled_*` of a table of launches, and the counters that `metrics` name beyond `SUMMED`."""
    ceilings = ceilings_of(table)
    total = run_total(hotspots(table, ceilings).rows)
    source = str(table.column("source")[0]) if len(table) else None
    named = _named(table, metrics)
    is_counted = source != OPERATORS
    return {
        "profiled_by": source,
        "profiled_launches": total.launches,
        "profiled_time_ns": total.time_total_ns,
        "profiled_flops": None if total.flops_lower_bound else total.flops,
        "profiled_flops_basis": total.flops_basis,
        "profiled_dram_bytes": total.dram_bytes if is_counted else None,
        "profiled_dram_fraction": _dram_fraction(table, ceilings.per_launch.get(DRAM)) if is_counted else None,
        "profiled_operator_bytes": None if is_counted else total.dram_bytes,
        UNITS: {name: field_entries(table.schema.field(name)).get("unit", "") for name in named},
        VALUES[METRICS]: {name: value for name in named if (value := _over_launches(table, name)) is not None},
    }


def _dram_fraction(table: pa.Table, peaks: Floats | None) -> float | None:
    """The bytes of all launches over what the DRAM could move in their time, at the profiled clock."""
    if peaks is None:
        return None
    able = float(np.sum(peaks * floats(table, "duration_ns") / 1e9))
    moved = float(np.sum(floats(table, "dram_bytes")))
    return moved / able if np.isfinite(able) and np.isfinite(moved) and able > 0 else None


def _named(table: pa.Table, metrics: Sequence[str]) -> list[str]:
    """The columns of counters that are asked for by groups beyond `SUMMED`, by name or by pattern."""
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


def _over_launches(table: pa.Table, name: str) -> float | None:
    """One value for all launches; None if a launch lacks it."""
    values = floats(table, name)
    times = floats(table, "duration_ns")
    if not len(values) or np.isnan(values).any():
        return None
    if name.endswith((".sum", ".count")):
        return float(values.sum())
    if name.endswith((".max", ".min")):
        return float(values.max() if name.endswith(".max") else values.min())
    weights = times if np.isfinite(times).all() and times.sum() > 0 else np.ones(len(values))
    return float((values * weights).sum() / weights.sum())
