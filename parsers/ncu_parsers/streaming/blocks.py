"""A report's bytes -> blocks of whole lines in UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import BinaryIO

from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import encoding_of
from ncu_parsers.streaming.cells.rows import NotStreamed

BLOCK_BYTES = 1 << 22


def blocks_of(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Blocks of whole lines; only the last line of the last block may lack its line end.

    Raises `NotStreamed` for a line that is too long, and `memory.TooBig` for the report `name` when memory runs out.
    """
    longest = memory.longest_line()
    begun: list[bytes] = []  # pieces of a line that has not ended
    for piece in _in_utf8(stream):
        memory.require_memory(name, streaming=True)
        end = piece.rfind(b"\n") + 1
        if end:
            yield b"".join((*begun, memoryview(piece)[:end]))
            begun = []
        begun.append(piece[end:])
        if sum(map(len, begun)) > longest:
            raise NotStreamed("a line of it is too long")
    if any(begun):
        yield b"".join(begun)


def _in_utf8(stream: BinaryIO) -> Iterator[bytes]:
    """The bytes of a report, in UTF-8 and without a byte order mark.

    Raises `NotStreamed` where a file in UTF-16 holds bytes that are no text: its lines with them have to be counted.
    """
    piece = stream.read(BLOCK_BYTES)
    encoding = encoding_of(piece[:4096])
    if encoding == "utf-8-sig":
        piece = piece.removeprefix(codecs.BOM_UTF8)
    if encoding in ("utf-8", "utf-8-sig"):
        while piece:
            yield piece
            piece = stream.read(BLOCK_BYTES)
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    while True:
        text = decoder.decode(piece, final=not piece)
        if "\ufffd" in text:
            raise NotStreamed("it holds bytes that are no text")
        yield text.encode("utf-8")
        if not piece:
            return
        piece = stream.read(BLOCK_BYTES)
