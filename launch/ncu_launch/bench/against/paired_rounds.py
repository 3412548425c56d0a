"""Two iterations timed in turns, so that a machine that slows down slows both, and the ratio of their times.

A round times a block of iterations of each, in alternating order. An iteration before each block of several is not
counted, because the other function left its own data in the caches. The ratio of a round is the ratio of its two
medians, which another process that briefly takes the processor hardly changes. The total ratio is the geometric mean,
with the interval of the mean of logarithms, from blocks of rounds as for latencies (`latency_statistics`).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncu_launch.bench.latency_statistics import Effort, half_width
from ncu_launch.bench.timed_iteration import Iteration, Timer, timed_once

BLOCK_NS = 20e6
MOST_IN_A_BLOCK = 100
LEAST_ROUNDS = 10


@dataclass
class Rounds:
    """Samples in ns of both sides, in order, and per round the logarithms of both medians, ours first."""

    mine: list[float] = field(default_factory=list)
    reference: list[float] = field(default_factory=list)
    logs: list[tuple[float, float]] = field(default_factory=list)


def in_turns(
    mine: Iteration, reference: Iteration, timed: Timer, effort: Effort, *, between: Callable[[], Any] = lambda: None
) -> Rounds:
    """Time both until the interval of their ratio is as narrow as `effort` asks, at most for 2 x `effort.max_s`.

    Both must have run before. `between` is called after every round, outside the timing.
    """
    found = Rounds()
    sizes = [_block_of(side, timed) for side in (mine, reference)]
    began = time.monotonic()
    while not _is_enough(found, effort, time.monotonic() - began):
        sides = [(mine, sizes[0], found.mine), (reference, sizes[1], found.reference)]
        medians = [0.0, 0.0]
        for place in (0, 1) if len(found.logs) % 2 == 0 else (1, 0):
            iteration, size, samples = sides[place]
            block = _block(iteration, size, timed)
            samples += block
            medians[place] = statistics.median(block)
        found.logs.append((math.log(max(medians[0], 1.0)), math.log(max(medians[1], 1.0))))
        between()
    return found


def _block_of(iteration: Iteration, timed: Timer) -> int:
    """Number of iterations in a block of about `BLOCK_NS`."""
    return min(MOST_IN_A_BLOCK, max(1, int(BLOCK_NS / max(1.0, timed_once(iteration, timed)))))


def _block(iteration: Iteration, size: int, timed: Timer) -> list[float]:
    if size > 1:
        timed_once(iteration, timed)
    return [timed_once(iteration, timed) for _ in range(size)]


def _is_enough(found: Rounds, effort: Effort, seconds: float) -> bool:
    rounds = len(found.logs)
    if not rounds:
        return False
    if seconds >= 2 * effort.max_s:
        return True
    if rounds < LEAST_ROUNDS or seconds < 2 * effort.least_s:
        return False
    reach = half_width(_ratios(found.logs))
    return reach is not None and reach <= effort.precision


@dataclass(frozen=True)
class TimesRatio:
    """Both times in ns, geometric means of rounds, and `ratio`, reference / mine: above 1, mine is faster.

    `low` and `high` are the ends of the 95 % interval of the ratio; None for a single round or process.
    """

    mine_ns: float
    reference_ns: float
    ratio: float
    low: float | None
    high: float | None


Logs = Sequence[Sequence[float]]
"""Per round, the natural logarithms of both medians in ns, mine first."""


def times_ratio(processes: Sequence[Logs]) -> TimesRatio:
    """Times and ratio over the rounds of one process, or over the means of several processes."""
    of_each = processes[0] if len(processes) == 1 else [_means(one) for one in processes]
    mine, reference = _means(of_each)
    middle, reach = reference - mine, half_width(_ratios(of_each))
    low, high = (None, None) if reach is None else (math.exp(middle - reach), math.exp(middle + reach))
    return TimesRatio(math.exp(mine), math.exp(reference), math.exp(middle), low, high)


def _ratios(logs: Logs) -> list[float]:
    return [reference - mine for mine, reference in logs]


def _means(logs: Logs) -> tuple[float, float]:
    return statistics.fmean(mine for mine, _ in logs), statistics.fmean(reference for _, reference in logs)
