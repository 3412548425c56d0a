"""Debug information of a cubin's instructions: source lines, PTX lines, and the functions inside a kernel.

A cubin compiled with -lineinfo has line programs in `.debug_line` (source) and `.nv_debug_line_sass` (PTX). For inlined
functions, the line is in the innermost function, with the chain of calls if the compiler records it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from ncu_parsers.ncu_rep.instructions.line_programs import LinePlace, places_of, sizes_of
from ncu_parsers.sources.elf import FUNCTION, DamagedBinary, Elf

SOURCE_LINES, PTX_LINES = ".debug_line", ".nv_debug_line_sass"
PTX_TEXT = ".nv_debug_ptx_txt"
DAMAGE = (DamagedBinary, struct.error, ValueError, LookupError, ArithmeticError)
"""Exceptions that damaged files and lines raise."""


@dataclass
class KernelDebug:
    """Debug information of one kernel, by offset from its first instruction; each place holds from its offset on.

    `size` is the code's in bytes. `functions` are (offset, end, name) of device functions inside the kernel's code.
    """

    size: int
    lines: dict[int, LinePlace] = field(default_factory=dict)
    ptx_lines: dict[int, LinePlace] = field(default_factory=dict)
    functions: list[tuple[int, int, str]] = field(default_factory=list)


def kernel_debug(cubin: bytes, kernel: str) -> KernelDebug | None:
    """The debug information of the kernel with this mangled name; None if the cubin is damaged or lacks the kernel."""
    try:
        return _kernel_debug(Elf.of(cubin), kernel)
    except DAMAGE:
        return None


def ptx_text(cubin: bytes) -> list[str]:
    """The PTX lines in a cubin, the first one being line 1; [] without PTX."""
    if not cubin:
        return []
    try:
        elf = Elf.of(cubin)
        section = next((one for one in elf.sections if one.name.startswith(PTX_TEXT)), None)
        return [] if section is None else elf.content(section).decode("utf-8", "replace").split("\0")
    except DAMAGE:
        return []


def file_sizes(cubin: bytes) -> dict[str, int]:
    """Size in bytes of a cubin's source files at compilation, by path; {} if not recorded."""
    if not cubin:
        return {}
    try:
        return sizes_of(Elf.of(cubin), SOURCE_LINES)
    except DAMAGE:
        return {}


def _kernel_debug(elf: Elf, kernel: str) -> KernelDebug | None:
    code = elf.section(f".text.{kernel}")
    if code is None:
        return None
    result = KernelDebug(code.size)
    result.lines = places_of(elf, SOURCE_LINES, kernel)
    result.ptx_lines = places_of(elf, PTX_LINES, kernel)
    number = elf.sections.index(code)
    for symbol in elf.symbols:
        is_inside = symbol.section == number and symbol.kind == FUNCTION
        if is_inside and symbol.name != kernel and symbol.size:
            result.functions.append((symbol.offset, symbol.offset + symbol.size, symbol.name))
    return result
