"""Levers on parallelism: blocks, warps, independent instructions, balance of SMs, and updates that queue."""

from __future__ import annotations

import math

from ncu_tools.advice.levers.lever import (
    INSTRUCTION_WAITS,
    SHARED_WAITS,
    SM_PIPES,
    Pulled,
    falls_by,
    lever,
    nothing,
    share,
    waits_keep,
)
from ncu_tools.advice.situation.constants import constants
from ncu_tools.advice.situation.kernel_situation import WARP, LeverEvidence, Situation
from ncu_tools.advice.situation.model import Effect, Left, effects_overlapping
from ncu_tools.numbers.number_format import percent

HIDDEN_BY_WARPS = (
    "long_scoreboard", "short_scoreboard", "wait", "barrier", "membar", "branch_resolving", "no_instructions",
    "imc_miss", "drain", "sleeping",
)  # fmt: skip
"""Stalls during which other warps can issue, unlike stalls for a busy pipe or a lost issue slot."""


def is_contended(one: Situation) -> bool:
    """True if warps queue for one another: one L2 slice is busiest by far, or nothing is busy on full SMs."""
    facts = constants()["contention"]
    slice_busy, slice_mean = one.get("slice_busy"), one.get("slice_mean")
    if slice_busy > facts["slice_busy"] and slice_mean < facts["slice_mean"] * slice_busy:
        return True
    if not one.bound < facts["most_busy"] or not one.get("waves", one.least_blocks_per_sm) >= 1:
        return False
    return bool(one.cycles_per_instruction > facts["least_cycles"])


@lever("privatise-atomics")
def privatise_atomics(one: Situation) -> Pulled | None:
    """Give threads private copies of few addresses whose atomic updates queue."""
    facts = constants()["contention"]
    if one.code is not None and not one.code.of(r"ATOM|RED(?!UX)"):
        return None
    evidence = [
        one.evidence(
            "cycles between two instructions of a warp", one.cycles_per_instruction, "cycle", "latency", "achieved"
        ),
        one.evidence("the busiest resource, busy", one.bound, "fraction", one.kernel.bound[0]),
    ]
    if not is_contended(one):
        if one.is_histogram and one.code is None and not one.uses_shared_memory:
            left = Left(*facts["scattered"])
            passes = one.evidence("L1 busy with updates of a histogram", one.busy("l1"), "fraction", "l1")
            return Pulled(Effect(dict.fromkeys(("l1", "l2", "xbar", "lsu"), left)), [passes], case="bins")
        if one.code is not None or one.get("atomics", 0.0) > 0:
            return nothing("updates do not queue", *evidence)
        return None
    time = Left(*(min(1.0, max(left, one.bound / facts["busy_after"])) for left in facts["left"]))
    return Pulled(Effect(time=time), evidence, uses_code=one.code is not None)


@lever("block-size")
def block_size(one: Situation) -> Pulled | None:
    """Choose another block size where blocks are too small or too large for the kernel."""
    facts = constants()["blocks"]
    threads = one.threads
    if not threads > 0:
        return _nothing_is_busy(one)
    evidence = one.evidence("threads of a block", threads, "thread", "threads")
    if threads < WARP and not one.busiest("dram", "l2", "l1") >= facts["memory_busy"]:
        return _less_than_a_warp(one, evidence)
    if is_contended(one) and threads < facts["usual"]:
        larger = facts["usual"] / threads
        return Pulled(Effect(time=Left(0.7 / larger, min(1.0, 1.6 / larger), 1.0)), [evidence])
    is_alone = one.get("limit_warps") <= 1
    if (is_alone or one.get("limit_blocks") < one.get("limit_warps")) and one.get("waves", math.inf) > 1:
        fitting = one.evidence("warps that fit on an SM", one.get("theoretical"), "fraction", "theoretical")
        gain = 1 / max(one.get("theoretical", 0.7), 0.3)
        left = falls_by(gain, constants()["occupancy"]["waiting"])
        if is_alone:
            left = left.times(_starts_hidden(one))
        return Pulled(Effect({}, left), [evidence, fitting])
    if not one.kernel.busy and math.isnan(one.excess[0]):
        return Pulled(Effect(time=Left(*facts["unknown"])), [evidence], is_guess=True)
    return Pulled(Effect({}, Left(*facts["any"])), [evidence], nothing="other sizes change little")


def _less_than_a_warp(one: Situation, evidence: LeverEvidence) -> Pulled:
    """Blocks smaller than a warp: its idle threads can share a loop, or hold more threads of the grid."""
    facts = constants()["blocks"]
    if one.threads_loop and one.get("blocks") * one.threads < WARP:
        return Pulled(Effect(time=falls_by(facts["usual"] / one.threads, facts["alone"])), [evidence])
    if one.threads_loop:
        return Pulled(Effect(time=falls_by(WARP / one.threads, facts["shared_out"])), [evidence])
    gain = one.threads_of_whole_warps / (one.threads_on_an_sm or math.nan)
    if gain > facts["least_gain"]:
        return Pulled(Effect(time=falls_by(gain, facts["whole_warps"])), [evidence])
    return nothing("the grid has no more threads than are on the SMs", evidence)


