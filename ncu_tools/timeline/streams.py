"""Streams of one GPU: what each ran alone, and what stood in line behind kernels of its own stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ncu_parsers.timelines.activity.activity import KERNEL, MEMCPY, MISSING, GpuOperations

from ncu_tools.timeline.intervals import NOTHING, IntervalSet


@dataclass(frozen=True)
class StreamSum:
    """One stream. `alone_ns`: it ran and no other stream did. Times in ns.

    `in_line_ns`: copies and communication on it that no kernel hides, where it runs kernels that compute too: on
    another stream they could overlap, unless a kernel needs their result.
    """

    stream: int | None
    operations: int
    kernels: int
    copies: int
    busy_ns: int
    alone_ns: int
    in_line_ns: int


def streams_on(
    operations: GpuOperations, computes: np.ndarray[tuple[int], np.dtype[np.bool_]], window: IntervalSet,
    exposed: IntervalSet,
) -> list[StreamSum]:  # fmt: skip
    """The streams of one GPU, by their busy time.

    `computes` marks kernels that compute, `exposed` is when other work runs alone.
    """
    inside = window.holds(operations.start)
    numbers = np.unique(operations.stream[inside]).tolist()
    busy = {}
    for number in numbers:
        mine = operations.stream == number
        busy[number] = IntervalSet.union_of(operations.start[mine], operations.end[mine]) & window
    found = []
    for number in numbers:
        mine = inside & (operations.stream == number)
        others = NOTHING
        for other in numbers:
            others = others | busy[other] if other != number else others
        in_line = 0
        if (mine & computes).any():
            rest = mine & ~computes
            in_line = (IntervalSet.union_of(operations.start[rest], operations.end[rest]) & exposed).total
        found.append(
            StreamSum(None if number == MISSING else number, int(mine.sum()),
                      int((mine & (operations.kind == KERNEL)).sum()), int((mine & (operations.kind == MEMCPY)).sum()),
                      busy[number].total, (busy[number] - others).total, in_line)
        )  # fmt: skip
    return sorted(found, key=lambda one: -one.busy_ns)
