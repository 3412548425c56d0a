"""The source line of each kernel: its hottest line by instructions, else the Python line that launches it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_parsers.schema import tables
from ncu_parsers.sources.sources import is_here

from ncu_tools.kernels.source.hot_places import LINES, hottest
from ncu_tools.kernels.source.inside_of_run import PER_INSTRUCTION, has_instructions
from ncu_tools.kernels.source.kernel_code import kernel_code
from ncu_tools.kernels.source.load_instructions import load_instructions
from ncu_tools.runs.loading import load

COUNTS = frozenset({"inst_executed", "samples"})


class SourceLine(NamedTuple):
    """A file, as the report names it, and a line, counted from 1."""

    file: str
    line: int


def kernel_lines(path: str, names: Collection[str]) -> dict[str, SourceLine]:
    """Full kernel name -> its source line, for the kernels among `names` with a known line.

    Empty if the run cannot be read again: source lines only supplement other results.
    """
    if not names or not is_here(path):
        return {}
    try:
        table = load(path).table
        found = _launching(table, names)
        if has_instructions(path, [name for name in table.column_names if name in PER_INSTRUCTION]):
            found |= _hottest(load_instructions(path, wanted=COUNTS).table, names)
    except NcuBenchError:
        return {}
    return found


def _launching(table: pa.Table, names: Collection[str]) -> dict[str, SourceLine]:
    """The Python line that launches each kernel most often."""
    places: dict[str, Counter[SourceLine]] = {}
    columns = (tables.words(table, name) for name in ("kernel_name", "python_file"))
    for name, file, line in zip(*columns, tables.floats(table, "python_line").tolist(), strict=True):
        if name in names and file and line == line:
            places.setdefault(name, Counter())[SourceLine(file, int(line))] += 1
    return {name: counts.most_common(1)[0][0] for name, counts in places.items()}


def _hottest(instructions: pa.Table, names: Collection[str]) -> dict[str, SourceLine]:
    """The line with the most samples of each kernel, else with the most executed instructions."""
    found = {}
    known = {name for name in tables.words(instructions, "kernel_name") if name is not None and name in names}
    for name in known:
        code = kernel_code(instructions, [re.compile(f"^{re.escape(name)}$")])
        by = "samples" if code.total("samples") else "executed"
        places, _ = hottest(code, LINES, by, 1)
        if places and places[0].file and places[0].line:
            found[name] = SourceLine(places[0].file, places[0].line)
    return found
