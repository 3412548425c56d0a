"""Which reader a file is for: text pages of ncu and nsys, NVIDIA's binary reports, SQLite exports, traces.

A file says by its first bytes what it is; its name is asked only where these do not tell. Readers are imported when a
file needs them, so that reading a CSV loads neither SQLite nor NVIDIA's reader.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from ncu_parsers.report import Report
from ncu_parsers.sources import TRACE_WORDS, Source

HEAD_BYTES = 4096


@dataclass(frozen=True)
class Kind:
    """A kind of file: the module that reads it, and the bytes it begins with or the ends of its name.

    With `words`, one of them stands near the beginning, too.
    """

    module: str
    magic: tuple[bytes, ...] = ()
    suffixes: tuple[str, ...] = ()
    words: tuple[bytes, ...] = ()

    def fits(self, head: bytes, name: str) -> bool:
        """Whether a file with these first bytes and this name is of the kind."""
        if not self.magic:
            return name.lower().endswith(self.suffixes)
        return head.startswith(self.magic) and (not self.words or any(word in head for word in self.words))


KINDS: tuple[Kind, ...] = (
    Kind("ncu_parsers.ncu_report_file", magic=(b"NVR\0",)),
    Kind("ncu_parsers.nsys_sqlite", magic=(b"SQLite format 3\0",)),
    Kind("ncu_parsers.nsys_rep", magic=(b"NVIDIA Tegra Profiler Report",)),
    Kind("ncu_parsers.nsys_rep", suffixes=(".nsys-rep", ".qdrep", ".nsys-rep.gz", ".qdrep.gz", ".nsys-rep.zst")),
    Kind("ncu_parsers.kineto", magic=(b"{", b"["), words=TRACE_WORDS),
    Kind("ncu_parsers.kineto", suffixes=(".json", ".json.gz", ".json.zst")),
)  # fmt: skip
"""The first that fits reads the file; what none fits is text."""


def read_artefact(source: Source) -> Report:
    """Read a file of any kind.

    Raises `NcuBenchError` when it cannot be read: what it is, and what to do instead.
    """
    return reader_of(source)(source)


def reader_of(source: Source) -> Callable[[Source], Report]:
    """The function that reads `source`."""
    head = source.head(HEAD_BYTES)
    module = next((kind.module for kind in KINDS if kind.fits(head, source.path)), "ncu_parsers.read")
    read: Callable[[Source], Report] = importlib.import_module(module).read_report
    return read
