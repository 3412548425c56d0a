"""The resources of the kernels in a cubin, an ELF file for one architecture, read without NVIDIA's tools.

Sections `.nv.info` (of all functions) and `.nv.info.KERNEL` hold attributes, whose kinds `cuobjdump -elf` names.
ptxas marks spilling instructions since CUDA 12.6; their widths are read from their encoding (128 bits since sm_70).
Registers, frames, spills, shared memory and barriers equal the output of `ptxas -v`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from ncu_parsers.binaries.kernel_resources import KernelResources, Spills
from ncu_parsers.sources.elf import CUDA, FUNCTION, DamagedBinary, Elf, Section, Symbol

MAX_THREADS, REQUIRED_THREADS, FRAME_SIZE, PARAMETERS, REGISTER_LIMIT = 0x05, 0x10, 0x11, 0x19, 0x1B
REGISTERS, API_VERSION, BARRIERS, ANNOTATIONS = 0x2F, 0x37, 0x4C, 0x55
"""Kinds of attributes (EIATTR_...)."""
SPILL = 1
"""Annotation of an instruction that spills a register or reloads it (SpillRefill)."""
MARKED_SINCE = 126
"""First CUDA version whose ptxas marks spills: 12.6; 12.4 does not."""
NEW_HEADER = 8
"""ABI version of ELF files since CUDA 13, which hold the architecture in other bits of the flags."""
ENTRY = 0x10
"""Bit in the symbol of a kernel, a function that the host can launch (STO_CUDA_ENTRY)."""
RESERVED_SHARED_BYTES, RESERVED_SINCE = 1024, 90
"""Bytes of shared memory that the driver reserves; from sm_90 on, the size of a kernel's section includes them."""
INSTRUCTION_BYTES = 16
DIGEST_BYTES = 16
OLDEST = 70
"""First architecture (sm_70) with instructions of 128 bits; older ones have 64."""
_STORE_LOCAL, _LOAD_LOCAL, _OPCODE_BITS = 0x187, 0x183, 0x1FF
_BYTES_BY_WIDTH = (1, 1, 2, 2, 4, 8, 16)
_IN_TWO_BYTES, _IN_ONE_BYTE, _SIZED = 3, 2, 4
"""Forms of an attribute's value."""


class Cubin:
    """A cubin in memory. Raises `DamagedBinary` if `content` is no cubin or is truncated."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._elf = Elf.of(content)
        if self._elf.machine != CUDA:
            raise DamagedBinary("an ELF file, but not of a GPU")
        self.sm = self._elf.flags >> 8 & 0xFF if self._elf.abi_version >= NEW_HEADER else self._elf.flags & 0xFF

    @property
    def architecture(self) -> str:
        """The architecture, such as "sm_90"."""
        return f"sm_{self.sm}"

    def kernels(self) -> list[KernelResources]:
        """The kernels in symbol order, without device functions. Raises `DamagedBinary` if a section is damaged."""
        common = _ByFunction.of(self._attributes(".nv.info"))
        return [self._resources(symbol, common) for symbol in self._entries()]

    def code(self, name: str) -> bytes:
        """The machine code of a kernel by its mangled name; b"" if the cubin does not have it."""
        section = self._elf.section(f".text.{name}")
        return b"" if section is None else self._elf.content(section)

    def number_of(self, name: str) -> int | None:
        """The number of a kernel's symbol, by which nvdisasm selects it; None if the cubin does not have it."""
        return next((symbol.number for symbol in self._entries() if symbol.name == name), None)

    def _entries(self) -> Iterator[Symbol]:
        sections, seen = self._elf.sections, set[tuple[str, int]]()
        for symbol in self._elf.symbols:
            is_entry = symbol.kind == FUNCTION and symbol.other & ENTRY and symbol.section < len(sections)
            if is_entry and not {("", symbol.section), (symbol.name, 0)} & seen:  # kernels share no code
                seen |= {("", symbol.section), (symbol.name, 0)}
                yield symbol

    def _resources(self, symbol: Symbol, common: _ByFunction) -> KernelResources:
        name, code = symbol.name, self._elf.sections[symbol.section]
        own = {one.kind: one.value for one in self._attributes(f".nv.info.{name}")}
        toolkit = _number(own.get(API_VERSION))
        frame = common.frames.get(symbol.number)
        return KernelResources(
            name,
            self.architecture,
            registers=common.registers.get(symbol.number, code.info >> 24 or None),
            stack_bytes=frame,
            spills=self._spills(own.get(ANNOTATIONS, b""), code, frame, toolkit),
            shared_bytes=self._shared_bytes(name),
            barriers=_number(own.get(BARRIERS)) or code.flags >> 20 & 0x7F,
            max_threads=_three(own.get(MAX_THREADS)),
            required_threads=_three(own.get(REQUIRED_THREADS)),
            register_limit=_number(own.get(REGISTER_LIMIT)),
            parameter_bytes=_number(own.get(PARAMETERS)),
            code_bytes=code.size,
            code_digest=blake2b(self._elf.content(code), digest_size=DIGEST_BYTES).hexdigest(),
            toolkit=f"{toolkit // 10}.{toolkit % 10}" if toolkit else "",
        )

    def _spills(self, marks: bytes, code: Section, frame: int | None, toolkit: int | None) -> Spills | None:
        """The marked spills; without marks, 0 if the compiler would mark them or the frame is empty, else None.

        None too if instructions are older than `OLDEST`.
        """
        offsets = tuple(sorted(_marked(marks)))
        if not offsets:
            return Spills(0, 0) if frame == 0 or (toolkit or 0) >= MARKED_SINCE else None
        if self.sm < OLDEST:
            return None
        data, stored, loaded = self._elf.content(code), 0, 0
        for offset in offsets:
            opcode, width = _encoded(data, offset)
            stored += width if opcode == _STORE_LOCAL else 0
            loaded += width if opcode == _LOAD_LOCAL else 0
        return Spills(stored, loaded, offsets)

    def _shared_bytes(self, name: str) -> int:
        section = self._elf.section(f".nv.shared.{name}")
        if section is None:
            return 0
        return max(section.size - (RESERVED_SHARED_BYTES if self.sm >= RESERVED_SINCE else 0), 0)

    def _attributes(self, name: str) -> list[_Attribute]:
        section = self._elf.section(name)
        return [] if section is None else list(_attributes(self._elf.content(section)))


