"""Compare our diagnoses with the results of NVIDIA's rules, launch by launch, for every report with such results.

    python -m benchmarks.rule_agreement sample_reports ../shared/reports

prints a Markdown table: for each rule, how many of its results our diagnosis agrees with, explains in finer detail,
does not mention, or contradicts. Users must see the reason for a contradiction next to the diagnosis; the exit code is
1 if a reason is missing. docs/diagnosis.md has the table and the meaning of its columns.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_parsers.parse.parse import parse
from ncu_parsers.parse.report_files import find_sources

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.diagnosis.agreement import OUTCOMES, WITH_REASON, WITHOUT, agreement
from ncu_tools.kernels.diagnosis.diagnose import Diagnosis, diagnoses
from ncu_tools.kernels.hotspots import hotspots

REPORTS = ("*.csv", "*.txt", "*.ncu-rep", "*.nsight-cuprof-report")


@dataclass(frozen=True)
class Result:
    """One result of one of NVIDIA's rules, our diagnosis of the same launch, and how they agree."""

    report: str
    kernel: str
    rule: str
    text: str
    ours: str
    outcome: str


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
        ours = diagnoses(launch, rows, "name").get(rows[0].key, Diagnosis(None, []))
        for rule in found:
            if rule["name"]:
                outcome = agreement(rule, ours).outcome
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
