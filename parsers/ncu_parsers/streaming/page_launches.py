"""Turn the rows of all pages of a report into launches as columns, each launch once.

A row of a wide page is a launch. On a long page the rows of a launch are consecutive, each a metric or a rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

import numpy as np

from ncu_parsers.ncu.csv_pages import LongPage, WidePage
from ncu_parsers.report_data.cell_text import NumberFormat, unit
from ncu_parsers.report_data.report import NAN_TEXTS, Metric, Reading, Report, metric_of, metric_of_label
from ncu_parsers.schema.tables import Floats, Rule
from ncu_parsers.streaming.cells.rows import MISSING, Integers, Mask, NotStreamed, Places, Rows, Texts, joined
from ncu_parsers.streaming.launch_columns import LaunchColumns, MetricColumn, Rules, best_reading
from ncu_parsers.streaming.page_rows import (
    BODY,
    LABEL,
    SECTION,
    UNIT,
    VALUE,
    RowBatch,
    StreamedPage,
    metric_names,
    metric_title,
    rules_among,
)


def launches_of_report(batches: Iterable[RowBatch], report: Report) -> Iterator[LaunchColumns]:
    """Launches page by page. Raises `NotStreamed` if one may be on two pages."""
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
            yield from ((batch.streamed, _launches_of_wide_rows(batch, report)) for batch in some)


class LaunchIds:
    """The ids of launches so far. They ascend within a process; one that does not may belong to an earlier launch."""

    def __init__(self) -> None:
        self._earlier: dict[int, int] = {}
        self._last: dict[int, int] = {}

    def begin_table(self) -> None:
        """Start a table whose launches must differ from all earlier ones."""
        self._earlier = dict(self._last)

    def add(self, processes: Integers | None, ids: Integers) -> None:
        """Add launches in file order. Raises `NotStreamed` if one may be in an earlier table too."""
        each = np.zeros(len(ids), np.int64) if processes is None else processes
        alone = int(each.min()) == int(each.max())
        for process in [int(each[0])] if alone else np.unique(each).tolist():
            of_process = ids if alone else ids[each == process]
            if int(of_process.min()) <= self._earlier.get(process, -1):
                raise NotStreamed("one launch may stand in several of its tables")
            self._last[process] = max(self._last.get(process, -1), int(of_process.max()))


# ---------------------------------------------------------------------------------------------------------- wide pages


def _launches_of_wide_rows(batch: RowBatch, report: Report) -> LaunchColumns:
    """The launches of a batch. Counts absent metrics in the page's problems, and stores labels of metrics."""
    page, rows = batch.streamed.page, batch.rows
    assert isinstance(page, WidePage)  # noqa: S101 - the caller tells pages apart
    number_format = NumberFormat(batch.decimal)
    metrics: dict[str, MetricColumn] = {}
    nans = np.zeros(rows.count, np.int64)
    for place, (at, name) in enumerate(zip(page.metric_columns, metric_names(page), strict=True)):
        report.labels.setdefault(name, metric_of_label("", "", page.titles[at]))
        printed = page.units[at] if page.units else ""
        numbers, (base, factor) = rows.numbers[metric_title(place)], unit(printed)
        column = metrics[name] = MetricColumn(_scaled(numbers.values, factor) if factor != 1 else numbers.values, base)
        if np.isinf(column.values).any():
            raise NotStreamed("a number is beyond all that can be stored")
        if numbers.non_numeric:
            nans += column.fill(numbers, printed, number_format)
    columns = LaunchColumns(
        rows.count, rows.whole["ID"], rows.whole.get("Process ID"),
        {title: texts for title, texts in rows.texts.items() if title}, rows.shapes, metrics,
        np.full(rows.count, len(metrics)), nans,
    )  # fmt: skip
    problems = batch.streamed.problems
    problems.succeeded += columns.rows - int(columns.failed.sum())
    for name, column in metrics.items():
        problems.absent[name] += column.absent
    return columns


