"""What a step would save if operations took other times, or were gone: replays of its graph with changed times."""

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
    """A change by its title, in three readings where a question is open, as how much host code goes with an operation.

    `likely` is None where nothing recorded answers it. With `times` the step does so many steps' work, and what counts
    is its time for one.
    """

    title: str
    least: Change
    likely: Change | None
    most: Change
    times: float = 1.0

    @classmethod
    def of(cls, title: str, change: Change) -> WhatIf:
        """A what-if with one reading."""
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
        """Its different readings, the least first."""
        found = [self.least]
        found += [one for one in (self.likely, self.most) if one is not None and one not in found]
        return found


@dataclass(frozen=True)
class Saving:
    """What a recording saves, in ns: the interval over all readings, unexplained waits kept and dropped.

    `likely_ns` is the middle of the likely reading, None where there is none.
    """

    low_ns: float
    likely_ns: float | None
    high_ns: float


def all_of(*changes: Change) -> Change:
    """Changes one after the other."""

    def change(times: ReplayTimes) -> None:
        for one in changes:
            one(times)

    return change


def ends(graph: StepGraph, changes: Sequence[Change]) -> Numbers:
    """When the recording ends in ns [2, 1 + changes]: unexplained waits kept, dropped; first with nothing changed."""
    return np.stack([replay(graph, [unchanged, *changes], lags=lags).end for lags in (True, False)])


def savings(graph: StepGraph, what_ifs: Sequence[WhatIf]) -> list[Saving]:
    """The saving of each what-if over the whole recording; negative where it makes it longer."""
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
    """Operations (rows) that take `factor` of their time."""
    nodes = graph.operation_node[rows]

    def change(times: ReplayTimes) -> None:
        times.work[nodes] *= factor

    return change


def without(graph: StepGraph, rows: Integers | Mask) -> Change:
    """Operations that are gone, with the gap before each and what their API calls take; the host code stays."""
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
    """The nodes behind the begins of calls that launched nothing but these operations: their `call` is the call's."""
    launching = graph.launching_node(np.arange(len(graph.operation_node)))
    launching, mine = launching[launching >= 0], graph.launching_node(rows)
    mine = mine[mine >= 0]
    whole = np.bincount(mine, minlength=len(graph)) == np.bincount(launching, minlength=len(graph))
    nodes = np.unique(mine[whole[mine]]) + 1
    nodes = nodes[nodes < len(graph)]
    found: Integers = nodes[graph.chain[nodes] == graph.chain[nodes - 1]]
    return found


def without_host_time(graph: StepGraph, activity: Activity, spans: Sequence[tuple[int, IntervalSet]]) -> Change:
    """Threads (their number, and moments of the recording) whose host code and calls in these moments are gone."""
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
                in_calls.append(_left(graph.call[own], inside_calls)[some])
                in_code.append(_left(graph.rest[own], inside - inside_calls)[some])
    behind, calls_left, code_left = (np.concatenate(one) for one in (nodes, in_calls, in_code))

    def change(times: ReplayTimes) -> None:
        times.call[behind] *= calls_left
        times.rest[behind] *= code_left

    return change


def _left(time: Numbers, gone: Integers) -> Numbers:
    """The share of each time that is left; of none all."""
    return np.where(time > 0, 1.0 - np.minimum(gone / np.maximum(time, 1.0), 1.0), 1.0)


def without_gaps_before(graph: StepGraph, rows: Integers, shorter_ns: float) -> Change:
    """All host time from the call before those that launched these operations to their own is gone.

    Gaps of `shorter_ns` and more stay: they are more than the price of a launch.
    """
    nodes = graph.launching_node(rows)
    nodes = np.unique(nodes[nodes >= 0])
    nodes = nodes[(graph.call + graph.rest)[nodes] < shorter_ns]

    def change(times: ReplayTimes) -> None:
        times.call[nodes] = times.rest[nodes] = 0.0

    return change


def launch_gaps(graph: StepGraph, factor: float) -> Change:
    """The way from a call to its operation, and between queued operations, takes `factor` of its time."""
    gaps = np.setdiff1d(np.flatnonzero(~graph.is_host & (graph.rest > 0)), graph.first_of_streams)

    def change(times: ReplayTimes) -> None:
        times.latency_factor *= factor
        times.rest[gaps] *= factor

    return change


def api_calls(graph: StepGraph, factor: float) -> Change:
    """API calls of threads take `factor` of their time."""
    nodes = np.flatnonzero(graph.is_host)

    def change(times: ReplayTimes) -> None:
        times.call[nodes] *= factor

    return change


def host_code(graph: StepGraph, factor: float) -> Change:
    """What threads do between calls, and from the launches of one to those of another, takes `factor` of its time."""
    nodes, handed = np.flatnonzero(graph.is_host), np.flatnonzero(graph.edges.kind == HAND_OVER)

    def change(times: ReplayTimes) -> None:
        times.rest[nodes] *= factor
        times.offset[handed] *= factor

    return change


def without_host(graph: StepGraph) -> Change:
    """The host takes no time, neither in calls nor between them."""
    return all_of(host_code(graph, 0.0), api_calls(graph, 0.0))
