"""The largest possible values of metrics on any GPU: larger values are damage, and are not used."""

from __future__ import annotations

import math
from functools import cache

ROUNDING = 0.05
"""Tolerance of limits: replays in several passes shift shares; no share of 127 public launches reaches 100.5 %."""
LARGEST = {
    "smsp__thread_inst_executed_per_inst_executed.ratio": 32.0,
    "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio": 32.0,
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": 32.0,
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio": 32.0,
    "sm__warps_active.avg.per_cycle_active": 64.0,
}
"""Limits by architecture: threads per warp, bytes per sector, warps per SM."""


@cache
def largest_of(metric: str) -> float:
    """The largest possible value of a metric in its unit, with tolerance; infinite for one without a limit."""
    is_share = "pct" in metric.rpartition("__")[2]
    return LARGEST.get(metric, 100.0 if is_share else math.inf) * (1 + ROUNDING)
