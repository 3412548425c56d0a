"""Improvements inside a kernel: a function per lever, which decides if it applies and what it saves.

The words of a lever and its model are in `warp_levers.toml`. Levers below the least saving are left out, as are those
by replay if too little of the waiting is explained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from ncu_launch.files.toml_tables import table_beside

from ncu_tools.kernels.warp_ranges.inside_kernel import InsideKernel
from ncu_tools.kernels.warp_ranges.releases import Order
from ncu_tools.kernels.warp_ranges.wait_graph import ShorterRanges, replay, wait_graph
from ncu_tools.kernels.warp_ranges.what_if import NOTHING, LaunchSaving, blocks_before, kernel_times
from ncu_tools.numbers.number_format import counted, percent


@dataclass(frozen=True)
class WarpLever:
    """A lever that applies: its saving as shares of the launch's time, its evidence, and words for its sentences."""

    lever: str
    saving: LaunchSaving
    evidence: tuple[str, ...]
    words: dict[str, str]

    def said(self, key: str) -> str:
        """One text of the lever: "title", "remedy", "model", "unknown" or "check"."""
        return str(_table()[self.lever][key]).format(**self.words)


def warp_levers(found: InsideKernel) -> list[WarpLever]:
    """The levers of a launch, the largest likely saving first."""
    limits = _limits()
    levers = [
        one for make in LEVERS for one in make(found)
        if one.saving.high >= limits["least_saving"] and not (found.ranges.is_sample and one.lever in OF_ALL_BLOCKS)
        and (found.graph.explained_share >= limits["explained"] or one.lever in WITHOUT_REPLAY)
    ]  # fmt: skip
    return sorted(levers, key=lambda one: -one.saving.likely)


def _deeper_pipeline(found: InsideKernel) -> Iterator[WarpLever]:
    """More stages, if the producer waits for a free stage while the consumer waits for copies."""
    ranges = found.ranges
    for number, one in enumerate(found.releases):
        if one.order is not Order.IN_TURN or not one.depth:
            continue
        role, by = ranges.roles[one.role], ranges.roles[one.by_role]
        blocked, starved = (
            sum(wait.share for wait in found.waits if wait.depth is not None and (wait.role, wait.waits_for) == pair)
            for pair in ((role, by), (by, role))
        )
        if min(blocked, starved) < _limits()["waits"]:
            continue
        more, twice = (_with_depth(found, number, depth) for depth in (one.depth + 1, 2 * one.depth))
        yield WarpLever(
            "deeper-pipeline", LaunchSaving(more, 0.0, max(more, twice)),
            (
                f"{counted(one.depth, 'stage', 'stages')}: the wait {ranges.names[one.wait]} ends with the "
                f"{ranges.names[one.by]} of {counted(one.depth, 'round', 'rounds')} before",
                f"{role} waits {percent(blocked)} of its life for a free one, {by} {percent(starved)} for copies",
                f"with {one.depth + 1}: {percent(more)} less; with {2 * one.depth}: {percent(twice)} less",
            ),
            {"role": role, "by": by},
        )  # fmt: skip


def _with_depth(found: InsideKernel, number: int, depth: int) -> float:
    graph = wait_graph(found.ranges, found.instances, found.releases, {number: depth})
    before = kernel_times(found.graph, replay(found.graph, [NOTHING]))[0]
    return float(1 - kernel_times(graph, replay(graph, [NOTHING]))[0] / before)


def _split_roles(found: InsideKernel) -> Iterator[WarpLever]:
    """Divide the work of a role that works much more than others, which wait for it."""
    limits, busiest = _limits(), found.roles[0]
    work = {one.role: one.working * one.life for one in found.roles}
    even = sum(work[one.role] * one.warps for one in found.roles) / sum(one.warps for one in found.roles)
    waiting = sum(one.share for one in found.waits if one.waits_for == busiest.role and one.role != busiest.role)
    if busiest.working < limits["busy"] or work[busiest.role] < limits["uneven"] * even or waiting < limits["waits"]:
        return
    ranges = found.ranges
    role = ranges.roles.index(busiest.role)
    names = frozenset(np.unique(ranges.name[(ranges.role[ranges.lane] == role) & ~ranges.waits]).tolist())
    left = even / work[busiest.role]
    times = kernel_times(found.graph, replay(
        found.graph, [NOTHING, ShorterRanges(names, (1 + left) / 2), ShorterRanges(names, left)]
    ))  # fmt: skip
    likely, most = (float(1 - time / times[0]) for time in times[1:])
    others = ", ".join(f"{one.role} {percent(one.working)}" for one in found.roles[1:4])
    yield WarpLever(
        "split-roles", LaunchSaving(likely, 0.0, most),
        (f"{busiest.role} works {percent(busiest.working)} of its life; {others}",
         f"others wait {percent(waiting)} of their lives for it"),
        {"role": busiest.role},
    )  # fmt: skip


def _tile_tail(found: InsideKernel) -> Iterator[WarpLever]:
    """A last wave in which SMs have no block, since blocks or tiles are unevenly spread over SMs."""
    sm = next((one for one in found.units if one.level == "SM"), None)
    if sm is None or sm.idle_end is None or sm.idle_end < _limits()["tail"]:
        return
    tiles = found.tiles
    uneven_tiles = tiles is not None and tiles.sm_most is not None and tiles.sm_most != tiles.sm_least
    if sm.blocks_least == sm.blocks_most and not uneven_tiles:
        return
    counts = f"{sm.blocks_least} to {sm.blocks_most} blocks on an SM"
    if tiles is not None and uneven_tiles:
        counts += f", {tiles.sm_least} to {tiles.sm_most} tiles"
    yield WarpLever(
        "tile-tail", LaunchSaving(sm.idle_end / 2, 0.0, sm.idle_end),
        (f"{sm.units} SMs have no block for the last {percent(sm.idle_end)} of the launch, in the mean", counts), {},
    )  # fmt: skip


