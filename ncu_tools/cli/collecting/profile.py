"""ncu-bench profile: run a model or a program under a profiler, and show its kernels."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from ncu_launch.counters.metric_groups import refuse_unknown
from ncu_launch.counters.replay_plan import PLANS
from ncu_launch.errors import WrongUsage
from ncu_launch.profile.plan import TOOLS, Request
from ncu_launch.profilers.command_line import GPU_METRICS_HZ, LEAST_GPU_METRICS_HZ, MOST_GPU_METRICS_HZ
from ncu_launch.profilers.rank_environment import COLLECTIVES, TOOL_PER
from ncu_launch.profilers.sampling.pytorch_groups import sampled_groups
from ncu_launch.targets.function_arguments import split
from ncu_launch.workload_spec import DEVICES, DTYPES, MODES, PHASES, Workload

from ncu_tools.cli.collecting.terminal_listener import Terminal
from ncu_tools.cli.option_kinds.language_options import LanguageOptions, language_options, require_sizes_of
from ncu_tools.cli.option_kinds.list_option import list_option
from ncu_tools.cli.options import (
    FOLDER,
    argument_option,
    echo_notes,
    format_option,
    machine_option,
    options_in,
    rows_shown,
    show,
    top_option,
    vary_option,
)
from ncu_tools.cli.tables.time_titles import with_time_title
from ncu_tools.cli.terminal_notes import WrittenFile
from ncu_tools.profiling.pipeline import plan_profile, run_profile
from ncu_tools.profiling.profile_request import COVERAGE, ProfileRequest, checked_workload, seconds_of
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    from ncu_tools.ceilings.machine_files import Machine
    from ncu_tools.profiling.collected_profile import CollectedProfile


@dataclass(frozen=True)
class WorkloadOptions:
    """The options on how a model runs."""

    batch_size: int
    arguments: tuple[str, ...]
    input_size: int | None
    seq_len: int | None
    dtype: str
    autocast: bool
    mode: str
    channels_last: bool
    phases: tuple[str, ...]
    warmup: int
    iterations: int
    device: str

    def of(self, target: str) -> Workload:
        """The workload of a target with these options."""
        options = asdict(self)
        arguments = split(options.pop("arguments"))
        return Workload(target, sequence_length=options.pop("seq_len"), arguments=arguments, **options)


@dataclass(frozen=True)
class ToolOptions:
    """The options on the tool and what it collects."""

    metrics: tuple[str, ...]
    plan: str
    tool: str
    kernel: str | None
    launch_skip: int | None
    launch_count: int | None
    nvtx_include: tuple[str, ...]
    clock_control: str
    cache_control: str
    ncu: str | None
    ncu_args: str
    gpu_metrics: int | None
    power: bool
    timeout: float | None

    def request(self, workload: Workload | None, program: tuple[str, ...]) -> Request:
        """The request for one run. Raises `WrongUsage` for unknown metrics, and for an unclosed quote."""
        options = asdict(self)
        metrics = options.pop("metrics")
        refuse_unknown(metrics)  # independent of the tool that will run
        extra = _words(options.pop("ncu_args"))
        return Request(tuple(sys.argv), metrics, workload, program, extra=extra, **options)


@dataclass(frozen=True)
class RunsOptions:
    """The options on the runs of a profile: within a budget, or of several ranks."""

    output: Path | None
    budget: str | None
    coverage: float
    nproc: int | None
    tool_per: str
    collectives: str
    timeline: bool
    measure: bool

    def around(self, run: Request) -> ProfileRequest:
        """The request of the whole profile. Raises `WrongUsage` for an invalid budget."""
        options = asdict(self)
        budget = options.pop("budget")
        return ProfileRequest(run, budget_s=seconds_of(budget) if budget is not None else None, **options)


@dataclass(frozen=True)
class VariedOptions:
    """The options on the points of a varied profile."""

    variants: tuple[str, ...]
    resume: bool
    retry_failed: bool

    def check(self) -> None:
        """Raise `WrongUsage` for options that exclude each other."""
        if self.resume and not self.variants:
            raise WrongUsage("--resume goes with --vary.", "One point is profiled whole.", "Leave --resume out.")
        if self.retry_failed and not self.resume:
            raise WrongUsage("--retry-failed goes with --resume.", advice="Name the run folder with -o, and --resume.")


def _words(arguments: str) -> tuple[str, ...]:
    """Split --ncu-args as a shell would. Raises `WrongUsage` for an unclosed quote."""
    try:
        return tuple(shlex.split(arguments))
    except ValueError as error:
        raise WrongUsage(
            f"--ncu-args {arguments} could not be split into words: {error}.", advice="Close every quote in it."
        ) from error


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("target", required=False)
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
@list_option(
    "--metrics",
    default=("flops", "dram"),
    metavar="GROUP,...",
    help="Groups, metric names and patterns; ncu-bench machines --metrics lists the groups. "
    f"Sampled with --tool pytorch: {', '.join(sampled_groups())}.  [default: flops,dram]",
)
@click.option(
    "--plan",
    type=click.Choice(PLANS),
    default="auto",
    show_default=True,
    help="Replay every kernel in one run, or run twice and replay none (ncu).",
)
@click.option("-o", "--output", type=FOLDER, help="The run folder to write.")
@click.option(
    "--tool",
    type=click.Choice(TOOLS),
    default="auto",
    show_default=True,
    help="auto takes ncu where it can run; torch is pytorch.",
)
@click.option("--batch-size", type=click.IntRange(min=1), default=1, show_default=True, help="Samples.")
@argument_option
@vary_option
@click.option("--resume", is_flag=True, help="With --vary, go on in this run folder: profile what has no row yet.")
@click.option("--retry-failed", is_flag=True, help="With --resume, profile points again that are not ok.")
@click.option("--input-size", type=click.IntRange(min=8), help="Image height and width.")
@click.option("--seq-len", type=click.IntRange(min=1), help="Sequence length of hf: models.")
@click.option("--dtype", type=click.Choice(DTYPES), default="fp32", show_default=True)
@click.option("--autocast", is_flag=True, help="Keep fp32 weights and let PyTorch choose the type per operator.")
@click.option("--mode", type=click.Choice(MODES), default="eager", show_default=True, help="How PyTorch runs it.")
@click.option("--channels-last", is_flag=True, help="Keep images as NHWC.")
@list_option(
    "--phase",
    "phases",
    type=click.Choice(PHASES),
    help="What to profile: forward and backward if not given (gemm: and conv: forward only). "
    "A step is both and the optimizer; prefill and decode are of causal language models.",
)
@click.option(
    "--warmup", type=click.IntRange(min=0), default=2, show_default=True, help="Iterations before the profile."
)
@click.option("--iterations", type=click.IntRange(min=1), default=1, show_default=True, help="Iterations to profile.")
@click.option("--on", "device", type=click.Choice(DEVICES), default="auto", show_default=True, help="Where to run.")
@click.option("--kernel", metavar="REGEX", help="Profile only kernels whose name matches (ncu).")
@click.option("--launch-skip", type=click.IntRange(min=0), help="Launches to pass over first (ncu).")
@click.option("--launch-count", type=click.IntRange(min=1), help="Launches to profile (ncu).")
@click.option(
    "--nvtx-include",
    multiple=True,
    metavar="RANGE",
    help="Profile only inside this range (ncu); push/pop ranges end in /.",
)
@click.option(
    "--clock-control",
    type=click.Choice(("base", "boost", "none")),
    default="base",
    show_default=True,
    help="Hold the clock at base or boost meanwhile, or leave it (ncu).",
)
@click.option(
    "--cache-control",
    type=click.Choice(("all", "none")),
    default="all",
    show_default=True,
    help="Flush all caches before each kernel, or none (ncu).",
)
@click.option("--ncu", metavar="PATH", help="The ncu to use, if not the one on PATH.")
@click.option("--ncu-args", default="", help="More arguments for the tool, as one string.")
@click.option(
    "--gpu-metrics",
    type=click.IntRange(LEAST_GPU_METRICS_HZ, MOST_GPU_METRICS_HZ),
    is_flag=False,
    flag_value=GPU_METRICS_HZ,
    metavar="[HZ]",
    help=f"Sample the activity of the GPU's units, at {GPU_METRICS_HZ} Hz or this rate (nsys, pytorch).",
)
@click.option("--power", is_flag=True, help="Sample power, clocks and activity of the GPUs meanwhile (NVML; not ncu).")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="End the run after this long, and keep its results so far.",
)
@click.option(
    "--budget", metavar="SECONDS", help="Rank kernels with nsys first, and count with ncu for about this long: 60s, 5m."
)
@click.option(
    "--coverage",
    type=click.FloatRange(0, 1, min_open=True),
    default=COVERAGE,
    show_default=True,
    help="With --budget, the share of the time whose kernels are counted.",
)
@click.option("--nproc", type=click.IntRange(min=1), help="Start this many ranks on this machine, with torchrun.")
@click.option(
    "--tool-per",
    type=click.Choice(TOOL_PER),
    default="rank",
    show_default=True,
    help="With several ranks: a tool per rank, a tool per node, or one in rank 0 only.",
)
@click.option(
    "--collectives",
    type=click.Choice(COLLECTIVES),
    default="exclude",
    show_default=True,
    help="With several ranks: leave out kernels that wait for other ranks, start them in lockstep, or neither (ncu).",
)
@click.option(
    "--timeline/--no-timeline",
    default=True,
    show_default=True,
    help="With --nproc, run once under nsys first, to time the kernels that ncu leaves out.",
)
@click.option(
    "--measure/--no-measure",
    default=True,
    show_default=True,
    help="Where the peaks of this machine are not known, measure them after the run, in at most 10 s.",
)
@language_options
@click.option("--dry-run", is_flag=True, help="Print the exact command and run nothing.")
@top_option("kernels")
@machine_option
@format_option
@options_in(WorkloadOptions, "model")
@options_in(VariedOptions, "points")
@options_in(ToolOptions, "collecting")
@options_in(RunsOptions, "runs")
def command(
    target: str | None,
    program: tuple[str, ...],
    model: WorkloadOptions,
    points: VariedOptions,
    language: LanguageOptions,
    collecting: ToolOptions,
    runs: RunsOptions,
    dry_run: bool,
    top: int | None,
    machine: Machine | None,
    output_format: str,
) -> None:
    """Profile a model by its name, or any program, and show which kernels take the time.

    TARGET is a torchvision model (resnet18), hf:NAME (bert-base, gpt2, opt-125m ...; random weights, nothing is
    downloaded), timm:NAME, or FILE.py:FUNCTION or package.module:FUNCTION, which returns a model and its inputs: only
    a target of these two forms imports your code. gemm:M,N,K,TYPE and conv:N,C,H,W,K,R,S,TYPE, and the suites gemms and
    convs, are work whose FLOPs are known. Put a program's command line after --. Without an NVIDIA GPU and ncu, a
    model's operators are timed and counted instead. With --nproc, and inside srun or mpirun, every rank is profiled
    into one run folder, and a model is replicated.

    \b
    Example:
      ncu-bench profile resnet18 --metrics flops,dram
      ncu-bench profile hf:bert-base --batch-size 8 --dtype bf16 --phase forward
      ncu-bench profile hf:llama-3.2-1b --phase prefill,decode --prompt-length 512 --dtype bf16
      ncu-bench profile gemm:4096,4096,4096,bf16
      ncu-bench profile --metrics flops,dram -- python train.py
      ncu-bench profile --tool nsys --gpu-metrics -- python train.py
      ncu-bench profile resnet18 --tool torch --metrics dram,sm
      ncu-bench profile --nproc 4 -- train.py
      ncu-bench profile kernels.py:softmax --vary n=1024..8192*2 -o sizes
    """
    workload: Workload | None = None
    words: tuple[str, ...] = ()
    if _is_program(target) and target is not None:
        language.require_causal(())
        words = (target, *program)
    elif target is not None:
        if program:
            raise WrongUsage(
                f"{shlex.join(program)} is too much: a target takes no further words.", advice="Put a program after --."
            )
        asked = model.of(target)
        require_sizes_of([target], image=asked.input_size is not None, sequence=asked.sequence_length is not None)
        asked = replace(asked, arguments=language.of(asked))
        workload = asked if points.variants else checked_workload(asked)
    else:
        raise WrongUsage("No target was named.", advice="Name a model, such as resnet18, or a program after --.")
    request = runs.around(collecting.request(workload, words))
    request = replace(request, measure=request.measure and machine is None)
    points.check()
    if points.variants:
        from ncu_tools.cli.collecting.profiled_points import profile_varied

        profile_varied(
            request, points.variants, Terminal(), resume=points.resume, retry_failed=points.retry_failed, top=top,
            output_format=output_format, dry_run=dry_run,
        )  # fmt: skip
        return
    if dry_run:
        planned = plan_profile(request, Terminal())
        for one in planned.commands:
            click.echo(shlex.join(one))
        echo_notes(planned.notes)
        return
    collected = run_profile(request, Terminal())
    if collected is not None:
        _show(collected, top, machine, output_format)


def _is_program(target: str | None) -> bool:
    """True if the words came after --. click drops the dashes, so this looks at the command line itself."""
    return target is not None and "--" in sys.argv and sys.argv[sys.argv.index("--") + 1 :][:1] == [target]


def _show(collected: CollectedProfile, top: int | None, machine: Machine | None, output_format: str) -> None:
    """Show the kernels with all notes on the run; then raise the failure, if there was one."""
    from ncu_tools.ceilings.ceilings import ceilings_of
    from ncu_tools.cli.tables.hotspots.kernels_of_runs import head_of_kernels, hidden_kernels
    from ncu_tools.kernels.hotspots import hotspots
    from ncu_tools.report.columns.registry import table_columns
    from ncu_tools.runs.loading import ENDED_EARLY

    if collected.table is None:
        click.echo(collected.idle, err=True)
        echo_notes(collected.notes)
        return
    result = hotspots(collected.table, ceilings_of(collected.table, machine))
    top = rows_shown(top, output_format)
    notes = [
        *([ENDED_EARLY] if collected.manifest.partial else []),
        *collected.notes,
        *result.notes,
        *collected.against_expected,
        *hidden_kernels(result.rows, top),
        WrittenFile(f"the run is in {collected.folder}"),
    ]
    table = Table("profile", table_columns("hotspots"), [asdict(row) for row in result.rows[:top]], notes)
    head = head_of_kernels([str(collected.folder)], result)
    show(with_time_title(table, result.time_title), output_format, head=head)
    if collected.failure is not None:
        raise collected.failure
