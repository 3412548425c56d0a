"""The sections and symbols of a 64-bit ELF file, of a cubin or of a host program, read without loading the file.

Source: System V ABI, chapter 4. Every offset and count is checked, because files may be damaged.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from functools import cached_property
from typing import BinaryIO, NamedTuple

MAGIC = b"\x7fELF"
FATBIN = b"\x50\xed\x55\xba"
ARCHIVE = b"!<arch>\n"
"""First bytes of ELF files, of fat binaries, and of archives of objects (ar)."""
CUDA = 190
"""The machine of cubins."""
NO_BITS, SYMBOL_TABLE, RELOCATIONS_WITH_ADDENDS = 8, 2, 4
FUNCTION = 2
"""The type of a function's symbol."""
MOST_SECTIONS = 1 << 20
LONGEST_SECTION = 1 << 29
NAMES_PER_TABLE, SMALLEST_TABLE = 8, 1 << 16
"""All names together may take NAMES_PER_TABLE times the bytes of their table, plus SMALLEST_TABLE."""
_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION, _RELOCATION_WITH_ADDEND = struct.Struct("<QQ"), struct.Struct("<QQ8x")
_LITTLE_ENDIAN_64 = b"\x02\x01"


class DamagedBinary(ValueError):
    """A file is cut or contradicts itself; the text says where."""


class Section(NamedTuple):
    """A section: bytes `offset` to `offset + size` of the file, none of them stored if its kind is `NO_BITS`."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int


class Symbol(NamedTuple):
    """A symbol: its number in the table, its type, the index of its section, and its offset and size there."""

    number: int
    name: str
    kind: int
    other: int
    section: int
    offset: int
    size: int


class Elf:
    """A 64-bit little-endian ELF file. Reading raises `DamagedBinary` for another file, a cut or a damaged one."""

    def __init__(self, stream: BinaryIO, begin: int = 0) -> None:
        """Read the headers of the file that begins at a position of `stream`."""
        self._stream, self._begin = stream, begin
        head = self._read(0, _HEADER.size)
        if not head.startswith(MAGIC) or head[4:6] != _LITTLE_ENDIAN_64:
            raise DamagedBinary("not a 64-bit ELF file")
        self.abi_version = head[8]
        _, self.machine, self.version, _, _, table, self.flags, *_, size, count, names = _HEADER.unpack(head)
        self._table = self._sections(table, size, count, names)

    @classmethod
    def of(cls, content: bytes) -> Elf:
        """A file in memory."""
        return cls(io.BytesIO(content))

    @property
    def sections(self) -> list[Section]:
        """All sections, the empty first one too, so that an index finds its section."""
        return self._table

    def section(self, name: str) -> Section | None:
        """The first section with this name; None if there is none."""
        return self._by_name.get(name)

    def content(self, section: Section) -> bytes:
        """The bytes of a section; b"" if it is not stored in the file."""
        if section.kind == NO_BITS:
            return b""
        if section.size > LONGEST_SECTION:
            raise DamagedBinary(f"the section {section.name} claims {section.size:,} bytes")
        return self._read(section.offset, section.size)

    @cached_property
    def symbols(self) -> list[Symbol]:
        """The symbols of the file's symbol table, in order; [] if stripped."""
        table = next((one for one in self._table if one.kind == SYMBOL_TABLE), None)
        if table is None or table.link >= len(self._table):
            return []
        data, names = self.content(table), self.content(self._table[table.link])
        return list(_symbols(data[: len(data) // _SYMBOL.size * _SYMBOL.size], names))

    def relocated(self, section: Section) -> dict[int, Symbol]:
        """The symbols whose addresses are inserted into a section, by position there; {} without relocations."""
        table = self.section(f".rela{section.name}") or self.section(f".rel{section.name}")
        if table is None:
            return {}
        form = _RELOCATION_WITH_ADDEND if table.kind == RELOCATIONS_WITH_ADDENDS else _RELOCATION
        data, symbols = self.content(table), self.symbols
        pairs = [(at, info >> 32) for at, info in form.iter_unpack(data[: len(data) // form.size * form.size])]
        if any(number >= len(symbols) for _, number in pairs):
            raise DamagedBinary("a relocation names a symbol that is not there")
        return {at: symbols[number] for at, number in pairs}

    @cached_property
    def _by_name(self) -> dict[str, Section]:
        return {one.name: one for one in reversed(self._table)}

    def _sections(self, table: int, size: int, count: int, names: int) -> list[Section]:
        if not table:
            return []
        if size != _SECTION.size:
            raise DamagedBinary("its section headers have another size")
        if not count:  # more than fit the header: the first section says how many
            first = _SECTION.unpack(self._read(table, size))
            count, names = first[5], first[6] if names == 0xFFFF else names
        if count > MOST_SECTIONS:
            raise DamagedBinary(f"it claims {count:,} sections")
        headers = list(_SECTION.iter_unpack(self._read(table, size * count)))
        if names >= len(headers):
            raise DamagedBinary("the names of its sections are missing")
        texts = _Names(self._read(headers[names][4], min(headers[names][5], LONGEST_SECTION)))
        return [
            Section(texts.at(name), kind, flags, offset, length, link, info)
            for name, kind, flags, _, offset, length, link, info, _, _ in headers
        ]

    def _read(self, offset: int, size: int) -> bytes:
        try:
            self._stream.seek(self._begin + offset)
        except (OverflowError, OSError, ValueError) as error:
            raise DamagedBinary("an offset is beyond the end") from error
        found = self._stream.read(size)
        if len(found) < size:
            raise DamagedBinary(f"cut: {size:,} bytes are announced at {offset:,}, {len(found):,} are there")
        return found


def _symbols(data: bytes, texts: bytes) -> Iterator[Symbol]:
    names = _Names(texts)
    for number, (name, info, other, section, offset, size) in enumerate(_SYMBOL.iter_unpack(data)):
        yield Symbol(number, names.at(name), info & 0xF, other, section, offset, size)


class _Names:
    """Names in a table of texts that each end with a zero byte.

    Names may share an end, but together cannot be much longer than the table: a small file could ask for any memory.
    """

    def __init__(self, texts: bytes) -> None:
        self._texts = texts
        self._left = NAMES_PER_TABLE * len(texts) + SMALLEST_TABLE

    def at(self, begin: int) -> str:
        end = self._texts.find(b"\0", begin)
        text = self._texts[begin : end if end >= 0 else len(self._texts)]
        self._left -= len(text)
        if self._left < 0:
            raise DamagedBinary("its names overlap")
        return text.decode("utf-8", "replace")
