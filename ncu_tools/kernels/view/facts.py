"""The facts of a kernel by parts: values of its launches with unit, spread and what they stand against."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from ncu_launch.files.toml_tables import table_beside
from ncu_parsers.schema.tables import Floats, floats

UNITS = {"percent": "%", "byte": "byte", "time": "ns", "hz": "hz"}
PERCENT = "percent"


@dataclass(frozen=True)
class Fact:
    """One value of a kernel: the median over its launches, with the least and greatest.

    `of` is what it stands against, `share` the value over that, `metric` where the value is from. Values are in `unit`,
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


def parts() -> dict[str, dict[str, dict[str, Any]]]:
    """The facts of each part, as parts.toml has them."""
    return table_beside(__file__, "parts")


@lru_cache(maxsize=1)
def metrics_of_facts() -> frozenset[str]:
    """Every column of launches that a fact is taken from, stands against, or is divided by."""
    entries = [entry for of_part in parts().values() for entry in of_part.values()]
    beside = (entry.get(key) for entry in entries for key in ("of", "over"))
    return frozenset(name for entry in entries for name in entry["metrics"]) | {
        name for name in beside if isinstance(name, str)
    }


def facts_of(launches: pa.Table) -> tuple[list[Fact], dict[str, list[str]]]:
    """The facts of the launches of one kernel, and by part the titles of those that were not collected."""
    found, missing = list[Fact](), dict[str, list[str]]()
    for part, entries in parts().items():
        for key, entry in entries.items():
            fact = _fact(part, key, entry, launches)
            if fact is not None:
                found.append(fact)
            else:
                missing.setdefault(part, []).append(entry["title"])
    return found, missing


def _fact(part: str, key: str, entry: dict[str, Any], launches: pa.Table) -> Fact | None:
    for metric in entry["metrics"]:
        values = floats(launches, metric)
        if "over" in entry:
            values = _quotient(values, floats(launches, entry["over"]))
        known = values[~np.isnan(values)]
        if not len(known):
            continue
        of = _of(entry.get("of"), launches)
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
            metric=metric if "over" not in entry else f"{metric} / {entry['over']}",
        )
    return None


def _of(of: float | str | None, launches: pa.Table) -> float | None:
    if not isinstance(of, str):
        return of
    values = floats(launches, of)
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else None


def _quotient(values: Floats, divisor: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(divisor > 0, values / divisor, np.nan)
