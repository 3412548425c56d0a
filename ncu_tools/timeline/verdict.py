"""What bounds a step: the largest part of its time, if it is certainly the largest.

The parts add up to the step: compute kernels; copies and communication that no kernel overlaps; gaps by their cause. A
part is the most that the step could save if it vanished and nothing took its place. Time of unknown cause could belong
to any part, so there is no verdict if it could put another part first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ncu_tools.numbers.number_format import counted, duration, percent, scaled
from ncu_tools.timeline.call_kinds import ALLOCATOR, MODULE_LOADING, SYNCHRONISATION, facts
from ncu_tools.timeline.communication import CollectiveSum
from ncu_tools.timeline.copies import CopySum
from ncu_tools.timeline.gaps import (
    CAUSES,
    DATA_LOADING,
    DEPENDENCY,
    GRAPH_CAPTURE,
    HOST_CODE,
    LAUNCH,
    PROFILER,
    PYTHON,
    QUEUED,
    UNKNOWN,
    LongGap,
    cause_column,
)

KERNELS, COPY, COMMUNICATION, LAUNCHES, HOST = "kernels", "copy", "communication", "launch", "host"
UNEXPLAINED = "unknown"
PARTS: dict[str, tuple[str, ...]] = {
    LAUNCHES: (LAUNCH, QUEUED),
    HOST: (SYNCHRONISATION, ALLOCATOR, MODULE_LOADING, GRAPH_CAPTURE, DATA_LOADING, PYTHON, HOST_CODE),
    UNEXPLAINED: (DEPENDENCY, PROFILER, UNKNOWN),
}
"""Part of a step that consists of gaps -> the causes of these gaps."""


@dataclass(frozen=True)
class StepPart:
    """One part of a step's time, in ns, and its share of the step."""

    kind: str
    time_ns: int
    share: float


@dataclass(frozen=True)
class StepVerdict:
    """What bounds a step (None if undecided); `why` is the sentence with the numbers.

    `parts` are ranked by time, which is the most that the step could save. `saving_ns` is that of the bounding part;
    None for kernels, whose own savings `hotspots` shows. `evidence` are sentences with further numbers, `metrics` these
    numbers by the columns of steps.
    """

    bound: str | None
    why: str
    saving_ns: int | None
    parts: tuple[StepPart, ...]
    evidence: tuple[str, ...] = ()
    metrics: Mapping[str, int] = field(default_factory=dict)

    @property
    def bound_ns(self) -> int:
        """The time of the part that bounds the step; 0 without a verdict."""
        return next((part.time_ns for part in self.parts if part.kind == self.bound), 0)


def verdict_of(
    span: int, compute: int, exposed_copies: int, exposed_communication: int, causes: Mapping[str, int],
    in_graphs: int = 0,
) -> StepVerdict:  # fmt: skip
    """The verdict on a step of `span` ns, from its parts in ns; `causes` are the ns of its gaps by cause.

    `in_graphs` is the part of `compute` with only whole, unresolved graphs, which may have computed, communicated or
    copied.
    """
    times = {KERNELS: compute - in_graphs, COPY: exposed_copies, COMMUNICATION: exposed_communication}
    times |= {kind: sum(causes.get(cause, 0) for cause in some) for kind, some in PARTS.items()}
    times[UNEXPLAINED] += in_graphs
    parts = tuple(
        StepPart(kind, time, time / span) for kind, time in sorted(times.items(), key=lambda one: -one[1]) if time
    )
    unknown = times.pop(UNEXPLAINED)
    (first, most), (second, next_most) = sorted(times.items(), key=lambda one: -one[1])[:2]
    if unknown and most - next_most <= unknown:  # the unknown time could put the second part first
        return StepVerdict(None, _undecided(span, first, most, second, next_most, unknown, in_graphs), None, parts)
    if not any(times.values()):
        return StepVerdict(None, "nothing ran and nothing is known of the gaps", None, parts)
    why = f"{_of(most, span)} {WORDS[first]}{_close_second(span, first, most, second, next_most)}"
    return StepVerdict(first, why, None if first == KERNELS else most, parts)


