"""Advice on the kernels of a run: levers on each kernel, ranked by what they save, or the reason why there are none."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import pyarrow as pa
from ncu_launch.files.toml_tables import table_beside

from ncu_tools.advice.intervals import Confidence, confidence, what_is_known, widened
from ncu_tools.advice.levers.all_levers import LEVERS, Pulled, lever_texts
from ncu_tools.advice.situation.code_facts import CodeFacts, facts_of_instructions, facts_of_opcodes
from ncu_tools.advice.situation.kernel_situation import LeverEvidence, Situation
from ncu_tools.advice.situation.known_facts import KnownFact
from ncu_tools.advice.situation.measured import MeasuredKernel, measured_kernels
from ncu_tools.advice.situation.model import (
    Effect,
    SavedShare,
    effects_overlapping,
    effects_together,
    next_limit,
    saving,
)
from ncu_tools.advice.situation.utilisation import resources
from ncu_tools.kernels.names.kernel_ids import kernel_id
from ncu_tools.kernels.names.kernel_name_spelling import drop_parameters
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.numbers.number_format import percent

AT_A_ROOF, NOT_COLLECTED, PREPARES, WAITS, NOTHING = (
    "at a roof", "not collected", "prepares inputs", "waits for peers", "nothing stands out",
)  # fmt: skip
"""Reasons why a kernel has no lever."""
AT_ROOF = 0.8
"""Share of the time from which a busy resource bounds a kernel (80 %, NVIDIA's speed-of-light rule)."""
WORTH = 0.02
"""A lever is worth it if its interval begins above this share of the time, or its middle is above twice this share."""
ENOUGH_RESOURCES = 3
"""With the utilisation of fewer resources known, the bound of a kernel is unknown."""


@dataclass(frozen=True)
class LeverAdvice:
    """One lever on one kernel: the share of the kernel's time that it saves, and the numbers behind that."""

    lever: str
    saves: SavedShare
    pulled: Pulled
    known: str
    limits_next: str
    is_doubtful: bool = False
    """True if counters of the kernel contradict each other."""

    @property
    def title(self) -> str:
        """What is to be done, in a few words."""
        return str(lever_texts()[self.lever]["title"])

    @property
    def is_apart(self) -> bool:
        """True if it changes the numerics, replaces the kernel or joins it with others."""
        return bool(lever_texts()[self.lever].get("apart", False))

    @property
    def is_small(self) -> bool:
        """True if its likely saving is below 2 % of the kernel's time."""
        return self.saves.middle < WORTH

    @property
    def is_worth_it(self) -> bool:
        """True if it saves enough time to be listed, and was not guessed."""
        return (
            not self.pulled.nothing
            and not self.pulled.is_guess
            and (self.saves.low > WORTH or self.saves.middle > 2 * WORTH)
        )

    @property
    def evidence(self) -> list[LeverEvidence]:
        """The numbers that the saving follows from, where the report has them."""
        return [one for one in self.pulled.evidence if not math.isnan(one.value)]

    @property
    def basis(self) -> str:
        """What the saving follows from: counters alone, or counters and code."""
        return "counters and code" if self.pulled.uses_code else "counters"

    @property
    def confidence(self) -> Confidence | None:
        """How often such intervals held; None for a lever that is not calibrated, or if counters contradict."""
        return confidence(self.known) if is_calibrated(self.lever) and not self.is_doubtful else None


@dataclass(frozen=True)
class Together:
    """What two levers on one kernel save together, which is not the sum of both."""

    levers: tuple[str, str]
    saves: SavedShare


@dataclass
class KernelAdvice:
    """The levers on one kernel, ranked, or the reason why there are none.

    Levers that keep the kernel come first, then those that replace it ("apart"), then small ones, then those that bring
    nothing. `roof` is the resource that bounds the kernel, "" if none does; `reason` and `says` tell why no lever is
    worth it.
    """

    kernel: MeasuredKernel
    levers: Sequence[LeverAdvice]
    roof: str = ""
    reason: str = ""
    says: str = ""
    together: Together | None = None
    situation: Situation | None = field(default=None, repr=False)
    known: Sequence[KnownFact] = ()
    """What is known of a kernel that nobody counted."""

    @property
    def busiest(self) -> str:
        """The name of the busiest resource; "" if none is known."""
        name = self.kernel.bound[0]
        return str(resources()[name]["title"]) if name else ""

    @property
    def that_keep_it(self) -> list[LeverAdvice]:
        """The levers that are worth it and keep the kernel, the largest saving first."""
        return [one for one in self.levers if one.is_worth_it and not one.is_apart]


@dataclass
class Advice:
    """Advice on a run: its kernels, the one with most time first, and the time of all their launches in ns."""

    kernels: Sequence[KernelAdvice]
    total_ns: float
    notes: list[str] = field(default_factory=list)


def code_of(launches: pa.Table, instructions: pa.Table | None) -> dict[str, CodeFacts]:
    """Facts of the code of each kernel, by full name: of its instructions, else of its counts per opcode."""
    found = facts_of_opcodes(launches)
    return found | (facts_of_instructions(instructions) if instructions is not None else {})


def advise(launches: pa.Table, instructions: pa.Table | None = None) -> Advice:
    """Advice on every kernel of the launches; `instructions` may cover some of the kernels."""
    code = code_of(launches, instructions)
    kernels = measured_kernels(launches)
    found = [advice_on(kernel, code.get(kernel.name)) for kernel in kernels]
    return Advice(found, sum(kernel.total_ns for kernel in kernels), doubts_of(kernels))


MOST_DOUBTS = 5


def doubts_of(kernels: Sequence[MeasuredKernel]) -> list[str]:
    """Notes on counters that are contradictory or impossible, the first `MOST_DOUBTS` of them."""
    found = [
        f"{readable_name(kernel.name)}: {doubt}; confidence is not known"
        for kernel in kernels
        for doubt in kernel.doubts
    ]
    more = len(found) - MOST_DOUBTS
    return found[:MOST_DOUBTS] + ([f"{more} more counters contradict others or cannot be"] if more > 0 else [])


def advice_on(kernel: MeasuredKernel, code: CodeFacts | None = None) -> KernelAdvice:
    """The levers of one kernel, or why there is none."""
    situation = Situation(kernel, code)
    role = role_of(kernel.name)
    if role:
        return KernelAdvice(kernel, [], reason=role, says=str(roles()[role]["says"]), situation=situation)
    known = what_is_known(kernel, has_code=code is not None and code.has_text)
    levers = [_judged(situation, name, known) for name in LEVERS]
    ranked = sorted((one for one in levers if one is not None), key=_order)
    advice = KernelAdvice(kernel, ranked, roof=roof_of(kernel), situation=situation)
    if not advice.that_keep_it:
        advice.reason, advice.says = _why_none(kernel, advice.roof)
    advice.together = _best_two(kernel, advice.that_keep_it, known)
    return advice


def _judged(situation: Situation, name: str, known: str) -> LeverAdvice | None:
    """A lever with its interval; None where it does not apply to the kernel."""
    if situation.is_from_a_library and not lever_texts()[name].get("of_libraries", False):
        return None
    pulled = LEVERS[name](situation)
    if pulled is None:
        return None
    model = saving(situation.kernel, pulled.effect)
    saves = widened(model, known, brings_nothing=bool(pulled.nothing)) if is_calibrated(name) else _clipped(model)
    kernel = situation.kernel
    return LeverAdvice(name, saves, pulled, known, next_limit(kernel, pulled.effect), bool(kernel.doubts))


def is_calibrated(name: str) -> bool:
    """True for a lever whose intervals are calibrated on known histories; others have the model's own interval."""
    return bool(lever_texts()[name].get("calibrated", True))


def _clipped(model: SavedShare) -> SavedShare:
    """The saving of the model, limited to 0 to 1."""
    return SavedShare(*(min(0.995, max(0.0, one)) for one in model))


def _order(one: LeverAdvice) -> tuple[bool, bool, bool, float, float]:
    """Levers that save something first, of these the ones that keep the kernel, and the largest saving first."""
    return bool(one.pulled.nothing), one.is_small, one.is_apart, -round(one.saves.middle, 4), -one.saves.high


def roof_of(kernel: MeasuredKernel) -> str:
    """The title of the busiest resource if it bounds the kernel, else ""."""
    name, share = kernel.bound
    return str(resources()[name]["title"]) if share >= AT_ROOF else ""


def _why_none(kernel: MeasuredKernel, roof: str) -> tuple[str, str]:
    """Why no lever that keeps the kernel is worth it: an id, and a sentence."""
    name, share = kernel.bound
    if roof:
        less = resources()[name]["less"]
        return AT_A_ROOF, f"at the roof of {roof}, busy for {percent(share)} of the time: {less} would save time"
    if len(kernel.busy) < ENOUGH_RESOURCES:
        return (
            NOT_COLLECTED,
            "utilisations were not collected: ncu --set full, or --section SpeedOfLight, collects them",
        )
    title = resources()[name]["title"]
    return NOTHING, f"the busiest resource, {title}, works for {percent(share)} of the time, and no lever is seen"


def _best_two(kernel: MeasuredKernel, ranked: Sequence[LeverAdvice], known: str) -> Together | None:
    """What the first two levers save together, at least as much as either alone; None if there are not two."""
    best = ranked[:2]
    if len(best) < 2:
        return None
    effects: list[Effect] = [one.pulled.effect for one in best]
    least, most = saving(kernel, effects_overlapping(*effects)), saving(kernel, effects_together(*effects))
    middle = (least.middle + most.middle) / 2
    saves = widened(SavedShare(min(least.low, middle), middle, max(most.high, middle)), known)
    alone = (max(shares) for shares in zip(*(one.saves for one in best), strict=True))
    return Together((best[0].lever, best[1].lever), SavedShare(*(max(pair) for pair in zip(saves, alone, strict=True))))


# ------------------------------------------------------------------------------------------------------------- roles


@cache
def roles() -> Mapping[str, Mapping[str, Any]]:
    """Kinds of kernels that get no levers, with the patterns of their names (`roles.toml`)."""
    return table_beside(__file__, "roles")


def role_of(name: str) -> str:
    """The kind of a kernel that gets no levers, by its name without parameters; "" for other kernels."""
    name = drop_parameters(name)
    for role, told in roles().items():
        if any(re.search(pattern, name) for pattern in told["patterns"]):
            return role
    return ""


# -------------------------------------------------------------------------------------------------------------- rows


def rows_of(advice: Advice) -> list[dict[str, Any]]:
    """A row for each lever on each kernel: levers that keep the kernel first, by the time that they save.

    Then come levers apart, small ones, kernels without a lever that is worth it, with the reason, and levers that bring
    nothing.
    """
    ranked, silent, idle = list[tuple[bool, bool, dict[str, Any]]](), list[dict[str, Any]](), list[dict[str, Any]]()
    for one in advice.kernels:
        if one.reason:
            silent.append(_row(advice, one, None))
        for lever in one.levers:
            row = _row(advice, one, lever)
            if lever.pulled.nothing:
                idle.append(row)
            else:
                ranked.append((lever.is_small, lever.is_apart, row))
    ranked.sort(key=lambda each: (each[0], each[1], -each[2]["saves_ns"]))
    return [*(row for _, _, row in ranked), *silent, *idle]


def _row(advice: Advice, one: KernelAdvice, lever: LeverAdvice | None) -> dict[str, Any]:
    kernel = one.kernel
    row: dict[str, Any] = {
        "kernel": kernel.name,
        "kernel_id": kernel_id(kernel.name),
        "lever": None,
        "kernel_time_ns": kernel.time_ns,
        "launches": kernel.launches,
        "time_share": kernel.total_ns / advice.total_ns if advice.total_ns else None,
        "grid": list(kernel.grid) if kernel.grid else None,
        "block": list(kernel.block) if kernel.block else None,
        "device": kernel.device,
        "roof": one.roof or None,
        "reason": one.reason or None,
        "says": one.says or None,
    }
    if lever is None:
        if one.known:
            return row | {"evidence": [asdict(each) for each in one.known], "basis": "shapes, timeline and samples"}
        return row | {"evidence": _of_roof(kernel), "basis": "counters"}
    return row | _of_lever(lever, kernel.total_ns, advice.total_ns)


def _of_roof(kernel: MeasuredKernel) -> list[dict[str, Any]]:
    name, share = kernel.bound
    if not name:
        return []
    title = resources()[name]["title"]
    return [
        {"quantity": f"{title} busy", "value": share, "unit": "fraction", "metrics": list(kernel.metrics.get(name, ()))}
    ]


def _of_lever(lever: LeverAdvice, total_ns: float, run_ns: float) -> dict[str, Any]:
    low, middle, high = lever.saves
    sure = lever.confidence
    told = lever_texts()[lever.lever]
    return {
        "lever": lever.lever,
        "title": lever.title,
        "saves_share": middle,
        "saves_low": low,
        "saves_high": high,
        "saves_ns": middle * total_ns,
        "saves_low_ns": low * total_ns,
        "saves_high_ns": high * total_ns,
        "share_of_run": middle * total_ns / run_ns if run_ns else None,
        "evidence": [asdict(each) for each in lever.evidence],
        "remedy": lever.pulled.remedy(told),
        "basis": lever.basis,
        "confidence": asdict(sure) if sure is not None else None,
        "limits_next": resources()[lever.limits_next]["title"] if lever.limits_next else None,
        "is_apart": lever.is_apart,
        "nothing": lever.pulled.nothing or None,
        "is_worth_it": lever.is_worth_it,
    }
