"""Everything on one kernel, as plain values that text, JSON and Markdown render: seven parts, and missing facts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.metric_forms import MetricsInAnyForm
from ncu_parsers.schema.tables import Floats
from ncu_parsers.schema.vendors import why_no_ncu_for

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.ceilings.machine_files import Machine
from ncu_tools.kernels.diagnosis.agreement import agreement
from ncu_tools.kernels.diagnosis.diagnose import Diagnosis, diagnoses, quantities_of
from ncu_tools.kernels.diagnosis.rules import STALL
from ncu_tools.kernels.estimated_flops import estimates_in
from ncu_tools.kernels.grouping import launches_of
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.kernel_row import Hotspot
from ncu_tools.kernels.names.readable_names import called
from ncu_tools.kernels.source.instruction_mix import COLUMNS as MIX_COLUMNS
from ncu_tools.kernels.source.instruction_mix import InstructionMix, mix_of
from ncu_tools.kernels.view.facts import Fact, facts_of, metrics_of_facts
from ncu_tools.kernels.view.launch_configuration import most_alike
from ncu_tools.kernels.view.nvidia_rules import GLOBAL, INFORMATION, RuleMessage, rule_messages
from ncu_tools.kernels.view.occupancy import (
    BARRIERS,
    BLOCKS,
    REGISTERS,
    SHARED_MEMORY,
    WARPS,
    BlockNeeds,
    Occupancy,
    OccupancyStep,
    SmLimits,
    joint_steps,
    occupancy,
    steps,
)

if TYPE_CHECKING:
    from ncu_tools.kernels.source.hot_places import HotPlace

NUMBER = r"[0-9][0-9.,]*"
"""A number in a rule's message: messages that differ only in numbers are one finding on several launches."""
Shape = tuple[tuple[int, ...], tuple[int, ...]]
"""Grid and block of a launch."""
STALLED = re.compile(
    r"smsp__(?:average_warps_issue_stalled_(\w+)_per_issue_active\.ratio|warp_issue_stalled_(\w+)_per_warp_active\.pct)"
)
LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
ISSUED = "selected"
MOST_LISTED = 8
LIMITS = {WARPS: "warps", REGISTERS: "registers", SHARED_MEMORY: "shared_mem", BLOCKS: "blocks", BARRIERS: "barriers"}
"""Limit on the blocks per SM -> the suffix of launch__occupancy_limit_*."""
FULL = 99.995
"""An SM is full at this theoretical occupancy in %, printed with two digits."""
COUNTED = "ncu"
"""Beginning of the source of launches with counters: ncu, and ncu+nsys if both were joined."""
VIEWED_GROUPS = (
    "launch__", "device__attribute_", "sm__maximum_warps", "sm__warps_active",
    "smsp__average_warps_issue_stalled_", "smsp__warp_issue_stalled_",
)  # fmt: skip
"""Prefixes of metrics of occupancy and stalls."""
WITH_128_BYTE_UNITS = 8
"""The first compute capability with shared memory in units of 128 bytes, not 256."""


@dataclass(frozen=True)
class StallShare:
    """A stall reason: cycles per issued instruction, and their share of a warp's time.

    That time is the time between two instructions of a warp, its issue cycle included. `low` and `high` are the minimum
    and maximum over the launches. Cycles are None if only the share was collected.
    """

    reason: str
    per_issue: float | None
    share: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class RuleResult:
    """The finding of an NVIDIA rule on the kernel, its number of launches, and its estimated speed-up in %.

    A "global" speed-up is of the kernel's time, a "local" one of the unit that the rule examines. `agreement` is one of
    `agreement.OUTCOMES`, `ours` the supporting sentence of our diagnosis; both are "" if there is no diagnosis.
    `answer` is what our levers say to it, "" if they were not asked or the estimate is small. `name` is "" if the
    report has none, as text pages.
    """

    name: str
    section: str
    text: str
    speedup: float | None
    speedup_type: str
    launches: int
    kind: str = ""
    agreement: str = ""
    ours: str = ""
    answer: str = ""


