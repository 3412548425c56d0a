"""Quantities of one kernel derived from others: capacity left unused by grid, occupancy, stalls and memory accesses."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ncu_tools.kernels.diagnosis.limits import AS_BUSY, L1, busy_where_it_counts
from ncu_tools.kernels.diagnosis.rules import Known, facts, stall_reasons
from ncu_tools.kernels.diagnosis.sums import SECTOR_BYTES, WARP_THREADS, Inputs
from ncu_tools.kernels.kernel_row import Hotspot

LEAST_WASTEFUL = 17
"""Sectors per request above which accesses cannot be coalesced, whatever their width."""
DATA_PIPE = "l1tex__data_pipe_lsu_wavefronts"
WIDEST_ACCESS_SECTORS = 16
"""Sectors of the widest coalesced access, 16 bytes per thread: 32 threads x 16 bytes / 32 bytes."""


def derived(known: Known, kernel: Hotspot, inputs: Inputs) -> dict[str, float]:
    """`known` plus all quantities derived from it, from the kernel's row of hotspots, and from its inputs."""
    found = {**known, **_of_kernel(kernel), **_of_stalls(known)}
    found |= _of_inputs(inputs, found)
    found |= _of_grid(found)
    found |= _of_occupancy(found)
    return found | _of_accesses(found)


def lanes_of(known: Known) -> float:
    """Threads of a warp that can execute an instruction: as many as the block provides, 32 if unknown."""
    threads = known.get("warp_threads", math.nan)
    return WARP_THREADS if math.isnan(threads) else threads


def _of_kernel(kernel: Hotspot) -> dict[str, float]:
    """Tensor FLOPs of the kernel's roofline row, if its count is complete. Unused units are missing.

    `tensor_flops_at_least` is the counted part, however incomplete.
    """
    tensor = [amount for unit, amount in kernel.work.items() if unit.startswith("tensor_")]
    known = kernel.flops is not None and not kernel.flops_lower_bound
    counted = float(sum(filter(None, tensor)))
    return {"tensor_flops": counted if known and None not in tensor else math.nan, "tensor_flops_at_least": counted}


def _of_inputs(inputs: Inputs, known: Known) -> dict[str, float]:
    """Whether a kernel has 16-bit inputs, and how many tensor FLOPs it did with that type.

    If they were not counted, a pipe that was never active means none. FLOPs of another type count as work, too: cuDNN's
    attention of bf16 has "f16" in its name.
    """
    counted = known.get(f"tensor_flops_{inputs.type}", math.nan)
    counted = known["tensor_flops"] if math.isnan(counted) else counted
    was_idle = known.get("tensor_pipe", math.nan) == 0
    work = 0.0 if math.isnan(counted) and was_idle else counted
    return {
        "half_inputs": float(bool(inputs.type)),
        "matrix_product": float(inputs.is_product),
        "vector_product": float(inputs.is_vector),
        "tensor_flops_of_inputs": counted,
        "tensor_work": work or known["tensor_flops_at_least"],
        "all_compute": 1.0,
        "all_operands": 1.0,
    }


def _of_stalls(known: Known) -> dict[str, float]:
    """The most frequent stall, its share of the time between two instructions of a warp, and its largest possible cost.

    If that time was not collected, one cycle for the instruction plus the known stalls is a lower bound of it, and the
    share an upper bound. If only shares were collected, they are used. A stall costs at most the empty issue slots.
    "waits l1" is the share of all waits that are for L1, and so on (`waits` of `rules.toml`).
    """
    stalls = [known.get(f"stall {reason}", math.nan) for reason in stall_reasons()]
    certain = [value for value in stalls if not math.isnan(value)]
    top = max(certain, default=math.nan)
    latency = known.get("latency", math.nan)
    if math.isnan(latency) and certain:
        latency = 1.0 + sum(certain)
    counted = "stall" if certain else "stalled"
    whole = latency if certain else 1.0
    found = (
        {reason: known.get(f"{counted} {reason}", math.nan) / whole for reason in stall_reasons()} if whole > 0 else {}
    )
    shares = {reason: min(1.0, share) for reason, share in found.items() if not math.isnan(share)}
    share = max(shares.values(), default=math.nan)
    cost = _least(share, 1 - known.get("issue", math.nan)) if share >= 0 else math.nan
    waits = {f"waits {resource}": _total_of(shares, reasons) for resource, reasons in facts()["waits"].items()}
    return {"top_stall": top, "top_stall_share": share, "top_stall_cost": cost, **waits}


def _total_of(shares: Known, reasons: Sequence[str]) -> float:
    """The sum of the known shares of some stalls, at most 1; NaN if none is known."""
    known = [shares[one] for one in reasons if one in shares]
    return min(1.0, sum(known)) if known else math.nan


def _of_grid(known: Known) -> dict[str, float]:
    """The largest possible cost of the last wave, and idle time explained by neither missing blocks nor the last wave.

    With blocks of equal duration, a last wave costs at most its empty slots, and no more than the measured idle time of
    the SMs. If it is unknown whether every SM has a block, idle time may belong to SMs without.
    """
    empty, idle = known.get("empty_sms", math.nan), known.get("idle", math.nan)
    tail = known.get("tail", math.nan)
    if math.isnan(empty) and (known.get("waves", math.nan) >= 1 or tail > 0):
        empty = 0.0
    tail = _least(tail, max(0.0, idle - (0.0 if math.isnan(empty) else empty))) if not math.isnan(idle) else tail
    return {"tail_cost": tail, "uneven": idle - empty - tail}


