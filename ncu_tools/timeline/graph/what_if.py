"""What a step would save if operations took other times or were gone: replays of its graph with changed times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ncu_parsers.timelines.activity.activity import Activity, Integers

from ncu_tools.timeline.graph.replay import Change, ReplayTimes, replay, unchanged
from ncu_tools.timeline.graph.step_graph import HAND_OVER, Mask, Numbers, StepGraph
from ncu_tools.timeline.intervals import IntervalSet


@dataclass(frozen=True)
class WhatIf:
    """A change with its title, in up to three readings of an open question, such as how much host code goes with it.

    `likely` is None if the recording does not answer it. With `times`, the step does the work of so many steps, and its
    time per one of them counts.
    """

    title: str
    least: Change
    likely: Change | None
    most: Change
    times: float = 1.0

    @classmethod
    def of(cls, title: str, change: Change) -> WhatIf:
        """A what-if with a single reading."""
        return cls(title, change, change, change)

    def __and__(self, other: WhatIf) -> WhatIf:
        """Both at once."""
        likely = None if self.likely is None or other.likely is None else all_of(self.likely, other.likely)
        return WhatIf(
            f"{self.title}, {other.title}", all_of(self.least, other.least), likely, all_of(self.most, other.most),
            self.times * other.times,
        )  # fmt: skip

    @property
    def readings(self) -> list[Change]:
        """The distinct readings, the least first."""
        found = [self.least]
        found += [one for one in (self.likely, self.most) if one is not None and one not in found]
        return found


@dataclass(frozen=True)
class Saving:
    """The saving over a recording in ns: an interval over all readings, with unexplained waits kept and dropped.

    `likely_ns` is the middle of the likely reading, None if there is none.
    """

    low_ns: float
    likely_ns: float | None
    high_ns: float


def all_of(*changes: Change) -> Change:
    """Apply several changes in turn."""

    def change(times: ReplayTimes) -> None:
        for one in changes:
            one(times)

    return change


def ends(graph: StepGraph, changes: Sequence[Change]) -> Numbers:
    """The ends of replays in ns, shape (2, 1 + changes): unexplained waits kept, dropped; first without a change."""
    return np.stack([replay(graph, [unchanged, *changes], lags=lags).end for lags in (True, False)])


def savings(graph: StepGraph, what_ifs: Sequence[WhatIf]) -> list[Saving]:
    """The saving of each what-if over the whole recording; negative if it becomes longer."""
    end = ends(graph, [change for one in what_ifs for change in one.readings])
    found, at = [], 1
    for one in what_ifs:
        rows = slice(at, at + len(one.readings))
        saved = end[:, :1] - end[:, rows] / one.times
        place = None if one.likely is None else one.readings.index(one.likely)
        likely = None if place is None else float(saved[:, place].mean())
        found.append(Saving(float(saved.min()), likely, float(saved.max())))
        at = rows.stop
    return found


def scaled(graph: StepGraph, rows: Integers | Mask, factor: float | Numbers) -> Change:
    """Scale the times of operations (rows) by `factor`."""
    nodes = graph.operation_node[rows]

    def change(times: ReplayTimes) -> None:
        times.work[nodes] *= factor

    return change


def without(graph: StepGraph, rows: Integers | Mask) -> Change:
    """Remove operations, the gap before each, and the time of their API calls; the host code stays."""
    nodes, entries = graph.operation_node[rows], graph.entry_node[rows]
    calls = _nodes_after_calls(graph, np.arange(len(graph.operation_node))[rows])
    edges = np.flatnonzero(np.isin(graph.edges.target, nodes) | np.isin(graph.edges.target, entries))
    gaps = np.setdiff1d(entries, graph.first_of_streams)

    def change(times: ReplayTimes) -> None:
        times.work[nodes] = 0.0
        times.rest[gaps] = 0.0
        times.call[calls] = 0.0
        times.offset[edges] = -np.inf

    return change


def _nodes_after_calls(graph: StepGraph, rows: Integers) -> Integers:
    """The nodes after the begins of calls that launched only these operations: their `call` is the call's time."""
    launching = graph.launching_node(np.arange(len(graph.operation_node)))
    launching, mine = launching[launching >= 0], graph.launching_node(rows)
    mine = mine[mine >= 0]
    whole = np.bincount(mine, minlength=len(graph)) == np.bincount(launching, minlength=len(graph))
    nodes = np.unique(mine[whole[mine]]) + 1
    nodes = nodes[nodes < len(graph)]
    found: Integers = nodes[graph.chain[nodes] == graph.chain[nodes - 1]]
    return found


