"""Lanes of warps in a terminal: a letter for each range, a line for each warp of a block."""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_lowercase, ascii_uppercase

import numpy as np
from ncu_launch.errors import WrongUsage

from ncu_tools.kernels.warp_ranges.inside_kernel import InsideKernel
from ncu_tools.kernels.warp_ranges.lanes import NOTHING, WarpLane, blocks_to_draw, lanes_of
from ncu_tools.numbers.text_width import text_width
from ncu_tools.report.table import printable
from ncu_tools.report.warp_tables import in_clock

WAIT_LETTERS = "·:'`~-"
WORK_LETTERS = ascii_uppercase + ascii_lowercase
LINES = 24
"""Most warps of a block that are drawn; of larger blocks, the first warps of each role."""
LEAST_COLUMNS = 20


def lane_lines(found: InsideKernel, width: int, block: int | None = None) -> Iterator[str]:
    """Lanes of the slowest and the median block, or of one block; letters for work, dots for waits."""
    ranges = found.ranges
    try:
        blocks = blocks_to_draw(ranges, block)
    except ValueError:
        there = ", ".join(map(str, ranges.block[ranges.first_block][:8].tolist()))
        raise WrongUsage(f"There is no block {block}.", f"There are: {there}.", "Name one with --block") from None
    letters = _letters(found)
    used: set[int] = set()
    for title, row in blocks:
        took = in_clock(int(ranges.block_end[row] - ranges.block_begin[row]), ranges.clock)
        yield printable(f"{title}: {took}")
        every = lanes_of(ranges, row, LEAST_COLUMNS)
        label = max(text_width(_label(found, one)) for one in every)
        columns = max(width - label - 2, LEAST_COLUMNS)
        for one in _some(lanes_of(ranges, row, columns)):
            used |= set(np.unique(one.names).tolist())
            text = "".join(" " if name == NOTHING else letters[name] for name in one.names.tolist())
            yield f"{_label(found, one):<{label}} |{text}"
        yield ""
    named = [f"{letters[one]} {printable(ranges.names[one])}" for one in sorted(used - {NOTHING})]
    yield "  ".join(named)


def _letters(found: InsideKernel) -> list[str]:
    """A letter for each range name, from the name itself if still free."""
    free, waits = list(WORK_LETTERS), list(WAIT_LETTERS)
    letters = []
    for name, kind in zip(found.ranges.names, found.ranges.kinds, strict=True):
        if kind.is_waiting:
            letters.append(waits.pop(0) if len(waits) > 1 else waits[0])
            continue
        own = [one.upper() for one in name if one.isascii() and one.isalpha()]
        letter = next((one for one in own if one in free), free[0])
        if len(free) > 1:
            free.remove(letter)
        letters.append(letter)
    return letters


def _label(found: InsideKernel, one: WarpLane) -> str:
    return printable(f"{one.role} {found.ranges.lane_word} {one.warp}")


def _some(lanes: list[WarpLane]) -> list[WarpLane]:
    if len(lanes) <= LINES:
        return lanes
    per_role = max(LINES // max(len({one.role for one in lanes}), 1), 1)
    seen: dict[str, int] = {}
    kept = []
    for one in lanes:
        seen[one.role] = seen.get(one.role, 0) + 1
        kept += [one] if seen[one.role] <= per_role else []
    return kept[:LINES]
