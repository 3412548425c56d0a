"""Python functions in backtraces of CUDA calls, which nsys records with --cudabacktrace and --python-backtrace=cuda.

A call names its backtrace (`callchainId`), whose frames have a function and a module each, the innermost at depth 0
("SQLite Schema Reference" in NVIDIA's Nsight Systems documentation). How nsys exports Python frames is not documented,
and no export with Python frames was available: a frame counts as Python if its module is a Python file, with or without
a line; other frames are skipped.
"""

from __future__ import annotations

import re

import pyarrow as pa

from ncu_parsers.derived.operators.python_locations import (
    BY_STACK,
    Location,
    is_machinery,
    location_columns,
    within_packages,
)
from ncu_parsers.timelines.nsys.database import MISSING, Database, Integers

TABLE = "CUDA_CALLCHAINS"
_PYTHON_FILE = re.compile(r"(.+\.py)(?::(\d{1,9}))?")


def locations_of_backtraces(database: Database, strings: dict[int, str]) -> dict[int, Location]:
    """The location of each backtrace: its innermost Python frame outside the machinery."""
    files = {number: found for number, text in strings.items() if (found := _PYTHON_FILE.fullmatch(text))}
    if not files:
        return {}
    columns = database.integers(TABLE, "id", "symbol", "module", "stackDepth")
    innermost: dict[int, tuple[int, Location]] = {}
    for chain, symbol, module, depth in zip(*(column.tolist() for column in columns.values()), strict=True):
        found = files.get(module)
        if found is None or chain == MISSING or is_machinery(file := found[1].replace("\\", "/")):
            continue
        if chain not in innermost or depth < innermost[chain][0]:
            line = int(found[2]) if found[2] else None
            innermost[chain] = depth, Location(within_packages(file), line, strings.get(symbol, "?"))
    return {chain: location for chain, (_, location) in innermost.items()}


def location_columns_of(locations: dict[int, Location], backtraces: Integers) -> list[tuple[str, str, pa.Array]]:
    """Name, unit and values of the location columns, given the backtrace of each operation's call."""
    found = [locations.get(one) for one in backtraces.tolist()]
    return location_columns(found, [None if one is None else BY_STACK for one in found])
