"""CPU load during a measurement: the share that other programs take, and the clock.

The share refers to the CPUs on which this process may run: their busy time, as the system counts it, minus the time of
this process and its children. In a container the system's counts cover the whole host, as they should: programs outside
the container disturb just as much.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import psutil

SETTING = "NCU_BENCH_IGNORE_LOAD"
"""With this environment variable set, load and clock are unknown: nothing is repeated, and output does not vary."""
DISTURBS = 0.1
"""Share of the CPU taken by other programs above which a note mentions it."""
SHORTEST_S = 0.05
"""Shortest time in seconds for which a share is computed: the system counts in steps of 10 ms."""
FELL = 0.9
"""The clock counts as fallen if it is below this fraction of its earlier value."""


class CpuLoad:
    """Measures how busy the CPU was with other programs between two calls."""

    def __init__(self) -> None:
        self._before = _cpu_totals()

    def others(self) -> float | None:
        """The share of the CPU that other programs took since the last call, or since the start: 0 to 1.

        None if unknown: the system does not count it, or the last call was less than 50 ms ago (then counting
        continues).
        """
        if os.environ.get(SETTING):
            return None
        before, now = self._before, _cpu_totals()
        if before is None or now is None or now[0] - before[0] < SHORTEST_S:
            return None
        self._before = now
        seconds, busy, own, cpus = (after - earlier for after, earlier in zip(now, before, strict=True))
        cpus += before[3]
        return min(max((busy - own) / (cpus * seconds), 0.0), 1.0)


def cpu_count() -> int:
    """The number of CPUs on which this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_totals() -> tuple[float, float, float, float] | None:
    """Totals so far, in seconds: wall clock, busy time of all CPUs, this process and its children; the number of CPUs.

    None if the system does not report one of them to psutil, as in some containers: then the load is unknown, not 0.
    """
    with suppress(psutil.Error, OSError, AttributeError, NotImplementedError):
        times = psutil.cpu_times(percpu=True)
        ours = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(times))
        mine = [times[cpu] for cpu in ours if cpu < len(times)] or times
        idle = sum(one.idle + getattr(one, "iowait", 0.0) for one in mine)
        guests = sum(getattr(one, "guest", 0.0) + getattr(one, "guest_nice", 0.0) for one in mine)  # in user and nice
        return time.monotonic(), sum(map(sum, mine)) - idle - guests, _own_seconds(), float(len(mine))
    return None


def _own_seconds() -> float:
    """The CPU time of this process, of its children that ended, and of its running children."""
    own = sum(os.times()[:4])
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            own += sum(child.cpu_times()[:2])
    return own


def clock_hz() -> float | None:
    """The highest current clock of any CPU, in Hz; None if the system does not report it."""
    if os.environ.get(SETTING):
        return None
    with suppress(OSError, ValueError):
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return 1e6 * max(float(line.split(":")[1]) for line in lines if line.startswith("cpu MHz"))
    return None


def on_clock(before: float | None, after: float | None) -> list[str]:
    """A note if the clock fell while something was timed; else []."""
    if before is None or after is None or after >= FELL * before:
        return []
    return [f"the CPU's clock fell from {before / 1e9:.2f} to {after / 1e9:.2f} GHz during the run"]
