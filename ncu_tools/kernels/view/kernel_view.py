"""One kernel seen whole, as plain values that text, JSON and Markdown render: seven parts, and what they lack."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_parsers.schema import arrays, tables

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.ceilings.machine_files import Machine
from ncu_tools.kernels.diagnosis.diagnose import Diagnosis, diagnoses
from ncu_tools.kernels.hotspots import Hotspot, hotspots
from ncu_tools.kernels.source.instruction_mix import COLUMNS as MIX_COLUMNS
from ncu_tools.kernels.source.instruction_mix import InstructionMix, mix_of
from ncu_tools.kernels.view.facts import Fact, facts_of, metrics_of_facts
from ncu_tools.kernels.view.occupancy import BlockNeeds, Occupancy, OccupancyStep, SmLimits, occupancy, steps

STALL_PER_ISSUE = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLED = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
ISSUED = "selected"
MOST_LISTED = 8
COUNTED = "ncu"
"""What the source of launches with counters begins with: ncu, and ncu+nsys where both were joined."""
VIEWED_GROUPS = (
    "launch__", "device__attribute_", "sm__maximum_warps", "sm__warps_active", STALL_PER_ISSUE.partition("{")[0],
)  # fmt: skip
"""What metrics of occupancy and stalls begin with."""
WITH_128_BYTE_UNITS = 8
"""The compute capability from which on a block takes shared memory in units of 128 bytes, not 256."""


@dataclass(frozen=True)
class StallShare:
    """A reason for which warps wait: cycles per issued instruction (float), and their share of all of these."""

    reason: str
    per_issue: float
    share: float


@dataclass(frozen=True)
class RuleResult:
    """What a rule of NVIDIA's says of the kernel, of how many launches, and the speed-up in % that it estimates."""

    name: str
    section: str
    text: str
    speedup: float | None
    speedup_type: str
    launches: int


@dataclass
class OccupancyView:
    """Theoretical occupancy as calculated, as the report has it and as achieved, in % of the warps of an SM."""

    calculated: Occupancy | None
    theoretical: float | None
    achieved: float | None
    steps: list[OccupancyStep] = field(default_factory=list)


