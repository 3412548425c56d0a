"""What API calls waited for: the operations that end with a call that blocks, and the one that makes room in a queue.

Which call waits is said by its name and by the kind of copy it makes, never by how long it took: where every call
blocks, the median does. What it waited for ends within `window_ns` of its return.
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
    Integers,
)

from ncu_tools.timeline.call_kinds import LAUNCH, SYNCHRONISATION, calls_named, calls_of_kind
from ncu_tools.timeline.graph.step_graph import COPY, FULL_QUEUE, SYNC, Mask, graph_facts
from ncu_tools.timeline.graph.stream_order import StreamOrder


@dataclass(frozen=True)
class CallWaits:
    """Pairs of a call (row) and the place in the order of streams of what it waited for, by kind of edge.

    A call waits for the end of the operation, in a full queue for its start. `unmatched` are calls that waited for
    something that is not known.
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
    """Which calls wait by their name, copies apart (bool, one per call)."""
    copies = calls_named(activity.calls, ".*(Memcpy|Memset).*")
    return calls_of_kind(activity.calls, SYNCHRONISATION) & ~copies


def _unmatched(activity: Activity, matched: Integers) -> Integers:
    """The rows of waiting calls that took long, and that no operation explains."""
    calls, limits = activity.calls, graph_facts()["blocking"]
    long = calls.end - calls.start > limits["unexplained_ns"]
    known = np.zeros(len(calls), np.bool_)
    known[matched] = True
    return np.flatnonzero(waiting_calls(activity) & long & ~known)


def _synchronisations(activity: Activity, call: Integers, order: StreamOrder) -> Iterator[tuple[Integers, Integers]]:
    """Calls that synchronise and the last operations that were launched before them, on the streams they wait for."""
    calls, limits = activity.calls, graph_facts()["blocking"]
    waits = waiting_calls(activity)
    of_device = calls_named(calls, limits["waits_for_device"])
    of_event = calls_named(calls, limits["waits_for_event"])
    for process in np.unique(calls.process[waits]).tolist():
        mine = waits & (calls.process == process)
        streams = [
            one for one in order.streams
            if int(activity.operations.process[order.row[one[0]]]) in (process, MISSING)
        ]  # fmt: skip
        for rows in (np.flatnonzero(mine & of_device), np.flatnonzero(mine & ~of_device)):
            if not len(rows) or not streams:
                continue
            place = np.stack([_last_before(order, one, calls.start[rows]) for one in streams])
            end = np.where(place >= 0, order.end[place], -np.inf)
            after = calls.end[rows] + limits["window_ns"]
            if rows[0] in np.flatnonzero(of_device):
                stream, at = np.nonzero((place >= 0) & (end <= after))
                yield rows[at], place[stream, at]
                continue
            for_event = of_event[rows]
            if for_event.any():
                earlier = np.stack([_last_end_before(order, one, after[for_event]) for one in streams])
                place[:, for_event] = np.minimum(place[:, for_event], earlier)
                end = np.where(place >= 0, order.end[place], -np.inf)
            off = np.where(end > -np.inf, np.abs(end - calls.end[rows]), np.inf)
            best = off.argmin(axis=0)
            found = off.min(axis=0) <= limits["window_ns"]
            at = np.flatnonzero(found)
            yield rows[at], place[best[at], at]
            yield from _streams_of_last_launches(activity, call, order, rows[~found & ~for_event])


def _last_before(order: StreamOrder, stream: tuple[int, int], moment: Integers) -> Integers:
    """The place of the last operation of a stream that was launched before each moment; -1 for none."""
    first, behind = stream
    at = np.searchsorted(order.launched[first:behind], moment, side="left")
    return np.where(at > 0, first + at - 1, -1)


def _last_end_before(order: StreamOrder, stream: tuple[int, int], moment: Integers) -> Integers:
    """The place of the last operation of a stream that ends before each moment; -1 for none."""
    first, behind = stream
    at = np.searchsorted(order.end[first:behind], moment, side="right")
    return np.where(at > 0, first + at - 1, -1)


def _streams_of_last_launches(
    activity: Activity, call: Integers, order: StreamOrder, rows: Integers
) -> Iterator[tuple[Integers, Integers]]:
    """For calls that found their stream done: the last operation that their thread had launched, if that was done."""
    calls, window = activity.calls, graph_facts()["blocking"]["window_ns"]
    launching = call[order.row]
    known = np.flatnonzero(launching >= 0)
    for thread in np.unique(calls.thread[rows]).tolist():
        mine = rows[calls.thread[rows] == thread]
        own = known[calls.thread[launching[known]] == thread]
        own = own[np.argsort(calls.start[launching[own]], kind="stable")]
        at = np.searchsorted(calls.start[launching[own]], calls.start[mine], side="left")
        mine, at = mine[at > 0], at[at > 0]
        last = own[at - 1]
        done = order.end[last] <= calls.end[mine] + window
        yield mine[done], last[done]


def _copies(activity: Activity, call: Integers, order: StreamOrder) -> tuple[Integers, Integers]:
    """Calls that copied between host and device and returned when the copy was done, with their own copies.

    Calls that wait by name, and those of pageable memory, which cudaMemcpyAsync waits for too (CUDA runtime API, "API
    synchronization behavior"). A small copy to the device may return before.
    """
    operations, calls = activity.operations, activity.calls
    row = order.row
    of_host = np.isin(operations.direction[row], (HOST_TO_DEVICE, DEVICE_TO_HOST)) & (operations.kind[row] == MEMCPY)
    place = np.flatnonzero(of_host & (call[row] >= 0))
    row, by = row[place], call[row[place]]
    pageable = (operations.source_memory[row] == PAGEABLE) | (operations.destination_memory[row] == PAGEABLE)
    waits = pageable | calls_of_kind(calls, SYNCHRONISATION)[by]
    waits &= calls.end[by] >= order.end[place] - graph_facts()["blocking"]["window_ns"]
    return by[waits], place[waits]


def _full_queues(activity: Activity, call: Integers, order: StreamOrder) -> tuple[Integers, Integers]:
    """Launches that waited for room in the queue, and the operations whose start made it."""
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
    for first, behind in order.streams:
        mine = place[(place >= first) & (place < behind)]
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
