"""Choose the kernels that ncu counts within a time limit: the ones with most of a timeline's time, a few launches each.

In most programs a kernel launched with the same grid and block does the same work each time, so a few counted launches
represent all of them. The cost of a count is estimated: passes x (the launch's own time + ncu's overhead).

ncu filters launches by function name and counts them in order, so on the way to a rare signature it also counts every
other launch of the chosen functions. A plan includes that cost.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from ncu_launch.counters.replay_plan import PASS_S
from ncu_launch.errors import NcuBenchError
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import short_name

from ncu_tools.kernels.matching.launch_signatures import LaunchSignatures, is_one_of, launches_of
from ncu_tools.profiling.profile_request import COVERAGE

AS_A_WHOLE = ("graph",)
"""Names in timelines of CUDA graphs recorded without their kernels; ncu cannot filter for them."""

LAUNCHES_EACH = 3


@dataclass(frozen=True)
class Signature:
    """A kernel with its grid and block (x, y, z each; None if the timeline has no shapes) in the timeline.

    `share` is its part of the time of all kernels, and `counted` the number of its launches that ncu should count.
    """

    kernel: str
    shape: Hashable
    launches: int
    time_ns: float
    share: float
    counted: int = 0


@dataclass(frozen=True)
class CountingPlan:
    """The signatures to count, longest first, and the ones that the coverage needs but the budget does not allow.

    `covered` is the share of kernel time whose signatures are counted, `cost_s` the estimated overhead of ncu,
    including launches counted on the way.
    """

    signatures: tuple[Signature, ...]
    left_out: tuple[Signature, ...]
    covered: float
    cost_s: float

    @property
    def kernels(self) -> tuple[str, ...]:
        """The distinct names of the kernels to count, longest first."""
        return tuple(dict.fromkeys(signature.kernel for signature in self.signatures))


def plan(
    timeline: pa.Table,
    *,
    budget_s: float,
    passes: int,
    coverage: float = COVERAGE,
    launches_each: int = LAUNCHES_EACH,
) -> CountingPlan:
    """Spend `budget_s` seconds of ncu on the signatures that take `coverage` of the kernels' time.

    Every signature gets one launch before any gets a second, up to `launches_each` and its number of launches. ncu runs
    each counted launch `passes` times. If other launches of the same functions use up the budget first, fewer of each
    are counted, and then late signatures are left out.

    Raises `NcuBenchError` if the timeline has no kernel with a time.
    """
    ideal = _ideal(timeline, budget_s, passes, coverage, launches_each)
    in_order = _InOrder(launches_of(timeline))
    for most in range(launches_each, 0, -1):
        fewer = _with_at_most(ideal, most)
        walk = in_order.walk(fewer.signatures, passes, budget_s)
        if walk.fulfilled:
            return replace(fewer, cost_s=walk.cost_s)
    return _within(in_order, _with_at_most(ideal, 1), budget_s, passes)


def _ideal(timeline: pa.Table, budget_s: float, passes: int, coverage: float, launches_each: int) -> CountingPlan:
    """The plan if ncu could choose single launches."""
    wanted = _covering(_signatures(timeline), coverage)
    counted = [0] * len(wanted)
    left = budget_s
    for turn in range(1, launches_each + 1):
        for place, signature in enumerate(wanted):
            cost = _cost(signature.time_ns / signature.launches, passes)
            if cost <= left and counted[place] == turn - 1 and turn <= signature.launches:
                counted[place] = turn
                left -= cost
    pairs = list(zip(wanted, counted, strict=True))
    chosen = tuple(replace(signature, counted=count) for signature, count in pairs if count)
    return CountingPlan(
        chosen,
        tuple(signature for signature, count in pairs if not count),
        _share(chosen),
        budget_s - left,
    )


def kernel_pattern(plan: CountingPlan) -> str:
    """A regular expression for ncu that matches exactly the function names of the kernels to count."""
    functions = dict.fromkeys(short_name(kernel) for kernel in plan.kernels)
    return f"^({'|'.join(re.escape(function) for function in functions)})$"


def launch_count(timeline: pa.Table, plan: CountingPlan) -> int:
    """The number of launches matching the pattern that ncu has to count until the plan is fulfilled.

    ncu counts launches in order, so other shapes of the same functions are counted on the way.
    """
    return _InOrder(launches_of(timeline)).walk(plan.signatures, passes=1).launches


@dataclass(frozen=True)
class _Walk:
    """The launches that ncu counts for a plan, their cost, and whether they fulfil it."""

    launches: int
    cost_s: float
    fulfilled: bool


class _InOrder:
    """The kernels of a timeline in the order in which ncu meets them."""

    def __init__(self, launches: LaunchSignatures) -> None:
        rows = np.flatnonzero(launches.is_kernel)
        rows = rows[np.argsort(launches.start[rows], kind="stable")]
        self._functions = [short_name(name) for name in launches.names]
        self._names, self._codes = launches.names, launches.name_codes[rows]
        self._shapes = [launches.shapes[row] for row in rows.tolist()]
        self._times = np.nan_to_num(tables.floats(launches.table, "duration_ns")[rows])

    def walk(self, signatures: Sequence[Signature], passes: int, budget_s: float = math.inf) -> _Walk:
        """Count every launch of the signatures' functions until all are fulfilled, or the budget is used up."""
        wanted = {short_name(signature.kernel) for signature in signatures}
        left = {(signature.kernel, signature.shape): signature.counted for signature in signatures}
        matching = np.array([function in wanted for function in self._functions], dtype=bool)[self._codes]
        count, cost = 0, 0.0
        for place in np.flatnonzero(matching).tolist():
            one = _cost(float(self._times[place]), passes)
            if not left or cost + one > budget_s:
                break
            count, cost = count + 1, cost + one
            signature = (self._names[self._codes[place]], self._shapes[place])
            if signature in left:
                left[signature] -= 1
                if left[signature] == 0:
                    del left[signature]
        return _Walk(count, cost, not left)


