"""Which operations waited for other streams: through recorded or inferred events, or across lanes of their stream."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from ncu_parsers.timelines.activity.activity import MISSING, Activity, EventWaits
from ncu_parsers.timelines.activity.recording import called_as

from ncu_tools.timeline.call_kinds import calls_named, facts
from ncu_tools.timeline.graph.step_graph import NONE, Integers, Mask, Numbers, graph_facts, numbered
from ncu_tools.timeline.graph.stream_order import StreamOrder
from ncu_tools.timeline.intervals import grouped

Pairs = tuple[Integers, Integers]
"""Places in stream order: the operations that were waited for, and the operations that waited."""


@dataclass(frozen=True)
class StreamWaits:
    """Finds waits between streams; `call` is the row of the call of each operation in stream order, -1 for none.

    `lane` is the lane of each operation; `wait` and `record` are the rows of both calls of each recorded wait for an
    event.
    """

    activity: Activity
    call: Integers
    order: StreamOrder
    lane: Integers
    wait: Integers
    record: Integers

    @classmethod
    def of(cls, activity: Activity, call: Integers, order: StreamOrder) -> StreamWaits:
        """Prepare the waits of a recording."""
        lane = np.repeat(np.arange(len(order.bounds) - 1), np.diff(order.bounds))
        waits, calls = activity.event_waits, activity.calls
        wait, record = (called_as(waits.process, one, calls) for one in (waits.correlation, waits.record))
        return cls(activity, call, order, lane, wait, record)

    def across_lanes(self) -> Pairs:
        """Pairs of the last operation of earlier calls on a stream, and a call's first one on another lane of it.

        A stream in lanes is still one stream: a graph waits for everything before it, and later work for all of the
        graph.
        """
        order, operations = self.order, self.activity.operations
        first = np.ones(len(order), np.bool_)
        first[1:] = order.launched[1:] != order.launched[:-1]
        first[order.bounds[:-1]] = True
        keys = (operations.process, operations.device, operations.context, operations.stream)
        _, stream = numbered(*(column[order.row] for column in keys))
        lanes = np.bincount(stream[order.bounds[:-1]], minlength=int(stream.max()) + 1)
        befores, places = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        split = np.flatnonzero((lanes > 1)[stream])
        for rows in np.split(split, np.flatnonzero(np.diff(stream[split])) + 1) if len(split) else []:
            rows = rows[np.argsort(order.launched[rows], kind="stable")]
            last = rows[_places_of_maxima(order.end[rows])]
            at = np.searchsorted(order.launched[rows], order.launched[rows]) - 1
            before = last[np.maximum(at, 0)]
            kept = (at >= 0) & first[rows] & (self.lane[before] != self.lane[rows])
            kept &= (order.launched[rows] > -np.inf) & self._ends_in_time(before, rows)
            befores.append(before[kept])
            places.append(rows[kept])
        return np.concatenate(befores), np.concatenate(places)

    def by_recorded_events(self) -> Pairs:
        """Per pair of lanes, the last operation before an event's record and the first one after the wait for it."""
        order, calls = self.order, self.activity.calls
        befores, places = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        lanes = self._lanes()
        for (process, context, stream, source), rows in self._by_streams():
            for first, behind in lanes.get((process, context, source), ()):
                before = first - 1 + np.searchsorted(order.launched[first:behind], calls.start[self.record[rows]])
                for begin, end in lanes.get((process, context, stream), ()):
                    place = begin + np.searchsorted(order.launched[begin:end], calls.start[self.wait[rows]])
                    known = np.flatnonzero((before >= first) & (place < end))
                    known = known[self._ends_in_time(before[known], place[known])]
                    befores.append(before[known])
                    places.append(place[known])
        return np.concatenate(befores), np.concatenate(places)

    def _ends_in_time(self, before: Integers, places: Integers) -> Mask:
        """Mask of the pairs whose first operation ends before the second starts, except for rounding."""
        found: Mask = self.order.end[before] <= self.order.start[places] + graph_facts()["event"]["ahead_ns"]
        return found

    def _lanes(self) -> dict[tuple[int, ...], list[tuple[int, int]]]:
        """First place, and the one behind the last, of each lane, by (process, context, stream)."""
        operations, found = self.activity.operations, defaultdict(list)
        firsts = self.order.row[self.order.bounds[:-1]]
        keys = np.stack([one[firsts] for one in (operations.process, operations.context, operations.stream)])
        for key, span in zip(keys.T.tolist(), self.order.streams, strict=True):
            found[tuple(key)].append(span)
        return found

    def _by_streams(self) -> Iterator[tuple[tuple[int, ...], Integers]]:
        """The recorded waits (rows) by (process, context, waiting stream, stream waited for)."""
        waits: EventWaits = self.activity.event_waits
        rows = np.flatnonzero((self.wait >= 0) & (self.record >= 0))
        if not len(rows):
            return
        keys, number = numbered(*(one[rows] for one in (waits.process, waits.context, waits.stream, waits.source)))
        for key, mine in zip(keys, grouped(number), strict=True):
            yield key, rows[mine]

    def inferred(self, late: Integers) -> Pairs:
        """Pairs for operations that start late after a wait for an unrecorded event, each with one that ends then.

        That one must be the last of its stream before some event was recorded. Nodes of a graph wait for each other
        without a call.
        """
        order, limits = self.order, graph_facts()["event"]
        late = late[self._after_a_wait(late)]
        ends = np.argsort(order.end, kind="stable")
        at = np.searchsorted(order.end[ends], order.start[late] + limits["ahead_ns"], side="right") - 1
        before = np.full(len(late), NONE)
        for _ in range(limits["nearest"]):
            one = ends[np.maximum(at, 0)]
            fits = (at >= 0) & (before < 0) & self._may_wait_for(late, one)
            before[fits] = one[fits]
            at -= 1
        return before[before >= 0], late[before >= 0]

    def _may_wait_for(self, places: Integers, before: Integers) -> Mask:
        """Mask of the operations that may have waited for an event after another one, which ends near their start."""
        order, operations = self.order, self.activity.operations
        row, other = order.row[places], order.row[before]
        fits: Mask = order.start[places] - order.end[before] <= graph_facts()["event"]["within_ns"]
        fits &= (order.start[before] < order.start[places]) & (self.lane[before] != self.lane[places])
        fits &= operations.process[row] == operations.process[other]
        fits &= order.launched[before] <= order.launched[places]
        without_call = (operations.graph_node[row] != MISSING) | (self.call[places] < 0) | self._of_graphs()[before]
        fits &= without_call | self._ends_before_a_record(before, order.launched[places])
        return fits

    def _ends_before_a_record(self, before: Integers, until: Numbers) -> Mask:
        """Mask of the operations after whose launch an event was recorded, before the next launch and `until`.

        The next launch is that on the same stream. All True if the recording has no calls that record events.
        """
        order, calls = self.order, self.activity.calls
        records = calls.start[calls_named(calls, graph_facts()["event"]["record"])]
        if not len(records):
            return np.ones(len(before), np.bool_)
        last = np.isin(before + 1, order.bounds)
        behind = np.where(last, np.inf, np.append(order.launched, np.inf)[before + 1])
        first = np.searchsorted(records, order.launched[before])
        found: Mask = np.searchsorted(records, np.minimum(behind, until), side="right") > first
        return found

    def _of_graphs(self) -> Mask:
        """Mask of the operations that a graph launch ran."""
        calls = self.activity.calls
        if not len(calls):
            return np.zeros(len(self.call), np.bool_)
        launches = calls_named(calls, facts()["impossible"]["graph_launch"])
        found: Mask = (self.call >= 0) & launches[self.call]
        return found

    def _after_a_wait(self, places: Integers) -> Mask:
        """Mask of the operations that may have waited for an event: after such a call, or in or after a graph.

        A wait holds the stream that the recording names, else whatever its process launches next on any stream: waits
        of autograd's thread hold launches of the main thread. Work after a graph waits for its nodes, which run on
        other streams. Operations with an unknown call may have waited, too.
        """
        order, calls, operations = self.order, self.activity.calls, self.activity.operations
        previous = np.concatenate([[NONE], self.call[:-1]])
        previous[order.bounds[:-1]] = NONE
        by, before = self.call[places], previous[places]
        found: Mask = (by >= 0) & (operations.graph_node[order.row[places]] != MISSING)
        if not len(calls):
            return found
        found |= (by < 0) | self._of_graphs()[places]  # launched before the recording, or by an unrecorded call
        unnamed = calls_named(calls, graph_facts()["event"]["wait"])
        unnamed[self.wait[self.wait >= 0]] = False
        unnamed |= calls_named(calls, facts()["impossible"]["graph_launch"])
        _, process = numbered(calls.process)
        found |= _between(np.flatnonzero(unnamed), process[unnamed], before, by, process[by])
        named = np.flatnonzero((self.wait >= 0) & (self.record < 0))
        waits, row = self.activity.event_waits, order.row[places]
        keys = ((waits.process, operations.process), (waits.context, operations.context))
        _, stream = numbered(
            *(np.concatenate([one[named], two[row]]) for one, two in (*keys, (waits.stream, operations.stream)))
        )
        found |= _between(self.wait[named], stream[: len(named)], before, by, stream[len(named) :])
        return found


def _between(rows: Integers, owner: Integers, since: Integers, until: Integers, wanted: Integers) -> Mask:
    """Mask of the pairs of calls (rows; -1 for the begin) with one of `rows`, of the wanted owner, in between."""
    beyond = int(max(rows.max(initial=0), until.max(initial=0))) + 2
    keys = np.sort(owner * beyond + rows)
    found: Mask = np.searchsorted(keys, wanted * beyond + until) > np.searchsorted(keys, wanted * beyond + since + 1)
    return found & (until >= 0)


def _places_of_maxima(values: Numbers) -> Integers:
    """For each value, the index of the largest one so far."""
    greatest = np.maximum.accumulate(values)
    new = np.concatenate([[True], greatest[1:] > greatest[:-1]])
    return np.maximum.accumulate(np.where(new, np.arange(len(values)), 0))
