"""Levers on global, local and constant memory."""

from __future__ import annotations

import math

from ncu_tools.advice.levers.lever import (
    MEMORY_WAITS,
    Pulled,
    falls_by,
    keeps,
    lever,
    nothing,
    share,
    waits_keep,
)
from ncu_tools.advice.levers.parallelism import is_contended
from ncu_tools.advice.situation.constants import constants
from ncu_tools.advice.situation.kernel_situation import PASSES_OF_L1, WARP, Situation
from ncu_tools.advice.situation.model import ALL, Effect, Left
from ncu_tools.advice.situation.utilisation import resources


@lever("coalesce")
def coalesce(one: Situation) -> Pulled | None:
    """Coalesce accesses that touch more sectors than their bytes need."""
    facts = constants()["coalesce"]
    excess, metrics = one.excess
    if math.isnan(excess):
        if one.uses_tensor_cores or one.is_histogram or is_contended(one):
            return None
        return Pulled(Effect({}, Left(*facts["unknown"])), is_guess=True)
    evidence = one.evidence("sectors for each that is needed", excess, "", *metrics)
    if excess < facts["least"]:
        return nothing("accesses are coalesced", evidence)
    l2, dram = falls_by(excess, facts["l2"]), one.dram_excess
    of_dram = Left.all(max(1 / dram, 1 / excess)) if dram > 1 else ALL
    if math.isnan(dram):
        of_dram = falls_by(excess, facts["dram"])
    if not set(metrics).isdisjoint(("l1", "sm", *PASSES_OF_L1)):
        of_dram = Left(of_dram.best, 1.0, 1.0)  # L1 may hold what one access brings until the next one asks for it
    of_dram = of_dram.times(_asked_for_at_most(one))
    of_l1 = Left.all(1 / _l1_passes(one, excess))
    waiting = one.waits(*MEMORY_WAITS)
    if not one.has_stalls and 4 * one.warps_per_scheduler <= facts["few_warps"]:  # no others hide what one waits for
        waiting = max(waiting, one.waits_by_latency)
    waits = waits_keep(waiting, falls_by(excess, facts["waiting"]))
    return Pulled(Effect({"l2": l2, "xbar": l2, "l1": of_l1, "dram": of_dram}, waits), [evidence])


def _asked_for_at_most(one: Situation) -> Left:
    """How much longer DRAM takes than at its roof because few warps keep too few bytes in flight (Little's law)."""
    facts = constants()["coalesce"]
    warps = one.threads * max(1.0, one.blocks_per_sm) / WARP
    if not (0 < warps < facts["few_warps"] and one.blocks_per_sm > 0):
        return ALL
    of_sms, of_an_sm = min(1.0, one.blocks_per_sm), facts["latency_cycles"] * facts["dram_bytes"]
    reached = [of_sms * warps * WARP * 4.0 * loads / of_an_sm for loads in facts["loads_of_a_warp"]]
    return Left(*(max(1.0, resources()["dram"]["cap"] / busy) for busy in reached))


def _l1_passes(one: Situation, excess: float) -> float:
    """The factor by which passes over L1 fall once accesses are coalesced."""
    wavefronts, requests, shared = one.get("wavefronts_busy"), one.get("requests_busy"), one.get("shared_busy", 0.0)
    least = max(requests / 2, shared)
    return max(1.0, min(excess, wavefronts / least)) if wavefronts > 0 and least > 0 else excess


