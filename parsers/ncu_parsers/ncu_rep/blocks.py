"""The blocks of a binary report, and the messages in them.

The file is NVR and a zero byte, a file header, then blocks. A block is a header and a payload: sources, results of
kernels, of ranges, and of CUDA graphs profiled as a whole. Each message is preceded by its size in four bytes. Headers
are read first: they hold the names of metrics, which are numbered through the whole file, and each block's process.
Payloads are then read one message at a time, so that memory does not grow with the file.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

from ncu_parsers.ncu_rep import MAGIC
from ncu_parsers.ncu_rep.fields import Damaged, decoded, text_of
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import Source, unreadable

SIZE_BYTES = 4
BLOCKS_BETWEEN_CHECKS = 10_000
MOST_ATTRIBUTES = 10_000
"""Most attributes of a session and its devices; a forged file may claim millions."""
LATEST = 253_402_300_799
"""The last second that a date can have, in the year 9999."""
SYSTEM = {
    "Operating System": "name", "Build": "build", "Processor": "processor", "Architecture": "architecture",
    "Host Name": "host",
}  # fmt: skip
"""Session attributes that describe the profiled machine: title -> key."""


class Process(NamedTuple):
    """The profiled process: id, name of its program, and host; None where the file does not say."""

    number: int | None = None
    name: str | None = None
    host: str | None = None


class Content(Enum):
    """Kinds of messages in a payload."""

    SOURCE = "Source"
    KERNEL = "Kernel"
    RANGE = "Range"
    GRAPH = "Graph"
    UNKNOWN = ""


class Block(NamedTuple):
    """One block with a payload: where the payload begins and ends in the file, and its number of messages per kind."""

    begin: int
    end: int
    sources: int
    kernels: int
    ranges: int
    graphs: int
    process: Process

    def content_at(self, place: int) -> Content:
        """The kind of the message at an index of the payload."""
        for content, count in self.counts.items():
            if place < count:
                return content
            place -= count
        return Content.UNKNOWN

    @property
    def counts(self) -> dict[Content, int]:
        """The number of messages of each kind, in file order."""
        return {
            Content.SOURCE: self.sources, Content.KERNEL: self.kernels, Content.RANGE: self.ranges,
            Content.GRAPH: self.graphs,
        }  # fmt: skip


class MetricNames:
    """The names of metrics by number: the names of all blocks, concatenated. Each text is stored once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.codes = array("i")
        self._places: dict[bytes, int] = {}

    def add(self, encoded: Iterable[bytes]) -> None:
        """Add the names of one block."""
        for text in encoded:
            place = self._places.get(text)
            if place is None:
                place = self._places[text] = len(self.texts)
                self.texts.append(text_of(text))
            self.codes.append(place)


@dataclass
class Blocks:
    """The contents of a file's headers: blocks, metric names, session. `is_cut` if it ends in damage."""

    blocks: list[Block] = field(default_factory=list)
    names: MetricNames = field(default_factory=MetricNames)
    session: dict[str, str] = field(default_factory=dict)
    is_cut: bool = False

    @property
    def tool_version(self) -> str | None:
        """The version of the ncu that wrote the report; None if not recorded."""
        version = re.match(r"20\d\d(?:\.\d+)+", self.session.get("Nsight Compute Target", ""))
        return version[0] if version else None

    def of_processes(self) -> list[Block]:
        """The blocks process by process, as ncu numbers launches."""
        return sorted(self.blocks, key=lambda block: block.process.number or 0)


@contextmanager
def opened(source: Source) -> Iterator[BinaryIO]:
    """The report as a seekable file, unpacked into a temporary file if necessary.

    Raises `NcuBenchError` if it cannot be read or unpacked.
    """
    with source.on_disk(".ncu-rep") as path:
        try:
            stream = path.open("rb")
        except OSError as error:
            raise unreadable(source.name, error) from error
        with stream:
            yield stream


