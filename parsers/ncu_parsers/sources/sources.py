"""Where reports come from: files, folders, globs, compressed files and standard input, decoded to lines.

Windows shells redirect to UTF-16 or put a byte order mark in front of UTF-8; both are recognised. Bytes that are not
valid in the file's encoding are replaced and counted, never a reason to stop.
"""

from __future__ import annotations

import codecs
import glob
import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.run_files import EXPECTED, LOGS, MANIFEST, NODES, RANKS

from ncu_parsers.sources import memory
from ncu_parsers.sources.nsys_siblings import without_repeats
from ncu_parsers.sources.standard_input import opened, standard_input

STANDARD_INPUT = "-"
DESCRIPTORS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""Paths of what a process has open."""

TIMELINE = "timeline"
"""The folder in a run folder of ncu that holds the run of nsys before it."""
REPORT_SUFFIXES = {
    ".csv", ".txt", ".log", ".out", ".tsv", ".jsonl",
    ".ncu-rep", ".nsight-cuprof-report",
    ".nsys-rep", ".qdrep", ".sqlite",
    ".json",
}  # fmt: skip
COMPRESSED_SUFFIXES = {".gz", ".zst"}
TRACE_WORDS = (b'"traceEvents"', b'"schemaVersion"', b'"ph":')
"""One of these stands near the beginning of a trace. JSON below a folder is a report only if it is a trace."""

DAMAGE = (OSError, EOFError, zlib.error, zstandard.ZstdError)
"""What reading a damaged file raises."""

HEAD = 4096
"""By so many bytes at most, the encoding of a text is told."""

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class Source:
    """One report to read: a path, or standard input, which is kept as it comes so that it can be read again."""

    path: str

    @property
    def name(self) -> str:
        """How the source is called in tables and messages."""
        return "standard input" if self.path == STANDARD_INPUT else self.path

    @property
    def size(self) -> int:
        """The bytes it takes, compressed if it is; 0 where that is not known, and of a pipe no more than 8 MB.

        Raises `NcuBenchError` where standard input cannot be kept.
        """
        if self.path == STANDARD_INPUT:
            return standard_input().size
        try:
            return Path(self.path).stat().st_size
        except OSError:
            return 0

    def head(self, count: int) -> bytes:
        """The first bytes of the report, decompressed.

        Raises `NcuBenchError` when the file cannot be opened, or standard input not kept.
        """
        with self.open() as stream:
            return _undamaged(stream, count)  # damage is named by whoever reads it

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The bytes of the report, decompressed.

        Raises `NcuBenchError` when the file cannot be opened, or standard input not kept.
        """
        if self.path == STANDARD_INPUT:
            yield _decompressed(opened(standard_input()), self.name)
            return
        with ExitStack() as files:
            try:
                raw = files.enter_context(Path(self.path).open("rb"))
                stream = _decompressed(raw, self.name)
            except OSError as error:
                raise unreadable(self.path, error) from error
            yield stream  # outside: not every error of who reads is one of the file

    def unpack(self, path: Path) -> None:
        """Write what the report holds, decompressed, into the file `path`; of a damaged one, what there is.

        Raises `memory.TooBig` where that takes too much of the disk, `NcuBenchError` where it cannot be written.
        """
        size = 0
        with self.open() as stream:
            try:
                with path.open("wb") as unpacked:
                    while block := _undamaged(stream, 1 << 20):
                        size += len(block)
                        memory.hold_on_disk(self.name, size)
                        unpacked.write(block)
            except OSError as error:
                raise NcuBenchError(
                    f"{self.name} could not be unpacked into {path.parent}: {error.strerror or error}.",
                    advice="Unpack it elsewhere and name the unpacked file, or set TMPDIR to a folder with more space.",
                ) from error


def _undamaged(stream: BinaryIO, count: int) -> bytes:
    return _up_to_damage(stream, count)[0]


def _up_to_damage(stream: BinaryIO, count: int) -> tuple[bytes, Exception | None]:
    """The next bytes, less than `count` only at the end of the file or where damage begins, and what that is."""
    found = b""
    try:
        while len(found) < count and (more := some_of(stream, count - len(found))):
            found += more
    except DAMAGE as error:
        return found, error
    return found, None


def some_of(stream: BinaryIO, most: int) -> bytes:
    """The next 1 to `most` bytes, b"" at the end: by `read1`, since a `read` that meets damage discards what it has."""
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    return read(most)


def unreadable(path: str, error: OSError) -> NcuBenchError:
    """The error for a file that could not be opened or read."""
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
    """What a packed file holds. Raises `memory.TooBig` once it turns out to be a bomb."""

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
            memory.hold_unpacked(self._name, self._packed.tell(), self._size)
        return data


