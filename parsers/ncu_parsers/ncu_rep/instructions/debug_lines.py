"""Debug information of a cubin's instructions: source lines, PTX lines, and the functions inside a kernel.

A cubin compiled with -lineinfo has a line program in `.debug_line` and one to PTX in `.nv_debug_line_sass`. For inlined
functions, the line is in the innermost function, with the chain of calls if the compiler records it.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

from elftools.common.exceptions import DWARFError
from elftools.elf.elffile import ELFFile

from ncu_parsers.ncu_rep.instructions.line_programs import LinePlace, places_of, sizes_of
from ncu_parsers.ncu_rep.sass.sass_by_nvdisasm import DAMAGED_ELF

SOURCE_LINES, PTX_LINES = ".debug_line", ".nv_debug_line_sass"
PTX_TEXT = ".nv_debug_ptx_txt"
FUNCTION = "STT_FUNC"
DAMAGE = (DWARFError, *DAMAGED_ELF)
"""Exceptions that pyelftools raises for damaged files and lines."""


@dataclass
class KernelDebug:
    """Debug information of one kernel, by offset from its first instruction; each place holds from its offset on.

    `functions` are (offset, end, name) of device functions inside the kernel's code.
    """

    size: int
    lines: dict[int, LinePlace] = field(default_factory=dict)
    ptx_lines: dict[int, LinePlace] = field(default_factory=dict)
    functions: list[tuple[int, int, str]] = field(default_factory=list)


def kernel_debug(cubin: bytes, kernel: str) -> KernelDebug | None:
    """The debug information of the kernel with this mangled name; None if the cubin is damaged or lacks the kernel."""
    try:
        return _kernel_debug(ELFFile(io.BytesIO(cubin)), kernel)
    except DAMAGE:
        return None


def ptx_text(cubin: bytes) -> list[str]:
    """The PTX lines in a cubin, the first one being line 1; [] without PTX."""
    if not cubin:
        return []
    try:
        sections = ELFFile(io.BytesIO(cubin)).iter_sections()
        section = next((one for one in sections if one.name.startswith(PTX_TEXT)), None)
        return [] if section is None else section.data().decode("utf-8", "replace").split("\0")
    except DAMAGE:
        return []


def file_sizes(cubin: bytes) -> dict[str, int]:
    """Size in bytes of a cubin's source files at compilation, by path; {} if not recorded."""
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
