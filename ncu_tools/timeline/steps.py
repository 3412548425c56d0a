"""The steps of a recording, the window of each on a GPU, and what the GPU did in it.

A step is a range of the host. Its window on a GPU begins when the host is in the range and what was launched before it
is done, at the latest with its first operation; it ends with its last operation or with the range, whichever is later,
at the latest where the next step begins. Which operations are of a step is said by the times of the API calls that
launched them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
from ncu_parsers.timelines.activity.activity import (
    ANNOTATION,
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    MISSING,
    NVTX,
    OS_CALL,
    ApiCalls,
    GpuOperations,
    HostRanges,
    Integers,
)

from ncu_tools.timeline.call_kinds import facts
from ncu_tools.timeline.communication import is_communication
from ncu_tools.timeline.gaps import CAUSES, Gaps
from ncu_tools.timeline.intervals import NOTHING, IntervalSet, Mask, grouped
from ncu_tools.timeline.step_energy import StepEnergy
from ncu_tools.timeline.verdict import StepVerdict, metrics_of, verdict_of

PROFILER_STEP = re.compile(r"ProfilerStep#(\d+)")
LAUNCHER_ITERATION = re.compile(r"iteration (\d+)")
REPEATED, REPEATS_NEEDED, PERIOD_NEEDED = 2 / 3, 3, 2
"""A kernel marks steps if this share of what lies between its launches is the same sequence of kernels."""

WHOLE, REPETITION = "whole recording", "repetition"
BEHIND_EARLIER_WORK = "behind earlier work"
LEAST_CUT = 0.05
"""A recording is cut to its steps if at least this share of it lies outside; most of a GPU's work outside of one."""


@dataclass(frozen=True)
class StepRanges:
    """Ranges of one process that are its steps, in order of their starts, none within another of its thread."""

    names: list[str]
    thread: Integers
    start: Integers
    end: Integers


@dataclass(frozen=True)
class StepWindow:
    """One step on one GPU, from `start` to `end` in ns of the recording."""

    name: str
    start: int
    end: int


def step_ranges(ranges: HostRanges, process: int, pattern: re.Pattern[str] | None) -> tuple[StepRanges, str] | None:
    """The ranges of a process that are its steps, and how they were found; None without such ranges.

    With `pattern`, ranges whose name it matches; else the steps of PyTorch's profiler, or the iterations of our
    launcher.
    """
    wanted = [(pattern, "ranges that --step names")] if pattern is not None else [
        (PROFILER_STEP, "steps of PyTorch's profiler (ProfilerStep#)"),
        (LAUNCHER_ITERATION, "iterations of ncu-bench's launcher"),
    ]  # fmt: skip
    for one, how in wanted:
        match = one.search if pattern is not None else one.fullmatch
        named = np.array([match(name) is not None for name in ranges.names], np.bool_)
        if not named.any():
            continue
        # The library's calls are no steps, and Python functions only where the user names them.
        kinds = ranges.kind != OS_CALL if pattern is not None else np.isin(ranges.kind, (NVTX, ANNOTATION))
        rows = np.flatnonzero(named[ranges.name] & kinds & ranges.of_process(process) & (ranges.end > ranges.start))
        if len(rows):
            return _outermost(ranges, rows), how
    return None


def _outermost(ranges: HostRanges, rows: Integers) -> StepRanges:
    """Of ranges in order of their starts, the longer first, those that end behind all before them of their thread."""
    is_kept = np.zeros(len(rows), np.bool_)
    threads = ranges.at(rows).thread
    for thread in np.unique(threads).tolist():
        own = np.flatnonzero(threads == thread)
        ends = ranges.end[rows[own]]
        reached = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(ends)[:-1]])
        is_kept[own] = ends > reached
    kept = rows[is_kept]
    names = [ranges.names[number] for number in ranges.name[kept].tolist()]
    return StepRanges(names, ranges.at(kept).thread, ranges.start[kept], ranges.end[kept])


@dataclass(frozen=True)
class LaunchTimes:
    """When and by which thread each operation of a GPU was launched; `MISSING` is not known."""

    at: Integers
    thread: Integers


