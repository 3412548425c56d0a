"""Gates for CI such as "time>5%": passed, tripped, or not evaluated, which never counts as passed.

Gates on two runs (`compare`) and on many (`history`) share one grammar. Only those on many have a window, a drift, and
the measures `OF_HISTORIES`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ncu_launch.errors import WrongUsage, near_names

from ncu_tools.kernels.names.readable_names import has_text, readable_name
from ncu_tools.numbers.change import NOT_SHOWN, SAME, Change, Refusal, Subject, Subjects, sentence, shortened
from ncu_tools.numbers.number_format import counted, plural

PASSED, NOT_SHOWN_TO_TRIP, TRIPPED, NOT_EVALUATED = "passed", "not shown", "tripped", "not evaluated"
REFUSED = "refused"
"""Outcomes of a gate: not shown if the change is above the limit but within its noise, refused if sums of two runs with
different work are compared."""

FROM_GOOD_TO_BAD = (PASSED, NOT_SHOWN_TO_TRIP, NOT_EVALUATED, REFUSED, TRIPPED)
EXIT_CODES = {PASSED: 0, NOT_SHOWN_TO_TRIP: 0, NOT_EVALUATED: 4, REFUSED: 2, TRIPPED: 3}
"""All exit codes are in a table of docs/gate.md; 1 is left for what failed before any gate."""

GATED = ("launches", "time", "flops", "dram_bytes", "bytes", "memory", "allocated", "parameters")
OF_HISTORIES = (
    "instructions", "l1_bytes", "l2_bytes", "registers", "spills", "local_accesses", "shared_bytes", "cycles",
)  # fmt: skip
"""Measures that only many runs are held to."""
WINDOW = 20
"""The most runs before the newest that it is held against, unless a gate says how many."""
KERNEL = "kernel"
POINT = "point"
BY_NOUNS = (KERNEL, "layer", "category")
"""The nouns of gates that --by chooses; points are of runs of bench."""
NOUNS = (*BY_NOUNS, POINT)
GONE, NEW = "gone", "new"
ANY = "any"
"""The noun of a gate on every subject common to both runs, whatever is compared."""
MOST_NAMED = 3

_GATE = re.compile(
    rf"(?:(?P<any>{ANY}):|(?P<noun>{'|'.join(NOUNS)}):(?P<pattern>.+?):)?(?P<drift>drift:)?"
    rf"(?P<measure>{'|'.join((*GATED, *OF_HISTORIES))})\s*>\s*(?P<limit>\d+(?:\.\d*)?|\.\d+)\s*%"
    r"(?:\s+of\s+window:(?P<window>[1-9]\d{0,4}))?"
)


@dataclass(frozen=True)
class Gate:
    """The largest growth of a measure, as a fraction: of a run, or of each `noun` whose name `pattern` matches.

    The noun `ANY` means each subject common to both runs. Of many runs the newest is held against a `window` of those
    before it, or with `drift` the last ones against the first.
    """

    text: str
    measure: str
    limit: float
    noun: str = ""
    pattern: re.Pattern[str] | None = None
    window: int | None = None
    drift: bool = False

    @property
    def is_of_histories(self) -> bool:
        """True if two runs cannot be held to it."""
        return self.drift or self.window is not None or self.measure in OF_HISTORIES

    @property
    def growth(self) -> str:
        """The measure with its limit, such as "time>5%"."""
        return f"{self.measure}>{100 * self.limit:g}%"


@dataclass(frozen=True)
class GateOutcome:
    """The outcome of a gate, and a sentence with the numbers or the reason for a refusal.

    `subjects` are the full names, in the new run, of the kernels or other subjects that have this outcome; none for a
    whole run.
    """

    gate: Gate
    outcome: str
    reason: str
    refusal: Refusal | None = None
    subjects: tuple[str, ...] = ()


def parse_gate(text: str) -> Gate:
    """Parse a gate: `time>5%`, `any:time>5%`, `kernel:REGEX:dram_bytes>1%`, or with another of `NOUNS`; of many runs
    also `time>3% of window:20` and `drift:time>5%`.

    Raises `WrongUsage` for anything else, and for an invalid regular expression.
    """
    match = _GATE.fullmatch(text.strip())
    if match is None:
        raise WrongUsage(
            f'--fail-on "{text}" is no gate.{_meant(text)}',
            "A gate is MEASURE>LIMIT%, any:MEASURE>LIMIT% or "
            f"kernel:REGEX:MEASURE>LIMIT% (or {':, '.join(NOUNS[1:-1])}:, or {NOUNS[-1]}:),"
            f" with one of {', '.join(GATED)}. With --operators, kernel:REGEX: finds operators. Of a history also "
            "drift:MEASURE>LIMIT%, MEASURE>LIMIT% of window:RUNS, and counts such as instructions.",
            'For example: --fail-on "time>5%" --fail-on "any:time>10%". One gate each; several --fail-on are all held.',
        )
    try:
        pattern = None if match["pattern"] is None else re.compile(match["pattern"])
    except re.error as error:
        raise WrongUsage(
            f'--fail-on "{text}": {match["pattern"]} is no regular expression: {error}.',
            advice="Put a backslash before ( ) [ ] * + ? where they stand for themselves.",
        ) from error
    noun = match["noun"] or match["any"] or ""
    window = None if match["window"] is None else int(match["window"])
    limit = float(match["limit"]) / 100
    return Gate(text.strip(), match["measure"], limit, noun, pattern, window, match["drift"] is not None)


def _meant(text: str) -> str:
    """A question for the gates that a text is but for slips: " Did you mean --fail-on "time>5%"?", "" if it is none."""
    gates = [_but_for_slips(part) for part in re.split(r"\s*[,;]\s*", text.strip())]
    typed = " ".join(f'--fail-on "{gate}"' for gate in gates)
    return f" Did you mean {typed}?" if all(gates) else ""


def _but_for_slips(text: str) -> str:
    """A text with the sign ">", a limit in per cent and a measure that there is; "" if it is no gate then either."""
    head, _, limit = re.sub(r">=|=>|≥", ">", text).partition(">")
    place, colon, measure = head.rpartition(":")
    near = near_names(measure.strip(), (*GATED, *OF_HISTORIES), most=1)
    found = f"{place}{colon}{near[0]}>{limit.strip()}{'' if '%' in limit else '%'}" if near else ""
    return found if _GATE.fullmatch(found) else ""


def gates_of_two_runs(texts: Iterable[str]) -> list[Gate]:
    """Parse the gates that two runs are held to. Raises `WrongUsage` as `parse_gate`, and for those of histories."""
    gates = [parse_gate(text) for text in texts]
    for gate in gates:
        if gate.is_of_histories:
            raise WrongUsage(
                f'--fail-on "{gate.text}" is a gate on many runs.',
                "Two runs have no window and no drift, and are not compared by "
                f"{', '.join(OF_HISTORIES[:-1])} or {OF_HISTORIES[-1]}.",
                f'Hold a folder of runs to it: ncu-bench history FOLDER --fail-on "{gate.text}"',
            )
    return gates


def evaluate(gate: Gate, subjects: Subjects, *, clocks_anyway: bool = False) -> GateOutcome:
    """Evaluate a gate. If it applies to several subjects, the worst outcome counts.

    If SM clocks differ, a time is only judged if its cycles give the same outcome, unless `clocks_anyway`.
    """
    if gate.noun not in ("", ANY, subjects.noun):
        reason = f"{plural(subjects.noun)} are compared here, and no {plural(gate.noun)}"
        reason += f"; add --by {gate.noun}" if gate.noun in BY_NOUNS and subjects.noun != POINT else ""
        return GateOutcome(gate, NOT_EVALUATED, reason)
    if gate.measure in subjects.lacks:
        return GateOutcome(gate, NOT_EVALUATED, subjects.lacks[gate.measure])
    if gate.noun == "" and subjects.whole is not None:
        outcome, reason = _judged(gate, subjects.whole, subjects.noun, clocks_anyway)
        return _ended(gate, outcome, reason, subjects.whole.refusal)
    return _judged_each(gate, subjects, clocks_anyway)


def not_evaluated(gates: Iterable[Gate], reason: str) -> list[GateOutcome]:
    """The outcome "not evaluated" for every gate, for one reason."""
    return [GateOutcome(gate, NOT_EVALUATED, reason) for gate in gates]


def exit_code(outcomes: Iterable[GateOutcome]) -> int:
    """The exit code: 3 if any gate tripped, else 2 if any was refused, else 4 if any was not evaluated, else 0."""
    worst = max((one.outcome for one in outcomes), key=FROM_GOOD_TO_BAD.index, default=PASSED)
    return EXIT_CODES[worst]


def _judged_each(gate: Gate, subjects: Subjects, clocks_anyway: bool) -> GateOutcome:
    found = [
        one for one in subjects.every if gate.pattern is None or any(has_text(name, gate.pattern) for name in one.names)
    ]
    why_not = [_why_not(gate, one) for one in found]
    held = [one for one, why in zip(found, why_not, strict=True) if not why]
    not_gated = [
        f"{_called(one, subjects.noun)}: {why}"
        for one, why in zip(found, why_not, strict=True)
        if why not in ("", GONE, NEW)
    ]
    not_gated += [f"{why_not.count(why)} {why}" for why in (NEW, GONE) if why in why_not]
    if not held:
        where = "either run" if gate.pattern else "both runs"
        nothing = (
            f"no {subjects.noun} that it finds is in {where}" if subjects.every else f"there is no {subjects.noun}"
        )
        return GateOutcome(gate, NOT_EVALUATED, "; ".join(shortened(not_gated, MOST_NAMED)) or nothing)
    judged = [(one, *_judged(gate, one, subjects.noun, clocks_anyway)) for one in held]
    worst = max((outcome for _, outcome, _ in judged), key=FROM_GOOD_TO_BAD.index)
    reasons = [f"{_called(one, subjects.noun)}: {reason}" for one, outcome, reason in judged if outcome == worst]
    shown = [_at_most(gate, held, subjects.noun)] if worst == PASSED else shortened(reasons, MOST_NAMED)
    left = [f"not held: {', '.join(shortened(not_gated, MOST_NAMED))}"] if not_gated else []
    refusal = next((one.refusal for one, outcome, _ in judged if outcome == worst == REFUSED), None)
    named = tuple(one.names[0] for one, outcome, _ in judged if outcome == worst)
    return replace(_ended(gate, worst, "; ".join([*shown, *left]), refusal), subjects=named)


def _called(subject: Subject, noun: str) -> str:
    """A subject's name in reasons: for kernels as in tables, else its own name."""
    return readable_name(subject.names[0]) if noun == KERNEL else subject.names[0]


