"""FLOPs of launches by precision and unit, and the text that names their source.

Weights, metric names and their sources are in the tables of `ncu_launch.counters.metrics`; this file has the rules for
adding them up:

* CUDA cores: adds, products and FMAs of a precision each come from the first source that the launch has: counters,
  counts per opcode, or zero because the pipe was idle. A precision is known once all three are. Full sets, for
  example, count `hfma` and neither `hadd` nor `hmul`, but list every opcode. Counts per opcode are listed in the
  report or summed from its counts per instruction.
* Tensor cores: counters are sm__ops_path_tensor_*. A total and its parts by sparsity or instruction are one count.
  Without counters, opcode shapes give the same number, and on Volta 512 operations per instruction an estimate.
* If tensor instructions ran and their operations are not known, total FLOPs are unknown: null.
* FP16 FMAs that may be constant moves count as moves if they are the launch's only FP16 work and do not outweigh its
  work of other types. The same instructions cause tensor pipe activity without tensor work.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from operator import eq
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from ncu_launch.counters import metrics as known

from ncu_parsers.derived.measures import TENSOR_PRECISIONS, Counters, Mask, sum_known, tensor_column
from ncu_parsers.derived.opcode_lists import MOVES, SURE_FMAS
from ncu_parsers.derived.tensor_opcodes import OPERATIONS_PER_VOLTA_INSTRUCTION, VOLTA, tensor_operations
from ncu_parsers.schema import arrays
from ncu_parsers.schema.flops_basis import SOURCES, AnyMark, BasisMark, sentence
from ncu_parsers.schema.tables import Floats, or_zero

NOTABLE = 0.02
"""Share of a launch's FLOPs above which a note mentions instructions that may be constant moves."""

WARP = 32


def flops_columns(counters: Counters) -> dict[str, Floats | pa.Array]:
    """The columns of FLOPs (float64, one per launch; NaN if unknown), and `flops_basis` as an Arrow array."""
    tensor, complete = counted_operations(counters)
    filled = fill_without_counters(counters, tensor, complete)
    complete = complete | filled.by_shape | filled.unchecked | filled.by_instruction
    tensor_flops = sum_known([tensor[f"tensor_flops_{precision}"] for precision in known.TENSOR_FLOAT_PRECISIONS])
    cores = _core_flops(counters, ~np.isnan(tensor_flops))
    doubtful = _doubtful_fp16(counters, cores, tensor_flops)
    idle, uncounted = tensor_evidence(counters, tensor_flops)
    complete = complete | (idle & (tensor_flops == 0))
    of_cores = {precision: found.flops for precision, found in cores.items()}
    half = np.where(doubtful.left_out, 0.0, of_cores["fp16"])
    total = sum_known([of_cores["fp64"], of_cores["fp32"], half, tensor_flops])
    some = _any_known([*of_cores.values(), tensor_flops])
    # A partial sum is a lower bound, which the basis states; a partial sum of 0 carries no information.
    in_part = (
        ~_all_known(list(of_cores.values())) | (np.isnan(tensor_flops) & ~idle) | (~np.isnan(tensor_flops) & ~complete)
    )
    marks = _core_marks(cores) | {
        BasisMark.LEFT_OUT: doubtful.left_out,
        BasisMark.HFMA_ALONE: doubtful.counted,
        BasisMark.MOVES_BESIDE: doubtful.beside_others,
        BasisMark.ALL_TYPES: ~np.isnan(tensor_flops) & complete,
        BasisMark.SOME_TYPES: ~np.isnan(tensor_flops) & ~complete,
        BasisMark.BY_SHAPE: filled.by_shape,
        BasisMark.BY_UNCHECKED_SHAPE: filled.unchecked,
        BasisMark.BY_INSTRUCTION: filled.by_instruction,
        BasisMark.IDLE: idle,
        BasisMark.UNCOUNTED: uncounted,
        BasisMark.NO_PACKED: _lacks_packed_fp32(counters, cores["fp32"]),
    }
    return {
        **{f"flops_{precision}": values for precision, values in of_cores.items()},
        **tensor,
        "tensor_flops": tensor_flops,
        "flops": np.where(some & ~uncounted & ~(in_part & (total == 0)), total, np.nan),
        "flops_basis": _basis(marks, some),
    }


