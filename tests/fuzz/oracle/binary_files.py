"""Binary reports of ncu, read message by message: launches process by process, with their metrics."""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
from ncu_parsers.schema.tables import ABSENT, COLUMN_NAMES
from ncu_parsers.sources.reading_ahead import beside_others
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming import binary_launches

from tests.fuzz.oracle.compared import OneOf, Reading, Row
from tests.fuzz.oracle.damage import NAMES, moved, real, seldom_damaged, some, whole
from tests.fuzz.oracle.protobuf_wire import (
    DAMAGE,
    Fixed,
    Value,
    all_of,
    bytes_in,
    fields,
    is_bytes,
    message_in,
    number_in,
)
from tests.support.binary_reports import BEGINNING, Kernel, block_of, field, put_together, value

METRICS = (
    "gpu__time_duration.sum", "dram__bytes.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed", "launch__waves_per_multiprocessor",
    "smsp__inst_executed.sum", "launch__cache_config", "device__attribute_display_name", "sm__unknown_counter.max",
)  # fmt: skip
SOURCES, RESULTS, STRINGS, PAYLOAD, PROCESS = 1, 2, 4, 5, 6
MAGIC = b"NVR\0"
SAID = ("Host Name", "Kernel Time", "Process Name")
"""What a report says beside metrics."""
KEPT = ("launch_id", "process_id", "kernel_name", "grid", "block")


def mutated(rng: random.Random) -> bytes:
    """Blocks of launches of one process or two, whose metrics are named in any block before, of any type and order."""
    blocks, known = [], 0
    for _ in range(rng.randint(1, 3)):
        names = moved(rng, rng.sample(METRICS, rng.randint(2, len(METRICS))))
        known += len(names)
        kernels = [
            Kernel(rng.choice(NAMES), more=_shapes(rng) + _metrics(rng, known)) for _ in range(rng.randint(1, 4))
        ]
        block = block_of(kernels, names, process=rng.choice((4711, 4711, 12)))
        blocks.append(block)
    return seldom_damaged(rng, put_together(BEGINNING, moved(rng, blocks)))


def _shapes(rng: random.Random) -> bytes:
    """A grid, or a block, that replaces the one before it, with sides of any size; or neither."""
    sides = b"".join(field(at, whole(rng) % 2**33) for at in (1, 2, 3) if rng.randrange(12))
    return rng.choice((b"", field(10, sides), field(11, sides)))


def _metrics(rng: random.Random, known: int) -> bytes:
    return b"".join(_metric(rng, rng.randrange(known + (rng.randrange(20) == 0))) for _ in some(rng, 6))


def _metric(rng: random.Random, number: int) -> bytes:
    values: list[bytes] = [
        value(real(rng)), value(whole(rng)), value(rng.choice(NAMES)), field(4, whole(rng) % 2**32), b"",
        b"\x15" + struct.pack("<f", real(rng) % 1e30), value(rng.choice((math.nan, math.inf, -1.5))),
    ]  # fmt: skip
    content = rng.choice((values[0], values[0], *values))
    return field(13, field(1, number) + (field(2, content) if content or rng.randrange(2) else b""))


# --------------------------------------------------------------------------------------------------------------- slow


def slow(data: bytes) -> list[Row] | None:
    """The launches in the order of their numbers; None if the bytes are no whole blocks."""
    try:
        found = _launches(data)
    except (*DAMAGE, struct.error):
        return None
    return [{"launch_id": number, **row} for number, row in enumerate(found)]


def _launches(data: bytes) -> list[dict[str, Any]]:
    if not data.startswith(MAGIC):
        raise ValueError("no report")
    _, at = _sized(data, len(MAGIC))
    names: list[str] = []
    results: list[tuple[int | None, bytes]] = []
    while at < len(data):
        header, at = _sized(data, at)
        names += [_words(one) for one in all_of(message_in(header, STRINGS), 1)]
        its_process, end = message_in(header, PROCESS), at + number_in(header, PAYLOAD, 32)
        process = number_in(its_process, 1, 32) if all_of(its_process, 1) else None
        if all_of(header, 7) or all_of(header, 9) or end > len(data):
            raise ValueError("ranges, graphs, or a cut")
        count = number_in(header, SOURCES, 32) + number_in(header, RESULTS, 32)
        while at < end:
            message, at = _sized(data, at)
            results.append((process, message))
            count -= 1
        if count or at != end or number_in(header, SOURCES, 32):
            raise ValueError("other messages than the header says")
    results.sort(key=lambda one: one[0] or 0)
    return [{"process_id": process, **_row(message, names)} for process, message in results]


def _sized(data: bytes, at: int) -> tuple[bytes, int]:
    (size,) = struct.unpack_from("<I", data, at)
    if at + 4 + size > len(data) or not size:
        raise ValueError("a message is cut off")
    return data[at + 4 : at + 4 + size], at + 4 + size


def _row(message: bytes, names: list[str]) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for metric in all_of(message, 13):
        number, one = number_in(metric, 1, 32), _value(bytes_in(metric, 2))
        if number < len(names) and one is not None:
            found.setdefault(names[number], []).append(one)
    return {
        "kernel_name": _words(bytes_in(message, 7) or bytes_in(message, 6) or bytes_in(message, 5)), "grid": _shape(message, 10), "block": _shape(message, 11),
        **{name: OneOf(tuple(values)) for name, values in found.items()},
    }  # fmt: skip


def _shape(message: bytes, wanted: int) -> list[int] | None:
    shape = message_in(message, wanted)
    sides = [number_in(shape, side) for side in (1, 2, 3)]
    is_whole = all(all_of(shape, side) for side in (1, 2, 3)) and max(sides) < 2**31
    return sides if is_whole else None


def _value(content: bytes) -> float | str | None:
    """The first of text, single, double, and whole numbers that is there."""
    known: dict[int, Value] = dict(fields(content))
    if 1 in known:
        words = _words(known[1]).strip()
        return None if words in ABSENT else float(words) if words.isdecimal() else words
    for number, layout in ((2, "<f"), (3, "<d")):
        if number in known:
            assert isinstance(known[number], Fixed)
            (real_number,) = struct.unpack(layout, known[number])  # type: ignore[arg-type]
            return float(real_number) if math.isfinite(real_number) else None
    for number, bits in ((4, 32), (5, 64)):
        if number in known:
            assert isinstance(known[number], int)
            return float(int(known[number]) & (1 << bits) - 1)
    return None


def _words(value: Value) -> str:
    assert is_bytes(value)
    return value.decode("utf-8", "replace")


# --------------------------------------------------------------------------------------------------------------- fast


def _compared(names: list[str]) -> list[str]:
    return [name for name in names if name in KEPT or name not in (*COLUMN_NAMES, *SAID)]


def fast(path: Path) -> Reading:
    """The launches of a report, read in parts."""
    tables: list[pa.Table] = []
    with beside_others():
        found = binary_launches.stream_report(Source(str(path)), tables.append)
    rows = [row for table in tables for row in table.select(_compared(table.column_names)).to_pylist()]
    has_losses = any("damage" in note or "left out" in note for note in found.notes)
    # names of metrics stand in any block, so that damage behind a launch can take those of its metrics
    lost_names = (
        METRICS if any("names of their metrics" in note for note in found.notes) and "damage" in found.notes[0] else ()
    )
    lost_numbers = ["launch_id"] if any("ends in damage" in note for note in found.notes) else []
    return Reading(rows, has_losses, [*found.notes, *lost_names, *lost_numbers])