def _scaled(values: Floats, factor: float | Floats) -> Floats:
    """Values in base units; infinite on overflow, which the caller refuses."""
    with np.errstate(over="ignore"):
        return values * factor


# ---------------------------------------------------------------------------------------------------------- long pages


def long_launches(batches: Iterable[RowBatch], report: Report) -> Iterator[tuple[StreamedPage, LaunchColumns]]:
    """The launches of each batch, as columns. A batch's last launch waits for the next batch, where it may continue."""
    waiting: RowBatch | None = None
    for batch in batches:
        if waiting is not None and waiting.streamed is batch.streamed:
            batch = batch._replace(rows=joined([waiting.rows, batch.rows]))
        elif waiting is not None:
            yield waiting.streamed, _launches_of_long_rows(waiting, report)
        last = batch.rows.count if batch.is_last else _begin_of_last_launch(batch.rows)
        if last:
            yield batch.streamed, _launches_of_long_rows(batch._replace(rows=batch.rows.part(0, last)), report)
        waiting = None if batch.is_last else batch._replace(rows=batch.rows.last(last))
    if waiting is not None:
        yield waiting.streamed, _launches_of_long_rows(waiting, report)


def _begin_of_last_launch(rows: Rows) -> int:
    """Index of the first of the rows at the end with the ids of the last row."""
    processes, ids = rows.whole["Process ID"], rows.whole["ID"]
    others = np.flatnonzero((processes != processes[-1]) | (ids != ids[-1]))
    return int(others[-1]) + 1 if len(others) else 0


def _launches_of_long_rows(batch: RowBatch, report: Report) -> LaunchColumns:
    """The launches of a batch that ends with a launch. Adds problems of readings, and labels of metrics."""
    page = batch.streamed.page
    assert isinstance(page, LongPage)  # noqa: S101 - the caller tells pages apart
    rows, rule_rows = batch.rows, rules_among(batch.rows)
    launch_of_row, first_rows = _launches(rows, rule_rows, page)
    launches = len(first_rows)
    metric_rows = np.flatnonzero(~rule_rows)
    metrics = _Metrics(
        rows.take(metric_rows) if rule_rows.any() else rows, launch_of_row[metric_rows], launches, batch, report
    )
    identity = rows.take(first_rows)
    texts = {title: identity.texts[title] for title in page.identity_columns if title in identity.texts}
    columns = LaunchColumns(
        launches, identity.whole["ID"], identity.whole["Process ID"], texts, identity.shapes, metrics.columns(),
        np.bincount(metrics.launch, minlength=launches), metrics.nans,
        _rules(rows, np.flatnonzero(rule_rows), launch_of_row, launches, page),
    )  # fmt: skip
    batch.streamed.problems.succeeded += launches - int(columns.failed.sum())
    return columns


def _launches(rows: Rows, rule_rows: Mask, page: LongPage) -> tuple[Integers, Places]:
    """Index of each row's launch, and each launch's first row.

    A metric belongs to the launch with the same identity cells; a rule to the latest launch with the same ids, since
    ncu up to 2022.3 prints another stream in rule rows.
    """
    identity = [
        *(rows.texts[title].codes for title in page.identity_columns if title in rows.texts),
        *(rows.whole[title] for title in page.identity_columns if title in rows.whole),
        *(side for title in page.identity_columns if title in rows.shapes for side in rows.shapes[title].T),
    ]
    changes = rule_rows[1:] != rule_rows[:-1]
    for column in identity:
        changes = changes | (column[1:] != column[:-1])
    begins = np.concatenate([[0], np.flatnonzero(changes) + 1])
    keys = zip(*(column[begins].tolist() for column in identity), strict=True)
    ids = zip(*(rows.whole[title][begins].tolist() for title in ("Process ID", "ID")), strict=True)
    known: dict[tuple[int, ...], int] = {}
    latest: dict[tuple[int, ...], int] = {}
    numbers: list[int] = []
    first_rows: list[int] = []
    for begin, key, of_process, speaks_of in zip(begins.tolist(), keys, ids, rule_rows[begins].tolist(), strict=True):
        number = latest.get(of_process) if speaks_of else None
        number = known.get(key) if number is None else number
        if number is None:
            number = known[key] = latest[of_process] = len(first_rows)
            first_rows.append(begin)
        numbers.append(number)
    lengths = np.diff([*begins.tolist(), rows.count])
    return np.repeat(np.array(numbers, np.int64), lengths), np.array(first_rows, np.intp)


