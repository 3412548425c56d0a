"""What people read of every report at hand: short names that tell kernels apart, and lines no wider than asked."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from ncu_tools.cli import run
from ncu_tools.cli.options import WIDTH_OF_PIPES
from ncu_tools.numbers.text_width import text_width
from ncu_tools.report.table import KERNEL, Table, to_markdown, to_text
from tests.conftest import SAMPLES, SHARED
from tests.support.nightly import by_day, one_in
from tests.support.reports import EACH_FORMAT, needs_shared_reports, sample_files

WIDTHS = (80, 100, WIDTH_OF_PIPES, 160)
NOISE = ("at::native", "anonymous namespace", "<unnamed>", "c10::")
MANY = "100000"
"""More kernels than any report has."""
METRICS_AT_ONCE, METRICS_TRIED = 12, 60
SHARED_FILES = [path for path in sorted((SHARED / "reports").rglob("*")) if path.is_file() and path.suffix != ".md"]
READ: dict[tuple[str, ...], Table | None] = {}
"""The table of each command line that was run; None where the report was refused."""


def name_of_file(path: Path) -> str:
    return path.name


@pytest.fixture
def table_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The table that a command shows, before it is laid out; None where it refuses its reports."""

    def _table_of(*words: str) -> Table | None:
        if words not in READ:
            shown: list[Table] = []
            module = {"hotspots": "reading.hotspots", "compare": "comparing.compare"}[words[0]]
            monkeypatch.setattr(
                f"ncu_tools.cli.{module}.show", lambda table, output_format, **more: shown.append(table)
            )
            run(list(words))
            READ[words] = shown[0] if shown else None
        return READ[words]

    return _table_of


def assert_readable(table: Table) -> None:
    """No line is wider than asked, and no two rows look the same unless they are of one kernel."""
    for width in WIDTHS:
        lines = to_text(table, width).splitlines()
        assert max(map(text_width, lines)) <= width
        assert_told_apart(table, [re.split(" {2,}", line.strip())[0] for line in lines[2:]])
    names = [
        line.split(" | ")[0].removeprefix("| ") for line in to_markdown(table).splitlines()[2 : 2 + len(table.rows)]
    ]
    assert max(len(re.sub(r"\\(?=\W|_)", "", name)) for name in names) <= 60
    assert_told_apart(table, names)


def assert_told_apart(table: Table, names: list[str]) -> None:
    """Every row has a name of its own, without what all names have, if its kernel has."""
    assert len(names) == len(table.rows)
    kernels = defaultdict(set)
    for row, name in zip(table.rows, names, strict=True):
        kernels[name].add(row["kernel"])
        assert not any(noise in name for noise in NOISE), name
    assert [name for name, ones in kernels.items() if len(ones) > 1] == []


def assert_kernels_readable(path: Path, table_of: Any) -> None:
    for group in ("name", "grid"):
        table = table_of("hotspots", str(path), "--by", group, "--top", MANY)
        if table is not None:
            assert table.columns[0].kind == KERNEL
            assert_readable(table)


@needs_shared_reports
@pytest.mark.slow
@pytest.mark.parametrize("path", one_in(5, SHARED_FILES), ids=name_of_file)
def test_the_kernels_of_a_real_report_are_told_apart_at_any_width(path: Path, table_of: Any) -> None:
    assert_kernels_readable(path, table_of)


@pytest.mark.parametrize("path", by_day(EACH_FORMAT, sample_files()), ids=name_of_file)
def test_the_kernels_of_a_sample_are_told_apart_at_any_width(path: Path, table_of: Any) -> None:
    assert_kernels_readable(path, table_of)


@needs_shared_reports
@pytest.mark.slow
@pytest.mark.parametrize(
    "path", one_in(4, [path for path in SHARED_FILES if path.parent.name == "kineto"]), ids=name_of_file
)
def test_a_trace_compared_with_itself_has_a_name_for_each_kernel(path: Path, table_of: Any) -> None:
    table = table_of("compare", str(path), str(path), "--top", MANY)
    assert table is not None
    assert_readable(table)


@pytest.mark.parametrize(
    "path", [SAMPLES / "d01-wide-raw.csv", SAMPLES / "h100" / "resnet18-raw-base.csv"], ids=name_of_file
)
def test_metrics_as_columns_have_titles_of_their_own(
    path: Path, table_of: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.support.reports import table_of as launches_of

    launches = launches_of(path)
    assert launches is not None
    metrics = [name for name in launches.column_names if "__" in name]
    for first in range(0, METRICS_TRIED, METRICS_AT_ONCE):
        table = table_of("hotspots", str(path), "--columns", ",".join(metrics[first : first + METRICS_AT_ONCE]))
        titles = [column.title for column in table.columns if "__" in column.name]
        assert len(set(titles)) == len(titles)
        assert_readable(table)


@needs_shared_reports
@pytest.mark.nightly
def test_most_names_of_the_reports_are_short_enough_to_be_shown_whole_in_80_columns(table_of: Any) -> None:
    tables = [
        table for path in SHARED_FILES if (table := table_of("hotspots", str(path), "--by", "name", "--top", MANY))
    ]
    names = [line.strip() for table in tables for line in to_text(table, 80).splitlines()[2:]]
    assert len(names) > 500
    assert sum("…" in name for name in names) < len(names) / 10
