"""Facts of a kernel's instructions without a run: mix, access widths, tensor instructions, slow paths, loops.

All numbers count instructions in the code, not executions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ncu_parsers.ncu_rep.sass.sass_text import Instruction

from ncu_tools.binaries.kernel_listing import CodeListing
from ncu_tools.kernels.source.dependencies import Flow
from ncu_tools.kernels.source.instruction_mix import kind_of

TENSOR_PATHS = {
    "wgmma": re.compile(r"[HIQB]GMMA$"),
    "tcgen05": re.compile(r"UTC\w*MMA$"),
    "mma.sync": re.compile(r"[HIQODB]MMA$"),
}
"""Tensor-core instruction -> opcodes: by a warpgroup, from tensor memory, by a warp."""
SPACES = {
    "LDG": "global load", "STG": "global store", "LD": "generic load", "ST": "generic store", "LDS": "shared load",
    "STS": "shared store", "LDL": "local load", "STL": "local store", "LDGSTS": "global to shared",
}  # fmt: skip
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32, "ENL2": 32}
"""Modifier of a load or store -> bytes per thread; without one of these 4."""
ATOMICS = frozenset({"ATOM", "ATOMG", "ATOMS", "RED", "REDG", "REDS", "SUATOM", "SURED"})
_INTEGER_DIVISION = re.compile(r"I2F(?:\.[\w.]*)?\.RP$")
_PADDING = frozenset({"NOP"})


@dataclass(frozen=True)
class Loop:
    """A loop: indices of its first and last instruction and of all, its instructions by kind, and its atomics.

    `is_inner` is true if it contains no other loop.
    """

    first: int
    last: int
    places: frozenset[int]
    by_kind: dict[str, int]
    atomics: int
    opcodes: Counter[str]
    is_inner: bool

    @property
    def instructions(self) -> int:
        """The number of instructions of the loop."""
        return sum(self.by_kind.values())


@dataclass(frozen=True)
class StaticFacts:
    """Facts of a kernel's code. Only `by_opcode` includes padding (NOP), and counts opcodes with modifiers."""

    by_opcode: Counter[str]
    by_kind: dict[str, int]
    widths: dict[str, Counter[int]]
    tensor: dict[str, int]
    slow: dict[str, int]
    loops: list[Loop] = field(default_factory=list)

    @property
    def instructions(self) -> int:
        """The number of instructions without padding."""
        return sum(self.by_kind.values())

    def count(self, *opcodes: str) -> int:
        """The number of instructions with these opcodes, whatever their modifiers."""
        return sum(count for name, count in self.by_opcode.items() if name.split(".")[0] in opcodes)


def facts_of(listing: CodeListing) -> StaticFacts:
    """The facts of a kernel's code; without its control flow it has no loops."""
    found = [one for one in listing.instructions if one is not None]
    by_opcode = Counter(map(full_name, found))
    code = [one for one in found if one.opcode not in _PADDING]
    return StaticFacts(
        by_opcode,
        dict(Counter(kind_of(full_name(one)) for one in code).most_common()),
        _widths(code),
        _tensor_paths(code),
        {name: count for name, count in _slow_paths(code).items() if count},
        list(loops_of(listing.flow, listing.instructions)) if listing.flow is not None else [],
    )


def full_name(instruction: Instruction) -> str:
    """The opcode with its modifiers, as FADD.FTZ."""
    return f"{instruction.opcode}.{instruction.modifiers}" if instruction.modifiers else instruction.opcode


def _tensor_paths(code: list[Instruction]) -> dict[str, int]:
    counts = {path: sum(bool(pattern.match(one.opcode)) for one in code) for path, pattern in TENSOR_PATHS.items()}
    return {path: count for path, count in counts.items() if count}


def _widths(code: list[Instruction]) -> dict[str, Counter[int]]:
    found: dict[str, Counter[int]] = {}
    for one in code:
        if one.opcode in SPACES:
            found.setdefault(SPACES[one.opcode], Counter())[width_of(one)] += 1
    return found


def width_of(instruction: Instruction) -> int:
    """Bytes per thread that a load or store moves."""
    return max((WIDTHS[part] for part in instruction.modifiers.split(".") if part in WIDTHS), default=4)


def _slow_paths(code: list[Instruction]) -> dict[str, int]:
    """Source operation -> how often it is compiled into many instructions or a special-function one (MUFU)."""
    names = Counter(map(full_name, code))
    functions = {
        name.removeprefix("MUFU."): count for name, count in names.items()
        if name.startswith("MUFU.") and "64H" not in name
    }  # fmt: skip
    return {
        "division FP32 (FCHK)": sum(one.opcode == "FCHK" for one in code),
        "division FP64 (MUFU.RCP64H)": names["MUFU.RCP64H"],
        "division of integers (I2F.RP)": sum(bool(_INTEGER_DIVISION.match(full_name(one))) for one in code),
        "float to double (F2F.F64.F32)": names["F2F.F64.F32"],
        **{f"MUFU.{name}": count for name, count in sorted(functions.items())},
    }


def loops_of(flow: Flow, instructions: list[Instruction | None]) -> Iterator[Loop]:
    """The natural loops, found by their jumps back to the head; returns from out-of-line code make none."""
    bodies: dict[int, set[int]] = {}
    for place, target in flow.turns.items():
        if target is None or target > place or _never_ends(flow, place, target):
            continue
        body = _body(flow, target, place)
        if body is not None:
            bodies.setdefault(target, set()).update(body)
    for head, body in sorted(bodies.items()):
        code = [one for place in sorted(body) if (one := instructions[place]) is not None]
        yield Loop(
            head,
            max(body),
            frozenset(body),
            dict(Counter(kind_of(full_name(one)) for one in code).most_common()),
            sum(one.opcode in ATOMICS for one in code),
            Counter(one.opcode for one in code),
            not any(other != head and other in body for other in bodies),
        )


def _never_ends(flow: Flow, place: int, target: int) -> bool:
    """True for the jump to itself that follows the end of a kernel."""
    return place == target and not any(one != place for one in flow.precedes(place))


def _body(flow: Flow, head: int, end: int) -> set[int] | None:
    """Indices of the loop from `head` to the jump back at `end`; None if it can be entered other than by its head."""
    body, waiting = {head, end}, [end] if end != head else []
    while waiting:
        for one in flow.precedes(waiting.pop()):
            if one not in body:
                if one == 0:
                    return None
                body.add(one)
                waiting.append(one)
    return body
