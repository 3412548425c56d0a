"""Read the NVTX ranges of an nsys timeline, and find those open on a thread at a given time.

A push/pop range belongs to its thread, a start/end range to the whole process. Ranges of different domains may overlap
without nesting, so the open ranges are kept as a set in the order of their starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt

from ncu_parsers.derived.operators.nvtx_operators import NvtxOperator, operator_of
from ncu_parsers.timelines.host_ranges import DEEPEST, OPERATOR, HostRange, ThreadRanges
from ncu_parsers.timelines.nsys.database import MISSING, Database, Integers

TABLE = "NVTX_EVENTS"
EVENT_TYPES = "ENUM_NSYS_EVENT_TYPE"
PUSH_POP, START_END, DOMAIN_CREATE = "NvtxPushPopRange", "NvtxStartEndRange", "NvtxDomainCreate"
NUMBERS = {PUSH_POP: 59, START_END: 60, DOMAIN_CREATE: 75}
"""Numbers of the event types in every schema seen, for files without the table that names them."""

THREAD_BITS = 24
MOST_LABELS = 4_000_000
"""Limit on the labels in all distinct paths; beyond it, paths are cut to fewer of the innermost ranges."""

FOREVER = np.iinfo(np.int64).max

Codes = npt.NDArray[np.int64]
Label = tuple[str, str]
"""Domain and name of a range; the default domain is ""."""


def process_of(thread: Integers) -> Integers:
    """The process part of nsys's serialised thread ids: the bits above the 24 of the thread (int64, same shape)."""
    return thread >> THREAD_BITS


@dataclass(frozen=True)
class TracedRanges:
    """Ranges in file order: `start` and `end` in ns, serialised thread id, `label` indexing `labels`.

    `operators`: the calls of PyTorch's operators that ranges are around, by their place; their labels are the
    operators' names.
    """

    start: Integers
    end: Integers
    thread: Integers
    of_process: npt.NDArray[np.bool_]
    label: Codes
    labels: list[Label]
    operators: dict[int, NvtxOperator] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start)

    @property
    def names(self) -> list[str]:
        """The name of every range, in order."""
        return [self.labels[label][1] for label in self.label.tolist()]


def read_ranges(database: Database, strings: dict[int, str]) -> TracedRanges | None:
    """Read the ranges of a timeline; None if NVTX was not recorded.

    Ranges without a name are dropped; a range without an end is open until the end of the recording.
    """
    if TABLE not in database.tables:
        return None
    event = database.integers(TABLE, "start", "end", "eventType", "globalTid", "textId", "domainId")
    names = _names(database.texts(TABLE, "text"), event["textId"].tolist(), strings)
    kinds = _event_types(database)
    domains = _domains(event, names, kinds[DOMAIN_CREATE])
    of_process = event["eventType"] == kinds[START_END]
    wanted = of_process | (event["eventType"] == kinds[PUSH_POP]) | (event["eventType"] == MISSING)
    wanted &= (event["start"] != MISSING) & np.array([name is not None for name in names], dtype=bool)
    chosen = np.flatnonzero(wanted)
    calls = {place: call for place, row in enumerate(chosen.tolist()) if (call := operator_of(names[row] or ""))}
    places: dict[Label, int] = {}
    label = [
        places.setdefault(
            (domains.get((process, domain), ""), calls[place].name if place in calls else names[row] or ""), len(places)
        )
        for place, (row, process, domain) in enumerate(
            zip(
                chosen.tolist(),
                process_of(event["globalTid"][chosen]).tolist(),
                event["domainId"][chosen].tolist(),
                strict=True,
            )
        )
    ]
    ends = event["end"][chosen]
    ends = np.where((ends == MISSING) | (ends == 0), FOREVER, ends)  # old schemas write 0 for null
    return TracedRanges(
        event["start"][chosen], ends, event["globalTid"][chosen], of_process[chosen], np.array(label, np.int64),
        list(places), {place: call for place, call in calls.items() if call.is_operator},
    )  # fmt: skip


def _names(texts: list[str | None], numbers: list[int], strings: dict[int, str]) -> list[str | None]:
    """The name of every event: its own text, or a registered string."""
    if not texts:
        return [strings.get(number) for number in numbers]
    return [text if text is not None else strings.get(number) for text, number in zip(texts, numbers, strict=True)]


def _event_types(database: Database) -> dict[str, int]:
    numbers = database.integers(EVENT_TYPES, "id")["id"].tolist()
    named = dict(zip(database.texts(EVENT_TYPES, "name"), numbers, strict=False))
    return {name: named.get(name, number) for name, number in NUMBERS.items()}


def _domains(event: dict[str, Integers], names: list[str | None], created: int) -> dict[tuple[int, int], str]:
    """Domain names by process and number: each process numbers its own domains."""
    rows = np.flatnonzero(event["eventType"] == created).tolist()
    processes = process_of(event["globalTid"]).tolist() if rows else []
    return {(processes[row], int(event["domainId"][row])): names[row] or "" for row in rows}