def bound_words(bound: str | None, causes: Mapping[str, int]) -> str:
    """A verdict as a heading: "GPU busy (kernels)", "host-bound (data loading)"; `causes` are those of the gaps."""
    if bound is None:
        return "no verdict"
    if bound == KERNELS:
        return "GPU busy (kernels)"
    own = {cause: causes.get(cause, 0) for cause in PARTS.get(bound, ())}
    most = max(own, key=own.__getitem__, default="")
    is_named = bound == HOST and 2 * own[most] >= sum(own.values()) > 0
    return f"{bound}-bound ({most})" if is_named else f"{bound}-bound"


NO_KERNEL = "no kernel was recorded, so it is not known when kernels ran"


def without_kernels(verdict: StepVerdict) -> StepVerdict:
    """The verdict on a GPU of which no kernel was recorded: none, since its idle time may have been busy."""
    return StepVerdict(None, NO_KERNEL, None, verdict.parts)


def on_a_shared_gpu(verdict: StepVerdict, others: Sequence[int]) -> StepVerdict:
    """The verdict on a GPU that the processes `others` used too: none if idle time decides, which may be theirs."""
    if not others or verdict.bound not in (LAUNCHES, HOST):
        return verdict
    named = ", ".join(map(str, others))
    why = f"{verdict.why}, but process {named} ran on the same GPU, and that time may be its work"
    return StepVerdict(None, why, None, verdict.parts, metrics=verdict.metrics)


WORDS = {
    KERNELS: "is kernels that compute",
    COPY: "is copies that no kernel hides",
    COMMUNICATION: "is communication that no kernel hides",
    LAUNCHES: "is idle while the host launches kernels, in API calls and between two of them",
    HOST: "is idle while the host does something else",
}


def _undecided(
    span: int, first: str, most: int, second: str, next_most: int, unknown: int, in_graphs: int
) -> str:  # fmt: skip
    together = f"{first} {_of(most, span)}" + (f", {second} {_of(next_most, span)}" if next_most else "")
    if in_graphs:
        return f"{_of(in_graphs, span)} is graphs that were recorded as a whole, and what ran in them is not known"
    return f"the cause of {_of(unknown, span)} is not known, which could change this: {together}"


def _close_second(span: int, first: str, most: int, second: str, next_most: int) -> str:
    """The text on the second part if it is nearly as large as the first; else ""."""
    if most - next_most >= facts()["verdict"]["close"] * span:
        return ""
    both = f": the GPU waits for the host in both, {_of(most + next_most, span)}"
    return f"; closely followed by {second}, {_of(next_most, span)}" + (
        both if {first, second} == {LAUNCHES, HOST} else ""
    )


def _of(time: int, span: int) -> str:
    return f"{100 * time / span:.1f} %"


METRICS: dict[str | None, tuple[str, ...]] = {
    KERNELS: ("computing_kernels", "memsets", "graphs", "compute_ns"),
    COPY: ("copies", "copies_ns", "exposed_copies_ns"),
    COMMUNICATION: ("collectives", "communication_ns", "exposed_communication_ns"),
    LAUNCHES: ("kernels", "gaps", "idle_ns"),
    HOST: ("gaps", "idle_ns"),
    None: ("compute_ns", "exposed_copies_ns", "exposed_communication_ns", "idle_ns"),
}
"""What bounds a step -> the columns of steps that the verdict uses, besides causes of gaps; None: no verdict."""


def metrics_of(bound: str | None, columns: Mapping[str, int], causes: Mapping[str, int]) -> dict[str, int]:
    """The numbers behind a verdict, by the names of the columns of steps.

    `columns` are those of the step, `causes` the ns of each cause of its gaps.
    """
    of_part = CAUSES if bound is None else PARTS.get(bound, ())
    of_gaps = {cause_column(cause): causes[cause] for cause in of_part if causes.get(cause)}
    return {**{name: columns[name] for name in METRICS[bound]}, **of_gaps}


