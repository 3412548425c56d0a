"""ncu-bench estimate: FLOPs, bytes and times of a model on a machine, without running it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from errno import ENAMETOOLONG
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.targets.language.settings import NOT_QUANTISED, SCHEMES, causal_name, check
from ncu_launch.targets.model_name_check import misspelt, torchvision_names_unloaded
from ncu_launch.targets.reference_kernels import TYPES as KERNEL_TYPES
from ncu_launch.targets.reference_kernels import default_phases, is_known_work, own_dtype, with_type
from ncu_launch.workload.meta_device_process import expectations_of
from ncu_launch.workload_spec import DTYPES, PHASES, Workload
from ncu_parsers.parse.report_files import REPORT_SUFFIXES

from ncu_tools.cli.option_kinds.expected_options import ExpectedOptions, expected_options
from ncu_tools.cli.option_kinds.language_options import LanguageOptions, language_options, require_sizes_of
from ncu_tools.cli.option_kinds.list_option import list_option
from ncu_tools.cli.options import MACHINE_FORMATS, format_option, options_in, show, status_and_lines
from ncu_tools.cli.terminal_notes import MoreToSee
from ncu_tools.model.language.parameter_types import BYTES_PER_PARAMETER as TYPES
from ncu_tools.numbers.number_format import counted, scaled
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    from ncu_tools.ceilings.machine_files import Machine
    from ncu_tools.model.expected.estimate import Estimate

LOWER = "flops_operators_lower_bound"

COLUMNS = columns(
    "target batch_size~0 input_size~9 sequence_length~9 dtype weights_type cache_type phase~0 prompt_length~0 "
    "context_length~0 new_tokens head~8 parameters flops flops_operators integer_operations bytes_model "
    "weights_read_bytes~1 cache_read_bytes~1 cache_written_bytes activation_bytes bytes_per_token "
    "bytes_operators arithmetic_intensity integer_intensity whole_bytes machine~0 time_model_ns~0 "
    "expected_ns~0 low_ns~0 high_ns~0 compiled_ns~0 bound time_operators_ns least_token_ns~1 "
    "estimate.tokens_per_s~1 sequence_tokens_per_s compute_bound_batch~1 "
    "cache_outweighs_context~1 cached_bytes_per_token weights_resident_bytes cache_resident_bytes "
    "unknown_operators failed"
)
HEAD = {True: "yes", False: "no", None: None}
NOT_RUN = "nothing was run: times are what the roofline allows at best for the bytes that are counted"
EXPECTED = (
    "expected is an estimate of a run, eager and compiled, by physics and measured times of other models (basis: of "
    "which GPUs); from - to holds 80 % of times like it, and backward passes were not measured (docs/estimate.md)"
)
CONVENTIONS = (
    "FLOPs are those of products, convolutions and attention as PyTorch counts them, FLOPs (operators) all that "
    "operators compute, element-wise work too; bytes (model) are inputs + parameters + outputs of layers with "
    "parameters + what the target returns beside those, of a forward pass (a program that fuses layers, or finds "
    "their outputs in L2, moves fewer and may be faster), bytes (operators) what each operator reads and writes; "
    "FLOP/B (FLOPs per byte), at best and bound are all from FLOPs and the bytes that stand beside them as of "
    "bytes, per operator from those of operators"
)
GENERATION = (
    "bytes of prefill and decode (of bytes: as read) are the least that has to be read and written: weights that are "
    "active, of T tokens that go to k of E experts at random those of E x (1 - (1 - k/E)^T), the KV cache as far back "
    "as layers attend, what is added to it, and inputs and outputs of products; resident is not read"
)
QUANTISED = (
    "weights as: torchao quantises linear modules to it; LM head, embeddings and stacked experts stay as they are; "
    "bytes as read hold its packed weights, scales and zero points, bytes (operators) what turning them back moves too"
)
WEIGHT_ONLY = (
    "--weights and --kv-cache change bytes and not FLOPs: products are computed in --dtype, and scales of groups of "
    "weights are not in the bytes; bytes (operators) and per operator are those of --dtype"
)
MASKED = (
    "attention of {0} is causal: FLOPs count it in full, as PyTorch does, and FLOPs (operators) leave out what the "
    "mask skips, so that they may be fewer; FLOP/B, at best and bound leave it out of FLOPs too"
)
MOST_NAMED = 3
DOES_NOT_FIT = "does not fit"
IN_TF32 = (
    "convolutions are in TF32, as PyTorch computes those of FP32 by default, and products in FP32: --dtype fp32 is "
    "without TF32, --dtype tf32 with it for both"
)
NEVER = "decode of {0} stays memory bound at every batch: each sequence brings a cache of its own"
MACHINE_READABLE = columns(
    "flops_arithmetic uncounted_operators flops_operators_lower_bound conv_dtype least_memory_bytes exceeds_memory "
    "basis"
)


@dataclass(frozen=True)
class StoredAs:
    """Types in which a language model's weights and cache are stored, None for its own."""

    weights: str | None
    kv_cache: str | None