@dataclass
class OccupancyView:
    """Theoretical occupancy as calculated, as the report has it and as achieved, in % of the warps of an SM.

    `reported` are the report's blocks per SM by each resource. `joint_steps` raise occupancy only together.
    """

    calculated: Occupancy | None
    theoretical: float | None
    achieved: float | None
    steps: list[OccupancyStep] = field(default_factory=list)
    joint_steps: list[OccupancyStep] = field(default_factory=list)
    reported: dict[str, float] = field(default_factory=dict)

    @property
    def blocks_by(self) -> dict[str, int]:
        """Blocks per SM by each resource: as calculated, else as in the report; {} if neither is known."""
        return self.calculated.blocks_by if self.calculated else {name: int(one) for name, one in self.reported.items()}

    @property
    def limiters(self) -> tuple[str, ...]:
        """The resources that allow the fewest blocks; none if the SM is full or nothing is known."""
        full = self.theoretical is not None and self.theoretical >= FULL
        if self.calculated is not None or full or not self.reported:
            return self.calculated.limiters if self.calculated else ()
        return tuple(name for name, count in self.blocks_by.items() if count == min(self.blocks_by.values()))


@dataclass
class KernelView:
    """One kernel: its launches, facts by part, occupancy, stalls, mix, causes and rules.

    `missing` has by part the titles of facts missing from the report. `grids` and `blocks` are the different shapes of
    the launches, `quantities` the numbers that the rules of the diagnosis used (NaN if unknown), and `quantity_sources`
    their metrics or rules. `places` are the source lines or instructions with the most samples, if the report has any,
    `times_by_shape` the times of all launches of a grid and block in ns, and `times_ns` the time of each launch, NaN if
    unknown. `other_shapes` counts the launches left out by their shape, `not_alike` has the properties in which
    launches with another occupancy differ, and the number left out for it; `estimates` counts launches with estimated
    FLOPs, by basis, and `conditions` is how the run was collected, by its manifest. With `of_selection`, other launches
    of the run were left out before, so that its share of the time is of the selection.
    """

    kernel_name: str
    launches: int
    hotspot: Hotspot
    device: str | None
    facts: list[Fact]
    missing: dict[str, list[str]]
    occupancy: OccupancyView
    stalls: list[StallShare]
    mix: InstructionMix | None
    diagnosis: Diagnosis | None
    rules: list[RuleResult]
    grids: list[tuple[int, ...]] = field(default_factory=list)
    blocks: list[tuple[int, ...]] = field(default_factory=list)
    quantities: dict[str, float] = field(default_factory=dict)
    quantity_sources: dict[str, Sequence[str]] = field(default_factory=dict)
    places: list[HotPlace] = field(default_factory=list)
    times_by_shape: dict[Shape, float] = field(default_factory=dict)
    times_ns: list[float] = field(default_factory=list)
    other_shapes: int = 0
    not_alike: tuple[str, int] = "", 0
    estimates: Mapping[str, int] = field(default_factory=dict)
    conditions: Mapping[str, str] = field(default_factory=dict)
    of_selection: bool = False

    @property
    def launched(self) -> int:
        """How often the kernel ran in these launches: a row of a summary is an average over several."""
        return max(self.hotspot.launches, self.launches) if self.launches else 0

    def of_part(self, part: str) -> list[Fact]:
        """The facts of one part."""
        return [fact for fact in self.facts if fact.part == part]


