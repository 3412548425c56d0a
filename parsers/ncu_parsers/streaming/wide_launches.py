"""Rows of wide pages -> launches: each row is one."""

from __future__ import annotations

import numpy as np

from ncu_parsers.ncu.csv_pages import WidePage
from ncu_parsers.report_data.metric_labels import metric_of_label
from ncu_parsers.report_data.report import Report
from ncu_parsers.report_data.units import NumberFormat, unit
from ncu_parsers.streaming.cells.rows import NotStreamed
from ncu_parsers.streaming.launch_columns import LaunchColumns, MetricColumn
from ncu_parsers.streaming.layouts import metric_names, metric_title
from ncu_parsers.streaming.page_rows import RowBatch


def launches_of(batch: RowBatch, report: Report) -> LaunchColumns:
    """The launches of a batch. Notes metrics that none of them has, and labels of metrics."""
    page, rows = batch.streamed.page, batch.rows
    assert isinstance(page, WidePage)  # noqa: S101 - the caller tells pages apart
    number_format = NumberFormat(batch.decimal)
    metrics: dict[str, MetricColumn] = {}
    nans = np.zeros(rows.count, np.int64)
    for place, (at, name) in enumerate(zip(page.metric_columns, metric_names(page), strict=True)):
        report.labels.setdefault(name, metric_of_label("", "", page.titles[at]))
        printed = page.units[at] if page.units else ""
        numbers, (base, factor) = rows.numbers[metric_title(place)], unit(printed)
        column = metrics[name] = MetricColumn(numbers.values * factor if factor != 1 else numbers.values, base)
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