def _starts_hidden(one: Situation) -> Left:
    """The time left where the only block of an SM is split, so that blocks start and end while others work."""
    life = one.kernel.time_ns / one.get("waves")
    idle = share(constants()["blocks"]["start_ns"] / life)
    return Left(1 - idle, 1 - idle / 2, 1.0)


def _nothing_is_busy(one: Situation) -> Pulled | None:
    """For an unknown launch shape: if no resource is busy, the kernel has too few threads, or they queue.

    None if a busy resource is known, or if only memory or only the SMs were collected, and for tensor-core kernels if
    neither their pipe nor the SM as a whole was.
    """
    are_collected = not (math.isnan(one.busy("tensor")) and math.isnan(one.busy("sm")))
    if one.is_several_kernels or (one.uses_tensor_cores and not are_collected):
        return None
    # DRAM and L2 alone do not show whether the SMs have work, nor do the SMs alone show what memory does.
    of_memory, of_sms = one.busiest("dram", "l2", "l1", "memory"), one.busiest("l1", "memory", "sm", "tensor")
    if math.isnan(of_memory + of_sms) or not one.bound < constants()["contention"]["most_busy"]:
        return None
    busy = max(one.bound / 0.9, 0.002)
    evidence = one.evidence("the busiest resource, busy", one.bound, "fraction", one.kernel.bound[0])
    return Pulled(Effect(time=Left(busy / 3, busy, min(1.0, busy * 4))), [evidence])


@lever("grid-size")
def grid_size(one: Situation) -> Pulled | None:
    """Launch more blocks where there are fewer than SMs, or where the last wave is nearly empty."""
    facts = constants()["blocks"]
    per_sm, waves = one.blocks_per_sm, one.get("waves")
    if math.isnan(per_sm) and math.isnan(one.get("blocks")):
        return _nothing_is_busy(one)
    evidence = [one.evidence("blocks for each SM", per_sm, "block", "blocks", "sm_count")]
    if per_sm < 1:
        if one.kernel.time_ns < facts["short_ns"]:
            return Pulled(Effect(time=Left(*facts["short"])), evidence)
        shared = share(one.busiest("dram", "l2")) / 0.9
        left = [per_sm**exponent for exponent in facts["split" if per_sm < 0.5 else "split_little"]]
        places = one.get("theoretical", 1.0) or 1.0
        filled = max(one.filled / places, one.get("waves", 0.0)) / (per_sm or math.nan)
        if 0 < filled < facts["filled"] and not one.bound > constants()["occupancy"]["busy_enough"]:
            left = [each * more for each, more in zip(left, falls_by(1 / filled, facts["split_little"]), strict=True)]
        return Pulled(Effect(time=Left(*(min(1.0, max(shared, each)) for each in left))), evidence)
    if 1 < waves < facts["few_waves"]:
        last = (math.ceil(waves) - waves) / math.ceil(waves)
        evidence.insert(0, one.evidence("waves", waves, "wave", "waves"))
        return Pulled(Effect(time=Left(*(1 - last * part for part in facts["last_wave"]))), evidence)
    is_long = one.kernel.time_ns > facts["short_ns"]
    if math.isnan(per_sm) and 0 < one.most_filled < facts["hardly_filled"] and is_long:
        title = "threads on an SM, of those it holds, at most on a GPU of 10 SMs or more"
        held = one.evidence(title, one.most_filled, "fraction", "threads", "blocks")
        return Pulled(Effect({}, falls_by(1 / one.most_filled, facts["split_little"])), [held])
    filled = one.filled
    if waves < 1 and 0 < filled < facts["filled"] and is_long:
        held = one.evidence("threads on an SM, of those it holds", filled, "fraction", "threads", "blocks")
        evidence.insert(0, held)
        if not (one.bound > constants()["occupancy"]["busy_enough"] or is_contended(one)):
            best = falls_by(1 / filled, facts["split_little"]).best
            of_this_size = falls_by(1 / max(filled, waves), facts["split_little"])
            return Pulled(Effect({}, of_this_size._replace(best=best)), evidence)
    if per_sm > 0:
        return nothing("every SM has blocks already", *evidence)
    return None


@lever("balance")
def balance(one: Situation) -> Pulled | None:
    """Balance work between blocks where some SMs end long before others."""
    facts = constants()["balance"]
    idle, tail, empty = one.get("idle"), one.get("tail", 0.0), one.get("empty_sms", share(1 - one.blocks_per_sm))
    uneven = idle - empty - min(tail, max(0.0, idle - empty))
    if math.isnan(uneven) or one.is_several_kernels:
        return None
    evidence = one.evidence("time that an SM has no work, mean over SMs", idle, "fraction", "idle")
    if uneven < facts["least"] or one.kernel.time_ns < facts["least_ns"]:
        return nothing("SMs have work alike", evidence)
    return Pulled(Effect(time=Left(*(1 - uneven * part for part in facts["strength"]))), [evidence])


