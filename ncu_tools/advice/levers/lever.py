"""What a lever is: a function of a kernel's situation, under an id that `levers.toml` says the rest of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ncu_launch.files.toml_tables import table_beside

from ncu_tools.advice.situation.kernel_situation import LeverEvidence, Situation
from ncu_tools.advice.situation.model import Effect, Left

MEMORY_WAITS = ("long_scoreboard", "lg_throttle", "drain", "tex_throttle")
SHARED_WAITS = ("short_scoreboard", "mio_throttle")
INSTRUCTION_WAITS = (
    "wait", "branch_resolving", "math_pipe_throttle", "no_instructions", "imc_miss", "dispatch_stall",
)  # fmt: skip
SM_PIPES = ("issue", "alu", "fma", "xu", "fp64", "half", "branch")


@dataclass(frozen=True)
class Pulled:
    """A lever that was looked at: its effect and the numbers it stands on.

    `nothing` says why it brings nothing, "" where it may. `uses_code` is True if instructions decided,
    `is_guess` if nothing of what the lever acts on was collected. `case` names the words that say what to do in this
    case, `remedy_CASE` of `levers.toml`; "" for those of every case.
    """

    effect: Effect
    evidence: Sequence[LeverEvidence] = ()
    nothing: str = ""
    uses_code: bool = False
    is_guess: bool = False
    case: str = ""

    def remedy(self, told: Mapping[str, Any]) -> str:
        """What to do, by what `levers.toml` tells of the lever."""
        return str(told[f"remedy_{self.case}" if self.case else "remedy"])


Lever = Callable[[Situation], Pulled | None]
LEVERS: dict[str, Lever] = {}


def lever(name: str) -> Callable[[Lever], Lever]:
    """Enter a function as the lever of an id."""

    def entered(function: Lever) -> Lever:
        LEVERS[name] = function
        return function

    return entered


@cache
def lever_texts() -> Mapping[str, Mapping[str, Any]]:
    """Lever -> its title, remedy, model, source, next command, and whether it stands apart (`levers.toml`)."""
    return table_beside(__file__, "levers")


def nothing(why: str, *evidence: LeverEvidence) -> Pulled:
    """A lever that brings nothing here, and why."""
    return Pulled(Effect(time=Left(0.97, 1.0, 1.0)), evidence, nothing=why)


def share(value: float) -> float:
    """A value held between 0 and 1; 0 for NaN."""
    return min(1.0, value) if value > 0 else 0.0


def waits_keep(waits: float, left: Sequence[float]) -> Left:
    """The time that warps wait, where the share `waits` of it keeps so much in each case, and the rest stays."""
    best, middle, worst = (1 - waits + waits * one for one in left)
    return Left(best, middle, worst)


def falls_by(ratio: float, exponents: Sequence[float]) -> Left:
    """What is left of work that falls by a ratio to these exponents."""
    best, middle, worst = (ratio**-one for one in exponents)
    return Left(best, middle, worst)


def keeps(removed: float, strength: Sequence[float]) -> Left:
    """What is left where such a share goes, times a strength in each case."""
    best, middle, worst = (1 - share(removed * one) for one in strength)
    return Left(best, middle, worst)
