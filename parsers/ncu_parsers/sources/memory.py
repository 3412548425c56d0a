"""How much memory reading may take: a limit for this process, and what follows from it for lines and packed files.

`NCU_BENCH_MEMORY_LIMIT` sets it, as 512MB or 8GB; `ncu-bench --memory-limit` sets that for one command. A report that
would take more is refused, and what it took is given back before the next one is read. Memory is known from /proc; on a
system without it only the limits on lines and packed files hold.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ncu_launch.errors import NcuBenchError, WrongUsage

SETTING = "NCU_BENCH_MEMORY_LIMIT"
OPTION = "--memory-limit"
DEFAULT = "2GB"
LEAST = 256_000_000
"""This program and its libraries take a third of it before they read anything."""

WHILE_READING = 0.45
"""The share that what is read may take: making the table of it takes up to as much again (traces), seldom less than
half (pages of ncu)."""

WHILE_STREAMING, A_STREAM = 0.35, 300_000_000
"""The share for a report that is written as it is read, and the bytes that one takes where nothing is odd about it.
Where its launches cannot be written before the end, it takes about three times as much."""

LINES_IN_IT, LONGEST = 64, 1 << 28
"""A line may have a 64th, because cut into cells it takes some twenty times its length; and 256 MB at most."""

TIDIED = 0.95
"""Giving memory back takes seconds: where it brings less than a twentieth it would soon be done again, and again."""

MOST_ON_DISK = 4
"""A packed database, and what comes through a pipe, may take four times the limit there."""

LARGE_UNPACKED, BOMB = 1 << 28, 300
"""From 256 MB on, what unpacks to more than 300 times its size is a bomb: long pages of ncu reach a fifth of that."""

_UNITS = {"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_SIZE = r"(?i)\s*(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?i?B?)\s*"
_STATM = Path("/proc/self/statm")
LIBRARIES = 200_000_000
"""What this program and its libraries may hold before they read; more than that was there for another reason."""


@dataclass
class _Reading:
    """Whether this process is reading, and what it held before that does not count."""

    depth: int = 0
    others: int = 0


_reading = _Reading()


@contextmanager
def limited() -> Iterator[None]:
    """Hold what is read inside to the limit. What a program of the user's own (a notebook) held before is its own."""
    if not _reading.depth:
        _reading.others = max(0, resident() - LIBRARIES)
    _reading.depth += 1
    try:
        yield
    finally:
        _reading.depth -= 1


class TooBig(NcuBenchError):
    """To read on would take more than may be taken."""


def limit() -> int:
    """The most bytes of memory that reading may take. Raises `WrongUsage` where the setting is no such size."""
    return size_of(os.environ.get(SETTING) or DEFAULT)


@lru_cache(maxsize=8)
def size_of(text: str) -> int:
    """The bytes that a text such as 512MB, 1.5GB or 2GiB stands for.

    Raises `WrongUsage` where it is no size, or less than any report can be read with.
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


def share_among(processes: int) -> None:
    """Let this process take its share of the limit, where as many work beside each other."""
    os.environ[SETTING] = str(max(limit() // processes, LEAST))


def longest_line() -> int:
    """The most characters that a line of a report may have to be read."""
    return min(limit() // LINES_IN_IT, LONGEST)


def hold(name: str, *, streaming: bool = False) -> None:
    """Raise `TooBig` when this process takes more memory than what is read inside `limited` may take.

    `name` is the report that is being read; `streaming` says that it is written as it is read.
    """
    if not _reading.depth:
        return
    most = limit() * WHILE_READING + _reading.others
    if streaming:
        most = min(most, max(limit() * WHILE_STREAMING, A_STREAM) + _reading.others)
    if resident() < most:
        return
    give_back()
    if resident() < TIDIED * most:
        return
    raise TooBig(
        f"{name} was not read to its end, because that would take more memory than {_said(limit())}.",
        "That is the limit for this program.",
        f"Give it more with {OPTION} {_said(2 * limit())} or {SETTING}, read fewer reports at once, or make many of "
        "them a dataset: ncu-bench parse REPORT... -o FOLDER/",
    )


def hold_table(name: str, rows: int, size: int) -> None:
    """Raise `TooBig` for launches that would take so many bytes, when that is more than reading may take."""
    if size > limit():
        raise TooBig(
            f"{name} holds {rows:,} launches, of which {_said(size)} would have to be in memory at once.",
            f"The limit for this program is {_said(limit())}.",
            f"Give it more with {OPTION} {_said(2 * size)} or {SETTING}; hotspots, roofline and query do with less.",
        )


def hold_unpacked(name: str, packed: int, unpacked: int) -> None:
    """Raise `TooBig` for a packed file that has turned out to be a bomb; sizes in bytes, so far."""
    if unpacked > LARGE_UNPACKED and unpacked > BOMB * packed:
        raise TooBig(
            f"{name} unpacks to more than {BOMB} times its size, which no report does.",
            f"It was left at {_said(unpacked)}.",
            "If it is a report, unpack it, and name the unpacked file.",
        )


def hold_on_disk(name: str, unpacked: int) -> None:
    """Raise `TooBig` for a packed file that takes too much of the disk to be unpacked beside other work."""
    most = MOST_ON_DISK * limit()
    if unpacked > most:
        raise TooBig(
            f"{name} unpacks to more than {_said(most)}, and was not unpacked.",
            f"A packed database may take {MOST_ON_DISK} times the memory limit on disk.",
            f"Unpack it, and name the unpacked file; or raise {OPTION}.",
        )


def hold_input_on_disk(size: int) -> None:
    """The same for what comes through a pipe, which is kept there."""
    if size > MOST_ON_DISK * limit():
        raise TooBig(
            f"Standard input takes more than {_said(MOST_ON_DISK * limit())}, and was not read.",
            f"What comes through a pipe may take {MOST_ON_DISK} times the memory limit on disk.",
            f"Save it to a file, and name that file; or pack it (zstd) before the pipe; or raise {OPTION}.",
        )


def resident() -> int:
    """The bytes of memory that this process takes now; 0 where that is not known."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def give_back() -> None:
    """Give memory that is no longer needed back to the system: most was many small pieces, which are kept otherwise."""
    import pyarrow as pa  # what reads lines alone does without it

    gc.collect()
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _said(size: int) -> str:
    """A size as `size_of` reads it."""
    unit, factor = ("GB", 10**9) if size >= 10**9 else ("MB", 10**6)
    return f"{size / factor:.3g}{unit}" if size < 1000 * factor else f"{size / factor:.0f}{unit}"
