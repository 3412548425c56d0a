"""The facts of a kernel by parts: values of its launches with unit, spread and reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from ncu_launch.counters.metrics import has_system_memory_alone
from ncu_launch.files.toml_tables import table_beside
from ncu_parsers.schema.metric_forms import MetricsInAnyForm, with_every_form
from ncu_parsers.schema.tables import Floats, words

UNITS = {"percent": "%", "byte": "byte", "time": "ns", "hz": "hz"}
PERCENT = "percent"
MOST_PERCENT = 105.0
"""A percentage above this is out of range, allowing for rounding and clocks."""


@dataclass(frozen=True)
class Fact:
    """One value of a kernel: the median over its launches, with the minimum and maximum.

    `of` is its reference, `share` the value over that, `metric` the source of the value. Values are in `unit`,
    percentages 0 to 100.
    """

    part: str
    key: str
    title: str
    kind: str
    unit: str
    value: float
    low: float
    high: float
    of: float | None
    share: float | None
    metric: str

    @property
    def is_out_of_range(self) -> bool:
        """True for an impossible percentage."""
        return self.kind == PERCENT and not 0 <= self.value <= MOST_PERCENT


def parts() -> dict[str, dict[str, dict[str, Any]]]:
    """The facts of each part, as in parts.toml."""
    return table_beside(__file__, "parts")


@lru_cache(maxsize=1)
def metrics_of_facts() -> frozenset[str]:
    """Every column of launches that a fact may use as source, reference or divisor."""
    entries = [entry for of_part in parts().values() for entry in of_part.values()]
    beside = (entry.get(key) for entry in entries for key in ("of", "over", "quotient"))
    names = (name for entry in entries for name in entry["metrics"])
    return with_every_form([*names, *(name for name in beside if isinstance(name, str))])


def facts_of(launches: pa.Table) -> tuple[list[Fact], dict[str, list[str]]]:
    """The facts of the launches of one kernel, and by part the titles of facts that were not collected.

    Facts from DRAM counters do not count as missing on a GPU without own DRAM, nor do means over a count of 0.
    """
    found, missing, metrics = list[Fact](), dict[str, list[str]](), MetricsInAnyForm(launches)
    capabilities = set(words(launches, "compute_capability"))
    without_dram = bool(capabilities) and all(map(has_system_memory_alone, capabilities))
    for part, entries in parts().items():
        for key, entry in entries.items():
            fact = _fact(part, key, entry, metrics)
            if fact is not None:
                found.append(fact)
            elif not ((without_dram and entry.get("of_dram")) or entry.get("beside") or _is_of_none(entry, metrics)):
                missing.setdefault(part, []).append(entry["title"])
    return found, missing


def _fact(part: str, key: str, entry: dict[str, Any], metrics: MetricsInAnyForm) -> Fact | None:
    for formula, values in _alternatives(entry, metrics):
        known = values[values > 0] if entry.get("mean") else values[~np.isnan(values)]
        if not len(known):
            continue
        of = _of(entry.get("of"), metrics)
        value = float(np.median(known))
        against = 100.0 if entry["kind"] == PERCENT else of
        return Fact(
            part=part,
            key=key,
            title=entry["title"],
            kind=entry["kind"],
            unit=UNITS.get(entry["kind"], ""),
            value=value,
            low=float(known.min()),
            high=float(known.max()),
            of=of,
            share=value / against if against else None,
            metric=formula,
        )
    return None


def _is_of_none(entry: dict[str, Any], metrics: MetricsInAnyForm) -> bool:
    """True for a mean over a count of 0, such as sectors per load of a kernel without loads."""
    if not entry.get("mean"):
        return False
    counted = (entry.get("over", entry["metrics"][0]), entry.get("quotient"))
    return any((metrics.floats(name) == 0).any() for name in counted if name)


def _alternatives(entry: dict[str, Any], metrics: MetricsInAnyForm) -> Iterator[tuple[str, Floats]]:
    """Possible sources of a fact, the preferred one first, each with the values of the launches."""
    for metric in entry["metrics"]:
        if "over" not in entry:
            yield metrics.formula(metric), metrics.floats(metric)
            continue
        divisor = metrics.floats(entry["over"])
        with np.errstate(invalid="ignore", divide="ignore"):
            yield f"{metric} / {entry['over']}", np.where(divisor > 0, metrics.floats(metric) / divisor, np.nan)
    if "quotient" in entry:
        yield entry["quotient"], metrics.floats(entry["quotient"])


def _of(of: float | str | None, metrics: MetricsInAnyForm) -> float | None:
    if not isinstance(of, str):
        return of
    values = metrics.floats(of)
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else None
