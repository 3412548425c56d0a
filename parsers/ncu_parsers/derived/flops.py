"""Compute time, FLOPs by precision and unit, bytes by level, and ceilings from metrics.

Weights, metric names and their sources are in the tables of `ncu_launch.counters.metrics`; this file has the rules for
adding them up:

* A precision is known only if its add, mul and fma counters are.
* If tensor instructions ran and their operations were not collected, total FLOPs are unknown: null.
* hfma without hadd and hmul, on chips whose compiler moves constants with hfma, counts as constant moves unless it
  outweighs all other operations of the launch. The same instructions cause tensor pipe activity without tensor work.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
from ncu_launch.counters import metrics as known

from ncu_parsers.derived.counter_columns import Counters, Mask, sum_known
from ncu_parsers.derived.report_peaks import peaks
from ncu_parsers.derived.tensor_flops import counted_operations, fill_without_counters, tensor_evidence
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import Floats, or_zero


def measures(counters: Counters) -> dict[str, Floats | pa.Array]:
    """Every measure column, by name: float64 (ns, FLOP, byte, hz, rates per s), one per launch, NaN if missing; texts
    as Arrow arrays."""
    result: dict[str, Floats | pa.Array] = {"duration_ns": counters.seconds * 1e9}
    result.update(_flops(counters))
    for column, level in (
        ("dram_bytes", "dram"), ("dram_read_bytes", "dram_read"), ("dram_write_bytes", "dram_write"),
        ("l2_bytes", "l2"), ("l1_bytes", "l1"),
    ):  # fmt: skip
        result[column] = _bytes(counters, level)
    result["sm_clock_hz"] = counters.first(known.clock_metrics("sm"))
    result["dram_clock_hz"] = counters.first(known.clock_metrics("dram"))
    result.update(peaks(counters))
    return result


def _bytes(counters: Counters, level: str) -> Floats:
    """Bytes of a level (float64, one per launch), by the first alternative with all counters; sums before rates."""
    result = counters.nothing
    for amount in (counters.counted, counters.total):
        for alternative in known.byte_alternatives(level):
            parts = {base: amount(base) for base in alternative}
            if not any(part is counters.nothing for part in parts.values()):
                total = sum((part * alternative[base] for base, part in parts.items()), np.zeros(counters.rows))
                if known.is_system_memory(alternative):
                    total = np.where(counters.where(known.has_system_memory_alone), total, np.nan)
                result = counters.either(result, total)
    return counters.either(result, _l1_by_parts(counters)) if level == "l1" else result


def _l1_by_parts(counters: Counters) -> Floats:
    """Bytes at L1 as the sum of its parts (float64, one per launch); NaN if a part is missing or not covered."""
    parts = known.l1_parts()
    amounts = [counters.total(base) for base in parts.counters]
    if any(amount is counters.nothing for amount in amounts):
        return counters.nothing
    total: Floats = np.sum(amounts, axis=0) * parts.bytes_per_count
    for since, bases in parts.must_be_zero:
        concerned = counters.where(partial(known.may_be_from, since))
        for base in bases:
            total = np.where(concerned & ~(counters.total(base) == 0), np.nan, total)
    return total


# --------------------------------------------------------------------------------------------------------- FLOPs


def _flops(counters: Counters) -> dict[str, Floats | pa.Array]:
    cores = {precision: _cuda_core_flops(counters, precision) for precision in known.CUDA_CORE_PRECISIONS}
    tensor, complete = counted_operations(counters)
    by_opcode, by_instruction = fill_without_counters(counters, tensor)
    complete = complete | by_opcode | by_instruction
    tensor_flops = sum_known([tensor[f"tensor_flops_{precision}"] for precision in known.TENSOR_FLOAT_PRECISIONS])
    phantom, hfma_alone = _phantom_fp16(counters, cores, tensor_flops)
    idle, uncounted = tensor_evidence(counters, tensor_flops)
    total = sum_known([cores["fp64"], cores["fp32"], np.where(phantom, 0.0, cores["fp16"]), tensor_flops])
    some = _any_known([*cores.values(), tensor_flops])
    # A partial sum is a lower bound, which the basis states; a partial sum of 0 carries no information.
    partial = (
        ~_all_known(list(cores.values())) | (np.isnan(tensor_flops) & ~idle) | (~np.isnan(tensor_flops) & ~complete)
    )
    marks = {f"sass {precision}": ~np.isnan(values) for precision, values in cores.items()}
    marks |= {
        "tensor": ~np.isnan(tensor_flops),
        "complete": complete,
        "by opcode": by_opcode,
        "by instruction": by_instruction,
        "phantom": phantom,
        "hfma alone": hfma_alone,
        "idle": idle,
        "uncounted": uncounted,
        "no packed": _lacks_packed_fp32(counters),
    }
    return {
        **{f"flops_{precision}": values for precision, values in cores.items()},
        **tensor,
        "tensor_flops": tensor_flops,
        "flops": np.where(some & ~uncounted & ~(partial & (total == 0)), total, np.nan),
        "flops_basis": _basis(marks, some),
    }


def _any_known(parts: list[Floats]) -> Mask:
    return np.asarray(~np.isnan(np.stack(parts)).all(axis=0), dtype=bool)


def _all_known(parts: list[Floats]) -> Mask:
    return np.asarray(~np.isnan(np.stack(parts)).any(axis=0), dtype=bool)


def _basis(marks: dict[str, Mask], some: Mask) -> pa.Array:
    """The text of `flops_basis`, one per launch: which counters gave the total, and what it excludes."""
    names = list(marks)
    codes = sum(
        (mask.astype(np.int64) << bit for bit, mask in enumerate(marks.values())), np.zeros(len(some), np.int64)
    )
    found = np.flatnonzero(np.bincount(codes)).tolist()  # faster than numpy.unique for so few bits
    words = [_basis_text({name for bit, name in enumerate(names) if code >> bit & 1}) for code in found]
    distinct = list(dict.fromkeys(words))
    place_of = np.zeros(1 << len(names), np.int32)
    place_of[found] = [distinct.index(text) for text in words]
    return arrays.coded(np.where(some, place_of[codes], -1).astype(np.int32), distinct)


def _basis_text(marks: set[str]) -> str:
    used = [precision for precision in known.CUDA_CORE_PRECISIONS if f"sass {precision}" in marks]
    missing = [precision for precision in known.CUDA_CORE_PRECISIONS if precision not in used]
    words = ["sass " + "+".join(used)] if used else []
    if "by opcode" in marks:
        words.append("tensor ops from the shapes of opcodes")
    elif "by instruction" in marks:
        words.append("tensor ops estimated: 512 per instruction")
    elif "tensor" in marks:
        words.append("tensor ops" if "complete" in marks else "tensor ops (not every type)")
    elif "idle" not in marks:
        missing.append("tensor, which was busy" if "uncounted" in marks else "tensor")
    if "no packed" in marks:
        missing.append("packed fp32")
    if "phantom" in marks:
        words.append("fp16 left out: constant moves")
    if "hfma alone" in marks:
        words.append("fp16 is hfma alone and may be constant moves")
    if missing:
        words.append("not collected: " + ", ".join(missing))
    return "; ".join(words)


def _cuda_core_flops(counters: Counters, precision: str) -> Floats:
    """FLOPs of one precision on CUDA cores (float64, one per launch); NaN unless add, mul and fma were all counted."""
    total = np.zeros(counters.rows)
    for opcode, weight in known.flop_weights(precision).items():
        total = total + counters.thread_instructions(opcode) * weight
    if precision == "fp32":
        for opcode, weight in known.packed_fp32_weights().items():
            packed = counters.thread_instructions(opcode)
            if packed is not counters.nothing:
                total = total + np.where(np.isnan(packed), 0.0, packed * weight)
    return total


def _phantom_fp16(counters: Counters, cores: dict[str, Floats], tensor_flops: Floats) -> tuple[Mask, Mask]:
    """Where only hfma was counted, on a chip that moves constants with hfma (bool, one per launch): first, where other
    work is larger, so that hfma counts as constant moves; second, where it is not, so that hfma counts, with a warning.
    """
    hadd, hmul = (counters.thread_instructions(opcode) for opcode in ("hadd", "hmul"))
    alone = (hadd == 0) & (hmul == 0) & (cores["fp16"] > 0)
    alone &= counters.where(known.moves_constants_with_hfma)
    others = or_zero(cores["fp64"]) + or_zero(cores["fp32"]) + or_zero(tensor_flops)
    outweighed = or_zero(cores["fp16"]) <= others
    return alone & outweighed, alone & ~outweighed


def _lacks_packed_fp32(counters: Counters) -> Mask:
    """True where the chip counts packed FP32 separately and it was not collected (bool, one per launch)."""
    apart = counters.where(known.has_packed_fp32)
    return apart & np.isnan(counters.thread_instructions("ffma2")) & ~np.isnan(counters.thread_instructions("ffma"))
