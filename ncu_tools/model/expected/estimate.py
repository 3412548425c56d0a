"""Estimated FLOPs, bytes and roofline times of a model that is not run, on machines that need not be present.

Times follow from the roofline model: for the model, the greater of bytes / bandwidth and FLOPs / peak; for operators,
the sum of each operator's own greater one. Both are lower bounds for programs that move these bytes; one that fuses
layers, or finds their outputs in a cache, moves fewer. Bytes and FLOPs come in two conventions. Bytes of the
`model` are inputs + parameters + outputs of layers, once each (torchinfo's sum, of a forward pass), with what the
target returns beside those, such as the output of a function, and of prefill and decode those that are read and written
(`ncu_tools.model.language.step_work`); its FLOPs are those of
products, convolutions and attention (PyTorch's counter, published figures). Those of `operators` are what each of them
reads, writes and computes by its formula: element-wise arithmetic too, which CUDA cores do, and nothing that a causal
mask skips. Time, bound and arithmetic intensity of the model use the same bytes: `model` if known (forward pass),
`as read` of prefill and decode, else `operators`.

PyTorch computes convolutions of FP32 in TF32 where an NVIDIA GPU has it (torch.backends.cudnn.allow_tf32), and products
in FP32 (torch.backends.cuda.matmul.allow_tf32): unless a type was asked for, that is what is estimated. A machine whose
memory cannot hold what is in it at once has no times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from ncu_launch.targets.reference_kernels import own_dtype
from ncu_launch.workload.meta_device_process import Expectation
from ncu_launch.workload_spec import GENERATION_PHASES, Workload
from ncu_parsers.schema import tables
from ncu_parsers.schema.operator_columns import CONTRACTION_FLOPS, INTEGER_OPERATIONS

from ncu_tools.ceilings.ceilings import unit_title
from ncu_tools.ceilings.machine_files import Machine, unit_of
from ncu_tools.model.expected.operators_of_layers import operators_of
from ncu_tools.model.expected_time.expected_models import expected_model, is_learnt
from ncu_tools.model.expected_time.model_work import ModelOperator
from ncu_tools.model.language.language_estimate import (
    ITS_OWN,
    LanguageEstimate,
    Types,
    facts_in,
    language_estimate,
    resident_bytes,
    work_of_phase,
)
from ncu_tools.model.language.parameter_types import BYTES_PER_PARAMETER
from ncu_tools.model.language.step_work import StepWork

TF32 = "tensor_tf32"
CONVOLUTION = "convolution"
"""Part of the names of operators that cuDNN computes, and of their backward passes."""


@dataclass(frozen=True)
class Estimate:
    """One phase of a model on one machine, or without one. Times in ns; None if a needed value is unknown.

    `arithmetic_intensity` (FLOP/byte), `integer_intensity` (OP/byte, None without integer operations), `time_model_ns`
    and `bound` use the same bytes; `whole_bytes` names their convention: `model`, `as read` or `operators`.
    `flops` are those of contractions, `flops_operators` all that operators compute; the two are never added.
    `unknown_operators` may hold a contraction and have no formula, so FLOPs and values that need them are unknown.
    `uncounted_operators` hold none and have no formula: without them `flops_operators` is a lower bound.
    `masked_flops` are what a causal mask skips: `flops` hold them, and `flops_operators` do not. `failed` is the
    reason why nothing could be estimated. `conv_dtype` is the type that convolutions of FP32 are computed in, None
    where there are none or the machine has no TF32. `least_memory_bytes` are in memory at once, at least; where the
    machine cannot hold them, `exceeds_memory` is true and there are no times. `has_head` says whether a causal
    language model has its LM head, None of other models; `language` is of its prefill and decode.
    """

    target: str
    batch_size: int
    dtype: str
    phase: str | None
    machine: str | None
    parameters: int | None
    flops: float | None
    flops_operators: float | None
    integer_operations: float | None
    bytes_model: float | None
    bytes_operators: float | None
    arithmetic_intensity: float | None
    integer_intensity: float | None
    whole_bytes: str | None
    time_model_ns: float | None
    time_operators_ns: float | None
    bound: str | None
    unknown_operators: str | None = None
    uncounted_operators: str | None = None
    flops_operators_lower_bound: bool = False
    masked_flops: float = 0.0
    failed: str | None = None
    input_size: int | None = None
    sequence_length: int | None = None
    conv_dtype: str | None = None
    least_memory_bytes: float | None = None
    exceeds_memory: bool | None = None
    has_head: bool | None = None
    language: LanguageEstimate | None = None
    expected_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None
    compiled_ns: float | None = None
    basis: str | None = None

    def cells(self) -> dict[str, Any]:
        """The values by name, those of a language model among them."""
        found = asdict(self)
        language = found.pop("language")
        return {**found, **(language or {})}


def one_by_one(workload: Workload) -> list[Workload]:
    """Split a workload into one per phase of generation, since these differ in length; others stay as they are."""
    if not workload.generates:
        return [workload]
    rest = tuple(phase for phase in workload.phases if phase not in GENERATION_PHASES)
    generated = [phase for phase in workload.phases if phase in GENERATION_PHASES]
    found = [replace(workload, phases=(phase,), sequence_length=None) for phase in generated]
    return [*([replace(workload, phases=rest)] if rest else []), *found]


def estimates(
    workloads: Sequence[Workload],
    expectations: Sequence[Expectation],
    machines: Sequence[Machine],
    unit: str | None = None,
    types: Types = ITS_OWN,
    *,
    allows_tf32: bool = False,
) -> list[Estimate]:
    """A row per phase of each workload and machine; without machines one row per phase, without times.

    A workload that could not be counted has one row, which says why. With `allows_tf32`, convolutions of FP32 are
    computed in TF32, as PyTorch does by default, unless the workload's name says its type.
    """
    rows = []
    for workload, expectation in zip(workloads, expectations, strict=True):
        if expectation.why_not:
            rows.append(_failed(workload, expectation.why_not))
            continue
        operators, summary = operators_of(expectation), expectation.summary
        in_tf32 = allows_tf32 and own_dtype(workload.target) is None
        phases = tables.words(operators, "phase")
        for phase in dict.fromkeys(phases):
            here = np.array([other == phase for other in phases], dtype=bool)
            work = _Work(operators, here, summary if phase == "forward" else {})
            work.read = work_of_phase(facts_in(summary), phase, types)
            rows += [
                _on(machine, workload, phase, work, summary, unit, types, allows_tf32=in_tf32)
                for machine in machines or (None,)
            ]
    return rows


class _Work:
    """FLOPs and bytes of each operator of a phase.

    `flops` are the FLOPs of contractions, NaN without a formula; `contractions` are the same without elements skipped
    by a causal mask, and `others` the FLOPs of all other operators on CUDA cores, 0 if unknown.
    """

    def __init__(self, operators: pa.Table, here: np.ndarray[Any, Any], summary: dict[str, Any]) -> None:
        everything = tables.floats(operators, "flops")[here]
        self.flops = tables.floats(operators, CONTRACTION_FLOPS)[here]
        self.integers = np.nan_to_num(tables.floats(operators, INTEGER_OPERATIONS)[here])
        self.bytes = tables.floats(operators, "dram_bytes")[here]
        self.contractions = np.where(self.flops == 0, 0.0, np.minimum(self.flops, everything))
        self.others = np.where(self.flops == 0, np.nan_to_num(everything), 0.0)
        self.everything = float(np.nansum(everything))
        self.masked = float(np.nansum(self.flops - self.contractions))
        names = np.array(tables.words(operators, "kernel_name"), dtype=object)[here]
        self.is_convolution = np.array([CONVOLUTION in name for name in names], dtype=bool) & (self.flops != 0)
        self.uncounted = Counter(names[np.isnan(everything) & (self.flops == 0)].tolist())
        self.unknown = Counter(names[np.isnan(self.flops)].tolist())
        parts = [summary.get(name) for name in ("input_bytes", "parameter_bytes", "layer_output_bytes")]
        self.model_bytes = None if None in parts else float(sum(part for part in parts if part is not None))
        self.read: StepWork | None = None
        self.operators = tables_of_operators(operators, here)

    @property
    def whole(self) -> tuple[str, float]:
        """The bytes of the model, and the name of their convention."""
        if self.read is not None:
            return "as read", self.read.bytes
        return ("operators", float(self.bytes.sum())) if self.model_bytes is None else ("model", self.model_bytes)

    @property
    def total_flops(self) -> float | None:
        total = float(self.flops.sum())
        return None if np.isnan(total) else total


def tables_of_operators(operators: pa.Table, here: np.ndarray[Any, Any]) -> list[ModelOperator]:
    """The operators of a phase in the form that expected times of models take."""
    names, shapes = tables.words(operators, "kernel_name"), tables.words(operators, "shapes")
    flops = np.nan_to_num(tables.floats(operators, CONTRACTION_FLOPS))
    moved = np.nan_to_num(tables.floats(operators, "dram_bytes"))
    return [
        ModelOperator(names[at] or "", shapes[at], float(flops[at]), float(moved[at]))
        for at in np.flatnonzero(here).tolist()
    ]


@dataclass(frozen=True)
class _Units:
    """The unit of a machine that computes convolutions, and the unit for all other contractions."""

    convolutions: str
    others: str


def _seconds(machine: Machine, units: _Units, dtype: str, work: _Work, whole_bytes: float) -> tuple[float, float, str]:
    """Least seconds of the model and of its operators one by one, NaN if unknown, and what bounds the model.

    Contractions run on `units`; everything else on the CUDA cores, if the machine file has their peak.
    """
    bandwidth = machine.rates["dram"].value
    rest = machine.rates.get("fp64" if dtype == "fp64" else "fp32")
    of_convolutions, of_others = machine.rates[units.convolutions].value, machine.rates[units.others].value
    peaks = np.where(work.is_convolution, of_convolutions, of_others)
    busy = (work.contractions + work.integers) / peaks  # a workload of one data type has only one of them
    each = np.maximum(work.bytes / bandwidth, busy)
    if rest is not None:
        each = np.maximum(each, work.others / rest.value)
    moving, computing = whole_bytes / bandwidth, float(busy.sum())
    longest = units.convolutions if 2 * float(busy[work.is_convolution].sum()) > computing else units.others
    bound = "dram" if moving > computing else longest
    return float(np.maximum(moving, computing)), float(each.sum()), bound  # max() loses a NaN


def _on(
    machine: Machine | None,
    workload: Workload,
    phase: str | None,
    work: _Work,
    summary: dict[str, Any],
    unit_name: str | None,
    types: Types,
    *,
    allows_tf32: bool,
) -> Estimate:
    flops, moved = work.total_flops, float(work.bytes.sum())
    whole_bytes, whole = work.whole
    time_model = time_operators = None
    bound = None
    unit = unit_of(machine, workload.dtype, unit_name) if machine is not None else None
    conv_dtype = _conv_dtype(machine, workload, unit_name, allows_tf32=allows_tf32)
    least_memory = _least_memory(summary, phase, types)
    exceeds = _exceeds(machine, least_memory)
    if machine is not None and unit is not None and "dram" in machine.rates and not exceeds:
        units = _Units(TF32 if conv_dtype == "tf32" else unit, unit)
        of_model, of_operators, longest = _seconds(machine, units, workload.dtype, work, whole)
        time_operators = None if np.isnan(of_operators) else of_operators * 1e9
        if not np.isnan(of_model):
            time_model = of_model * 1e9
            bound = unit_title(longest)
    integers = float(work.integers.sum()) or None
    intensity = float(work.contractions.sum()) / whole if whole else np.nan
    unknown, uncounted = (
        ", ".join(f"{name} ({calls} calls)" for name, calls in found.items())
        for found in (work.unknown, work.uncounted)
    )
    expected = None
    if machine is not None and time_operators is not None and is_learnt(phase):
        its_own = work_of_phase(facts_in(summary), phase, ITS_OWN)
        saved = its_own.cache_read_bytes - work.read.cache_read_bytes if its_own and work.read else 0.0
        expected = expected_model(
            work.operators, machine, workload.dtype, conv_dtype,
            weight_bytes=BYTES_PER_PARAMETER[types.weights] if types.weights else None, saved_of_cache=max(saved, 0.0),
        )  # fmt: skip
    if expected is not None and time_model is not None and unit_name is None:
        expected = expected.at_least(time_model / 1e3)
    facts, language = facts_in(summary), None
    if facts is not None and work.read is not None and phase is not None:
        language = language_estimate(facts, phase, types, machine, unit, time_model)
    return Estimate(
        target=workload.target,
        batch_size=workload.batch_size,
        dtype=workload.dtype,
        phase=phase,
        machine=machine.id if machine is not None else None,
        parameters=summary.get("parameters"),
        flops=flops,
        flops_operators=work.everything if flops is not None else None,
        integer_operations=integers,
        bytes_model=work.model_bytes if work.read is None else work.read.bytes,
        bytes_operators=moved,
        arithmetic_intensity=None if np.isnan(intensity) else intensity,
        integer_intensity=integers / whole if integers is not None and whole else None,
        whole_bytes=whole_bytes,
        time_model_ns=time_model,
        time_operators_ns=time_operators,
        bound=bound,
        unknown_operators=unknown or None,
        uncounted_operators=uncounted or None,
        flops_operators_lower_bound=bool(uncounted),
        masked_flops=work.masked,
        input_size=summary.get("input_size"),
        sequence_length=summary.get("sequence_length"),
        conv_dtype=conv_dtype if work.is_convolution.any() else None,
        least_memory_bytes=least_memory,
        exceeds_memory=exceeds,
        has_head=facts.has_head if facts is not None else None,
        language=language,
        **(expected.in_ns() if expected is not None else {}),
    )


def _conv_dtype(machine: Machine | None, workload: Workload, unit: str | None, *, allows_tf32: bool) -> str | None:
    """The type in which a machine with TF32 computes FP32 convolutions; None for other types, or without TF32."""
    if machine is None or machine.vendor != "NVIDIA" or TF32 not in machine.rates:
        return None
    return ("tf32" if allows_tf32 else "fp32") if workload.dtype == "fp32" and unit is None else None


def _least_memory(summary: dict[str, Any], phase: str | None, types: Types) -> float | None:
    """Least bytes in memory at once: counted by shapes; for prefill and decode, weights and caches."""
    counted, facts = summary.get("least_memory_bytes"), facts_in(summary)
    if facts is None or phase is None or work_of_phase(facts, phase, types) is None:
        return counted
    resident = sum(resident_bytes(facts, phase, types))
    return resident if types != ITS_OWN or counted is None else max(resident, counted)


def _exceeds(machine: Machine | None, least_memory: float | None) -> bool | None:
    """True if a machine's memory is too small; None if unknown."""
    if machine is None or machine.most_memory_bytes is None or least_memory is None:
        return None
    return least_memory > machine.most_memory_bytes


def _failed(workload: Workload, why: str) -> Estimate:
    """The row of a workload that could not be estimated."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("phase", "machine", "parameters", "flops", "flops_operators", "integer_operations", "bytes_model",
         "bytes_operators", "arithmetic_intensity", "integer_intensity", "whole_bytes", "time_model_ns",
         "time_operators_ns", "bound")
    )  # fmt: skip
    return Estimate(workload.target, workload.batch_size, workload.dtype, **nothing, failed=why)