def _barrier_straggler(found: InsideKernel) -> Iterator[WarpLever]:
    """A barrier at which the same role arrives last in most rounds."""
    ranges = found.ranges
    for name in {one.wait for one in found.releases if one.order is Order.ARRIVAL}:
        rows = np.flatnonzero(ranges.name == name)
        position = _rounds(ranges.lane[rows])
        key = ranges.block_row[ranges.lane[rows]] * (int(position.max()) + 1) + position
        _, round_of = np.unique(key, return_inverse=True)
        round_of = round_of.reshape(-1)
        roles = ranges.role[ranges.lane[rows]]
        arrived = np.full((len(ranges.roles), int(round_of.max()) + 1), np.iinfo(np.int64).min)
        np.maximum.at(arrived, (roles, round_of), ranges.start[rows])
        if len(ranges.roles) < 2:
            continue
        ordered = np.sort(arrived, axis=0)
        late = np.where(ordered[-2] > np.iinfo(np.int64).min, ordered[-1] - ordered[-2], 0)
        last = np.bincount(arrived.argmax(axis=0), minlength=len(ranges.roles)) / arrived.shape[1]
        by = int(last.argmax())
        if last[by] < _limits()["straggler"] or not late.any():
            continue
        block = np.zeros(arrived.shape[1], np.int64)
        block[round_of] = ranges.block_row[ranges.lane[rows]]
        most = _along_chains(found, np.bincount(block, late, len(ranges.first_block))) / max(ranges.duration, 1)
        times = kernel_times(found.graph, replay(found.graph, [NOTHING, ShorterRanges(frozenset({int(name)}), 0.0)]))
        most = min(most, float(1 - times[1] / times[0]))  # no more than a replay without waits at this barrier saves
        waited = sum(one.share for one in found.waits if one.range == ranges.names[name])
        yield WarpLever(
            "barrier-straggler", LaunchSaving(most / 2, 0.0, most),
            (f"{ranges.roles[by]} arrives last in {percent(float(last[by]))} of its rounds",
             f"roles wait {percent(waited)} of their lives in it"),
            {"range": ranges.names[name], "by": ranges.roles[by]},
        )  # fmt: skip


def _rounds(lane: Any) -> Any:
    """The index of each barrier wait on its lane; rows are sorted by lane and time."""
    first = np.flatnonzero(np.diff(lane, prepend=-1))
    return np.arange(len(lane)) - np.repeat(first, np.diff(np.append(first, len(lane))))


def _along_chains(found: InsideKernel, per_block: Any) -> float:
    """The largest sum of `per_block` over blocks that follow one another on an SM."""
    ranges = found.ranges
    before, total = blocks_before(ranges), per_block.astype(np.float64)
    for one in np.argsort(ranges.block_begin, kind="stable").tolist():
        if before[one] >= 0:
            total[one] += total[before[one]]
    return float(total.max())


def _late_blocks(found: InsideKernel) -> Iterator[WarpLever]:
    """Blocks of the first wave that start later than others."""
    ranges = found.ranges
    if not ranges.is_aligned:
        return
    first = np.flatnonzero(blocks_before(ranges) < 0)
    begins = ranges.block_begin[first]
    if not len(first) or np.ptp(begins) < _limits()["late"] * ranges.duration:
        return
    saved = []
    for until in (float(np.median(begins)), float(begins.min())):
        gained = np.zeros(len(ranges.first_block))
        gained[first] = np.maximum(begins - until, 0)
        before = blocks_before(ranges)
        for one in np.argsort(ranges.block_begin, kind="stable").tolist():
            gained[one] = gained[before[one]] if before[one] >= 0 else gained[one]
        saved.append(float(1 - (ranges.block_end - gained).max() / ranges.duration))
    yield WarpLever(
        "late-blocks", LaunchSaving(saved[0], 0.0, saved[1]),
        (f"{len(first)} first blocks start within {percent(float(np.ptp(begins)) / ranges.duration)} of the launch",
         f"the last one is on SM {int(ranges.block_sm[first[begins.argmax()]])}"
         if int(ranges.block_sm[first[begins.argmax()]]) >= 0 else "SMs are not known"),
        {},
    )  # fmt: skip


LEVERS: tuple[Callable[[InsideKernel], Iterator[WarpLever]], ...] = (
    _deeper_pipeline, _split_roles, _tile_tail, _barrier_straggler, _late_blocks,
)  # fmt: skip
WITHOUT_REPLAY = frozenset({"tile-tail", "barrier-straggler", "late-blocks"})
"""Levers that use recorded times only, not a replay."""
OF_ALL_BLOCKS = frozenset({"tile-tail", "late-blocks"})
"""Levers that need most blocks of the grid in the trace."""


@cache
def _table() -> dict[str, Any]:
    return table_beside(__file__, "warp_levers")


def _limits() -> dict[str, float]:
    found: dict[str, float] = _table()["limits"]
    return found
