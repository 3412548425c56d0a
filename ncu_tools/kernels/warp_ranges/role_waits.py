"""Which role waits for which: the waiting time of each role, by the role and the range that end the waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ncu_tools.kernels.warp_ranges.releases import Order, Release
from ncu_tools.kernels.warp_ranges.wait_graph import WaitGraph


@dataclass(frozen=True)
class RoleWait:
    """Waits of a role in one range, ended by the range `by` on warps of role `waits_for`; None if unknown.

    `waited` is the time beyond the least that a wait takes, over all warps, and `share` its share of their lives. `lag`
    is the median time from the release to the end of the wait: the latency of a copy, or of an arrival. `depth` is the
    number of rounds between the release and the wait.
    """

    role: str
    range: str
    waits_for: str | None
    by: str | None
    waits: int
    waited: float
    share: float
    lag: float | None
    depth: int | None
    order: Order | None


def role_waits(graph: WaitGraph, releases: Sequence[Release]) -> list[RoleWait]:
    """The waits of every role by range and releasing role, the longest first."""
    ranges = graph.ranges
    last_lane = np.full(len(graph), -1)
    if len(graph.edge_node):  # of several warps, the last one releases the wait
        order = np.lexsort((graph.edge_time, graph.edge_node))
        last_lane[graph.edge_node[order]] = graph.edge_lane[order]
    if len(graph):  # the last warp to arrive at a barrier waits for none
        arrival = np.array([one.order is Order.ARRIVAL for one in releases] + [False], np.bool_)[graph.release]
        begun = np.full(len(graph), np.iinfo(np.int64).min)
        np.maximum.at(begun, graph.edge_node, graph.edge_time)
        last_lane[arrival & (graph.begin > begun)] = -1
    waited = (graph.end - graph.begin - graph.least).astype(np.float64)
    life = np.bincount(ranges.role, (ranges.end - ranges.begin).astype(np.float64), len(ranges.roles))
    shown = np.bincount(graph.lane, minlength=len(ranges.block)) > 0
    scale = 1.0 if len(graph.blocks) == len(ranges.first_block) else len(ranges.first_block) / len(graph.blocks)
    names = len(ranges.names)
    by_role = np.where(last_lane >= 0, ranges.role[last_lane], -1)
    key = ((ranges.role[graph.lane].astype(np.int64) * names + ranges.name[graph.row]) * (len(ranges.roles) + 1)
           + by_role + 1)  # fmt: skip
    found = []
    for one in np.unique(key).tolist() if shown.any() else []:
        mine = key == one
        pair, by = divmod(one, len(ranges.roles) + 1)
        role, name = divmod(pair, names)
        rule = next((each for each in releases if (each.role, each.wait) == (role, name)), None) if by else None
        total = float(waited[mine].sum()) * scale
        found.append(RoleWait(
            ranges.roles[role], ranges.names[name], ranges.roles[by - 1] if by else None,
            ranges.names[rule.by] if rule is not None and rule.by >= 0 else None, round(int(mine.sum()) * scale), total,
            float(total / max(life[role], 1.0)), None if rule is None else rule.lag,
            rule.depth if rule is not None and rule.order is Order.IN_TURN else None,
            None if rule is None else rule.order,
        ))  # fmt: skip
    return sorted((one for one in found if one.waited > 0), key=lambda one: -one.waited)