def without_host_time(graph: StepGraph, activity: Activity, spans: Sequence[tuple[int, IntervalSet]]) -> Change:
    """Remove host code and calls of threads (thread number, moments of the recording) in these moments."""
    calls = activity.calls
    nodes, in_calls, in_code = [np.zeros(0, np.int64)], [np.zeros(0)], [np.zeros(0)]
    for thread, moments in spans:
        mine = calls.thread == thread
        calling = moments & IntervalSet.union_of(calls.start[mine], calls.end[mine])
        for chain in graph.chains:
            if chain.thread == thread:
                own = np.arange(chain.first, chain.behind)
                time = graph.time[own].astype(np.int64) + graph.origin
                begun = np.concatenate([[graph.origin], time[:-1]])
                inside, inside_calls = moments.within(begun, time), calling.within(begun, time)
                some = inside > 0
                nodes.append(own[some])
                in_calls.append(_share_left(graph.call[own], inside_calls)[some])
                in_code.append(_share_left(graph.rest[own], inside - inside_calls)[some])
    behind, calls_left, code_left = (np.concatenate(one) for one in (nodes, in_calls, in_code))

    def change(times: ReplayTimes) -> None:
        times.call[behind] *= calls_left
        times.rest[behind] *= code_left

    return change


def _share_left(time: Numbers, gone: Integers) -> Numbers:
    """The remaining share of each time; 1 for a time of 0."""
    return np.where(time > 0, 1.0 - np.minimum(gone / np.maximum(time, 1.0), 1.0), 1.0)


def without_gaps_before(graph: StepGraph, rows: Integers, shorter_ns: float) -> Change:
    """Remove all host time between the calls that launched these operations and the call before each.

    Gaps of `shorter_ns` and more stay: they are more than the price of a launch.
    """
    nodes = graph.launching_node(rows)
    nodes = np.unique(nodes[nodes >= 0])
    nodes = nodes[(graph.call + graph.rest)[nodes] < shorter_ns]

    def change(times: ReplayTimes) -> None:
        times.call[nodes] = times.rest[nodes] = 0.0

    return change


def launch_gaps(graph: StepGraph, factor: float) -> Change:
    """Scale the time from calls to their operations, and between queued operations, by `factor`."""
    gaps = np.setdiff1d(np.flatnonzero(~graph.is_host & (graph.rest > 0)), graph.first_of_streams)

    def change(times: ReplayTimes) -> None:
        times.latency_factor *= factor
        times.rest[gaps] *= factor

    return change


def api_calls(graph: StepGraph, factor: float) -> Change:
    """Scale the time in API calls by `factor`."""
    nodes = np.flatnonzero(graph.is_host)

    def change(times: ReplayTimes) -> None:
        times.call[nodes] *= factor

    return change


def host_code(graph: StepGraph, factor: float) -> Change:
    """Scale the threads' time between calls, and the time from one thread's launches to another's, by `factor`."""
    nodes, handed = np.flatnonzero(graph.is_host), np.flatnonzero(graph.edges.kind == HAND_OVER)

    def change(times: ReplayTimes) -> None:
        times.rest[nodes] *= factor
        times.offset[handed] *= factor

    return change


def without_host(graph: StepGraph) -> Change:
    """Remove all host time, in calls and between them."""
    return all_of(host_code(graph, 0.0), api_calls(graph, 0.0))
