"""ncu-bench profile: run a model or a program under a profiler, and show its kernels."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import click
from ncu_launch.counters.metric_groups import refuse_unknown
from ncu_launch.counters.replay_plan import PLANS
from ncu_launch.errors import WrongUsage
from ncu_launch.files.manifest import Manifest
from ncu_launch.files.run_files import REPORTS
from ncu_launch.profile.collect import collect, collect_replayed
from ncu_launch.profile.plan import NOT_BY_HARDWARE, TOOLS, Plan, Request, default_folder, make_plan
from ncu_launch.profile.run_outcome import explain
from ncu_launch.profilers.rank_environment import COLLECTIVES, TOOL_PER, place_here
from ncu_launch.targets.model_name_check import misspelt
from ncu_launch.targets.reference_kernels import default_phases, own_dtype
from ncu_launch.workload.meta_device_process import Expectation, expectation_of
from ncu_launch.workload_spec import DEVICES, DTYPES, MODES, PHASES, Workload

from ncu_tools.cli.options import format_option, machine_option, say_notes, top_option
from ncu_tools.report.table import printable


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("target", required=False)
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--metrics",
    default="flops,dram",
    show_default=True,
    help="Groups, metric names and patterns; ncu-bench metrics lists the groups.",
)
@click.option(
    "--plan",
    "runs",
    type=click.Choice(PLANS),
    default="auto",
    show_default=True,
    help="Replay every kernel in one run, or run twice and replay none (ncu).",
)
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="The run folder to write.")
@click.option(
    "--tool", type=click.Choice(TOOLS), default="auto", show_default=True, help="auto takes ncu where it can run."
)
@click.option("--batch-size", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--input-size", type=click.IntRange(min=8), help="Image height and width.")
@click.option("--seq-len", type=click.IntRange(min=1), help="Sequence length of hf: models.")
@click.option("--dtype", type=click.Choice(DTYPES), default="fp32", show_default=True)
@click.option("--autocast", is_flag=True, help="Keep fp32 weights and let PyTorch choose the type per operator.")
@click.option("--mode", type=click.Choice(MODES), default="eager", show_default=True)
@click.option("--channels-last", is_flag=True)
@click.option(
    "--phase",
    "phases",
    type=click.Choice(PHASES),
    multiple=True,
    help="What to profile, may be repeated; forward and backward if not given (gemm: and conv: forward only). "
    "A step is both and the optimizer.",
)
@click.option(
    "--warmup", type=click.IntRange(min=0), default=2, show_default=True, help="Iterations before the profile."
)
@click.option("--iterations", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--device", type=click.Choice(DEVICES), default="auto", show_default=True)
@click.option("--kernel", metavar="REGEX", help="Profile only kernels whose name matches (ncu).")
@click.option("--launch-skip", type=click.IntRange(min=0), help="Launches to pass over first (ncu).")
@click.option("--launch-count", type=click.IntRange(min=1), help="Launches to profile (ncu).")
@click.option(
    "--nvtx-include",
    multiple=True,
    metavar="RANGE",
    help="Profile only inside this range (ncu); push/pop ranges end in /.",
)
@click.option("--clock-control", type=click.Choice(("base", "boost", "none")), default="base", show_default=True)
@click.option("--cache-control", type=click.Choice(("all", "none")), default="all", show_default=True)
@click.option("--ncu", metavar="PATH", help="The ncu to use, if not the one on PATH.")
@click.option("--ncu-args", default="", help="More arguments for the tool, as one string.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="End the run after this long, and keep what it gave.",
)
@click.option(
    "--budget", metavar="SECONDS", help="Rank kernels with nsys first, and count with ncu for about this long: 60s, 5m."
)
@click.option(
    "--coverage",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.95,
    show_default=True,
    help="With --budget, the share of the time whose kernels are counted.",
)
@click.option("--nproc", type=click.IntRange(min=1), help="Start so many ranks of it on this machine, with torchrun.")
@click.option(
    "--tool-per",
    type=click.Choice(TOOL_PER),
    default="rank",
    show_default=True,
    help="Of several ranks: a tool in each, one around those of a node, or one in rank 0 alone.",
)
@click.option(
    "--collectives",
    type=click.Choice(COLLECTIVES),
    default="exclude",
    show_default=True,
    help="Of several ranks: leave out kernels that wait for other ranks, start them in lockstep, or neither (ncu).",
)
@click.option(
    "--timeline/--no-timeline",
    default=True,
    show_default=True,
    help="With --nproc, run once under nsys first, for the time of what ncu leaves out.",
)
@click.option("--dry-run", is_flag=True, help="Print the exact command and run nothing.")
@top_option("kernels")
@machine_option
@format_option
def command(
    target: str | None,
    program: tuple[str, ...],
    metrics: str,
    runs: str,
    output: Path | None,
    tool: str,
    batch_size: int,
    input_size: int | None,
    seq_len: int | None,
    dtype: str,
    autocast: bool,
    mode: str,
    channels_last: bool,
    phases: tuple[str, ...],
    warmup: int,
    iterations: int,
    device: str,
    kernel: str | None,
    launch_skip: int | None,
    launch_count: int | None,
    nvtx_include: tuple[str, ...],
    clock_control: str,
    cache_control: str,
    ncu: str | None,
    ncu_args: str,
    timeout: float | None,
    budget: str | None,
    coverage: float,
    nproc: int | None,
    tool_per: str,
    collectives: str,
    timeline: bool,
    dry_run: bool,
    top: int | None,
    machine_name: str | None,
    output_format: str,
) -> None:
    """Profile a model by its name, or any program, and show which kernels take the time.

    TARGET is a torchvision model (resnet18), hf:NAME (bert-base, gpt2, opt-125m ...; random weights, nothing is
    downloaded), timm:NAME, or FILE.py:FUNCTION or package.module:FUNCTION, which returns a model and its inputs: only
    a target of these two forms imports your code. gemm:M,N,K,TYPE and conv:N,C,H,W,K,R,S,TYPE, and the suites gemms and
    convs, are work whose FLOPs are known. A program stands behind --. Without an NVIDIA GPU and ncu, a model's
    operators are timed and counted instead. With --nproc, and inside srun or mpirun, every rank is profiled into one
    run folder, and a model is replicated.

    \b
    Example:
      ncu-bench profile resnet18 --metrics flops,dram
      ncu-bench profile hf:bert-base --batch-size 8 --dtype bf16 --phase forward
      ncu-bench profile gemm:4096,4096,4096,bf16
      ncu-bench profile --metrics flops,dram -- python train.py
      ncu-bench profile --nproc 4 -- train.py
    """
    after_dashes = _is_program(target)
    workload = None
    if not after_dashes and target is not None:
        if program:
            raise WrongUsage(
                f"{shlex.join(program)} is too much: a target stands alone.", advice="Put a program behind --."
            )
        error = misspelt(target)
        if error is not None:
            raise error
        workload = Workload(
            target, batch_size, input_size, seq_len, own_dtype(target) or dtype, autocast, mode, channels_last,
            phases or default_phases(target), warmup, iterations, device,
        )  # fmt: skip
    words = (target, *program) if after_dashes and target is not None else ()
    if workload is None and not words:
        raise WrongUsage("No target was named.", advice="Name a model, such as resnet18, or a program behind --.")
    wanted = tuple(part.strip() for part in metrics.split(",") if part.strip())
    refuse_unknown(wanted)  # whatever tool will run
    request = Request(
        asked=tuple(sys.argv),
        metrics=wanted,
        workload=workload,
        program=words,
        tool=tool,
        ncu=ncu,
        kernel=kernel,
        launch_skip=launch_skip,
        launch_count=launch_count,
        nvtx_include=nvtx_include,
        clock_control=clock_control,
        cache_control=cache_control,
        extra=_words(ncu_args),
        timeout=timeout,
        plan=runs,
    )
    if nproc is not None or place_here(os.environ) is not None:
        from ncu_tools.cli.collecting import ranked_profile

        if budget is not None:
            raise WrongUsage("--budget is for one process, not for ranks.", advice="Leave it out, or --nproc.")
        ranked_request = replace(request, tool_per=tool_per, collectives=collectives)
        shown = ranked_profile.Shown(top, machine_name, output_format)
        ranked_profile.profile_ranks(ranked_request, nproc, output, shown, timeline=timeline, dry_run=dry_run)
        return
    folder = output or default_folder(request, datetime.now(timezone.utc))
    if budget is not None:
        _within_budget(request, folder, budget, coverage, top, machine_name, output_format, dry_run=dry_run)
        return
    plan = make_plan(request, folder, dry=dry_run, expect=_expected)
    if dry_run:
        for one in plan.commands:
            click.echo(shlex.join(one.arguments))
        say_notes([*_why_these_runs(plan), *plan.notes])
        return
    _announce(plan, folder)
    manifest = _collected(request, plan, folder)
    manifest.notes = [note for note in manifest.notes if note not in plan.notes]  # those were said at the start
    _show(request, plan, manifest, folder, top, machine_name, output_format)


def _within_budget(
    request: Request,
    folder: Path,
    budget: str,
    coverage: float,
    top: int | None,
    machine_name: str | None,
    output_format: str,
    *,
    dry_run: bool,
) -> None:
    """Trace with nsys, count the hottest kernels with ncu, and show the timeline's launches with those counts."""
    from ncu_tools.cli.collecting import budgeted_profile

    seconds = budgeted_profile.seconds_of(budget)
    tracing, tracing_plan = budgeted_profile.tracing(request, folder, dry=dry_run)
    if dry_run:
        click.echo(shlex.join(tracing_plan.command))
        say_notes(["then ncu, for the kernels that this timeline shows to take the time"])
        return
    _announce(tracing_plan, budgeted_profile.timeline_folder(folder))
    traced = _collected(tracing, tracing_plan, budgeted_profile.timeline_folder(folder))
    timeline = budgeted_profile.timeline_of(traced, folder)
    counting, plan, notes = budgeted_profile.counting(request, folder, timeline, seconds, coverage, _expected)
    _announce(plan, folder)
    say_notes(notes)
    manifest = _collected(counting, plan, folder)
    budgeted_profile.show(manifest, folder, timeline, top, machine_name, output_format)


