"""Blocks of lines -> batches of rows, each of one page: what is no plain row is judged by the page, line by line."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ncu_parsers.ncu.csv_pages import LongPage, WidePage
from ncu_parsers.report_data import report as kinds
from ncu_parsers.report_data.report import ReadingProblems
from ncu_parsers.report_data.units import DecimalVotes
from ncu_parsers.streaming.cells.compiled_loops import OTHER_MARK, ScannedBlock, lines_of, scan
from ncu_parsers.streaming.cells.plain_rows import JudgedRow, plain_rows
from ncu_parsers.streaming.cells.rows import (
    AMBIGUOUS,
    CONTRARY,
    NO_ROWS,
    OWN_VOTE,
    Kind,
    Layout,
    NotStreamed,
    Rows,
    joined,
)
from ncu_parsers.streaming.layouts import long_layout, rules_among, wide_layout
from ncu_parsers.streaming.line_account import LineAccount

BLOCKS_AHEAD = 2
"""So many blocks are scanned while the one before them is read."""


def accepts(known: DecimalVotes, rows: Rows, decimal: str) -> bool:
    """Whether rows that were read with this decimal mark were read right, by what the page's numbers have told so far;
    counts their votes then.

    Raises `NotStreamed` where the numbers of the page contradict each other, or do not tell.
    """
    if known.is_resolved or known.mark not in ("", decimal):
        return known.mark == decimal
    votes = sum((np.bincount(numbers.votes, minlength=4) for numbers in rows.numbers.values()), np.zeros(4, int))
    if votes[CONTRARY]:
        if not known.mark and not votes[OWN_VOTE]:
            return False
        raise NotStreamed("its numbers speak for decimal points and for decimal commas")
    known[decimal] += int(votes[OWN_VOTE])
    if not known.mark and votes[AMBIGUOUS]:
        raise NotStreamed("its first numbers do not tell whether commas or points stand before decimals")
    return True


@dataclass
class StreamedPage:
    """A page that is being read: how its rows are laid out, which decimal mark its numbers require, what was odd."""

    page: LongPage | WidePage
    layout: Layout | None
    votes: DecimalVotes = field(default_factory=DecimalVotes)
    problems: ReadingProblems = field(default_factory=ReadingProblems)


class RowBatch(NamedTuple):
    """Rows of one page that follow each other, read with this decimal mark; `is_last` if the page ends behind them."""

    streamed: StreamedPage
    rows: Rows
    decimal: str
    is_last: bool

    @property
    def is_long(self) -> bool:
        """True for rows of a long page, False for rows of a wide one."""
        return isinstance(self.streamed.page, LongPage)


class Ahead(NamedTuple):
    """The scan of a block that began before the blocks in front of it were read, and what it was begun with."""

    header: list[str]
    decimal: str
    scanned: Future[ScannedBlock]


class PageRows:
    """The rows of a report's pages, and the pages met so far."""

    def __init__(self, account: LineAccount, pool: Executor) -> None:
        self.account = account
        self.pages: list[StreamedPage] = []
        self._pool = pool
        self._decimal = "."

    def batches(self, blocks: Iterable[bytes]) -> Iterator[RowBatch]:
        """Every row of the blocks. Raises `NotStreamed` for a report that has to be read launch by launch."""
        for block, ahead in self._scanned_ahead(blocks):
            end = 0
            while end < len(block):
                begin, streamed = end, self.pages[-1] if self.pages else None
                scanned = self._scanned(block, begin, streamed, ahead)
                judged, rows, end = self._account_for(block, scanned, streamed)
                if streamed is not None and (judged or rows.count):
                    yield self._batch(block, begin, streamed, rows, judged)

    # ---------------------------------------------------------------------------------------------------- scanning

    def _scanned_ahead(self, blocks: Iterable[bytes]) -> Iterator[tuple[bytes, Ahead | None]]:
        """Each block with its scan, begun as soon as the block is there, if the layout is known by then."""
        waiting: deque[tuple[bytes, Ahead | None]] = deque()
        for block in blocks:
            waiting.append((block, self._begin_scan(block)))
            if len(waiting) > BLOCKS_AHEAD or waiting[-1][1] is None:
                yield waiting.popleft()
        yield from waiting

    def _begin_scan(self, block: bytes) -> Ahead | None:
        streamed = self.pages[-1] if self.pages else None
        if streamed is None or streamed.layout is None:
            return None
        future = self._pool.submit(scan, block, 0, streamed.layout, self._decimal)
        return Ahead(streamed.page.header, self._decimal, future)

    def _scanned(self, block: bytes, begin: int, streamed: StreamedPage | None, ahead: Ahead | None) -> ScannedBlock:
        """The plain rows and other lines of the current page; only other lines as long as it is not laid out."""
        if streamed is None or streamed.layout is None:
            return ScannedBlock(NO_ROWS, lines_of(block, begin), len(block))
        if begin == 0 and ahead is not None and ahead[:2] == (streamed.page.header, self._decimal):
            return ahead.scanned.result()
        return scan(block, begin, streamed.layout, self._decimal)

    # ------------------------------------------------------------------------------------------------------- lines

    def _account_for(
        self, block: bytes, scanned: ScannedBlock, streamed: StreamedPage | None
    ) -> tuple[list[JudgedRow], Rows, int]:
        """Account for the lines of a scan, up to one that opens a page or completes what is known of its layout.

        Gives the rows that the page had to judge, the plain rows, and where all these lines end.
        """
        counted = 0
        judged: list[JudgedRow] = []
        page = None if streamed is None else streamed.page
        for before, begin, end in scanned.others:
            self._count(page, scanned.rows, counted, before)
            counted = before
            text = self.account.text(block[begin:end])
            opened = self.account.opened_by(text)
            if opened is not None:
                self.pages.append(StreamedPage(opened, long_layout(opened) if isinstance(opened, LongPage) else None))
                return judged, scanned.rows.part(0, before), end
            kind, cells = self.account.judge(page, text)
            if kind in (kinds.METRICS, kinds.RULE):
                judged.append(JudgedRow(before, begin, cells))
            if streamed is not None and streamed.layout is None and isinstance(page, WidePage) and page.is_begun:
                streamed.layout = wide_layout(page)
                return judged, scanned.rows, end
        self._count(page, scanned.rows, counted, scanned.rows.count)
        return judged, scanned.rows, scanned.end

    def _count(self, page: LongPage | WidePage | None, rows: Rows, begin: int, end: int) -> None:
        """Account for the plain rows from `begin` up to `end`."""
        if begin == end:
            return
        rules = int(np.count_nonzero(rules_among(rows)[begin:end])) if isinstance(page, LongPage) else 0
        self.account.count_rows(end - begin - rules, rules)
        if isinstance(page, WidePage):
            page.rows += end - begin

    # ----------------------------------------------------------------------------------------------------- batches

    def _batch(
        self, block: bytes, begin: int, streamed: StreamedPage, plain: Rows, judged: Sequence[JudgedRow]
    ) -> RowBatch:
        """All rows that were found, in their order, read with the decimal mark of their page."""
        rows = self._merged(plain, judged, block, streamed)
        if not accepts(streamed.votes, rows, self._decimal):
            self._decimal = OTHER_MARK[self._decimal]
            if plain.count and streamed.layout is not None:
                plain = scan(block, begin, streamed.layout, self._decimal).rows.part(0, plain.count)
            rows = self._merged(plain, judged, block, streamed)
            if not accepts(streamed.votes, rows, self._decimal):
                raise NotStreamed("its numbers contradict each other")
        if isinstance(streamed.page, WidePage):
            self._note_mixed(streamed, streamed.page, rows)
        return RowBatch(streamed, rows, self._decimal, is_last=self.pages[-1] is not streamed)

    def _merged(self, plain: Rows, judged: Sequence[JudgedRow], block: bytes, streamed: StreamedPage) -> Rows:
        """Plain rows and rows that were judged, in the order of their lines."""
        if not judged:
            return plain
        assert streamed.layout is not None  # noqa: S101 - a page with rows is laid out
        count_votes = not streamed.votes.is_resolved
        others = plain_rows(judged, block, streamed.layout, self._decimal, count_votes=count_votes)
        if not plain.count:
            return others
        places = [*range(plain.count), *(row.before - 0.5 for row in judged)]
        return joined([plain, others]).taken(np.argsort(places, kind="stable"))

    @staticmethod
    def _note_mixed(streamed: StreamedPage, page: WidePage, rows: Rows) -> None:
        """From now on, read metrics in which words were met by their distinct texts."""
        assert streamed.layout is not None  # noqa: S101 - a page with rows is laid out
        columns = dict(streamed.layout.columns)
        mixed = [title for title, numbers in rows.numbers.items() if numbers.non_numeric]
        if any(columns[title] is Kind.NUMBERS for title in mixed):
            known = [title for title, kind in columns.items() if kind is Kind.MIXED]
            streamed.layout = wide_layout(page, frozenset(map(int, (*known, *mixed))))
