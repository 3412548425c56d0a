"""Standard input, which comes once, read as often as a file: reports are looked at, read fast, and then perhaps again.

A file behind `<` is read where it lies. What comes through a pipe is kept until the process ends, a little of it in
memory and more of it in a file without a name.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from dataclasses import dataclass
from typing import Any, BinaryIO

from ncu_launch.errors import NcuBenchError

from ncu_parsers import memory

IN_MEMORY_BYTES = 1 << 20
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class StandardInput:
    """All that came: in memory, or in a file from some byte on."""

    size: int
    held: bytes = b""
    file: BinaryIO | None = None
    begin: int = 0

    def open(self) -> io.BufferedReader:
        """A stream of all of it from its beginning, which keeps a place of its own."""
        return io.BufferedReader(io.BytesIO(self.held) if self.file is None else _Stretch(self.file, self.begin))


_taken: tuple[BinaryIO, StandardInput | NcuBenchError] | None = None
"""The stream that was standard input when it was last asked for, and what came of it."""


def standard_input() -> StandardInput:
    """What standard input holds, all of it taken when it is first asked for.

    Raises `memory.TooBig` for more than may be kept on disk, and `NcuBenchError` when it cannot be kept: each time,
    since what is left then is not all of it.
    """
    global _taken
    stream = sys.stdin.buffer
    if _taken is None or _taken[0] is not stream:
        try:
            _taken = stream, _all_of(stream)
        except NcuBenchError as error:
            _taken = stream, error
    found = _taken[1]
    if isinstance(found, NcuBenchError):
        raise found
    return found


def _all_of(stream: BinaryIO) -> StandardInput:
    at = _place_in_file(stream)
    if at is not None:
        return StandardInput(max(0, os.fstat(stream.fileno()).st_size - at), file=stream, begin=at)
    head = stream.read(IN_MEMORY_BYTES)
    if len(head) < IN_MEMORY_BYTES:
        return StandardInput(len(head), head)
    try:
        return _kept_on_disk(head, stream)
    except OSError as error:
        raise NcuBenchError(
            f"Standard input could not be kept in a temporary file: {error.strerror or error}.",
            "It comes once, and reports are looked at before they are read.",
            "Save it to a file and name that file, or set TMPDIR to a folder with more space.",
        ) from error


def _place_in_file(stream: BinaryIO) -> int | None:
    """Where in a regular file a stream is; None for a pipe, a terminal, or what has no file."""
    try:
        return stream.tell() if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else None
    except OSError:  # of which `io.UnsupportedOperation` is a kind
        return None


def _kept_on_disk(head: bytes, rest: BinaryIO) -> StandardInput:
    import tempfile  # what is in memory, and files, do without its imports

    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # open as long as the process may read it
    size, block = 0, head
    while block:
        size += len(block)
        memory.hold_input_on_disk(size)
        file.write(block)
        block = rest.read(BLOCK_BYTES)
    return StandardInput(size, file=file)


class _Stretch(io.RawIOBase):
    """The bytes of an open file from `begin` on, by a place of its own: others may read the same file meanwhile."""

    def __init__(self, file: BinaryIO, begin: int) -> None:
        self._file = file
        self._begin = self._at = begin

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._at)
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at - self._begin
