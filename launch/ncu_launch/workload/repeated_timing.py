"""Time operators again while other programs use the CPU: the median time of each call is kept."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from ncu_launch.workload.cpu_load import DISTURBS

MOST, MOST_S = 4, 5.0
"""Most further runs, and most seconds for all of them together."""

Records = list[dict[str, Any]]
"""The records of one run, one per operator call."""


def repeated(first: Records, others: float | None, again: Callable[[], Records]) -> list[str]:
    """Replace the times of a run by medians if other programs took 10 % of the CPU or more; returns notes, [] if not.

    `others` is their share (0 to 1), None if unknown; `again` repeats the run. All other values are from the first run.
    """
    if others is None or others < DISTURBS:
        return []
    taken = f"other programs took {100 * others:.0f} % of the CPU"
    runs = [first, *_further(first, again)]
    if len(runs) == 1:
        return [f"{taken}, and a run is too long to repeat: times are from a single disturbed run"]
    alike = [run for run in runs if list(map(_call, run)) == list(map(_call, first))]
    if len(alike) < len(runs):
        return [f"{taken}, and operators differ from run to run: times are from a single disturbed run"]
    totals = [sum(record["ns"] for record in run) for run in runs]
    for calls in zip(*runs, strict=True):
        calls[0]["ns"] = statistics.median(call["ns"] for call in calls)
    spread = (max(totals) - min(totals)) / statistics.median(totals)
    return [f"{taken}: each time is the median of {len(runs)} runs, whose totals differ by {100 * spread:.0f} %"]


def _further(first: Records, again: Callable[[], Records]) -> list[Records]:
    """Further runs: as many as fit into the time if each takes as long as the first, or the last."""
    seconds = sum(record["ns"] for record in first) / 1e9
    until = time.monotonic() + MOST_S
    runs: list[Records] = []
    while len(runs) < MOST and time.monotonic() + seconds < until:
        began = time.monotonic()
        runs.append(again())
        seconds = time.monotonic() - began
    return runs


def _call(record: dict[str, Any]) -> Sequence[Any]:
    """The identity of a call, without its times."""
    return [record[name] for name in ("operator", "phase", "module", "shapes", "dtype")]
