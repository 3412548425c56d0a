"""Take the host out of a binary report, so that it can be given away: same launches, metrics, rules and code.

    python -m benchmarks.gpu.scrub report.ncu-rep scrubbed.ncu-rep.gz

Names, addresses, processor and system of the host, folders and the arguments of the program become as many x, wherever
they stand: in fields, in cubins, in tables of lines. Names of files stay, with the options of ncu, times, process
numbers and 127.0.0.1. Identifiers of PCI lose their value. No length changes, so that the rest stays as it is.
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
"""What our reader skips, by the layout that is published with ncu."""
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
"""Texts of fewer bytes are replaced in their fields alone: elsewhere they may be anything."""
NO_VALUE = 15 << 3
"""The tag of a field that values do not have."""


class Place(NamedTuple):
    """Where the content of a field, as System.name, stands in a file."""

    field: str
    begin: int
    end: int


def places(data: bytes, message: str, begin: int, end: int) -> Iterator[Place]:
    """The fields of a message that have a name, and those of the messages in it, which stand behind it."""
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
    """The number of variable length at a place, and where it ends."""
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def _every_place(data: bytes, blocks: Blocks) -> Iterator[Place]:
    """The fields of all messages of a file: of headers, and of the payloads behind them."""
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
    """A text without what it says of the host, and what that was: all of it, or the folders of its paths.

    Of a command line the arguments of the program go too; they may be words that stand elsewhere as well.
    """
    if not field.endswith((".path", ".command_line")):
        return _crossed_out(text), [text]
    known = text if field.endswith(".path") else text[: text.find(program) + len(program)]
    kept = FOLDER.sub(lambda found: _crossed_out(found[0]), known)
    return kept + _crossed_out(text[len(known) :]), FOLDER.findall(known)


def scrubbed(data: bytes) -> bytes:
    """A report without its host. Raises `ValueError` if something of the host is left, or may be."""
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
    """Cross texts out wherever they stand, the longest first, since one may hold another."""
    for part in sorted(parts, key=len, reverse=True):
        data = data.replace(part, _crossed_out(part))
    return data


def main(report: Path, out: Path) -> None:
    """Write a report without its host; compressed if its name ends in .gz."""
    done = scrubbed(report.read_bytes())
    out.write_bytes(gzip.compress(done, 9, mtime=0) if out.suffix == ".gz" else done)
    print(f"{out.name}: {len(done):,} bytes, {out.stat().st_size:,} on disk")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
