"""Advice on a step: its levers by saving, pairs of levers that save more together, and how reliable that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import combinations
from operator import and_

import numpy as np
from ncu_launch.errors import NcuBenchError
from ncu_parsers.timelines.activity.activity import OS_CALL, PYTHON, Activity, GpuOperations
from ncu_parsers.timelines.activity.operation_times import without_impossible_ends

from ncu_tools.ceilings.machine_files import Machine
from ncu_tools.numbers.number_format import duration
from ncu_tools.timeline.call_kinds import names_that_load_data
from ncu_tools.timeline.graph.critical_path import CriticalPath
from ncu_tools.timeline.graph.evidence import REFUSED, GraphEvidence
from ncu_tools.timeline.graph.replay import ReplayTimes
from ncu_tools.timeline.graph.step_graph import StepGraph
from ncu_tools.timeline.graph.what_if import Saving, WhatIf, savings, without_host
from ncu_tools.timeline.intervals import IntervalSet
from ncu_tools.timeline.levers import attention as attention
from ncu_tools.timeline.levers import host as host
from ncu_tools.timeline.levers import kernels as kernels
from ncu_tools.timeline.levers import transfers as transfers
from ncu_tools.timeline.levers.lever import STEP_LEVERS, StepLever
from ncu_tools.timeline.levers.recorded_steps import REPEATED, RecordedSteps, cut_to, recorded_steps
from ncu_tools.timeline.levers.situation import StepSituation, lever_facts, processes_of, step_lever_texts
from ncu_tools.timeline.migrations import without_migrations
from ncu_tools.timeline.steps import step_ranges
from ncu_tools.timeline.timeline import Timeline, no_gpu_work

MOST_OPERATIONS = 1_000_000
"""Most operations of a recording that gets advice beside its timeline."""


@dataclass(frozen=True)
class SavedByStep:
    """The saving per step in ns; `likely_ns` is None if the recording does not tell it."""

    low_ns: float
    likely_ns: float | None
    high_ns: float
    step_ns: float

    def share(self, saved_ns: float | None) -> float | None:
        """A saving as a share of the step."""
        return None if saved_ns is None or not self.step_ns else saved_ns / self.step_ns


@dataclass(frozen=True)
class LeverOnStep:
    """One lever with its saving per step, and the evidence for it."""

    lever: str
    found: StepLever
    saves: SavedByStep

    @property
    def title(self) -> str:
        """The lever in a few words."""
        return str(step_lever_texts()[self.lever]["title"])

    @property
    def needs_gpu(self) -> bool:
        """True if the lever's model of kernels was never confirmed on a GPU."""
        return bool(step_lever_texts()[self.lever].get("gpu", False))

    @property
    def is_for_samples(self) -> bool:
        """True if the lever saves time per sample, while the step itself gets no shorter."""
        return bool(step_lever_texts()[self.lever].get("for_samples", False))

    @property
    def rank(self) -> tuple[bool, float]:
        """Sort key of levers: those that shorten the step first; by likely saving, else the middle of the interval."""
        saves = self.saves
        middle = saves.likely_ns if saves.likely_ns is not None else (saves.low_ns + saves.high_ns) / 2
        return self.is_for_samples, -middle


@dataclass(frozen=True)
class PairOfLevers:
    """Two levers (ids), or two what-ifs of the user, that save more together than the sum of both."""

    levers: tuple[str, str]
    titles: tuple[str, str]
    saves: SavedByStep


@dataclass(frozen=True)
class StepAdvice:
    """Advice on a recording of `steps` steps of `step_ns`, called `step` (the whole recording if none are marked).

    `host_alone_ns` and `gpu_alone_ns` are the length of a step if the other side took no time: the shorter one is the
    second path. `asked` are the user's what-ifs with their savings. `pairs` are pairs of these, then of levers.
    `levers` are sorted by saving, the largest first; none if the recording explains too little.
    """

    step: str
    steps: int
    step_ns: float
    path: CriticalPath
    evidence: GraphEvidence
    host_alone_ns: float
    gpu_alone_ns: float
    asked: Sequence[tuple[str, SavedByStep]]
    levers: Sequence[LeverOnStep]
    pairs: Sequence[PairOfLevers]
    situation: StepSituation
    notes: list[str] = field(default_factory=list)


def step_advice(
    activity: Activity, machine: Machine | None = None, asked: Sequence[str] = (), within: RecordedSteps | None = None,
    moves: GpuOperations | None = None,
) -> StepAdvice:  # fmt: skip
    """Advice on a recording with GPU work, and the savings of the what-ifs `asked`, each alone and all together.

    `within` are its steps, if it was cut to them; `moves` pages of managed memory that moved at faults. Raises
    `WrongUsage` for an invalid what-if.
    """
    situation = StepSituation(activity, machine, None if within is None else within.start, moves)
    graph = situation.graph
    steps, name = (within.count, within.name) if within is not None else _steps_of(activity)
    wanted = [situation.asked.what_if(one) for one in asked]
    found = _levers(situation) if situation.evidence.level != REFUSED else []
    alone = [WhatIf.of("", without_host(graph)), WhatIf.of("", _no_gpu)]
    if len(wanted) > 1:
        wanted.append(reduce(and_, wanted))
    saved = savings(graph, [*alone, *wanted, *(one.what_if for _, one in found)])
    step_ns = within.step_ns if within is not None else graph.length / steps
    for_step = [_of_step(one, steps, step_ns) for one in saved]
    gpu_alone, host_alone = (step_ns - one.high_ns for one in for_step[:2])
    of_asked = for_step[2 : 2 + len(wanted)]
    levers = [
        LeverOnStep(lever, one, saves) for (lever, one), saves in zip(found, for_step[2 + len(of_asked) :], strict=True)
    ]
    worth = lever_facts()["shown"]["share"] * step_ns
    levers = sorted((one for one in levers if one.saves.high_ns >= worth), key=lambda one: one.rank)
    of_user = [(one.title, one.title, one, saves) for one, saves in zip(wanted[: len(asked)], of_asked, strict=False)]
    of_levers = [(one.lever, one.title, one.found.what_if, one.saves) for one in levers]
    return StepAdvice(
        name, steps, step_ns, situation.path, situation.evidence, host_alone, gpu_alone,
        [(one.title, saves) for one, saves in zip(wanted, of_asked, strict=True)], levers,
        [pair for some in (of_user, of_levers) for pair in _pairs(graph, some, steps, step_ns)], situation,
        _notes(situation),
    )  # fmt: skip


