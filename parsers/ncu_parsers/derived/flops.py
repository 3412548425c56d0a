"""FLOPs of launches by precision and unit, and the text that says what they rest on.

Weights, metric names and their sources are in the tables of `ncu_launch.counters.metrics`; this file has the rules for
adding them up:

* CUDA cores: the adds, products and FMAs of a precision are each taken from the first of these that the launch has:
  counters, counts per opcode, the zero of a pipe that is known to have been idle. A precision is known once all three
  are. Full sets, for example, count `hfma` and neither `hadd` nor `hmul`, but list every opcode. Counts per opcode are
  those that a report lists, or the sums of what it counts per instruction.
* If tensor instructions ran and their operations are not known, total FLOPs are unknown: null.
* FP16 FMAs that may be constant moves count as such unless they outweigh all other operations of the launch. The same
  instructions cause tensor pipe activity without tensor work.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from ncu_launch.counters import metrics as known

from ncu_parsers.derived.counter_columns import Counters, Mask, sum_known
from ncu_parsers.derived.opcode_lists import MOVES, SURE_FMAS
from ncu_parsers.derived.tensor_flops import counted_operations, fill_without_counters, tensor_evidence
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import Floats, or_zero

NOTABLE = 0.02
"""Share of a launch's FLOPs from which on instructions that may be constant moves are worth a word."""

SOURCES = ("sass", "opcodes", "instructions", "idle pipe")
"""What the FLOPs of a precision come from: counters of the code (SASS), counts per opcode, counts per instruction, the
zero of an idle pipe."""


def flops_columns(counters: Counters) -> dict[str, Floats | pa.Array]:
    """The columns of FLOPs (float64, one per launch; NaN if unknown), and `flops_basis` as an Arrow array."""
    tensor, complete = counted_operations(counters)
    filled = fill_without_counters(counters, tensor, complete)
    complete = complete | filled.by_shape | filled.unchecked | filled.estimated | filled.by_instruction
    tensor_flops = sum_known([tensor[f"tensor_flops_{precision}"] for precision in known.TENSOR_FLOAT_PRECISIONS])
    cores = _core_flops(counters, ~np.isnan(tensor_flops))
    doubtful = _doubtful_fp16(counters, cores, tensor_flops)
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
        "flops_basis": _basis(marks, some),
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


# ---------------------------------------------------------------------------------------------------------- CUDA cores


class CoreFlops(NamedTuple):
    """FLOPs of one precision (float64, one per launch; NaN if unknown), and which sources they needed.

    `from_counters`, `from_opcodes`, `from_instructions` and `from_pipe` (bool, one per launch) name the last source
    that was needed: at most one is true, and none where the FLOPs are unknown. `instructions` has the thread
    instructions of each counter.
    """

    flops: Floats
    from_counters: Mask
    from_opcodes: Mask
    from_instructions: Mask
    from_pipe: Mask
    instructions: Mapping[str, Floats]


def _core_flops(counters: Counters, tensor_known: Mask) -> dict[str, CoreFlops]:
    """The FLOPs of each precision. An idle pipe speaks only for launches of which something else was counted."""
    counted = {precision: _counted(counters, precision) for precision in known.CUDA_CORE_PRECISIONS}
    something = np.logical_or.reduce([tensor_known, *(~np.isnan(found.flops) for found in counted.values())])
    return {
        precision: _with_idle_pipe(found, _is_idle(counters, precision) & something, precision)
        for precision, found in counted.items()
    }


def _counted(counters: Counters, precision: str) -> CoreFlops:
    flops, needed_opcodes = np.zeros(counters.rows), np.zeros(counters.rows, bool)
    instructions = {}
    for counter, weight in known.flop_weights(precision).items():
        instructions[counter] = counters.executed_threads(counter)
        flops = flops + instructions[counter] * weight
        needed_opcodes |= np.isnan(counters.thread_instructions(counter))
    if precision == "fp32":
        for counter, weight in known.packed_fp32_weights().items():
            packed = or_zero(counters.executed_threads(counter))
            flops = flops + packed * weight
            needed_opcodes |= (packed > 0) & np.isnan(counters.thread_instructions(counter))
    is_known, by_instruction = ~np.isnan(flops), np.zeros(counters.rows, bool)
    by_instruction[list(counters.lists.by_instruction)] = True
    return CoreFlops(
        flops,
        is_known & ~needed_opcodes,
        is_known & needed_opcodes & ~by_instruction,
        is_known & needed_opcodes & by_instruction,
        np.zeros(counters.rows, bool),
        instructions,
    )


def _with_idle_pipe(found: CoreFlops, idle: Mask, precision: str) -> CoreFlops:
    """`found`, with a zero for instructions that were not counted and that an idle pipe cannot have run."""
    used = idle & np.isnan(found.flops)
    if not used.any():
        return found
    instructions = {
        counter: np.where(used & np.isnan(count), 0.0, count) for counter, count in found.instructions.items()
    }
    weights = known.flop_weights(precision)
    whole = sum((instructions[counter] * weights[counter] for counter in weights), np.zeros(len(used)))
    return found._replace(flops=np.where(used, whole, found.flops), from_pipe=used, instructions=instructions)


def _is_idle(counters: Counters, precision: str) -> Mask:
    """Where a counter of the precision's pipe is zero (bool, one per launch)."""
    idle = np.zeros(counters.rows, bool)
    for names in known.idle_pipes(precision):
        idle |= counters.first(names) == 0
    return idle