def _within(in_order: _InOrder, plan: CountingPlan, budget_s: float, passes: int) -> CountingPlan:
    """The plan with the signatures, longest first, for which all launches counted on the way fit the budget."""
    chosen: list[Signature] = []
    cost, left_out = 0.0, list(plan.left_out)
    for signature in plan.signatures:
        walk = in_order.walk([*chosen, signature], passes, budget_s)
        if walk.fulfilled:
            chosen.append(signature)
            cost = walk.cost_s
        else:
            left_out.append(replace(signature, counted=0))
    left_out.sort(key=lambda one: -one.time_ns)
    return CountingPlan(tuple(chosen), tuple(left_out), _share(chosen), cost)


def _with_at_most(plan: CountingPlan, most: int) -> CountingPlan:
    """The plan with at most `most` launches of each signature."""
    return replace(plan, signatures=tuple(replace(one, counted=min(one.counted, most)) for one in plan.signatures))


def _share(signatures: Iterable[Signature]) -> float:
    return sum(signature.share for signature in signatures)


def _cost(time_ns: float, passes: int) -> float:
    """Seconds that counting one launch adds to the run."""
    return passes * (time_ns / 1e9 + PASS_S)


def _covering(signatures: list[Signature], coverage: float) -> list[Signature]:
    """The fewest signatures that take this share of the time."""
    reached = np.cumsum([signature.share for signature in signatures])
    return signatures[: int(np.searchsorted(reached, coverage - 1e-12)) + 1]


def _signatures(timeline: pa.Table) -> list[Signature]:
    """Every kernel signature of a timeline with its time, longest first.

    Shares are of the time of all GPU work except copies, so graphs recorded as a whole are never covered.
    """
    launches = launches_of(timeline)
    duration = tables.floats(timeline, "duration_ns") * launches.weight
    at_work = launches.is_kernel & (duration > 0)
    rows = np.flatnonzero(at_work & ~is_one_of(timeline, "operation", AS_A_WHOLE))
    if not len(rows):
        raise _nothing_to_rank(only_graphs=bool(at_work.any()))
    known: dict[tuple[int, Hashable], int] = {}
    codes = launches.name_codes.tolist()
    group = np.array([known.setdefault((codes[row], launches.shapes[row]), len(known)) for row in rows.tolist()])
    times, counts = np.bincount(group, duration[rows]), np.bincount(group, launches.weight[rows])
    whole = float(duration[at_work].sum())
    found = [
        Signature(launches.names[code], shape, round(count), float(time), float(time) / whole)
        for (code, shape), count, time in zip(known, counts.tolist(), times.tolist(), strict=True)
    ]
    return sorted(found, key=lambda one: -one.time_ns)


def _nothing_to_rank(*, only_graphs: bool) -> NcuBenchError:
    what = "The timeline holds no kernel with a time, so there is nothing to rank."
    if only_graphs:
        return NcuBenchError(
            what,
            "It holds CUDA graphs, each recorded as a whole.",
            "Record their kernels: nsys profile -t cuda,nvtx --cuda-graph-trace=node -o timeline PROGRAM",
        )
    return NcuBenchError(
        what,
        "The program launched no kernel while it was recorded.",
        "Record it with: nsys profile -t cuda,nvtx -o timeline PROGRAM",
    )
