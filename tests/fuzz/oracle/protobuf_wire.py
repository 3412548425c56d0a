"""The fields of protobuf messages, by a reader of thirty lines (https://protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard


class Fixed(bytes):
    """The four or eight bytes of a float or double, which are no text and no message."""


Value = int | bytes | Fixed
DAMAGE = (ValueError, IndexError, UnicodeDecodeError, AssertionError)
"""What is raised for bytes that are no whole messages, or hold a number where bytes should be."""


def fields(data: Value) -> Iterator[tuple[int, Value]]:
    """Number and value of each field of a message: whole numbers, or the bytes of everything else."""
    assert is_bytes(data)
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key >> 3 == 0:
            raise ValueError("no field has the number 0")
        if key & 7 == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        length, at = (8, at) if key & 7 == 1 else (4, at) if key & 7 == 5 else _varint(data, at)
        if at + length > len(data) or key & 7 not in (1, 2, 5):
            raise ValueError("a field is cut off")
        yield key >> 3, data[at : at + length] if key & 7 == 2 else Fixed(data[at : at + length])
        at += length


def is_bytes(value: Value) -> TypeGuard[bytes]:
    """True for what has a length: a text, bytes or a message."""
    return isinstance(value, bytes) and not isinstance(value, Fixed)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value & 2**64 - 1, at


def all_of(message: Value, wanted: int) -> list[Value]:
    """The values of a field that comes any number of times."""
    return [value for number, value in fields(message) if number == wanted]


def number_in(message: Value, wanted: int, bits: int = 64) -> int:
    """The last value of a whole number without a sign; 0 where it is missing."""
    value = [0, *all_of(message, wanted)][-1]
    assert isinstance(value, int)
    return value & (1 << bits) - 1


def bytes_in(message: Value, wanted: int) -> bytes:
    """The last bytes of a field; none where it is missing."""
    value = [b"", *all_of(message, wanted)][-1]
    assert is_bytes(value)
    return value


def message_in(message: Value, wanted: int) -> bytes:
    """The message of a field; the pieces of one that comes several times are one message."""
    found = b""
    for piece in all_of(message, wanted):
        assert is_bytes(piece)
        found += piece
    return found


def signed(value: Value) -> int:
    """A whole number of 64 bits with its sign."""
    assert isinstance(value, int)
    return value - 2**64 if value >= 2**63 else value


def text(value: Value) -> str:
    """UTF-8 as text."""
    assert is_bytes(value)
    return value.decode("utf-8")
