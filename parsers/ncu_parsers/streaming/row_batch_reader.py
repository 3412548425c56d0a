"""Stretches of a long page: the rows of some thousand launches, cut in two where they stop repeating, parsed together.

What a launch's rows begin with is parsed once, their tails as one block. The cells are checked there: a stretch is
columns, or it was not what it seemed to be.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ncu_parsers.report_data.metric_labels import LabelledMetric, metric_of_label
from ncu_parsers.report_data.report import NAN_TEXTS, Metric, Reading, metric_of
from ncu_parsers.report_data.units import NumberFormat, unit, vote
from ncu_parsers.schema import arrays
from ncu_parsers.streaming.cells.number_cells import Integers, Mask, Votes
from ncu_parsers.streaming.launch_columns import Columns, MetricColumn, settled
from ncu_parsers.streaming.line_accounting import NotCertain, may_open_a_page
from ncu_parsers.streaming.quoted_cells import Kind, Rows, kind_of, read_rows
from ncu_parsers.streaming.row_batch import Stretch

VALUE = "Metric Value"


class Unexpected(Exception):
    """A line that looked like a row is none: every tail has to be looked at."""


@dataclass
class ReadPage:
    """What the launches of one page in a stretch say about it, told by its number in the file."""

    number: int
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


def read_stretch(stretch: Stretch, decimal: str, count_votes: bool = True) -> ReadStretch:
    """The launches of a stretch in columns. Raises `Unexpected` when a tail or prefix is not what it seemed to be.

    `count_votes` is for stretches of a page whose locale is not settled.
    """
    if not stretch.rows:
        raise NotCertain("a launch has no metrics")
    identity, tails = _identity(stretch, decimal), _tails(stretch, decimal, count_votes)
    starts = np.array([*stretch.run_starts, stretch.rows], np.int64)
    launch = np.repeat(np.array(stretch.run_launches, np.int64), np.diff(starts))
    launches = len(stretch.prefixes)
    begins = [begin for begin, _ in stretch.pages if begin < launches]
    pages = [ReadPage(number) for begin, number in stretch.pages if begin < launches]
    reader = _Metrics(tails, launch, launches, decimal, begins, pages, len(stretch.layout.tail) - 1)
    metrics = reader.columns()
    rules = stretch.rules.by_launch(launches)
    ids, processes = identity.whole["ID"], identity.whole["Process ID"]
    columns = Columns(
        launches, ids, processes, identity.texts, identity.shapes, metrics, reader.readings, reader.nans, rules
    )
    for page, begin, end in zip(pages, begins, [*begins[1:], launches], strict=True):
        page.alive = end - begin - int(columns.failed[begin:end].sum())
    return ReadStretch(columns, decimal, pages, begins, reader.labels)


def _identity(stretch: Stretch, decimal: str) -> Rows:
    """What the rows of each launch begin with."""
    block = b"\n".join([prefix[:-1] for prefix in stretch.prefixes]) + b"\n"
    columns = [(title, kind_of(title)) for title in stretch.layout.identity]
    return _checked(read_rows(block, columns, decimal, judged=stretch.judged), len(stretch.prefixes), stretch)


def _tails(stretch: Stretch, decimal: str, count_votes: bool) -> Rows:
    """What stands behind that."""
    columns = [(title, Kind.NUMBERS if title == VALUE else Kind.TEXTS) for title in stretch.layout.tail]
    rows = read_rows(
        stretch.tails.getvalue(), columns, decimal, endings=stretch.endings, judged=stretch.judged,
        count_votes=count_votes,
    )  # fmt: skip
    return _checked(rows, stretch.rows, stretch)


def _checked(rows: Rows | None, lines: int, stretch: Stretch) -> Rows:
    """The rows. Raises `Unexpected` where a line is none or, unless it was judged to be none, may be a header."""
    if rows is None or rows.count != lines:
        raise Unexpected
    if not stretch.judged and any(map(may_open_a_page, rows.words())):
        raise Unexpected
    return rows


class _Metrics:
    """The metrics of a stretch: rows of label, unit and value -> a column for each metric."""

    def __init__(
        self, tails: Rows, launch: Integers, launches: int, decimal: str, begins: list[int], pages: list[ReadPage],
        value_at: int,
    ) -> None:  # fmt: skip
        self.launch, self.launches = launch, launches
        self.number_format = NumberFormat(decimal)
        self.begins, self.pages = np.array(begins, np.int64), pages
        self.labels: dict[str, LabelledMetric] = {}
        self.tails, self._value_at = tails, value_at
        self.metric, self.names = self._named(tails)
        self.unit_of, self.units = _codes(tails, "Metric Unit")
        self.cells = tails.numbers[VALUE]
        self.readings = np.bincount(launch, minlength=launches)
        self.nans = np.zeros(launches, np.int64)
        self._count_votes()

    def _named(self, tails: Rows) -> tuple[Integers, list[str]]:
        """For each row the number of its metric, and the metrics' names; notes labels as the launches have them."""
        parts = [_codes(tails, title) for title in ("Section Name", "Body Item Label", "Metric Name")]
        combined = np.zeros(len(self.launch), np.int64)
        for codes, texts in parts:
            combined = combined * len(texts) + codes
        self._refuse_runs_under_one_header(combined)
        size = int(np.prod([len(texts) for _, texts in parts]))
        first = np.full(size, -1, np.int64)
        by_launch = (
            np.argsort(self.launch, kind="stable") if (np.diff(self.launch) < 0).any() else np.arange(len(combined))
        )
        first[combined[by_launch][::-1]] = np.arange(len(combined) - 1, -1, -1)
        found = np.flatnonzero(first >= 0)
        number = np.zeros(size, np.int64)
        names: dict[str, int] = {}
        for code in found[np.argsort(first[found])].tolist():
            row = int(by_launch[first[code]])
            section, body, label = (texts[int(codes[row])] for codes, texts in parts)
            if not label:
                raise Unexpected
            metric = metric_of_label(section, body, label)
            self.labels.setdefault(metric.name, metric)
            number[code] = names.setdefault(metric.name, len(names))
        return number[combined], list(names)

    def _refuse_runs_under_one_header(self, said: Integers) -> None:
        """Where a row says again what its launch's first row said, the plain reader tells the runs apart."""
        first = np.full(self.launches, -1, np.int64)
        first[self.launch[::-1]] = np.arange(len(said) - 1, -1, -1)
        if np.count_nonzero(said == said[first[self.launch]]) > np.count_nonzero(first >= 0):
            raise NotCertain("the ids of its launches begin anew")

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
        repeated = np.flatnonzero(~kept).tolist()
        self._printed = self._values_of(repeated)
        for row in repeated:
            self._repeated.setdefault(int(place[row]), []).append(row)
        for at, rows in list(self._repeated.items()):
            if len({(int(self.unit_of[row]), self._printed[row]) for row in rows}) == 1:
                kept[rows[0]] = True
                del self._repeated[at]
        return kept

    def _values_of(self, rows: Sequence[int]) -> dict[int, str]:
        """The values of some rows as they are printed."""
        if not rows:
            return {}
        lines = csv.reader(self.tails.lines(rows))
        return {row: cells[self._value_at] for row, cells in zip(rows, lines, strict=True)}

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
            readings = [Reading(self._printed[row], self.units[int(self.unit_of[row])], "", "", "") for row in rows]
            metric, behind, conflict = settled(readings, self.number_format)
            column, page = result[name], self.pages[int(np.searchsorted(self.begins, launch, side="right")) - 1]
            self._put(column, launch, metric, behind)
            if metric is not None and (column.first is None or launch < column.first):
                column.unit, column.first = metric.unit, launch
            if metric is None and readings[0].text.strip().lower().endswith("n/a"):
                page.absent[name] += 1
            if conflict:
                page.conflicts.setdefault(name, conflict)


def _codes(rows: Rows, title: str) -> tuple[Integers, list[str]]:
    """A column of texts as whole numbers and the texts they stand for; "" where there is no such column."""
    column = rows.texts.get(title)
    if column is None:
        return np.zeros(rows.count, np.int64), [""]
    return arrays.values_of(column.indices, np.int32).astype(np.int64), column.dictionary.to_pylist()
