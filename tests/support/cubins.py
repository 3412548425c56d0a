"""Small cubins with debug lines, put together section by section, and what cubins lie in: fat binaries, libraries."""

from __future__ import annotations

import struct

import pyarrow as pa
from ncu_parsers.sources.elf import Elf

KERNEL = "_Z1kPf"
HEADER_SIZE, SECTION_HEADER = 64, "<IIQQQQIIQQ"
BITS, SYMBOLS, TEXTS, RELOCATIONS = 1, 2, 3, 4
"""Types of sections."""


def cubin_of(lines: list[tuple[int, int]], inside: str = "") -> bytes:
    """A cubin of `KERNEL` with a line for each (offset, line), in its source and in its PTX.

    `inside` names a function of the device in its second half.
    """
    names = texts_of(["", KERNEL, inside])
    at = {name: names.index(name.encode() + b"\0", 1) for name in (KERNEL, inside) if name}
    symbols = bytes(24) + struct.pack("<IBBHQQ", at[KERNEL], 0x12, 0, 1, 0, 256)
    if inside:
        symbols += struct.pack("<IBBHQQ", at[inside], 0x02, 0, 1, 128, 128)
    program, place = line_program("k.cu", lines)
    relocations = struct.pack("<QQq", place, 1 << 32 | 2, 0)
    return elf_of([
        (f".text.{KERNEL}", BITS, bytes(256), 0),
        (".symtab", SYMBOLS, symbols, 3),
        (".strtab", TEXTS, names, 0),
        (".debug_line", BITS, program, 0),
        (".rela.debug_line", RELOCATIONS, relocations, 2),
        (".nv_debug_line_sass", BITS, program, 0),
        (".rela.nv_debug_line_sass", RELOCATIONS, relocations, 2),
        (".nv_debug_ptx_txt", BITS, b".version 8.7\0.target sm_90\0", 0),
    ])  # fmt: skip


LINES_OF_NVCC = """
cb0000000300320000000101fb0e0d0001010101000000010000012f737263000073756d2e6375000100006d6174682e6375680001000000
00000000000902000000000000000004010303010af502f0000104020003900300030101000390040c037b010003900300f8040100039000
00ef0402000390070c037d0104010003900000f6037f02c00001f40280020001010009020000000000000000040103020102e00001040200
03900200030501000390030c037b010003900200f804010003900000037a021001028002000101570000000300340000000101fb0e0d0001
010101000000010000012f73726300006f746865722e6375000100006d6174682e6375680001000000000000000009020000000000000000
040203020a010300010401f102f001000101
"""
"""What nvcc and nvlink 13.5 wrote into `.debug_line` for /src/sum.cu and /src/other.cu, in hexadecimal.

Compiled with -rdc=true -arch=sm_90 -lineinfo, so that there are two programs, the first of two kernels. The files:

    math.cuh   1  __device__ inline float square(float x)
               3      return x * x + 1.0f;
               6  __device__ inline float scaled(float x, float by)
               8      float y = square(x);
               9      return y * by;
    sum.cu     3  __global__ void first(float *x) { x[threadIdx.x] = scaled(x[threadIdx.x], 2); }
               4  __global__ void second(float *x)
               6      x[threadIdx.x] = square(
               7          scaled(x[threadIdx.x], 3)) + other(x[0]);
    other.cu   2  __device__ float other(float x) { return square(x) + scaled(x, 3); }
"""
FUNCTIONS_OF_NVCC = {"_Z6secondPf": 63, "_Z5firstPf": 148, "_Z5otherf": 272}
"""Where in these bytes the address of each function is to stand."""


def cubin_of_nvcc(first: str = "_Z6secondPf") -> bytes:
    """A cubin with the real lines of the kernels and the function in `LINES_OF_NVCC`, without their instructions.

    `first` is what the first kernel is called.
    """
    functions = [first, *list(FUNCTIONS_OF_NVCC)[1:]]
    names = texts_of(["", *functions])
    symbols = bytes(24) + b"".join(
        struct.pack("<IBBHQQ", names.index(name.encode() + b"\0"), 0x12, 0, number, 0, 512)
        for number, name in enumerate(functions, 1)
    )
    places = [
        struct.pack("<QQq", place, number << 32 | 2, 0) for number, place in enumerate(FUNCTIONS_OF_NVCC.values(), 1)
    ]
    return elf_of([
        *((f".text.{name}", BITS, bytes(512), 0) for name in functions),
        (".symtab", SYMBOLS, symbols, len(functions) + 2),
        (".strtab", TEXTS, names, 0),
        (".debug_line", BITS, bytes.fromhex(LINES_OF_NVCC), 0),
        (".rela.debug_line", RELOCATIONS, b"".join(places), len(functions) + 1),
    ])  # fmt: skip


def texts_of(texts: list[str]) -> bytes:
    """Texts, each with the null byte at its end."""
    return b"".join(text.encode() + b"\0" for text in texts)


