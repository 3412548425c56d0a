"""How the warps of each role spend their lives: in which ranges, working or waiting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ncu_tools.kernels.warp_ranges.launch_ranges import LaunchRanges
from ncu_tools.kernels.warp_ranges.range_kinds import RangeKind


@dataclass(frozen=True)
class RoleTime:
    """The warps of a role: shares of their lives spent working, waiting and outside ranges. `life` is a warp's mean."""

    role: str
    warps: int
    warps_of_block: float
    life: float
    working: float
    waiting: float
    unmarked: float


@dataclass(frozen=True)
class RangeTime:
    """The ranges of one name in a role: `share` of the warps' lives without inner ranges, `whole_share` with them.

    `share` is None for asynchronous ranges, which run beside others. `mean` and `longest` are times of one range.
    """

    role: str
    range: str
    kind: RangeKind
    count: int
    mean: float
    longest: int
    share: float | None
    whole_share: float


def role_times(ranges: LaunchRanges) -> list[RoleTime]:
    """The times of every role, the one that works most first."""
    life = (ranges.end - ranges.begin).astype(np.float64)
    per_role = np.bincount(ranges.role, life, len(ranges.roles))
    warps = np.bincount(ranges.role, minlength=len(ranges.roles))
    of = ranges.role[ranges.lane]
    is_wait = np.isin(ranges.kind, [at for at, one in enumerate(RangeKind) if one.is_waiting])
    waiting, working = (np.bincount(of[some], ranges.own[some], len(ranges.roles)) for some in (is_wait, ~is_wait))
    found = []
    for at, role in enumerate(ranges.roles):
        whole = max(per_role[at], 1.0)
        shares = float(working[at] / whole), float(waiting[at] / whole)
        of_block, life_of_one = float(warps[at] / len(ranges.first_block)), float(per_role[at] / warps[at])
        found.append(RoleTime(role, int(warps[at]), of_block, life_of_one, *shares, max(1 - sum(shares), 0.0)))
    return sorted(found, key=lambda one: -one.working)


def range_times(ranges: LaunchRanges) -> list[RangeTime]:
    """The times of every range of every role, the largest share of own time first."""
    names = len(ranges.names)
    key = ranges.role[ranges.lane].astype(np.int64) * names + ranges.name
    rows = len(ranges.roles) * names
    count, own = np.bincount(key, minlength=rows), np.bincount(key, ranges.own, rows)
    whole = np.bincount(key, ranges.length, rows)
    longest = np.zeros(rows, np.int64)
    np.maximum.at(longest, key, ranges.length)
    beside = np.bincount(key, ranges.is_async, rows) > 0.5 * count
    life = np.bincount(ranges.role, (ranges.end - ranges.begin).astype(np.float64), len(ranges.roles))
    found = []
    for one in np.flatnonzero(count).tolist():
        role, name = divmod(one, names)
        of_life = max(life[role], 1.0)
        found.append(RangeTime(
            ranges.roles[role], ranges.names[name], ranges.kinds[name], int(count[one]), float(whole[one] / count[one]),
            int(longest[one]), None if beside[one] else float(own[one] / of_life), float(whole[one] / of_life),
        ))  # fmt: skip
    return sorted(found, key=lambda one: -(one.share if one.share is not None else 0.0))
