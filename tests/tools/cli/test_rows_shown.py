"""Rows shown to people are limited; programs get all of them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.cli import run
from ncu_tools.report.table import Column, Table, to_csv, to_json
from tests.support.launches import launch, table

KERNELS = 25
COMMANDS = (["hotspots"], ["roofline"], ["compare", "other.parquet"], ["compare", "other.parquet", "--sort", "time"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with two runs of 25 kernels."""
    for name, factor in (("run.parquet", 1.0), ("other.parquet", 1.5)):
        launches = [launch(f"kernel_{one}", ns=factor * (1000.0 + one), dram=4096.0) for one in range(KERNELS)]
        write_table(with_metadata(table(*launches), {"schema_version": SCHEMA_VERSION}), tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], command: list[str], *more: str) -> tuple[str, str]:
    assert run([command[0], "run.parquet", *command[1:], *more]) == 0
    said = capsys.readouterr()
    return said.out, said.err


def of_kernels(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["kernel"].startswith("kernel_")]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
class TestRows:
    def test_json_and_csv_hold_every_row(self, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        document = json.loads(shown(capsys, command, "--format", "json")[0])
        assert len(of_kernels(document["rows"])) == KERNELS
        assert not any("--top" in note for note in document["notes"])
        out, err = shown(capsys, command, "--format", "csv")
        assert len(of_kernels(list(csv.DictReader(io.StringIO(out))))) == KERNELS
        assert "--top" not in err

    def test_people_see_twenty_rows_and_the_number_of_hidden_ones(
        self, command: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        for form in ("text", "markdown"):
            out, err = shown(capsys, command, "--format", form)
            rows = out.splitlines()
            assert sum(row.lstrip(" |").startswith(("kernel_", "kernel\\_")) for row in rows) == 20
            assert "5 more" in out + err

    def test_top_applies_to_every_format_and_its_note_can_be_singular(
        self, command: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        document = json.loads(shown(capsys, command, "--top", "24", "--format", "json")[0])
        assert len(of_kernels(document["rows"])) == 24
        assert any("1 more" in note and "1 more kernels" not in note for note in document["notes"])


@pytest.mark.parametrize("rows", [[], [{"name": "a\u2028", "list": [1, {"b": 2}]}, {"name": None, "list": []}]])
def test_json_written_in_pieces_equals_the_whole_json(rows: list[dict[str, Any]]) -> None:
    columns = (Column("name", "name"), Column("list", "list", unit="s"))
    found = "".join(to_json(Table("x", columns, rows, ["a note"], {"extra": [1]})))
    whole = {
        "schema_version": 1, "command": "x", "columns": {"name": "", "list": "s"}, "rows": rows, "extra": [1],
        "notes": ["a note"],
    }  # fmt: skip
    assert found == json.dumps(whole, indent=1, ensure_ascii=False).replace("\u2028", "\\u2028")


def test_csv_quotes_cells_with_separators() -> None:
    lines = list(to_csv(Table("x", (Column("a", "a"), Column("b", "b")), [{"a": 'x,"y"', "b": 1.5}, {"a": "z"}])))
    assert "".join(lines) == 'a,b\n"x,""y""",1.5\nz,'


@pytest.mark.usefixtures("folder")
def test_rows_of_a_roofline_name_their_run_in_csv_also_where_it_is_the_only_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, _ = shown(capsys, ["roofline"], "--format", "csv")
    assert {row["run"] for row in csv.DictReader(io.StringIO(out))} == {"run.parquet"}
