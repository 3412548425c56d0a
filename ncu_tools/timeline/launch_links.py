"""Link each operation to the API call that launched it, and reject links that are impossible.

Profilers lose records when their buffers run out, may mix up correlation ids, and clocks of GPU and host may disagree.
Impossible links are dropped: the gaps concerned have an unknown cause, and a note says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from ncu_parsers.timelines.activity.activity import KERNEL, MISSING, Activity, Integers
from ncu_parsers.timelines.activity.recording import launching_call

from ncu_tools.numbers.number_format import counted, duration
from ncu_tools.timeline.call_kinds import calls_named, facts
from ncu_tools.timeline.gaps import captures_of
from ncu_tools.timeline.intervals import Mask


@dataclass(frozen=True)
class LaunchLinks:
    """The row of the API call that launched each operation, -1 if unknown.

    `lost` are by process the times of launches whose operations have no record, in order.
    """

    call: Integers
    lost: Mapping[int, Integers] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def lost_by(self, process: int) -> Integers:
        """The times of a process's launches without a record; of all processes if the process is unknown."""
        if process == MISSING and self.lost:
            return np.sort(np.concatenate(list(self.lost.values())))
        return self.lost.get(process, np.zeros(0, np.int64))


def launching_calls(activity: Activity) -> Integers:
    """The row in `activity.calls` of the call that launched each operation (int64, one per operation; -1: unknown)."""
    return launch_links(activity).call


def launch_links(activity: Activity) -> LaunchLinks:
    """The plausible links of all operations to calls, the launches without a record, and notes on both."""
    call = launching_call(activity.operations, activity.calls)
    if not len(activity.calls) or not len(activity.operations):
        return LaunchLinks(call)
    early, clock_notes = _before_their_call(activity, call)
    shared, sharing_notes = _sharing_a_call(activity, call)
    lost, lost_notes = _lost_launches(activity, call, shared)
    return LaunchLinks(np.where(early | shared, -1, call), lost, (*clock_notes, *sharing_notes, *lost_notes))


def _before_their_call(activity: Activity, call: Integers) -> tuple[Mask, list[str]]:
    """Mask of operations that begin before the call that launched them; all of a process if most of its do."""
    operations = activity.operations
    known = call >= 0
    ahead = np.where(known, activity.calls.start[call] - operations.start, 0)
    early = ahead > facts()["impossible"]["before_call_ns"]
    notes = []
    for process in np.unique(operations.process[early]).tolist():
        own = operations.process == process
        of_process, linked = int((own & early).sum()), int((own & known).sum())
        kernels = f"{of_process:,} of {linked:,} operations begin before the call that launched them"
        by = duration(float(np.median(ahead[own & early])))
        if 2 * of_process > linked:
            early = early | own
            notes.append(f"{kernels}, by {by}: the clocks of GPU and host disagree, and causes of gaps are not known")
        else:
            notes.append(
                f"{kernels}, by {by}, which cannot be: their calls, and the causes of gaps before them, are not known"
            )
    return early, notes


def _sharing_a_call(activity: Activity, call: Integers) -> tuple[Mask, list[str]]:
    """Mask of kernels that share the correlation id of a call that launches only one kernel."""
    of_one = calls_named(activity.calls, facts()["impossible"]["kernel_launch"])
    kernels = (activity.operations.kind == KERNEL) & (activity.operations.graph_node == MISSING) & (call >= 0)
    kernels[kernels] = of_one[call[kernels]]
    sharing = np.bincount(call[kernels], minlength=len(activity.calls)) > 1
    shared = kernels.copy()
    shared[kernels] = sharing[call[kernels]]
    if not shared.any():
        return shared, []
    calls = counted(int(sharing.sum()), "launch, which runs one", "launches, which run one each")
    return shared, [
        f"{int(shared.sum()):,} kernels have the correlation id of {calls}: a mistake of the profiler, as ROCm's, "
        "so the calls that launched them, and the causes of gaps before them, are not known"
    ]


def _lost_launches(activity: Activity, call: Integers, shared: Mask) -> tuple[dict[int, Integers], list[str]]:
    """The launches of each process without a record, except those that may have been queued when the recording ended.

    Those are the launches as near to the end as any launch took to begin, and those after the last launch with a
    record. Launches captured into a graph run nothing, and launches without a correlation id are unknown. Up to as many
    launches as kernels have another launch's id are not lost.
    """
    calls, limits = activity.calls, facts()["impossible"]
    launches = calls_named(calls, limits["kernel_launch"]) | calls_named(calls, limits["graph_launch"])
    has_record = _are_among(calls.correlation, activity.operations.correlation)
    misnumbered = int(shared.sum()) - len(np.unique(call[shared]))
    found: dict[int, Integers] = {}
    lost = every = 0
    unseen = np.unique(calls.owner[launches & ~has_record]).tolist()
    for process in sorted({calls.owners[owner][0] for owner in unseen}):
        own = launches & calls.of_process(process) & ~_captured(activity, process) & (calls.correlation != MISSING)
        own &= calls.start <= _last_that_ran(activity, call, process)
        found[process] = calls.start[own & ~has_record]
        lost, every = lost + len(found[process]), every + int(own.sum())
    if lost <= misnumbered:
        return {}, []
    return found, [
        f"{lost:,} of {counted(every, 'launch', 'launches')} have no record of what ran on the GPU, as where "
        "the profiler's buffers run out: the GPU may have worked in gaps that follow them, and their cause is not known"
    ]


def _are_among(values: Integers, others: Integers) -> Mask:
    """Mask of `values` that are among `others`; `np.isin` takes twice the memory and more time."""
    known = np.sort(others)
    found: Mask = known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values
    return found


def _last_that_ran(activity: Activity, call: Integers, process: int) -> int:
    """The time until which all launches of a process have run; later ones may still have been queued."""
    mine = (call >= 0) & (activity.operations.process == process)
    if not mine.any():
        return int(activity.calls.start[0]) - 1
    called, begun = activity.calls.start[call[mine]], activity.operations.start[mine]
    longest = int((begun - called).max())
    return min(int(called.max()), int(activity.operations.end[mine].max()) - longest)


def _captured(activity: Activity, process: int) -> Mask:
    """Mask of a process's API calls that were made while their thread captured a graph."""
    calls = activity.calls
    found = np.zeros(len(calls), np.bool_)
    for thread in sorted({thread for one, thread in calls.owners if one == process}):
        own = np.flatnonzero(calls.of_thread(thread))
        found[own] = captures_of(calls.at(own)).holds(calls.start[own])
    return found
