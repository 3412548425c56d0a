"""Levers apart from the others: they change the numerics, replace the kernel, or join it with its neighbours."""

from __future__ import annotations

import math
import re

from ncu_tools.advice.levers.lever import Pulled, lever
from ncu_tools.advice.situation.constants import constants
from ncu_tools.advice.situation.kernel_situation import Situation
from ncu_tools.advice.situation.model import Effect, Left

WITHOUT_TENSOR_CORES = ("3", "5", "6")
"""Major compute capabilities of GPUs without tensor cores."""


@lever("fuse")
def fuse(one: Situation) -> Pulled | None:
    """Fuse a kernel that exchanges data with others through DRAM or L2, or that is hardly longer than a launch."""
    facts = constants()["fuse"]
    time = one.kernel.time_ns
    if time < facts["short_ns"]:
        floor = min(1.0, constants()["model"]["floor_ns"] / time)
        evidence = one.evidence("time of a launch", time, "ns", "launch_ns")
        return Pulled(Effect(time=Left(*(1 - floor * part for part in facts["of_floor"])), has_floor=False), [evidence])
    memory = one.busiest("dram", "l2", "memory")
    if not memory > facts["busy"] or one.is_gemm:
        return None
    left = Left(*facts["left"])
    evidence = one.evidence("DRAM, L2 or memory busy", memory, "fraction", "dram", "l2", "memory")
    return Pulled(Effect({"dram": left, "l2": left, "xbar": left}, Left(*facts["waiting"])), [evidence])


@lever("lower-precision")
def lower_precision(one: Situation) -> Pulled | None:
    """Use a narrower type for FP64 or FP32 work and traffic."""
    facts = constants()["precision"]
    double = one.busy("fp64")
    if double > facts["fp64_busy"]:
        evidence = one.evidence("FP64 pipe busy", double, "fraction", "fp64")
        return Pulled(Effect({"fp64": Left(*facts["fp64"])}, Left(*facts["waiting"])), [evidence])
    if not one.is_in_floats or not one.bound > facts["busy"]:
        return None
    half, packed, converted = (Left(*facts[name]) for name in ("half", "packed", "converted"))
    work = dict.fromkeys(("dram", "fma", "l2", "xbar", "tensor"), half)
    if one.is_double:
        work |= {"l1": half, "lsu": Left(*facts["requests_of_double"])}
    else:
        work |= {"l1": packed, "lsu": packed, "issue": converted}
    is_of_bytes = one.is_double or one.busiest("dram", "fma", "l2", "tensor") > facts["busy"]
    evidence = one.evidence("the busiest resource, busy", one.bound, "fraction", one.kernel.bound[0])
    return Pulled(Effect(work, Left(*facts["waiting"]) if is_of_bytes else packed), [evidence])


@lever("tensor-cores")
def tensor_cores(one: Situation) -> Pulled | None:
    """Run matrix products in FP32 or less on tensor cores instead of CUDA cores."""
    is_product = one.is_product or one.looks_like_a_product
    if (
        not is_product
        or one.uses_tensor_cores
        or one.is_double
        or one.kernel.capability.split(".")[0] in WITHOUT_TENSOR_CORES
    ):
        return None
    evidence = one.evidence("FMA pipe busy", one.busy("fma"), "fraction", "fma")
    return Pulled(Effect(time=Left(*constants()["tensor"]["left"])), [] if math.isnan(evidence.value) else [evidence])


@lever("library-kernel")
def library_kernel(one: Situation) -> Pulled | None:
    """Use a library's kernel, another tile or a newer version for products, reductions, sorts and attention."""
    facts = constants()["library"]
    newer = _left_by_newer_attention(one)
    if newer is not None and one.bound <= facts["dram_at_roof"]:
        busiest, share = one.kernel.bound
        title = "the busiest resource of an older attention kernel, busy"
        return Pulled(Effect(time=newer), [one.evidence(title, share, "fraction", busiest)])
    is_product = one.is_product or one.looks_like_a_product
    if not is_product:
        if one.is_from_a_library or not one.is_in_libraries or one.bound > facts["dram_at_roof"]:
            return None
        return Pulled(Effect({}, Left(*facts["known_pattern"])), is_guess=True)
    pipe = "tensor" if one.uses_tensor_cores else "fp64" if one.is_double else "fma"
    useful = one.busy(pipe) * _multiply_adds(one) if pipe == "fma" else one.busy(pipe)
    title = {"tensor": "tensor pipe busy", "fp64": "FP64 pipe busy"}.get(pipe, "FMA pipe busy with multiply-adds")
    if math.isnan(useful):
        if one.is_from_a_library:
            return None
        useful, evidence = facts["unknown"], []
    else:
        evidence = [one.evidence(title, useful, "fraction", pipe)]
    factor = facts["short"] if one.kernel.time_ns < facts["short_ns"] else 1.0
    left = Left(*(min(1.1, useful / (busy * factor)) for busy in facts["busy"]))
    return Pulled(Effect(time=left), evidence, uses_code=one.code is not None, is_guess=not evidence)


def _left_by_newer_attention(one: Situation) -> Left | None:
    """The share of the time that a newer library's attention takes; None for kernels without a newer version."""
    for older in constants()["library"]["older_attention"]:
        is_here = older.get("capability", one.kernel.capability) == one.kernel.capability
        if is_here and re.search(older["kernels"], one.kernel.name):
            return Left(*older["left"])
    return None


def _multiply_adds(one: Situation) -> float:
    """The share of FFMA in the instructions of the FMA pipe; 1 without the code."""
    if one.code is None:
        return 1.0
    every = one.code.count("FFMA|IMAD|FMUL|FADD")
    return min(1.0, one.code.count("FFMA") / every) if every else 1.0
