"""Protobuf messages defined by tables of their fields (number, name, type), without a compiled description.

Every field may be missing, and unknown fields are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

MessageFields = tuple[tuple[int, str, str], ...]
"""Number, name and type of each field. A type with * is repeated; the name of another message is a type too."""

_Field = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "double": _Field.TYPE_DOUBLE, "float": _Field.TYPE_FLOAT, "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64, "int64": _Field.TYPE_INT64, "bytes": _Field.TYPE_BYTES,
}  # fmt: skip

DAMAGE = (DecodeError, ValueError, IndexError, KeyError, TypeError, struct.error, RecursionError)
"""Exceptions of protobuf for damaged messages: the first from its C extension, any from its Python implementation."""

_WHOLE, _EIGHT_BYTES, _SIZED, _FOUR_BYTES = 0, 1, 2, 5
"""Wire types of fields (protobuf.dev, "Encoding")."""
_LONGEST_VARINT = 10


class Damaged(Exception):
    """A message cannot be decoded."""


class MessageTypes:
    """The messages of a format. `package` separates equal names of different formats."""

    def __init__(self, package: str, messages: Mapping[str, MessageFields]) -> None:
        self._package, self._messages = package, messages
        self._class_of = lru_cache(maxsize=None)(self._made)
        self._pool: descriptor_pool.DescriptorPool | None = None

    def decoded(self, message: str, data: bytes) -> Any:
        """Decode the message of that name from `data`. Raises `Damaged`."""
        try:
            return self._class_of(message).FromString(data)
        except DAMAGE as error:
            raise Damaged(f"a {message} cannot be decoded") from error

    def message(self, name: str) -> Any:
        """A new, empty message of that name."""
        return self._class_of(name)()

    def _made(self, message: str) -> Any:
        self._pool = self._pool or self._described()
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"{self._package}.{message}"))

    def _described(self) -> descriptor_pool.DescriptorPool:
        file = descriptor_pb2.FileDescriptorProto(name="report.proto", package=self._package, syntax="proto2")
        for name, fields in self._messages.items():
            message = file.message_type.add(name=name)
            for number, field, kind in fields:
                added = message.field.add(name=field, number=number)
                added.label = _Field.LABEL_REPEATED if kind.endswith("*") else _Field.LABEL_OPTIONAL
                kind = kind.rstrip("*")
                added.type = _KINDS.get(kind, _Field.TYPE_MESSAGE)
                if kind not in _KINDS:
                    added.type_name = f".{self._package}.{kind}"
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        return pool


def fields_in(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Number and content of a message's length-delimited fields (texts, messages), in order.

    If a message ends early, its last field is the remainder. `Damaged` is raised after it, and where fields cannot be
    separated.
    """
    for number, kind, begin, end in _fields(data):
        if kind == _SIZED:
            yield number, data[begin:end]
        if end > len(data):
            raise Damaged(f"{end - len(data):,} bytes are missing at its end")


def whole_fields(data: memoryview) -> memoryview:
    """A message up to its first damaged or incomplete field."""
    whole = 0
    try:
        for *_, end in _fields(data):
            whole = end if end <= len(data) else whole
    except Damaged:
        pass
    return data[:whole]


def _fields(data: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Number and wire type of each field of a message, where its content begins, and where it should end."""
    end = 0
    while end < len(data):
        key, begin = _varint(data, end)
        kind = key & 7
        if kind == _SIZED:
            size, begin = _varint(data, begin)
            end = begin + size
        elif kind == _WHOLE:
            _, end = _varint(data, begin)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            end = begin + (8 if kind == _EIGHT_BYTES else 4)
        else:
            raise Damaged(f"no field of protobuf is written as kind {kind}")
        yield key >> 3, kind, begin, end


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A whole number of any length, and the position after it."""
    value = 0
    for place, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise Damaged("a number is cut off, or longer than 64 bits")
