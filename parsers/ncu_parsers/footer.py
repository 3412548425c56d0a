"""What the footer of a Parquet file says of its columns, read here and not by Arrow.

Asked by Python for the metadata of a column, Arrow ends the process where they are damaged: pyarrow 26 lets C++
exceptions out of `RowGroupMetaData.column` and `ColumnChunkMetaData.statistics`. Only what tells which columns are
empty and how they are compressed is read. Layout: parquet.thrift of the Apache Parquet project, in Thrift's compact
protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

UNCOMPRESSED, SNAPPY, GZIP, LZO, BROTLI, LZ4, ZSTD, LZ4_RAW = range(8)
"""The format's list of compressions."""

MOST_FIELDS = 1 << 15
"""Arrow keeps the number of a field in 16 bits: what is more would be another field for it."""

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)

_ROW_GROUPS = 4  # FileMetaData
_COLUMNS = 1  # RowGroup
_META_DATA = 3  # ColumnChunk
_PATH, _CODEC, _NUM_VALUES, _STATISTICS = 3, 4, 5, 12  # ColumnMetaData
_NULL_COUNT = 3  # Statistics


class DamagedFooter(ValueError):
    """The footer cannot be read."""


class FooterColumns(NamedTuple):
    """Of the columns of a file, by their paths with dots: those that hold nothing but nulls in every row group, by
    their statistics; and the numbers of the compressions that some part of one has.
    """

    empty: frozenset[str]
    compressions: frozenset[int]


@lru_cache(maxsize=4)
def columns_of(footer: bytes) -> FooterColumns:
    """What a footer says of the columns. Raises `DamagedFooter`."""
    try:
        empty: set[str] = set()
        filled: set[str] = set()
        compressions: set[int] = set()
        for path, is_empty, compression in _chunks(_Reader(footer)):
            (empty if is_empty else filled).add(path)
            compressions.add(compression)
        return FooterColumns(frozenset(empty - filled), frozenset(compressions))
    except (IndexError, ValueError, RecursionError) as error:
        raise DamagedFooter(f"its footer is damaged ({error})") from error


def _chunks(reader: _Reader) -> Iterator[tuple[str, bool, int]]:
    """Path, emptiness and compression of every column chunk."""
    for _ in reader.structs_of(_ROW_GROUPS):
        for _ in reader.structs_of(_COLUMNS):
            path, compression, values, nulls = "", 0, -1, None
            for field, kind in reader.fields():
                if (field, kind) != (_META_DATA, _STRUCT):
                    reader.skip(kind)
                    continue
                for inner, inner_kind in reader.fields():
                    if (inner, inner_kind) == (_PATH, _LIST):
                        path = ".".join(reader.texts())
                    elif (inner, inner_kind) == (_CODEC, _I32):
                        compression = reader.number()
                    elif (inner, inner_kind) == (_NUM_VALUES, _I64):
                        values = reader.number()
                    elif (inner, inner_kind) == (_STATISTICS, _STRUCT):
                        nulls = reader.number_of(_NULL_COUNT)
                    else:
                        reader.skip(inner_kind)
            yield path, nulls == values, compression


class _Reader:
    """Thrift's compact protocol: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md"""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field of the struct that begins here; its value must be read before the next."""
        field = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            field = field + step if step else self.number()
            if not 0 <= field < MOST_FIELDS:
                raise ValueError(f"no field {field}")
            yield field, kind

    def structs_of(self, wanted: int) -> Iterator[None]:
        """Stops before each struct of the list in field `wanted` of the struct that begins here."""
        for field, kind in self.fields():
            if (field, kind) == (wanted, _LIST):
                element, count = self._list()
                if element != _STRUCT and count:
                    raise ValueError("a list holds something else")
                for _ in range(count):
                    yield
            else:
                self.skip(kind)

    def number_of(self, wanted: int) -> int | None:
        """The number in field `wanted` of the struct that begins here, if it has one."""
        found = None
        for field, kind in self.fields():
            if (field, kind) == (wanted, _I64):
                found = self.number()
            else:
                self.skip(kind)
        return found

    def texts(self) -> list[str]:
        """A list of texts."""
        _, count = self._list()
        return [self._binary().decode("utf-8") for _ in range(count)]

    def number(self) -> int:
        """A whole number with a sign."""
        zigzag = self._varint()
        return zigzag >> 1 ^ -(zigzag & 1)

    def skip(self, kind: int) -> None:
        """Pass over a value."""
        if kind in (_TRUE, _FALSE):
            return
        if kind == _BYTE:
            self._byte()
        elif kind in (_I16, _I32, _I64):
            self._varint()
        elif kind == _DOUBLE:
            self._at += 8
        elif kind == _BINARY:
            self._binary()
        elif kind in (_LIST, _SET):
            self._skip_items(*self._list())
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        else:
            raise ValueError(f"no type {kind}")  # the format has no maps

    def _skip_items(self, element: int, count: int) -> None:
        for _ in range(count):
            if element in (_TRUE, _FALSE):
                self._byte()
            else:
                self.skip(element)

    def _list(self) -> tuple[int, int]:
        """Type and number of the elements that follow."""
        head = self._byte()
        count = head >> 4
        count = self._varint() if count == 15 else count
        if count > len(self._data) - self._at:  # every element takes a byte at least
            raise ValueError("a list is longer than the footer")
        return head & 15, count

    def _binary(self) -> bytes:
        length = self._varint()
        begin, self._at = self._at, self._at + length
        if self._at > len(self._data):
            raise ValueError("it ends in a value")
        return self._data[begin : self._at]

    def _byte(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        return byte

    def _varint(self) -> int:
        result = shift = 0
        while shift < 70:
            byte = self._data[self._at]
            self._at += 1
            result |= (byte & 127) << shift
            if byte < 128:
                return result
            shift += 7
        raise ValueError("no number")
