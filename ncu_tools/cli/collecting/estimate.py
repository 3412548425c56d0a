"""ncu-bench estimate: FLOPs, bytes and times of a model on a machine, without running it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from ncu_launch.errors import NcuBenchError
from ncu_launch.targets.model_name_check import misspelt
from ncu_launch.targets.reference_kernels import default_phases, own_dtype
from ncu_launch.workload.meta_device_process import Expectation, expectations_of
from ncu_launch.workload_spec import DTYPES, PHASES, Workload

from ncu_tools.cli.list_option import list_option
from ncu_tools.cli.options import MACHINE_FORMATS, format_option, show
from ncu_tools.cli.terminal_notes import MoreToSee
from ncu_tools.report.table import Column, Table

if TYPE_CHECKING:
    from ncu_tools.model.expected.estimate import Estimate

LOWER = "flops_operators_lower_bound"

COLUMNS = (
    Column("target", "model", wide=True),
    Column("batch_size", "batch", "count", spare=0),
    Column("dtype", "type"),
    Column("phase", "phase", spare=0),
    Column("parameters", "parameters", "count"),
    Column("flops", "FLOPs", "flop", "FLOP", spare=0),
    Column("flops_operators", "FLOPs (operators)", "flop", "FLOP", lower_bound_if=LOWER),
    Column("integer_operations", "integer OPs", "op", "OP"),
    Column("bytes_model", "bytes (model)", "byte", "byte"),
    Column("bytes_operators", "bytes (operators)", "byte", "byte"),
    Column("arithmetic_intensity", "FLOP/B", "number", "FLOP/byte"),
    Column("integer_intensity", "OP/B", "number", "OP/byte"),
    Column("whole_bytes", "of bytes"),
    Column("machine", "machine", spare=0),
    Column("time_model_ns", "at best", "time", "ns", spare=0),
    Column("bound", "bound"),
    Column("time_operators_ns", "per operator", "time", "ns"),
    Column("unknown_operators", "not known"),
    Column("failed", "failed", prose=True),
)
NOT_RUN = "nothing was run: times are what the roofline allows at best"
CONVENTIONS = (
    "FLOPs are those of products, convolutions and "
    "attention as PyTorch counts them, FLOPs (operators) all that operators compute, element-wise work too; bytes "
    "(model) are inputs + parameters + outputs of layers of a forward pass, bytes (operators) what each operator reads "
    "and writes; FLOP/B (FLOPs per byte), at best and bound are all from FLOPs and the bytes that stand beside them as "
    "of bytes, per operator from those of operators"
)
MACHINE_READABLE = (Column("uncounted_operators", "not counted"), Column(LOWER, "lower bound"))


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@list_option("--machine", "machine_names", metavar="NAME,...", help="The machines whose times are estimated.")
@list_option(
    "--batch-size", "batches", type=click.IntRange(min=1), default=(1,), metavar="N,...", help="Samples. [default: 1]"
)
@list_option("--dtype", "dtypes", type=click.Choice(DTYPES), default=("fp32",), help="Types. [default: fp32]")
@click.option("--input-size", type=click.IntRange(min=8), help="Image height and width.")
@click.option("--seq-len", type=click.IntRange(min=1), help="Sequence length of hf: models.")
@list_option("--phase", "phases", type=click.Choice(PHASES), help="Forward and backward if not given.")
@click.option("--unit", help="The peak to use whatever the type, such as tensor_fp16 (see ncu-bench machines NAME).")
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
    output_format: str,
) -> None:
    """Estimate parameters, FLOPs, bytes and the time that a machine needs at best, with nothing run.

    TARGET is a model as for profile; only FILE.py:FUNCTION or package.module:FUNCTION imports your code. It is built
    without memory and counted in seconds, so its size does not matter. "at best" is the greater of bytes / bandwidth
    and FLOPs / peak of the whole phase, "per operator" the sum of each operator's own. Operators without a formula are
    named, and what depends on them is left empty.

    \b
    Example:
      ncu-bench estimate resnet18 alexnet vgg16 --machine a100-sxm4-40gb,t4 --batch-size 256 --phase forward
      ncu-bench estimate hf:opt-6.7b --dtype fp16 --machine h100-sxm --seq-len 2048
    """
    from ncu_tools.ceilings.machine_files import find_machine
    from ncu_tools.model.expected.estimate import estimates, failed
    from ncu_tools.model.expected.operators_of_layers import operators_of

    machines = [find_machine(name) for name in machine_names]
    wrong = [misspelt(target) for target in targets]
    if wrong[0] is not None and all(wrong):
        raise wrong[0]
    workloads = [
        Workload(
            target, batch, input_size, seq_len, own_dtype(target) or dtype,
            phases=phases or default_phases(target), device="cpu",
        )
        for target in targets for dtype in dtypes for batch in batches
    ]  # fmt: skip
    rows: list[Estimate] = []
    expectations = _expectations(workloads)
    for workload, expectation in zip(workloads, expectations, strict=True):
        if expectation.why_not:
            rows.append(failed(workload, expectation.why_not))
        else:
            rows += estimates(workload, operators_of(expectation), expectation.summary, machines, unit)
    notes = [NOT_RUN, MoreToSee(CONVENTIONS), *_notes(rows, with_machines=bool(machines))]
    columns = (*COLUMNS, *MACHINE_READABLE) if output_format in MACHINE_FORMATS else COLUMNS
    show(Table("estimate", columns, [asdict(row) for row in rows], notes), output_format)
    if all(row.failed for row in rows):
        advice = expectations[0].advice or "Check the targets' names."
        raise NcuBenchError("Nothing could be estimated.", rows[0].failed or "", advice)


def _expectations(workloads: list[Workload]) -> list[Expectation]:
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        return expectations_of(workloads)
    with console.status(f"counting {len(workloads)} models"):
        return expectations_of(workloads)


def _notes(rows: list[Estimate], *, with_machines: bool) -> list[str]:
    uncounted = sorted({row.uncounted_operators for row in rows if row.uncounted_operators})
    notes = [f"FLOPs (operators) are without those of {'; '.join(uncounted)}: no formula"] if uncounted else []
    if not with_machines:
        return [*notes, "name machines with --machine for times"]
    without = sorted(
        {
            f"{row.machine} ({row.dtype})"
            for row in rows
            if row.machine and row.bound is None and (row.flops or row.integer_operations)
        }
    )
    return [*notes, *([f"no peak for the type is known of {', '.join(without)}"] if without else [])]
