"""The steps of a recording, the window of each on a GPU, and what the GPU did in it.

A step is a range of the host; operations belong to the step in which the host launched them. A step's window on a GPU
begins once the host is in the range and earlier launched work is done, at the latest with the step's first operation.
It ends with the step's last operation or the range, whichever is later, but not after the next step begins.
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
from ncu_parsers.timelines.activity.names_to_hold import NamesToHold

from ncu_tools.timeline.call_kinds import facts, names_that_load_data
from ncu_tools.timeline.communication import is_communication
from ncu_tools.timeline.gaps import CAUSES, Gaps
from ncu_tools.timeline.intervals import NOTHING, IntervalSet, Mask, grouped
from ncu_tools.timeline.step_energy import StepEnergy
from ncu_tools.timeline.verdict import StepVerdict, metrics_of, verdict_of

PROFILER_STEP = re.compile(r"ProfilerStep#(\d+)")
LAUNCHER_ITERATION = re.compile(r"iteration (\d+)")
LIKE_STEPS = ("ProfilerStep#%", "iteration %")
"""Both patterns as patterns of SQL's LIKE, which match more."""
REPEATED, REPEATS_NEEDED, PERIOD_NEEDED = 2 / 3, 3, 2
"""Steps by repetition: least share and number of equal sequences between launches of a kernel; their least length."""

WHOLE, TRIMMED, REPETITION = "whole recording", "trimmed recording", "repetition"
BEHIND_EARLIER_WORK = "behind earlier work"
LEAST_CUT = 0.05
"""Least share of a recording outside its steps for it to be cut to them; most of a GPU's work outside them."""


def names_to_hold(pattern: re.Pattern[str] | None) -> NamesToHold:
    """The names of ranges that are steps, by `pattern` if given, or that mean loading of data."""

    def is_step(name: str) -> bool:
        if pattern is not None:
            return pattern.search(name) is not None
        return any(one.fullmatch(name) for one in (PROFILER_STEP, LAUNCHER_ITERATION))

    like = () if pattern is not None else (*LIKE_STEPS, *facts()["data_loading"]["like"])
    return NamesToHold(lambda name: is_step(name) or bool(names_that_load_data([name])[0]), like)


@dataclass(frozen=True)
class StepRanges:
    """The ranges of one process that are steps, ordered by start; within a thread, none contains another."""

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
    """The ranges of a process that are steps, and how they were found; None if there are none.

    With `pattern`, steps are ranges whose names match it; else the steps of PyTorch's profiler, or our launcher's
    iterations.
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
        # calls of the OS are never steps, Python functions only if the user names them
        kinds = ranges.kind != OS_CALL if pattern is not None else np.isin(ranges.kind, (NVTX, ANNOTATION))
        rows = np.flatnonzero(named[ranges.name] & kinds & ranges.of_process(process) & (ranges.end > ranges.start))
        if len(rows):
            return _outermost(ranges, rows), how
    return None


def _outermost(ranges: HostRanges, rows: Integers) -> StepRanges:
    """The outermost of a process's ranges, which are ordered by start, longer first."""
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
    """When, and by which thread, each operation of a GPU was launched; `MISSING` if unknown."""

    at: Integers
    thread: Integers


