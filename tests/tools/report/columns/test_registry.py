"""The registry of columns: a name has one entry, every entry is used, and a table lays out what it lists."""

from __future__ import annotations

import pkgutil
import re

import pytest

import ncu_tools
from ncu_tools.cli.programs.schema import columns_in
from ncu_tools.numbers.number_format import FORMATS
from ncu_tools.report.columns.registry import SUBJECTS, Entry, column, columns, entries_of
from ncu_tools.report.table import KERNEL, Column
from tests.conftest import ROOT

SOURCES = sorted((ROOT / "ncu_tools").rglob("*.py"))
NAMED_BY_SIDE = {"base_least_bytes_mean", "new_least_bytes_mean"}
"""Columns whose names a function puts together."""


def every_entry() -> dict[str, Entry]:
    return {name: one for subject in SUBJECTS for name, one in entries_of(subject).items()}


def test_a_column_is_in_one_file_of_the_registry() -> None:
    assert sum(len(entries_of(subject)) for subject in SUBJECTS) == len(every_entry())


def test_every_entry_says_what_it_means_and_how_it_is_written() -> None:
    for name, one in every_entry().items():
        assert one.title, name
        assert one.meaning, name
        assert not one.meaning.endswith("."), name
        assert one.kind in {*FORMATS, KERNEL}, name
        assert one.type in ("", "array", "boolean", "number", "object"), name


@pytest.mark.slow
def test_every_entry_is_a_column_of_a_table() -> None:
    modules = [one.name for one in pkgutil.walk_packages(ncu_tools.__path__, "ncu_tools.") if not one.ispkg]
    used = {one.key for one in columns_in(name.removeprefix("ncu_tools.") for name in modules)}
    for path in SOURCES:
        for names in re.findall(r'columns?\(\s*((?:"[^"]*"\s*)+)', path.read_text("utf-8")):
            used |= {word.partition("~")[0] for word in names.replace('"', " ").split()}
    assert every_entry().keys() - used == NAMED_BY_SIDE


def test_only_columns_of_a_run_are_declared_outside_the_registry() -> None:
    """Columns of metrics, arguments, SQL, counters, opcodes and units have names that no registry can know."""
    places = {
        path.relative_to(ROOT / "ncu_tools").as_posix(): len(
            re.findall(r"(?<![A-Za-z_])Column\(", path.read_text("utf-8"))
        )
        for path in SOURCES
    }
    assert {path: count for path, count in places.items() if count} == {
        "cli/collecting/scaling.py": 1, "cli/collecting/series.py": 1, "cli/reading/hotspots.py": 3, "cli/reading/mix.py": 1,
        "cli/reading/query.py": 1, "cli/reading/sampled_gpus.py": 1, "cli/tables/hotspots/metric_columns.py": 1,
        "report/columns/column.py": 1, "report/columns/registry.py": 1, "report/table.py": 2,
    }  # fmt: skip


def test_a_table_lists_names_and_ranks_and_may_lay_a_column_out_otherwise() -> None:
    launches, time = columns("launches~2 generation.time_ns")
    assert (launches.name, launches.title, launches.kind, launches.spare) == ("launches", "launches", "count", 2)
    assert (time.name, time.title, time.unit, time.spare) == ("time_ns", "time/step", "ns", None)
    assert column("device", wide=True) == column("device")._replace(wide=True)
    assert isinstance(time, Column)


def test_a_name_that_the_registry_does_not_have_is_an_error() -> None:
    with pytest.raises(KeyError, match="no_column"):
        columns("launches no_column")
