"""Rows of all pages of a report -> its launches as columns, each launch once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

import numpy as np

from ncu_parsers.ncu.csv_pages import LongPage
from ncu_parsers.report_data.report import Report
from ncu_parsers.streaming import wide_launches
from ncu_parsers.streaming.cells.rows import Integers, NotStreamed
from ncu_parsers.streaming.launch_columns import LaunchColumns
from ncu_parsers.streaming.long_launches import long_launches
from ncu_parsers.streaming.page_rows import RowBatch, StreamedPage


def launches_of_report(batches: Iterable[RowBatch], report: Report) -> Iterator[LaunchColumns]:
    """Launches page by page. Raises `NotStreamed` where one may be in two pages."""
    ids, current = LaunchIds(), None
    for streamed, columns in _launches_of_pages(batches, report):
        if streamed is not current or isinstance(streamed.page, LongPage):
            ids.begin_table()
        current = streamed
        ids.add(columns.processes, columns.ids)
        yield columns


def _launches_of_pages(batches: Iterable[RowBatch], report: Report) -> Iterator[tuple[StreamedPage, LaunchColumns]]:
    for is_long, some in groupby(batches, attrgetter("is_long")):
        if is_long:
            yield from long_launches(some, report)
        else:
            yield from ((batch.streamed, wide_launches.launches_of(batch, report)) for batch in some)


class LaunchIds:
    """The ids of launches so far. They grow within a process, so one that does not may be of a launch met before."""

    def __init__(self) -> None:
        self._earlier: dict[int, int] = {}
        self._last: dict[int, int] = {}

    def begin_table(self) -> None:
        """Launches that follow must be others than all before."""
        self._earlier = dict(self._last)

    def add(self, processes: Integers | None, ids: Integers) -> None:
        """Add launches in the order of the file. Raises `NotStreamed` where one may stand in an earlier table too."""
        each = np.zeros(len(ids), np.int64) if processes is None else processes
        alone = int(each.min()) == int(each.max())
        for process in [int(each[0])] if alone else np.unique(each).tolist():
            of_process = ids if alone else ids[each == process]
            if int(of_process.min()) <= self._earlier.get(process, -1):
                raise NotStreamed("one launch may stand in several of its tables")
            self._last[process] = max(self._last.get(process, -1), int(of_process.max()))
