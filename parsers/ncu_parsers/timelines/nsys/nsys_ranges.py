"""Host ranges in an SQLite export of nsys: NVTX ranges, and calls of the system's library.

PyTorch's `emit_nvtx` puts a unique number into the name of each range: "aten::add, seq = 4, op_id = 7". Millions of
ranges would have millions of names, so these numbers are dropped unless the reader asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
    Codes,
    FilledColumns,
    HostRanges,
    HostTime,
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
from ncu_parsers.timelines.activity.names_to_hold import NamesToHold
from ncu_parsers.timelines.nsys.database import Database

RANGES, OS_CALLS = "NVTX_EVENTS", "OSRT_API"
EVENT_TYPES = "ENUM_NSYS_EVENT_TYPE"
PUSH_POP, START_END, DOMAIN_CREATE = "NvtxPushPopRange", "NvtxStartEndRange", "NvtxDomainCreate"
NUMBERS = {PUSH_POP: 59, START_END: 60, DOMAIN_CREATE: 75}
"""Numbers of the event types in every schema seen, for files without the table of their names."""

THREAD_BITS, PROCESS_MASK = 24, 0xFFFFFF

STRETCHES = 1 << 16
"""Number of equal stretches of time by which ranges are looked up."""

Mask = npt.NDArray[np.bool_]


def process_of(serialised: Integers) -> Integers:
    """The process id in nsys's serialised process and thread ids."""
    return np.where(serialised == MISSING, MISSING, serialised >> THREAD_BITS & PROCESS_MASK)


def read_ranges(
    database: Database, strings: dict[int, str], last: int, window: Window | None, *, whole_names: bool,
    named: NamesToHold | None = None, until: int = 0,
) -> HostRanges:  # fmt: skip
    """NVTX ranges and calls of the system's library, all or only the ones open in `window` (ns).

    A range without an end lasts to `last`. With `whole_names` the numbers of `emit_nvtx` stay in the names. With
    `named`, only NVTX ranges with these names, and each thread's first range if it begins before `until` (ns).
    """
    labels = _Labels(named)
    condition = "1" if named is None else _may_be_named(database, strings, named, until)
    nvtx = _nvtx(database, strings, last, window, labels, whole_names=whole_names, condition=condition)
    kept = None if named is None else _NamedOrFirst(labels)
    return _table(database, chain(nvtx, _os_calls(database, strings, window, labels)), labels, kept)


def _may_be_named(database: Database, strings: dict[int, str], named: NamesToHold, until: int) -> str:
    """SQL condition for ranges that may have one of these names, and for those that begin before `until` (ns).

    SQLite returns few of millions of ranges by it, in half the time that all would take.
    """
    if not named.like:
        return "1"
    columns, found = database.columns(RANGES), [f"start < {until}"]
    if "text" in columns:
        found += [f"text LIKE '{pattern}'" for pattern in named.like]
    if "textId" in columns:
        registered = (number for number, text in strings.items() if named.matches(plain_name(text)))
        found.append(f"textId IN ({', '.join(map(str, registered))})")
    return f"({' OR '.join(found)})"


