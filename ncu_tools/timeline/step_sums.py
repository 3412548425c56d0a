"""What a GPU did in each step: exact sums of time, counts of operations, and the verdict that follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from ncu_parsers.timelines.activity.activity import GRAPH, KERNEL, MEMCPY, MEMSET, GpuOperations, Integers

from ncu_tools.timeline.communication import is_communication
from ncu_tools.timeline.gaps import CAUSES, Gaps
from ncu_tools.timeline.intervals import IntervalSet, Mask
from ncu_tools.timeline.step_energy import StepEnergy
from ncu_tools.timeline.steps import StepWindow
from ncu_tools.timeline.verdict import StepVerdict, metrics_of, verdict_of


@dataclass(frozen=True)
class TimelineStep:
    """One step on one GPU, in ns.

    span = busy + idle; busy = compute + exposed_communication + exposed_copies; idle is the sum of `causes`. Compute is
    when a kernel runs that does not communicate, or a memset. Communication and copies are exposed when nothing
    computes; copies also only when nothing communicates. Operations count in every step in which a part of them ran:
    `kernels` all of them, `computing_kernels` those that do not communicate.
    """

    name: str
    start_ns: int
    span_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    communication_ns: int
    exposed_communication_ns: int
    copies_ns: int
    exposed_copies_ns: int
    kernels: int
    computing_kernels: int
    memsets: int
    graphs: int
    copies: int
    collectives: int
    gaps: int
    causes: dict[str, int]
    verdict: StepVerdict
    energy: StepEnergy | None = None


@dataclass(frozen=True)
class GpuWork:
    """When a GPU computed, communicated and copied; in part of `compute`, `graphs`, it is not known which."""

    computes: Mask
    communicates: Mask
    compute: IntervalSet
    communication: IntervalSet
    copies: IntervalSet
    exposed_communication: IntervalSet
    exposed_copies: IntervalSet
    graphs: IntervalSet

    @classmethod
    def of(cls, operations: GpuOperations) -> GpuWork:
        """What these operations did, and when."""
        named = np.array([is_communication(name) for name in operations.names], np.bool_)
        is_copy = operations.kind == MEMCPY
        communicates = named[operations.name] & (operations.kind == KERNEL)
        computes = ~is_copy & ~communicates
        compute, communication, copies = (
            IntervalSet.union_of(operations.start[some], operations.end[some])
            for some in (computes, communicates, is_copy)
        )
        whole = operations.kind == GRAPH
        kernels = IntervalSet.union_of(operations.start[computes & ~whole], operations.end[computes & ~whole])
        return cls(computes, communicates, compute, communication, copies, communication - compute,
                   copies - (compute | communication), compute - kernels)  # fmt: skip


def sums_of_steps(
    windows: Sequence[StepWindow], operations: GpuOperations, work: GpuWork, gaps: Gaps
) -> list[TimelineStep]:
    """What a GPU did in each window, with the verdict on it and the numbers behind that, without words of evidence."""
    start = np.array([one.start for one in windows], np.int64)
    end = np.array([one.end for one in windows], np.int64)
    sums = {
        "compute_ns": work.compute, "communication_ns": work.communication, "copies_ns": work.copies,
        "exposed_communication_ns": work.exposed_communication, "exposed_copies_ns": work.exposed_copies,
        "idle_ns": gaps.idle,
    }  # fmt: skip
    columns = {name: some.within(start, end) for name, some in sums.items()}
    causes = {cause: gaps.causes[cause].within(start, end) for cause in CAUSES}
    in_graphs = work.graphs.within(start, end).tolist()
    columns |= _counts(operations, work, start, end)
    columns["gaps"] = np.searchsorted(gaps.idle.start, end) - np.searchsorted(gaps.idle.end, start, side="right")
    found = []
    for at, window in enumerate(windows):
        values = {name: int(column[at]) for name, column in columns.items()}
        of_causes = {cause: int(column[at]) for cause, column in causes.items() if column[at]}
        span = window.end - window.start
        verdict = verdict_of(span, values["compute_ns"], values["exposed_copies_ns"],
                             values["exposed_communication_ns"], of_causes, in_graphs[at])  # fmt: skip
        verdict = replace(verdict, metrics=metrics_of(verdict.bound, values, of_causes))
        found.append(
            TimelineStep(name=window.name, start_ns=window.start, span_ns=span, busy_ns=span - values["idle_ns"],
                         causes=of_causes, verdict=verdict, energy=None, **values)
        )  # fmt: skip
    return found


def _counts(operations: GpuOperations, work: GpuWork, start: Integers, end: Integers) -> dict[str, Integers]:
    """How many operations of each kind ran in each window, in all of it or in a part."""
    is_kernel = operations.kind == KERNEL
    kinds = {
        "kernels": is_kernel, "computing_kernels": is_kernel & work.computes, "memsets": operations.kind == MEMSET,
        "graphs": operations.kind == GRAPH, "copies": operations.kind == MEMCPY, "collectives": work.communicates,
    }  # fmt: skip
    counts = {}
    for name, some in kinds.items():
        begun = operations.start[some]
        over = np.sort(np.maximum(operations.end[some], begun + 1))  # one without length ran when it began
        counts[name] = np.searchsorted(begun, end) - np.searchsorted(over, start, side="right")
    return counts
