"""Lines of the instructions of a cubin: source lines, lines of PTX, and the functions inside a kernel.

A cubin compiled with -lineinfo has a line program in `.debug_line` and one to PTX in `.nv_debug_line_sass`. Lines where
functions were inlined are those of the innermost one, with the calls that lead there if the compiler names them.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

from elftools.common.exceptions import DWARFError, ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile

from ncu_parsers.ncu_rep.instructions.line_programs import LinePlace, places_of, sizes_of

SOURCE_LINES, PTX_LINES = ".debug_line", ".nv_debug_line_sass"
PTX_TEXT = ".nv_debug_ptx_txt"
FUNCTION = "STT_FUNC"
DAMAGE = (
    ELFError, DWARFError, ConstructError, ValueError, LookupError, AttributeError, ArithmeticError, TypeError,
)  # fmt: skip
"""What pyelftools raises for files that are damaged."""


@dataclass
class KernelDebug:
    """What a cubin says of one kernel, by offset from its first instruction, each place from its offset on.

    `functions` are (offset, end, name) of functions of the device inside the kernel's code.
    """

    size: int
    lines: dict[int, LinePlace] = field(default_factory=dict)
    ptx_lines: dict[int, LinePlace] = field(default_factory=dict)
    functions: list[tuple[int, int, str]] = field(default_factory=list)


def kernel_debug(cubin: bytes, kernel: str) -> KernelDebug | None:
    """What a cubin says of the kernel with this mangled name; None if it is damaged or has no such kernel."""
    try:
        return _kernel_debug(ELFFile(io.BytesIO(cubin)), kernel)
    except DAMAGE:
        return None


def ptx_text(cubin: bytes) -> list[str]:
    """The lines of the PTX that a cubin holds, the first one being line 1; [] if it holds none."""
    if not cubin:
        return []
    try:
        sections = ELFFile(io.BytesIO(cubin)).iter_sections()
        section = next((one for one in sections if one.name.startswith(PTX_TEXT)), None)
        return [] if section is None else section.data().decode("utf-8", "replace").split("\0")
    except DAMAGE:
        return []


def file_sizes(cubin: bytes) -> dict[str, int]:
    """The bytes that the source files of a cubin had when they were compiled, by path; {} where it does not say."""
    if not cubin:
        return {}
    try:
        return sizes_of(ELFFile(io.BytesIO(cubin)), SOURCE_LINES)
    except DAMAGE:
        return {}


def _kernel_debug(elf: Any, kernel: str) -> KernelDebug | None:
    code = elf.get_section_by_name(f".text.{kernel}")
    if code is None:
        return None
    result = KernelDebug(int(code["sh_size"]))
    result.lines = places_of(elf, SOURCE_LINES, kernel)
    result.ptx_lines = places_of(elf, PTX_LINES, kernel)
    number = elf.get_section_index(code.name)
    for symbol in elf.get_section_by_name(".symtab").iter_symbols():
        is_inside = symbol["st_shndx"] == number and symbol["st_info"]["type"] == FUNCTION
        if is_inside and symbol.name != kernel and symbol["st_size"]:
            begin = int(symbol["st_value"])
            result.functions.append((begin, begin + int(symbol["st_size"]), symbol.name))
    return result
