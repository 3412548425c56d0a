"""Images in fat binaries: cubins and PTX for several architectures, compressed or not, read one at a time.

A container begins with 16 bytes (magic, version, size of this header, size of the images), followed by images, each
with its own header. Images are stored, or compressed by LZ4 or zstd; an image that decompresses to more bytes than its
header says, or is larger than `LARGEST_IMAGE`, is damaged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import BinaryIO

import pyarrow as pa

from ncu_parsers.sources.elf import FATBIN, DamagedBinary

LARGEST_IMAGE = 1 << 28
"""Most bytes of an image, stored or decompressed; the largest known library cubins have some tens of MB."""
_CONTAINER = struct.Struct("<IHHQ")
_IMAGE = struct.Struct("<HHIQIIHHIQQQQ")
_COMPRESSED = {0x2000: "lz4_raw", 0x8000: "zstd"}
"""Flag of a compressed image -> the name of its compression."""


class ImageKind(Enum):
    """Kind of an image, by its number in the header; `OTHER` for any other number."""

    PTX = 1
    CUBIN = 2
    OTHER = 0


@dataclass(frozen=True)
class Image:
    """A cubin, PTX or unknown image for an `architecture` such as 90; 0 for a cubin outside a fat binary.

    `content()` reads and decompresses it, and raises `DamagedBinary` if it is damaged.
    """

    kind: ImageKind
    architecture: int
    content: Callable[[], bytes]


def images_of(stream: BinaryIO, begin: int, end: int) -> Iterator[Image]:
    """The images of all containers between two positions of a file. Raises `DamagedBinary` if one is truncated."""
    at = begin
    while (start := _next_container(stream, begin + -(-(at - begin) // 8) * 8, end)) is not None:
        header = _read(stream, start, _CONTAINER.size)
        _, _, size_of_header, size = _CONTAINER.unpack(header)
        first, last = start + size_of_header, start + size_of_header + size
        if size_of_header < _CONTAINER.size or last > end:
            raise DamagedBinary("a fat binary is cut")
        yield from _images(stream, first, last)
        at = last


def _next_container(stream: BinaryIO, at: int, end: int) -> int | None:
    """The position of the next container, found in steps of 8 bytes of padding; None if there is none."""
    while at + _CONTAINER.size <= end:
        part = _read(stream, at, min(4096, end - at))
        for place in range(0, len(part) - 3, 8):
            if part.startswith(FATBIN, place):
                return at + place
        at += len(part)
    return None


def _images(stream: BinaryIO, at: int, end: int) -> Iterator[Image]:
    while at + _IMAGE.size <= end:
        fields = _IMAGE.unpack(_read(stream, at, _IMAGE.size))
        number, _, header, stored, packed, _, _, _, architecture, _, flags, _, size = fields
        begin = at + header
        if header < _IMAGE.size or begin + stored > end:
            raise DamagedBinary("an image of a fat binary is cut")
        kind = ImageKind(number) if number in (1, 2) else ImageKind.OTHER
        yield Image(kind, architecture, partial(_content, stream, begin, (stored, packed, size), flags))
        at = begin + stored


def _content(stream: BinaryIO, begin: int, sizes: tuple[int, int, int], flags: int) -> bytes:
    """The decompressed bytes of an image. `sizes` are: stored with padding, compressed, decompressed."""
    stored, packed, size = sizes
    if max(stored, size) > LARGEST_IMAGE:
        raise DamagedBinary(f"an image claims {max(stored, size):,} bytes")
    codec = next((name for flag, name in _COMPRESSED.items() if flags & flag), None)
    if codec is None:
        return _read(stream, begin, stored)
    if packed > stored:
        raise DamagedBinary("a compressed image is cut")
    data = _read(stream, begin, packed)
    is_less = not size or _decompressed(codec, data, size - 1) is not None
    content = None if is_less else _decompressed(codec, data, size)
    if content is None:
        raise DamagedBinary("a compressed image is damaged")
    return content


def _decompressed(codec: str, data: bytes, size: int) -> bytes | None:
    """At most `size` bytes; None if the data hold more, or are damaged.

    Arrow fills a buffer of `size` bytes and does not report if the data hold less, so the caller tries one byte less
    first.
    """
    try:
        return bytes(pa.Codec(codec).decompress(data, size, asbytes=True))
    except (OSError, ValueError):
        return None


def _read(stream: BinaryIO, at: int, size: int) -> bytes:
    stream.seek(at)
    found = stream.read(size)
    if len(found) < size:
        raise DamagedBinary("a fat binary is cut")
    return found
