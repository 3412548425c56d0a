"""The file of gates of an earlier command never looks like that of a later one, which ended without writing any."""

from __future__ import annotations

from pathlib import Path

import pytest
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.cli.comparing import old_gates
from tests.support.launches import launch, table
from tests.support.ran import ran

GATE = ("--fail-on", "time>5%")


@pytest.fixture
def passed(tmp_path: Path) -> tuple[str, Path]:
    """A run, and the gates of an earlier comparison, which passed."""
    run, junit = tmp_path / "run.parquet", tmp_path / "gates.xml"
    write_table(with_metadata(table(launch("k", ns=10.0)), {"schema_version": SCHEMA_VERSION}), run)
    assert ran("compare", str(run), str(run), *GATE, "--junit", str(junit)).exit_code == 0
    assert b'failures="0" errors="0"' in junit.read_bytes()
    return str(run), junit


@pytest.mark.parametrize("mistake", [["--fail-on", "tiem>5%"], ["--depth", "1"], ["--no-such-option"], ["--top"]])
@pytest.mark.parametrize("written", ["--junit {}", "--junit={}"])
def test_wrong_usage_leaves_no_gates_of_an_earlier_command(
    passed: tuple[str, Path], mistake: list[str], written: str
) -> None:
    run, junit = passed
    assert ran("compare", run, run, *GATE, *written.format(junit).split(), *mistake).exit_code == 2
    assert not junit.exists()


def test_a_report_named_by_mistake_stays(passed: tuple[str, Path]) -> None:
    run, _ = passed
    before = Path(run).read_bytes()
    assert ran("compare", run, run, *GATE, "--junit", run).exit_code == 2
    assert Path(run).read_bytes() == before


def test_the_help_removes_nothing(passed: tuple[str, Path]) -> None:
    run, junit = passed
    assert ran("compare", run, run, *GATE, "--junit", str(junit), "--help").exit_code == 0
    assert junit.exists()


@pytest.mark.parametrize("arguments", [["--junit", "gates.xml"], ["--junit=gates.xml"]])
def test_the_file_is_found_in_either_spelling_and_none_behind_the_end_of_the_line(arguments: list[str]) -> None:
    assert list(old_gates._junit_files(["a", "b", *arguments])) == [Path("gates.xml")]
    assert list(old_gates._junit_files(["a", "b", "--junit"])) == []
