"""A trace from inside kernels: launches, the warps of each, and the ranges of each warp.

Ranges are columns, 24 bytes each, so that ten million fit into memory. Warps and names are rows of their own, which
ranges refer to by number. Missing numbers are `MISSING`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.signedinteger[Any]]
"""Rows and numbers of names, in 32 bits where there are many."""

MISSING = -(2**62)
"""An unknown time, block, warp, SM, TPC or GPC."""


class Clock(Enum):
    """The unit of times: ns of the GPU's global timer, or cycles of each SM's own clock."""

    NANOSECONDS = "ns"
    CYCLES = "cycle"


@dataclass(frozen=True)
class TracedLaunch:
    """One launch of an instrumented kernel; grid and block are () if the trace does not say them."""

    kernel: str
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    graph: str = ""


@dataclass(frozen=True)
class Warps:
    """The warps of all launches as columns: launch, linear block, warp in it, where it ran, start and end of its life.

    Where a tool records groups of warps, `warp` is the number of the group. `role` is a number in
    `WarpTrace.roles`; -1 where a warp's role is not named.
    """

    launch: Codes
    block: Integers
    warp: Integers
    sm: Integers
    tpc: Integers
    gpc: Integers
    start: Integers
    end: Integers
    role: Codes

    def __len__(self) -> int:
        return len(self.launch)

    @classmethod
    def of(cls, launch: npt.ArrayLike, block: npt.ArrayLike, warp: npt.ArrayLike, **known: npt.ArrayLike) -> Warps:
        """Warps with these columns; columns that are not among `known` are missing."""
        rows = len(np.asarray(launch))
        columns = {name: np.asarray(known.get(name, np.full(rows, MISSING)), np.int64)
                   for name in ("sm", "tpc", "gpc", "start", "end")}  # fmt: skip
        role = np.asarray(known.get("role", np.full(rows, -1)), np.int32)
        return cls(np.asarray(launch, np.int32), np.asarray(block, np.int64), np.asarray(warp, np.int64), **columns,
                   role=role)  # fmt: skip


@dataclass(frozen=True)
class WarpRanges:
    """Ranges of warps as columns: row of the warp, number of the name, start and end in the trace's clock.

    A marker has a start and no end (`MISSING`).
    """

    warp: Codes
    name: Codes
    start: Integers
    end: Integers

    def __len__(self) -> int:
        return len(self.start)

    def at(self, rows: npt.NDArray[np.bool_] | Integers) -> WarpRanges:
        """Some of the ranges."""
        return WarpRanges(self.warp[rows], self.name[rows], self.start[rows], self.end[rows])


NO_RANGES = WarpRanges(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True)
class RangeSum:
    """A range in a format without times: its path in the kernel, outermost first, and its cycles over all warps."""

    launch: int
    path: tuple[str, ...]
    cycles: float


@dataclass(frozen=True)
class WarpTrace:
    """A trace. `lane` is the word for what `Warps.warp` numbers, warp or group.

    `is_aligned` is false if the starts of blocks are not on one clock, so that only times within a block compare.
    `files` are source files that the trace names. `damage` says what was lost, a sentence each.
    """

    tool: str
    launches: Sequence[TracedLaunch]
    warps: Warps
    ranges: WarpRanges
    names: Sequence[str]
    roles: Sequence[str] = ()
    sums: Sequence[RangeSum] = ()
    clock: Clock = Clock.NANOSECONDS
    lane: str = "warp"
    is_aligned: bool = True
    files: Sequence[str] = ()
    damage: Sequence[str] = ()
    notes: Sequence[str] = field(default=())

    def with_roles(self, named: Mapping[int, str]) -> WarpTrace:
        """The trace with a role for each warp number that is `named`."""
        roles = [*self.roles, *dict.fromkeys(named.values())]
        role = self.warps.role.copy()
        for warp, name in named.items():
            role[self.warps.warp == warp] = roles.index(name)
        return replace(self, warps=replace(self.warps, role=role), roles=roles)


def linear_blocks(places: Integers, grid: tuple[int, ...] = ()) -> Integers:
    """Linear numbers of blocks from their x, y, z (int64[n, 3]): x runs fastest, as in CUDA.

    Where the grid is not known, it is taken to end at the farthest block.
    """
    if not len(places):
        return np.zeros(0, np.int64)
    width, height = grid[:2] if len(grid) == 3 else (places[:, :2].max(axis=0) + 1).tolist()
    found: Integers = (places[:, 2] * height + places[:, 1]) * width + places[:, 0]
    return found