class _Attribute(NamedTuple):
    kind: int
    value: bytes


class _ByFunction(NamedTuple):
    """Registers per thread and bytes of the stack frame of functions, by symbol number."""

    registers: dict[int, int]
    frames: dict[int, int]

    @classmethod
    def of(cls, attributes: list[_Attribute]) -> _ByFunction:
        pairs = [(one.kind, struct.unpack("<II", one.value)) for one in attributes if len(one.value) == 8]
        registers = {symbol: value for kind, (symbol, value) in pairs if kind == REGISTERS}
        return cls(registers, {symbol: value for kind, (symbol, value) in pairs if kind == FRAME_SIZE})


def _attributes(data: bytes) -> Iterator[_Attribute]:
    """The attributes of a section. Each is a byte of form, a byte of kind, and two bytes with the value or its size."""
    at = 0
    while at + 4 <= len(data):
        form, kind, short = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _SIZED:
            if at + short > len(data):
                raise DamagedBinary("an attribute of a kernel is cut")
            yield _Attribute(kind, data[at : at + short])
            at += short
        elif form in (_IN_TWO_BYTES, _IN_ONE_BYTE):
            yield _Attribute(kind, data[at - 2 : at if form == _IN_TWO_BYTES else at - 1])


def _marked(marks: bytes) -> Iterator[int]:
    """Offsets of spilling instructions, from annotations that are pairs (kind, offset)."""
    for kind, offset in struct.iter_unpack("<II", marks[: len(marks) // 8 * 8]):
        if kind == SPILL:
            yield offset


def _encoded(code: bytes, offset: int) -> tuple[int, int]:
    """The opcode number of an instruction, and the bytes per thread that it moves if it is a load or store."""
    if offset + INSTRUCTION_BYTES > len(code):
        raise DamagedBinary("a mark is beyond the code of its kernel")
    low, high = struct.unpack_from("<QQ", code, offset)
    width = high >> 9 & 7
    return low & _OPCODE_BITS, _BYTES_BY_WIDTH[width] if width < len(_BYTES_BY_WIDTH) else 0


def _number(value: bytes | None) -> int | None:
    return None if value is None else int.from_bytes(value[:8], "little")


def _three(value: bytes | None) -> tuple[int, int, int] | None:
    if value is None or len(value) != 12:
        return None
    x, y, z = struct.unpack("<III", value)
    return x, y, z