def _why_not(gate: Gate, subject: Subject) -> str:
    """Why a subject has no growth: a gate on any subject evaluates common subjects, and counts the others."""
    if gate.noun != ANY or subject.not_gated:
        return subject.not_gated
    change = subject.changes[gate.measure]
    is_new = change.base == 0 and subject.changes.get("launches", change).base == 0
    return GONE if subject.missing else NEW if is_new else ""


def _ended(gate: Gate, outcome: str, reason: str, refusal: Refusal | None) -> GateOutcome:
    """The outcome; a refused one also lists what became slower, with the advice and the refusal itself."""
    if refusal is None or outcome != REFUSED:
        return GateOutcome(gate, outcome, reason)
    sentences = (f"{reason}.", refusal.slower, refusal.advice(gate.growth))
    return GateOutcome(gate, outcome, " ".join(filter(None, sentences)), refusal)


def _at_most(gate: Gate, held: list[Subject], noun: str) -> str:
    largest = max(held, key=lambda one: one.changes[gate.measure].growth or 0.0)
    reason = f"{counted(len(held), noun, plural(noun))}, at most {_called(largest, noun)}: "
    return reason + sentence(largest.changes[gate.measure])


def _judged(gate: Gate, subject: Subject, noun: str, clocks_anyway: bool) -> tuple[str, str]:
    if subject.missing:
        return NOT_EVALUATED, subject.missing
    change, refusal = subject.changes[gate.measure], subject.refusal
    if refusal is not None and gate.measure != "launches" and None not in (change.base, change.new):
        return REFUSED, refusal.reason
    if change.growth is None:
        return NOT_EVALUATED, _unknown(change, noun) if None in (change.base, change.new) else change.unlike
    outcome, reason = _against_limit(gate, change)
    in_cycles, _ = _against_limit(gate, change.in_cycles)
    if not clocks_anyway and (outcome == TRIPPED) != (in_cycles == TRIPPED):
        return NOT_EVALUATED, f"{reason}: {OTHER_CLOCK}"
    return outcome, reason


OTHER_CLOCK = "only one of the two is above the limit, so the clock decides; lock it, or add --anyway to judge the time"


def _against_limit(gate: Gate, change: Change) -> tuple[str, str]:
    growth = change.growth or 0.0
    if change.outcome == SAME or growth <= gate.limit or math.isclose(growth, gate.limit, rel_tol=1e-9, abs_tol=1e-9):
        return PASSED, sentence(change)
    if change.outcome == NOT_SHOWN:
        noise = "the noise" if change.noise_is_known else "what two launches differ by"
        return NOT_SHOWN_TO_TRIP, f"{sentence(change)}: above the limit, and within {noise}"
    if gate.noun == ANY and change.low_of_many is not None and change.low_of_many <= 1:
        return NOT_SHOWN_TO_TRIP, f"{sentence(change)}: above the limit, and within what chance does to one of many"
    return TRIPPED, sentence(change)


def _unknown(change: Change, noun: str) -> str:
    sides = [name for name, value in (("the base", change.base), ("the new run", change.new)) if value is None]
    launches = "" if noun == "point" else " of every launch"
    return f"{change.measure} is not known{launches} in {' and '.join(sides)}"