def kernel_view(
    launches: pa.Table,
    patterns: Sequence[re.Pattern[str]] = (),
    launch: int | None = None,
    machine: Machine | None = None,
    shape: Shape | None = None,
    *,
    alike: bool = False,
) -> KernelView:
    """The hottest kernel among those whose names match, or one launch, or only its launches of this grid and block.

    A launch is named by its number, as in `tables.launch_numbers`. With `alike`, if launches differ in occupancy, only
    those of `most_alike` are used. Missing ceilings come from `machine`. Raises `NcuBenchError` if no kernel is left,
    or nothing was counted: bytes of operators and traces are no DRAM traffic.
    """
    _require_counters(launches)
    row = _chosen(launches, patterns, launch, machine)
    is_of_kernel = launches_of(row, launches)
    every = int(is_of_kernel.sum())
    if launch is not None:
        is_of_kernel &= tables.launch_numbers(launches) == launch
    table = arrays.kept(launches, is_of_kernel)
    if launch is None and shape is not None:
        codes, shapes = _shapes(table)
        table = arrays.kept(table, np.array([one == shape for one in shapes], np.bool_)[codes])
    taken = most_alike(table) if alike else None
    table = table if taken is None else arrays.kept(table, taken.kept)
    if len(table) < every:
        row = _of_some(row, table, machine)
    view = view_of(row, table, diagnoses(table, [row], "name").get(row.key))
    view.other_shapes = every - len(table) if shape is not None else 0
    view.not_alike = (taken.differ_in, int((~taken.kept).sum())) if taken is not None else ("", 0)
    view.quantities, view.quantity_sources = quantities_of(table, row)
    return view


def view_of(row: Hotspot, launches: pa.Table, diagnosis: Diagnosis | None) -> KernelView:
    """The view of a row of hotspots from its launches, which have counters, and its diagnosis; without `quantities`.

    Failed launches are left out, as in hotspots.
    """
    launches = arrays.kept(launches, ~(np.nan_to_num(tables.floats(launches, "failed")) > 0))
    facts, missing = facts_of(launches)
    times_by_shape = _times_by_shape(launches)
    return KernelView(
        kernel_name=row.kernel,
        launches=len(launches),
        hotspot=row,
        device=next((name for name in tables.words(launches, "device_name") if name), None),
        facts=facts,
        missing=missing,
        occupancy=occupancy_view(launches),
        stalls=stall_shares(launches),
        mix=mix_of(launches),
        diagnosis=diagnosis,
        rules=[_compared(rule, diagnosis or Diagnosis(None, [])) for rule in rule_results(launches)],
        grids=list(dict.fromkeys(grid for grid, _ in times_by_shape if grid)),
        blocks=list(dict.fromkeys(block for _, block in times_by_shape if block)),
        times_by_shape=times_by_shape,
        times_ns=tables.floats(launches, "duration_ns").tolist(),
        estimates=estimates_in(launches),
    )


def is_viewed(column: str) -> bool:
    """True if a view can depend on this column of launches."""
    known = column in tables.COLUMN_NAMES or column in MIX_COLUMNS or column in metrics_of_facts()
    return known or column.startswith(VIEWED_GROUPS)


def has_counters(launches: pa.Table) -> bool:
    """True if ncu counted any launch; traces and collected operators have times, and no counters."""
    return any((source or "").startswith(COUNTED) for source in set(tables.words(launches, "source")))


def _of_some(kernel: Hotspot, table: pa.Table, machine: Machine | None) -> Hotspot:
    """The row of some launches of a kernel, with their share of the run's time; the kernel's row if all failed."""
    rows = hotspots(table, ceilings_of(table, machine)).rows
    if not rows:
        return kernel
    row, whole = rows[0], kernel.time_total_ns
    known = row.time_total_ns is not None and kernel.time_share is not None and whole
    share = (kernel.time_share or 0) * (row.time_total_ns or 0) / (whole or 1) if known else None
    return replace(row, time_share=share, time_cumulative=None)


def _compared(rule: RuleResult, ours: Diagnosis) -> RuleResult:
    """A rule with our diagnosis beside it; unchanged if it has no name, by which findings are known."""
    if not rule.name:
        return rule
    result = {"name": rule.name, "kind": rule.kind, "description": rule.text, "speedup": rule.speedup}
    found = agreement(result, ours)
    return replace(rule, agreement=found.outcome, ours=found.ours)


