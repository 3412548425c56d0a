"""Metric values -> time, FLOPs by precision and unit, bytes by level, and the ceilings a report holds itself.

Counters come in three forms: sums, rates per elapsed cycle (in full and roofline sets) and rates per second. A sum is
used where there is one; a rate is multiplied back with the cycles or the time of the same launch. Weights, names and
their sources are the tables of `ncu_launch.metrics`; this file holds the rules for what may be added to what:

* A precision is known only when its add, mul and fma counters are.
* Tensor operations come from sm__ops_path_tensor_*. A total and its sparsity or instruction parts are one count.
  Without them the shapes of opcodes give the same number, and on Volta 512 per instruction an estimate. Where tensor
  instructions ran and none of these was collected, the total is unknown: null.
* hfma without hadd or hmul, on chips whose compiler moves constants with it, is no arithmetic unless it outweighs
  everything else the launch did. The same instructions show up as activity of the tensor pipe; that is no tensor work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from ncu_launch import metrics as known

from ncu_parsers.tables import Floats
from ncu_parsers.tensor_opcodes import OPERATIONS_PER_VOLTA_INSTRUCTION, VOLTA, tensor_operations

Mask = npt.NDArray[np.bool_]

WARP = 32


@dataclass
class Counters:
    """The numeric metrics of some launches, as columns; NaN where a launch lacks one.

    `opcodes` are warp instructions per opcode with modifiers, None for a launch without; () where no launch has them.
    """

    values: Mapping[str, Floats]
    compute_capability: Sequence[str | None]
    device_name: Sequence[str | None]
    opcodes: Sequence[Mapping[str, float] | None] = ()
    seconds: Floats = field(init=False)
    cycles: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.seconds = _duration_ns(self) / 1e9
        self.cycles = self.first(known.table("ceilings")["cycles"]["sm"])
        clock = self.first(known.clock_metrics("sm")[:2])
        self.cycles = np.where(np.isnan(self.cycles), clock * self.seconds, self.cycles)

    @property
    def rows(self) -> int:
        """How many launches there are."""
        return len(self.compute_capability)

    def metric(self, name: str) -> Floats:
        """One metric; all NaN when no launch has it."""
        found = self.values.get(name)
        return np.full(self.rows, np.nan) if found is None else found

    def first(self, names: Sequence[str]) -> Floats:
        """For each launch the first of `names` that it has."""
        result = np.full(self.rows, np.nan)
        for name in names:
            if name in self.values:
                result = np.where(np.isnan(result), self.values[name], result)
        return result

    def counted(self, base: str) -> Floats:
        """The sum of a counter over all units, as printed. `base` has no suffix."""
        return self.first([f"{base}.sum", base])

    def total(self, base: str) -> Floats:
        """The sum of a counter over all units: as printed, or a rate multiplied back."""
        result = self.counted(base)
        per_cycle = f"{base}.sum.per_cycle_elapsed"
        if per_cycle in self.values and base.startswith(("sm__", "smsp__")):
            result = np.where(np.isnan(result), self.values[per_cycle] * self.cycles, result)
        per_second = f"{base}.sum.per_second"
        if per_second in self.values:
            result = np.where(np.isnan(result), self.values[per_second] * self.seconds, result)
        return result


def measures(counters: Counters) -> dict[str, Floats | list[str | None]]:
    """Every measure column of the contract that the counters give, by name. NaN means not in the report."""
    result: dict[str, Floats | list[str | None]] = {"duration_ns": counters.seconds * 1e9}
    result.update(_flops(counters))
    for column, level in (
        ("dram_bytes", "dram"), ("dram_read_bytes", "dram_read"), ("dram_write_bytes", "dram_write"),
        ("l2_bytes", "l2"), ("l1_bytes", "l1"),
    ):  # fmt: skip
        result[column] = _bytes(counters, level)
    result["sm_clock_hz"] = counters.first(known.clock_metrics("sm"))
    result["dram_clock_hz"] = counters.first(known.clock_metrics("dram"))
    result.update(_peaks(counters))
    return result


def _duration_ns(counters: Counters) -> Floats:
    """Time of each launch in ns: gpu__time_duration, else cycles divided by cycles per second (the NERSC recipe)."""
    table = known.table("ceilings")["time"]
    result = counters.first(table["durations"])
    for cycles, rate in table["cycles_and_rate"]:
        if cycles in counters.values and rate in counters.values:
            with np.errstate(divide="ignore", invalid="ignore"):
                quotient = counters.values[cycles] / counters.values[rate] * 1e9
            result = np.where(np.isnan(result) & np.isfinite(quotient), quotient, result)
    return result


def _bytes(counters: Counters, level: str) -> Floats:
    """Bytes of a level by the first alternative of which a launch has every counter; counts go before rates."""
    result = np.full(counters.rows, np.nan)
    for amount in (counters.counted, counters.total):
        for alternative in known.byte_alternatives(level):
            total = sum((amount(base) * factor for base, factor in alternative.items()), np.zeros(counters.rows))
            result = np.where(np.isnan(result), total, result)
    return result


# --------------------------------------------------------------------------------------------------------- FLOPs


def _flops(counters: Counters) -> dict[str, Floats | list[str | None]]:
    cores = {precision: _cuda_core_flops(counters, precision) for precision in known.CUDA_CORE_PRECISIONS}
    tensor, complete = _tensor_operations(counters)
    by_opcode, by_instruction = _fill_without_counters(counters, tensor)
    complete = complete | by_opcode | by_instruction
    tensor_flops = _sum_known([tensor[f"tensor_flops_{precision}"] for precision in known.TENSOR_FLOAT_PRECISIONS])
    phantom, hfma_alone = _phantom_fp16(counters, cores, tensor_flops)
    idle, uncounted = _tensor_evidence(counters, tensor_flops)
    total = _sum_known([cores["fp64"], cores["fp32"], np.where(phantom, 0.0, cores["fp16"]), tensor_flops])
    some = _any_known([*cores.values(), tensor_flops])
    # A partial sum is a lower bound and says so in the basis; a partial sum of zero bounds nothing.
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


def _basis(marks: dict[str, Mask], some: Mask) -> list[str | None]:
    """For each row in words which counters gave the total and what it leaves out. Few combinations occur."""
    names = list(marks)
    codes = sum(
        (mask.astype(np.int64) << bit for bit, mask in enumerate(marks.values())), np.zeros(len(some), np.int64)
    )
    words = {
        code: _basis_words({name for bit, name in enumerate(names) if code >> bit & 1}) for code in set(codes.tolist())
    }
    return [words[code] if known_here else None for code, known_here in zip(codes.tolist(), some.tolist(), strict=True)]


def _basis_words(marks: set[str]) -> str:
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


def _sum_known(parts: list[Floats]) -> Floats:
    """The sum of what is known in each row; NaN where nothing is."""
    stacked = np.stack(parts)
    return np.where(np.isnan(stacked).all(axis=0), np.nan, np.nansum(stacked, axis=0))


def _sass(counters: Counters, opcode: str) -> Floats:
    """Thread instructions of an opcode, under either prefix; x2 derived rates count half of themselves."""
    result = np.full(counters.rows, np.nan)
    for prefix in known.SASS_PREFIXES:
        result = np.where(np.isnan(result), counters.total(f"{prefix}{opcode}_pred_on"), result)
    doubled = f"derived__smsp__sass_thread_inst_executed_op_{opcode}_pred_on_x2"
    if doubled in counters.values:
        result = np.where(np.isnan(result), counters.values[doubled] / 2 * counters.cycles, result)
    return result


def _cuda_core_flops(counters: Counters, precision: str) -> Floats:
    """FLOPs of one precision outside the tensor cores; NaN unless add, mul and fma were all counted."""
    total = np.zeros(counters.rows)
    for opcode, weight in known.flop_weights(precision).items():
        total = total + _sass(counters, opcode) * weight
    if precision == "fp32":
        for opcode, weight in known.packed_fp32_weights().items():
            packed = _sass(counters, opcode) * weight
            total = total + np.where(np.isnan(packed), 0.0, packed)
    return total


def _phantom_fp16(counters: Counters, cores: dict[str, Floats], tensor_flops: Floats) -> tuple[Mask, Mask]:
    """Where hfma stands alone on a chip that moves constants with it: first where other work outweighs it, so that it
    is taken for constant moves, second where it outweighs the rest and is counted, with a warning in the basis.
    """
    alone = (_sass(counters, "hadd") == 0) & (_sass(counters, "hmul") == 0) & (np.nan_to_num(cores["fp16"]) > 0)
    alone &= np.array([known.moves_constants_with_hfma(cc) for cc in counters.compute_capability], dtype=bool)
    others = np.nan_to_num(cores["fp64"]) + np.nan_to_num(cores["fp32"]) + np.nan_to_num(tensor_flops)
    outweighed = np.nan_to_num(cores["fp16"]) <= others
    return alone & outweighed, alone & ~outweighed


def _tensor_evidence(counters: Counters, tensor_flops: Floats) -> tuple[Mask, Mask]:
    """Without tensor-operation counters: where the tensor cores are known to have been idle, and where busy.

    Instructions of the tensor pipe that hfma accounts for (one per 32 thread instructions) are constant moves. On
    chips that have such moves, activity of the pipe alone proves nothing.
    """
    moves = np.array([known.moves_constants_with_hfma(cc) for cc in counters.compute_capability], dtype=bool)
    devices = zip(counters.compute_capability, counters.device_name, strict=True)
    idle = np.array([known.lacks_tensor_cores(*device) for device in devices], dtype=bool)
    busy = np.zeros(counters.rows, dtype=bool)

    executed = _tensor_instructions(counters)
    explained = executed <= np.nan_to_num(_sass(counters, "hfma")) / WARP * 1.01 + 1
    idle |= explained
    busy |= ~np.isnan(executed) & ~explained

    floating = _greatest([counters.first(forms) for forms in known.tensor_evidence("floating")])
    pipe = _greatest([counters.first(forms) for forms in known.tensor_evidence("pipe")])
    idle |= (floating == 0) | (pipe == 0)
    busy |= ((floating > 0) | (np.isnan(floating) & (pipe > 0))) & ~moves
    asked = np.isnan(tensor_flops)
    return asked & idle, asked & busy & ~idle


def _tensor_instructions(counters: Counters) -> Floats:
    """Warp instructions of the tensor pipe."""
    executed = np.full(counters.rows, np.nan)
    for base in known.table("tensor")["evidence"]["instructions"]:
        executed = np.where(np.isnan(executed), counters.total(base), executed)
    return executed


def _greatest(parts: list[Floats]) -> Floats:
    """The greatest known value of each row; NaN where none is known."""
    result = parts[0]
    for part in parts[1:]:
        result = np.fmax(result, part)
    return result


def _lacks_packed_fp32(counters: Counters) -> Mask:
    """Where the chip counts packed FP32 instructions apart and they were not collected."""
    apart = np.array([known.has_packed_fp32(cc) for cc in counters.compute_capability], dtype=bool)
    return apart & np.isnan(_sass(counters, "ffma2")) & ~np.isnan(_sass(counters, "ffma"))


# ---------------------------------------------------------------------------------------------------- tensor cores


def _tensor_operations(counters: Counters) -> tuple[dict[str, Floats], Mask]:
    """Operations per tensor column, and where every floating-point type of the chip was collected.

    Of each count the total is used; where it is missing, its sparsity parts, or the parts per instruction.
    """
    counts: dict[str, dict[str, Floats]] = {}
    precision_of: dict[str, str] = {}
    for base in sorted({_base(name) for name in counters.values if name.startswith(known.TENSOR_PREFIX)}):
        counter = known.tensor_counter(base)
        if counter is not None:
            counts.setdefault(counter.total, {})[counter.part] = counters.total(base)
            precision_of[counter.total] = counter.precision
    _gather_results(counts)
    result = {_tensor_column(name): np.full(counters.rows, np.nan) for name in _TENSOR_PRECISIONS}
    for total, parts in counts.items():
        column = _tensor_column(precision_of[total])
        result[column] = _sum_known([result[column], _whole(parts, counters.rows)])
    return result, _complete(counters, counts)


def _fill_without_counters(counters: Counters, tensor: dict[str, Floats]) -> tuple[Mask, Mask]:
    """Fill the tensor columns of launches without operation counters, in place: from opcodes, else on Volta from
    instructions. Returns where the one and where the other was done.
    """
    missing = np.asarray(np.isnan(np.stack(list(tensor.values()))).all(axis=0), dtype=bool)
    by_opcode = np.zeros(counters.rows, dtype=bool)
    for row, executed in enumerate(counters.opcodes):
        counted = tensor_operations(executed) if executed and missing[row] else None
        if counted is not None:
            by_opcode[row] = True
            for precision, amount in counted.items():
                tensor[_tensor_column(precision)][row] = amount
    executed_on_volta = np.where(np.array(counters.compute_capability) == VOLTA, _tensor_instructions(counters), np.nan)
    by_instruction = np.asarray(missing & ~by_opcode & ~np.isnan(executed_on_volta), dtype=bool)
    tensor["tensor_flops_fp16"] = np.where(
        by_instruction, executed_on_volta * OPERATIONS_PER_VOLTA_INSTRUCTION, tensor["tensor_flops_fp16"]
    )
    return by_opcode, by_instruction


def _gather_results(counts: dict[str, dict[str, Floats]]) -> None:
    """Make counts by result type parts of the count of any result, where there is one: fp16 on Hopper."""
    for total in list(counts):
        whole, _, result = total.partition("_dst_")
        if result and whole in counts:
            for part, values in counts.pop(total).items():
                words = part.split()
                words.insert(part.startswith("op_"), f"dst_{result}")
                counts[whole][" ".join(words)] = values


_TENSOR_PRECISIONS = (*known.TENSOR_FLOAT_PRECISIONS, *known.TENSOR_INTEGER_PRECISIONS)


def _tensor_column(precision: str) -> str:
    return f"tensor_ops_{precision}" if precision in known.TENSOR_INTEGER_PRECISIONS else f"tensor_flops_{precision}"


def _base(metric: str) -> str:
    return metric.split(".")[0]


def _whole(parts: dict[str, Floats], rows: int) -> Floats:
    """One count from its parts: the total, else those by sparsity, else those by instruction or result."""
    missing = np.full(rows, np.nan)
    total = parts.get("", missing)
    by_sparsity = _sum_known([parts.get("sparsity_off", missing), parts.get("sparsity_on", missing)])
    instructions: dict[str, dict[str, Floats]] = {}
    for part, values in parts.items():
        if part.startswith(("op_", "dst_")):
            instruction, _, rest = part.partition(" ")
            instructions.setdefault(instruction, {})[rest] = values
    by_instruction = _sum_known([missing, *(_whole(split, rows) for split in instructions.values())])
    return np.where(~np.isnan(total), total, np.where(~np.isnan(by_sparsity), by_sparsity, by_instruction))


def _is_whole(parts: dict[str, Floats], rows: int) -> Mask:
    """Where a count was collected whole: as its total, or both with and without sparsity."""
    missing = np.full(rows, np.nan)
    both = ~np.isnan(parts.get("sparsity_off", missing)) & ~np.isnan(parts.get("sparsity_on", missing))
    return np.asarray(~np.isnan(parts.get("", missing)) | both, dtype=bool)


def _complete(counters: Counters, counts: dict[str, dict[str, Floats]]) -> Mask:
    """Where every floating-point tensor total of the chip was collected (as a total or by its sparsity)."""
    there = {total: _is_whole(parts, counters.rows) for total, parts in counts.items()}
    nowhere = np.zeros(counters.rows, dtype=bool)
    result = nowhere.copy()
    for capability in set(counters.compute_capability):
        here = np.array([cc == capability for cc in counters.compute_capability], dtype=bool)
        for total in known.floating_tensor_totals(capability) or ["unknown chip"]:
            here = here & there.get(_base(total).removeprefix(known.TENSOR_PREFIX), nowhere)
        result |= here
    return result


# -------------------------------------------------------------------------------------------------------- ceilings


def _peaks(counters: Counters) -> dict[str, Floats]:
    """Ceilings the report holds: peak per cycle x clock. Dense ones for the tensor cores."""
    clocks = {domain: counters.first(known.clock_metrics(domain)) for domain in ("sm", "dram", "lts", "l1tex")}
    result: dict[str, Floats] = {}
    for ceiling in known.ceilings():
        peak = counters.metric(ceiling.metric) * ceiling.factor * clocks[ceiling.clock]
        before = result.get(ceiling.column, np.full(counters.rows, np.nan))
        result[ceiling.column] = np.where(np.isnan(before), peak, before)
    return result | _tensor_peaks(counters, clocks["sm"])


def _tensor_peaks(counters: Counters, clock: Floats) -> dict[str, Floats]:
    """Dense tensor ceilings: the greatest of each precision, over its result types and instructions."""
    result = {f"peak_{_tensor_column(name)}": np.full(counters.rows, np.nan) for name in _TENSOR_PRECISIONS}
    for peak in tensor_peaks(counters.values, counters.compute_capability):
        if not peak.sparse:
            column = f"peak_{_tensor_column(peak.precision)}"
            result[column] = np.fmax(result[column], peak.per_cycle * clock)
    return result


@dataclass(frozen=True)
class TensorPeak:
    """Operations per SM cycle that the tensor cores of a whole GPU sustain, for each launch; NaN where it lacks them.

    `instruction` is the one they need, as in the counter's name ("hgmma"); "" where every instruction reaches them.
    """

    precision: str
    instruction: str
    sparse: bool
    per_cycle: Floats


def tensor_peaks(values: Mapping[str, Floats], compute_capability: Sequence[str | None]) -> list[TensorPeak]:
    """Every tensor peak among the metrics `values` (name -> a value per launch), dense and sparse ones told apart.

    The peak of a total without `_sparsity_off` is the sparse one on every chip that has structured sparsity, and on an
    unknown chip it is neither. Source: peaks in reports of A100 and H100 against their data sheets.
    """
    dense_as_is = np.array([not known.has_structured_sparsity(cc) for cc in compute_capability], dtype=bool)
    known_chip = np.array([cc is not None for cc in compute_capability], dtype=bool)
    result = []
    for name, peak in values.items():
        base, _, suffix = name.partition(".")
        counter = known.tensor_counter(base) if suffix == "sum.peak_sustained" else None
        if counter is None:
            continue
        instruction = counter.part.split()[0].removeprefix("op_") if counter.part.startswith("op_") else ""
        dense, sparse = peak, np.full(len(peak), np.nan)
        if "sparsity_on" in counter.part:
            dense, sparse = sparse, peak
        elif "sparsity_off" not in counter.part and not _never_sparse(counter):
            dense, sparse = np.where(dense_as_is, peak, np.nan), np.where(~dense_as_is & known_chip, peak, np.nan)
        for per_cycle, is_sparse in ((dense, False), (sparse, True)):
            if not np.isnan(per_cycle).all():
                result.append(TensorPeak(counter.precision, instruction, is_sparse, per_cycle))
    return result


def _never_sparse(counter: known.TensorCounter) -> bool:
    return counter.precision in ("fp64", "int1")
