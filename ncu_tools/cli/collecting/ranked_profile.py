"""profile with several ranks: start them or take those of a launcher, then join what they collected into one run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path

import click
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.manifest import Manifest, ToolRun
from ncu_launch.files.run_files import NODES, RANKS, REPORTS
from ncu_launch.profile.collect_ranks import (
    LOST_AFTER_S,
    Launch,
    collect_node,
    collect_rank,
    explain_ranks,
    launch_ranks,
    parts_of,
    plan_around_ranks,
    wait_for_parts,
    write_run,
)
from ncu_launch.profile.plan import Plan, Request, default_folder, make_plan
from ncu_launch.profile.run_outcome import explain
from ncu_launch.profilers.installed_tools import find_tool
from ncu_launch.profilers.rank_environment import Place, nodes_of, place_here, rank_folder, runnable, starts_ranks
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.parse.parse import Parsed, parse
from ncu_parsers.sources.sources import TIMELINE, Source, find_sources

from ncu_tools.cli.collecting.finished_profile import nothing, show_collected, without_gpu_work
from ncu_tools.cli.options import say_notes
from ncu_tools.layers.rank_skew import collective_share, skew, summary
from ncu_tools.numbers.number_format import counted, percent
from ncu_tools.runs.loading import LAUNCHES


@dataclass(frozen=True)
class Shown:
    """How the joined run is shown."""

    top: int | None
    machine_name: str | None
    output_format: str


def profile_ranks(
    request: Request, nproc: int | None, output: Path | None, shown: Shown, *, timeline: bool, dry_run: bool
) -> None:
    """Profile all ranks that are started here, or the one that this process is; the first one shows the whole run."""
    place = place_here(os.environ)
    folder = output or _common_folder(request, place)
    request = replace(
        request,
        program=runnable(request.program),
        workload=replace(request.workload, data_parallel=True) if request.workload else None,
        meeting_host=os.environ.get("MASTER_ADDR") or request.meeting_host,
    )
    if starts_ranks(nproc, place):
        launch = Launch(nproc or 1, folder, nodes_of(place, os.environ))
        _started_here(replace(request, ranks=launch.world_size), launch, shown, timeline=timeline, dry_run=dry_run)
    elif place is not None:
        _started_by_launcher(replace(request, ranks=place.world_size, place=place), folder, shown, dry_run=dry_run)


def _common_folder(request: Request, place: Place | None) -> Path:
    """A folder that every rank comes to by itself. Raises `WrongUsage` where nothing in common names one."""
    if place is None:
        return default_folder(request, datetime.now(timezone.utc))
    job, step = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_STEP_ID")
    if job and step:
        return Path("runs") / f"slurm-{job}.{step}"
    raise WrongUsage(
        f"{place.launcher} started {place.world_size} ranks, and they need one folder for what they collect.",
        advice="Name it with -o, on a file system that all of them see.",
    )


# ----------------------------------------------------------------------------------------------------- started here


def _started_here(request: Request, launch: Launch, shown: Shown, *, timeline: bool, dry_run: bool) -> None:
    plan = _plan_shown(request, launch, dry=dry_run)
    commands = [plan.command] if request.tool_per == "node" else [launch.command(), plan.command]
    traces = timeline and plan.tool == "ncu" and request.collectives == "exclude" and launch.nodes is None
    if dry_run:
        for command in commands:
            click.echo(shlex.join(command))
        below = [] if request.tool_per == "node" else [f"the second line is what {_whose(request)} runs"]
        traced = ["before it, the same under nsys, for the time of the kernels left out"] if traces else []
        say_notes([*below, *traced, *plan.notes])
        return
    if find_spec("torch") is None:
        raise NcuBenchError(
            "torchrun is needed to start the ranks, and PyTorch is not installed beside ncu-bench.",
            advice="Install ncu-bench where PyTorch is, or start the ranks with srun or mpirun.",
        )
    if launch.nodes is None and any((launch.folder / name).exists() for name in (RANKS, NODES, REPORTS)):
        raise WrongUsage(f"{launch.folder} already holds a run.", advice="Name another folder with -o, or remove it.")
    if traces and find_tool("nsys") is not None:
        _trace(request, launch)
    tool = f"{plan.tool} {plan.version}".strip()
    click.echo(f"Collecting {request.ranks} ranks with {tool} into {launch.folder}.", err=True)
    say_notes(list(plan.notes))
    ran = _run_here(request, launch, plan)
    if launch.number == 0:
        # Of a single machine's ranks none is left when their launcher has ended, whatever they say of themselves.
        lost_after = 0.0 if launch.nodes is None else LOST_AFTER_S
        _join(request, launch.folder, _count(request, launch), [ran], shown, said=plan.notes, lost_after=lost_after)


def _plan_shown(request: Request, launch: Launch, *, dry: bool) -> Plan:
    """The plan as the first rank has it; what each rank runs is planned again where it runs."""
    if request.tool_per == "node":
        return plan_around_ranks(request, launch, dry=dry)
    first = Place(0, launch.world_size, 0, launch.nproc, "torchrun", "")
    return make_plan(replace(request, place=first), rank_folder(launch.folder, "%q{RANK}"), dry=dry)


def _whose(request: Request) -> str:
    return "rank 0" if request.tool_per == "rank0" else "each rank"


def _run_here(request: Request, launch: Launch, plan: Plan) -> ToolRun:
    if request.tool_per == "node":
        return collect_node(request, launch, plan).tool_runs[-1]
    return launch_ranks(request, launch)


def _count(request: Request, launch: Launch) -> int:
    """How many ranks, or nodes, leave a folder."""
    return launch.world_size // launch.nproc if request.tool_per == "node" else launch.world_size


def _trace(request: Request, launch: Launch) -> None:
    """Run the ranks once under nsys, to know how long the kernels take that ncu will leave out."""
    click.echo("Tracing the ranks with nsys first, for the time of the kernels that ncu leaves out.", err=True)
    tracing = replace(request.to_trace(), tool_per="rank")
    traced = replace(launch, folder=launch.folder / TIMELINE)
    ran = launch_ranks(tracing, traced)
    missing = wait_for_parts(traced.folder, launch.world_size, lost_after=0.0)
    write_run(tracing, traced.folder, [ran], missing)
    failure = explain_ranks(traced.folder, missing)
    if failure is not None:
        raise failure
    parsed = parsed_parts(traced.folder)
    if parsed is not None and parsed.table is not None:
        write_table(parsed.table, traced.folder / LAUNCHES)


# ------------------------------------------------------------------------------------------- started by a launcher


def _started_by_launcher(request: Request, folder: Path, shown: Shown, *, dry_run: bool) -> None:
    place = request.place
    assert place is not None  # noqa: S101  the caller asked
    if request.tool_per == "node":
        raise WrongUsage(
            f"A tool per node starts the ranks of its node, and {place.launcher} has started them already.",
            advice="Start one process per node, as srun --ntasks-per-node=1 ncu-bench profile --nproc 4 --tool-per "
            "node ..., or use --tool-per rank0.",
        )
    if dry_run:
        plan = make_plan(request, rank_folder(folder, place.rank), dry=True)
        click.echo(shlex.join(plan.command))
        say_notes(list(plan.notes))
        return
    if place.rank == 0:
        click.echo(f"Collecting {place.world_size} ranks, started by {place.launcher}, into {folder}.", err=True)
    failure: NcuBenchError | None = None
    try:
        failure = explain(*collect_rank(request, folder))
    except NcuBenchError as error:
        failure = error
    if place.rank == 0 and not isinstance(failure, WrongUsage):
        _join(request, folder, place.world_size, [], shown)
    elif failure is not None:
        raise failure


# ----------------------------------------------------------------------------------------------------------- joined


def _join(
    request: Request,
    folder: Path,
    count: int,
    launched: list[ToolRun],
    shown: Shown,
    *,
    said: Sequence[str] = (),
    lost_after: float = LOST_AFTER_S,
) -> None:
    """Wait for every rank, join what they collected, and show it; then say what went wrong, if anything did."""
    missing = wait_for_parts(folder, count, lost_after=lost_after)
    manifest = write_run(request, folder, launched, missing)
    manifest.notes = [note for note in manifest.notes if note not in said]
    failure = explain_ranks(folder, missing)
    parsed = parsed_parts(folder)
    reason = without_gpu_work(parsed)
    if reason is not None and failure is None:
        click.echo(f"The timelines of {_counted_ranks(manifest)} are in {folder}. {reason}", err=True)
        return
    if parsed is None or parsed.table is None:
        raise nothing(parsed, failure, folder)
    notes = [*_of_ranks(manifest, parsed), *notes_on_collectives(request, manifest, folder), *parsed.notes]
    show_collected(parsed.table, notes, manifest, folder, shown.top, shown.machine_name, shown.output_format)
    if failure is not None:
        raise failure


def parsed_parts(folder: Path) -> Parsed | None:
    """The launches of all ranks of a run, with the rank and host of each; None without any report."""
    sources: list[Source] = []
    for part in parts_of(folder):
        files = [str(file) for file in sorted((part / REPORTS).glob("*")) if file.is_file() and file.stat().st_size]
        sources += find_sources(files) if files else []
    return parse(sources) if sources else None


def _of_ranks(manifest: Manifest, parsed: Parsed) -> list[str]:
    """How many ranks on how many hosts, and which one is late."""
    hosts = counted(len({rank.get("host") for rank in manifest.ranks}), "host", "hosts")
    notes = [f"{_counted_ranks(manifest)} on {hosts}: times, FLOPs and bytes are sums over ranks"]
    unprofiled = [str(rank["rank"]) for rank in manifest.ranks if rank["source"] == "none"]
    if unprofiled:
        notes.append(f"ranks without a tool: {', '.join(unprofiled)}")
    return notes + summary(skew(parsed.table)) if parsed.table is not None else notes


def _counted_ranks(manifest: Manifest) -> str:
    return counted(sum(len(part.get("processes", [part])) for part in manifest.ranks), "rank", "ranks")


def notes_on_collectives(request: Request, manifest: Manifest, folder: Path) -> list[str]:
    """How long the kernels take that ncu left out, as far as a timeline says."""
    if manifest.source != "ncu" or request.collectives != "exclude":
        return []
    from ncu_parsers.parquet.reader import read_launches

    timeline = folder / TIMELINE / LAUNCHES
    known = collective_share(read_launches(timeline)) if timeline.is_file() else None
    if known is None:
        return [
            "collectives were left out, and how long they take is not known: run the same with --tool nsys to see it"
        ]
    nanoseconds, share = known
    return [
        f"collectives were left out: on the timeline they take {nanoseconds / 1e6:,.3f} ms over all ranks, "
        f"{percent(share)} of the time of kernels and copies"
    ]
