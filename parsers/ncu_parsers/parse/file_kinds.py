"""Select the reader of a file: text pages of ncu and nsys, NVIDIA's binary reports, SQLite exports, traces.

The first bytes decide; the file name only if they are ambiguous. Readers are imported on demand, so that reading a CSV
loads neither SQLite nor protobuf.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ncu_parsers.ncu_rep import MAGIC
from ncu_parsers.report_data.report import Report, StreamedReport
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import TRACE_WORDS, Source

if TYPE_CHECKING:
    import pyarrow as pa

HEAD_BYTES = 1 << 16
"""Number of first bytes that are looked at: before its events a trace names its devices and settings, in 26 KB."""
TEXT_IN_PARTS = "ncu_parsers.streaming.streaming_reader"


class FileKind(NamedTuple):
    """A kind of file: the module that reads it, and its first bytes or the endings of its name.

    If `words` are given, one of them must occur near the beginning. With `in_parts`, the module's `stream_report` reads
    big files too. With `by_others`, what else is installed has a part in reading the file, and the module's `read_with`
    names it with its version, because another version may give other data. With `ranges_apart`, the module's
    `stream_gpu_work` reads a file without the ranges of the host, in a fraction of the time.
    """

    module: str
    magic: tuple[bytes, ...] = ()
    suffixes: tuple[str, ...] = ()
    words: tuple[bytes, ...] = ()
    by_others: bool = False
    in_parts: bool = False
    ranges_apart: bool = False

    def fits(self, head: bytes, name: str) -> bool:
        """True if a file with these first bytes and this name is of this kind."""
        if not self.magic:
            return name.lower().endswith(self.suffixes)
        if not self.words:
            return head.startswith(self.magic)
        return head.lstrip().startswith(self.magic) and any(word in head for word in self.words)


KINDS: tuple[FileKind, ...] = (
    FileKind("ncu_parsers.ncu_rep.report_file", magic=(MAGIC,), in_parts=True, by_others=True),
    FileKind("ncu_parsers.timelines.nsys.nsys_sqlite", magic=(b"SQLite format 3\0",), in_parts=True, ranges_apart=True),
    FileKind(
        "ncu_parsers.timelines.nsys.nsys_rep",
        magic=(b"NVIDIA Tegra Profiler Report",),
        by_others=True,
        in_parts=True,
        ranges_apart=True,
    ),
    FileKind(
        "ncu_parsers.timelines.nsys.nsys_rep",
        suffixes=(".nsys-rep", ".qdrep", ".nsys-rep.gz", ".qdrep.gz", ".nsys-rep.zst", ".qdrep.zst"),
        by_others=True,
        in_parts=True,
        ranges_apart=True,
    ),
    FileKind("ncu_parsers.timelines.kineto.kineto", magic=(b"{", b"["), words=TRACE_WORDS, in_parts=True),
    FileKind("ncu_parsers.timelines.kineto.kineto", suffixes=(".json", ".json.gz", ".json.zst"), in_parts=True),
)  # fmt: skip
"""The first matching kind reads the file; a file that matches none is text."""
GIT_LFS = b"version https://git-lfs.github.com/spec"
"""The beginning of a pointer of Git LFS, which has the name of the file that it stands for."""


def read_artefact(source: Source) -> Report:
    """Read a file of any kind.

    Raises `NcuBenchError`, saying what to do instead, if it cannot be read.
    """
    try:
        return reader_of(source)(source)
    except MemoryError as error:
        raise memory.TooBig(
            f"{source.name} could not be read: memory ran out.",
            "The system gives this program less than the report needs.",
            "Read it alone, or where there is more memory.",
        ) from error


def reader_of(source: Source) -> Callable[[Source], Report]:
    """The function that reads `source`."""
    kind = kind_of(source)
    read: Callable[[Source], Report] = importlib.import_module(
        kind.module if kind else "ncu_parsers.detect.text_reader"
    ).read_report
    return read


def streamer_of(
    source: Source, *, ranges: bool = True
) -> Callable[[Source, Callable[[pa.Table], None]], StreamedReport] | None:
    """The function that reads `source` in parts and gives each as a table; None if it has to be read as a whole.

    Not `ranges`: ranges of the host are left out, where that spares time.
    """
    kind = kind_of(source)
    if kind is not None and not kind.in_parts:
        return None
    module = importlib.import_module(kind.module if kind else TEXT_IN_PARTS)
    stream: Callable[[Source, Callable[[pa.Table], None]], StreamedReport]
    stream = module.stream_report if ranges or kind is None or not kind.ranges_apart else module.stream_gpu_work
    return stream


def has_ranges_apart(source: Source) -> bool:
    """Whether `source` can be read without ranges of the host. Raises `NcuBenchError` if it cannot be opened."""
    kind = kind_of(source)
    return kind is not None and kind.ranges_apart


def is_binary_report(source: Source) -> bool:
    """Whether `source` is a binary report of ncu. Raises `NcuBenchError` if it cannot be opened."""
    kind = kind_of(source)
    return kind is not None and kind.magic == (MAGIC,)


def read_with(sources: Sequence[Source]) -> str:
    """What else that is installed, with versions, has a part in reading `sources`; "" if nothing does.

    Cached results are outdated if this changes.
    """
    kinds = {kind.module for kind in map(kind_of, sources) if kind is not None and kind.by_others}
    return "; ".join(importlib.import_module(module).read_with() for module in sorted(kinds))


def kind_of(source: Source) -> FileKind | None:
    """The kind of a file by its first bytes and name; None for text. Raises `NcuBenchError` if it cannot be opened."""
    head = source.head(HEAD_BYTES)
    if head.startswith(GIT_LFS):  # whatever its name: the reader of texts says what it is
        return None
    return next((kind for kind in KINDS if kind.fits(head, source.path)), None)
