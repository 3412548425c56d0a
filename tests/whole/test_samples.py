"""Every sample report four ways: it parses to its golden file, is recognised with its name hidden, survives the
round trip through Parquet, and parses to the same bytes twice. Dropping a file into sample_reports/ adds a test."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.parquet.reader import read_launches
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.parse.parse import Parsed, account, parse
from ncu_parsers.schema.tables import COLUMNS, contract_first
from ncu_parsers.sources.sources import Source

from sample_reports.generate import reports
from tests.conftest import ROOT, SAMPLES
from tests.support.nightly import one_in
from tests.support.reports import MEASURED, first_line, is_binary, sample_files

pytestmark = pytest.mark.slow

GOLDEN = ROOT / "tests" / "golden"
OF_CONTRACT = {column.name for column in COLUMNS}


def parsed_anew(path: Path) -> Parsed:
    return parse([Source(str(path))])


parsed_sample = cache(parsed_anew)
"""What a sample parses to, once for all tests, which change nothing of it."""


def golden_of(path: Path) -> dict[str, Any]:
    """Everything that a sample parses to: dialects, lines, notes, every column of every launch, or the refusal."""
    parsed = parsed_sample(path) if path.is_relative_to(SAMPLES) else parsed_anew(path)
    if parsed.table is None:
        return {"refused": first_line(next(iter(parsed.refused.values())))}
    known = {key: value for key, value in account(parsed.reports[0]).items() if key != "report"}
    names = [name for name in contract_first(parsed.table.column_names) if name != "report"]
    rows = [
        {name: row[name] for name in names if row[name] is not None} for row in parsed.table.select(names).to_pylist()
    ]
    return {**known, "rows": rows}


def kept_of(path: Path) -> dict[str, Any]:
    """What the golden file of a sample holds: everything; of a measured one, with 1,300 metrics, the contract's columns.

    `test_h100_samples.py` compares those metrics with the cells of the file.
    """
    golden = golden_of(path)
    if path.parent == MEASURED and "rows" in golden:
        golden["rows"] = [{name: row[name] for name in row if name in OF_CONTRACT} for row in golden["rows"]]
    return golden


def golden_file(path: Path) -> Path:
    """The golden file of a sample."""
    return GOLDEN / path.relative_to(SAMPLES).with_name(f"{path.name}.json")


@pytest.mark.parametrize("path", sample_files(), ids=lambda path: path.name)
class TestEverySample:
    def test_parses_to_its_golden_file(self, path: Path) -> None:
        golden = json.loads(golden_file(path).read_text("utf-8"))
        assert json.loads(json.dumps(kept_of(path))) == golden

    def test_is_recognised_with_its_name_hidden(self, path: Path, tmp_path: Path) -> None:
        hidden = tmp_path / "unknown.bin"
        shutil.copy(path, hidden)
        assert golden_of(hidden) == golden_of(path)

    def test_accounts_for_every_line(self, path: Path) -> None:
        golden = golden_of(path)
        if "refused" in golden or is_binary(path):
            return
        data = path.read_bytes()
        text = data.decode("utf-16") if data[:2] == b"\xff\xfe" else data.decode("utf-8-sig")
        assert sum(golden["lines"].values()) == len(text.splitlines())


@pytest.mark.parametrize("path", one_in(3, sample_files()), ids=lambda path: path.name)
class TestOneInThree:
    def test_survives_the_round_trip_through_parquet(self, path: Path, tmp_path: Path) -> None:
        table = parsed_sample(path).table
        if table is None:
            assert "refused" in golden_of(path)
            return
        write_table(table, tmp_path / "launches.parquet")
        back = read_launches(tmp_path / "launches.parquet")
        assert back.to_pylist() == table.to_pylist()
        assert back.schema.metadata == table.schema.metadata
        assert [field.metadata for field in back.schema] == [field.metadata for field in table.schema]

    def test_parses_to_the_same_bytes_twice(self, path: Path, tmp_path: Path) -> None:
        contents = []
        for number, parsed in enumerate((parsed_sample(path), parsed_anew(path))):
            table = parsed.table
            if table is None:
                return
            write_table(table, tmp_path / f"{number}.parquet")
            contents.append((tmp_path / f"{number}.parquet").read_bytes())
        assert contents[0] == contents[1]


def test_the_generated_samples_are_what_the_generator_writes() -> None:
    on_disk = {path.name: path.read_bytes() for path in sample_files() if path.parent == SAMPLES}
    assert on_disk == reports()


def test_every_sample_has_a_golden_file_and_every_golden_file_a_sample() -> None:
    assert {path for path in GOLDEN.rglob("*") if path.is_file()} == {golden_file(path) for path in sample_files()}


def test_the_readme_of_the_samples_says_first_which_are_generated_and_which_measured() -> None:
    first = (SAMPLES / "README.md").read_text("utf-8").splitlines()[0]
    assert "generated" in first.lower()
    assert "measured" in first.lower()


def test_every_sample_is_listed_in_the_readme_of_the_samples() -> None:
    listed = (SAMPLES / "README.md").read_text("utf-8")
    assert [path.name for path in sample_files() if path.name not in listed] == []
