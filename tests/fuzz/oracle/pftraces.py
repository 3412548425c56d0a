"""Perfetto's traces by PyTorch's newer profiler, read field by field: what the GPU ran, in the order of its starts."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.oracle.compared import Row
from tests.fuzz.oracle.damage import NAMES, moved, seldom_damaged, whole
from tests.fuzz.oracle.protobuf_wire import DAMAGE, Value, all_of, bytes_in, message_in, number_in
from tests.support.perfetto_traces import STAGES, begin, clocks, end, interned, said, stage, thread

FARTHEST = 2**62
WORK = {"Kernel": "kernel", "Memcpy": "memcpy", "Memset": "memset"}
PACKET, CLEARED = 1, 1
KERNELS = [*NAMES[:6], "triton_poi_fused", ""]


def mutated(rng: random.Random) -> bytes:
    """Operations on two streams of a GPU or two, calls around some, with names that packets define, moved about."""
    time, packets = rng.randrange(10**9), []
    for number in range(rng.randint(1, 8)):
        time += rng.choice((0, 1, rng.randrange(10**6), whole(rng)))
        what = rng.choice((*STAGES, "Kernel", "Kernel", "Unknown"))
        extra: dict[str, Any] = {"correlation": whole(rng)} if rng.randrange(2) else {}
        if what == "Memcpy":
            extra["bytes"] = rng.choice((whole(rng), "many", -1))
        grid = (whole(rng) % 2**33, rng.randrange(3), 1) if rng.randrange(2) else None
        lasts = rng.choice((0, 1, whole(rng), 2**63))
        packets.append(
            stage(time, lasts, number, what, kernel=rng.randrange(len(KERNELS) + 2), queue=rng.randrange(3),
                  gpu=rng.choice((0, 0, 1, 2**33)), grid=grid, **extra)
        )  # fmt: skip
        if rng.randrange(3) == 0:
            packets += [begin(time, 5, 1, 1, said("correlation", number)), end(time + 10, 5)]
    defined = interned(names=("cudaLaunchKernel",), kernels=KERNELS, categories=("cuda_runtime",), queues=(7, 13))
    first = [defined, thread(5, 9, 11)]
    if rng.randrange(8) == 0:
        first.append(clocks(rng.randrange(10**12), rng.randrange(2**61)))
    return seldom_damaged(rng, b"".join([*first, *moved(rng, packets)]))


@dataclass
class _Defined:
    """What packets of a sequence have defined, by number."""

    stages: dict[int, str] = field(default_factory=dict)
    kernels: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)


def slow(data: bytes) -> list[Row] | None:
    """The operations by start, the longer one first; None if the bytes are no whole messages."""
    try:
        found: list[tuple[tuple[int, int], Row]] = []
        sequences: dict[int, _Defined] = {}
        for packet in all_of(data, PACKET):
            number = number_in(packet, 10, 32)
            if number_in(packet, 13, 32) & CLEARED:
                sequences[number] = _Defined()
            known = sequences.setdefault(number, _Defined())
            for one in all_of(packet, 12):
                _define(known, one)
            start, clock = number_in(packet, 8), number_in(packet, 58, 32)
            event = message_in(packet, 53)
            if event and clock in (0, 6) and start < FARTHEST and (row := _row(start, event, known)):
                found.append(((start, -start - row["duration_ns"]), row))
    except DAMAGE:
        return None
    return [row for _, row in sorted(found, key=lambda one: one[0])]


def _define(known: _Defined, entries: Value) -> None:
    for table, wanted in ((known.names, 2), (known.stages, 24), (known.kernels, 1000)):
        for one in all_of(entries, wanted):
            name = (bytes_in(one, 3) if wanted == 1000 else b"") or bytes_in(one, 2)
            table[number_in(one, 1)] = name.decode("utf-8", "replace")


def _row(start: int, event: Value, known: _Defined) -> Row | None:
    what = known.stages.get(number_in(event, 14), "")
    lasts = number_in(event, 2)
    if what not in WORK or start + lasts >= FARTHEST:
        return None
    extra = {bytes_in(one, 1): bytes_in(one, 2).decode("utf-8", "replace") for one in all_of(event, 6)}
    named = known.kernels.get(number_in(event, 19)) or known.names.get(number_in(event, 20))
    lane = re.match(r"\[(\d+)\]", known.stages.get(number_in(event, 13), ""))
    sizes = [_size(message_in(message_in(event, 21), part)) for part in (1, 2)]
    return {
        "operation": WORK[what], "kernel_name": named or bytes_in(event, 17).decode("utf-8", "replace") or what,
        "start_ns": start, "duration_ns": lasts, "device_id": number_in(event, 11, 32),
        "stream": None if lane is None else str(int(lane[1])), "grid": sizes[0], "block": sizes[1],
        "correlation_id": _whole(extra.get(b"correlation", "")), "bytes": _whole(extra.get(b"bytes", "")),
    }  # fmt: skip


def _size(size: bytes) -> list[int] | None:
    sides = [number_in(size, number, 32) for number in (1, 2, 3)]
    return sides if all(0 < side < 2**31 for side in sides) else None


def _whole(words: str) -> int | None:
    return int(words) if words.isdecimal() and len(words) < 19 else None
