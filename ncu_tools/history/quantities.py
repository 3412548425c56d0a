"""The quantities that a history watches, as `rules.toml` lists them: where each comes from, and how it is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ncu_launch.files.toml_tables import table_beside
from ncu_parsers.schema.metric_forms import with_every_form

TIME, CYCLES, LAUNCHES = "time", "cycles", "launches"
CODE, METHOD, MACHINE, NOISE, UNKNOWN = "code", "method", "machine", "noise", "unknown"
"""The causes of a change."""


@dataclass(frozen=True)
class WatchedQuantity:
    """A quantity of a series; `rules.toml` explains its fields.

    `metrics` and `columns` (of launches) are alternatives, as are the lists of metrics in `sum_of`, each to be added
    up.
    """

    name: str
    title: str
    kind: str
    exact: bool = False
    tolerance: float = 0.0
    floor: float = 0.001
    moves: str = ""
    each: str = "sum"
    metrics: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    sum_of: tuple[tuple[str, ...], ...] = ()

    @property
    def is_of_a_launch(self) -> bool:
        """True for a property of a launch, such as registers: the largest value counts, and launches do not add up."""
        return self.each == "launch"


@cache
def quantities() -> dict[str, WatchedQuantity]:
    """Every quantity by name, in the order in which changes are searched."""
    return {name: _quantity(name, fields) for name, fields in table_beside(__file__, "rules")["quantity"].items()}


def _quantity(name: str, fields: Mapping[str, Any]) -> WatchedQuantity:
    """A quantity from its table; lists become tuples, so that it can be compared and hashed."""
    lists = {
        key: tuple(tuple(one) if isinstance(one, list) else one for one in value)
        for key, value in fields.items()
        if isinstance(value, list)
    }
    return WatchedQuantity(name, **{**fields, **lists})


@cache
def metrics_needed() -> frozenset[str]:
    """The columns of launches from which quantities are taken."""
    every = quantities().values()
    metrics = {name for one in every for name in (*one.metrics, *(part for parts in one.sum_of for part in parts))}
    return with_every_form(metrics) | {name for one in every for name in one.columns}