def step_evidence(
    bound: str | None, metrics: Mapping[str, int], causes: Mapping[str, int], gaps: Sequence[LongGap]
) -> tuple[str, ...]:
    """Sentences on what bounds a step, from its metrics; `gaps` are its longest ones."""
    if bound == KERNELS:
        return (f"{what_computes(metrics)}, {duration(metrics['compute_ns'])}",)
    if bound in (COPY, COMMUNICATION):
        words = ("copy", "copies") if bound == COPY else ("collective", "collectives")
        number, time, exposed = (metrics[name] for name in METRICS[bound])
        return (f"{counted(number, *words)}, {duration(time)}; {duration(exposed)} that no kernel hides",)
    if bound is None:
        return ()
    split, *longest = gap_evidence(bound, causes, gaps)
    beside = f", {counted(metrics['kernels'], 'kernel', 'kernels')}" if bound == LAUNCHES else ""
    return (f"{split}; {counted(metrics['gaps'], 'gap', 'gaps')}{beside}", *longest)


def what_computes(metrics: Mapping[str, int]) -> str:
    """What ran in a step's compute time, such as "4 kernels, 1 memset"; without communication kernels."""
    words = {
        "computing_kernels": ("kernel", "kernels"), "memsets": ("memset", "memsets"),
        "graphs": ("graph recorded as a whole", "graphs recorded as a whole"),
    }  # fmt: skip
    return ", ".join(counted(metrics[name], *forms) for name, forms in words.items() if metrics[name])


WORTH_NAMING = 0.1
"""Smallest share of the bounding part's time for something to be named as evidence."""


def copy_evidence(copies: Sequence[CopySum]) -> tuple[str, ...]:
    """Sentences on the copies with most of the exposed copy time, with their rates."""
    exposed = sum(one.exposed_ns for one in copies)
    found = []
    for one in copies:
        if not one.exposed_ns or one.exposed_ns < WORTH_NAMING * exposed:
            continue
        size = "" if one.bytes is None else f" of {scaled(one.bytes, 'B')}"
        rate = "" if one.bytes_per_s is None else f" at {scaled(one.bytes_per_s, 'B/s')}"
        link = "" if one.link_share is None else f", {percent(one.link_share)} of the link"
        memory = one.source_memory if one.direction.startswith("host") else one.destination_memory
        found.append(
            f"{one.direction}, {memory} memory: {counted(one.count, 'copy', 'copies')}{size}{rate}{link}; "
            f"{duration(one.exposed_ns)} that no kernel hides"
        )
    return tuple(found)


WAITS_TOO = "this time includes waiting for the slowest rank: ncu-bench timeline RANK0 RANK1 ... compares the ranks"


def communication_evidence(collectives: Sequence[CollectiveSum]) -> tuple[str, ...]:
    """Sentences on the collectives with most of the communication time."""
    whole = sum(one.time_ns for one in collectives)
    found = []
    for one in collectives:
        if one.time_ns >= WORTH_NAMING * whole:
            bus = (
                "" if one.bus_bytes_per_s is None else f", bus bandwidth at least {scaled(one.bus_bytes_per_s, 'B/s')}"
            )
            found.append(f"{one.count:,} x {one.name}: {duration(one.time_ns)}, median {duration(one.median_ns)}{bus}")
    return (*found, WAITS_TOO)


def gap_evidence(bound: str, causes: Mapping[str, int], longest: Sequence[LongGap]) -> tuple[str, ...]:
    """The causes of the gaps that bound a step, and the longest of these gaps with the host's range during it."""
    own = {cause: causes[cause] for cause in PARTS[bound] if causes.get(cause)}
    ranked = sorted(own.items(), key=lambda one: -one[1])
    found = [", ".join(f"{cause} {duration(time)}" for cause, time in ranked)]
    one = next((gap for gap in longest if gap.cause in own), None)
    if one is not None:
        where = f" in {one.host_range}" if one.host_range else ""
        wait = f", after {one.after_wait}" if one.after_wait else ""
        found.append(f"longest: {duration(one.cause_ns)} of {one.cause}{where}{wait}")
    return tuple(found)
