"""A lever: a function of a kernel's `Situation`, registered under an id whose texts are in `levers.toml`."""

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
    """A lever applied to a kernel: its effect and its evidence.

    `nothing` says why it brings nothing, "" where it may. `uses_code` is True if instructions decided, `is_guess` if
    nothing that the lever acts on was collected. `case` chooses the text `remedy_CASE` of `levers.toml`; "" chooses
    `remedy`.
    """

    effect: Effect
    evidence: Sequence[LeverEvidence] = ()
    nothing: str = ""
    uses_code: bool = False
    is_guess: bool = False
    case: str = ""

    def remedy(self, told: Mapping[str, Any]) -> str:
        """What to change, from the lever's texts in `levers.toml`."""
        return str(told[f"remedy_{self.case}" if self.case else "remedy"])


Lever = Callable[[Situation], Pulled | None]
LEVERS: dict[str, Lever] = {}


def lever(name: str) -> Callable[[Lever], Lever]:
    """Register the decorated function as the lever of this id."""

    def entered(function: Lever) -> Lever:
        LEVERS[name] = function
        return function

    return entered


@cache
def lever_texts() -> Mapping[str, Mapping[str, Any]]:
    """Lever -> its title, remedy, model, source, next command, and whether it stands apart (`levers.toml`)."""
    return table_beside(__file__, "levers")


def nothing(why: str, *evidence: LeverEvidence) -> Pulled:
    """A lever that brings nothing, with the reason and the evidence."""
    return Pulled(Effect(time=Left(0.97, 1.0, 1.0)), evidence, nothing=why)


def share(value: float) -> float:
    """The value limited to 0 to 1; 0 for NaN."""
    return min(1.0, value) if value > 0 else 0.0


def waits_keep(waits: float, left: Sequence[float]) -> Left:
    """The waiting left where the part `waits` of it shrinks to `left` in each case, and the rest stays."""
    best, middle, worst = (1 - waits + waits * one for one in left)
    return Left(best, middle, worst)


def falls_by(ratio: float, exponents: Sequence[float]) -> Left:
    """The work left where it falls by `ratio` to the power of each exponent."""
    best, middle, worst = (ratio**-one for one in exponents)
    return Left(best, middle, worst)


def keeps(removed: float, strength: Sequence[float]) -> Left:
    """The work left where the share `removed`, times a strength in each case, goes."""
    best, middle, worst = (1 - share(removed * one) for one in strength)
    return Left(best, middle, worst)
