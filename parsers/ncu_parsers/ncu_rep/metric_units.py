"""The base unit of a metric by its name: a binary report holds names and values, and no units.

A name is UNIT__COUNTER.ROLLUP.RATE, as in dram__bytes.sum.per_second. The counter gives the unit, and the rate divides
it by cycles or seconds. Units were taken from NVIDIA's reader for all counters of four chips and for the metrics of
real reports (tests/parsers/ncu_rep/test_metric_units.py). A percentage (pct) has the unit %; any other name that fits
no rule of `metric_units.toml` has none.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import NamedTuple

from ncu_launch.files.toml_tables import table_beside

PREFIXES = r"^(?:(?:pmsampling|breakdown):)?(?:\w+\.TriageCompute\.)?"
"""Pattern of a counter's prefixes: how it was collected, and the group of counters sampled together."""


class Counted(NamedTuple):
    """The unit of a counter, and of its rates."""

    base: str
    per_cycle: str
    per_second: str


_NO_UNIT = Counted("", "", "")


@cache
def _rules() -> list[tuple[str, Counted]]:
    """(pattern, units) of counters; the first pattern that matches the start of a name without `PREFIXES` decides."""
    kinds = {
        "events": lambda base: Counted(base, f"{base or 1}/cycle", f"{base or 1}/s"),
        "held": lambda base: Counted(base, base, f"{base}/s"),
        "always": lambda base: Counted(base, base, base),
        "cycles": lambda base: Counted(base, "", "hz"),
    }
    return [(begins, kinds[kind](base)) for begins, kind, base in table_beside(__file__, "metric_units")["rules"]]


@lru_cache(maxsize=65536)
def unit_of(name: str) -> str:
    """The base unit of a metric, as in "byte/s"; "" if it has none or the name is unknown."""
    counter, _, suffix = re.sub(PREFIXES, "", name).partition(".")
    if "pct" in suffix:
        return "%"
    counted = next((counted for beginning, counted in _rules() if re.match(beginning, counter)), _NO_UNIT)
    rate = suffix.rpartition(".")[2]
    if rate == "per_second" and "peak" not in suffix:
        return counted.per_second
    return counted.per_cycle if rate == "peak_sustained" or rate.startswith("per_cycle") else counted.base
