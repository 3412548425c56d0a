"""The steps of a recording, and the window of each on a GPU.

A step is a range of the host. Its window on a GPU begins when the host is in the range and what was launched before it
is done, at the latest with its first operation; it ends with its last operation or with the range, whichever is later,
at the latest where the next step begins. Which operations are of a step is said by the times of the API calls that
launched them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from ncu_parsers.timelines.activity.activity import (
    ANNOTATION,
    KERNEL,
    MISSING,
    NVTX,
    OS_CALL,
    GpuOperations,
    HostRanges,
    Integers,
)

PROFILER_STEP = re.compile(r"ProfilerStep#(\d+)")
LAUNCHER_ITERATION = re.compile(r"iteration (\d+)")
REPEATED, REPEATS_NEEDED, PERIOD_NEEDED = 2 / 3, 3, 2
"""A kernel marks steps if this share of what lies between its launches is the same sequence of kernels."""

WHOLE = "whole recording"


@dataclass(frozen=True)
class StepRanges:
    """Ranges of one process that are its steps, in order, none within another."""

    names: list[str]
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
        rows = np.flatnonzero(named[ranges.name] & kinds & (ranges.process == process) & (ranges.end > ranges.start))
        if len(rows):
            return _outermost(ranges, rows), how
    return None


def _outermost(ranges: HostRanges, rows: Integers) -> StepRanges:
    """Of ranges in order of their starts, those that begin when none before is open."""
    ends = ranges.end[rows]
    reached = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(ends)[:-1]])
    kept = rows[ranges.start[rows] >= reached]
    names = [ranges.names[number] for number in ranges.name[kept].tolist()]
    return StepRanges(names, ranges.start[kept], ranges.end[kept])


def windows_of_ranges(steps: StepRanges, operations: GpuOperations, called: Integers) -> list[StepWindow]:
    """The window of each step on the GPU of `operations`, which were launched at `called`; `MISSING` is not known.

    Where no launch is known at all, a window is the step's range itself. Steps without an operation here are left out.
    """
    known = called != MISSING
    if not known.any():
        return [StepWindow(name, start, end) for name, start, end in
                zip(steps.names, steps.start.tolist(), steps.end.tolist(), strict=True)]  # fmt: skip
    place = np.searchsorted(steps.start, called, side="right") - 1
    inside = known & (place >= 0)
    inside[inside] = called[inside] < steps.end[place[inside]]
    rows, place = np.flatnonzero(inside), place[inside]
    if not len(rows):
        return []
    present = np.unique(place)
    first = np.full(len(steps.start), np.iinfo(np.int64).max)
    last = np.full(len(steps.start), np.iinfo(np.int64).min)
    np.minimum.at(first, place, operations.start[rows])
    np.maximum.at(last, place, operations.end[rows])
    first, last = first[present], last[present]
    done = _earlier_work(steps.start[present], first, operations, called)
    begin = np.maximum.accumulate(np.minimum(first, np.maximum(steps.start[present], done)))
    next_begin = np.concatenate([begin[1:], [np.iinfo(np.int64).max]])
    end = np.minimum(np.maximum(last, steps.end[present]), next_begin)
    return [
        StepWindow(steps.names[one], int(start), int(stop))
        for one, start, stop in zip(present.tolist(), begin, end, strict=True)
        if stop > start
    ]


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
            windows = [StepWindow(f"repetition {at}", start, stop)
                       for at, (start, stop) in enumerate(pairwise(starts), start=1)
                       if stop > start]  # fmt: skip
            return windows, how
    return None


def _cut(name: str, most: int = 60) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
