"""The table of `compare --with formulas` for prefill and decode: time of a step, bytes as read, MFU and MBU."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

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
from ncu_tools.cli.comparing.what_ran import WhatRan
from ncu_tools.cli.options import show
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
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.head import Head
from ncu_tools.report.table import Table

COLUMNS = columns(
    "phase engine batch_size prompt_length context_length steps generation.tokens generation.time_ns "
    "tokens_per_s measured_flops arithmetic_flops flops_ratio measured_bytes read_bytes bytes_ratio "
    "weights_read_bytes cache_read_bytes cache_written_bytes activation_bytes mfu mbu of_the_roof"
)
NO_PEAKS = "MFU and MBU need a machine: name it with --machine"


@dataclass
class GenerationTable:
    """Rows of prefill and decode, and notes. `has_counters` says whether hardware counted FLOPs or bytes."""

    rows: list[MeasuredPhase]
    notes: list[str]
    has_counters: bool

    def show(self, notes: list[str], output_format: str, head: Head | None = None) -> None:
        """Write the table, below its head."""
        table = Table("expected", COLUMNS, [asdict(row) for row in self.rows], [*notes, *self.notes])
        show(table, output_format, head=head)


def generation_of(
    run: str, table: pa.Table, workload: Workload | None, ran: WhatRan, phases: tuple[str, ...]
) -> GenerationTable | None:
    """Prefill and decode of a run, or of a report whose options describe the run; None if it is neither.

    Raises `WrongUsage` if a language model is named and nothing shows the phase of the launches.
    """
    if set(tables.words(table, "source")) <= BY_OPERATOR:
        return None
    asked = StepsAsked(ran.tokens_per_step, ran.iterations)
    if workload is None:
        return _of_our_run(run, table, ran, phases)
    if causal_name(workload.target) is None or not _may_generate(workload, phases):
        return None
    step, notes = engine_step(table)
    wanted = [phase for phase in phases if phase in GENERATION_PHASES]
    if not wanted and step is not None:
        wanted = [step.phase]
    if not wanted:
        if ran.tokens_per_step:
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
    machine = _machine(table, ran)
    found = GenerationTable([], notes, _has_counters(table))
    for phase in wanted:
        launches = of_phase(table, phase)
        known = facts_as_ran(facts, phase, step, asked)
        steps = steps_in(known, step, asked, _iterations(launches))
        found.notes += [*_said(step), *on_steps(known, step, asked, steps)]
        _add(found, launches, known, phase, steps, (step.engine if step else None, machine, workload.dtype))
    return found


def _may_generate(workload: Workload, phases: tuple[str, ...]) -> bool:
    return not phases or bool(set(phases) & set(GENERATION_PHASES))


def _of_our_run(run: str, table: pa.Table, ran: WhatRan, phases: tuple[str, ...]) -> GenerationTable | None:
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
    machine = _machine(table, ran)
    found = GenerationTable([], [], _has_counters(table))
    for phase in wanted:
        launches = of_phase(table, phase)
        own = facts_as_ran(facts, phase, None, StepsAsked(ran.tokens_per_step))
        _add(found, launches, own, phase, _iterations(launches), (None, machine, dtype))
    return found


def _add(
    found: GenerationTable,
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


def _said(step: EngineStep | None) -> list[str]:
    return [f"{step.phase}, by {', '.join(step.evidence)}"] if step is not None and step.evidence else []


def _machine(table: pa.Table, ran: WhatRan) -> Machine | None:
    """The machine that the user names, else the launches' only device."""
    if ran.machine is not None:
        return ran.machine
    devices = list(devices_of(table))
    return (machine_of_device(devices[0].name) or measured_of(devices[0])) if len(devices) == 1 else None


def _iterations(table: pa.Table) -> int:
    named = tables.floats(table, "iteration")
    return len(np.unique(named[~np.isnan(named)])) or 1


def _has_counters(table: pa.Table) -> bool:
    """True if DRAM bytes or FLOPs were counted, not derived from shapes."""
    counted = tables.floats(table, "dram_bytes")
    return bool((~np.isnan(counted)).any()) or "ncu" in set(tables.words(table, "source"))
