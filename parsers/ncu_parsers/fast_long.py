"""Long pages by the line beginnings that repeat: all rows of a launch begin with the same bytes, up to the section.

A line that begins with the current launch's bytes and ends like a metric row gives its tail; what other lines are is
asked of the page. The tails of some thousand launches are parsed together in another thread, and checked there: if one
of them is no row after all, the file is read again with every tail looked at (`careful`).
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc_csv

from ncu_parsers import arrays
from ncu_parsers import report as kinds
from ncu_parsers.columns import Columns, MetricColumn, Shapes, settled, shapes_of
from ncu_parsers.flow import IDENTITY_TITLES, Flow, PageState
from ncu_parsers.labels import LabelledMetric, metric_of_label
from ncu_parsers.ncu_csv import NVTX_TITLES, LongPage, split_row
from ncu_parsers.printed import (
    Integers,
    Mask,
    NotCertain,
    Votes,
    are_rows,
    may_open_a_page,
    read_cells,
    text_buffers,
    whole_numbers,
)
from ncu_parsers.report import NAN_TEXTS, Metric, Reading, metric_of
from ncu_parsers.units import NumberFormat, unit, vote

ROWS_OF_A_STRETCH = 50_000
STRETCHES_AHEAD = 1
NOWHERE = b"\n\n"
"""No line begins or ends so."""

MAY_END_A_ROW = (b"\n", b",\n", b"\r\n", b",\r\n")
SELDOM_REPEATED = {"ID", "Process ID", "Grid Size", "Block Size"}
TAIL_TITLES = {"Section Name", "Body Item Label", "Metric Name", "Metric Unit", "Metric Value"}
_SIMPLE_CELL = rb'"[^"\r\0\x80-\xff]*"'


class Unexpected(Exception):
    """A line that looked like a row is none: every tail has to be looked at."""


@dataclass(frozen=True)
class Layout:
    """The columns of a long page: those of the launch in front, then `tail`, which ends with the value."""

    identity: tuple[str, ...]
    tail: tuple[str, ...]

    @classmethod
    def of(cls, page: LongPage) -> Layout:
        """The layout of a page. Raises `NotCertain` for one that is not read here."""
        width = len(page.identity_columns)
        identity, tail = page.header[:width], page.header[width : page.value_at + 1]
        known = all(title in IDENTITY_TITLES or title.startswith(NVTX_TITLES) for title in identity)
        if (
            page.delimiter != ","
            or not page.quoted
            or not known
            or identity[:2] != ["ID", "Process ID"]
            or "Kernel Name" not in identity
            or len(set(page.header)) != len(page.header)
            or set(tail) - TAIL_TITLES
            or tail[-1:] != ["Metric Value"]
            or "Metric Name" not in tail
        ):
            raise NotCertain("its columns are unusual")
        return cls(tuple(identity), tuple(tail))


@dataclass
class Stretch:
    """Rows of some launches: what the rows of each launch begin with, the tails, and whose they are.

    A run is a number of rows of one launch that follow each other; a page begins at a launch. Tails have their line
    ends, which are those of `ends`.
    """

    layout: Layout
    prefixes: list[bytes] = field(default_factory=list)
    tails: list[bytes] = field(default_factory=list)
    run_launches: list[int] = field(default_factory=list)
    run_starts: list[int] = field(default_factory=list)
    rules: dict[int, list[dict[str, str]]] = field(default_factory=dict)
    places: dict[bytes, int] = field(default_factory=dict)
    latest: dict[bytes, int] = field(default_factory=dict)
    indexed: int = 0
    ends: set[bytes] = field(default_factory=set)
    pages: list[tuple[int, PageState]] = field(default_factory=list)

    def begin_page(self, state: PageState) -> None:
        """Launches that follow are of another page, even if they begin like earlier ones."""
        self.places, self.latest, self.indexed = {}, {}, len(self.prefixes)
        if self.pages and self.pages[-1][0] == len(self.prefixes):
            self.pages.pop()
        self.pages.append((len(self.prefixes), state))

    def latest_of(self, ids: bytes) -> int | None:
        """The launch of these ids that was met last in the page."""
        for place in range(self.indexed, len(self.prefixes)):
            self.latest[_ids(self.prefixes[place])] = place
        self.indexed = len(self.prefixes)
        return self.latest.get(ids)

    def block(self) -> bytes:
        """All tails behind each other, each ending with a quote and a line feed."""
        block = b"".join(self.tails)
        if any(b"\r" in end for end in self.ends):
            block = block.replace(b"\r\n", b"\n")
        return block.replace(b'",\n', b'"\n') if any(b"," in end for end in self.ends) else block


@dataclass
class ReadPage:
    """What the launches of one page in a stretch say about it."""

    state: PageState
    votes: Votes = field(default_factory=Votes)
    absent: Counter[str] = field(default_factory=Counter)
    conflicts: dict[str, str] = field(default_factory=dict)
    alive: int = 0


@dataclass
class ReadStretch:
    """A stretch in columns, what was odd in its pages, and the labels of metrics in the order they were met."""

    columns: Columns
    decimal: str
    pages: list[ReadPage]
    begins: list[int]
    labels: dict[str, LabelledMetric]


class LongReader:
    """Long pages of a file, read line by line."""

    def __init__(self, flow: Flow, page: LongPage, careful: bool) -> None:
        self.flow = flow
        self.careful = careful
        self.state = flow.turn_to(page)
        self.layout = Layout.of(page)
        self._decimal = "."
        self._end = NOWHERE
        self._prefix = NOWHERE
        self._counted = 0
        self._queue: deque[tuple[Stretch, Future[ReadStretch]]] = deque()
        self._rules: dict[bytes, dict[str, str]] = {}
        self._begin_stretch()
        self._compile()

    @property
    def page(self) -> LongPage:
        """The page that is being read."""
        page = self.state.page
        assert isinstance(page, LongPage)  # noqa: S101 - turn_to() gets no other
        return page

    def _compile(self) -> None:
        others = len(self.layout.identity) - 2
        cell = _SIMPLE_CELL if self.careful else rb'"[^"]*"'
        self._identity = re.compile(rb'"\d+","\d+",(?:%b,){%d}' % (cell, others))
        named = [
            _SIMPLE_CELL.replace(b"*", b"+") if title == "Metric Name" else _SIMPLE_CELL for title in self.layout.tail
        ]
        self._tail = re.compile(b",".join(named))

    def read(self, lines: Iterable[bytes]) -> bool:
        """Read all that follows; whether the last line was complete."""
        line = b"\n"
        prefix, end, append, identity = self._prefix, self._end, self._stretch.tails.append, self._identity.match
        simple = self._is_simple if self.careful else None
        for line in lines:
            tail = line.removeprefix(prefix)
            if tail is not line:  # what does not begin so is returned as it is
                if tail.endswith(end) and (simple is None or simple(tail)):
                    append(tail)
                    continue
            elif (
                line.endswith(end)
                and (found := identity(line))
                and (simple is None or simple(line[found.end() :]))
                and self._turn_to_launch(found.group())
            ):
                prefix, append = self._prefix, self._stretch.tails.append
                append(line[found.end() :])
                continue
            self._other(line)
            prefix, end, append, identity = self._prefix, self._end, self._stretch.tails.append, self._identity.match
        self._end_stretch()
        while self._queue:
            self._collect()
        return line.endswith(b"\n")

    def _is_simple(self, tail: bytes) -> bool:
        return self._tail.fullmatch(tail, 0, len(tail) + 1 - len(self._end)) is not None and b" Name" not in tail

    # ---------------------------------------------------------------------------------------------------- lines

    def _turn_to_launch(self, prefix: bytes) -> bool:
        """Go on with the launch whose rows begin with `prefix`; False when such a line may be a header."""
        if self.careful and may_open_a_page(prefix):
            return False
        place = self._place_of(prefix)
        self._stretch.run_launches.append(place)
        self._stretch.run_starts.append(len(self._stretch.tails))
        self._prefix = prefix
        return True

    def _place_of(self, prefix: bytes) -> int:
        place = self._stretch.places.get(prefix)
        if place is None:
            if len(self._stretch.tails) >= ROWS_OF_A_STRETCH:
                self._end_stretch()
            stretch = self._stretch
            place = stretch.places[prefix] = len(stretch.prefixes)
            stretch.prefixes.append(prefix)
        return place

    def _count_rows(self) -> None:
        """Bring the number of lines up to date with the rows that were taken."""
        rows = len(self._stretch.tails) - self._counted
        self.flow.number += rows
        self.flow.report.lines[kinds.METRICS] += rows
        self._counted += rows

    def _other(self, line: bytes) -> None:
        """Take in a line that is not recognised by its beginning and end."""
        self._count_rows()
        if line.startswith(self._prefix) and self._is_rule(line):
            return
        text = self.flow.text(line)
        opened = self.flow.opened_by(text)
        if opened is not None:
            if not isinstance(opened, LongPage):
                raise NotCertain("it holds pages of several kinds")
            self._open(opened)
            return
        kind, cells = self.page.judge(text)
        self.flow.note(kind, text)
        if kind == kinds.METRICS:
            self._take_row(cells, line)
        elif kind == kinds.RULE:
            self._take_rule(cells)

    def _is_rule(self, line: bytes) -> bool:
        """Take in a rule row of the current launch, if the line is one."""
        tail = line[len(self._prefix) :]
        rule = self._rules.get(tail)
        if rule is None:
            rule = self._rule_of(tail)
            if rule is None:
                return False
            if len(self._rules) < ROWS_OF_A_STRETCH // 10:
                self._rules[tail] = rule
        self.flow.number += 1
        self.flow.report.lines[kinds.RULE] += 1
        place = self._stretch.latest_of(_ids(self._prefix))
        assert place is not None  # noqa: S101 - the launch has a row
        self._stretch.rules.setdefault(place, []).append(rule)
        return True

    def _rule_of(self, tail: bytes) -> dict[str, str] | None:
        page, width = self.page, len(self.layout.identity)
        if page.rule_at is None or b" Name" in tail or b"\xef\xbf\xbd" in tail or not tail.endswith(b"\n"):
            return None
        try:
            cells = split_row(tail.decode("utf-8").removesuffix("\n").rstrip("\r"), ",")
        except UnicodeDecodeError:
            return None
        if (
            cells is None
            or not page.rule_at < width + len(cells) <= len(page.header) + 1
            or cells[page.name_at - width]
        ):
            return None
        return vars(page.rule([""] * width + cells))

    def _open(self, page: LongPage) -> None:
        """A header: the same one goes on in the same stretch, another one in a new one."""
        layout = Layout.of(page)
        if layout != self.layout:
            self._end_stretch()
            self.layout, self._end = layout, NOWHERE
            self._stretch.layout = layout
            self._compile()
        self.state = self.flow.turn_to(page)
        self._prefix = NOWHERE
        self._rules = {}
        self._stretch.begin_page(self.state)

    def _take_row(self, cells: list[str], line: bytes) -> None:
        width = len(self.layout.identity)
        prefix = _written(cells[:width]) + b","
        place = self._place_of(prefix)
        stretch = self._stretch
        stretch.run_launches.append(place)
        stretch.run_starts.append(len(stretch.tails))
        tail = _written(cells[width : width + len(self.layout.tail)])
        stretch.tails.append(tail + b"\n")
        self._counted = len(stretch.tails)
        self._prefix = prefix if self._may_repeat(prefix) else NOWHERE
        ending = line[len(prefix) + len(tail) :]
        if line.startswith(prefix + tail) and ending in MAY_END_A_ROW:
            self._end = b'"' + ending
            stretch.ends.add(ending)

    def _may_repeat(self, prefix: bytes) -> bool:
        """Whether a line that begins so can be recognised by it."""
        if may_open_a_page(prefix) or (self.careful and not prefix.isascii()):
            return False
        return b"\r" not in prefix and b"\0" not in prefix and b"\xef\xbf\xbd" not in prefix

    def _take_rule(self, cells: list[str]) -> None:
        ids = f'"{cells[0]}","{cells[1]}"'.encode("utf-8", "replace")
        place = self._stretch.latest_of(ids)
        if place is None:
            place = self._place_of(_written(cells[: len(self.layout.identity)]) + b",")
        self._stretch.rules.setdefault(place, []).append(vars(self.page.rule(cells)))

    # ------------------------------------------------------------------------------------------------- stretches

    def _begin_stretch(self) -> None:
        self._stretch = Stretch(self.layout, ends={self._end.removeprefix(b'"')}, pages=[(0, self.state)])
        self._counted = 0

    def _end_stretch(self) -> None:
        self._count_rows()
        stretch = self._stretch
        if stretch.prefixes:
            settled = all(state.locale.settled for _, state in stretch.pages)
            future = self.flow.pool.submit(read_stretch, stretch, self._decimal, count_votes=not settled)
            self._queue.append((stretch, future))
        self._begin_stretch()
        while len(self._queue) > STRETCHES_AHEAD:
            self._collect()

    def _collect(self) -> None:
        stretch, future = self._queue.popleft()
        found = future.result()
        if not all(page.state.locale.accepts(page.votes, found.decimal) for page in found.pages):
            self._decimal = "," if found.decimal == "." else "."
            found = read_stretch(stretch, self._decimal)
            if not all(page.state.locale.accepts(page.votes, found.decimal) for page in found.pages):
                raise NotCertain("its numbers contradict each other")
        columns = found.columns
        for begin, end, page in zip(found.begins, [*found.begins[1:], columns.rows], found.pages, strict=True):
            assert columns.processes is not None  # noqa: S101 - Layout.of() asks for them
            self.flow.check_new_ids(columns.processes[begin:end], columns.ids[begin:end])
            page.state.oddities.absent.update(page.absent)
            page.state.oddities.alive += page.alive
            for name, values in page.conflicts.items():
                page.state.oddities.conflicts.setdefault(name, values)
        for name, label in found.labels.items():
            self.flow.report.labels.setdefault(name, label)
        self.flow.keep(columns)


def _written(cells: Sequence[str]) -> bytes:
    """Cells as a row prints them."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="").writerow(cells)
    return text.getvalue().encode("utf-8", "replace")


