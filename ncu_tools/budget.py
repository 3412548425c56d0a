"""Which kernels ncu should count when its time is limited: those that take the time of a timeline, a few launches each.

A kernel launched with the same grid and block does, for most programs, the same work each time, so a few counted
launches stand for all of them. What a count costs is estimated: passes x (the launch's own time + what ncu adds).
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_launch.runs import PASS_S
from ncu_parsers import tables
from ncu_parsers.tables import short_name

from ncu_tools.signatures import launches_of

COVERAGE = 0.95
LAUNCHES_EACH = 3


@dataclass(frozen=True)
class Signature:
    """A kernel with its grid and block (x, y, z each; None where the timeline has no shapes) in the timeline.

    `share` is its part of the time of all kernels, and `counted` how many of its launches ncu is to count.
    """

    kernel: str
    shape: Hashable
    launches: int
    time_ns: float
    share: float
    counted: int = 0


@dataclass(frozen=True)
class Plan:
    """The signatures to count, longest first, and those needed for the coverage that the budget has no room for.

    `covered` is the share of kernel time whose signatures are counted, `cost_s` what ncu is estimated to add.
    """

    signatures: tuple[Signature, ...]
    left_out: tuple[Signature, ...]
    covered: float
    cost_s: float

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels to count, each once, longest first."""
        return tuple(dict.fromkeys(signature.kernel for signature in self.signatures))


def plan(
    timeline: pa.Table,
    *,
    budget_s: float,
    passes: int,
    coverage: float = COVERAGE,
    launches_each: int = LAUNCHES_EACH,
) -> Plan:
    """Spend `budget_s` seconds of ncu on the signatures that take `coverage` of the kernels' time.

    Every signature gets one launch before any gets a second, up to `launches_each` and no more than it has. ncu runs
    each counted launch `passes` times.
    Raises `NcuBenchError` when the timeline has no kernel with a time.
    """
    wanted = _covering(_signatures(timeline), coverage)
    counted = [0] * len(wanted)
    left = budget_s
    for turn in range(1, launches_each + 1):
        for place, signature in enumerate(wanted):
            cost = passes * (signature.time_ns / signature.launches / 1e9 + PASS_S)
            if cost <= left and counted[place] == turn - 1 and turn <= signature.launches:
                counted[place] = turn
                left -= cost
    pairs = list(zip(wanted, counted, strict=True))
    chosen = tuple(replace(signature, counted=count) for signature, count in pairs if count)
    return Plan(
        chosen,
        tuple(signature for signature, count in pairs if not count),
        sum(signature.share for signature in chosen),
        budget_s - left,
    )


def kernel_pattern(plan: Plan) -> str:
    """A regular expression for ncu that matches the function names of the kernels to count, and no other."""
    functions = dict.fromkeys(short_name(kernel) for kernel in plan.kernels)
    return f"^({'|'.join(re.escape(function) for function in functions)})$"


def launch_count(timeline: pa.Table, plan: Plan) -> int:
    """How many launches that match the pattern ncu has to count until it has those of the plan.

    ncu counts launches as they come, so other shapes of the same functions are counted on the way.
    """
    launches = launches_of(timeline)
    wanted = {short_name(kernel) for kernel in plan.kernels}
    functions = [short_name(name) in wanted for name in launches.names]
    left = {(signature.kernel, signature.shape): signature.counted for signature in plan.signatures}
    counted = 0
    for row in np.argsort(launches.start, kind="stable").tolist():
        code = int(launches.name_codes[row])
        if not launches.is_kernel[row] or not functions[code]:
            continue
        counted += 1
        signature = (launches.names[code], launches.shapes[row])
        if signature in left:
            left[signature] -= 1
            if left[signature] == 0:
                del left[signature]
        if not left:
            break
    return counted


def _covering(signatures: list[Signature], coverage: float) -> list[Signature]:
    """The fewest signatures that take this share of the time."""
    reached = np.cumsum([signature.share for signature in signatures])
    return signatures[: int(np.searchsorted(reached, coverage - 1e-12)) + 1]


def _signatures(timeline: pa.Table) -> list[Signature]:
    """Every kernel signature of a timeline with its time, longest first."""
    launches = launches_of(timeline)
    duration = tables.floats(timeline, "duration_ns") * launches.weight
    rows = np.flatnonzero(launches.is_kernel & (duration > 0))
    if not len(rows):
        raise NcuBenchError(
            "The timeline holds no kernel with a time, so there is nothing to rank.",
            "The program launched no kernel while it was recorded.",
            "Record it with: nsys profile -t cuda,nvtx -o timeline PROGRAM",
        )
    known: dict[tuple[int, Hashable], int] = {}
    codes = launches.name_codes.tolist()
    group = np.array([known.setdefault((codes[row], launches.shapes[row]), len(known)) for row in rows.tolist()])
    times, counts = np.bincount(group, duration[rows]), np.bincount(group, launches.weight[rows])
    whole = float(times.sum())
    found = [
        Signature(launches.names[code], shape, round(count), float(time), float(time) / whole)
        for (code, shape), count, time in zip(known, counts.tolist(), times.tolist(), strict=True)
    ]
    return sorted(found, key=lambda one: -one.time_ns)
