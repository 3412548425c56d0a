"""The idle time of a GPU, split exactly by what the host did meanwhile.

A gap ends with an operation, and the API call that launched it splits the gap. Before the call, the launching thread
had not asked for anything: that time belongs to what the thread did. From the call on, the launch itself takes the
time. If the call had returned before the gap, the operation was queued, and what the host did then is no cause.
docs/timeline.md has the rules in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from ncu_parsers.timelines.activity import activity as contract
from ncu_parsers.timelines.activity.activity import (
    MEMCPY,
    PAGEABLE,
    Activity,
    ApiCalls,
    GpuOperations,
    HostRanges,
    HostTime,
    Integers,
    plain_name,
)

from ncu_tools.timeline.call_kinds import (
    ALLOCATOR,
    BEGIN_CAPTURE,
    END_CAPTURE,
    MODULE_LOADING,
    SYNCHRONISATION,
    calls_of_kind,
    facts,
    names_that_load_data,
)
from ncu_tools.timeline.intervals import AT_ONCE, NOTHING, IntervalSet, in_blocks

LAUNCH, QUEUED, DEPENDENCY = "launch", "queued", "dependency"
PROFILER, DATA_LOADING, PYTHON, HOST_CODE, UNKNOWN = "profiler", "data loading", "python", "host code", "unknown"
GRAPH_CAPTURE = "graph capture"
CAUSES = (
    LAUNCH, SYNCHRONISATION, ALLOCATOR, MODULE_LOADING, GRAPH_CAPTURE, DATA_LOADING, PYTHON, HOST_CODE, QUEUED,
    DEPENDENCY, PROFILER, UNKNOWN,
)  # fmt: skip
"""The causes of gaps; every nanosecond of a gap has one."""

LOOKED_AT_ONCE = 1024
"""Number of ranges searched at once for the innermost one over a time, latest ones first."""


def cause_column(cause: str) -> str:
    """The name of the column with the time of a cause, in ns."""
    return f"{cause.replace(' ', '_')}_ns"


Layer = tuple[str, IntervalSet]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Gaps:
    """The gaps of one GPU, and the moments of each cause.

    `next_operation` is the row of the operation that ended each gap, `call` the row of its API call; -1 for none.
    """

    idle: IntervalSet
    causes: dict[str, IntervalSet]
    next_operation: Rows
    call: Rows

    def __len__(self) -> int:
        return len(self.idle)

    @property
    def main_causes(self) -> npt.NDArray[np.int8]:
        """Index in `CAUSES` of the cause with most of each gap's time."""
        found = np.zeros(len(self), np.int8)
        for first in range(0, len(self), AT_ONCE):
            block = np.arange(first, min(first + AT_ONCE, len(self)))
            found[block] = self.causes_in(block).argmax(axis=0)
        return found

    def causes_in(self, gaps: npt.NDArray[np.intp]) -> Integers:
        """The ns of each cause (rows, as `CAUSES`) in these gaps (columns)."""
        start, end = self.idle.start[gaps], self.idle.end[gaps]
        return np.stack([self.causes[cause].within(start, end) for cause in CAUSES])


@dataclass(frozen=True)
class LongGap:
    """One gap, and what the host did in it. Times in ns; None if unknown.

    `call_ns` is the duration of the next operation's API call, `late_ns` the time from the begin of the gap to the
    begin of that call (negative if it began before). `host_range` is the innermost range of the launching thread over
    at least half of the time before the call, and `covered` its share of that. `after_wait` is the API call in which
    the host waited for the GPU when the gap began.
    """

    start_ns: int
    duration_ns: int
    cause: str
    cause_ns: int
    next_operation: str | None
    call: str | None
    call_ns: int | None
    late_ns: int | None
    host_range: str | None
    covered: float | None
    after_wait: str | None


