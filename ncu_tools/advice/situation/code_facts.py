"""Facts of a kernel's executed instructions for levers: widths of loads, divisions, moves, atomics, matrix products.

Counts are warp instructions, of all launches counted together. They are from the table of instructions, else from the
counts per opcode that a report has for a launch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from ncu_parsers.derived.opcode_lists import named_instances
from ncu_parsers.schema import tables

from ncu_tools.kernels.source.instruction_mix import COLUMNS, kind_of

WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
"""Modifier of a load or store -> bytes per thread; 4 without one."""
_SELF_MOVE = re.compile(r"MOV (U?R\d+), \1\s*;?$")


@dataclass
class CodeFacts:
    """Warp instructions executed by opcode with modifiers, and facts that only single instructions show.

    `self_moves` are copies of a register to itself, which only builds without optimisation have; `samples` are stall
    samples by opcode.
    """

    executed: Mapping[str, float]
    self_moves: float = 0.0
    has_text: bool = False
    samples: Mapping[str, float] = field(default_factory=dict)
    measures: set[str] = field(default_factory=set)
    """Measures that the instructions have, named as for `ncu-bench source --sort`."""
    global_loads: float = 0.0
    uniform_loads: float = 0.0
    """Executed loads from global memory, and those with one sector per warp: one address for all threads."""

    @cached_property
    def total(self) -> float:
        """Warp instructions of all opcodes."""
        return sum(self.executed.values())

    @cached_property
    def by_kind(self) -> dict[str, float]:
        """Warp instructions by kind of `opcodes.toml`."""
        found: dict[str, float] = {}
        for opcode, count in self.executed.items():
            kind = kind_of(opcode)
            found[kind] = found.get(kind, 0.0) + count
        return found

    def share(self, *kinds: str) -> float:
        """The share of instructions of these kinds; 0 where none was executed."""
        return sum(self.by_kind.get(kind, 0.0) for kind in kinds) / self.total if self.total else 0.0

    def count(self, pattern: str) -> float:
        """Warp instructions whose opcode with modifiers matches a pattern at its start."""
        expression = re.compile(pattern)
        return sum(count for opcode, count in self.executed.items() if expression.match(opcode))

    def of(self, pattern: str) -> float:
        """The share of instructions whose opcode with modifiers matches a pattern at its start."""
        return self.count(pattern) / self.total if self.total else 0.0

    def width(self, opcode: str) -> float:
        """Mean bytes per thread of the executed accesses with an opcode; NaN without any."""
        found = [(_bytes_of(name), count) for name, count in self.executed.items() if name.split(".")[0] == opcode]
        whole = sum(count for _, count in found)
        return sum(one * count for one, count in found) / whole if whole else math.nan


def _bytes_of(opcode: str) -> float:
    return max((WIDTHS[part] for part in opcode.split(".")[1:] if part in WIDTHS), default=4.0)


def facts_of_instructions(instructions: pa.Table) -> dict[str, CodeFacts]:
    """The facts of every kernel with counts in a table of instructions, by full name."""
    names = tables.words(instructions, "kernel_name")
    opcodes, modifiers = tables.words(instructions, "opcode"), tables.words(instructions, "modifiers")
    texts = tables.words(instructions, "sass")
    counts = tables.or_zero(tables.floats(instructions, "inst_executed")).tolist()
    samples = tables.or_zero(tables.floats(instructions, "samples")).tolist()
    sectors = tables.floats(instructions, "l2_sectors").tolist()
    threads = tables.floats(instructions, "avg_threads").tolist()
    shared = tables.floats(instructions, "shared_wavefronts").tolist()
    found: dict[str, CodeFacts] = {}
    rows = zip(names, opcodes, modifiers, texts, counts, samples, sectors, threads, shared, strict=True)
    for name, opcode, modifier, text, count, sampled, touched, active, passes in rows:
        if opcode is None:
            continue
        facts = found.setdefault(name or "?", CodeFacts({}, has_text=True))
        whole = f"{opcode}.{modifier}" if modifier else opcode
        facts.executed[whole] = facts.executed.get(whole, 0.0) + count  # type: ignore[index]
        facts.samples[opcode] = facts.samples.get(opcode, 0.0) + sampled  # type: ignore[index]
        counted = {"executed": count, "samples": sampled, "sectors": touched, "conflicts": passes}
        facts.measures |= {measure for measure, value in counted.items() if value > 0}
        if opcode in ("LDG", "LD"):
            facts.global_loads += count
            facts.uniform_loads += count if count and 0.5 * count < touched <= 1.05 * count and not active < 9 else 0.0
        facts.self_moves += count if text and _SELF_MOVE.search(text) else 0.0
    return {name: facts for name, facts in found.items() if facts.total}


def facts_of_opcodes(launches: pa.Table) -> dict[str, CodeFacts]:
    """The facts of every kernel whose launches have counts per opcode, by full name."""
    names = tables.words(launches, "kernel_name")
    found: dict[str, CodeFacts] = {}
    for column in COLUMNS:
        if column not in launches.column_names:
            continue
        for name, text in zip(names, launches[column].to_pylist(), strict=True):
            if text and (name or "?") not in found:
                executed = dict(named_instances(text) or {})
                if executed:
                    found[name or "?"] = CodeFacts(executed)
    return found