@lever("widen-accesses")
def widen_accesses(one: Situation) -> Pulled | None:
    """Widen loads and stores of fewer than 16 bytes per thread."""
    facts = constants()["widen"]
    width, is_certain = one.access_width
    evidence = (
        one.evidence("bytes of a thread's access", width, "byte", "load_sectors", "load_requests")
        if is_certain
        else None
    )
    shown = [evidence] if evidence is not None else []
    if width > facts["wide"]:
        return nothing("accesses are wide", *shown)
    if one.excess[0] > facts["most_excess"]:
        return nothing("accesses are not coalesced, which comes first", *shown)
    if one.busy("dram") > facts["dram_at_roof"]:
        return nothing("DRAM is at its roof", *shown)
    ratio = 16.0 / width
    if is_contended(one):
        queued = Left(1 / (1.5 * ratio), facts["queued"], 1.0)
        return Pulled(Effect(time=queued), shown, uses_code=one.code is not None)
    gone = share(facts["issue"] * one.memory_instructions * (1 - 1 / ratio))
    issue = keeps(gone, facts["strength"])
    requests = Left(1 / ratio, 0.5 * (1 + 1 / ratio), 1.0)
    waits = waits_keep(one.waits("long_scoreboard", "lg_throttle", "mio_throttle"), falls_by(ratio, facts["waiting"]))
    work = {"issue": issue, "alu": issue, "lsu": requests}
    if width < facts["of_a_pass"]:  # a pass over L1 brings a warp 4 bytes a thread
        work["l1"] = falls_by(facts["of_a_pass"] / width, facts["waiting"])
    elif one.reads_a_tile_by_words:
        work["l1"] = Left(*facts["of_tiles"])
    return Pulled(Effect(work, waits), shown, uses_code=one.code is not None, is_guess=not is_certain)


@lever("constant-memory")
def constant_memory(one: Situation) -> Pulled | None:
    """Move data that all threads of a warp load from one address (tables, filters, parameters) to constant memory."""
    facts = constants()["constant"]
    if one.uses_tensor_cores:
        return None
    if one.code is None or not one.code.global_loads:
        uniform = 0 < one.sectors_per("load") < facts["sectors_of_one_address"] and one.get("lanes", 32.0) > 16
        if not (uniform or one.is_convolution):
            return (
                nothing("no loads of one address were seen")
                if one.get("load_requests", 0.0) > 0 or one.busy("l1") > 0
                else None
            )
        of_loads, beside = facts["unknown_share"], 0.25
        sectors = one.sectors_per("load")
        evidence = one.evidence(
            "sectors of a load", sectors, "sector", "sectors_per_load", "load_sectors", "load_requests"
        )
    else:
        of_loads = one.code.uniform_loads / one.code.global_loads
        beside = one.code.share("integer", "move")
        evidence = one.evidence("global loads of one address for a warp", of_loads, "fraction", "instructions")
    if of_loads < 0.1:
        return nothing("few loads have one address for a warp", evidence)
    weight = facts["in_products"] if one.is_gemm else 1.0
    instructions = keeps(weight * of_loads * (one.memory_instructions + facts["addresses"] * beside), facts["operands"])
    integer = keeps(weight * of_loads * facts["integer"], facts["operands"])
    memory = keeps(weight * of_loads, facts["strength"])
    waits = waits_keep(one.waits("lg_throttle", "math_pipe_throttle", "wait"), memory)
    work = {"issue": instructions, "alu": integer, "lsu": memory, "l1": memory}
    if one.busy("branch") > 0 and one.busy("lsu") > 0:  # constants at an index that is computed go through this pipe
        moved = weight * of_loads * one.busy("lsu") / one.busy("branch")
        work["branch"] = Left(1.0, 1.0 + moved, 1.0)
    return Pulled(Effect(work, waits), [evidence], uses_code=one.code is not None)


@lever("local-memory")
def local_memory(one: Situation) -> Pulled | None:
    """Keep spilled registers and arrays of threads out of local memory."""
    facts = constants()["local"]
    of_all = one.local_share
    if math.isnan(of_all):
        return None
    evidence = one.evidence("instructions on local memory", of_all, "fraction", "local_loads", "local_stores", "spills")
    if of_all < facts["least"]:
        return nothing("local memory is hardly used", evidence)
    of_accesses = share(of_all / max(one.memory_instructions + of_all, of_all))
    traffic = keeps(of_accesses, facts["strength"])
    issue = keeps(of_all * facts["issue"], facts["strength"])
    waits = waits_keep(one.waits("long_scoreboard", "lg_throttle"), traffic)
    work = {**dict.fromkeys(("l1", "lsu", "l2", "xbar", "dram"), traffic), "issue": issue}
    return Pulled(Effect(work, waits), [evidence], uses_code=one.code is not None)
