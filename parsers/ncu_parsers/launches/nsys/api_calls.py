"""Match GPU operations of an nsys timeline with the API calls that launched them, by process and correlation id.

A timeline holds millions of calls, and an operation may run long after its call. So one pass indexes the range of
correlation ids of each block of rows, and blocks are read again when operations with such ids come.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ncu_parsers.launches.nsys.nvtx import rows_by_key
from ncu_parsers.timelines.activity.activity import MISSING, ApiCalls, Integers, Numbered, columns_of, empty
from ncu_parsers.timelines.activity.recording import called_as
from ncu_parsers.timelines.nsys.database import Database, RowBlock
from ncu_parsers.timelines.nsys.nsys_activity import CALLS
from ncu_parsers.timelines.nsys.nsys_ranges import owners_of, process_of

FIELDS = ("start", "globalTid", "correlationId")
BACKTRACE = "callchainId"
BLOCKS_KEPT = 16
"""Blocks kept in memory; consecutive operations need the same blocks."""
NOTHING = np.empty(0, np.int64)


class LaunchingCalls(NamedTuple):
    """API calls; per operation, the index of the `call` that launched it, -1 for none, and the call's `backtrace`.

    A backtrace is nsys's `callchainId`, `MISSING` if unknown.
    """

    calls: ApiCalls
    call: Integers
    backtrace: Integers

    @property
    def start(self) -> Integers:
        """When each operation was launched (ns); `MISSING` if unknown."""
        return np.append(self.calls.start, MISSING)[self.call]

    @property
    def thread(self) -> Integers:
        """The serialised id of the thread that launched each operation; `MISSING` if unknown."""
        return np.append(self.calls.thread, MISSING)[self.call]


class ApiCallIndex:
    """Index of a timeline's API calls by process and correlation id; backtraces are read only with `backtraces`."""

    def __init__(self, database: Database, call_tables: Sequence[str] = CALLS, *, backtraces: bool = False) -> None:
        self._fields = (*FIELDS, BACKTRACE) if backtraces else FIELDS
        self._read = lru_cache(BLOCKS_KEPT)(lambda table, block: database.integers(table, *self._fields, block=block))
        self._index: list[tuple[str, RowBlock, dict[int, tuple[int, int]]]] = []
        for table in call_tables:
            for block, calls in database.integer_blocks(table, "globalTid", "correlationId"):
                self._index.append((table, block, _spans(calls)))
        processes = {process for _, _, spans in self._index for process in spans}
        self._alone = processes.pop() if len(processes) == 1 else None

    def of(self, process: Integers, correlation: Integers) -> LaunchingCalls:
        """The earliest call with each process and correlation id (int64, one per operation).

        If a single process made calls, operations without a process are taken as its own.
        """
        if not self._index:
            nothing = np.full(len(process), -1), np.full(len(process), MISSING)
            return LaunchingCalls(empty(ApiCalls), *nothing)
        if self._alone is not None:
            process = np.where(process == MISSING, self._alone, process)
        correlation = np.where(process == MISSING, MISSING, correlation)
        groups = rows_by_key(process, np.flatnonzero(correlation != MISSING))
        ids = {one: np.sort(correlation[rows]) for one, rows in groups.items()}
        parts = [self._read(table, block) for table, block, spans in self._index if _has_any(spans, ids)]
        found = {name: np.concatenate([part[name] for part in parts] or [NOTHING]) for name in self._fields}
        order = np.argsort(found["start"], kind="stable")
        found = {name: values[order] for name, values in found.items()}
        threads = Numbered()
        known = {"start": found["start"], "owner": threads.numbers(found["globalTid"])}
        calls = columns_of(ApiCalls, {**known, "owners": owners_of(threads), "correlation": found["correlationId"]})
        call = called_as(process, correlation, calls)
        backtrace = found.get(BACKTRACE, np.full(len(calls), MISSING))
        return LaunchingCalls(calls, call, np.append(backtrace, MISSING)[call])


def _spans(calls: dict[str, Integers]) -> dict[int, tuple[int, int]]:
    """The smallest and largest correlation id of each process."""
    groups = rows_by_key(process_of(calls["globalTid"]), np.arange(len(calls["globalTid"])))
    ids = {process: calls["correlationId"][rows] for process, rows in groups.items()}
    return {process: (int(some.min()), int(some.max())) for process, some in ids.items()}


def _has_any(spans: dict[int, tuple[int, int]], ids: dict[int, Integers]) -> bool:
    """True if any of the sorted `ids` of a process lies in its span."""
    for process, (least, greatest) in spans.items():
        if process in ids and np.searchsorted(ids[process], least) < np.searchsorted(ids[process], greatest, "right"):
            return True
    return False
