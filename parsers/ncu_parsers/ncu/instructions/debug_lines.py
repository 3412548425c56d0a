"""Lines of the instructions of a cubin: source lines, lines of PTX, and the functions inside a kernel.

A cubin compiled with -lineinfo has a line program in `.debug_line` and one to PTX in `.nv_debug_line_sass`, without the
compilation units that DWARF readers begin at, so that programs are read one after the other. Relocations name the
function that a sequence is of. Lines where functions were inlined are those of the innermost one.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from elftools.common.exceptions import DWARFError, ELFError
from elftools.construct import ConstructError
from elftools.dwarf.lineprogram import LineProgram
from elftools.dwarf.structs import DWARFStructs
from elftools.elf.elffile import ELFFile

SOURCE_LINES, PTX_LINES = ".debug_line", ".nv_debug_line_sass"
PTX_TEXT = ".nv_debug_ptx_txt"
FUNCTION = "STT_FUNC"
DAMAGE = (
    ELFError, DWARFError, ConstructError, ValueError, LookupError, AttributeError, ArithmeticError, TypeError,
)  # fmt: skip
"""What pyelftools raises for files that are damaged."""
MOST_ROWS = 5_000_000
"""A damaged line program may go on for ever."""

Place = tuple[str | None, int]
"""File and line; PTX has no file."""


@dataclass
class KernelDebug:
    """What a cubin says of one kernel, by offset from its first instruction, each place from its offset on.

    `functions` are (offset, end, name) of functions of the device inside the kernel's code.
    """

    size: int
    lines: dict[int, Place] = field(default_factory=dict)
    ptx_lines: dict[int, Place] = field(default_factory=dict)
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


def _kernel_debug(elf: Any, kernel: str) -> KernelDebug | None:
    code = elf.get_section_by_name(f".text.{kernel}")
    if code is None:
        return None
    result = KernelDebug(int(code["sh_size"]))
    result.lines = _places(elf, SOURCE_LINES, kernel)
    result.ptx_lines = _places(elf, PTX_LINES, kernel)
    number = elf.get_section_index(code.name)
    for symbol in elf.get_section_by_name(".symtab").iter_symbols():
        is_inside = symbol["st_shndx"] == number and symbol["st_info"]["type"] == FUNCTION
        if is_inside and symbol.name != kernel and symbol["st_size"]:
            begin = int(symbol["st_value"])
            result.functions.append((begin, begin + int(symbol["st_size"]), symbol.name))
    return result


def _places(elf: Any, name: str, kernel: str) -> dict[int, Place]:
    """The places that a section of line programs gives for a kernel, by offset."""
    section = elf.get_section_by_name(name)
    if section is None:
        return {}
    of_function = _relocated(elf, name)
    data, result = section.data(), dict[int, Place]()
    for program, begin in _programs(data):
        files = _files(program.header)
        for row, function in _rows(program, of_function, begin):
            if function == kernel:
                offset, file, line = row
                result[offset] = (files.get(file), line)
    return result


def _relocated(elf: Any, name: str) -> dict[int, str]:
    """The function whose address is to stand at a place of a section, by place."""
    symbols = elf.get_section_by_name(".symtab")
    found = elf.get_section_by_name(f".rela{name}") or elf.get_section_by_name(f".rel{name}")
    if found is None:
        return {}
    return {one["r_offset"]: symbols.get_symbol(one["r_info_sym"]).name for one in found.iter_relocations()}


def _programs(data: bytes) -> Iterator[tuple[LineProgram, int]]:
    """The line programs of a section, each with the place where its instructions begin."""
    structs = DWARFStructs(little_endian=True, dwarf_format=32, address_size=8, dwarf_version=2)
    stream, at = io.BytesIO(data), 0
    while at < len(data):
        stream.seek(at)
        header = structs.Dwarf_lineprog_header.parse_stream(stream)
        begin, end = stream.tell(), at + int(header["unit_length"]) + structs.initial_length_field_size()
        yield LineProgram(header, stream, structs, begin, end), begin
        at = end


def _rows(
    program: LineProgram, of_function: dict[int, str], begin: int
) -> Iterator[tuple[tuple[int, int, int], str | None]]:
    """The rows of a program as (offset, file, line), with the function that they are of."""
    starts = iter(sorted((place, name) for place, name in of_function.items() if place >= begin))
    first, function = 0, None
    for number, entry in enumerate(program.get_entries()):
        if number > MOST_ROWS:
            raise ValueError("a line program without an end")
        if entry.is_extended and entry.command == SET_ADDRESS:
            first, function = entry.args[0], next(starts, (0, None))[1]
        elif entry.state is not None and not entry.state.end_sequence:
            yield (entry.state.address - first, entry.state.file, entry.state.line), function


SET_ADDRESS = 2
"""DW_LNE_set_address, which begins the code of a function."""


def _files(header: Any) -> dict[int, str]:
    """The paths of the files of a program by their numbers."""
    folders = [text.decode("utf-8", "replace") for text in header["include_directory"]]
    result = {}
    for number, entry in enumerate(header["file_entry"], 1):
        name, folder = entry["name"].decode("utf-8", "replace"), entry["dir_index"]
        inside = folders[folder - 1] if 0 < folder <= len(folders) else ""
        result[number] = name if name.startswith("/") or inside in ("", ".") else f"{inside}/{name}"
    return result
