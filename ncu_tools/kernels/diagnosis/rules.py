"""The tables of `rules.toml`: parts of resources, quantities, and rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ncu_launch.counters.metrics import table as metrics_table
from ncu_launch.files.toml_tables import table_beside

Known = Mapping[str, float]
"""Quantity -> its value for one kernel; NaN or absent if unknown."""
Conditions = Mapping[str, Mapping[str, float]]
"""Quantity -> its limits, as in `{"issue": {"below": 0.6}}`."""

BY_RULE = " by a rule"
"""Suffix of the names of numbers that one of NVIDIA's rules prints."""
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


@dataclass(frozen=True)
class CauseRule:
    """One cause: suspected if all conditions in `when` hold, harmful only if those in `harms_if` hold too.

    Unless `certain_if` holds, it is only a possible cause. Its cost is a quantity (`costs`), or follows from the share
    of a resource's work that is wasted (`frees`: resource -> quantity); with `costs_where_busy` it is that quantity
    only if the use of such a resource is known. `label` names the cause if it is ruled out or only possible, `says` is
    its sentence; `next` are commands that look into it, with braces for the run and kernel.
    """

    id: str
    label: str
    when: Conditions
    says: str
    source: str
    harms_if: Conditions = field(default_factory=dict)
    certain_if: Conditions = field(default_factory=dict)
    costs: str = ""
    costs_where_busy: bool = False
    frees: Mapping[str, str] = field(default_factory=dict)
    evidence: Sequence[str] = ()
    instead_of: str = ""
    next: Sequence[str] = ()


@dataclass(frozen=True)
class Quantity:
    """One quantity: title, unit, and the metrics it comes from.

    `group` is the group of `ncu-bench machines --metrics` that collects it, `fact` its text as a reason.
    """

    title: str
    unit: str
    metrics: Sequence[str]
    group: str = ""
    fact: str = ""


def facts() -> dict[str, Any]:
    """The parsed `rules.toml`."""
    return table_beside(__file__, "rules")


@cache
def rules() -> tuple[CauseRule, ...]:
    """All rules, in the order of the file."""
    return tuple(CauseRule(**entry) for entry in facts()["rule"])


@cache
def quantities() -> dict[str, Quantity]:
    """All quantities of the rules, by name."""
    return {name: Quantity(**entry) for name, entry in facts()["quantity"].items()}


@cache
def stall_reasons() -> dict[str, str]:
    """Stall reason, as in the metric's name -> the awaited event; "selected" and "not_selected" are not stalls."""
    group = next(group for group in metrics_table("groups")["group"] if group["name"] == "stalls")
    start, end = STALL.split("{}")
    reasons = {one["name"].removeprefix(start).removesuffix(end): one["meaning"] for one in group["counters"]}
    reasons |= facts()["stall"]
    return {reason: meaning for reason, meaning in reasons.items() if reason != "not_selected"}


def holds(known: Known, conditions: Conditions) -> bool:
    """True if all conditions hold. An unknown quantity fulfils no condition."""
    return not failing(known, conditions) and not unknown(known, conditions)


def failing(known: Known, conditions: Conditions) -> list[str]:
    """The known quantities outside their limits."""
    return [
        name for name, limits in conditions.items()
        if not math.isnan(known.get(name, math.nan)) and not _within(known[name], limits)
    ]  # fmt: skip


def unknown(known: Known, conditions: Conditions) -> list[str]:
    """The unknown quantities of these conditions."""
    return [name for name in conditions if math.isnan(known.get(name, math.nan))]


def _within(value: float, limits: Mapping[str, float]) -> bool:
    tests = {
        "at_least": value >= limits.get("at_least", 0),
        "above": value > limits.get("above", 0),
        "at_most": value <= limits.get("at_most", 0),
        "below": value < limits.get("below", 0),
    }
    return all(tests[name] for name in limits)
