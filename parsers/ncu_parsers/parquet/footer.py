"""Read a Parquet footer without Arrow, which crashes on damaged ones (tests/parsers/parquet/test_footer.py).

pyarrow 26 lets C++ exceptions escape from `RowGroupMetaData.column` and `ColumnChunkMetaData.statistics`. Of each
column, only path, compression and numbers of values and nulls are read. Layout: parquet.thrift of Apache Parquet, in
Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

MAGIC = b"PAR1"
"""The first and last bytes of a Parquet file."""

UNCOMPRESSED, SNAPPY, GZIP, LZO, BROTLI, LZ4, ZSTD, LZ4_RAW = range(8)
"""Parquet's numbers of compressions."""

MOST_FIELDS = 1 << 15
"""Arrow stores field numbers in 16 bits, so it would mistake a larger number for another field."""

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_NUMBERS = frozenset({_I16, _I32, _I64})

_ROW_GROUPS = (4, _LIST)  # of FileMetaData
_COLUMNS = (1, _LIST)  # of RowGroup
_META_DATA = (3, _STRUCT)  # of ColumnChunk
_PATH, _CODEC, _NUM_VALUES, _STATISTICS = (3, _LIST), (4, _I32), (5, _I64), (12, _STRUCT)  # of ColumnMetaData
_NULL_COUNT = (3, _I64)  # of Statistics

Readers: TypeAlias = Mapping[tuple[int, int], Callable[[int], int]]
"""(field number, type) -> function that takes the position where the value starts, and returns where it ends."""


class DamagedFooter(ValueError):
    """The footer is damaged."""


class FooterColumns(NamedTuple):
    """Paths (joined by dots) of columns that are null in every row group, according to their statistics, and the
    numbers of all compressions used."""

    empty: frozenset[str]
    compressions: frozenset[int]


def is_parquet(path: Path) -> bool:
    """True if a file starts like Parquet; false if it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


@lru_cache(maxsize=4)
def columns_of(footer: bytes) -> FooterColumns:
    """The columns and compressions in a footer. Raises `DamagedFooter` if it is damaged."""
    reader = _Reader(footer)
    try:
        reader.read()
    except (IndexError, ValueError, RecursionError) as error:
        raise DamagedFooter(f"its footer is damaged ({error})") from error
    return FooterColumns(frozenset(reader.empty - reader.filled), frozenset(reader.compressions))


class _Reader:
    """Parses the wanted fields of a footer and skips the others, 100,000 in a big file.

    Thrift's compact protocol: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
    """

    def __init__(self, data: bytes) -> None:
        self.empty: set[str] = set()
        self.filled: set[str] = set()
        self.compressions: set[int] = set()
        self._data = data
        self._path, self._codec, self._values = "", 0, -1
        self._nulls: int | None = None
        self._of_row_group: Readers = {_COLUMNS: self._columns}
        self._of_chunk: Readers = {_META_DATA: self._meta_data}
        self._of_meta_data: Readers = {
            _PATH: self._read_path,
            _CODEC: self._read_codec,
            _NUM_VALUES: self._read_values,
            _STATISTICS: self._statistics,
        }
        self._of_statistics: Readers = {_NULL_COUNT: self._read_nulls}

    def read(self) -> None:
        """Parse the footer. Raises `IndexError`, `ValueError` or `RecursionError` if it is damaged."""
        self._struct(0, {_ROW_GROUPS: self._row_groups})

    def _struct(self, at: int, readers: Readers) -> int:
        """Parse the wanted fields of the struct that starts at `at` and skip the others; returns its end."""
        data, field = self._data, 0
        while head := data[at]:
            at += 1
            if head > 15:
                field += head >> 4
            else:
                field, at = _number(data, at)
            if not 0 <= field < MOST_FIELDS:
                raise ValueError(f"no field {field}")
            kind = head & 15
            reader = readers.get((field, kind))
            at = _end_of(data, at, kind) if reader is None else reader(at)
        return at + 1

    def _row_groups(self, at: int) -> int:
        at, count = self._structs(at)
        for _ in range(count):
            at = self._struct(at, self._of_row_group)
        return at

    def _columns(self, at: int) -> int:
        at, count = self._structs(at)
        for _ in range(count):
            self._path, self._codec, self._values, self._nulls = "", 0, -1, None
            at = self._struct(at, self._of_chunk)
            (self.empty if self._nulls == self._values else self.filled).add(self._path)
            self.compressions.add(self._codec)
        return at

    def _structs(self, at: int) -> tuple[int, int]:
        """The position of the first struct in a list, and their number."""
        at, element, count = _list(self._data, at)
        if element != _STRUCT and count:
            raise ValueError("a list holds something else")
        return at, count

    def _meta_data(self, at: int) -> int:
        return self._struct(at, self._of_meta_data)

    def _statistics(self, at: int) -> int:
        return self._struct(at, self._of_statistics)

    def _read_path(self, at: int) -> int:
        at, _, count = _list(self._data, at)
        names = []
        for _ in range(count):
            begin, at = _binary(self._data, at)
            names.append(self._data[begin:at].decode("utf-8"))
        self._path = ".".join(names)
        return at

    def _read_codec(self, at: int) -> int:
        self._codec, at = _number(self._data, at)
        return at

    def _read_values(self, at: int) -> int:
        self._values, at = _number(self._data, at)
        return at

    def _read_nulls(self, at: int) -> int:
        self._nulls, at = _number(self._data, at)
        return at


def _end_of(data: bytes, at: int, kind: int) -> int:
    """The end of the value of type `kind` that starts at `at`."""
    if kind in _NUMBERS:
        return at + 1 if data[at] < 128 else _varint(data, at)[1]
    if kind == _STRUCT:
        while head := data[at]:
            at += 1
            if head <= 15:
                _, at = _varint(data, at)  # the number of the field
            at = _end_of(data, at, head & 15)
        return at + 1
    if kind == _BINARY:
        return _binary(data, at)[1]
    if kind in (_LIST, _SET):
        at, element, count = _list(data, at)
        for _ in range(count):
            at = at + 1 if element in (_TRUE, _FALSE) else _end_of(data, at, element)
        return at
    if kind in (_TRUE, _FALSE):
        return at  # the type itself is the value
    if kind == _BYTE:
        return at + 1
    if kind == _DOUBLE:
        return at + 8
    raise ValueError(f"no type {kind}")  # the format has no maps


def _list(data: bytes, at: int) -> tuple[int, int, int]:
    """The position of a list's first element, the elements' type, and their number."""
    head = data[at]
    at, count = at + 1, head >> 4
    if count == 15:
        count, at = _varint(data, at)
    if count > len(data) - at:  # every element takes at least a byte
        raise ValueError("a list is longer than the footer")
    return at, head & 15, count


def _binary(data: bytes, at: int) -> tuple[int, int]:
    """The start and end of a byte string."""
    length, at = _varint(data, at)
    if at + length > len(data):
        raise ValueError("it ends in a value")
    return at, at + length


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A signed integer and its end."""
    zigzag, at = _varint(data, at)
    return zigzag >> 1 ^ -(zigzag & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned integer and its end."""
    result = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        if byte < 128:
            return result | byte << shift, at
        result |= (byte & 127) << shift
        shift += 7
    raise ValueError("no number")
