"""A whole profile: plan, run, compare two runs, replay if they differ, budget, ranks, join, write."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from ncu_launch.errors import WrongUsage
from ncu_launch.files.run_files import REPORTS
from ncu_launch.profile.plan import PYTORCH_TOOL, default_folder, make_plan
from ncu_launch.profile.run_outcome import explain
from ncu_launch.profilers.rank_environment import place_here
from ncu_launch.profilers.traced_program import NOT_SAMPLED, SAMPLE

from ncu_tools.profiling.listener import Listener
from ncu_tools.profiling.planned_run import (
    announce,
    expecting,
    launches_when_warm,
    notes_of_plan,
    run_plan,
    run_replayed,
)
from ncu_tools.profiling.profile_request import DryRun, ProfileRequest

if TYPE_CHECKING:
    from ncu_tools.profiling.collected_profile import CollectedProfile


def run_profile(request: ProfileRequest, listener: Listener) -> CollectedProfile | None:
    """Collect, read and write a profile; None on ranks other than the first, which joins the parts of all ranks.

    Raises `WrongUsage` for conflicting options, and `NcuBenchError` if nothing could be collected. A run that collected
    less than requested is returned with the reason as `failure`.
    """
    collected = _collected(request, listener)
    if collected is None or not request.measure:
        return collected
    from ncu_tools.profiling.quick_ceilings import measure_unknown_devices

    return measure_unknown_devices(collected, listener)


def _collected(request: ProfileRequest, listener: Listener) -> CollectedProfile | None:
    if _is_of_ranks(request):
        from ncu_tools.profiling.ranked_profile import profile_ranks

        return profile_ranks(request, listener)
    folder = _folder(request)
    if request.budget_s is not None:
        from ncu_tools.profiling.budgeted_profile import profile_within_budget

        return profile_within_budget(request, folder, request.budget_s, listener)
    return _profile_once(request, folder, listener)


def plan_profile(request: ProfileRequest, listener: Listener) -> DryRun:
    """The first commands of `run_profile`, without running anything. Raises `WrongUsage` as `run_profile`."""
    if _is_of_ranks(request):
        from ncu_tools.profiling.ranked_profile import plan_ranks

        return plan_ranks(request)
    folder = _folder(request)
    if request.budget_s is not None:
        from ncu_tools.profiling.budgeted_profile import plan_timeline

        _, plan = plan_timeline(request.run, folder, dry=True)
        return DryRun([plan.command], ["then ncu, for the kernels that this timeline shows to take the time"])
    plan = make_plan(request.run, folder, dry=True, expect=expecting(listener))
    return DryRun([one.arguments for one in plan.commands], notes_of_plan(plan))


def _is_of_ranks(request: ProfileRequest) -> bool:
    several = request.nproc is not None or place_here(os.environ) is not None
    if several and request.budget_s is not None:
        raise WrongUsage("--budget is for one process, not for ranks.", advice="Leave it out, or --nproc.")
    return several


def _folder(request: ProfileRequest) -> Path:
    return request.output or default_folder(request.run, datetime.now(timezone.utc))


def _profile_once(request: ProfileRequest, folder: Path, listener: Listener) -> CollectedProfile:
    """Run the plan of one process; two runs that launched different kernels are replaced by one replayed run."""
    plan = make_plan(request.run, folder, expect=expecting(listener))
    announce(plan, folder, listener)
    warm = launches_when_warm(request.run, plan, listener)
    manifest = run_plan(request.run, plan, folder, listener)

    from ncu_tools.profiling.collected_profile import (
        CollectedProfile,
        keep_profile,
        nothing_collected,
        parsed_reports,
        why_no_gpu_work,
        why_no_operators,
    )

    failure = explain(manifest, folder)
    parsed = parsed_reports(manifest, folder)
    reason = why_no_gpu_work(parsed)
    if reason is not None and failure is None:
        where = f"The timeline is in {folder / REPORTS}."
        after = tuple(note for note in manifest.notes if note not in plan.notes)
        return CollectedProfile(folder, manifest, announced=plan.notes, notes=after, idle=f"{where} {reason}")
    if parsed is not None and parsed.mismatch and not manifest.partial:
        listener.message(f"{parsed.mismatch} Running it once more, each kernel replayed.")
        manifest = run_replayed(request.run, plan, folder, manifest, listener)
        failure = explain(manifest, folder)
        parsed = parsed_reports(manifest, folder)
    if parsed is None or parsed.table is None:
        raise nothing_collected(parsed, failure or why_no_operators(manifest), folder)
    notes = [*parsed.notes, *([parsed.mismatch] if parsed.mismatch else [])]
    says_why = any(note.startswith(NOT_SAMPLED) for note in manifest.notes)
    by_pytorch = plan.tool == PYTORCH_TOOL and request.run.samples_by_pytorch and SAMPLE in plan.command
    asked = request.run.gpu_metrics is not None or by_pytorch
    if asked and not says_why and "sampled_samples" not in parsed.table.column_names:
        notes.append(
            "GPU metrics were asked for, and the timeline has none; ncu-bench doctor says what nsys and PyTorch may "
            f"sample, and the log of the run in {folder} what they said"
        )
    kept = keep_profile(parsed.table, notes, manifest, folder, announced=plan.notes, warm=warm)
    return replace(kept, failure=failure)
