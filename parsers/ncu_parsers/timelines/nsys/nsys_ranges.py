"""Host ranges in an SQLite export of nsys: NVTX ranges, and calls of the system's library.

PyTorch's `emit_nvtx` puts a unique number into the name of each range: "aten::add, seq = 4, op_id = 7". Millions of
ranges would have millions of names, so these numbers are dropped unless the reader asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ncu_parsers.schema import arrays
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import (
    MISSING,
    NUMBERS_IN_NAMES,
    FilledColumns,
    HostRanges,
    Integers,
    Numbered,
    Owner,
    RangeLabel,
    Window,
    are_times,
    columns_of,
    in_order,
    plain_name,
)
from ncu_parsers.timelines.nsys.database import Database

RANGES, OS_CALLS = "NVTX_EVENTS", "OSRT_API"
EVENT_TYPES = "ENUM_NSYS_EVENT_TYPE"
PUSH_POP, START_END, DOMAIN_CREATE = "NvtxPushPopRange", "NvtxStartEndRange", "NvtxDomainCreate"
NUMBERS = {PUSH_POP: 59, START_END: 60, DOMAIN_CREATE: 75}
"""Numbers of the event types in every schema seen, for files without the table of their names."""

THREAD_BITS, PROCESS_MASK = 24, 0xFFFFFF


def process_of(serialised: Integers) -> Integers:
    """The process id in nsys's serialised process and thread ids."""
    return np.where(serialised == MISSING, MISSING, serialised >> THREAD_BITS & PROCESS_MASK)


def read_ranges(
    database: Database, strings: dict[int, str], last: int, window: Window | None, *, whole_names: bool
) -> HostRanges:
    """NVTX ranges and calls of the system's library, all or only the ones open in `window` (ns).

    A range without an end lasts to `last`. With `whole_names` the numbers of `emit_nvtx` stay in the names.
    """
    labels, threads = Numbered(), Numbered()
    kinds = {"label": "i1", "owner": "i1", "start": "i8", "end": "i8"}
    found = FilledColumns(sum(map(database.rows, (RANGES, OS_CALLS))), kinds)
    nvtx = _nvtx(database, strings, last, window, labels, whole_names=whole_names)
    for columns in chain(nvtx, _os_calls(database, strings, window, labels)):
        columns["owner"] = threads.numbers(columns.pop("globalTid"))
        found.add(columns, are_times(columns["start"], columns["end"]) & (columns["label"] >= 0))
    owners = owners_of(threads)
    return columns_of(HostRanges, {**in_order(found.columns), "labels": labels.texts, "owners": owners})


def owners_of(threads: Numbered) -> list[Owner]:
    """Process and thread number of each serialised thread of nsys."""
    return [(int(process_of(np.array(thread))), thread) for thread in threads.texts]


def open_in(database: Database, table: str, window: Window | None) -> str:
    """SQL condition for ranges open within a window or at its edges; a range without an end is open."""
    if window is None or not {"start", "end"} <= database.columns(table):
        return "1"
    return f'(start <= {window.end} AND ("end" >= {window.start} OR "end" IS NULL OR "end" = 0))'


def _nvtx(
    database: Database, strings: dict[int, str], last: int, window: Window | None, labels: Numbered, *,
    whole_names: bool,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """NVTX ranges in blocks; the label's index is -1 for ranges without a name."""
    if "start" not in database.columns(RANGES):
        return
    condition = f"start NOT NULL AND {_is_range(database)} AND {open_in(database, RANGES, window)}"
    for columns, texts in database.rows_in_blocks(
        RANGES, "start", "end", "globalTid", "textId", text="text", condition=condition
    ):
        label = _labels_of(texts, columns["textId"], strings, labels, whole_names=whole_names)
        end = ended(columns["end"], np.maximum(last, columns["start"]))
        yield {**columns, "end": end, "label": label}


def ended(end: Integers, last: Integers | int) -> Integers:
    """The ends of ranges, and `last` for those that never ended; old schemas write 0 for null."""
    return np.where((end == MISSING) | (end == 0), last, end)


def _os_calls(
    database: Database, strings: dict[int, str], window: Window | None, labels: Numbered
) -> Iterator[dict[str, Any]]:
    for columns, _ in database.rows_in_blocks(
        OS_CALLS, "start", "end", "globalTid", "nameId", condition=open_in(database, OS_CALLS, window)
    ):
        distinct, code = np.unique(columns["nameId"], return_inverse=True)
        called = (strings.get(one, "(call without a name)") for one in distinct.tolist())
        numbers = [labels.number(RangeLabel(activity.OS_CALL, name)) for name in called]
        yield {**columns, "label": np.array(numbers, np.int64)[code.reshape(-1)]}


def _is_range(database: Database) -> str:
    """SQL condition for push/pop and start/end ranges; old schemas have no type, and only ranges."""
    if "eventType" not in database.columns(RANGES):
        return "1"
    numbers = event_types(database)
    return f"(eventType IS NULL OR eventType IN ({numbers[PUSH_POP]}, {numbers[START_END]}))"


def event_types(database: Database) -> dict[str, int]:
    """The number of each type of events in this file."""
    numbers = database.integers(EVENT_TYPES, "id")["id"].tolist()
    named = dict(zip(database.texts(EVENT_TYPES, "name"), numbers, strict=False))
    return {name: named.get(name, number) for name, number in NUMBERS.items()}


def _labels_of(
    texts: pa.Array, registered: Integers, strings: dict[int, str], labels: Numbered, *, whole_names: bool
) -> npt.NDArray[np.int64]:
    """Index in `labels` of each event's own text or registered string; -1 without a name."""
    keys = arrays.encoded(texts if whole_names else arrays.replaced(texts, f"(?s){NUMBERS_IN_NAMES}", ""))
    found = np.full(len(texts), -1)
    own = arrays.present(keys.indices)
    words = [key.decode("utf-8", "replace") for key in keys.dictionary.to_pylist()]
    numbers = np.array([labels.number(RangeLabel(activity.NVTX, word)) if word else -1 for word in words], np.int64)
    if len(words):
        found[own] = numbers[arrays.values_of(keys.indices, np.int32)[own]]
    without = np.flatnonzero(found < 0)
    distinct, code = np.unique(registered[without], return_inverse=True)
    for_strings = [strings.get(one) for one in distinct.tolist()]
    plain = [one if one is None or whole_names else plain_name(one) for one in for_strings]
    known = [-1 if one is None else labels.number(RangeLabel(activity.NVTX, one)) for one in plain]
    numbers = np.array(known, np.int64)
    if len(distinct):
        found[without] = numbers[code.reshape(-1)]
    return found