def paths(ranges: TracedRanges, times: Integers, threads: Integers) -> tuple[Codes, list[tuple[Label, ...]], int]:
    """The ranges open at each of `times` (ns) on each of `threads`, outermost first: an index per time, and the paths.

    Ranges of the process come first, as in reports of ncu; a range pushed under the same name is listed once. The third
    value is the number of innermost ranges kept per path.
    """
    pushed = ~ranges.of_process
    thread_code, thread_paths, thread_kept = _open_at(ranges, pushed, ranges.thread, times, threads)
    process_code, process_paths, process_kept = _open_at(
        ranges, ranges.of_process, process_of(ranges.thread), times, process_of(threads)
    )
    both, code = np.unique(process_code * len(thread_paths) + thread_code, return_inverse=True)
    found = []
    for pair in both.tolist():
        outer, inner = process_paths[pair // len(thread_paths)], thread_paths[pair % len(thread_paths)]
        kept = [*outer, *(label for label in inner if label not in outer)]
        found.append(tuple(ranges.labels[label] for label in kept))
    return code.astype(np.int64), found, min(thread_kept, process_kept)


def operators_at(ranges: TracedRanges, times: Integers, threads: Integers) -> list[list[HostRange]]:
    """The operators open at each of `times` (ns) on each of `threads`, outermost first. `what`: the `NvtxOperator`."""
    found: list[list[HostRange]] = [[] for _ in times]
    own: dict[int, list[HostRange]] = {}
    for place, call in ranges.operators.items():
        start, end = int(ranges.start[place]), int(ranges.end[place])
        own.setdefault(int(ranges.thread[place]), []).append(HostRange(start, end - start, OPERATOR, call.name, call))
    for thread, rows in _groups(threads, np.arange(len(threads))).items():
        around = ThreadRanges(own.get(thread, [])).around(times[rows].tolist())
        for row, opened in zip(rows.tolist(), around, strict=True):
            found[row] = opened
    return found


class _TooMany(Exception):
    """The paths contain more labels than `MOST_LABELS`."""


@dataclass
class _Paths:
    """Numbered distinct paths of at most `deepest` labels each. Raises `_TooMany` if there are too many labels."""

    deepest: int
    numbers: dict[tuple[int, ...], int] = field(default_factory=lambda: {(): 0})
    labels: int = 0

    def number(self, now_open: dict[int, int]) -> int:
        """The number of the path of the currently open ranges, outermost first."""
        path = tuple(islice(reversed(now_open.values()), self.deepest))[::-1]
        number = self.numbers.get(path)
        if number is None:
            number = self.numbers[path] = len(self.numbers)
            self.labels += len(path)
            if self.labels > MOST_LABELS and self.deepest > 1:
                raise _TooMany
        return number


def _open_at(
    ranges: TracedRanges, which: npt.NDArray[np.bool_], owner: Integers, times: Integers, owners: Integers
) -> tuple[Codes, list[tuple[int, ...]], int]:
    """Per time, the labels of the ranges `which` that are open for its owner; also the ranges kept per path."""
    range_groups = _groups(owner, np.flatnonzero(which & (ranges.end > ranges.start)))
    deepest = DEEPEST
    while True:
        codes, found = np.zeros(len(times), np.int64), _Paths(deepest)
        try:
            for one, rows in _groups(owners, np.arange(len(owners))).items():
                mine = range_groups.get(one)
                if mine is not None:
                    labels = ranges.label[mine].tolist()
                    codes[rows] = _sweep(ranges.start[mine], ranges.end[mine], labels, times[rows], found)
            return codes, list(found.numbers), deepest
        except _TooMany:
            deepest //= 4


def _groups(keys: Integers, rows: npt.NDArray[np.intp]) -> dict[int, npt.NDArray[np.intp]]:
    """The `rows` of each distinct key, in order."""
    ordered = rows[np.argsort(keys[rows], kind="stable")]
    found, begins = np.unique(keys[ordered], return_index=True)
    return dict(zip(found.tolist(), np.split(ordered, begins[1:]), strict=True)) if len(rows) else {}


def _sweep(starts: Integers, ends: Integers, labels: Sequence[int], times: Integers, found: _Paths) -> list[int]:
    """The number in `found` of the path at each time, by one pass over all starts, ends and times in order.

    At equal times, ends come before starts, longer ranges start first, and `times` come last.
    """
    count = len(starts)
    kind = np.repeat(np.array([1, 0, 2], np.int8), [count, count, len(times)])
    longer_first = np.concatenate([-ends, np.zeros(count + len(times), np.int64)])
    events = np.lexsort((longer_first, kind, np.concatenate([starts, ends, times]))).tolist()
    result = [0] * len(times)
    now_open: dict[int, int] = {}
    path: int | None = 0
    for event in events:
        if event < count:
            now_open[event] = labels[event]
            path = None
        elif event < 2 * count:
            del now_open[event - count]
            path = None
        else:
            if path is None:
                path = found.number(now_open)
            result[event - 2 * count] = path
    return result