def advice_on_recording(activity: Activity, machine: Machine | None = None, asked: Sequence[str] = ()) -> StepAdvice:
    """Advice on an unprocessed recording, which is cut to its steps; impossible records are cut first, with a note.

    Raises `NcuBenchError` for a recording without GPU work, `WrongUsage` for an invalid what-if.
    """
    if not len(activity.operations):
        raise no_gpu_work(activity, {})
    operations, impossible = without_impossible_ends(activity.operations)
    activity, moves = without_migrations(replace(activity, operations=operations))
    steps = recorded_steps(activity)
    cut = cut_to(activity, steps)
    found = step_advice(cut, machine, asked, None if cut is activity else steps, moves)
    return replace(found, notes=[*found.notes, *_loading_outside(activity, steps), *impossible])


def advice_on_timeline(found: Timeline) -> StepAdvice | None:
    """Advice on the steps of a timeline; None if it is trimmed or too long, or no graph can be made of it."""
    activity = found.activity
    if found.trimmed or len(activity.operations) > MOST_OPERATIONS:
        return None
    try:
        return advice_on_recording(activity)
    except NcuBenchError:  # the timeline is shown nevertheless
        return None


def _loading_outside(activity: Activity, steps: RecordedSteps) -> list[str]:
    """A note if data were loaded outside the part that repeats, for longer than it lasts: layers repeat in one step."""
    ranges, lasts = activity.ranges, steps.end - steps.start
    loads = names_that_load_data(ranges.names)[ranges.name] & (ranges.kind != OS_CALL)
    rows = np.flatnonzero(loads & ((ranges.end <= steps.start) | (ranges.start >= steps.end)))
    loading = IntervalSet.union_of(ranges.start[rows], ranges.end[rows]).total
    if steps.name != REPEATED or loading <= lasts:
        return []
    longest = ranges.names[int(ranges.name[rows[np.argmax((ranges.end - ranges.start)[rows])]])]
    return [
        f"outside the {steps.name}, {duration(lasts)}, data were loaded for {duration(loading)}, as in {longest}: if "
        "that is part of each step, loading ahead comes first; mark the steps"
    ]


def _levers(situation: StepSituation) -> list[tuple[str, StepLever]]:
    found = []
    for name, of_step in STEP_LEVERS.items():
        one = of_step(situation)
        if one is not None:
            found.append((name, one))
    return found


def _steps_of(activity: Activity) -> tuple[int, str]:
    """The number of steps in the recording, and the word for one."""
    for process in processes_of(activity):
        found = step_ranges(activity.ranges, process, None)
        if found is not None:
            return len(found[0].names), "step"
    return 1, "recording"


def _of_step(one: Saving, steps: int, step_ns: float) -> SavedByStep:
    likely = None if one.likely_ns is None else one.likely_ns / steps
    return SavedByStep(one.low_ns / steps, likely, one.high_ns / steps, step_ns)


def _no_gpu(times: ReplayTimes) -> None:
    times.work[:] = 0.0


_Chosen = tuple[str, str, WhatIf, SavedByStep]
"""Name, title, what-if and saving."""


def _pairs(graph: StepGraph, chosen: Sequence[_Chosen], steps: int, step_ns: float) -> list[PairOfLevers]:
    """Pairs that save clearly more together than the sum of both; the best first."""
    limits = lever_facts()["shown"]
    pairs = list(combinations(chosen[: limits["most_in_pairs"]], 2))
    both = savings(graph, [one[2] & other[2] for one, other in pairs]) if pairs else []
    found = []
    for (one, other), saved in zip(pairs, both, strict=True):
        saves = _of_step(saved, steps, step_ns)
        apart = max(0.0, one[3].high_ns) + max(0.0, other[3].high_ns)
        if saves.high_ns > limits["pair"] * apart and saves.high_ns - apart > limits["pair_share"] * step_ns:
            found.append(PairOfLevers((one[0], other[0]), (one[1], other[1]), saves))
    return sorted(found, key=lambda one: -one.saves.high_ns)


def _notes(situation: StepSituation) -> list[str]:
    notes = [*([situation.evidence.why] if situation.evidence.why else []), *situation.doubts]
    if (situation.activity.ranges.kind == PYTHON).any():
        option = " (with_stack)" if situation.activity.tool == "kineto" else ""
        notes.append(f"recorded with Python's stacks{option}, which slow the host's code: real savings are smaller")
    if situation.graph.inferred:
        notes.append(
            f"{situation.graph.inferred:,} waits for events are inferred, as the recording does not name their events"
        )
    return notes