def blocks_of(stream: BinaryIO, name: str) -> Blocks:
    """Read all headers, to the end of the file or its first damage. Raises `memory.TooBig` naming the report `name`."""
    result = Blocks()
    size = stream.seek(0, 2)
    stream.seek(0)
    try:
        if stream.read(len(MAGIC)) != MAGIC:
            raise Damaged("no binary report")
        _message(stream, size)
        for number, header in enumerate(_headers(stream, size)):
            _take_header(header, stream, size, result)
            if number % BLOCKS_BETWEEN_CHECKS == 0:
                memory.require_memory(name, streaming=True)
    except Damaged:
        result.is_cut = True
    return result


def _headers(stream: BinaryIO, size: int) -> Iterator[Any]:
    while stream.tell() < size:
        data = _message(stream, size)
        if not data:
            raise Damaged("a block without a header")
        yield decoded("Header", data)


def _take_header(header: Any, stream: BinaryIO, size: int, result: Blocks) -> None:
    """Store a block, and seek to its end. Raises `Damaged` if the file ends before."""
    begin, end = stream.tell(), stream.tell() + header.payload_bytes
    result.names.add(header.strings.texts)
    result.session.update(islice(_session(header.session), max(0, MOST_ATTRIBUTES - len(result.session))))
    if end > begin:
        counts = header.sources, header.results, header.ranges, header.graphs
        result.blocks.append(Block(begin, min(end, size), *counts, _process(header.process)))
    if end > size:
        raise Damaged("the file ends in a block")
    stream.seek(end)


def _session(session: Any) -> Iterator[tuple[str, str]]:
    """Names and texts of the session attributes in a header. A file spreads them over several headers."""
    for version in session.versions:
        yield text_of(version.program), text_of(version.version)
    if session.HasField("command_line"):
        yield "Profiler Command Line", text_of(session.command_line)
    if session.HasField("created") and session.created <= LATEST:
        yield "Created", f"{datetime.fromtimestamp(session.created, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    for title, of_system in SYSTEM.items():
        if words := getattr(session.system, of_system):
            yield title, text_of(words)
    for device in session.devices:
        for attribute in device.attributes:
            known = [getattr(attribute.value, field.name) for field, _ in attribute.value.ListFields()]
            for value in known[:1]:
                text = text_of(value) if isinstance(value, bytes) else str(value)
                yield f"Device {device.number}: {text_of(attribute.name)}", text


def _process(process: Any) -> Process:
    return Process(
        process.number if process.HasField("number") else None,
        re.split(r"[\\/]", text_of(process.path))[-1] or None,
        text_of(process.host) or None,
    )


def _message(stream: BinaryIO, end: int) -> bytes:
    """The next message of a file or block that ends at `end`. Raises `Damaged` if the message would pass the end."""
    size = _size(stream, end)
    if size > memory.longest_message():
        raise Damaged("a message is longer than any")
    return stream.read(size)


def _size(stream: BinaryIO, end: int) -> int:
    size = stream.read(SIZE_BYTES)
    if len(size) < SIZE_BYTES:
        raise Damaged("the file ends in a size")
    count = int(struct.unpack("<I", size)[0])
    if count > end - stream.tell():
        raise Damaged("a message is longer than what it is in")
    return count


class Message(NamedTuple):
    """One message of a payload: its kind, and its bytes, None if they exceed the memory limit."""

    content: Content
    data: bytes | None
    block: Block


def messages_of(stream: BinaryIO, block: Block, *wanted: Content) -> Iterator[Message]:
    """Yield the wanted messages of a block. Raises `Damaged` where the block ends too early."""
    at, place = block.begin, 0
    while at < block.end:
        stream.seek(at)
        size = _size(stream, block.end)
        at = stream.tell() + size
        content = block.content_at(place)
        if content in wanted:
            longest = memory.longest_message(is_code=content is Content.SOURCE)
            yield Message(content, stream.read(size) if size <= longest else None, block)
        place += 1
    if place < sum(block.counts.values()):
        raise Damaged("the block lacks messages")