@click.command()
@click.argument("targets", nargs=-1, metavar="TARGET...")
@list_option("--machine", "machine_names", metavar="NAME,...", help="The machines whose times are estimated.")
@list_option(
    "--batch-size", "batches", type=click.IntRange(min=1), default=(1,), metavar="N,...", help="Samples. [default: 1]"
)
@list_option(
    "--dtype", "dtypes", type=click.Choice(DTYPES),
    help="Types. [default: fp32 as PyTorch runs it, convolutions in TF32 where a GPU has it; fp32 is without TF32]",
)  # fmt: skip
@click.option("--input-size", type=click.IntRange(min=8), help="Image height and width.")
@click.option("--seq-len", type=click.IntRange(min=1), help="Sequence length of hf: models.")
@list_option("--phase", "phases", type=click.Choice(PHASES), help="Forward and backward if not given.")
@click.option("--unit", help="The peak to use whatever the type, such as tensor_fp16 (see ncu-bench machines NAME).")
@click.option("--weights", type=click.Choice(list(TYPES)), help="Type of a language model's weights, by bytes alone.")
@click.option("--kv-cache", type=click.Choice(list(TYPES)), help="Type of its cached keys and values, by bytes alone.")
@options_in(StoredAs, "stored")
@language_options
@expected_options
@format_option
def command(
    targets: tuple[str, ...],
    machine_names: tuple[str, ...],
    batches: tuple[int, ...],
    dtypes: tuple[str, ...],
    input_size: int | None,
    seq_len: int | None,
    phases: tuple[str, ...],
    unit: str | None,
    stored: StoredAs,
    language: LanguageOptions,
    expected: ExpectedOptions,
    output_format: str,
) -> None:
    """Estimate parameters, FLOPs, bytes and the time that a machine needs at best, with nothing run.

    TARGET is a model as for profile, or several with commas between; only FILE.py:FUNCTION or package.module:FUNCTION
    imports your code. It is built without memory and counted in seconds, so its size does not matter. "at best" is the
    greater of bytes / bandwidth and FLOPs / peak of the whole phase, "per operator" the sum of each operator's own.
    Operators without a formula are named, and what depends on them is left empty. What does not fit into a machine's
    memory has no times there. In place of a model, a report or trace of a GPU says what its kernels are expected to
    take on the machines.

    \b
    Example:
      ncu-bench estimate resnet18,alexnet,vgg16 --machine a100-sxm4-40gb,t4 --batch-size 256 --phase forward
      ncu-bench estimate hf:opt-6.7b --dtype fp16 --machine h100-sxm --seq-len 2048
      ncu-bench estimate hf:llama-3-8b --phase decode --context-length 1024,8192 --dtype bf16 --machine h100-sxm
      ncu-bench estimate trace.json --machine b200
      ncu-bench estimate --ops operators.csv --machine b200,h100-sxm --format csv
    """
    from ncu_tools.ceilings.machine_files import find_machine, which_board
    from ncu_tools.model.expected.estimate import estimates
    from ncu_tools.model.language.language_estimate import Types

    machines = [find_machine(name) for name in machine_names]
    boards = [note for name, one in zip(machine_names, machines, strict=True) for note in which_board(name, one)]
    if expected.operators is not None:
        from ncu_tools.cli.tables.expected_operators import operators_table

        _refuse(OF_MODELS, "describe models", "the rows of --ops say their sizes and types")
        show(operators_table(expected.operators, expected, targets, machines, boards), output_format)
        return
    if runs := measured_runs(targets):
        from ncu_tools.cli.tables.carried_runs import carried_table, learn_from

        _refuse(OF_MODELS, "describe models", f"what {runs[0]} ran is in it")
        table = learn_from(expected, runs) if expected.learn else carried_table(expected, runs, machines, boards)
        show(table, output_format)
        return
    if not targets:
        raise WrongUsage("estimate needs a TARGET, or a table of operators.", advice="Try: ncu-bench estimate resnet18")
    if expected.output is not None:
        raise WrongUsage(
            "-o is the picture of a measured run, or the file of --learn; models have neither.",
            advice="Give a RUN, or leave -o out; --format json writes the numbers.",
        )
    _refuse(OF_RUNS, "are of runs and tables of operators", f"{targets[0]} is none")
    workloads = _workloads(targets, batches, dtypes or (DTYPES[0],), phases, (input_size, seq_len), language)
    _refuse_contradictions(stored, workloads, language)
    with status_and_lines(f"counting {len(workloads)} models"):
        expectations = expectations_of(workloads)
    types = Types(stored.weights, stored.kv_cache)
    rows = estimates(workloads, expectations, machines, unit, types, allows_tf32=not dtypes)
    told = [EXPECTED] if any(row.expected_ns is not None for row in rows) else []
    notes = [*_on_memory(rows, machines), *boards, NOT_RUN, *told, *_notes(rows, with_machines=bool(machines))]
    notes.append(MoreToSee(CONVENTIONS))
    cells = [_cells(row) if output_format in MACHINE_FORMATS else _for_people(row) for row in rows]
    show(Table("estimate", COLUMNS, cells, notes, more=MACHINE_READABLE), output_format)
    if all(row.failed for row in rows):
        advice = expectations[0].advice or "Check the targets' names."
        raise NcuBenchError("Nothing could be estimated.", f"{(rows[0].failed or '').rstrip('.')}.", advice)


