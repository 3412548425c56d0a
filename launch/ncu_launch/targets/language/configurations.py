"""Causal models by name: their family's classes in transformers and the published values of their configuration."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).with_name("configurations.toml")


@dataclass(frozen=True)
class CausalModel:
    """A published configuration. `model` has the LM head, `base` has none; all three are names in transformers.

    `follow` are fields that take another field's value unless they have one themselves.
    """

    name: str
    configuration: str
    model: str
    base: str
    values: dict[str, Any] = field(default_factory=dict)
    follow: dict[str, str] = field(default_factory=dict)


@lru_cache(maxsize=1)
def causal_models() -> dict[str, CausalModel]:
    """Every causal model that can be built by name, as written behind `hf:`."""
    tables = tomllib.loads(FILE.read_text("utf-8"))
    return {
        name: CausalModel(name, values=values, **tables["families"][values.pop("family")])
        for name, values in tables["models"].items()
    }
