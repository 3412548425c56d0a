"""The timeline inside a kernel as tables: roles, waits between them, ranges, blocks, longest chain, what-ifs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from ncu_parsers.warp_ranges.warp_trace import Clock

from ncu_tools.kernels.warp_ranges.inside_kernel import InsideKernel
from ncu_tools.kernels.warp_ranges.releases import Order
from ncu_tools.kernels.warp_ranges.role_waits import RoleWait
from ncu_tools.kernels.warp_ranges.what_if import LaunchSaving
from ncu_tools.numbers.number_format import counted, digits, duration, percent
from ncu_tools.report.columns.column import Column
from ncu_tools.report.columns.registry import columns

Row = dict[str, Any]
RANGES = columns("warps.role warps.range warps.kind warps.count warps.mean warps.longest warps.share warps.whole_share")
IN_CLOCK = ("life", "mean", "longest", "waited", "lag", "start_skew", "end_skew", "time")
"""Columns with times in the trace's clock, which text shows with their unit."""
SHOWN_RANGES, SHOWN_CHAIN = 12, 8


class WarpTable(NamedTuple):
    """One table: its title, columns and rows."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: list[Row]


def sections(found: InsideKernel) -> list[WarpTable]:
    """The tables that have rows, the most important first."""
    every = [
        WarpTable("roles", "roles", columns(
            "warps.role warps.warps_of_block~2 warps.working warps.waiting warps.unmarked~1 warps.life~3"
        ), [_row(one) for one in found.roles]),
        WarpTable("waits", "who waits for whom", columns(
            "warps.role warps.range warps.waits_for warps.by~2 warps.share warps.lag~1 warps.depth~1 warps.waited~3"
        ), [_row(one) for one in found.waits]),
        WarpTable("ranges", "ranges", RANGES, [_row(one) for one in found.times]),
        WarpTable("units", "blocks by unit", columns(
            "warps.level warps.units warps.blocks_least~2 warps.blocks_most~2 warps.start_skew warps.end_skew "
            "warps.idle_end warps.work_most~1"
        ), [_row(one) for one in found.units]),
        WarpTable("chain", "the longest chain", columns(
            "warps.role warps.range warps.chain_share warps.time warps.count~1"
        ), [{**_row(one), "chain_share": one.share} for one in found.chain]),
        WarpTable("what_ifs", "if a range were shorter", columns(
            "warps.role~1 warps.range warps.factor warps.saves_share warps.saves_low warps.saves_high"
        ), list(what_if_rows(found))),
    ]  # fmt: skip
    return [one for one in every if one.rows]


def what_if_rows(found: InsideKernel) -> Iterator[Row]:
    """The user's what-ifs, then the savings of halving each range of the longest chain."""
    for asked in found.asked:
        name, _, factor = asked.text.rpartition("=")
        yield {"role": None, "range": name, "factor": factor, **_saving(asked.saving)}
    for one in found.shortened:
        yield {"role": one.role, "range": one.range, "factor": f"{one.factor}x", **_saving(one.saving)}


def _saving(saving: LaunchSaving) -> Row:
    return {"saves_share": saving.likely, "saves_low": saving.low, "saves_high": saving.high}


def _row(one: Any) -> Row:
    """The fields of a dataclass as JSON values."""
    return {name: _plain(value) for name, value in asdict(one).items()}


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value.item() if isinstance(value, np.generic) else value


def readable(section: WarpTable, clock: Clock, most: int | None = None) -> WarpTable:
    """The table for people: times as texts with their unit."""
    titled = tuple(
        one._replace(kind="text", unit="") if one.name in IN_CLOCK else one for one in section.columns
    )  # fmt: skip
    rows = [
        {
            name: in_clock(value, clock) if name in IN_CLOCK and value is not None else value
            for name, value in row.items()
        }
        for row in section.rows[:most]
    ]
    for row in rows:
        if section.key == "chain" and row["range"] is None:
            row["range"] = "in no range"
        if section.key == "waits" and row["waits_for"] is None:
            row["waits_for"] = "not known"
        if section.key == "waits" and row["by"] is None and row["order"] == Order.ARRIVAL.value:
            row["by"] = "arrives last"
    return section._replace(columns=titled, rows=rows)