def ranges_over(database: Database, strings: dict[int, str], last: int, times: Sequence[HostTime]) -> HostRanges:
    """The ranges of each time's thread that contain its middle: all that cover half of it, and perhaps others."""
    found = [(one.thread, (one.start + one.end) // 2) for one in times]
    middles = {thread: np.sort([middle for own, middle in found if own == thread]) for thread, _ in dict(found).items()}

    def are_held(columns: dict[str, Any]) -> Mask:
        held = np.zeros(len(columns["start"]), np.bool_)
        for thread, middle in middles.items():
            own = np.flatnonzero(columns["globalTid"] == thread)
            first = np.searchsorted(middle, columns["start"][own])
            held[own] = first < np.searchsorted(middle, columns["end"][own], side="right")
        return held

    labels, may_hold = Numbered(), _may_hold([middle for _, middle in found])
    nvtx = _nvtx(database, strings, last, None, labels, whole_names=False, condition=may_hold)
    return _table(database, chain(nvtx, _os_calls(database, strings, None, labels)), labels, are_held)


def _may_hold(moments: Sequence[int]) -> str:
    """SQL condition for ranges that may hold a moment: long ones, and ones that begin in its stretch or the one before.

    SQLite returns few of millions of ranges by it, in a quarter of the time that all would take.
    """
    first, last = min(moments, default=0), max(moments, default=0)
    stretch = (last - first) // STRETCHES + 1
    place = (np.array(moments, np.int64) - first) // stretch + 1
    near = np.zeros(STRETCHES + 1, np.int8)
    near[place], near[place - 1] = 1, 1
    begins_near = f"substr(x'{near.tobytes().hex()}', (start - {first - stretch}) / {stretch} + 1, 1) = x'01'"
    return f'(typeof("end") <> \'integer\' OR "end" = 0 OR "end" - start >= {stretch} OR {begins_near})'


def _table(
    database: Database,
    blocks: Iterable[dict[str, Any]],
    labels: Numbered,
    kept: Callable[[dict[str, Any]], Mask] | None,
) -> HostRanges:
    """The ranges in some blocks that have a name and times; with `kept`, only where its mask is true."""
    threads = Numbered()
    kinds = {"label": "i1", "owner": "i1", "start": "i8", "end": "i8"}
    found = FilledColumns(sum(map(database.rows, (RANGES, OS_CALLS))), kinds)
    for columns in blocks:
        columns["owner"] = threads.numbers(columns["globalTid"])
        rows = are_times(columns["start"], columns["end"]) & (columns["label"] >= 0)
        if kept is not None:
            rows[rows] = kept({name: values[rows] for name, values in columns.items()})
        found.add(columns, rows)
    owners = owners_of(threads)
    return columns_of(HostRanges, {**in_order(found.columns), "labels": labels.texts, "owners": owners})


class _Labels(Numbered):
    """Labels of ranges, and whether each is of a call of the system's library or has one of the names in `named`."""

    def __init__(self, named: NamesToHold | None) -> None:
        super().__init__()
        self._named, self._are_named = named, bytearray()

    def number(self, value: Any) -> int:
        found = super().number(value)
        if self._named is not None and found == len(self._are_named):
            self._are_named.append(value.kind == activity.OS_CALL or self._named.matches(value.name))
        return found

    def are_named(self, numbers: Codes) -> Mask:
        """Mask of the labels with these numbers."""
        found: Mask = np.frombuffer(bytes(self._are_named), np.bool_)[numbers]
        return found


class _NamedOrFirst:
    """Mask of a block's ranges with named labels, and of the earliest of each thread if none before was earlier."""

    def __init__(self, labels: _Labels) -> None:
        self._labels, self._first = labels, dict[int, int]()

    def __call__(self, columns: dict[str, Any]) -> Mask:
        chosen = self._labels.are_named(columns["label"]) if len(columns["label"]) else np.zeros(0, np.bool_)
        for owner in np.unique(columns["owner"]).tolist():
            own = np.flatnonzero(columns["owner"] == owner)
            first = own[np.argmin(columns["start"][own])]
            start = int(columns["start"][first])
            if start < self._first.get(owner, activity.FARTHEST):
                self._first[owner] = start
                chosen[first] = True
        return chosen


def owners_of(threads: Numbered) -> list[Owner]:
    """Process id and serialised thread id of each of nsys's threads."""
    return [(int(process_of(np.array(thread))), thread) for thread in threads.texts]


def open_in(database: Database, table: str, window: Window | None) -> str:
    """SQL condition for ranges open within a window or at its edges; a range without an end is open."""
    if window is None or not {"start", "end"} <= database.columns(table):
        return "1"
    return f'(start <= {window.end} AND ("end" >= {window.start} OR "end" IS NULL OR "end" = 0))'


def _nvtx(
    database: Database, strings: dict[int, str], last: int, window: Window | None, labels: Numbered, *,
    whole_names: bool, condition: str = "1",
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """NVTX ranges that meet a condition (SQL) in blocks; the label's index is -1 for ranges without a name."""
    if "start" not in database.columns(RANGES):
        return
    condition = f"{_are_ranges(database)} AND {open_in(database, RANGES, window)} AND {condition}"
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


def _are_ranges(database: Database) -> str:
    """SQL condition for push/pop and start/end ranges; old schemas have no type, and only ranges."""
    if "eventType" not in database.columns(RANGES):
        return "start NOT NULL"
    numbers = event_types(database)
    return f"start NOT NULL AND (eventType IS NULL OR eventType IN ({numbers[PUSH_POP]}, {numbers[START_END]}))"


def has_ranges(database: Database) -> bool:
    """True if any NVTX range was recorded."""
    if "start" not in database.columns(RANGES):
        return False
    return bool(database.numbers("1", RANGES, f"{_are_ranges(database)} LIMIT 1")[0])


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
