"""Line programs of a cubin: the source line of each instruction, and the call at which its function was inlined.

NVIDIA writes DWARF 2 without compilation units, so the programs are read one after the other. Relocations name the
function of each sequence. NVIDIA added two things, which DWARF readers skip: an extended operation with the row of the
call (from 1, of the same function), and the position of function names at the end of a header. Source:
`DW_LNE_NVIDIA_inlined_call` of elfutils, `nvdisasm -gi`; `function_name`, `inlined_at` in the PTX ISA, `.loc`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ncu_parsers.sources.elf import DamagedBinary, Elf, Symbol

COPY, ADVANCE_PC, ADVANCE_LINE, SET_FILE, CONST_ADD_PC, FIXED_ADVANCE_PC = 1, 2, 3, 4, 8, 9
EXTENDED, END_SEQUENCE, SET_ADDRESS, INLINED_CALL = 0, 1, 2, 0x90
"""Operations of line programs (DWARF 2, 6.2.5), and NVIDIA's addition."""
MOST_CALLS = 64
"""Most nested calls; in damaged files a call may contain itself."""
NEWEST = 4
"""The last version of DWARF whose tables of files look like this; NVIDIA's compilers write version 2."""
ONE_MORE_SINCE = 4
"""The version of DWARF since which a header holds a byte more, for machines with long instructions."""
_HEADER, _SETTINGS = struct.Struct("<IHI"), struct.Struct("<BBbBB")
_LENGTH = 4
"""Bytes of a program's length, which it does not count."""


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


class _Program(NamedTuple):
    """A program: where its operations begin and end, how they are encoded, and the files that they name, from 1.

    `step` is the bytes per instruction, `lengths` the number of operands of each standard operation, and `sizes` the
    bytes of each of `files`.
    """

    begin: int
    end: int
    step: int
    line_base: int
    line_range: int
    lengths: bytes
    files: list[str]
    sizes: list[int]


def places_of(elf: Elf, name: str, function: str) -> dict[int, LinePlace]:
    """Offset -> place, from a section's line programs for one function; each place holds from its offset on.

    Of several places at one offset the last is used, in the innermost function. A damaged program raises one of
    `debug_lines.DAMAGE`.
    """
    section = elf.section(name)
    if section is None:
        return {}
    relocated, data, result = elf.relocated(section), elf.content(section), dict[int, LinePlace]()
    for program in _programs(data):
        files, rows = dict(enumerate(program.files, 1)), _rows(data, program, relocated)
        for row in rows:
            if row.function == function:
                calls = tuple((files.get(one.file), one.line) for one in _calls(row, rows))
                result[row.offset] = LinePlace(files.get(row.file), row.line, calls)
    return result


def sizes_of(elf: Elf, name: str) -> dict[str, int]:
    """Size in bytes of source files at compilation, by path, where a section of line programs has it."""
    section = elf.section(name)
    programs = _programs(elf.content(section)) if section is not None else ()
    return {path: size for program in programs for path, size in zip(program.files, program.sizes, strict=True) if size}


def _calls(row: _Row, rows: list[_Row]) -> Iterator[_Row]:
    for _ in range(MOST_CALLS):
        if row.call is None or row.call >= len(rows):
            return
        row = rows[row.call]
        yield row


def _programs(data: bytes) -> Iterator[_Program]:
    """The programs of a section, one after the other."""
    at = 0
    while at < len(data):
        length, version, behind = _HEADER.unpack_from(data, at)
        if version > NEWEST:
            raise DamagedBinary(f"lines in version {version} of DWARF")
        begin, end = at + _HEADER.size + behind, at + _LENGTH + length
        at += _HEADER.size + (version >= ONE_MORE_SINCE)
        step, _, line_base, line_range, base = _SETTINGS.unpack_from(data, at)
        first = at + _SETTINGS.size
        lengths = data[first : first + base - 1]
        files, sizes = _files(data, first + base - 1)
        yield _Program(begin, min(end, len(data)), step, line_base, line_range, lengths, files, sizes)
        at = end


def _rows(data: bytes, program: _Program, relocated: Mapping[int, Symbol]) -> list[_Row]:
    """The rows of a program, function after function. End-of-sequence operations add no row."""
    at, end, step, line_base, line_range, lengths, *_ = program
    base = len(lengths) + 1
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
                target, first = relocated.get(operand), int.from_bytes(data[operand:at], "little")
                function, address = None if target is None else target.name, first
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


def _files(data: bytes, at: int) -> tuple[list[str], list[int]]:
    """The paths of the files that a header names, and their sizes in bytes; its folders and files begin at `at`."""
    folders, files, sizes = list[str](), list[str](), list[int]()
    text, at = _text(data, at)
    while text:
        folders.append(text)
        text, at = _text(data, at)
    text, at = _text(data, at)
    while text:
        folder, at = _number(data, at)
        _, at = _number(data, at)  # when the file changed last
        size, at = _number(data, at)
        inside = folders[folder - 1] if 0 < folder <= len(folders) else ""
        files.append(text if text.startswith("/") or inside in ("", ".") else f"{inside}/{text}")
        sizes.append(size)
        text, at = _text(data, at)
    return files, sizes


def _text(data: bytes, at: int) -> tuple[str, int]:
    """A text that ends with a zero byte, and the position after it."""
    end = data.index(b"\0", at)
    return data[at:end].decode("utf-8", "replace"), end + 1