def _ids(prefix: bytes) -> bytes:
    """The cells of launch and process id, as printed."""
    return prefix[: prefix.index(b'"', prefix.index(b'","') + 3) + 1]


# ------------------------------------------------------------------------------------------------ parsing together


def read_stretch(stretch: Stretch, decimal: str, count_votes: bool = True) -> ReadStretch:
    """The launches of a stretch in columns. Raises `Unexpected` when a tail or prefix is not what it seemed to be.

    `count_votes` is for stretches of a page whose locale is not settled.
    """
    if not stretch.tails:
        raise NotCertain("a launch has no metrics")
    prefixes = b"\n".join([prefix[:-1] for prefix in stretch.prefixes]) + b"\n"
    identity = _parsed(prefixes, len(stretch.prefixes), stretch.layout.identity, SELDOM_REPEATED)
    tails = _parsed(stretch.block(), len(stretch.tails), stretch.layout.tail, {"Metric Value"})
    ids, processes = whole_numbers(identity["ID"]), whole_numbers(identity["Process ID"])
    if ids is None or processes is None:
        raise NotCertain("its ids are no whole numbers")
    shapes: dict[str, Shapes] = {
        title: shapes_of(identity[title]) for title in ("Grid Size", "Block Size") if title in identity
    }
    cells = {title: column for title, column in identity.items() if isinstance(column, pa.DictionaryArray)}
    rows = len(stretch.tails)
    starts = np.array([*stretch.run_starts, rows], np.int64)
    launch = np.repeat(np.array(stretch.run_launches, np.int64), np.diff(starts))
    launches = len(stretch.prefixes)
    begins = [begin for begin, _ in stretch.pages if begin < launches]
    pages = [ReadPage(state) for begin, state in stretch.pages if begin < launches]
    reader = _Metrics(tails, launch, launches, decimal, begins, pages, count_votes)
    metrics = reader.columns()
    rules = [stretch.rules.get(place) for place in range(launches)] if stretch.rules else None
    columns = Columns(launches, ids, processes, cells, shapes, metrics, reader.readings, reader.nans, rules)
    for page, begin, end in zip(pages, begins, [*begins[1:], launches], strict=True):
        page.alive = end - begin - int(columns.failed[begin:end].sum())
    return ReadStretch(columns, decimal, pages, begins, reader.labels)


