"""Inputs of the parsers: files, compressed or not, pipes and standard input, decoded to lines.

Windows shells redirect to UTF-16, or to UTF-8 with a byte order mark; both are recognised. Invalid bytes are replaced
and counted; they never stop reading.
"""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.atomic_files import temporary_folder

from ncu_parsers.sources import memory
from ncu_parsers.sources.settings import NOT_SET, Settings
from ncu_parsers.sources.standard_input import StandardInput, named_pipe, opened, standard_input

STANDARD_INPUT = "-"
TIMELINE = "timeline"
"""The folder, in a run folder of ncu, of the nsys run that preceded it."""
DAMAGE = (OSError, EOFError, zlib.error, zstandard.ZstdError)
"""Errors raised while reading a damaged file."""

HEAD = 4096
"""Number of first bytes from which the encoding is detected."""

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def is_url(text: str) -> bool:
    """True if the text is a URL, not a path on disk."""
    return "://" in text


def is_here(path: str) -> bool:
    """True for standard input and for an existing path; False for URLs and other origins of a run."""
    return path == STANDARD_INPUT or Path(path).exists()


@dataclass(frozen=True)
class Source:
    """One report to read: a file, or standard input or a named pipe, which are buffered to be read again.

    It is number `number` of the `of` sources found together, and is read with `settings`.
    """

    path: str
    number: int = field(default=1, compare=False)
    of: int = field(default=1, compare=False)
    settings: Settings = field(default=NOT_SET, compare=False)

    @property
    def name(self) -> str:
        """The source's name in tables and messages."""
        return "standard input" if self.path == STANDARD_INPUT else self.path

    @property
    def is_piped(self) -> bool:
        """True for standard input and for a named pipe, such as <(COMMAND) in a shell; each can be read only once."""
        return self.path == STANDARD_INPUT or Path(self.path).is_fifo()

    def _buffered(self) -> StandardInput:
        """The pipe's buffered input. Raises `NcuBenchError` if it cannot be opened."""
        if self.path == STANDARD_INPUT:
            return standard_input()
        try:
            return named_pipe(Path(self.path))
        except OSError as error:
            raise unreadable(self.path, error) from error

    @property
    def size(self) -> int:
        """Its size on disk in bytes, 0 if unknown; for a pipe the bytes so far, after waiting for 8 MB or its end.

        Raises `NcuBenchError` if a pipe cannot be buffered.
        """
        if self.is_piped:
            return self._buffered().size
        try:
            return Path(self.path).stat().st_size
        except OSError:
            return 0

    def head(self, count: int) -> bytes:
        """The first `count` bytes, decompressed.

        Raises `NcuBenchError` if the file cannot be opened or a pipe cannot be buffered.
        """
        with self.open() as stream:
            return _undamaged(stream, count)  # damage is reported by the reader

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The report as a decompressed stream.

        Raises `NcuBenchError` if the file cannot be opened or a pipe cannot be buffered.
        """
        if self.is_piped:
            yield _decompressed(opened(self._buffered()), self.name)
            return
        with ExitStack() as files:
            try:
                raw = files.enter_context(Path(self.path).open("rb"))
                stream = _decompressed(raw, self.name)
            except OSError as error:
                raise unreadable(self.path, error) from error
            yield stream  # outside the try, since the caller's errors may have other causes

    @contextmanager
    def on_disk(self, suffix: str) -> Iterator[Path]:
        """Within the block, the report as a plain file: itself, or its unpacked or piped content in a temporary folder.

        A temporary file without a name of its own ends in `suffix`. Raises as `open` and `unpack`.
        """
        if not self.is_piped and not self._is_packed():
            yield Path(self.path).absolute()
            return
        with temporary_folder() as folder:
            stem = Path(self.path).stem  # REPORT.nsys-rep.gz leaves a suffix
            unpacked = folder / (stem if Path(stem).suffix else f"report{suffix}")
            self.unpack(unpacked)
            yield unpacked

    def _is_packed(self) -> bool:
        try:
            with Path(self.path).open("rb") as raw:
                return raw.read(4).startswith((_GZIP_MAGIC, _ZSTD_MAGIC))
        except OSError as error:
            raise unreadable(self.path, error) from error

    def unpack(self, path: Path) -> None:
        """Decompress the report into the file `path`; if it is damaged, up to the damage.

        Raises `memory.TooBig` if it takes too much disk space, `NcuBenchError` if it cannot be written.
        """
        size = 0
        with self.open() as stream:
            try:
                with path.open("wb") as unpacked:
                    while block := _undamaged(stream, 1 << 20):
                        size += len(block)
                        memory.require_disk_space(self.name, size)
                        unpacked.write(block)
            except OSError as error:
                raise NcuBenchError(
                    f"{self.name} could not be unpacked into {path.parent}: {error.strerror or error}.",
                    advice="Unpack it elsewhere and name the unpacked file, or set TMPDIR to a folder with more space.",
                ) from error


def _undamaged(stream: BinaryIO, count: int) -> bytes:
    return _up_to_damage(stream, count)[0]


def _up_to_damage(stream: BinaryIO, count: int) -> tuple[bytes, Exception | None]:
    """Up to `count` bytes, fewer at the end of the file or before damage, and the error raised by the damage."""
    found = b""
    try:
        while len(found) < count and (more := read_some(stream, count - len(found))):
            found += more
    except DAMAGE as error:
        return found, error
    return found, None


def read_some(stream: BinaryIO, most: int) -> bytes:
    """The next 1 to `most` bytes, b"" at the end. Uses `read1`, since `read` discards data before damage."""
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    return read(most)


def unreadable(path: str, error: OSError) -> NcuBenchError:
    """The error for a file that cannot be opened or read."""
    return NcuBenchError(
        f"{path} could not be read: {error.strerror or error}.", advice="Check the path and its permissions."
    )


def _decompressed(raw: io.BufferedReader, name: str) -> BinaryIO:
    head = raw.peek(4)[:4]
    if head.startswith(_GZIP_MAGIC):
        return cast(BinaryIO, _Unpacked(cast(BinaryIO, gzip.GzipFile(fileobj=raw)), raw, name))
    if head.startswith(_ZSTD_MAGIC):
        unpacking = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        return cast(BinaryIO, _Unpacked(cast(BinaryIO, unpacking), raw, name))
    return raw


class _Unpacked(io.RawIOBase):
    """The decompressed content of a file. Raises `memory.TooBig` if it turns out to be a zip bomb."""

    def __init__(self, unpacking: BinaryIO, packed: io.BufferedReader, name: str) -> None:
        self._unpacking: Any = unpacking
        self._packed = packed
        self._name = name
        self._size = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._counted(self._unpacking.read(size))

    def read1(self, size: int = -1) -> bytes:
        return self._counted(self._unpacking.read1(size))

    def readinto(self, buffer: Any) -> int:
        data = self._counted(self._unpacking.read1(len(buffer)))
        buffer[: len(data)] = data
        return len(data)

    def _counted(self, data: bytes) -> bytes:
        self._size += len(data)
        if self._size > memory.LARGE_UNPACKED:
            memory.require_no_bomb(self._name, self._packed.tell(), self._size)
        return data


def encoding_of(head: bytes) -> str:
    """Detect the encoding from the first bytes: by a byte order mark, or by the zero bytes of UTF-16."""
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if len(head) >= 4 and head[1::2].count(0) > len(head) // 4:
        return "utf-16-le"
    if len(head) >= 4 and head[0::2].count(0) > len(head) // 4:
        return "utf-16-be"
    return "utf-8"


class LongLine(str):
    """The beginning of a line that exceeds the length limit."""

    __slots__ = ()
    KEPT = 200


@dataclass
class Lines:
    """Iterate over the lines of a report, without line ends.

    `replaced` counts lines with bytes that are invalid in the encoding; `complete` is false if the last line has no
    line end; `head` is the beginning of the file, undecoded. Raises `memory.TooBig`, naming the report `name`, if the
    process exceeds its memory limit. `block_bytes` are read at once. `streaming`: the lines are not kept
    (see `memory.require_memory`), and those just before damage may be lost.
    """

    stream: BinaryIO
    name: str = "the report"
    block_bytes: int = 1 << 20
    streaming: bool = False
    replaced: int = 0
    complete: bool = True
    head: bytes = field(init=False)
    _damage: Exception | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.head, self._damage = _up_to_damage(self.stream, HEAD)

    def __iter__(self) -> Iterator[str]:
        for lines in self.blocks():
            if isinstance(lines, LongLine):
                yield self._checked(lines)
            else:
                yield from map(self._checked, str(memoryview(lines)[1:], "utf-8", "replace").split("\n"))

    def blocks(self, *, ends_behind: bool = False) -> Iterator[bytes | LongLine]:
        """Yield the same lines many at once, in UTF-8 with the line end (and any CR) before each; a `LongLine` alone.

        With `ends_behind`, each line is followed by its line end, except a last line without one. Invalid UTF-8 is
        kept, and nothing is counted in `replaced`.
        """
        longest, before = memory.longest_line(), b"" if ends_behind else b"\n"
        begun, cut = before, None  # the unfinished line, whole or the beginning of a long one
        for piece in self._in_utf8():
            memory.require_memory(self.name, streaming=self.streaming)
            end = piece.rfind(b"\n") + ends_behind
            has_end = end >= ends_behind
            if has_end and cut is None:
                yield b"".join((begun, memoryview(piece)[:end]))
                begun = piece[end:]
            elif has_end and cut is not None:
                yield cut
                if lines := piece[piece.find(b"\n") + ends_behind : end]:  # the rest of a long line is dropped
                    yield lines
                begun, cut = piece[end:], None
            elif cut is None:
                begun += piece
            if cut is None and len(begun) > longest + len(before):
                cut = LongLine(begun[len(before) :].decode("utf-8", "replace")[: LongLine.KEPT])
        self.complete = len(begun) == len(before)
        if not self.complete:
            yield cut or begun

    def _in_utf8(self) -> Iterator[bytes]:
        """The report in UTF-8, without a byte order mark; invalid bytes of UTF-16 are replaced."""
        encoding = encoding_of(self.head)
        block = self.head or self._block()
        if encoding in ("utf-8", "utf-8-sig"):
            block = block.removeprefix(codecs.BOM_UTF8)
            while block:
                yield block
                block = self._block()
            return
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        while block:
            yield decoder.decode(block).encode()
            block = self._block()
        yield decoder.decode(b"", final=True).encode()

    def _block(self) -> bytes:
        if self._damage is not None:
            raise self._damage
        if self.streaming:  # nothing of a damaged report is streamed
            return self.stream.read(self.block_bytes)
        return read_some(self.stream, self.block_bytes)

    def _checked(self, line: str) -> str:
        if "\ufffd" in line:
            self.replaced += 1
        return line if isinstance(line, LongLine) else line.rstrip("\r")
