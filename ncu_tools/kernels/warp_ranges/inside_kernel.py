"""All analyses of one launch from a trace of its warps' ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from ncu_launch.errors import NcuBenchError
from ncu_launch.notes import Note, NoteKind
from ncu_parsers.warp_ranges.warp_trace import MISSING, Clock, WarpTrace

from ncu_tools.kernels.warp_ranges.block_phases import (
    BlockPhases,
    Tiles,
    UnitSpread,
    block_phases,
    tiles_of,
    unit_spread,
)
from ncu_tools.kernels.warp_ranges.launch_ranges import NO_ROLES, LaunchRanges, launch_ranges
from ncu_tools.kernels.warp_ranges.longest_chain import ChainPart, longest_chain
from ncu_tools.kernels.warp_ranges.range_kinds import NAMED, RangeKind
from ncu_tools.kernels.warp_ranges.range_times import RangeTime, RoleTime, range_times, role_times
from ncu_tools.kernels.warp_ranges.releases import Instances, Release, instances_of, releases_of
from ncu_tools.kernels.warp_ranges.role_waits import RoleWait, role_waits
from ncu_tools.kernels.warp_ranges.wait_graph import ShorterRanges, WaitGraph, wait_graph
from ncu_tools.kernels.warp_ranges.what_if import EXPLAINED, AskedShorter, LaunchSaving, savings, shorter_in

HALF = 0.5
RANGES_ASKED = 6
"""Number of ranges whose halving is replayed: those of work with the most time on the longest chain."""


@dataclass(frozen=True)
class Shortened:
    """The saving if a range of one role is shortened to `factor` of its own time."""

    role: str
    range: str
    factor: float
    saving: LaunchSaving


@dataclass(frozen=True)
class InsideKernel:
    """The results of all analyses of one launch, with their inputs for levers and pictures."""

    trace: WarpTrace
    ranges: LaunchRanges
    instances: Instances
    releases: Sequence[Release]
    graph: WaitGraph
    roles: Sequence[RoleTime]
    times: Sequence[RangeTime]
    waits: Sequence[RoleWait]
    phases: BlockPhases
    tiles: Tiles | None
    units: Sequence[UnitSpread]
    chain: Sequence[ChainPart]
    shortened: Sequence[Shortened]
    asked: Sequence[AskedShorter]
    notes: Sequence[str]


def inside_kernel(
    trace: WarpTrace, number: int, roles: Mapping[int, str] = NO_ROLES, kinds: Mapping[str, RangeKind] = NAMED,
    asked: Sequence[str] = (),
) -> InsideKernel:  # fmt: skip
    """Analyse one launch. Raises `WrongUsage` for a what-if of an unknown range, `NcuBenchError` without ranges."""
    ranges = launch_ranges(trace, number, roles, kinds)
    if not len(ranges):
        raise NcuBenchError(
            f"Launch {number} has no range with a begin and an end.",
            f"It has {ranges.markers:,} markers, and lives of {len(ranges.block):,} warps.",
            "Mark ranges, not points: iket.range_push and range_pop, pl.scope, or EVENT_START and EVENT_END.",
        )
    instances = instances_of(ranges)
    releases = releases_of(ranges, instances)
    graph = wait_graph(ranges, instances, releases)
    chain = longest_chain(graph)
    own = [shorter_in(one, ranges) for one in asked]
    work = {name for name, kind in zip(ranges.names, ranges.kinds, strict=True) if not kind.is_waiting}
    halved = [one for one in chain if one.range in work][:RANGES_ASKED]
    changes = [ShorterRanges(frozenset([ranges.names.index(str(one.range))]), HALF) for one in halved]
    saved = savings(graph, [*own, *changes])
    return InsideKernel(
        trace, ranges, instances, releases, graph, role_times(ranges), range_times(ranges), role_waits(graph, releases),
        block_phases(ranges, releases), tiles_of(ranges), unit_spread(ranges), chain,
        [
            Shortened(one.role, str(one.range), HALF, saving)
            for one, saving in zip(halved, saved[len(own) :], strict=True)
        ],
        [AskedShorter(text, saving) for text, saving in zip(asked, saved, strict=False)], _notes(trace, ranges, graph),
    )  # fmt: skip


def _notes(trace: WarpTrace, ranges: LaunchRanges, graph: WaitGraph) -> list[str]:
    found: list[str] = [Note(one, NoteKind.LOST) for one in trace.damage]
    share = graph.explained_share
    if ranges.blocks_left_out:
        found.append(Note(f"{ranges.blocks_left_out:,} blocks without a range are left out", NoteKind.METHOD))
    if ranges.is_sample:
        found.append(Note(
            "most blocks of the grid are not in the trace: the time of the launch, what-ifs, and starts and ends by SM "
            "are those of the blocks that are", NoteKind.ESTIMATE,
        ))  # fmt: skip
    if not graph.has_waits:
        found.append(Note(
            "no range is a wait by its name, so who waits for whom is not known: --kind RANGE=wait says it",
            NoteKind.NOT_KNOWN,
        ))  # fmt: skip
    elif share < EXPLAINED:
        found.append(Note(
            f"what ends {1 - share:.0%} of the waiting is not known: what-ifs are intervals; --kind or --roles may "
            "tell more", NoteKind.NOT_KNOWN,
        ))  # fmt: skip
    if graph.has_waits:
        found.append(Note(
            "who waits for whom is inferred: the range whose ends come closest before the ends of the waits, in turn",
            NoteKind.METHOD,
        ))  # fmt: skip
    if len(graph.blocks) < len(ranges.first_block):
        found.append(Note(
            f"{len(graph.blocks):,} of {len(ranges.first_block):,} blocks, spread evenly, were replayed for all",
            NoteKind.ESTIMATE,
        ))  # fmt: skip
    if not (np.asarray(ranges.sm) != MISSING).any():
        found.append(Note("the trace does not name SMs: which block follows which is inferred from their times alone",
                          NoteKind.NOT_KNOWN))  # fmt: skip
    if not trace.is_aligned:
        found.append(Note("what-ifs and the chain of waits are those of the longest block", NoteKind.METHOD))
    elif not (np.asarray(ranges.tpc) != MISSING).any():
        found.append(Note("the trace does not say which TPC and GPC an SM is in", NoteKind.NOT_KNOWN))
    if ranges.crossing:
        found.append(Note(
            f"ranges called {', '.join(ranges.crossing[:4])} cross others, so they count beside the lives of warps",
            NoteKind.METHOD,
        ))  # fmt: skip
    if not ranges.has_lives:
        word = ranges.lane_word
        found.append(Note(f"the trace has no start and end of {word}s: their first and last records are used",
                          NoteKind.METHOD))  # fmt: skip
    if trace.clock is Clock.NANOSECONDS and ranges.step >= 16:
        found.append(Note(f"times are in steps of {ranges.step} ns", NoteKind.METHOD))
    return [*found, *trace.notes]
