"""Take binary reports of ncu apart and reassemble them, by their published layout (ProfilerReport.proto)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from ncu_parsers.ncu_rep.report_file_blocks import _fields

RESULTS, PAYLOAD_BYTES, PROCESS = 2, 5, 6
NVTX_STATE = 21


@dataclass(frozen=True)
class Block:
    """One block: its header, and the payload of sources or results behind it."""

    header: bytes
    payload: bytes

    @property
    def has_result(self) -> bool:
        return dict(_fields(self.header)).get(RESULTS) == 1

    def of_process(self, number: int, path: str) -> Block:
        process = field(1, number) + field(2, b"127.0.0.1") + field(3, path.encode())
        return replace(self, header=with_field(self.header, PROCESS, process))

    def with_nvtx(self, state: bytes) -> Block:
        """The block whose result has an NVTX state."""
        payload = sized(self.payload[4:] + field(NVTX_STATE, state))
        return Block(with_field(self.header, PAYLOAD_BYTES, len(payload)), payload)


def varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def with_field(message: bytes, changed: int, value: int | bytes) -> bytes:
    return b"".join(field(number, value if number == changed else old) for number, old in _fields(message))


def sized(message: bytes) -> bytes:
    return struct.pack("<I", len(message)) + message


def taken_apart(report: bytes) -> tuple[bytes, list[Block]]:
    """The bytes before the first block, and the blocks."""
    at = first = 8 + struct.unpack_from("<I", report, 4)[0]
    blocks = []
    while at < len(report):
        behind = at + 4 + struct.unpack_from("<I", report, at)[0]
        header = report[at + 4 : behind]
        size = dict(_fields(header)).get(PAYLOAD_BYTES, 0)
        assert isinstance(size, int)
        at = behind + size
        blocks.append(Block(header, report[behind:at]))
    return report[:first], blocks


def put_together(beginning: bytes, blocks: list[Block]) -> bytes:
    return beginning + b"".join(sized(block.header) + block.payload for block in blocks)


def nvtx_state(process: list[str], thread: dict[str, list[str]]) -> bytes:
    """Start/end ranges of the default domain, and push/pop ranges by domain, outermost first."""
    domains = ["<default domain>", *(name for name in thread if name != "<default domain>")]
    names = b"".join(field(1, field(1, at) + field(2, name.encode())) for at, name in enumerate(domains))
    stacks = b"".join(
        field(2, field(1, domains.index(domain)) + b"".join(field(3, field(1, name.encode())) for name in ranges))
        for domain, ranges in thread.items()
    )
    started = b"".join(field(3, field(1, 5) + field(2, name.encode())) for name in process)
    return names + field(2, field(1, 9166) + stacks) + field(3, field(1, 0) + started)