def windows_of_ranges(
    steps: StepRanges, operations: GpuOperations, launched: LaunchTimes
) -> tuple[list[StepWindow], list[str]]:
    """The window of each step on the GPU of `operations`, and what is to be said of those that overlap.

    Where no launch is known at all, a window is the step's range itself. Steps without an operation here are left out.
    """
    if (launched.at == MISSING).all():
        start, end, shown = steps.start, steps.end, np.arange(len(steps.start))
    else:
        place = _step_of_each(steps, launched)
        rows = np.flatnonzero(place >= 0)
        first = np.full(len(steps.start), np.iinfo(np.int64).max)
        last = np.full(len(steps.start), np.iinfo(np.int64).min)
        np.minimum.at(first, place[rows], operations.start[rows])
        np.maximum.at(last, place[rows], operations.end[rows])
        shown = np.unique(place[rows])
        done = _earlier_work(steps.start, first, operations, launched.at)
        start, end = np.minimum(first, np.maximum(steps.start, done)), np.maximum(last, steps.end)
    start, end = _until_the_next(steps.thread[shown], start[shown], end[shown])
    found = [
        StepWindow(steps.names[one], begin, stop)
        for one, begin, stop in zip(shown.tolist(), start.tolist(), end.tolist(), strict=True)
        if stop > begin
    ]
    found.sort(key=lambda window: window.start)
    return found, [*_without_work(len(steps.start), len(shown)), *_on_overlaps(found, len(shown))]


def _without_work(steps: int, shown: int) -> list[str]:
    return [f"{steps - shown} of {steps} steps have no operation in the recording, and are left out"] * (
        0 < shown < steps
    )


def typical_step(steps: Sequence[TimelineStep]) -> TimelineStep | None:
    """The step of median length, the shorter one of two; None without steps."""
    by_length = sorted(steps, key=lambda step: step.span_ns)
    return by_length[(len(by_length) - 1) // 2] if by_length else None


def _step_of_each(steps: StepRanges, launched: LaunchTimes) -> Integers:
    """Index of the step in which each operation was launched; -1 if none; the later one if two overlap.

    What a thread launched that was in no step itself, as the backward pass, belongs to the step that was open then, and
    to none where several were.
    """
    of_own = np.full(len(launched.at), -1)
    of_other, open_steps = of_own.copy(), np.zeros(len(launched.at), np.int64)
    for thread in np.unique(steps.thread).tolist():
        mine = np.flatnonzero(steps.thread == thread)  # in order of their starts and of their ends
        place = np.searchsorted(steps.start[mine], launched.at, side="right") - 1
        inside = (launched.at != MISSING) & (place >= 0)
        inside[inside] = launched.at[inside] < steps.end[mine[place[inside]]]
        of_other[inside] = mine[place[inside]]
        open_steps += inside
        own = inside & (launched.thread == thread)
        of_own[own] = of_other[own]
    found: Integers = np.where((of_own < 0) & (open_steps == 1), of_other, of_own)
    return found


def _until_the_next(thread: Integers, start: Integers, end: Integers) -> tuple[Integers, Integers]:
    """Windows of steps, in order, that end at the latest where the next one of their thread begins."""
    start, end = start.copy(), end.copy()
    for one in np.unique(thread).tolist():
        mine = np.flatnonzero(thread == one)
        start[mine] = np.maximum.accumulate(start[mine])
        end[mine[:-1]] = np.minimum(end[mine[:-1]], start[mine[1:]])
    return start, end


def _on_overlaps(windows: Sequence[StepWindow], steps: int) -> list[str]:
    """Sentences on steps of several threads that ran at once, and on those of which no time is left."""
    notes = []
    reached = accumulate((one.end for one in windows), max)
    early = sum(one.start < until for one, until in zip(windows[1:], reached, strict=False))
    if early:
        notes.append(
            f"{early} of {len(windows)} steps begin while one of another thread is not over: what ran in the time of "
            "both counts in each"
        )
    if hidden := steps - len(windows):
        notes.append(f"{hidden} of {steps} steps are left out: the next one begins on the GPU when they do or before")
    return notes


def _earlier_work(begun: Integers, first: Integers, operations: GpuOperations, called: Integers) -> Integers:
    """When the operations that were asked for before each step end; the lowest number where there are none.

    `begun` is when the host enters each step, `first` when its first operation starts. An operation whose launch is
    not known is earlier if it starts before the step's first one: it stood before that in the queue.
    """
    known = called != MISSING
    asked = _latest_end_before(begun, called[known], operations.end[known])
    return np.maximum(asked, _latest_end_before(first, operations.start[~known], operations.end[~known]))


def _latest_end_before(moments: Integers, start: Integers, end: Integers) -> Integers:
    """The latest of the ends whose start is before each moment; the lowest number where none is."""
    order = np.argsort(start, kind="stable")
    reached = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(end[order])])
    return reached[np.searchsorted(start[order], moments)]