OF_MODELS = (
    "batches", "dtypes", "input_size", "seq_len", "phases", "unit", "weights", "kv_cache", "prompt_lengths",
    "context_lengths", "new_tokens", "caches", "schemes", "no_head", "fields",
)  # fmt: skip
OF_RUNS = ("learnt", "measured_on", "learn")


def _refuse(options: Sequence[str], what: str, but: str) -> None:
    """Raise `WrongUsage` if one of these options was typed, since it would have no effect."""
    context = click.get_current_context()
    typed = [
        parameter.opts[0] for parameter in context.command.params
        if parameter.name in options and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]  # fmt: skip
    if typed:
        raise WrongUsage(
            f"Options that {what} were given ({', '.join(typed)}), and {but}.",
            advice=f"Leave {' and '.join(typed)} out.",
        )


def _workloads(
    targets: tuple[str, ...],
    batches: tuple[int, ...],
    dtypes: tuple[str, ...],
    phases: tuple[str, ...],
    sizes: tuple[int | None, int | None],
    language: LanguageOptions,
) -> list[Workload]:
    """Every model with every batch, type and length; `sizes` are those of an image and of a sequence.

    Raises `WrongUsage` where no target is a model.
    """
    from ncu_tools.model.expected.estimate import one_by_one

    named = tuple(dict.fromkeys(with_type(one, dtype) for one in separated(targets) for dtype in dtypes))
    wrong = {target: misspelt(target) for target in named}
    if (first := wrong[named[0]]) is not None and all(wrong.values()):
        raise first
    language.require_causal(named)
    input_size, seq_len = sizes
    require_sizes_of(named, image=input_size is not None, sequence=seq_len is not None)
    return list(dict.fromkeys(
        workload if wrong[target] else check(workload, phases)
        for target in named
        for dtype in dtypes
        for arguments in (language.combinations() if causal_name(target) else ((),))
        for batch in batches
        for workload in one_by_one(
            Workload(
                target, batch, input_size, seq_len, own_dtype(target) or dtype,
                phases=phases or default_phases(target), device="cpu", arguments=arguments,
                phases_are_defaults=not phases,
            )
        )
    ))  # fmt: skip


def _refuse_contradictions(stored: StoredAs, workloads: Sequence[Workload], language: LanguageOptions) -> None:
    if (stored.weights or stored.kv_cache) and not any(workload.generates for workload in workloads):
        raise WrongUsage(
            "--weights and --kv-cache are of prefill and decode, and neither is estimated here.",
            advice="Add --phase decode, or leave them out.",
        )
    if stored.weights and any(scheme != NOT_QUANTISED for scheme in language.schemes):
        raise WrongUsage(
            "--weights and --quantize both say what the weights are.",
            "--weights counts other bytes of each weight; --quantize counts what torchao makes of them, with scales.",
            "Give one of the two.",
        )


def measured_runs(targets: tuple[str, ...]) -> tuple[str, ...]:
    """The targets if they are paths of runs, () if they are models. Raises `WrongUsage` for a mixture.

    FILE.py:FUNCTION, with its colon, is a model. A name with the ending of a report is a path, even if it does not
    exist. A name that is both a model and a path is ambiguous.
    """
    runs = [target for target in targets if _is_path(target)]
    names = [target for target in targets if target not in runs]
    if not runs:
        return ()
    if names:
        raise WrongUsage(
            f"{', '.join(runs)} is a run, and {', '.join(names)} is none: they cannot be estimated together.",
            advice="Give runs or models.",
        )
    for run in runs:
        if Path(run).name == run and _is_model(run):
            raise WrongUsage(
                f"{run} is a path here and the name of a model.",
                advice=f"Write ./{run} for the run, or name the model in another folder.",
            )
    return tuple(runs)


