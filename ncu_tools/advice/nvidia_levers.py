"""NVIDIA's rules with an estimated speed-up, each answered with our lever for what the rule found.

A global estimate of NVIDIA's is a share of the kernel's time, a local one a share of the unit that the rule looks at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa
from ncu_launch.files.toml_tables import table_beside

from ncu_tools.advice.advise import Advice, KernelAdvice, LeverAdvice
from ncu_tools.advice.lever_sentences import interval
from ncu_tools.kernels.view.kernel_view import RuleResult
from ncu_tools.kernels.view.nvidia_rules import RankedRule, RuleSums

WORTH_ANSWERING = 10.0
"""Least estimated speed-up in % of a rule that is answered."""
SAME, NOTHING, INSTEAD, ROOF, SILENT, WITHOUT = (
    "the same", "brings nothing", "another", "at a roof", "silent", "no lever",
)  # fmt: skip
"""Answers to a rule: a lever for it, that this lever brings nothing, another lever, a roof is near, none, or that no
lever of ours does what the rule asks for.
"""


@dataclass(frozen=True)
class AnsweredRule:
    """A rule of NVIDIA's on a kernel, with its estimate in %, and our answer."""

    rule: RankedRule
    outcome: str
    lever: LeverAdvice | None
    says: str = ""

    @property
    def in_words(self) -> str:
        """Our answer in words: a lever with its saving, or why there is none."""
        if self.outcome == SILENT:
            return "ours is silent"
        if self.lever is None:
            return f"ours: {self.says}"
        if self.outcome == NOTHING:
            return f"ours: {self.lever.lever} brings nothing, as {self.says}"
        first = "ours instead" if self.outcome == INSTEAD else "ours"
        return f"{first}: {self.lever.lever} {interval(self.lever.saves)}"


@cache
def _levers_of(rule: str) -> Sequence[str] | str:
    """The levers for what a rule finds, or why there is none."""
    table: Mapping[str, Sequence[str] | str] = table_beside(__file__, "nvidia_levers")
    return next((levers for name, levers in table.items() if rule.startswith(name)), ())


def answered_rules(launches: pa.Table, advice: Advice) -> list[AnsweredRule]:
    """Every rule whose estimate is at least `WORTH_ANSWERING`, in NVIDIA's order, with our answer."""
    sums = RuleSums("name")
    sums.add(launches)
    kernels: dict[str, KernelAdvice] = {}
    for one in advice.kernels:  # the first of a name has most time
        kernels.setdefault(one.kernel.name, one)
    ranked = [
        one for one in sums.ranked() if (one.estimated_speedup or 0.0) >= WORTH_ANSWERING and one.kernel in kernels
    ]
    return [_answered(one, kernels[one.kernel]) for one in ranked]


def with_answers(rules: Sequence[RuleResult], launches: pa.Table, advice: KernelAdvice | None) -> list[RuleResult]:
    """The rules on one kernel; those with a large enough estimate have our answer."""
    if advice is None:
        return list(rules)
    ours = {one.rule.rule: one.in_words for one in answered_rules(launches, Advice([advice], advice.kernel.total_ns))}
    return [replace(one, answer=ours.get(one.name, "")) for one in rules]


def _answered(rule: RankedRule, kernel: KernelAdvice) -> AnsweredRule:
    wanted = _levers_of(rule.rule)
    if isinstance(wanted, str):
        return AnsweredRule(rule, WITHOUT, None, wanted)
    own = [one for one in kernel.levers if one.lever in wanted]
    found = next((one for one in own if one.is_worth_it), None)
    if found is not None:
        return AnsweredRule(rule, SAME, found)
    idle = next((one for one in own if one.pulled.nothing), None)
    if idle is not None:
        return AnsweredRule(rule, NOTHING, idle, idle.pulled.nothing)
    if own:
        return AnsweredRule(rule, SAME, own[0], "it saves little")
    other = next((one for one in kernel.levers if one.is_worth_it), None)
    if other is not None:
        return AnsweredRule(rule, INSTEAD, other)
    return AnsweredRule(rule, ROOF if kernel.says else SILENT, None, kernel.says)