def _core_marks(cores: dict[str, CoreFlops]) -> dict[AnyMark, Mask]:
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
    """The FLOPs of each precision. An idle pipe counts as zero only in launches where something else was counted."""
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

    `left_out`: the launch has no other FP16 work and more work of other types. `counted`: no other FP16 work and less
    work of other types. `beside_others`: the launch has other FP16 work, and the doubtful FLOPs are a notable share.
    """

    left_out: Mask
    counted: Mask
    beside_others: Mask


def _doubtful_fp16(counters: Counters, cores: Mapping[str, CoreFlops], tensor_flops: Floats) -> DoubtfulFp16:
    """Where FP16 instructions may be constant moves instead of arithmetic.

    Only FMAs can be moves. Opcodes tell moves apart on every chip; without them, any `hfma` may be a move on chips that
    move constants with it. If a launch has no other FP16 work, they count as moves unless they outweigh the other work.
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


# -------------------------------------------------------------------------------------------------------- tensor cores


def counted_operations(counters: Counters) -> tuple[dict[str, Floats], Mask]:
    """Operations per tensor column (float64, one per launch), and where every floating-point type was collected (bool).

    Each count uses the total; if it is missing, the parts by sparsity, or the parts by instruction.
    """
    counts: dict[str, dict[str, Floats]] = {}
    precision_of: dict[str, str] = {}
    for base in sorted({_base(name) for name in counters.values if name.startswith(known.TENSOR_PREFIX)}):
        counter = known.tensor_counter(base)
        if counter is not None:
            counts.setdefault(counter.total, {})[counter.part] = counters.total(base)
            precision_of[counter.total] = counter.precision
    collected = dict(counts)
    _gather_results(counts)
    result = {tensor_column(name): np.full(counters.rows, np.nan) for name in TENSOR_PRECISIONS}
    for total, parts in counts.items():
        column = tensor_column(precision_of[total])
        result[column] = sum_known([result[column], _whole(parts, counters.rows)])
    return result, _complete(counters, {**collected, **counts})


class FilledIn(NamedTuple):
    """Launches whose tensor operations were not counted completely (bool, one per launch each), by the substitute.

    `by_shape`: opcodes with their shapes. `unchecked`: the same for an instruction never compared with counters.
    `by_instruction`: the number of tensor instructions, on Volta. At most one is true.
    """

    by_shape: Mask
    unchecked: Mask
    by_instruction: Mask


def fill_without_counters(counters: Counters, tensor: dict[str, Floats], complete: Mask) -> FilledIn:
    """Fill the tensor columns of launches whose operation counters are not `complete`, in place.

    Opcodes fill the types that were not collected. A counter of only a part of its type is a lower bound, so the larger
    of the two numbers is used.
    """
    missing = np.asarray(np.isnan(np.stack(list(tensor.values()))).all(axis=0), dtype=bool)
    by_shape, unchecked = (np.zeros(counters.rows, dtype=bool) for _ in range(2))
    for row, executed in enumerate(counters.lists.warps):
        counted = tensor_operations(executed) if executed and not complete[row] else None
        if counted is None:
            continue
        (unchecked if counted.unchecked else by_shape)[row] = True
        for precision, amount in counted.amounts.items():
            column = tensor[tensor_column(precision)]
            column[row] = np.fmax(column[row], amount)
    executed_on_volta = np.where(counters.where(partial(eq, VOLTA)), _tensor_instructions(counters), np.nan)
    by_instruction = np.asarray(missing & ~by_shape & ~unchecked & ~np.isnan(executed_on_volta), dtype=bool)
    tensor["tensor_flops_fp16"] = np.where(
        by_instruction, executed_on_volta * OPERATIONS_PER_VOLTA_INSTRUCTION, tensor["tensor_flops_fp16"]
    )
    return FilledIn(by_shape, unchecked, by_instruction)


def _gather_results(counts: dict[str, dict[str, Floats]]) -> None:
    """Merge counts per result type into the count of any result, if there is one: fp16 on Hopper."""
    for total in list(counts):
        whole, _, result = total.partition("_dst_")
        if result and whole in counts:
            for part, values in counts.pop(total).items():
                words = part.split()
                words.insert(part.startswith("op_"), f"dst_{result}")
                counts[whole][" ".join(words)] = values


def _base(metric: str) -> str:
    return metric.split(".")[0]


def _whole(parts: dict[str, Floats], rows: int) -> Floats:
    """One count from its parts: the total, else parts by sparsity, else parts by instruction or result type."""
    missing = np.full(rows, np.nan)
    total = parts.get("", missing)
    by_sparsity = sum_known([parts.get("sparsity_off", missing), parts.get("sparsity_on", missing)])
    instructions: dict[str, dict[str, Floats]] = {}
    for part, values in parts.items():
        if part.startswith(("op_", "dst_")):
            instruction, _, rest = part.partition(" ")
            instructions.setdefault(instruction, {})[rest] = values
    by_instruction = sum_known([missing, *(_whole(split, rows) for split in instructions.values())])
    return np.where(~np.isnan(total), total, np.where(~np.isnan(by_sparsity), by_sparsity, by_instruction))


