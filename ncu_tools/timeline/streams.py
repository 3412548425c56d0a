"""Streams of one GPU: the time each ran alone, and the copies and communication that wait behind its own kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from ncu_parsers.timelines.activity.activity import KERNEL, MEMCPY, MISSING, GpuOperations

from ncu_tools.timeline.intervals import IntervalSet, grouped

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class StreamSum:
    """One stream; times in ns. `alone_ns` is the time in which no other stream ran.

    `in_line_ns` is the time of exposed copies and communication on a stream that also runs compute kernels. On a stream
    of their own they could overlap with kernels, at most for as long as these run, and unless a kernel needs their
    result.
    """

    stream: int | None
    operations: int
    kernels: int
    copies: int
    busy_ns: int
    alone_ns: int
    in_line_ns: int


def streams_on(operations: GpuOperations, computes: Mask, window: IntervalSet, exposed: IntervalSet) -> list[StreamSum]:
    """The streams of one GPU that ran in `window`, the longest busy time first; operations count if any part ran in it.

    `computes` masks compute kernels, `exposed` are the times in which only copies or communication run.
    """
    inside = window.touches(operations.start, operations.end)
    busy = []
    for rows in grouped(operations.stream):
        ran = IntervalSet.union_at(operations.start, operations.end, rows) & window
        if ran.total or inside[rows].any():
            busy.append((rows, ran))
    alone = IntervalSet.only_in_one([ran for _, ran in busy])
    runs_kernels = computes & inside & (operations.end > operations.start)
    found = []
    for rows, ran in busy:
        in_line, number, here = 0, int(operations.stream[rows[0]]), operations.kind[rows[inside[rows]]]
        if runs_kernels[rows].any():
            others = IntervalSet.union_at(operations.start, operations.end, rows[~computes[rows]])
            in_line = (others & exposed & window).total
        found.append(
            StreamSum(None if number == MISSING else number, len(here), int((here == KERNEL).sum()),
                      int((here == MEMCPY).sum()), ran.total, alone.shared_with(ran), in_line)
        )  # fmt: skip
    return sorted(found, key=lambda one: -one.busy_ns)
