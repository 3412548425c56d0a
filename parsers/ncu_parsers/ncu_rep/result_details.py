"""NVTX ranges and rule results in a result message."""

from __future__ import annotations

import re
from typing import Any

from ncu_parsers.ncu_rep.fields import text_of
from ncu_parsers.schema.tables import Rule

NvtxRanges = tuple[tuple[str, str], ...]
"""The NVTX ranges around a launch as (domain, name), outermost first."""

RULE_KINDS = {0: "", 1: "INF", 2: "WRN", 3: "ERR", 4: "OPT"}
SPEEDUP_TYPES = {1: "local", 2: "global"}

_LINK_TO_PAGE = re.compile(r"@url:([^@]*?):(\w+://[^@]*)@")
_LINK_INSIDE = re.compile(r"@(?:section|sass|source|table):[^@]*:([^@:]*)@")


def nvtx_ranges(result: Any) -> NvtxRanges | None:
    """The NVTX ranges around a result as (domain, name), outermost first; None without NVTX.

    Ranges of the process come first, then ranges of the thread that are not also ranges of the process.
    """
    if not result.HasField("nvtx"):
        return None
    domains = [domain.number for domain in result.nvtx.domains]
    names = {domain.number: text_of(domain.name) for domain in result.nvtx.domains}
    order = {number: place for place, number in enumerate(domains)}
    started = sorted(result.nvtx.started, key=lambda one: order.get(one.domain, len(order)))
    pushed = [one for thread in result.nvtx.threads for one in thread.domains]
    pushed.sort(key=lambda one: order.get(one.domain, len(order)))
    of_process = [(names.get(one.domain, ""), text_of(each.name)) for one in started for each in one.ranges]
    of_thread = [(names.get(one.domain, ""), text_of(each.name)) for one in pushed for each in one.ranges]
    return (*of_process, *(each for each in of_thread if each not in of_process))


def rules_of(result: Any) -> list[Rule]:
    """The results of rules, one per message or speedup, worded as on the details page, with links as text."""
    return [
        _rule(rule, item)
        for rule in result.rules
        for item in rule.body.items
        if item.HasField("message") or item.HasField("speedup")
    ]


def _rule(rule: Any, item: Any) -> Rule:
    kind = text = speedup_type = speedup = ""
    if item.HasField("message"):
        kind, text = RULE_KINDS.get(item.message.kind, ""), replace_links(text_of(item.message.text))
    if item.HasField("speedup"):
        speedup_type, speedup = SPEEDUP_TYPES.get(item.speedup.kind, ""), f"{item.speedup.percent:.2f}"
    metrics = "; ".join(dict.fromkeys(text_of(focus.metric) for focus in item.focus))
    return Rule(text_of(rule.section), text_of(rule.name), kind, text, speedup_type, speedup, metrics)


def replace_links(text: str) -> str:
    """A rule's message as ncu prints it: `@section:X:The X@` becomes The X, `@url:Page:http://x@` Page (http://x)."""
    return _LINK_INSIDE.sub(r"\1", _LINK_TO_PAGE.sub(r"\1 (\2)", text))
