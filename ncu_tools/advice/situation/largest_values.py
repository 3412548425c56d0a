"""The most that a metric can be on any GPU: a value above it is damage, and is not used."""

from __future__ import annotations

import math
from functools import cache

ROUNDING = 0.05
"""Replays of several passes add a few per cent to a share: no share of 127 launches of public reports is 100.5 %."""
LARGEST = {
    "smsp__thread_inst_executed_per_inst_executed.ratio": 32.0,
    "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio": 32.0,
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": 32.0,
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio": 32.0,
    "sm__warps_active.avg.per_cycle_active": 64.0,
}
"""Threads of a warp, bytes of a sector, warps of an SM."""


@cache
def largest_of(metric: str) -> float:
    """The most that a metric can be, in its unit; infinite for one without a limit."""
    is_share = "pct" in metric.rpartition("__")[2]
    return LARGEST.get(metric, 100.0 if is_share else math.inf) * (1 + ROUNDING)