def windows_of_ranges(
    steps: StepRanges, operations: GpuOperations, launched: LaunchTimes
) -> tuple[list[StepWindow], list[str]]:
    """The window of each step on the GPU of `operations`, and notes on steps that overlap or are left out.

    If no launch is known, the window is the step's range. Steps without an operation on this GPU are left out.
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
    """The step of median length, the shorter of two; None without steps."""
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
        mine = np.flatnonzero(steps.thread == thread)  # ordered both by start and by end
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
    """The windows of steps, each cut where the next one of its thread begins."""
    start, end = start.copy(), end.copy()
    for one in np.unique(thread).tolist():
        mine = np.flatnonzero(thread == one)
        start[mine] = np.maximum.accumulate(start[mine])
        end[mine[:-1]] = np.minimum(end[mine[:-1]], start[mine[1:]])
    return start, end


def _on_overlaps(windows: Sequence[StepWindow], steps: int) -> list[str]:
    """Notes on steps of several threads that overlap, and on steps left without time."""
    notes = []
    reached = accumulate((one.end for one in windows), max)
    early = sum(one.start < until for one, until in zip(windows[1:], reached, strict=False))
    if early:
        notes.append(
            f"{early} of {len(windows)} steps begin while one of another thread is not over: what ran in the time of "
            "both counts in each"
        )
    if hidden := steps - len(windows):
        notes.append(
            f"{hidden} of {steps} steps are left out: on the GPU they begin no earlier than the step that follows"
        )
    return notes


def _earlier_work(begun: Integers, first: Integers, operations: GpuOperations, called: Integers) -> Integers:
    """When all operations launched before each step have ended; the smallest int64 if there are none.

    `begun` is when the host enters each step, `first` when its first operation starts. An operation with unknown launch
    counts as earlier if it starts before that operation: it preceded it in the queue.
    """
    known = called != MISSING
    asked = _latest_end_before(begun, called[known], operations.end[known])
    return np.maximum(asked, _latest_end_before(first, operations.start[~known], operations.end[~known]))


def _latest_end_before(moments: Integers, start: Integers, end: Integers) -> Integers:
    """For each moment, the latest end of the intervals that start before it; the smallest int64 if there are none."""
    order = np.argsort(start, kind="stable")
    reached = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(end[order])])
    return reached[np.searchsorted(start[order], moments)]


def windows_of_iterations(operations: GpuOperations) -> list[StepWindow]:
    """The windows of iterations in a table of launches: from the first operation of each to the first of the next."""
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
    """Steps from one launch of a kernel to the next, if the kernels in between repeat; None if no sequence repeats.

    Among the kernels with repeating sequences the rarest is taken, since a step contains repeated layers, not the
    reverse. Kernels of a graph that one API call launched are no steps; `call` is the row of each operation's call.
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
    """The time after work from before the recording, as one step; None if there is none, or much ran before its end.

    A stream waited for such work if its first operation starts long after its call returned, while nothing recorded ran
    on the GPU; the last such stream counts. `call` is the row of each operation's call.
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
    """True if at most `LEAST_CUT` of the operations' time is in operations that start before `time` (ns)."""
    lasts = operations.end - operations.start
    return bool(lasts[operations.start < time].sum() <= LEAST_CUT * lasts.sum())


def _cut(name: str, most: int = 60) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


@dataclass(frozen=True)
class TimelineStep:
    """One step on one GPU, in ns.

    span = busy + idle; busy = compute + exposed_communication + exposed_copies; idle is the sum of `causes`. Compute is
    the time in which a memset or a kernel that does not communicate runs. Communication is exposed while nothing
    computes, copies while nothing computes or communicates. An operation counts in every step in which a part of it
    ran: `kernels` are all of them, `computing_kernels` those that do not communicate.
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
    """When a GPU computed, communicated and copied; in `graphs`, a part of `compute`, it is unknown which."""

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
        """Classify operations, and find when each class ran."""
        named = np.array([is_communication(name) for name in operations.names], np.bool_)
        is_copy = operations.kind == MEMCPY
        communicates = named[operations.name] & (operations.kind == KERNEL)
        computes = ~is_copy & ~communicates
        compute, communication, copies = (
            IntervalSet.union_at(operations.start, operations.end, np.flatnonzero(some))
            for some in (computes, communicates, is_copy)
        )
        whole = operations.kind == GRAPH
        graphs = NOTHING
        if whole.any():
            kernels = computes & ~whole
            graphs = compute - IntervalSet.union_at(operations.start, operations.end, np.flatnonzero(kernels))
        return cls(computes, communicates, compute, communication, copies, communication - compute,
                   copies - (compute | communication), graphs)  # fmt: skip


def sums_of_steps(
    windows: Sequence[StepWindow], operations: GpuOperations, work: GpuWork, gaps: Gaps
) -> list[TimelineStep]:
    """What a GPU did in each window, with its verdict and the verdict's numbers, but without evidence in words."""
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
    """The number of operations of each kind that ran in each window, wholly or in part."""
    is_kernel = operations.kind == KERNEL
    kinds = {
        "kernels": is_kernel, "computing_kernels": is_kernel & work.computes, "memsets": operations.kind == MEMSET,
        "graphs": operations.kind == GRAPH, "copies": operations.kind == MEMCPY, "collectives": work.communicates,
    }  # fmt: skip
    counts = {}
    for name, some in kinds.items():
        begun = operations.start[some]
        counts[name] = np.searchsorted(begun, end)
        begun += 1
        over = np.maximum(operations.end[some], begun, out=begun)  # an empty operation counts at its start
        over.sort()
        counts[name] -= np.searchsorted(over, start, side="right")
    return counts
