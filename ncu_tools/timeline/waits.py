"""API calls in which the host waits, allocates or loads code, by call and by the host range around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from ncu_parsers.timelines.activity.activity import Activity, HostTime, Integers

from ncu_tools.timeline.call_kinds import ALLOCATOR, MODULE_LOADING, SYNCHRONISATION, calls_of_kind, kind_of_call
from ncu_tools.timeline.gaps import ThreadsOfCalls, copies_of_pageable_memory
from ncu_tools.timeline.intervals import NOTHING, IntervalSet, Mask

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


@dataclass(frozen=True)
class WaitingCalls:
    """The `rows` of calls that wait, allocate or load code in `window`, longest first; which of all copy `pageable`."""

    window: IntervalSet
    rows: Integers
    pageable: Mask

    @classmethod
    def of(cls, activity: Activity, launching: Integers, window: IntervalSet) -> WaitingCalls:
        """Find them; `launching` is the row of each operation's call."""
        calls = activity.calls
        waits = calls_of_kind(calls, SYNCHRONISATION)
        pageable = copies_of_pageable_memory(activity, launching) & ~waits
        rows = np.flatnonzero(waits | pageable | calls_of_kind(calls, ALLOCATOR, MODULE_LOADING))
        rows = rows[window.touches(calls.start[rows], calls.end[rows])]
        return cls(window, rows[np.argsort(calls.start[rows] - calls.end[rows], kind="stable")], pageable)

    def times_to_name(self, activity: Activity) -> list[HostTime]:
        """The times of the longest calls, whose host ranges are named."""
        calls, rows = activity.calls, self.rows[:NAMED]
        columns = (calls.threads_of(rows), calls.start[rows], calls.end[rows])
        return [HostTime(*time) for time in zip(*(column.tolist() for column in columns), strict=True)]


def waits_of(
    activity: Activity, waiting: WaitingCalls, busy: Mapping[int, IntervalSet], gaps: Mapping[int, IntervalSet],
    threads: ThreadsOfCalls,
) -> list[HostWait]:  # fmt: skip
    """Waits, allocations and code loading, the longest time first.

    By process, `busy` are the times in which any GPU ran something, and `gaps` those of its most idle GPU.
    """
    calls, window = activity.calls, waiting.window
    around = [threads.of(time.thread).range_over(time.start, time.end) for time in waiting.times_to_name(activity)]
    groups: dict[tuple[int, int, bool, str | None], list[int]] = {}
    for row, named in zip_longest(waiting.rows.tolist(), around):
        key = (int(calls.name[row]), calls.owner_of(row)[0], bool(waiting.pageable[row]), named[0] if named else None)
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
