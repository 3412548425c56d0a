"""Read launches, processes and versions from a binary report without NVIDIA's reader.

The layout is published with ncu (extras/FileFormat/ProfilerReport.proto): NVR and a zero byte, a file header, then
blocks. A block is a header and a payload of sources and results; each message is preceded by its size in four bytes.
Only data around the metrics is read. It gives the number of launches, so that a reader that returns fewer can be
rejected, and the position where a file was truncated, because readers invent a launch from the damaged rest.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

MAGIC = b"NVR\0"
LONGEST_MESSAGE = 1 << 30

Value = int | bytes
Shape = tuple[int, int, int]

# Field numbers of ProfilerReport.proto.
_SOURCES, _RESULTS, _SESSION, _PAYLOAD_BYTES, _PROCESS, _RANGES = 1, 2, 3, 5, 6, 7  # BlockHeader
_PROCESS_ID, _HOST_NAME, _PROCESS_NAME = 1, 2, 3  # ProcessInfo
_VERSIONS, _COMMAND_LINE = 8, 11  # ReportSessionDetails
_FUNCTION, _GRID, _BLOCK, _CREATED, _CONTEXT, _STREAM = 6, 10, 11, 14, 22, 23  # ProfileResult
_RANGE_CREATED, _RANGE_CONTEXT = 5, 11  # RangeResult


@dataclass(frozen=True)
class Recorded:
    """Data of one launch or range in the file, except its metrics.

    `created` is in seconds since 1970; `function` is None if the name is stored in a table of names.
    """

    process_id: int | None = None
    process_name: str | None = None
    host_name: str | None = None
    function: str | None = None
    grid: Shape | None = None
    block: Shape | None = None
    context: int | None = None
    stream: int | None = None
    created: int | None = None


@dataclass
class Recording:
    """The launches of a file in order, its session, and the number of bytes in undamaged blocks."""

    launches: list[Recorded] = field(default_factory=list)
    session: dict[str, str] = field(default_factory=dict)
    whole_bytes: int = 0
    blocks: int = 0
    cut: bool = False

    @property
    def tool_version(self) -> str | None:
        """The version of the ncu that wrote the report."""
        version = re.match(r"20\d\d(?:\.\d+)+", self.session.get("Nsight Compute Target", ""))
        return version[0] if version else None


def read_blocks(stream: BinaryIO) -> Recording:
    """Read a file to its end, or to its first damage, which sets `cut`. `stream` must be seekable."""
    result = Recording()
    try:
        if _exactly(stream, len(MAGIC)) != MAGIC:
            raise ValueError("no binary report")
        _message(stream)
        result.whole_bytes = stream.tell()
        while (header := _header(stream)) is not None:
            launches = list(_launches(stream, dict(_fields(header))))
            result.session |= dict(_session(header))
            result.launches += launches
            result.whole_bytes = stream.tell()
            result.blocks += 1
    except (ValueError, struct.error):
        result.cut = True
    return result


def _exactly(stream: BinaryIO, count: int) -> bytes:
    found = stream.read(count)
    if len(found) < count:
        raise ValueError("the file ends here")
    return found


def _header(stream: BinaryIO) -> bytes | None:
    """The header of the next block; None at the end of the file."""
    size = stream.read(4)
    return _of_size(stream, size) if size else None


def _message(stream: BinaryIO) -> bytes:
    """The next message, which is preceded by its size."""
    return _of_size(stream, stream.read(4))


def _of_size(stream: BinaryIO, size: bytes) -> bytes:
    (count,) = struct.unpack("<I", size)
    if count > LONGEST_MESSAGE:
        raise ValueError("no size of a message")
    return _exactly(stream, count)


def _launches(stream: BinaryIO, header: dict[int, Value]) -> Iterator[Recorded]:
    """Yield the launches of the block whose header was read; leaves the stream at the end of the block."""
    process = dict(_fields(_bytes(header.get(_PROCESS))))
    end = stream.tell() + _number(header.get(_PAYLOAD_BYTES))
    place = 0
    results_end = _number(header.get(_SOURCES)) + _number(header.get(_RESULTS))
    ranges_end = results_end + _number(header.get(_RANGES))
    while stream.tell() < end:
        message = _message(stream)
        if stream.tell() > end:
            raise ValueError("a message is longer than its block")
        if place >= _number(header.get(_SOURCES)):
            kind = _KERNEL if place < results_end else _RANGE if place < ranges_end else {}
            yield _recorded(process, message, kind)
        place += 1
    if place < ranges_end:
        raise ValueError("the block lacks results")


_KERNEL = {
    "function": _FUNCTION, "grid": _GRID, "block": _BLOCK, "created": _CREATED, "context": _CONTEXT, "stream": _STREAM,
}  # fmt: skip
_RANGE = {"created": _RANGE_CREATED, "context": _RANGE_CONTEXT}
"""Attributes of `Recorded` and their field numbers. For newer kinds of results, only the process is known."""


def _recorded(process: dict[int, Value], message: bytes, kind: dict[str, int]) -> Recorded:
    found = dict(_fields(message)) if kind else {}
    values = {name: found.get(number) for name, number in kind.items()}
    function = values.get("function")
    return Recorded(
        process_id=_whole(process.get(_PROCESS_ID)),
        process_name=re.split(r"[\\/]", _text(process.get(_PROCESS_NAME)))[-1] or None,
        host_name=_text(process.get(_HOST_NAME)) or None,
        function=_text(function) if isinstance(function, bytes) else None,
        grid=_shape(values.get("grid")),
        block=_shape(values.get("block")),
        context=_whole(values.get("context")),
        stream=_whole(values.get("stream")),
        created=_whole(values.get("created")),
    )


def _session(header: bytes) -> Iterator[tuple[str, str]]:
    """Session attributes, by the titles of ncu's session page."""
    for number, value in _fields(header):
        if number != _SESSION:
            continue
        for attribute, content in _fields(_bytes(value)):
            if attribute == _VERSIONS:
                version = dict(_fields(_bytes(content)))
                yield _text(version.get(1)), _text(version.get(2))
            elif attribute == _COMMAND_LINE:
                yield "Profiler Command Line", _text(content)


# ------------------------------------------------------------------------- the wire format of protocol buffers


def _fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yield field numbers and values of a message (https://protobuf.dev/programming-guides/encoding)."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            number, at = _varint(message, at)
            yield key >> 3, number
            continue
        if kind not in (1, 2, 5):
            raise ValueError("no message")
        size = 8 if kind == 1 else 4
        if kind == 2:
            size, at = _varint(message, at)
        if at + size > len(message):
            raise ValueError("the message ends in a field")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer and its end."""
    result = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, at
        shift += 7
    raise ValueError("no number")


def _number(value: Value | None) -> int:
    return value if isinstance(value, int) else 0


def _whole(value: Value | None) -> int | None:
    return value if isinstance(value, int) else None


def _bytes(value: Value | None) -> bytes:
    return value if isinstance(value, bytes) else b""


def _text(value: Value | None) -> str:
    return _bytes(value).decode("utf-8", "replace")


def _shape(value: Value | None) -> Shape | None:
    sizes = dict(_fields(_bytes(value)))
    found = [_whole(sizes.get(axis)) for axis in (1, 2, 3)]
    x, y, z = found
    return None if x is None or y is None or z is None else (x, y, z)
