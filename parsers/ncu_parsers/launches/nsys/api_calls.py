"""Match GPU operations of an nsys timeline with the API calls that launched them, by process and correlation id.

A timeline holds millions of calls, and an operation may run long after its call. So one pass indexes the range of
correlation ids of each block of rows, and blocks are read again when operations with such ids come.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ncu_parsers.launches.nsys.nvtx import process_of, rows_by_key
from ncu_parsers.timelines.nsys.database import MISSING, Database, Integers, RowBlock

CALLS = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
FIELDS = ("start", "globalTid", "correlationId")
BACKTRACE = "callchainId"
BLOCKS_KEPT = 16
"""Blocks kept in memory; consecutive operations need the same blocks."""


class LaunchingCalls(NamedTuple):
    """Call of each operation (int64): start in ns, serialised thread id and backtrace; `MISSING` without a call."""

    start: Integers
    thread: Integers
    backtrace: Integers
    is_known: npt.NDArray[np.bool_]


class ApiCallIndex:
    """The API calls of a timeline; their backtraces are `MISSING` unless `backtraces` are asked for."""

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
        """The earliest call with each serialised process and correlation id (int64, one per operation).

        An operation without a process belongs to the only process that made calls.
        """
        unknown = process == MISSING
        process = process_of(process)
        if self._alone is not None:
            process = np.where(unknown, self._alone, process)
        ids, wanted = {}, {}
        for one, rows in rows_by_key(process, np.flatnonzero(correlation != MISSING)).items():
            wanted[one] = rows[np.argsort(correlation[rows], kind="stable")]
            ids[one] = correlation[wanted[one]]
        start_of, thread_of, backtrace_of = np.full((3, len(process)), MISSING)
        result = LaunchingCalls(start_of, thread_of, backtrace_of, np.zeros(len(process), bool))
        parts = [self._read(table, block) for table, block, spans in self._index if _has_any(spans, ids)]
        if not parts:
            return result
        start, thread, known, *backtraces = (np.concatenate([part[name] for part in parts]) for name in self._fields)
        for one, rows in rows_by_key(process_of(thread), np.arange(len(thread))).items():
            if one in wanted:
                rows = rows[np.lexsort((start[rows], known[rows]))]
                at = np.minimum(np.searchsorted(known[rows], ids[one]), len(rows) - 1)
                found = known[rows[at]] == ids[one]
                calls, operations = rows[at[found]], wanted[one][found]
                result.start[operations], result.thread[operations] = start[calls], thread[calls]
                result.is_known[operations] = True
                for backtrace in backtraces:
                    result.backtrace[operations] = backtrace[calls]
        return result


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
