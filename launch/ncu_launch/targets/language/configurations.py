"""Causal models by name: their family's classes in transformers and the published values of their configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ncu_launch.files.toml_tables import table_beside


@dataclass(frozen=True)
class CausalModel:
    """A published configuration: `values` of the transformers class `configuration`, whose other fields have defaults.

    `model` is the class with the LM head, `base` the one without. `follow` maps fields to the field whose value they
    default to.
    """

    name: str
    configuration: str
    model: str
    base: str
    values: dict[str, Any] = field(default_factory=dict)
    follow: dict[str, str] = field(default_factory=dict)


@lru_cache(maxsize=1)
def causal_models() -> dict[str, CausalModel]:
    """Every causal model that can be built, by its name after `hf:`."""
    tables, found = table_beside(__file__, "configurations"), {}
    for name, entry in tables["models"].items():
        values = {key: value for key, value in entry.items() if key != "family"}
        found[name] = CausalModel(name, values=values, **tables["families"][entry["family"]])
    return found
