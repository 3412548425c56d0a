"""A report's bytes -> blocks of whole lines in UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from ncu_parsers.sources.sources import Lines, LongLine, encoding_of
from ncu_parsers.streaming.cells.rows import NotStreamed

BLOCK_BYTES = 1 << 22
REPLACED = "\ufffd".encode()


def blocks_of(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Blocks of whole lines; only the last line of the last block may lack its line end.

    Raises `NotStreamed` for a line that is too long, and where a file in UTF-16 holds bytes that are no text, whose
    lines have to be counted; `memory.TooBig` for the report `name` when memory runs out.
    """
    lines = Lines(stream, name, BLOCK_BYTES, streaming=True)
    is_utf_16 = encoding_of(lines.head).startswith("utf-16")
    for block in lines.blocks(ends_behind=True):
        if isinstance(block, LongLine):
            raise NotStreamed("a line of it is too long")
        if is_utf_16 and REPLACED in block:
            raise NotStreamed("it holds bytes that are no text")
        yield block
