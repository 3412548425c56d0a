"""Take binary reports of ncu apart, reassemble them, and make small ones, byte by byte and without protobuf.

The layout is published with ncu (extras/FileFormat); https://protobuf.dev/programming-guides/encoding says how messages
are written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

SIZE_BYTES = 4
RESULTS, STRINGS, PAYLOAD_BYTES, PROCESS = 2, 4, 5, 6
METRIC = 13
NVTX_STATE = 21

FieldValue = int | bytes


def fields_of(message: bytes) -> Iterator[tuple[int, FieldValue]]:
    """The numbers of a message's fields, and their values: integers, or the bytes of everything else."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        kind = key & 7
        if kind == 0:
            number, at = _read_varint(message, at)
            yield key >> 3, number
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            size, at = _read_varint(message, at)
        yield key >> 3, message[at : at + size]
        at += size


def pieces_of(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The numbers of a message's fields, and each field as it is encoded."""
    at = 0
    while at < len(message):
        begin = at
        key, at = _read_varint(message, at)
        if key & 7 == 0:
            _, at = _read_varint(message, at)
        elif key & 7 == 2:
            size, at = _read_varint(message, at)
            at += size
        else:
            at += {1: 8, 5: 4}[key & 7]
        yield key >> 3, message[begin:at]


def without_metrics(report: bytes, is_left_out: Callable[[str], bool]) -> bytes:
    """A report, with one result in a block, without some metrics of its launches."""
    beginning, blocks = taken_apart(report)
    names = [
        text.decode()
        for block in blocks
        for number, strings in fields_of(block.header)
        if number == STRINGS and isinstance(strings, bytes)
        for _, text in fields_of(strings)
        if isinstance(text, bytes)
    ]
    return put_together(beginning, [_without(block, names, is_left_out) for block in blocks])


def _without(block: Block, names: Sequence[str], is_left_out: Callable[[str], bool]) -> Block:
    if not block.has_result:
        return block
    kept = b""
    for number, piece in pieces_of(block.payload[SIZE_BYTES:]):
        ((_, metric),) = fields_of(piece)
        if number == METRIC and isinstance(metric, bytes) and is_left_out(names[int(dict(fields_of(metric))[1])]):
            continue
        kept += piece
    payload = sized(kept)
    return Block(with_field(block.header, PAYLOAD_BYTES, len(payload)), payload)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while message[at] >= 128:
        result |= (message[at] & 127) << shift
        shift, at = shift + 7, at + 1
    return result | message[at] << shift, at + 1


@dataclass(frozen=True)
class Block:
    """One block: its header, and the payload of sources or results behind it."""

    header: bytes
    payload: bytes

    @property
    def has_result(self) -> bool:
        return dict(fields_of(self.header)).get(RESULTS, 0) != 0

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
    return b"".join(field(number, value if number == changed else old) for number, old in fields_of(message))


def sized(message: bytes) -> bytes:
    return struct.pack("<I", len(message)) + message


def taken_apart(report: bytes) -> tuple[bytes, list[Block]]:
    """The bytes before the first block, and the blocks."""
    at = first = 8 + struct.unpack_from("<I", report, 4)[0]
    blocks = []
    while at < len(report):
        behind = at + 4 + struct.unpack_from("<I", report, at)[0]
        header = report[at + 4 : behind]
        size = dict(fields_of(header)).get(PAYLOAD_BYTES, 0)
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


# ----------------------------------------------------------------------------------------------- small reports, made


def value(content: str | float) -> bytes:
    """A value of a metric: a text, a whole number, or a double."""
    if isinstance(content, str):
        return field(1, content.encode())
    return field(5, content) if isinstance(content, int) else b"\x19" + struct.pack("<d", content)


Instances = Mapping[str | int, float]
Metric = tuple[str | float | None, Instances]
"""The value of a metric, if it has one, and the values of its instances by their keys."""


@dataclass(frozen=True)
class Kernel:
    """A launch as it is written: its metrics by name, and more fields of its result."""

    name: str = "gemm"
    metrics: Mapping[str, Metric | str | float] | None = None
    more: bytes = b""

    def encoded(self, ids: Mapping[str, int]) -> bytes:
        shape = field(1, 16) + field(2, 2) + field(3, 1)
        known = field(7, self.name.encode()) + field(10, shape) + field(11, shape)
        times = field(14, 1_760_000_000) + field(22, 1) + field(23, 7)
        metrics = b"".join(field(13, _metric(ids[name], metric)) for name, metric in (self.metrics or {}).items())
        return known + times + metrics + self.more


def _metric(number: int, metric: Metric | str | float) -> bytes:
    content, instances = metric if isinstance(metric, tuple) else (metric, {})
    known = field(1, number) + (b"" if content is None else field(2, value(content)))
    return known + b"".join(field(3, field(1, value(key)) + field(2, value(one))) for key, one in instances.items())


BEGINNING = b"NVR\0" + sized(field(1, 7))
SYSTEM = field(1, b"Linux") + field(3, b"Arm Neoverse-V2") + field(4, b"aarch64") + field(5, b"node7")
DEVICE = field(1, 0) + b"".join(
    field(3, field(1, b"device__attribute_" + name) + field(2, value(content)))
    for name, content in ((b"display_name", "NVIDIA GH200 480GB"), (b"warp_size", 32), (b"memory_clock", 2.5))
)
SESSION = (
    field(2, 1_760_000_000) + field(4, SYSTEM) + field(6, DEVICE) + field(11, b"ncu app")
    + field(8, field(1, b"Nsight Compute Target") + field(2, b"2025.3.1.0"))
)  # fmt: skip


def block_of(
    kernels: Sequence[Kernel], names: Sequence[str], *, process: int = 4711, sources: Sequence[bytes] = ()
) -> Block:
    """A block of launches of a process, with names of metrics, which count from the first block of a file."""
    ids = {
        name: number
        for number, name in enumerate(dict.fromkeys([*names, *(name for one in kernels for name in one.metrics or {})]))
    }
    payload = b"".join(map(sized, [*sources, *(kernel.encoded(ids) for kernel in kernels)]))
    strings = b"".join(field(1, name.encode()) for name in names)
    identity = field(1, process) + field(2, b"127.0.0.1") + field(3, b"/home/user/app")
    header = field(1, len(sources)) + field(2, len(kernels)) + field(3, SESSION) + field(4, strings)
    return Block(header + field(5, len(payload)) + field(6, identity), payload)


def report_of(kernels: Sequence[Kernel], *, sources: Sequence[bytes] = ()) -> bytes:
    """A report of launches, all in one block."""
    names = list(dict.fromkeys(name for kernel in kernels for name in kernel.metrics or {}))
    return put_together(BEGINNING, [block_of(kernels, names, sources=sources)])
