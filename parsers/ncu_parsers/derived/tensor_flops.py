"""Tensor-core operations by input type, counted or inferred.

Counters are sm__ops_path_tensor_*. A total and its parts by sparsity or instruction are one count. Without them, opcode
shapes give the same number (of wgmma an estimate), and on Volta 512 operations per instruction an estimate.
"""

from __future__ import annotations

from functools import partial
from operator import eq
from typing import NamedTuple

import numpy as np
from ncu_launch.counters import metrics as known

from ncu_parsers.derived.counter_columns import Counters, Mask, sum_known
from ncu_parsers.derived.tensor_opcodes import OPERATIONS_PER_VOLTA_INSTRUCTION, VOLTA, tensor_operations
from ncu_parsers.schema.tables import Floats, or_zero

WARP = 32
TENSOR_PRECISIONS = (*known.TENSOR_FLOAT_PRECISIONS, *known.TENSOR_INTEGER_PRECISIONS)


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
    """Launches whose tensor operations were not counted completely (bool, one per launch each), by what gave them.

    `by_shape`: opcodes with their shapes. `unchecked`: the same, of an input type of which no launch could be checked.
    `estimated`: the same, where that of an opcode is an estimate. `by_instruction`: the number of tensor instructions,
    on Volta. At most one is true.
    """

    by_shape: Mask
    unchecked: Mask
    estimated: Mask
    by_instruction: Mask


def fill_without_counters(counters: Counters, tensor: dict[str, Floats], complete: Mask) -> FilledIn:
    """Fill the tensor columns of launches whose operation counters are not `complete`, in place.

    Where some were collected, only opcodes without estimates fill the others; a counter that holds a part of its type
    is a lower bound, so the larger number counts.
    """
    missing = np.asarray(np.isnan(np.stack(list(tensor.values()))).all(axis=0), dtype=bool)
    by_shape, unchecked, estimated = (np.zeros(counters.rows, dtype=bool) for _ in range(3))
    for row, executed in enumerate(counters.lists.warps):
        counted = tensor_operations(executed) if executed and not complete[row] else None
        if counted is None or (counted.estimated and not missing[row]):
            continue
        (estimated if counted.estimated else unchecked if counted.unchecked else by_shape)[row] = True
        for precision, amount in counted.amounts.items():
            column = tensor[tensor_column(precision)]
            column[row] = np.fmax(column[row], amount)
    executed_on_volta = np.where(counters.where(partial(eq, VOLTA)), _tensor_instructions(counters), np.nan)
    by_instruction = np.asarray(
        missing & ~by_shape & ~unchecked & ~estimated & ~np.isnan(executed_on_volta), dtype=bool
    )
    tensor["tensor_flops_fp16"] = np.where(
        by_instruction, executed_on_volta * OPERATIONS_PER_VOLTA_INSTRUCTION, tensor["tensor_flops_fp16"]
    )
    return FilledIn(by_shape, unchecked, estimated, by_instruction)


def _gather_results(counts: dict[str, dict[str, Floats]]) -> None:
    """Merge counts per result type into the count of any result, if there is one: fp16 on Hopper."""
    for total in list(counts):
        whole, _, result = total.partition("_dst_")
        if result and whole in counts:
            for part, values in counts.pop(total).items():
                words = part.split()
                words.insert(part.startswith("op_"), f"dst_{result}")
                counts[whole][" ".join(words)] = values


def tensor_column(precision: str) -> str:
    """The contract column for tensor operations on inputs of this type."""
    return f"tensor_ops_{precision}" if precision in known.TENSOR_INTEGER_PRECISIONS else f"tensor_flops_{precision}"


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

    Tensor pipe instructions explained by hfma (one per 32 thread instructions) are constant moves. On chips with such
    moves, pipe activity alone proves nothing. An idle pipe proves nothing where tensor cores have another one beside
    it, nor idle floating-point instructions where those of warpgroups were not among them.
    """
    moves = counters.where(known.moves_constants_with_hfma)
    one_pipe = ~counters.where(known.has_tensor_work_beside_the_pipe)
    executed = _tensor_instructions(counters)
    explained = executed <= or_zero(counters.executed_threads("hfma")) / WARP * 1.01 + 1
    busy = ~np.isnan(executed) & ~explained

    floating = _greatest([counters.first(forms) for forms in known.tensor_evidence("floating")])
    pipe = _greatest([counters.first(forms) for forms in known.tensor_evidence("pipe")])
    warpgroups = _greatest([counters.first(forms) for forms in known.tensor_evidence("warpgroups")])
    all_floating = ~counters.where(known.has_warpgroup_instructions) | ~np.isnan(warpgroups)
    idle = one_pipe & (explained | ((floating == 0) & all_floating) | (pipe == 0))
    idle |= counters.where_device(known.lacks_tensor_cores)
    busy |= ((floating > 0) | (np.isnan(floating) & (pipe > 0))) & ~moves
    asked = np.isnan(tensor_flops)
    return asked & idle, asked & busy & ~idle


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
