"""Compare our diagnoses with the results of NVIDIA's rules, launch by launch, for every report that has such results.

    python -m benchmarks.rule_agreement sample_reports ../shared/reports

prints a table in Markdown: for each rule, how many of its results our diagnosis agrees with, explains in finer detail,
does not mention, or contradicts. A contradiction needs a reason that the user sees beside the diagnosis; the exit code
is 1 if one has none. docs/diagnosis.md has the table and the meaning of its columns.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_parsers.parse.parse import parse
from ncu_parsers.sources.sources import find_sources

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.diagnosis.diagnose import AT_ITS_LIMIT, Diagnosis, KernelCause, diagnoses
from ncu_tools.kernels.diagnosis.limits import LEVELS, MEMORY, ROOF, SM
from ncu_tools.kernels.diagnosis.rules import facts
from ncu_tools.kernels.hotspots import hotspots

AGREED, FINER, SILENT = "agreed", "finer", "silent"
WITH_REASON, WITHOUT = "contradicted, reason shown", "contradicted"
OUTCOMES = (AGREED, FINER, SILENT, WITH_REASON, WITHOUT)
REPORTS = ("*.csv", "*.txt", "*.ncu-rep", "*.nsight-cuprof-report")
RESOURCES = {"DRAM": "dram", "L1": "l1", "L2": "l2"}
OCCUPANCY = ("theoretical occupancy", "partial wave", "achieved occupancy")
UNCOALESCED = ("uncoalesced", "uncoalesced loads", "uncoalesced stores")
LATENCY = (*OCCUPANCY, "stalled", "few blocks", "uneven", "tail", *UNCOALESCED)
LIMITERS = {
    "registers": "registers",
    "shared memory": "shared memory",
    "barriers": "barriers",
    "number of warps": "block size",
}
FEW_POINTS = 0.05
"""The largest difference, as a share of the time, at which two estimates of the cost of a cause agree."""


@dataclass(frozen=True)
class Result:
    """One result of one of NVIDIA's rules, our diagnosis of the same launch, and how they agree."""

    report: str
    kernel: str
    rule: str
    text: str
    ours: str
    outcome: str


def judged(rule: dict[str, str], ours: Diagnosis) -> str:
    """One of `OUTCOMES` for the result of a rule; `SILENT` for rules that name no cause."""
    judge = JUDGES.get(rule["name"])
    return judge(rule["description"] or "", rule, ours) if judge and rule["kind"] != "" else SILENT


def _cause(ours: Diagnosis, *rules: str) -> KernelCause | None:
    return next((cause for cause in ours.causes if cause.rule in rules), None)


def _otherwise(ours: Diagnosis, *rules: str) -> str:
    """The outcome for a cause that our diagnosis lacks: ruled out with a reason, possible, or not mentioned."""
    if any(one.rule in rules for one in ours.ruled_out):
        return WITH_REASON
    return FINER if ours.possible and set(rules) & set(OCCUPANCY) else SILENT


def _is_at_its_limit(ours: Diagnosis) -> bool:
    return _cause(ours, AT_ITS_LIMIT) is not None


def _speed_of_light(text: str, _: dict[str, str], ours: Diagnosis) -> str:
    unit = re.search(r"Start by analyzing (\S+)", text)
    if unit:
        agrees = _is_at_its_limit(ours) and _resource(ours) == RESOURCES.get(unit[1], SM)
        return AGREED if agrees else WITHOUT
    if "too small to fill" in text:
        if _cause(ours, "few blocks"):
            return AGREED
        return FINER if _cause(ours, "partial wave") else _otherwise(ours, "few blocks")
    if "more heavily utilized" in text:
        heavier = (SM, ROOF) if text.startswith("Compute") else (*LEVELS, MEMORY)
        return SILENT if ours.busiest is None else AGREED if _resource(ours) in heavier else WITHOUT
    if "typically indicate latency" in text:
        return WITHOUT if _is_at_its_limit(ours) else FINER if _cause(ours, *LATENCY) else SILENT
    return FINER if ours.busiest else SILENT  # "well-balanced": we name the resource that is busiest


def _resource(ours: Diagnosis) -> str:
    return ours.busiest.resource if ours.busiest else ""


def _pipes(text: str, _: dict[str, str], ours: Diagnosis) -> str:
    if "under-utilized" in text:
        return AGREED if _resource(ours) in (*LEVELS, MEMORY) else SILENT
    pipe = re.search(r"^(\S+) is the (?:highest|over)-utilized", text)
    if pipe is None or _resource(ours) != SM or ours.busiest is None:
        return SILENT
    if pipe[1] in ours.busiest.title:
        return AGREED
    return WITHOUT if "pipe" in ours.busiest.title else SILENT


def _issue_slots(text: str, rule: dict[str, str], ours: Diagnosis) -> str:
    if "theoretical warps per scheduler" in text:
        return _occupancy(text, rule, ours)
    if _is_at_its_limit(ours):
        return FINER
    return AGREED if _cause(ours, *LATENCY) else SILENT


