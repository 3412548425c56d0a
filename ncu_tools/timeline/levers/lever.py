"""What a lever on a step is: a function of its situation, under an id that `step_levers.toml` says the rest of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ncu_parsers.timelines.activity.activity import Integers

from ncu_tools.timeline.graph.what_if import WhatIf
from ncu_tools.timeline.levers.situation import StepSituation


@dataclass(frozen=True)
class StepLever:
    """A lever that applies: what changes, the numbers it stands on, and the operations (rows) it is about."""

    what_if: WhatIf
    evidence: tuple[str, ...]
    rows: Integers


LeverOfStep = Callable[[StepSituation], StepLever | None]
STEP_LEVERS: dict[str, LeverOfStep] = {}


def step_lever(name: str) -> Callable[[LeverOfStep], LeverOfStep]:
    """Enter a function as the lever of an id."""

    def entered(function: LeverOfStep) -> LeverOfStep:
        STEP_LEVERS[name] = function
        return function

    return entered
