"""Readable, distinct names of the kernels of a binary, from their mangled names, spelt as in tables of reports.

Names are written without parameters, so kernels that are overloads of one name keep their mangled names.
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
    """The demangled name with scopes and template arguments; the mangled name where it cannot be demangled."""
    return demangled(mangled) or mangled


def readable_code_name(mangled: str) -> str:
    """The name as the tables of reports show it."""
    return readable_name(full_code_name(mangled))


def code_path(mangled: str) -> str:
    """The scopes and the function alone, as at::native::copy."""
    return function_path(full_code_name(mangled))


def is_code_called(mangled: str, pattern: re.Pattern[str]) -> bool:
    """True if the pattern is found in the mangled, the demangled or the readable name."""
    return bool(pattern.search(mangled)) or is_called(full_code_name(mangled), [pattern])


def names_apart(mangled: Iterable[str]) -> dict[str, str]:
    """Mangled name -> readable name, extended by what distinguishes it from kernels of the same readable name."""
    full = {one: full_code_name(one) for one in mangled}
    several = Counter(full.values())
    alone = {one: name if several[name] == 1 else one for one, name in full.items()}
    names = distinct_names(alone.values())
    return {one: names[name] for one, name in alone.items()}
