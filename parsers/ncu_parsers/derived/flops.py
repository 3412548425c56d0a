"""Compute time, FLOPs by precision and unit, bytes by level, and ceilings from metrics.

Weights, metric names and their sources are in the tables of `ncu_launch.counters.metrics`; this file has the rules for
adding them up:

* A precision is known only if its adds, products and FMAs are: counted, or told by opcodes, or by an idle pipe.
* If tensor instructions ran and their operations are not known, total FLOPs are unknown: null.
* FP16 FMAs that may be constant moves count as such unless they outweigh all other operations of the launch. The same
  instructions cause tensor pipe activity without tensor work.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
from ncu_launch.counters import metrics as known

from ncu_parsers.derived.core_flops import CoreFlops, core_flops, doubtful_fp16
from ncu_parsers.derived.counter_columns import Counters, Mask, sum_known
from ncu_parsers.derived.flops_basis import SOURCES, BasisMark, basis
from ncu_parsers.derived.report_peaks import peaks
from ncu_parsers.derived.tensor_flops import counted_operations, fill_without_counters, tensor_evidence
from ncu_parsers.schema.tables import Floats


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
    tensor, complete = counted_operations(counters)
    filled = fill_without_counters(counters, tensor, complete)
    complete = complete | filled.by_shape | filled.unchecked | filled.estimated | filled.by_instruction
    tensor_flops = sum_known([tensor[f"tensor_flops_{precision}"] for precision in known.TENSOR_FLOAT_PRECISIONS])
    cores = core_flops(counters, ~np.isnan(tensor_flops))
    doubtful = doubtful_fp16(counters, cores, tensor_flops)
    idle, uncounted = tensor_evidence(counters, tensor_flops)
    of_cores = {precision: found.flops for precision, found in cores.items()}
    half = np.where(doubtful.left_out, 0.0, of_cores["fp16"])
    total = sum_known([of_cores["fp64"], of_cores["fp32"], half, tensor_flops])
    some = _any_known([*of_cores.values(), tensor_flops])
    # A partial sum is a lower bound, which the basis states; a partial sum of 0 carries no information.
    partial = (
        ~_all_known(list(of_cores.values())) | (np.isnan(tensor_flops) & ~idle) | (~np.isnan(tensor_flops) & ~complete)
    )
    marks = _core_marks(cores) | {
        BasisMark.LEFT_OUT: doubtful.left_out,
        BasisMark.HFMA_ALONE: doubtful.counted,
        BasisMark.MOVES_BESIDE: doubtful.beside_others,
        BasisMark.TENSOR: ~np.isnan(tensor_flops),
        BasisMark.COMPLETE: complete,
        BasisMark.BY_SHAPE: filled.by_shape,
        BasisMark.BY_UNCHECKED_SHAPE: filled.unchecked,
        BasisMark.BY_GROUP_SHAPE: filled.estimated,
        BasisMark.BY_INSTRUCTION: filled.by_instruction,
        BasisMark.IDLE: idle,
        BasisMark.UNCOUNTED: uncounted,
        BasisMark.NO_PACKED: _lacks_packed_fp32(counters, cores["fp32"]),
    }
    return {
        **{f"flops_{precision}": values for precision, values in of_cores.items()},
        **tensor,
        "tensor_flops": tensor_flops,
        "flops": np.where(some & ~uncounted & ~(partial & (total == 0)), total, np.nan),
        "flops_basis": basis(marks, some),
    }


def _core_marks(cores: dict[str, CoreFlops]) -> dict[tuple[str, str] | BasisMark, Mask]:
    return {
        (source, precision): mask
        for precision, found in cores.items()
        for source, mask in zip(
            SOURCES,
            (found.from_counters, found.from_opcodes, found.from_instructions, found.from_pipe),
            strict=True,
        )
    }


def _any_known(parts: list[Floats]) -> Mask:
    return np.asarray(~np.isnan(np.stack(parts)).all(axis=0), dtype=bool)


def _all_known(parts: list[Floats]) -> Mask:
    return np.asarray(~np.isnan(np.stack(parts)).any(axis=0), dtype=bool)


def _lacks_packed_fp32(counters: Counters, fp32: CoreFlops) -> Mask:
    """True where the chip counts packed FP32 separately and it was not collected (bool, one per launch)."""
    apart = counters.where(known.has_packed_fp32)
    return apart & np.isnan(counters.executed_threads("ffma2")) & ~np.isnan(fp32.instructions["ffma"])
