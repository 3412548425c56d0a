"""Standard input, which comes once, read as often as a file: reports are looked at, read fast, and then perhaps again.

A file behind `<` is read where it lies. What comes through a pipe is kept while it is read, until the process ends.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from contextlib import suppress
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, cast

from ncu_launch.errors import NcuBenchError

from ncu_parsers.sources import memory

BLOCK_BYTES = 1 << 20
LOOKED_AT_BYTES = 8 * BLOCK_BYTES
"""So much is waited for to know how much there is: what reads big reports otherwise than small ones asks for less."""
IN_MEMORY_BYTES = 1 << 24
"""So much of a pipe is kept in memory, and more in a temporary file."""


class StandardInput:
    """A regular file, from where the shell left it."""

    def __init__(self, file: BinaryIO, begin: int) -> None:
        self._file = file
        self._begin = begin

    @property
    def size(self) -> int:
        """How many bytes there are, or at least. Raises as `read_at` does."""
        return max(0, os.fstat(self._file.fileno()).st_size - self._begin)

    def read_at(self, at: int, most: int) -> bytes:
        """1 to `most` bytes from `at` on; b"" at the end. Raises `OSError` where the file cannot be read."""
        self._file.seek(self._begin + at)
        return self._file.read(most)


class Pipe(StandardInput):
    """A pipe: what came through it is in a temporary file, and what has yet to come is read when it is asked for."""

    def __init__(self, pipe: BinaryIO) -> None:
        kept = SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115  # open as long as this is
        super().__init__(cast(BinaryIO, kept), 0)
        _prepare(pipe)
        self._pipe = pipe
        self._came = 0
        self._ended = False
        self._failed: NcuBenchError | None = None

    @property
    def size(self) -> int:
        """How many bytes there are, or at least. Raises as `read_at` does."""
        while self._came < LOOKED_AT_BYTES and not self._ended:
            self._take()
        return self._came

    def read_at(self, at: int, most: int) -> bytes:
        """1 to `most` bytes from `at` on; b"" at the end.

        Raises `memory.TooBig` for more than may be kept on disk, and `NcuBenchError` when it cannot be kept: from then
        on each time, since what came is not all of it.
        """
        if self._failed is not None:
            raise self._failed
        while self._came <= at and not self._ended:
            self._take()
        return super().read_at(at, most)

    def _take(self) -> None:
        if self._failed is not None:
            raise self._failed
        data = self._pipe.read(BLOCK_BYTES)
        try:
            memory.hold_input_on_disk(self._came + len(data))
            self._file.seek(self._came)
            self._file.write(data)
            self._file.flush()
        except NcuBenchError as error:
            self._failed = error
            raise
        except OSError as error:
            self._failed = NcuBenchError(
                f"Standard input could not be kept in a temporary file: {error.strerror or error}.",
                "It comes once, and a report may have to be read again from its beginning.",
                "Save it to a file and name that file, or set TMPDIR to a folder with more space.",
            )
            raise self._failed from error
        self._came += len(data)
        self._ended = len(data) < BLOCK_BYTES


def _prepare(pipe: BinaryIO) -> None:
    """Let it hold a block, since with the usual 64 KB a report takes twice as long to come through; and wait for more.

    Some programs leave pipes that do not wait: a read of what is slow to come would look like the end.
    """
    with suppress(OSError):  # what a program gave us in place of a stream has no descriptor
        os.set_blocking(pipe.fileno(), True)
    with suppress(ImportError, AttributeError, OSError):  # of Linux alone, and of pipes
        import fcntl

        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, BLOCK_BYTES)


def opened(source: StandardInput) -> io.BufferedReader:
    """A stream of all of it from its beginning, with a place of its own. Reading it raises as `read_at` does."""
    return io.BufferedReader(_Place(source), BLOCK_BYTES // 4)


class _Place(io.RawIOBase):
    """A place in standard input, as the stream of what follows it."""

    def __init__(self, source: StandardInput) -> None:
        self._source = source
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._source.read_at(self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at


_taken: tuple[BinaryIO, StandardInput] | None = None
"""The stream that was standard input when it was last asked for, and what comes of it."""


def standard_input() -> StandardInput:
    """What standard input holds, from where it was when this was first asked for."""
    global _taken
    stream = sys.stdin.buffer
    if _taken is None or _taken[0] is not stream:
        at = _place_in_file(stream)
        _taken = stream, Pipe(stream) if at is None else StandardInput(stream, at)
    return _taken[1]


def _place_in_file(stream: BinaryIO) -> int | None:
    """Where in a regular file a stream is; None for a pipe, a terminal, or what has no file."""
    try:
        return stream.tell() if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else None
    except OSError:  # of which `io.UnsupportedOperation` is a kind
        return None
