"""A file that is read whole before its messages are taken apart."""

from __future__ import annotations

from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import DAMAGE, Source, read_some


def whole_file(source: Source) -> tuple[bytes, str]:
    """The bytes of the file, unpacked up to any damage, and a description of the damage; "" if there is none."""
    blocks: list[bytes] = []
    with source.open() as stream:
        try:
            while block := read_some(stream, 1 << 20):
                blocks.append(block)
                memory.require_memory(source.name)
        except DAMAGE as error:
            return b"".join(blocks), str(error)
    return b"".join(blocks), ""