def _shapes(table: pa.Table) -> tuple[npt.NDArray[np.int64], list[Shape]]:
    """The index of each launch's grid and block, and these in the order of their first launches; empty if unknown."""
    (of_grids, grids), (of_blocks, blocks) = (tables.list_codes(table, column) for column in ("grid", "block"))
    _, first, found = np.unique(of_grids * len(blocks) + of_blocks, return_index=True, return_inverse=True)
    order = np.argsort(first)
    shapes = [(grids[of_grids[row]] or (), blocks[of_blocks[row]] or ()) for row in first[order].tolist()]
    return np.argsort(order)[found.reshape(-1)], shapes


def _times_by_shape(table: pa.Table) -> dict[Shape, float]:
    codes, shapes = _shapes(table)
    times = np.bincount(codes, np.nan_to_num(tables.floats(table, "duration_ns")), len(shapes))
    return dict(zip(shapes, times.tolist(), strict=True))


COLLECT_COUNTERS = "Collect counters with: ncu --set full -o REPORT PROGRAM"


def _require_counters(launches: pa.Table) -> None:
    if not has_counters(launches):
        sources = {source or "" for source in tables.words(launches, "source")}
        raise NcuBenchError(
            "The run holds times, and no counters of kernels.",
            f"It was made by: {', '.join(sorted(sources))}.",
            f"{why_no_ncu_for(launches) or COLLECT_COUNTERS}; ncu-bench hotspots shows what the run has",
        )


def _chosen(
    launches: pa.Table, patterns: Sequence[re.Pattern[str]], launch: int | None, machine: Machine | None
) -> Hotspot:
    every = hotspots(launches, ceilings_of(launches, machine)).rows
    wanted = called((one.kernel for one in every), patterns) if patterns else set()
    left = [one for one in every if not patterns or one.kernel in wanted]
    if launch is not None:
        named = arrays.kept(launches, tables.launch_numbers(launches) == launch)
        names = set(tables.words(named, "kernel_name"))
        left = [one for one in left if one.kernel in names]
    if not left:
        if launch is not None:
            raise _no_launch(launches, launch, of_others=bool(names))
        others = list(dict.fromkeys(tables.short_name(one.kernel) for one in every))
        raise NcuBenchError(
            "No kernel of that name is in the run.",
            f"There are: {', '.join(others[:MOST_LISTED])}.",
            "Name one of these or a part of it, or leave the name out for the hottest one.",
        )
    return left[0]


def _no_launch(launches: pa.Table, launch: int, *, of_others: bool) -> NcuBenchError:
    """The error for a launch that is not in the run, or, with `of_others`, belongs to another kernel."""
    numbers = sorted(one for one in tables.launch_numbers(launches).tolist() if not np.isnan(one))
    some = f"{', '.join(f'{one:.0f}' for one in numbers[:MOST_LISTED])}{' ...' if numbers[MOST_LISTED:] else ''}"
    if of_others:
        return NcuBenchError(
            f"Launch {launch} is of another kernel.", advice="Leave the kernel's name out, or --launch."
        )
    return NcuBenchError(
        f"There is no launch {launch} in the run.",
        f"Launches are {some}, the last {numbers[-1]:.0f}." if numbers else "",
        "Choose one of these with --launch N, or name a kernel.",
    )


def occupancy_view(launches: pa.Table) -> OccupancyView:
    """The occupancy of the launches, calculated if the report has the attributes of the device."""
    metrics = MetricsInAnyForm(launches)
    theoretical = _median(metrics, "sm__maximum_warps_per_active_cycle_pct")
    achieved = _median(metrics, "sm__warps_active.avg.pct_of_peak_sustained_active")
    needs = _needs(launches, metrics)
    reported = {name: _median(metrics, f"launch__occupancy_limit_{metric}") for name, metric in LIMITS.items()}
    view = OccupancyView(None, theoretical, achieved, reported={n: v for n, v in reported.items() if v is not None})
    if needs is None:
        return view
    sm, block = needs
    return replace(view, calculated=occupancy(sm, block), steps=steps(sm, block), joint_steps=joint_steps(sm, block))


