"""SASS instructions are taken apart: operations, registers that they set and need."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.ncu_rep.sass.sass_text import parse_instruction, registers_read, registers_written

CASES = {
    "      FFMA R4, R2, R3, R4 ;": ("", "FFMA", "", {"R4"}, {"R2", "R3", "R4"}),
    "@!P0  LDG.E.128 R4, [R2.64+0x10] ": ("@!P0", "LDG", "E.128", {"R4", "R5", "R6", "R7"}, {"P0", "R2", "R3"}),
    "      STG.E [R2.64], R5 ": ("", "STG", "E", set(), {"R2", "R3", "R5"}),
    "      STS.128 [R5], R8 ": ("", "STS", "128", set(), {"R5", "R8", "R9", "R10", "R11"}),
    "      ISETP.GE.AND P1, PT, R0, c[0x0][0x170], PT ": ("", "ISETP", "GE.AND", {"P1"}, {"R0"}),
    "      IADD3 R2, P0, R2, 0x400, RZ ": ("", "IADD3", "", {"R2", "P0"}, {"R2"}),
    "      IMAD.WIDE.U32 R2, R7, c[0x0][0x0], R2 ": ("", "IMAD", "WIDE.U32", {"R2", "R3"}, {"R7", "R2", "R3"}),
    "      DADD R2, R4, R6 ": ("", "DADD", "", {"R2", "R3"}, {"R4", "R5", "R6", "R7"}),
    "      S2R R0, SR_TID.X ": ("", "S2R", "", {"R0"}, set()),
    "      ULDC.64 UR4, c[0x0][0x118] ": ("", "ULDC", "64", {"UR4", "UR5"}, set()),
    "      HMMA.16816.F32 R4, R8, R12, R4 ": (
        "", "HMMA", "16816.F32", {"R4", "R5", "R6", "R7"}, {f"R{n}" for n in range(4, 16)},
    ),
    "      BRA 0x7f3a5e200070 ": ("", "BRA", "", set(), set()),
    "      BAR.SYNC.DEFER_BLOCKING 0x0 ": ("", "BAR", "SYNC.DEFER_BLOCKING", set(), set()),
}  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_an_instruction_sets_and_needs_these_registers(text: str) -> None:
    predicate, opcode, modifiers, written, read = CASES[text]
    found = parse_instruction(text)
    assert found is not None
    assert (found.predicate, found.opcode, found.modifiers) == (predicate, opcode, modifiers)
    assert registers_written(found) == written
    assert registers_read(found) == read


def test_the_registers_of_zero_and_of_truth_are_none() -> None:
    found = parse_instruction("IMAD.MOV.U32 RZ, RZ, RZ, URZ")
    assert found is not None
    assert not registers_written(found) | registers_read(found)


@given(st.text(max_size=80))
def test_any_text_is_an_instruction_or_none(text: str) -> None:
    found = parse_instruction(text)
    if found is not None:
        registers_read(found)
        registers_written(found)
