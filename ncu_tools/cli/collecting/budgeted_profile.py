"""profile --budget: nsys ranks the kernels, ncu counts those that take the time, and both become one table."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.manifest import Manifest
from ncu_launch.profile.plan import Expect, Plan, Request, make_plan
from ncu_launch.profile.run_outcome import explain
from ncu_parsers.parquet.writer import write_table

from ncu_tools.cli.collecting.finished_profile import nothing, parsed_reports, show_collected
from ncu_tools.compare.join import join
from ncu_tools.numbers.number_format import percent
from ncu_tools.profiling.counting_budget import kernel_pattern, launch_count, plan
from ncu_tools.runs.loading import LAUNCHES

PASSES_WHERE_UNKNOWN = 3
"""What flops and dram take on every chip; only the cost of a plan depends on it."""

_SECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?")
_UNITS = {"s": 1, None: 1, "m": 60, "min": 60, "h": 3600}


def seconds_of(text: str) -> float:
    """Seconds from "60", "60s", "5m" or "1h".

    Raises `WrongUsage` for anything else, and for nothing at all.
    """
    match = _SECONDS.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise WrongUsage(f"{text} is no time.", advice="Write seconds or minutes, as --budget 60s or --budget 5m.")
    return float(match[1]) * _UNITS[match[2]]


def timeline_folder(folder: Path) -> Path:
    """Where the timeline's own run folder is, in the run folder."""
    return folder / "timeline"


def tracing(request: Request, folder: Path, *, dry: bool) -> tuple[Request, Plan]:
    """The run of nsys that comes first.

    Raises `WrongUsage` for filters, which the ranking replaces, and for tools that cannot count.
    """
    if request.kernel or request.launch_skip or request.launch_count:
        raise WrongUsage(
            "--budget chooses the kernels itself.", advice="Leave out --kernel, --launch-skip and --launch-count."
        )
    if request.tool not in ("auto", "ncu"):
        raise WrongUsage(f"--budget uses nsys and then ncu, not {request.tool}.", advice="Leave out --tool.")
    first = request.to_trace()
    return first, make_plan(first, timeline_folder(folder), dry=dry)


def timeline_of(manifest: Manifest, folder: Path) -> pa.Table:
    """The launches of the timeline, kept beside it.

    Raises what went wrong where there are none.
    """
    failure = explain(manifest, timeline_folder(folder))
    parsed = parsed_reports(manifest, timeline_folder(folder))
    if failure is not None or parsed is None or parsed.table is None:
        raise nothing(parsed, failure, timeline_folder(folder))
    write_table(parsed.table, timeline_folder(folder) / LAUNCHES)
    return parsed.table


def counting(
    request: Request, folder: Path, timeline: pa.Table, seconds: float, coverage: float, expect: Expect
) -> tuple[Request, Plan, list[str]]:
    """The run of ncu for the kernels that take `coverage` of the timeline, and in words what it counts.

    Raises `NcuBenchError` when the budget has no room for a single launch.
    """
    request = replace(request, tool="ncu")
    passes = make_plan(request, folder).commands[0].passes or PASSES_WHERE_UNKNOWN
    chosen = plan(timeline, budget_s=seconds, passes=passes, coverage=coverage)
    if not chosen.signatures:
        raise NcuBenchError(
            f"No launch can be counted in {seconds:g} s.",
            f"The longest kernel alone takes longer, in {passes} passes.",
            "Give a larger --budget.",
        )
    count = launch_count(timeline, chosen)
    request = replace(request, kernel=kernel_pattern(chosen), launch_count=count)
    left = f"; {len(chosen.left_out)} more do not fit the budget" if chosen.left_out else ""
    notes = [
        f"ncu counts {count} launches of {len(chosen.signatures)} kernels that take {percent(chosen.covered)} of the "
        f"time, in about {chosen.cost_s:.2g} s (estimated){left}; {percent(1 - chosen.covered)} is not counted"
    ]
    return request, make_plan(request, folder, expect=expect), notes


def show(
    manifest: Manifest, folder: Path, timeline: pa.Table, top: int | None, machine_name: str | None, output_format: str
) -> None:
    """Join what was counted with the timeline, keep it, and show its kernels; then say what went wrong, if anything."""
    failure = explain(manifest, folder)
    parsed = parsed_reports(manifest, folder)
    if parsed is None or parsed.table is None:
        raise nothing(parsed, failure, folder)
    joined = join(parsed.table, timeline, other_gpus=True)  # one machine, of whose GPUs ncu may have counted on some
    shares = [f"{share.outcome}: {percent(share.share)}" for share in joined.outcomes if share.share]
    notes = [f"of the time of the timeline's kernels, {', '.join(shares)}", *parsed.notes, *joined.notes]
    show_collected(joined.table, notes, manifest, folder, top, machine_name, output_format)
    if failure is not None:
        raise failure
