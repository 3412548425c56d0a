"""profile --budget: nsys ranks the kernels, ncu counts those that take the time, and the results are joined."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.manifest import Manifest
from ncu_launch.profile.plan import Plan, Request, make_plan, refuse_groups_without_counters
from ncu_launch.profile.run_outcome import explain
from ncu_parsers.parquet.writer import write_table

from ncu_tools.kernels.matching.join import join
from ncu_tools.numbers.number_format import percent
from ncu_tools.profiling.collected_profile import CollectedProfile, keep_profile, nothing_collected, parsed_reports
from ncu_tools.profiling.counting_budget import kernel_pattern, launch_count, plan
from ncu_tools.profiling.listener import Listener
from ncu_tools.profiling.planned_run import announce, expecting, run_plan
from ncu_tools.profiling.profile_request import ProfileRequest
from ncu_tools.runs.loading import LAUNCHES

PASSES_WHERE_UNKNOWN = 3
"""Passes of flops and dram on every chip; used only for the cost of a plan."""


def profile_within_budget(
    request: ProfileRequest, folder: Path, budget_s: float, listener: Listener
) -> CollectedProfile:
    """Trace with nsys, count the hottest kernels with ncu, and join the counts with the timeline's launches.

    Raises `WrongUsage` as `plan_timeline` does, and `NcuBenchError` if either run collected nothing.
    """
    tracing, tracing_plan = plan_timeline(request.run, folder, dry=False)
    announce(tracing_plan, timeline_folder(folder), listener)
    timeline = _read_timeline(run_plan(tracing, tracing_plan, timeline_folder(folder), listener), folder)
    counting = _chosen(request, folder, timeline, budget_s)
    counting_plan = make_plan(counting.request, folder, expect=expecting(listener))
    announce(counting_plan, folder, listener)
    listener.notes([counting.note])
    manifest = run_plan(counting.request, counting_plan, folder, listener)
    return replace(_joined(manifest, folder, timeline), announced=(counting.note,))


def timeline_folder(folder: Path) -> Path:
    """The run folder of the timeline, inside the run folder."""
    return folder / "timeline"


def plan_timeline(request: Request, folder: Path, *, dry: bool) -> tuple[Request, Plan]:
    """Plan the first run, under nsys.

    Raises `WrongUsage` for filters, which the ranking replaces, and for tools and groups that cannot count.
    """
    if request.kernel or request.launch_skip or request.launch_count:
        raise WrongUsage(
            "--budget chooses the kernels itself.", advice="Leave out --kernel, --launch-skip and --launch-count."
        )
    if request.tool not in ("auto", "ncu"):
        raise WrongUsage(f"--budget uses nsys and then ncu, not {request.tool}.", advice="Leave out --tool.")
    refuse_groups_without_counters(request, "ncu")
    first = request.to_trace()
    return first, make_plan(first, timeline_folder(folder), dry=dry)


def _read_timeline(manifest: Manifest, folder: Path) -> pa.Table:
    """The launches of the timeline, also written beside it.

    Raises the error of the run if there are none.
    """
    failure = explain(manifest, timeline_folder(folder))
    parsed = parsed_reports(manifest, timeline_folder(folder))
    if failure is not None or parsed is None or parsed.table is None:
        raise nothing_collected(parsed, failure, timeline_folder(folder))
    write_table(parsed.table, timeline_folder(folder) / LAUNCHES)
    return parsed.table


class Counting(NamedTuple):
    """The run of ncu for the chosen kernels, and a note that lists them."""

    request: Request
    note: str


def _chosen(request: ProfileRequest, folder: Path, timeline: pa.Table, budget_s: float) -> Counting:
    """Choose the kernels that take the requested share of the timeline, as far as the budget allows.

    Raises `NcuBenchError` if the budget is too small for a single launch.
    """
    run = replace(request.run, tool="ncu", gpu_metrics=None, power=False)
    passes = make_plan(run, folder).commands[0].passes or PASSES_WHERE_UNKNOWN
    chosen = plan(timeline, budget_s=budget_s, passes=passes, coverage=request.coverage)
    if not chosen.signatures:
        raise NcuBenchError(
            f"No launch can be counted in {budget_s:g} s.",
            f"The longest kernel alone takes longer, in {passes} passes.",
            "Give a larger --budget.",
        )
    count = launch_count(timeline, chosen)
    left = f"; {len(chosen.left_out)} more do not fit the budget" if chosen.left_out else ""
    note = (
        f"ncu counts {count} launches of {len(chosen.signatures)} kernels that take {percent(chosen.covered)} of the "
        f"time, in about {chosen.cost_s:.2g} s (estimated){left}; {percent(1 - chosen.covered)} is not counted"
    )
    return Counting(replace(run, kernel=kernel_pattern(chosen), launch_count=count), note)


def _joined(manifest: Manifest, folder: Path, timeline: pa.Table) -> CollectedProfile:
    """Join the counted launches with the timeline, and write them to the run folder."""
    failure = explain(manifest, folder)
    parsed = parsed_reports(manifest, folder)
    if parsed is None or parsed.table is None:
        raise nothing_collected(parsed, failure, folder)
    joined = join(parsed.table, timeline, other_gpus=True)  # one machine; ncu may have counted on only some of its GPUs
    shares = [f"{share.outcome}: {percent(share.share)}" for share in joined.outcomes if share.share]
    notes = [f"of the time of the timeline's kernels, {', '.join(shares)}", *parsed.notes, *joined.notes]
    return replace(keep_profile(joined.table, notes, manifest, folder), failure=failure)