def _stall(text: str, rule: dict[str, str], ours: Diagnosis) -> str:
    texts = facts()["stall_text"]
    reason = next((key for key, part in texts.items() if part in text), None)
    if rule["kind"] == "INF" or reason is None:
        return SILENT
    found = _cause(ours, "stalled")
    if found is None:
        return _otherwise(ours, "stalled")
    share = re.search(r"represents about ([0-9.]+)%", text)
    ours_share = next((one.value for one in found.evidence if one.quantity == "top_stall_share"), 0.0)
    if share and abs(ours_share - float(share[1]) / 100) <= FEW_POINTS:
        return AGREED
    return SILENT if share and float(share[1]) / 100 < ours_share else WITHOUT


def _occupancy(text: str, _: dict[str, str], ours: Diagnosis) -> str:
    if "is limited by" in text:
        found = _cause(ours, "theoretical occupancy", "partial wave")
        if found is None:
            return _otherwise(ours, "theoretical occupancy", "partial wave")
        limits = text.partition("is limited by")[2]
        named = {ours_name for theirs, ours_name in LIMITERS.items() if theirs in limits}
        return AGREED if all(name in ours.text for name in named) else WITHOUT
    if "theoretical warps per scheduler" in text:
        return AGREED if _cause(ours, *OCCUPANCY) else _otherwise(ours, *OCCUPANCY)
    if _cause(ours, "achieved occupancy"):
        return AGREED
    return FINER if _cause(ours, "few blocks", *OCCUPANCY) else _otherwise(ours, "achieved occupancy")


def _launch(text: str, _: dict[str, str], ours: Diagnosis) -> str:
    if "less than the GPU's" in text:
        return AGREED if _cause(ours, "few blocks") else _otherwise(ours, "few blocks")
    if "partial wave" in text or "tail effect" in text:
        return AGREED if _cause(ours, "tail") else _otherwise(ours, "tail")
    return SILENT


def _coalescing(_text: str, rule: dict[str, str], ours: Diagnosis) -> str:
    found = _cause(ours, *UNCOALESCED)
    if found is None:
        return _otherwise(ours, *UNCOALESCED)
    theirs = float(rule["speedup"]) / 100 if rule["speedup"] else None
    return AGREED if theirs is None or found.cost is None or found.cost >= theirs - FEW_POINTS else FINER


def _balance(_text: str, _rule: dict[str, str], ours: Diagnosis) -> str:
    return AGREED if _cause(ours, "uneven") else SILENT


JUDGES: dict[str, Callable[[str, dict[str, str], Diagnosis], str]] = {
    "SOLBottleneck": _speed_of_light,
    "HighPipeUtilization": _pipes,
    "IssueSlotUtilization": _issue_slots,
    "CPIStall": _stall,
    "Occupancy": _occupancy,
    "AchievedOccupancy": _occupancy,
    "TheoreticalOccupancy": _occupancy,
    "LaunchConfiguration": _launch,
    "UncoalescedGlobalAccess": _coalescing,
    "MemoryCacheAccessPattern": _coalescing,
    "WorkloadImbalance": _balance,
}


def results(report: Path) -> Iterator[Result]:
    """Every result of a rule in a report, with its outcome; none if the report cannot be read or has no rules."""
    try:
        table = parse(find_sources([str(report)])).table
    except NcuBenchError:
        return
    if table is None or "rules" not in table.column_names:
        return
    for number in range(len(table)):
        launch = table.slice(number, 1)
        found: list[dict[str, Any]] = launch.column("rules").to_pylist()[0] or []
        rows = hotspots(launch, ceilings_of(launch)).rows if found else []
        if not rows:
            continue
        ours = diagnoses(launch, rows, "name").get(rows[0].kernel, Diagnosis(None, []))
        for rule in found:
            if rule["name"]:
                outcome = judged(rule, ours)
                yield Result(report.name, rows[0].kernel, rule["name"], rule["description"] or "", ours.text, outcome)


def reports_in(folders: Sequence[str]) -> list[Path]:
    """The reports of ncu below these folders, sorted by path."""
    return sorted(path for folder in folders for pattern in REPORTS for path in Path(folder).rglob(pattern))


def markdown(found: Sequence[Result]) -> str:
    """The table of agreement: a row per rule, the most frequent first, and a last row for all."""
    counts = Counter((one.rule, one.outcome) for one in found)
    totals = Counter(one.rule for one in found)
    lines = ["| rule | results | " + " | ".join(OUTCOMES) + " |", "|---|" + "--:|" * (1 + len(OUTCOMES))]
    for rule, total in sorted(totals.items(), key=lambda item: (-item[1], item[0])):
        lines.append(_line(f"`{rule}`", total, [counts[rule, outcome] for outcome in OUTCOMES]))
    every = Counter(one.outcome for one in found)
    return "\n".join([*lines, _line("all", len(found), [every[outcome] for outcome in OUTCOMES])])


def _line(title: str, total: int, counts: Sequence[int]) -> str:
    return f"| {title} | {total} | " + " | ".join(str(count or "") for count in counts) + " |"


def main(folders: Sequence[str]) -> int:
    """Print the table, and every contradiction. Returns the exit code."""
    found = [one for report in reports_in(folders) for one in results(report)]
    print(markdown(found))
    wrong = [one for one in found if one.outcome in (WITHOUT, WITH_REASON)]
    for one in wrong:
        print(f"\n{one.outcome}: {one.report}, {one.kernel[:60]}\n  {one.rule}: {one.text[:200]}\n  ours: {one.ours}")
    return int(any(one.outcome == WITHOUT for one in wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
