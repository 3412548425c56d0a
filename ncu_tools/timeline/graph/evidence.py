"""How far a graph can be believed: what of the recording its edges explain, and what is therefore said of savings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ncu_parsers.timelines.activity.activity import Activity

from ncu_tools.numbers.number_format import counted, duration, percent
from ncu_tools.timeline.graph.critical_path import WAITS, CriticalPath
from ncu_tools.timeline.graph.step_graph import StepGraph, graph_facts

SOUND, BOUNDS_ONLY, REFUSED = "sound", "bounds only", "refused"


@dataclass(frozen=True)
class GraphEvidence:
    """What the edges explain.

    `explained` is the share of operations that start within 5 us of what they waited for. `unexplained_ns` is the time
    on the critical path that no edge explains, with that of waiting calls whose operation is not known; `path_share`
    its share. `level` is what follows for savings, `why` the sentence on it, "" where nothing limits them.
    """

    explained: float
    unexplained_ns: float
    path_share: float
    no_launch: int
    operations: int
    level: str
    why: str


def evidence(graph: StepGraph, activity: Activity, path: CriticalPath) -> GraphEvidence:
    """What the edges of a graph explain of its recording, by its critical path."""
    limits = graph_facts()["evidence"]
    late = graph.lag[graph.operation_node]
    explained = float((late <= limits["explained_ns"]).mean())
    waited = _unmatched_on_path(graph, activity, path)
    unexplained = float(path.by_kind[WAITS]) + waited
    share = unexplained / path.length_ns if path.length_ns else 0.0
    level = SOUND
    if share > limits["refuse"]:
        level = REFUSED
    elif share > limits["bounds_only"] or explained < limits["least_explained"]:
        level = BOUNDS_ONLY
    operations = len(activity.operations)
    why = "" if level == SOUND else _why(graph, level, share, unexplained, waited, explained, operations)
    return GraphEvidence(explained, unexplained, share, graph.no_launch, operations, level, why)


def _unmatched_on_path(graph: StepGraph, activity: Activity, path: CriticalPath) -> float:
    """How much of the path lies in waiting calls that wait for something unknown, in ns."""
    calls, found = activity.calls, 0.0
    threads = [one.thread for one in graph.chains]
    for one in path.stretches:
        if graph.chains[one.chain].is_host:
            rows = graph.unmatched[calls.thread[graph.unmatched] == threads[one.chain]]
            start = np.maximum(calls.start[rows] - graph.origin, one.start_ns)
            end = np.minimum(calls.end[rows] - graph.origin, one.end_ns)
            found += float(np.maximum(end - start, 0).sum())
    return found


def _why(
    graph: StepGraph, level: str, share: float, unexplained: float, waited: float, explained: float, operations: int
) -> str:  # fmt: skip
    parts = []
    if share > graph_facts()["evidence"]["bounds_only"]:
        parts.append(f"{duration(unexplained)} of the critical path, {percent(share)}, wait for something unknown")
    if explained < graph_facts()["evidence"]["least_explained"]:
        parts.append(f"only {percent(explained)} of the operations start when something recorded lets them")
    missing = []
    if graph.no_launch:
        of_all = counted(operations, "operation", "operations")
        missing.append(f"the calls that launched {graph.no_launch:,} of {of_all}")
    if waited:
        missing.append(f"what {counted(len(graph.unmatched), 'waiting call', 'waiting calls')} waited for")
    if unexplained > waited and not graph.no_launch:
        missing.append("events that streams wait for, or work launched before the recording")
    lacks = f"; the recording lacks {' and '.join(missing)}" if missing else ""
    said = "no saving is given" if level == REFUSED else "savings are bounds only"
    return f"{' and '.join(parts)}{lacks}: {said}"