def line_program(file: str, lines: list[tuple[int, int]]) -> tuple[bytes, int]:
    """A line program of DWARF 2 of one function, and the place of the address that a relocation fills in."""
    tables = texts_of(["/src"]) + b"\0" + texts_of([file]) + b"\x01\0\0" + b"\0"
    rest = bytes([1, 1, 1, 0xFB, 14, 10, 0, 1, 1, 1, 1, 0, 0, 0, 1])
    header = struct.pack("<HI", 2, len(rest) - 1 + len(tables)) + rest[1:] + tables
    body = b"\0\x09\x02" + bytes(8)
    before = (0, 1)
    for offset, line in lines:
        body += b"\x02" + _unsigned(offset - before[0]) + b"\x03" + _signed(line - before[1]) + b"\x01"
        before = offset, line
    whole = header + body + b"\0\x01\x01"
    return struct.pack("<I", len(whole)) + whole, 4 + len(header) + 3


def _unsigned(value: int) -> bytes:
    return bytes([value & 0x7F | (0x80 if value > 0x7F else 0)]) + (_unsigned(value >> 7) if value > 0x7F else b"")


def _signed(value: int) -> bytes:
    return struct.pack("B", value & 0x7F) if -64 <= value < 64 else bytes([value & 0x7F | 0x80]) + _signed(value >> 7)


def elf_of(sections: list[tuple[str, int, bytes, int]]) -> bytes:
    """An ELF file of sections (name, type, content, number of the linked one), numbered from 1."""
    sections = [*sections, (".shstrtab", TEXTS, texts_of(["", *(name for name, *_ in sections), ".shstrtab"]), 0)]
    names = sections[-1][2]
    body, headers = b"", bytes(64)
    for name, kind, content, link in sections:
        size = {SYMBOLS: 24, RELOCATIONS: 24}.get(kind, 0)
        place = names.index(b"\0" + name.encode() + b"\0") + 1
        headers += struct.pack(
            SECTION_HEADER, place, kind, 0, 0, HEADER_SIZE + len(body), len(content), link, 0, 1, size
        )
        body += content
    beginning = b"\x7fELF\x02\x01\x01" + bytes(9)
    numbers = struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, HEADER_SIZE + len(body), 0, 64, 56, 0, 64,
                          len(sections) + 1, len(sections))  # fmt: skip
    return beginning + numbers + body + headers


def only(cubin: bytes, kernels: tuple[str, ...]) -> bytes:
    """A cubin with some of its kernels alone: their code, attributes and shared memory, and the tables of names.

    Symbols keep their numbers, by which attributes name them; those of other functions are empty.
    """
    elf, names = Elf.of(cubin), {".nv.info", ".symtab", ".strtab", ".shstrtab", ""}
    names |= {f"{part}.{kernel}" for part in (".text", ".nv.info", ".nv.shared") for kernel in kernels}
    kept = {old: new for new, old in enumerate(at for at, one in enumerate(elf.sections) if one.name in names)}
    header, table = bytearray(cubin[:HEADER_SIZE]), struct.unpack_from("<Q", cubin, 40)[0]
    body, headers = b"", b""
    for old in kept:
        name, kind, flags, at, _, size, link, *rest = struct.unpack_from(SECTION_HEADER, cubin, table + 64 * old)
        content = elf.content(elf.sections[old])
        body_at, link = HEADER_SIZE + len(body), kept.get(link, 0)
        body += _symbols_of(content, kept) if kind == SYMBOLS else content
        headers += struct.pack(SECTION_HEADER, name, kind, flags, at, body_at, size, link, *rest)
    struct.pack_into("<Q", header, 40, HEADER_SIZE + len(body))
    struct.pack_into("<HH", header, 60, len(kept), kept[struct.unpack_from("<H", cubin, 62)[0]])
    return bytes(header) + body + headers


def _symbols_of(content: bytes, kept: dict[int, int]) -> bytes:
    """A table of symbols with the new numbers of sections."""
    return b"".join(
        struct.pack("<IBBHQQ", name, info, other, kept[section], at, size) if section in kept else bytes(24)
        for name, info, other, section, at, size in struct.iter_unpack("<IBBHQQ", content)
    )


def fatbin_of(content: bytes, kind: int = 2, codec: str = "", announced: int | None = None) -> bytes:
    """A fat binary of one image, as fatbinary lays it out; `announced` is the size that its header says."""
    flag = {"": 0, "lz4_raw": 0x2000, "zstd": 0x8000}[codec]
    packed = pa.Codec(codec).compress(content, asbytes=True) if codec else content
    stored = packed + bytes(-len(packed) % 8)
    size = (len(content) if announced is None else announced) if codec else 0
    image = struct.pack("<HHIQIIHHIQQQQ", kind, 0x101, 64, len(stored), len(packed), 0, 8, 1, 90, 0, flag, 0, size)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64 + len(stored)) + image + stored


def library_of_fatbin(fat: bytes) -> bytes:
    """An ELF file of another machine with a fat binary inside, as linkers lay out libraries."""
    whole = bytearray(elf_of([(".text", BITS, bytes(64), 0), (".nv_fatbin", BITS, fat, 0)]))
    whole[18:20] = struct.pack("<H", 62)
    return bytes(whole)