def windows_of_iterations(operations: GpuOperations) -> list[StepWindow]:
    """The windows of iterations that a table of launches names, from the first operation of each to the next one's."""
    iterations = np.unique(operations.iteration[operations.iteration != MISSING])
    starts = [int(operations.start[operations.iteration == one].min()) for one in iterations.tolist()]
    ends = [int(operations.end[operations.iteration == one].max()) for one in iterations.tolist()]
    order = np.argsort(starts, kind="stable").tolist()
    found = []
    for at, one in enumerate(order):
        following = starts[order[at + 1]] if at + 1 < len(order) else ends[one]
        end = min(max(ends[one], starts[one]), following) if at + 1 < len(order) else ends[one]
        if end > starts[one]:
            found.append(StepWindow(f"iteration {iterations[one]}", starts[one], end))
    return found


def windows_by_repetition(operations: GpuOperations, call: Integers) -> tuple[list[StepWindow], str] | None:
    """Steps from one launch of a kernel to its next one, where what lies between repeats; None if nothing does.

    Of the kernels with equal sequences between their launches, the rarest is taken: a step holds repeated layers, not
    the other way round. Kernels of one graph that one API call (`call`, its row for each operation) launched are no
    steps.
    """
    kernels = np.flatnonzero(operations.kind == KERNEL)
    if not len(kernels):
        return None
    streams = Counter(operations.stream[kernels].tolist())
    rows = kernels[operations.stream[kernels] == streams.most_common(1)[0][0]]
    sequence = operations.name[rows]
    counts = Counter(sequence.tolist())
    for name, count in sorted(counts.items(), key=lambda one: (one[1], one[0])):
        if count < REPEATS_NEEDED + 1 or count * PERIOD_NEEDED > len(sequence):
            continue
        places = np.flatnonzero(sequence == name)
        by = call[rows[places]]
        if len(np.unique(by[by >= 0])) < (by >= 0).sum():
            continue
        between = [sequence[start:stop].tobytes() for start, stop in pairwise(places)]
        most, same = Counter(between).most_common(1)[0]
        covered = int(places[-1] - places[0])
        if same >= max(REPEATS_NEEDED, REPEATED * len(between)) and 2 * covered >= len(sequence):
            if len(most) < PERIOD_NEEDED * sequence.itemsize:
                continue
            starts = operations.start[rows[places]].tolist()
            kernel = operations.names[name]
            how = (
                f"found by repetition, and may be layers: from one launch of {_cut(kernel)} to the next; {same} of "
                f"{len(between)} have the same {len(most) // sequence.itemsize} kernels"
            )
            windows = [StepWindow(f"{REPETITION} {at}", start, stop)
                       for at, (start, stop) in enumerate(pairwise(starts), start=1)
                       if stop > start]  # fmt: skip
            return windows, how
    return None


def window_behind_earlier_work(
    operations: GpuOperations, call: Integers, calls: ApiCalls
) -> tuple[list[StepWindow], str] | None:
    """The time behind work from before the recording, as one step; None if the GPU did no such work, or else much more.

    A stream had waited for such work if its first operation starts long after its call (`call`, its row for each
    operation) returned, and nothing recorded ran on the GPU in between. The last such stream counts.
    """
    free = None
    for rows in grouped(np.unique(operations.stream, return_inverse=True)[1]):
        first = int(rows[np.argmin(operations.start[rows])])
        begun = int(operations.start[first])
        if call[first] < 0 or begun - int(calls.end[call[first]]) < facts()["in_flight"]["least_ns"]:
            continue
        if not ((operations.start < begun) & (operations.end > int(calls.start[call[first]]))).any():
            free = max(begun, free or begun)
    if free is None or not is_little_before(operations, free):
        return None
    window = StepWindow(BEHIND_EARLIER_WORK, free, int(operations.end.max()))
    return [window], "the part of the recording behind work of the GPU from before it"


def is_little_before(operations: GpuOperations, time: int) -> bool:
    """True if no more of the operations' time than `LEAST_CUT` is of operations that start before `time`, in ns."""
    lasts = operations.end - operations.start
    return bool(lasts[operations.start < time].sum() <= LEAST_CUT * lasts.sum())


def _cut(name: str, most: int = 60) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


