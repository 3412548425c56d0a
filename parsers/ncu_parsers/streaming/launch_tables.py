"""Launches as columns -> tables, each checked against what was written before."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future

import numpy as np
import pyarrow as pa

from ncu_parsers.derived.opcode_check import OpcodeCheck
from ncu_parsers.report_data.report import Report
from ncu_parsers.streaming.cells.rows import NotStreamed
from ncu_parsers.streaming.launch_columns import ATTRIBUTES, LaunchColumns, MetricColumn, joinable, joined, table_of

TABLES_AHEAD = 1
CELLS_OF_A_TABLE = 1_500_000
DERIVED_COLUMNS = 60
"""Launches are gathered until their table has so many cells, with so many columns beside their metrics: a table takes
as many steps for few launches as for many.
"""


class LaunchTables:
    """Tables of launches, and what is known of all launches so far."""

    def __init__(self, report: Report, pool: Executor) -> None:
        self.rows = self.failed = 0
        self._report, self._pool = report, pool
        self._numeric: set[str] = set()
        self._words: dict[str, str] = {}
        self._check = OpcodeCheck()
        self._written_words: set[str] = set()

    @property
    def metric_names(self) -> list[str]:
        """Metrics that at least one launch has, sorted."""
        return sorted(self._numeric | self._words.keys())

    def tables(self, launches: Iterable[LaunchColumns]) -> Iterator[pa.Table]:
        """The launches as tables, each made while the next ones are read.

        Raises `NotStreamed` where a column that was written turns out to be of another type.
        """
        waiting: deque[Future[pa.Table]] = deque()
        for columns in self._gathered(launches):
            waiting.append(self._pool.submit(_tabulated, columns, self._report, frozenset(self._numeric), self._check))
            if len(waiting) > TABLES_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _gathered(self, launches: Iterable[LaunchColumns]) -> Iterator[list[LaunchColumns]]:
        """Launches that follow each other, enough of them for a table."""
        gathered: list[LaunchColumns] = []
        for columns in launches:
            self._note(columns)
            if gathered and not joinable(gathered[0], columns):
                yield gathered
                gathered = []
            gathered.append(columns)
            if sum(some.rows for some in gathered) * (len(columns.metrics) + DERIVED_COLUMNS) >= CELLS_OF_A_TABLE:
                yield gathered
                gathered = []
        if gathered:
            yield gathered

    def _note(self, columns: LaunchColumns) -> None:
        self.rows += columns.rows
        self.failed += int(columns.failed.sum())
        for name, column in columns.metrics.items():
            self._note_metric(name, column)

    def _note_metric(self, name: str, column: MetricColumn) -> None:
        if name in ATTRIBUTES:
            raise NotStreamed(f"{name} is a metric and a column of the page")
        if column.words:
            self._words.setdefault(name, column.words[min(column.words)])
        if name not in self._numeric and not np.isnan(column.values).all():
            self._numeric.add(name)
            if name in self._written_words:
                raise NotStreamed(f"{name} is a word first and a number later")
        if column.words and name not in self._numeric:
            self._written_words.add(name)

    def notes(self) -> list[str]:
        """Metrics that are numbers in some launches and words in others; counters that opcodes do not agree with."""
        return [
            f'{name} is a number in some launches and a word ("{word[:40]}") in others; the words are left out'
            for name, word in sorted(self._words.items())
            if name in self._numeric
        ] + self._check.notes()


def _tabulated(
    columns: Sequence[LaunchColumns], report: Report, numeric: Collection[str], check: OpcodeCheck
) -> pa.Table:
    return table_of(joined(columns), report, numeric, check)
