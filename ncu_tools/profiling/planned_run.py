"""The steps of every profile: announce a plan, count the operators of the model, run the plan."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ncu_launch.files.manifest import Manifest
from ncu_launch.profile.collect import collect, collect_replayed
from ncu_launch.profile.launch_count import LaunchCounts, can_be_counted, launch_counts_of
from ncu_launch.profile.plan import NOT_BY_HARDWARE, PYTORCH_TOOL, Expect, Plan, Request
from ncu_launch.workload.meta_device_process import Expectation, expectation_of
from ncu_launch.workload.warm_step import other_launches
from ncu_launch.workload_spec import Workload

from ncu_tools.profiling.listener import Listener

BY_SHAPES = "FLOPs and bytes follow from the shapes of operators, and hardware counts nothing"


def announce(plan: Plan, folder: Path, listener: Listener) -> None:
    """Report which tool will run, its run folder, and the notes of the plan."""
    if plan.tool == "operators":
        why = f" ({plan.why})" if plan.why else ""
        listener.message(f"Collecting with the embedded operator collector{why}: {NOT_BY_HARDWARE}.")
        listener.notes([note for note in plan.notes if note not in (plan.why, NOT_BY_HARDWARE)])
    elif plan.tool == PYTORCH_TOOL:
        why = f" ({plan.why})" if plan.why else ""
        listener.message(f"Recording with PyTorch's profiler{why}: {BY_SHAPES}.")
        listener.notes(list(plan.notes))
    else:
        listener.message(f"Collecting with {plan.tool} {plan.version} into {folder}.")
        listener.notes(notes_of_plan(plan))


def notes_of_plan(plan: Plan) -> list[str]:
    """The reason for the plan's runs, if it has one, and its notes."""
    return [*([f"plan: {plan.runs}"] if plan.runs else []), *plan.notes]


def expecting(listener: Listener) -> Expect:
    """The function by which `make_plan` counts a model's operators, reported to the listener as a step."""

    def expected(workload: Workload) -> Expectation:
        with listener.step("counting what the model should do"):
            return expectation_of(workload)

    return expected


def launches_when_warm(request: Request, plan: Plan, listener: Listener) -> LaunchCounts | None:
    """Count the model's launches in its last warm-up step, and report iterations with other launches.

    None if `can_be_counted` is false, or with a note if that failed: the profile continues without.
    """
    if request.workload is None or not can_be_counted(request, plan):
        return None
    workload = request.workload.with_whole_profile() if plan.tool == "nsys" else request.workload
    with listener.step("counting the launches of a warm-up step") as heard:
        counts = launch_counts_of(workload, on_line=heard)
    if isinstance(counts, str):
        listener.notes([f"the launches of the warm-up step are unknown, so nothing is compared with them: {counts}"])
        return None
    listener.notes(other_launches(Counter(counts.warm), list(map(Counter, counts.iterations))))
    return counts


def run_plan(request: Request, plan: Plan, folder: Path, listener: Listener) -> Manifest:
    """Run every command of the plan; raises as `collect`."""
    with listener.step("running") as heard:
        return collect(request, plan, folder, on_line=heard)


def run_replayed(request: Request, plan: Plan, folder: Path, before: Manifest, listener: Listener) -> Manifest:
    """Run the single command that replaces two runs, whose manifest is `before`."""
    with listener.step("running") as heard:
        return collect_replayed(request, plan, folder, before, on_line=heard)
