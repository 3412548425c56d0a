"""ncu-bench compare --with formulas: measured FLOPs and bytes beside those of operator formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.manifest import folder_of, read_manifest
from ncu_launch.notes import Note, NoteKind
from ncu_launch.nvtx_ranges import RUN_PHASES
from ncu_launch.targets.language.settings import check
from ncu_launch.workload_spec import DTYPES

from ncu_tools.cli.comparing.what_ran import WhatRan
from ncu_tools.cli.option_kinds.language_options import language_options
from ncu_tools.cli.option_kinds.list_option import list_option
from ncu_tools.cli.options import (
    format_option,
    hidden_rows,
    machine_option,
    options_in,
    progress,
    rows_shown,
    show,
    top_option,
)
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from ncu_tools.model.expected.both_sides import Collection
    from ncu_tools.model.expected.generation import GeneratedPhases
    from ncu_tools.model.expected.measured_vs_expected import ExpectedComparison, Row

LOWER, ALL_LOWER = "flops_lower_bound", "all_flops_lower_bound"

FITTING = column("fitting")
LESS_WORK = ("has less work", "have less work")
OF_GENERATION = columns(
    "phase engine batch_size prompt_length context_length steps generation.tokens generation.time_ns "
    "tokens_per_s measured_flops arithmetic_flops flops_ratio measured_bytes read_bytes bytes_ratio "
    "weights_read_bytes cache_read_bytes cache_written_bytes activation_bytes mfu mbu of_the_roof"
)
MACHINE_READABLE = columns("causes flops_lower_bound all_flops_lower_bound")
NOT_THE_SAME_BYTES = Note(
    "expected bytes are the least inputs, weights and outputs of every operator; caches make DRAM traffic smaller, "
    "tiles that read inputs again make it greater, so their ratio is not judged",
    NoteKind.METHOD,
)
NOT_THE_SAME_FLOPS = Note(
    "expected FLOPs are those of products, convolutions and attention; all operators are those of element-wise ones "
    "too, whose functions and comparisons no counter counts, and without the scores that a causal mask skips",
    NoteKind.METHOD,
)


@click.command()
@click.argument("run", metavar="RUN")
@click.option(
    "--depth", type=click.IntRange(min=1), metavar="N", help="Layers are the first N parts of module paths, whole."
)
@list_option(
    "--phase",
    "phases",
    type=click.Choice(RUN_PHASES),
    help="Show only these phases; with --target, expect only these.",
)
@click.option("--target", metavar="TARGET", help="What ran, for a report that does not know: a target as of profile.")
@click.option("--batch-size", type=click.IntRange(min=1), help="With --target: samples per iteration. [default: 1]")
@click.option("--input-size", type=click.IntRange(min=8), help="With --target: image height and width.")
@click.option("--seq-len", type=click.IntRange(min=1), help="With --target: sequence length.")
@click.option("--dtype", type=click.Choice(DTYPES), help="With --target: the type of its numbers. [default: fp32]")
@language_options
@click.option("--iterations", type=click.IntRange(min=1), help="With --target: how many were profiled. [default: 1]")
@click.option(
    "--tokens-per-step",
    type=click.IntRange(min=1),
    metavar="N",
    help="Of prefill and decode: the tokens of all sequences in a step, for MFU and MBU.",
)
@click.option("--nvtx", metavar="REGEX", help="With --target: only launches in ranges with this in their name.")
@machine_option
@top_option("layers")
@format_option
@options_in(WhatRan, "ran")
def command(
    run: str,
    depth: int | None,
    phases: tuple[str, ...],
    ran: WhatRan,
    top: int | None,
    output_format: str,
) -> None:
    """Set measured FLOPs and bytes beside expected ones: for the model, each phase and each layer.

    RUN is the folder of a model target that was profiled under ncu, or any report, of which --target says what ran and
    --phase which phases of it, or a trace joined with counts (ncu-bench parse --times), which holds the shapes of its
    operators, or a program that marked ranges with ncu_tools.range, which stand beside FLOPs and bytes it gave them.
    Expected FLOPs are those of contractions, from the shapes of its operators, and beside them those of all operators.
    Where measured / expected leaves 0.97 to 1.03, a note says which known cause fits, or why none does.

    Prefill and decode of a language model, ours or a serving engine's, have a table of their own: time of a step,
    token/s, bytes as they have to be read, MFU and MBU.

    \b
    Example:
      ncu-bench compare runs/resnet18-20260102T030405Z --with formulas
      ncu-bench compare RUN --with formulas --depth 2 --phase backward --format csv
      ncu-bench compare report.csv --with formulas --target resnet18 --batch-size 256 --phase forward
      ncu-bench compare trace.json.gz --with formulas --target hf:qwen3-8b --phase decode --tokens-per-step 32
    """
    from ncu_tools.cli.comparing.expected_ranges import show_ranges
    from ncu_tools.model.expected.both_sides import Collection
    from ncu_tools.model.expected.generation import generation_of
    from ncu_tools.model.expected.measured_vs_expected import LAYER, MODEL, OPERATOR, compare, compare_by_shapes
    from ncu_tools.model.expected.operators_of_layers import expected_of, expected_of_workload, has_work_by_shapes
    from ncu_tools.model.expected.user_ranges import passes_in
    from ncu_tools.model.language.engine_steps import inside
    from ncu_tools.model.language.measured_phases import StepsAsked
    from ncu_tools.report.head import head_of
    from ncu_tools.report.html.expected_content import EXPECTED_COLUMNS
    from ncu_tools.runs.loading import load
    from ncu_tools.runs.run import Run
    from ncu_tools.runs.selection import of_phases, pattern_of

    workload = ran.workload(phases)
    with progress("Reading") as reading:
        measured = load(run, reading=reading)
    if ran.nvtx is not None:
        left = inside(measured.table, pattern_of(ran.nvtx, "--nvtx"))
        measured = Run.held(measured.name, left, measured.notes)
    head = head_of([run], measured.table, measured.notes)
    if workload is None and (passes := passes_in(run)):
        show_ranges(measured.table, passes, list(measured.notes), output_format, head)
        return
    asked = StepsAsked(ran.tokens_per_step, ran.iterations)
    generation = generation_of(run, measured.table, workload, phases, asked, ran.machine)
    if generation is not None and not generation.has_counters:
        show(_of_generation(generation, measured.notes), output_format, head=head)
        return
    if ran.tokens_per_step and generation is None:
        raise WrongUsage(
            "--tokens-per-step is for prefill and decode, and the run does not show its phase.",
            advice="Say what ran, as --target hf:llama-3-8b --phase decode, or leave it out.",
        )
    workload = check(workload) if workload is not None else None
    if workload is not None and phases:
        measured = of_phases(measured, phases)
    _refuse_formulas(run, measured.table)
    if workload is None and has_work_by_shapes(measured.table):
        comparison = compare_by_shapes(measured.table, depth=depth)
    else:
        expected = expected_of_workload(workload) if workload else expected_of(run)
        collection = Collection(iterations=ran.iterations or 1) if workload else _collection(run)
        comparison = compare(measured.table, expected, collection=collection, depth=depth)
    rows = [row for row in comparison.rows if row.scope in (MODEL, OPERATOR) or not phases or row.phase in phases]
    heads = [row for row in rows if row.scope not in (LAYER, OPERATOR)]
    layers, operators = ([row for row in rows if row.scope == scope] for scope in (LAYER, OPERATOR))
    top = rows_shown(top, output_format)
    notes = hidden_rows(len(layers), top, "layer", LESS_WORK)
    notes += hidden_rows(len(operators), top, "operator", LESS_WORK)
    shown = [*heads, *layers[:top], *operators[:top]]
    notes += _notes(comparison, shown)
    extra: dict[str, Any] = {"iterations": comparison.iterations}
    if generation is not None and output_format == "json":
        extra["generation"] = [asdict(row) for row in generation.rows]
        notes += generation.notes
    columns = (*EXPECTED_COLUMNS, FITTING)
    notes += measured.notes
    table = Table("expected", columns, [_cells(row) for row in shown], notes, extra, MACHINE_READABLE)
    show(table, output_format, head=head_of([run], measured.table, measured.notes))
    if generation is not None and output_format in ("text", "markdown"):
        show(_of_generation(generation), output_format)


def _of_generation(found: GeneratedPhases, notes: Sequence[str] = ()) -> Table:
    """The table of prefill and decode."""
    return Table("expected", OF_GENERATION, [asdict(row) for row in found.rows], [*notes, *found.notes])


def _refuse_formulas(run: str, table: pa.Table) -> None:
    """Raise `NcuBenchError` for a run of the operator collector: its FLOPs come from the same formulas."""
    from ncu_parsers.schema import tables
    from ncu_parsers.schema.operator_columns import BY_OPERATOR

    if set(tables.words(table, "source")) <= BY_OPERATOR:
        raise NcuBenchError(
            f"{run} holds nothing that was measured: its FLOPs and bytes come from the same operator formulas.",
            "It was made by the embedded operator collector.",
            "Profile the model under ncu on a machine with an NVIDIA GPU: ncu-bench profile TARGET --tool ncu",
        )


def _collection(run: str) -> Collection:
    """How the run was collected, by its manifest; empty without a readable one."""
    from ncu_tools.model.expected.both_sides import Collection, collection_of

    try:
        return collection_of(read_manifest(folder_of(run)))
    except (OSError, ValueError, TypeError):
        return Collection()


def _cells(row: Row) -> dict[str, object]:
    unexplained = row.flops_ratio is not None and row.causes
    return {
        **asdict(row),
        "fitting": ", ".join(row.fitting) or ("no known cause" if unexplained else None),
        "causes": " ".join(row.causes) or None,
    }


def _notes(comparison: ExpectedComparison, rows: list[Row]) -> list[str]:
    """The notes of the comparison, then the causes of the rows that have any, the model first, equal ones once.

    A note explains the other rows only if none has a cause; machine-readable tables always do.
    """
    from ncu_tools.model.expected.measured_vs_expected import title

    alike: dict[str, list[str]] = {}
    for row in rows:
        if row.causes:
            alike.setdefault(" ".join(row.causes[:1] if row.fitting else row.causes), []).append(title(row))
    causes = [f"{', '.join(titles)}: {words}" for words, titles in alike.items()]
    return [*comparison.notes, NOT_THE_SAME_FLOPS, NOT_THE_SAME_BYTES, *causes]
