"""The critical path through a launch: from its end back to its begin, at each wait on to the warp that released it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from ncu_tools.kernels.warp_ranges.launch_ranges import LaunchRanges
from ncu_tools.kernels.warp_ranges.releases import has_waited
from ncu_tools.kernels.warp_ranges.wait_graph import WaitGraph
from ncu_tools.kernels.warp_ranges.what_if import blocks_before

FLIGHT = " (lag)"
"""Suffix of a wait's name for the time from its release to its end."""


@dataclass(frozen=True)
class ChainPart:
    """A range on the chain: its time there, share of the chain, number of visits. `range` is None outside ranges."""

    role: str
    range: str | None
    time: int
    share: float
    count: int


def longest_chain(graph: WaitGraph) -> list[ChainPart]:
    """The parts of the longest chain, the largest first; of the longest block only, if blocks share no clock or are
    sampled."""
    ranges = graph.ranges
    times: dict[tuple[int, str | None], int] = defaultdict(int)
    counts: dict[tuple[int, str | None], int] = defaultdict(int)
    if not ranges.is_aligned or len(graph.blocks) < len(ranges.first_block):
        length = (ranges.block_end - ranges.block_begin)[graph.blocks]
        block, before = int(graph.blocks[length.argmax()]), np.full(len(ranges.first_block), -1)
    else:
        block, before = int(ranges.block_end.argmax()), blocks_before(ranges)
    while block >= 0:
        _walk(graph, block, times, counts)
        gap = int(ranges.block_begin[block] - ranges.block_end[before[block]]) if before[block] >= 0 else 0
        if gap:
            times[-1, "between blocks"] += gap
            counts[-1, "between blocks"] += 1
        block = int(before[block])
    whole = max(sum(times.values()), 1)
    found = [
        ChainPart(ranges.roles[role] if role >= 0 else "", name, time, time / whole, counts[role, name])
        for (role, name), time in times.items() if time > 0
    ]  # fmt: skip
    return sorted(found, key=lambda one: -one.time)


def _walk(
    graph: WaitGraph, block: int, times: dict[tuple[int, str | None], int], counts: dict[tuple[int, str | None], int]
) -> None:
    """Add the chain through one block, from the end of its last warp back to its begin."""
    ranges = graph.ranges
    behind = np.append(ranges.first_block, len(ranges.block))[block + 1]
    lanes = np.arange(ranges.first_block[block], behind)
    lane = int(lanes[ranges.end[lanes].argmax()])
    time = int(ranges.end[lane])
    order = np.argsort(graph.edge_node, kind="stable")
    first = np.searchsorted(graph.edge_node[order], np.arange(len(graph) + 1))
    waited = has_waited(ranges, graph.end - graph.begin)
    for _ in range(4 * len(graph) + 4):
        node = int(graph.last_node(np.array([lane]), np.array([time]))[0]) if len(graph) else -1
        while node >= 0:
            edges = order[first[node] : first[node + 1]]
            edges = edges[graph.levels[1][edges]]
            if waited[node] and len(edges):
                break
            node = int(graph.before[node])  # no waiting, or by an unknown release: its time stays on the chain
        if node < 0:
            _add(ranges, lane, int(ranges.begin[lane]), time, times, counts)
            lead = int(ranges.begin[lane] - ranges.block_begin[block])
            times[int(ranges.role[lane]), None] += lead
            return
        end = int(graph.end[node])
        _add(ranges, lane, end, time, times, counts)
        edge = int(edges[graph.edge_time[edges].argmax()])
        released = min(int(graph.edge_time[edge]), end)
        key = int(ranges.role[lane]), f"{ranges.names[ranges.name[graph.row[node]]]}{FLIGHT}"
        times[key] += end - released
        counts[key] += 1
        lane, time = int(graph.edge_lane[edge]), released


def _add(
    ranges: LaunchRanges, lane: int, low: int, high: int, times: dict[tuple[int, str | None], int],
    counts: dict[tuple[int, str | None], int],
) -> None:  # fmt: skip
    """Add the own time of each range of a lane between two times, and the time outside all ranges."""
    if high <= low:
        return
    first, behind = np.searchsorted(ranges.lane, [lane, lane + 1])
    begin, until = first + np.searchsorted(ranges.start[first:behind], [low, high])
    around = []  # ranges still open at `low` enclose the last nested range that began before it
    at = int(begin) - 1
    while at >= first and (ranges.is_async[at] or not ranges.length[at]):
        at -= 1
    while at >= first:
        around.append(at)
        at = int(ranges.parent[at])
    rows = np.concatenate([np.array(around[::-1], np.int64), np.arange(begin, until)])
    rows = rows[(ranges.stop[rows] > low) & ~ranges.is_async[rows] & (ranges.length[rows] > 0)]
    inside = np.minimum(ranges.stop[rows], high) - np.maximum(ranges.start[rows], low)
    place = {int(row): at for at, row in enumerate(rows)}
    own = inside.copy()
    top = 0
    for at, row in enumerate(rows.tolist()):
        parent = place.get(int(ranges.parent[row]), -1)
        if parent >= 0:
            own[parent] -= inside[at]
        else:
            top += int(inside[at])
    role = int(ranges.role[lane])
    for row, time in zip(rows.tolist(), own.tolist(), strict=True):
        if time > 0:
            key = role, ranges.names[ranges.name[row]]
            times[key] += time
            counts[key] += 1
    times[role, None] += high - low - top
