"""Streams of one GPU: what each ran alone, and what stood in line behind kernels of its own stream."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from operator import or_

import numpy as np
import numpy.typing as npt
from ncu_parsers.timelines.activity.activity import KERNEL, MEMCPY, MISSING, GpuOperations

from ncu_tools.timeline.intervals import NOTHING, IntervalSet

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class StreamSum:
    """One stream. `alone_ns`: it ran and no other stream did. Times in ns.

    `in_line_ns`: copies and communication on it that no kernel hides, where it runs kernels that compute too. On
    another stream they could hide behind kernels, for as long as these run, and unless a kernel needs their result.
    """

    stream: int | None
    operations: int
    kernels: int
    copies: int
    busy_ns: int
    alone_ns: int
    in_line_ns: int


def streams_on(operations: GpuOperations, computes: Mask, window: IntervalSet, exposed: IntervalSet) -> list[StreamSum]:
    """The streams of one GPU that ran in `window`, by their busy time there; operations count if any of them ran in it.

    `computes` marks kernels that compute, `exposed` is when other work runs alone.
    """
    inside = window.touches(operations.start, operations.end)
    busy = {}
    for number in np.unique(operations.stream).tolist():
        mine = operations.stream == number
        ran = _when(operations, mine) & window
        if ran.total or (mine & inside).any():
            busy[number] = ran
    found = []
    for (number, ran), others in zip(busy.items(), _of_others(list(busy.values())), strict=True):
        mine = operations.stream == number
        in_line = 0
        if len(_when(operations, mine & computes) & window):
            in_line = (_when(operations, mine & ~computes) & exposed & window).total
        here = mine & inside
        found.append(
            StreamSum(None if number == MISSING else number, int(here.sum()),
                      int((here & (operations.kind == KERNEL)).sum()), int((here & (operations.kind == MEMCPY)).sum()),
                      ran.total, (ran - others).total, in_line)
        )  # fmt: skip
    return sorted(found, key=lambda one: -one.busy_ns)


def _of_others(busy: list[IntervalSet]) -> list[IntervalSet]:
    """For each stream when any other one ran: any before it in the list, or any behind it."""
    before = [*accumulate(busy[:-1], or_, initial=NOTHING)]
    behind = [*accumulate(reversed(busy[1:]), or_, initial=NOTHING)]
    return [one | other for one, other, _ in zip(before, reversed(behind), busy, strict=False)]  # of none there is none


def _when(operations: GpuOperations, some: Mask) -> IntervalSet:
    """When any of some operations ran."""
    return IntervalSet.union_of(operations.start[some], operations.end[some])
