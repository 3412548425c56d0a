"""Levers on instructions: fewer, cheaper, with all threads of a warp active, or optimised by the compiler."""

from __future__ import annotations

import math

from ncu_tools.advice.levers.lever import (
    INSTRUCTION_WAITS,
    SHARED_WAITS,
    SM_PIPES,
    Pulled,
    keeps,
    lever,
    nothing,
    waits_keep,
)
from ncu_tools.advice.levers.parallelism import is_contended
from ncu_tools.advice.situation.constants import constants
from ncu_tools.advice.situation.kernel_situation import WARP, Situation
from ncu_tools.advice.situation.model import Effect, Left

PIPES = ("issue", "alu", "fma", "xu", "fp64", "branch")
BUSY = (*PIPES, "sm")


def _waits_for_instructions(one: Situation) -> float:
    """The share of a warp's time in stalls of instruction issue; without stalls a default by the bounding resource."""
    if one.has_stalls:
        return one.waits(*INSTRUCTION_WAITS)
    facts = constants()["instructions"]
    return float(facts["waits_at_a_pipe" if one.kernel.bound[0] in SM_PIPES else "waits"])


@lever("fewer-instructions")
def fewer_instructions(one: Situation) -> Pulled | None:
    """Reduce integer, move, control and conversion instructions beside the work itself."""
    facts = constants()["instructions"]
    busiest = one.busiest(*BUSY)
    waits = _waits_for_instructions(one)
    divisions, slow = one.integer_division_share, one.slow_share
    if one.code is not None:
        others = one.code.share("integer", "move", "control", "conversion")
        evidence = [
            one.evidence("integer, move, control and conversion instructions", others, "fraction", "instructions")
        ]
    else:
        others, evidence = facts["unknown_others"], []
    if divisions > facts["least_divisions"]:
        evidence.append(
            one.evidence("of integer divisions and remainders", divisions, "fraction", "instructions", "xu")
        )
    others = max(0.0, others - divisions)
    if one.is_reduction and one.uses_shared_memory and one.busy("l1") > facts["busy"]:
        return _by_shuffles(one, others)
    if not math.isnan(busiest):
        evidence.append(one.evidence("the busiest of issue slots and pipes, busy", busiest, "fraction", *PIPES))
    if is_contended(one) or (busiest < facts["busy"] and waits < facts["waiting"]):
        why = "warps wait for one another" if is_contended(one) else "neither issue slots nor a pipe are busy"
        return nothing(why, *evidence)
    left = keeps(facts["of_others"] * others + facts["of_slow"] * slow, facts["strength"])
    if divisions > facts["least_divisions"]:
        left = left.times(keeps(divisions, facts["divided"]))
    return Pulled(Effect(dict.fromkeys(PIPES, left), waits_keep(waits, left)), evidence, uses_code=one.code is not None)


def _by_shuffles(one: Situation, others: float) -> Pulled:
    """Reduce a block's sum by warp shuffles where its tree in shared memory keeps L1 busy."""
    facts = constants()["instructions"]
    left = Left(*facts["shuffled"])
    issue = keeps(facts["of_others"] * others, facts["strength"])
    waits = one.waits(*SHARED_WAITS, "barrier") if one.has_stalls else facts["waits"]
    evidence = one.evidence("L1 and shared memory busy with a sum over a block", one.busy("l1"), "fraction", "l1")
    work = {**dict.fromkeys(PIPES, issue), "l1": left, "lsu": left}
    return Pulled(Effect(work, waits_keep(waits, left)), [evidence], uses_code=one.code is not None)


