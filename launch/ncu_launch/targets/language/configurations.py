"""Causal models by name: their family's classes in transformers and the published values of their configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ncu_launch.files.toml_tables import table_beside


@dataclass(frozen=True)
class CausalModel:
    """A published configuration. `model` has the LM head, `base` has none; all three are names in transformers.

    `follow` are fields that default to another field's value.
    """

    name: str
    configuration: str
    model: str
    base: str
    values: dict[str, Any] = field(default_factory=dict)
    follow: dict[str, str] = field(default_factory=dict)


@lru_cache(maxsize=1)
def causal_models() -> dict[str, CausalModel]:
    """Every causal model that can be built by name, as written after `hf:`."""
    tables, found = table_beside(__file__, "configurations"), {}
    for name, entry in tables["models"].items():
        values = {key: value for key, value in entry.items() if key != "family"}
        found[name] = CausalModel(name, values=values, **tables["families"][entry["family"]])
    return found
