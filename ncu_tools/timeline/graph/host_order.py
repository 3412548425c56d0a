"""The API calls of a recording in the order of their threads, and hand-overs from one thread to another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ncu_parsers.timelines.activity.activity import FARTHEST, MISSING, PYTHON, Activity, Integers

from ncu_tools.timeline.graph.step_graph import NONE, Mask, Numbers, graph_facts, numbered
from ncu_tools.timeline.intervals import IntervalSet

MOST_BURSTS = 16
"""Number of other threads' latest bursts that are searched for the end of a gap."""


@dataclass(frozen=True)
class HostOrder:
    """Moments of threads: starts of calls, ends of calls that may block, and the end of the last range.

    Only threads that launch GPU work or wait for it count: a watchdog that polls events every second is part of no
    step.

    `row` is the call of each moment, -1 for the last one. `threads` are (process, thread), `bounds` the first moment of
    each. `start_of` and `end_of` are the moments of each call, -1 for none.
    """

    threads: list[tuple[int, int]]
    bounds: Integers
    time: Numbers
    row: Integers
    is_end: Mask
    start_of: Integers
    end_of: Integers

    @classmethod
    def of(cls, activity: Activity, launching: Integers, ends: Integers) -> HostOrder:
        """The moments of the threads that made the calls `launching` (rows); `ends` are the calls whose ends count."""
        calls = activity.calls
        ends = ends[calls.end[ends] > calls.start[ends]]
        pairs, thread = numbered(calls.process, calls.thread)
        kept = np.unique(thread[np.concatenate([launching, ends])])
        starts = np.flatnonzero(np.isin(np.arange(len(pairs)), kept)[thread]) if len(pairs) else ends
        threads = [(pairs[one][0], pairs[one][1]) for one in kept.tolist()]
        thread = np.searchsorted(kept, thread)  # threads that are not kept are never looked up
        lasts = _last_moments(activity, threads, thread[starts], calls.end[starts])
        time = np.concatenate([calls.start[starts], calls.end[ends], list(lasts.values())]).astype(np.float64)
        row = np.concatenate([starts, ends, np.full(len(lasts), NONE)]).astype(np.int64)
        of_thread = np.concatenate([thread[starts], thread[ends], list(lasts)]).astype(np.int64)
        is_start = np.arange(len(time)) < len(starts)
        order = np.lexsort((is_start, time, of_thread))
        bounds = np.searchsorted(of_thread[order], np.arange(len(threads) + 1))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        start_of, end_of = np.full(len(calls), NONE), np.full(len(calls), NONE)
        start_of[starts] = place[: len(starts)]
        end_of[ends] = place[len(starts) : len(starts) + len(ends)]
        return cls(threads, bounds, time[order], row[order], ~is_start[order], start_of, end_of)

    def __len__(self) -> int:
        return len(self.time)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """First moment, and the one behind the last, of every thread."""
        return list(zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True))

    def in_calls(self, activity: Activity, origin: int) -> tuple[Numbers, Numbers]:
        """The time that a thread spent in API calls between the previous moment and each moment; and its other time."""
        within, calls = np.zeros(len(self)), activity.calls
        since = np.empty(len(self))
        for first, behind in self.spans:
            rows = self.row[first:behind][~self.is_end[first:behind]]
            busy = IntervalSet.union_of(calls.start[rows], calls.end[rows])
            before = busy.before(self.time[first:behind].astype(np.int64))
            within[first:behind] = np.diff(before, prepend=0)
            since[first:behind] = np.diff(self.time[first:behind], prepend=origin)
        return within, since - within


def _last_moments(
    activity: Activity, threads: list[tuple[int, int]], thread: Integers, end: Integers
) -> dict[int, int]:
    """By thread index, the end of its last range if that is after its last call; `thread` and `end` are of calls."""
    ranges, number = activity.ranges, {one: at for at, one in enumerate(threads)}
    of_owner = np.array([number.get(one, len(threads)) for one in ranges.owners] or [0], np.int64)
    named, called = np.zeros(len(threads) + 1, np.int64), np.zeros(len(threads) + 1, np.int64)
    rows = np.flatnonzero(ranges.kind != PYTHON)
    np.maximum.at(named, of_owner[ranges.owner[rows]], ranges.end[rows])
    called[thread] = -FARTHEST
    np.maximum.at(called, thread, end)
    later = np.flatnonzero((named > called)[:-1] & (named > 0)[:-1])
    return dict(zip(later.tolist(), named[later].tolist(), strict=True))


def hand_overs(order: HostOrder, device: Integers) -> tuple[Integers, Integers]:
    """Moments at which a thread has waited for another thread's burst of calls, and the last moments of these.

    The gap before the moment contains a whole burst of another thread of the process. `device` is the GPU that each
    call launched on, `MISSING` for none: threads without a common device, such as one per GPU, hand nothing over.
    """
    least = graph_facts()["hand_over"]["gap_ns"]
    gap = np.diff(order.time, prepend=-np.inf) > least
    gap[order.bounds[:-1]] = True
    begins = np.flatnonzero(gap)
    lasts = np.append(begins[1:], len(order)) - 1
    thread = np.searchsorted(order.bounds, begins, side="right") - 1
    waited_since = np.where(np.isin(begins, order.bounds), -np.inf, order.time[begins - 1])
    of_call = np.append(device, MISSING)[order.row]
    of_thread = np.repeat(np.arange(len(order.threads)), np.diff(order.bounds))
    used = [set[int]() for _ in order.threads]
    for one, number in set(zip(of_thread.tolist(), of_call.tolist(), strict=True)):
        used[one].add(number)
    process = [one for one, _ in order.threads]
    by_last = np.argsort(order.time[lasts], kind="stable")
    at = np.searchsorted(order.time[lasts][by_last], order.time[begins], side="right") - 1
    waits, for_what = [], []
    for burst, (mine, since, place) in enumerate(zip(thread.tolist(), waited_since.tolist(), at.tolist(), strict=True)):
        for other in by_last[max(place - MOST_BURSTS, -1) + 1 : place + 1][::-1].tolist():
            theirs = int(thread[other])
            if order.time[lasts[other]] <= since:
                break
            inside = order.time[begins[other]] >= since
            shared = (used[theirs] & used[mine]) - {MISSING}
            if inside and theirs != mine and process[theirs] == process[mine] and shared:
                waits.append(begins[burst])
                for_what.append(lasts[other])
                break
    return np.array(waits, np.int64), np.array(for_what, np.int64)
