"""The line of `compare` on the kernel whose time changed most: the lever pulled, its effect, what is next."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

from ncu_launch.errors import NcuBenchError

from ncu_tools.advice.advise import Advice, advise
from ncu_tools.advice.code_of_run import instructions_for_levers
from ncu_tools.advice.pulled_levers import KernelChangeAdvice, PulledLever, paired
from ncu_tools.cli.tables.advice.change_text import brought, next_of, said, title_of, values_of
from ncu_tools.kernels.names.kernel_name_spelling import normalised_name
from ncu_tools.kernels.view.kernel_view import has_counters
from ncu_tools.runs.loading import load

MOST_LAUNCHES = 20_000
"""Runs with more launches get no line on levers, which needs another pass over every launch."""
HARMED_SHOWN = 2
WORTH_SAYING = 0.02
"""Least change of a kernel's time."""


def lever_of_change(base: str, new: str) -> tuple[str, str] | None:
    """The line, and the command that says more; None if no lever is found, or a run is not a report of ncu."""
    before, after = (_counted(name) for name in (base, new))
    if before is None or after is None:
        return None
    changes = paired(before.kernels, after.kernels, (normalised_name, normalised_name))
    seen = [one for one in changes if (one.pulled or _got_worse(one)) and abs(one.brought) >= WORTH_SAYING]
    most = max(seen, key=lambda one: abs(one.brought) * one.old.kernel.total_ns, default=None)
    if most is None:
        return None
    return _line(most), f"ncu-bench advise {shlex.quote(base)} --against {shlex.quote(new)}"


def _counted(name: str) -> Advice | None:
    """The advice on a run of ncu; None for other runs, detected after reading."""
    if not Path(name).exists():
        return None
    try:
        launches = load(name).table
    except NcuBenchError:
        return None
    if not has_counters(launches) or len(launches) > MOST_LAUNCHES:
        return None
    return advise(launches, instructions_for_levers(name, launches.column_names)[0])


def _got_worse(one: KernelChangeAdvice) -> bool:
    return one.brought < 0 and bool(one.harmed)


def _line(one: KernelChangeAdvice) -> str:
    if _got_worse(one):
        why = f"worse on {title_of(one)}: {', '.join(values_of(each) for each in one.harmed[:HARMED_SHOWN])}"
    else:
        each = min(one.pulled, key=lambda each: _off(one, each))
        why = f"lever pulled on {title_of(one)}: {each.lever} ({said(one, each)})"
    return f"{why}; {brought(one)}. Next: {next_of(one)}. More:"


def _off(one: KernelChangeAdvice, each: PulledLever) -> float:
    """Distance of a lever's predicted saving from the actual one: the nearest of several levers explains the change."""
    return math.inf if each.said is None else abs(each.said.saves.middle - one.brought)