def in_clock(value: float, clock: Clock) -> str:
    """A time as text, in the clock of the trace."""
    return duration(value) if clock is Clock.NANOSECONDS else f"{value:,.0f} cycles"


def facts(found: InsideKernel) -> list[str]:
    """Blocks, warps, SMs and time of the launch, for the line above the tables."""
    ranges = found.ranges
    blocks = len(ranges.first_block)
    whole = ranges.blocks_of_launch
    lane = ranges.lane_word
    sms = next((one.units for one in found.units if one.level == "SM"), None)
    return [
        f"launch {ranges.number}",
        f"{blocks:,} of {whole:,} blocks" if whole > blocks else counted(blocks, "block", "blocks"),
        f"{digits(len(ranges.block) / blocks)} {lane}s each", *([f"{sms} SMs"] if sms else []),
        *([in_clock(ranges.duration, ranges.clock)] if ranges.is_aligned else []), found.trace.tool,
    ]  # fmt: skip


def first_sentence(found: InsideKernel) -> str:
    """The sentence on the busiest role, the longest wait and its cause, and the depth of the pipeline."""
    busiest, clock = found.roles[0], found.ranges.clock
    own = [one for one in found.waits if one.role == busiest.role]
    said = f"{busiest.role} works {percent(busiest.working)} of its life"
    if not found.graph.has_waits:
        return f"{said}, as far as names say: none is that of a wait"
    if own:
        said += f" and waits {_wait_in_words(max(own, key=lambda one: one.share), clock)}"
    others = [one for one in found.waits if one.role != busiest.role]
    if others:
        longest = max(others, key=lambda one: one.share)
        said += f"; {longest.role} waits {_wait_in_words(longest, clock)}"
    rings = [one.depth for one in found.waits if one.depth]
    return said + (f"; a ring of {counted(max(rings), 'stage', 'stages')}" if rings else "")


def _wait_in_words(one: RoleWait, clock: Clock) -> str:
    whom = "nobody known" if one.waits_for is None else one.waits_for if one.waits_for != one.role else "its own kind"
    lag = f", {in_clock(one.lag, clock)} behind {one.by}" if one.lag and one.by else ""
    return f"{percent(one.share)} in {one.range} for {whom}{lag}"


def phase_sentences(found: InsideKernel) -> list[str]:
    """Sentences on fill, drain, overlap and tiles of blocks."""
    phases, clock, tiles = found.phases, found.ranges.clock, found.tiles
    said = []
    if phases.fill is not None:
        said.append(f"fill: a block begins computing {in_clock(phases.fill, clock)} after its start")
    if phases.drain is not None:
        said.append(f"drain: it ends {in_clock(phases.drain, clock)} after its last copy")
    if phases.overlap is not None and phases.copying is not None and phases.computing is not None:
        flight = ", until they have landed" if phases.in_flight else ", as they are issued"
        said.append(
            f"overlap: copies run {percent(phases.copying)} of a block's {in_clock(phases.block, clock)}{flight}, "
            f"computing {percent(phases.computing)}; {percent(phases.overlap)} of the shorter one is beside the other"
        )
    if phases.fill is None or phases.drain is None:
        missing = "computing" if phases.fill is None else "a copy"
        said.append(
            f"no range is {missing} by its name, so overlap is not known: --kind RANGE=copy or =compute says it"
        )
    if tiles is not None:
        each = f"{tiles.least} to {tiles.most}" if tiles.least < tiles.most else str(tiles.most)
        sms = "" if tiles.sm_most is None else f", {tiles.sm_least} to {tiles.sm_most} on an SM"
        said.append(f"tiles ({tiles.range}): {each} a block{sms}")
    return said
