"""What API calls waited for: operations that end with a blocking call, and operations that make room in a full queue.

Whether a call waits is decided by its name and its kind of copy, never by its duration: if every call blocks, so does
the median. The operation that it waited for ends within `window_ns` of its return.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from ncu_parsers.timelines.activity.activity import (
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    MEMCPY,
    MISSING,
    PAGEABLE,
    Activity,
    GpuOperations,
    Integers,
)

from ncu_tools.timeline.call_kinds import LAUNCH, SYNCHRONISATION, calls_named, calls_of_kind
from ncu_tools.timeline.graph.step_graph import COPY, FULL_QUEUE, SYNC, Mask, Numbers, graph_facts
from ncu_tools.timeline.graph.stream_order import StreamOrder

MOST_WAITS, MOST_ENDS = 64, 1024
"""Most calls that may wait for one operation, and most operations examined that end near a call's return."""


@dataclass(frozen=True)
class CallWaits:
    """Pairs of a call (row) and the operation that it waited for (place in stream order), by kind of edge.

    A call waits for the operation's end; for its start if the queue was full. `unmatched` are calls that waited for an
    unknown operation.
    """

    kind: npt.NDArray[np.int8]
    call: Integers
    place: Integers
    unmatched: Integers


def call_waits(activity: Activity, call: Integers, order: StreamOrder) -> CallWaits:
    """The waits of all calls; `call` is the row of the call of each operation, -1 for none."""
    parts = [(SYNC, *pair) for pair in _synchronisations(activity, call, order)]
    parts += [(COPY, *_copies(activity, call, order)), (FULL_QUEUE, *_full_queues(activity, call, order))]
    kinds = [np.full(len(calls), kind, np.int8) for kind, calls, _ in parts]
    kind, calls, places = (
        np.concatenate([empty, *some])
        for empty, some in (
            (np.zeros(0, np.int8), kinds),
            (np.zeros(0, np.int64), [one[1] for one in parts]),
            (np.zeros(0, np.int64), [one[2] for one in parts]),
        )
    )
    return CallWaits(kind, calls, places, _unmatched(activity, calls))


def waiting_calls(activity: Activity) -> Mask:
    """Mask of the calls that wait according to their name, without copies (bool, one per call)."""
    copies = calls_named(activity.calls, ".*(Memcpy|Memset).*")
    return calls_of_kind(activity.calls, SYNCHRONISATION) & ~copies


def polling_calls(activity: Activity, launching: Integers, order: StreamOrder) -> tuple[Integers, Integers]:
    """Calls after a long gap of their thread that ended with the thread's last operation; and that one's place.

    In such a gap the host polled a flag in memory that the GPU sets, without API calls, as a queue of network transfers
    does. `launching` is the row of the call of each operation in stream order, -1 for none.
    """
    calls, limits = activity.calls, graph_facts()["polling"]
    places = np.flatnonzero(launching >= 0)
    if not len(places):
        return places, places
    owner = calls.owner.astype(np.int64)
    by_thread = np.lexsort((calls.start, owner))
    same = np.diff(owner[by_thread], prepend=-1) == 0
    until = np.concatenate([[0], calls.end[by_thread][:-1]])
    rows = by_thread[same & (calls.start[by_thread] - until > limits["gap_ns"])]
    beyond = len(calls) + 1
    keys = owner[launching[places]] * beyond + launching[places]
    by_call = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys[by_call], owner[rows] * beyond + rows) - 1
    rows, last = rows[at >= 0], places[by_call[at[at >= 0]]]
    own = calls.owner[launching[last]] == calls.owner[rows]
    rows, last = rows[own], last[own]
    behind = order.end[last] - calls.start[rows]
    near = (behind >= -graph_facts()["blocking"]["window_ns"]) & (behind <= limits["within_ns"])
    name = activity.operations.name[order.row[last]]
    kinds = int(name.max(initial=-1)) + 1
    alike = np.bincount(name, near, kinds)
    polled = (alike == np.bincount(name, minlength=kinds)) & (alike >= limits["least"])
    return rows[polled[name]], last[polled[name]]


def _unmatched(activity: Activity, matched: Integers) -> Integers:
    """The rows of long waiting calls that no operation explains."""
    calls, limits = activity.calls, graph_facts()["blocking"]
    long = calls.end - calls.start > limits["unexplained_ns"]
    known = np.zeros(len(calls), np.bool_)
    known[matched] = True
    return np.flatnonzero(waiting_calls(activity) & long & ~known)


