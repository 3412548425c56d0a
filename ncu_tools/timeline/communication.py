"""Communication kernels: their bytes, bus bandwidth, and outliers in time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from ncu_parsers.timelines.activity.activity import Activity, CollectiveArguments

from ncu_tools.kernels.names.categories import COMMUNICATION, category_of
from ncu_tools.timeline.call_kinds import facts
from ncu_tools.timeline.intervals import IntervalSet


def is_communication(name: str) -> bool:
    """True if a kernel of this name moves data between GPUs, by its category."""
    return category_of(name) == COMMUNICATION


@dataclass(frozen=True)
class CollectiveSum:
    """Collectives of one kind and size on one GPU. Times in ns, bytes of the whole collective; None if not recorded.

    `time_ns` is the time within the window; all other values are of whole collectives, even if they reach beyond it.
    `bus_bytes_per_s` is that of the median time, by the convention of nccl-tests: a lower bound, because a collective
    also waits for the slowest rank. `outliers` counts those that took much longer than the median (`timeline.toml`);
    None if sizes are unknown, which may explain them. `longest_start_ns` is when the longest one began.
    """

    name: str
    kernel: str
    ranks: int | None
    bytes: int | None
    count: int
    time_ns: int
    median_ns: float
    longest_ns: int
    longest_start_ns: int
    bus_bytes_per_s: float | None
    outliers: int | None


def collectives_on(activity: Activity, rows: Sequence[int], window: IntervalSet) -> list[CollectiveSum]:
    """The collectives among the operations `rows`, summed by kind and size; by time within `window`, longest first."""
    operations = activity.operations
    groups: dict[tuple[str, str, str, int | None, int | None], list[int]] = {}
    for row in rows:
        kernel = operations.names[int(operations.name[row])]
        called = activity.collectives.get(row, CollectiveArguments(None, None, None, None))
        title, factor = _collective_kind(called.name or kernel)
        known = [size for size in (called.bytes_in, called.bytes_out) if size is not None]
        groups.setdefault((title, factor, kernel, called.ranks, max(known, default=None)), []).append(row)
    found = []
    for (title, factor, kernel, ranks, size), mine in groups.items():
        times = (operations.end[mine] - operations.start[mine]).tolist()
        inside = int(window.within(operations.start[mine], operations.end[mine]).sum())
        middle, longest = median(times), int(np.argmax(times))
        scale = _scale(factor, ranks)
        bandwidth = None if size is None or scale is None or not middle else size * scale / middle * 1e9
        found.append(
            CollectiveSum(title, kernel, ranks, size, len(times), inside, middle, times[longest],
                          int(operations.start[mine[longest]]), bandwidth,
                          None if size is None else _outliers(times, middle))
        )  # fmt: skip
    return sorted(found, key=lambda one: -one.time_ns)


def _outliers(times: Sequence[int], middle: float) -> int:
    """Number of times far above the median; 0 if there are too few times for outliers."""
    limits = facts()["outlier"]
    return sum(time > limits["times_median"] * middle for time in times) if len(times) >= limits["least"] else 0


def _collective_kind(name: str) -> tuple[str, str]:
    """The title of a collective, and the factor of its bus bandwidth as in timeline.toml ("" if unknown)."""
    plain = name.replace("-", "_").replace("/", "_")
    found = next((one for one in facts()["collective"] if re.search(one["pattern"], plain)), None)
    return (found["title"], found["factor"]) if found else ("communication", "")


def _scale(factor: str, ranks: int | None) -> float | None:
    """The factor of bus bandwidth for `ranks` ranks; None if unknown."""
    if factor == "1":
        return 1.0
    if ranks is None or ranks < 2 or not factor:
        return None
    return (2 if factor.startswith("2") else 1) * (ranks - 1) / ranks