def _parsed(block: bytes, lines: int, titles: Sequence[str], strings: Set[str]) -> dict[str, pa.Array]:
    """Lines of cells as columns: those in `strings` as text, the others as dictionaries.

    Raises `Unexpected` where a line is no row of them, or may be a header.
    """
    dictionary = pa.dictionary(pa.int32(), pa.string())
    try:
        table = pc_csv.read_csv(
            pa.BufferReader(block),
            pc_csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=list(titles)),
            pc_csv.ParseOptions(ignore_empty_lines=False),
            pc_csv.ConvertOptions(
                column_types={title: pa.string() if title in strings else dictionary for title in titles},
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        raise Unexpected from error
    columns = {title: arrays.one(table.column(title)) for title in titles}
    if len(table) != lines or not are_rows(block, lines, columns.values()):
        raise Unexpected
    if any(may_open_a_page(text_buffers(texts)[0]) for texts in map(arrays.distinct, columns.values())):
        raise Unexpected
    return columns


class _Metrics:
    """The metrics of a stretch: rows of label, unit and value -> a column for each metric."""

    def __init__(
        self, tails: dict[str, pa.Array], launch: Integers, launches: int, decimal: str, begins: list[int],
        pages: list[ReadPage], count_votes: bool,
    ) -> None:  # fmt: skip
        self.launch, self.launches = launch, launches
        self.number_format = NumberFormat(decimal)
        self.begins, self.pages = np.array(begins, np.int64), pages
        self.labels: dict[str, LabelledMetric] = {}
        self.texts = tails["Metric Value"]
        self.metric, self.names = self._named(tails)
        self.unit_of, self.units = _codes(tails.get("Metric Unit"), len(launch))
        self.cells = read_cells(self.texts, decimal, count_votes)
        self.readings = np.bincount(launch, minlength=launches)
        self.nans = np.zeros(launches, np.int64)
        self._count_votes()

    def _named(self, tails: dict[str, pa.Array]) -> tuple[Integers, list[str]]:
        """For each row the number of its metric, and the metrics' names; notes the labels in the order of the rows."""
        parts = [
            _codes(tails.get(title), len(self.launch)) for title in ("Section Name", "Body Item Label", "Metric Name")
        ]
        combined = np.zeros(len(self.launch), np.int64)
        for codes, texts in parts:
            combined = combined * len(texts) + codes
        size = int(np.prod([len(texts) for _, texts in parts]))
        first = np.full(size, -1, np.int64)
        first[combined[::-1]] = np.arange(len(combined) - 1, -1, -1)
        found = np.flatnonzero(first >= 0)
        number = np.zeros(size, np.int64)
        names: dict[str, int] = {}
        for code in found[np.argsort(first[found])].tolist():
            row = int(first[code])
            section, body, label = (texts[int(codes[row])] for codes, texts in parts)
            if not label:
                raise Unexpected
            metric = metric_of_label(section, body, label)
            if self.labels.setdefault(metric.name, metric) != metric and (np.diff(self.launch) < 0).any():
                raise NotCertain("rows of its launches alternate, and a metric has two labels")
            number[code] = names.setdefault(metric.name, len(names))
        self._label_parts = parts
        return number[combined], list(names)

    def _page_of(self, rows: Integers) -> Integers:
        return np.searchsorted(self.begins, self.launch[rows], side="right") - 1

    def _count_votes(self) -> None:
        own, ambiguous = self.cells.own_votes, self.cells.ambiguous
        if own is not None and ambiguous is not None:
            counts = np.bincount(self._page_of(np.flatnonzero(own)), minlength=len(self.pages))
            opened = np.bincount(self._page_of(np.flatnonzero(ambiguous)), minlength=len(self.pages))
            for page, count, is_open in zip(self.pages, counts.tolist(), opened.tolist(), strict=True):
                page.votes = Votes(count, 0, is_open > 0)
        for text, rows in self.cells.odd.items():
            found = vote(text)
            for at, count in Counter(self._page_of(rows).tolist()).items() if found else ():
                votes = self.pages[at].votes
                votes.own += count * (found == self.number_format.decimal)
                votes.contrary += count * (found not in ("?", self.number_format.decimal))
                votes.open |= found == "?"

    def columns(self) -> dict[str, MetricColumn]:
        """A column for each metric."""
        factors = np.array([unit(text).factor for text in self.units])
        matrix = np.full((len(self.names), self.launches), np.nan)
        place = self.metric * self.launches + self.launch
        kept = self._without_repeats(place)
        values = self.cells.values * factors[self.unit_of]
        if np.isinf(values).any():
            raise NotCertain("a number is beyond all that can be stored")
        matrix.reshape(-1)[place[kept]] = values[kept]
        result = {name: MetricColumn(values) for name, values in zip(self.names, matrix, strict=True)}
        valid = ~np.isnan(self.cells.values) & kept
        self._read_odd(result, kept, valid)
        self._note_units(result, valid)
        self._read_repeats(result, place, kept)
        return result

    def _without_repeats(self, place: Integers) -> Mask:
        """The rows whose metric stands once in their launch; of the same reading printed again the first one."""
        counts = np.bincount(place, minlength=len(self.names) * self.launches)
        kept: Mask = counts[place] == 1
        self._repeated: dict[int, list[int]] = {}
        for row in np.flatnonzero(~kept).tolist():
            self._repeated.setdefault(int(place[row]), []).append(row)
        for at, rows in list(self._repeated.items()):
            if len({(int(self.unit_of[row]), self.texts[row].as_py()) for row in rows}) == 1:
                kept[rows[0]] = True
                del self._repeated[at]
        return kept

    def _read_odd(self, result: dict[str, MetricColumn], kept: Mask, valid: Mask) -> None:
        for text, rows in self.cells.odd.items():
            lowered = text.strip().lower()
            if lowered in NAN_TEXTS:
                np.add.at(self.nans, self.launch[rows], 1)
            known: dict[int, tuple[Metric | None, str | None]] = {}
            for row in rows[kept[rows]].tolist():
                code = int(self.unit_of[row])
                if code not in known:
                    known[code] = metric_of(Reading(text, self.units[code], "", "", ""), self.number_format)
                name, launch = self.names[self.metric[row]], int(self.launch[row])
                valid[row] = known[code][0] is not None
                self._put(result[name], launch, *known[code])
                if known[code][0] is None and lowered.endswith("n/a"):
                    self.pages[int(np.searchsorted(self.begins, launch, side="right")) - 1].absent[name] += 1

    def _put(self, column: MetricColumn, launch: int, metric: Metric | None, behind: str | None) -> None:
        if behind is not None:
            column.instances[launch] = behind
        if metric is not None and isinstance(metric.value, str):
            column.words[launch] = metric.value
        elif metric is not None:
            column.values[launch] = metric.value

    def _note_units(self, result: dict[str, MetricColumn], valid: Mask) -> None:
        """The unit of a column is that of the first launch that has the metric."""
        rows = np.flatnonzero(valid)
        rows = rows[np.argsort(self.launch[rows], kind="stable")][::-1]
        first = np.full(len(self.names), -1, np.int64)
        first[self.metric[rows]] = rows
        for name, row in zip(self.names, first.tolist(), strict=True):
            if row >= 0:
                result[name].unit = unit(self.units[int(self.unit_of[row])]).base
                result[name].first = int(self.launch[row])

    def _read_repeats(self, result: dict[str, MetricColumn], place: Integers, kept: Mask) -> None:
        """Metrics that stand several times in a launch, and not the same each time."""
        for at, rows in self._repeated.items():
            name, launch = self.names[at // self.launches], at % self.launches
            readings = [
                Reading(self.texts[row].as_py(), self.units[int(self.unit_of[row])], "", "", "") for row in rows
            ]
            metric, behind, conflict = settled(readings, self.number_format)
            column, page = result[name], self.pages[int(np.searchsorted(self.begins, launch, side="right")) - 1]
            self._put(column, launch, metric, behind)
            if metric is not None and (column.first is None or launch < column.first):
                column.unit, column.first = metric.unit, launch
            if metric is None and readings[0].text.strip().lower().endswith("n/a"):
                page.absent[name] += 1
            if conflict:
                page.conflicts.setdefault(name, conflict)


def _codes(column: pa.DictionaryArray | None, rows: int) -> tuple[Integers, list[str]]:
    """A dictionary column as whole numbers and the texts they stand for; "" where there is no such column."""
    if column is None:
        return np.zeros(rows, np.int64), [""]
    return arrays.values_of(column.indices, np.int32).astype(np.int64), column.dictionary.to_pylist()
