"""Line programs of a cubin: the source line of each instruction, and the call at which its function was inlined.

NVIDIA writes DWARF 2 without compilation units, so the programs are read one after the other. Relocations name the
function of each sequence. NVIDIA added two things, which DWARF readers skip: an extended operation with the row of the
call (from 1, of the same function), and the position of function names at the end of a header. Source:
`DW_LNE_NVIDIA_inlined_call` of elfutils, `nvdisasm -gi`; `function_name`, `inlined_at` in the PTX ISA, `.loc`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, NamedTuple

from elftools.dwarf.structs import DWARFStructs

COPY, ADVANCE_PC, ADVANCE_LINE, SET_FILE, CONST_ADD_PC, FIXED_ADVANCE_PC = 1, 2, 3, 4, 8, 9
EXTENDED, END_SEQUENCE, SET_ADDRESS, INLINED_CALL = 0, 1, 2, 0x90
"""Operations of line programs (DWARF 2, 6.2.5), and NVIDIA's addition."""
MOST_CALLS = 64
"""Most nested calls; in damaged files a call may contain itself."""


class LinePlace(NamedTuple):
    """File and line; PTX has no file. `calls` are the call sites of the line's inlined function, innermost first."""

    file: str | None
    line: int
    calls: tuple[tuple[str | None, int], ...] = ()


class _Row(NamedTuple):
    """A row of a program. `call` is the index of the call's row among the program's rows, None if not inlined."""

    function: str | None
    offset: int
    file: int
    line: int
    call: int | None


def places_of(elf: Any, name: str, function: str) -> dict[int, LinePlace]:
    """Offset -> place, from a section's line programs for one function; each place holds from its offset on.

    Of several places at one offset the last is used, in the innermost function. Raises pyelftools' errors for damage.
    """
    section = elf.get_section_by_name(name)
    if section is None:
        return {}
    relocated, data, result = _relocated(elf, name), section.data(), dict[int, LinePlace]()
    for header, begin, end in _programs(data):
        files, rows = _files(header), _rows(data, header, begin, end, relocated)
        for row in rows:
            if row.function == function:
                calls = tuple((files.get(one.file), one.line) for one in _calls(row, rows))
                result[row.offset] = LinePlace(files.get(row.file), row.line, calls)
    return result


def sizes_of(elf: Any, name: str) -> dict[str, int]:
    """Size in bytes of source files at compilation, by path, as far as a section of line programs has it."""
    result: dict[str, int] = {}
    section = elf.get_section_by_name(name)
    for header, _, _ in _programs(section.data()) if section is not None else ():
        for number, path in _files(header).items():
            size = int(header["file_entry"][number - 1]["length"])
            result |= {path: size} if size else {}
    return result


def _calls(row: _Row, rows: list[_Row]) -> Iterator[_Row]:
    for _ in range(MOST_CALLS):
        if row.call is None or row.call >= len(rows):
            return
        row = rows[row.call]
        yield row


def _relocated(elf: Any, name: str) -> dict[int, str]:
    """Position in a section -> name of the function whose address belongs there."""
    symbols = elf.get_section_by_name(".symtab")
    found = elf.get_section_by_name(f".rela{name}") or elf.get_section_by_name(f".rel{name}")
    if found is None:
        return {}
    return {one["r_offset"]: symbols.get_symbol(one["r_info_sym"]).name for one in found.iter_relocations()}


def _programs(data: bytes) -> Iterator[tuple[Any, int, int]]:
    """The header of each program of a section, and the positions where its operations begin and end."""
    structs = DWARFStructs(little_endian=True, dwarf_format=32, address_size=8, dwarf_version=2)
    lengths, stream, at = structs.initial_length_field_size(), io.BytesIO(data), 0
    while at < len(data):
        stream.seek(at)
        header = structs.Dwarf_lineprog_header.parse_stream(stream)
        behind_length = at + lengths + 2 + 4  # the version has 2 bytes, the length of the header 4
        end = at + lengths + int(header["unit_length"])
        yield header, behind_length + int(header["header_length"]), min(end, len(data))
        at = end


def _rows(data: bytes, header: Any, at: int, end: int, relocated: dict[int, str]) -> list[_Row]:
    """The rows of a program, function after function. End-of-sequence operations add no row."""
    step, base = int(header["minimum_instruction_length"]), int(header["opcode_base"])
    lengths, line_base, line_range = header["standard_opcode_lengths"], header["line_base"], header["line_range"]
    rows, function, first, address, file, line, call = list[_Row](), None, 0, 0, 1, 1, None
    begun = 0
    while at < end:
        operation, at = data[at], at + 1
        if operation >= base or operation == COPY:
            forward, down = divmod(operation - base, line_range) if operation >= base else (0, -line_base)
            address, line = address + forward * step, line + line_base + down
            rows.append(_Row(function, address - first, file, line, call))
        elif operation == EXTENDED:
            length, at = _number(data, at)
            kind, operand, at = data[at], at + 1, at + length
            if kind == END_SEQUENCE:
                function, first, address, file, line, call = None, 0, 0, 1, 1, None
                begun = len(rows)
            elif kind == SET_ADDRESS:
                function, first = relocated.get(operand), int.from_bytes(data[operand:at], "little")
                address = first
            elif kind == INLINED_CALL:
                number, _ = _number(data, operand)
                call = begun + number - 1 if number else None
        elif operation == FIXED_ADVANCE_PC:
            address, at = address + int.from_bytes(data[at : at + 2], "little"), at + 2
        elif operation == CONST_ADD_PC:
            address += (255 - base) // line_range * step
        else:
            for _ in range(lengths[operation - 1]):
                number, at = _number(data, at, is_signed=operation == ADVANCE_LINE)
                address += number * step if operation == ADVANCE_PC else 0
                line += number if operation == ADVANCE_LINE else 0
                file = number if operation == SET_FILE else file
    return rows


def _number(data: bytes, at: int, *, is_signed: bool = False) -> tuple[int, int]:
    """A number in LEB128 and the position after it."""
    value, shift = 0, 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value - (1 << shift) if is_signed and byte & 0x40 else value), at


def _files(header: Any) -> dict[int, str]:
    """Number of a file in a program -> its path."""
    folders = [text.decode("utf-8", "replace") for text in header["include_directory"]]
    result = {}
    for number, entry in enumerate(header["file_entry"], 1):
        name, folder = entry["name"].decode("utf-8", "replace"), entry["dir_index"]
        inside = folders[folder - 1] if 0 < folder <= len(folders) else ""
        result[number] = name if name.startswith("/") or inside in ("", ".") else f"{inside}/{name}"
    return result
