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
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc_csv

from ncu_parsers import arrays
from ncu_parsers import report as kinds
from ncu_parsers.columns import Columns, MetricColumn, Shapes, filled, joined_shapes, shapes_of
from ncu_parsers.flow import DERIVED_COLUMNS, Flow
from ncu_parsers.labels import metric_of_label
from ncu_parsers.line_account import IDENTITY_TITLES, NotCertain, may_open_a_page
from ncu_parsers.ncu_csv import NVTX_TITLES, WidePage
from ncu_parsers.printed import (
    Cells,
    Integers,
    Votes,
    all_simple,
    are_rows,
    line_ends,
    read_cells,
    text_buffers,
    votes_of,
    whole_numbers,
)
from ncu_parsers.tables import Floats
from ncu_parsers.units import NumberFormat, unit

BLOCK_BYTES = 2 << 20
UNKNOWN_BYTES = 1 << 14
"""Blocks are so small until the layout is known: their lines are judged one by one, which is slow."""
BLOCKS_AHEAD = 3
SELDOM_REPEATED = {"ID", "Process ID", "Grid Size", "Block Size"}
CELLS_AT_ONCE = 1_500_000
MOST_COLUMNS = 4000
"""Of more, blocks hold a few rows at most, and Arrow sets aside a part of each block for every column."""


@dataclass
class Layout:
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
    def of(cls, page: WidePage) -> Layout:
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


@dataclass
class Part:
    """Some rows: identity cells, and the metrics as numbers, row by metric; columns with anything else apart."""

    rows: int
    decimal: str
    cells: dict[str, pa.DictionaryArray]
    ids: Integers
    processes: Integers | None
    shapes: dict[str, Shapes]
    values: list[Floats]
    odd: dict[int, MetricColumn]
    nans: Integers
    votes: Votes


def read_block(
    block: bytes, layout: Layout, decimal: str, *, judged: bool = False, count_votes: bool = True
) -> Part | None:
    """The rows of a block of lines; None where a line is anything but a row.

    `judged` says that each line was found to be a row already; `count_votes` is for pages whose
    locale is not settled.
    """
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    names = [str(place) for place in range(layout.width)]
    kinds_of = dict.fromkeys(names, pa.dictionary(pa.int32(), pa.binary()))
    kinds_of |= {names[layout.identity[title]]: pa.string() for title in SELDOM_REPEATED & layout.identity.keys()}
    kinds_of |= {names[place]: pa.binary() for place in layout.places}
    try:
        table = pc_csv.read_csv(
            pa.BufferReader(block),
            pc_csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
            pc_csv.ParseOptions(ignore_empty_lines=False),
            pc_csv.ConvertOptions(column_types=kinds_of, strings_can_be_null=False),
        )
        columns = [arrays.decoded(arrays.one(column)) for column in table.columns]
        metrics = _Metrics.of(columns, layout)
        if judged and len(table) != line_ends(block):
            return None
        identity = [columns[place] for place in layout.identity.values()]
        if not judged and not are_rows(block, len(table), [*identity, *metrics.few]):
            return None
        part = _part(columns, metrics, layout, decimal, count_votes)
    except pa.ArrowInvalid:
        return None
    return part if judged or part is None or not _may_hold_a_header(part) else None


def _may_hold_a_header(part: Part) -> bool:
    words = {word for column in part.odd.values() for word in column.words.values()}
    texts = [word.encode() for word in words] + [text_buffers(cells.dictionary)[0] for cells in part.cells.values()]
    return any(map(may_open_a_page, texts))


@dataclass
class _Metrics:
    """The metrics of a block: every column, the places of those that were simple numbers so far, and these as one."""

    columns: list[pa.Array]
    simple: list[int]
    together: pa.Array | None

    @classmethod
    def of(cls, columns: list[pa.Array], layout: Layout) -> _Metrics:
        metrics = [columns[place] for place in layout.places]
        simple = [at for at in range(len(metrics)) if at not in layout.odd]
        return cls(metrics, simple, pa.concat_arrays([metrics[at] for at in simple]) if simple else None)

    @property
    def few(self) -> list[pa.Array]:
        """All cells in as few columns as there can be."""
        if self.together is None:
            return self.columns
        simple = set(self.simple)
        return [self.together, *(column for at, column in enumerate(self.columns) if at not in simple)]


