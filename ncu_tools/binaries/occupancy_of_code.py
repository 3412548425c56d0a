"""Theoretical occupancy of a kernel by its code alone, over block sizes and dynamic shared memory.

The limits of an SM are in `sm_limits.toml`, with the largest shared memory that a block may request from the driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

from ncu_launch.files.toml_tables import table_beside
from ncu_parsers.binaries.kernel_resources import KernelResources

from ncu_tools.kernels.view.occupancy import BlockNeeds, Occupancy, OccupancyStep, SmLimits, occupancy, steps

BLOCK_SIZES = (32, 64, 128, 256, 512, 1024)
USUAL_BLOCK = 256
"""Threads per block to assume where neither code nor metadata gives the block size."""
LEAST_REGISTERS = 16
"""Fewest registers per thread that a launch allocates: reports of kernels that need fewer say 16."""
SHARED_STEPS = (1 << 14, 1 << 15, 1 << 16)
"""Bytes of dynamic shared memory per block for which occupancy is tabulated."""


@dataclass(frozen=True)
class BlockOccupancy:
    """Theoretical occupancy of one block size: blocks per SM, the limiting resources, and steps that raise it."""

    threads: int
    dynamic_shared_bytes: int
    blocks: int
    fraction: float
    limiters: tuple[str, ...]
    steps: tuple[OccupancyStep, ...]


@cache
def _architectures() -> dict[str, Any]:
    return table_beside(__file__, "sm_limits")


def sm_of(architecture: str) -> SmLimits | None:
    """The limits of an SM of an architecture as "sm_90" or "sm_90a"; None if it is not listed."""
    known = _architectures()["architectures"].get(architecture.rstrip("af"))
    if known is None:
        return None
    registers = _architectures()["registers"]
    return SmLimits(known["warps"], known["blocks"], registers, known["shared_bytes"], known["unit"])


def demanded_threads(kernel: KernelResources) -> int | None:
    """Threads per block that a kernel requires, by its metadata or launch bounds; None if any size may launch."""
    return kernel.threads or (prod(kernel.required_threads) if kernel.required_threads else None)


def threads_of(kernel: KernelResources) -> tuple[int, bool]:
    """Threads per block, and True if code or metadata give them; else `USUAL_BLOCK` and False.

    They are those that the kernel requires, else the most that its launch bounds allow.
    """
    known = demanded_threads(kernel)
    if known:
        return known, True
    most = prod(kernel.max_threads) if kernel.max_threads else 0
    return (most, True) if most else (USUAL_BLOCK, False)


def occupancy_for(
    kernel: KernelResources, threads: int, dynamic_shared_bytes: int | None = None
) -> BlockOccupancy | None:
    """Theoretical occupancy for this block size; None if registers or the limits of the SM are unknown.

    `dynamic_shared_bytes` defaults to that of the kernel's metadata, else 0.
    """
    sm = sm_of(kernel.architecture)
    if sm is None or not kernel.registers or threads <= 0 or kernel.shared_bytes is None:
        return None
    known = _architectures()["architectures"][kernel.architecture.rstrip("af")]
    dynamic = kernel.dynamic_shared_bytes or 0 if dynamic_shared_bytes is None else dynamic_shared_bytes
    shared = kernel.shared_bytes + dynamic
    if shared > known["of_block"]:
        return BlockOccupancy(threads, dynamic, 0, 0.0, ("shared memory",), ())
    needs = BlockNeeds(threads, max(kernel.registers, LEAST_REGISTERS), shared + known["reserved"])
    found: Occupancy = occupancy(sm, needs)
    return BlockOccupancy(
        threads, dynamic, min(found.blocks_by.values()), found.fraction, found.limiters, tuple(steps(sm, needs))
    )


def table_of_occupancy(kernel: KernelResources) -> list[BlockOccupancy]:
    """Theoretical occupancy by block size within the launch bounds, then of one size by dynamic shared memory.

    A block size or dynamic shared memory that the metadata give is not varied.
    """
    exact = demanded_threads(kernel)
    most = prod(kernel.max_threads) if kernel.max_threads else max(BLOCK_SIZES)
    sizes = (exact,) if exact else tuple(size for size in BLOCK_SIZES if size <= most)
    found = [occupancy_for(kernel, size) for size in sizes]
    if kernel.dynamic_shared_bytes is None and sizes:
        usual = min(sizes, key=lambda size: abs(size - USUAL_BLOCK))
        found += [occupancy_for(kernel, usual, shared) for shared in SHARED_STEPS]
    return [one for one in found if one is not None]