def _synchronisations(activity: Activity, call: Integers, order: StreamOrder) -> Iterator[tuple[Integers, Integers]]:
    """Synchronising calls, with the last operations launched before them on the streams for which they wait."""
    calls, limits = activity.calls, graph_facts()["blocking"]
    waits = waiting_calls(activity)
    of_device = calls_named(calls, limits["waits_for_device"])
    of_event = calls_named(calls, limits["waits_for_event"])
    process = activity.operations.process[order.row]
    for one in np.unique(calls.process[waits | freeing_calls(activity)]).tolist():
        mine = waits & (calls.process == one)
        places = np.flatnonzero(np.isin(process, (one, MISSING)))
        if not len(places):
            continue
        yield _of_devices(activity, order, np.flatnonzero(mine & of_device), places)
        frees = np.flatnonzero(freeing_calls(activity) & (calls.process == one))
        yield from _frees(activity, order, frees, process == one)
        rows = np.flatnonzero(mine & ~of_device)
        place = _ending_with(activity, order, rows, places, for_event=of_event[rows])
        yield rows[place >= 0], place[place >= 0]
        yield _lasts_of_threads(activity, call, order, rows[(place < 0) & ~of_event[rows]])


def freeing_calls(activity: Activity) -> Mask:
    """Mask of the calls that free memory of the GPU, and may wait for what runs on it (bool, one per call)."""
    return calls_named(activity.calls, graph_facts()["blocking"]["frees"])


def _frees(activity: Activity, order: StreamOrder, rows: Integers, own: Mask) -> Iterator[tuple[Integers, Integers]]:
    """Calls (rows) that free memory, with the operations that ran as each began, the last launched on each stream.

    No calls of a name of which one returned while these still ran. `own` masks the operations of the process.
    """
    calls, window = activity.calls, graph_facts()["blocking"]["window_ns"]
    for name in np.unique(calls.name[rows]).tolist():
        mine = rows[calls.name[rows] == name]
        waiting, places = [mine[:0]], [mine[:0]]
        for first, behind in order.streams:
            last = first - 1 + np.searchsorted(order.launched[first:behind], calls.start[mine])
            runs = (last >= first) & (order.end[last] > calls.start[mine]) & own[first]
            waiting.append(mine[runs])
            places.append(last[runs])
        found, place = np.concatenate(waiting), np.concatenate(places)
        if len(found) and (order.end[place] <= calls.end[found] + window).all():
            yield found, place


def _of_devices(activity: Activity, order: StreamOrder, rows: Integers, places: Integers) -> tuple[Integers, Integers]:
    """Calls (rows) that wait for all streams, with the last operation launched before them on each stream.

    An operation is waited for by the first such call after its launch, and by later ones that begin before it ends.
    """
    calls, after = activity.calls, graph_facts()["blocking"]["window_ns"]
    launched, behind = order.launched, _launched_next(order)
    first = np.searchsorted(calls.start[rows], launched[places], side="right")
    found_rows, found = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for number in range(MOST_WAITS):
        some = first + number < len(rows)
        places, first = places[some], first[some]
        row = rows[first + number]
        is_last = (launched[places] < calls.start[row]) & (calls.start[row] <= behind[places])
        some = is_last & ((calls.start[row] < order.end[places]) | (number == 0))
        waits = some & (order.end[places] <= calls.end[row] + after)
        found_rows.append(row[waits])
        found.append(places[waits])
        places, first = places[some], first[some]
        if not len(places):
            break
    return np.concatenate(found_rows), np.concatenate(found)


def _launched_next(order: StreamOrder) -> Numbers:
    """When the next operation on its stream was launched after each; +inf for the last one."""
    behind = np.append(order.launched[1:], np.inf)
    behind[order.bounds[1:] - 1] = np.inf
    return behind


def _ending_with(
    activity: Activity, order: StreamOrder, rows: Integers, places: Integers, *, for_event: Mask
) -> Integers:
    """For calls that wait for one stream: the operation, last launched on its stream, that ends nearest to them.

    -1 if none ends within the window of the call's return. A wait for an event may also be for an earlier operation.
    """
    calls, window = activity.calls, graph_facts()["blocking"]["window_ns"]
    places = places[np.argsort(order.end[places], kind="stable")]
    behind, start, end = _launched_next(order), calls.start[rows], calls.end[rows]
    ended_next = np.append(order.end[1:], np.inf)
    found, off = np.full(len(rows), -1), np.full(len(rows), np.inf)
    at = np.searchsorted(order.end[places], end)
    for step in (1, -1):
        left = np.arange(len(rows))
        for number in range(MOST_ENDS):
            place = at[left] + (number if step > 0 else -1 - number)
            left, place = left[inside := (place >= 0) & (place < len(places))], place[inside]
            place = places[place]
            apart = np.abs(order.end[place] - end[left])
            near = (apart <= window) & (apart < off[left])
            left, place, apart = left[near], place[near], apart[near]
            last = (start[left] <= behind[place]) | (for_event[left] & (ended_next[place] > end[left] + window))
            fits = last & (order.launched[place] < start[left])
            found[left[fits]], off[left[fits]] = place[fits], apart[fits]
            left = left[~fits]
            if not len(left):
                break
    return found


