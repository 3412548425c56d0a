"""Copies of one GPU by direction and memory: bytes, rate, and the time that no kernel overlaps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from ncu_parsers.timelines.activity.activity import DIRECTIONS, MEMCPY, MEMORIES, MISSING, GpuOperations

from ncu_tools.timeline.intervals import IntervalSet


@dataclass(frozen=True)
class CopySum:
    """Copies of one direction and kind of memory. `bytes` and the rate are None if the size of any is unknown.

    `busy_ns` is the time in which at least one copy ran, `exposed_ns` the part without a kernel; both only within the
    window. `bytes` and the rate are of whole copies: bytes over the time in which at least one ran. `link_share` is the
    rate over the peak of the link in this direction, if known.
    """

    direction: str
    source_memory: str
    destination_memory: str
    count: int
    bytes: int | None
    busy_ns: int
    exposed_ns: int
    bytes_per_s: float | None
    link_share: float | None = None


def copies_on(
    operations: GpuOperations, window: IntervalSet, exposed: IntervalSet, links: Mapping[str, float]
) -> list[CopySum]:
    """The copies among `operations` that ran in `window`, the longest busy time first.

    `exposed` are the times in which copies run without a kernel; `links` are peaks in B/s by direction.
    """
    rows = np.flatnonzero((operations.kind == MEMCPY) & window.touches(operations.start, operations.end))
    keys = np.stack([operations.direction, operations.source_memory, operations.destination_memory])[:, rows]
    found = []
    for direction, source, destination in np.unique(keys, axis=1).T.tolist():
        mine = rows[np.all(keys.T - (direction, source, destination) == 0, axis=1)]
        whole = IntervalSet.union_of(operations.start[mine], operations.end[mine])
        busy = whole & window
        sizes = operations.bytes[mine]
        size = int(sizes.sum()) if (sizes != MISSING).all() else None
        rate = size / whole.total * 1e9 if size is not None and whole.total else None
        title = DIRECTIONS[direction] if direction >= 0 else "other"
        peak = links.get(title)
        found.append(
            CopySum(title, _memory(source), _memory(destination), len(mine), size, busy.total,
                    (busy & exposed).total, rate, rate / peak if rate is not None and peak else None)
        )  # fmt: skip
    return sorted(found, key=lambda one: -one.busy_ns)


def _memory(code: int) -> str:
    return MEMORIES[code] if code >= 0 else "unknown"
