"""The time of a kernel after a lever was pulled, as a share of the time before.

A lever leaves of each resource's work a share s (1: all of it), and of the time that warps wait a share l. With u the
share of the time that a resource is busy and b the busiest one's,

    time after = max(floor + (1 - floor) x (b^2 x max(u s) / b + (1 - b^2) x l), u s / cap of every relieved resource)

The floor is the start of a launch, which nothing saves; at best, it is only the least that is left. A kernel that a
resource keeps busy follows that resource; one that keeps none busy follows its latency; b^2 mixes the two. What was
relieved can be busy for no more than its cap. Where the true work after a change is known, "the largest work left, at
the utilisation that the bound has now" is off by 6 points of the time (docs/advice.md), which is as good as any form
that was tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ncu_tools.advice.situation.constants import constants
from ncu_tools.advice.situation.measured import MeasuredKernel
from ncu_tools.advice.situation.utilisation import resources

COMPOSED = {
    "memory": ("dram", "l2", "xbar", "l1", "lsu"),
    "sm": ("issue", "fma", "alu", "fp64", "xu", "half", "tensor", "branch", "lsu"),
}
"""Throughput of a whole -> its parts; the whole counts only if no part is as busy: its busiest part is unknown."""
AS_BUSY = 0.02


class Left(NamedTuple):
    """What a lever leaves of work or time, at `best`, in the `middle` and at `worst`; 1 is all, 2 twice as much."""

    best: float
    middle: float
    worst: float

    @classmethod
    def all(cls, share: float = 1.0) -> Left:
        """The same share in all three cases."""
        return cls(share, share, share)

    def times(self, other: Left) -> Left:
        """The product of both, case by case."""
        return Left(*(one * two for one, two in zip(self, other, strict=True)))


ALL = Left(1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Effect:
    """The effect of a lever: the work left by resource, and the waiting left; or `time`, the share of the time left.

    `time` replaces the model. `has_floor` is False if the launch itself goes.
    """

    work: Mapping[str, Left] = field(default_factory=dict)
    waiting: Left = ALL
    time: Left | None = None
    has_floor: bool = True


class SavedShare(NamedTuple):
    """Shares of a kernel's time that a lever saves: least, middle and most; below 0 where it would cost time."""

    low: float
    middle: float
    high: float


def saving(kernel: MeasuredKernel, effect: Effect) -> SavedShare:
    """The saving of an effect by the model, not calibrated."""
    best, middle, worst = (1.0 - time_left(kernel, effect, case) for case in range(3))
    low, middle, high = sorted((best, middle, worst))
    return SavedShare(low, middle, high)


def time_left(kernel: MeasuredKernel, effect: Effect, case: int) -> float:
    """The share of the time left in one case (0 best, 1 middle, 2 worst), at least the floor of a launch."""
    floor: float = min(1.0, constants()["model"]["floor_ns"] / kernel.time_ns) if effect.has_floor else 0.0
    if effect.time is not None:
        return max(floor, effect.time[case])
    busy = resources_that_count(kernel)
    left = {name: share * _work_left(effect.work, name, case) for name, share in busy.items()}
    time = _mixed(effect, case, max(busy.values(), default=0.0), left)
    if case:  # at best, what a lever saves is all but the floor
        time = floor + (1 - floor) * time
    caps = [work / resources()[name]["cap"] for name, work in left.items() if work < busy[name]]
    return max(floor, time, *caps) if caps else max(floor, time)


def _mixed(effect: Effect, case: int, bound: float, left: Mapping[str, float]) -> float:
    """The share of the time that the largest work that is `left`, and the waiting, take of a kernel with this bound."""
    waiting = effect.waiting[case]
    if bound <= 0:
        share: float = constants()["model"]["unknown_bound"]
        relieved = min((one[case] for one in effect.work.values()), default=1.0)
        return share * max(relieved, waiting) + (1 - share) * waiting
    mixed = bound * bound
    return mixed * max(left.values()) / bound + (1 - mixed) * waiting


def next_limit(kernel: MeasuredKernel, effect: Effect) -> str:
    """The resource that is busiest after the lever was pulled; "" if none is known."""
    busy = resources_that_count(kernel)
    return max(busy, key=lambda name: busy[name] * _work_left(effect.work, name, 1), default="")


def resources_that_count(kernel: MeasuredKernel) -> dict[str, float]:
    """The utilisations of resources, without wholes that have a part as busy."""
    busy = dict(kernel.busy)
    for whole, parts in COMPOSED.items():
        if whole in busy and any(busy.get(part, -1.0) >= busy[whole] - AS_BUSY for part in parts):
            del busy[whole]
    return busy


def _work_left(work: Mapping[str, Left], name: str, case: int) -> float:
    """The share of a resource's work left; for a whole, that of its most relieved part, as its busiest is unknown."""
    if name in work:
        return work[name][case]
    if name in COMPOSED:
        return min((work[part][case] for part in COMPOSED[name] if part in work), default=1.0)
    return 1.0


def effects_together(one: Effect, other: Effect) -> Effect:
    """Combine two independent effects: the work and waiting that remain after both."""
    names = {*one.work, *other.work}
    work = {name: one.work.get(name, ALL).times(other.work.get(name, ALL)) for name in names}
    time = None
    if one.time is not None or other.time is not None:
        time = (one.time or ALL).times(other.time or ALL)
    return Effect(work, one.waiting.times(other.waiting), time)


def effects_overlapping(one: Effect, other: Effect) -> Effect:
    """Combine two effects that remove the same work: for each resource the stronger one counts."""
    names = {*one.work, *other.work}
    work = {name: _stronger(one.work.get(name, ALL), other.work.get(name, ALL)) for name in names}
    time = None
    if one.time is not None or other.time is not None:
        time = _stronger(one.time or ALL, other.time or ALL)
    return Effect(work, _stronger(one.waiting, other.waiting), time)


def _stronger(one: Left, other: Left) -> Left:
    best, middle, worst = (min(pair) for pair in zip(one, other, strict=True))
    return Left(best, middle, worst)
