"""Arrow arrays from Python values and back, directly through their buffers.

pyarrow.array(), scalar() and to_numpy() would import pandas if it is installed: 0.2 s and 40 MB for every command.
Methods such as cast() would also import pyarrow.compute, which generates the help of 286 functions: 50 ms. None becomes
null in every array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

try:  # the module that pyarrow.compute wraps
    from pyarrow import _compute as arrow
except ImportError:
    from pyarrow import compute as arrow

Number = TypeVar("Number", bound=np.generic)
Column = TypeVar("Column", pa.Array, pa.ChunkedArray, pa.Table)


def cast(array: Column, kind: pa.DataType, *, safe: bool = True) -> Column:
    """The values in another type. Raises `pyarrow.ArrowInvalid` if one is not `safe` to convert."""
    options = arrow.CastOptions.safe if safe else arrow.CastOptions.unsafe
    return arrow.call_function("cast", [array], options(kind))


def take(values: Column, places: pa.Array) -> Column:
    """The values, or rows of a table, at these indices."""
    return arrow.call_function("take", [values, places], arrow.TakeOptions())


def kept(values: Column, mask: Sequence[bool] | npt.NDArray[np.bool_]) -> Column:
    """The values, or rows of a table, where a mask is true."""
    return arrow.call_function("filter", [values, booleans(mask)], arrow.FilterOptions())


def places_among(values: pa.Array, sought: pa.Array) -> pa.Array:
    """The first index of each sought value among the values; null for null and for missing values."""
    return arrow.call_function("index_in", [sought], arrow.SetLookupOptions(values, skip_nulls=True))


def encoded(array: Column) -> Column:
    """The values as a dictionary array: every distinct value once."""
    return arrow.call_function("dictionary_encode", [array], arrow.DictionaryEncodeOptions())


def replaced(array: Column, pattern: str, replacement: str) -> Column:
    """Texts or bytes with every match of a pattern (RE2) replaced; `\\1` stands for the first group of the match."""
    return arrow.call_function("replace_substring_regex", [array], arrow.ReplaceSubstringOptions(pattern, replacement))


def trimmed(array: Column) -> Column:
    """Texts without the white space around them."""
    return arrow.call_function("utf8_trim_whitespace", [array])


def matches(array: pa.Array, pattern: str) -> npt.NDArray[np.bool_]:
    """Mask of texts that contain a pattern (RE2); no text may be null."""
    return bits_of(arrow.call_function("match_substring_regex", [array], arrow.MatchSubstringOptions(pattern)))


def groups_of(array: pa.Array, pattern: str) -> list[pa.Array]:
    """The texts of each named group of a pattern (RE2), null where it is not found."""
    found: list[pa.Array] = arrow.call_function("extract_regex", [array], arrow.ExtractRegexOptions(pattern)).flatten()
    return found


def values_of(array: pa.Array, kind: type[Number]) -> npt.NDArray[Number]:
    """The numbers of a primitive array, without a copy; undefined where null."""
    if not len(array):
        return np.empty(0, kind)
    return np.frombuffer(array.buffers()[1], dtype=kind)[array.offset : array.offset + len(array)]


def present(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Mask of non-null values."""
    bitmap = array.buffers()[0]
    if bitmap is None or not array.null_count:
        return np.ones(len(array), dtype=bool)
    bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(bool)


