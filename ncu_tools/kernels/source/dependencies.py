"""Which instruction made the value that another waits for, and how many registers hold values: from SASS as text.

Jumps to computed targets (BRX, JMX) and calls hide where the program goes on. Across them nothing is claimed: a value
is followed up to them, and registers that are live are not counted in a kernel with computed jumps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ncu_parsers.ncu.sass.sass_text import Instruction, parse_instruction, registers_read, registers_written

from ncu_tools.kernels.source.kernel_code import KernelCode

_JUMPS = frozenset({"BRA", "JMP"})
_COMPUTED_JUMPS = frozenset({"BRX", "JMX", "BRXU", "JMXU"})
_ENDS = frozenset({"EXIT", "RET", "KILL"})
_CALLS = frozenset({"CALL", "CALLREL"})
_ADDRESS = re.compile(r"0x([0-9a-f]+)$")
MOST_STEPS = 20_000
"""Most instructions that are looked at to find where one value comes from."""


@dataclass
class Flow:
    """The instructions of a kernel and where the program can go on after each.

    `follows[i]` are the places that can run right after place `i`; None where they cannot be told.
    """

    instructions: list[Instruction | None]
    follows: list[tuple[int, ...] | None]

    @cached_property
    def precedes(self) -> list[list[int]]:
        """The places that can have run right before each place."""
        result: list[list[int]] = [[] for _ in self.instructions]
        for place, after in enumerate(self.follows):
            for one in after or ():
                result[one].append(place)
        return result

    @cached_property
    def written(self) -> list[frozenset[str]]:
        """The registers that each instruction sets."""
        return [frozenset() if one is None else registers_written(one) for one in self.instructions]

    @cached_property
    def read(self) -> list[frozenset[str]]:
        """The registers that each instruction needs."""
        return [frozenset() if one is None else registers_read(one) for one in self.instructions]


def flow_of(code: KernelCode) -> Flow | None:
    """The flow of a kernel; None where its instructions are not known as text."""
    texts = code.table["sass"].to_pylist()
    if any(text is None for text in texts) or not texts:
        return None
    instructions = [parse_instruction(text) for text in texts]
    places = {address: place for place, address in enumerate(code.table["address"].to_pylist())}
    return Flow(instructions, [_follows(one, place, places, len(texts)) for place, one in enumerate(instructions)])


def _follows(
    instruction: Instruction | None, place: int, places: dict[int | None, int], count: int
) -> tuple[int, ...] | None:
    after = (place + 1,) if place + 1 < count else ()
    if instruction is None or instruction.opcode in _COMPUTED_JUMPS:
        return None
    if instruction.opcode in _ENDS:
        return after if instruction.predicate else ()
    if instruction.opcode not in _JUMPS:
        return after
    target = _ADDRESS.search(instruction.operands[-1]) if instruction.operands else None
    found = places.get(int(target[1], 16)) if target else None
    if found is None:
        return None
    always = not instruction.predicate and len(instruction.operands) == 1 and "DIV" not in instruction.modifiers
    return (found,) if always else (*after, found)


def producers(flow: Flow, place: int, opcodes: Sequence[str]) -> list[int]:
    """The places of the instructions whose results the one at `place` reads, of these operations.

    Nearest first, on every way that leads there. Values that come from before a call or a computed jump are not found.
    """
    found = set[int]()
    for register in flow.read[place]:
        found.update(_writers(flow, place, register))
    wanted = [one for one in found if _opcode(flow, one) in opcodes]
    return sorted(wanted, key=lambda one: (one > place, abs(place - one)))


def _opcode(flow: Flow, place: int) -> str:
    instruction = flow.instructions[place]
    return "" if instruction is None else instruction.opcode


def _writers(flow: Flow, place: int, register: str) -> Iterator[int]:
    """The last instructions before `place` that set a register, one for each way that leads there."""
    seen, waiting = set[int](), list(flow.precedes[place])
    while waiting and len(seen) < MOST_STEPS:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        instruction = flow.instructions[one]
        if register in flow.written[one]:
            yield one
            if instruction is not None and not instruction.predicate:
                continue
        if instruction is None or instruction.opcode in _CALLS:
            continue
        waiting += flow.precedes[one]


def live_registers(flow: Flow) -> list[int] | None:
    """How many registers (R) hold a value that is needed at or after each instruction; None with computed jumps.

    By the usual backward analysis, until nothing changes. What a called function needs is not counted.
    """
    if any(after is None for after in flow.follows):
        return None
    bits: dict[str, int] = {}

    def mask(registers: frozenset[str]) -> int:
        return sum(1 << bits.setdefault(one, len(bits)) for one in registers if one.startswith("R"))

    read = [mask(one) for one in flow.read]
    kept = [
        ~0 if instruction is None or instruction.predicate else ~mask(written)
        for instruction, written in zip(flow.instructions, flow.written, strict=True)
    ]
    live = [0] * len(read)
    changed = True
    while changed:
        changed = False
        for place in reversed(range(len(read))):
            after = 0
            for one in flow.follows[place] or ():
                after |= live[one]
            now = read[place] | (after & kept[place])
            if now != live[place]:
                live[place], changed = now, True
    return [one.bit_count() for one in live]
