"""A report's bytes -> blocks of whole lines in UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO

from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import HEAD, encoding_of
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
    head = stream.read(HEAD)
    encoding = encoding_of(head)
    if encoding in ("utf-8", "utf-8-sig"):
        yield from _pieces(head.removeprefix(codecs.BOM_UTF8), stream)
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for piece in chain(_pieces(head, stream), [b""]):
        text = decoder.decode(piece, final=not piece)
        if "\ufffd" in text:
            raise NotStreamed("it holds bytes that are no text")
        yield text.encode("utf-8")


def _pieces(head: bytes, stream: BinaryIO) -> Iterator[bytes]:
    """What was read already, and the rest of a stream."""
    for begin in range(0, len(head), BLOCK_BYTES):
        yield head[begin : begin + BLOCK_BYTES]
    while piece := stream.read(BLOCK_BYTES):
        yield piece
