"""Open a Parquet file; damaged files and unsafe compressions are refused before anything is decompressed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from ncu_launch.errors import NcuBenchError

from ncu_parsers.datasets.remote_files import File
from ncu_parsers.parquet.footer import (
    BROTLI,
    GZIP,
    LZ4,
    LZ4_RAW,
    MAGIC,
    SNAPPY,
    UNCOMPRESSED,
    ZSTD,
    DamagedFooter,
    FooterColumns,
    columns_of,
)  # fmt: skip

DAMAGE = (OSError, pa.ArrowException, UnicodeDecodeError, DamagedFooter)
"""Errors for a damaged file; Arrow decodes column names through Python, hence UnicodeDecodeError."""

CHECKED = {"page_checksum_verification": True}
"""Verifies page checksums, if the file has them; files written by this release do."""

DECODED = {UNCOMPRESSED, SNAPPY, GZIP, LZ4, ZSTD, LZ4_RAW}
"""Accepted compressions: zstd is written here, the others by libraries that rewrite such a file."""

MOST_FOOTERS = 1 << 16
"""Bytes read at once from the end of a file; a longer footer takes a second read."""


@contextmanager
def opened(path: File) -> Iterator[tuple[pq.ParquetFile, FooterColumns]]:
    """Open a Parquet file; yields it with the columns and compressions in its footer.

    Raises `NcuBenchError` if it cannot be read or is damaged, also when read inside the block.
    """
    try:
        with parquet_file(path) as found:
            yield found
    except DAMAGE as error:
        raise NcuBenchError(
            f"{path} could not be read as Parquet: {error}.",
            "It may be cut or damaged.",
            "Make it again with: ncu-bench parse",
        ) from error


@contextmanager
def parquet_file(path: File) -> Iterator[tuple[pq.ParquetFile, FooterColumns]]:
    """As `opened`, but raises Arrow's errors (`DAMAGE`). The footer is read once: at a URL each read is a request.

    Footer and pages are read through one handle, because another process may replace the file.
    """
    with pa.OSFile(os.fsencode(path), "rb") if isinstance(path, Path) else path.open() as stream:
        end = _end(stream)
        if not end.endswith(MAGIC):
            raise DamagedFooter("it does not end as Parquet does")
        found = columns_of(_footer(end))
        _refuse_weak_decoders(found, path)
        metadata = pq.read_metadata(pa.BufferReader(end))
        with pq.ParquetFile(stream, metadata=metadata, pre_buffer=not isinstance(path, Path), **CHECKED) as file:
            yield file, found


def _end(stream: BinaryIO) -> bytes:
    """The end of a file; contains the whole footer if it is Parquet."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(size - MOST_FOOTERS, 0))
    end = stream.read(MOST_FOOTERS)
    length = _footer_size(end) + 8
    if len(end) < length <= size:
        stream.seek(size - length)
        return stream.read(length)
    return end


def _refuse_weak_decoders(columns: FooterColumns, path: File) -> None:
    """Raise `NcuBenchError` if a column has a compression that is not in `DECODED`.

    pyarrow does not say which release of Brotli it contains, so known vulnerabilities cannot be excluded. Numbers
    outside the format are refused too, because Arrow cuts them to 32 bits, which may give Brotli.
    """
    others = columns.compressions - DECODED
    if others:
        name = "Brotli" if BROTLI in others else f"a method that is not known (number {min(others)})"
        raise NcuBenchError(
            f"{path} is compressed with {name}, which is not read.",
            "A forged file can take over a program by a weak decoder, and pyarrow does not say which Brotli it holds.",
            "Make it again with: ncu-bench parse; or write it with another compression, such as zstd",
        )


def fingerprint(path: Path) -> str | None:
    """A hash (SHA-256, hexadecimal) of a Parquet file's size and footer; None if there is no such file.

    The footer holds position, length, minimum and maximum of each column.
    """
    try:
        with path.open("rb") as stream:
            end, size = _end(stream), stream.seek(0, os.SEEK_END)
    except OSError:
        return None
    if not end.endswith(MAGIC) or _footer_size(end) + 8 > len(end):
        return None
    return hashlib.sha256(str(size).encode() + _footer(end)).hexdigest()


def _footer_size(end: bytes) -> int:
    return int.from_bytes(end[-8:-4], "little")


def _footer(end: bytes) -> bytes:
    return end[-8 - _footer_size(end) : -8]
