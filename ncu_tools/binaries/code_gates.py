"""Gates on the code of two builds, such as "registers>0" and "code", and waivers with a reason and a last day.

Outcomes and exit codes are those of gates on runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from ncu_launch.errors import WrongUsage
from ncu_launch.files.toml_tables import tomllib

from ncu_tools.binaries.code_names import is_code_called, readable_code_name
from ncu_tools.binaries.compare_code import MEASURES, CodeChange, CodePair, in_words
from ncu_tools.compare.gate import FROM_GOOD_TO_BAD, NOT_EVALUATED, PASSED, TRIPPED, Gate, GateOutcome
from ncu_tools.numbers.change import shortened
from ncu_tools.numbers.number_format import counted

CODE = "code"
MOST_NAMED = 3
_GATE = re.compile(
    rf"(?:kernel:(?P<pattern>.+?):)?(?:(?P<code>{CODE})|(?P<measure>{'|'.join(MEASURES)})\s*(?P<sign>[<>])\s*"
    r"(?P<limit>-?(?:\d+(?:\.\d*)?|\.\d+))\s*(?P<percent>%)?)"
)


@dataclass(frozen=True)
class CodeGate(Gate):
    """A gate on each kernel of two builds: its change may not be above `limit`, or not below it with `is_floor`.

    The change is a fraction with `relative`, else in units of the measure; for occupancy in points, 0.05 for 5 %.
    """

    is_floor: bool = False
    relative: bool = False

    def exceeds(self, before: float, after: float) -> bool:
        """True if a change is beyond the limit. Growth from 0 exceeds any relative limit."""
        change = after - before
        if self.relative:
            change = change / before if before else (0.0 if not change else float("inf") * (1 if change > 0 else -1))
        return change < self.limit if self.is_floor else change > self.limit


@dataclass(frozen=True)
class Waiver:
    """Kernels that may trip a gate through the day `until`, and the reason."""

    kernel: re.Pattern[str]
    gate: str
    until: date
    reason: str

    def covers(self, gate: CodeGate, name: str) -> bool:
        """True if the waiver is for this kernel and this gate, given as its whole text or as its measure."""
        is_gate = self.gate in (gate.text, gate.measure)
        return is_gate and is_code_called(name, self.kernel)


@dataclass
class HeldGate:
    """The outcome of a gate, the kernels that tripped it with their changes, and the kernels that a waiver excused."""

    outcome: GateOutcome
    tripped: list[tuple[CodePair, str]] = field(default_factory=list)
    waived: list[tuple[CodePair, Waiver]] = field(default_factory=list)


def parse_code_gate(text: str) -> CodeGate:
    """Parse a gate: `registers>0`, `instructions>2%`, `occupancy<0`, `code`, each also `kernel:REGEX:...`.

    Raises `WrongUsage` for anything else.
    """
    match = _GATE.fullmatch(text.strip())
    if match is None:
        raise WrongUsage(
            f'--fail-on "{text}" is no gate on code.',
            f"A gate is MEASURE>LIMIT or MEASURE<LIMIT, with % for a share, of {', '.join(MEASURES)}; or {CODE}, which "
            "no change passes; each also as kernel:REGEX:GATE.",
            'For example: --fail-on "registers>0" --fail-on "instructions>2%" --fail-on "occupancy<0"',
        )
    try:
        pattern = None if match["pattern"] is None else re.compile(match["pattern"])
    except re.error as error:
        raise WrongUsage(f'--fail-on "{text}": {match["pattern"]} is no regular expression: {error}.') from error
    if match["code"]:
        return CodeGate(text.strip(), CODE, 0.0, "kernel", pattern)
    is_share = bool(match["percent"])
    limit = float(match["limit"]) / (100 if is_share or match["measure"] == "occupancy" else 1)
    relative = is_share and match["measure"] != "occupancy"
    return CodeGate(
        text.strip(), match["measure"], limit, "kernel", pattern, None, False, match["sign"] == "<", relative
    )


def read_waivers(path: Path) -> list[Waiver]:
    """The waivers of a TOML file: [[waiver]] with kernel, gate, until and reason. Raises `WrongUsage` for any other."""
    advice = 'Write: [[waiver]] kernel = "softmax" gate = "registers>0" until = 2027-01-31 reason = "..."'
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise WrongUsage(f"{path} cannot be read as waivers: {error}.", advice=advice) from error
    waivers = []
    every = found.get("waiver")
    for number, one in enumerate(every if isinstance(every, list) else (), 1):
        words = [one.get(name) if isinstance(one, dict) else None for name in ("kernel", "gate", "reason")]
        until = one.get("until") if isinstance(one, dict) else None
        if not all(isinstance(word, str) and word for word in words) or type(until) is not date:
            raise WrongUsage(
                f"Waiver {number} of {path} does not say for which kernel and gate it is, why, and until which day.",
                advice=advice,
            )
        try:
            waivers.append(Waiver(re.compile(words[0] or ""), words[1] or "", until, words[2] or ""))
        except re.error as error:
            raise WrongUsage(f"Waiver {number} of {path}: {words[0]} is no regular expression: {error}.") from error
    if not waivers:
        raise WrongUsage(f"{path} holds no waiver.", advice=advice)
    return waivers


def held(gate: CodeGate, pairs: Sequence[CodePair], waivers: Iterable[Waiver], today: date) -> HeldGate:
    """Hold all kernels to a gate; the worst outcome counts. A waiver is valid through its last day."""
    valid = [one for one in waivers if one.until >= today]
    found, unknown, passed = HeldGate(GateOutcome(gate, PASSED, "")), list[str](), 0
    for pair in pairs:
        name = pair.either.resources.name
        if gate.pattern is not None and not is_code_called(name, gate.pattern):
            continue
        outcome, words = _judged(gate, pair)
        said = f"{readable_code_name(name)} ({pair.either.resources.architecture}): {words}"
        waiver = next((one for one in valid if one.covers(gate, name)), None)
        if outcome == TRIPPED and waiver is not None:
            found.waived.append((pair, waiver))
        elif outcome == TRIPPED:
            found.tripped.append((pair, said))
        elif outcome == NOT_EVALUATED:
            unknown.append(said)
        passed += outcome == PASSED
    found.outcome = _outcome(gate, found, unknown, passed)
    return found


def _judged(gate: CodeGate, pair: CodePair) -> tuple[str, str]:
    if gate.measure == CODE:
        if pair.change is CodeChange.BYTES_DIFFER:
            return NOT_EVALUATED, "bytes differ, and its instructions were not read"
        return (PASSED if pair.change is CodeChange.SAME else TRIPPED), pair.change.value
    if pair.base is None or pair.new is None:
        return "", f"is {pair.change.value}"  # no change of a measure: counted apart
    before, after = pair.values(gate.measure)
    if gate.measure == "instructions" and pair.change is CodeChange.SAME:
        return PASSED, "same code"
    if before is None or after is None:
        why = f": {pair.misfit}" if gate.measure == "occupancy" and pair.misfit else ""
        return NOT_EVALUATED, f"{gate.measure} not known{why}"
    words = in_words(gate.measure, before, after)
    return (TRIPPED if gate.exceeds(before, after) else PASSED), words


def _outcome(gate: CodeGate, found: HeldGate, unknown: list[str], passed: int) -> GateOutcome:
    waived = [
        f"{readable_code_name(pair.either.resources.name)} waived until {waiver.until}: {waiver.reason}"
        for pair, waiver in found.waived
    ]
    if found.tripped:
        reasons = shortened([said for _, said in found.tripped], MOST_NAMED)
        return GateOutcome(gate, TRIPPED, "; ".join([*reasons, *shortened(waived, MOST_NAMED)]))
    if unknown:
        return GateOutcome(gate, NOT_EVALUATED, "; ".join(shortened(unknown, MOST_NAMED)))
    if not passed and not waived:
        return GateOutcome(gate, NOT_EVALUATED, "no kernel that it finds is in both builds")
    kernels = counted(passed, "kernel", "kernels")
    return GateOutcome(gate, PASSED, "; ".join([kernels, *shortened(waived, MOST_NAMED)]))


def worst(outcomes: Iterable[HeldGate]) -> str:
    """The worst outcome of all gates."""
    return max((one.outcome.outcome for one in outcomes), key=FROM_GOOD_TO_BAD.index, default=PASSED)


def notes_on_waivers(waivers: Sequence[Waiver], gates: Sequence[HeldGate], today: date) -> list[str]:
    """Notes on waivers that have expired and on waivers that no kernel needed."""
    used = {id(waiver) for gate in gates for _, waiver in gate.waived}
    ended = [one for one in waivers if one.until < today]
    idle = [one for one in waivers if one.until >= today and id(one) not in used]
    notes = [f"the waiver of {one.gate} for {one.kernel.pattern} ended on {one.until}" for one in ended]
    return notes + [f"the waiver of {one.gate} for {one.kernel.pattern} is not needed" for one in idle]
