"""Standard input, which comes once, read as often as a file: reports are looked at, read fast, and then perhaps again.

A file behind `<` is read where it lies. What comes through a pipe is kept while it is read, until the process ends. It
is kept packed: a report of details pages packs to a fortieth, in a tenth of the time that a disk takes for all of it.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from contextlib import suppress
from typing import Any, BinaryIO, Protocol

import zstandard
from ncu_launch.errors import NcuBenchError

from ncu_parsers.sources import memory

BLOCK_BYTES = 1 << 20
LOOKED_AT_BYTES = 8 * BLOCK_BYTES
"""So much is waited for to know how much there is: what reads big reports otherwise than small ones asks for less."""
IN_MEMORY_BYTES = 1 << 24
"""So much of what is packed is kept in memory, and more in a file without a name."""


class StandardInput(Protocol):
    """What standard input holds, each byte of it as often as it is asked for."""

    @property
    def size(self) -> int:
        """How many bytes there are, or at least. Raises as `read_at` does."""

    def read_at(self, at: int, most: int) -> bytes:
        """Some of the bytes from `at` on, no more than `most`; b"" at the end. Raises `NcuBenchError`."""


class OfFile:
    """A file, from where the shell left it."""

    def __init__(self, file: BinaryIO, begin: int) -> None:
        self._file = file
        self._begin = begin

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return max(0, os.fstat(self._file.fileno()).st_size - self._begin)

    def read_at(self, at: int, most: int) -> bytes:
        """As told; raises `OSError` where a file cannot be read."""
        self._file.seek(self._begin + at)
        return self._file.read(most)


class OfPipe:
    """What came through a pipe until now, in packed blocks of one size, and what has yet to come."""

    def __init__(self, pipe: BinaryIO) -> None:
        from tempfile import SpooledTemporaryFile  # what reads files alone does without its imports

        _prepare(pipe)
        self._pipe = pipe
        self._ended = False
        self._failed: NcuBenchError | None = None
        self._packed = SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115  # open as long as this is
        self._ends = [0]
        """Where in it blocks end, and the next one begins."""
        self._pack = zstandard.ZstdCompressor(level=1).compress
        self._unpack = zstandard.ZstdDecompressor().decompress
        self._last: tuple[int, bytes] = (-1, b"")
        """The block that was read last, and which one it is."""

    @property
    def size(self) -> int:
        """How many bytes there are, or at least."""
        while not self._ended and len(self._ends) <= LOOKED_AT_BYTES // BLOCK_BYTES:
            self._block(len(self._ends) - 1)
        whole = len(self._ends) - 2
        return max(0, whole) * BLOCK_BYTES + (len(self._block(whole)) if whole >= 0 else 0)

    def read_at(self, at: int, most: int) -> bytes:
        """As told; raises `memory.TooBig` for more than may be kept on disk, and when it cannot be kept.

        From then on it raises each time, since what has yet to come is not all of it.
        """
        number, within = divmod(at, BLOCK_BYTES)
        return self._block(number)[within : within + most]

    def _block(self, number: int) -> bytes:
        if self._failed is not None:
            raise self._failed
        if number != self._last[0]:
            is_next = number == len(self._ends) - 1
            self._last = number, self._take() if is_next else self._again(number)
        return self._last[1]

    def _again(self, number: int) -> bytes:
        begin, end = self._ends[number : number + 2]
        self._packed.seek(begin)
        return self._unpack(self._packed.read(end - begin), BLOCK_BYTES)

    def _take(self) -> bytes:
        data = b"" if self._ended else self._pipe.read(BLOCK_BYTES)
        self._ended = len(data) < BLOCK_BYTES
        if not data:
            return data
        packed = self._pack(data)
        try:
            memory.hold_input_on_disk(self._ends[-1] + len(packed))
            self._packed.seek(self._ends[-1])
            self._packed.write(packed)
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
        self._ends.append(self._ends[-1] + len(packed))
        return data


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
        _taken = stream, OfPipe(stream) if at is None else OfFile(stream, at)
    return _taken[1]


def _place_in_file(stream: BinaryIO) -> int | None:
    """Where in a regular file a stream is; None for a pipe, a terminal, or what has no file."""
    try:
        return stream.tell() if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else None
    except OSError:  # of which `io.UnsupportedOperation` is a kind
        return None
