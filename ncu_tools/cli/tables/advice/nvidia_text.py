"""NVIDIA's rules with an estimate, compared with our levers, as text and as rows of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ncu_tools.advice.nvidia_levers import AnsweredRule
from ncu_tools.cli.tables.advice.advice_text import shown_name
from ncu_tools.cli.tables.part_text import hanging
from ncu_tools.kernels.names.kernel_ids import kernel_id

RULES_SHOWN = 5


def rule_lines(answered: Sequence[AnsweredRule], width: int) -> Iterator[str]:
    """A sentence for each of the first rules: NVIDIA's estimate, and how ours relates to it; each sentence once."""
    if answered:
        yield from ["", "NVIDIA's rules that estimate 10 % or more, and ours to each:"]
    for sentence in list(dict.fromkeys(map(_sentence, answered)))[:RULES_SHOWN]:
        yield from hanging("  ", sentence, width)


def _sentence(one: AnsweredRule) -> str:
    rule = one.rule
    kind = "of the kernel" if rule.speedup_type == "global" else "of the unit it looks at"
    theirs = f"{rule.rule} on {shown_name(rule.kernel)}: {rule.estimated_speedup or 0.0:.0f} % {kind}"
    return f"{theirs}; {one.in_words}"


def rows_of_rules(answered: Sequence[AnsweredRule]) -> list[dict[str, Any]]:
    """Every rule with its estimate, and our corresponding lever."""
    return [
        {
            "kernel": one.rule.kernel,
            "kernel_id": kernel_id(one.rule.kernel),
            "rule": one.rule.rule,
            "estimated_speedup": one.rule.estimated_speedup,
            "speedup_type": one.rule.speedup_type,
            "message": one.rule.message,
            "ours": one.outcome,
            "lever": one.lever.lever if one.lever else None,
            "saves_share": one.lever.saves.middle if one.lever else None,
            "saves_low": one.lever.saves.low if one.lever else None,
            "saves_high": one.lever.saves.high if one.lever else None,
        }
        for one in answered
    ]
