"""Gates for CI: "time>5%" of a comparison holds, trips, or cannot be evaluated, which never counts as holding."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ncu_launch.errors import WrongUsage

from ncu_tools.compare import MEASURES, NOT_SHOWN, Change, ComparedKernel, Comparison
from ncu_tools.report.units import FORMATS, counted

PASSED, NOT_SHOWN_TO_TRIP, TRIPPED, NOT_EVALUATED = "passed", "not shown", "tripped", "not evaluated"
"""How a gate ends. Not shown: the change is above the limit, and within its own noise."""

EXIT_CODES = {PASSED: 0, NOT_SHOWN_TO_TRIP: 0, NOT_EVALUATED: 1, TRIPPED: 3}

GATED = (*MEASURES, "memory")
KINDS = {"time": "time", "dram_bytes": "byte", "flops": "flop"}
KERNELS_NAMED = 3

_GATE = re.compile(
    rf"(?:kernel:(?P<kernel>.+):)?(?P<measure>{'|'.join(GATED)})\s*>\s*(?P<limit>\d+(?:\.\d*)?|\.\d+)\s*%"
)


@dataclass(frozen=True)
class Gate:
    """How much a measure may grow, as a fraction: of the run, or of each kernel whose name `kernel` finds."""

    text: str
    measure: str
    limit: float
    kernel: re.Pattern[str] | None = None


@dataclass(frozen=True)
class GateOutcome:
    """How a gate ended, and a sentence with the numbers."""

    gate: Gate
    outcome: str
    reason: str


def parse_gate(text: str) -> Gate:
    """A gate as users write it: `time>5%` or `kernel:REGEX:dram_bytes>1%`.

    Raises `WrongUsage` for anything else, and for a regular expression that is none.
    """
    match = _GATE.fullmatch(text.strip())
    if match is None:
        raise WrongUsage(
            f'--fail-on "{text}" is no gate.',
            f"A gate is MEASURE>LIMIT% or kernel:REGEX:MEASURE>LIMIT%, with one of {', '.join(GATED)}.",
            'For example: --fail-on "time>5%" --fail-on "kernel:gemm:dram_bytes>1%"',
        )
    try:
        kernel = None if match["kernel"] is None else re.compile(match["kernel"])
    except re.error as error:
        raise WrongUsage(
            f'--fail-on "{text}": {match["kernel"]} is no regular expression: {error}.',
            advice="Put a backslash before ( ) [ ] * + ? where they stand for themselves.",
        ) from error
    return Gate(text.strip(), match["measure"], float(match["limit"]) / 100, kernel)


def evaluate(gate: Gate, comparison: Comparison) -> GateOutcome:
    """How the gate ends. Of a gate on kernels each one counts, and the worst decides."""
    if gate.measure == "memory":
        return GateOutcome(gate, NOT_EVALUATED, "launches say nothing of the memory that a program allocates")
    if gate.kernel is None:
        return GateOutcome(gate, *_judged(gate, comparison.total))
    return GateOutcome(gate, *_judged_kernels(gate, gate.kernel, comparison))


def not_evaluated(gates: Iterable[Gate], reason: str) -> list[GateOutcome]:
    """Every gate, none of which could be evaluated, for one reason."""
    return [GateOutcome(gate, NOT_EVALUATED, reason) for gate in gates]


def exit_code(outcomes: Iterable[GateOutcome]) -> int:
    """3 where any gate tripped, else 1 where any could not be evaluated, else 0."""
    return max((EXIT_CODES[one.outcome] for one in outcomes), default=0)


def _judged_kernels(gate: Gate, kernel: re.Pattern[str], comparison: Comparison) -> tuple[str, str]:
    found = [one for one in comparison.kernels if kernel.search(one.pair.kernel) or kernel.search(one.pair.was or "")]
    there = [one for one in found if not one.is_gone]
    if not there:
        where = "has left the new run, perhaps under another name" if found else "is in either run"
        return NOT_EVALUATED, f"{'the kernel it finds' if found else 'no kernel that it finds'} {where}"
    judged = [(one, *_judged(gate, one)) for one in there]
    worst = max((outcome for _, outcome, _ in judged), key=(PASSED, NOT_SHOWN_TO_TRIP, NOT_EVALUATED, TRIPPED).index)
    reasons = [f"{one.pair.kernel}: {reason}" for one, outcome, reason in judged if outcome == worst]
    if worst == PASSED:
        return worst, _at_most(gate, there)
    more = [f"and {len(reasons) - KERNELS_NAMED} more"] if len(reasons) > KERNELS_NAMED else []
    return worst, "; ".join([*reasons[:KERNELS_NAMED], *more])


def _at_most(gate: Gate, kernels: list[ComparedKernel]) -> str:
    largest = max(kernels, key=lambda one: one.changes[gate.measure].growth or 0.0)
    reason = f"{counted(len(kernels), 'kernel', 'kernels')}, at most {largest.pair.kernel}: "
    return reason + sentence(largest.changes[gate.measure])


def _judged(gate: Gate, kernel: ComparedKernel) -> tuple[str, str]:
    change = kernel.changes[gate.measure]
    growth = change.growth
    if growth is None:
        return NOT_EVALUATED, change.unlike or _unknown(change)
    if growth <= gate.limit or math.isclose(growth, gate.limit, rel_tol=1e-9, abs_tol=1e-9):
        return PASSED, sentence(change)
    if change.outcome == NOT_SHOWN:
        return NOT_SHOWN_TO_TRIP, f"{sentence(change)}: above the limit, and within the noise"
    return TRIPPED, sentence(change)


def _unknown(change: Change) -> str:
    sides = [name for name, value in (("the base", change.base), ("the new run", change.new)) if value is None]
    return f"{change.measure} is not known of every launch in {' and '.join(sides)}"


def sentence(change: Change) -> str:
    """The numbers of a change: "time 1.2 ms -> 1.4 ms: +16.7 % [+12.1 %, +21.4 %]"."""
    shown: Callable[[float], str] = FORMATS[KINDS[change.measure]] if change.measure in KINDS else lambda n: f"{n:,.0f}"
    before, after = ("not known" if value is None else shown(value) for value in (change.base, change.new))
    noise = "" if change.noise_is_known else ", noise not known"
    return f"{change.measure} {before} -> {after}: {growth_text(change) or 'not known'}{noise}"


def growth_text(change: Change) -> str | None:
    """A change in per cent with its interval, "+5.2 % [+3.1 %, +7.4 %]"; None where it is not known."""
    if change.growth is None:
        return None
    if math.isinf(change.growth):
        return "from nothing"
    interval = (
        "" if change.low is None or change.high is None else f" [{signed(change.low - 1)}, {signed(change.high - 1)}]"
    )
    return signed(change.growth) + interval


def signed(fraction: float) -> str:
    """A fraction as per cent with its sign, and as many digits as a small change needs to be seen."""
    if fraction == 0:
        return "0 %"
    return f"{100 * fraction:+.1f} %" if abs(fraction) >= 0.001 else f"{100 * fraction:+.1g} %"
