"""Quantities of one kernel that follow from others: what grid, occupancy, stalls and memory accesses leave unused."""

from __future__ import annotations

import math

from ncu_tools.ceilings.ceilings import unit_title
from ncu_tools.kernels.diagnosis.rules import Known, stall_reasons
from ncu_tools.kernels.diagnosis.sums import Inputs
from ncu_tools.kernels.hotspots import Hotspot

CONSTANT_MOVES = "may be constant moves"
"""What `flops_basis` says where FP16 FLOPs are those of an instruction that compilers also move constants with."""
SECTOR_BYTES, WARP_THREADS = 32, 32
WIDEST_ACCESS_SECTORS = 16
"""Sectors of a coalesced access of 16 bytes a thread, the widest there is: 32 threads x 16 bytes / 32 bytes."""


def derived(known: Known, kernel: Hotspot, inputs: Inputs) -> dict[str, float]:
    """`known` with everything that follows from it, from the kernel's row of hotspots, and from its inputs."""
    found = {**known, **_of_kernel(kernel), **_of_stalls(known)}
    found |= _of_inputs(inputs, found)
    found |= _of_grid(found)
    found |= _of_occupancy(found)
    return found | _of_accesses(found)


def _of_kernel(kernel: Hotspot) -> dict[str, float]:
    """What the roofline says of a kernel already. A unit that no kernel used is not among its work.

    Without a complete count, tensor cores may have done what was not collected; and what may be constant moves is no
    arithmetic in FP16.
    """
    tensor = [amount for unit, amount in kernel.work.items() if unit.startswith("tensor_")]
    half = kernel.work.get("fp16", 0.0)
    known = kernel.flops is not None and not kernel.flops_lower_bound
    doubtful = CONSTANT_MOVES in (kernel.flops_basis or "")
    share = half / kernel.flops if half is not None and kernel.flops else 0.0 if known else math.nan
    return {
        "half_share": math.nan if doubtful or not known else share,
        "half_is_nearest": math.nan if kernel.bound is None else float(kernel.bound == unit_title("fp16")),
        "tensor_flops": float(sum(filter(None, tensor))) if known and None not in tensor else math.nan,
    }


def _of_inputs(inputs: Inputs, known: Known) -> dict[str, float]:
    """Whether a kernel's inputs are of 16 bits, and what tensor cores did with them."""
    counted = known.get(f"tensor_flops_{inputs.type}", math.nan)
    return {
        "half_inputs": float(bool(inputs.type)),
        "matrix_product": float(inputs.is_product),
        "vector_product": float(inputs.is_vector),
        "tensor_flops_of_inputs": known["tensor_flops"] if math.isnan(counted) else counted,
        "all_compute": 1.0,
    }


def _of_stalls(known: Known) -> dict[str, float]:
    """The most frequent stall, its share of the time between two instructions of a warp, and what it can cost.

    Where that time was not collected it is at least one cycle for the instruction and those of the known stalls: the
    share is then an upper bound. A stall costs at most the issue slots that stay empty.
    """
    stalls = [known.get(f"stall {reason}", math.nan) for reason in stall_reasons()]
    certain = [value for value in stalls if not math.isnan(value)]
    top = max(certain, default=math.nan)
    latency = known.get("latency", math.nan)
    if math.isnan(latency) and certain:
        latency = 1.0 + sum(certain)
    share = _least(1.0, top / latency) if top >= 0 and latency > 0 else math.nan
    cost = _least(share, 1 - known.get("issue", math.nan)) if share >= 0 else math.nan
    return {"top_stall": top, "top_stall_share": share, "top_stall_cost": cost}


def _of_grid(known: Known) -> dict[str, float]:
    """What the last wave can cost, and the idle time that neither missing blocks nor the last wave explain.

    Blocks of equal time need whole waves, so a last wave costs at most its empty slots; where the idle time of SMs is
    measured, no more than that either.
    """
    empty, idle = known.get("empty_sms", math.nan), known.get("idle", math.nan)
    empty = 0.0 if math.isnan(empty) else empty
    tail = known.get("tail", math.nan)
    tail = _least(tail, max(0.0, idle - empty)) if not math.isnan(idle) else tail
    return {"tail_cost": tail, "uneven": idle - empty - (0.0 if math.isnan(tail) else tail)}


def _of_occupancy(known: Known) -> dict[str, float]:
    """What a grid of less than a wave leaves of the occupancy, and what the occupancies lack.

    Less than a wave is a question of occupancy only where every SM has a block; else blocks are missing.
    """
    waves, theoretical, achieved = (known.get(name, math.nan) for name in ("waves", "theoretical", "achieved"))
    every_sm_has_one = known.get("empty_sms", math.nan) == 0
    grid = theoretical * waves if waves < 1 and every_sm_has_one else math.nan
    return {
        "grid_occupancy": 1.0 if waves >= 1 or known.get("empty_sms", 0) > 0 else grid,
        "grid_occupancy_missing": 1 - grid,
        "theoretical_missing": 1 - theoretical,
        "achieved_gap": theoretical - achieved,
        "achieved_missing": 1 - achieved / theoretical if theoretical > 0 else math.nan,
    }


def _of_accesses(known: Known) -> dict[str, float]:
    """The bytes of sectors that no thread asked for, and the lanes of warps that do nothing."""
    loads, stores = (
        _unused(known.get(f"used_{access}_bytes", math.nan), known.get(f"sectors_per_{access}", math.nan))
        for access in ("load", "store")
    )
    local = known.get("local_sectors", math.nan)
    return {
        "unused_load_bytes": loads,
        "unused_store_bytes": stores,
        "unused_bytes": max((one for one in (loads, stores) if not math.isnan(one)), default=math.nan),
        "inactive_lanes": 1 - known.get("lanes", math.nan) / WARP_THREADS,
        "local_traffic": known.get("local", math.nan) if math.isnan(local) else local,
    }


def _unused(used_bytes: float, sectors_per_request: float) -> float:
    """The share of accessed bytes that nobody asked for, by the bytes used per sector, else by sectors per request.

    By sectors it is what lies beyond the widest coalesced access, so at least so much.
    """
    if used_bytes > 0:
        return max(0.0, 1 - used_bytes / SECTOR_BYTES)
    if sectors_per_request > WIDEST_ACCESS_SECTORS:
        return 1 - WIDEST_ACCESS_SECTORS / sectors_per_request
    return math.nan


def _least(*values: float) -> float:
    return min((value for value in values if not math.isnan(value)), default=math.nan)
