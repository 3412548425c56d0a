"""How well the edges of a graph explain its recording, and which savings can therefore be given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from ncu_parsers.timelines.activity.activity import Activity

from ncu_tools.numbers.number_format import counted, duration, percent
from ncu_tools.timeline.call_kinds import calls_named
from ncu_tools.timeline.graph.critical_path import COMMUNICATION, WAITS, CriticalPath, operation_kinds
from ncu_tools.timeline.graph.step_graph import COLLECTIVE, StepGraph, graph_facts, numbered
from ncu_tools.timeline.intervals import IntervalSet, grouped

SOUND, BOUNDS_ONLY, REFUSED = "sound", "bounds only", "refused"


@dataclass(frozen=True)
class GraphEvidence:
    """How much of a recording the edges of its graph explain.

    `explained` is the share of operations that start within 5 us of what they waited for; queued operations further
    apart than on any GPU do not. `unexplained_ns` is the time on the critical path that no edge explains, including
    calls that wait for an unknown operation; `alone_ns` is communication there whose other ranks are not recorded, so
    that its wait for them is unknown. `path_share` is the share of both. `level` says which savings may be given, and
    `why` the reason.
    """

    explained: float
    unexplained_ns: float
    alone_ns: float
    path_share: float
    no_launch: int
    operations: int
    level: str
    why: str


def evidence(graph: StepGraph, activity: Activity, path: CriticalPath, lost: int = 0) -> GraphEvidence:
    """Judge a graph by its critical path.

    `lost` is the number of launches without a record of what they ran: the GPU may have worked where it seems idle.
    """
    limits = graph_facts()["evidence"]
    late = graph.lag + np.maximum(graph.rest - limits["filtered_ns"], 0.0)
    late[graph.first_of_streams] = graph.lag[graph.first_of_streams]
    late = late[graph.operation_node]
    explained = float((late <= limits["explained_ns"]).mean())
    waited = _unmatched_on_path(graph, activity, path)
    unexplained, alone = float(path.by_kind[WAITS]) + waited, _alone_on_path(graph, activity, path)
    length = max(path.length_ns, 1.0)
    share = (unexplained + alone) / length
    level = SOUND
    lost_share = lost / max(lost + int((graph.launch >= 0).sum()), 1)
    if max(unexplained / length, lost_share) > limits["refuse"]:
        level = REFUSED
    elif lost_share > limits["bounds_only"] or share > limits["bounds_only"] or explained < limits["least_explained"]:
        level = BOUNDS_ONLY
    operations = len(activity.operations)
    found = GraphEvidence(explained, unexplained, alone, share, graph.no_launch, operations, level, "")
    if level == SOUND:
        return found
    return replace(found, why=_why(found, length, lost, list(_lacks(graph, activity, path, waited, explained))))


def _alone_on_path(graph: StepGraph, activity: Activity, path: CriticalPath) -> float:
    """The time on the path of communication without another rank in the recording, in ns."""
    alone = operation_kinds(activity) == COMMUNICATION
    shared = graph.edges.target[graph.edges.kind == COLLECTIVE]
    alone[graph.row[shared]] = False
    return float(path.work[alone].sum())


def _unmatched_on_path(graph: StepGraph, activity: Activity, path: CriticalPath) -> float:
    """The time on the path in calls that wait for an unknown operation, in ns."""
    calls, found = activity.calls, 0.0
    threads = [one.thread for one in graph.chains]
    for one in path.stretches:
        if graph.chains[one.chain].is_host:
            rows = graph.unmatched[calls.thread[graph.unmatched] == threads[one.chain]]
            start = np.maximum(calls.start[rows] - graph.origin, one.start_ns)
            end = np.minimum(calls.end[rows] - graph.origin, one.end_ns)
            found += float(np.maximum(end - start, 0).sum())
    return found


def _why(found: GraphEvidence, length: float, lost: int, lacks: Sequence[str]) -> str:
    """The sentence on what limits savings; `lacks` are phrases on what the recording lacks."""
    limits, parts = graph_facts()["evidence"], []
    if found.unexplained_ns > limits["bounds_only"] * length:
        share = percent(found.unexplained_ns / length)
        parts.append(f"{duration(found.unexplained_ns)} of the critical path, {share}, wait for something unknown")
    elif found.path_share > limits["bounds_only"]:
        parts.append(
            f"{duration(found.alone_ns)} of the critical path is communication whose other ranks are not recorded, and "
            f"{duration(found.unexplained_ns)} waits for something unknown, together {percent(found.path_share)}"
        )
    if found.explained < limits["least_explained"]:
        parts.append(f"only {percent(found.explained)} of the operations start when something recorded lets them")
    if lost:
        parts.append(f"what {counted(lost, 'launch', 'launches')} ran was not recorded")
    lacking = f"; the recording lacks {' and '.join(lacks)}" if lacks else ""
    said = "no saving is given" if found.level == REFUSED else "savings are bounds only"
    return f"{' and '.join(parts)}{lacking}: {said}"


def _lacks(
    graph: StepGraph, activity: Activity, path: CriticalPath, in_calls: float, explained: float
) -> Iterator[str]:
    """What the recording lacks, as phrases; `in_calls` is the path's time in calls with an unknown wait, in ns."""
    if graph.no_launch:
        of_all = counted(len(activity.operations), "operation", "operations")
        yield f"the calls that launched {graph.no_launch:,} of {of_all}"
    if in_calls:
        yield f"what {counted(len(graph.unmatched), 'waiting call', 'waiting calls')} waited for"
    if graph.no_launch == len(activity.operations):
        return
    gaps = np.setdiff1d(np.flatnonzero(~graph.is_host), graph.first_of_streams)
    apart = float(graph.rest[gaps].max(initial=0.0))
    limits = graph_facts()["evidence"]
    many = len(gaps) >= limits["filtered_least"]
    if many and explained < limits["least_explained"] and apart > limits["filtered_ns"]:
        yield f"what ran between operations in line, which are {duration(apart)} apart, as in a filtered trace"
    if explained < limits["least_explained"] and calls_named(activity.calls, limits["graphics"]).any():
        yield "what the GPU drew"
    if path.by_kind[WAITS] <= limits["bounds_only"] * path.length_ns:
        return
    waits = _waits_by_cause(graph, activity, path)
    for cause, waited in sorted(waits.items(), key=lambda one: -one[1]):
        if waited > limits["named"] * max(sum(waits.values()), 1.0):
            yield f"{cause} ({duration(waited)})"


def _waits_by_cause(graph: StepGraph, activity: Activity, path: CriticalPath) -> dict[str, float]:
    """Unexplained time before operations on the path, in ns, by its possible cause."""
    operations, found = activity.operations, dict[str, float]()
    _, gpu = numbered(operations.process, operations.device)
    for own in grouped(gpu):
        mine = own[path.waited[own] > 0]
        busy = IntervalSet.union_of(operations.start[own], operations.end[own])
        until = operations.start[mine]
        waited = path.waited[mine]
        beside = 2 * busy.within(until - waited.astype(np.int64), until) > waited
        early = graph.launch[graph.entry_node[mine]] < 0
        early |= (graph.rest == graph.time)[graph.entry_node[mine]] & (waited > 0) & ~beside
        for cause, rows in (
            ("work launched before it", early & ~beside),
            ("when kernels of other streams left room on the GPU, or their events", beside),
            ("events that streams wait for, or other programs on the GPU", ~early & ~beside),
        ):
            found[cause] = found.get(cause, 0.0) + float(waited[rows].sum())
    return found
