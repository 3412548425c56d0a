"""Wide pages in blocks: each is cut at a line end and parsed at once, beside the reading of the next ones.

A block is taken as it is when every line of it is a row with the header's number of cells, an id, and quotes that close
within the line. The lines of any other block are judged one by one, and the rows among them parsed together.
"""

from __future__ import annotations

import csv
import io
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from ncu_parsers.ncu.csv_pages import NVTX_TITLES, WidePage
from ncu_parsers.report_data import report as kinds
from ncu_parsers.report_data.metric_labels import metric_of_label
from ncu_parsers.report_data.units import NumberFormat, unit
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import Floats
from ncu_parsers.streaming.cells.number_cells import Cells, Integers, Votes, votes_of
from ncu_parsers.streaming.launch_columns import Columns, MetricColumn, filled, joined_shapes
from ncu_parsers.streaming.launch_pipeline import DERIVED_COLUMNS, Flow
from ncu_parsers.streaming.line_accounting import IDENTITY_TITLES, NotCertain, may_open_a_page
from ncu_parsers.streaming.quoted_cells import Kind, Rows, kind_of, read_rows

BLOCK_BYTES = 2 << 20
UNKNOWN_BYTES = 1 << 14
"""Blocks are so small until the layout is known: their lines are judged one by one, which is slow."""
BLOCKS_AHEAD = 3
CELLS_AT_ONCE = 1_500_000
MOST_COLUMNS = 4000
"""Of more, blocks hold a few rows at most, and Arrow sets aside a part of each block for every column."""


def metric_title(at: int) -> str:
    """What the column of a metric is called among those of rows: no identity column is."""
    return str(at)


@dataclass
class WideLayout:
    """The columns of a wide page: identity titles and metric names by place, units of metrics.

    `odd` are the places of metrics that were not simple numbers throughout: those are read one by one from then on.
    """

    width: int
    identity: dict[str, int]
    places: list[int]
    names: list[str]
    units: list[str]
    odd: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, page: WidePage) -> WideLayout:
        """The layout of a page whose units are known. Raises `NotCertain` for one that is not read here."""
        identity = {name: index for index, name in page.other_columns}
        names = [metric_of_label("", "", page.titles[index]).name for index in page.metric_columns]
        known = {title for title in identity if title in IDENTITY_TITLES or title.startswith(NVTX_TITLES)}
        if (
            page.kind != "wide"
            or page.delimiter != ","
            or not page.quoted
            or identity.get("ID") != 0
            or "Kernel Name" not in known
            or len(page.header) > MOST_COLUMNS
            or len(known) != len(page.other_columns)
            or len(set(names)) != len(names)
        ):
            raise NotCertain("its columns are unusual")
        units = page.units or [""] * len(page.header)
        return cls(len(page.header), identity, page.metric_columns, names, [units[at] for at in page.metric_columns])

    def columns(self) -> list[tuple[str, Kind]]:
        """Titles of all columns, and what their cells are."""
        columns = [("", Kind.TEXTS)] * self.width
        for title, place in self.identity.items():
            columns[place] = title, kind_of(title)
        for at, place in enumerate(self.places):
            columns[place] = metric_title(at), Kind.MIXED if at in self.odd else Kind.NUMBERS
        return columns


@dataclass
class BlockRows:
    """The rows of a block, and their metrics in base units as numbers; columns with anything else apart."""

    rows: Rows
    decimal: str
    values: list[Floats]
    odd: dict[int, MetricColumn]
    nans: Integers
    votes: Votes

    @property
    def ids(self) -> Integers:
        """The id of each launch."""
        return self.rows.whole["ID"]

    @property
    def processes(self) -> Integers | None:
        """The process of each launch; None where the page has none."""
        return self.rows.whole.get("Process ID")


def read_block(
    block: bytes, layout: WideLayout, decimal: str, *, judged: bool = False, count_votes: bool = True
) -> BlockRows | None:
    """The rows of a block of lines; None where a line is anything but a row.

    `judged` says that each line was found to be a row already; `count_votes` is for pages whose
    locale is not settled.
    """
    rows = read_rows(block, layout.columns(), decimal, judged=judged, count_votes=count_votes)
    if rows is None or (not judged and any(map(may_open_a_page, rows.words()))):
        return None
    part = BlockRows(rows, decimal, [], {}, np.zeros(rows.count, np.int64), Votes())
    number_format = NumberFormat(decimal)
    for at in range(len(layout.places)):
        cells, factor = rows.numbers[metric_title(at)], unit(layout.units[at]).factor
        part.votes.add(votes_of(cells, decimal))
        part.values.append(cells.values * factor if factor != 1 else cells.values)
        if cells.odd:
            layout.odd.add(at)
            _read_odd(part, at, cells, layout, number_format)
    if any(np.isinf(values).any() for values in part.values):
        raise NotCertain("a number is beyond all that can be stored")
    return part


def _read_odd(part: BlockRows, at: int, cells: Cells, layout: WideLayout, number_format: NumberFormat) -> None:
    column = MetricColumn(part.values[at], unit(layout.units[at]).base)
    part.nans += filled(column, cells, [layout.units[at]] * part.rows.count, number_format)
    part.odd[at] = column


