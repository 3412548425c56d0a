"""Turn a report's bytes into blocks of lines, and these into batches of rows of one page.

The page judges the lines that the compiled loop leaves; every line is accounted for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

import numpy as np

from ncu_parsers.detect.text_reader import TextReading, before_any_page, open_page
from ncu_parsers.ncu.csv_pages import IDENTITY_OF_LAUNCHES, NVTX_TITLES, LongPage, WidePage, is_rule
from ncu_parsers.report_data import report as kinds
from ncu_parsers.report_data.cell_text import DecimalVotes
from ncu_parsers.report_data.report import ReadingProblems, Report, metric_of_label
from ncu_parsers.sources.sources import Lines, LongLine, encoding_of
from ncu_parsers.streaming.cells.plain_rows import JudgedRow, plain_rows
from ncu_parsers.streaming.cells.rows import (
    AMBIGUOUS,
    CONTRARY,
    IDENTITY_KINDS,
    NO_ROWS,
    OTHER_MARK,
    OWN_VOTE,
    Kind,
    Layout,
    Mask,
    NotStreamed,
    Rows,
    ScannedBlock,
    joined,
    lines_of,
    scan,
)

BLOCK_BYTES = 1 << 22
REPLACED = "\ufffd".encode()
BLOCKS_AHEAD = 2
"""Blocks scanned ahead while the current one is read."""

SECTION, BODY, LABEL, UNIT, VALUE = "Section Name", "Body Item Label", "Metric Name", "Metric Unit", "Metric Value"

MOST_COLUMNS = 4000
"""Widest page that is streamed: with more columns a block holds a few rows at most."""


def blocks_of(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Blocks of whole lines; only the last line of the last block may lack its line end.

    Raises `NotStreamed` for a line that is too long, and for a UTF-16 file with invalid bytes, whose lines must be
    counted; `memory.TooBig` for the report `name` when memory runs out.
    """
    lines = Lines(stream, name, BLOCK_BYTES, streaming=True)
    is_utf_16 = encoding_of(lines.head).startswith("utf-16")
    for block in lines.blocks(ends_behind=True):
        if isinstance(block, LongLine):
            raise NotStreamed("a line of it is too long")
        if is_utf_16 and not block.isascii() and REPLACED in block:
            raise NotStreamed("it holds bytes that are no text")
        yield block


# ---------------------------------------------------------------------------------------------------- layouts of pages


def long_layout(page: LongPage) -> Layout:
    """The layout of a long page. Raises `NotStreamed` for columns that ncu does not write."""
    if len(set(page.header)) != len(page.header) or "Process ID" not in page.column or not page.has_units:
        raise NotStreamed("its columns are unusual")
    _require_known_identity(page.identity_columns)
    leading = next((at for at, title in enumerate(page.header) if title not in page.identity_columns), 0)
    kind_of = {VALUE: Kind.NUMBERS, **IDENTITY_KINDS}
    columns = tuple((title, kind_of.get(title, Kind.TEXTS)) for title in page.header)
    return Layout(columns, page.last_at + 1, leading, page.name_at, _is_compiled(page, columns[page.last_at + 1 :]))


def wide_layout(page: WidePage, mixed: Collection[int] = ()) -> Layout:
    """The layout of a wide page whose units are known; the metrics at the indices `mixed` are mostly words.

    Raises `NotStreamed` for columns that ncu does not write.
    """
    identity = {title: at for at, title in page.other_columns}
    names = metric_names(page)
    if (
        page.kind != "wide"
        or not page.has_units
        or len(page.header) > MOST_COLUMNS
        or len(identity) != len(page.other_columns)
        or len(set(names)) != len(names)
    ):
        raise NotStreamed("its columns are unusual")
    _require_known_identity(identity)
    columns = [("", Kind.TEXTS)] * len(page.header)
    for title, at in identity.items():
        columns[at] = title, IDENTITY_KINDS.get(title, Kind.TEXTS)
    for place, at in enumerate(page.metric_columns):
        columns[at] = metric_title(place), Kind.MIXED if place in mixed else Kind.NUMBERS
    return Layout(tuple(columns), len(columns), is_compiled=_is_compiled(page, []))


def _require_known_identity(titles: Collection[str]) -> None:
    """Raise `NotStreamed` for a page with identity columns that `launch_columns` does not know."""
    known = all(title in IDENTITY_OF_LAUNCHES or title.startswith(NVTX_TITLES) for title in titles)
    if not known or not {"ID", "Kernel Name"} <= set(titles):
        raise NotStreamed("its columns are unusual")


def _is_compiled(page: LongPage | WidePage, optional: Collection[tuple[str, Kind]]) -> bool:
    """True if the compiled loop supports the page's delimiter and quotes, and all optional columns are texts."""
    return page.delimiter == "," and page.quoted and all(kind is Kind.TEXTS for _, kind in optional)


def metric_title(place: int) -> str:
    """Title of a wide page's metric column among row columns; no identity column has such a title."""
    return str(place)


def metric_names(page: WidePage) -> list[str]:
    """The metrics of a wide page, in column order."""
    return [metric_of_label("", "", page.titles[at]).name for at in page.metric_columns]


def rules_among(rows: Rows) -> Mask:
    """Mask of the rule rows of a long page (bool, one per row)."""
    labels = rows.texts[LABEL]
    mask: Mask = np.array([is_rule(label) for label in labels.words], bool)[labels.codes]
    return mask