class HostThread:
    """The activities of one host thread, as sets of moments. Over a time are the ranges of `named`."""

    def __init__(self, activity: Activity, thread: int, holds_host: Mask, named: HostRanges) -> None:
        self._activity, self._named = activity, named
        self.thread = thread
        self._calls = np.flatnonzero(activity.calls.of_thread(thread)).astype(np.int32)
        self._waits = activity.calls.at(self._calls[holds_host[self._calls]])

    @cached_property
    def before_calls(self) -> list[Layer]:
        """Causes of the time before an operation's API call, with their moments; the first that holds one has it."""
        ranges = self._activity.ranges
        loads = names_that_load_data(ranges.names)
        return [
            *self.in_calls,
            (SYNCHRONISATION, self._in_calls[SYNCHRONISATION]),
            (PROFILER, self._overheads(contract.PROFILER)),
            (LAUNCH, self._in_calls[LAUNCH]),
            (DATA_LOADING, self._in_ranges(loads[ranges.name])),
            (HOST_CODE, self._in_ranges((ranges.kind == contract.OPERATOR) | (ranges.kind == contract.OS_CALL))),
            (PYTHON, self._in_ranges(ranges.kind == contract.PYTHON)),
        ]

    @cached_property
    def in_calls(self) -> list[Layer]:
        """Causes that precede launching: loading code, allocating, and capturing launches that run later."""
        found = self._in_calls
        loading = found[MODULE_LOADING] | self._overheads(contract.MODULE_LOADING)
        return [(MODULE_LOADING, loading), (ALLOCATOR, found[ALLOCATOR]), (GRAPH_CAPTURE, found[GRAPH_CAPTURE])]

    @property
    def profiler(self) -> IntervalSet:
        """When the profiler itself ran on this thread."""
        return self._overheads(contract.PROFILER)

    @cached_property
    def _in_calls(self) -> dict[str, IntervalSet]:
        """By cause, when the thread was in API calls of that kind, captured a graph, or launched."""
        calls, own = self._activity.calls, self._calls
        captures = own[calls_of_kind(calls, BEGIN_CAPTURE, END_CAPTURE, rows=own)]
        found = {
            kind: IntervalSet.union_at(calls.start, calls.end, own[calls_of_kind(calls, kind, rows=own)])
            for kind in (MODULE_LOADING, ALLOCATOR, SYNCHRONISATION)
        }
        between = facts()["stretch"]["launching_ns"]
        launching = IntervalSet.union_at(calls.start, calls.end, own, longest_gap=between)
        return {**found, GRAPH_CAPTURE: captures_of(calls.at(captures)), LAUNCH: launching}

    def _in_ranges(self, chosen: Mask) -> IntervalSet:
        """When the thread was in any of the chosen ranges of the recording."""
        ranges = self._activity.ranges
        return IntervalSet.union_at(ranges.start, ranges.end, np.flatnonzero(chosen & ranges.of_thread(self.thread)))

    def _overheads(self, kind: int) -> IntervalSet:
        table = self._activity.overheads
        chosen = (table.thread == self.thread) & (table.kind == kind)
        return IntervalSet.union_of(table.start[chosen], table.end[chosen])

    def range_over(self, start: int, end: int) -> tuple[str, float] | None:
        """The innermost range over at least half of [start, end), and its share of it; None if there is none."""
        ranges = self._named
        began = int(np.searchsorted(self._ranges, np.int32(np.searchsorted(ranges.start, end, side="left"))))
        over_none = LOOKED_AT_ONCE * int(np.searchsorted(self._reached, start, side="right"))  # nor any range before
        for behind in range(began if end > start else over_none, over_none, -LOOKED_AT_ONCE):
            rows = self._ranges[max(behind - LOOKED_AT_ONCE, over_none) : behind]
            overlap = np.minimum(ranges.end[rows], end) - np.maximum(ranges.start[rows], start)
            over_half = np.flatnonzero(2 * overlap >= end - start)
            if len(over_half):  # the latest to begin is the innermost
                best = int(over_half[-1])
                return plain_name(ranges.names[int(ranges.name[rows[best]])]), float(overlap[best]) / (end - start)
        return None

    @cached_property
    def _ranges(self) -> Rows:
        """The rows of the thread's ranges."""
        return np.flatnonzero(self._named.of_thread(self.thread)).astype(np.int32)

    @cached_property
    def _reached(self) -> Integers:
        """The latest end among each block of `LOOKED_AT_ONCE` ranges and all blocks before."""
        rows, ends = self._ranges, self._named.end
        blocks = (rows[first : first + LOOKED_AT_ONCE] for first in range(0, len(rows), LOOKED_AT_ONCE))
        return np.maximum.accumulate(np.array([ends[block].max() for block in blocks], np.int64))

    def waiting_at(self, moment: int) -> str | None:
        """The API call in which the thread waited for the GPU at a moment; None if there was none."""
        waiting = np.flatnonzero((self._waits.start <= moment) & (self._waits.end > moment))
        return self._waits.names[int(self._waits.name[waiting[0]])] if len(waiting) else None


def copies_of_pageable_memory(activity: Activity, launching: Integers) -> Mask:
    """Mask of the calls that launched a copy from or to pageable memory (bool, one per call).

    These block the host even if asynchronous by name: cudaMemcpyAsync returns once the host memory was read or written
    (CUDA runtime API, "API synchronization behavior").
    """
    operations = activity.operations
    pageable = (operations.source_memory == PAGEABLE) | (operations.destination_memory == PAGEABLE)
    found = np.zeros(len(activity.calls), np.bool_)
    found[launching[(operations.kind == MEMCPY) & pageable & (launching >= 0)]] = True
    return found


