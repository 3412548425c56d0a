"""Theoretical occupancy of a kernel: the resource that limits the blocks on an SM, and the gain of one step of each.

An SM has four partitions, each with a quarter of its registers. A warp takes registers in units of 256, for threads in
units of 8; a block takes shared memory in units of 128 bytes from compute capability 8.0 on, else 256. Source: NVIDIA,
"CUDA C++ Programming Guide", Compute Capabilities, and the occupancy calculator of Nsight Compute, whose values this
reproduces for every launch of the available real reports.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

WARP = 32
PARTITIONS = 4
REGISTERS_OF_A_WARP_UNIT = 256
REGISTERS_OF_A_THREAD_UNIT = 8

REGISTERS, SHARED_MEMORY, BLOCKS, WARPS, BARRIERS = "registers", "shared memory", "blocks", "warps", "barriers"


@dataclass(frozen=True)
class SmLimits:
    """Limits of an SM: warps, blocks, registers, barriers (None: no limit), and bytes of shared memory by
    configuration.

    `shared_unit` is the allocation unit of shared memory, in bytes.
    """

    warps: int
    blocks: int
    registers: int
    shared_bytes: int
    shared_unit: int
    barriers: int | None = None


@dataclass(frozen=True)
class BlockNeeds:
    """Needs of a block: threads, registers per thread, bytes of shared memory (the driver's share too), barriers."""

    threads: int
    registers: int
    shared_bytes: int
    barriers: int = 0

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return ceil(self.threads / WARP)


@dataclass(frozen=True)
class Occupancy:
    """Blocks that fit on an SM by each resource, and the share of its warps with the fewest of them."""

    blocks_by: dict[str, int]
    warps: int
    fraction: float

    @property
    def limiters(self) -> tuple[str, ...]:
        """The resources that allow the fewest blocks; none if the SM is full."""
        fewest = min(self.blocks_by.values())
        return () if self.fraction >= 1 else tuple(name for name, count in self.blocks_by.items() if count == fewest)


def occupancy(sm: SmLimits, block: BlockNeeds) -> Occupancy:
    """The theoretical occupancy of blocks on an SM. Raises `ValueError` for a block without threads."""
    if block.threads <= 0:
        raise ValueError("a block without threads")
    blocks_by = {
        WARPS: sm.warps // block.warps,
        REGISTERS: _by_registers(sm, block),
        SHARED_MEMORY: _by_shared_memory(sm, block),
        BLOCKS: sm.blocks,
    }
    if sm.barriers is not None and block.barriers:
        blocks_by[BARRIERS] = sm.barriers // block.barriers
    warps = min(sm.warps, min(blocks_by.values()) * block.warps)
    return Occupancy(blocks_by, warps, warps / sm.warps)


def _by_registers(sm: SmLimits, block: BlockNeeds) -> int:
    if block.registers <= 0:
        return sm.blocks
    of_thread = _up(block.registers, REGISTERS_OF_A_THREAD_UNIT)
    of_warp = _up(of_thread * WARP, REGISTERS_OF_A_WARP_UNIT)
    warps = sm.registers // PARTITIONS // of_warp * PARTITIONS
    return warps // block.warps


def _by_shared_memory(sm: SmLimits, block: BlockNeeds) -> int:
    if block.shared_bytes <= 0:
        return sm.blocks
    return sm.shared_bytes // _up(block.shared_bytes, sm.shared_unit)


def _up(value: int, unit: int) -> int:
    return ceil(value / unit) * unit


@dataclass(frozen=True)
class OccupancyStep:
    """The value of one resource that fits one more block on an SM, and the resulting occupancy.

    `to` is the greatest value that allows it: registers per thread, or bytes of shared memory per block.
    """

    resource: str
    now: int
    to: int
    fraction: float


def steps(sm: SmLimits, block: BlockNeeds) -> list[OccupancyStep]:
    """The smallest change of each limiter alone that raises occupancy; none for limits of the hardware."""
    before = occupancy(sm, block)
    found = []
    for resource in before.limiters:
        to = _room_for_one_more(resource, sm, block)
        after = occupancy(sm, _with(block, {resource: to})) if to else before
        if after.fraction > before.fraction:
            found.append(OccupancyStep(resource, _now(resource, block), to, after.fraction))
    return found


def joint_steps(sm: SmLimits, block: BlockNeeds) -> list[OccupancyStep]:
    """The changes that raise occupancy only together, if registers and shared memory limit it equally; else []."""
    before = occupancy(sm, block)
    if set(before.limiters) != {REGISTERS, SHARED_MEMORY}:
        return []
    to = {resource: _room_for_one_more(resource, sm, block) for resource in before.limiters}
    if not all(to.values()):
        return []
    fraction = occupancy(sm, _with(block, to)).fraction
    return [OccupancyStep(resource, _now(resource, block), value, fraction) for resource, value in to.items()]


def _room_for_one_more(resource: str, sm: SmLimits, block: BlockNeeds) -> int:
    """The most registers per thread, or bytes of shared memory per block, with which one more block fits; 0 if none."""
    wanted = occupancy(sm, block).blocks_by[resource] + 1
    if resource == REGISTERS:
        fewer = range(block.registers - 1, 0, -1)
        return next((one for one in fewer if _by_registers(sm, _with(block, {REGISTERS: one})) >= wanted), 0)
    return sm.shared_bytes // wanted // sm.shared_unit * sm.shared_unit if resource == SHARED_MEMORY else 0


def _with(block: BlockNeeds, changes: dict[str, int]) -> BlockNeeds:
    return replace(
        block,
        registers=changes.get(REGISTERS, block.registers),
        shared_bytes=changes.get(SHARED_MEMORY, block.shared_bytes),
    )


def _now(resource: str, block: BlockNeeds) -> int:
    return block.registers if resource == REGISTERS else block.shared_bytes