class DoubtfulFp16(NamedTuple):
    """Where FP16 instructions may be constant moves (bool, one per launch each; at most one is true).

    `left_out`: nothing else is FP16, and other work is larger. `counted`: nothing else is, and other work is smaller.
    `beside_others`: they stand beside other FP16 arithmetic, and are a share of the FLOPs that matters.
    """

    left_out: Mask
    counted: Mask
    beside_others: Mask


def _doubtful_fp16(counters: Counters, cores: Mapping[str, CoreFlops], tensor_flops: Floats) -> DoubtfulFp16:
    """Where FP16 instructions may be constant moves instead of arithmetic.

    Only FMAs can be. Where opcodes are known those of moves are told apart, on every chip; without, any `hfma` may be a
    move on chips that move constants so. FP16 that stands alone is taken for moves unless it outweighs the other work.
    """
    half = cores["fp16"]
    moves = counters.opcode_threads(MOVES)
    adds, products = (
        counters.either(counters.opcode_threads(counter), half.instructions[counter]) for counter in ("hadd", "hmul")
    )
    alone = (adds == 0) & (products == 0) & (half.flops > 0)
    alone &= ~(counters.opcode_threads(SURE_FMAS) > 0)
    alone &= counters.where(known.moves_constants_with_hfma) | (moves > 0)
    others = or_zero(cores["fp64"].flops) + or_zero(cores["fp32"].flops) + or_zero(tensor_flops)
    outweighed = or_zero(half.flops) <= others
    of_moves = or_zero(moves) * known.flop_weights("fp16")["hfma"]
    beside = ~alone & (half.flops > 0) & (of_moves > NOTABLE * (others + or_zero(half.flops)))
    return DoubtfulFp16(alone & outweighed, alone & ~outweighed, beside)


# --------------------------------------------------------------------------------------------------------- flops_basis


class BasisMark(Enum):
    """What is true of a launch's FLOPs, beside the source of each precision of CUDA cores."""

    LEFT_OUT = auto()
    HFMA_ALONE = auto()
    MOVES_BESIDE = auto()
    TENSOR = auto()
    COMPLETE = auto()
    BY_SHAPE = auto()
    BY_UNCHECKED_SHAPE = auto()
    BY_GROUP_SHAPE = auto()
    BY_INSTRUCTION = auto()
    IDLE = auto()
    UNCOUNTED = auto()
    NO_PACKED = auto()


AnyMark = tuple[str, str] | BasisMark
"""A source with a precision, or another mark."""


def _basis(marks: Mapping[AnyMark, Mask], some: Mask) -> pa.Array:
    """The text of each launch from its marks (bool, one per launch each); null where `some` FLOPs are not known."""
    names = list(marks)
    codes = sum(
        (mask.astype(np.int64) << bit for bit, mask in enumerate(marks.values())), np.zeros(len(some), np.int64)
    )
    found, place = np.unique(codes, return_inverse=True)
    words = [_text({name for bit, name in enumerate(names) if code >> bit & 1}) for code in found.tolist()]
    distinct = list(dict.fromkeys(words))
    text_of = np.array([distinct.index(text) for text in words], np.int32)
    return arrays.coded(np.where(some, text_of[place], -1).astype(np.int32), distinct)


def _text(marks: set[AnyMark]) -> str:
    words = _of_cores(marks)
    missing = [
        precision
        for precision in known.CUDA_CORE_PRECISIONS
        if not any((source, precision) in marks for source in SOURCES)
    ]
    tensor = _of_tensor_cores(marks)
    if tensor:
        words.append(tensor)
    elif BasisMark.IDLE not in marks:
        missing.append("tensor, which was busy" if BasisMark.UNCOUNTED in marks else "tensor")
    if BasisMark.NO_PACKED in marks:
        missing.append("packed fp32")
    if BasisMark.LEFT_OUT in marks:
        words.append("fp16 left out: constant moves")
    if BasisMark.HFMA_ALONE in marks:
        words.append("fp16 is hfma alone and may be constant moves")
    if BasisMark.MOVES_BESIDE in marks:
        words.append("some of fp16 is HFMA2.MMA, which may be constant moves")
    if missing:
        words.append("not collected: " + ", ".join(missing))
    return "; ".join(words)


def estimate_in(basis: str | None) -> str | None:
    """The part of a basis that says by what tensor operations are estimated; None where they are not."""
    return next((words for words in (basis or "").split("; ") if words.startswith("tensor ops estimated")), None)


def _of_cores(marks: set[AnyMark]) -> list[str]:
    words = []
    for source in SOURCES:
        used = [precision for precision in known.CUDA_CORE_PRECISIONS if (source, precision) in marks]
        words += [f"{source} {'+'.join(used)}"] if used else []
    return words


def _of_tensor_cores(marks: set[AnyMark]) -> str:
    if BasisMark.BY_SHAPE in marks:
        return "tensor ops from the shapes of opcodes"
    if BasisMark.BY_UNCHECKED_SHAPE in marks:
        return "tensor ops estimated from the shapes of opcodes"
    if BasisMark.BY_GROUP_SHAPE in marks:
        return "tensor ops estimated from the shapes of opcodes of wgmma"
    if BasisMark.BY_INSTRUCTION in marks:
        return "tensor ops estimated: 512 per instruction"
    if BasisMark.TENSOR in marks:
        return "tensor ops" if BasisMark.COMPLETE in marks else "tensor ops (not every type)"
    return ""
