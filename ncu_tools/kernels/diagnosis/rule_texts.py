"""Numbers printed in the texts of NVIDIA's rules, for reports that have the rules but not their metrics.

A details page has the sentence "only 8.0 of the 32 bytes transmitted per sector are utilized", but not the metric. The
table `rule_text` of `rules.toml` maps texts to numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import Floats

from ncu_tools.kernels.diagnosis.rules import BY_RULE, Known, facts

RULES = "rules"


def printed_numbers(table: pa.Table) -> dict[str, Floats]:
    """Quantity -> float64, one per launch, as a rule prints it, NaN if none does; the largest of several."""
    if RULES not in table.column_names:
        return {}
    found: dict[str, Floats] = {}
    before = 0
    for rules in table.column(RULES).chunks:
        starts = arrays.values_of(rules.offsets, np.int32)
        names, texts = (rules.values.field(name) for name in ("name", "description"))
        for launch in np.flatnonzero(arrays.present(rules) & (np.diff(starts) > 0)).tolist():
            for at in range(starts[launch], starts[launch + 1]):
                for quantity, number in _numbers(names[at].as_py() or "", texts[at].as_py() or ""):
                    values = found.setdefault(quantity, np.full(len(table), np.nan))
                    values[before + launch] = np.fmax(values[before + launch], number)
        before += len(rules)
    return found


def completed(collected: Known) -> tuple[dict[str, float], dict[str, str]]:
    """The quantities completed by numbers that only rules print, and the rule behind each of these."""
    known, standing_on = dict(collected), dict[str, str]()
    for entry in facts()["rule_text"]:
        names = [name for name in collected if name.endswith(BY_RULE) and _gives(entry, name.removesuffix(BY_RULE))]
        for name in names:
            quantity, printed = name.removesuffix(BY_RULE), collected[name]
            if not math.isnan(printed) and (math.isnan(known.get(quantity, math.nan)) or known[quantity] == printed):
                known[quantity] = printed
                standing_on |= dict.fromkeys(entry["gives"], _quantities_printed_by(entry))
    return known, standing_on


def rule_of_quantity(quantity: str) -> str:
    """The rule whose text prints a quantity; "" if none does."""
    return next((_quantities_printed_by(entry) for entry in facts()["rule_text"] if _gives(entry, quantity)), "")


def _quantities_printed_by(entry: Mapping[str, Any]) -> str:
    return f"NVIDIA's rule {entry['rule']}"


def _gives(entry: Mapping[str, Any], quantity: str) -> bool:
    return quantity.partition(" ")[0] in _pattern(entry["pattern"]).groupindex


def _numbers(rule: str, text: str) -> Iterator[tuple[str, float]]:
    for entry in facts()["rule_text"]:
        is_meant = not rule or rule.startswith(entry["rule"])  # text pages print no names of rules
        match = _pattern(entry["pattern"]).search(text) if is_meant else None
        if match is None:
            continue
        numbers = {name: float(value) for name, value in match.groupdict().items() if name != "why"}
        if "why" in match.groupdict():
            reason = next((key for key, words in facts()["stall_text"].items() if words in match["why"]), "")
            yield from {f"stall {reason}": numbers.pop("stall")}.items() if reason else ()
        yield from ((name, number * entry.get("factor", 1.0)) for name, number in numbers.items() if number)


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.DOTALL)
