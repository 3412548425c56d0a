"""Lanes of warps as SVG: a row for each warp of a block, coloured by its range, with a time axis.

The picture is standalone and executes nothing: names are escaped, and short pieces are merged into columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import numpy as np

from ncu_tools.kernels.warp_ranges.inside_kernel import InsideKernel
from ncu_tools.kernels.warp_ranges.lanes import NOTHING, WarpLane, lanes_of
from ncu_tools.kernels.warp_ranges.range_kinds import RangeKind
from ncu_tools.report.table import printable
from ncu_tools.report.warp_tables import in_clock

COLOURS = {
    RangeKind.BARRIER: "#8c8c8c", RangeKind.WAIT: "#dddddd", RangeKind.STORE: "#b97f00", RangeKind.COPY: "#0072b2",
    RangeKind.COMPUTE: "#008a66", RangeKind.OTHER: "#9a7fc0",
}  # fmt: skip
WIDTH, LABEL, ROW, GAP, AXIS = 1100, 190, 16, 3, 34
COLUMNS = 900
"""Columns of time: a pixel each."""
TICKS = 6
MOST_LANES = 64


def warp_lanes_svg(found: InsideKernel, block: int) -> bytes:
    """The picture of one block (a row)."""
    ranges = found.ranges
    lanes = lanes_of(ranges, block, COLUMNS)[:MOST_LANES]
    height = len(lanes) * (ROW + GAP) + AXIS + 22
    length = int(ranges.block_end[block] - ranges.block_begin[block])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]  # fmt: skip
    scale = (WIDTH - LABEL - 10) / COLUMNS
    for at, lane in enumerate(lanes):
        top = at * (ROW + GAP) + 4
        label = escape(printable(f"{lane.role} {ranges.lane_word} {lane.warp}"))
        parts.append(f'<text x="{LABEL - 6}" y="{top + ROW - 4}" text-anchor="end" fill="#1b1f24">{label}</text>')
        parts += _pieces(found, lane, top, scale)
    below = len(lanes) * (ROW + GAP) + 8
    for tick in range(TICKS + 1):
        x = LABEL + tick * scale * COLUMNS / TICKS
        time = escape(in_clock(length * tick / TICKS, ranges.clock))
        anchor = "end" if tick == TICKS else "middle"
        parts.append(f'<line x1="{x:.1f}" y1="2" x2="{x:.1f}" y2="{below}" stroke="#5a6470" stroke-width="0.3"/>')
        parts.append(f'<text x="{x:.1f}" y="{below + 12}" text-anchor="{anchor}" fill="#5a6470">{time}</text>')
    parts += _legend(below + 24)
    return "".join([*parts, "</svg>"]).encode()


def _pieces(found: InsideKernel, lane: WarpLane, top: int, scale: float) -> Iterator[str]:
    """A rectangle for each run of columns with one name; names of one kind get different shades."""
    changes = np.flatnonzero(np.diff(lane.names)) + 1
    for first, behind in zip([0, *changes.tolist()], [*changes.tolist(), len(lane.names)], strict=True):
        name = int(lane.names[first])
        if name == NOTHING:
            continue
        kind = found.ranges.kinds[name]
        alike = [one for one in range(name) if found.ranges.kinds[one] is kind]
        shade = max(1 - 0.22 * len(alike), 0.4)
        left, width = LABEL + first * scale, (behind - first) * scale
        yield (
            f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{ROW}" fill="{COLOURS[kind]}" '
            f'fill-opacity="{shade:.2f}"/>'
        )


def _legend(top: int) -> Iterator[str]:
    for at, (kind, colour) in enumerate(COLOURS.items()):
        left = LABEL + at * 110
        yield f'<rect x="{left}" y="{top}" width="10" height="10" fill="{colour}"/>'
        yield f'<text x="{left + 14}" y="{top + 9}" fill="#1b1f24">{kind.value}</text>'
