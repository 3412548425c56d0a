"""The request of a whole profile: the request of a single run, with its budget and ranks."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ncu_launch.errors import WrongUsage
from ncu_launch.profile.plan import Request
from ncu_launch.targets.language.settings import check
from ncu_launch.targets.model_name_check import misspelt
from ncu_launch.targets.reference_kernels import default_phases, own_dtype
from ncu_launch.targets.user_functions import refuse_unknown_arguments
from ncu_launch.workload_spec import Workload

COVERAGE = 0.95
"""The share of the kernels' time to count within a budget, as far as it allows."""

_SECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?")
_UNITS = {"s": 1, None: 1, "m": 60, "min": 60, "h": 3600}


@dataclass(frozen=True)
class ProfileRequest:
    """A profile with all of its runs.

    `output` is the run folder; None names one by target and time. `budget_s` is the time in s for counting with ncu;
    None counts every launch. `nproc` is the number of ranks to start here; None starts none. `tool_per` is one of
    `rank_environment.TOOL_PER`, `collectives` one of `rank_environment.COLLECTIVES`; with `timeline`, ranks whose
    collectives ncu leaves out are traced with nsys first. With `measure`, a device without known ceilings is measured
    quickly after the run.
    """

    run: Request
    output: Path | None = None
    budget_s: float | None = None
    coverage: float = COVERAGE
    nproc: int | None = None
    tool_per: str = "rank"
    collectives: str = "exclude"
    timeline: bool = True
    measure: bool = False


class DryRun(NamedTuple):
    """The commands of a profile (arguments of each), and notes."""

    commands: list[tuple[str, ...]]
    notes: list[str]


def checked_workload(workload: Workload) -> Workload:
    """The workload with the data type that its target implies, and the default phases if it has none.

    Raises `WrongUsage`, with similar names, for a misspelt target, for an argument that a function does not have, and
    for settings of a language model that do not fit its phases.
    """
    target = workload.target
    error = misspelt(target)
    if error is not None:
        raise error
    refuse_unknown_arguments(target, (name for name, _ in workload.arguments))
    return check(
        replace(
            workload,
            dtype=own_dtype(target) or workload.dtype,
            phases=workload.phases or default_phases(target),
            phases_are_defaults=not workload.phases,
        )
    )


def seconds_of(text: str) -> float:
    """Seconds from "60", "60s", "5m" or "1h".

    Raises `WrongUsage` for anything else, and for 0.
    """
    match = _SECONDS.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise WrongUsage(f"{text} is no time.", advice="Write seconds or minutes, as --budget 60s or --budget 5m.")
    return float(match[1]) * _UNITS[match[2]]
