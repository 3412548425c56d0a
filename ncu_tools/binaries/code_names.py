"""Readable names of kernels from their mangled ones: the qualified name of the function, without its arguments.

Source: Itanium C++ ABI, 5.1 (names). Of two kernels with one such name both keep their mangled one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_IDENTIFIER = re.compile(r"(?:St)?(\d{1,3})(?=[A-Za-z_])")
_START = re.compile(r"_ZL?(N[KVr]*)?")
_UNNAMED = "_GLOBAL__N_"
MOST_PARTS = 32


def readable_code_name(mangled: str) -> str:
    """The function's name with its namespaces, as at::native::copy; the mangled name if it has none."""
    start = _START.match(mangled)
    at, parts = start.end() if start else 0, list[str]()
    while start and (found := _IDENTIFIER.match(mangled, at)) and len(parts) < MOST_PARTS:
        end = found.end() + int(found[1])
        part = mangled[found.end() : end]
        parts += [] if part.startswith(_UNNAMED) else [part]
        at = end
        if not start[1]:
            break
    return "::".join(parts) or mangled


def names_apart(mangled: Iterable[str]) -> dict[str, str]:
    """Mangled name -> readable name where no other kernel has the same, else the mangled one."""
    names = {one: readable_code_name(one) for one in mangled}
    several = Counter(names.values())
    return {one: name if several[name] == 1 else one for one, name in names.items()}
