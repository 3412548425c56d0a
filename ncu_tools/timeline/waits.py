"""API calls in which the host waits, allocates or loads code, by call and by the host range around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from ncu_parsers.timelines.activity.activity import Activity, Integers

from ncu_tools.timeline.call_kinds import ALLOCATOR, MODULE_LOADING, SYNCHRONISATION, calls_of_kind, kind_of_call
from ncu_tools.timeline.gaps import ThreadsOfCalls, copies_of_pageable_memory
from ncu_tools.timeline.intervals import NOTHING, IntervalSet

NAMED = 2000
"""Number of the longest calls for which the range is looked up."""

PAGEABLE_COPY = "pageable copy"
"""The kind of an asynchronous call that copied pageable memory."""


@dataclass(frozen=True)
class HostWait:
    """Calls of one name in host ranges of one name, in one process. Times in ns, within the window.

    `idle_ns` is the part of `time_ns` in which no GPU of the process ran anything. `behind_ns` is the whole time of
    gaps that began during such a call, when the GPU's queue ran empty while the host waited; None for calls that do not
    wait.
    """

    kind: str
    call: str
    host_range: str | None
    process: int
    count: int
    time_ns: int
    idle_ns: int
    behind_ns: int | None


def waits_of(
    activity: Activity, launching: Integers, window: IntervalSet, busy: Mapping[int, IntervalSet],
    gaps: Mapping[int, IntervalSet], threads: ThreadsOfCalls,
) -> list[HostWait]:  # fmt: skip
    """Waits, allocations and code loading in `window`, the longest time first.

    `launching` is the row of each operation's call. By process, `busy` are the times in which any GPU ran something,
    and `gaps` those of its most idle GPU.
    """
    calls = activity.calls
    waits = calls_of_kind(calls, SYNCHRONISATION)
    pageable = copies_of_pageable_memory(activity, launching) & ~waits
    kept = waits | pageable | calls_of_kind(calls, ALLOCATOR, MODULE_LOADING)
    chosen = np.flatnonzero(kept & window.touches(calls.start, calls.end))
    chosen = chosen[np.argsort(-(calls.end - calls.start)[chosen], kind="stable")]
    groups: dict[tuple[int, int, bool, str | None], list[int]] = {}
    for place, row in enumerate(chosen.tolist()):
        around = None
        if place < NAMED:
            host = threads.of(calls.owner_of(row)[1])
            around = host.range_over(int(calls.start[row]), int(calls.end[row]))
        key = (int(calls.name[row]), calls.owner_of(row)[0], bool(pageable[row]), around[0] if around else None)
        groups.setdefault(key, []).append(row)
    found = []
    for (name, process, is_pageable, around_name), rows in groups.items():
        start, end = calls.start[rows], calls.end[rows]
        union = IntervalSet.union_of(start, end) & window
        idle = gaps.get(process, NOTHING)
        kind = PAGEABLE_COPY if is_pageable else kind_of_call(calls.names[name])
        waited = kind in (PAGEABLE_COPY, SYNCHRONISATION)
        behind = int((idle.end - idle.start)[union.holds(idle.start)].sum()) if waited else None
        found.append(
            HostWait(kind, calls.names[name], around_name, process, len(rows),
                     int(window.within(start, end).sum()), (union - busy.get(process, NOTHING)).total, behind)
        )  # fmt: skip
    return sorted(found, key=lambda one: -one.time_ns)