@lever("contract-and-fast-math")
def contract_and_fast_math(one: Situation) -> Pulled | None:
    """Use fast divisions and roots, and contract multiplications and additions into multiply-adds."""
    facts = constants()["fast_math"]
    removable = one.slow_share + one.contractible if one.code is not None else one.contractible
    evidence = one.evidence(
        "instructions of divisions and roots, and pairs to contract",
        removable,
        "fraction",
        "instructions",
        "fmul",
        "dmul",
    )
    if one.code is None and one.busy("fp64") > facts["fp64_busy"] and not removable > facts["unknown_fp64"]:
        removable = facts["unknown_fp64"]
        evidence = one.evidence("FP64 pipe busy", one.busy("fp64"), "fraction", "fp64")
    if math.isnan(removable):
        return None
    if removable < facts["least"]:
        return nothing("few divisions, roots or pairs to contract", evidence)
    left = keeps(removable, facts["strength"])
    pipes = dict.fromkeys(("issue", "alu", "fma", "xu", "fp64"), left)
    waits = waits_keep(_waits_for_instructions(one), left)
    return Pulled(Effect(pipes, waits), [evidence], uses_code=one.code is not None)


@lever("divergence")
def divergence(one: Situation) -> Pulled | None:
    """Keep all threads of a warp active."""
    facts = constants()["divergence"]
    lanes = one.get("lanes")
    if one.is_reduction and one.integer_division_share > constants()["instructions"]["least_divisions"]:
        return _by_remainders(one)
    if math.isnan(lanes):
        return _by_warps_that_end(one) or _of_an_unknown_tree(one)
    evidence = one.evidence("threads of a warp that take part", lanes, "thread", "lanes")
    missing = 1 - lanes / min(WARP, one.get("warp_threads", WARP) or WARP)
    if missing < facts["least"]:
        return nothing("nearly all threads take part", evidence)
    left = keeps(missing, facts["strength"])
    waits = waits_keep(one.waits("wait", "branch_resolving", "barrier", "math_pipe_throttle", "dispatch_stall"), left)
    return Pulled(Effect(dict.fromkeys((*PIPES, "lsu", "l1"), left), waits), [evidence])


def _by_remainders(one: Situation) -> Pulled:
    """Choose threads of a reduction by contiguous index, not by remainder, which keeps few active per warp."""
    left = Left(*constants()["divergence"]["contiguous"])
    divided = one.evidence(
        "of integer divisions and remainders", one.integer_division_share, "fraction", "instructions", "xu"
    )
    waits = waits_keep(_waits_for_instructions(one), left)
    return Pulled(Effect(dict.fromkeys((*PIPES, "lsu"), left), waits), [divided], case="remainders")


def _of_an_unknown_tree(one: Situation) -> Pulled | None:
    """A sum that keeps neither DRAM nor L2 busy, of which nobody counted the threads that take part: a guess."""
    if not one.is_reduction or not one.memory_busy <= constants()["divergence"]["memory_busy"]:
        return None
    left = Left(*constants()["divergence"]["unknown_tree"])
    return Pulled(Effect(dict.fromkeys((*PIPES, "sm", "lsu", "l1"), left), left), is_guess=True)


def _by_warps_that_end(one: Situation) -> Pulled | None:
    """Split blocks of which most warps end early, while the rest hold the block's place on the SM."""
    facts = constants()["divergence"]
    waves, most = one.get("waves"), one.get("theoretical")
    if not (waves > facts["waves"] and most > 0):
        return None
    achieved, life = one.get("achieved") / most, one.kernel.time_ns / waves
    if not (achieved < facts["still_there"] and life > facts["long_blocks"] * constants()["blocks"]["start_ns"]):
        return None
    evidence = one.evidence("warps on an SM, of those that fit", achieved, "fraction", "achieved", "theoretical")
    return Pulled(Effect(time=keeps(1 - achieved, facts["strength"])), [evidence], case="warps")


@lever("release-build")
def release_build(one: Situation) -> Pulled | None:
    """Compile with optimisation."""
    facts = constants()["release"]
    if one.code is None or not one.is_for_a_debugger:
        return None
    moves = one.code.self_moves / one.code.total
    evidence = one.evidence("moves of a register to itself, of all instructions", moves, "fraction", "instructions")
    left = Left(*facts["left"])
    return Pulled(Effect(dict.fromkeys(("issue", "alu", "fma"), left), left), [evidence], uses_code=True)
