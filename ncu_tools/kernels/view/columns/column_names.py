"""Resolve names of columns: short names and sets of `columns.toml`, and metrics by full name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
from ncu_launch.errors import WrongUsage
from ncu_launch.files.toml_tables import table_beside
from ncu_parsers.schema.tables import COLUMNS, Field

from ncu_tools.kernels.names.categories import CATEGORY, DECIDED_BY
from ncu_tools.kernels.view.facts import UNITS, parts

MEAN, SUM, MEDIAN, RATIO, MOST_TIME = "mean", "sum", "median", "ratio", "most time"
COMBINED = {
    MEAN: "mean weighted by time",
    SUM: "sum",
    MEDIAN: "median",
    RATIO: "sum over sum",
    MOST_TIME: "what most of the time has",
}
"""Method of combining the launches of a kernel -> in words."""
AGAINST = "of"
"""Value of `by` if a fact is divided by its reference."""
ADDED_UP = ("FLOP", "OP", "byte", "ns")
"""Units of columns of launches.parquet that add up over launches."""
METRIC_NAME = re.compile(r"\w+?__\w+(\.\w+)*")
"""Form of NVIDIA's metric names: unit__what.how."""
NOT_SHOWN = ("rules", "rule_metrics")
FROM_NAMES = {
    CATEGORY: "the category of the kernel by its name, and its operator where the name says too little",
    DECIDED_BY: "what decided on the category: a rule with where such names come from, or an operator",
}
"""Columns that derive from kernel names, in every run -> their meaning (docs/hotspots.md)."""
NEAR_NAMES = 5
_table = partial(table_beside, __file__, "columns")


@dataclass(frozen=True)
class ChosenColumn:
    """A column beside kernels: the first of `metrics` that a kernel has, or with `over` the quotient of two.

    With `largest_of`, a pattern of metrics, it is the one with the largest mean, and `gives` selects its name, value or
    share of all. `kind` and `unit` are "" if the report defines them. `by` is a key of `COMBINED`; `section` is the
    section of ncu that collects it, "" if the metric must be requested by name; `collect` the command if it is no
    section; `heading` is for terminals.
    """

    name: str
    title: str
    metrics: tuple[str, ...]
    by: str
    over: str = ""
    largest_of: str = ""
    but: str = ""
    gives: str = ""
    kind: str = ""
    unit: str = ""
    means: str = ""
    source: str = ""
    section: str = ""
    collect: str = ""
    heading: str = ""

    def needs(self, name: str) -> bool:
        """True if the column uses the metric or column of this name."""
        if self.largest_of:
            return re.fullmatch(self.largest_of, name) is not None
        return name in self.metrics or name == self.over


def sets() -> dict[str, list[str]]:
    """The names of the columns of each named set."""
    named: dict[str, list[str]] = _table()["set"]
    return named


@lru_cache(maxsize=1)
def short_names() -> dict[str, ChosenColumn]:
    """Short name -> its column."""
    return {name: _short(name, entry) for name, entry in _table()["column"].items()}


def _short(name: str, entry: dict[str, Any]) -> ChosenColumn:
    part, _, key = entry.get("fact", "").partition(".")
    made_of = {**(parts()[part][key] if part else {}), **entry}
    over = made_of["of"] if made_of.get("by") == AGAINST else made_of.get("over", "")
    kind = made_of.get("kind", "")
    return ChosenColumn(
        name=name,
        title=made_of["title"],
        metrics=tuple(made_of.get("metrics", ())),
        by=RATIO if over else made_of["by"],
        over=over,
        largest_of=made_of.get("largest_of", ""),
        but=made_of.get("but", ""),
        gives=made_of.get("gives", ""),
        kind=kind,
        unit=made_of.get("unit", UNITS.get(kind, "")),
        means=made_of["means"],
        source=_table()["source"][made_of["source"]],
        section=made_of["section"],
        collect=made_of.get("collect", ""),
        heading=made_of.get("heading", ""),
    )


def chosen(wanted: Iterable[str], in_run: Collection[str], own: Collection[str] = ()) -> list[str | ChosenColumn]:
    """The columns named by texts such as "registers,l1_hit", each once; columns among `own` by their names.

    A name is one of `own`, a set, a short name, a column of the run's launches, or one that looks like a metric. Raises
    `WrongUsage` for any other, with near names.
    """
    found: dict[str, str | ChosenColumn] = {}
    for text in wanted:
        for name in [text] if text in in_run else text.split(","):
            for each in sets().get(name.strip(), [name.strip()]):
                if each:
                    found[each] = each if each in own else _column(each, in_run, own)
    return list(found.values())


def _column(name: str, in_run: Collection[str], own: Collection[str]) -> ChosenColumn:
    if name in short_names():
        return short_names()[name]
    if name in FROM_NAMES and name not in in_run:
        return ChosenColumn(name, name, (name,), MOST_TIME, means=FROM_NAMES[name])
    if name in NOT_SHOWN:
        raise WrongUsage(f"{name} is a list in each launch, and no column of kernels.", advice="Ask for: --rules")
    if name not in in_run and not METRIC_NAME.fullmatch(name) and name not in _contract():
        raise _unknown(name, in_run, own)
    return ChosenColumn(name, name, (name,), combined_by(name))


def near(name: str, names: Iterable[str], alike: float = 0.6) -> list[str]:
    """The names spelled most like `name`, the nearest first; `alike` is 1 for equality."""
    return get_close_matches(name, list(dict.fromkeys(names)), NEAR_NAMES, alike)


def _unknown(name: str, in_run: Collection[str], own: Collection[str]) -> WrongUsage:
    found = near(name, [*short_names(), *FROM_NAMES, *sets(), *own, *in_run])
    likely = f"Near it are: {', '.join(found)}." if found else "No name is near it."
    return WrongUsage(
        f"There is no column {name}.",
        likely,
        f"Name a metric in full, a short name or a set: {', '.join(sets())} (docs/hotspots.md lists them).",
    )


@lru_cache(maxsize=1)
def _contract() -> dict[str, Field]:
    return {column.name: column for column in COLUMNS}


def combined_by(name: str) -> str:
    """The method of combining a kernel's launches for a metric or column by its full name."""
    if name in _contract():
        column = _contract()[name]
        return MOST_TIME if not pa.types.is_floating(column.type) else SUM if column.unit in ADDED_UP else MEAN
    by: str = next(rule["by"] for rule in _table()["full_name"] if re.fullmatch(rule["pattern"], name))
    return by
