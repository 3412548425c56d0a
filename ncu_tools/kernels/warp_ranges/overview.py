"""The contents of a trace from inside kernels: a row per launch."""

from __future__ import annotations

from typing import Any

import numpy as np
from ncu_parsers.warp_ranges.warp_trace import MISSING, Clock, WarpTrace

from ncu_tools.kernels.warp_ranges.launch_ranges import launches_in


def rows_of_launches(trace: WarpTrace) -> list[dict[str, Any]]:
    """Number, kernel, blocks, warps, ranges, markers and time (ns) of each launch; None if the trace lacks it."""
    count = len(trace.launches)
    of_range = trace.warps.launch[trace.ranges.warp]
    is_marker = trace.ranges.end == MISSING
    ranges = np.bincount(of_range[~is_marker], minlength=count)
    markers = np.bincount(of_range[is_marker], minlength=count)
    times = dict(launches_in(trace))
    found = []
    for number, launch in enumerate(trace.launches):
        mine = trace.warps.launch == number
        known = trace.clock is Clock.NANOSECONDS and trace.is_aligned and number in times
        found.append({
            "launch": number, "kernel": launch.kernel,
            "blocks": len(np.unique(trace.warps.block[mine])) if mine.any() else None,
            "warps": int(mine.sum()) or None,
            "ranges": int(ranges[number]) or sum(one.launch == number for one in trace.sums),
            "markers": int(markers[number]), "time_ns": times[number] if known else None,
        })  # fmt: skip
    return found
