"""Measured prefill and decode: GPU time of a step, tokens per second, and measured bytes beside the least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from ncu_launch.errors import WrongUsage
from ncu_launch.targets.language.facts import LanguageFacts
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.tables import SHAPES_BASIS

from ncu_tools.ceilings.machine_files import Machine
from ncu_tools.model.language.engine_steps import EngineStep
from ncu_tools.model.language.step_work import DECODE, PREFILL, step_work
from ncu_tools.model.language.utilisation import DEFINITIONS, utilisation
from ncu_tools.numbers.number_format import percent

GPU_TIME = (
    "times are sums of GPU operations of a step, without the gaps between them: where there are gaps, tokens per "
    "second, MFU and MBU by the clock on the wall are lower"
)
ROUNDING = 1.02
"""A share of a peak above this exceeds the peak's rounding."""
IMPOSSIBLE = (
    "more than the machine has: its peak is for another type (--dtype, --weights, --kv-cache), the run was on another "
    "machine, or it holds another number of steps (--iterations)"
)


@dataclass(frozen=True)
class MeasuredPhase:
    """A phase of a run, per step. Times in ns; None if the report does not show it.

    `tokens` counts all sequences in a step. `arithmetic_flops` and `read_bytes` are the least by arithmetic,
    `measured_flops` and `measured_bytes` the hardware counts. MFU and MBU as in `ncu_tools.model.language.utilisation`.
    """

    phase: str
    engine: str | None
    batch_size: int
    prompt_length: int | None
    context_length: int | None
    steps: int
    tokens: int
    time_ns: float | None
    tokens_per_s: float | None
    arithmetic_flops: float
    measured_flops: float | None
    flops_ratio: float | None
    read_bytes: float
    weights_read_bytes: float
    cache_read_bytes: float
    cache_written_bytes: float
    activation_bytes: float
    measured_bytes: float | None
    bytes_ratio: float | None
    mfu: float | None
    mbu: float | None
    of_the_roof: float | None


@dataclass
class StepsAsked:
    """The user's facts on the steps: tokens of each, and their number; None if the report gives them."""

    tokens_per_step: int | None = None
    steps: int | None = None


def facts_as_ran(facts: LanguageFacts, phase: str, step: EngineStep | None, asked: StepsAsked) -> LanguageFacts:
    """The facts with batch and lengths from the report and the user.

    In decode a token per step is a sequence. Raises `WrongUsage` for tokens that the sequences cannot share equally.
    """
    if step is not None and step.batch_size:
        facts = replace(facts, batch_size=step.batch_size)
    if step is not None and step.context_length:
        facts = replace(facts, context_length=step.context_length)
    tokens = asked.tokens_per_step or (step.tokens if step is not None and phase == PREFILL else None)
    if tokens is None:
        return facts
    if phase == DECODE:
        return replace(facts, batch_size=tokens, new_tokens=1)
    if tokens % facts.batch_size:
        raise WrongUsage(
            f"{tokens} tokens per step are no equal prompts of {facts.batch_size} sequences.",
            advice="Say --batch-size as it was, or --prompt-length of one prompt.",
        )
    return replace(facts, prompt_length=tokens // facts.batch_size)


def steps_in(facts: LanguageFacts, step: EngineStep | None, asked: StepsAsked, iterations: int) -> int:
    """The number of steps of a phase: the user's, else attention launches / layers if that is whole.

    Else the number of distinct names, or of iterations, whichever is larger.
    """
    if asked.steps is not None:
        return asked.steps
    if counted := _steps_by_kernel(facts, step):
        return counted
    return max(iterations, (step.ranges or 1) if step is not None else 1)


def on_steps(facts: LanguageFacts, step: EngineStep | None, asked: StepsAsked, steps: int) -> list[str]:
    """A note if the number of an engine's steps is assumed, since times per step, MFU and MBU depend on it."""
    if asked.steps is not None or _steps_by_kernel(facts, step):
        return []
    return [
        f"taken as {steps} step{'s' if steps != 1 else ''}, since nothing counts them: if it holds more, "
        "say --iterations, which times of a step, MFU and MBU depend on"
    ]


def _steps_by_kernel(facts: LanguageFacts, step: EngineStep | None) -> int | None:
    launches = step.attention_launches if step is not None else None
    return launches // len(facts.windows) if launches and launches % len(facts.windows) == 0 else None


def measured_phase(
    table: pa.Table,
    facts: LanguageFacts,
    phase: str,
    steps: int,
    *,
    engine: str | None = None,
    machine: Machine | None = None,
    unit: str | None = None,
) -> tuple[MeasuredPhase, list[str]]:
    """A phase whose launches are `table`, and notes. FLOPs derived from shapes do not count as measured."""
    work = step_work(facts, phase)
    time, flops, moved = (_sum(table, name) for name in ("duration_ns", "flops", "dram_bytes"))
    if SHAPES_BASIS in tables.words(table, "flops_basis"):
        flops = None
    time, flops, moved = (None if value is None else value / steps for value in (time, flops, moved))
    used = utilisation(work, time, machine, unit) if machine is not None and time else None
    row = MeasuredPhase(
        phase=phase,
        engine=engine,
        batch_size=facts.batch_size,
        prompt_length=facts.prompt_length if phase == PREFILL else None,
        context_length=facts.context_length if phase == DECODE else None,
        steps=steps,
        tokens=work.tokens,
        time_ns=time,
        tokens_per_s=work.tokens / time * 1e9 if time else None,
        arithmetic_flops=work.flops,
        measured_flops=flops,
        flops_ratio=None if flops is None else flops / work.flops,
        read_bytes=work.bytes,
        weights_read_bytes=work.weight_bytes,
        cache_read_bytes=work.cache_read_bytes,
        cache_written_bytes=work.cache_written_bytes,
        activation_bytes=work.activation_bytes,
        measured_bytes=moved,
        bytes_ratio=None if moved is None else moved / work.bytes,
        mfu=used.mfu if used is not None else None,
        mbu=used.mbu if used is not None else None,
        of_the_roof=used.of_the_roof if used is not None else None,
    )
    notes = [GPU_TIME, *([DEFINITIONS, used.said] if used is not None else [])]
    for title, share in (("MFU", row.mfu), ("MBU", row.mbu)):
        if share is not None and share > ROUNDING:
            notes.insert(0, f"{phase}: {title} is {percent(share)}, {IMPOSSIBLE}")
    return row, notes


def of_phase(table: pa.Table, phase: str) -> pa.Table:
    """The launches of a phase; all of them if none knows its phase."""
    phases: Sequence[str | None] = tables.words(table, "phase")
    return arrays.kept(table, [one == phase for one in phases]) if phase in phases else table


def _sum(table: pa.Table, name: str) -> float | None:
    """The sum over all launches, None if one has no value. A failed launch counts as one without."""
    values = tables.floats(table, name) * tables.launch_counts(table)
    return None if not len(values) or np.isnan(values).any() else float(values.sum())