@lever("occupancy")
def occupancy(one: Situation) -> Pulled | None:
    """Raise the theoretical occupancy, which registers, shared memory or the block size limit."""
    facts = constants()["occupancy"]
    most, registers = one.get("theoretical"), one.get("registers")
    if not most > 0:
        left = falls_by(facts["unknown_gain"], facts["waiting"])
        return Pulled(Effect({}, left), is_guess=True) if one.bound <= facts["busy_enough"] else None
    limit = _what_limits_blocks(one)
    evidence = [
        one.evidence("warps that fit on an SM, of its slots", most, "fraction", "theoretical"),
        one.evidence("threads of a block", one.threads, "thread", "threads")
        if limit == "block"
        else one.evidence("registers of a thread", registers, "register", "registers"),
    ]
    evidence = [each for each in evidence if not math.isnan(each.value)]
    if most > facts["enough"]:
        return nothing("warps fill the SMs", *evidence)
    if one.blocks_per_sm < 1 or one.get("waves") < 1:
        if registers > facts["many_registers"]:
            return Pulled(Effect({}, Left(*facts["fewer_registers"])), evidence, case="registers")
        return nothing("the grid has no more warps than are on the SMs", *evidence)
    if one.bound > facts["busy_enough"]:
        return nothing(f"{one.bound_title} is busy for {percent(one.bound)} of the time all the same", *evidence)
    work = {name: Left(1.0, 1.0, facts["issue"]) for name in ("issue", "alu", "fma")}
    hidden = one.kernel.stalled(*HIDDEN_BY_WARPS)
    left = falls_by(min(1 / most, facts["most_gain"]), facts["waiting"])
    if math.isnan(hidden):
        return Pulled(Effect(work, left), evidence, case=limit)
    evidence.append(one.evidence("time that a warp waits for what other warps hide", hidden, "fraction", "stalls"))
    return Pulled(Effect(work, waits_keep(hidden, left)), evidence, case=limit)


def _what_limits_blocks(one: Situation) -> str:
    """The only limiter of blocks per SM: "registers", "shared" memory, or "block", its warps; else "".

    "block" also where another resource limits equally, as relieving that one makes no room; "" if registers and shared
    memory limit equally, or if a limit is unknown.
    """
    registers, shared = one.get("limit_registers"), one.get("limit_shared")
    block = min(one.get("limit_warps"), one.get("limit_blocks", math.inf))
    if math.isnan(registers + shared + block):
        return ""
    if block <= min(registers, shared):
        return "block"
    if registers == shared:
        return ""
    return "registers" if registers < shared else "shared"


@lever("more-in-flight")
def more_in_flight(one: Situation) -> Pulled | None:
    """Keep more independent instructions in flight where warps wait for results and no resource is busy."""
    facts = constants()["in_flight"]
    waits = one.kernel.stalled("long_scoreboard", "wait", "short_scoreboard")
    evidence = (
        []
        if math.isnan(waits)
        else [one.evidence("time that a warp waits for results", share(waits), "fraction", "stalls")]
    )
    if one.sums_over_a_block and not is_contended(one) and one.memory_busy <= facts["busy_enough"]:
        return _several_elements(one, waits)
    if one.bound > facts["busy_enough"]:
        return nothing(f"{one.bound_title} is busy for {percent(one.bound)} of the time", *evidence)
    if is_contended(one):
        return nothing("warps wait for one another", *evidence)
    if math.isnan(one.bound) and math.isnan(waits):
        return Pulled(Effect(time=Left(*facts["unknown"])), evidence, is_guess=True)
    return Pulled(Effect({}, _by_more_in_flight(waits)), evidence)


def _several_elements(one: Situation, waits: float) -> Pulled:
    """Let each thread of a block's sum add several elements first, so that fewer trees are needed."""
    facts = constants()["in_flight"]
    left = Left(*(1 - facts["of_tree"] * (1 - 1 / many) for many in facts["elements"]))
    evidence = one.evidence(
        "shared memory for each thread", one.own_shared / one.threads, "byte", "shared_static", "shared_dynamic"
    )
    tree = Effect(
        dict.fromkeys((*SM_PIPES, "l1", "lsu"), left),
        waits_keep(one.waits("barrier", *SHARED_WAITS, *INSTRUCTION_WAITS), left),
    )
    return Pulled(effects_overlapping(tree, Effect({}, _by_more_in_flight(waits))), [evidence], case="sum")


def _by_more_in_flight(waits: float) -> Left:
    """The waiting left with more instructions in flight, where the part `waits` of it is for results."""
    facts = constants()["in_flight"]
    waits = facts["unknown_waits"] if math.isnan(waits) else waits
    return waits_keep(waits, [factor ** -facts["exponent"] for factor in facts["factor"]])