def _part(columns: list[pa.Array], metrics: _Metrics, layout: Layout, decimal: str, count_votes: bool) -> Part | None:
    ids = whole_numbers(columns[layout.identity["ID"]])
    process_at = layout.identity.get("Process ID")
    processes = None if process_at is None else whole_numbers(columns[process_at])
    if ids is None or (processes is None and process_at is not None):
        return None
    shapes = {
        title: columns[layout.identity[title]] for title in ("Grid Size", "Block Size") if title in layout.identity
    }
    cells = {title: columns[at] for title, at in layout.identity.items() if title not in SELDOM_REPEATED}
    nans = np.zeros(len(ids), np.int64)
    part = Part(
        len(ids),
        decimal,
        cells,
        ids,
        processes,
        {title: shapes_of(column) for title, column in shapes.items()},
        [],
        {},
        nans,
        Votes(),
    )
    _read_metrics(part, metrics, layout, count_votes)
    return part


def _read_metrics(part: Part, metrics: _Metrics, layout: Layout, count_votes: bool) -> None:
    """Columns of simple numbers are read as one long column, the others each alone."""
    simple, together = metrics.simple, None
    if metrics.together is not None:
        together = all_simple(metrics.together, part.decimal, count_votes)
    if together is not None:
        part.votes = votes_of(together, part.decimal)
        matrix = together.values.reshape(len(simple), part.rows)
    taken = dict(zip(simple, matrix, strict=True)) if together is not None else {}
    number_format = NumberFormat(part.decimal)
    for at, column in enumerate(metrics.columns):
        factor = unit(layout.units[at]).factor
        if at in taken:
            part.values.append(taken[at] * factor if factor != 1 else taken[at])
            continue
        cells = read_cells(arrays.cast(column, pa.string()), part.decimal, count_votes)
        part.votes.add(votes_of(cells, part.decimal))
        part.values.append(cells.values * factor)
        if cells.odd:
            layout.odd.add(at)
            _read_odd(part, at, cells, layout, number_format)
    if any(np.isinf(values).any() for values in part.values):
        raise NotCertain("a number is beyond all that can be stored")


def _read_odd(part: Part, at: int, cells: Cells, layout: Layout, number_format: NumberFormat) -> None:
    column = MetricColumn(part.values[at], unit(layout.units[at]).base)
    part.nans += filled(column, cells, [layout.units[at]] * part.rows, number_format)
    part.odd[at] = column


class WideReader:
    """Wide pages of a file, read in blocks of whole lines."""

    def __init__(self, flow: Flow, page: WidePage) -> None:
        self.flow = flow
        self.account = flow.account
        self.page = page
        self.state = flow.begin_page()
        self.layout: Layout | None = None
        self._decimal = "."
        self._parts: list[Part] = []
        self._rows = 0
        self._queue: deque[tuple[bytes, Layout | None, Future[Part | None] | None]] = deque()

    def read(self, stream: BinaryIO) -> bool:
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

    def _begin(self, block: bytes) -> Future[Part | None]:
        assert self.layout is not None  # noqa: S101 - _feed() asks
        settled = self.state.locale.settled
        return self.flow.pool.submit(read_block, block, self.layout, self._decimal, count_votes=not settled)

    def _collect(self) -> None:
        block, layout, future = self._queue.popleft()
        part = future.result() if future is not None and layout is self.layout else None
        if part is None:
            self._by_line(block)
            return
        self.account.number += part.rows
        self.page.rows += part.rows
        self.flow.report.lines[kinds.METRICS] += part.rows
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
            self.layout = Layout.of(self.page)
        block = rows.block()
        part = read_block(block, self.layout, self._decimal, judged=True)
        if part is None:
            raise NotCertain("a row of it is unusual")
        self._accept(part, block)

    def _accept(self, part: Part, block: bytes) -> None:
        assert self.layout is not None  # noqa: S101 - parts are read with it
        if not self.state.locale.accepts(part.votes, part.decimal):
            self._decimal = self.state.locale.decimal or ("," if part.decimal == "." else ".")
            again = read_block(block, self.layout, self._decimal, judged=True)
            if again is None or not self.state.locale.accepts(again.votes, self._decimal):
                raise NotCertain("its numbers contradict each other")
            part = again
        self.flow.check_ids(part.processes, part.ids)
        self._parts.append(part)
        self._rows += part.rows
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


def _joined(parts: list[Part], layout: Layout) -> Columns:
    rows = sum(part.rows for part in parts)
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
            before += part.rows
        metrics[name] = column
    return Columns(
        rows,
        np.concatenate([part.ids for part in parts]),
        None if parts[0].processes is None else np.concatenate([part.processes for part in parts]),
        {title: arrays.joined([part.cells[title] for part in parts]) for title in parts[0].cells},
        {title: joined_shapes([part.shapes[title] for part in parts]) for title in parts[0].shapes},
        metrics,
        np.full(rows, len(layout.names)),
        np.concatenate([part.nans for part in parts]),
    )