def _needs(launches: pa.Table, metrics: MetricsInAnyForm) -> tuple[SmLimits, BlockNeeds] | None:
    """The limits of an SM and the needs of a block; None if the report lacks any of them."""
    attribute = "device__attribute_max_{}_per_multiprocessor"
    warps, registers = (_median(metrics, attribute.format(name)) for name in ("warps", "registers"))
    blocks = _median(metrics, "launch__occupancy_limit_blocks")
    threads, of_thread = (_median(metrics, f"launch__{name}") for name in ("block_size", "registers_per_thread"))
    shared = [_median(metrics, f"launch__shared_mem_per_block_{kind}") for kind in ("static", "dynamic", "driver")]
    size = _median(metrics, "launch__shared_mem_config_size")
    capability = next((text for text in tables.words(launches, "compute_capability") if text), None)
    if None in (warps, registers, blocks, threads, of_thread, size, capability, *shared[:2]) or not threads:
        return None
    if not size and any(shared):  # a block that uses shared memory was given some, so 0 was not recorded
        return None
    major = int(str(capability).partition(".")[0])
    unit = 128 if major >= WITH_128_BYTE_UNITS else 256
    sm = SmLimits(int(warps or 0), int(blocks or 0), int(registers or 0), int(size or 0), unit)
    return sm, BlockNeeds(int(threads), int(of_thread or 0), int(sum(one or 0 for one in shared)))


def stall_shares(launches: pa.Table) -> list[StallShare]:
    """The stall reasons, the largest share first; [] if not collected.

    If the time between two instructions was collected and exceeds all known waits together, shares are of it.
    """
    metrics = MetricsInAnyForm(launches)
    matches = [match for name in launches.column_names if (match := STALLED.fullmatch(name))]
    found = {reason: known for reason in dict.fromkeys(one[1] or one[2] for one in matches)
             if len(known := _known_values(metrics, STALL.format(reason)))}  # fmt: skip
    whole = max(sum(float(np.median(one)) for one in found.values()), _median(metrics, LATENCY) or 0.0)
    shares = [
        StallShare(reason.replace("_", " "), cycles, cycles / whole, float(known.min()), float(known.max()))
        for reason, known in found.items()
        if (cycles := float(np.median(known))) > 0 and reason != ISSUED
    ]
    if not found:
        of_time = {one[2]: _median(metrics, one[0]) or 0.0 for one in matches if one[2] not in (None, ISSUED)}
        shares = [StallShare(why.replace("_", " "), None, one / 100, None, None) for why, one in of_time.items() if one]
    return sorted(shares, key=lambda one: -one.share)


def rule_results(launches: pa.Table) -> list[RuleResult]:
    """The findings of NVIDIA's rules, each once with its launches.

    Findings with the largest estimated speed-up of the kernel come first, then those on a unit, or without an estimate.
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    best: dict[tuple[str, str, str], RuleMessage] = {}
    for said in rule_messages(launches):
        if said.speedup is None and said.kind in INFORMATION:
            continue
        key = said.rule, said.section, re.sub(NUMBER, "#", said.message)
        counts[key] += 1
        if key not in best or (said.speedup or 0.0) > (best[key].speedup or 0.0):
            best[key] = said
    results = [
        RuleResult(one.rule, one.section, one.message, one.speedup or None, one.speedup_type, counts[key], one.kind)
        for key, one in best.items()
    ]
    return sorted(results, key=lambda one: (one.speedup is None, one.speedup_type != GLOBAL, -(one.speedup or 0)))


def _median(metrics: MetricsInAnyForm, name: str) -> float | None:
    known = _known_values(metrics, name)
    return float(np.median(known)) if len(known) else None


def _known_values(metrics: MetricsInAnyForm, name: str) -> Floats:
    values = metrics.floats(name)
    return values[~np.isnan(values)]
