"""Simulated warp-specialised kernels with known waits, as traces; `warp_files` writes them in every format.

A producer warp fills a ring of `depth` stages with copies, consumer warps wait for each and compute on it. What each
takes is drawn beforehand, so that the same kernel can be simulated again with another depth or a shorter range: that is
the truth that what-ifs are held against.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from ncu_parsers.warp_ranges.warp_trace import TracedLaunch, WarpRanges, Warps, WarpTrace

Numbers = npt.NDArray[np.float64]
EPOCH = 1_785_326_265_766_439_520
"""When traces begin: ns since 1970, as run-iket writes them. A double holds them to a quarter of a microsecond."""
LEAST_WAIT = 20
"""What a wait takes whose release is there already."""
ACQUIRE, ISSUE, WAIT, MMA, TILE, SYNC = "tma_acquire", "tma_issue", "mma_wait", "mma_issue", "mma_tile", "epi_barrier"


@dataclass(frozen=True)
class Kernel:
    """What a kernel does: `copies` and `computes` are times by block and step (and consumer), `latency` of a copy.

    A tile has `steps_of_tile` steps. Blocks run on `sms` SMs, one at a time on each, `gap` apart; `barrier` adds one of
    all warps at the end of a block, after an epilogue of the consumers.
    """

    copies: Numbers
    computes: Numbers
    depth: int = 2
    latency: int = 300
    steps_of_tile: int = 4
    sms: int = 2
    gap: int = 100
    epilogue: int = 150
    barrier: bool = True
    late: tuple[int, ...] = ()

    @property
    def blocks(self) -> int:
        return len(self.copies)

    @property
    def steps(self) -> int:
        return int(self.copies.shape[1])

    @property
    def consumers(self) -> int:
        return int(self.computes.shape[2])

    def scaled(self, name: str, factor: float) -> Kernel:
        """The kernel with a shorter range."""
        of = {ISSUE: "copies", MMA: "computes"}[name]
        return replace(self, **{of: getattr(self, of) * factor})


@dataclass
class Simulated:
    """Records of warps: (block, warp, name, start, end); lives; and what each consumer and the producer waited.

    Times are from 0 on; `origin` is added in the trace.
    """

    kernel: Kernel
    origin: int = EPOCH
    records: list[tuple[int, int, str, float, float]] = field(default_factory=list)
    lives: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)
    sm: dict[int, int] = field(default_factory=dict)

    @property
    def duration(self) -> float:
        return max(end for _, end in self.lives.values()) - min(begin for begin, _ in self.lives.values())

    def total(self, name: str) -> float:
        return sum(end - start for _, _, named, start, end in self.records if named == name)

    def trace(self) -> WarpTrace:
        """The simulation as readers give it."""
        names = list(dict.fromkeys(one[2] for one in self.records))
        keys = sorted(self.lives)
        row = {key: at for at, key in enumerate(keys)}
        warps = Warps.of(
            np.zeros(len(keys)), [block for block, _ in keys], [warp for _, warp in keys],
            sm=[self.sm[block] for block, _ in keys], tpc=[self.sm[block] // 2 for block, _ in keys],
            gpc=[self.sm[block] // 4 for block, _ in keys], start=[self.origin + round(self.lives[key][0]) for key in keys],
            end=[self.origin + round(self.lives[key][1]) for key in keys],
        )  # fmt: skip
        ranges = WarpRanges(
            np.array([row[one[0], one[1]] for one in self.records], np.int32),
            np.array([names.index(one[2]) for one in self.records], np.int32),
            np.array([self.origin + round(one[3]) for one in self.records], np.int64),
            np.array([self.origin + round(one[4]) for one in self.records], np.int64),
        )  # fmt: skip
        return WarpTrace("simulation", [TracedLaunch("gemm", (self.kernel.blocks, 1, 1))], warps, ranges, names)


def simulated(kernel: Kernel, origin: int = EPOCH) -> Simulated:
    """Run the kernel: blocks in order, each on the SM that is free first."""
    found = Simulated(kernel, origin)
    free = [(float(kernel.late[sm] if sm < len(kernel.late) else 0), sm) for sm in range(kernel.sms)]
    for block in range(kernel.blocks):
        at = min(range(len(free)), key=lambda one: free[one])
        begin, sm = free[at]
        found.sm[block] = sm
        end = _run_block(found, block, begin)
        free[at] = end + kernel.gap, sm
    return found


def _run_block(found: Simulated, block: int, begin: float) -> float:
    kernel = found.kernel
    consumed = np.zeros((kernel.steps, kernel.consumers))
    produced = np.zeros(kernel.steps)
    records: list[tuple[int, str, float, float]] = []
    time = begin
    clocks = [begin] * kernel.consumers
    tile = [begin] * kernel.consumers
    for step in range(kernel.steps):
        freed = consumed[step - kernel.depth].max() if step >= kernel.depth else -np.inf
        end = max(time + LEAST_WAIT, freed)
        records.append((0, ACQUIRE, time, end))
        time = end + kernel.copies[block, step]
        records.append((0, ISSUE, end, time))
        produced[step] = time + kernel.latency
        for one in range(kernel.consumers):
            if step % kernel.steps_of_tile == 0:
                tile[one] = clocks[one]
            ready = max(clocks[one] + LEAST_WAIT, produced[step])
            records.append((one + 1, WAIT, clocks[one], ready))
            clocks[one] = ready + kernel.computes[block, step, one]
            records.append((one + 1, MMA, ready, clocks[one]))
            consumed[step, one] = clocks[one]
            if step % kernel.steps_of_tile == kernel.steps_of_tile - 1 or step == kernel.steps - 1:
                records.append((one + 1, TILE, tile[one], clocks[one]))
    arrivals = [time] + [clock + kernel.epilogue for clock in clocks]
    for one, clock in enumerate(clocks):
        records.append((one + 1, "epi_store", clock, clock + kernel.epilogue))
    ends = arrivals
    if kernel.barrier:
        ends = [max(max(arrivals), arrival + LEAST_WAIT) for arrival in arrivals]
        records += [(warp, SYNC, arrivals[warp], ends[warp]) for warp in range(len(arrivals))]
    found.records += [(block, warp, name, start, end) for warp, name, start, end in records]
    for warp, end in enumerate(ends):
        found.lives[block, warp] = begin, end
    return max(ends)


def drawn(seed: int, blocks: int = 4, steps: int = 12, consumers: int = 2, **settings: Any) -> Kernel:
    """A kernel whose times are drawn, in whole ns."""
    random = np.random.default_rng(seed)
    copies = random.integers(50, 400, (blocks, steps)).astype(np.float64)
    computes = random.integers(50, 600, (blocks, steps, consumers)).astype(np.float64)
    return Kernel(copies, computes, **settings)


@dataclass(frozen=True)
class PingPong:
    """Two warps of one role that take turns at the tensor cores: times of products and epilogues by block, turn, warp."""

    products: Numbers
    epilogues: Numbers


def ping_pong(seed: int, blocks: int = 4, turns: int = 12) -> PingPong:
    """Turns whose times are drawn, in whole ns."""
    random = np.random.default_rng(seed)
    return PingPong(random.integers(200, 600, (blocks, turns, 2)).astype(np.float64),
                    random.integers(100, 500, (blocks, turns, 2)).astype(np.float64))  # fmt: skip


def played(kernel: PingPong) -> Simulated:
    """Run both warps of each block, an SM for each: a warp waits until the other one's product has ended."""
    blocks, turns, _ = kernel.products.shape
    found = Simulated(Kernel(kernel.products[:, :, 0], kernel.products, sms=blocks))
    for block in range(blocks):
        clocks, ended = [0.0, 0.0], -np.inf
        for turn in range(turns):
            for warp in range(2):
                begin = clocks[warp]
                ready = max(begin + LEAST_WAIT, ended)
                ended = ready + kernel.products[block, turn, warp]
                clocks[warp] = ended + kernel.epilogues[block, turn, warp]
                found.records += [
                    (block, warp, "order_wait", begin, ready), (block, warp, "mma", ready, ended),
                    (block, warp, "epilogue", ended, clocks[warp]),
                ]  # fmt: skip
        found.sm[block] = block
        found.lives |= {(block, warp): (0.0, clocks[warp]) for warp in range(2)}
    return found
