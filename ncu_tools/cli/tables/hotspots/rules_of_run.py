"""--rules of `hotspots`: NVIDIA's rules over a whole run, ranked by the time that they could save."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ncu_tools.cli.options import MACHINE_FORMATS, hidden_rows
from ncu_tools.cli.tables.hotspots.places import DEVICE
from ncu_tools.kernels.kernel_row import NAMES_OF_KERNELS
from ncu_tools.kernels.view.nvidia_rules import RankedRule, RuleSums, first_sentence, rule_sums
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import KERNEL, Table
from ncu_tools.runs.run import Run

FOR_PEOPLE = columns(
    "estimated_saving_ns~0 estimated_saving_share~2 estimated_speedup~0 speedup_type~0 kernel launches~4 "
    "time_share~3 message"
)
MACHINE_READABLE = (
    *columns(
        "kernel rule section kind message estimated_speedup speedup_type estimated_saving_ns "
        "estimated_saving_share launches time_ns time_share rules.metrics"
    ),
    DEVICE,
)
ESTIMATE = (
    "speed-ups are NVIDIA's estimates: a global one is of the launch's time, and what it could save follows from it; "
    "they overlap, so they do not add up"
)
OF_LOCAL = "a local speed-up is of the hardware unit that the rule examines, not of the time: it is ranked last"
NO_RULES = (
    "no launch has results of NVIDIA's rules: binary reports (.ncu-rep) of whole sections hold them, and ncu "
    "prints them below its sections, with and without --csv"
)


def rules_of_run(run: Run, group: str, top: int | None, output_format: str) -> Table:
    """The table of --rules: a line for each message and kernel."""
    sums = rule_sums(run, group)
    found = sums.ranked()
    notes = [*_notes(sums, found), *hidden_rows(len(found), top, "message"), *sums.reports]
    if output_format in MACHINE_FORMATS:
        rows = [
            {**asdict(one), "rule": one.rule or None, "metrics": "; ".join(one.metrics) or None} for one in found[:top]
        ]
        return Table("rules", MACHINE_READABLE, rows, notes)
    rows = [_row(one) for one in found[:top]]
    kept = [one for one in FOR_PEOPLE if one.is_wide or any(row[one.name] is not None for row in rows)]
    of_kernels = group in NAMES_OF_KERNELS
    columns = [one if of_kernels or one.kind != KERNEL else one._replace(kind="text", wide=True) for one in kept]
    if len({one.device for one in found}) > 1:
        columns.insert([one.name for one in columns].index("kernel") + 1, DEVICE)
    return Table("rules", columns, rows, notes)


def _row(one: RankedRule) -> dict[str, Any]:
    message = f"{one.rule}: {first_sentence(one.message)}" if one.rule else first_sentence(one.message)
    return {**asdict(one), "message": message, "speedup_type": one.speedup_type or None}


def _notes(sums: RuleSums, found: list[RankedRule]) -> list[str]:
    notes = []
    if not sums.with_rules:
        return [NO_RULES]
    if any(one.estimated_speedup is not None for one in found):
        notes.append(ESTIMATE)
    else:
        notes.append("no rule estimates a speed-up (ncu does from 2023.2 on): ranked by time of the launches")
    if any(one.speedup_type == "local" for one in found):
        notes.append(OF_LOCAL)
    if sums.with_rules < sums.launches:
        notes.append(f"{sums.launches - sums.with_rules} of {sums.launches} launches have no results of rules")
    if sums.informing:
        messages = counted(sums.informing, "message that only informs", "messages that only inform")
        notes.append(f"{messages} left out; the table rules of ncu-bench query has all")
    return notes
