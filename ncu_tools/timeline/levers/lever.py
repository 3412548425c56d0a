"""A lever on a step: a function of the step's situation; its id refers to its texts in `step_levers.toml`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ncu_parsers.timelines.activity.activity import Integers

from ncu_tools.timeline.graph.what_if import WhatIf
from ncu_tools.timeline.levers.situation import StepSituation


@dataclass(frozen=True)
class StepLever:
    """A lever that applies: its what-if, the numbers that support it, and the operations (rows) concerned."""

    what_if: WhatIf
    evidence: tuple[str, ...]
    rows: Integers


LeverOfStep = Callable[[StepSituation], StepLever | None]
STEP_LEVERS: dict[str, LeverOfStep] = {}


def step_lever(name: str) -> Callable[[LeverOfStep], LeverOfStep]:
    """Register a function as the lever with this id."""

    def entered(function: LeverOfStep) -> LeverOfStep:
        STEP_LEVERS[name] = function
        return function

    return entered