def captures_of(calls: ApiCalls) -> IntervalSet:
    """The times of graph captures by one thread: from each call that begins one to the next that ends one."""
    begins, ends = (np.flatnonzero(calls_of_kind(calls, kind)) for kind in (BEGIN_CAPTURE, END_CAPTURE))
    place = np.searchsorted(calls.start[ends], calls.start[begins])
    is_ended = place < len(ends)
    return IntervalSet.union_of(calls.start[begins[is_ended]], calls.end[ends[place[is_ended]]])


class ThreadsOfCalls:
    """The host threads of a recording, each analysed when it is first asked for.

    `launching` is the row of the API call of each operation.
    """

    def __init__(self, activity: Activity, launching: Integers) -> None:
        self._activity = activity
        self._holds_host = calls_of_kind(activity.calls, SYNCHRONISATION) | copies_of_pageable_memory(
            activity, launching
        )
        self._named = activity.ranges
        self._threads: dict[int, HostThread] = {}

    def look_up(self, times: Sequence[HostTime]) -> None:
        """Look up the ranges over these times where the recording does not hold all; others have no name then."""
        if self._activity.ranges_over is not None:
            self._named = self._activity.ranges_over(times)
            self._threads.clear()

    def of(self, thread: int) -> HostThread:
        """The thread with this number."""
        if thread not in self._threads:
            self._threads[thread] = HostThread(self._activity, thread, self._holds_host, self._named)
        return self._threads[thread]


def gaps_of(
    activity: Activity, operations: GpuOperations, call: Integers, idle: IntervalSet, threads: ThreadsOfCalls,
    lost: Integers,
) -> Gaps:  # fmt: skip
    """The gaps of one GPU, which are when it was `idle`, from its `operations` and the row of each one's call.

    `lost` are the times of launches without a record, in order: what they launched may have run in the next gap.
    """
    preceding, following = _operations_around(operations, idle)
    before, calls = (np.append(call, -1)[rows].astype(np.int32) for rows in (preceding, following))
    last_thread = _last_thread(activity, call)
    found: dict[str, list[IntervalSet]] = {cause: [] for cause in CAUSES}
    for start, end, preceded, followed, launched in in_blocks(idle.start, idle.end, before, following, calls):
        gaps, causes = IntervalSet(start, end), dict.fromkeys(CAUSES, NOTHING)
        known = np.where(_after_lost_launches(activity, gaps, preceded, launched, lost), -1, launched)
        for cause, part in _parts(activity, gaps, followed >= 0, known, last_thread, threads):
            causes[cause] = causes[cause] | part
        for cause, part in causes.items():
            found[cause].append(part)
    return Gaps(idle, {cause: IntervalSet.chained(found.pop(cause)) for cause in CAUSES}, following, calls)


def _operations_around(operations: GpuOperations, idle: IntervalSet) -> tuple[Rows, Rows]:
    """The rows of the operations before and after each gap; -1 for none."""
    lasting = np.flatnonzero(operations.end > operations.start).astype(np.int32)
    at = np.searchsorted(operations.start[lasting], idle.end, side="left")
    none = np.array([-1], np.int32)
    return np.concatenate([none, lasting])[at], np.concatenate([lasting, none])[at]


def _after_lost_launches(activity: Activity, idle: IntervalSet, before: Rows, calls: Rows, lost: Integers) -> Mask:
    """Mask of the gaps with a lost launch between the calls of the operations around them.

    Its value is irrelevant for a gap whose next operation has no known call.
    """
    if not len(lost):
        return np.zeros(len(idle), np.bool_)
    start = activity.calls.start
    earlier = np.where(before >= 0, np.minimum(start[before], idle.start), idle.start)
    found: Mask = np.searchsorted(lost, start[calls]) > np.searchsorted(lost, earlier)
    return found


def _last_thread(activity: Activity, call: Integers) -> int | None:
    """The thread that launched the last operation with a known call; None if no call is known."""
    known = call[call >= 0]
    return activity.calls.owner_of(known[-1])[1] if len(known) else None


