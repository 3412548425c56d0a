"""Pages of managed memory that move between host and GPU at faults: part of what a kernel or the host does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from ncu_parsers.timelines.activity.activity import (
    KERNEL,
    MANAGED,
    MEMCPY,
    MISSING,
    Activity,
    Dependencies,
    GpuOperations,
    Integers,
)

from ncu_tools.timeline.call_kinds import Mask, calls_named, facts
from ncu_tools.timeline.launch_links import launching_calls


def with_operations(activity: Activity, rows: Integers) -> Activity:
    """The recording with these operations (rows, ascending) alone."""
    place = np.full(len(activity.operations), -1, np.int64)
    place[rows] = np.arange(len(rows))
    before, after = (place[one] for one in activity.dependencies)
    kept = (before >= 0) & (after >= 0)
    return replace(
        activity,
        operations=activity.operations.at(rows),
        collectives={int(place[row]): one for row, one in activity.collectives.items() if place[row] >= 0},
        fact=None if activity.fact is None else activity.fact[rows],
        as_written=None,
        dependencies=Dependencies(before[kept], after[kept]),
    )


def without_migrations(activity: Activity) -> tuple[Activity, GpuOperations]:
    """The recording without pages that move at faults, and these.

    They run while a kernel or the host waits for them, whose time they are part of. Pages that calls prefetch are work
    of the stream, where the recording lets it be told: nsys names neither stream nor call, so their GPU must have run
    all of its kernels on one.
    """
    operations = activity.operations
    moves = np.flatnonzero(
        (operations.kind == MEMCPY)
        & ((operations.source_memory == MANAGED) | (operations.destination_memory == MANAGED))
    )
    moves = moves[launching_calls(activity)[moves] < 0]
    if not len(moves) or len(moves) == len(operations):
        return activity, operations.at(moves[:0])
    prefetched = moves[operations.source_memory[moves] != operations.destination_memory[moves]]
    activity, of_calls, firsts = _with_calls(activity, prefetched)
    kept = np.setdiff1d(np.arange(len(operations)), np.setdiff1d(moves, firsts))
    return with_operations(activity, kept), operations.at(np.setdiff1d(moves, of_calls))


def _with_calls(activity: Activity, prefetched: Integers) -> tuple[Activity, Integers, Integers]:
    """The recording with the pages of each prefetch as one copy; the rows of all such pages, and of these copies.

    `prefetched` are the rows of pages for which calls asked. The driver moves them in parts, as fast as the host
    prepares them.
    """
    operations, calls = activity.operations, activity.calls
    changed = {one: getattr(operations, one).astype(np.int64)
               for one in ("context", "stream", "correlation", "end", "bytes")}  # fmt: skip
    done, firsts = [prefetched[:0]], [prefetched[:0]]
    asked = np.flatnonzero(calls_named(calls, facts()["prefetch"]["pattern"])) if len(prefetched) else prefetched
    asked = asked[calls.correlation[asked] != MISSING]
    for process, device in operations.gpus() if len(asked) else []:
        mine = (operations.process == process) & (operations.device == device)
        of_kernels = mine & (operations.kind == KERNEL)
        streams = np.unique(np.stack([operations.context, operations.stream])[:, of_kernels], axis=1)
        rows = prefetched[mine[prefetched]]
        by = asked[calls.process[asked] == process]
        at = np.searchsorted(calls.start[by], operations.start[rows], side="right") - 1
        rows, at = rows[at >= 0], at[at >= 0]
        if streams.shape[1] != 1 or not len(rows):
            continue
        first = np.flatnonzero(np.diff(at, prepend=-1))
        changed["context"][rows[first]], changed["stream"][rows[first]] = streams[:, 0]
        changed["correlation"][rows[first]] = calls.correlation[by[at[first]]]
        changed["end"][rows[first]] = np.maximum.reduceat(operations.end[rows], first)
        changed["bytes"][rows[first]] = np.add.reduceat(operations.bytes[rows], first)
        done.append(rows)
        firsts.append(rows[first])
    of_calls = np.concatenate(done)
    if len(of_calls):
        activity = replace(activity, operations=replace(operations, **changed))
    return activity, of_calls, np.concatenate(firsts)


def within_kernels(moves: GpuOperations, operations: GpuOperations, kernels: Integers) -> tuple[Integers, Mask]:
    """For each move, the position in `kernels` (rows) of the last one that began before on its GPU; if it still ran."""
    at = np.full(len(moves), -1)
    for process, device in operations.gpus():
        mine = np.flatnonzero((operations.process[kernels] == process) & (operations.device[kernels] == device))
        here = np.flatnonzero((moves.process == process) & (moves.device == device))
        if len(mine):
            place = np.searchsorted(operations.start[kernels[mine]], moves.start[here], side="right") - 1
            at[here[place >= 0]] = mine[place[place >= 0]]
    during = at >= 0
    during[during] = moves.start[during] < operations.end[kernels[at[during]]]
    return at, during
