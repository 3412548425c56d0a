"""Parse an instruction text, `@!P0 LDG.E.128 R4, [R2.64+0x10] ;`: predicate, operation, operands, registers.

Source of the syntax: "Instruction Set Reference", CUDA Binary Utilities.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

import pyarrow as pa

from ncu_parsers.schema import arrays

_INSTRUCTION = re.compile(r"\s*(?:(@!?U?P\w+)\s+)?([A-Z_][A-Z0-9_]*)((?:\.[\w:]+)*)\s*(.*)$")
_OPERATION = r"^(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z_][A-Z0-9_]*)(?:\.(?P<modifiers>[\w:]+(?:\.[\w:]+)*))?"
"""As `_INSTRUCTION`, without operands, for Arrow (RE2)."""
_REGISTER = re.compile(r"(?<![\w.])(U?[RPB])(\d+)(\.64|\.reuse)?(?![\w])")
_BRACKET = re.compile(r"[\[({]")
_PREDICATE = re.compile(r"U?P(?:T|\d+)")

NO_RESULT = frozenset({
    "ST", "STG", "STL", "STS", "STSM", "SUST", "RED", "REDG", "REDS", "SURED", "UTMASTG", "UTMALDG", "UTMAPF", "UBLKCP",
    "BRA", "BRX", "JMP", "JMX", "EXIT", "RET", "CALL", "BREAK", "KILL", "BPT", "PREEXIT", "BSYNC", "WARPSYNC", "YIELD",
    "BAR", "MEMBAR", "DEPBAR", "LDGDEPBAR", "LDGSTS", "ERRBAR", "FENCE", "SYNCS", "ARRIVES", "WARPGROUP", "ACQBULK",
    "CCTL", "CCTLL", "NOP", "NANOSLEEP", "BMOV", "UTMACMDFLUSH",
})  # fmt: skip
"""Operations whose first operand is not a result."""


class Instruction(NamedTuple):
    """An instruction: its predicate with the @ ("" without), operation, modifiers joined by dots, and operands."""

    predicate: str
    opcode: str
    modifiers: str
    operands: tuple[str, ...]


def parse_instruction(text: str) -> Instruction | None:
    """Parse an instruction; None for any other text."""
    match = _INSTRUCTION.match(text.rstrip().rstrip(";").rstrip())
    if match is None:
        return None
    predicate, opcode, modifiers, operands = match.groups()
    return Instruction(predicate or "", opcode, modifiers[1:], tuple(_split(operands)))


def _split(operands: str) -> list[str]:
    """Operands at commas outside of brackets."""
    if not _BRACKET.search(operands):
        return [one.strip() for one in operands.split(",")] if operands.strip() else []
    found, depth, begin = [], 0, 0
    for place, letter in enumerate(operands):
        depth += (letter in "[({") - (letter in "])}")
        if letter == "," and depth <= 0:
            found.append(operands[begin:place].strip())
            begin = place + 1
    return [*found, operands[begin:].strip()] if operands[begin:].strip() else found


def text_columns(texts: pa.Array) -> dict[str, pa.Array]:
    """Columns sass, opcode and modifiers of instruction texts (string); opcode and modifiers are null for other texts.

    Each distinct text is parsed once.
    """
    distinct = arrays.encoded(texts)
    trimmed = arrays.trimmed(distinct.dictionary)
    opcodes, modifiers = arrays.groups_of(trimmed, _OPERATION)
    columns = {"sass": trimmed, "opcode": opcodes, "modifiers": modifiers}
    return {name: arrays.take(column, distinct.indices) for name, column in columns.items()}


@lru_cache(maxsize=65536)
def full_opcode(text: str) -> str | None:
    """The operation of an instruction with its modifiers, as HMMA.16816.F32; None for any other text."""
    match = _INSTRUCTION.match(text.rstrip().rstrip(";").rstrip())
    return None if match is None else match[2] + match[3]


def registers_written(instruction: Instruction) -> frozenset[str]:
    """The registers and predicates that an instruction sets, as R4 or P0; of wide results every register."""
    written = set[str]()
    for operand in instruction.operands[: _results(instruction)]:
        written |= _registers(operand, 1 if _PREDICATE.fullmatch(operand) else _width(instruction))
    return frozenset(written)


def registers_read(instruction: Instruction) -> frozenset[str]:
    """The registers and predicates whose values an instruction needs, its predicate among them."""
    read = _registers(instruction.predicate, 1)
    for operand in instruction.operands[_results(instruction) :]:
        read |= _registers(operand, _source_width(instruction, operand))
    return frozenset(read)


def _results(instruction: Instruction) -> int:
    """The number of leading operands that are results.

    A predicate after the result is a result too (the carry of an addition), and so is a register after a predicate (of
    a shuffle). Comparisons set two predicates and read all others.
    """
    operands, opcode = instruction.operands, instruction.opcode
    if opcode in NO_RESULT or not operands:
        return 0
    if opcode.endswith("SETP") or opcode.endswith("PLOP3"):
        return 2
    behind = list(operands[1:3])
    if _PREDICATE.fullmatch(operands[0]):
        return 2 if behind and not _PREDICATE.fullmatch(behind[0]) else 1
    return 1 + len(list(takewhile(_PREDICATE.fullmatch, behind)))


def _registers(operand: str, width: int) -> set[str]:
    found: set[str] = set()
    for kind, number, behind in _REGISTER.findall(operand):
        count = 1 if kind.endswith(("P", "B")) else max(2 if behind == ".64" else 1, width)
        found.update(f"{kind}{int(number) + step}" for step in range(count))
    return found


_WIDTHS = {"64": 2, "128": 4, "256": 8}
_MATRIX_RESULTS = {"HMMA": 2, "IMMA": 4, "QMMA": 4, "DMMA": 4, "BMMA": 4}


def _width(instruction: Instruction) -> int:
    """The number of consecutive registers that an instruction writes."""
    parts = instruction.modifiers.split(".")
    if instruction.opcode.startswith(("LD", "ATOM", "TEX", "TLD", "SULD")):
        return max((_WIDTHS.get(part, 1) for part in parts), default=1)
    if instruction.opcode == "HMMA":
        return 4 if "F32" in parts else 2
    if instruction.opcode in _MATRIX_RESULTS:
        return _MATRIX_RESULTS[instruction.opcode]
    if instruction.opcode in ("DADD", "DMUL", "DFMA", "DSETP") or "WIDE" in parts or parts[-1:] == ["64"]:
        return 2
    return 2 if instruction.opcode in ("I2F", "F2F") and "F64" in parts[:1] else 1


def _source_width(instruction: Instruction, operand: str) -> int:
    """The number of consecutive registers of a source operand: stores read as many as loads of the same width write."""
    if "[" in operand:
        return 2 if operand.endswith(".64]") or (".E" in f".{instruction.modifiers}" and ".U" not in operand) else 1
    parts = instruction.modifiers.split(".")
    if instruction.opcode.startswith(("ST", "RED", "ATOM")):
        return max((_WIDTHS.get(part, 1) for part in parts), default=1)
    if instruction.opcode in ("DADD", "DMUL", "DFMA", "DSETP"):
        return 2
    if instruction.opcode in _MATRIX_RESULTS:
        return 4
    if "WIDE" in parts and instruction.operands and operand == instruction.operands[-1]:
        return 2
    return 1
