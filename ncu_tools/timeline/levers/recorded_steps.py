"""Cut a recording to its steps: earlier host work, such as compiling, is no part of a step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from ncu_parsers.timelines.activity.activity import (
    MISSING,
    Activity,
    ApiCalls,
    HostRanges,
    Integers,
    Overheads,
)

from ncu_tools.timeline.graph.step_graph import Mask
from ncu_tools.timeline.launch_links import launching_calls
from ncu_tools.timeline.migrations import with_operations
from ncu_tools.timeline.steps import BEHIND_EARLIER_WORK, LEAST_CUT, is_little_before
from ncu_tools.timeline.timeline import recording_of, step_windows

MARKED, REPEATED = "step", "repeated part of the recording"
OfHost = TypeVar("OfHost", ApiCalls, HostRanges, Overheads)


@dataclass(frozen=True)
class RecordedSteps:
    """`count` steps from `start` to `end` (ns) on all GPUs; repeated kernels may be layers, so they count as one step.

    With `is_rest`, these are the recording after the GPU finished work from before it. Calls during that work are left
    out, although they launched later operations.
    """

    name: str
    count: int
    start: int
    end: int
    is_rest: bool = False

    @property
    def step_ns(self) -> float:
        """The mean time from one step to the next."""
        return (self.end - self.start) / self.count


def recorded_steps(activity: Activity) -> RecordedSteps:
    """The steps of a recording: marked ones, else the part with repeating kernels, else all of it.

    "All of it" begins once the GPU has finished work from before the recording.
    """
    whole = recording_of(activity)
    call = launching_calls(activity)
    marked, behind = [], []
    for process, device in activity.operations.gpus():
        mine = (activity.operations.process == process) & (activity.operations.device == device)
        rows = np.flatnonzero(mine)
        windows, how, _ = step_windows(activity, process, activity.operations.at(rows), call[rows], None)
        if windows and windows[0].name == BEHIND_EARLIER_WORK:
            behind.append(windows[0].start)
        elif windows:
            marked.append((windows, how))
    if not marked:
        if not behind or not is_little_before(activity.operations, max(behind)):  # another GPU may have worked then
            return RecordedSteps("recording", 1, *whole)
        return RecordedSteps("recording behind work from before it", 1, max(behind), whole.end, is_rest=True)
    start = min(windows[0].start for windows, _ in marked)
    end = max(max(one.end for one in windows) for windows, _ in marked)
    if any(how.startswith("found by repetition") for _, how in marked):
        return RecordedSteps(REPEATED, 1, start, end)
    return RecordedSteps(MARKED, max(len(windows) for windows, _ in marked), start, end)


def cut_to(activity: Activity, steps: RecordedSteps) -> Activity:
    """The recording from the first launch of its steps, or their start, to their end; unchanged if little is outside.

    Calls and ranges that reach beyond are shortened.
    """
    start, end = recording_of(activity)
    if steps.name == MARKED:  # Python around the calls is no part of a step, and the graph would begin with it
        start, end = int(activity.ranges.start.min(initial=start)), int(activity.ranges.end.max(initial=end))
    if steps.end - steps.start >= (1 - LEAST_CUT) * (end - start):
        return activity
    operations = activity.operations
    rows = np.flatnonzero((operations.start >= steps.start) & (operations.start < steps.end))
    every = launching_calls(activity)
    call = every[rows]
    calls = _launching(activity.calls, every, call)
    launched = activity.calls.start[call[call >= 0]]
    since = steps.start if steps.is_rest else min(int(launched.min(initial=steps.start)), steps.start)
    until = max(steps.end, int(operations.end[rows].max(initial=steps.end)))
    waits = activity.event_waits
    return replace(
        with_operations(activity, rows),
        calls=_within(calls, since, until),
        ranges=_within(activity.ranges, since, until),
        overheads=_within(activity.overheads, since, until),
        event_waits=waits.at((waits.start >= since) & (waits.start < until)),
    )


def _launching(calls: ApiCalls, every: Integers, kept: Integers) -> ApiCalls:
    """The calls, without correlation ids of those that launched only operations outside `kept` (both are rows)."""
    elsewhere = np.zeros(len(calls), np.bool_)
    elsewhere[every[every >= 0]] = True
    elsewhere[kept[kept >= 0]] = False
    return replace(calls, correlation=np.where(elsewhere, np.int64(MISSING), calls.correlation))


def _within(table: OfHost, since: int, until: int) -> OfHost:
    """The rows of a table that touch [since, until), shortened to it, ordered by start."""
    kept: Mask = (table.end > since) & (table.start < until)
    found = table.at(kept)
    start, end = np.maximum(found.start, since), np.minimum(found.end, until)
    return replace(found, start=start, end=end).by_start()
