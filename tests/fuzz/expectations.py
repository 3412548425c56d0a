"""What must be true of any answer: an error says why, lines add up, tables hold, two readers agree."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_parsers.derived import table_builder
from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.launches import launch_view
from ncu_parsers.launches.nsys import nsys_stats
from ncu_parsers.report_data import report
from ncu_parsers.report_data.report import Launch, Report
from ncu_parsers.schema.tables import COLUMNS, with_metadata
from ncu_parsers.sources.sources import encoding_of

KINDS_OF_LINES = {
    report.HEADER, report.UNITS, report.METRICS, report.RULE, report.BLANK, report.MESSAGE, report.OUTPUT,
    report.BROKEN, report.CUT, report.TOO_LONG, report.UNLABELLED, report.LAYOUT, report.SESSION, report.SOURCE,
    nsys_stats.OTHER_ROW, launch_view.OTHER_EVENT, report.HOST, report.SAMPLE,
}  # fmt: skip


def hold_refusal(error: NcuBenchError) -> None:
    """An error of the project says what happened, and a cause or an advice."""
    assert error.what.strip()
    assert (error.cause or error.advice).strip(), f"neither cause nor advice: {error.what}"


def hold_lines(found: Report, count: int) -> None:
    """Every one of `count` lines, rows or events is accounted for, under a kind that is known."""
    assert found.lines.total() == count, f"{count} lines, accounted for: {dict(found.lines)}"
    assert set(found.lines) <= KINDS_OF_LINES, set(found.lines) - KINDS_OF_LINES
    assert all(number > 0 for number in found.lines.values()), dict(found.lines)
    read = sum(number for kind, number in found.lines.items() if kind in report.READ_KINDS)
    assert read + sum(found.skipped.values()) == count


def lines_of(data: bytes) -> int:
    """How many lines a text has; a last one without its end is one."""
    text = data.decode(encoding_of(data[:4096]), "replace")
    return text.count("\n") + (text[-1:] not in ("", "\n"))


def hold_table(table: pa.Table) -> None:
    """The table is sound: Arrow finds no fault in its buffers, and its metadata can be written."""
    table.validate(full=True)
    with_metadata(table, {"schema_version": 1})


def table_of(found: Report) -> pa.Table:
    """The table of a report."""
    return launches_table(found) if found.table is None else found.table


@contextmanager
def only_what_was_read() -> Iterator[None]:
    """Tables without the derived columns within: these follow from the others, and take most of the time."""
    with patch.object(table_builder, "contract_table", _table_of_what_was_read):
        yield


def _table_of_what_was_read(
    rows: int,
    identity: Mapping[str, Any],
    numbers: Mapping[str, Any],
    texts: Mapping[str, Any],
    described: Callable[[str], dict[bytes, bytes]],
    launches: Sequence[Launch] = (),
    found: object = None,
) -> pa.Table:
    kinds = {column.name: column.type for column in COLUMNS}
    columns = {name: table_builder._array(values, kinds[name], rows) for name, values in identity.items()}
    for name in sorted({*numbers, *texts} - columns.keys()):
        values = numbers[name] if name in numbers else texts[name]
        columns[name] = (
            values
            if isinstance(values, pa.Array)
            else table_builder._array(values, table_builder._kind_of(values), rows)
        )
    return pa.table(columns)


def rows_of(tables: list[pa.Table]) -> list[dict[str, Any]]:
    """The rows of tables that follow each other, without nulls, so that columns may come later."""
    return [
        {name: value for name, value in row.items() if value is not None}
        for table in tables
        for row in table.to_pylist()
    ]


def events_of(data: bytes) -> int | None:
    """How many events a trace has that is whole; None where that is not for sure."""
    try:
        text = data.decode("utf-8")
        if encoding_of(data[:4096]) != "utf-8" or text.count("traceEvents") > 1:
            return None
        content = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    events = content.get("traceEvents") if isinstance(content, dict) else content
    return len(events) if isinstance(events, list) else None
