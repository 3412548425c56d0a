"""Producers of the values that instructions wait for, and live registers: from SASS as text.

Jumps to computed targets (BRX, JMX) and calls hide where execution continues. Nothing is claimed across them: a value
is followed up to them, and live registers are not counted in a kernel with computed jumps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
from ncu_parsers.ncu_rep.sass.sass_text import Instruction, parse_instruction, registers_read, registers_written
from ncu_parsers.schema import arrays, tables

from ncu_tools.kernels.source.kernel_code import KernelCode

_JUMPS = frozenset({"BRA", "JMP"})
_COMPUTED_JUMPS = frozenset({"BRX", "JMX", "BRXU", "JMXU"})
_ENDS = frozenset({"EXIT", "RET", "KILL"})
_TURNS = _JUMPS | _COMPUTED_JUMPS | _ENDS
_CALLS = frozenset({"CALL", "CALLREL"})
_TARGET = r"(?P<address>0x[0-9a-f]{1,16})[\s;]*$"
"""The address at the end of a jump instruction: its target."""
MOST_STEPS = 2_000
"""Most instructions that are examined to find the origin of one value."""


_parsed = lru_cache(maxsize=65536)(parse_instruction)


@dataclass
class Flow:
    """The instructions of a kernel as text (string), and the possible successors of each.

    `turns` has the instructions that may not be followed by the next one: jumps with the index of their target, None if
    unknown, and other such instructions. Texts are parsed on first use.
    """

    texts: pa.Array
    turns: dict[int, int | None]
    _parsed: dict[int, Instruction | None] = field(default_factory=dict)

    def __len__(self) -> int:
        """The number of instructions."""
        return len(self.texts)

    def instruction(self, place: int) -> Instruction | None:
        """The instruction at an index; None if its text is none."""
        if place not in self._parsed:
            self._parsed[place] = _parsed(self.texts[place].as_py())
        return self._parsed[place]

    def follows(self, place: int) -> tuple[int, ...] | None:
        """The indices that can run right after an index; None if unknown."""
        after = (place + 1,) if place + 1 < len(self) else ()
        if place not in self.turns:
            return after
        instruction, target = self.instruction(place), self.turns[place]
        if instruction is None or instruction.opcode in _COMPUTED_JUMPS:
            return None
        if instruction.opcode in _ENDS:
            return after if instruction.predicate else ()
        if target is None:
            return None
        always = not instruction.predicate and len(instruction.operands) == 1 and "DIV" not in instruction.modifiers
        return (target,) if always else (*after, target)

    def precedes(self, place: int) -> list[int]:
        """The indices that can have run right before an index."""
        before = [one for one in self._jumps_to.get(place, ()) if place in (self.follows(one) or ())]
        falls_through = place > 0 and place - 1 not in before and place in (self.follows(place - 1) or ())
        return [place - 1, *before] if falls_through else before

    @cached_property
    def _jumps_to(self) -> dict[int, list[int]]:
        result: dict[int, list[int]] = {}
        for place, target in self.turns.items():
            if target is not None:
                result.setdefault(target, []).append(place)
        return result

    def written(self, place: int) -> frozenset[str]:
        """The registers that an instruction sets."""
        one = self.instruction(place)
        return frozenset() if one is None else registers_written(one)

    def read(self, place: int) -> frozenset[str]:
        """The registers that an instruction needs."""
        one = self.instruction(place)
        return frozenset() if one is None else registers_read(one)


def flow_of(code: KernelCode) -> Flow | None:
    """The flow of a kernel; None if its instructions are not known as text."""
    sass = code.table["sass"]
    if sass.null_count or not len(sass):
        return None
    texts = arrays.one(sass)
    codes, opcodes = tables.codes(code.table, "opcode")
    may_turn = np.array([opcode is None or opcode in _TURNS for opcode in opcodes])[codes]
    targets = arrays.cast(arrays.groups_of(arrays.kept(texts, may_turn), _TARGET)[0], pa.int64())
    jumps_to = arrays.places_among(arrays.one(code.table["address"]), targets).to_pylist()
    return Flow(texts, dict(zip(np.flatnonzero(may_turn).tolist(), jumps_to, strict=True)))


def producers(flow: Flow, place: int, opcodes: Sequence[str]) -> list[int]:
    """The indices of instructions with one of these opcodes whose results the instruction at `place` reads.

    Nearest first, on every path that leads there. Values from before a call or a computed jump are not found.
    """
    found = set[int]()
    for register in flow.read(place):
        found.update(_writers(flow, place, register))
    wanted = [one for one in found if _opcode(flow, one) in opcodes]
    return sorted(wanted, key=lambda one: (one > place, abs(place - one)))


def _opcode(flow: Flow, place: int) -> str:
    instruction = flow.instruction(place)
    return "" if instruction is None else instruction.opcode


def _writers(flow: Flow, place: int, register: str) -> Iterator[int]:
    """The last instructions before `place` that set a register, one per path that leads there."""
    seen, waiting = set[int](), flow.precedes(place)
    while waiting and len(seen) < MOST_STEPS:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        instruction = flow.instruction(one)
        if register in flow.written(one):
            yield one
            if instruction is not None and not instruction.predicate:
                continue
        if instruction is None or instruction.opcode in _CALLS:
            continue
        waiting += flow.precedes(one)


def live_registers(flow: Flow) -> list[int] | None:
    """The number of registers (R) with a value needed at or after each instruction; None with computed jumps.

    By the usual backward analysis, until nothing changes. The needs of called functions are not counted.
    """
    if any(flow.follows(place) is None for place in flow.turns):
        return None
    bits: dict[str, int] = {}

    def mask(registers: frozenset[str]) -> int:
        return sum(1 << bits.setdefault(one, len(bits)) for one in registers if one.startswith("R"))

    read = [mask(flow.read(place)) for place in range(len(flow))]
    kept = [
        ~0 if instruction is None or instruction.predicate else ~mask(registers_written(instruction))
        for instruction in map(flow.instruction, range(len(flow)))
    ]
    live = [0] * len(read)
    changed = True
    while changed:
        changed = False
        for place in reversed(range(len(read))):
            after = 0
            for one in flow.follows(place) or ():
                after |= live[one]
            now = read[place] | (after & kept[place])
            if now != live[place]:
                live[place], changed = now, True
    return [one.bit_count() for one in live]
