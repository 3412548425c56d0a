"""Planes of XLA's profiler, read field by field."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from tests.fuzz.oracle.compared import Row
from tests.fuzz.oracle.damage import NAMES, moved, real, seldom_damaged, whole
from tests.fuzz.oracle.protobuf_wire import DAMAGE, Value, fields, signed, text
from tests.support.other_timelines import XEvent, XLine, XPlane, xspace

FARTHEST = 2**62


def mutated(rng: random.Random) -> bytes:
    """Planes of GPUs with kernels on their streams, times of any size, beside lines that repeat the work."""
    planes = []
    for number in range(rng.randint(1, 2)):
        lines = []
        for stream in range(1, rng.randint(2, 3)):
            time, events = 0, []
            for _ in range(rng.randint(1, 6)):
                time += rng.choice((rng.randrange(10**7), whole(rng)))
                lasts = rng.choice((0, 1, 999, rng.randrange(10**7), int(real(rng))))
                says = {"correlation_id": rng.randrange(9)} if rng.randrange(2) else {}
                events.append(XEvent(rng.choice(NAMES), time, lasts, says))
            at = rng.choice((0, 10**9, rng.randrange(10**18)))
            lines.append(XLine(f"Stream #{stream}(Kernel)", moved(rng, events), stream, at))
        lines.append(XLine("XLA Modules", [XEvent("jit_step", 0, 10**6)], 99))
        planes.append(XPlane(f"/device:GPU:{number}", moved(rng, lines), {"device_vendor": "AMD"}))
    return seldom_damaged(rng, xspace(*moved(rng, planes)))


def slow(data: bytes) -> list[Row] | None:
    """The operations by start, the longer one first; None if the bytes are no whole messages."""
    try:
        found = [row for number, plane in fields(data) if number == 1 for row in _of_plane(plane)]
    except DAMAGE:
        return None
    return [row for _, row in sorted(found, key=lambda one: one[0])]


def _of_plane(plane: Value) -> Iterator[tuple[tuple[int, int], Row]]:
    said = list(fields(plane))
    name = next((text(value) for number, value in reversed(said) if number == 2), "")  # the last counts
    device = re.fullmatch(r"/device:GPU:(\d+)", name)
    names, stats = ({}, {}) if device is None else (_names(said, 4), _names(said, 5))
    for number, line in said if device is not None else ():
        if number == 3:
            yield from _of_line(dict(fields(line)), list(fields(line)), int(device[1]), names, stats)  # type: ignore[index]


def _names(said: list[tuple[int, Value]], table: int) -> dict[int, str]:
    found = {}
    for number, entry in said:
        if number == table:
            cells = dict(fields(entry))
            found[signed(cells.get(1, 0))] = text(dict(fields(cells.get(2, b""))).get(2, b""))
    return found


def _of_line(
    line: dict[int, Value], said: list[tuple[int, Value]], device: int, names: dict[int, str], stats: dict[int, str]
) -> Iterator[tuple[tuple[int, int], Row]]:
    stream = re.match(r"Stream #(\d+)", text(line.get(2, b"")))
    base = signed(line.get(3, 0))
    for number, event in said if stream is not None else ():
        if number != 4:
            continue
        cells = list(fields(event))
        known = dict(cells)
        offset, lasts = signed(known.get(2, 0)), signed(known.get(3, 0))
        start, end = base + offset // 1000, base + (offset + lasts) // 1000
        told = {stats.get(signed(dict(fields(stat)).get(1, 0))): dict(fields(stat)) for key, stat in cells if key == 4}
        correlation = told.get("correlation_id", {}).get(3)
        correlation = correlation if isinstance(correlation, int) else None
        if -FARTHEST < start <= end < FARTHEST:
            yield (start, -end), {
                "kernel_name": names.get(signed(known.get(1, 0))) or "(no name)", "operation": "kernel", "start_ns": start,
                "duration_ns": end - start, "device_id": device, "stream": stream[1],  # type: ignore[index]
                "correlation_id": correlation,
            }  # fmt: skip
