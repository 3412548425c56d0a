"""Values of metrics and keys of their instances, decoded from messages of one field, many at once.

A report of 1,000 launches holds a million values; a Python object for each would take longer than all other work. A
value is a text, a float, a double or a whole number: the field's tag, then its content
(https://protobuf.dev/programming-guides/encoding). Values encoded in any other way are left to protobuf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncu_parsers.ncu_rep.fields import Damaged, decoded, text_of
from ncu_parsers.schema.tables import Floats

_TEXT, _SINGLE, _DOUBLE, _SMALL, _WHOLE = 0x0A, 0x15, 0x19, 0x20, 0x28
"""Tags of the fields of a Value."""
_LONGEST_WHOLE = 10
_LONG_TEXT = 128
"""A text of at least this length has a length field of more than one byte."""


@dataclass
class Values:
    """Decoded values: float64, NaN for non-numbers, and exact whole numbers (uint64) where `is_whole`; texts by index.
    `damaged` counts values that could not be decoded."""

    numbers: Floats
    whole: npt.NDArray[np.uint64]
    is_whole: npt.NDArray[np.bool_]
    texts: dict[int, str]
    damaged: int = 0


def values_of(encoded: Sequence[bytes]) -> Values:
    """Decode encoded `Value` messages; an empty message has no value."""
    count = len(encoded)
    lengths = np.fromiter(map(len, encoded), np.int64, count)
    data = np.frombuffer(b"".join(encoded) + bytes(_LONGEST_WHOLE + 1), np.uint8)
    begins = np.cumsum(lengths) - lengths
    tags = np.where(lengths > 0, data[begins], 0)
    result = Values(np.full(count, np.nan), np.zeros(count, np.uint64), np.zeros(count, bool), {})
    is_double, is_single = (tags == _DOUBLE) & (lengths == 9), (tags == _SINGLE) & (lengths == 5)
    for chosen, kind in ((is_double, np.dtype("<f8")), (is_single, np.dtype("<f4"))):
        places = begins[chosen][:, None] + 1 + np.arange(kind.itemsize)
        result.numbers[chosen] = np.ascontiguousarray(data[places]).view(kind)[:, 0]
    known = is_double | is_single | (lengths == 0)
    known |= _decode_whole(data, begins, lengths, tags, result)
    for place in np.flatnonzero(~known).tolist():
        _decode_other(place, encoded[place], result)
    return result


def _decode_whole(
    data: npt.NDArray[np.uint8],
    begins: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    tags: npt.NDArray[np.uint8],
    result: Values,
) -> npt.NDArray[np.bool_]:
    """Decode whole numbers (varints: 7 bits per byte, lowest first, the last byte below 128), and return their mask."""
    places = np.flatnonzero(((tags == _SMALL) | (tags == _WHOLE)) & (lengths > 1) & (lengths <= _LONGEST_WHOLE + 1))
    sizes = lengths[places] - 1
    found = np.zeros(len(places), np.uint64)
    well_formed = np.ones(len(places), bool)
    for at in range(int(sizes.max(initial=0))):
        parts = data[begins[places] + 1 + at]
        inside = at < sizes
        well_formed &= ~inside | ((parts >= 128) == (at < sizes - 1))
        found |= np.where(inside, (parts & np.uint8(127)).astype(np.uint64) << np.uint64(7 * at), np.uint64(0))
    found[tags[places] == _SMALL] &= np.uint64(2**32 - 1)  # protobuf cuts a longer number to the field's 32 bits
    good = places[well_formed]
    result.whole[good] = found[well_formed]
    result.numbers[good] = result.whole[good]
    result.is_whole[good] = True
    known = np.zeros(len(tags), bool)
    known[good] = True
    return known


def _decode_other(place: int, encoded: bytes, result: Values) -> None:
    """Decode a text, or a value with several or unknown fields; the first known field is used."""
    if encoded[0] == _TEXT and len(encoded) > 1 and encoded[1] == len(encoded) - 2 < _LONG_TEXT:
        result.texts[place] = text_of(encoded[2:])
        return
    try:
        value = decoded("Value", encoded)
    except Damaged:
        result.damaged += 1
        return
    if value.HasField("text"):
        result.texts[place] = text_of(value.text)
    elif value.HasField("single") or value.HasField("double"):
        result.numbers[place] = value.single if value.HasField("single") else value.double
    elif value.HasField("small") or value.HasField("whole"):
        whole = value.small if value.HasField("small") else value.whole
        result.whole[place], result.numbers[place], result.is_whole[place] = whole, whole, True
