"""Buffer standard input and named pipes to read them repeatedly: to detect the format, and again from the beginning.

A file redirected with `<` is read in place. Input from a pipe is kept until the process ends.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, cast

from ncu_launch.errors import NcuBenchError

from ncu_parsers.sources import memory

BLOCK_BYTES = 1 << 20
LOOKED_AT_BYTES = 8 * BLOCK_BYTES
"""A pipe is read up to this point to determine its size, which decides between readers for small and big reports."""
IN_MEMORY_BYTES = 1 << 24
"""Input from a pipe is kept in memory up to this size, beyond it in a temporary file."""


class StandardInput:
    """Standard input redirected from a regular file, from its current position."""

    def __init__(self, file: BinaryIO, begin: int) -> None:
        self._file = file
        self._begin = begin

    @property
    def size(self) -> int:
        """The number of bytes; for a pipe, a lower bound. Raises what `read_at` raises."""
        return max(0, os.fstat(self._file.fileno()).st_size - self._begin)

    def read_at(self, at: int, most: int) -> bytes:
        """1 to `most` bytes from offset `at`; b"" at the end. Raises `OSError` if the file cannot be read."""
        self._file.seek(self._begin + at)
        return self._file.read(most)


class Pipe(StandardInput):
    """Input from a pipe: data that arrived is kept, the rest is read on demand."""

    def __init__(self, pipe: BinaryIO, name: str = "Standard input") -> None:
        kept = SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115  # stays open with this object
        super().__init__(cast(BinaryIO, kept), 0)
        _prepare(pipe)
        self._pipe = pipe
        self._name = name
        self._came = 0
        self._ended = False
        self._failed: NcuBenchError | None = None

    @property
    def size(self) -> int:
        """The number of bytes, or a lower bound. Raises what `read_at` raises."""
        while self._came < LOOKED_AT_BYTES and not self._ended:
            self._take()
        return self._came

    def read_at(self, at: int, most: int) -> bytes:
        """1 to `most` bytes from offset `at`; b"" at the end.

        Raises `memory.TooBig` if the input is too large for the disk limit, `NcuBenchError` if it cannot be stored;
        then every later call raises too, because data is missing.
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
            memory.require_disk_space_for_input(self._name, self._came + len(data))
            self._file.seek(self._came)
            self._file.write(data)
            self._file.flush()
        except NcuBenchError as error:
            self._failed = error
            raise
        except OSError as error:
            self._failed = NcuBenchError(
                f"{self._name} could not be kept in a temporary file: {error.strerror or error}.",
                "It comes once, and a report may have to be read again from its beginning.",
                "Save it to a file and name that file, or set TMPDIR to a folder with more space.",
            )
            raise self._failed from error
        self._came += len(data)
        self._ended = len(data) < BLOCK_BYTES


def _prepare(pipe: BinaryIO) -> None:
    """Make the pipe blocking, and enlarge its buffer, which halves the reading time of the default 64 KB.

    Some programs leave pipes in non-blocking mode, in which slow input would look like the end.
    """
    with suppress(OSError):  # a replaced sys.stdin may have no descriptor
        os.set_blocking(pipe.fileno(), True)
    with suppress(ImportError, AttributeError, OSError):  # only on Linux, only for pipes
        import fcntl

        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, BLOCK_BYTES)


def opened(source: StandardInput) -> io.BufferedReader:
    """An independent stream of all input from its beginning. Reading raises what `read_at` raises."""
    return io.BufferedReader(_Place(source), BLOCK_BYTES // 4)


class _Place(io.RawIOBase):
    """A read position in standard input, as a raw stream."""

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
"""The stream that was standard input at the last call, and its buffer."""


def standard_input() -> StandardInput:
    """The buffered standard input, from its position at the first call."""
    global _taken
    stream = sys.stdin.buffer
    if _taken is None or _taken[0] is not stream:
        at = _place_in_file(stream)
        _taken = stream, Pipe(stream) if at is None else StandardInput(stream, at)
    return _taken[1]


_pipes: dict[tuple[int, int], StandardInput] = {}
"""Input of each named pipe, by device and inode, which stay in use while the pipe is open."""


def named_pipe(path: Path) -> StandardInput:
    """The buffered content of a named pipe, or of a descriptor of one (`/dev/fd/63`). Raises `OSError`."""
    found = path.stat()
    key = found.st_dev, found.st_ino
    if key not in _pipes:
        _pipes[key] = Pipe(path.open("rb"), str(path))
    return _pipes[key]


def _place_in_file(stream: BinaryIO) -> int | None:
    """The position in a regular file; None for a pipe, a terminal or a stream without file."""
    try:
        return stream.tell() if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else None
    except OSError:  # includes `io.UnsupportedOperation`
        return None
