"""FLOPs of CUDA cores: from counters, else from counts per opcode, else zero where a pipe is known to have been idle.

Counts per opcode are those that a report lists, or the sums of what it counts per instruction.

The adds, products and FMAs of a precision are each taken from the first of these that the launch has; a precision is
known once all three are. Full sets, for example, count `hfma` and neither `hadd` nor `hmul`, but list every opcode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from ncu_launch.counters import metrics as known

from ncu_parsers.derived.counter_columns import Counters, Mask
from ncu_parsers.derived.opcode_lists import MOVES, SURE_FMAS
from ncu_parsers.schema.tables import Floats, or_zero

NOTABLE = 0.02
"""Share of a launch's FLOPs from which on instructions that may be constant moves are worth a word."""


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


def core_flops(counters: Counters, tensor_known: Mask) -> dict[str, CoreFlops]:
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


def doubtful_fp16(counters: Counters, cores: Mapping[str, CoreFlops], tensor_flops: Floats) -> DoubtfulFp16:
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
