"""Choose between one run of ncu that replays every kernel, and two runs in which each kernel runs once.

Hardware counters and SASS counters (CUDA-core FLOPs) never share a pass. To collect both in one run, ncu replays every
kernel: it saves all memory that the kernel can access, restores modified memory before each further pass, and runs one
pass more than there are counter sets. In two runs with a single pass each, nothing is saved or restored, but the
program starts twice. The cheaper choice depends on the allocated memory and on the program's start-up time.
"""

from __future__ import annotations

from dataclasses import dataclass

from ncu_launch.counters.metric_groups import MetricSelection
from ncu_launch.counters.pass_counts import Passes

PLANS = ("auto", "one-run", "two-runs")

PASS_S = 0.04
"""Overhead of ncu per pass of a replayed launch: 0.03 to 0.045 s on an H100 (docs/dev/gpu-validation.md)."""
SINGLE_PASS_S = 0.02
"""Overhead of a launch that is not replayed, since nothing is saved, restored or flushed; measured likewise."""
DEVICE_COPY_BYTES_PER_S = 1.2e11
"""Rate at which ncu saves and restores memory on the GPU: 40 GB took 0.7 s per launch on the H100."""
HOST_COPY_BYTES_PER_S = 1.2e10
"""Rate at which ncu saves and restores memory to the host: assumed from PCIe, not measured."""


@dataclass(frozen=True)
class Program:
    """Estimates for a program before it runs: allocated bytes, launches to profile, start-up seconds.

    `gpu_bytes` is the memory of the GPU, None if unknown.
    """

    alive_bytes: int
    launches: int
    start_s: float
    gpu_bytes: int | None = None


@dataclass(frozen=True)
class NcuRun:
    """One run of ncu: its metrics, how often it runs each kernel (None if unknown), and the kind of its counters."""

    metrics: tuple[str, ...]
    passes: int | None
    kind: str = "all counters"


@dataclass(frozen=True)
class RunPlan:
    """The runs of ncu, in order, and the reason for their number."""

    runs: tuple[NcuRun, ...]
    why: str


def plan_runs(
    selection: MetricSelection, passes: Passes, asked: str = "auto", program: Program | None = None
) -> RunPlan:
    """Plan the runs that collect a selection. `asked` is one of `PLANS`; without `program`, costs are not estimated."""
    sass = tuple(counter.name for counter in selection.counters if counter.is_sass)
    hardware = tuple(name for name in selection.names if name not in sass)
    together = RunPlan((NcuRun(selection.names, passes.in_ncu),), _replayed(passes))
    if passes.of_hardware == 0 or not sass or set(hardware) <= _ALWAYS:
        return RunPlan(
            together.runs, "every counter fits one pass: nothing is replayed" if passes.in_ncu == 1 else together.why
        )
    apart = (
        NcuRun(hardware, passes.hardware_in_ncu, "hardware counters"),
        NcuRun(sass, passes.sass_in_ncu, "instruction counters"),
    )
    if asked == "one-run":
        return RunPlan(together.runs, f"as asked: {together.why}")
    if asked == "two-runs":
        return RunPlan(apart, f"as asked: {_apart(passes)}")
    if passes.hardware_in_ncu is None:
        return RunPlan(
            together.runs, f"{together.why}; --plan two-runs collects both kinds of counters in separate runs"
        )
    if passes.hardware_in_ncu != 1:
        return RunPlan(
            together.runs,
            f"{together.why}: the hardware counters alone need a replay, so a second run would save nothing",
        )
    if program is None:
        return RunPlan(
            together.runs,
            f"{together.why}: the program's memory and start-up time are unknown; --plan two-runs never replays",
        )
    return _cheaper(together, apart, passes, program)


_ALWAYS = frozenset(("sm__cycles_elapsed.avg", "sm__cycles_elapsed.avg.per_second"))


def _cheaper(together: RunPlan, apart: tuple[NcuRun, ...], passes: Passes, program: Program) -> RunPlan:
    """The plan with the lower estimate. Costs common to both, such as the first start of the program, are omitted."""
    fits = program.gpu_bytes is None or 2 * program.alive_bytes <= program.gpu_bytes
    rate = DEVICE_COPY_BYTES_PER_S if fits else HOST_COPY_BYTES_PER_S
    replaying = program.launches * (2 * program.alive_bytes / rate + PASS_S * (passes.in_ncu or 0))
    again = program.start_s + program.launches * SINGLE_PASS_S * len(apart)
    amount = f"{program.alive_bytes / 1e9:.2g} GB allocated at {program.launches} launches"
    costs = f"about {replaying:.2g} s to save memory and replay ({amount})"
    costs += f" against {again:.2g} s to start again and replay nothing"
    where = "" if fits else ", and two copies do not fit the GPU"
    if replaying > again:
        return RunPlan(apart, f"{_apart(passes)}: {costs}{where} (estimated)")
    return RunPlan(together.runs, f"{together.why}: {costs} (estimated)")


def _replayed(passes: Passes) -> str:
    if passes.in_ncu is None:
        return "one run; how often each kernel is replayed is not known"
    return f"one run, each kernel in {passes.in_ncu} pass{'es' * (passes.in_ncu > 1)}"


def _apart(passes: Passes) -> str:
    one = passes.hardware_in_ncu
    times = "not known" if one is None else str(one)
    return f"two runs of the program, {times} pass{'es' * (one != 1)} for hardware and 1 for instruction counters"