def bits_of(array: pa.Array) -> npt.NDArray[np.bool_]:
    """The values of a bool array without nulls."""
    bits = np.unpackbits(np.frombuffer(array.buffers()[1], dtype=np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(bool)


def whole(values: npt.NDArray[np.integer], present: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """int64, null where not `present`."""
    bitmap = None if present is None or present.all() else _buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(pa.int64(), len(values), [bitmap, _buffer(values.astype(np.int64))])


def _validity(present: Sequence[bool]) -> pa.Buffer | None:
    """The validity bitmap; None if nothing is null."""
    if all(present):
        return None
    return pa.py_buffer(np.packbits(np.array(present, dtype=bool), bitorder="little").tobytes())


def _buffer(values: npt.NDArray[np.generic]) -> pa.Buffer:
    return pa.py_buffer(np.ascontiguousarray(values))


def _offsets(lengths: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.array(lengths, np.int32).cumsum(dtype=np.int32, out=offsets[1:])
    return offsets


def floats(values: npt.NDArray[np.float64]) -> pa.Array:
    """float64, null where NaN."""
    values = np.ascontiguousarray(values, dtype=np.float64)
    present = np.packbits(~np.isnan(values), bitorder="little")
    return pa.Array.from_buffers(pa.float64(), len(values), [_buffer(present), _buffer(values)])


def integers(values: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    """int32 or int64."""
    width = np.int32 if kind == pa.int32() else np.int64
    numbers = np.array([0 if value is None else value for value in values], dtype=width)
    return pa.Array.from_buffers(
        kind, len(values), [_validity([value is not None for value in values]), _buffer(numbers)]
    )


def wholes(values: npt.NDArray[np.integer], kind: pa.DataType) -> pa.Array:
    """int32 or int64, null where negative."""
    numbers: npt.NDArray[np.int32 | np.int64] = values.astype(np.int32 if kind == pa.int32() else np.int64)
    bitmap = _buffer(np.packbits(numbers >= 0, bitorder="little")) if len(numbers) and numbers.min() < 0 else None
    return pa.Array.from_buffers(kind, len(numbers), [bitmap, _buffer(np.maximum(numbers, 0))])


def recoded_integers(codes: npt.NDArray[np.integer], values: Sequence[int | None]) -> pa.Array:
    """int64 from each row's index into `values`, which may be negative."""
    numbers = np.array([0 if value is None else value for value in values], np.int64)[codes]
    present = np.array([value is not None for value in values], np.bool_)[codes]
    bitmap = None if present.all() else _buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(pa.int64(), len(numbers), [bitmap, _buffer(numbers)])


def indices(codes: npt.NDArray[np.int32]) -> pa.Array:
    """int32, null where negative."""
    if not len(codes) or codes.min() >= 0:
        return pa.Array.from_buffers(pa.int32(), len(codes), [None, _buffer(codes.astype(np.int32, copy=False))])
    bitmap = _buffer(np.packbits(codes >= 0, bitorder="little"))
    return pa.Array.from_buffers(pa.int32(), len(codes), [bitmap, _buffer(np.maximum(codes, 0).astype(np.int32))])


def repeated(text: str, rows: int) -> pa.Array:
    """One text for every row."""
    return coded(np.zeros(rows, np.int32), [text])


def booleans(values: Sequence[bool] | npt.NDArray[np.bool_]) -> pa.Array:
    """bool without nulls."""
    bits = np.packbits(np.array(values, dtype=bool), bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits.tobytes())])


def texts(values: Sequence[str | None]) -> pa.Array:
    """string; lone surrogates, which no encoding can hold, are replaced."""
    encoded = [b"" if value is None else value.encode("utf-8", "replace") for value in values]
    buffers = [
        _validity([value is not None for value in values]),
        _buffer(_offsets([len(text) for text in encoded])),
        pa.py_buffer(b"".join(encoded)),
    ]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def coded(codes: npt.NDArray[np.int32], values: Sequence[str]) -> pa.Array:
    """Dictionary-encoded string from each row's index into distinct `values`; null if negative."""
    return pa.DictionaryArray.from_arrays(indices(codes), texts(values))


def dictionary(values: Sequence[str | None]) -> pa.Array:
    """Dictionary-encoded string: every distinct text once."""
    places: dict[str, int] = {}
    codes = [-1 if value is None else places.setdefault(value, len(places)) for value in values]
    return coded(np.array(codes, np.int32), list(places))


def recoded(codes: npt.NDArray[np.integer], values: Sequence[str | None]) -> pa.Array:
    """Like `dictionary`, from each row's index into `values`, which may repeat; null if negative."""
    places: dict[str, int] = {}
    first = np.full(len(values) + 1, -1)  # one entry more, for index -1
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # of several assignments the last one wins
    known = np.flatnonzero(first[:-1] >= 0)
    translated = np.full(len(values) + 1, -1, np.int32)
    for code in known[np.argsort(first[known])].tolist():
        value = values[code]
        if value is not None:
            translated[code] = places.setdefault(value, len(places))
    return coded(translated[codes], list(places))


def text_lists(values: Sequence[Sequence[str] | None]) -> pa.Array:
    """Lists of strings."""
    items = [item for value in values for item in value or ()]
    return _lists(pa.list_(pa.string()), values, texts(items))


def integer_lists(values: Sequence[Sequence[int] | None]) -> pa.Array:
    """Lists of int32."""
    items = [item for value in values for item in value or ()]
    return _lists(pa.list_(pa.int32()), values, integers(items, pa.int32()))


def triples(values: npt.NDArray[np.int32]) -> pa.Array:
    """Lists of three int32 from an array of shape (rows, 3); null where the first value is negative."""
    there = values[:, 0] >= 0
    offsets = _buffer(_offsets(3 * there))
    items = pa.Array.from_buffers(pa.int32(), 3 * int(there.sum()), [None, _buffer(values[there].reshape(-1))])
    validity = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.list_(pa.int32()), len(values), [validity, offsets], children=[items])


def struct_lists(values: Sequence[Sequence[dict[str, str]] | None], kind: pa.DataType) -> pa.Array:
    """Lists of structs whose every field is a string."""
    items = [item for value in values for item in value or ()]
    return _lists(kind, values, _structs(kind, lambda name: texts([item[name] for item in items])))


def grouped_structs(fields: dict[str, pa.Array], counts: npt.NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    """Lists of structs from the concatenated fields of all structs and the length of each list; null where 0."""
    buffers = [_validity((counts > 0).tolist()), _buffer(_offsets(counts))]
    return pa.Array.from_buffers(kind, len(counts), buffers, children=[_structs(kind, fields.__getitem__)])


def _structs(kind: pa.DataType, field_of: Callable[[str], pa.Array]) -> pa.Array:
    struct = kind.value_type
    columns = [field_of(struct.field(place).name) for place in range(struct.num_fields)]
    return pa.Array.from_buffers(struct, len(columns[0]), [None], children=columns)


def _lists(kind: pa.DataType, values: Sequence[Sequence[object] | None], items: pa.Array) -> pa.Array:
    offsets = _buffer(_offsets([len(value or ()) for value in values]))
    present = _validity([value is not None for value in values])
    return pa.Array.from_buffers(kind, len(values), [present, offsets], children=[items])


def distinct_lists(array: pa.ListArray) -> tuple[npt.NDArray[np.int64], list[tuple[Any, ...] | None]]:
    """Index of each list of texts or int32 into the distinct lists, also returned; None among them for null."""
    edges, there = _list_edges(array), present(array)
    items, lengths = encoded(array.values[edges[0] : edges[-1]]), np.where(there, np.diff(edges), -1)
    edges -= edges[0]
    numbers = np.where(present(items.indices), values_of(items.indices, np.int32), len(items.dictionary))
    numbers = np.append(numbers, len(items.dictionary) + 1)  # the last stands for the end of a list
    codes = _numbered(lengths)
    for place in range(int(lengths.max(initial=0))):
        at = np.where(lengths > place, edges[:-1] + place, -1)
        codes = _numbered(codes * (len(items.dictionary) + 2) + numbers[at])
    firsts = np.zeros(codes.max(initial=-1) + 1, np.int64)
    firsts[codes[::-1]] = np.arange(len(codes))[::-1]
    values = [*items.dictionary.to_pylist(), None]
    return codes, [
        tuple(values[one] for one in numbers[edges[row] : edges[row] + lengths[row]].tolist()) if there[row] else None
        for row in firsts.tolist()
    ]


def _numbered(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The index of each value among the distinct values, in order of first appearance."""
    return values_of(encoded(whole(values)).indices, np.int32).astype(np.int64)


def _list_edges(array: pa.ListArray) -> npt.NDArray[np.int64]:
    """Offsets of each list into the values, and the end of the last list."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    return offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)


def words_of(array: pa.DictionaryArray) -> list[str | None]:
    """A dictionary array as Python strings."""
    words: list[str | None] = [*array.dictionary.to_pylist(), None]
    codes = np.where(present(array.indices), values_of(array.indices, np.int32), -1)
    return [words[code] for code in codes.tolist()]


def one(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array. Of no chunks, combine_chunks() would call pyarrow.array(), which imports pandas."""
    if not column.num_chunks:
        return pa.nulls(0, column.type)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