@dataclass
class KernelView:
    """One kernel: its launches, facts by part, occupancy, stalls, mix, causes and rules.

    `missing` has by part the titles of facts that the report does not hold.
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

    def of_part(self, part: str) -> list[Fact]:
        """The facts of one part."""
        return [fact for fact in self.facts if fact.part == part]


def kernel_view(
    launches: pa.Table,
    patterns: Sequence[re.Pattern[str]] = (),
    launch: int | None = None,
    machine: Machine | None = None,
) -> KernelView:
    """The hottest kernel of those whose names match, or of one launch.

    Ceilings that the report lacks are those of `machine`. Raises `NcuBenchError` if no kernel is left, or nothing was
    counted: bytes of operators and traces are no DRAM traffic.
    """
    _require_counters(launches)
    row = _chosen(launches, patterns, launch, machine)
    table = arrays.kept(launches, [name == row.kernel for name in tables.words(launches, "kernel_name")])
    if launch is not None:
        table = _of_launch(table, launch)
    return view_of(row, table, diagnoses(table, [row], "name").get(row.kernel))


def view_of(row: Hotspot, launches: pa.Table, diagnosis: Diagnosis | None) -> KernelView:
    """The view of a row of hotspots from its launches, which have counters, and its diagnosis.

    Launches that failed are left out, as hotspots leave them out.
    """
    launches = arrays.kept(launches, ~(np.nan_to_num(tables.floats(launches, "failed")) > 0))
    facts, missing = facts_of(launches)
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
        rules=rule_results(launches),
    )


def is_viewed(column: str) -> bool:
    """True if a view can depend on this column of launches."""
    known = column in tables.COLUMN_NAMES or column in MIX_COLUMNS or column in metrics_of_facts()
    return known or column.startswith(VIEWED_GROUPS)


def has_counters(launches: pa.Table) -> bool:
    """True if any launch was counted by ncu; traces and collected operators hold times, and no counters."""
    return any((source or "").startswith(COUNTED) for source in set(tables.words(launches, "source")))


def _require_counters(launches: pa.Table) -> None:
    if not has_counters(launches):
        sources = {source or "" for source in tables.words(launches, "source")}
        raise NcuBenchError(
            "The run holds times, and no counters of kernels.",
            f"It was made by: {', '.join(sorted(sources))}.",
            "Collect counters with: ncu --set full -o REPORT PROGRAM; ncu-bench hotspots shows what the run has",
        )


def _chosen(
    launches: pa.Table, patterns: Sequence[re.Pattern[str]], launch: int | None, machine: Machine | None
) -> Hotspot:
    every = hotspots(launches, ceilings_of(launches, machine)).rows
    left = [one for one in every if not patterns or any(each.search(one.kernel) for each in patterns)]
    if launch is not None:
        names = set(tables.words(_of_launch(launches, launch), "kernel_name"))
        left = [one for one in left if one.kernel in names]
    if not left:
        raise NcuBenchError(
            "No kernel of that name or launch is in the run.",
            f"There are: {', '.join(one.kernel for one in every[:MOST_LISTED])}.",
            "Name one of these, or leave the name out for the hottest one.",
        )
    return left[0]


def _of_launch(launches: pa.Table, launch: int) -> pa.Table:
    return arrays.kept(launches, tables.floats(launches, "launch_id") == launch)


def occupancy_view(launches: pa.Table) -> OccupancyView:
    """The occupancy of the launches, calculated where the report has the attributes of the device."""
    theoretical = _median(launches, "sm__maximum_warps_per_active_cycle_pct")
    achieved = _median(launches, "sm__warps_active.avg.pct_of_peak_sustained_active")
    needs = _needs(launches)
    if needs is None:
        return OccupancyView(None, theoretical, achieved)
    sm, block = needs
    return OccupancyView(occupancy(sm, block), theoretical, achieved, steps(sm, block))


def _needs(launches: pa.Table) -> tuple[SmLimits, BlockNeeds] | None:
    """What an SM has and a block takes; None where the report lacks any of it."""
    attribute = "device__attribute_max_{}_per_multiprocessor"
    warps, registers = (_median(launches, attribute.format(name)) for name in ("warps", "registers"))
    blocks = _median(launches, "launch__occupancy_limit_blocks")
    threads, of_thread = (_median(launches, f"launch__{name}") for name in ("block_size", "registers_per_thread"))
    shared = [_median(launches, f"launch__shared_mem_per_block_{kind}") for kind in ("static", "dynamic", "driver")]
    size = _median(launches, "launch__shared_mem_config_size")
    capability = next((text for text in tables.words(launches, "compute_capability") if text), None)
    if None in (warps, registers, blocks, threads, of_thread, size, capability, *shared[:2]) or not threads:
        return None
    major = int(str(capability).partition(".")[0])
    unit = 128 if major >= WITH_128_BYTE_UNITS else 256
    sm = SmLimits(int(warps or 0), int(blocks or 0), int(registers or 0), int(size or 0), unit)
    return sm, BlockNeeds(int(threads), int(of_thread or 0), int(sum(one or 0 for one in shared)))


def stall_shares(launches: pa.Table) -> list[StallShare]:
    """The reasons for which warps wait per issued instruction, largest first; [] if they were not collected."""
    found = {}
    for name in launches.column_names:
        match = STALLED.fullmatch(name)
        value = _median(launches, name) if match else None
        if match and value is not None and match[1] != ISSUED:
            found[match[1].replace("_", " ")] = value
    whole = sum(found.values())
    shares = [StallShare(reason, value, value / whole) for reason, value in found.items() if whole and value > 0]
    return sorted(shares, key=lambda one: -one.per_issue)


def rule_results(launches: pa.Table) -> list[RuleResult]:
    """What NVIDIA's rules say, each once with the launches it was said of, the largest estimated speed-up first."""
    if "rules" not in launches.column_names:
        return []
    told: Counter[tuple[str, str]] = Counter()
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for of_launch in launches["rules"].to_pylist():
        for rule in of_launch or []:
            if rule["kind"] in ("INF", "") and not rule["speedup"]:
                continue
            key = rule["name"], rule["section"]
            told[key] += 1
            if key not in best or _speedup(rule) > _speedup(best[key]):
                best[key] = rule
    results = [
        RuleResult(
            name, section, rule["description"], _speedup(rule) or None, rule["speedup_type"], told[name, section]
        )
        for (name, section), rule in best.items()
    ]
    return sorted(results, key=lambda one: -(one.speedup or 0))


def _speedup(rule: dict[str, Any]) -> float:
    try:
        return float(rule["speedup"] or 0)
    except ValueError:
        return 0.0


def _median(launches: pa.Table, name: str) -> float | None:
    values = tables.floats(launches, name)
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else None