def _parts(
    activity: Activity, idle: IntervalSet, has_next: Mask, calls: Rows, last_thread: int | None,
    threads: ThreadsOfCalls,
) -> Iterator[Layer]:  # fmt: skip
    """Cut the gaps into parts with one cause each; together they are all gaps."""
    known = calls >= 0
    begun, ended, thread = _columns_at(activity, calls)
    queued = known & (ended <= idle.start)
    short = idle.end - idle.start <= facts()["stretch"]["queued_ns"]
    for cause, rows in (
        (QUEUED, queued & short), (DEPENDENCY, queued & ~short),
        (UNKNOWN, ~known & (has_next | (last_thread is None))),
    ):  # fmt: skip
        yield cause, IntervalSet(idle.start[rows], idle.end[rows])
    if last_thread is not None:
        rows = ~has_next
        yield from _split(
            IntervalSet(idle.start[rows], idle.end[rows]), threads.of(last_thread).before_calls, HOST_CODE
        )
    late = known & ~queued
    asked = np.clip(begun, idle.start, idle.end)
    # a launch that returned long before its operation began did not take the time
    slow = idle.end - ended > facts()["stretch"]["starting_ns"]
    launched = np.where(slow, np.clip(ended, asked, idle.end), idle.end)
    yield DEPENDENCY, IntervalSet.union_of(launched[late], idle.end[late])
    for one in np.unique(thread[late]).tolist():
        rows, host = late & (thread == one), threads.of(one)
        before = IntervalSet.union_of(idle.start[rows], asked[rows])
        after = IntervalSet.union_of(asked[rows], launched[rows])
        yield from _split(before, host.before_calls, HOST_CODE)
        yield from _split(after, [*host.in_calls, (PROFILER, host.profiler)], LAUNCH)


def _columns_at(activity: Activity, calls: Rows) -> tuple[Integers, Integers, Integers]:
    """Start, end and thread of calls by their rows; arbitrary for -1."""
    if not len(activity.calls):
        nothing = np.zeros(len(calls), np.int64)
        return nothing, nothing, nothing
    table = activity.calls
    return table.start[calls], table.end[calls], table.threads_of(calls)


def _split(whole: IntervalSet, layers: list[Layer], rest: str) -> Iterator[Layer]:
    """Cut `whole` along layers: each takes its part of what earlier ones left, and `rest` takes the remainder."""
    for cause, layer in layers:
        if not len(whole):
            return
        taken = whole & layer
        if len(taken):
            yield cause, taken
            whole = whole - layer
    yield rest, whole


def gaps_within(gaps: Gaps, start: int, end: int) -> Gaps:
    """The gaps in a window; gaps that reach beyond it are cut."""
    here = np.flatnonzero((gaps.idle.end > start) & (gaps.idle.start < end))
    idle = IntervalSet(np.maximum(gaps.idle.start[here], start), np.minimum(gaps.idle.end[here], end))
    return Gaps(idle, gaps.causes, gaps.next_operation[here], gaps.call[here])


def longest_gaps(activity: Activity, rows: Rows, gaps: Gaps, threads: ThreadsOfCalls, most: int) -> list[LongGap]:
    """The longest gaps of the GPU that ran the operations `rows`, longest first."""
    longest = _longest(gaps, most)
    by_cause = gaps.causes_in(longest)
    main, time = by_cause.argmax(axis=0), by_cause.max(axis=0)
    return [
        _described(activity, rows, gaps, threads, gap, (CAUSES[cause], cause_ns))
        for gap, cause, cause_ns in zip(longest.tolist(), main.tolist(), time.tolist(), strict=True)
    ]


def times_to_name(activity: Activity, gaps: Gaps, most: int) -> list[HostTime]:
    """The times in the longest gaps whose host ranges `longest_gaps` names."""
    times = (_time_to_name(activity, gaps, gap) for gap in _longest(gaps, most).tolist())
    return [time for time in times if time is not None]


def _longest(gaps: Gaps, most: int) -> npt.NDArray[np.intp]:
    return np.argsort(gaps.idle.start - gaps.idle.end, kind="stable")[:most]


def _time_to_name(activity: Activity, gaps: Gaps, gap: int) -> HostTime | None:
    """The part of a gap before the call that ended it, else all of it, and the calling thread; None without a call."""
    start, end, call = int(gaps.idle.start[gap]), int(gaps.idle.end[gap]), int(gaps.call[gap])
    if call < 0:
        return None
    before = min(int(activity.calls.start[call]), end)
    return HostTime(activity.calls.owner_of(call)[1], start, before if before > start else end)


def _described(
    activity: Activity, rows: Rows, gaps: Gaps, threads: ThreadsOfCalls, gap: int, cause: tuple[str, int]
) -> LongGap:
    """Describe one gap; `cause` is its main cause with its time in ns."""
    start, end = int(gaps.idle.start[gap]), int(gaps.idle.end[gap])
    following, call = int(gaps.next_operation[gap]), int(gaps.call[gap])
    found: tuple[str, float] | None = None
    called = wait = late = lasts = None
    if (time := _time_to_name(activity, gaps, gap)) is not None:
        host, begun = threads.of(time.thread), int(activity.calls.start[call])
        called, late = activity.calls.names[int(activity.calls.name[call])], begun - start
        lasts = int(activity.calls.end[call]) - begun
        found = host.range_over(time.start, time.end)
        wait = host.waiting_at(start)
    operations = activity.operations
    return LongGap(
        start, end - start, *cause,
        operations.names[int(operations.name[rows[following]])] if following >= 0 else None,
        called, lasts, late, found[0] if found else None, found[1] if found else None, wait,
    )  # fmt: skip
