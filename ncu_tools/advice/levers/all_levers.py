"""All levers by id, in the order that ties are shown in."""

from __future__ import annotations

from ncu_tools.advice.levers import instructions, memory, parallelism, replacements, tiles
from ncu_tools.advice.levers.lever import LEVERS, Lever, Pulled, lever_texts

__all__ = [
    "LEVERS",
    "Lever",
    "Pulled",
    "instructions",
    "lever_texts",
    "memory",
    "parallelism",
    "replacements",
    "tiles",
]