# ---------------------------------------------------------------------------------------------------- account of lines


class LineAccount:
    """Counts the lines of a report by kind; `number` is the number of the current line."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.reading = TextReading(report, [], deque(maxlen=50))
        self.number = 0
        self.replaced = 0
        self.is_complete = True

    def text(self, line: bytes) -> str:
        """The next line as text, without its line end; `is_complete` tells if it had one."""
        self.number += 1
        self.is_complete = line.endswith(b"\n")
        text = line.decode("utf-8", "replace")
        if "\ufffd" in text:
            self.replaced += 1
        return text.removesuffix("\n").rstrip("\r")

    def opened_by(self, text: str) -> LongPage | WidePage | None:
        """The page that a line opens. Raises `NotStreamed` for pages that are not streamed."""
        page = open_page(text, self.reading.current)
        if page is None:
            return None
        if not isinstance(page, LongPage | WidePage):
            raise NotStreamed(f"it holds a {page.dialect.removesuffix(' page')} page")
        self.reading.pages.append(page)
        self.reading.note(kinds.HEADER, self.number, text)
        return page

    def judge(self, page: LongPage | WidePage | None, text: str) -> tuple[str, list[str]]:
        """Count a line that opens no page; returns its kind, and the cells of a row."""
        kind, cells = (before_any_page(text), []) if page is None else page.judge(text)
        self.reading.note(kind, self.number, text)
        return kind, cells

    def count_rows(self, metrics: int, rules: int) -> None:
        """Count rows that were not judged individually."""
        self.number += metrics + rules
        self.is_complete = True
        if metrics:
            self.report.lines[kinds.METRICS] += metrics
        if rules:
            self.report.lines[kinds.RULE] += rules


# ------------------------------------------------------------------------------------------------------- rows of pages


def accepts(known: DecimalVotes, rows: Rows, decimal: str) -> bool:
    """True if rows were read with the right decimal mark, judged by the page's votes so far; adds their votes.

    Raises `NotStreamed` if the numbers of the page contradict each other, or are ambiguous.
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
        raise NotStreamed("its first numbers do not show whether the decimal mark is a comma or a point")
    return True


@dataclass
class StreamedPage:
    """A page being read: the layout of its rows, its decimal mark, and its oddities."""

    page: LongPage | WidePage
    layout: Layout | None
    votes: DecimalVotes = field(default_factory=DecimalVotes)
    problems: ReadingProblems = field(default_factory=ReadingProblems)


class RowBatch(NamedTuple):
    """Consecutive rows of one page, read with this decimal mark; `is_last` if the page ends after them."""

    streamed: StreamedPage
    rows: Rows
    decimal: str
    is_last: bool

    @property
    def is_long(self) -> bool:
        """True for rows of a long page, False for rows of a wide one."""
        return isinstance(self.streamed.page, LongPage)


class Ahead(NamedTuple):
    """The scan of a block that began before the previous blocks were read, with its arguments."""

    header: list[str]
    decimal: str
    scanned: Future[ScannedBlock]


class PageRows:
    """The rows of a report's pages, and the pages found so far."""

    def __init__(self, account: LineAccount, pool: Executor) -> None:
        self.account = account
        self.pages: list[StreamedPage] = []
        self._pool = pool
        self._decimal = "."

    def batches(self, blocks: Iterable[bytes]) -> Iterator[RowBatch]:
        """Every row of the blocks. Raises `NotStreamed` for a report that must be read launch by launch."""
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
        """Each block with its scan, started once the block is there, if the layout is already known."""
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
        """The plain rows and other lines of the current page; all lines are other lines until it has a layout."""
        if streamed is None or streamed.layout is None:
            return ScannedBlock(NO_ROWS, lines_of(block, begin), len(block))
        if begin == 0 and ahead is not None and ahead[:2] == (streamed.page.header, self._decimal):
            return ahead.scanned.result()
        return scan(block, begin, streamed.layout, self._decimal)

    # ------------------------------------------------------------------------------------------------------- lines

    def _account_for(
        self, block: bytes, scanned: ScannedBlock, streamed: StreamedPage | None
    ) -> tuple[list[JudgedRow], Rows, int]:
        """Account for the lines of a scan, up to one that opens a page or completes the layout.

        Returns the rows that the page had to judge, the plain rows, and the end of all these lines.
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
        """All rows found, in order, read with the decimal mark of their page."""
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
        """Plain and judged rows merged, in line order."""
        if not judged:
            return plain
        assert streamed.layout is not None  # noqa: S101 - a page with rows is laid out
        count_votes = not streamed.votes.is_resolved
        others = plain_rows(judged, block, streamed.layout, self._decimal, count_votes=count_votes)
        if not plain.count:
            return others
        places = [*range(plain.count), *(row.before - 0.5 for row in judged)]
        return joined([plain, others]).take(np.argsort(places, kind="stable"))

    @staticmethod
    def _note_mixed(streamed: StreamedPage, page: WidePage, rows: Rows) -> None:
        """From now on, read metrics that contained words by their distinct texts."""
        assert streamed.layout is not None  # noqa: S101 - a page with rows is laid out
        columns = dict(streamed.layout.columns)
        mixed = [title for title, numbers in rows.numbers.items() if numbers.non_numeric]
        if any(columns[title] is Kind.NUMBERS for title in mixed):
            known = [title for title, kind in columns.items() if kind is Kind.MIXED]
            streamed.layout = wide_layout(page, frozenset(map(int, (*known, *mixed))))