def _is_model(name: str) -> bool:
    """True if a model or reference kernel has this name; without torchvision, none of its models does."""
    if misspelt(name) is not None:
        return False
    return ":" in name or own_dtype(name) is not None or name in torchvision_names_unloaded()


def _is_there(name: str) -> bool:
    """True if a file or folder has this name; False if it is too long for one, as lists of models can be."""
    try:
        return Path(name).exists()
    except OSError as error:
        if error.errno == ENAMETOOLONG:
            return False
        raise


def _is_path(target: str) -> bool:
    if _is_there(target):
        return not target.endswith(".py")
    return Path(target.removesuffix(".gz").removesuffix(".zst")).suffix in REPORT_SUFFIXES


def separated(targets: tuple[str, ...]) -> tuple[str, ...]:
    """The targets split at commas; commas within gemm:M,N,K,TYPE and conv: belong to one target."""
    found: list[str] = []
    for target in targets:
        is_path = _is_there(target.partition(":")[0])
        for part in map(str.strip, [target] if is_path else target.split(",")):
            if found and is_known_work(found[-1]) and (part[:1].isdigit() or "=" in part or part in KERNEL_TYPES):
                found[-1] += f",{part}"
            elif part:
                found.append(part)
    return tuple(found)


def _cells(row: Estimate) -> dict[str, object]:
    """A row as cells, with its LM head in words."""
    return {**row.cells(), "head": HEAD[row.has_head]}


def _for_people(row: Estimate) -> dict[str, object]:
    """A row for people: with the type of convolutions, and words in place of a time if memory is exceeded."""
    conv = {None: "", "tf32": ", conv tf32", "fp32": " (no TF32)"}[row.conv_dtype]
    no_time = {"time_model_ns": DOES_NOT_FIT} if row.exceeds_memory else {}
    return {**_cells(row), "dtype": row.dtype + conv, **no_time}


def _on_memory(rows: list[Estimate], machines: list[Machine]) -> list[str]:
    """Notes on models that do not fit into the memory of a machine."""
    memories = {one.id: one.memory_bytes for one in machines}
    found = dict.fromkeys(
        f"{row.target} with batch {row.batch_size:,} does not fit {row.machine}: by its shapes at least "
        f"{scaled(row.least_memory_bytes or 0, 'B')} are in memory at once, and it has {scaled(memory, 'B')}"
        for row in rows
        if row.exceeds_memory and row.machine and (memory := memories[row.machine])
    )
    more = len(found) - MOST_NAMED
    return [*list(found)[:MOST_NAMED], *([f"{counted(more, 'more does', 'more do')} not fit"] if more > 0 else [])]


def _on_generation(rows: list[Estimate]) -> list[str]:
    """Notes on the bytes of language models, and on machines on which decode never becomes compute bound."""
    found = [row for row in rows if row.language is not None]
    if not found:
        return []
    types = {row.language.weights_type for row in found if row.language}
    changed = bool(types & set(TYPES)) or any(row.language and row.language.cache_type for row in found)
    never = {
        f"{row.target} on {row.machine}"
        for row in found
        if row.bound and row.phase == "decode" and row.language and row.language.compute_bound_batch is None
    }
    return [
        GENERATION,
        *([QUANTISED] if types & set(SCHEMES) else []),
        *([WEIGHT_ONLY] if changed else []),
        *([NEVER.format(", ".join(sorted(never)))] if never else []),
    ]


def _on_masks(rows: list[Estimate]) -> list[str]:
    """A note on targets whose FLOPs include what a causal mask skips, which FLOPs (operators) do not."""
    targets = dict.fromkeys(row.target for row in rows if row.masked_flops and row.flops is not None)
    return [MASKED.format(", ".join(targets))] if targets else []


def _notes(rows: list[Estimate], *, with_machines: bool) -> list[str]:
    uncounted = sorted({row.uncounted_operators for row in rows if row.uncounted_operators})
    notes = [f"FLOPs (operators) are without those of {'; '.join(uncounted)}: no formula"] if uncounted else []
    notes += [IN_TF32] if any(row.conv_dtype == "tf32" for row in rows) else []
    notes += [*_on_masks(rows), *_on_generation(rows)]
    if not with_machines:
        return [*notes, "name machines with --machine for times"]
    without = sorted(
        {
            f"{row.machine} ({row.dtype})"
            for row in rows
            if row.machine and row.bound is None and not row.exceeds_memory and (row.flops or row.integer_operations)
        }
    )
    return [*notes, *([f"no peak for the type is known of {', '.join(without)}"] if without else [])]
