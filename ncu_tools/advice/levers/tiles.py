"""Levers on the reuse of data: tiles in shared memory and in registers, and conflicts between banks."""

from __future__ import annotations

import math

from ncu_tools.advice.levers.lever import MEMORY_WAITS, SHARED_WAITS, Pulled, keeps, lever, nothing, share, waits_keep
from ncu_tools.advice.situation.constants import constants
from ncu_tools.advice.situation.kernel_situation import PASSES_OF_L1, Situation
from ncu_tools.advice.situation.model import Effect, Left


@lever("tile-shared-memory")
def tile_shared_memory(one: Situation) -> Pulled | None:
    """Tile in shared memory what threads of a block read more than once from L1 or L2."""
    facts = constants()["tile_shared"]
    if one.uses_tensor_cores and one.uses_shared_memory:
        return None
    hit, reuse = one.get("l1_hit"), one.reuses
    evidence = [
        one.evidence("hits in L1", hit, "fraction", "l1_hit"),
        one.evidence("reads of a sector for each from the level behind", reuse, "", "sectors_asked_of_l2", "l2_hit"),
    ]
    evidence = [each for each in evidence if not math.isnan(each.value)]
    if one.busy("dram") > facts["dram_at_roof"]:
        return nothing("DRAM is at its roof: nothing is read twice from it", *evidence)
    if one.loads_of_a_thread < facts["least_loads"] and not one.exchanges_in_global_memory:
        each = one.evidence("global loads of a thread", one.loads_of_a_thread, "", "load_requests")
        return nothing("a thread reads one value, which a tile would not spare it", each, *evidence)
    is_seen = (
        hit > facts["least_l1_hit"] or reuse > facts["least_reuse"] or (one.is_product and not one.uses_shared_memory)
    )
    if one.exchanges_in_global_memory:
        barrier = one.evidence(
            "time that a warp waits at barriers", one.kernel.stalled("barrier"), "fraction", "stalls"
        )
        waits = waits_keep(one.waits("long_scoreboard", "lg_throttle"), facts["exchanged"])
        return Pulled(Effect({"l2": Left(*facts["l2"]), "xbar": Left(*facts["l2"])}, waits), [barrier, *evidence])
    if math.isnan(hit) and math.isnan(reuse):
        if one.uses_shared_memory and (one.is_product or one.looks_like_a_product):
            return nothing("it tiles in shared memory already", *evidence)
        is_seen = is_seen or (one.busy("l1") > 0.4 and one.busy("dram") < 0.3)
        if not is_seen and not one.kernel.busy:
            return Pulled(Effect({}, Left(*facts["unknown"])), evidence, is_guess=True)
    if not is_seen and one.is_reduction and one.own_shared == 0 and not one.busy("dram") > facts["dram_of_a_tree"]:
        return Pulled(Effect({}, Left(*facts["unknown"])), evidence, is_guess=True)  # its tree may be in global memory
    if not is_seen:
        return nothing("no data is seen to be read twice", *evidence)
    l2 = Left(*facts["l2_again" if one.uses_shared_memory else "l2"])
    is_gemm = one.is_gemm or (one.looks_like_a_product and not one.is_convolution)
    is_of_l1 = is_gemm and (one.busiest("l1", "lsu") > 0.5 or one.is_bound_by_accesses)
    l1, requests = (Left(*facts["of_products" if is_of_l1 else name]) for name in ("l1", "requests"))
    waits = waits_keep(one.waits("long_scoreboard", "lg_throttle"), facts["waiting"])
    effect = Effect({"l2": l2, "xbar": l2, "dram": l2, "l1": l1, "lsu": requests}, waits)
    return Pulled(effect, evidence, case="larger" if one.uses_shared_memory else "")


