"""Perfetto's traces as PyTorch's newer profiler writes them, byte by byte: fields by number, as the protocol has them.

The numbers are those of the descriptions in PyPI's `perfetto` 0.59, which reads these bytes as what the names here say.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

Value = int | float | bytes | str


def field(number: int, value: Value) -> bytes:
    """A field: a number of any sign, a double, or what has a length."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def message(*fields: tuple[int, Value]) -> bytes:
    return b"".join(field(number, value) for number, value in fields)


def packet(time: int | None, *fields: tuple[int, Value], sequence: int = 1) -> bytes:
    at = [] if time is None else [(8, time)]
    return field(1, message(*at, (10, sequence), *fields))


STAGES = {"Kernel": 1, "Memcpy": 2, "Memset": 3, "Annotation": 4, "EventRecord": 5, "HostNode": 6}
FIRST_QUEUE = 100


def interned(
    *, names: Iterable[str] = (), kernels: Iterable[str] = (), categories: Iterable[str] = (),
    queues: Iterable[int] = (7,), counters: Iterable[str] = (), stages: dict[str, int] = STAGES, process: int = 9,
) -> bytes:  # fmt: skip
    """The packet that defines the numbers of names, from 1 on; queues are streams, counters from 0 on of GPU 0."""
    specs = b"".join(field(1, message((1, at), (2, name))) for at, name in enumerate(counters))
    fields: list[tuple[int, Value]] = [(2, message((1, at), (2, one))) for at, one in enumerate(names, 1)]
    fields += [(1, message((1, at), (2, one))) for at, one in enumerate(categories, 1)]
    fields += [(24, message((1, at), (2, name), (4, 2 if name == "Kernel" else 0))) for name, at in stages.items()]
    fields += [(24, message((1, FIRST_QUEUE + at), (2, f"[{one:02d}] stream {one}"))) for at, one in enumerate(queues)]
    fields += [(23, message((1, 1), (2, process))), (47, message((1, 1), (2, specs), (3, 0)))]
    fields += [(1000, message((1, at), (3, one))) for at, one in enumerate(kernels, 1)]
    fields += [(1001, message((1, 1), (2, "registers_per_thread"))), (1001, message((1, 2), (2, "shared_mem_dynamic")))]
    return packet(None, (13, 1), (12, message(*fields)))


def stage(
    start: int, lasts: int, number: int, what: str = "Kernel", *, kernel: int = 0, queue: int = 0, gpu: int = 0,
    waits: Iterable[int] = (), grid: tuple[int, int, int] | None = None, **extra: str | int,
) -> bytes:  # fmt: skip
    """What a GPU ran on a queue, by its place; extra data have _ for the blanks of their names."""
    fields: list[tuple[int, Value]] = [
        (1, number), (2, lasts), (5, 1), (11, gpu), (13, FIRST_QUEUE + queue), (14, STAGES.get(what, 99)), (19, kernel),
        *((18, one) for one in waits),
        *((6, message((1, name.replace("_", " ")), (2, str(value)))) for name, value in extra.items()),
    ]  # fmt: skip
    if grid:
        size = message(*enumerate(grid, 1))
        arguments = [(3, message((1, 1), (4, 40))), (3, message((1, 2), (4, 1024)))]
        fields.append((21, message((1, size), (2, message((1, 128), (2, 1), (3, 1))), *arguments)))
    return packet(start, (13, 2), (53, message(*fields)))


def thread(uuid: int, process: int, number: int) -> bytes:
    return packet(None, (60, message((1, uuid), (4, message((1, process), (2, number))))))


def begin(time: int, track: int, name: int, category: int, *said: bytes) -> bytes:
    fields: list[tuple[int, Value]] = [(9, 1), (11, track), (10, name), (3, category), *((4, one) for one in said)]
    return packet(time, (13, 2), (11, message(*fields)))


def end(time: int, track: int) -> bytes:
    return packet(time, (11, message((9, 2), (11, track))))


def said(name: str, value: int | str | list[object]) -> bytes:
    """An annotation of a slice; lists have entries without a name."""
    return message((10, name)) + _value(value)


def _value(value: object) -> bytes:
    if isinstance(value, list):
        return b"".join(field(12, _value(one)) for one in value)
    return field(4, value) if isinstance(value, int) else field(6, str(value))


def counter(time: int, number: int, value: float | int) -> bytes:
    own = (3, value) if isinstance(value, float) else (2, value)
    return packet(time, (13, 2), (52, message((4, 1), (2, message((1, number), own)))))


def clocks(boot: int, real: int) -> bytes:
    return packet(boot, (6, message((1, message((1, 6), (2, boot))), (1, message((1, 1), (2, real))))))