def find_sources(arguments: list[str]) -> list[Source]:
    """The reports that command-line `arguments` name, each once, in order.

    A folder stands for every report below it (by suffix; of the files of one nsys timeline the best); a glob that the
    shell left alone is expanded.
    Raises `NcuBenchError` for an argument that names nothing.
    """
    found: dict[str, Source] = {}
    for argument in arguments:
        if not argument:
            raise WrongUsage("A report without a name was asked for.", "A variable of the shell may be empty.")
        paths = [argument] if argument == STANDARD_INPUT else _paths(argument)
        if not paths:
            raise NcuBenchError(
                f"{argument} names no report.",
                "A folder is searched for "
                + " ".join(sorted(REPORT_SUFFIXES))
                + " files, also with .gz or .zst behind.",
                "Name the file itself, whatever its suffix.",
            )
        for path in paths:
            found.setdefault(path, Source(path))
    return list(found.values())


def _paths(argument: str) -> list[str]:
    path = Path(argument)
    if path.is_dir():
        return without_repeats(sorted(str(file) for file in path.rglob("*") if file.is_file() and _is_report(file)))
    if path.exists():
        if not path.is_file():
            raise NcuBenchError(
                f"{argument} is no regular file.",
                "A pipe can be read once, and reports are looked at before they are read.",
                "Give it as standard input, which is -, as in: COMMAND | ncu-bench hotspots -",
            )
        return [_by_its_own_path(argument)]
    matches = sorted(glob.glob(argument, recursive=True))
    if not matches:
        raise NcuBenchError(
            f"{argument} does not exist.", advice="Check the path; relative paths start at the current folder."
        )
    return [match for match in matches if Path(match).is_file()]


def _by_its_own_path(path: str) -> str:
    """The file that a shell put behind /dev/stdin: in another process, which may read it too, that is another."""
    if not path.startswith(DESCRIPTORS):
        return path
    own = os.path.realpath(path)
    try:
        return own if Path(own).samefile(path) else path
    except OSError:  # it has no path any more
        return path


def _is_report(file: Path) -> bool:
    if file.name == EXPECTED or _is_beside_reports(file):  # what a run should do or printed, beside what it did
        return False
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes.pop()
    if not suffixes or suffixes[-1] not in REPORT_SUFFIXES:
        return False
    return suffixes[-1] != ".json" or _is_trace(file)


def _is_beside_reports(file: Path) -> bool:
    """Whether a file of a run folder is one of its logs, or of the timeline that was only to choose what to count."""
    return any(folder.name in (LOGS, TIMELINE) and _is_run(folder.parent) for folder in file.parents)


def _is_run(folder: Path) -> bool:
    return folder.parent.name in (RANKS, NODES) or (folder / MANIFEST).is_file()


def _is_trace(file: Path) -> bool:
    try:
        head = Source(str(file)).head(1 << 16)
    except NcuBenchError:
        return True  # what cannot be opened is named by whoever reads it
    return any(word in head for word in TRACE_WORDS)


def encoding_of(head: bytes) -> str:
    """The encoding of a text from its first bytes: a byte order mark, or the zero bytes of UTF-16."""
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
    """The beginning of a line that is too long to be read."""

    __slots__ = ()
    KEPT = 200


@dataclass
class Lines:
    """The lines of a report, without their line ends.

    `replaced` counts the lines that held bytes invalid in the encoding; `complete` tells whether the last line ended;
    `head` is the beginning of the file, undecoded. Raises `memory.TooBig` when what has become of the lines takes too
    much memory; `name` is what the report is called then.
    """

    stream: BinaryIO
    name: str = "the report"
    replaced: int = 0
    complete: bool = True
    head: bytes = field(init=False)
    _damage: Exception | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.head, self._damage = _up_to_damage(self.stream, HEAD)

    def __iter__(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder(encoding_of(self.head))("replace")
        longest = memory.longest_line()
        pending = ""
        block = self.head or self._block()
        while block:
            memory.hold(self.name)
            lines = (pending + decoder.decode(block)).split("\n")
            if isinstance(pending, LongLine):
                lines[0] = pending
            pending = lines.pop()
            for line in lines:
                yield self._checked(line)
            if len(pending) > longest:
                pending = LongLine(pending[: LongLine.KEPT])
            block = self._block()
        pending = pending if isinstance(pending, LongLine) else pending + decoder.decode(b"", final=True)
        self.complete = not pending
        if pending:
            yield self._checked(pending)

    def _block(self) -> bytes:
        if self._damage is not None:
            raise self._damage
        return some_of(self.stream, 1 << 20)

    def _checked(self, line: str) -> str:
        if "\ufffd" in line:
            self.replaced += 1
        return line if isinstance(line, LongLine) else line.rstrip("\r")
