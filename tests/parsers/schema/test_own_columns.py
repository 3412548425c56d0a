"""Columns of arguments and counters: their types, their names, and what survives writing and adding rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ncu_parsers.parquet.reader import read_bench
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.bench_table import bench_table, rows_of, with_row
from ncu_parsers.schema.own_columns import METRICS, own_fields, own_names
from ncu_parsers.schema.tables import METADATA_KEY, encoded, field_entries


def row(name: str, **arguments: str) -> dict[str, Any]:
    return {
        "point": name, "target": "k.py:f", "dtype": "fp32", "autocast": False, "mode": "eager", "channels_last": False,
        "phase": "forward", "outcome": "ok", "log": "", "argument_values": arguments,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "kind", "values"),
    [
        (["64", "1_000"], pa.int64(), [64, 1000]),
        (["64", "0.5"], pa.float64(), [64.0, 0.5]),
        (["64", "a"], pa.string(), ["64", "a"]),
        (["inf", "1"], pa.string(), ["inf", "1"]),
        (["99999999999999999999", "1"], pa.float64(), [1e20, 1.0]),
        (["1024x1024", "true"], pa.string(), ["1024x1024", "true"]),
    ],
)
def test_an_argument_is_of_numbers_where_all_its_values_are(texts: list[str], kind: Any, values: list[Any]) -> None:
    table = bench_table([row(text, n=text) for text in texts])
    assert table.schema.field("n").type == kind
    assert table.column("n").to_pylist() == values


def test_a_row_without_the_argument_is_null() -> None:
    assert bench_table([row("a", n="1"), row("b", m="2")]).select(["n", "m"]).to_pylist() == [
        {"n": 1, "m": None}, {"n": None, "m": 2}
    ]  # fmt: skip


def test_a_name_that_another_column_has_gets_a_prefix_and_keeps_its_values() -> None:
    table = bench_table([row("a", threads="8", arg_x="1")])
    assert own_names(table) == ["arg_threads", "arg_x"]
    again = with_row(table, row("b", threads="9", arg_x="2"))
    assert again.select(["arg_threads", "arg_x"]).to_pylist() == [
        {"arg_threads": 8, "arg_x": 1}, {"arg_threads": 9, "arg_x": 2}
    ]  # fmt: skip


def test_names_that_differ_in_case_alone_are_two_columns_also_for_sql() -> None:
    own = own_fields([{"argument_values": {"n": "1", "N": "2"}}], ())
    assert [field.name for field, _ in own.columns] == ["n", "arg_N"]


def test_rows_that_are_added_later_may_change_the_type_of_a_column() -> None:
    table = with_row(with_row(None, row("a", n="64")), row("b", n="big"))
    assert table.column("n").to_pylist() == ["64", "big"]
    assert with_row(table, row("b", n="128")).column("n").to_pylist() == [64, 128]


def test_columns_survive_a_file(tmp_path: Path) -> None:
    measured = {**row("a", n="64"), "metric_values": {"x__y.sum": 5.0}, "metric_units": {"x__y.sum": "byte"}}
    write_table(bench_table([measured]), tmp_path / "bench.parquet")
    table = read_bench(tmp_path / "bench.parquet")
    assert (own_names(table), own_names(table, METRICS)) == (["n"], ["x__y.sum"])
    assert rows_of(table)[0]["metric_values"] == {"x__y.sum": 5.0}
    assert field_entries(with_row(table, row("b")).schema.field("x__y.sum"))["unit"] == "byte"


@pytest.mark.parametrize("named", ["n", 5, [5, None], ["no_such_column"], ["notes"], {"n": 1}, ["\x1b[31m"]])
def test_metadata_that_was_changed_names_no_columns(named: Any) -> None:
    table = bench_table([row("a")]).append_column("\x1b[31m", pa.array([1]))
    table = table.replace_schema_metadata({METADATA_KEY: encoded({"arguments": named})})
    assert own_names(table) == []
