"""Prefill and decode of a measured run: time of a step, bytes as read, MFU and MBU, for `compare --with formulas`."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.manifest import folder_of, read_manifest
from ncu_launch.profile.plan import FACTS
from ncu_launch.targets.language.facts import LanguageFacts
from ncu_launch.targets.language.settings import causal_name, check
from ncu_launch.workload_spec import GENERATION_PHASES, Workload
from ncu_parsers.schema import tables
from ncu_parsers.schema.operator_columns import BY_OPERATOR

from ncu_tools.ceilings.launch_devices import devices_of, measured_of
from ncu_tools.ceilings.machine_files import Machine, machine_of_device, unit_of
from ncu_tools.model.expected.operators_of_layers import expectation_or_error
from ncu_tools.model.language.engine_steps import EngineStep, engine_step
from ncu_tools.model.language.language_estimate import facts_in
from ncu_tools.model.language.measured_phases import (
    MeasuredPhase,
    StepsAsked,
    facts_as_ran,
    measured_phase,
    of_phase,
    on_steps,
    steps_in,
)

NO_PEAKS = "MFU and MBU need a machine: name it with --machine"


@dataclass
class GeneratedPhases:
    """Rows of prefill and decode, and notes. `has_counters` says whether hardware counted FLOPs or bytes."""

    rows: list[MeasuredPhase]
    notes: list[str]
    has_counters: bool


def generation_of(
    run: str, table: pa.Table, workload: Workload | None, phases: tuple[str, ...], asked: StepsAsked,
    machine: Machine | None,
) -> GeneratedPhases | None:  # fmt: skip
    """Prefill and decode of a run folder, or of a report whose workload the user names; None if it is neither.

    Raises `WrongUsage` if a language model is named but its phase is unknown, or differs from the report's.
    """
    if set(tables.words(table, "source")) <= BY_OPERATOR:
        return None
    machine = machine or _machine_of(table)
    if workload is None:
        return _of_our_run(run, table, phases, asked, machine)
    if causal_name(workload.target) is None or not _may_generate(phases):
        return None
    step, notes = engine_step(table)
    wanted = [phase for phase in phases if phase in GENERATION_PHASES]
    if not wanted and step is not None:
        wanted = [step.phase]
    if not wanted:
        if asked.tokens_per_step:
            raise WrongUsage(
                f"Nothing in {run} says for certain whether it is prefill or decode.",
                " ".join(f"{note[0].upper()}{note[1:]}." for note in notes),
                "Say it with --phase prefill or --phase decode.",
            )
        return None
    if step is not None and step.phase not in wanted:
        raise WrongUsage(
            f"{run} is of {step.phase}, and not of {' and '.join(wanted)}.",
            f"Its ranges or kernels say so: {', '.join(step.evidence)}.",
            f"Say --phase {step.phase}, or leave --phase out.",
        )
    facts = _facts_of_workload(replace(workload, phases=tuple(wanted)), step)
    found = GeneratedPhases([], notes, _has_counters(table))
    for phase in wanted:
        launches = of_phase(table, phase)
        known = facts_as_ran(facts, phase, step, asked)
        steps = steps_in(known, step, asked, _iterations(launches))
        found.notes += [*_note_on_step(step), *on_steps(known, step, asked, steps)]
        _add(found, launches, known, phase, steps, (step.engine if step else None, machine, workload.dtype))
    return found


def _may_generate(phases: tuple[str, ...]) -> bool:
    return not phases or bool(set(phases) & set(GENERATION_PHASES))


def _of_our_run(
    run: str, table: pa.Table, phases: tuple[str, ...], asked: StepsAsked, machine: Machine | None
) -> GeneratedPhases | None:
    """Prefill and decode of a run folder of a language model, as profile writes it."""
    try:
        facts = facts_in(json.loads((folder_of(run) / FACTS).read_text("utf-8")))
        dtype = str(read_manifest(folder_of(run)).workload.get("dtype"))
    except (OSError, ValueError, TypeError):
        return None
    known = set(tables.words(table, "phase"))
    wanted = [one for one in GENERATION_PHASES if one in known and (not phases or one in phases)]
    if facts is None or not wanted:
        return None
    found = GeneratedPhases([], [], _has_counters(table))
    for phase in wanted:
        launches = of_phase(table, phase)
        own = facts_as_ran(facts, phase, None, asked)
        _add(found, launches, own, phase, _iterations(launches), (None, machine, dtype))
    return found


def _add(
    found: GeneratedPhases,
    launches: pa.Table,
    facts: LanguageFacts,
    phase: str,
    steps: int,
    ran_on: tuple[str | None, Machine | None, str],
) -> None:
    engine, machine, dtype = ran_on
    unit = unit_of(machine, dtype) if machine is not None else None
    row, notes = measured_phase(launches, facts, phase, steps, engine=engine or None, machine=machine, unit=unit)
    found.rows.append(row)
    found.notes = list(dict.fromkeys([*found.notes, *notes, *([] if machine is not None else [NO_PEAKS])]))


def _facts_of_workload(workload: Workload, step: EngineStep | None) -> LanguageFacts:
    """The facts of a model counted on the meta device. Raises `NcuBenchError` if it cannot be."""
    batch = step.batch_size if step is not None and step.batch_size else workload.batch_size
    expectation = expectation_or_error(check(replace(workload, batch_size=batch)))
    facts = facts_in(expectation.summary)
    if facts is None:
        raise NcuBenchError(f"{workload.target} is no causal language model.", advice="Name one, as hf:llama-3-8b.")
    return facts


def _note_on_step(step: EngineStep | None) -> list[str]:
    return [f"{step.phase}, by {', '.join(step.evidence)}"] if step is not None and step.evidence else []


def _machine_of(table: pa.Table) -> Machine | None:
    """The machine of the launches' only device."""
    devices = list(devices_of(table))
    return (machine_of_device(devices[0].name) or measured_of(devices[0])) if len(devices) == 1 else None


def _iterations(table: pa.Table) -> int:
    named = tables.floats(table, "iteration")
    return len(np.unique(named[~np.isnan(named)])) or 1


def _has_counters(table: pa.Table) -> bool:
    """True if DRAM bytes or FLOPs were counted, not derived from shapes."""
    counted = tables.floats(table, "dram_bytes")
    return bool((~np.isnan(counted)).any()) or "ncu" in set(tables.words(table, "source"))