@lever("tile-registers")
def tile_registers(one: Situation) -> Pulled | None:
    """Tile products in registers where they load an operand for every few multiply-adds."""
    facts = constants()["tile_registers"]
    if not (one.is_product or one.looks_like_a_product):
        return None
    loads = one.loads_per_fma
    evidence = one.evidence("loads for each multiply-add", loads, "", "load_requests", "shared_loads", "ffma")
    if one.is_for_a_debugger:
        return nothing("code for a debugger keeps no values in registers", evidence)
    if one.uses_tensor_cores:
        return Pulled(Effect({}, Left(0.7, 0.9, 1.1)), [evidence])
    loads = _loads_by_registers(one.get("registers")) if math.isnan(loads) else loads
    after = zip(facts["most"], facts["loads_per_fma"], facts["least"], strict=True)
    best, middle, worst = (max(least, min(most, loads / aim)) for most, aim, least in after)
    outputs = (best, middle, worst)
    fma = 0.25 if math.isnan(one.fma_share) else one.fma_share
    issue = Left(*(fma + share(1 - fma) * (1 - facts["issue_of_loads"] * (1 - 1 / many)) for many in outputs))
    memory = Left(*(1 / many for many in outputs))
    waits = waits_keep(one.waits(*MEMORY_WAITS, *SHARED_WAITS, "barrier"), memory)
    work = {
        **dict.fromkeys(("l1", "lsu", "l2", "xbar"), memory),
        "dram": Left(1 / best, 0.7, 1.0),
        "issue": issue,
        "alu": issue,
    }
    return Pulled(Effect(work, waits), [evidence], uses_code=one.code is not None)


def _loads_by_registers(registers: float) -> float:
    """Loads per multiply-add, estimated from registers per thread: those above `of_no_tile` hold sums.

    A tile of n x n sums takes 2 n loads for n x n multiply-adds, or n loads if each loads two values.
    """
    facts = constants()["tile_registers"]
    sums = registers - facts["of_no_tile"]
    return float(facts["unknown_loads"]) / math.sqrt(sums) if sums > 1 else float(facts["unknown_loads"])


@lever("pad-shared-memory")
def pad_shared_memory(one: Situation) -> Pulled | None:
    """Pad or swizzle shared-memory arrays whose accesses conflict in their banks."""
    facts = constants()["conflicts"]
    added, metrics = one.conflict_share
    if math.isnan(added):
        is_busy = one.uses_shared_memory and one.busiest("l1", "memory") > facts["busy"]
        return Pulled(Effect({"l1": Left(*facts["unknown"])}), is_guess=True) if is_busy else None
    evidence = one.evidence("passes over shared memory that conflicts add", added, "fraction", *metrics)
    if added < facts["least"]:
        return nothing("few accesses conflict", evidence)
    if one.blocks_per_sm < 1 and one.get("conflicts") >= 0:
        excess, cycles = one.get("conflicts"), one.get("cycles")
        cycles = one.kernel.time_ns * 1e-9 * one.get("sm_clock_hz", facts["clock_hz"]) if math.isnan(cycles) else cycles
        busy = share(excess / max(1.0, one.get("blocks")) / max(cycles, 1.0))
        return Pulled(Effect(time=keeps(busy, facts["few_blocks"])), [evidence])
    of_l1 = one.get("shared_busy") / one.busy("l1") if one.busy("l1") > 0 else math.nan
    of_l1 = facts["unknown_of_l1"] if math.isnan(of_l1) else min(1.0, of_l1)
    of_l1s = [1.0, 1.0, of_l1] if metrics == PASSES_OF_L1 else [of_l1] * 3
    stalled = one.waits(*SHARED_WAITS) if one.has_stalls else min(0.3, one.get("shared_busy", 0.3))
    removed = [added * part for part in facts["removed"]]
    waits = waits_keep(stalled, [1 - part for part in removed])
    kept = [1 - part * beside for part, beside in zip(removed, of_l1s, strict=True)]
    return Pulled(Effect({"l1": Left(*kept)}, waits), [evidence])
