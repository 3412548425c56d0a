"""Advice without counters, which most clouds do not allow to read: facts from shapes, timeline and samples."""

from __future__ import annotations

import pyarrow as pa
from ncu_launch.notes import Note, NoteKind
from ncu_parsers.parse.sampled_timeline import SampledTimeline
from ncu_parsers.schema.vendors import why_no_ncu_for

from ncu_tools.advice.advise import NOT_COLLECTED, Advice, KernelAdvice, role_of
from ncu_tools.advice.situation.known_facts import bound_of, facts_of, in_words, sampled_means
from ncu_tools.advice.situation.measured import measured_kernels
from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.ceilings.launch_devices import of_a_cpu
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.source.spread.sampled_bytes import bytes_in

COUNT = "ncu --set full counts what bounds it (ncu-bench profile --tool ncu)"
PEERS = "waits for peers"
"""The role (roles.toml) of kernels not sent to ncu: if replayed, they wait for the other ranks for ever."""
OF_RANKS = "It waits for other GPUs; which comes last, traces of all ranks say: ncu-bench advise RANK0 RANK1 ..."
ON_A_CPU = (
    "these are operators of a CPU, of which no counters are read: ncu-bench advise MODEL --check measures what"
    " compiling and another memory layout bring here"
)
CLASSES = (
    "nothing was counted: numbers by shapes are work that had to be done, sampled ones are means of the whole GPU while"
    " a kernel ran, and neither sees caches or shared memory; those of a name are of all its launches"
)


def without_counters(launches: pa.Table, timeline: SampledTimeline | None = None) -> Advice:
    """Facts of kernels that have no counters; with samples in the `timeline` also their DRAM rates."""
    kernels = measured_kernels(launches)
    rows = {row.kernel: row for row in hotspots(launches, ceilings_of(launches)).rows}
    sampled, moved = sampled_means(launches), bytes_in(timeline) if timeline is not None else {}
    on_a_cpu, found = of_a_cpu(launches), []
    advice = why_no_ncu_for(launches) or COUNT
    for kernel in kernels:
        row, of_gpu = rows.get(kernel.name), sampled.get(kernel.name, {})
        facts = facts_of(kernel, row, of_gpu, moved.get(kernel.name))
        role, says = role_of(kernel.name), in_words(facts, bound_of(of_gpu, row), of_gpu)
        if not on_a_cpu:
            says += f". {OF_RANKS if role == PEERS else advice}"
        found.append(KernelAdvice(kernel, [], bound_of(of_gpu, row), role or NOT_COLLECTED, says, known=facts))
    notes = [Note(CLASSES, NoteKind.METHOD)] if any(one.known for one in found) else []
    notes += [Note(ON_A_CPU, NoteKind.METHOD)] if on_a_cpu else []
    return Advice(found, sum(kernel.total_ns for kernel in kernels), [*notes])
