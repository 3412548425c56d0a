"""The next command to type: it looks into the first cause of a kernel, as rules.toml defines for each rule."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from ncu_tools.kernels.diagnosis.diagnose import AT_ITS_LIMIT
from ncu_tools.kernels.diagnosis.rules import facts, rules
from ncu_tools.kernels.names.name_patterns import word_of
from ncu_tools.kernels.source.source_text import COLLECT
from ncu_tools.kernels.view.kernel_view import KernelView

SOURCE, SAMPLES = "source", "--part samples"
"""Parts of commands that need counts of single instructions, and samples over time."""
COUNTS = {"samples": "samples", "executed": "executed", "sectors": "sectors", "conflicts": "shared_wavefronts"}
"""Ranking of places -> the field of a place with its count."""
OVER_TIME = "ncu --set full --section PmSampling -o REPORT PROGRAM"


@dataclass(frozen=True)
class NextStep:
    """A command, the id of the rule whose cause it looks into ("" without one), and what first collects its numbers.

    `collect` is "" if the run has what the command needs.
    """

    command: str
    rule: str
    collect: str = ""


def next_step(view: KernelView, run: str, *, over_time: bool) -> NextStep | None:
    """The command for the first cause of a kernel of the run at path `run`; what to collect if nothing is explained.

    None if every launch failed, or nothing is missing and no cause stands out. Single instructions are available if the
    view has places, samples over time if `over_time`.
    """
    ours = view.diagnosis
    if not view.launches:
        return None
    if ours is None or not ours.causes:
        if view.places:
            return NextStep(_filled(f"{SOURCE} {{run}} --kernel {{kernel}}", view, run), "")
        return NextStep(COLLECT, "") if ours is None or ours.collect else None
    first = ours.causes[0].rule
    commands = _commands(first, ours.busiest.resource if ours.busiest else "")
    if not commands:
        return None
    for one in commands:
        if over_time if SAMPLES in one else not one.startswith(SOURCE) or _has_counts(view, one):
            return NextStep(_filled(one, view, run), first)
    collect = COLLECT if commands[0].startswith(SOURCE) else OVER_TIME
    return NextStep(_filled(commands[0], view, "REPORT.ncu-rep"), first, collect)


def _commands(rule: str, busiest: str) -> list[str]:
    if rule == AT_ITS_LIMIT:
        found: list[str] = facts()["next_at_its_limit"].get(busiest, [])
        return found
    return next((list(one.next) for one in rules() if one.id == rule), [])


def _has_counts(view: KernelView, command: str) -> bool:
    """True if instructions of the kernel have the counts that the command ranks by."""
    by = re.search(r"--sort (\w+)", command)
    return any(getattr(place, COUNTS[by[1]] if by else "samples") is not None for place in view.places)


def _filled(command: str, view: KernelView, run: str) -> str:
    return "ncu-bench " + command.format(run=shlex.quote(run), kernel=shlex.quote(word_of(view.kernel_name)))
