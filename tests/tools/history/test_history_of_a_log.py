"""The loop of a program that tunes a kernel, over three versions of it: advise, change, advise --against, the log."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from ncu_launch.errors import NcuBenchError

from ncu_tools.advice.history import HEAD, LoggedChange, is_log, logged_changes
from tests.support.called_here import called_here
from tests.support.three_versions import write_versions
from tests.tools.cli.test_cli import Result

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tuned_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three versions of a kernel, and the log of a program that went from one to the next."""
    tmp_path = tmp_path_factory.mktemp("tuned")
    versions = write_versions(tmp_path)
    for old, new in pairwise(versions):
        advised = rows(in_folder(tmp_path, "advise", old, "--format", "json"))
        done = in_folder(tmp_path, "advise", old, "--against", new, "--log", "log.md", "--format", "json")
        assert advised[0]["lever"] == "pad-shared-memory" or old != versions[0]
        assert rows(done)
    return tmp_path


@pytest.fixture
def tuned(tuned_once: Path, tmp_path: Path) -> Path:
    """A copy of that folder, which a test may change."""
    return Path(shutil.copytree(tuned_once, tmp_path / "tuned"))


def in_folder(folder: Path, *words: str) -> Result:
    done = called_here(*words, cwd=folder)
    assert done.code == 0, done.err
    return done


def rows(done: Result) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(done.out)["rows"]
    return found


def test_the_log_of_a_loop_is_a_history_in_its_order(tuned: Path) -> None:
    done = in_folder(tuned, "history", "log.md", "--format", "json")
    answer = json.loads(done.out)
    assert answer["head"]["runs"] == ["v1.csv", "v2.csv", "v3.csv"]
    assert {(row["run"], row["quantity"], row["cause"]) for row in answer["rows"]} == {
        ("v3.csv", "instructions", "code"),
        ("v3.csv", "time", "code"),
    }
    assert any(
        "v2.csv, conflicts: pulled pad-shared-memory" in note and "516.7 µs -> 300 µs, 41.9 % saved" in note
        for note in answer["notes"]
    )
    assert not any("ordered by the times of files" in note for note in answer["notes"])


def test_a_gate_holds_the_last_version_of_a_log(tuned: Path) -> None:
    done = in_folder(tuned, "history", "log.md", "--fail-on", "any:time>5%")
    assert "passed" in done.out
    slower = (tuned / "v3.csv").read_text("utf-8").replace('"260.0"', '"900.0"')
    (tuned / "v3.csv").write_text(slower, "utf-8")
    assert called_here("history", "log.md", "--fail-on", "any:time>5%", cwd=tuned).code == 3


def test_runs_of_a_log_are_found_from_its_folder_too(tuned: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    done = in_folder(elsewhere, "history", str(tuned / "log.md"), "--series", "--quantity", "time", "--format", "json")
    assert [row["value"] for row in rows(done)] == pytest.approx([516704, 300000, 260000])


def test_a_run_of_a_log_that_is_gone_is_named(tuned: Path) -> None:
    (tuned / "v2.csv").unlink()
    done = in_folder(tuned, "history", "log.md", "--notes")
    assert "v2.csv was left out" in done.err


def test_a_log_that_was_cut_off_is_refused(tuned: Path) -> None:
    whole = (tuned / "log.md").read_text("utf-8")
    (tuned / "log.md").write_text(whole[:-20], "utf-8")
    done = called_here("history", "log.md", cwd=tuned)
    assert done.code == 1
    assert "its end is missing" in done.err


def test_cells_of_a_log_are_read_as_they_were_written(tmp_path: Path) -> None:
    one = LoggedChange("2026-11-27 08:00", "a|b.csv", "<c>.csv", "k | l", "coalesce", "said", "brought", "next")
    log = tmp_path / "log.md"
    log.write_text("\n".join([*HEAD, one.line, "a line of somebody", "| too | few |"]) + "\n", "utf-8")
    assert is_log(log)
    assert logged_changes(log) == [one]


def test_other_markdown_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes\n", "utf-8")
    assert not is_log(tmp_path / "notes.md")
    assert not is_log(tmp_path / "nowhere.md")
    with pytest.raises(NcuBenchError, match="Its first line is not"):
        logged_changes(tmp_path / "notes.md")
