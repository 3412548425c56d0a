"""The memory limit of this process, and limits on lines and compressed files derived from it.

`NCU_BENCH_MEMORY_LIMIT` sets the limit, as 512MB or 8GB; `limited_to` sets it for one thread's reading, as `ncu-bench
--memory-limit` does. A report that would exceed it is refused, and its memory is released before the next one is read.
Memory use is read from /proc; on systems without it, only the limits on lines and compressed files apply.
`process_wide` is for settings of the process that several threads request.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from ncu_launch.errors import NcuBenchError, WrongUsage

SETTING = "NCU_BENCH_MEMORY_LIMIT"
OPTION = "--memory-limit"
DEFAULT = "2GB"
LEAST = 256_000_000
"""Smallest limit: this program and its libraries take a third of it before they read anything."""

WHILE_READING = 0.45
"""Share of the limit while reading: building the table takes up to as much again (traces), rarely less than half of it
(pages of ncu)."""

WHILE_STREAMING, A_STREAM = 0.35, 300_000_000
"""Share of the limit for a streamed report, and the bytes that it may take if that is more (its usual need). A report
whose launches cannot be written before its end takes about three times as much."""

WHILE_IN_PARTS = 0.75
"""Share of the limit for a timeline that is read and written in parts of fixed size, or of which only times are read,
since gaps and steps need less."""

LINES_IN_IT, LONGEST = 64, 1 << 28
"""A line may take a 64th of the limit, since its cells take some twenty times its length; at most 256 MB."""

MESSAGES_IN_IT, CODES_IN_IT = 64, 8
"""A result in a binary report may take a 64th of the limit, since decoding a malicious one takes up to thirty times its
length; the code of a kernel, which is one text, an eighth."""

TIDIED = 0.95
"""Share of its maximum that a process may use after releasing memory: above it, seconds of releasing would soon be
needed again."""

MOST_ON_DISK = 4
"""A decompressed database, and input from a pipe, may take this multiple of the limit on disk."""

LARGE_UNPACKED, BOMB = 1 << 28, 300
"""From 256 MB on, an expansion of more than 300 is refused as a zip bomb; long pages of ncu reach a fifth of that."""

_UNITS = {"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_SIZE = r"(?i)\s*(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?i?B?)\s*"
_STATM = Path("/proc/self/statm")
LIBRARIES = 200_000_000
"""Memory of this program and its libraries before reading; memory beyond it was in use for other reasons."""


@dataclass
class _Reading:
    """Nesting depth of `limited`, and memory that does not count towards the limit."""

    depth: int = 0
    others: int = 0


_reading = _Reading()


@contextmanager
def limited() -> Iterator[None]:
    """Enforce the memory limit within the block, not counting memory in use before it (e.g. by a notebook)."""
    if not _reading.depth:
        _reading.others = max(0, resident() - LIBRARIES)
    _reading.depth += 1
    try:
        yield
    finally:
        _reading.depth -= 1


class TooBig(NcuBenchError):
    """Reading on would exceed the memory limit."""


_limit: ContextVar[int | None] = ContextVar("memory limit", default=None)


def limit() -> int:
    """The memory limit in bytes. Raises `WrongUsage` if the setting is not a valid size."""
    return _limit.get() or size_of(os.environ.get(SETTING) or DEFAULT)


@contextmanager
def limited_to(size: str) -> Iterator[None]:
    """Within the block, this thread reads with the limit `size`, such as "8GB". Raises `WrongUsage` if invalid."""
    before = _limit.set(size_of(size))
    try:
        yield
    finally:
        _limit.reset(before)


@lru_cache(maxsize=8)
def size_of(text: str) -> int:
    """The bytes in a text such as 512MB, 1.5GB or 2GiB.

    Raises `WrongUsage` if the text is not a size, or is below the minimum.
    """
    match = re.fullmatch(_SIZE, text)
    unit = match[2].upper() if match else ""
    factor = _UNITS.get(unit) or _UNITS.get(f"{unit}B")
    if match is None or factor is None or float(match[1]) * factor < LEAST:
        raise WrongUsage(
            f'"{text[:40]}" is no limit for memory.',
            f"It is a number of at least {LEAST // 10**6} MB with its unit, as 512MB or 8GB.",
            f"Set it with {OPTION} or {SETTING}.",
        )
    return int(float(match[1]) * factor)


def take_share(whole: int, processes: int) -> None:
    """Limit this process to its share of `whole` bytes, divided among `processes`; at least to `LEAST`."""
    _limit.set(max(whole // processes, LEAST))


def longest_line() -> int:
    """The maximum characters of a line of a report."""
    return min(limit() // LINES_IN_IT, LONGEST)


def longest_message(*, is_code: bool = False) -> int:
    """The maximum bytes of a message of a binary report; of a message with code if `is_code`."""
    return limit() // (CODES_IN_IT if is_code else MESSAGES_IN_IT)


def require_memory(name: str, *, streaming: bool = False, in_parts: bool = False) -> None:
    """Raise `TooBig` if this process uses more memory than allowed inside `limited`.

    `name` is the report being read; `streaming` is true if it is written while it is read, `in_parts` if it is a
    timeline of which only parts of fixed size are in memory.
    """
    if not _reading.depth:
        return
    most = limit() * (WHILE_IN_PARTS if in_parts else WHILE_READING) + _reading.others
    if streaming:
        most = min(most, max(limit() * WHILE_STREAMING, A_STREAM) + _reading.others)
    if resident() < most:
        return
    release_unused()
    if resident() < TIDIED * most:
        return
    raise TooBig(
        f"{name} was not read to its end, because that would take more memory than {_text(limit())}.",
        "That is the limit for this program.",
        f"Give it more with {OPTION} {_text(2 * limit())} or {SETTING}, read fewer reports at once, or make many of "
        "them a dataset: ncu-bench parse REPORT... -o FOLDER/",
    )


def require_table_fits(name: str, rows: int, size: int) -> None:
    """Raise `TooBig` for launches of `size` bytes if they exceed the limit."""
    if size > limit():
        raise TooBig(
            f"{name} holds {rows:,} launches, of which {_text(size)} would have to be in memory at once.",
            f"The limit for this program is {_text(limit())}.",
            f"Give it more with {OPTION} {_text(2 * size)} or {SETTING}; hotspots, roofline and query need less.",
        )


def require_no_bomb(name: str, packed: int, unpacked: int) -> None:
    """Raise `TooBig` if a compressed file turns out to be a zip bomb; sizes are the bytes read and written so far."""
    if unpacked > LARGE_UNPACKED and unpacked > BOMB * packed:
        raise TooBig(
            f"{name} unpacks to more than {BOMB} times its size, which no report does.",
            f"Reading stopped at {_text(unpacked)}.",
            "If it is a report, unpack it, and name the unpacked file.",
        )


def require_disk_space(name: str, unpacked: int) -> None:
    """Raise `TooBig` if a decompressed file takes too much disk space."""
    most = MOST_ON_DISK * limit()
    if unpacked > most:
        raise TooBig(
            f"{name} unpacks to more than {_text(most)}, and was not unpacked.",
            f"A packed database may take {MOST_ON_DISK} times the memory limit on disk.",
            f"Unpack it, and name the unpacked file; or raise {OPTION}.",
        )


def require_disk_space_for_input(name: str, size: int) -> None:
    """Raise `TooBig` if input from the pipe `name`, which is kept on disk, takes too much space."""
    if size > MOST_ON_DISK * limit():
        raise TooBig(
            f"{name} takes more than {_text(MOST_ON_DISK * limit())}, and was not read.",
            f"What comes through a pipe may take {MOST_ON_DISK} times the memory limit on disk.",
            f"Save it to a file, and name that file; or pack it (zstd) before the pipe; or raise {OPTION}.",
        )


def resident() -> int:
    """The resident memory of this process in bytes, without file pages; 0 if unknown.

    File pages are excluded because they depend on the page cache: 35 MB more after an installation.
    """
    try:
        _, pages, of_files, *_ = map(int, _STATM.read_bytes().split())
        return (pages - of_files) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def release_unused() -> None:
    """Return freed memory to the system; the allocators would keep it, since most of it is in small pieces."""
    import pyarrow as pa  # readers of lines do not need it

    gc.collect()
    pa.default_memory_pool().release_unused()
    trim_heap()


def trim_heap() -> None:
    """Return what is free between pieces of the heap in use, as big arrays leave, to the system; takes little time."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _text(size: int) -> str:
    """A size in the format that `size_of` parses."""
    unit, factor = ("GB", 10**9) if size >= 10**9 else ("MB", 10**6)
    return f"{size / factor:.3g}{unit}" if size < 1000 * factor else f"{size / factor:.0f}{unit}"


# ------------------------------------------------------------------------------------------- settings of the process


def process_wide(setting: Callable[[], Callable[[], None]]) -> Callable[[], AbstractContextManager[None]]:
    """Make a reference-counted context manager from `setting`, which applies a setting and returns its undo function.

    If each block restored what it found, overlapping blocks of two threads could leave the setting applied.
    """
    lock = threading.Lock()
    inside: list[Callable[[], None]] = []  # the undo functions, one per open block

    @contextmanager
    def block() -> Iterator[None]:
        with lock:
            inside.append(inside[0] if inside else setting())
        try:
            yield
        finally:
            with lock:
                put_back = inside.pop()
                if not inside:
                    put_back()

    block.__doc__ = setting.__doc__
    return block


@process_wide
def one_heap() -> Callable[[], None]:
    """Allocate Arrow's buffers from the heap that numpy uses: two heaps keep a fifth more freed memory."""
    import pyarrow as pa  # slow to import

    usual = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    return partial(pa.set_memory_pool, usual)
