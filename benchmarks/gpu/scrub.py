"""Remove the host's identity from a binary report before publication; launches, metrics, rules and code stay.

    python -m benchmarks.gpu.scrub report.ncu-rep scrubbed.ncu-rep.gz

Names, addresses, processor and system of the host, folders, and the arguments of the program are replaced by as many x,
everywhere in the file: in fields, in cubins, in line tables. File names, ncu's options, times, process numbers and
127.0.0.1 stay. PCI identifiers lose their value. All lengths stay the same, so that the file's structure is unchanged.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from ncu_parsers.ncu_rep.blocks import Blocks, blocks_of
from ncu_parsers.ncu_rep.fields import MESSAGES

MORE_FIELDS = {
    "Session": ((3, "own_system", "System"), (9, "executable", "bytes"), (10, "settings", "bytes")),
    "System": ((7, "addresses", "Address*"),),
    "Address": ((1, "text", "bytes"),),
    "Kernel": ((28, "stack", "bytes"),), "Range": ((14, "stack", "bytes"),),
}  # fmt: skip
"""Fields that our reader skips, by the layout published with ncu."""
FIELDS = {
    name: {number: (field, kind.rstrip("*")) for number, field, kind in (*MESSAGES.get(name, ()), *more)}
    for name, more in {**dict.fromkeys(MESSAGES, ()), **MORE_FIELDS}.items()
}
OF_THE_HOST = {
    "System.name", "System.build", "System.processor", "System.host", "Address.text", "Process.path", "SourceFile.path",
    "Session.command_line",
}  # fmt: skip
NOT_SCRUBBED = {"Session.executable", "Session.settings", "Kernel.stack", "Range.stack"}
FOLDER = re.compile(rb"(?<![\w.])/[^\s=,:;\"'\0]*/")
OF_ANY_HOST = re.compile(rb"/(?:usr|opt|home|root|work|tmp|mnt|data)/[\w./+-]+|fe80:[\w:%]+")
PCI = re.compile(r"device__attribute_(gpu_)?pci_\w+_id")
SHORT = 5
"""Texts of fewer bytes are replaced only in their fields: elsewhere the same bytes may mean something else."""
NO_VALUE = 15 << 3
"""Tag of a field number that metric values do not use."""


class Place(NamedTuple):
    """Position of a field's content in a file; `field` is like System.name."""

    field: str
    begin: int
    end: int


def places(data: bytes, message: str, begin: int, end: int) -> Iterator[Place]:
    """The named fields of a message, each followed by the named fields of the message in it."""
    while begin < end:
        tag, begin = _number(data, begin)
        name, kind = FIELDS[message].get(tag >> 3, ("", ""))
        if tag & 7 == 2:
            size, begin = _number(data, begin)
            after = begin + size
        else:
            after = _number(data, begin)[1] if tag & 7 == 0 else begin + {1: 8, 5: 4}[tag & 7]
        if name:
            yield Place(f"{message}.{name}", begin, after)
        if kind in FIELDS:
            yield from places(data, kind, begin, after)
        begin = after


def _number(data: bytes, at: int) -> tuple[int, int]:
    """The varint at a position, and the position after it."""
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def _every_place(data: bytes, blocks: Blocks) -> Iterator[Place]:
    """The fields of all messages of a file: of headers and their payloads."""
    payloads = {block.begin: block for block in blocks.blocks}
    at = 4 + 4 + int.from_bytes(data[4:8], "little")
    while at < len(data):
        at, end = at + 4, at + 4 + int.from_bytes(data[at : at + 4], "little")
        yield from places(data, "Header", at, end)
        at = end
        if block := payloads.get(end):
            for place in range(sum(block.counts.values())):
                at, end = at + 4, at + 4 + int.from_bytes(data[at : at + 4], "little")
                content = block.content_at(place)
                yield from places(data, content.value, at, end)
                at = end


def _crossed_out(text: bytes) -> bytes:
    return re.sub(rb"[^/ ]", b"x", text)


def _without_host(field: str, text: bytes, program: bytes) -> tuple[bytes, list[bytes]]:
    """A text with its host information crossed out, and the removed parts: the whole text, or the folders of its paths.

    The arguments in a command line are crossed out, but not listed as removed: other texts may contain the same words.
    """
    if not field.endswith((".path", ".command_line")):
        return _crossed_out(text), [text]
    known = text if field.endswith(".path") else text[: text.find(program) + len(program)]
    kept = FOLDER.sub(lambda found: _crossed_out(found[0]), known)
    return kept + _crossed_out(text[len(known) :]), FOLDER.findall(known)


def scrubbed(data: bytes) -> bytes:
    """The report without its host. Raises `ValueError` if information on the host is or may be left."""
    blocks = blocks_of(BytesIO(data), "report")
    if blocks.is_cut:
        raise ValueError("the report is damaged")
    result, name, program = bytearray(data), "", b""
    wanted: set[bytes] = set()
    for field, begin, end in _every_place(data, blocks):
        text = data[begin:end]
        if field in NOT_SCRUBBED:
            raise ValueError(f"the report has a {field}, which is not scrubbed here")
        program = text if field == "Process.path" else program
        if field in OF_THE_HOST:
            result[begin:end], parts = _without_host(field, text, program)
            wanted.update(part for part in parts if part != _crossed_out(part))
        elif field == "Attribute.name":
            name = text.decode()
        elif field == "Metric.name":
            name = blocks.names.texts[blocks.names.codes[_number(data, begin)[0]]]
        elif field in {"Attribute.value", "Metric.value"} and PCI.fullmatch(name):
            result[begin:end] = bytes([NO_VALUE]) + b"\x80" * (end - begin - 2) + b"\0"
    long = {part for part in wanted if len(part) >= SHORT}
    folders = {part.rstrip(b"/") for part in long if part.endswith(b"/")}
    done = _everywhere(bytes(result), long | folders)
    done = _everywhere(done, set(OF_ANY_HOST.findall(done)))
    if left := [part for part in (*long, *OF_ANY_HOST.findall(done)) if part in done]:
        raise ValueError(f"{left} is left")
    return done


def _everywhere(data: bytes, parts: set[bytes]) -> bytes:
    """Cross out all occurrences of the texts, the longest first, since one may contain another."""
    for part in sorted(parts, key=len, reverse=True):
        data = data.replace(part, _crossed_out(part))
    return data


def main(report: Path, out: Path) -> None:
    """Write the scrubbed report, gzipped if the name ends in .gz."""
    done = scrubbed(report.read_bytes())
    out.write_bytes(gzip.compress(done, 9, mtime=0) if out.suffix == ".gz" else done)
    print(f"{out.name}: {len(done):,} bytes, {out.stat().st_size:,} on disk")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
