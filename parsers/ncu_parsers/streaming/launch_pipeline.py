"""A big report on its way to the table, a stretch at a time: the account of its lines, and its pages one after another.

What the plain reader (`read.py`) decides when it has seen everything is decided here as soon as nothing that may follow
can change it. Where that is not certain, `NotCertain` is raised and the file is for the plain reader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ncu_parsers.report_data.report import DECIMAL_COMMAS, Oddities, Report
from ncu_parsers.report_data.units import ENOUGH_VOTES
from ncu_parsers.streaming.cells.number_cells import Integers, Votes
from ncu_parsers.streaming.launch_columns import ATTRIBUTES, Columns, MetricColumn, joinable, joined, table_of
from ncu_parsers.streaming.line_accounting import LineAccount, NotCertain

TABLES_AHEAD = 1
CELLS_OF_A_TABLE = 800_000
DERIVED_COLUMNS = 60
"""Launches are gathered until their table has so many cells, with so many columns beside their metrics: a table takes
as many steps for few launches as for many, and each step that lets Python's lock go makes the reading wait.
"""
TABLES_UNRELEASED = 3
"""So many tables are written between two times that the heap is tidied, which takes a sixth of the time if always."""


@dataclass
class Locale:
    """The locale of a page's numbers, as far as its cells have told.

    The plain reader asks every cell, or the first 1000 that can be read in one locale only if they agree.
    """

    decimal: str | None = None
    own: int = 0

    @property
    def settled(self) -> bool:
        """Whether nothing that follows can change it."""
        return self.decimal is not None and self.own > ENOUGH_VOTES

    def accepts(self, votes: Votes, decimal: str) -> bool:
        """Whether cells that were read with `decimal` were read as they should be; remembers how they voted.

        False: they speak for the other mark alone. Raises `NotCertain` where the cells of the page contradict.
        """
        if self.decimal not in (None, decimal):
            return False
        if votes.contrary and not self.settled:
            if self.decimal is None and not votes.own:
                return False
            raise NotCertain("its numbers speak for decimal points and for decimal commas")
        if self.decimal is None and votes.own:
            self.decimal = decimal
        if self.decimal is None and votes.open:
            raise NotCertain("its numbers do not tell soon whether commas or points stand before decimals")
        self.own += votes.own
        return True


@dataclass
class PageState:
    """What is known of a page that is being read: its locale, what was odd in it."""

    locale: Locale = field(default_factory=Locale)
    oddities: Oddities = field(default_factory=Oddities)


class Flow:
    """One file on its way: lines are accounted for, launches leave as tables through `write`, in order."""

    def __init__(self, report: Report, write: Callable[[pa.Table], None], pool: Executor, writer: Executor) -> None:
        self.report = report
        self.account = LineAccount(report)
        self.pool = pool
        self.states: list[PageState] = []
        self.rows = 0
        self.failed = 0
        self._write = write
        self._writer = writer
        self._writing: Future[None] | None = None
        self._unreleased = 0
        self._gathered: list[Columns] = []
        self._tables: deque[Future[pa.Table]] = deque()
        self._last_ids: dict[int, int] = {}
        self._earlier_ids: dict[int, int] = {}
        self._numeric: set[str] = set()
        self._words: dict[str, str] = {}
        self._written_words: set[str] = set()

    # ---------------------------------------------------------------------------------------------------- pages

    def page_state(self, number: int) -> PageState:
        """That of a page of the file, in its order, from 0 on."""
        while len(self.states) <= number:
            self.states.append(PageState())
        return self.states[number]

    def begin_page(self) -> PageState:
        """The state of the next page; its launches must be others than those of the pages before."""
        self._earlier_ids = dict(self._last_ids)
        return self.page_state(len(self.states))

    def check_ids(self, processes: Integers | None, ids: Integers) -> None:
        """Note the ids of launches in the order of the file. Raises `NotCertain` where the plain reader might find that
        they stand in an earlier page too: ids grow within a process.
        """
        each = np.zeros(len(ids), np.int64) if processes is None else processes
        alone = int(each.min()) == int(each.max())
        for process in [int(each[0])] if alone else sorted(set(each.tolist())):
            of_process = ids if alone else ids[each == process]
            if int(of_process.min()) <= self._earlier_ids.get(process, -1):
                raise NotCertain("one launch may stand in several of its tables")
            self._last_ids[process] = max(self._last_ids.get(process, -1), int(of_process.max()))

    def check_new_ids(self, processes: Integers, ids: Integers) -> None:
        """The same for launches that must be others than all before."""
        self._earlier_ids = dict(self._last_ids)
        self.check_ids(processes, ids)

    # ------------------------------------------------------------------------------------------------- launches

    def keep(self, columns: Columns) -> None:
        """Launches that follow those before; their table is made beside the reading."""
        self.rows += columns.rows
        self.failed += int(columns.failed.sum())
        for name, column in columns.metrics.items():
            self._remember(name, column)
        if self._gathered and not joinable(self._gathered[0], columns):
            self._tabulate()
        self._gathered.append(columns)
        rows = sum(some.rows for some in self._gathered)
        if rows * (len(columns.metrics) + DERIVED_COLUMNS) >= CELLS_OF_A_TABLE:
            self._tabulate()

    def _tabulate(self) -> None:
        if self._gathered:
            numeric = frozenset(self._numeric)
            self._tables.append(self.pool.submit(_tabulated, self._gathered, self.report, numeric))
            self._gathered = []
            self._write_finished(TABLES_AHEAD)

    def _remember(self, name: str, column: MetricColumn) -> None:
        if name in ATTRIBUTES:
            raise NotCertain(f"{name} is a metric and a column of the page")
        if column.words:
            self._words.setdefault(name, column.words[min(column.words)])
        if name not in self._numeric and not np.isnan(column.values).all():
            self._numeric.add(name)
            if name in self._written_words:
                raise NotCertain(f"{name} is a word first and a number later")
        if column.words and name not in self._numeric:
            self._written_words.add(name)

    def write_all(self) -> None:
        """Write what is not yet written."""
        self._tabulate()
        self._write_finished(0)
        self._wait_for_the_writer()

    def _write_finished(self, ahead: int) -> None:
        """Write tables in order until `ahead` are left in the making, and one on its way."""
        while len(self._tables) > ahead:
            table = self._tables.popleft().result()
            self._wait_for_the_writer()
            self._writing = self._writer.submit(self._write_and_release, table)

    def _write_and_release(self, table: pa.Table) -> None:
        """Write a table; of what those before took, the heap would keep ever more, so the system gets it at times."""
        self._write(table)
        self._unreleased += 1
        if self._unreleased == TABLES_UNRELEASED:
            self._unreleased = 0
            pa.default_memory_pool().release_unused()

    def _wait_for_the_writer(self) -> None:
        if self._writing is not None:
            self._writing.result()

    def notes(self) -> list[str]:
        """What was odd, page by page, as the plain reader notes it."""
        notes = []
        for state in self.states:
            if state.locale.decimal == ",":
                notes.append(DECIMAL_COMMAS)
            notes += state.oddities.notes()
        return notes + [
            f'{name} is a number in some launches and a word ("{word[:40]}") in others; the words are left out'
            for name, word in sorted(self._words.items())
            if name in self._numeric
        ]

    @property
    def metric_names(self) -> list[str]:
        """Every metric that some launch has, sorted."""
        return sorted({*self._numeric, *self._words})


def _tabulated(parts: Sequence[Columns], report: Report, numeric: Collection[str]) -> pa.Table:
    """The table of some launches; of metrics that are numbers in the file, words are left out."""
    return table_of(joined(parts), report, numeric)