def _why_these_runs(plan: Plan) -> list[str]:
    return [f"plan: {plan.runs}"] if plan.runs else []


def _expected(workload: Workload) -> Expectation:
    """What the model should do, counted while the terminal says so."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        return expectation_of(workload)
    with console.status("counting what the model should do"):
        return expectation_of(workload)


def _words(arguments: str) -> tuple[str, ...]:
    """The words of --ncu-args as a shell would split them. Raises `WrongUsage` where a quote does not close."""
    try:
        return tuple(shlex.split(arguments))
    except ValueError as error:
        raise WrongUsage(
            f"--ncu-args {arguments} could not be split into words: {error}.", advice="Close every quote in it."
        ) from error


def _is_program(target: str | None) -> bool:
    """Whether the words came behind --. click drops the dashes, so the command line itself is asked."""
    return target is not None and "--" in sys.argv and sys.argv[sys.argv.index("--") + 1 :][:1] == [target]


def _announce(plan: Plan, folder: Path) -> None:
    if plan.tool == "operators":
        why = f" ({plan.why})" if plan.why else ""
        click.echo(f"Collecting with the embedded operator collector{why}: {NOT_BY_HARDWARE}.", err=True)
        say_notes([note for note in plan.notes if note not in (plan.why, NOT_BY_HARDWARE)])
    else:
        click.echo(f"Collecting with {plan.tool} {plan.version} into {folder}.", err=True)
        say_notes([*_why_these_runs(plan), *plan.notes])


def _collected(request: Request, plan: Plan, folder: Path, before: Manifest | None = None) -> Manifest:
    """Run the plan, with the tool's own progress on a terminal.

    With the manifest of two runs `before`, the single run that takes their place.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    with console.status("running") if console.is_terminal else nullcontext() as status:

        def heard(line: str) -> None:
            if status is not None:
                status.update(Text(printable(line.strip()[:100]) or "running"))  # brackets would be markup

        if before is not None:
            return collect_replayed(request, plan, folder, before, heard=heard)
        return collect(request, plan, folder, heard=heard)


