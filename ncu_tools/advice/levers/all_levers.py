"""Every lever under its id, in the order in which equal ones are shown."""

from __future__ import annotations

from ncu_tools.advice.levers import instructions, memory, parallelism, replacements, tiles
from ncu_tools.advice.levers.lever import LEVERS, Lever, Pulled, told_of_levers

__all__ = [
    "LEVERS",
    "Lever",
    "Pulled",
    "instructions",
    "memory",
    "parallelism",
    "replacements",
    "tiles",
    "told_of_levers",
]
