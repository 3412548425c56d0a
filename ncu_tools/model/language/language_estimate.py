"""The language-model columns of an estimate: bytes as they are read, least time per token, turning points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ncu_launch.targets.language.facts import LanguageFacts
from ncu_launch.workload_spec import GENERATION_PHASES

from ncu_tools.ceilings.machine_files import Machine
from ncu_tools.model.language.step_work import (
    DECODE,
    Precision,
    StepWork,
    at,
    precision_of,
    resident_cache_bytes,
    resident_weight_bytes,
    step_work,
    weight_bytes,
)

LARGEST = 1 << 40
"""A batch or context beyond this counts as never."""


@dataclass(frozen=True)
class Types:
    """Types of weights and KV cache other than the model's, such as int4; None for the model's."""

    weights: str | None = None
    cache: str | None = None


ITS_OWN = Types()


@dataclass(frozen=True)
class LanguageEstimate:
    """A phase of a language model on one machine, or without one. Times in ns, per token of one sequence.

    Bytes are of the whole phase and batch, except `bytes_per_token` and `cached_bytes_per_token`.
    `weights_resident_bytes` and `cache_resident_bytes` are in memory. The turning points are for decode; None if there
    is none, and without a machine.
    """

    has_head: bool
    prompt_length: int | None
    context_length: int | None
    new_tokens: int | None
    weights_type: str | None
    cache_type: str | None
    weights_read_bytes: float
    cache_read_bytes: float
    cache_written_bytes: float
    activation_bytes: float
    bytes_per_token: float
    weights_resident_bytes: float
    cache_resident_bytes: float
    cached_bytes_per_token: float
    flops_arithmetic: float
    least_token_ns: float | None
    tokens_per_s: float | None
    sequence_tokens_per_s: float | None
    compute_bound_batch: int | None
    cache_outweighs_context: int | None


def facts_in(summary: dict[str, Any]) -> LanguageFacts | None:
    """The facts of a causal model in the summary of an estimate, or in the facts of a run; None for other models."""
    fields = summary.get("language")
    return LanguageFacts.from_fields(fields) if fields else None


def work_of_phase(facts: LanguageFacts | None, phase: str | None, types: Types) -> StepWork | None:
    """The work of prefill or decode; None for other phases and models."""
    if facts is None or phase not in GENERATION_PHASES:
        return None
    return step_work(facts, phase, precision_of(facts, types.weights, types.cache))


def resident_bytes(facts: LanguageFacts, phase: str, types: Types) -> tuple[float, float]:
    """The bytes of weights and of all caches in memory in a phase of generation."""
    precision = precision_of(facts, types.weights, types.cache)
    length = facts.context_length if phase == DECODE else facts.prompt_length
    return (
        resident_weight_bytes(facts, precision),
        facts.batch_size * resident_cache_bytes(facts, length, precision),
    )


def language_estimate(
    facts: LanguageFacts, phase: str, types: Types, machine: Machine | None, unit: str | None, least_ns: float | None
) -> LanguageEstimate:
    """The row of a phase whose least time on a machine is `least_ns`. `unit` does its products, such as tensor_bf16."""
    precision = precision_of(facts, types.weights, types.cache)
    work, decodes = step_work(facts, phase, precision), phase == DECODE
    steps = facts.tokens(phase)
    weights_resident, cache_resident = resident_bytes(facts, phase, types)
    bandwidth = machine.rates.get("dram") if machine is not None else None
    peak = machine.rates.get(unit) if machine is not None and unit is not None else None
    batch = None
    if decodes and peak is not None and bandwidth is not None:
        batch = compute_bound_batch(facts, precision, peak.value, bandwidth.value)
    return LanguageEstimate(
        has_head=facts.has_head,
        prompt_length=None if decodes else facts.prompt_length,
        context_length=facts.context_length if decodes else None,
        new_tokens=facts.new_tokens if decodes else None,
        weights_type=types.weights or facts.quantisation,
        cache_type=types.cache,
        weights_read_bytes=work.weight_bytes,
        cache_read_bytes=work.cache_read_bytes,
        cache_written_bytes=work.cache_written_bytes,
        activation_bytes=work.activation_bytes,
        bytes_per_token=work.bytes_per_token,
        weights_resident_bytes=weights_resident,
        cache_resident_bytes=cache_resident,
        cached_bytes_per_token=len(facts.windows) * facts.cached_elements * precision.cached,
        flops_arithmetic=work.flops,
        least_token_ns=None if least_ns is None else least_ns / steps,
        tokens_per_s=None if not least_ns else work.tokens / least_ns * 1e9,
        sequence_tokens_per_s=None if not least_ns else steps / least_ns * 1e9,
        compute_bound_batch=batch,
        cache_outweighs_context=cache_outweighs_context(facts, precision) if decodes else None,
    )


def compute_bound_batch(facts: LanguageFacts, precision: Precision, peak: float, bandwidth: float) -> int | None:
    """The smallest batch at which FLOPs / peak of a decode step are at least bytes / bandwidth.

    None if decode is memory bound at every batch, since each sequence brings its own cache. `peak` in FLOP/s,
    `bandwidth` in byte/s. FLOPs, caches and activations grow with the batch, and among weights only experts, ever
    slower: so once compute bound, decode stays so.
    """
    one = replace(facts, new_tokens=1)

    def computes_longer(batch: int) -> bool:
        work = step_work(at(one, batch), DECODE, precision)
        return work.flops / peak >= work.bytes / bandwidth

    return _smallest(computes_longer)


def cache_outweighs_context(facts: LanguageFacts, precision: Precision) -> int | None:
    """The shortest context at which a step reads more cache than weights at this batch; None if windows prevent it."""
    one = replace(facts, new_tokens=1)
    weights = weight_bytes(one, one.batch_size, precision)
    return _smallest(
        lambda context: step_work(at(one, one.batch_size, context), DECODE, precision).cache_read_bytes > weights
    )


def _smallest(holds: Callable[[int], bool]) -> int | None:
    """The smallest positive integer for which a condition holds that then holds for all larger ones."""
    high = 1
    while not holds(high):
        high *= 2
        if high > LARGEST:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
