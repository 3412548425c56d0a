"""The tables of `rules.toml`: what can be busy, the quantities that rules look at, and the rules."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ncu_launch.counters.metrics import table as metrics_table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Known = Mapping[str, float]
"""Quantity -> its value for one kernel; NaN, or absent, where it is not known."""
Conditions = Mapping[str, Mapping[str, float]]
"""Quantity -> its limits, as in `{"issue": {"below": 0.6}}`."""

BY_RULE = " by a rule"
"""How the name of a number ends that one of NVIDIA's rules prints."""
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


@dataclass(frozen=True)
class CauseRule:
    """A cause: it is found `when` these conditions hold, and does harm only `harms_if` those hold too.

    What it can cost is a quantity (`costs`), or follows from the share of a resource's work that is wasted (`frees`:
    resource -> quantity). `label` names the cause where it is ruled out, `says` is the sentence where it is found.
    """

    id: str
    label: str
    when: Conditions
    says: str
    source: str
    harms_if: Conditions = field(default_factory=dict)
    costs: str = ""
    frees: Mapping[str, str] = field(default_factory=dict)
    evidence: Sequence[str] = ()
    instead_of: str = ""


@dataclass(frozen=True)
class Quantity:
    """What a quantity is, its unit and the metrics it comes from.

    `group` is the group of `ncu-bench metrics` that collects it, `fact` how its value is told as a reason.
    """

    title: str
    unit: str
    metrics: Sequence[str]
    group: str = ""
    fact: str = ""


@cache
def facts() -> dict[str, Any]:
    """The tables of `rules.toml` as they are."""
    return tomllib.loads(Path(__file__).with_name("rules.toml").read_text("utf-8"))


@cache
def rules() -> tuple[CauseRule, ...]:
    """Every rule, in the order of the file."""
    return tuple(CauseRule(**entry) for entry in facts()["rule"])


@cache
def quantities() -> dict[str, Quantity]:
    """Every quantity that a rule looks at, by its name."""
    return {name: Quantity(**entry) for name, entry in facts()["quantity"].items()}


@cache
def stall_reasons() -> dict[str, str]:
    """Stall reason, as in the metric's name -> what a warp waits for; "selected" and "not_selected" are no stalls."""
    group = next(group for group in metrics_table("groups")["group"] if group["name"] == "stalls")
    start, end = STALL.split("{}")
    reasons = {one["name"].removeprefix(start).removesuffix(end): one["meaning"] for one in group["counters"]}
    reasons |= facts()["stall"]
    return {reason: meaning for reason, meaning in reasons.items() if reason != "not_selected"}


def holds(known: Known, conditions: Conditions) -> bool:
    """Whether every condition holds. A quantity that is not known fulfils none."""
    return not failing(known, conditions) and not unknown(known, conditions)


def failing(known: Known, conditions: Conditions) -> list[str]:
    """The quantities that are known, and outside their limits."""
    return [
        name for name, limits in conditions.items()
        if not math.isnan(known.get(name, math.nan)) and not _within(known[name], limits)
    ]  # fmt: skip


def unknown(known: Known, conditions: Conditions) -> list[str]:
    """The quantities of these conditions that are not known."""
    return [name for name in conditions if math.isnan(known.get(name, math.nan))]


def _within(value: float, limits: Mapping[str, float]) -> bool:
    tests = {
        "at_least": value >= limits.get("at_least", 0),
        "above": value > limits.get("above", 0),
        "at_most": value <= limits.get("at_most", 0),
        "below": value < limits.get("below", 0),
    }
    return all(tests[name] for name in limits)