def _rules(rows: Rows, places: Places, launch_of_row: Integers, launches: int, page: LongPage) -> Rules | None:
    """Rule results per launch, from the rule rows at these indices."""
    if not len(places):
        return None
    launch = launch_of_row[places]
    ordered = places[np.argsort(launch, kind="stable")]
    columns = page.rule_columns()
    fields = {
        field: _texts_at(rows.texts[page.header[columns[field]]], ordered)
        if field in columns
        else Texts(np.full(len(ordered), MISSING, np.int32), [])
        for field in Rule._fields
    }
    return Rules(fields, np.bincount(launch, minlength=launches))


def _texts_at(texts: Texts, places: Places) -> Texts:
    return Texts(texts.codes[places], texts.words)


class _Metrics:
    """Metrics of launches from rows: a column for each."""

    def __init__(self, rows: Rows, launch: Integers, launches: int, batch: RowBatch, report: Report) -> None:
        self.rows, self.launch, self.launches = rows, launch, launches
        self.number_format = NumberFormat(batch.decimal)
        self.problems = batch.streamed.problems
        self.page = batch.streamed.page
        self.numbers = rows.numbers[VALUE]
        self.nans = np.zeros(launches, np.int64)
        self.metric, self.names = self._named(report)
        self.unit_of, self.units = _codes(rows, UNIT)

    def _named(self, report: Report) -> tuple[Integers, list[str]]:
        """Index of each row's metric, and the metrics' names, in order of the launches; stores their labels."""
        parts = [_codes(self.rows, title) for title in (SECTION, BODY, LABEL)]
        combined = np.zeros(self.rows.count, np.int64)
        for codes, words in parts:
            combined = combined * len(words) + codes
        self._require_one_run(combined)
        by_launch = np.argsort(self.launch, kind="stable")
        distinct, first, place_of = np.unique(combined[by_launch], return_index=True, return_inverse=True)
        number = np.empty(len(distinct), np.int64)
        names: dict[str, int] = {}
        for place in np.argsort(first).tolist():
            row = int(by_launch[first[place]])
            metric = metric_of_label(*(words[int(codes[row])] for codes, words in parts))
            report.labels.setdefault(metric.name, metric)
            number[place] = names.setdefault(metric.name, len(names))
        of_row = np.empty(self.rows.count, np.int64)
        of_row[by_launch] = number[place_of.reshape(-1)]
        return of_row, list(names)

    def _require_one_run(self, said: Integers) -> None:
        """Raise `NotStreamed` if a row repeats its launch's first row: another run begins there."""
        first = np.full(self.launches, -1, np.int64)
        first[self.launch[::-1]] = np.arange(len(said) - 1, -1, -1)
        if np.count_nonzero(said == said[first[self.launch]]) > np.count_nonzero(first >= 0):
            raise NotStreamed("the ids of its launches begin anew")

    def columns(self) -> dict[str, MetricColumn]:
        """A column for each metric, in order of first appearance."""
        factors = np.array([unit(text).factor for text in self.units])
        values = _scaled(self.numbers.values, factors[self.unit_of])
        if np.isinf(values).any():
            raise NotStreamed("a number is beyond all that can be stored")
        place = self.metric * self.launches + self.launch
        kept, repeated = self._without_repeats(place)
        matrix = np.full((len(self.names), self.launches), np.nan)
        matrix.reshape(-1)[place[kept]] = values[kept]
        result = {name: MetricColumn(row) for name, row in zip(self.names, matrix, strict=True)}
        valid = ~np.isnan(self.numbers.values) & kept
        self._read_non_numeric(result, kept, valid)
        self._note_units(result, valid)
        self._read_repeats(result, repeated)
        return result

    def _without_repeats(self, place: Integers) -> tuple[Mask, dict[int, list[int]]]:
        """Mask of rows whose metric appears once in its launch, or first of equal ones; the others by `place`."""
        counts = np.bincount(place, minlength=len(self.names) * self.launches)
        kept: Mask = counts[place] == 1
        repeated: dict[int, list[int]] = {}
        for row in np.flatnonzero(~kept).tolist():
            repeated.setdefault(int(place[row]), []).append(row)
        for at, rows in list(repeated.items()):
            if len({(int(self.unit_of[row]), self._printed(row)) for row in rows}) == 1:
                kept[rows[0]] = True
                del repeated[at]
        return kept, repeated

    def _printed(self, row: int) -> str:
        """The value of a row as printed."""
        _, cells = self.page.judge(self.rows.line(row).decode("utf-8", "replace").rstrip("\r\n"))
        return cells[self.page.column[VALUE]]

    def _read_non_numeric(self, result: dict[str, MetricColumn], kept: Mask, valid: Mask) -> None:
        for text, rows in self.numbers.non_numeric.items():
            lowered = text.strip().lower()
            if lowered in NAN_TEXTS:
                np.add.at(self.nans, self.launch[rows], 1)
            known: dict[int, tuple[Metric | None, str | None]] = {}
            for row in rows[kept[rows]].tolist():
                code = int(self.unit_of[row])
                if code not in known:
                    known[code] = metric_of(Reading(text, self.units[code], "", "", ""), self.number_format)
                name = self.names[self.metric[row]]
                valid[row] = known[code][0] is not None
                result[name].put(int(self.launch[row]), *known[code])
                if known[code][0] is None and lowered.endswith("n/a"):
                    self.problems.absent[name] += 1

    def _note_units(self, result: dict[str, MetricColumn], valid: Mask) -> None:
        """Set each column's unit to that of the first launch with the metric."""
        rows = np.flatnonzero(valid)
        rows = rows[np.argsort(self.launch[rows], kind="stable")][::-1]
        first = np.full(len(self.names), -1, np.int64)
        first[self.metric[rows]] = rows
        for name, row in zip(self.names, first.tolist(), strict=True):
            if row >= 0:
                result[name].unit = unit(self.units[int(self.unit_of[row])]).base
                result[name].first = int(self.launch[row])

    def _read_repeats(self, result: dict[str, MetricColumn], repeated: dict[int, list[int]]) -> None:
        """Read metrics that appear several times in a launch with different values."""
        for at, rows in repeated.items():
            name, launch = self.names[at // self.launches], at % self.launches
            readings = [Reading(self._printed(row), self.units[int(self.unit_of[row])], "", "", "") for row in rows]
            metric, behind, conflict = best_reading(readings, self.number_format)
            column = result[name]
            column.put(launch, metric, behind)
            if metric is not None and (column.first is None or launch < column.first):
                column.unit, column.first = metric.unit, launch
            if metric is None and readings[0].text.strip().lower().endswith("n/a"):
                self.problems.absent[name] += 1
            if conflict:
                self.problems.conflicts.setdefault(name, conflict)


def _codes(rows: Rows, title: str) -> tuple[Integers, list[str]]:
    """A column of texts as int64 codes, one per row, and the texts that they index; only "" without the column."""
    texts = rows.texts.get(title)
    if texts is None:
        return np.zeros(rows.count, np.int64), [""]
    return texts.codes.astype(np.int64), texts.words or [""]