@dataclass(frozen=True)
class TimelineStep:
    """One step on one GPU, in ns.

    span = busy + idle; busy = compute + exposed_communication + exposed_copies; idle is the sum of `causes`. Compute is
    when a kernel runs that does not communicate, or a memset. Communication and copies are exposed when nothing
    computes; copies also only when nothing communicates. Operations count in every step in which a part of them ran:
    `kernels` all of them, `computing_kernels` those that do not communicate.
    """

    name: str
    start_ns: int
    span_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    communication_ns: int
    exposed_communication_ns: int
    copies_ns: int
    exposed_copies_ns: int
    kernels: int
    computing_kernels: int
    memsets: int
    graphs: int
    copies: int
    collectives: int
    gaps: int
    causes: dict[str, int]
    verdict: StepVerdict
    energy: StepEnergy | None = None


@dataclass(frozen=True)
class GpuWork:
    """When a GPU computed, communicated and copied; in part of `compute`, `graphs`, it is not known which."""

    computes: Mask
    communicates: Mask
    compute: IntervalSet
    communication: IntervalSet
    copies: IntervalSet
    exposed_communication: IntervalSet
    exposed_copies: IntervalSet
    graphs: IntervalSet

    @classmethod
    def of(cls, operations: GpuOperations) -> GpuWork:
        """What these operations did, and when."""
        named = np.array([is_communication(name) for name in operations.names], np.bool_)
        is_copy = operations.kind == MEMCPY
        communicates = named[operations.name] & (operations.kind == KERNEL)
        computes = ~is_copy & ~communicates
        compute, communication, copies = (
            IntervalSet.union_of(operations.start[some], operations.end[some])
            for some in (computes, communicates, is_copy)
        )
        whole = operations.kind == GRAPH
        graphs = NOTHING
        if whole.any():
            kernels = computes & ~whole
            graphs = compute - IntervalSet.union_of(operations.start[kernels], operations.end[kernels])
        return cls(computes, communicates, compute, communication, copies, communication - compute,
                   copies - (compute | communication), graphs)  # fmt: skip


def sums_of_steps(
    windows: Sequence[StepWindow], operations: GpuOperations, work: GpuWork, gaps: Gaps
) -> list[TimelineStep]:
    """What a GPU did in each window, with the verdict on it and the numbers behind that, without words of evidence."""
    start = np.array([one.start for one in windows], np.int64)
    end = np.array([one.end for one in windows], np.int64)
    sums = {
        "compute_ns": work.compute, "communication_ns": work.communication, "copies_ns": work.copies,
        "exposed_communication_ns": work.exposed_communication, "exposed_copies_ns": work.exposed_copies,
        "idle_ns": gaps.idle,
    }  # fmt: skip
    columns = {name: some.within(start, end) for name, some in sums.items()}
    causes = {cause: gaps.causes[cause].within(start, end) for cause in CAUSES}
    in_graphs = work.graphs.within(start, end).tolist()
    columns |= _counts(operations, work, start, end)
    columns["gaps"] = np.searchsorted(gaps.idle.start, end) - np.searchsorted(gaps.idle.end, start, side="right")
    found = []
    for at, window in enumerate(windows):
        values = {name: int(column[at]) for name, column in columns.items()}
        of_causes = {cause: int(column[at]) for cause, column in causes.items() if column[at]}
        span = window.end - window.start
        verdict = verdict_of(span, values["compute_ns"], values["exposed_copies_ns"],
                             values["exposed_communication_ns"], of_causes, in_graphs[at])  # fmt: skip
        verdict = replace(verdict, metrics=metrics_of(verdict.bound, values, of_causes))
        found.append(
            TimelineStep(name=window.name, start_ns=window.start, span_ns=span, busy_ns=span - values["idle_ns"],
                         causes=of_causes, verdict=verdict, energy=None, **values)
        )  # fmt: skip
    return found


def _counts(operations: GpuOperations, work: GpuWork, start: Integers, end: Integers) -> dict[str, Integers]:
    """How many operations of each kind ran in each window, in all of it or in a part."""
    is_kernel = operations.kind == KERNEL
    kinds = {
        "kernels": is_kernel, "computing_kernels": is_kernel & work.computes, "memsets": operations.kind == MEMSET,
        "graphs": operations.kind == GRAPH, "copies": operations.kind == MEMCPY, "collectives": work.communicates,
    }  # fmt: skip
    counts = {}
    for name, some in kinds.items():
        begun = operations.start[some]
        over = np.sort(np.maximum(operations.end[some], begun + 1))  # one without length ran when it began
        counts[name] = np.searchsorted(begun, end) - np.searchsorted(over, start, side="right")
    return counts
