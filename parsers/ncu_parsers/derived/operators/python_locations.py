"""Where in a Python program a launch comes from: file, line and function.

The location is the innermost stack frame outside the machinery between a model and its kernels: PyTorch, Triton,
wrappers of functions, files that a compiler wrote (`machinery.toml`). PyTorch's profiler writes a frame as `path(line):
function`, the path relative to its folder of `sys.path`. The line is the first line of the function, not the one that
runs: the call event is recorded when the function is entered (torch/csrc/autograd/profiler_python.cpp).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ncu_parsers.schema import arrays, tables

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PYTHON_FILE, PYTHON_LINE, PYTHON_FUNCTION, LOCATION_BASIS = (
    "python_file", "python_line", "python_function", "location_basis",
)  # fmt: skip
LOCATION_COLUMNS = (PYTHON_FILE, PYTHON_LINE, PYTHON_FUNCTION, LOCATION_BASIS)
"""Columns of launches: the location, null if unknown, and its basis."""

BY_STACK, BY_FORWARD, BY_MODULE = "call stack", "forward operator", "module"
"""Values of `LOCATION_BASIS`: the stack of the launching call; the stack of a backward operator's forward operator; the
forward function of the module in one of our NVTX ranges, or the line that opened a user's range."""

COMPILED_LINES = "compiled_lines"
"""Column of launches in memory: the model lines of compiler-generated kernels, which are their location."""
NO_LOCATION = "(no location)"

_MACHINERY = Path(__file__).with_name("machinery.toml")
_FRAME = re.compile(r"(.+)\((\d{1,9})\): (.+)", re.DOTALL)
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_STANDARD_LIBRARY = re.compile(r".*/lib/python\d+(?:\.\d+)?/")


class Location(NamedTuple):
    """A function in a Python program. `line` is None if unknown."""

    file: str
    line: int | None
    function: str

    @property
    def title(self) -> str:
        """Location formatted as `models/net.py:12 (forward)`."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place} ({self.function})"


def location_in(frame: str) -> Location | None:
    """Parse a frame as PyTorch's profiler writes it; None for machinery, built-in functions and other text."""
    found = None if frame.startswith("<") else _FRAME.fullmatch(frame)
    if found is None:
        return None
    file = found[1].replace("\\", "/")
    if is_machinery(file) or found[3] in _machinery()["functions"]:
        return None
    return Location(within_packages(file), int(found[2]), found[3])


def within_packages(file: str) -> str:
    """The path relative to site-packages; unchanged for files outside installed packages."""
    return _PACKAGES.sub("", file)


def is_machinery(file: str) -> bool:
    """True for a file (with `/` between folders) that belongs to no model or program."""
    known = _machinery()
    if any(part in file for part in known["inside"]) or any(re.search(f"{one}$", file) for one in known["hashed"]):
        return True
    is_library = bool(_STANDARD_LIBRARY.match(file)) and not _PACKAGES.match(file)
    first = within_packages(file).partition("/")[0]
    return is_library or first in known["packages"] or first in known["standard_library"]


@lru_cache(maxsize=1)
def _machinery() -> Mapping[str, frozenset[str]]:
    listed = tomllib.loads(_MACHINERY.read_text(encoding="utf-8"))
    return {name: frozenset(values) for name, values in listed.items()}


def location_columns(
    locations: Sequence[Location | None], bases: Sequence[str | None]
) -> list[tuple[str, str, pa.Array]]:
    """Name, unit and values of the location columns, which only some launch tables have."""
    return [
        (PYTHON_FILE, "", arrays.dictionary([one.file if one else None for one in locations])),
        (PYTHON_LINE, "", arrays.integers([one.line if one else None for one in locations], pa.int64())),
        (PYTHON_FUNCTION, "", arrays.dictionary([one.function if one else None for one in locations])),
        (LOCATION_BASIS, "", arrays.dictionary(bases)),
    ]


def with_locations_of_modules(table: pa.Table, functions: Mapping[str, Location]) -> pa.Table:
    """Add to launches the location of their module, by its path; unchanged if they have locations.

    A module of PyTorch itself gets the location of the module around it.
    """
    if not functions or PYTHON_FILE in table.column_names:
        return table
    codes, modules = tables.codes(table, "module")
    found = [_nearest(module, functions) for module in modules]
    locations = [found[code] for code in codes.tolist()]
    for name, unit, values in location_columns(locations, [None if one is None else BY_MODULE for one in locations]):
        field = pa.field(name, values.type, metadata=tables.field_metadata(unit=unit))
        table = table.append_column(field, values)
    return table


def _nearest(module: str | None, functions: Mapping[str, Location]) -> Location | None:
    """The location of a module, or of the innermost enclosing module whose file is not machinery."""
    while module:
        found = functions.get(module)
        if found is not None and not is_machinery(found.file):
            return found._replace(file=within_packages(found.file))
        module = module.rpartition(".")[0]
    return None


def location_titles(table: pa.Table) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Index of each launch's location into the list of titles; `NO_LOCATION` if unknown."""
    files, names = tables.codes(table, PYTHON_FILE)
    functions, called = tables.codes(table, PYTHON_FUNCTION)
    lines = np.nan_to_num(tables.floats(table, PYTHON_LINE), nan=-1).astype(np.int64)
    distinct, numbers = np.unique(np.stack([files.astype(np.int64), lines, functions]), axis=1, return_inverse=True)
    titles = []
    for file, line, function in distinct.T.tolist():
        name, line_known = names[file], None if line < 0 else line
        titles.append(Location(name, line_known, called[function] or "?").title if name else NO_LOCATION)
    known: dict[str, int] = {}
    places = np.array([known.setdefault(title, len(known)) for title in titles], np.int64)
    by_stack = places[numbers.reshape(-1)] if len(table) else np.empty(0, np.int64)
    codes, compiled = tables.codes(table, COMPILED_LINES)
    made = np.array([-1 if one is None else known.setdefault(one, len(known)) for one in compiled], np.int64)[codes]
    return np.where(made >= 0, made, by_stack), list(known)
