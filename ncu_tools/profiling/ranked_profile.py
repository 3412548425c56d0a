"""profile with several ranks: start them or use a launcher's, then join their parts into one run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path

from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.manifest import Manifest, ToolRun
from ncu_launch.files.run_files import NODES, RANKS, REPORTS
from ncu_launch.profile.collect_ranks import (
    LOST_AFTER_S,
    RankLaunch,
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
from ncu_parsers.parquet.reader import read_launches
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.parse.parse import Parsed, parse
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.sources.sources import TIMELINE, Source

from ncu_tools.model.layers.rank_skew import collective_share, skew, summary
from ncu_tools.numbers.number_format import counted, percent
from ncu_tools.profiling.collected_profile import CollectedProfile, keep_profile, nothing_collected, why_no_gpu_work
from ncu_tools.profiling.listener import Listener
from ncu_tools.profiling.profile_request import DryRun, ProfileRequest
from ncu_tools.runs.loading import LAUNCHES


def profile_ranks(request: ProfileRequest, listener: Listener) -> CollectedProfile | None:
    """Profile all ranks that are started here, or the rank of this process.

    The first one returns the whole run, the others None. Raises `WrongUsage` for a folder that already has a run.
    """
    found = _ranks_of(request)
    if isinstance(found, StartedHere):
        return _started_here(found, listener)
    return _started_by_launcher(found, listener)


def plan_ranks(request: ProfileRequest) -> DryRun:
    """The commands of `profile_ranks`, without running anything."""
    found = _ranks_of(request)
    if isinstance(found, StartedByLauncher):
        _require_tool_in_rank(found)
        plan = make_plan(found.request, rank_folder(found.folder, found.place.rank), dry=True)
        return DryRun([plan.command], list(plan.notes))
    run, launch = found.request, found.launch
    plan = _plan_of_first(run, launch, dry=True)
    in_ranks = run.tool_per != "node"
    ranks = "rank 0" if run.tool_per == "rank0" else "each rank"
    below = [f"the second line is what {ranks} runs"] if in_ranks else []
    traced = ["before it, the same under nsys, for the time of the kernels left out"]
    notes = [*below, *(traced if _traces(found, plan) else []), *plan.notes]
    return DryRun([tuple(launch.command()), plan.command] if in_ranks else [plan.command], notes)


@dataclass(frozen=True)
class StartedHere:
    """Ranks that this process starts; `timeline` allows tracing them first."""

    request: Request
    launch: RankLaunch
    timeline: bool


@dataclass(frozen=True)
class StartedByLauncher:
    """The rank of this process, started by srun, mpirun or torchrun."""

    request: Request
    folder: Path
    place: Place


def _ranks_of(request: ProfileRequest) -> StartedHere | StartedByLauncher:
    """Determine who starts the ranks. Raises `WrongUsage` if the ranks of a launcher have no folder in common."""
    place = place_here(os.environ)
    run = replace(request.run, tool_per=request.tool_per, collectives=request.collectives)
    folder = request.output or _common_folder(run, place)
    run = replace(
        run,
        program=runnable(run.program),
        workload=replace(run.workload, data_parallel=True) if run.workload else None,
        meeting_host=os.environ.get("MASTER_ADDR") or run.meeting_host,
    )
    if place is None or starts_ranks(request.nproc, place):
        launch = RankLaunch(request.nproc or 1, folder, nodes_of(place, os.environ))
        return StartedHere(replace(run, ranks=launch.world_size), launch, request.timeline)
    return StartedByLauncher(replace(run, ranks=place.world_size, place=place), folder, place)


def _common_folder(request: Request, place: Place | None) -> Path:
    """A folder that every rank derives by itself. Raises `WrongUsage` if there is no common name."""
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


def _started_here(ranks: StartedHere, listener: Listener) -> CollectedProfile | None:
    request, launch = ranks.request, ranks.launch
    plan = _plan_of_first(request, launch, dry=False)
    if find_spec("torch") is None:
        raise NcuBenchError(
            "torchrun is needed to start the ranks, and PyTorch is not installed beside ncu-bench.",
            advice="Install ncu-bench where PyTorch is, or start the ranks with srun or mpirun.",
        )
    if launch.nodes is None and any((launch.folder / name).exists() for name in (RANKS, NODES, REPORTS)):
        raise WrongUsage(f"{launch.folder} already holds a run.", advice="Name another folder with -o, or remove it.")
    if _traces(ranks, plan) and find_tool("nsys") is not None:
        _trace(request, launch, listener)
    tool = f"{plan.tool} {plan.version}".strip()
    listener.message(f"Collecting {request.ranks} ranks with {tool} into {launch.folder}.")
    listener.notes(plan.notes)
    ran = _run_here(request, launch, plan)
    if launch.number != 0:
        return None
    # The ranks of a single machine have all ended with their launcher, whatever their files say.
    lost_after = 0.0 if launch.nodes is None else LOST_AFTER_S
    missing = wait_for_parts(launch.folder, _count(request, launch), lost_after=lost_after)
    return _joined(request, launch.folder, [ran], missing, announced=plan.notes)


def _traces(ranks: StartedHere, plan: Plan) -> bool:
    """True if the ranks run once under nsys first, if it is installed."""
    leaves_out = plan.tool == "ncu" and ranks.request.collectives == "exclude"
    return ranks.timeline and leaves_out and ranks.launch.nodes is None


def _plan_of_first(request: Request, launch: RankLaunch, *, dry: bool) -> Plan:
    """The plan of the first rank; each rank plans again where it runs."""
    if request.tool_per == "node":
        return plan_around_ranks(request, launch, dry=dry)
    first = Place(0, launch.world_size, 0, launch.nproc, "torchrun", "")
    return make_plan(replace(request, place=first), rank_folder(launch.folder, "%q{RANK}"), dry=dry)


def _run_here(request: Request, launch: RankLaunch, plan: Plan) -> ToolRun:
    if request.tool_per == "node":
        return collect_node(request, launch, plan).tool_runs[-1]
    return launch_ranks(request, launch)


def _count(request: Request, launch: RankLaunch) -> int:
    """The number of ranks, or nodes, that write a folder."""
    return launch.world_size // launch.nproc if request.tool_per == "node" else launch.world_size


def _trace(request: Request, launch: RankLaunch, listener: Listener) -> None:
    """Run the ranks once under nsys, for the time of the kernels that ncu will leave out."""
    listener.message("Tracing the ranks with nsys first, for the time of the kernels that ncu leaves out.")
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


def _started_by_launcher(ranks: StartedByLauncher, listener: Listener) -> CollectedProfile | None:
    _require_tool_in_rank(ranks)
    request, folder, place = ranks.request, ranks.folder, ranks.place
    if place.rank == 0:
        listener.message(f"Collecting {place.world_size} ranks, started by {place.launcher}, into {folder}.")
    failure: NcuBenchError | None = None
    try:
        failure = explain(*collect_rank(request, folder))
    except NcuBenchError as error:
        failure = error
    if place.rank == 0 and not isinstance(failure, WrongUsage):
        missing = wait_for_parts(folder, place.world_size, lost_after=LOST_AFTER_S)
        return _joined(request, folder, [], missing)
    if failure is not None:
        raise failure
    return None


def _require_tool_in_rank(ranks: StartedByLauncher) -> None:
    """Raise `WrongUsage` for a tool around the ranks of a node if a launcher has already started them."""
    if ranks.request.tool_per == "node":
        raise WrongUsage(
            f"A tool per node starts the ranks of its node, and {ranks.place.launcher} has started them already.",
            advice="Start one process per node, as srun --ntasks-per-node=1 ncu-bench profile --nproc 4 --tool-per "
            "node ..., or use --tool-per rank0.",
        )


# ----------------------------------------------------------------------------------------------------------- joined


def _joined(
    request: Request, folder: Path, launched: list[ToolRun], missing: Sequence[str], *, announced: Sequence[str] = ()
) -> CollectedProfile:
    """Join the parts of all ranks that are not `missing` into one run, and write it."""
    manifest = write_run(request, folder, launched, missing)
    failure = explain_ranks(folder, missing)
    parsed = parsed_parts(folder)
    reason = why_no_gpu_work(parsed)
    if reason is not None and failure is None:
        where = f"The timelines of {_counted_ranks(manifest)} are in {folder}."
        return CollectedProfile(folder, manifest, idle=f"{where} {reason}")
    if parsed is None or parsed.table is None:
        raise nothing_collected(parsed, failure, folder)
    notes = [*_of_ranks(manifest, parsed), *notes_on_collectives(request, manifest, folder), *parsed.notes]
    return replace(keep_profile(parsed.table, notes, manifest, folder, announced=announced), failure=failure)


def parsed_parts(folder: Path) -> Parsed | None:
    """The launches of all ranks of a run, with rank and host; None without any report."""
    sources: list[Source] = []
    for part in parts_of(folder):
        files = [str(file) for file in sorted((part / REPORTS).glob("*")) if file.is_file() and file.stat().st_size]
        sources += find_sources(files) if files else []
    return parse(sources) if sources else None


def _of_ranks(manifest: Manifest, parsed: Parsed) -> list[str]:
    """Notes on the number of ranks and hosts, and on the slowest rank."""
    hosts = counted(len({rank.get("host") for rank in manifest.ranks}), "host", "hosts")
    notes = [f"{_counted_ranks(manifest)} on {hosts}: times, FLOPs and bytes are sums over ranks"]
    unprofiled = [str(rank["rank"]) for rank in manifest.ranks if rank["source"] == "none"]
    if unprofiled:
        notes.append(f"ranks without a tool: {', '.join(unprofiled)}")
    return notes + summary(skew(parsed.table)) if parsed.table is not None else notes


def _counted_ranks(manifest: Manifest) -> str:
    return counted(sum(len(part.get("processes", [part])) for part in manifest.ranks), "rank", "ranks")


def notes_on_collectives(request: Request, manifest: Manifest, folder: Path) -> list[str]:
    """A note on the time of kernels that ncu left out, as far as a timeline shows it."""
    if manifest.source != "ncu" or request.collectives != "exclude":
        return []

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