def _of_occupancy(known: Known) -> dict[str, float]:
    """The occupancy that a grid of less than a wave gives the SMs with work, and the shortfall of the occupancies.

    Blocks are spread over all SMs before any SM gets a second one, so if some SMs have none, the others have one. Waves
    printed as 0 may be any number below 0.005.
    """
    waves, theoretical, achieved = (known.get(name, math.nan) for name in ("waves", "theoretical", "achieved"))
    at_work = 1 - known.get("empty_sms", math.nan)
    grid = theoretical * waves / at_work if 0 < waves < 1 and at_work > 0 else math.nan
    return {
        "grid_occupancy": 1.0 if waves >= 1 else grid,
        "grid_occupancy_missing": 1 - grid,
        "theoretical_missing": 1 - theoretical,
        "achieved_gap": theoretical - achieved,
        "achieved_missing": 1 - achieved / theoretical if theoretical > 0 else math.nan,
    }


def _of_accesses(known: Known) -> dict[str, float]:
    """The share of sector bytes that no thread requested, and of inactive lanes."""
    loads, stores = (
        _unused(known.get(f"used_{access}_bytes", math.nan), known.get(f"sectors_per_{access}", math.nan))
        for access in ("load", "store")
    )
    of_loads = known.get("load_sectors", math.nan)
    local, shared = known.get("local_sectors", math.nan), _shared_of_l1(known)
    unused = max((one for one in (loads, stores) if not math.isnan(one)), default=math.nan)
    excessive, overfetch = known.get("excessive_sectors", math.nan), known.get("l2_overfetch", math.nan)
    return {
        "unused_load_bytes": loads,
        "unused_store_bytes": stores,
        "unused_bytes": unused,
        "wasteful_loads": _wasteful(known, "load", loads),
        "wasteful_stores": _wasteful(known, "store", stores),
        "load_waste": loads * (1.0 if math.isnan(of_loads) else of_loads),
        "store_waste": stores * known.get("store_sectors", math.nan),
        "shared_of_l1": shared,
        "unused_of_l1": _least(unused, excessive) * (1 - (0.0 if math.isnan(shared) else shared)),
        "excessive_of_l2": excessive if math.isnan(overfetch) else overfetch,
        "conflicts_cost": _conflicts_cost(known),
        "slice_uneven": 1 - known.get("slice_mean", math.nan) / known.get("slice_busy", math.nan),
        "slice_cost": known.get("slice_busy", math.nan) - known.get("slice_mean", math.nan),
        "conflicts_of_l1": known.get("conflicts", math.nan) * (1.0 if math.isnan(shared) else shared),
        "partial_warps": 1 - known.get("warp_threads", math.nan) / WARP_THREADS,
        "inactive_lanes": 1 - known.get("lanes", math.nan) / lanes_of(known),
        "local_traffic": known.get("local", math.nan) if math.isnan(local) else local,
    }


def _conflicts_cost(known: Known) -> float:
    """The share of the time for which shared memory is busy with conflicts; NaN if its use was not collected."""
    busy = known.get("shared_wavefronts", math.nan)
    return known.get("conflicts", math.nan) * busy_where_it_counts(L1, busy, known)


def _shared_of_l1(known: Known) -> float:
    """The share of shared memory's wavefronts in those of the L1 data pipe; NaN if unknown or another part is busier.

    Tags and transfers, which may be the busiest part of L1, are independent of shared memory.
    """
    parts = {place: share for place, share in known.items() if place.startswith("l1/") and not math.isnan(share)}
    pipe = next((share for place, share in parts.items() if place.endswith(DATA_PIPE)), 0.0)
    if not pipe or pipe < max(parts.values()) - AS_BUSY:
        return math.nan
    share = known.get("shared_wavefronts", math.nan) / pipe
    return share if math.isnan(share) else min(1.0, share)


def _unused(used_bytes: float, sectors_per_request: float) -> float:
    """The share of accessed bytes that no thread requested, by bytes used per sector, else by sectors per request.

    By sectors it is an upper bound: 32 threads that request one byte each need one sector. Up to 16 sectors also fit
    coalesced accesses of 16 bytes, so the share is unknown.
    """
    if used_bytes > 0:
        return max(0.0, 1 - used_bytes / SECTOR_BYTES)
    if sectors_per_request > WIDEST_ACCESS_SECTORS:
        return 1 - 1 / sectors_per_request
    return math.nan


def _wasteful(known: Known, access: str, unused: float) -> float:
    """The unused share of an access's bytes; 0 if no excess sectors are known.

    There is no excess if an access needs no more sectors than a coalesced one, or if none beyond the ideal are counted.
    """
    if known.get("excessive_sectors") == 0:
        return 0.0
    used, sectors = known.get(f"used_{access}_bytes", math.nan), known.get(f"sectors_per_{access}", math.nan)
    return 0.0 if used == 0 or (math.isnan(used) and sectors < LEAST_WASTEFUL) else unused


def _least(*values: float) -> float:
    return min((value for value in values if not math.isnan(value)), default=math.nan)