def _is_whole(parts: dict[str, Floats], rows: int) -> Mask:
    """Where a count is complete: its total was collected, or both parts by sparsity."""
    missing = np.full(rows, np.nan)
    both = ~np.isnan(parts.get("sparsity_off", missing)) & ~np.isnan(parts.get("sparsity_on", missing))
    return np.asarray(~np.isnan(parts.get("", missing)) | both, dtype=bool)


def _complete(counters: Counters, counts: dict[str, dict[str, Floats]]) -> Mask:
    """Where every floating-point tensor total of the chip was collected, whole or by sparsity (bool, per launch)."""
    there = {total: _is_whole(parts, counters.rows) for total, parts in counts.items()}
    nowhere = np.zeros(counters.rows, dtype=bool)
    result = nowhere.copy()
    for capability in counters.capabilities:
        here = counters.where(partial(eq, capability))
        for total in known.floating_tensor_totals(capability) or ["unknown chip"]:
            here = here & there.get(_base(total).removeprefix(known.TENSOR_PREFIX), nowhere)
        result |= here
    return result


def tensor_evidence(counters: Counters, tensor_flops: Floats) -> tuple[Mask, Mask]:
    """Where tensor cores were idle and where busy, in launches without tensor FLOPs (bool, one per launch each).

    Launches with counters for some types can be idle too, if those counters are 0.

    Tensor pipe instructions explained by hfma (one per 32 thread instructions) are constant moves. On chips with such
    moves, pipe activity alone proves nothing. An idle pipe proves nothing on chips with a second tensor pipe; zero
    floating-point instructions prove nothing if warpgroup instructions were not counted.
    """
    moves = counters.where(known.moves_constants_with_hfma)
    one_pipe = ~counters.where(known.has_tensor_work_beside_the_pipe)
    executed = _tensor_instructions(counters)
    constant_moves = or_zero(counters.executed_threads("hfma")) / WARP * 1.01 + 1
    explained = executed <= constant_moves
    busy = ~np.isnan(executed) & ~explained
    hmma, dmma = (counters.total(base) for base in known.table("tensor")["evidence"]["of_every_type"])
    explained |= counters.where(known.has_warpgroup_instructions) & (hmma <= constant_moves) & (dmma == 0)

    floating = _greatest([counters.first(forms) for forms in known.tensor_evidence("floating")])
    pipe = _greatest([counters.first(forms) for forms in known.tensor_evidence("pipe")])
    warpgroups = _greatest([counters.first(forms) for forms in known.tensor_evidence("warpgroups")])
    all_floating = ~counters.where(known.has_warpgroup_instructions) | ~np.isnan(warpgroups)
    idle = one_pipe & (explained | ((floating == 0) & all_floating) | (pipe == 0))
    idle |= counters.where_device(known.lacks_tensor_cores)
    busy |= ((floating > 0) | (np.isnan(floating) & (pipe > 0))) & ~moves
    return idle & ~(tensor_flops > 0), np.isnan(tensor_flops) & busy & ~idle


def _tensor_instructions(counters: Counters) -> Floats:
    """Warp instructions of the tensor pipe (float64, one per launch)."""
    executed = counters.nothing
    for base in known.table("tensor")["evidence"]["instructions"]:
        executed = counters.either(executed, counters.total(base))
    return executed


def _greatest(parts: list[Floats]) -> Floats:
    """The largest non-NaN value per launch; NaN where all are NaN."""
    result = parts[0]
    for part in parts[1:]:
        result = np.fmax(result, part)
    return result


# --------------------------------------------------------------------------------------------------------- flops_basis


def _basis(marks: Mapping[AnyMark, Mask], some: Mask) -> pa.Array:
    """The basis text of each launch from its marks (bool, one per launch each); null where `some` is false."""
    names = list(marks)
    codes = sum(
        (mask.astype(np.int64) << bit for bit, mask in enumerate(marks.values())), np.zeros(len(some), np.int64)
    )
    found, place = np.unique(codes, return_inverse=True)
    words = [sentence({name for bit, name in enumerate(names) if code >> bit & 1}) for code in found.tolist()]
    distinct = list(dict.fromkeys(words))
    text_of = np.array([distinct.index(text) for text in words], np.int32)
    return arrays.coded(np.where(some, text_of[place], -1).astype(np.int32), distinct)
