"""Compare our diagnosis with the findings of NVIDIA's rules: agreed, finer, silent or contradicted, with its number.

`agreement.toml` lists which of our causes mean the same as a finding. A contradiction needs a reason that the diagnosis
shows; the tests allow none without one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncu_launch.files.toml_tables import table_beside

from ncu_tools.kernels.diagnosis.diagnose import Diagnosis, KernelCause
from ncu_tools.kernels.diagnosis.rules import facts, stall_reasons
from ncu_tools.kernels.diagnosis.wording import percent

AGREED, FINER, SILENT = "agreed", "finer", "silent"
WITH_REASON, WITHOUT = "contradicted, reason shown", "contradicted"
OUTCOMES = (AGREED, FINER, SILENT, WITH_REASON, WITHOUT)
NEAR = 0.05
"""The largest difference, as a share of the time, at which two estimates of the cost of a cause agree."""


@dataclass(frozen=True)
class Agreement:
    """One of `OUTCOMES`, and the supporting sentence of our diagnosis; "" if it is silent."""

    outcome: str
    ours: str = ""


def agreement(rule: Mapping[str, Any], ours: Diagnosis) -> Agreement:
    """Compare our diagnosis with the result of one rule (`name`, `kind`, `description` and `speedup` as in reports)."""
    text = rule["description"] or ""
    for finding in table_beside(__file__, "agreement")["finding"]:
        is_meant = rule["name"].startswith(tuple(finding["rules"]))
        is_meant = is_meant and rule["kind"] in finding.get("kinds", ("OPT", "WRN", "INF"))
        match = re.search(finding.get("text", ""), text) if is_meant else None
        if match:
            return _judged(finding, match.groupdict(), rule, ours)
    return Agreement(SILENT)


def _judged(
    finding: Mapping[str, Any], named: Mapping[str, str], rule: Mapping[str, Any], ours: Diagnosis
) -> Agreement:
    for case in finding["cases"]:
        causes = [cause for cause in ours.causes if cause.rule in case.get("causes", ())]
        holds = (
            (bool(causes) or "causes" not in case)
            and ("busiest" not in case or (ours.busiest is not None and ours.busiest.resource in case["busiest"]))
            and ("title" not in case or (ours.busiest is not None and re.search(case["title"], ours.busiest.title)))
            and ("certain" not in case or ours.busiest_is_certain)
            and ("named" not in case or _names(case["named"], named, causes, ours))
            and ("share" not in case or _has_share(case["share"], float(named["share"]) / 100, causes))
            and ("cost" not in case or _costs_as_much(causes[0], rule["speedup"]))
        )
        if holds:
            says = causes[0].says if causes else _busiest(ours)
            return Agreement(case["outcome"], "" if case["outcome"] == SILENT else says)
    return _otherwise(finding.get("ruled_out", ()), ours)


def _otherwise(suspects: Sequence[str], ours: Diagnosis) -> Agreement:
    """The outcome for causes that our diagnosis lacks: ruled out with a reason, possible, or not mentioned."""
    for one in ours.ruled_out:
        if one.rule in suspects:
            return Agreement(WITH_REASON, f"ruled out, as {one.reason}: {one.label}")
    possible = [label for label in ours.possible if label.startswith(("occupancy", "achieved"))]
    is_occupancy = any("occupancy" in suspect for suspect in suspects)
    return Agreement(FINER, f"perhaps {possible[0]}") if possible and is_occupancy else Agreement(SILENT)


def _names(what: str, named: Mapping[str, str], causes: Sequence[KernelCause], ours: Diagnosis) -> bool:
    """True if our diagnosis names the same unit, pipe, stall or limits as the text."""
    table, title = table_beside(__file__, "agreement"), "" if ours.busiest is None else ours.busiest.title
    if what == "unit":
        units = table["units"]
        return ours.busiest is not None and ours.busiest.resource in units.get(named["unit"], units["others"])
    if what == "pipe":
        return named["pipe"] in title
    if what == "stall":
        return f"wait {_waits(named)} for" in causes[0].says
    if what == "second stall":
        share = re.search(rf", and (\d+) % {re.escape(_waits(named))}", causes[0].says)
        return share is not None and abs(float(named["share"]) - int(share[1])) <= 100 * NEAR
    limits = [ours_name for theirs, ours_name in table["limits"].items() if theirs in named["limits"]]
    return all(any(name in cause.says for cause in causes) for name in limits)


def _waits(named: Mapping[str, str]) -> str:
    """Our words for the stall named in a text; "no such stall" if it is unknown."""
    reason = next((key for key, words in facts()["stall_text"].items() if words in named["stall"]), "")
    return stall_reasons().get(reason, "no such stall")


def _has_share(how: str, theirs: float, causes: Sequence[KernelCause]) -> bool:
    ours = next(one.value for one in causes[0].evidence if one.quantity == "top_stall_share")
    return abs(ours - theirs) <= NEAR if how == "same" else theirs <= ours + NEAR


def _costs_as_much(cause: KernelCause, speedup: str | float | None) -> bool:
    return not speedup or cause.cost is None or cause.cost >= float(speedup) / 100 - NEAR


def _busiest(ours: Diagnosis) -> str:
    return "" if ours.busiest is None else f"busiest is {ours.busiest.title}, at {percent(ours.busiest.share)}"
