"""The blocks of a binary report, and the messages in them.

NVR and a zero byte, a file header, then blocks. A block is a header and a payload: sources, results of kernels, of
ranges, and of CUDA graphs that were profiled whole. Each message is preceded by its size in four bytes. Headers are
read first: they hold the names of metrics, which count through the whole file, and which process a block is of.
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
"""No session says more of itself and its devices; a forged file may claim millions."""
LATEST = 253_402_300_799
"""The last second that a date can have, that of the year 9999."""
SYSTEM = {
    "Operating System": "name", "Build": "build", "Processor": "processor", "Architecture": "architecture",
    "Host Name": "host",
}  # fmt: skip
"""What is said of the machine that was profiled, by title."""


class Process(NamedTuple):
    """The process that was profiled, as far as the file says."""

    number: int | None = None
    name: str | None = None
    host: str | None = None


class Content(Enum):
    """What a message of a payload is."""

    SOURCE = "Source"
    KERNEL = "Kernel"
    RANGE = "Range"
    GRAPH = "Graph"
    UNKNOWN = ""


class Block(NamedTuple):
    """One block with a payload: where that begins and ends in the file, and how many messages of each kind it has."""

    begin: int
    end: int
    sources: int
    kernels: int
    ranges: int
    graphs: int
    process: Process

    def content_at(self, place: int) -> Content:
        """What the message at a place of the payload is."""
        for content, count in self.counts.items():
            if place < count:
                return content
            place -= count
        return Content.UNKNOWN

    @property
    def counts(self) -> dict[Content, int]:
        """How many messages of each kind there are, in their order."""
        return {
            Content.SOURCE: self.sources, Content.KERNEL: self.kernels, Content.RANGE: self.ranges,
            Content.GRAPH: self.graphs,
        }  # fmt: skip


class MetricNames:
    """The names that metrics give by number: those of all blocks, one behind the other. Each text is kept once."""

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
    """What the headers of a file say: its blocks, the names of metrics, the session. `is_cut` if it ends in damage."""

    blocks: list[Block] = field(default_factory=list)
    names: MetricNames = field(default_factory=MetricNames)
    session: dict[str, str] = field(default_factory=dict)
    is_cut: bool = False

    @property
    def tool_version(self) -> str | None:
        """The version of the ncu that wrote the report."""
        version = re.match(r"20\d\d(?:\.\d+)+", self.session.get("Nsight Compute Target", ""))
        return version[0] if version else None

    def of_processes(self) -> list[Block]:
        """The blocks process by process, as ncu numbers launches."""
        return sorted(self.blocks, key=lambda block: block.process.number or 0)


@contextmanager
def opened(source: Source) -> Iterator[BinaryIO]:
    """The report as a file in which one can seek, unpacked into a temporary one if it is none.

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
    """Note a block, and go to its end. Raises `Damaged` if the file ends before."""
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
    """What a header says of the session, as names and texts. A file tells it piece by piece, in several headers."""
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
    """The next message of a file, or of a block, that ends at `end`. Raises `Damaged` if that is before it."""
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
    """One message of a payload: what it is, and its bytes, None if they are too many for the memory limit."""

    content: Content
    data: bytes | None
    block: Block


def messages_of(stream: BinaryIO, block: Block, *wanted: Content) -> Iterator[Message]:
    """The messages of a block that are wanted, one after the other. Raises `Damaged` where the block ends too early."""
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