class WideReader:
    """Wide pages of a file, read in blocks of whole lines."""

    def __init__(self, flow: Flow, page: WidePage) -> None:
        self.flow = flow
        self.account = flow.account
        self.page = page
        self.state = flow.begin_page()
        self.layout: WideLayout | None = None
        self._decimal = "."
        self._parts: list[BlockRows] = []
        self._rows = 0
        self._queue: deque[tuple[bytes, WideLayout | None, Future[BlockRows | None] | None]] = deque()

    def read(self, stream: io.BufferedIOBase) -> bool:
        """Read all that follows; whether the last line was complete."""
        block = b"\n"
        while more := stream.read(BLOCK_BYTES if self.layout is not None else UNKNOWN_BYTES):
            block = more if more.endswith(b"\n") else more + stream.readline()
            self._feed(block)
        while self._queue:
            self._collect()
        self._flush()
        return block.endswith(b"\n")

    def _feed(self, block: bytes) -> None:
        begun = self.layout is not None and block.endswith(b"\n")
        future = self._begin(block) if begun else None
        self._queue.append((block, self.layout, future))
        while len(self._queue) > (BLOCKS_AHEAD if self.layout is not None else 0):
            self._collect()

    def _begin(self, block: bytes) -> Future[BlockRows | None]:
        assert self.layout is not None  # noqa: S101 - _feed() asks
        settled = self.state.locale.settled
        return self.flow.pool.submit(read_block, block, self.layout, self._decimal, count_votes=not settled)

    def _collect(self) -> None:
        block, layout, future = self._queue.popleft()
        part = future.result() if future is not None and layout is self.layout else None
        if part is None:
            self._by_line(block)
            return
        self.account.number += part.rows.count
        self.page.rows += part.rows.count
        self.flow.report.lines[kinds.METRICS] += part.rows.count
        self._accept(part, block)

    def _by_line(self, block: bytes) -> None:
        """Judge each line of a block, and parse together those that are rows of one page."""
        rows = _Rows()
        for line in io.BytesIO(block):
            text = self.account.text(line)
            opened = self.account.opened_by(text)
            if opened is None:
                kind, cells = self.page.judge(text)
                self.account.note(kind, text)
                if kind == kinds.METRICS:
                    rows.add(cells[: len(self.page.header)])
                continue
            self._parse(rows)
            rows = _Rows()
            self._flush()
            if not isinstance(opened, WidePage):
                raise NotCertain("it holds pages of several kinds")
            self.page, self.state, self.layout = opened, self.flow.begin_page(), None
        self._parse(rows)

    def _parse(self, rows: _Rows) -> None:
        if not rows.count:
            return
        if self.layout is None:
            self.layout = WideLayout.of(self.page)
        block = rows.block()
        part = read_block(block, self.layout, self._decimal, judged=True)
        if part is None:
            raise NotCertain("a row of it is unusual")
        self._accept(part, block)

    def _accept(self, part: BlockRows, block: bytes) -> None:
        assert self.layout is not None  # noqa: S101 - parts are read with it
        if not self.state.locale.accepts(part.votes, part.decimal):
            self._decimal = self.state.locale.decimal or ("," if part.decimal == "." else ".")
            again = read_block(block, self.layout, self._decimal, judged=True)
            if again is None or not self.state.locale.accepts(again.votes, self._decimal):
                raise NotCertain("its numbers contradict each other")
            part = again
        self.flow.check_ids(part.processes, part.ids)
        self._parts.append(part)
        self._rows += part.rows.count
        if self._rows * (len(self.layout.names) + DERIVED_COLUMNS) >= CELLS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if not self._parts:
            return
        assert self.layout is not None  # noqa: S101 - parts are read with it
        for name in self.layout.names:
            self.flow.report.labels.setdefault(name, metric_of_label("", "", name))
        columns = _joined(self._parts, self.layout)
        oddities = self.state.oddities
        oddities.alive += columns.rows - int(columns.failed.sum())
        for name, column in columns.metrics.items():
            oddities.absent[name] += column.absent
        self.flow.keep(columns)
        self._parts, self._rows = [], 0


class _Rows:
    """Rows that were judged one by one, written anew for parsing together."""

    def __init__(self) -> None:
        self.count = 0
        self._text = io.StringIO()
        self._writer = csv.writer(self._text, quoting=csv.QUOTE_ALL, lineterminator="\n")

    def add(self, cells: list[str]) -> None:
        self._writer.writerow(cells)
        self.count += 1

    def block(self) -> bytes:
        return self._text.getvalue().encode("utf-8", "replace")


def _joined(parts: list[BlockRows], layout: WideLayout) -> Columns:
    rows = sum(part.rows.count for part in parts)
    metrics: dict[str, MetricColumn] = {}
    for at, name in enumerate(layout.names):
        column = MetricColumn(np.concatenate([part.values[at] for part in parts]), unit(layout.units[at]).base)
        before = 0
        for part in parts:
            odd = part.odd.get(at)
            if odd is not None:
                column.absent += odd.absent
                column.words |= {before + row: word for row, word in odd.words.items()}
                column.instances |= {before + row: text for row, text in odd.instances.items()}
            before += part.rows.count
        metrics[name] = column
    return Columns(
        rows,
        np.concatenate([part.ids for part in parts]),
        None if parts[0].processes is None else np.concatenate([part.processes for part in parts]),
        {title: arrays.joined([part.rows.texts[title] for part in parts]) for title in parts[0].rows.texts},
        {title: joined_shapes([part.rows.shapes[title] for part in parts]) for title in parts[0].rows.shapes},
        metrics,
        np.full(rows, len(layout.names)),
        np.concatenate([part.nans for part in parts]),
    )
