"""The end of a Parquet file, as a file of which nothing else can be read.

Its footer says of every column where it stands. Where that is damaged, Arrow raises an error while it reads, but ends
the process when Python asks for the column's metadata (pyarrow 26: `RowGroupMetaData.column` lets a C++ exception out).
So Arrow is made to read a file like this one first, which costs no data.
"""

from __future__ import annotations

import io
from typing import BinaryIO


class BeyondTheFooter(OSError):
    """What was asked for stands before the footer."""


class FooterAlone(io.RawIOBase):
    """A stream of a Parquet file that gives its end, and raises `BeyondTheFooter` for what ends before the footer."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        size = stream.seek(0, io.SEEK_END)
        stream.seek(max(size - 8, 0))
        self._begin = size - 8 - int.from_bytes(stream.read(4), "little")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def read(self, size: int = -1) -> bytes:
        if size > 0 and self.tell() + size <= self._begin:
            raise BeyondTheFooter
        return self._stream.read(size)
