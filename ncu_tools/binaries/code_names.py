"""Names of kernels in binaries, from mangled ones: read as the tables of reports read names, and told apart.

A kernel of which two overloads exist keeps its mangled name, since names are written without parameters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from ncu_tools.binaries.demangled_names import demangled
from ncu_tools.kernels.names.distinct_names import distinct_names
from ncu_tools.kernels.names.kernel_titles import function_path
from ncu_tools.kernels.names.readable_names import is_called, readable_name


def full_code_name(mangled: str) -> str:
    """The name with its scopes and template arguments; where it cannot be read, as the binary has it."""
    return demangled(mangled) or mangled


def readable_code_name(mangled: str) -> str:
    """The name as the tables of reports show it."""
    return readable_name(full_code_name(mangled))


def code_path(mangled: str) -> str:
    """The scopes and the function alone, as at::native::copy."""
    return function_path(full_code_name(mangled))


def is_code_called(mangled: str, pattern: re.Pattern[str]) -> bool:
    """True if the pattern is in the mangled, the full or the readable name."""
    return bool(pattern.search(mangled)) or is_called(full_code_name(mangled), [pattern])


def names_apart(mangled: Iterable[str]) -> dict[str, str]:
    """Mangled name -> the readable name, with what tells it from others that are read alike."""
    full = {one: full_code_name(one) for one in mangled}
    several = Counter(full.values())
    alone = {one: name if several[name] == 1 else one for one, name in full.items()}
    names = distinct_names(alone.values())
    return {one: names[name] for one, name in alone.items()}