def _lasts_of_threads(
    activity: Activity, call: Integers, order: StreamOrder, rows: Integers
) -> tuple[Integers, Integers]:
    """For calls that found their stream done: the last operation that their thread launched, if it had ended."""
    calls = activity.calls
    launching = call[order.row]
    places = np.flatnonzero(launching >= 0)
    owner = calls.owner.astype(np.int64) * len(calls)
    keys = (owner + np.arange(len(calls)))[launching[places]]
    by_call = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys[by_call], owner[rows] + rows) - 1
    known = at >= 0
    rows, last = rows[known], places[by_call[at[known]]]
    done = calls.owner[launching[last]] == calls.owner[rows]
    done &= order.end[last] <= calls.end[rows] + graph_facts()["blocking"]["window_ns"]
    return rows[done], last[done]


def _copies(activity: Activity, call: Integers, order: StreamOrder) -> tuple[Integers, Integers]:
    """Calls that copied between host and device and waited for the copy, with these copies.

    Calls wait by their name, or because cudaMemcpyAsync waits for pageable memory. A copy to the device returns once
    its last part is staged, before the copy ends, and CUDA does not wait for a small one (CUDA runtime API, "API
    synchronization behavior").
    """
    operations, calls = activity.operations, activity.calls
    row = order.row
    of_host = np.isin(operations.direction[row], (HOST_TO_DEVICE, DEVICE_TO_HOST)) & (operations.kind[row] == MEMCPY)
    place = np.flatnonzero(of_host & (call[row] >= 0))
    row, by = row[place], call[row[place]]
    waits = is_pageable(operations)[row] | calls_of_kind(calls, SYNCHRONISATION)[by]
    is_staged = staged_copies(operations)[row]
    until = np.where(is_staged, order.start[place], order.end[place])
    waits &= calls.end[by] >= until - graph_facts()["blocking"]["window_ns"]
    small = (operations.direction[row] == HOST_TO_DEVICE) & (operations.bytes[row] != MISSING)
    small &= operations.bytes[row] <= graph_facts()["blocking"]["small_copy_bytes"]
    waits &= ~(small & calls_named(calls, "(cuda|cu)Memcpy.*")[by])
    return by[waits], place[waits]


def is_pageable(operations: GpuOperations) -> Mask:
    """Mask of the operations that copy from or to pageable memory."""
    of_host: Mask = (operations.source_memory == PAGEABLE) | (operations.destination_memory == PAGEABLE)
    found: Mask = of_host & (operations.kind == MEMCPY)
    return found


def staged_copies(operations: GpuOperations) -> Mask:
    """Mask of the copies to the device that pass through the driver's pinned memory, part by part."""
    large: Mask = operations.bytes > graph_facts()["blocking"]["small_copy_bytes"]
    found: Mask = large & is_pageable(operations) & (operations.direction == HOST_TO_DEVICE)
    return found


def _full_queues(activity: Activity, call: Integers, order: StreamOrder) -> tuple[Integers, Integers]:
    """Launches that waited for room in a full queue, with the operations whose start made room."""
    calls, limits = activity.calls, graph_facts()["queue"]
    launches = np.flatnonzero(calls_of_kind(calls, LAUNCH))
    lasts = calls.end[launches] - calls.start[launches]
    if not len(launches):
        return launches, launches
    least = max(limits["times_median"] * float(np.median(lasts)), limits["least_ns"])
    is_long = np.zeros(len(calls), np.bool_)
    is_long[launches[lasts >= least]] = True
    by = call[order.row]
    place = np.flatnonzero((by >= 0) & is_long[by])
    found_calls, found = [], []
    low, high = limits["depth"]
    stream = np.searchsorted(order.bounds, place, side="right") - 1
    for mine in np.split(place, np.flatnonzero(np.diff(stream)) + 1) if len(place) else ():
        at = int(np.searchsorted(order.bounds, mine[0], side="right"))
        first, behind = order.bounds[at - 1 : at + 1].tolist()
        ends = calls.end[by[mine]]
        after = np.clip(first + np.searchsorted(order.start[first:behind], ends), first, behind - 1)
        before = np.maximum(after - 1, first)
        nearer = np.abs(order.start[before] - ends) < np.abs(order.start[after] - ends)
        nearest = np.where(nearer, before, after)
        near = np.abs(order.start[nearest] - ends) <= graph_facts()["blocking"]["window_ns"]
        fits = near & (mine - nearest >= low) & (mine - nearest <= high)
        found_calls.append(by[mine[fits]])
        found.append(nearest[fits])
    return np.concatenate([np.zeros(0, np.int64), *found_calls]), np.concatenate([np.zeros(0, np.int64), *found])
