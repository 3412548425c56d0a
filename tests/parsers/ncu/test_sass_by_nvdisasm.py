"""The text of instructions by nvdisasm: what it prints is read, and jumps name the address they lead to."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from ncu_parsers.ncu_rep.sass import sass_by_nvdisasm
from ncu_parsers.ncu_rep.sass.sass_by_nvdisasm import Disassembly, disassembled

from tests.support import cubins

PRINTED = """\
\t.headerflags\t@"EF_CUDA_64BIT_ADDRESS EF_CUDA_SM90"
//--------------------- .text.first --------------------------
\t.section\t.text.first,"ax",@progbits
        .size           first,(.L_x_3 - first)
first:
.text.first:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/              @!P0 LDG.E R4, desc[UR6][R4.64] ;
        /*0020*/                   BRA `(.L_x_1) ;
.L_x_3:
.text.second:
        /*0000*/                   EXIT ;
"""


def test_instructions_are_found_by_kernel_and_address() -> None:
    found = Disassembly(PRINTED)
    assert found.of("first", [0x1000, 0x1010], 0x1000) == ["LDC R1, c[0x0][0x28]", "@!P0 LDG.E R4, desc[UR6][R4.64]"]
    assert found.of("second", [0x2000], 0x2000) == ["EXIT"]


def test_a_jump_names_the_address_of_its_label() -> None:
    assert Disassembly(PRINTED).of("first", [0x1020], 0x1000) == ["BRA `(.L_x_1) 0x1010"]


def test_what_was_not_printed_is_unknown() -> None:
    assert Disassembly(PRINTED).of("first", [0x1030], 0x1000) == [None]
    assert Disassembly(PRINTED).of("third", [0x1000], 0x1000) == [None]


@pytest.mark.skipif(os.name == "nt", reason="the stand-in for nvdisasm is a script with a first line for Unix")
def test_the_program_on_the_path_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = tmp_path / "nvdisasm"
    stand_in.write_text(f"#!{sys.executable}\nimport sys\nassert sys.argv[1] == '-c'\nprint({PRINTED!r})\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert disassembled(b"cubin").of("second", [0x2000], 0x2000) == ["EXIT"]


BARE = """\
        /*0000*/              @!P0 BRA 0x20 ;
        /*0010*/                   RET.REL.NODEC R4 0x0 ;
        /*0020*/                   EXIT ;
"""


def test_of_a_cubin_that_the_program_refuses_it_gets_the_bare_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(command: list[str]) -> tuple[int, str]:
        return (0, BARE) if command[1:3] == ["-b", "SM0"] else (1, "nvdisasm error   : Cannot find the code address")

    monkeypatch.setattr(sass_by_nvdisasm, "ask", ask)
    monkeypatch.setattr(sass_by_nvdisasm, "tool_path", lambda: "nvdisasm")
    found = disassembled(cubins.cubin_of([]))
    assert found.of(cubins.KERNEL, [0x1000, 0x1010, 0x1020], 0x1000) == [
        "@!P0 BRA `(.L_x_20) 0x1020", "RET.REL.NODEC R4", "EXIT",
    ]  # fmt: skip
    assert not disassembled(b"no cubin")


def test_without_the_program_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert disassembled(b"cubin").of("second", [0x2000], 0x2000) == [None]