def _show(
    request: Request,
    plan: Plan,
    manifest: Manifest,
    folder: Path,
    top: int | None,
    machine_name: str | None,
    output_format: str,
) -> None:
    """Show what was collected; then say what went wrong, if anything did.

    Two runs that launched different kernels are replaced by one in which each kernel is replayed.
    """
    from ncu_tools.cli.collecting.finished_profile import nothing, parsed_reports, show_collected, without_gpu_work

    failure = explain(manifest, folder)
    parsed = parsed_reports(manifest, folder)
    reason = without_gpu_work(parsed)
    if reason is not None and failure is None:
        click.echo(f"The timeline is in {folder / REPORTS}. {reason}", err=True)
        return
    if parsed is not None and parsed.mismatch and not manifest.partial:
        click.echo(f"{parsed.mismatch} Running it once more, each kernel replayed.", err=True)
        manifest = _collected(request, plan, folder, manifest)
        failure = explain(manifest, folder)
        parsed = parsed_reports(manifest, folder)
    if parsed is None or parsed.table is None:
        raise nothing(parsed, failure, folder)
    notes = [*parsed.notes, *([parsed.mismatch] if parsed.mismatch else [])]
    show_collected(parsed.table, notes, manifest, folder, top, machine_name, output_format)
    if failure is not None:
        raise failure
