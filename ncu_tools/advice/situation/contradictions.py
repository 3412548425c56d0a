"""Contradictory counters of a launch, such as a part above its whole or a mean above its maximum.

Damaged or edited reports have them, and replays that did different work. Every rule holds for all 127 launches in
public reports that have its counters (ncu 2020.1 to 2026.1): counters that should be equal differ by at most 2.2 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_parsers.schema import tables
from ncu_parsers.schema.instructions_table import STALLS
from ncu_parsers.schema.tables import Floats

from ncu_tools.advice.situation.largest_values import ROUNDING, largest_of
from ncu_tools.advice.situation.utilisation import ELAPSED, ISSUED, STALLED, resources

APART = 0.08
"""Largest relative difference that rounding, varying clocks and sampling may explain; 2.2 % was measured."""

LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
TIME, CLOCK = "gpu__time_duration.sum", "sm__cycles_elapsed.avg.per_second"
CYCLES, SM_CYCLES = "gpc__cycles_elapsed.max", "sm__cycles_elapsed.max"
THEORETICAL, IDEAL = "memory_l2_theoretical_sectors_global", "memory_l2_theoretical_sectors_global_ideal"
EXCESSIVE = "derived__memory_l2_theoretical_sectors_global_excessive"
WHOLES = (f"sm__throughput.avg.{ELAPSED}", f"gpu__compute_memory_throughput.avg.{ELAPSED}")
"""The two throughputs that NVIDIA defines as the maximum of their parts."""
AT_MOST = (
    ("sm__warps_active.avg.pct_of_peak_sustained_active", "sm__maximum_warps_per_active_cycle_pct"),
    (
        "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
        "smsp__thread_inst_executed_per_inst_executed.ratio",
    ),
    ("sm__cycles_active.avg", "sm__cycles_active.max"),
    ("sm__cycles_active.min", "sm__cycles_active.avg"),
    ("sm__cycles_active.avg", "sm__cycles_elapsed.max"),
    ("lts__cycles_active.avg", "lts__cycles_active.max"),
    ("lts__cycles_active.avg", "lts__cycles_elapsed.avg"),
    (IDEAL, THEORETICAL),
)
"""Pairs of counters: the first is never above the second."""


class Contradiction(NamedTuple):
    """The launches (a mask) in which a counter `one` contradicts `other`, with both values of every launch."""

    launches: npt.NDArray[np.bool_]
    one: str
    value: Floats
    relation: str
    other: str
    limit: Floats

    def told(self, launch: int) -> str:
        """The contradiction in one launch, in words."""
        return f"{self.one} ({self.value[launch]:.5g}) {self.relation} {self.other} ({self.limit[launch]:.5g})"


def contradictions(launches: pa.Table) -> Iterator[Contradiction]:
    """The contradictions that some launch has. Averages over launches obey every rule, too."""
    with np.errstate(invalid="ignore"):
        found = [*_above_others(launches), *_above_the_wholes(launches), *_unequal(launches)]
    return (one for one in found if one.launches.any())


@cache
def metrics_of_contradictions() -> frozenset[str]:
    """Every metric that a rule reads."""
    pairs = (one for pair in AT_MOST for one in pair)
    return frozenset(
        (LATENCY, EXCESSIVE, TIME, CLOCK, CYCLES, SM_CYCLES, *WHOLES, *pairs, *_names_of_stalls(), *_parts())
    )


def _above_others(launches: pa.Table) -> Iterator[Contradiction]:
    for one, other in AT_MOST:
        yield _above(one, tables.floats(launches, one), other, tables.floats(launches, other))


def _above_the_wholes(launches: pa.Table) -> Iterator[Contradiction]:
    """Parts above both wholes, in launches that have both."""
    collected = set(launches.column_names)
    if not collected.issuperset(WHOLES):
        return
    sm, memory = (tables.floats(launches, one) for one in WHOLES)
    limit = np.maximum(sm, memory)
    for part in _parts():
        if part in collected:
            yield _above(part, tables.floats(launches, part), " and ".join(WHOLES), limit)


def _above(one: str, value: Floats, other: str, limit: Floats) -> Contradiction:
    """Launches where a value is above its limit; impossible values are reported elsewhere."""
    is_above = (value > limit * (1 + ROUNDING)) & (value <= largest_of(one)) & (limit <= largest_of(other))
    return Contradiction(is_above, one, value, "is above", other, limit)


def _unequal(launches: pa.Table) -> Iterator[Contradiction]:
    """Counters that differ from others: cycles from time x clock, sectors from a difference, latency from stalls."""
    theoretical, ideal, excessive, cycles, of_sms, time, clock, latency = (
        tables.floats(launches, one) for one in (THEORETICAL, IDEAL, EXCESSIVE, CYCLES, SM_CYCLES, TIME, CLOCK, LATENCY)
    )
    for one, value, other, expected, scale in (
        (SM_CYCLES, of_sms, CYCLES, cycles, cycles),
        (CYCLES, cycles, f"{TIME} x {CLOCK}", time * 1e-9 * clock, cycles),
        (EXCESSIVE, excessive, f"{THEORETICAL} - {IDEAL}", theoretical - ideal, theoretical),
    ):
        yield Contradiction(np.abs(value - expected) > APART * scale, one, value, "is not", other, expected)
    collected = set(launches.column_names)
    known = [one for one in _names_of_stalls() if one in collected]
    stalls = np.sum([tables.or_zero(tables.floats(launches, one)) for one in known], axis=0) + np.zeros(len(launches))
    yield Contradiction(
        stalls > latency * (1 + APART), STALLED.format("*"), stalls, "add up to more than", LATENCY, latency
    )


@cache
def _parts() -> tuple[str, ...]:
    """The utilisation metrics of all resources but the two wholes."""
    counters = (counter for told in resources().values() for counter in told["elapsed"])
    return tuple(name for one in counters if (name := f"{one}.avg.{ELAPSED}") not in WHOLES)


@cache
def _names_of_stalls() -> tuple[str, ...]:
    reasons = (one.replace("no_instructions", "no_instruction") for one in (*STALLS, ISSUED))
    return tuple(dict.fromkeys(STALLED.format(one) for one in reasons))
